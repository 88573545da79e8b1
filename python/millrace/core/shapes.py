"""Static shapes: what is known of a tensor's shape before it is computed.

A `TensorShape` keeps a plain tuple of sizes, `_dims`: None for an unknown rank, and None in place
of a size that is not known. TensorFlow 1.x programs expect `Dimension` objects as the elements of a
shape: these are made when they are asked for, where `plain_sizes` does not say otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import index
from typing import Any

from millrace import protos
from millrace.core.export import export


class _PlainSizes:
    """Whether shapes give and print their sizes as int and None, as TensorFlow 2's do. Said by the
    program, once and for all, or suggested by what it uses, which counts as long as nobody has
    said it."""

    on = False
    _chosen = False

    def choose(self, on: bool) -> None:
        """From now on."""
        self.on, self._chosen = on, True

    def suggest(self) -> None:
        """That they should be, for a program of TensorFlow 2."""
        if not self._chosen:
            self.on = True


plain_sizes = _PlainSizes()


def _size(value: Any) -> int | None:
    """The size that `value` stands for; TypeError or ValueError where it stands for none."""
    if value is None:
        return None
    if value.__class__ is Dimension:
        return value._value
    try:
        size = index(value)
    except TypeError:
        raise TypeError(
            "Dimension value must be integer or None or have an __index__ method, "
            f"got {value!r} of type {type(value).__name__}"
        ) from None
    if size < 0:
        raise ValueError(f"Dimension {size} must be >= 0")
    return size


def _operand(value: Any) -> Any:
    """As `_size`, for an operand of arithmetic: NotImplemented for what is no size.

    Negative integers pass: they are allowed as operands where the result is a size.
    """
    if value is None:
        return None
    if value.__class__ is Dimension:
        return value._value
    try:
        return index(value)
    except TypeError:
        return NotImplemented


def _binary(compute: Any) -> tuple[Any, Any]:
    """The method of an arithmetic operator of `Dimension`, and that of its reflection."""

    def forward(self: Dimension, other: Any) -> Dimension:
        size = _operand(other)
        if size is NotImplemented:
            return NotImplemented
        return Dimension(
            None if self._value is None or size is None else compute(self._value, size)
        )

    def reflected(self: Dimension, other: Any) -> Dimension:
        size = _operand(other)
        if size is NotImplemented:
            return NotImplemented
        return Dimension(
            None if self._value is None or size is None else compute(size, self._value)
        )

    return forward, reflected


def _comparison(compare: Any) -> Any:
    """The method of an ordering operator of `Dimension`: None where a size is unknown."""

    def method(self: Dimension, other: Any) -> bool | None:
        size = _size(other)
        if self._value is None or size is None:
            return None
        return compare(self._value, size)

    return method


@export(v1="Dimension")
class Dimension:
    """One size of a shape, or an unknown one: `Dimension(None)`.

    Arithmetic with an unknown size is unknown; comparing with one answers None.
    """

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        """Takes an integer, None or another Dimension.

        Raises TypeError for other types and ValueError for negative numbers.
        """
        self._value = _size(value)

    @property
    def value(self) -> int | None:
        """The size as an int, or None."""
        return self._value

    def is_compatible_with(self, other: Any) -> bool:
        """Whether both may be the same size: they are equal, or one is unknown."""
        size = _size(other)
        return self._value is None or size is None or self._value == size

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raises ValueError unless `is_compatible_with(other)`."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Dimensions {self} and {other} are not compatible")

    def merge_with(self, other: Any) -> Dimension:
        """What is known when both are the same size; ValueError where they cannot be."""
        self.assert_is_compatible_with(other)
        return Dimension(_size(other) if self._value is None else self._value)

    __add__, __radd__ = _binary(lambda a, b: a + b)
    __sub__, __rsub__ = _binary(lambda a, b: a - b)
    __mul__, __rmul__ = _binary(lambda a, b: a * b)
    __floordiv__, __rfloordiv__ = _binary(lambda a, b: a // b)
    __mod__, __rmod__ = _binary(lambda a, b: a % b)

    def __truediv__(self, other: Any) -> Dimension:
        raise TypeError(
            f"unsupported operand type(s) for /: 'Dimension' and '{type(other).__name__}', "
            "please use // instead"
        )

    def __rtruediv__(self, other: Any) -> Dimension:
        raise TypeError(
            f"unsupported operand type(s) for /: '{type(other).__name__}' and 'Dimension', "
            "please use // instead"
        )

    __lt__ = _comparison(lambda a, b: a < b)
    __le__ = _comparison(lambda a, b: a <= b)
    __gt__ = _comparison(lambda a, b: a > b)
    __ge__ = _comparison(lambda a, b: a >= b)

    def __eq__(self, other: Any) -> Any:
        size = _operand(other)
        if size is NotImplemented:
            return NotImplemented
        return None if self._value is None or size is None else self._value == size

    def __ne__(self, other: Any) -> Any:
        equal = self.__eq__(other)
        return equal if equal is None or equal is NotImplemented else not equal

    def __hash__(self) -> int:
        return hash(self._value)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __int__(self) -> int:
        return self.__index__()

    def __index__(self) -> int:
        if self._value is None:
            raise TypeError("the size of an unknown Dimension cannot be used as an integer")
        return self._value

    def __float__(self) -> float:
        return float(self.__index__())

    def __str__(self) -> str:
        return "?" if self._value is None else str(self._value)

    def __repr__(self) -> str:
        return f"Dimension({self._value})"

    def __reduce__(self) -> Any:
        return Dimension, (self._value,)


def _sizes(dims: Any) -> tuple[int | None, ...] | None:
    """The sizes of anything that can be read as a shape."""
    if dims is None:
        return None
    if isinstance(dims, TensorShape):
        return dims._dims
    if isinstance(dims, (str, bytes)):
        raise TypeError(
            f"a shape is an integer, None or a sequence of integers and None, got {dims!r}"
        )
    if hasattr(dims, "unknown_rank") and hasattr(dims, "dim"):
        if dims.unknown_rank:
            return None
        return tuple(None if d.size == -1 else _size(d.size) for d in dims.dim)
    try:
        elements = iter(dims)
    except TypeError:
        return (_size(dims),)
    return tuple([_size(d) for d in elements])


@export(v1="TensorShape", v2="TensorShape")
class TensorShape:
    """The shape of a tensor as far as it is known: fully, in part, or not at all.

    `TensorShape([2, None])` is a matrix of two rows, `TensorShape(None)` has an unknown rank.
    """

    __slots__ = ("_dims",)

    def __init__(self, dims: Any) -> None:
        """Takes None, an integer, an iterable of sizes, another shape or a TensorShapeProto.

        Raises TypeError for what is no size, and ValueError for a negative one.
        """
        if dims.__class__ is tuple or dims.__class__ is list:
            for d in dims:
                if d is not None and (d.__class__ is not int or d < 0):
                    break
            else:
                self._dims = tuple(dims)
                return
        self._dims = _sizes(dims)

    @staticmethod
    def _from_tuple(dims: tuple[int | None, ...] | None) -> TensorShape:
        """A shape of sizes that are known to be a tuple of int and None, unchecked."""
        shape = TensorShape.__new__(TensorShape)
        shape._dims = dims
        return shape

    @property
    def rank(self) -> int | None:
        """The number of dimensions, or None."""
        return None if self._dims is None else len(self._dims)

    @property
    def ndims(self) -> int | None:
        """The same as `rank`."""
        return None if self._dims is None else len(self._dims)

    @property
    def dims(self) -> list[Dimension] | None:
        """The dimensions as a list, or None where the rank is unknown."""
        return None if self._dims is None else [Dimension(d) for d in self._dims]

    def num_elements(self) -> int | None:
        """The product of the sizes, or None where the shape is not fully defined."""
        if self._dims is None:
            return None
        count = 1
        for d in self._dims:
            if d is None:
                return None
            count *= d
        return count

    def is_fully_defined(self) -> bool:
        """Whether the rank and every size are known."""
        return self._dims is not None and None not in self._dims

    def assert_is_fully_defined(self) -> None:
        """Raises ValueError unless `is_fully_defined()`."""
        if not self.is_fully_defined():
            raise ValueError(f"Shape {self} is not fully defined")

    def is_compatible_with(self, other: Any) -> bool:
        """Whether one tensor can have both shapes."""
        mine, theirs = self._dims, as_shape(other)._dims
        if mine is None or theirs is None:
            return True
        return len(mine) == len(theirs) and all(
            a is None or b is None or a == b for a, b in zip(mine, theirs, strict=True)
        )

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raises ValueError unless `is_compatible_with(other)`."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {as_shape(other)} are incompatible")

    def merge_with(self, other: Any) -> TensorShape:
        """What is known of a tensor that has both shapes; ValueError where none can."""
        other = as_shape(other)
        if other._dims is None:
            return self
        if self._dims is None:
            return other
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {other} are not compatible")
        return self._from_tuple(
            tuple([b if a is None else a for a, b in zip(self._dims, other._dims, strict=True)])
        )

    def most_specific_compatible_shape(self, other: Any) -> TensorShape:
        """The most that can be said of a tensor that has one shape or the other."""
        mine, theirs = self._dims, as_shape(other)._dims
        if mine is None or theirs is None or len(mine) != len(theirs):
            return self._from_tuple(None)
        return self._from_tuple(
            tuple([a if a == b else None for a, b in zip(mine, theirs, strict=True)])
        )

    def is_subtype_of(self, other: TensorShape) -> bool:
        """Whether every tensor of this shape has the shape `other` too."""
        mine, theirs = self._dims, as_shape(other)._dims
        if theirs is None:
            return True
        return (
            mine is not None
            and len(mine) == len(theirs)
            and all(b is None or a == b for a, b in zip(mine, theirs, strict=True))
        )

    def most_specific_common_supertype(self, others: Iterable[TensorShape]) -> TensorShape:
        """`most_specific_compatible_shape` of this shape and all `others`."""
        common = self
        for other in others:
            common = common.most_specific_compatible_shape(other)
        return common

    def concatenate(self, other: Any) -> TensorShape:
        """This shape followed by the dimensions of `other`."""
        mine, theirs = self._dims, as_shape(other)._dims
        return self._from_tuple(None if mine is None or theirs is None else mine + theirs)

    def _size_at(self, index: int) -> int | None:
        """The size of one dimension, or None where it or the rank is unknown."""
        return None if self._dims is None else self._dims[index]

    def assert_same_rank(self, other: Any) -> None:
        """Raises ValueError where both ranks are known and differ."""
        other = as_shape(other)
        if None not in (self.rank, other.rank) and self.rank != other.rank:
            raise ValueError(f"Shapes {self} and {other} must have the same rank")

    def assert_has_rank(self, rank: int) -> None:
        """Raises ValueError where the rank is known and is not `rank`."""
        if self.rank not in (None, rank):
            raise ValueError(f"Shape {self} must have rank {rank}")

    def with_rank(self, rank: int) -> TensorShape:
        """This shape, known to have `rank` dimensions; ValueError where it has not."""
        try:
            return self.merge_with(unknown_shape(rank))
        except ValueError:
            raise ValueError(f"Shape {self} must have rank {rank}") from None

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """This shape; ValueError where it is known to have fewer dimensions than `rank`."""
        if self.rank is not None and self.rank < rank:
            raise ValueError(f"Shape {self} must have rank at least {rank}")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """This shape; ValueError where it is known to have more dimensions than `rank`."""
        if self.rank is not None and self.rank > rank:
            raise ValueError(f"Shape {self} must have rank at most {rank}")
        return self

    def as_list(self) -> list[int | None]:
        """The sizes as a list of int and None; ValueError where the rank is unknown."""
        if self._dims is None:
            raise ValueError("as_list() is not defined on an unknown TensorShape.")
        return list(self._dims)

    def as_proto(self) -> Any:
        """The shape as a TensorShapeProto message."""
        proto = protos.TensorShapeProto()
        self.write_to(proto)
        return proto

    def write_to(self, proto: Any) -> None:
        """Writes the shape into an empty TensorShapeProto message."""
        if self._dims is None:
            proto.unknown_rank = True
        else:
            for d in self._dims:
                proto.dim.add(size=-1 if d is None else d)

    def __len__(self) -> int:
        if self._dims is None:
            raise ValueError("Cannot take the length of shape with unknown rank.")
        return len(self._dims)

    def __bool__(self) -> bool:
        return self._dims is not None

    def __iter__(self) -> Iterator[Any]:
        if self._dims is None:
            raise ValueError("Cannot iterate over a shape with unknown rank.")
        return iter(self._dims if plain_sizes.on else [Dimension(d) for d in self._dims])

    def __getitem__(self, key: Any) -> Any:
        """A size (a Dimension in TensorFlow 1), or the shape of a slice; of unknown sizes where the
        rank is unknown."""
        if isinstance(key, slice):
            if self._dims is not None:
                return self._from_tuple(self._dims[key])
            if key.step is not None:
                raise ValueError("a shape of unknown rank has no slices with a step")
            start = 0 if key.start is None else index(key.start)
            if key.stop is None or start < 0 or index(key.stop) < 0:
                return self._from_tuple(None)
            return unknown_shape(max(0, index(key.stop) - start))
        try:
            size = None if self._dims is None else self._dims[key]
            return size if plain_sizes.on else Dimension(size)
        except IndexError:
            raise IndexError(f"Shape {self} has no dimension {key}") from None

    def __add__(self, other: Any) -> TensorShape:
        return self.concatenate(other)

    def __radd__(self, other: Any) -> TensorShape:
        return as_shape(other).concatenate(self)

    def __eq__(self, other: Any) -> Any:
        if other.__class__ is not TensorShape:
            try:
                other = TensorShape(other)
            except (TypeError, ValueError):
                return NotImplemented
        return self._dims == other._dims

    def __hash__(self) -> int:
        return hash(self._dims)

    def __str__(self) -> str:
        if self._dims is None:
            return "<unknown>"
        sizes = ["?" if d is None and not plain_sizes.on else str(d) for d in self._dims]
        return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"

    def __repr__(self) -> str:
        if plain_sizes.on and self._dims is not None:
            return f"TensorShape({list(self._dims)})"
        return f"TensorShape({self.dims})"

    def __reduce__(self) -> Any:
        return TensorShape, (self.dims,)


def as_shape(shape: Any) -> TensorShape:
    """`shape` itself where it is a TensorShape, and a TensorShape made of it otherwise."""
    return shape if shape.__class__ is TensorShape else TensorShape(shape)


def as_dimension(value: Any) -> Dimension:
    """`value` itself where it is a Dimension, and a Dimension made of it otherwise."""
    return value if value.__class__ is Dimension else Dimension(value)


def unknown_shape(rank: int | None = None, ndims: int | None = None) -> TensorShape:
    """A shape of `rank` unknown sizes, or of unknown rank. `ndims` is an older name of `rank`."""
    if rank is None:
        rank = ndims
    return TensorShape._from_tuple(None if rank is None else (None,) * rank)


def scalar() -> TensorShape:
    """The shape of a scalar."""
    return TensorShape._from_tuple(())


def vector(length: Any) -> TensorShape:
    """The shape of a vector; `length` may be None."""
    return TensorShape([length])


def matrix(rows: Any, cols: Any) -> TensorShape:
    """The shape of a matrix; either size may be None."""
    return TensorShape([rows, cols])


@export(v1=("dimension_value", "compat.dimension_value"), v2="compat.dimension_value")
def dimension_value(dimension: Any) -> int | None:
    """The size of a Dimension; other values as they are."""
    return dimension._value if isinstance(dimension, Dimension) else dimension


@export(v1=("dimension_at_index", "compat.dimension_at_index"), v2="compat.dimension_at_index")
def dimension_at_index(shape: TensorShape, index: int) -> Dimension:
    """The dimension of `shape` at `index`, unknown where the rank is unknown."""
    return Dimension(shape._size_at(index))


def as_dims(shape: Any) -> tuple[int | None, ...] | None:
    """The sizes of anything that stands for a shape (None where unknown), or None; the bindings
    call it."""
    if shape is None:
        return None
    return (shape if isinstance(shape, TensorShape) else TensorShape(shape))._dims
