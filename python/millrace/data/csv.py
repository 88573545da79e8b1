"""Datasets of CSV files."""

import csv
import gzip
import zlib
from typing import Any

from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.data.dataset import Dataset
from millrace.data.experimental import ignore_errors as without_errors
from millrace.data.readers import TextLineDataset
from millrace.graph.convert import convert_to_tensor
from millrace.io import gfile
from millrace.io.decoding import decode_csv

# What a column is taken for, in this order.
_KINDS: tuple[tuple[dtypes.DType, Any], ...] = (
    (dtypes.int32, int), (dtypes.int64, int), (dtypes.float32, float), (dtypes.float64, float),
)  # fmt: skip


@export(
    v1=("data.experimental.CsvDataset", "contrib.data.CsvDataset"),
    v2="data.experimental.CsvDataset",
)
class CsvDataset(Dataset):
    """The records of CSV files, each a tuple of fields.

    A record is a line: quoted fields may not hold ends of lines.

    Args:
      filenames: a name, a vector of names, or a dataset of names.
      record_defaults: for each field its type, where it is required, or what an empty one means.
      compression_type: "", "ZLIB" or "GZIP".
      header: whether the first line of each file is left out.
      select_cols: the columns to take, in increasing order; all by default.
    """

    def __init__(
        self, filenames: Any, record_defaults: Any, compression_type: Any = None,
        buffer_size: Any = None, header: bool = False, field_delim: str = ",",
        use_quote_delim: bool = True, na_value: str = "", select_cols: Any = None,
    ):  # fmt: skip
        defaults = [_default(value) for value in record_defaults]

        def records(name: Tensor) -> Dataset:
            lines = TextLineDataset(name, compression_type, buffer_size)
            return lines.skip(1) if header else lines

        if not isinstance(filenames, Dataset) and not header:
            lines: Dataset = TextLineDataset(filenames, compression_type, buffer_size)
        else:
            names = filenames
            if not isinstance(names, Dataset):
                given = convert_to_tensor(filenames, dtype=dtypes.string)
                many = given.shape.rank == 1
                names = (Dataset.from_tensor_slices if many else Dataset.from_tensors)(given)
            lines = names.flat_map(records)

        def fields(line: Tensor) -> tuple[Tensor, ...]:
            made = decode_csv(
                line, defaults, field_delim, use_quote_delim, None, na_value, select_cols
            )
            return tuple(made)

        rows = lines.map(fields)
        super().__init__(rows._variant_tensor, rows._spec)


def _default(value: Any) -> Tensor:
    if isinstance(value, dtypes.DType):
        return convert_to_tensor([], dtype=value)
    made = convert_to_tensor(value)
    return made if made.shape.rank else convert_to_tensor([value], dtype=made.dtype)


@export(
    v1=("data.experimental.make_csv_dataset", "contrib.data.make_csv_dataset"),
    v2="data.experimental.make_csv_dataset",
)
def make_csv_dataset(
    file_pattern: Any, batch_size: int, column_names: Any = None, column_defaults: Any = None,
    label_name: str | None = None, select_columns: Any = None, field_delim: str = ",",
    use_quote_delim: bool = True, na_value: str = "", header: bool = True,
    num_epochs: int | None = None, shuffle: bool = True, shuffle_buffer_size: int = 10000,
    shuffle_seed: Any = None, prefetch_buffer_size: Any = None, num_parallel_reads: int = 1,
    sloppy: bool = False, num_rows_for_inference: int | None = 100,
    compression_type: Any = None, ignore_errors: bool = False,
) -> Dataset:  # fmt: skip
    """Batches of the records of CSV files: a dictionary of columns by name, and the label's column
    where `label_name` says which that is.

    Args:
      file_pattern: a pattern, or a list of them.
      column_names: by default those of the first file's first line.
      column_defaults: as for CsvDataset; by default types are guessed from the first rows.
      select_columns: names or numbers of the columns to take.
      num_epochs: how often; without end by default.
    """
    del num_parallel_reads, sloppy
    patterns = file_pattern if isinstance(file_pattern, (list, tuple)) else [file_pattern]
    files = sorted(name for pattern in patterns for name in gfile.Glob(pattern))
    if not files:
        raise ValueError(f"No files match {file_pattern!r}.")
    rows: list[list[str]] = []
    if column_names is None or column_defaults is None:
        text = _text(files[0], compression_type)
        rows = _first_rows(text, field_delim, use_quote_delim, num_rows_for_inference, header)
    if column_names is None:
        if not header:
            raise ValueError("Cannot infer column names without a header line.")
        column_names = rows[0]
    if len(set(column_names)) != len(column_names):
        raise ValueError("Cannot have duplicate column names.")
    chosen = _selected(select_columns, column_names)
    if column_defaults is None:
        body = rows[1:] if header else rows
        for row in body:
            if len(row) != len(column_names):
                raise ValueError(
                    "Problem inferring types: CSV row has different number of fields than "
                    f"expected, {len(row)} and not {len(column_names)}: {row!r:.100}"
                )
        column_defaults = [_guess([row[i] for row in body], na_value) for i in chosen]
    names = [column_names[i] for i in chosen]
    if label_name is not None and label_name not in names:
        raise ValueError("`label_name` provided must be one of the columns.")
    dataset: Dataset = Dataset.from_tensor_slices(files)
    if shuffle:
        dataset = dataset.shuffle(len(files), shuffle_seed)
    dataset = CsvDataset(
        dataset, column_defaults, compression_type, header=header, field_delim=field_delim,
        use_quote_delim=use_quote_delim, na_value=na_value,
        select_cols=None if select_columns is None else chosen,
    )  # fmt: skip
    if ignore_errors:
        dataset = dataset.apply(without_errors())
    if shuffle:
        dataset = dataset.shuffle(shuffle_buffer_size, shuffle_seed)
    dataset = dataset.repeat(num_epochs)

    def named(*columns: Tensor) -> Any:
        by_name = dict(zip(names, columns, strict=True))
        if label_name is None:
            return by_name
        label = by_name.pop(label_name)
        return by_name, label

    dataset = dataset.batch(batch_size, drop_remainder=num_epochs is None).map(named)
    return dataset.prefetch(1 if prefetch_buffer_size is None else prefetch_buffer_size)


def _text(name: str, compression: Any) -> Any:
    """A file, opened as text. ValueError for a compression that cannot be read line by line."""
    if not compression:
        return gfile.GFile(name)
    if compression != "GZIP":
        raise ValueError(
            f"compression_type {compression} is not supported for probing columns: give "
            "`column_names` and `column_defaults`."
        )
    return gzip.open(gfile.GFile(name, "rb"), "rt", newline="")


def _first_rows(
    text: Any, delimiter: str, quotes: bool, count: int | None, header: bool
) -> list[list[str]]:
    with text as file:
        name = file.name
        quoting = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
        rows = []
        try:
            for row in csv.reader(file, delimiter=delimiter, quoting=quoting):
                rows.append(row)
                if count is not None and len(rows) >= count + int(header):
                    break
        except (csv.Error, EOFError, OSError, UnicodeDecodeError, zlib.error) as error:
            raise ValueError(f"The CSV file {name!r} cannot be read: {error}") from None
    if not rows:
        raise ValueError(f"The CSV file {name!r} is empty.")
    return rows


def _selected(columns: Any, names: Any) -> list[int]:
    if columns is None:
        return list(range(len(names)))
    numbers = [c if isinstance(c, int) else list(names).index(c) for c in columns]
    if len(set(numbers)) != len(numbers):
        raise ValueError("Cannot have duplicate columns in `select_columns`.")
    return sorted(numbers)


def _guess(values: list[str], na_value: str) -> Any:
    """What an empty field of a column means, and with it the column's type."""
    for dtype, kind in _KINDS:
        try:
            numbers = [kind(value) for value in values if value not in ("", na_value)]
        except ValueError:
            continue
        limit = dtype.max
        if all(abs(number) <= limit for number in numbers):
            return convert_to_tensor([0], dtype=dtype)
    return convert_to_tensor([""], dtype=dtypes.string)
