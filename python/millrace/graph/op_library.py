"""Ops from shared libraries that are built apart from the package."""

import glob
import hashlib
import os
from types import ModuleType
from typing import Any

from millrace import _core, protos
from millrace.core import errors
from millrace.core.export import export
from millrace.graph.op_functions import Op


@export(v1="load_op_library", v2="load_op_library")
def load_op_library(library_filename: str) -> ModuleType:
    """Loads a library of ops. Gives a module with a function for each, in snake_case.

    The module's `OP_LIST` is an OpList of their definitions. NotFoundError when the library cannot
    be loaded, with the system's reason.
    """
    names = _core.load_op_library(str(library_filename))
    module = ModuleType(_module_name(library_filename), f"The ops of {library_filename}.")
    module.__file__ = str(library_filename)
    _add_functions(module, names)
    return module


def _module_name(path: Any) -> str:
    return "millrace_ops_" + hashlib.sha256(str(path).encode()).hexdigest()[:16]


def _add_functions(module: ModuleType, names: list[str]) -> None:
    definitions = protos.OpList()
    for name in names:
        definitions.op.add().ParseFromString(_core.op_def(name))
        op = Op(_core.describe_op(name))
        module.__dict__[f"_{op.function}"] = _core.op(name)
        exec(compile(op.source(), module.__name__, "exec"), module.__dict__)
        module.__dict__[name] = module.__dict__[op.function]
    module.__dict__["OP_LIST"] = definitions


@export(v1="load_library", v2="load_library")
def load_library(library_location: str) -> None:
    """Loads the library of ops at a path, or all those (*.so) in a folder.

    OSError when there is nothing at the path.
    """
    if os.path.isdir(library_location):
        paths = sorted(glob.glob(os.path.join(library_location, "*.so")))
    elif os.path.exists(library_location):
        paths = [library_location]
    else:
        raise OSError(
            f"The file or folder to load op libraries from {library_location} does not exist."
        )
    for path in paths:
        _core.load_op_library(path)


@export(v1="load_file_system_library")
def load_file_system_library(library_filename: str) -> None:
    """Would load a library that gives access to another kind of files: UnimplementedError."""
    raise errors.UnimplementedError(
        None, None,
        f"Cannot load '{library_filename}': Millrace reads the files of the system, and has no "
        "plug-ins for others.",
    )  # fmt: skip
