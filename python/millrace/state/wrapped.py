"""wrap_function: TensorFlow 1's functions as functions with variables of their own."""

from typing import Any, Callable

from millrace.core.export import export
from millrace.eager.concrete import ConcreteFunction
from millrace.eager.function import function
from millrace.state.variable_store import KeptVariables


@export(v1="wrap_function")
def wrap_function(
    fn: Callable[..., Any], signature: Any, name: str | None = None
) -> ConcreteFunction:
    """A function, traced once for arguments like `signature` (TensorSpecs), which holds variables.

    `get_variable` in it finds a variable of the same name again. What it gives has `variables`,
    `graph` and `prune(feeds, fetches)`, a function from some tensors of its body to others.
    """
    kept = KeptVariables()

    def run(*args: Any, **kwargs: Any) -> Any:
        with kept:
            return fn(*args, **kwargs)

    if name is not None:
        run.__name__ = name
    made = function(run, autograph=False).get_concrete_function(*signature)
    made._kept = kept  # the variables live as long as what uses them
    return made
