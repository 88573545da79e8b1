"""RaggedTensorValue: what a session gives for a RaggedTensor."""

from itertools import pairwise
from typing import Any

import numpy as np

from millrace.core.export import export


@export(v1="ragged.RaggedTensorValue")
class RaggedTensorValue:
    """A RaggedTensor of arrays: what a session gives for one."""

    __slots__ = ("_row_splits", "_values")
    _has_ragged_form = True  # see core/ragged_forms.py

    def __init__(self, values: Any, row_splits: Any):
        if not (isinstance(row_splits, (np.ndarray, np.generic)) and row_splits.ndim == 1):
            raise ValueError("row_splits must be a vector")
        if row_splits.dtype not in (np.int32, np.int64):
            raise TypeError(f"row_splits must have dtype int32 or int64, got {row_splits.dtype}")
        if not isinstance(values, (np.ndarray, np.generic, RaggedTensorValue)):
            raise TypeError(f"values must be an array or ragged, got {type(values).__name__}")
        self._values = values
        self._row_splits = row_splits

    @property
    def values(self) -> Any:
        """The rows one after the other."""
        return self._values

    @property
    def row_splits(self) -> Any:
        """Where each row begins in the values, and the end of the last one."""
        return self._row_splits

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self._values.dtype

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The sizes: None for the ragged dimensions."""
        return (len(self._row_splits) - 1, None, *self._values.shape[1:])

    @property
    def flat_values(self) -> Any:
        """The elements of all rows."""
        values = self._values
        return values.flat_values if isinstance(values, RaggedTensorValue) else values

    @property
    def nested_row_splits(self) -> tuple[Any, ...]:
        """The splits of each ragged dimension, the outermost first."""
        inner = self._values
        more = inner.nested_row_splits if isinstance(inner, RaggedTensorValue) else ()
        return (self._row_splits, *more)

    @property
    def ragged_rank(self) -> int:
        """How many dimensions are ragged."""
        return len(self.nested_row_splits)

    def to_list(self) -> list[Any]:
        """The elements as nested lists."""
        inner = self._values
        flat = inner.to_list() if isinstance(inner, RaggedTensorValue) else inner.tolist()
        return [flat[a:b] for a, b in pairwise(self._row_splits.tolist())]

    def __repr__(self) -> str:
        return f"tf.RaggedTensorValue(values={self._values!r}, row_splits={self._row_splits!r})"

    def __str__(self) -> str:
        return f"<tf.RaggedTensorValue {self.to_list()}>"
