"""The MNIST digits, as the tutorials of TensorFlow 1.x read them.

Stands for `tensorflow.examples.tutorials.mnist.input_data`. Nothing is downloaded: the four files
of the set must lie in the folder that is named.
"""

from __future__ import annotations

import gzip
import os
from typing import Any, NamedTuple

import numpy as np

_FILES = {
    "train images": "train-images-idx3-ubyte",
    "train labels": "train-labels-idx1-ubyte",
    "test images": "t10k-images-idx3-ubyte",
    "test labels": "t10k-labels-idx1-ubyte",
}


def _find(folder: str) -> dict[str, str]:
    """The paths of the four files, packed or not; FileNotFoundError names those missing."""
    found, missing = {}, []
    for part, name in _FILES.items():
        paths = [os.path.join(folder, name + end) for end in (".gz", "")]
        path = next((path for path in paths if os.path.exists(path)), None)
        if path is None:
            missing.append(name + ".gz")
        else:
            found[part] = path
    if missing:
        raise FileNotFoundError(
            f"MNIST: '{folder}' lacks {', '.join(missing)}. Nothing is downloaded here: get the "
            "four idx files of MNIST (train-images, train-labels, t10k-images, t10k-labels) and "
            "put them into that folder, packed with gzip or not"
        )
    return found


def _read(path: str, rank: int) -> np.ndarray:
    """The array of unsigned bytes in an idx file; ValueError where it is none of that rank."""
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rb") as file:
        data = file.read()
    start = 4 * (1 + rank)
    if len(data) < start or int.from_bytes(data[:4], "big") != 0x800 + rank:
        raise ValueError(f"'{path}' is not an idx file of {rank} dimensions of bytes")
    shape = [int.from_bytes(data[i : i + 4], "big") for i in range(4, start, 4)]
    values = np.frombuffer(data, np.uint8, offset=start)
    count = 1
    for size in shape:
        count *= size
    if len(values) != count:
        raise ValueError(f"'{path}' should hold {count} values, but holds {len(values)}")
    return values.reshape(shape)


def extract_images(f: Any) -> np.ndarray:
    """The images in an idx file, of shape [count, rows, columns, 1]."""
    return _read(f if isinstance(f, str) else f.name, 3)[..., np.newaxis]


def extract_labels(f: Any, one_hot: bool = False, num_classes: int = 10) -> np.ndarray:
    """The labels in an idx file, as numbers or as rows with a single one."""
    labels = _read(f if isinstance(f, str) else f.name, 1)
    return dense_to_one_hot(labels, num_classes) if one_hot else labels


def dense_to_one_hot(labels_dense: np.ndarray, num_classes: int) -> np.ndarray:
    """Rows of `num_classes` zeros with a one at each label."""
    return np.eye(num_classes)[labels_dense]


class DataSet:
    """Images with their labels, handed out in batches."""

    def __init__(
        self,
        images: np.ndarray | None,
        labels: np.ndarray | None,
        fake_data: bool = False,
        one_hot: bool = False,
        dtype: Any = np.float32,
        reshape: bool = True,
        seed: int | None = None,
    ) -> None:
        """Takes images of shape [count, rows, columns, 1].

        With `reshape` they become rows. As float32 their values lie between 0 and 1, as uint8
        they stay as they are. `fake_data` makes up images that are all ones.
        """
        dtype = np.dtype(getattr(dtype, "as_numpy_dtype", dtype))
        if dtype not in (np.dtype(np.uint8), np.dtype(np.float32)):
            raise TypeError(f"Invalid image dtype {dtype}, expected uint8 or float32")
        self._random = np.random.RandomState(seed)
        self._fake = fake_data
        if fake_data or images is None or labels is None:
            images = np.ones((10000, 784), dtype)
            labels = np.zeros(10000, np.uint8)
            self._images = images
            self._labels = dense_to_one_hot(labels, 10) if one_hot else labels
        else:
            if len(images) != len(labels):
                raise ValueError(f"{len(images)} images, but {len(labels)} labels")
            self._images = images.reshape(len(images), -1) if reshape else images
            self._labels = labels
            if dtype == np.float32:
                self._images = self._images.astype(np.float32) / np.float32(255)
        self._order = np.arange(len(self._images))
        self._epochs = 0
        self._next = 0

    @property
    def images(self) -> np.ndarray:
        """All images."""
        return self._images

    @property
    def labels(self) -> np.ndarray:
        """All labels."""
        return self._labels

    @property
    def num_examples(self) -> int:
        """How many images there are."""
        return len(self._images)

    @property
    def epochs_completed(self) -> int:
        """How often all images have been handed out."""
        return self._epochs

    def next_batch(
        self, batch_size: int, fake_data: bool = False, shuffle: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """The next `batch_size` images and labels; a new round starts where the last one ends.

        Each round comes in a new order with `shuffle`.
        """
        if fake_data and not self._fake:
            made = DataSet(None, None, True, self._labels.ndim > 1, self._images.dtype)
            return made._images[:batch_size], made._labels[:batch_size]
        if batch_size > self.num_examples:
            raise ValueError(f"a batch of {batch_size}, but there are {self.num_examples} images")
        if shuffle and self._next == 0 and self._epochs == 0:
            self._random.shuffle(self._order)
        chosen = self._order[self._next : self._next + batch_size]
        self._next += batch_size
        if self._next > self.num_examples:
            self._epochs += 1
            if shuffle:
                self._random.shuffle(self._order)
            self._next = batch_size - len(chosen)
            chosen = np.concatenate([chosen, self._order[: self._next]])
        return self._images[chosen], self._labels[chosen]


class Datasets(NamedTuple):
    """The parts of a set."""

    train: DataSet
    validation: DataSet
    test: DataSet


def read_data_sets(
    train_dir: str,
    fake_data: bool = False,
    one_hot: bool = False,
    dtype: Any = np.float32,
    reshape: bool = True,
    validation_size: int = 5000,
    seed: int | None = None,
    source_url: str | None = None,
) -> Datasets:
    """The digits in the folder `train_dir`: train, validation and test.

    The first `validation_size` images of the training files are for validation. Raises
    FileNotFoundError, with the names of the files, where they are not there.
    """
    del source_url

    def make(images: Any, labels: Any) -> DataSet:
        return DataSet(images, labels, fake_data, one_hot, dtype, reshape, seed)

    if fake_data:
        return Datasets(make(None, None), make(None, None), make(None, None))
    files = _find(train_dir)
    images = extract_images(files["train images"])
    labels = extract_labels(files["train labels"], one_hot)
    if not 0 <= validation_size <= len(images):
        raise ValueError(
            f"Validation size should be between 0 and {len(images)}. Received: {validation_size}."
        )
    return Datasets(
        train=make(images[validation_size:], labels[validation_size:]),
        validation=make(images[:validation_size], labels[:validation_size]),
        test=make(
            extract_images(files["test images"]), extract_labels(files["test labels"], one_hot)
        ),
    )


def load_mnist(train_dir: str = "MNIST-data") -> Datasets:
    """`read_data_sets` of the folder that TensorFlow's own tutorials use."""
    return read_data_sets(train_dir)
