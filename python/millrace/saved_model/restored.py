"""Objects and functions of a model that was loaded."""

import functools
import pprint
from typing import Any

from millrace.checkpoint.saveable import SaveableObject, SaveSpec
from millrace.core import dtypes
from millrace.core.tensor import Tensor
from millrace.core.text import as_str
from millrace.core.trackable import Trackable
from millrace.core.tracked_data import AutoTrackable, DictWrapper, ListWrapper, TupleWrapper
from millrace.eager.arguments import Signature
from millrace.eager.concrete import ConcreteFunction
from millrace.eager.function import Function
from millrace.eager.loaded import LoadedFunction
from millrace.graph.convert import convert_to_tensor
from millrace.saved_model.signature_functions import SignatureMap
from millrace.state.resource import TrackableResource

# A list has at most so many places without an object between those that have one.
_MOST_EMPTY_PLACES = 1 << 20
# Names that an object here has a meaning of its own for: a child of that name is no attribute.
_OWN_NAMES = frozenset({"_children", "_awaited", "__class__", "__dict__", "__weakref__"})


def user_object() -> Any:
    """An object of a class of its own, so that it can be made callable."""

    class _UserObject(AutoTrackable):
        pass

    return _UserObject()


def _call(instance: Any, *args: Any, **kwargs: Any) -> Any:
    return instance.__call__(*args, **kwargs)


def set_attribute(target: Any, name: str, child: Any) -> None:
    """Makes an object an attribute of another one. ValueError for a name that cannot be one."""
    if name in _OWN_NAMES or (hasattr(AutoTrackable, name) and name != "__call__"):
        target._track_trackable(child, name, overwrite=True)
        return
    try:
        setattr(target, name, child)
    except (AttributeError, TypeError) as error:
        raise ValueError(f"{name!r} cannot be an attribute: {error}") from None
    if name == "__call__":
        type(target).__call__ = _call


def set_element(target: ListWrapper, name: str, child: Any) -> None:
    """Makes an object an element of a list. ValueError for a place far behind the others."""
    place = _place(name, len(target))
    while len(target) <= place:
        target.append(None)
    target[place] = child


def tuple_of(pairs: list[tuple[str, Any]]) -> TupleWrapper:
    """A tuple of objects by the names of their places; other names are those of fields, which
    stand for elements that have a place, too. ValueError as `set_element`."""
    elements: list[Any] = []
    for name, value in pairs:
        if name.isdigit():
            place = _place(name, len(elements))
            elements += [None] * (place + 1 - len(elements))
            elements[place] = value
    return TupleWrapper(elements)


def _place(name: str, count: int) -> int:
    if not (name.isascii() and name.isdigit() and len(name) < 19):
        raise ValueError(f"expected the place of an element as a name, found {name!r}")
    place = int(name)
    if place > count + _MOST_EMPTY_PLACES:
        raise ValueError(f"element {place} is too far behind the others, which are {count}")
    return place


def set_key(target: DictWrapper, name: str, child: Any) -> None:
    """Makes an object the value of a key."""
    target[name] = child


def set_signature(target: SignatureMap, name: str, child: Any) -> None:
    """Makes a function the signature of a name. ValueError for what is no function."""
    if not isinstance(child, ConcreteFunction):
        raise ValueError(f"expected a function as the signature {name!r}, found {child!r:.200}")
    target._functions[name] = child


class RestoredResource(TrackableResource):
    """A resource whose functions a model has."""

    def __init__(self, device: str):
        super().__init__(device)
        # (what gives the tensors to save, what takes them), by attribute in checkpoints.
        self.saveable_functions: dict[str, tuple[LoadedFunction, LoadedFunction]] = {}

    def _call(self, name: str) -> Any:
        known = self._trackable_children("savedmodel").get(name)
        return known() if known is not None and known._is_function else None

    def _create_resource(self) -> Any:
        made = self._call("_create_resource")
        if not isinstance(made, Tensor) or made.dtype != dtypes.resource:
            raise ValueError(f"expected a resource, made {made!r:.200}")
        return made

    def _initialize(self) -> Any:
        return self._call("_initialize")

    def _destroy_resource(self) -> Any:
        super()._destroy_resource()
        self._call("_destroy_resource")

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        return Trackable._trackable_children(self, save_type, **kwargs)

    def _gather_saveables_for_checkpoint(self) -> dict[str, Any]:
        return {
            name: functools.partial(_RestoredSaveable, self, *functions)
            for name, functions in self.saveable_functions.items()
        }


class _RestoredSaveable(SaveableObject):
    """What a resource has in checkpoints, by functions of its model."""

    def __init__(self, op: Any, save: LoadedFunction, restore: LoadedFunction, name: str):
        self._restore = restore
        specs = [
            SaveSpec(part["tensor"], as_str(part["slice_spec"].numpy()),
                     as_str(part["name"].numpy()))
            for part in save(convert_to_tensor(name))
        ]  # fmt: skip
        super().__init__(op, specs, name)

    def restore(self, restored_tensors: list[Any], restored_shapes: Any) -> Any:
        return self._restore(*restored_tensors)


def set_resource_child(target: RestoredResource, name: str, child: Any) -> None:
    """Makes an object, or a function of what the resource does, a child."""
    target._track_trackable(child, name, overwrite=True)


class RestoredFunction(Function):
    """A `tf.function` of a model: calls are answered by what was traced before it was saved."""

    def __init__(self, signature: Signature, overloads: list[LoadedFunction]):
        super().__init__(self._restored_call, None, False, lambda code: code)
        self._bound_signature = signature
        self._name = signature.name
        self._overloads = overloads

    def _restored_call(self, *args: Any, **kwargs: Any) -> Any:
        known, tensors = self._find(args, kwargs)
        return known.run(tensors)

    def _call_in_graph(self, args: Any, kwargs: Any) -> Any:
        return self._restored_call(*args, **kwargs)

    @property
    def concrete_functions(self) -> list[LoadedFunction]:
        """What was traced."""
        return self._overloads

    def _list_all_concrete_functions(self) -> list[ConcreteFunction]:
        return list(self._overloads)

    def _list_all_concrete_functions_for_serialization(self) -> list[ConcreteFunction]:
        return list(self._overloads)

    def _find(self, args: Any, kwargs: Any) -> tuple[ConcreteFunction, list[Any]]:
        signature = self._signature
        if not self._overloads:
            raise ValueError("Found zero restored functions for caller function.")
        bind = signature.bind if signature.specs is None else signature.specified
        args, kwargs = bind(args, kwargs)
        for convert in (False, True):
            for known in self._overloads:
                tensors = known.matching(args, kwargs, convert)
                if tensors is not None:
                    return known, tensors
        raise ValueError(self._mismatch(args, kwargs))

    def _mismatch(self, args: Any, kwargs: Any) -> str:
        options = [
            f"Option {i + 1}:\n  {_shown(*known.structured_input_signature)}"
            for i, known in enumerate(self._overloads)
        ]
        return (
            f"Could not find matching function to call loaded from the SavedModel: {self._name}. "
            f"Got:\n  {_shown(args, kwargs)}\n\n Expected these arguments to match one of the "
            f"following {len(options)} option(s):\n\n" + "\n\n".join(options)
        )


def _shown(args: Any, kwargs: Any) -> str:
    parts = "".join(f"\n    * {pprint.pformat(arg)}" for arg in args)
    return f"Positional arguments ({len(args)} total):{parts}\n  Keyword arguments: {kwargs}"
