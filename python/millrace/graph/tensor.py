"""What flows along the edges of a graph."""

from typing import TYPE_CHECKING, Any, Iterator

from millrace import _core
from millrace.core import dtypes
from millrace.core.errors import OperatorNotAllowedInGraphError
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.default_session import session_for
from millrace.graph.operation import Operation

if TYPE_CHECKING:
    from millrace.graph.graph import Graph


class SymbolicTensor(Tensor):
    """One output of an operation of a graph. Made by the extension module, one for each output."""

    __slots__ = ("__dict__", "__weakref__", "_id", "_index", "dtype", "graph", "op")

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

    def _shape_tuple(self) -> tuple[int | None, ...] | None:
        return self.graph._shape(self._id, self._index)

    def set_shape(self, shape: Any) -> None:
        """Adds to what is known of the shape. ValueError when it contradicts."""
        self.graph._set_shape(self._id, self._index, shape)

    def consumers(self) -> list[Operation]:
        """The operations that take it."""
        return [op for op in self.graph.get_operations() if any(i is self for i in op.inputs)]

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """Its value, computed in the session given or in the default one."""
        return session_for(session, self.graph, "evaluate this tensor").run(self, feed_dict)

    def _as_graph_element(self) -> "SymbolicTensor":
        return self

    def _as_node_def_input(self) -> str:
        name = self.op.name
        return name if self._index == 0 else f"{name}:{self._index}"

    def __len__(self) -> int:
        raise TypeError(
            f"len is not well defined for a symbolic Tensor ({self.name}). Please call "
            "`x.shape` rather than `len(x)` for shape information."
        )

    def __iter__(self) -> Iterator[Tensor]:
        raise self._has_no_value(
            "Iterating over a symbolic `tf.Tensor`", "Use tf.unstack, tf.map_fn or tf.while_loop"
        )

    def __bool__(self) -> bool:
        raise self._has_no_value(
            "Using a symbolic `tf.Tensor` as a Python `bool`",
            "Use `if t is not None:` to ask whether there is a tensor, and tf.cond to choose by "
            "its value",
        )

    def _has_no_value(self, what: str, instead: str) -> OperatorNotAllowedInGraphError:
        return OperatorNotAllowedInGraphError(
            f"{what} is not allowed: '{self.name}' ({self.dtype.name}, shape {self.shape}) is "
            f"known only when its graph runs. {instead}, or let tf.function convert the code "
            f"(docs/eager.md).{_core.user_line()}"
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

    def __copy__(self) -> "SymbolicTensor":
        return self

    def __deepcopy__(self, memo: Any) -> "SymbolicTensor":
        return self

    def __reduce__(self) -> Any:
        raise TypeError(f"the tensor {self.name!r} belongs to a graph and cannot be pickled")
