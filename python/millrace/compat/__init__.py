"""TensorFlow-compatible interfaces."""

import importlib as _importlib
from typing import Any as _Any

from millrace.core.face import part_of_v2 as _part_of_v2

_v2 = _part_of_v2("compat")


def __getattr__(name: str) -> _Any:
    if name in ("v1", "v2"):
        return _importlib.import_module(f"{__name__}.{name}")
    return _v2(name)
