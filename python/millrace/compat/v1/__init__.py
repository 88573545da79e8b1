"""TensorFlow 1's interface: `import millrace.compat.v1 as tf`.

Names load the modules that define them on first use (millrace._names says which those are), so
importing this costs little more than importing NumPy. A folder here that has the name of a
namespace, such as layers/, holds the modules that define most of it; the namespace is its package.
"""

import importlib as _importlib
import sys as _sys
from typing import Any as _Any

from millrace._names import V1 as _NAMES
from millrace.core.face import Face as _Face
from millrace.core.tracebacks import install as _install_tracebacks

_install_tracebacks()


def _other(path: str) -> _Any:
    return _importlib.import_module("millrace.raw_ops") if path == "raw_ops" else None


_face = _Face(__name__, _NAMES, _other, folder=__path__[0])
for _path in sorted(_face.prefixes):
    _face.namespace(_path[:-1])

compat = _sys.modules.get(f"{__name__}.compat")
if compat is not None:
    compat.__dict__["v1"] = _sys.modules[__name__]
__version__ = "1.15.0"
VERSION = __version__
GIT_VERSION = COMPILER_VERSION = "unknown"


def __getattr__(name: str) -> _Any:
    return _face.resolve("", name, _sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*_face.names_below(""), "raw_ops", "__version__", "VERSION"})
