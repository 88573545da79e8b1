"""Lists, tuples and dictionaries as attributes of tracked objects: their elements are children.

They are lists, tuples and dictionaries; what is put into them later is tracked too.
"""

import collections
from typing import Any, Iterable

from millrace.core.export import export
from millrace.core.nest import is_namedtuple
from millrace.core.trackable import Trackable


class TrackedData(Trackable):
    """What the three have in common: elements that are objects, each under a name."""

    _untracked = ""  # why elements cannot be named, for an error when it is saved

    def _named(self) -> Iterable[tuple[Any, Any]]:
        """The elements with their names."""
        raise NotImplementedError

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        del save_type, kwargs
        if self._untracked:
            raise ValueError(f"Unable to save the object {self!r}: {self._untracked}")
        return {str(name): value for name, value in self._named() if isinstance(value, Trackable)}

    def _wrapped(self, name: Any, value: Any) -> Any:
        """An element as it is kept, with the values that wait for it."""
        value = wrap(value)
        if isinstance(value, Trackable):
            self._handle_deferred_dependencies(str(name), value)
        return value

    # What layers have, for those who ask lists of them.

    @property
    def trainable(self) -> bool:
        """Whether variables among the elements are trained."""
        return self.__dict__.get("_trainable", True)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self.__dict__["_trainable"] = value

    @property
    def _layers(self) -> list[Any]:
        return [value for _, value in self._named() if isinstance(value, Trackable)]

    def __hash__(self) -> int:
        return id(self)

    def __copy__(self) -> Any:
        return type(self)(self)

    def __deepcopy__(self, memo: Any) -> Any:
        import copy  # late: seldom

        made = type(self)(copy.deepcopy(self._plain(), memo))
        memo[id(self)] = made
        return made

    def __reduce__(self) -> Any:
        return type(self), (self._plain(),)

    def _plain(self) -> Any:
        """The list, tuple or dictionary itself."""
        raise NotImplementedError


_REORDERED = (
    "a list whose elements were removed, replaced or moved cannot be saved: the places by which "
    "elements are saved have changed. Make a new list, or keep this one out of what is tracked."
)


class ListWrapper(TrackedData, list):  # type: ignore[type-arg]
    """A list that is tracked: elements by their places."""

    _object_identifier = "trackable_list_wrapper"

    def __init__(self, wrapped_list: Iterable[Any] = ()):
        list.__init__(self)
        for value in wrapped_list:
            list.append(self, self._wrapped(len(self), value))

    def _named(self) -> Iterable[tuple[Any, Any]]:
        return enumerate(self)

    def _plain(self) -> Any:
        return list(self)

    def append(self, value: Any) -> None:
        list.append(self, None)
        self._put(len(self) - 1, value)

    def _put(self, at: int, value: Any) -> None:
        list.__setitem__(self, at, value)
        list.__setitem__(self, at, self._wrapped(at, value))

    def extend(self, values: Iterable[Any]) -> None:
        for value in values:
            self.append(value)

    def __iadd__(self, values: Iterable[Any]) -> "ListWrapper":  # type: ignore[override, misc]
        self.extend(values)
        return self

    def __add__(self, other: Any) -> Any:
        return type(self)(list.__add__(self, list(other)))

    def __radd__(self, other: Any) -> Any:
        return type(self)([*other, *self])

    def __mul__(self, n: Any) -> Any:
        return type(self)(list.__mul__(self, n))

    __rmul__ = __mul__

    def __imul__(self, n: Any) -> "ListWrapper":  # type: ignore[override, misc]
        if n <= 0:
            self.clear()
            return self
        self.extend(list(self) * (n - 1))
        return self

    def copy(self) -> "ListWrapper":
        return type(self)(self)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, slice):
            self._changed([*self._plain()], lambda: list.__setitem__(self, key, map(wrap, value)))
            return
        self._moved(isinstance(self[key], Trackable))
        self._put(range(len(self))[key], value)

    def _moved(self, tracked: bool) -> None:
        if tracked:
            self._untracked = _REORDERED

    def _changed(self, before: list[Any], change: Any) -> Any:
        """Does what moves elements; names are lost where objects were among them."""
        result = change()
        same = len(before) <= len(self) and all(a is b for a, b in zip(before, self, strict=False))
        self._moved(not same and any(isinstance(value, Trackable) for value in before))
        return result

    def __delitem__(self, key: Any) -> None:
        self._changed([*self._plain()], lambda: list.__delitem__(self, key))

    def insert(self, index: Any, value: Any) -> None:
        self._changed([*self._plain()], lambda: list.insert(self, index, wrap(value)))

    def pop(self, index: Any = -1) -> Any:
        return self._changed([*self._plain()], lambda: list.pop(self, index))

    def remove(self, value: Any) -> None:
        self._changed([*self._plain()], lambda: list.remove(self, value))

    def clear(self) -> None:
        self._changed([*self._plain()], lambda: list.clear(self))

    def reverse(self) -> None:
        self._changed([*self._plain()], lambda: list.reverse(self))

    def sort(self, *, key: Any = None, reverse: bool = False) -> None:
        self._changed([*self._plain()], lambda: list.sort(self, key=key, reverse=reverse))

    def __repr__(self) -> str:
        return f"ListWrapper({list.__repr__(self)})"


class DictWrapper(TrackedData, dict):  # type: ignore[type-arg]
    """A dictionary that is tracked: elements by their keys, which must be texts."""

    _object_identifier = "trackable_dict_wrapper"

    def __init__(self, wrapped_dict: Any = (), **more: Any):
        dict.__init__(self)
        self.update(wrapped_dict, **more)

    def _named(self) -> Iterable[tuple[Any, Any]]:
        return list(self.items())

    def _plain(self) -> Any:
        return dict(self)

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        for key, value in self.items():
            if isinstance(value, Trackable) and not isinstance(key, str):
                raise ValueError(
                    f"Unable to save the object {self!r} (a dictionary wrapper constructed "
                    "automatically on attribute assignment). The wrapped dictionary contains a "
                    f"non-string key which maps to a trackable object or mutable data structure: "
                    f"{key!r}. Use texts as keys, or keep the dictionary out of what is tracked."
                )
        return super()._trackable_children(save_type, **kwargs)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setitem__(key, self._wrapped(key, value))

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *others: Any, **more: Any) -> None:
        for key, value in dict(*others, **more).items():
            self[key] = value

    def __ior__(self, other: Any) -> "DictWrapper":  # type: ignore[override, misc]
        self.update(other)
        return self

    def copy(self) -> "DictWrapper":
        return type(self)(self)

    def __repr__(self) -> str:
        return f"DictWrapper({dict.__repr__(self)})"


class OrderedDictWrapper(DictWrapper, collections.OrderedDict):  # type: ignore[type-arg]
    """As DictWrapper, of an OrderedDict."""

    def __init__(self, wrapped_dict: Any = (), **more: Any):
        collections.OrderedDict.__init__(self)
        DictWrapper.update(self, wrapped_dict, **more)

    def _plain(self) -> Any:
        return collections.OrderedDict(self)


class DefaultDictWrapper(DictWrapper, collections.defaultdict):  # type: ignore[type-arg]
    """As DictWrapper, of a defaultdict."""

    def __init__(self, wrapped_dict: Any = ()):
        factory = getattr(wrapped_dict, "default_factory", None)
        collections.defaultdict.__init__(self, factory)
        DictWrapper.update(self, wrapped_dict)

    def _plain(self) -> Any:
        return collections.defaultdict(self.default_factory, self)

    def __missing__(self, key: Any) -> Any:
        if self.default_factory is None:
            raise KeyError(key)
        self[key] = self.default_factory()
        return self[key]


class TupleWrapper(TrackedData, tuple):  # type: ignore[type-arg]
    """A tuple that is tracked: elements by their places."""

    _object_identifier = "trackable_tuple_wrapper"

    def __new__(cls, wrapped_tuple: Iterable[Any] = ()) -> "TupleWrapper":
        return tuple.__new__(cls, [wrap(value) for value in wrapped_tuple])

    def _named(self) -> Iterable[tuple[Any, Any]]:
        return enumerate(self)

    def _plain(self) -> Any:
        return tuple(self)

    __hash__ = tuple.__hash__


_named_tuples: dict[type, type] = {}


def _named_tuple(value: Any) -> Any:
    """A named tuple that is tracked, of a class below its own: elements by place and by field."""
    cls = type(value)
    made = _named_tuples.get(cls)
    if made is None:

        def named(self: Any) -> Iterable[tuple[Any, Any]]:
            return [*zip(cls._fields, self, strict=True), *enumerate(self)]

        def new(kind: Any, *args: Any, **kwargs: Any) -> Any:
            return cls.__new__(kind, *args, **kwargs)

        body = {
            "_named": named, "__new__": new, "_plain": lambda self: cls(*self),
            "_object_identifier": TupleWrapper._object_identifier,
            "__hash__": tuple.__hash__, "__reduce__": lambda self: (cls, tuple(self)),
            "__copy__": lambda self: type(self)(*self),
            "__deepcopy__": lambda self, memo: type(self)(*_deep_copies(self, memo)),
        }  # fmt: skip
        made = _named_tuples[cls] = type(cls.__name__, (cls, TrackedData), body)
    return made(*[wrap(element) for element in value])


def _deep_copies(values: Any, memo: Any) -> Any:
    import copy  # late: seldom

    return [copy.deepcopy(value, memo) for value in values]


class NoDependency:
    """Wraps a value that an attribute is to hold without tracking it."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value


_WRAPPERS: dict[type, Any] = {
    list: ListWrapper,
    dict: DictWrapper,
    collections.OrderedDict: OrderedDictWrapper,
    collections.defaultdict: DefaultDictWrapper,
    tuple: TupleWrapper,
}


def wrap(value: Any) -> Any:
    """The value as a tracked object keeps it: lists, dictionaries and tuples that hold objects as
    wrappers, everything else as it is."""
    cls = type(value)
    if cls is NoDependency:
        return value.value
    wrapper = _WRAPPERS.get(cls)
    if cls is tuple or (wrapper is None and is_namedtuple(value)):
        if isinstance(value, Trackable) or not any(_tracks(element) for element in value):
            return value  # tuples do not change: nothing to track will come
        return TupleWrapper(value) if cls is tuple else _named_tuple(value)
    return value if wrapper is None else wrapper(value)


def _tracks(value: Any) -> bool:
    if isinstance(value, (Trackable, list, dict)):
        return True
    return isinstance(value, tuple) and any(_tracks(element) for element in value)


class AutoTrackable(Trackable):
    """An object whose attributes are its children."""

    def __setattr__(self, name: str, value: Any) -> None:
        if self._setattr_tracking and not isinstance(value, property):
            value = self._tracked_attribute(name, value)
        super().__setattr__(name, value)

    def _tracked_attribute(self, name: str, value: Any) -> Any:
        """What the attribute is to hold; it is a child from now on if it can be one."""
        if isinstance(value, NoDependency):
            self._forget(name)
            return value.value
        value = wrap(value)
        if isinstance(value, Trackable):
            self._track_trackable(value, name, overwrite=True)
        else:
            self._forget(name)
        return value

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        if save_type != "savedmodel":
            return super()._trackable_children(save_type, **kwargs)
        functions = self._functions()
        # Tracing makes variables, so the other children come afterwards.
        for function in functions.values():
            function._trackable_children(save_type)
        children = super()._trackable_children(save_type, **kwargs)
        children = {name: child for name, child in children.items() if not child._is_function}
        for name in functions:
            if name in children:
                raise ValueError(
                    f"Can't save object because it has multiple children with the same name. "
                    f"Object: {self!r}, attribute name: {name}, child 1: {children[name]!r}, child "
                    f"2: {functions[name]!r}"
                )
        return {**children, **functions}

    def _functions(self) -> dict[str, Any]:
        """The functions among its attributes and methods. Each is asked for once: a property may
        make another one every time."""
        found = {}
        for name in dir(self):
            try:
                value = getattr(self, name, None)
            except Exception:  # of an attribute that has nothing to do with functions
                continue
            if isinstance(value, Trackable) and value._is_function:
                found[name] = value
        return found

    def _forget(self, name: str) -> None:
        children = self.__dict__.get("_children")
        if children:
            children.pop(name, None)

    def __delattr__(self, name: str) -> None:
        self._forget(name)
        super().__delattr__(name)


@export(v1="contrib.checkpoint.List")
class List(ListWrapper):
    """A list whose elements are tracked."""

    def __init__(self, *args: Any):
        super().__init__(args)


@export(v1="contrib.checkpoint.Mapping")
class Mapping(DictWrapper):
    """A dictionary whose elements are tracked."""
