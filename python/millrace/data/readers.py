"""Datasets of what files hold."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.data import methods as methods  # which Dataset is complete with
from millrace.data.dataset import Dataset, int64
from millrace.data.structure import TensorLeaf
from millrace.graph.convert import convert_to_tensor


def _text(value: Any) -> Tensor:
    return convert_to_tensor("" if value is None else value, dtype=dtypes.string)


def _names(filenames: Any) -> Any:
    """The names as a vector, or a dataset of names as it is."""
    if isinstance(filenames, Dataset):
        return filenames
    return gen_ops.reshape(_text(filenames), [-1])


def _of_all(filenames: Any, make: Any, parallel: Any) -> Tensor:
    """What `make` gives for a vector of names; for a dataset of names, of one after the other, or
    of `parallel` in turns."""
    names = _names(filenames)
    if isinstance(names, Tensor) and parallel is None:
        return make(names)
    if isinstance(names, Tensor):
        names = Dataset.from_tensor_slices(names)
    leaf = TensorLeaf(dtypes.string, [])

    def open_one(name: Tensor) -> Dataset:
        return Dataset(make(gen_ops.reshape(name, [-1])), leaf)

    if parallel is None:
        return names.flat_map(open_one)._variant_tensor
    return names.interleave(open_one, parallel, 1, num_parallel_calls=parallel)._variant_tensor


class _FileDataset(Dataset):
    def __init__(self, variant: Tensor):
        super().__init__(variant, TensorLeaf(dtypes.string, []))


@export(v1=("data.TFRecordDataset", "contrib.data.TFRecordDataset"), v2="data.TFRecordDataset")
class TFRecordDataset(_FileDataset):
    """The records of TFRecord files.

    Args:
      filenames: a name, a vector of names, or a dataset of names.
      compression_type: "", "ZLIB" or "GZIP".
      buffer_size: how many bytes are read at once.
      num_parallel_reads: how many files are read at once, their records in turns; one after the
        other by default.
    """

    def __init__(
        self, filenames: Any, compression_type: Any = None, buffer_size: Any = None,
        num_parallel_reads: Any = None,
    ):  # fmt: skip
        def make(names: Tensor) -> Tensor:
            return gen_ops.tf_record_dataset(names, _text(compression_type), int64(buffer_size, 0))

        super().__init__(_of_all(filenames, make, num_parallel_reads))


@export(v1=("data.TextLineDataset", "contrib.data.TextLineDataset"), v2="data.TextLineDataset")
class TextLineDataset(_FileDataset):
    """The lines of text files, without their ends.

    Args:
      filenames: a name, a vector of names, or a dataset of names.
      compression_type: "", "ZLIB" or "GZIP".
      buffer_size: how many bytes are read at once.
      num_parallel_reads: how many files are read at once, their lines in turns.
    """

    def __init__(
        self, filenames: Any, compression_type: Any = None, buffer_size: Any = None,
        num_parallel_reads: Any = None,
    ):  # fmt: skip
        def make(names: Tensor) -> Tensor:
            return gen_ops.text_line_dataset(names, _text(compression_type), int64(buffer_size, 0))

        super().__init__(_of_all(filenames, make, num_parallel_reads))


@export(
    v1=("data.FixedLengthRecordDataset", "contrib.data.FixedLengthRecordDataset"),
    v2="data.FixedLengthRecordDataset",
)
class FixedLengthRecordDataset(_FileDataset):
    """Pieces of one length of files.

    Args:
      filenames: a name, a vector of names, or a dataset of names.
      record_bytes: the length of a piece.
      header_bytes: how many bytes before the first are left out, and
      footer_bytes: after the last.
      compression_type: "", "ZLIB" or "GZIP".
      num_parallel_reads: how many files are read at once, their pieces in turns.
    """

    def __init__(
        self, filenames: Any, record_bytes: Any, header_bytes: Any = None, footer_bytes: Any = None,
        buffer_size: Any = None, compression_type: Any = None, num_parallel_reads: Any = None,
    ):  # fmt: skip
        def make(names: Tensor) -> Tensor:
            return gen_ops.fixed_length_record_dataset_v2(
                names, int64(header_bytes, 0), int64(record_bytes), int64(footer_bytes, 0),
                int64(buffer_size, 0), _text(compression_type),
            )  # fmt: skip

        super().__init__(_of_all(filenames, make, num_parallel_reads))
