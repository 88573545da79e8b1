"""TensorFlow 1's interface: `import millrace.compat.v1 as tf`.

Names load the modules that define them on first use (millrace._names says which those are), so
importing this costs little more than importing NumPy. A folder here that has the name of a
namespace, such as layers/, holds the modules that define most of it; the namespace is its package.
"""

import importlib as _importlib
import os as _os
import sys as _sys
from types import ModuleType as _ModuleType
from typing import Any as _Any

from millrace._names import V1 as _NAMES
from millrace.core.suggest import unknown_name_message as _unknown_name_message
from millrace.core.tracebacks import install as _install_tracebacks

_install_tracebacks()


def _load(path: str) -> _Any:
    """The object of a public name. KeyError when there is none."""
    module, _, attribute = _NAMES[path].partition(":")
    __import__(module)
    return getattr(_sys.modules[module], attribute)


class _Namespace(_ModuleType):
    """A part of the interface, such as `nn`: a module whose names load on first use."""

    def __getattr__(self, name: str) -> _Any:
        return _resolve(self.__dict__["_prefix"], name, self)

    def __dir__(self) -> list[str]:
        return _names_below(self.__dict__["_prefix"])


def _names_below(prefix: str) -> list[str]:
    return sorted({n[len(prefix) :].split(".")[0] for n in _NAMES if n.startswith(prefix)})


# Paths of the namespaces: "nn.", "nn.rnn_cell.".
_PREFIXES = {
    name[: i + 1] for name in _NAMES for i, character in enumerate(name) if character == "."
}


def _resolve(prefix: str, name: str, module: _ModuleType) -> _Any:
    path = prefix + name
    if path in _NAMES:
        value = _load(path)
    elif path + "." in _PREFIXES:
        value = _namespace(path)
    elif path == "raw_ops":
        value = _importlib.import_module("millrace.raw_ops")
    elif name.startswith("__"):
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
    else:
        raise AttributeError(_unknown_name_message(path, _NAMES))
    module.__dict__[name] = value
    return value


def _namespace(path: str) -> _ModuleType:
    full = f"{__name__}.{path}"
    known = _sys.modules.get(full)
    if known is not None:
        return known
    module = _Namespace(full, f"{path} of millrace.compat.v1.")
    folder = _os.path.join(__path__[0], *path.split("."))
    module.__dict__.update(_prefix=path + ".", __path__=[folder], __package__=full)
    _sys.modules[full] = module
    return module


for _path in sorted(_PREFIXES):
    _namespace(_path[:-1])

compat = _sys.modules.get(f"{__name__}.compat")
if compat is not None:
    compat.__dict__["v1"] = _sys.modules[__name__]
__version__ = "1.15.0"
VERSION = __version__
GIT_VERSION = COMPILER_VERSION = "unknown"


def __getattr__(name: str) -> _Any:
    return _resolve("", name, _sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*_names_below(""), "raw_ops", "__version__", "VERSION"})
