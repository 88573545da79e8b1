"""Layers as functions, made from the classes: signatures stand once."""

import inspect
from typing import Any, Callable, Concatenate, ParamSpec

from millrace.core.tensor import Tensor

P = ParamSpec("P")


def applied_once(
    layer: Callable[P, Any], name: str, reuse: bool = True
) -> Callable[Concatenate[Any, P], Tensor]:
    """The function that makes a layer and applies it to its first argument, `inputs`.

    Its other parameters are those of the layer's class, and `reuse` for layers with variables: take
    those of the layer of the same name. TypeError names the function.
    """
    own = [
        parameter
        for parameter in inspect.signature(layer).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    plain = inspect.Parameter.POSITIONAL_OR_KEYWORD
    more = [inspect.Parameter("reuse", plain, default=None)] if reuse else []
    signature = inspect.Signature([inspect.Parameter("inputs", plain), *own, *more])

    def function(*args: Any, **kwargs: Any) -> Tensor:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        inputs = given.pop("inputs")
        if reuse:
            given.update(_scope=given.get("name"), _reuse=given.pop("reuse", None))
        return layer(**given)(inputs)

    function.__name__ = function.__qualname__ = name
    function.__module__ = layer.__module__
    function.__doc__ = f"A `{layer.__name__}` layer applied once." + (
        " `reuse`: take the variables of the layer of the same name." if reuse else ""
    )
    function.__signature__ = signature
    return function
