"""Variables that are resources, read and changed through a handle."""

from typing import Any, Callable

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies, get_default_graph, name_scope
from millrace.graph.graph import Graph
from millrace.graph.operation import Operation
from millrace.state.initial_value import guarded
from millrace.state.variable import (
    ColocatedBy,
    Variable,
    check_slices,
    checked_shape,
    initial_tensor,
)


class ResourceVariable(Variable):
    """A variable behind a handle: each read and write is an operation, in the order that control
    dependencies say."""

    _is_resource = True

    def _make(
        self, graph: Graph, initial_value: Any, validate_shape: bool, caching_device: Any,
        name: str | None, dtype: Any, shape: Any,
    ) -> None:  # fmt: skip
        from_function = callable(initial_value) and not isinstance(initial_value, Tensor)
        values = [] if from_function else [initial_value]
        with name_scope(name, "Variable", values) as scope:
            full_name = scope[:-1]
            with ColocatedBy(graph, full_name):
                with graph.name_scope("Initializer"), graph.device(None):
                    value = initial_value() if from_function else initial_value
                    self._initial_value = initial_tensor(value, dtype, name)
                known = checked_shape(self._initial_value, validate_shape, shape)
                self._dtype = self._initial_value.dtype.base_dtype
                self._handle = gen_ops.var_handle_op(
                    self._dtype,
                    known,
                    container=graph._container,
                    shared_name=full_name,
                    name=scope,
                )
            self._declared_shape = known
            with graph.device(self._handle.device or None):
                with graph.name_scope("IsInitialized"):
                    self._is_initialized_op = gen_ops.var_is_initialized_op(self._handle)
                self._initializer_op = gen_ops.assign_variable_op(
                    self._handle, guarded(self._initial_value, initial_value), name="Assign"
                )
            device = caching_device or self._handle.device or None
            with graph.device(device), graph.name_scope("Read"):
                self._snapshot = self._read()
            self._cached_value = self._snapshot if caching_device is not None else None
        self._caching_device = caching_device

    def _init_from_proto(self, variable_def: Any, import_scope: str | None) -> None:
        if not variable_def.is_resource:
            raise ValueError("Trying to restore Variable as ResourceVariable.")
        graph = get_default_graph()
        find = self._restore_common(variable_def, import_scope, graph)
        handle = find(variable_def.variable_name)
        self._handle = handle.outputs[0] if isinstance(handle, Operation) else handle
        self._dtype = dtypes.as_dtype(self._handle.op.get_attr("dtype"))
        self._declared_shape = TensorShape(self._handle.op.get_attr("shape"))
        self._is_initialized_op = None
        self._caching_device = None
        self._cached_value = None

    def _proto_name(self) -> str:
        return self._handle.name

    def _read(self) -> Tensor:
        value = gen_ops.read_variable_op(self._handle, self._dtype)
        value.set_shape(self._declared_shape)
        return value

    def _as_graph_element(self) -> Tensor:
        return self._snapshot

    def _as_tensor(self, dtype: Any = None, as_ref: bool = False) -> Tensor:
        self._check_type(dtype)
        return self.read_value().op.inputs[0] if as_ref else self.value()

    def _gradient_source(self) -> Tensor:
        return self._handle

    @property
    def handle(self) -> Tensor:
        """The tensor that stands for the variable: a handle of type resource."""
        return self._handle

    def ref(self) -> Any:
        """Something that can be a key of a dictionary: the variable itself."""
        return self

    def __bool__(self) -> bool:
        return bool(self.value())  # which says that tensors have none

    def value(self) -> Tensor:
        if self._cached_value is not None:
            return self._cached_value
        graph = get_default_graph()
        anywhere = graph.colocate_with(None, ignore_existing=True)
        with anywhere, graph.device(self._handle.device or None):
            return self._read()

    def read_value(self) -> Tensor:
        with name_scope("Read"):
            value = self._read()
        return gen_ops.identity(value)

    def is_initialized(self, name: str | None = None) -> Tensor:
        """Whether it has a value, as a tensor."""
        return gen_ops.var_is_initialized_op(self._handle, name=name)

    _has_value = is_initialized

    @property
    def name(self) -> str:
        return self._handle.op.name + ":0"

    @property
    def op(self) -> Operation:
        return self._handle.op

    @property
    def create(self) -> Operation:
        """As `initializer`."""
        return self._initializer_op

    @property
    def dtype(self) -> dtypes.DType:
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        return self._declared_shape

    def _shape_tuple(self) -> Any:
        return self._snapshot._shape_tuple()

    def set_shape(self, shape: Any) -> None:
        self._declared_shape = self._declared_shape.merge_with(shape)
        self._snapshot.set_shape(shape)

    def _value_for(self, value: Any) -> Tensor:
        tensor = convert_to_tensor(value, dtype=self._dtype, name="value")
        if not self._declared_shape.is_compatible_with(tensor.shape):
            raise ValueError(
                f"Cannot assign value to variable '{self.name}': Shape mismatch. The variable "
                f"shape {self._declared_shape}, and the assigned value shape {tensor.shape} are "
                f"incompatible ({self._dtype.name})."
            )
        return tensor

    def _changed(self, op: Operation, read_value: bool) -> Any:
        return _Changed(self, op) if read_value else op

    def assign(
        self, value: Any, use_locking: Any = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Sets the value. Gives the variable as it is after that, or the operation."""
        del use_locking
        op = gen_ops.assign_variable_op(self._handle, self._value_for(value), name=name)
        return self._changed(op, read_value)

    def assign_add(
        self, delta: Any, use_locking: Any = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Adds to the value. Gives the variable as it is after that, or the operation."""
        del use_locking
        op = gen_ops.assign_add_variable_op(self._handle, self._value_for(delta), name=name)
        return self._changed(op, read_value)

    def assign_sub(
        self, delta: Any, use_locking: Any = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtracts from the value. Gives the variable as it is after that, or the operation."""
        del use_locking
        op = gen_ops.assign_sub_variable_op(self._handle, self._value_for(delta), name=name)
        return self._changed(op, read_value)

    def count_up_to(self, limit: int) -> Tensor:
        """Adds one and gives the value from before; OutOfRangeError at the limit."""
        return gen_ops.resource_count_up_to(self._handle, self._dtype, limit)

    def sparse_read(self, indices: Any, name: str | None = None) -> Tensor:
        """The slices at `indices` of the first dimension, without reading the rest."""
        with name_scope("Gather" if name is None else name) as scope:
            value = gen_ops.resource_gather(self._handle, indices, self._dtype, name=scope)
            return gen_ops.identity(value)

    def _scatter(self, kind: str, slices: Any, use_locking: bool, name: str | None) -> Any:
        del use_locking
        check_slices(slices)
        values = convert_to_tensor(slices.values, dtype=self._dtype)
        op = getattr(gen_ops, "resource_scatter_" + kind)(
            self._handle, slices.indices, values, name=name
        )
        return self._changed(op, True)

    def _scatter_nd(self, kind: str, indices: Any, updates: Any, name: str | None) -> Any:
        updates = convert_to_tensor(updates, dtype=self._dtype)
        op = getattr(gen_ops, "resource_scatter_nd_" + kind)(
            self._handle, indices, updates, name=name
        )
        return self._changed(op, True)


class _Changed(ResourceVariable):
    """A resource variable after an operation that changes it: reads wait for that operation."""

    def __init__(self, variable: ResourceVariable, op: Operation):
        self.__dict__.update(variable.__dict__)
        self._variable_itself = variable
        self._parent_op = op
        self._cached_value = None
        # Made now, since what fetches it may do so when the graph is final.
        with op.graph.as_default(), control_dependencies(None):
            self._changed_snapshot = self._read()

    @property
    def op(self) -> Operation:
        return self._parent_op

    @property
    def graph(self) -> Graph:
        return self._handle.graph

    def _read(self) -> Tensor:
        with control_dependencies([self._parent_op]):
            return super()._read()

    def _as_graph_element(self) -> Tensor:
        return self._changed_snapshot

    def eval(self, session: Any = None) -> Any:
        return self._as_graph_element().eval(session=session)

    def run(self, feed_dict: Any = None, session: Any = None) -> None:
        """Runs the operation that changes it."""
        self._parent_op.run(feed_dict, session)

    def set_shape(self, shape: Any) -> None:
        self._variable_itself.set_shape(shape)
        self._declared_shape = self._variable_itself._declared_shape


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
            return self._scatter(kind, sparse_delta, use_locking, name)

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
