"""The variables of a graph by name: finds, checks and makes them."""

import inspect
import threading
from typing import Any, Callable

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.suggest import nearest_names
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.keys import GraphKeys
from millrace.state import initializers
from millrace.state.partitioned_variable import PartitionedVariable
from millrace.state.save_slice_info import SaveSliceInfo
from millrace.state.variable import VariableAggregation, VariableSynchronization
from millrace.state.variables import Variable, outside_of_sessions


class _ReuseMode:
    """A way to treat names that are there already."""

    def __repr__(self) -> str:
        return "AUTO_REUSE"


AUTO_REUSE = export(v1="AUTO_REUSE")(_ReuseMode())


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


class _OpenScopes(threading.local):
    def __init__(self, first: Callable[[], Any]) -> None:
        self.scope = first()
        self.counts: dict[str, int] = {}


class _Kept(threading.local):
    def __init__(self) -> None:
        self.open: list[dict[str, Any]] = []


_kept = _Kept()


def kept_here() -> dict[str, Any] | None:
    """The variables outside of graphs that `get_variable` finds again here, by name; None where it
    makes another each time."""
    return _kept.open[-1] if _kept.open else None


class KeptVariables:
    """A context in which `get_variable` finds the variables again that it made in it before, where
    they belong to no graph."""

    def __init__(self) -> None:
        self.variables: dict[str, Any] = {}

    def __enter__(self) -> None:
        _kept.open.append(self.variables)

    def __exit__(self, *_: Any) -> None:
        _kept.open.pop()


class VariableStore:
    """The variables of a graph by name and, for each thread, the open scope and how often scopes
    were opened. `first_scope()` makes the one that a thread begins in."""

    def __init__(self, first_scope: Callable[[], Any]) -> None:
        self.variables: dict[str, Variable] = {}
        self.partitioned: dict[str, PartitionedVariable] = {}
        self._open = _OpenScopes(first_scope)

    @property
    def scope(self) -> Any:
        return self._open.scope

    @scope.setter
    def scope(self, scope: Any) -> None:
        self._open.scope = scope

    @property
    def counts(self) -> dict[str, int]:
        return self._open.counts

    @counts.setter
    def counts(self, counts: dict[str, int]) -> None:
        self._open.counts = counts

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
        if outside_of_sessions():
            if partitioner is not None:
                raise ValueError(
                    f"Variable {name}: partitioned variables need a graph for sessions, and "
                    "operations run at once here"
                )
            return self._get_one(name, shape, **options)
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
        shared = not outside_of_sessions()
        kept = self.variables if shared else kept_here()
        found = None if kept is None else kept.get(name)
        if found is not None:
            if not shared:
                reuse = True
            self._check_found(name, found, shape, dtype, reuse)
            return found
        if reuse is True and shared:
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
        if kept is not None:
            kept[name] = variable
        if shared and regularizer is not None:
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


def accepts(function: Callable[..., Any], argument: str) -> bool:
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
        if accepts(initializer, "partition_info"):
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
