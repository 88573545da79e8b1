"""Variables that are references to memory: the kind that TensorFlow 1 makes by default."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph, name_scope
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


class RefVariable(Variable):
    """A variable whose operation gives a reference to the value, which other operations change."""

    _is_resource = False

    def _make(
        self, graph: Graph, initial_value: Any, validate_shape: bool, caching_device: Any,
        name: str | None, dtype: Any, shape: Any,
    ) -> None:  # fmt: skip
        from_function = callable(initial_value) and not isinstance(initial_value, Tensor)
        values = [] if from_function else [initial_value]
        with name_scope(name, "Variable", values) as scope:
            full_name = scope[:-1]
            if from_function:
                with ColocatedBy(graph, full_name):
                    with graph.name_scope("Initializer"), graph.device(None):
                        self._initial_value = convert_to_tensor(
                            initial_value(), dtype, name="initial_value"
                        )
                    known = checked_shape(self._initial_value, validate_shape, shape)
                    self._variable = self._variable_op(graph, known, scope)
            else:
                self._initial_value = initial_tensor(initial_value, dtype, name)
                known = checked_shape(self._initial_value, validate_shape, shape)
                self._variable = self._variable_op(graph, known, scope)
            with graph.colocate_with(self._variable.op):
                value = guarded(self._initial_value, initial_value)
                self._initializer_op = gen_ops.assign(
                    self._variable, value, validate_shape=validate_shape
                ).op
                if caching_device is None:
                    self._snapshot = gen_ops.identity(self._variable, name="read")
            if caching_device is not None:
                with graph.device(caching_device):
                    self._snapshot = gen_ops.identity(self._variable, name="read")
        self._caching_device = caching_device

    def _variable_op(self, graph: Graph, shape: TensorShape, name: str) -> Tensor:
        return gen_ops.variable_v2(
            self._initial_value.dtype.base_dtype, shape, container=graph._container, name=name
        )

    def _init_from_proto(self, variable_def: Any, import_scope: str | None) -> None:
        find = self._restore_common(variable_def, import_scope, get_default_graph())
        self._variable = find(variable_def.variable_name)
        self._caching_device = None

    def _as_graph_element(self) -> Tensor:
        return self._variable

    def _as_tensor(self, dtype: Any = None, as_ref: bool = False) -> Tensor:
        self._check_type(dtype)
        return self._variable if as_ref else self._snapshot

    _AsTensor = _as_tensor

    def _gradient_source(self) -> Tensor:
        return self._variable

    def _ref(self) -> Tensor:
        return self._variable

    def value(self) -> Tensor:
        return self._snapshot

    def read_value(self) -> Tensor:
        return gen_ops.identity(self._variable, name="read")

    @property
    def name(self) -> str:
        return self._variable.name

    @property
    def op(self) -> Operation:
        return self._variable.op

    @property
    def dtype(self) -> dtypes.DType:
        return self._variable.dtype

    @property
    def shape(self) -> TensorShape:
        return self._variable.shape

    def set_shape(self, shape: Any) -> None:
        self._variable.set_shape(shape)
        self._snapshot.set_shape(shape)

    def ref(self) -> Any:
        """Something that can be a key of a dictionary: the variable itself."""
        return self

    def assign(
        self, value: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Sets the value. Gives the variable's tensor after that, or the operation."""
        return self._change(gen_ops.assign, value, use_locking, name, read_value)

    def assign_add(
        self, delta: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Adds to the value. Gives the variable's tensor after that, or the operation."""
        return self._change(gen_ops.assign_add, delta, use_locking, name, read_value)

    def assign_sub(
        self, delta: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Subtracts from the value. Gives the variable's tensor after that, or the operation."""
        return self._change(gen_ops.assign_sub, delta, use_locking, name, read_value)

    def count_up_to(self, limit: int) -> Tensor:
        """Adds one and gives the value from before; OutOfRangeError at the limit."""
        with self._beside():
            return gen_ops.count_up_to(self._variable, limit)

    def _change(
        self, op: Any, value: Any, use_locking: bool, name: str | None, read_value: bool
    ) -> Any:
        with self._beside():
            made = op(self._variable, value, use_locking=use_locking, name=name)
        return made if read_value else made.op

    def _beside(self) -> Any:
        return beside(self._variable)

    def _has_value(self, name: str | None = None) -> Tensor:
        with self.graph.colocate_with(self.op):
            return gen_ops.is_variable_initialized(self._variable, name=name)

    def _scatter(self, kind: str, slices: Any, use_locking: bool, name: str | None) -> Tensor:
        check_slices(slices)
        scatter = getattr(gen_ops, "scatter_" + kind)
        with self._beside():
            return scatter(
                self._variable, slices.indices, slices.values, use_locking=use_locking, name=name
            )

    def _scatter_nd(self, kind: str, indices: Any, updates: Any, name: str | None) -> Tensor:
        with self._beside():
            return getattr(gen_ops, "scatter_nd_" + kind)(
                self._variable, indices, updates, use_locking=True, name=name
            )


def beside(ref: Tensor) -> Any:
    """A context for operations that change what a reference refers to: they run where it is."""
    return get_default_graph().colocate_with(ref.op)
