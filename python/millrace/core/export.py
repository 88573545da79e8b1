"""Declares public names where they are defined.

`@export(v1="nn.dropout", v2="nn.dropout")` on a function makes it public under that name in the two
faces: `millrace.compat.v1` has TensorFlow 1's names, `millrace` TensorFlow 2's. Nothing is
registered at run time: the build reads the sources and writes a table for each face (see
python/generate/names.py), from which the face imports on first use, so importing the package loads
only what a program touches.
"""

from typing import Callable, TypeVar

T = TypeVar("T")


def export(*, v1: str | tuple[str, ...] = (), v2: str | tuple[str, ...] = ()) -> Callable[[T], T]:
    """Makes the object public under these names, paths below the faces.

    A name for `v2` is one whose object serves that face as it is: TensorFlow 2 has the same
    signature under it, and it does not care whether it runs in a graph.

    The names must be string literals, and the object a function or class of a module, or a value
    assigned to a module's variable, `float32 = export(v1="float32")(DType(1))`, or one that the
    module has from elsewhere and completes, `export(v1="Tensor")(Tensor)`.
    """
    del v1, v2

    def as_it_is(value: T) -> T:
        return value

    return as_it_is
