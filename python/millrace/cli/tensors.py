"""Checkpoints and safetensors files as the tensors in them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from millrace.checkpoint.reader import NewCheckpointReader
from millrace.cli.command import CommandError
from millrace.core import dtypes
from millrace.core.suggest import nearest
from millrace.core.text import printable


class Entry(NamedTuple):
    """What a file says of a tensor."""

    name: str
    dtype: dtypes.DType
    shape: list[int]

    @property
    def elements(self) -> int:
        """How many there are."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int | None:
        """Of the elements; None for strings, whose lengths stand among the elements."""
        return None if self.dtype == dtypes.string else self.elements * self.dtype.size


class Tensors:
    """The tensors of a file, by name; one is read when it is asked for, and kept by nobody."""

    def __init__(self, path: str):
        """Errors of `millrace.core.errors` where it cannot be read."""
        self.path = path
        self._reader = NewCheckpointReader(path)
        shapes = self._reader.get_variable_to_shape_map()
        types = self._reader.get_variable_to_dtype_map()
        self.entries = [Entry(name, types[name], shapes[name]) for name in sorted(shapes)]

    def entry(self, name: str) -> Entry:
        """The one of that name. CommandError, with the nearest names, without one."""
        for each in self.entries:
            if each.name == name:
                return each
        near = nearest(name, [each.name for each in self.entries])
        hint = f"; the nearest are {', '.join(map(printable, near))}" if near else ""
        raise CommandError(f"there is no tensor '{name}'{hint}")

    def read(self, name: str) -> np.ndarray:
        """Its elements, checked against their checksum where the file has one."""
        value: Any = self._reader.get_tensor(name)
        if isinstance(value, bytes):  # NumPy's own type for bytes drops zeros at the end
            value = np.array(value, dtype=object)
        return np.asarray(value)
