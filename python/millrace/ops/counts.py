"""How often integers occur, in all of a tensor or in each of its rows."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies, name_scope
from millrace.graph.sparse import SparseTensor
from millrace.ops import check
from millrace.ops.array import reshape, size
from millrace.ops.math import cast
from millrace.ops.reduce import reduce_max


def _is_ragged(value: Any) -> bool:
    return hasattr(value, "row_splits")


class _Counted:
    """Numbers and their weights, which have one form."""

    def __init__(self, values: Any, weights: Any, binary_output: bool, axis: Any):
        if weights is not None and binary_output:
            raise ValueError(
                "Arguments `binary_output` and `weights` are mutually exclusive. Please specify "
                "only one."
            )
        if axis not in (0, -1, None):
            raise ValueError(
                f"Unsupported value for argument axis={axis}. Only 0 and -1 are currently "
                "supported."
            )
        self.form = "dense"
        if isinstance(values, SparseTensor):
            self.form = "sparse"
            _check_sparse(values, weights)
            self.parts = [values.indices, values.dense_shape]
            weights = None if weights is None else weights.values
            values = values.values
        elif _is_ragged(values):
            self.form = "ragged"
            _check_ragged(values, weights)
            self.parts = [values.row_splits]
            whole = axis != -1  # rows of rows are no rows of numbers
            weights = weights if weights is None else _elements(weights, whole)
            values = _elements(values, whole)
        elif isinstance(weights, SparseTensor) or _is_ragged(weights):
            raise ValueError(
                "Argument `weights` must be a tf.Tensor if `values` is a tf.Tensor. Received "
                f"weights={weights} of type: {type(weights).__name__}"
            )
        self.values = convert_to_tensor(values, name="values")
        if not self.values.dtype.is_integer:
            raise TypeError(f"integers are counted, got {self.values.dtype.name}")
        if self.values.dtype not in (dtypes.int32, dtypes.int64):
            self.values = cast(self.values, dtypes.int32)
        self.weights = None if weights is None else convert_to_tensor(weights, name="weights")
        if axis != -1:
            self.form = "dense"
            self.values = reshape(self.values, [-1])
            if self.weights is not None:
                self.weights = reshape(self.weights, [-1])


def _elements(ragged: Any, whole: bool) -> Any:
    return ragged.flat_values if whole else ragged.values


def _check_sparse(values: SparseTensor, weights: Any) -> None:
    if weights is None:
        return
    if not isinstance(weights, SparseTensor):
        raise ValueError(
            "Argument `weights` must be a SparseTensor if `values` is a SparseTensor. Received "
            f"weights={weights} of type: {type(weights).__name__}"
        )
    checks = [
        check.assert_equal(
            weights.dense_shape, values.dense_shape,
            message="'weights' and 'values' must have the same dense shape.",
        ),
        check.assert_equal(
            weights.indices, values.indices,
            message="'weights' and 'values' must have the same indices.",
        ),
    ]  # fmt: skip
    with control_dependencies([c for c in checks if c is not None]):
        gen_ops.identity(weights.values)


def _check_ragged(values: Any, weights: Any) -> None:
    if weights is None:
        return
    if not _is_ragged(weights):
        raise ValueError(
            "`weights` must be a RaggedTensor if `values` is a RaggedTensor. Received argument "
            f"weights={weights} of type: {type(weights).__name__}."
        )
    check.assert_equal(
        weights.row_splits, values.row_splits,
        message="'weights' and 'values' must have the same row splits.",
    )  # fmt: skip


def _size(values: Tensor, minlength: Any, maxlength: Any) -> Tensor:
    """How many numbers there are to count."""
    kind = values.dtype
    some = cast(gen_ops.greater(size(values), 0), kind)
    # The largest element of none is the least number of the type.
    length = some * (gen_ops.maximum(reduce_max(reshape(values, [-1])), -1) + 1)
    if minlength is not None:
        length = gen_ops.maximum(cast(convert_to_tensor(minlength), kind), length)
    if maxlength is not None:
        length = gen_ops.minimum(cast(convert_to_tensor(maxlength), kind), length)
    return length


@export(v2="math.bincount")
def bincount(
    arr: Any, weights: Any = None, minlength: Any = None, maxlength: Any = None,
    dtype: Any = dtypes.int32, name: str | None = None, axis: int | None = None,
    binary_output: bool = False,
) -> Tensor:  # fmt: skip
    """How often 0, 1, 2, ... occur in a dense, sparse or ragged tensor of non-negative integers.

    Args:
      weights: of the form and shape of `arr`: what each occurrence counts for.
      minlength, maxlength: bounds of the length of the result, which is max(arr) + 1 otherwise;
        values at or above `maxlength` are not counted.
      dtype: of the counts where there are no weights.
      axis: -1 counts in each row of a matrix; 0 and None in all of the tensor.
      binary_output: a number counts once, however often it occurs.
    """
    with name_scope(name, "bincount", [weights, minlength, maxlength]):
        given = _Counted(arr, weights, binary_output, axis)
        length = _size(given.values, minlength, maxlength)
        weights = given.weights
        if weights is None:
            weights = convert_to_tensor([], dtype=dtype)
        if given.form == "sparse":
            indices, shape = given.parts
            return gen_ops.sparse_bincount(
                indices, given.values, shape, length, weights, binary_output=binary_output
            )
        if given.form == "ragged":
            splits = cast(given.parts[0], dtypes.int64)
            return gen_ops.ragged_bincount(
                splits, given.values, length, weights, binary_output=binary_output
            )
        return gen_ops.dense_bincount(given.values, length, weights, binary_output=binary_output)


@export(v2="sparse.bincount")
def sparse_bincount(
    values: Any, weights: Any = None, axis: int | None = 0, minlength: int | None = None,
    maxlength: int | None = None, binary_output: bool = False, name: str | None = None,
) -> SparseTensor:  # fmt: skip
    """As `bincount`, a sparse tensor of the counts that are not zero: int64, or of the weights'
    type. With `maxlength` the result has that size."""
    with name_scope(name, "count", [weights]):
        given = _Counted(values, weights, binary_output, axis)
        weights = given.weights
        if weights is None:
            weights = convert_to_tensor([], dtype=dtypes.int64)
        limits = {
            "minlength": -1 if minlength is None else minlength,
            "maxlength": -1 if maxlength is None else maxlength,
            "binary_output": binary_output,
        }
        if given.form == "sparse":
            indices, shape = given.parts
            parts = gen_ops.sparse_count_sparse_output(
                indices, given.values, shape, weights, **limits
            )
        elif given.form == "ragged":
            splits = cast(given.parts[0], dtypes.int64)
            parts = gen_ops.ragged_count_sparse_output(splits, given.values, weights, **limits)
        else:
            parts = gen_ops.dense_count_sparse_output(given.values, weights, **limits)
        return SparseTensor(*parts)
