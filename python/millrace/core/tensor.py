"""The class of all tensors, and the operators that they share."""

from typing import TYPE_CHECKING, Any, NoReturn

from millrace.core import dtypes
from millrace.core.shapes import TensorShape

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
    """What operations take and give: an array of a type, with a value now or when a graph runs.

    The base of all tensors: those in a graph, `SymbolicTensor`, and those with a value,
    `EagerTensor`. Tensors are made by operations. Those of graphs are compared by identity.
    """

    __slots__ = ()
    __array_priority__ = 100
    OVERLOADABLE_OPERATORS = frozenset(OPERATORS)

    dtype: dtypes.DType

    def __new__(cls, *_: Any, **__: Any) -> NoReturn:  # type: ignore[misc]
        raise TypeError(
            "a tf.Tensor cannot be made directly: it is the result of an operation, such as "
            "tf.constant(value)"
        )

    # What each kind of tensor says for itself.

    @property
    def shape(self) -> TensorShape:
        """What is known of the shape."""
        raise NotImplementedError

    def _shape_tuple(self) -> tuple[int | None, ...] | None:
        """The shape as sizes; None for those not known, or where not even the rank is."""
        raise NotImplementedError

    @property
    def device(self) -> str:
        """The device that it is made on; empty where nobody asked for one."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The name in its graph: "MatMul:0"."""
        raise NotImplementedError

    @property
    def op(self) -> Any:
        """The operation that makes it."""
        raise NotImplementedError

    @property
    def graph(self) -> Any:
        """The graph that it belongs to."""
        raise NotImplementedError

    @property
    def value_index(self) -> int:
        """Which output of its operation it is."""
        raise NotImplementedError

    def set_shape(self, shape: Any) -> None:
        """Adds to what is known of the shape. ValueError when it contradicts."""
        raise NotImplementedError

    def consumers(self) -> list[Any]:
        """The operations that take it."""
        raise NotImplementedError

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """Its value, computed in the session given or in the default one."""
        raise NotImplementedError

    # What follows from it.

    def get_shape(self) -> TensorShape:
        """As `shape`."""
        return self.shape

    @property
    def _shape(self) -> TensorShape:
        return self.shape

    def _shape_as_list(self) -> list[int | None] | None:
        dims = self._shape_tuple()
        return None if dims is None else list(dims)

    def _is_ref(self) -> bool:
        return self.dtype._is_ref_dtype

    def __hash__(self) -> int:
        return id(self) >> 4

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other


def is_tensor_like(value: Any) -> bool:
    """Whether a value stands for a tensor: a Tensor, a Variable."""
    return isinstance(value, Tensor) or hasattr(value, "_as_graph_element")


def maker_name(tensor: Any, otherwise: str) -> str:
    """The name of the operation that makes a tensor; `otherwise` for one that has a value."""
    if hasattr(tensor, "numpy"):
        return otherwise
    name: str = tensor.op.name
    return name


def label_of(tensor: Any) -> str:
    """What messages call a tensor: its name; shape and type of one that has a value and no name."""
    if isinstance(tensor, Tensor) and hasattr(tensor, "numpy"):
        return f"shape={tensor.shape} dtype={tensor.dtype.name}"
    name: str = tensor.name
    return name
