"""Millrace: a dataflow system for machine learning.

`import millrace as tf` has TensorFlow 2's interface: operations run at once. `millrace.compat.v1`
(also `millrace.v1`) has TensorFlow 1's: graphs and sessions. Names load the modules that define
them on first use.
"""

import importlib as _importlib
import sys as _sys
from typing import Any as _Any

__version__ = "0.1.0"

_MODULES = {
    "compat": "compat", "distributed": "distributed", "errors": "core.errors",
    "gen_ops": "gen_ops", "protos": "protos", "raw_ops": "raw_ops", "v1": "v1",
}  # fmt: skip


def _face() -> _Any:
    from millrace.core.face import face_v2  # late: most programs import compat.v1 alone

    return face_v2()


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _importlib.import_module(f"{__name__}.{_MODULES[name]}")
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _face().resolve("", name, _sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*_face().names_below(""), *_MODULES, "__version__"})
