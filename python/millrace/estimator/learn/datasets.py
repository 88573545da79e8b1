"""The data sets of `tf.contrib.learn`, which are read from files that are there."""

import csv
from collections import namedtuple
from typing import Any

import numpy as np

from millrace.compat.tensorflow.mnist import load_mnist
from millrace.core.export import export
from millrace.io import gfile

Dataset = export(v1="contrib.learn.datasets.base.Dataset")(
    namedtuple("Dataset", ["data", "target"])
)


def _rows(filename: Any) -> list[list[str]]:
    with gfile.GFile(filename) as file:
        return [row for row in csv.reader(file.read().splitlines()) if row]


def _dataset(
    rows: list[list[str]], target_dtype: Any, features_dtype: Any, target_column: int
) -> Dataset:
    targets = [row.pop(target_column) for row in rows]
    return Dataset(np.array(rows, features_dtype), np.array(targets, target_dtype))


@export(v1=("contrib.learn.datasets.base.load_csv_with_header",
            "contrib.learn.datasets.load_csv_with_header"))  # fmt: skip
def load_csv_with_header(
    filename: Any, target_dtype: Any, features_dtype: Any, target_column: int = -1
) -> Dataset:
    """The rows of a CSV file whose first line has the number of rows and of features, as arrays."""
    header, *rows = _rows(filename)
    samples, features = int(header[0]), int(header[1])
    out = _dataset(rows[:samples], target_dtype, features_dtype, target_column)
    if out.data.shape != (samples, features):
        raise ValueError(
            f"'{filename}' says that it has {samples} rows of {features} features, and has "
            f"{out.data.shape}."
        )
    return out


@export(v1=("contrib.learn.datasets.base.load_csv_without_header",
            "contrib.learn.datasets.load_csv_without_header"))  # fmt: skip
def load_csv_without_header(
    filename: Any, target_dtype: Any, features_dtype: Any, target_column: int = -1
) -> Dataset:
    """The rows of a CSV file as arrays."""
    return _dataset(_rows(filename), target_dtype, features_dtype, target_column)


@export(v1="contrib.learn.datasets.load_dataset")
def load_dataset(name: str, size: str = "small", test_with_fake_data: bool = False) -> Any:
    """The digits of the folder "MNIST-data", for "mnist". ValueError for other names: their data is
    not part of Millrace."""
    del size, test_with_fake_data
    if name != "mnist":
        raise ValueError(f"The data set '{name}' is not there; 'mnist' is.")
    return load_mnist()
