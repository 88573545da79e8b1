"""Protocol buffer messages: a class for every message type that Millrace reads and writes.

Classes and enums are found by name and made on first use: `protos.GraphDef`,
`protos.AttrValue.ListValue`, `protos.DataType.Name(1)`, `protos.DT_FLOAT`. The messages behave as
those of Google's Python package do; their storage is C++.
"""

import importlib
from typing import Any as _Any  # Any is a message type

from millrace import _core
from millrace._core import DecodeError, EncodeError, Message

__all__ = ["DecodeError", "EncodeError", "Message", "message_class"]

_PACKAGES = (
    "tensorflow.",
    "tensorflow.error.",
    "google.protobuf.",
    "tensorboard.hparams.",
    "millrace.",
)
_MODULES = ("json_format", "text_format")


def message_class(name: str) -> _Any:
    """Returns the class of a message type, by its name in package tensorflow or its full name.

    Raises:
      LookupError: there is no such type.
    """
    for package in (*_PACKAGES, ""):
        found = _core.find_proto(package + name)
        if isinstance(found, type):
            return found
    raise LookupError(f"no message type {name!r}")


def _restore(cls: _Any, data: bytes) -> Message:
    """What a pickled message is made from."""
    return cls.FromString(data)


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if not name.startswith("_"):
        for package in _PACKAGES:
            found = _core.find_proto(package + name)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module {__name__!r} has no message type or enum {name!r}")


def __dir__() -> list[str]:
    names = {name.rpartition(".")[2] for name in _core.proto_names()}
    return sorted({*names, *__all__, *_MODULES})
