"""Lists that a loop of the graph appends to."""

from typing import Any, Callable

from millrace import _core
from millrace.autograph.values import is_convertible
from millrace.core import nest
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.ops.tensor_array import TensorArray


class GrowingList:
    """A list of tensors of one type whose length the graph knows. What changes it makes another.

    It converts to the tensor of its elements, stacked.
    """

    def __init__(self, elements: TensorArray):
        self._elements = elements

    @staticmethod
    def of(values: list[Any], dtype: Any, shape: TensorShape) -> "GrowingList":
        """One with these elements, of a type and shape."""
        elements = TensorArray(
            dtype, size=len(values), dynamic_size=True, clear_after_read=False,
            infer_shape=shape.is_fully_defined(),
            element_shape=shape if shape.is_fully_defined() else None,
        )  # fmt: skip
        for i, value in enumerate(values):
            elements = elements.write(i, convert_to_tensor(value, dtype=dtype))
        return GrowingList(elements)

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self._elements.dtype

    @property
    def element_shape(self) -> TensorShape:
        """What is known of the shape of the elements."""
        return self._elements.element_shape

    # What loops and branches of a graph ask of values made of tensors.

    @property
    def flow(self) -> Tensor:
        """The tensor that carries the elements."""
        return self._elements.flow

    def _with_flow(self, flow: Tensor) -> "GrowingList":
        return GrowingList(self._elements._with_flow(flow))

    def _merge_element_shape(self, other: "GrowingList") -> None:
        self._elements._merge_element_shape(other._elements)

    # What programs ask of lists.

    def appended(self, value: Any) -> "GrowingList":
        """The list with one more element."""
        tensor = convert_to_tensor(value, dtype=self.dtype)
        return GrowingList(self._elements.write(self.size(), tensor))

    def size(self) -> Tensor:
        """How many elements there are, a tensor."""
        return self._elements.size()

    def stack(self) -> Tensor:
        """The elements as one tensor."""
        return self._elements.stack()

    def read(self, i: Any) -> Tensor:
        """The element with the index i, which is not below 0."""
        return self._elements.read(i)

    def __getitem__(self, i: Any) -> Tensor:
        if isinstance(i, int):
            return self.read(i if i >= 0 else self.size() + i)
        return self.read(i) if isinstance(i, Tensor) and i.shape.rank == 0 else self.stack()[i]

    def _as_tensor(self, dtype: Any = None, as_ref: bool = False) -> Tensor:
        del as_ref
        return convert_to_tensor(self.stack(), dtype=dtype)

    def _refuse(self) -> Any:
        raise TypeError(
            "how long a list is that a loop of the graph appends to, is known only when the graph "
            "runs: use len() in a converted function, or tf.stack"
        )

    __len__ = __iter__ = __bool__ = _refuse


class Trial:
    """A list in a trial of a loop's body: it notes what is appended."""

    def __init__(self, values: list[Any]):
        self._values = list(values)
        self.seen: list[Tensor] = []

    def append(self, value: Any) -> None:
        """Appends a value and notes it."""
        if not is_convertible(value):
            raise TypeError(f"a list in a loop of the graph takes tensors, got {value!r}")
        self.seen.append(convert_to_tensor(value))
        self._values.append(value)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, i: Any) -> Any:
        return self._values[i]


def copied(value: Any) -> Any:
    """A list for a branch to change; other values as they are."""
    return list(value) if type(value) is list else value


def append(values: Any, value: Any) -> Any:
    """`values.append(value)`: the list, which may be another one afterwards."""
    if isinstance(values, GrowingList):
        return values.appended(value)
    values.append(value)
    return values


def element_kind(after: Any) -> tuple[Any, TensorShape] | None:
    """The type and shape of elements of a list that a trial has left; None where nothing was
    appended."""
    if isinstance(after, GrowingList):
        return after.dtype, after.element_shape
    if not isinstance(after, Trial) or not after.seen:
        return None
    first = after.seen[0]
    shape = TensorShape(first.shape)
    for other in after.seen[1:]:
        if other.shape.rank is None or shape.as_list() != other.shape.as_list():
            return first.dtype.base_dtype, TensorShape(None)
    return first.dtype.base_dtype, shape


def settled(result: Any) -> Any:
    """What a traced function returns: tensors for lists that loops of the graph have made."""
    if _core.executing_eagerly() or not any(
        isinstance(leaf, GrowingList) for leaf in nest.flatten(result)
    ):
        return result
    return nest.map_structure(
        lambda leaf: leaf.stack() if isinstance(leaf, GrowingList) else leaf, result
    )


def stacked_by(function: Callable[..., Any]) -> Callable[..., Any]:
    """`tf.stack`, of such lists too."""

    def stack(values: Any, axis: Any = 0, name: str = "stack") -> Any:
        if not isinstance(values, GrowingList):
            return function(values, axis, name)
        if axis != 0:
            raise ValueError(
                "a list that a loop of the graph appends to is stacked with axis=0 only"
            )
        return values.stack()

    return stack


def joined_by(function: Callable[..., Any]) -> Callable[..., Any]:
    """`tf.concat`, of such lists too."""

    def concat(values: Any, axis: Any, name: str = "concat") -> Any:
        if not isinstance(values, GrowingList):
            return function(values, axis, name)
        if axis != 0:
            raise ValueError(
                "a list that a loop of the graph appends to is joined with axis=0 only"
            )
        return values._elements.concat()

    return concat
