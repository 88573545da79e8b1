"""Nested structures."""

from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest

import millrace.compat.v1 as tf
import millrace.core.nest as nest

Point = namedtuple("Point", "x y")
Other = namedtuple("Other", "x y")


class Pair:
    """As attrs makes classes, without the library."""

    __attrs_attrs__ = (type("Field", (), {"name": "a"}), type("Field", (), {"name": "b"}))

    def __init__(self, a, b):
        self.a, self.b = a, b


class OwnList(list):
    pass


def test_flatten_walks_depth_first_and_sorts_keys():
    assert nest.flatten([1, [2, (3,)], {"b": 5, "a": 4}]) == [1, 2, 3, 4, 5]
    assert nest.flatten(Point(1, [2, 3])) == [1, 2, 3]
    assert nest.flatten(OrderedDict([("b", 1), ("a", 2)])) == [2, 1]
    assert nest.flatten(Pair(1, [2, 3])) == [1, 2, 3]
    assert nest.flatten(range(3)) == [0, 1, 2]
    assert nest.flatten({1: 1, 2: 2}.values()) == [1, 2]
    assert nest.flatten([]) == []
    assert nest.flatten([None, [None]]) == [None, None]


@pytest.mark.parametrize("leaf", [1, None, "abc", b"abc", {1, 2}, np.zeros(2), iter([])])
def test_leaves(leaf):
    assert not nest.is_nested(leaf)
    flat = nest.flatten(leaf)
    assert len(flat) == 1 and flat[0] is leaf


@pytest.mark.parametrize("structure", [[], (), {}, Point(1, 2), Pair(1, 2), range(3)])
def test_structures(structure):
    assert nest.is_nested(structure)


def test_keys_that_cannot_be_sorted():
    with pytest.raises(TypeError, match="int, str"):
        nest.flatten({1: 2, "a": 3})


def test_pack_keeps_types_and_key_order():
    assert nest.pack_sequence_as([1, (2, 3)], [4, 5, 6]) == [4, (5, 6)]
    assert nest.pack_sequence_as(Point(1, [2]), [1, 2]) == Point(1, [2])
    packed = nest.pack_sequence_as(OrderedDict([("b", 1), ("a", 2)]), [10, 20])
    assert list(packed.items()) == [("b", 20), ("a", 10)] and type(packed) is OrderedDict
    packed = nest.pack_sequence_as(defaultdict(list, b=1, a=2), [10, 20])
    assert packed == {"a": 10, "b": 20} and packed.default_factory is list
    assert type(nest.pack_sequence_as(OwnList([1]), [2])) is OwnList
    assert nest.pack_sequence_as(range(2), [10, 20]) == [10, 20]
    packed = nest.pack_sequence_as(Pair(1, [2]), [10, 20])
    assert (packed.a, packed.b) == (10, [20])
    assert nest.pack_sequence_as("leaf", [5]) == 5
    assert nest.pack_sequence_as({"a": ()}, []) == {"a": ()}


@pytest.mark.parametrize("flat", [[4, 5], [4, 5, 6, 7]])
def test_pack_counts(flat):
    with pytest.raises(ValueError, match=f"has 3 elements, but flat_sequence had {len(flat)}"):
        nest.pack_sequence_as([1, (2, 3)], flat)


@pytest.mark.parametrize("flat", [5, "ab", {"a": 1}, (x for x in [1])])
def test_pack_takes_sequences_only(flat):
    with pytest.raises(TypeError, match="must be a list or tuple"):
        nest.pack_sequence_as([1], flat)


def test_map_structure():
    assert nest.map_structure(lambda x: x + 1, [1, (2, {"a": 3})]) == [2, (3, {"a": 4})]
    assert nest.map_structure(lambda x, y: x + y, [1, (2,)], [10, (20,)]) == [11, (22,)]
    assert nest.map_structure(lambda x, y: x + y, [1], (10,), check_types=False) == [11]
    assert nest.map_structure(lambda x, y: x + y, 3, 4) == 7
    with pytest.raises(TypeError, match="callable"):
        nest.map_structure(1, [1])
    with pytest.raises(ValueError, match="at least one structure"):
        nest.map_structure(lambda: 1)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, 2),
        ([1], [2]),
        ([1], OwnList([1])),
        ({"a": 1}, OrderedDict(a=2)),
        (Point(1, 2), namedtuple("Point", "x y")(3, 4)),
        ("a", np.zeros(3)),
    ],
)
def test_same_structures(first, second):
    nest.assert_same_structure(first, second)


@pytest.mark.parametrize(
    ("first", "second", "error", "why"),
    [
        (1, [2], ValueError, "is a sequence, while 1 is not"),
        ([1, 2], [2], ValueError, "same number of elements"),
        ([1, [2]], [1, 2], ValueError, "is a sequence, while 2 is not"),
        ({"a": 1}, {"b": 1}, ValueError, "same set of keys"),
        ([1, 2], (1, 2), TypeError, "same sequence type"),
        (Point(1, 2), Other(1, 2), TypeError, "type Point, while"),
        (Point(1, 2), (1, 2), TypeError, "same sequence type"),
    ],
)
def test_different_structures(first, second, error, why):
    with pytest.raises(error, match="don't have the same nested structure") as caught:
        nest.assert_same_structure(first, second)
    assert why in str(caught.value)


def test_types_need_not_be_checked():
    nest.assert_same_structure([1, 2], (1, 2), check_types=False)
    nest.assert_same_structure(Point(1, 2), (1, 2), check_types=False)


def test_messages_stay_short():
    with pytest.raises(ValueError) as caught:
        nest.assert_same_structure([np.zeros((50, 50))], [list(range(1000))])
    assert len(str(caught.value).splitlines()) <= 4 and len(str(caught.value)) < 1000


def test_flatten_dict_items():
    assert nest.flatten_dict_items({(4, (5, 6)): ("a", ("b", "c")), 7: "d"}) == {
        4: "a",
        5: "b",
        6: "c",
        7: "d",
    }
    with pytest.raises(ValueError, match="key had 2 elements, but value had 1"):
        nest.flatten_dict_items({(1, 2): (3,)})
    with pytest.raises(ValueError, match="not unique: 1"):
        nest.flatten_dict_items({(1, 1): (3, 4)})
    with pytest.raises(TypeError, match="dictionary"):
        nest.flatten_dict_items([1])


def test_up_to_a_shallow_structure():
    assert nest.flatten_up_to([1, 1], [[1, 2], (3,)]) == [[1, 2], (3,)]
    assert nest.flatten_up_to(0, [[1, 2]]) == [[[1, 2]]]
    assert nest.flatten_up_to({"a": 1, "b": [1]}, {"b": [[5]], "a": (1, 2)}) == [(1, 2), [5]]
    assert nest.flatten_up_to([1, 1], (1, 2), check_types=False) == [1, 2]
    assert nest.map_structure_up_to([1, 1], sum, [[1, 2], [3]]) == [3, 3]
    assert nest.map_structure_up_to(1, len, [1, 2]) == 2
    with pytest.raises(ValueError, match="no sequences"):
        nest.map_structure_up_to([1], len)


@pytest.mark.parametrize(
    ("shallow", "deep", "error", "why"),
    [
        ([1, [1]], [[1, 2], 3], TypeError, "must also be a sequence"),
        ([1], [1, 2], ValueError, "same sequence length"),
        ([1, 1], (1, 2), TypeError, "same sequence type"),
        ({"a": 1}, {"b": 2}, ValueError, "not a subset"),
    ],
)
def test_shallow_structures_that_do_not_fit(shallow, deep, error, why):
    with pytest.raises(error, match=why):
        nest.assert_shallow_structure(shallow, deep)
    with pytest.raises(error, match=why):
        nest.flatten_up_to(shallow, deep)


def test_paths():
    structure = {"a": [1, 2], "b": Point(3, (4,))}
    paths = [("a", 0), ("a", 1), ("b", "x"), ("b", "y", 0)]
    assert list(nest.yield_flat_paths(structure)) == paths
    assert nest.flatten_with_tuple_paths(structure) == list(zip(paths, [1, 2, 3, 4], strict=True))
    assert nest.flatten_with_joined_string_paths(structure)[-1] == ("b/y/0", 4)


def test_public_names():
    tree = {"b": [1, (2,)], "a": 3}
    for names in (tf.nest, tf.contrib.framework.nest):
        assert names.flatten(tree) == [3, 1, 2]
        assert names.map_structure(lambda x: -x, tree) == {"b": [-1, (-2,)], "a": -3}
        assert names.pack_sequence_as(tree, [1, 2, 3]) == {"b": [2, (3,)], "a": 1}
        assert names.is_nested(tree) and not names.is_nested(1)
    assert tf.contrib.framework.nest.is_sequence(tree)
