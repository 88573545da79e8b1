"""Runs of strings."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import array, gather, strings
from millrace.ops.along import range as range_of
from millrace.ops.math import cast
from millrace.ops.ragged.arrange import concat
from millrace.ops.ragged.tensor import (
    RaggedTensor,
    as_ragged_or_tensor,
    frame_of,
    is_ragged,
    places_in_rows,
)


@export(v1="strings.ngrams", v2="strings.ngrams")
def ngrams(
    data: Any, ngram_width: Any, separator: str = " ", pad_values: Any = None,
    padding_width: int | None = None, preserve_short_sequences: bool = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    """The runs of `ngram_width` strings in each of the innermost rows, each run as one string.

    Args:
      ngram_width: a number, or several: the runs of the first, then those of the second ...
      pad_values: a string, or one for the beginning and one for the end, with which rows are filled
        up, so that each string is at each place of a run.
      padding_width: at most so many at either side.
      preserve_short_sequences: a row that is too short for any run, and not empty, is one.
    """
    with name_scope(name, "StringNGrams"):
        if pad_values is None:
            left = right = ""
        elif isinstance(pad_values, (list, tuple)):
            if len(pad_values) != 2 or not all(isinstance(v, (str, bytes)) for v in pad_values):
                raise TypeError("pad_values must be a string, tuple of strings, or None.")
            left, right = pad_values
        elif isinstance(pad_values, (str, bytes)):
            left = right = pad_values
        else:
            raise TypeError("pad_values must be a string, tuple of strings, or None.")
        if padding_width is not None and padding_width < 1:
            raise ValueError(f"padding_width must be greater than 0. Got {padding_width}")
        if padding_width is not None and pad_values is None:
            raise ValueError("pad_values must be provided if padding_width is set.")
        widths = [ngram_width] if isinstance(ngram_width, int) else list(ngram_width)
        if not widths or any(width < 1 for width in widths):
            raise ValueError(f"All ngram_widths must be greater than 0. Got {ngram_width}")
        if is_ragged(data):
            value = as_ragged_or_tensor(data)
        else:
            value = convert_to_tensor(data, dtype=dtypes.string)
        rank = value.shape.ndims
        if rank == 0:
            raise ValueError("Data must have rank>0")
        if rank is None:
            raise ValueError("the rank of the data must be known")
        if not isinstance(value, RaggedTensor):
            rows = value if rank > 1 else array.expand_dims(value, 0)
            ragged = RaggedTensor.from_tensor(rows, ragged_rank=max(rank - 1, 1))
            made = ngrams(
                ragged, widths, separator, pad_values, padding_width, preserve_short_sequences
            )
            return made.to_tensor() if rank > 1 else made.values
        if isinstance(value.values, RaggedTensor):
            return value.with_values(
                ngrams(
                    value.values, widths, separator, pad_values, padding_width,
                    preserve_short_sequences,
                )
            )  # fmt: skip
        most = 0 if pad_values is None else max(widths)
        if padding_width is not None:
            most = min(most, padding_width)
        runs = [
            _runs(_padded(value, left, right, min(width - 1, most)), width, separator)
            for width in widths
        ]
        made = runs[0] if len(runs) == 1 else concat(runs, 1)
        if preserve_short_sequences:
            made = concat([made, _short(value, made, left, right, most, separator)], 1)
        return made


def _padded(rows: RaggedTensor, left: Any, right: Any, count: int) -> RaggedTensor:
    """Rows with `count` strings more at either end."""
    if count == 0:
        return rows
    size = array.stack([rows.nrows(), cast(count, rows.row_splits.dtype)])
    # Where there are no strings at all, nothing is filled up.
    some = cast(gen_ops.minimum(array.size(rows.values), 1), rows.row_splits.dtype)
    size = gen_ops.mul(size, array.stack([cast(1, size.dtype), some]))
    return concat([array.fill(size, left), rows, array.fill(size, right)], 1)


def _runs(rows: RaggedTensor, width: int, separator: str) -> RaggedTensor:
    kind = rows.row_splits.dtype
    counts = gen_ops.maximum(rows.row_lengths() - (width - 1), cast(0, kind))
    frame = frame_of(counts)
    first = gather.gather(rows.row_starts(), frame.value_rowids()) + places_in_rows(frame)
    places = array.expand_dims(first, 1) + range_of(cast(width, kind))
    return frame.with_values(_joined(gather.gather(rows.values, places), separator))


def _joined(matrix: Tensor, separator: str) -> Tensor:
    return strings.reduce_join(matrix, 1, separator=separator)


def _short(
    rows: RaggedTensor, made: RaggedTensor, left: Any, right: Any, padding: int, separator: str
) -> RaggedTensor:
    """One run, of the whole row, for each row that has none and is not empty."""
    from millrace.ops.ragged.joining import reduce_join_v2  # late: few ask for this

    none = gen_ops.equal(made.row_lengths(), 0)
    alone = gen_ops.logical_and(none, gen_ops.greater(rows.row_lengths(), 0))
    whole = reduce_join_v2(_padded(rows, left, right, padding), 1, separator=separator)
    kept = gather.where(alone)[:, 0]
    return RaggedTensor.from_row_lengths(
        gather.gather(whole, kept), cast(alone, rows.row_splits.dtype), validate=False
    )
