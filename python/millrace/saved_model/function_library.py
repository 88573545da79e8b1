"""Functions of a model's graph as functions of this process."""

import hashlib
import itertools
import os
import re
from typing import Any, NamedTuple

from millrace import protos
from millrace.checkpoint.foreign_functions import rename_functions, strange_places
from millrace.core import dtypes
from millrace.graph.graph import Graph

_loads = itertools.count()
# What a function's name ends with that was loaded.
_ENDING = re.compile(r"_m[0-9a-f]{12}$")


class Entry(NamedTuple):
    """A function of the model: its name here, and the names and types of its arguments."""

    name: str
    argument_names: list[str]
    types: list[Any]


class ModelFunctions:
    """The functions of a model, under names that no other model's have: those of the file with a
    checksum of all of them behind. The same model loaded twice has the same functions, unless they
    create resources.

    Args:
      library: a FunctionDefLibrary.
      holds: what is known of the handles that functions are given: by name of the function and
        number of the argument, the type and the shape of the variable, as messages.

    ValueError and TypeError for a library that is none.
    """

    def __init__(self, library: Any, holds: dict[tuple[str, int], tuple[Any, Any]]):
        fit = protos.GraphDef(library=library)
        for function in fit.library.function:
            _tell_handles(function, holds)
        mark = mark_resources(*(f.node_def for f in fit.library.function))
        self.names = _new_names(fit.library, mark)
        self.entries: dict[str, Entry] = {}
        for function in fit.library.function:
            signature = function.signature
            self.entries[signature.name] = Entry(
                self.names[signature.name],
                [argument.name for argument in signature.input_arg],
                [dtypes.as_dtype(argument.type) for argument in signature.input_arg],
            )
            self._rename_in(function)
        for gradient in fit.library.gradient:
            for field in ("function_name", "gradient_func"):
                name = getattr(gradient, field)
                setattr(gradient, field, self.names.get(name, name))
        self.graph = Graph(True)
        self.graph._import(fit.SerializeToString(), "", [], [], "", False, [])

    def _rename_in(self, function: Any) -> None:
        for node, kept in strange_places(function, set()):
            del node.attr["_class"].list.s[:]
            node.attr["_class"].list.s.extend(kept)
        function.signature.name = self.names[function.signature.name]
        rename_functions(function.node_def, self.names)


def _tell_handles(function: Any, holds: dict[tuple[str, int], tuple[Any, Any]]) -> None:
    """Says of arguments that are handles what they hold: gradients of what is in branches and
    loops need it."""
    for number, argument in enumerate(function.signature.input_arg):
        known = holds.get((function.signature.name, number))
        if known is None and argument.handle_data:
            known = argument.handle_data[0].dtype, argument.handle_data[0].shape
        if known is None or "_handle_dtypes" in function.arg_attr[number].attr:
            continue
        attrs = function.arg_attr[number].attr
        attrs["_handle_dtypes"].list.type.append(known[0])
        attrs["_handle_shapes"].list.shape.add().CopyFrom(known[1])


def mark_resources(*nodes: Any) -> bytes:
    """Makes resources that nodes create by name those of this load alone. Gives what tells this
    load from others, empty where there are none."""
    mark = f"_{os.getpid()}_{next(_loads)}".encode()
    any_named = False
    for node in itertools.chain(*nodes):
        if "shared_name" in node.attr:
            name = node.attr["shared_name"]
            name.s = (name.s or node.name.encode()) + mark
            any_named = True
    return mark if any_named else b""


def _new_names(library: Any, mark: bytes) -> dict[str, str]:
    data = library.SerializeToString(deterministic=True) + mark
    digest = hashlib.sha256(data).hexdigest()[:12]
    names: dict[str, str] = {}
    taken = set()
    for function in library.function:
        name = function.signature.name
        short = _ENDING.sub("", name)
        new = f"{short}_m{digest}"
        if new in taken:
            new = f"{name}_m{digest}"
        taken.add(new)
        names[name] = new
    return names
