"""What flows along the edges of a graph."""

from typing import TYPE_CHECKING, Any, Iterator

from millrace.core import dtypes
from millrace.core.shapes import TensorShape
from millrace.graph.default_session import session_for
from millrace.graph.operation import Operation

if TYPE_CHECKING:
    from millrace.graph.graph import Graph


OPERATORS = (
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__div__", "__rdiv__",
    "__truediv__", "__rtruediv__", "__floordiv__", "__rfloordiv__", "__mod__", "__rmod__",
    "__pow__", "__rpow__", "__matmul__", "__rmatmul__", "__lt__", "__le__", "__gt__", "__ge__",
    "__and__", "__rand__", "__or__", "__ror__", "__xor__", "__rxor__", "__invert__", "__neg__",
    "__abs__", "__getitem__",
)  # fmt: skip


class TensorOperators:
    """The operators of tensors, and of what converts to them: functions of ops/overloads.py."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __add__(self, other: Any) -> "Tensor": ...
        def __radd__(self, other: Any) -> "Tensor": ...
        def __sub__(self, other: Any) -> "Tensor": ...
        def __rsub__(self, other: Any) -> "Tensor": ...
        def __mul__(self, other: Any) -> "Tensor": ...
        def __rmul__(self, other: Any) -> "Tensor": ...
        def __div__(self, other: Any) -> "Tensor": ...
        def __rdiv__(self, other: Any) -> "Tensor": ...
        def __truediv__(self, other: Any) -> "Tensor": ...
        def __rtruediv__(self, other: Any) -> "Tensor": ...
        def __floordiv__(self, other: Any) -> "Tensor": ...
        def __rfloordiv__(self, other: Any) -> "Tensor": ...
        def __mod__(self, other: Any) -> "Tensor": ...
        def __rmod__(self, other: Any) -> "Tensor": ...
        def __pow__(self, other: Any) -> "Tensor": ...
        def __rpow__(self, other: Any) -> "Tensor": ...
        def __matmul__(self, other: Any) -> "Tensor": ...
        def __rmatmul__(self, other: Any) -> "Tensor": ...
        def __lt__(self, other: Any) -> "Tensor": ...
        def __le__(self, other: Any) -> "Tensor": ...
        def __gt__(self, other: Any) -> "Tensor": ...
        def __ge__(self, other: Any) -> "Tensor": ...
        def __and__(self, other: Any) -> "Tensor": ...
        def __rand__(self, other: Any) -> "Tensor": ...
        def __or__(self, other: Any) -> "Tensor": ...
        def __ror__(self, other: Any) -> "Tensor": ...
        def __xor__(self, other: Any) -> "Tensor": ...
        def __rxor__(self, other: Any) -> "Tensor": ...
        def __getitem__(self, other: Any) -> "Tensor": ...
        def __invert__(self) -> "Tensor": ...
        def __neg__(self) -> "Tensor": ...
        def __abs__(self) -> "Tensor": ...


class Tensor(TensorOperators):
    """One output of an operation: what flows along the edges of a graph."""

    __slots__ = ("__dict__", "__weakref__", "_id", "_index", "dtype", "graph", "op")
    __array_priority__ = 100
    OVERLOADABLE_OPERATORS = frozenset(OPERATORS)

    op: Operation
    graph: "Graph"
    dtype: dtypes.DType

    @property
    def name(self) -> str:
        """The operation's name and the number of the output: "MatMul:0"."""
        return f"{self.graph._node_name(self._id)}:{self._index}"

    @property
    def value_index(self) -> int:
        """Which output of its operation it is."""
        return self._index

    @property
    def device(self) -> str:
        """The device of its operation."""
        return self.op.device

    @property
    def shape(self) -> TensorShape:
        """What is known of the shape before anything runs."""
        return TensorShape._from_tuple(self.graph._shape(self._id, self._index))

    def get_shape(self) -> TensorShape:
        """As `shape`."""
        return self.shape

    @property
    def _shape(self) -> TensorShape:
        return self.shape

    def _shape_tuple(self) -> tuple[int | None, ...] | None:
        return self.graph._shape(self._id, self._index)

    def _shape_as_list(self) -> list[int | None] | None:
        dims = self._shape_tuple()
        return None if dims is None else list(dims)

    def set_shape(self, shape: Any) -> None:
        """Adds to what is known of the shape. ValueError when it contradicts."""
        self.graph._set_shape(self._id, self._index, shape)

    def consumers(self) -> list[Operation]:
        """The operations that take it."""
        return [op for op in self.graph.get_operations() if any(i is self for i in op.inputs)]

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """Its value, computed in the session given or in the default one."""
        return session_for(session, self.graph, "evaluate this tensor").run(self, feed_dict)

    def _as_graph_element(self) -> "Tensor":
        return self

    def _as_node_def_input(self) -> str:
        name = self.op.name
        return name if self._index == 0 else f"{name}:{self._index}"

    def _is_ref(self) -> bool:
        return self.dtype._is_ref_dtype

    def __len__(self) -> int:
        raise TypeError(
            f"len is not well defined for a symbolic Tensor ({self.name}). Please call "
            "`x.shape` rather than `len(x)` for shape information."
        )

    def __iter__(self) -> Iterator["Tensor"]:
        shape = self._shape_tuple()
        raise TypeError(
            f"The tensor '{self.name}' of shape {TensorShape(shape)} cannot be iterated over: its "
            "elements are known only when the graph runs. Use tf.unstack, tf.map_fn or "
            "tf.while_loop."
        )

    def __bool__(self) -> bool:
        raise TypeError(
            f"Using a tf.Tensor ('{self.name}', {self.dtype.name}, shape {self.shape}) as a Python "
            "bool is not allowed: its value is known only when the graph runs. Use "
            "`if t is not None:` to ask whether there is a tensor, and tf.cond to choose by its "
            "value."
        )

    def __nonzero__(self) -> bool:
        return self.__bool__()

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            f"Cannot convert a symbolic Tensor ({self.name}) to a numpy array. Run it in a "
            "session: sess.run(t)."
        )

    def __float__(self) -> float:
        raise TypeError(
            f"The tensor '{self.name}' has no value before the graph runs: float(sess.run(t))"
        )

    def __int__(self) -> int:
        raise TypeError(
            f"The tensor '{self.name}' has no value before the graph runs: int(sess.run(t))"
        )

    def __repr__(self) -> str:
        return f"<tf.Tensor '{self.name}' shape={self.shape} dtype={self.dtype.name}>"

    def __str__(self) -> str:
        shape = "" if self._shape_tuple() is None else f", shape={self.shape}"
        device = f", device={self.device}" if self.device else ""
        return f'Tensor("{self.name}"{shape}, dtype={self.dtype.name}{device})'

    def __copy__(self) -> "Tensor":
        return self

    def __deepcopy__(self, memo: Any) -> "Tensor":
        return self

    def __hash__(self) -> int:
        return id(self) >> 4

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __reduce__(self) -> Any:
        raise TypeError(f"the tensor {self.name!r} belongs to a graph and cannot be pickled")


def is_tensor_like(value: Any) -> bool:
    """Whether a value stands for a tensor of a graph: a Tensor, a Variable."""
    return isinstance(value, Tensor) or hasattr(value, "_as_graph_element")
