"""Arguments of functions given by scopes."""

import functools
import inspect
from typing import Any, Callable

from millrace.core.export import export

# The scopes that are open: {key of a function: {argument: value}}.
_stack: list[dict[Any, dict[str, Any]]] = [{}]
_with_scope: dict[Any, Callable[..., Any]] = {}


def _key(function: Callable[..., Any]) -> Any:
    return getattr(function, "_arg_scope_key", (function.__module__, function.__name__))


@export(v1=("contrib.framework.current_arg_scope", "contrib.slim.current_arg_scope"))
def current_arg_scope() -> dict[Any, dict[str, Any]]:
    """The arguments that are set now."""
    return _stack[-1]


@export(v1=("contrib.framework.has_arg_scope", "contrib.slim.has_arg_scope"))
def has_arg_scope(func: Callable[..., Any]) -> bool:
    """Whether arguments of a function can be given by scopes."""
    return _key(func) in _with_scope


@export(v1=("contrib.framework.arg_scoped_arguments", "contrib.slim.arg_scoped_arguments"))
def arg_scoped_arguments(func: Callable[..., Any]) -> tuple[str, ...]:
    """The arguments of a function that have defaults, which scopes may set."""
    parameters = inspect.signature(func).parameters.values()
    return tuple(p.name for p in parameters if p.default is not inspect.Parameter.empty)


@export(v1=("contrib.framework.add_arg_scope", "contrib.slim.add_arg_scope"))
def add_arg_scope(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that lets arguments of a function be given by scopes."""
    key = (func.__module__, func.__name__)

    @functools.wraps(func)
    def with_scope(*args: Any, **kwargs: Any) -> Any:
        given = _stack[-1].get(key)
        return func(*args, **({**given, **kwargs} if given else kwargs))

    with_scope._arg_scope_key = key  # type: ignore[attr-defined]
    _with_scope[key] = with_scope
    return with_scope


@export(v1=("contrib.framework.arg_scope", "contrib.slim.arg_scope"))
class arg_scope:
    """A context in which functions take arguments that their callers do not give.

    `with arg_scope([f, g], a=1) as scope:` sets them, `with arg_scope(scope):` sets them again.
    ValueError for a function that is not decorated with `add_arg_scope`, TypeError for neither.
    """

    def __init__(self, list_ops_or_scope: Any, **kwargs: Any):
        if isinstance(list_ops_or_scope, dict):
            if kwargs:
                raise ValueError(
                    "When attempting to re-use a scope by suppling a dictionary, kwargs must be "
                    f"empty, got {sorted(kwargs)}"
                )
            self._scope = {key: dict(values) for key, values in list_ops_or_scope.items()}
            return
        if not isinstance(list_ops_or_scope, (list, tuple)):
            raise TypeError(
                "list_ops_or_scope must either be a list/tuple or reused scope (i.e. dict), got "
                f"{type(list_ops_or_scope).__name__}"
            )
        scope = {key: dict(values) for key, values in _stack[-1].items()}
        for op in list_ops_or_scope:
            if not has_arg_scope(op):
                raise ValueError(
                    f"{_key(op)} is not decorated with @add_arg_scope: no scope can give its "
                    "arguments"
                )
            scope.setdefault(_key(op), {}).update(kwargs)
        self._scope = scope

    def __enter__(self) -> dict[Any, dict[str, Any]]:
        _stack.append(self._scope)
        return self._scope

    def __exit__(self, *_: Any) -> None:
        _stack.pop()
