"""Parameters of functions as messages: FunctionSpec."""

import collections
import inspect
import re
from typing import Any, Callable

from millrace import protos
from millrace.eager.arguments import Signature
from millrace.graph import structured

_FIELDS = ("args", "varargs", "varkw", "defaults", "kwonlyargs", "kwonlydefaults", "annotations")
_FullArgSpec = collections.namedtuple("FullArgSpec", _FIELDS)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_TRACED_NAME = re.compile(r"^__inference_(.*?)_\d+(_\w*)?$")


def function_spec(signature: Signature) -> Any:
    """The FunctionSpec of a function's parameters and input_signature."""
    out = protos.FunctionSpec()
    out.fullargspec.CopyFrom(structured.encode(_full_arg_spec(signature.parameters)))
    specs = signature.specs
    out.input_signature.CopyFrom(
        structured.encode(specs if structured.is_encodable(specs) else None)
    )
    return out


def _full_arg_spec(parameters: Any) -> Any:
    by_place = [p for p in parameters if p.kind in _POSITIONAL]
    by_name = [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    defaults = tuple(_default(p) for p in by_place if p.default is not p.empty)
    named = {p.name: _default(p) for p in by_name if p.default is not p.empty}
    return _FullArgSpec(
        args=[p.name for p in by_place],
        varargs=next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None),
        varkw=next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None),
        defaults=defaults or None,
        kwonlyargs=[p.name for p in by_name],
        kwonlydefaults=named or None,
        annotations={},
    )


def _default(parameter: inspect.Parameter) -> Any:
    """The default, or None for an object that only this program has."""
    return parameter.default if structured.is_encodable(parameter.default) else None


def read_function_spec(message: Any, name: str, damaged: Callable[[str], Exception]) -> Signature:
    """The parameters that a FunctionSpec tells of, of a function of that name; any, where it tells
    of none. Raises damaged(why)."""
    if not message.HasField("fullargspec"):
        return _signature(inspect.Signature(_ANY), None, name)
    found = structured.decode(message.fullargspec, damaged)
    if getattr(found, "_fields", None) is None or not set(_FIELDS) <= set(found._fields):
        raise damaged(f"the parameters of {name} are {found!r:.200}, expected a FullArgSpec")
    specs = None
    if message.HasField("input_signature"):
        specs = structured.decode(message.input_signature, damaged)
    try:
        return _signature(_python_signature(found, message.is_method), specs, name)
    except (TypeError, ValueError) as error:
        raise damaged(f"the parameters of {name} are none: {error}") from None


_ANY = [
    inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
    inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
]


def _signature(of: inspect.Signature, specs: Any, name: str) -> Signature:
    def stand_in() -> None:
        """Has the parameters of the function."""

    stand_in.__signature__ = of  # type: ignore[attr-defined]
    return Signature(stand_in, specs, name)


def _python_signature(spec: Any, is_method: bool) -> inspect.Signature:
    args, named = list(spec.args or ()), list(spec.kwonlyargs or ())
    defaults = tuple(spec.defaults or ())
    of_named = dict(spec.kwonlydefaults or {})
    if len(defaults) > len(args) or not of_named.keys() <= set(named):
        raise ValueError(f"there are more defaults than parameters: {spec!r:.200}")
    first = len(args) - len(defaults)
    parameters = [
        inspect.Parameter(
            arg, inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=defaults[i - first] if i >= first else inspect.Parameter.empty,
        )
        for i, arg in enumerate(args)
    ]  # fmt: skip
    if is_method or args[:1] == ["self"]:
        del parameters[:1]
    if spec.varargs is not None:
        parameters.append(inspect.Parameter(spec.varargs, inspect.Parameter.VAR_POSITIONAL))
    for arg in named:
        default = of_named.get(arg, inspect.Parameter.empty)
        parameters.append(inspect.Parameter(arg, inspect.Parameter.KEYWORD_ONLY, default=default))
    if spec.varkw is not None:
        parameters.append(inspect.Parameter(spec.varkw, inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters)


def traced_name(name: str) -> str:
    """What a function of the library was called in the program that it was traced in."""
    found = _TRACED_NAME.match(name)
    return found.group(1) if found else name
