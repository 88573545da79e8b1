"""tf.Module."""

import re
from typing import Any, Callable, Iterator

from millrace.core import nest
from millrace.core.export import export
from millrace.core.tracked_data import AutoTrackable
from millrace.graph.default_graph import name_scope
from millrace.state.eager_variable import Variable as EagerVariable
from millrace.state.variable import Variable as GraphVariable

_CAPITAL = re.compile(r"((?<=[a-z0-9])[A-Z]|(?!^)(?<!_)[A-Z](?=[a-z]))")
_IDENTIFIER = re.compile(r"^[a-zA-Z_]([a-zA-Z0-9_])*$")


@export(v1="Module", v2="Module")
class Module(AutoTrackable):
    """An object with variables and other modules as attributes: it knows all variables below it.

    Attributes may be lists, tuples and dictionaries of them. What a method decorated with
    `Module.with_name_scope` makes has the module's name before its own.
    """

    # Attributes that `variables`, `submodules` and `_flatten` do not look at.
    _TF_MODULE_IGNORED_PROPERTIES: frozenset[str] = frozenset()

    def __init__(self, name: str | None = None):
        if name is None:
            name = camel_to_snake(type(self).__name__)
        elif not _IDENTIFIER.match(name):
            raise ValueError(
                f"{name!r} is not a valid module name. Module names must be valid Python "
                "identifiers (e.g. a valid class name)."
            )
        self._name = name
        with name_scope(name) as scope_name:
            self._scope_name = scope_name

    @property
    def name(self) -> str:
        """The module's name, as given or made of its class's."""
        return self._name

    @property
    def name_scope(self) -> Any:
        """A context in which variables and operations get the module's name before theirs."""
        return name_scope(self._scope_name)

    @property
    def variables(self) -> tuple[Any, ...]:
        """The variables of the module and those below it, by the names of attributes."""
        return tuple(self._flatten(predicate=is_variable, expand_composites=True))

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """Those of `variables` that are trainable."""
        return tuple(self._flatten(predicate=_is_trainable, expand_composites=True))

    @property
    def non_trainable_variables(self) -> tuple[Any, ...]:
        """Those of `variables` that are not trainable."""
        return tuple(
            self._flatten(
                predicate=lambda leaf: is_variable(leaf) and not _is_trainable(leaf),
                expand_composites=True,
            )
        )

    @property
    def submodules(self) -> tuple["Module", ...]:
        """The modules below this one, the nearest first."""
        return tuple(self._flatten(predicate=_is_module))

    def _flatten(
        self, recursive: bool = True, predicate: Callable[[Any], bool] | None = None,
        attribute_traversal_key: Callable[[str], Any] | None = None, with_path: bool = False,
        expand_composites: bool = False,
    ) -> Iterator[Any]:  # fmt: skip
        """The leaves of the attributes for which `predicate` is true, each once.

        Args:
          recursive: whether those of modules among the leaves come too.
          attribute_traversal_key: what attributes are sorted by; their names by default.
          with_path: give pairs of a path, names of attributes and keys, and a leaf.
        """
        del expand_composites  # no leaf has variables inside
        accept = predicate or (lambda leaf: True)
        seen = {id(self)}
        todo: list[tuple[Module, tuple[Any, ...]]] = [(self, ())]
        while todo:
            module, before = todo.pop(0)
            below: list[tuple[Module, tuple[Any, ...]]] = []
            for path, leaf in module._leaves(attribute_traversal_key):
                if id(leaf) in seen:
                    continue
                seen.add(id(leaf))
                if accept(leaf):
                    yield (before + path, leaf) if with_path else leaf
                if recursive and isinstance(leaf, Module):
                    below.append((leaf, before + path))
            todo = below + todo

    def _leaves(self, key: Callable[[str], Any] | None) -> Iterator[tuple[tuple[Any, ...], Any]]:
        for name in sorted(vars(self), key=key):
            if name in self._TF_MODULE_IGNORED_PROPERTIES or name in ("_children", "_awaited"):
                continue
            value = vars(self)[name]
            try:
                leaves = nest.flatten_with_tuple_paths(value)
            except Exception as error:
                raise ValueError(
                    f"Error processing property {name!r} of {self!r}: {error}"
                ) from error
            for path, leaf in leaves:
                yield (name, *path), leaf

    @classmethod
    def with_name_scope(cls, method: Callable[..., Any]) -> Callable[..., Any]:
        """Decorates a method so that it runs in the module's `name_scope`."""

        def method_with_name_scope(self: Any, *args: Any, **kwargs: Any) -> Any:
            with self.name_scope:
                return method(self, *args, **kwargs)

        method_with_name_scope.__wrapped__ = method  # type: ignore[attr-defined]
        for what in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(method_with_name_scope, what, getattr(method, what, None))
        return method_with_name_scope


def is_variable(value: Any) -> bool:
    """Whether a value is a variable, of either face."""
    return isinstance(value, (EagerVariable, GraphVariable))


def _is_trainable(value: Any) -> bool:
    return is_variable(value) and bool(getattr(value, "trainable", False))


def _is_module(value: Any) -> bool:
    return isinstance(value, Module)


def camel_to_snake(value: str) -> str:
    """ "MyModule" as "my_module"."""
    return _CAPITAL.sub(r"_\1", value).lower()
