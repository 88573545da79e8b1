"""How the members of a collection become messages, and members again, by the collection's name."""

from typing import Any, Callable, NamedTuple


class ProtoFunctions(NamedTuple):
    """What a collection's members become: messages of `proto_type`.

    `to_proto(member, export_scope=)` gives a message, or None for a member to leave out;
    `from_proto(message, import_scope=)` gives a member.
    """

    proto_type: Any
    to_proto: Callable[..., Any]
    from_proto: Callable[..., Any]


_functions: dict[str, ProtoFunctions] = {}


def register_proto_function(
    collection_name: str, proto_type: Any = None, to_proto: Any = None, from_proto: Any = None
) -> None:
    """Declares what the members of a collection become.

    TypeError for functions that cannot be called, KeyError for a collection that has them already.
    """
    for what, function in (("to_proto", to_proto), ("from_proto", from_proto)):
        if not callable(function):
            raise TypeError(f"{what} must be callable, got {function!r}")
    if collection_name in _functions:
        raise KeyError(f"The collection {collection_name!r} has its functions already.")
    _functions[collection_name] = ProtoFunctions(proto_type, to_proto, from_proto)


def proto_functions(collection_name: str) -> ProtoFunctions | None:
    """What was declared for a collection, or None."""
    return _functions.get(collection_name)
