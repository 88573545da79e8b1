"""Nested structures of values: what feeds, fetches and loop variables are made of.

Lists, tuples, named tuples, mappings and attrs classes are structures, to any depth. Everything
else is a leaf: tensors, arrays, strings and sets too. Mappings are walked in the order of their
sorted keys, whatever their own order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import (
    Callable,
    Iterator,
    Mapping,
    MappingView,
    MutableMapping,
    Sequence,
)
from typing import Any

from millrace.core.export import export

_LEAF, _SEQUENCE, _MAPPING, _ATTRS = range(4)

# What the values of a class are. Looked up for every element of every structure, so that the
# slow questions are asked once for a class; emptied before it grows out of bounds.
_kinds: dict[type, int] = {}
_MOST_KINDS = 4096


def _find_kind(cls: type) -> int:
    if issubclass(cls, (str, bytes, bytearray, memoryview)):
        kind = _LEAF
    elif issubclass(cls, (Sequence, MappingView)):
        kind = _SEQUENCE
    elif issubclass(cls, Mapping):
        kind = _MAPPING
    elif hasattr(cls, "__attrs_attrs__"):
        kind = _ATTRS
    else:
        kind = _LEAF
    if len(_kinds) >= _MOST_KINDS:
        _kinds.clear()
    _kinds[cls] = kind
    return kind


def _kind(value: Any) -> int:
    cls = value.__class__
    kind = _kinds.get(cls)
    return _find_kind(cls) if kind is None else kind


def _show(value: Any) -> str:
    """`value` for a message: on one line, and not long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else text[:197] + "..."


def _sorted_keys(mapping: Any) -> list[Any]:
    try:
        return sorted(mapping)
    except TypeError:
        raise TypeError(
            "the keys of a nested dictionary must be sortable, got "
            f"{', '.join(sorted({type(k).__name__ for k in mapping}))} in {_show(list(mapping))}"
        ) from None


def _attrs_names(value: Any) -> list[str]:
    return [attribute.name for attribute in type(value).__attrs_attrs__]


def items_of(value: Any) -> list[tuple[Any, Any]]:
    """The elements of a structure that is no leaf, each with its key, index or field name."""
    kind = _kind(value)
    if kind == _MAPPING:
        return [(key, value[key]) for key in _sorted_keys(value)]
    if kind == _ATTRS:
        return [(name, getattr(value, name)) for name in _attrs_names(value)]
    if is_namedtuple(value):
        return list(zip(value._fields, value, strict=True))
    return list(enumerate(value))


def _elements(value: Any) -> Any:
    """The elements of a structure that is no leaf, in the order in which they are walked."""
    kind = _kind(value)
    if kind == _SEQUENCE:
        return value
    return [element for _, element in items_of(value)]


def _like(instance: Any, elements: list[Any]) -> Any:
    """A structure of the type of `instance` that holds `elements`, given in walking order."""
    cls = instance.__class__
    if cls is list:
        return elements
    if cls is tuple:
        return tuple(elements)
    kind = _kind(instance)
    if kind == _MAPPING:
        by_key = dict(zip(_sorted_keys(instance), elements, strict=True))
        if not isinstance(instance, MutableMapping):
            return cls((key, by_key[key]) for key in instance)
        made = defaultdict(instance.default_factory) if cls is defaultdict else cls()
        for key in instance:
            made[key] = by_key[key]
        return made
    if kind == _ATTRS or is_namedtuple(instance):
        return cls(*elements)
    if isinstance(instance, (range, MappingView)):
        return elements
    return cls(elements)


def is_collection(value: Any) -> bool:
    """Whether a value is any number of things, a list, a set, a generator, rather than one thing:
    a text, an array or something that stands for a tensor."""
    if isinstance(value, (list, tuple)):
        return True
    one = isinstance(value, (str, bytes)) or hasattr(value, "dtype")
    return not one and hasattr(type(value), "__iter__") and not hasattr(value, "_as_graph_element")


def is_namedtuple(value: Any) -> bool:
    """Whether `value` is an instance of a named tuple class."""
    return isinstance(value, tuple) and isinstance(getattr(value, "_fields", None), tuple)


@export(
    v1=("nest.is_nested", "contrib.framework.nest.is_sequence", "contrib.framework.nest.is_nested"),
    v2="nest.is_nested",
)
def is_nested(seq: Any) -> bool:
    """Whether `seq` is a structure: a list, tuple, mapping, attrs object..., and no leaf."""
    return _kind(seq) != _LEAF


is_sequence = is_nested


def _append_leaves(structure: Any, leaves: list[Any]) -> None:
    for element in _elements(structure):
        cls = element.__class__
        kind = _kinds.get(cls)
        if kind is None:
            kind = _find_kind(cls)
        if kind == _LEAF:
            leaves.append(element)
        else:
            _append_leaves(element, leaves)


@export(v1=("nest.flatten", "contrib.framework.nest.flatten"), v2="nest.flatten")
def flatten(structure: Any, expand_composites: bool = False) -> list[Any]:
    """The leaves of `structure` as a list; of a leaf, a list of itself.

    `expand_composites`: of sparse tensors and other values made of tensors, these.
    """
    if expand_composites:
        return [part for leaf in flatten(structure) for part in _parts(leaf)]
    if _kind(structure) == _LEAF:
        return [structure]
    leaves: list[Any] = []
    _append_leaves(structure, leaves)
    return leaves


def _parts(leaf: Any) -> list[Any]:
    """The tensors that a leaf is made of, where it is; else the leaf."""
    return leaf._parts() if _is_composite(leaf) else [leaf]


def _is_composite(leaf: Any) -> bool:
    return hasattr(type(leaf), "_from_parts")


def _pack(structure: Any, leaves: Iterator[Any]) -> Any:
    return _like(
        structure,
        [
            next(leaves) if _kind(element) == _LEAF else _pack(element, leaves)
            for element in _elements(structure)
        ],
    )


@export(
    v1=("nest.pack_sequence_as", "contrib.framework.nest.pack_sequence_as"),
    v2="nest.pack_sequence_as",
)
def pack_sequence_as(structure: Any, flat_sequence: Any, expand_composites: bool = False) -> Any:
    """The structure of `structure` with the values of `flat_sequence` as its leaves.

    `expand_composites`: they are leaves that `flatten` gives with it. Raises TypeError where
    `flat_sequence` is no sequence, and ValueError where it has not as many values as `structure`
    has leaves.
    """
    if _kind(flat_sequence) != _SEQUENCE:
        raise TypeError(
            "the values to pack into a structure must be a list or tuple, got "
            f"{_show(flat_sequence)} of type {type(flat_sequence).__name__}"
        )
    count = len(flatten(structure, expand_composites))
    if count != len(flat_sequence):
        raise ValueError(
            f"Could not pack sequence: the structure has {count} elements, but flat_sequence "
            f"had {len(flat_sequence)} elements. Structure: {_show(structure)}, flat_sequence: "
            f"{_show(flat_sequence)}."
        )
    if expand_composites:
        given, whole = iter(flat_sequence), []
        for leaf in flatten(structure):
            parts = [next(given) for _ in _parts(leaf)]
            whole.append(leaf._from_parts(parts) if _is_composite(leaf) else parts[0])
        flat_sequence = whole
    if _kind(structure) == _LEAF:
        return flat_sequence[0]
    return _pack(structure, iter(flat_sequence))


def _differ(first: Any, second: Any, why: str, error: type[Exception]) -> Exception:
    return error(
        "The two structures don't have the same nested structure.\n"
        f"First structure: {_show(first)}\nSecond structure: {_show(second)}\n{why}"
    )


def _same_type(first: Any, second: Any) -> bool:
    """Whether two structures count as of one type: a list is like any other list."""
    if first.__class__ is second.__class__:
        return True
    if _kind(first) == _MAPPING or _kind(second) == _MAPPING:
        return _kind(first) == _kind(second)
    if is_namedtuple(first) and is_namedtuple(second):
        return type(first).__name__ == type(second).__name__ and first._fields == second._fields
    return isinstance(first, list) and isinstance(second, list)


def _mismatch(first: Any, second: Any, check_types: bool) -> tuple[str, type[Exception]] | None:
    """Where two structures differ, and the exception for it; None where they are alike."""
    nested = _kind(first) != _LEAF
    if nested != (_kind(second) != _LEAF):
        inner, leaf = (first, second) if nested else (second, first)
        return f"{_show(inner)} is a sequence, while {_show(leaf)} is not", ValueError
    if not nested:
        return None
    if check_types and not _same_type(first, second):
        return (
            f"They don't have the same sequence type: {_show(first)} is of type "
            f"{type(first).__name__}, while {_show(second)} is of type {type(second).__name__}",
            TypeError,
        )
    if _kind(first) == _MAPPING and _kind(second) == _MAPPING and set(first) != set(second):
        return (
            "The two dictionaries don't have the same set of keys: "
            f"{_show(list(first))} and {_show(list(second))}",
            ValueError,
        )
    mine, theirs = list(_elements(first)), list(_elements(second))
    if len(mine) != len(theirs):
        return (
            f"The two structures don't have the same number of elements: {_show(first)} has "
            f"{len(mine)}, {_show(second)} has {len(theirs)}",
            ValueError,
        )
    for a, b in zip(mine, theirs, strict=True):
        found = _mismatch(a, b, check_types)
        if found is not None:
            return found
    return None


@export(
    v1=("nest.assert_same_structure", "contrib.framework.nest.assert_same_structure"),
    v2="nest.assert_same_structure",
)
def assert_same_structure(
    nest1: Any, nest2: Any, check_types: bool = True, expand_composites: bool = False
) -> None:
    """Raises unless both structures have the same form; their leaves may differ.

    Raises ValueError where nesting, lengths or keys differ. Raises TypeError where the types of
    corresponding structures differ, unless `check_types` is False. `expand_composites`: values made
    of tensors are structures too.
    """
    found = _mismatch(nest1, nest2, check_types)
    if found is None and expand_composites:
        for a, b in zip(flatten(nest1), flatten(nest2), strict=True):
            composite = _is_composite(a) or _is_composite(b)
            if composite and (type(a) is not type(b) or len(_parts(a)) != len(_parts(b))):
                found = f"{_show(a)} is made of other parts than {_show(b)}", TypeError
                break
    if found is not None:
        raise _differ(nest1, nest2, *found)


def _check_callable(func: Any) -> None:
    if not callable(func):
        raise TypeError(f"func must be callable, got: {_show(func)}")


@export(v1=("nest.map_structure", "contrib.framework.nest.map_structure"), v2="nest.map_structure")
def map_structure(
    func: Callable[..., Any], *structure: Any, check_types: bool = True,
    expand_composites: bool = False,
) -> Any:  # fmt: skip
    """The structure of what `func` makes of each leaf, or of corresponding leaves of several.

    All structures must have the form of the first (see `assert_same_structure`).
    `expand_composites`: of values made of tensors, each of these is a leaf.
    """
    _check_callable(func)
    if not structure:
        raise ValueError("Must provide at least one structure")
    first = structure[0]
    for other in structure[1:]:
        assert_same_structure(first, other, check_types, expand_composites)
    if expand_composites:
        flat = [flatten(one, True) for one in structure]
        leaves = [func(*parts) for parts in zip(*flat, strict=True)]
        return pack_sequence_as(first, leaves, True)
    made = [func(*leaves) for leaves in zip(*map(flatten, structure), strict=True)]
    return made[0] if _kind(first) == _LEAF else _pack(first, iter(made))


@export(v1="contrib.framework.nest.flatten_dict_items")
def flatten_dict_items(dictionary: Any) -> dict[Any, Any]:
    """A flat dictionary of one whose keys may be structures, each with a value of its form.

    `{(4, (5, 6)): (1, (2, 3))}` gives `{4: 1, 5: 2, 6: 3}`. Raises TypeError where `dictionary`
    is no mapping, ValueError where a value has not the form of its key or a key comes twice.
    """
    if not isinstance(dictionary, Mapping):
        raise TypeError(
            f"expected a dictionary, got {_show(dictionary)} of type {type(dictionary).__name__}"
        )
    flat: dict[Any, Any] = {}
    for key, value in dictionary.items():
        keys, values = [key], [value]
        if is_nested(key):
            keys, values = flatten(key), flatten(value)
            if len(keys) != len(values):
                raise ValueError(
                    f"Could not flatten dictionary: key had {len(keys)} elements, but value "
                    f"had {len(values)} elements. Key: {_show(keys)}, value: {_show(values)}."
                )
        for flat_key, flat_value in zip(keys, values, strict=True):
            if flat_key in flat:
                raise ValueError(
                    f"Cannot flatten dict because this key is not unique: {_show(flat_key)}"
                )
            flat[flat_key] = flat_value
    return flat


@export(v1="contrib.framework.nest.assert_shallow_structure")
def assert_shallow_structure(shallow_tree: Any, input_tree: Any, check_types: bool = True) -> None:
    """Raises unless `input_tree` has the form of `shallow_tree` as deep as that goes.

    Raises TypeError where types differ (unless `check_types` is False) or where `input_tree` has
    a leaf too early, ValueError where lengths or keys differ.
    """
    if _kind(shallow_tree) == _LEAF:
        return
    if _kind(input_tree) == _LEAF:
        raise TypeError(
            "If shallow structure is a sequence, input must also be a sequence. "
            f"Input has type: {type(input_tree).__name__}, {_show(input_tree)}."
        )
    if check_types and not _same_type(shallow_tree, input_tree):
        raise TypeError(
            "The two structures don't have the same sequence type. Input structure has type "
            f"{type(input_tree).__name__}, while shallow structure has type "
            f"{type(shallow_tree).__name__}."
        )
    shallow, deep = items_of(shallow_tree), items_of(input_tree)
    if len(shallow) != len(deep):
        raise ValueError(
            "The two structures don't have the same sequence length. Input structure has length "
            f"{len(deep)}, while shallow structure has length {len(shallow)}."
        )
    if _kind(shallow_tree) == _MAPPING == _kind(input_tree):
        missing = [key for key, _ in shallow if key not in input_tree]
        if missing:
            raise ValueError(
                "The shallow_tree's keys are not a subset of the input_tree's keys. "
                f"Keys that are not in the input_tree: {_show(missing)}."
            )
    for (_, branch), (_, input_branch) in zip(shallow, deep, strict=True):
        assert_shallow_structure(branch, input_branch, check_types=check_types)


@export(v1="contrib.framework.nest.yield_flattened_up_to")
def yield_flattened_up_to(shallow_tree: Any, input_tree: Any) -> Iterator[Any]:
    """Yields the parts of `input_tree` that stand where `shallow_tree` has its leaves.

    The two are taken to fit; see `assert_shallow_structure`.
    """
    if _kind(shallow_tree) == _LEAF:
        yield input_tree
        return
    for branch, part in zip(_elements(shallow_tree), _elements(input_tree), strict=True):
        yield from yield_flattened_up_to(branch, part)


@export(v1="contrib.framework.nest.flatten_up_to")
def flatten_up_to(shallow_tree: Any, input_tree: Any, check_types: bool = True) -> list[Any]:
    """`flatten`, only as deep as `shallow_tree` goes; errors of `assert_shallow_structure`."""
    assert_shallow_structure(shallow_tree, input_tree, check_types=check_types)
    return list(yield_flattened_up_to(shallow_tree, input_tree))


@export(v1="contrib.framework.nest.map_structure_up_to")
def map_structure_up_to(
    shallow_tree: Any, func: Callable[..., Any], *inputs: Any, check_types: bool = True
) -> Any:
    """`map_structure`, only as deep as `shallow_tree` goes; the result has its form.

    Raises ValueError without inputs, and what `assert_shallow_structure` raises.
    """
    _check_callable(func)
    if not inputs:
        raise ValueError("Cannot map over no sequences")
    columns = [flatten_up_to(shallow_tree, tree, check_types=check_types) for tree in inputs]
    return pack_sequence_as(shallow_tree, [func(*parts) for parts in zip(*columns, strict=True)])


def flatten_with_tuple_paths(structure: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """The leaves of `structure`, each with the keys, indices and field names that lead to it."""
    if _kind(structure) == _LEAF:
        return [((), structure)]
    return [
        ((key, *path), leaf)
        for key, element in items_of(structure)
        for path, leaf in flatten_with_tuple_paths(element)
    ]


def yield_flat_paths(nest: Any) -> Iterator[tuple[Any, ...]]:
    """Yields the path of each leaf, as `flatten_with_tuple_paths` gives it."""
    for path, _ in flatten_with_tuple_paths(nest):
        yield path


def flatten_with_joined_string_paths(structure: Any, separator: str = "/") -> list[tuple[str, Any]]:
    """The leaves of `structure`, each with its path as one string."""
    return [
        (separator.join(map(str, path)), leaf) for path, leaf in flatten_with_tuple_paths(structure)
    ]
