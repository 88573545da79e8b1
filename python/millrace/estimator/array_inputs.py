"""Input functions over arrays in memory."""

from typing import Any, Callable, Iterator

import numpy as np

from millrace.core import dtypes, errors
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.default_graph import get_default_graph
from millrace.ops.py_func import py_func


def _batches(
    size: int, batch_size: int, num_epochs: int | None, shuffle: bool, seed: int | None
) -> Iterator[np.ndarray]:
    """The numbers of the rows of each batch. A batch goes on into the next epoch; only the last may
    be smaller."""
    generator = np.random.default_rng(seed)
    rest = np.zeros([0], np.int64)
    epoch = 0
    while num_epochs is None or epoch < num_epochs:
        epoch += 1
        rows = generator.permutation(size) if shuffle else np.arange(size)
        rest = np.concatenate([rest, rows])
        while len(rest) >= batch_size:
            yield rest[:batch_size]
            rest = rest[batch_size:]
    if len(rest):
        yield rest


def tensors_of_arrays(
    arrays: list[np.ndarray], batch_size: int, num_epochs: int | None, shuffle: bool
) -> list[Tensor]:
    """A tensor for each array, with the rows of the next batch at every run; OutOfRangeError after
    the last."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1. Given: {batch_size}")
    seed = get_default_graph().seed
    batches = _batches(len(arrays[0]), batch_size, num_epochs, shuffle, seed)

    def next_batch() -> list[np.ndarray]:
        rows = next(batches, None)
        if rows is None:
            raise errors.OutOfRangeError(None, None, "the arrays have no more rows")
        return [array[rows] for array in arrays]

    types = [
        dtypes.string if array.dtype.kind in "OSU" else dtypes.as_dtype(array.dtype)
        for array in arrays
    ]
    tensors = py_func(next_batch, [], types, name="next_batch")
    for tensor, array in zip(tensors, arrays, strict=True):
        tensor.set_shape([None, *array.shape[1:]])
    return tensors


def _check_shuffle(shuffle: Any) -> None:
    if not isinstance(shuffle, bool):
        raise ValueError(
            "shuffle must be provided and explicitly set as boolean (it is recommended to set it "
            f"as True for training); got {shuffle}"
        )


def _check_lengths(arrays: dict[str, np.ndarray]) -> None:
    sizes = {name: len(array) for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            "Length of tensors in x and y is mismatched. All elements in x and y must have the "
            f"same length. Lengths: {sizes}"
        )
    if not next(iter(sizes.values())):
        raise ValueError("x has no rows.")


@export(v1="estimator.inputs.numpy_input_fn")
def numpy_input_fn(
    x: Any, y: Any = None, batch_size: int = 128, num_epochs: int | None = 1, shuffle: Any = None,
    queue_capacity: int = 1000, num_threads: int = 1,
) -> Callable[[], Any]:  # fmt: skip
    """An input function that gives batches of arrays.

    Args:
      x: {name: array} or an array: the features, which come in the same form.
      y: an array or {name: array} of labels, or None.
      batch_size, num_epochs: None epochs for no end.
      shuffle: whether the order of the rows is random, in every epoch another; must be given.
      queue_capacity, num_threads: batches are taken when they are needed, so these change nothing.
    """
    del queue_capacity, num_threads
    _check_shuffle(shuffle)

    def input_fn() -> Any:
        if not isinstance(x, (dict, np.ndarray)):
            raise TypeError(f"x must be a dict or array; got {type(x).__name__}")
        features = dict(x) if isinstance(x, dict) else {"__direct_np_input__": x}
        if not features:
            raise ValueError("x cannot be an empty dict")
        labels: dict[str, Any] = {}
        if isinstance(y, dict):
            if not y:
                raise ValueError("y cannot be empty dict, use None instead.")
            if set(y) & set(features):
                raise ValueError(
                    f"{sorted(set(y) & set(features))} keys are found in both x and y, which is "
                    "not allowed."
                )
            labels = y
        elif y is not None:
            labels = {"__target__": y}
        arrays = {name: np.asarray(array) for name, array in {**features, **labels}.items()}
        _check_lengths(arrays)
        tensors = dict(
            zip(
                arrays,
                tensors_of_arrays(list(arrays.values()), batch_size, num_epochs, shuffle),
                strict=True,
            )
        )
        inputs: Any = {name: tensors[name] for name in features}
        if not isinstance(x, dict):
            inputs = inputs["__direct_np_input__"]
        if y is None:
            return inputs
        targets: Any = {name: tensors[name] for name in labels}
        return inputs, (targets if isinstance(y, dict) else targets["__target__"])

    return input_fn


@export(v1="estimator.inputs.pandas_input_fn")
def pandas_input_fn(
    x: Any, y: Any = None, batch_size: int = 128, num_epochs: int | None = 1, shuffle: Any = None,
    queue_capacity: int = 1000, num_threads: int = 1, target_column: str = "target",
) -> Callable[[], Any]:  # fmt: skip
    """An input function that gives batches of the rows of a DataFrame `x`, and of labels `y`, a
    Series or DataFrame with the same index. See `numpy_input_fn`."""
    del queue_capacity, num_threads
    if not hasattr(x, "columns") or not hasattr(x, "index"):
        raise TypeError(f"x must be a pandas DataFrame; got {type(x).__name__}")
    _check_shuffle(shuffle)
    if not isinstance(target_column, str):
        raise TypeError("target_column must be a string type")
    if target_column in x.columns:
        raise ValueError(
            f"Cannot use name {target_column} for target column: DataFrame already has a column "
            "with that name."
        )
    if y is not None and not x.index.equals(y.index):
        raise ValueError("Index for x and y are mismatched.")

    def input_fn() -> Any:
        arrays = {name: x[name].to_numpy() for name in x.columns}
        names = list(arrays)
        several = y is not None and hasattr(y, "columns")
        if several:
            arrays.update({f"{target_column}_{name}": y[name].to_numpy() for name in y.columns})
        elif y is not None:
            arrays[target_column] = y.to_numpy()
        tensors = tensors_of_arrays(list(arrays.values()), batch_size, num_epochs, shuffle)
        features = dict(zip(names, tensors, strict=False))
        rest = tensors[len(names) :]
        if y is None:
            return features
        return features, (dict(zip(y.columns, rest, strict=True)) if several else rest[0])

    return input_fn
