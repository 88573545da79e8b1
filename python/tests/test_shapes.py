"""Static shapes and dimensions."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from millrace.core.shapes import (
    Dimension,
    TensorShape,
    as_dimension,
    as_shape,
    dimension_at_index,
    dimension_value,
    plain_sizes,
    unknown_shape,
)


def proto(*sizes, unknown_rank=False):
    return SimpleNamespace(
        dim=[SimpleNamespace(size=size) for size in sizes], unknown_rank=unknown_rank
    )


@pytest.mark.parametrize(
    ("source", "dims"),
    [
        (None, None),
        ([], ()),
        (3, (3,)),
        ((1, None, 3), (1, None, 3)),
        ([Dimension(3), None, np.int64(2)], (3, None, 2)),
        (Dimension(4), (4,)),
        (np.array([1, 2]), (1, 2)),
        (np.array(3), (3,)),
        (np.int32(4), (4,)),
        ((d for d in (1, 2)), (1, 2)),
        (TensorShape([5, None]), (5, None)),
        ([2**40], (2**40,)),
        (proto(1, -1), (1, None)),
        (proto(unknown_rank=True), None),
    ],
)
def test_a_shape_is_made_of_anything_like_a_shape(source, dims):
    assert TensorShape(source)._dims == dims


@pytest.mark.parametrize("bad", ["ab", "3", b"ab", [1.5], [1.0], [1, "x"], [[1]], 2.5])
def test_what_is_no_size_is_a_type_error(bad):
    with pytest.raises(TypeError):
        TensorShape(bad)


@pytest.mark.parametrize("bad", [-1, [-1], (2, -3), [np.int64(-2)], proto(-2)])
def test_negative_sizes_are_value_errors(bad):
    with pytest.raises(ValueError, match="must be >= 0"):
        TensorShape(bad)


@pytest.mark.parametrize(
    ("dims", "text", "written"),
    [
        (None, "<unknown>", "TensorShape(None)"),
        ([], "()", "TensorShape([])"),
        ([5], "(5,)", "TensorShape([Dimension(5)])"),
        ([1, None], "(1, ?)", "TensorShape([Dimension(1), Dimension(None)])"),
    ],
)
def test_shapes_print_as_in_tensorflow(dims, text, written):
    shape = TensorShape(dims)
    assert (str(shape), repr(shape)) == (text, written)


def test_sizes_are_numbers_in_tensorflow_2(monkeypatch):
    monkeypatch.setattr(plain_sizes, "on", True)
    shape = TensorShape([2, None])
    assert (list(shape), shape[0], shape[1], shape[-1:].as_list()) == ([2, None], 2, None, [None])
    assert (str(shape), repr(shape)) == ("(2, None)", "TensorShape([2, None])")
    assert TensorShape(None)[1] is None and repr(TensorShape(None)) == "TensorShape(None)"
    assert [d.value for d in shape.dims] == [2, None]
    assert dimension_at_index(shape, 0).value == 2
    with pytest.raises(IndexError, match=r"\(2, None\) has no dimension 2"):
        shape[2]


def test_rank_and_elements():
    shape = TensorShape([2, None, 3])
    assert (shape.rank, shape.ndims, len(shape)) == (3, 3, 3)
    assert shape.as_list() == [2, None, 3]
    assert [d.value for d in shape] == [2, None, 3]
    assert [d.value for d in shape.dims] == [2, None, 3]
    assert shape.num_elements() is None
    assert TensorShape([2, 3]).num_elements() == 6
    assert TensorShape([]).num_elements() == 1
    assert shape and TensorShape([])
    assert 3 in TensorShape([1, 3])


def test_unknown_rank_has_no_elements():
    shape = TensorShape(None)
    assert (shape.rank, shape.ndims, shape.dims, shape.num_elements()) == (None,) * 4
    assert not shape
    for ask in (len, list, TensorShape.as_list):
        with pytest.raises(ValueError, match="unknown"):
            ask(shape)


def test_indexing():
    shape = TensorShape([1, 2, 3])
    assert shape[0].value == 1 and shape[-1].value == 3 and shape[np.int64(1)].value == 2
    assert shape[1:].as_list() == [2, 3]
    assert shape[::2].as_list() == [1, 3]
    with pytest.raises(IndexError, match=r"\(1, 2, 3\) has no dimension 5"):
        shape[5]
    with pytest.raises(TypeError):
        shape["a"]


def test_indexing_an_unknown_rank():
    shape = TensorShape(None)
    assert shape[3].value is None
    assert shape[2:4].as_list() == [None, None]
    assert shape[3:1].as_list() == []
    for key in (slice(1, None), slice(None, -1), slice(-2, None)):
        assert shape[key].rank is None
    with pytest.raises(ValueError, match="step"):
        shape[::2]


def test_equality():
    assert TensorShape([1, 2]) == TensorShape((1, 2)) == [1, 2]
    assert TensorShape([1]) == 1
    assert TensorShape([None]) == TensorShape([None])
    assert TensorShape(None) == TensorShape(None)
    assert TensorShape([1]) != TensorShape([None])
    assert TensorShape([1]) != "foo"
    assert TensorShape([1]) != TensorShape(None)
    assert len({TensorShape([1]), TensorShape([1]), TensorShape(None)}) == 2


def test_concatenation():
    more = [2, None]
    assert (TensorShape([1]) + more).as_list() == [1, 2, None]
    assert (more + TensorShape([1])).as_list() == [2, None, 1]
    assert (TensorShape([1]) + None).rank is None


def test_merging():
    assert TensorShape([1, None]).merge_with([None, 2]).as_list() == [1, 2]
    assert TensorShape([1, None]).merge_with(None).as_list() == [1, None]
    assert TensorShape(None).merge_with([1]).as_list() == [1]
    for other in ([3, 2], [3]):
        with pytest.raises(ValueError, match=r"Shapes \(1, \?\) and .* are not compatible"):
            TensorShape([1, None]).merge_with(other)


def test_compatibility():
    shape = TensorShape([1, 2])
    assert shape.is_compatible_with([None, 2]) and shape.is_compatible_with(None)
    assert not shape.is_compatible_with([None, 3]) and not shape.is_compatible_with([None])
    with pytest.raises(ValueError, match=r"Shapes \(1, 2\) and \(3, 4\) are incompatible"):
        shape.assert_is_compatible_with([3, 4])
    assert shape.most_specific_compatible_shape([1, 3]).as_list() == [1, None]
    assert shape.most_specific_compatible_shape([1]).rank is None
    assert shape.most_specific_common_supertype([TensorShape([3, 2])]).as_list() == [None, 2]
    assert shape.is_subtype_of(TensorShape([None, 2]))
    assert not TensorShape([None, 2]).is_subtype_of(shape)


def test_ranks_are_checked():
    shape = TensorShape([1, 2])
    assert shape.with_rank(2).as_list() == [1, 2]
    assert TensorShape(None).with_rank(2).as_list() == [None, None]
    assert shape.with_rank_at_least(2) is shape and shape.with_rank_at_most(2) is shape
    shape.assert_has_rank(2)
    TensorShape(None).assert_has_rank(7)
    shape.assert_same_rank(None)
    with pytest.raises(ValueError, match=r"Shape \(1, 2\) must have rank 3"):
        shape.with_rank(3)
    with pytest.raises(ValueError, match="must have rank 3"):
        shape.assert_has_rank(3)
    with pytest.raises(ValueError, match="rank at least 3"):
        shape.with_rank_at_least(3)
    with pytest.raises(ValueError, match="rank at most 1"):
        shape.with_rank_at_most(1)
    with pytest.raises(ValueError, match="same rank"):
        shape.assert_same_rank([1])


def test_full_definition():
    assert TensorShape([1, 2]).is_fully_defined()
    for dims in ([1, None], None):
        assert not TensorShape(dims).is_fully_defined()
        with pytest.raises(ValueError, match="not fully defined"):
            TensorShape(dims).assert_is_fully_defined()


def test_numpy_and_pickle_take_shapes():
    assert np.zeros(TensorShape([1, 2])).shape == (1, 2)
    for shape in (TensorShape([1, None]), TensorShape(None)):
        assert pickle.loads(pickle.dumps(shape)) == shape
    assert pickle.loads(pickle.dumps(Dimension(3))).value == 3


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (Dimension(3) + 4, 7),
        (4 + Dimension(3), 7),
        (Dimension(3) + Dimension(None), None),
        (Dimension(3) - 1, 2),
        (5 - Dimension(3), 2),
        (Dimension(3) * None, None),
        (3 * Dimension(4), 12),
        (Dimension(7) // 2, 3),
        (7 // Dimension(2), 3),
        (Dimension(7) % 4, 3),
        (7 % Dimension(4), 3),
        (Dimension(3) + np.int64(2), 5),
    ],
)
def test_dimension_arithmetic(result, value):
    assert isinstance(result, Dimension) and result.value == value


def test_dimension_arithmetic_errors():
    with pytest.raises(ValueError, match="must be >= 0"):
        Dimension(3) - 5
    with pytest.raises(TypeError, match="please use // instead"):
        Dimension(7) / 2
    with pytest.raises(TypeError, match="please use // instead"):
        7 / Dimension(2)
    for other in ("x", 1.5):
        with pytest.raises(TypeError, match="unsupported operand"):
            Dimension(7) + other
    with pytest.raises(ZeroDivisionError):
        Dimension(7) // 0


def test_dimension_comparison():
    seven, unknown = Dimension(7), Dimension(None)
    assert seven < 8 and seven <= 7 and seven > 6 and seven >= Dimension(7)
    assert seven == 7 and seven != 8 and seven != "7"
    for answer in (seven < None, seven > unknown, unknown == unknown, unknown != unknown):
        assert answer is None
    with pytest.raises(TypeError):
        seven < "x"  # noqa: B015
    assert hash(seven) == hash(7)


def test_dimensions_stand_for_integers():
    assert int(Dimension(7)) == 7 and range(10)[Dimension(3)] == 3 and float(Dimension(3)) == 3.0
    assert bool(Dimension(3)) and not Dimension(0) and not Dimension(None)
    assert (str(Dimension(3)), repr(Dimension(3))) == ("3", "Dimension(3)")
    assert (str(Dimension(None)), repr(Dimension(None))) == ("?", "Dimension(None)")
    with pytest.raises(TypeError):
        int(Dimension(None))


def test_dimension_merging():
    assert Dimension(3).merge_with(None).value == 3
    assert Dimension(None).merge_with(4).value == 4
    assert Dimension(3).is_compatible_with(None) and not Dimension(3).is_compatible_with(4)
    with pytest.raises(ValueError, match="Dimensions 3 and 4 are not compatible"):
        Dimension(3).merge_with(4)


def test_conversions():
    shape, dimension = TensorShape([1]), Dimension(3)
    assert as_shape(shape) is shape and as_shape([1]) == shape
    assert as_dimension(dimension) is dimension and as_dimension(None).value is None
    assert unknown_shape().rank is None
    assert unknown_shape(3) == unknown_shape(rank=3) == unknown_shape(ndims=3) == [None] * 3
    assert dimension_value(dimension) == 3 and dimension_value(4) == 4
    assert dimension_at_index(TensorShape([1, 2]), 1).value == 2
