"""The faces of the package: public names that load the modules that define them on first use."""

import functools
import importlib
import os
import sys
from types import ModuleType
from typing import Any, Callable, Iterable

from millrace.core.ragged_forms import forms_of, with_ragged_form
from millrace.core.suggest import unknown_name_message


class Face:
    """Public names below a package, by a table {path: "module:attribute"}.

    Namespaces such as `nn` are modules whose names load late. `other`: what answers paths that the
    table does not have, or gives None. `loads`: told each module
    that is about to be loaded for a name. `graphs`: names that millrace.compat.v1 has. `folder`:
    where folders with the names of namespaces lie, whose modules are below these. `packages`: the
    namespaces that are packages and modules of the library's own, which end with part_of_v2().
    """

    def __init__(
        self,
        package: str,
        names: dict[str, str],
        other: Callable[[str], Any] | None = None,
        loads: Callable[[str], None] | None = None,
        graphs: dict[str, str] | None = None,
        folder: str | None = None,
        packages: Iterable[str] = (),
    ):
        self._package = package
        self._names = names
        self._other = other
        self._loads = loads
        self._graphs = graphs or {}
        self._folder = folder
        self._packages = frozenset(packages)
        self._ragged: dict[str, tuple[str, str]] | None = None
        # Paths of the namespaces: "nn.", "nn.rnn_cell.".
        self.prefixes = {
            name[: i + 1] for name in names for i, character in enumerate(name) if character == "."
        }

    def load(self, path: str) -> Any:
        """The object of a public name. KeyError when there is none."""
        target = self._names[path]
        module, _, attribute = target.partition(":")
        if self._loads is not None:
            self._loads(module)
        __import__(module)
        value = getattr(sys.modules[module], attribute)
        form = self._forms().get(target)
        return value if form is None else _wrapped(target, value, *form)

    def _forms(self) -> dict[str, tuple[str, str]]:
        """The functions that ragged tensors have a form of their own for."""
        if self._ragged is None:
            self._ragged = forms_of("v2" if self._package == "millrace" else "v1", self._names)
        return self._ragged

    def names_below(self, prefix: str) -> list[str]:
        """What stands directly below "nn.", or below the face itself for ""."""
        return sorted({n[len(prefix) :].split(".")[0] for n in self._names if n.startswith(prefix)})

    def resolve(self, prefix: str, name: str, module: ModuleType) -> Any:
        """The attribute `name` of the namespace `prefix`, which `module` keeps. AttributeError."""
        path = prefix + name
        if path in self._names:
            value = self.load(path)
        elif path + "." in self.prefixes:
            value = self.namespace(path)
        elif name.startswith("__"):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        else:
            value = self._other(path) if self._other is not None else None
            if value is None and path in self._graphs:
                raise AttributeError(
                    f"{self._package} has no {path!r}. Graphs have it: millrace.compat.v1.{path}"
                )
            if value is None:
                raise AttributeError(unknown_name_message(path, self._names))
        module.__dict__[name] = value
        return value

    def namespace(self, path: str) -> ModuleType:
        """The module of a namespace. One that is a package of the library's own serves as it is."""
        full = f"{self._package}.{path}"
        known = sys.modules.get(full)
        if known is not None:
            return known
        if path in self._packages:
            return importlib.import_module(full)
        module = _Namespace(full, f"{path} of {self._package}.")
        below = [] if self._folder is None else [os.path.join(self._folder, *path.split("."))]
        module.__dict__.update(_face=self, _prefix=path + ".", __path__=below, __package__=full)
        sys.modules[full] = module
        return module


# Functions as the faces give them: one for all names.
_given: dict[str, Any] = {}


def _wrapped(target: str, value: Any, module: str, form: str) -> Any:
    if target not in _given:
        _given[target] = with_ragged_form(value, module, form)
    return _given[target]


class _Namespace(ModuleType):
    """A part of a face, such as `nn`: a module whose names load on first use."""

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        return own["_face"].resolve(own["_prefix"], name, self)

    def __dir__(self) -> list[str]:
        own = self.__dict__
        return own["_face"].names_below(own["_prefix"])


_PACKAGES = (
    "autograph", "compat", "data", "data.experimental", "estimator", "feature_column", "io",
    "io.gfile", "saved_model", "summary", "train",
)  # fmt: skip


@functools.cache
def face_v2() -> Face:
    """TensorFlow 2's names, below `millrace` itself."""
    from millrace._names import V1, V2  # late: most programs import compat.v1 alone

    return Face("millrace", V2, _type_by_name, _loads, V1, packages=_PACKAGES)


def part_of_v2(path: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package of the library's own that has the name of a namespace."""

    def get(name: str) -> Any:
        package = sys.modules[f"millrace.{path}"]
        if name.startswith("_"):
            raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}")
        return face_v2().resolve(path + ".", name, package)

    return get


def _loads(module: str) -> None:
    """Operations of this face run at once, and shapes have plain sizes, unless the program has said
    otherwise. What types, shapes and structures are made of needs no operations."""
    from millrace.core.shapes import plain_sizes  # late: names load what they need, and no more

    plain_sizes.suggest()
    if not module.startswith("millrace.core."):
        from millrace import _core  # late: most programs import compat.v1 alone

        _core.suggest_eager()


def _type_by_name(path: str) -> Any:
    """A type of elements that TensorFlow has no public name for."""
    return importlib.import_module("millrace.core.dtypes")._BY_NAME.get(path)
