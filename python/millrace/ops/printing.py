"""Printing from a graph."""

import sys
from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import nest
from millrace.core.export import export
from millrace.core.tensor import Tensor, is_tensor_like
from millrace.graph.convert import convert_to_tensor
from millrace.graph.operation import Operation
from millrace.ops.py_func import py_func


@export(v1="Print")
def Print(
    input_: Any, data: Any, message: str | None = None, first_n: int | None = None,
    summarize: int | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """`input_`, and the values of `data` on the standard error stream each time it is computed.

    Args:
      message: what to print in front.
      first_n: print only so many times.
      summarize: how many elements of each tensor to print; 3 by default.
    """
    return gen_ops.print(
        input_, data, message or "", -1 if first_n is None else first_n,
        3 if summarize is None else summarize, name=name or "Print",
    )  # fmt: skip


@export(v1="print", v2="print")
def print_v2(*inputs: Any, **kwargs: Any) -> Operation:
    """An operation that prints its inputs each time it runs: tensors, structures, any object.

    Args:
      output_stream: sys.stderr (the default), sys.stdout, a function of tf.logging, or
        "file://PATH" to append to a file.
      summarize: how many elements to print at the beginning and the end of each dimension; -1: all.
      sep, end: what stands between the inputs and behind them.
      name: a name for the operation.
    """
    stream = kwargs.pop("output_stream", sys.stderr)
    summarize = kwargs.pop("summarize", None)
    sep, end = kwargs.pop("sep", " "), kwargs.pop("end", "\n")
    name = kwargs.pop("name", None)
    if kwargs:
        raise ValueError(f"Unrecognized keyword arguments for tf.print: {sorted(kwargs)}")
    known = callable(stream) or stream in (sys.stderr, sys.stdout)
    if not known and not (isinstance(stream, str) and stream.startswith("file://")):
        raise ValueError(
            f"Unknown output stream, logging level, or file: {stream!r}. Expected sys.stderr, "
            "sys.stdout, a function of tf.logging, or 'file://PATH'."
        )
    tensors: list[Tensor] = []

    def keep(leaf: Any) -> Any:
        if not is_tensor_like(leaf):
            return leaf
        tensors.append(convert_to_tensor(leaf))
        return _Slot(len(tensors) - 1)

    structures = [nest.map_structure(keep, value) for value in inputs]
    count = 3 if summarize is None else summarize

    def show(*values: Any) -> None:
        texts = [
            _text(nest.map_structure(lambda x: _fill(x, values, count), s)) for s in structures
        ]
        _write(stream, sep.join(texts), end)

    return py_func(show, tensors, [], name=name or "print")


class _Slot:
    """Where the value of a tensor goes."""

    def __init__(self, number: int):
        self.number = number


class _Shown(str):
    """Text that is shown as it is, without quotes, inside of structures."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _fill(leaf: Any, values: Any, summarize: int) -> Any:
    if not isinstance(leaf, _Slot):
        return leaf
    value = values[leaf.number]
    array = np.asarray(value, dtype=object if isinstance(value, (bytes, str)) else None)
    edge = max(array.shape, default=0) if summarize < 0 else summarize
    shortened = max(array.shape, default=0) > 2 * edge
    return _Shown(
        np.array2string(
            array, edgeitems=edge, threshold=0 if shortened else array.size + 1,
            formatter={
                "float_kind": lambda v: f"{v:g}",
                "bool": lambda v: str(int(v)),
                "object": lambda v: '"' + _decoded(v) + '"',
            },
        )
    )  # fmt: skip


def _decoded(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _text(structure: Any) -> str:
    return structure if isinstance(structure, str) else str(structure)


def _write(stream: Any, text: str, end: str) -> None:
    if callable(stream) and not hasattr(stream, "write"):
        stream(text)
    elif isinstance(stream, str):
        with open(stream[len("file://") :], "a", encoding="utf-8") as file:
            file.write(text + end)
    else:
        stream.write(text + end)
        stream.flush()
