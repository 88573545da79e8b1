"""Declares public names where they are defined.

`@export("nn.dropout")` on a function makes it `millrace.compat.v1.nn.dropout`. Nothing is
registered at run time: the build reads the sources and writes the table that
`millrace.compat.v1` imports from on first use (see python/generate/names.py), so importing the
package loads only what a program touches.
"""

from typing import Callable, TypeVar

T = TypeVar("T")


def export(*names: str) -> Callable[[T], T]:
    """Makes the object public under `names`, paths below `millrace.compat.v1`.

    The names must be string literals, and the object a function or class of a module, or a value
    assigned to a module's variable, `float32 = export("float32")(DType(1))`, or one that the module
    has from elsewhere and completes, `export("Tensor")(Tensor)`.
    """
    del names

    def as_it_is(value: T) -> T:
        return value

    return as_it_is
