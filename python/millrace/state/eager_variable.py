"""Variables outside of graphs: each has a value from when it is made to when nobody holds it."""

import itertools
import weakref
from typing import Any, Callable

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor, TensorOperators
from millrace.core.trackable import VARIABLE_VALUE, Trackable
from millrace.eager.creation import assign_later, current_trace
from millrace.eager.tape import add_variable, variable_read
from millrace.eager.tensor import Reference
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.graph import root_graph
from millrace.graph.sparse import IndexedSlices
from millrace.ops import eager_overloads as eager_overloads
from millrace.state.resource_variable import ResourceVariable
from millrace.state.variable import VariableAggregation, VariableSynchronization

_numbers = itertools.count()
# The functions that are asked for each variable that is made, innermost last.
_creators: list[Callable[..., Any]] = []


class _Meta(type):
    """`Variable(...)` makes a variable through the open creators; one of the graph, where a graph
    for sessions is open."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        create: Callable[..., Any] = super().__call__
        if cls is not Variable:
            return create(*args, **kwargs)
        in_graph = (
            not _core.executing_eagerly() and not root_graph(get_default_graph())._captures_values
        )
        if not in_graph and not _creators:
            return create(*args, **kwargs)
        for name, value in zip(_PARAMETERS, args, strict=False):
            kwargs[name] = value
        if in_graph:
            kwargs.pop("experimental_enable_variable_lifting", None)
            create = ResourceVariable
        for creator in _creators:
            create = _chained(creator, create)
        return create(**kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or (
            cls is Variable and isinstance(instance, ResourceVariable)
        )


def is_eager_variable(value: Any) -> bool:
    """Whether a value is a variable outside of graphs: `isinstance` is true of all variables."""
    return issubclass(type(value), Variable)


def _chained(creator: Callable[..., Any], following: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **kwargs: creator(following, **kwargs)


_PARAMETERS = (
    "initial_value", "trainable", "validate_shape", "caching_device", "name", "variable_def",
    "dtype", "import_scope", "constraint", "synchronization", "aggregation", "shape",
)  # fmt: skip


@export(v2="variable_creator_scope")
class variable_creator_scope:
    """A context in which `variable_creator(next_creator, **kwargs)` makes the variables."""

    def __init__(self, variable_creator: Callable[..., Any]):
        self._creator = variable_creator

    def __enter__(self) -> None:
        _creators.append(self._creator)

    def __exit__(self, *_: Any) -> None:
        _creators.remove(self._creator)


@export(v2="Variable")
class Variable(Trackable, TensorOperators, metaclass=_Meta):
    """A tensor that keeps its value until it is assigned another.

    Args:
      initial_value: a tensor or what converts to one, or a function of no arguments that makes it.
      trainable: whether tapes watch it, and optimizers change it; True by default.
      name: "Variable" by default.
      dtype: the type to convert the initial value to.
      constraint: a function from the updated value to the one to keep, for optimizers.
      shape: what all values must have; the initial value's by default.
    """

    __array_priority__ = 100
    _parts_never_change = True

    def __init__(
        self, initial_value: Any = None, trainable: bool | None = None, validate_shape: bool = True,
        caching_device: Any = None, name: str | None = None, variable_def: Any = None,
        dtype: Any = None, import_scope: Any = None, constraint: Any = None,
        synchronization: Any = VariableSynchronization.AUTO,
        aggregation: Any = VariableAggregation.NONE, shape: Any = None,
        experimental_enable_variable_lifting: bool = True,
    ):  # fmt: skip
        del caching_device, variable_def, import_scope, experimental_enable_variable_lifting
        if initial_value is None:
            raise ValueError(
                "initial_value must be specified: a tensor, an array, or a function of no "
                f"arguments that makes one (for the variable {name or 'Variable'!r})"
            )
        if constraint is not None and not callable(constraint):
            raise ValueError("The `constraint` argument must be a callable.")
        if trainable is None:
            trainable = synchronization is not VariableSynchronization.ON_READ
        trace = current_trace()
        value_inside = None
        if trace is not None:
            initial_value, value_inside = trace.initial_value(initial_value, dtype)
            if value_inside is not None and shape is None:
                shape = (
                    value_inside.shape
                )  # sizes that are not known may differ from value to value
        self._trainable = bool(trainable)
        self._constraint = constraint
        self._synchronization, self._aggregation = synchronization, aggregation
        with _core.init_scope():
            scope = _core.open_scope(name or "Variable", [])
            try:
                full_name = scope.name.rstrip("/")
                value = initial_value() if callable(initial_value) else initial_value
                value = convert_to_tensor(value, dtype, name="initial_value")
            finally:
                scope.close()
            self._name = full_name + ":0"
            self._dtype = value.dtype.base_dtype
            if shape is not None:
                known = TensorShape(shape)
            else:
                known = value.shape if validate_shape else TensorShape(None)
            if value_inside is None and not known.is_compatible_with(value.shape):
                raise ValueError(
                    f"The initial value's shape ({value.shape}) is not compatible with the "
                    f"explicitly supplied `shape` argument ({known})."
                )
            self._declared_shape = known
            self._make_handle(full_name)
            gen_ops.assign_variable_op(self._handle, value)
        if trace is not None:
            trace.created.append(weakref.ref(self))
        if value_inside is not None:
            assign_later(self, value_inside)

    def _make_handle(self, full_name: str) -> None:
        self._unique_id = f"{full_name}_{next(_numbers)}"
        self._handle = gen_ops.var_handle_op(
            self._dtype, self._declared_shape, shared_name=self._unique_id, debug_name=full_name
        )
        add_variable(self)

    @classmethod
    def _without_value(
        cls, name: str, dtype: dtypes.DType, shape: TensorShape, trainable: bool,
        synchronization: Any, aggregation: Any,
    ) -> "Variable":  # fmt: skip
        """A variable that has no value until it is assigned one: of a file, which says what it is
        like and whose values come afterwards."""
        self = cls.__new__(cls)
        self._trainable, self._constraint = trainable, None
        self._synchronization, self._aggregation = synchronization, aggregation
        self._dtype, self._declared_shape = dtype, shape
        scope = _core.open_scope(name or "Variable", [])
        full_name = scope.name.rstrip("/")
        scope.close()
        self._name = full_name + ":0"
        self._make_handle(full_name)
        return self

    def __del__(self) -> None:
        handle = self.__dict__.get("_handle")
        if handle is not None and _core is not None:  # as the interpreter ends
            _core.destroy_resource(handle)

    # The value.

    @property
    def handle(self) -> Tensor:
        """The tensor that stands for the variable: a handle of type resource."""
        return self._handle

    def _gradient_source(self) -> Tensor:
        return self._handle

    def value(self) -> Tensor:
        """The value now, which later updates do not change."""
        if self._trainable:
            variable_read(self._handle)
        return gen_ops.read_variable_op(self._handle, self._dtype)

    read_value = value

    def numpy(self) -> Any:
        """The value as an array of the caller's own."""
        return self.value().numpy()

    def _as_tensor(self, dtype: Any = None, as_ref: bool = False) -> Any:
        del as_ref
        if dtype is not None and not dtype.is_compatible_with(self._dtype):
            raise ValueError(
                f"Incompatible type conversion requested to type {dtype.name!r} for variable of "
                f"type {self._dtype.name!r} (Variable: {self.name})"
            )
        return self.value()

    def _as_graph_element(self) -> Any:
        return self.value()

    @property
    def initializer(self) -> None:
        """None: it has a value from its beginning."""
        return None

    @property
    def op(self) -> Any:
        """Variables of graphs have it."""
        return self._handle.op

    @property
    def graph(self) -> Any:
        """Variables of graphs have it."""
        return self._handle.graph

    def eval(self, session: Any = None) -> Any:
        """RuntimeError: `numpy()` gives the value."""
        raise RuntimeError(
            "This operation is not supported when eager execution is enabled: v.numpy() gives the "
            "value"
        )

    def to_proto(self, export_scope: str | None = None) -> Any:
        """RuntimeError: only graphs are made of messages."""
        raise RuntimeError("This operation is not supported when eager execution is enabled.")

    def load(self, value: Any, session: Any = None) -> None:
        """Sets the value."""
        self.assign(value)

    def initialized_value(self) -> Tensor:
        """As `value`: it always has one."""
        return self.value()

    def is_initialized(self, name: str | None = None) -> Tensor:
        """Whether it has a value, as a tensor."""
        return gen_ops.var_is_initialized_op(self._handle, name=name)

    # What is known of it.

    @property
    def name(self) -> str:
        """The name, with the ":0" of a tensor's."""
        return self._name

    @property
    def _shared_name(self) -> str:
        return self._name[:-2]

    @property
    def dtype(self) -> dtypes.DType:
        """The type of its elements."""
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        """What all its values have."""
        return self._declared_shape

    def get_shape(self) -> TensorShape:
        """As `shape`."""
        return self._declared_shape

    def _shape_tuple(self) -> Any:
        return (
            tuple(self._declared_shape.as_list())
            if self._declared_shape.ndims is not None
            else None
        )

    @property
    def trainable(self) -> bool:
        """Whether tapes watch it."""
        return self._trainable

    @property
    def constraint(self) -> Any:
        """The function that optimizers apply to updated values, or None."""
        return self._constraint

    @property
    def synchronization(self) -> Any:
        """When copies on several devices are brought together."""
        return self._synchronization

    @property
    def aggregation(self) -> Any:
        """How values for copies on several devices become one."""
        return self._aggregation

    @property
    def device(self) -> str:
        """Where it is."""
        return self._handle.device

    def ref(self) -> Reference:
        """A key for dictionaries and sets."""
        return Reference(self)

    def experimental_ref(self) -> Reference:
        """As `ref`."""
        return Reference(self)

    def set_shape(self, shape: Any) -> None:
        """Adds to what is known of the shape. ValueError when it contradicts."""
        self._declared_shape = self._declared_shape.merge_with(shape)

    # Changes.

    def _value_for(self, value: Any, exact: bool = True) -> Tensor:
        tensor = convert_to_tensor(value, dtype=self._dtype, name="value")
        if exact and not self._declared_shape.is_compatible_with(tensor.shape):
            raise ValueError(
                f"Cannot assign value to variable '{self.name}': Shape mismatch.The variable "
                f"shape {self._declared_shape}, and the assigned value shape {tensor.shape} are "
                f"incompatible."
            )
        return tensor

    def assign(
        self, value: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Sets the value. Gives the variable."""
        del use_locking
        gen_ops.assign_variable_op(self._handle, self._value_for(value), name=name)
        return self if read_value else None

    def assign_add(
        self, delta: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Adds to the value. Gives the variable."""
        del use_locking
        gen_ops.assign_add_variable_op(self._handle, self._value_for(delta), name=name)
        return self if read_value else None

    def assign_sub(
        self, delta: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Subtracts from the value. Gives the variable."""
        del use_locking
        gen_ops.assign_sub_variable_op(self._handle, self._value_for(delta), name=name)
        return self if read_value else None

    def sparse_read(self, indices: Any, name: str | None = None) -> Tensor:
        """The slices at `indices` of the first dimension, without reading the rest."""
        if self._trainable:
            variable_read(self._handle)
        return gen_ops.resource_gather(self._handle, indices, self._dtype, name=name)

    def gather_nd(self, indices: Any, name: str | None = None) -> Tensor:
        """The slices that the index vectors name."""
        return gen_ops.gather_nd(self.value(), indices, name=name)

    def count_up_to(self, limit: int) -> Tensor:
        """Adds one and gives the value from before; OutOfRangeError at the limit."""
        return gen_ops.resource_count_up_to(self._handle, self._dtype, limit)

    def batch_scatter_update(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> "Variable":
        """Sets slices of each element of a batch: `v[b, indices[b, i]] = values[b, i]` for all b of
        the dimensions before the last one of the indices."""
        del use_locking
        if not isinstance(sparse_delta, IndexedSlices):
            raise TypeError(
                "Argument `sparse_delta` must be a `tf.IndexedSlices`. Received arg: "
                f"{sparse_delta}"
            )
        indices = convert_to_tensor(sparse_delta.indices)
        sizes = indices.shape.as_list()
        places = [
            gen_ops.broadcast_to(
                gen_ops.reshape(
                    gen_ops.range(0, gen_ops.cast(gen_ops.shape(indices)[d], indices.dtype), 1),
                    [-1 if d == i else 1 for i in range(len(sizes))],
                ),
                gen_ops.shape(indices),
            )
            for d in range(len(sizes) - 1)
        ]  # fmt: skip
        whole = gen_ops.pack([*places, indices], axis=-1)
        return self._scatter_nd("update", whole, sparse_delta.values, name)

    def _scatter(self, kind: str, slices: Any, name: str | None) -> "Variable":
        if not isinstance(slices, IndexedSlices):
            raise TypeError(
                f"Argument `sparse_delta` must be a `tf.IndexedSlices`. Received arg: {slices}"
            )
        values = convert_to_tensor(slices.values, dtype=self._dtype)
        change = getattr(gen_ops, "resource_scatter_" + kind)
        change(self._handle, slices.indices, values, name=name)
        return self

    def _scatter_nd(self, kind: str, indices: Any, updates: Any, name: str | None) -> "Variable":
        updates = convert_to_tensor(updates, dtype=self._dtype)
        getattr(gen_ops, "resource_scatter_nd_" + kind)(self._handle, indices, updates, name=name)
        return self

    # In checkpoints.

    def _saved_names(self) -> list[str]:
        return [VARIABLE_VALUE]

    def _serialize_to_tensors(self) -> dict[str, Any]:
        return {VARIABLE_VALUE: gen_ops.read_variable_op(self._handle, self._dtype)}

    def _restore_from_tensors(self, restored_tensors: dict[str, Any]) -> Any:
        value = restored_tensors[VARIABLE_VALUE]
        if not self._declared_shape.is_compatible_with(value.shape):
            raise ValueError(
                f"Received incompatible tensor with shape {value.shape} when attempting to restore "
                f"variable with shape {self._declared_shape} and name {self.name}."
            )
        return self.assign(value)

    # As a value.

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.value().__array__(dtype, copy)

    def __bool__(self) -> bool:
        return bool(self.value())

    def __int__(self) -> int:
        return int(self.value())

    def __float__(self) -> float:
        return float(self.value())

    def __complex__(self) -> complex:
        return complex(self.value())

    def __index__(self) -> int:
        return self.value().__index__()

    def __len__(self) -> int:
        return len(self.value())

    def __iter__(self) -> Any:
        return iter(self.value())

    def __hash__(self) -> int:
        raise TypeError("Variable is unhashable. Instead, use variable.ref() as the key.")

    def __eq__(self, other: object) -> Any:
        return eager_overloads.equal(self, other)

    def __ne__(self, other: object) -> Any:
        return eager_overloads.not_equal(self, other)

    def __repr__(self) -> str:
        value = self.value()
        text = repr(value).split("numpy=", 1)[-1][:-1]
        return (
            f"<tf.Variable '{self.name}' shape={self.shape} dtype={self.dtype.name}, numpy={text}>"
        )

    def __deepcopy__(self, memo: Any) -> "Variable":
        copy = Variable(
            self.value(), self._trainable, name=self._shared_name, constraint=self._constraint
        )
        memo[id(self)] = copy
        return copy

    def __reduce__(self) -> Any:
        return _restore, (self.numpy(), self._trainable, self._shared_name, self._dtype.name)


def _restore(value: Any, trainable: bool, name: str, dtype: str) -> Variable:
    return Variable(value, trainable, name=name, dtype=dtypes.as_dtype(dtype))


def _add_scatters() -> None:
    kinds = {
        "add": "Adds slices to those at their indices.",
        "sub": "Subtracts slices from those at their indices.",
        "update": "Sets the slices at their indices.",
        "max": "Keeps the larger of the slices and those at their indices.",
        "min": "Keeps the smaller of the slices and those at their indices.",
        "mul": "Multiplies the slices at their indices.",
        "div": "Divides the slices at their indices.",
    }

    def scatter(kind: str) -> Callable[..., Any]:
        def method(
            self: Any, sparse_delta: Any, use_locking: bool = False, name: str | None = None
        ) -> Any:
            del use_locking
            return self._scatter(kind, sparse_delta, name)

        return method

    def scatter_nd(kind: str) -> Callable[..., Any]:
        def method(self: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
            return self._scatter_nd(kind, indices, updates, name)

        return method

    for kind, doc in kinds.items():
        for prefix, make in (("scatter_", scatter), ("scatter_nd_", scatter_nd)):
            if prefix == "scatter_nd_" and kind in ("mul", "div"):
                continue
            method = make(kind)
            method.__name__, method.__doc__ = prefix + kind, doc
            setattr(Variable, prefix + kind, method)


_add_scatters()
_core.set_variable_class(Variable)
