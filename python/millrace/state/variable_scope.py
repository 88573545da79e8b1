"""Variable scopes: variables found again by name, and how new ones are made."""

import functools
import inspect
from typing import Any, Callable

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.suggest import nearest_names
from millrace.graph.convert import convert_to_tensor
from millrace.graph.graph import (
    Graph,
    get_default_graph,
    graph_of_values,
    name_scope,
    root_graph,
)
from millrace.graph.keys import GraphKeys
from millrace.state import initializers
from millrace.state.variables import (
    PartitionedVariable,
    SaveSliceInfo,
    Variable,
    VariableAggregation,
    VariableSynchronization,
)


class _ReuseMode:
    """A way to treat names that are there already."""

    def __repr__(self) -> str:
        return "AUTO_REUSE"


AUTO_REUSE = export("AUTO_REUSE")(_ReuseMode())


@export("no_regularizer")
def no_regularizer(_: Any) -> None:
    """A regularizer that adds nothing; it keeps a scope's own from being used."""
    return None


class PartitionInfo:
    """Which part of a larger variable an initializer makes."""

    def __init__(self, full_shape: Any, var_offset: Any):
        if not isinstance(full_shape, (list, tuple)):
            raise TypeError(f"`full_shape` must be a sequence, got {full_shape!r}")
        if not isinstance(var_offset, (list, tuple)):
            raise TypeError(f"`var_offset` must be a sequence, got {var_offset!r}")
        if len(var_offset) != len(full_shape):
            raise ValueError(
                f"Expected equal length, but `var_offset` is of length {len(var_offset)} while "
                f"full shape is of length {len(full_shape)}."
            )
        for offset, size in zip(var_offset, full_shape, strict=True):
            if offset < 0 or offset >= size:
                raise ValueError(
                    "Expected 0 <= offset < shape but found "
                    f"offset={offset}, shape={size} for var_offset={var_offset}, "
                    f"full_shape={full_shape}"
                )
        self._full_shape, self._var_offset = full_shape, var_offset

    @property
    def full_shape(self) -> Any:
        """The shape of the whole."""
        return self._full_shape

    @property
    def var_offset(self) -> Any:
        """Where the part begins."""
        return self._var_offset

    def single_offset(self, shape: Any) -> int:
        """Where a part of that shape begins in the one dimension that is cut."""
        dim = self.single_slice_dim(shape)
        return 0 if dim is None else self._var_offset[dim]

    def single_slice_dim(self, shape: Any) -> int | None:
        """The dimension that is cut; None where none is. ValueError for several."""
        if not isinstance(shape, (list, tuple)):
            raise TypeError(f"`shape` must be a sequence, got {shape!r}")
        if len(shape) != len(self._full_shape):
            raise ValueError(
                f"Expected equal length, but received shape={shape} of length {len(shape)} while "
                f"self.full_shape={self._full_shape} is of length {len(self._full_shape)}."
            )
        found = None
        for i, (size, offset, full) in enumerate(
            zip(shape, self._var_offset, self._full_shape, strict=True)
        ):
            if offset + size > full:
                raise ValueError(
                    f"With self.var_offset={self._var_offset}, a partition of shape={shape} would "
                    f"exceed self.full_shape={self._full_shape} in dimension {i}."
                )
            if size == full:
                continue
            if found is not None:
                raise ValueError(
                    "Cannot use single_slice_dim() with shape="
                    f"{shape} and self.full_shape={self._full_shape} since slice dim could be "
                    f"either dimension {i} or {found}."
                )
            found = i
        return found


class _Store:
    """The variables of a graph by name, the open scope, and how often scopes were opened."""

    def __init__(self) -> None:
        self.variables: dict[str, Variable] = {}
        self.partitioned: dict[str, PartitionedVariable] = {}
        self.scope = VariableScope(False)
        self.counts: dict[str, int] = {}

    def open(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def close_below(self, name: str) -> None:
        for key in self.counts:
            if not name or key.startswith(name + "/"):
                self.counts[key] = 0

    def unique(self, prefix: str) -> str:
        """The prefix, numbered where a scope of that name was opened already."""
        full = f"{self.scope.name}/{prefix}" if self.scope.name else prefix
        if not self.counts.get(full):
            return prefix
        number = 1
        while self.counts.get(f"{full}_{number}"):
            number += 1
        return f"{prefix}_{number}"

    # Variables.

    def get(
        self, name: str, shape: Any = None, dtype: Any = dtypes.float32, initializer: Any = None,
        regularizer: Any = None, reuse: Any = None, trainable: bool | None = None,
        collections: Any = None, caching_device: Any = None, partitioner: Any = None,
        validate_shape: bool = True, use_resource: bool | None = None, constraint: Any = None,
        synchronization: Any = VariableSynchronization.AUTO,
        aggregation: Any = VariableAggregation.NONE,
    ) -> Any:  # fmt: skip
        """An existing variable or a new one, in parts where a partitioner says so."""
        options = {
            "dtype": dtype, "initializer": initializer, "regularizer": regularizer,
            "reuse": reuse, "trainable": trainable, "collections": collections,
            "caching_device": caching_device, "validate_shape": validate_shape,
            "use_resource": use_resource, "constraint": constraint,
            "synchronization": synchronization, "aggregation": aggregation,
        }  # fmt: skip
        scalar = isinstance(shape, (list, tuple, TensorShape)) and len(shape) == 0
        if partitioner is not None and not scalar:
            if not callable(partitioner):
                raise ValueError(f"Partitioner must be callable, but received: {partitioner}")
            with name_scope(None):
                return self._get_parts(name, shape, partitioner, options)
        if reuse is True and partitioner is None and name in self.partitioned:
            return self._get_parts(name, shape, None, options)
        if f"{name}/part_0" in self.variables:
            raise ValueError(
                "No partitioner was provided, but a partitioned version of the variable was "
                f"found: {name}/part_0. Perhaps a variable of the same name was already created "
                "with partitioning?"
            )
        return self._get_one(name, shape, **options)

    def _get_one(
        self, name: str, shape: Any, dtype: Any, initializer: Any, regularizer: Any, reuse: Any,
        trainable: bool | None, collections: Any, caching_device: Any, validate_shape: bool,
        use_resource: bool | None, constraint: Any, synchronization: Any, aggregation: Any,
        partition_info: Any = None,
    ) -> Variable:  # fmt: skip
        from_value = initializer is not None and not callable(initializer)
        if shape is not None and from_value:
            raise ValueError(
                f"If initializer is a constant, do not specify shape (variable {name!r}, shape "
                f"{shape})."
            )
        dtype = dtypes.as_dtype(dtype)
        shape = TensorShape(shape)
        found = self.variables.get(name)
        if found is not None:
            self._check_found(name, found, shape, dtype, reuse)
            return found
        if reuse is True:
            raise ValueError(
                f"Variable {name} does not exist, or was not created with tf.get_variable(). Did "
                "you mean to set reuse=tf.AUTO_REUSE in VarScope?"
                + nearest_names(name, self.variables)
            )
        if initializer is None:
            if shape.ndims is None:
                raise ValueError(
                    f"Variable {name} did not get an initializer, so its `shape` argument must be "
                    "specified."
                )
            initializer = _default_initializer(name, dtype)
        if not from_value and isinstance(initializer, type):
            initializer = initializer(dtype=dtype)
        variable_dtype = None if from_value else dtype.base_dtype
        variable = Variable(
            initial_value=(
                initializer
                if from_value
                else _initial_value(name, initializer, shape, dtype, partition_info)
            ),
            name=name,
            trainable=trainable,
            collections=collections,
            caching_device=caching_device,
            dtype=variable_dtype,
            validate_shape=validate_shape,
            constraint=constraint,
            use_resource=use_resource,
            synchronization=synchronization,
            aggregation=aggregation,
        )
        self.variables[name] = variable
        if regularizer is not None:
            _add_regularization(name, variable, regularizer)
        return variable

    def _check_found(
        self, name: str, found: Variable, shape: TensorShape, dtype: dtypes.DType, reuse: Any
    ) -> None:
        if not reuse:
            origin = found.op.traceback
            where = f"\ndefined at {origin[0][0]}:{origin[0][1]}  {origin[0][3]}" if origin else ""
            raise ValueError(
                f"Variable {name} already exists, disallowed. Did you mean to set reuse=True or "
                f"reuse=tf.AUTO_REUSE in VarScope? Originally defined at:{where}"
            )
        if not shape.is_compatible_with(found.shape):
            raise ValueError(
                f"Trying to share variable {name}, but specified shape {shape} and found shape "
                f"{found.shape} ({found.dtype.base_dtype.name})."
            )
        if not dtype.is_compatible_with(found.dtype):
            raise ValueError(
                f"Trying to share variable {name}, but specified dtype {dtype.name} and found "
                f"dtype {found.dtype.base_dtype.name} (shape {found.shape})."
            )

    def _get_parts(
        self, name: str, shape: Any, partitioner: Any, options: dict[str, Any]
    ) -> PartitionedVariable:
        initializer, reuse = options["initializer"], options["reuse"]
        dtype = dtypes.as_dtype(options["dtype"])
        from_value = initializer is not None and not callable(initializer)
        if name in self.variables:
            raise ValueError(
                "A partitioner was provided, but an unpartitioned version of the variable was "
                f"found: {name}. Perhaps a variable of the same name was already created without "
                "partitioning?"
            )
        shape = TensorShape(shape)
        if from_value and not isinstance(initializer, (list, tuple)):
            initializer = options["initializer"] = convert_to_tensor(initializer)
            shape = shape.merge_with(initializer.shape)
        partitions = None
        if partitioner is not None:
            partitions = _checked_partitions(partitioner(shape=shape, dtype=dtype), shape)
        found = self.partitioned.get(name)
        if found is not None:
            self._check_found_parts(name, found, shape, dtype, partitions, reuse)
            return found
        if reuse is True:
            raise ValueError(
                f"PartitionedVariable {name} does not exist, or was not created with "
                "tf.get_variable(). Did you mean to set reuse=False or reuse=tf.AUTO_REUSE in "
                f"VarScope?{nearest_names(name, self.partitioned)}"
            )
        if not shape.is_fully_defined():
            raise ValueError(
                f"Shape of a new partitioned variable ({name}) must be fully defined, but instead "
                f"was {shape}."
            )
        dims = shape.as_list()
        axis, count = _single_axis(partitions)
        self._check_other_partitioning(name, count)
        parts = []
        for i, (offset, part_shape) in enumerate(_cut(dims, axis, count)):
            one = dict(options)
            part: Any = part_shape
            if from_value:
                part = None
                one["initializer"] = (
                    initializer[i]
                    if isinstance(initializer, (list, tuple))
                    else gen_ops.slice(initializer, offset, part_shape)
                )
            with name_scope(None):
                variable = self._get_one(
                    f"{name}/part_{i}", part, partition_info=PartitionInfo(dims, offset), **one
                )
            variable._set_save_slice_info(SaveSliceInfo(name, dims, offset, part_shape))
            parts.append(variable)
        whole = PartitionedVariable(name, dims, dtype, parts, partitions)
        self.partitioned[name] = whole
        return whole

    def _check_found_parts(
        self, name: str, found: PartitionedVariable, shape: TensorShape, dtype: dtypes.DType,
        partitions: list[int] | None, reuse: Any,
    ) -> None:  # fmt: skip
        if not reuse:
            raise ValueError(
                f"Partitioned variable with name {name} already exists. Did you mean to set "
                "reuse=True or reuse=tf.AUTO_REUSE in VarScope?"
            )
        if not shape.is_compatible_with(found.shape):
            raise ValueError(
                f"Trying to reuse partitioned variable {name}, but specified shape {shape} and "
                f"found shape {found.shape}."
            )
        if not dtype.is_compatible_with(found.dtype):
            raise ValueError(
                f"Trying to reuse partitioned variable {name}, but specified dtype {dtype.name} "
                f"and found dtype {found.dtype.name}."
            )
        if partitions is not None and found._get_partitions() != partitions:
            raise ValueError(
                f"Trying to reuse partitioned variable {name}, but specified partitions "
                f"{partitions} and found partitions {found._get_partitions()}."
            )

    def _check_other_partitioning(self, name: str, count: int) -> None:
        if f"{name}/part_0" not in self.variables:
            return
        if f"{name}/part_{count - 1}" not in self.variables:
            raise ValueError(
                "Partitioner returned a different partitioning than what was already found. "
                f"Partitioner returned {count} shards, and shard {name}/part_0 was found, but "
                f"{name}/part_{count - 1} was not."
            )
        if f"{name}/part_{count}" in self.variables:
            raise ValueError(
                "Partitioner returned a different partitioning than what was already found. "
                f"Partitioner returned {count} shards, and shard {name}/part_0 was found, but so "
                f"was the extra shard {name}/part_{count}."
            )


def _default_initializer(name: str, dtype: dtypes.DType) -> Callable[..., Any]:
    if dtype.is_floating:
        return initializers.GlorotUniform()
    if dtype.is_integer or dtype.is_bool or dtype.is_unsigned:
        return initializers.Zeros()
    raise ValueError(f"An initializer for variable {name} of {dtype.base_dtype.name} is required")


def _accepts(function: Callable[..., Any], argument: str) -> bool:
    """Whether a function takes an argument of that name."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return argument in parameters or any(
        p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()
    )


def _initial_value(
    name: str, initializer: Callable[..., Any], shape: TensorShape, dtype: dtypes.DType,
    partition_info: Any,
) -> Callable[[], Any]:  # fmt: skip
    """A function that makes the initial value."""
    if getattr(initializer, "takes_partition_info", False) and shape.is_fully_defined():
        dims = shape.as_list()

        def make() -> Any:
            return initializer(dims, dtype=dtype.base_dtype, partition_info=partition_info)

        make.reads_variables = False
        return make
    if shape.is_fully_defined():
        options: dict[str, Any] = {"dtype": dtype.base_dtype}
        if _accepts(initializer, "partition_info"):
            options["partition_info"] = partition_info
        if _takes_nothing(initializer):
            return initializer
        return lambda: initializer(shape.as_list(), **options)
    if _takes_nothing(initializer):
        return initializer
    raise ValueError(
        f"Shape of a new variable ({name}) must be fully defined, but instead was {shape}."
    )


def _takes_nothing(function: Callable[..., Any]) -> bool:
    try:
        return not inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _add_regularization(name: str, variable: Variable, regularizer: Callable[..., Any]) -> None:
    graph = variable.graph
    with graph.as_default(), graph.colocate_with(variable.op):
        with name_scope(name + "/Regularizer/"):
            loss = regularizer(variable)
        if loss is not None:
            graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)


def _checked_partitions(partitions: Any, shape: TensorShape) -> list[int]:
    if not isinstance(partitions, (list, tuple)):
        raise ValueError(f"Partitioner must return a sequence, but saw: {partitions}")
    if len(partitions) != shape.ndims:
        raise ValueError(
            "Partitioner returned a partition list that does not match the shape's rank: "
            f"{partitions} vs. {shape}"
        )
    if any(p < 1 for p in partitions):
        raise ValueError(f"Partitioner returned zero partitions for some axes: {partitions}")
    return list(partitions)


def _single_axis(partitions: list[int]) -> tuple[int, int]:
    """The dimension that is cut, and into how many parts."""
    cut = [i for i, p in enumerate(partitions) if p > 1]
    if len(cut) > 1:
        raise ValueError(f"Cannot slice more than one dimension at a time: {partitions}")
    axis = cut[0] if cut else len(partitions) - 1
    return axis, partitions[axis]


def _cut(dims: list[int], axis: int, count: int) -> list[tuple[list[int], list[int]]]:
    """(offset, shape) of each part; the first ones are longer by one where it does not divide."""
    if dims[axis] < count:
        raise ValueError(
            f"Cannot cut dimension {axis} of shape {dims} into {count} parts: it is too small"
        )
    out = []
    begin = 0
    for i in range(count):
        size = dims[axis] // count + (1 if i < dims[axis] % count else 0)
        offset = [0] * len(dims)
        offset[axis] = begin
        part = list(dims)
        part[axis] = size
        out.append((offset, part))
        begin += size
    return out


def _call_getter(
    custom_getter: Callable[..., Any],
    getter: Callable[..., Any],
    name: str,
    options: dict[str, Any],
) -> Any:
    options = dict(options)
    if options["constraint"] is None and not _accepts(custom_getter, "constraint"):
        del options["constraint"]
    return custom_getter(getter, name=name, **options)


@export("VariableScope")
class VariableScope:
    """A prefix for the names of variables, and what holds for those made below it.

    Args:
      reuse: True to find existing variables, False to make new ones, AUTO_REUSE for either.
      name: the prefix.
      initializer, regularizer, caching_device, partitioner, custom_getter, dtype, use_resource,
        constraint: what `get_variable` takes where its caller says nothing.
      name_scope: the scope of the names of operations.
    """

    def __init__(
        self, reuse: Any, name: str = "", initializer: Any = None, regularizer: Any = None,
        caching_device: Any = None, partitioner: Any = None, custom_getter: Any = None,
        name_scope: str = "", dtype: Any = dtypes.float32, use_resource: bool | None = None,
        constraint: Any = None,
    ):  # fmt: skip
        self._reuse = reuse
        self._name = name
        self._initializer = initializer
        self._regularizer = regularizer
        self._caching_device = caching_device
        self._partitioner = partitioner
        self._custom_getter = custom_getter
        self._name_scope = name_scope
        self._dtype = dtype
        self._use_resource = use_resource
        self._constraint = constraint

    def _derived(self, **changes: Any) -> "VariableScope":
        scope = VariableScope.__new__(VariableScope)
        scope.__dict__.update(self.__dict__)
        for key, value in changes.items():
            setattr(scope, "_" + key, value)
        return scope

    @property
    def name(self) -> str:
        """The prefix."""
        return self._name

    @property
    def original_name_scope(self) -> str:
        """The scope of the names of operations, as it was when this was opened first."""
        return self._name_scope

    @property
    def reuse(self) -> Any:
        """Whether variables are found again."""
        return self._reuse

    @property
    def initializer(self) -> Any:
        """What makes initial values."""
        return self._initializer

    @property
    def dtype(self) -> Any:
        """The type of variables."""
        return self._dtype

    @property
    def use_resource(self) -> bool | None:
        """Whether variables are resources."""
        return self._use_resource

    @property
    def regularizer(self) -> Any:
        """What makes a loss of each variable."""
        return self._regularizer

    @property
    def caching_device(self) -> Any:
        """The device that keeps copies."""
        return self._caching_device

    @property
    def partitioner(self) -> Any:
        """What says how variables are cut."""
        return self._partitioner

    @property
    def custom_getter(self) -> Any:
        """What is asked for variables first."""
        return self._custom_getter

    @property
    def constraint(self) -> Any:
        """What optimizers apply to updated values."""
        return self._constraint

    def reuse_variables(self) -> None:
        """From now on finds existing variables only."""
        self._reuse = True

    def set_initializer(self, initializer: Any) -> None:
        """Sets what makes initial values."""
        self._initializer = initializer

    def set_dtype(self, dtype: Any) -> None:
        """Sets the type of variables."""
        self._dtype = dtype

    def set_use_resource(self, use_resource: bool | None) -> None:
        """Sets whether variables are resources."""
        self._use_resource = use_resource

    def set_regularizer(self, regularizer: Any) -> None:
        """Sets what makes a loss of each variable."""
        self._regularizer = regularizer

    def set_caching_device(self, caching_device: Any) -> None:
        """Sets the device that keeps copies."""
        self._caching_device = caching_device

    def set_partitioner(self, partitioner: Any) -> None:
        """Sets what says how variables are cut."""
        self._partitioner = partitioner

    def set_custom_getter(self, custom_getter: Any) -> None:
        """Sets what is asked for variables first."""
        self._custom_getter = custom_getter

    def get_collection(self, name: Any) -> list[Any]:
        """Those of a collection whose names begin with the prefix."""
        scope = self._name + "/" if self._name else self._name
        return get_default_graph().get_collection(name, scope)

    def trainable_variables(self) -> list[Any]:
        """The trainable variables below this scope."""
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def global_variables(self) -> list[Any]:
        """The global variables below this scope."""
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Any]:
        """The local variables below this scope."""
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def get_variable(
        self, var_store: _Store, name: str, shape: Any = None, dtype: Any = None,
        initializer: Any = None, regularizer: Any = None, reuse: Any = None,
        trainable: bool | None = None, collections: Any = None, caching_device: Any = None,
        partitioner: Any = None, validate_shape: bool = True, use_resource: bool | None = None,
        custom_getter: Any = None, constraint: Any = None,
        synchronization: Any = VariableSynchronization.AUTO,
        aggregation: Any = VariableAggregation.NONE,
    ) -> Any:  # fmt: skip
        """A variable of the store below this scope: found or made, as the scope says."""
        if custom_getter is None:
            custom_getter = self._custom_getter
        full_name = f"{self._name}/{name}" if self._name else name
        with name_scope(None):
            if dtype is not None and initializer is not None and not callable(initializer):
                own = convert_to_tensor(initializer).dtype.base_dtype
                if own is not dtypes.as_dtype(dtype).base_dtype:
                    raise ValueError(
                        f"Initializer type '{own.name}' and explicit dtype "
                        f"'{dtypes.as_dtype(dtype).name}' don't match (variable {full_name!r})."
                    )
            options = {
                "shape": shape,
                "dtype": self._dtype if dtype is None else dtype,
                "initializer": self._initializer if initializer is None else initializer,
                "regularizer": self._regularizer if regularizer is None else regularizer,
                "reuse": self._reuse if reuse is None else reuse,
                "trainable": trainable,
                "collections": collections,
                "caching_device": self._caching_device
                if caching_device is None
                else caching_device,
                "partitioner": self._partitioner if partitioner is None else partitioner,
                "validate_shape": validate_shape,
                "use_resource": self._use_resource if use_resource is None else use_resource,
                "constraint": self._constraint if constraint is None else constraint,
                "synchronization": synchronization,
                "aggregation": aggregation,
            }
            if custom_getter is not None:
                if not callable(custom_getter):
                    raise ValueError(
                        f"Passed a custom_getter which is not callable: {custom_getter}"
                    )
                return _call_getter(custom_getter, var_store.get, full_name, options)
            return var_store.get(full_name, **options)


def _store(graph: Graph | None = None) -> _Store:
    root = root_graph(graph or get_default_graph())
    if root._variable_store is None:
        root._variable_store = _Store()
    return root._variable_store


@export("get_variable_scope")
def get_variable_scope() -> VariableScope:
    """The open variable scope."""
    return _store().scope


def unique_variable_scope(prefix: str) -> str:
    """A name for a scope below the open one that none has had."""
    return _store().unique(prefix)


@export("get_variable")
def get_variable(
    name: str, shape: Any = None, dtype: Any = None, initializer: Any = None,
    regularizer: Any = None, trainable: bool | None = None, collections: Any = None,
    caching_device: Any = None, partitioner: Any = None, validate_shape: bool = True,
    use_resource: bool | None = None, custom_getter: Any = None, constraint: Any = None,
    synchronization: Any = VariableSynchronization.AUTO,
    aggregation: Any = VariableAggregation.NONE,
) -> Any:  # fmt: skip
    """The variable of that name in the open variable scope: found or made, as the scope says.

    Args:
      name: the name below the scope's.
      shape: required for a new variable, unless the initializer is a value.
      dtype: the scope's by default, which is float32 by default.
      initializer: a function (shape, dtype) -> value, a class of such, or a value. By default the
        scope's, or Glorot's uniform one for floating types, zeros for the others.
      regularizer: a function from the variable to a loss, which goes to REGULARIZATION_LOSSES.
      partitioner: a function (shape, dtype) -> number of parts along each dimension, for a
        PartitionedVariable.
      custom_getter: a function (getter, name, ...) that is asked first, and may ask `getter`.
      trainable, collections, caching_device, validate_shape, use_resource, constraint,
        synchronization, aggregation: as of Variable.

    ValueError when it exists and must not, does not and must, or differs in shape or type.
    """
    store = _store()
    return store.scope.get_variable(
        store, name, shape=shape, dtype=dtype, initializer=initializer, regularizer=regularizer,
        trainable=trainable, collections=collections, caching_device=caching_device,
        partitioner=partitioner, validate_shape=validate_shape, use_resource=use_resource,
        custom_getter=custom_getter, constraint=constraint, synchronization=synchronization,
        aggregation=aggregation,
    )  # fmt: skip


@export("get_local_variable")
def get_local_variable(*args: Any, **kwargs: Any) -> Any:
    """As `get_variable`, for a variable of LOCAL_VARIABLES that is not trained."""
    kwargs["trainable"] = False
    kwargs["collections"] = [*(kwargs.get("collections") or []), GraphKeys.LOCAL_VARIABLES]
    return get_variable(*args, **kwargs)


def _wrapped_getter(custom_getter: Any, outer: Any) -> Any:
    """A getter that asks `custom_getter`, whose own getter is the outer one."""
    if outer is None:
        return custom_getter

    def wrapped(getter: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def around(*a: Any, **k: Any) -> Any:
            return outer(getter, *a, **k)

        return custom_getter(around, *args, **kwargs)

    return wrapped


class PureVariableScope:
    """A context for a variable scope alone, without a scope of names of operations."""

    def __init__(
        self, name_or_scope: Any, reuse: Any = None, initializer: Any = None,
        regularizer: Any = None, caching_device: Any = None, partitioner: Any = None,
        custom_getter: Any = None, old_name_scope: str | None = None, dtype: Any = None,
        use_resource: bool | None = None, constraint: Any = None,
    ):  # fmt: skip
        self._given = name_or_scope
        self._reuse = reuse
        self._old_name_scope = old_name_scope
        self._custom_getter = custom_getter
        self._changes = {
            key: value
            for key, value in {
                "initializer": initializer, "regularizer": regularizer,
                "caching_device": caching_device, "partitioner": partitioner, "dtype": dtype,
                "use_resource": use_resource, "constraint": constraint,
            }.items()
            if value is not None
        }  # fmt: skip

    def __enter__(self) -> VariableScope:
        self._store = store = _store()
        self._old = store.scope
        given = self._given
        base = given if isinstance(given, VariableScope) else self._old
        changes = dict(self._changes)
        if self._custom_getter is not None:
            changes["custom_getter"] = _wrapped_getter(self._custom_getter, base.custom_getter)
        if isinstance(given, VariableScope):
            self._name = given.name
            store.open(self._name)
            self._old_counts = dict(store.counts)
            changes["name_scope"] = (
                given.original_name_scope if self._old_name_scope is None else self._old_name_scope
            )
            reuse = self._reuse or given.reuse
        else:
            self._name = f"{self._old.name}/{given}" if self._old.name else given
            changes["name_scope"] = self._old_name_scope or given
            reuse = self._reuse or self._old.reuse
            store.open(self._name)
        store.scope = base._derived(name=self._name, reuse=reuse, **changes)
        return store.scope

    def __exit__(self, *_: Any) -> None:
        self._store.close_below(self._name)
        if isinstance(self._given, VariableScope):
            self._store.counts = self._old_counts
        self._store.scope = self._old


@export("variable_scope")
class variable_scope:
    """A context in which `get_variable` adds a prefix to names, and scopes of names likewise.

    Args:
      name_or_scope: a name, or a VariableScope to enter again.
      default_name: the name where `name_or_scope` is None, numbered to be new.
      values: tensors whose graph is used.
      initializer, regularizer, caching_device, partitioner, custom_getter, dtype, use_resource,
        constraint: what `get_variable` takes where its caller says nothing; the outer scope's by
        default.
      reuse: True to find existing variables only, AUTO_REUSE to find or make them, None for the
        outer scope's choice.
      auxiliary_name_scope: False to leave the names of operations as they are.
    """

    def __init__(
        self, name_or_scope: Any, default_name: str | None = None, values: Any = None,
        initializer: Any = None, regularizer: Any = None, caching_device: Any = None,
        partitioner: Any = None, custom_getter: Any = None, reuse: Any = None, dtype: Any = None,
        use_resource: bool | None = None, constraint: Any = None,
        auxiliary_name_scope: bool = True,
    ):  # fmt: skip
        if default_name is None and name_or_scope is None:
            raise TypeError("If default_name is None then name_or_scope is required")
        if reuse not in (None, True, False, AUTO_REUSE):
            raise ValueError(
                f"The reuse parameter must be True, False, None or tf.AUTO_REUSE, got {reuse!r}"
            )
        if name_or_scope is not None and not isinstance(name_or_scope, (str, VariableScope)):
            raise TypeError(
                "VariableScope: name_or_scope must be a string or VariableScope, got "
                f"{name_or_scope!r}."
            )
        if name_or_scope is None and reuse is True:
            raise ValueError("reuse=True cannot be used without a name_or_scope")
        if not isinstance(auxiliary_name_scope, bool):
            raise TypeError(
                f"The auxiliary_name_scope must be `True` or `False`, got {auxiliary_name_scope}"
            )
        self._name_or_scope = name_or_scope
        self._default_name = default_name
        self._values = list(values) if values is not None else []
        self._reuse = None if reuse is False else reuse
        self._auxiliary = auxiliary_name_scope
        self._options = {
            "initializer": initializer, "regularizer": regularizer,
            "caching_device": caching_device, "partitioner": partitioner,
            "custom_getter": custom_getter, "dtype": dtype, "use_resource": use_resource,
            "constraint": constraint,
        }  # fmt: skip
        self._contexts: list[list[Any]] = []

    def __enter__(self) -> VariableScope:
        contexts: list[Any] = []

        def enter(context: Any) -> Any:
            result = context.__enter__()
            contexts.append(context)
            return result

        try:
            graph = graph_of_values(self._values) if self._values else get_default_graph()
            if graph is not get_default_graph():
                enter(graph.as_default())
            given = self._name_or_scope
            if given is None:
                given = _store().unique(self._default_name)
            own = given if isinstance(given, str) else given.name.rpartition("/")[2]
            if self._auxiliary:
                current = enter(name_scope(own)) if own else get_default_graph()._scope
            else:
                current = get_default_graph()._scope
            # A scope that is entered again keeps the names of its first opening.
            old = None if isinstance(given, VariableScope) else current
            scope = enter(
                PureVariableScope(given, self._reuse, old_name_scope=old, **self._options)
            )
        except BaseException:
            for context in reversed(contexts):
                context.__exit__(None, None, None)
            raise
        self._contexts.append(contexts)
        return scope

    def __exit__(self, *_: Any) -> None:
        for context in reversed(self._contexts.pop()):
            context.__exit__(None, None, None)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Makes a function open the scope around each call."""

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return inside


@export("variable_op_scope")
def variable_op_scope(
    values: Any, name_or_scope: Any, default_name: str | None = None, initializer: Any = None,
    regularizer: Any = None, caching_device: Any = None, partitioner: Any = None,
    custom_getter: Any = None, reuse: Any = None, dtype: Any = None,
    use_resource: bool | None = None, constraint: Any = None,
) -> variable_scope:  # fmt: skip
    """As `variable_scope`, with the arguments in an older order."""
    return variable_scope(
        name_or_scope, default_name, values, initializer, regularizer, caching_device, partitioner,
        custom_getter, reuse, dtype, use_resource, constraint,
    )  # fmt: skip


# Partitioners: functions from the shape and type of a variable to the number of parts along each
# dimension.


@export("fixed_size_partitioner")
def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Callable[..., list[int]]:
    """Cuts `axis` into `num_shards` parts, or as many as it is long."""

    def partitioner(shape: Any, **_: Any) -> list[int]:
        shape = TensorShape(shape)
        parts = [1] * shape.ndims
        parts[axis] = min(num_shards, shape.as_list()[axis])
        return parts

    return partitioner


def _element_bytes(dtype: dtypes.DType, bytes_per_string_element: int) -> int:
    dtype = dtypes.as_dtype(dtype)
    return bytes_per_string_element if dtype is dtypes.string else dtype.size


@export("variable_axis_size_partitioner")
def variable_axis_size_partitioner(
    max_shard_bytes: int, axis: int = 0, bytes_per_string_element: int = 16,
    max_shards: int | None = None,
) -> Callable[..., list[int]]:  # fmt: skip
    """Cuts `axis` into parts of at most `max_shard_bytes`, and at most `max_shards` of them."""
    if max_shard_bytes < 1 or bytes_per_string_element < 1:
        raise ValueError(
            "Both max_shard_bytes and bytes_per_string_element must be positive, got "
            f"{max_shard_bytes} and {bytes_per_string_element}."
        )
    if max_shards and max_shards < 1:
        raise ValueError(f"max_shards must be positive, got {max_shards}.")

    def partitioner(shape: Any, dtype: Any) -> list[int]:
        if not isinstance(shape, TensorShape):
            raise ValueError(f"shape is not a TensorShape: {shape}")
        if not shape.is_fully_defined():
            raise ValueError(f"shape is not fully defined: {shape}")
        if not isinstance(dtype, dtypes.DType):
            raise ValueError(f"dtype is not a DType: {dtype}")
        dims = shape.as_list()
        parts = [1] * len(dims)
        row = (shape.num_elements() // dims[axis]) * _element_bytes(dtype, bytes_per_string_element)
        if row > max_shard_bytes:
            count = dims[axis]
        else:
            count = -(-dims[axis] // max(1, max_shard_bytes // row))
        if max_shards:
            count = min(max_shards, count)
        parts[axis] = count
        return parts

    return partitioner


@export("min_max_variable_partitioner")
def min_max_variable_partitioner(
    max_partitions: int = 1, axis: int = 0, min_slice_size: int = 256 << 10,
    bytes_per_string_element: int = 16,
) -> Callable[..., list[int]]:  # fmt: skip
    """Cuts `axis` into as many parts of at least `min_slice_size` bytes as there are, at most
    `max_partitions`."""

    def partitioner(shape: Any, dtype: Any) -> list[int]:
        if axis >= len(shape):
            raise ValueError(
                f"Cannot partition variable along axis {axis} when shape is only {shape}"
            )
        total = shape.num_elements() * _element_bytes(dtype, bytes_per_string_element)
        parts = [1] * len(shape)
        whole = max(1, total // min_slice_size)
        parts[axis] = max(1, min(shape.as_list()[axis], max_partitions, whole))
        return parts

    return partitioner


@export("create_partitioned_variables")
def create_partitioned_variables(
    shape: Any, slicing: Any, initializer: Any, dtype: Any = dtypes.float32,
    trainable: bool = True, collections: Any = None, name: str | None = None, reuse: Any = None,
) -> list[Variable]:  # fmt: skip
    """The parts of a variable cut as `slicing` says: the number of parts along each dimension.

    ValueError when the slicing does not fit the shape, or cuts more than one dimension.
    """
    if len(shape) != len(slicing):
        raise ValueError(
            "The 'shape' and 'slicing' of a partitioned Variable must have the length: shape: "
            f"{shape}, slicing: {slicing}"
        )
    if len(shape) < 1:
        raise ValueError(f"A partitioned Variable must have rank at least 1: shape: {shape}")

    def partitioner(**_: Any) -> Any:
        return slicing

    with variable_scope(name, "PartitionedVariable", reuse=reuse) as scope:
        whole = _store().get(
            scope.name, shape=shape, dtype=dtype, initializer=initializer, trainable=trainable,
            partitioner=partitioner, collections=collections, reuse=scope.reuse,
            use_resource=scope.use_resource,
        )  # fmt: skip
        return list(whole)
