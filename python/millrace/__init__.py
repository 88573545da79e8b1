"""Millrace: a dataflow system for machine learning.

`millrace.compat.v1` (also `millrace.v1`) has TensorFlow 1's interface: graphs and sessions. What
this module itself has are types of elements, shapes (`millrace.float32`, `millrace.TensorShape`)
and `raw_ops`, every op under its own name; operations that run at once are not there yet.
"""

import importlib as _importlib
from typing import Any as _Any

from millrace.core.suggest import unknown_name_message as _unknown_name_message

__version__ = "0.1.0"

_MODULES = {
    "compat": "compat", "distributed": "distributed", "dtypes": "core.dtypes",
    "errors": "core.errors", "nest": "core.nest", "gen_ops": "gen_ops", "protos": "protos",
    "raw_ops": "raw_ops", "v1": "v1",
}  # fmt: skip


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _importlib.import_module(f"{__name__}.{_MODULES[name]}")
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from millrace._names import V1, V2  # late: most programs import compat.v1 alone

    module, _, attribute = V2.get(name, "").partition(":")
    if module.startswith("millrace.core."):  # what nothing has to run for
        return getattr(_importlib.import_module(module), attribute)
    types = _importlib.import_module("millrace.core.dtypes")._BY_NAME
    if name in types:  # one that TensorFlow has no public name for
        return types[name]
    if name in V1 or any(path.startswith(name + ".") for path in V1):
        raise AttributeError(
            f"millrace has no {name!r} of its own yet: eager execution is planned. Graphs have it: "
            f"millrace.compat.v1.{name}"
        )
    raise AttributeError(_unknown_name_message(name, V1))
