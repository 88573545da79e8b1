"""Objects that depend on each other by name: what checkpoints and SavedModels walk.

An object's children are named by how it refers to them. A checkpoint has the same graph of names,
so values find their objects by the path from the root. Those that are not there yet, variables that
are made at a first call for instance, get their values when they are attached (`Position`).
"""

from typing import Any, Iterator

# The attribute under which a variable's value stands.
VARIABLE_VALUE = "VARIABLE_VALUE"


class Position:
    """A node of a checkpoint that waits for its object. Made by what restores."""

    def bind(self, target: "Trackable") -> None:
        """Gives the object its values, and its children theirs."""
        raise NotImplementedError

    def value(self) -> Any:
        """The one tensor there, what a variable can begin with; None where it has another number
        of them."""
        raise NotImplementedError


class Trackable:
    """An object with children that have names, and perhaps values to save.

    Subclasses override `_trackable_children` where children are not attached by
    `_track_trackable`, `_serialize_to_tensors` and `_restore_from_tensors` where they have values
    themselves. The names are TensorFlow's, for programs that do so.
    """

    # Made when first needed, since programs forget to call __init__: children by name, positions
    # that wait for a child of a name.
    _children: dict[str, Any]
    _awaited: dict[str, list[Position]]
    # The number of the restoration that gave the values it has; later ones have larger numbers.
    _update_uid = -1
    # The attribute that all values of the object belong to, whose names are put behind its own;
    # None: each value is an attribute.
    _attribute_name: str | None = None
    _setattr_tracking = True
    # What a SavedModel calls an object of this kind.
    _object_identifier = "_generic_user_object"
    # Whether it is a function, which SavedModels have as one.
    _is_function = False

    def _own(self, name: str) -> dict[str, Any]:
        own = self.__dict__
        found = own.get(name)
        if found is None:
            found = own[name] = {}
        return found

    def _track_trackable(self, trackable: Any, name: str, overwrite: bool = False) -> Any:
        """Makes an object a child of this one. ValueError for a name that another child has."""
        if not isinstance(trackable, Trackable):
            raise TypeError(
                "Trackable._track_trackable() can only be used to track objects of type Trackable. "
                f"Got type {type(trackable).__name__}."
            )
        children = self._own("_children")
        known = children.get(name)
        if known is not None and known is not trackable and not overwrite:
            raise ValueError(
                f"Called Trackable._track_trackable() with name='{name}', but a Trackable with "
                "this name is already declared as a dependency. Names must be unique (or "
                "overwrite=True)."
            )
        children[name] = trackable
        self._handle_deferred_dependencies(name, trackable)
        return trackable

    def _handle_deferred_dependencies(self, name: str, trackable: Any) -> None:
        """Gives a new child the values that wait for it."""
        awaited = self.__dict__.get("_awaited")
        if awaited:
            for position in awaited.pop(name, ()):
                position.bind(trackable)

    def _lookup_dependency(self, name: str, cached_dependencies: Any = None) -> Any:
        """The child of that name, or None."""
        if cached_dependencies is not None:
            return cached_dependencies.get(name)
        return self._trackable_children().get(name)

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        """The children by name: what a checkpoint has, or with the `save_type` "savedmodel" also
        functions and what else a SavedModel has."""
        del save_type, kwargs
        return dict(self.__dict__.get("_children", ()))

    def _serialize_to_tensors(self) -> dict[str, Any]:
        """The object's own values by name."""
        raise NotImplementedError

    def _restore_from_tensors(self, restored_tensors: dict[str, Any]) -> Any:
        """Takes values as `_serialize_to_tensors` gives them."""
        raise NotImplementedError

    def _gather_saveables_for_checkpoint(self) -> dict[str, Any]:
        """SaveableObjects, or functions that make them, by name: the older way to have values."""
        return {}

    def _saves_tensors(self) -> bool:
        """Whether it has values that `_serialize_to_tensors` gives."""
        return type(self)._serialize_to_tensors is not Trackable._serialize_to_tensors

    def _saved_names(self) -> list[str]:
        """The names of the values that `_serialize_to_tensors` gives."""
        return list(self._serialize_to_tensors())

    def _slots_to_save(self) -> list[tuple[Any, str, Any]]:
        """[(variable, name, slot)]: variables that it keeps beside others."""
        return []

    def _restore_slot(self, variable: Any, slot_name: str, position: Position) -> None:
        """Makes a position the value of the slot of a variable, now or when there is one."""

    def _maybe_initialize_trackable(self) -> None:
        """Nothing: what is needed is made when it is first used."""

    @property
    def _checkpoint_dependencies(self) -> list[Any]:
        return [TrackableReference(n, c) for n, c in self._trackable_children().items()]


class TrackableReference:
    """A child and its name."""

    __slots__ = ("name", "ref")

    def __init__(self, name: str, ref: Any):
        self.name, self.ref = name, ref

    def __iter__(self) -> Iterator[Any]:
        return iter((self.name, self.ref))


def objects_below(root: Any, extra: dict[str, Any] | None = None) -> list[Any]:
    """The object and all below it, nearest first, each once. `extra`: more children of the root."""
    found = [root]
    seen = {id(root)}
    for at in found:
        children = at._trackable_children()
        if at is root and extra:
            children.update(extra)
        for child in children.values():
            if id(child) not in seen:
                seen.add(id(child))
                found.append(child)
    return found
