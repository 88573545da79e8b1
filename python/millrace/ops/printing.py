"""Printing from a graph."""

import sys
from itertools import pairwise
from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes, nest
from millrace.core.export import export
from millrace.core.tensor import Tensor, is_tensor_like
from millrace.graph.convert import convert_to_tensor
from millrace.graph.operation import Operation
from millrace.graph.sparse import SparseTensor
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
    made = _Template(inputs, 3 if summarize is None else summarize)

    def show(*values: Any) -> None:
        texts = [
            # A text that is all there is, is printed as it is.
            _decoded(np.asarray(values[part.number])[()])
            if isinstance(part, _Slot) and part.is_text and len(made.parts) == 1
            else _text(made.filled(part, values))
            for part in made.parts
        ]
        _write(stream, sep.join(texts), end)

    return py_func(show, made.tensors, [], name=name or "print")


@export(v1="strings.format", v2="strings.format")
def string_format(
    template: str, inputs: Any, placeholder: str = "{}", summarize: int = 3,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """`template` with each `placeholder` in it replaced by the text of one of `inputs`, tensors and
    structures: as tf.print shows them. ValueError where their numbers differ."""
    if isinstance(inputs, (str, bytes)) or not isinstance(inputs, (list, tuple)):
        inputs = [inputs]
    between = template.split(placeholder)
    if len(between) != len(inputs) + 1:
        raise ValueError(
            f"The template expects {len(between) - 1} tensors, but the inputs only has "
            f"{len(inputs)}. Please ensure the number of placeholders in template matches inputs "
            "length."
        )
    made = _Template(inputs, summarize)

    def text(*values: Any) -> Any:
        out = between[0]
        for part, following in zip(made.parts, between[1:], strict=True):
            out += _text(made.filled(part, values)) + following
        return np.array(out.encode(), dtype=object)

    result = py_func(text, made.tensors, dtypes.string, name=name or "StringFormat")
    result.set_shape([])
    return result


class _Template:
    """Structures whose tensors are to be shown: what is filled in when their values are known."""

    def __init__(self, structures: Any, summarize: int):
        self.tensors: list[Tensor] = []
        self._summarize = summarize
        self.parts = [nest.map_structure(self._kept, structure) for structure in structures]

    def _kept(self, leaf: Any) -> Any:
        if isinstance(leaf, SparseTensor):
            return _SparseSlots(*map(self._slot, (leaf.indices, leaf.values, leaf.dense_shape)))
        if hasattr(leaf, "nested_row_splits") and hasattr(leaf, "flat_values"):
            return _RaggedSlots(*map(self._slot, (leaf.flat_values, *leaf.nested_row_splits)))
        return self._slot(leaf) if is_tensor_like(leaf) else leaf

    def _slot(self, tensor: Any) -> "_Slot":
        tensor = convert_to_tensor(tensor)
        self.tensors.append(tensor)
        return _Slot(
            len(self.tensors) - 1, tensor.dtype is dtypes.string and tensor.shape.rank == 0
        )

    def filled(self, part: Any, values: Any) -> Any:
        """A part with the texts of the values in their places."""
        return _in_order(nest.map_structure(lambda leaf: self._text(leaf, values), part))

    def _text(self, leaf: Any, values: Any) -> Any:
        if isinstance(leaf, _Slot):
            return _Shown(array_text(values[leaf.number], self._summarize))
        if isinstance(leaf, _SparseSlots):
            indices, own, shape = (
                array_text(values[part.number], self._summarize) for part in leaf.parts
            )
            return _Shown(f"'SparseTensor(indices={indices}, values={own}, shape={shape})'")
        if isinstance(leaf, _RaggedSlots):
            flat, *splits = (np.asarray(values[part.number]) for part in leaf.parts)
            return _Shown(_ragged_text(flat, splits, self._summarize))
        return leaf


def _in_order(structure: Any) -> Any:
    """With the keys of dictionaries in the order in which structures are walked."""
    if isinstance(structure, dict):
        return {key: _in_order(structure[key]) for key in sorted(structure)}
    if isinstance(structure, (list, tuple)) and not hasattr(structure, "_fields"):
        return type(structure)(map(_in_order, structure))
    return structure


class _Slot:
    """Where the value of a tensor goes. `is_text`: it is a single text."""

    def __init__(self, number: int, is_text: bool):
        self.number, self.is_text = number, is_text


class _Slots:
    """Where the values of the parts of something go."""

    def __init__(self, *parts: _Slot):
        self.parts = parts


class _SparseSlots(_Slots):
    """Of a sparse tensor: indices, values, shape."""


class _RaggedSlots(_Slots):
    """Of a ragged tensor: the values, and the row splits, outermost first."""


class _Shown(str):
    """Text that is shown as it is, without quotes, inside of structures."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _decoded(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def array_text(value: Any, summarize: int = 3) -> str:
    """The elements of an array as TensorFlow prints them, each as short as tells it from others of
    its type; of each dimension the first and last `summarize`, all where that is negative."""
    array = np.asarray(value, dtype=object if isinstance(value, (bytes, str)) else None)
    return _rows(array, array.ndim, summarize)


def _ragged_text(flat: Any, splits: Any, summarize: int) -> str:
    """Rows of different lengths, as lists."""
    if splits:
        first, *rest = splits
        rows = [
            _ragged_text(flat, [rest[0][a : b + 1], *rest[1:]], summarize)
            if rest
            else _ragged_text(flat[a:b], (), summarize)
            for a, b in pairwise(first)
        ]
    elif flat.ndim == 0:
        return _element_text(flat[()])
    else:
        rows = [_ragged_text(flat[i, ...], (), summarize) for i in range(len(flat))]
    if 0 <= 2 * summarize < len(rows):
        rows = [*rows[:summarize], "...", *rows[len(rows) - summarize :]]
    return f"[{', '.join(rows)}]"


def _rows(array: Any, rank: int, summarize: int) -> str:
    if array.ndim == 0:
        return _element_text(array[()])
    count = len(array)
    whole = summarize < 0 or count <= 2 * summarize
    shown = range(count) if whole else [*range(summarize), *range(count - summarize, count)]
    rows = [_rows(array[i, ...], rank, summarize) for i in shown]
    if not whole:
        rows.insert(summarize, "...")
    # Between rows of rows there are empty lines, and each is indented to its depth.
    between = " " if array.ndim == 1 else "\n" * (array.ndim - 1) + " " * (rank - array.ndim + 1)
    return f"[{between.join(rows)}]"


def _element_text(value: Any) -> str:
    if isinstance(value, (bytes, str)):
        return f'"{_escaped(value)}"'
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    if isinstance(value, np.float64):
        return _shortest(value, 15, 17, np.float64)
    if isinstance(value, (float, np.floating)) or type(value).__name__ == "bfloat16":
        return _shortest(value, 6, 9, np.float32)
    return str(value)


def _shortest(value: Any, few: int, many: int, kind: Any) -> str:
    text = f"{float(value):.{few}g}"
    if np.isfinite(float(value)) and kind(text) != kind(value):
        text = f"{float(value):.{many}g}"
    return text


def _escaped(value: Any) -> str:
    return _decoded(value).translate(_ESCAPES)


_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def _text(structure: Any) -> str:
    return structure if isinstance(structure, str) else repr(structure)


def _write(stream: Any, text: str, end: str) -> None:
    if callable(stream) and not hasattr(stream, "write"):
        stream(text)
    elif isinstance(stream, str):
        with open(stream[len("file://") :], "a", encoding="utf-8") as file:
            file.write(text + end)
    else:
        stream.write(text + end)
        stream.flush()
