"""Millrace: a dataflow system for machine learning.

`millrace.compat.v1` (also `millrace.v1`) has TensorFlow 1's interface: graphs and sessions. What
this module itself has are the types of elements (`millrace.float32`) and `raw_ops`, every op under
its own name; operations that run at once are not there yet.
"""

import importlib as _importlib
from typing import Any as _Any

from millrace.core.suggest import unknown_name_message as _unknown_name_message

__version__ = "0.1.0"

_MODULES = {
    "compat": "compat", "dtypes": "core.dtypes", "errors": "core.errors", "nest": "core.nest",
    "protos": "protos", "raw_ops": "raw_ops", "v1": "v1",
}  # fmt: skip


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _importlib.import_module(f"{__name__}.{_MODULES[name]}")
    from millrace.core import dtypes  # late: it brings NumPy along

    if name in dtypes._BY_NAME:
        return dtypes._BY_NAME[name]
    if name in ("DType", "as_dtype"):
        return getattr(dtypes, name)
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from millrace._names import NAMES  # late: only errors need it

    if name in NAMES or any(path.startswith(name + ".") for path in NAMES):
        raise AttributeError(
            f"millrace has no {name!r} of its own yet: eager execution is planned. Graphs have it: "
            f"millrace.compat.v1.{name}"
        )
    raise AttributeError(_unknown_name_message(name, NAMES))
