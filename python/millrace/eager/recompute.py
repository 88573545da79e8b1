"""Functions whose gradients are not those of what they compute."""

import functools
from typing import Any, Callable

from millrace import _core, gen_ops
from millrace.core import nest
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.eager.tape import GradientTape
from millrace.graph.gradients import custom_gradient


@export(v1="recompute_grad", v2="recompute_grad")
def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a function of tensors a gradient that computes the function again, so that nothing of
    it is held meanwhile: less memory for more time."""

    @functools.wraps(f)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        @custom_gradient
        def forward(*inputs: Any) -> Any:
            with _core.StopRecording():
                result = f(*inputs, **kwargs)

            def backward(*dys: Any, variables: Any = ()) -> Any:
                again = [_again(x) for x in inputs]
                with GradientTape() as tape:
                    tape.watch([x for x in again if isinstance(x, Tensor) and _moves(x)])
                    for variable in variables:
                        tape.watch(variable)
                    ys = f(*again, **kwargs)
                found = tape.gradient(ys, [again, list(variables)], _like(ys, dys))
                return (found[0], found[1]) if variables else found[0]

            return result, backward

        return forward(*args)

    return recomputed


def _moves(x: Any) -> bool:
    return x.dtype.is_floating or x.dtype.is_complex


def _again(x: Any) -> Any:
    return gen_ops.identity(x) if isinstance(x, Tensor) else x


def _like(ys: Any, dys: Any) -> Any:
    return nest.pack_sequence_as(ys, list(dys))


@export(v1="grad_pass_through", v2="grad_pass_through")
def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a function the gradient of the identity: what comes in for its results goes on to its
    arguments as it is."""

    @custom_gradient
    def passed(*args: Any, **kwargs: Any) -> Any:
        def rule(*dys: Any, variables: Any = None) -> Any:
            return dys if variables is None else (dys, [None] * len(variables))

        return f(*args, **kwargs), rule

    return functools.update_wrapper(passed, f)
