"""Datasets in folders: elements as records, and what they are."""

import os
from typing import Any, Callable

from millrace import _core, gen_ops, protos
from millrace.core import dtypes, errors
from millrace.core.export import export
from millrace.core.text import as_str, path_to_str
from millrace.data import structure
from millrace.data.dataset import Dataset
from millrace.data.reducers import assert_cardinality
from millrace.data.specs import leaves_of_spec
from millrace.data.structure import TensorLeaf
from millrace.graph import structured
from millrace.graph.convert import convert_to_tensor
from millrace.io import gfile
from millrace.io.records import TFRecordWriter

_SPEC, _COUNT = "dataset_spec.pb", "count"
_END = ".records"


@export(v1="data.experimental.save", v2="data.experimental.save")
def save(
    dataset: Dataset, path: Any, compression: str | None = None,
    shard_func: Callable[..., Any] | None = None,
) -> None:  # fmt: skip
    """Writes the elements of a dataset into a folder, for `load`.

    Args:
      compression: None or "GZIP".
      shard_func: from an element to the number of the file it goes into; one file by default.
        Outside of functions only.
    """
    folder = as_str(path_to_str(path))
    leaves = structure.flatten(dataset._spec)

    def record(*element: Any) -> Any:
        whole = element if isinstance(dataset._spec, tuple) else element[0]
        parts = structure.to_tensors(dataset._spec, whole)
        texts = [gen_ops.serialize_tensor(part) for part in parts]
        return gen_ops.serialize_tensor(gen_ops.pack(texts))

    if not leaves:
        raise ValueError("a dataset whose elements have no parts cannot be saved")
    spec = structured.encode(dataset.element_spec).SerializeToString()
    gfile.MakeDirs(folder)
    for name in gfile.ListDirectory(folder):
        if name.endswith(_END) or name in (_SPEC, _COUNT):
            gfile.Remove(os.path.join(folder, name))
    if shard_func is None:
        count = int(dataset.cardinality()) if _core.executing_eagerly() else -2
        gen_ops.dataset_to_tf_record(
            dataset.map(record)._variant_tensor, convert_to_tensor(_shard(folder, 0)),
            convert_to_tensor(compression or ""),
        )  # fmt: skip
    else:
        count = _write_shards(dataset, folder, compression, shard_func, record)
    if count >= 0:
        _core.write_file_atomically(os.path.join(folder, _COUNT), str(count).encode())
    _core.write_file_atomically(os.path.join(folder, _SPEC), spec)


def _shard(folder: str, number: int) -> str:
    return os.path.join(folder, f"{number:08d}{_END}")


def _write_shards(
    dataset: Dataset, folder: str, compression: str | None, shard_func: Any, record: Any
) -> int:
    if not _core.executing_eagerly():
        raise NotImplementedError("a dataset is saved in shards outside of functions only")
    writers: dict[int, TFRecordWriter] = {}
    count = 0
    try:
        pairs = dataset.map(lambda *element: (shard_func(*element), record(*element)))
        for number, text in pairs.as_numpy_iterator():
            if number not in writers:
                writers[int(number)] = TFRecordWriter(
                    _shard(folder, int(number)), compression or ""
                )
            writers[int(number)].write(text)
            count += 1
    finally:
        for writer in writers.values():
            writer.close()
    return count


@export(v1="data.experimental.load", v2="data.experimental.load")
def load(
    path: Any, element_spec: Any = None, compression: str | None = None,
    reader_func: Callable[[Dataset], Dataset] | None = None,
) -> Dataset:  # fmt: skip
    """The dataset that `save` wrote into a folder.

    Args:
      element_spec: what elements are; as they were saved by default.
      compression: as it was saved.
      reader_func: from a dataset of datasets, one for each file, to a dataset; elements of the
        files in turns by default.

    NotFoundError for a folder without one, DataLossError for one that is damaged.
    """
    folder = as_str(path_to_str(path))
    where = os.path.join(folder, _SPEC)
    if not gfile.Exists(where):
        raise errors.NotFoundError(
            None, None, f"no dataset was saved in {folder}: it has no {_SPEC}"
        )
    spec = leaves_of_spec(_read_spec(where) if element_spec is None else element_spec)
    files = sorted(name for name in gfile.ListDirectory(folder) if name.endswith(_END))
    text = TensorLeaf(dtypes.string, [])
    count = len(structure.flatten(spec))

    def element(record: Any) -> Any:
        texts = gen_ops.parse_tensor(record, out_type=dtypes.string)
        texts.set_shape([count])
        types = [leaf.component[0] for leaf in structure.flatten(spec)]
        parts = [gen_ops.parse_tensor(texts[i], out_type=t) for i, t in enumerate(types)]
        return structure.from_tensors(spec, parts)

    def records(name: Any) -> Dataset:
        names, packing = gen_ops.reshape(name, [1]), convert_to_tensor(compression or "")
        made = gen_ops.tf_record_dataset(names, packing, convert_to_tensor(0, dtypes.int64))
        return Dataset(made, text).map(element)

    names = Dataset.from_tensor_slices([os.path.join(folder, name) for name in files])
    if not files:
        return names.map(element)
    if reader_func is not None:
        return reader_func(names.map(records))
    made = names.interleave(records, len(files), 1)
    size = os.path.join(folder, _COUNT)
    if gfile.Exists(size):
        with gfile.GFile(size, "rb") as file:
            number = file.read()
        if not number.isdigit() or len(number) > 18:
            raise errors.DataLossError(None, None, f"{size}: expected a number, got {number!r:.40}")
        made = made.apply(assert_cardinality(int(number)))
    return made


def _read_spec(path: str) -> Any:
    def damaged(why: str) -> Exception:
        return errors.DataLossError(None, None, f"{path}: the spec of elements is damaged: {why}")

    with gfile.GFile(path, "rb") as file:
        content = file.read()
    try:
        message = protos.StructuredValue.FromString(content)
    except protos.DecodeError as error:
        raise damaged(f"it is no StructuredValue ({error})") from None
    return structured.decode(message, damaged)
