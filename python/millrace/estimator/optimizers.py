"""Optimisers by name."""

from typing import Any

from millrace.train.optimizer import Optimizer
from millrace.train.optimizers import (
    AdagradOptimizer,
    AdamOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    RMSPropOptimizer,
)

_CLASSES: dict[str, Any] = {
    "Adagrad": AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "RMSProp": RMSPropOptimizer,
    "SGD": GradientDescentOptimizer,
}


def optimizer_of(given: Any, learning_rate: float) -> Optimizer:
    """An optimiser given as itself, as a function that makes it, or as a name.

    ValueError for other things.
    """
    if isinstance(given, str):
        if given not in _CLASSES:
            raise ValueError(
                f"Unsupported optimizer name: {given}. Supported names are: " f"{sorted(_CLASSES)}"
            )
        return _CLASSES[given](learning_rate=learning_rate)
    if callable(given):
        given = given()
    if not isinstance(given, Optimizer):
        raise ValueError(
            "The given object is not an Optimizer instance, or a function that gives one. Given: "
            f"{given}"
        )
    return given
