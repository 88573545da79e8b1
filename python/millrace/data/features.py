"""Datasets of Examples."""

from typing import Any

from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.data.dataset import AUTOTUNE, Dataset
from millrace.data.experimental import Transformation
from millrace.data.readers import TFRecordDataset
from millrace.io.parsing import parse_example


@export(
    v1=("data.experimental.parse_example_dataset", "contrib.data.parse_example_dataset"),
    v2="data.experimental.parse_example_dataset",
)
def parse_example_dataset(
    features: Any, num_parallel_calls: Any = 1, deterministic: bool | None = None
) -> Transformation:
    """Batches of serialized Examples as dictionaries of features, as `tf.parse_example` gives."""

    def parse(serialized: Tensor) -> Any:
        return parse_example(serialized, features)

    return lambda dataset: dataset.map(parse, num_parallel_calls, deterministic)


@export(
    v1=(
        "data.experimental.make_batched_features_dataset",
        "contrib.data.make_batched_features_dataset",
    ),
    v2="data.experimental.make_batched_features_dataset",
)
def make_batched_features_dataset(
    file_pattern: Any, batch_size: Any, features: Any, reader: Any = TFRecordDataset,
    label_key: str | None = None, reader_args: Any = None, num_epochs: Any = None,
    shuffle: bool = True, shuffle_buffer_size: Any = 10000, shuffle_seed: Any = None,
    prefetch_buffer_size: Any = AUTOTUNE, reader_num_threads: Any = 1, parser_num_threads: Any = 2,
    sloppy_ordering: bool = False, drop_final_batch: bool = False,
) -> Dataset:  # fmt: skip
    """Batches of features of the Examples in files.

    Args:
      file_pattern: a pattern, or a list of them.
      features: as for `tf.parse_example`.
      reader: makes a dataset of a file's name and `reader_args`.
      label_key: the feature that is given beside the others.
      num_epochs: how often; without end by default.
      reader_num_threads: how many files are read at once.
    """
    del sloppy_ordering  # elements come in order
    names = Dataset.list_files(file_pattern, shuffle, shuffle_seed)
    examples = names.interleave(
        lambda name: reader(name, *(reader_args or ())), reader_num_threads, 1,
        num_parallel_calls=reader_num_threads,
    )  # fmt: skip
    if shuffle:
        examples = examples.shuffle(shuffle_buffer_size, shuffle_seed)
    examples = examples.repeat(num_epochs)
    batches = examples.batch(batch_size, drop_remainder=drop_final_batch or num_epochs is None)
    parsed = batches.apply(parse_example_dataset(features, parser_num_threads))
    if label_key is not None:
        if label_key not in features:
            raise ValueError(
                f"The `label_key` provided ({label_key!r}) must be one of the `features` keys."
            )

        def split(columns: Any) -> Any:
            return {k: v for k, v in columns.items() if k != label_key}, columns[label_key]

        parsed = parsed.map(split)
    return parsed.prefetch(prefetch_buffer_size)
