"""Taking tensors apart by their values: masks, partitions, unique elements."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import IndexedSlices, SparseTensor, SparseTensorValue
from millrace.graph.static_value import constant_value
from millrace.ops import array, gather

dynamic_partition = export(v1="dynamic_partition", v2="dynamic_partition")(
    gen_ops.dynamic_partition
)
dynamic_stitch = export(v1=("dynamic_stitch", "parallel_stitch"), v2="dynamic_stitch")(
    gen_ops.dynamic_stitch
)
invert_permutation = export(
    v1=("invert_permutation", "math.invert_permutation"), v2="math.invert_permutation"
)(gen_ops.invert_permutation)


@export(v1="boolean_mask")
def boolean_mask(
    tensor: Any, mask: Any, name: str | None = "boolean_mask", axis: Any = None
) -> Tensor:
    """The parts of `tensor` for which `mask` holds, one after another.

    The mask has the sizes of the dimensions of the tensor from `axis` (0) on. ValueError when it is
    a scalar, of unknown rank, or does not fit.
    """
    with name_scope(name, "boolean_mask", [tensor, mask]):
        tensor = convert_to_tensor(tensor, name="tensor")
        mask = convert_to_tensor(mask, name="mask")
        count = mask.shape.ndims
        if count == 0:
            raise ValueError("mask cannot be scalar.")
        if count is None:
            raise ValueError(
                "Number of mask dimensions must be specified, even if some dimensions are None.  "
                "E.g. shape=[None] is ok, but shape=None is not."
            )
        axis = 0 if axis is None else axis
        at = constant_value(axis)
        if at is None:
            raise ValueError("boolean_mask: the axis must be known before the graph runs")
        at = int(at)
        if at < 0:
            at += tensor.shape.with_rank_at_least(1).ndims
        end = at + count
        if tensor.shape.ndims is not None:
            masked = tensor.shape[at:end]
            if not masked.is_compatible_with(mask.shape):
                raise ValueError(
                    f"Shapes {masked} and {mask.shape} are incompatible: the mask "
                    f"'{label_of(mask)}' "
                    f"must fit the dimensions of '{label_of(tensor)}' {tensor.shape} from {at} on"
                )
        dims = array.shape(tensor)
        if count > 1:
            joined = gen_ops.prod(dims[at:end], [0])
            flat = array.reshape(tensor, array.concat([dims[:at], [joined], dims[end:]], 0))
            if tensor.shape.ndims is not None:
                whole = tensor.shape[at:end].num_elements()
                flat.set_shape(
                    tensor.shape[:at].concatenate([whole]).concatenate(tensor.shape[end:])
                )
            tensor, mask = flat, array.reshape(mask, [-1])
        places = array.squeeze(gen_ops.where(mask), axis=[1])
        return gather.gather(tensor, places, axis=at)


boolean_mask_v2 = export(v2="boolean_mask")(reordered(boolean_mask, "tensor mask axis name"))


@export(v1="unique", v2="unique")
def unique(x: Any, out_idx: Any = dtypes.int32, name: str | None = None) -> Any:
    """(y, idx): the different elements of a vector, in the order in which they come first, and for
    each element of x its place in y."""
    return gen_ops.unique(x, out_idx, name=name)


@export(v1="unique_with_counts", v2="unique_with_counts")
def unique_with_counts(x: Any, out_idx: Any = dtypes.int32, name: str | None = None) -> Any:
    """(y, idx, count): as `unique`, and how often each element comes."""
    return gen_ops.unique_with_counts(x, out_idx, name=name)


@export(v1="setdiff1d")
def setdiff1d(x: Any, y: Any, index_dtype: Any = dtypes.int32, name: str | None = None) -> Any:
    """(out, idx): the elements of vector x that are not in y, in their order, and their places."""
    return gen_ops.list_diff(x, y, index_dtype, name=name)


listdiff = export(v1="listdiff")(setdiff1d)


@export(v1=("sparse_mask", "sparse.mask"), v2="sparse.mask")
def sparse_mask(a: IndexedSlices, mask_indices: Any, name: str | None = None) -> IndexedSlices:
    """The slices of `a` whose indices are not among `mask_indices`."""
    if not isinstance(a, IndexedSlices):
        raise TypeError(f"expected IndexedSlices, got {type(a).__name__}")
    with name_scope(name, "sparse_mask", [a.values, mask_indices]) as scope:
        out_indices, kept = setdiff1d(a.indices, mask_indices)
        values = gen_ops.gather(a.values, kept, name=scope)
        return IndexedSlices(values, out_indices, a.dense_shape)


def _sparse_argument(value: Any, name: str) -> SparseTensor:
    if not isinstance(value, (SparseTensor, SparseTensorValue)):
        raise TypeError(f"{name} must be a SparseTensor, got {type(value).__name__}")
    return SparseTensor.from_value(value)


@export(v1="edit_distance", v2="edit_distance")
def edit_distance(
    hypothesis: Any, truth: Any, normalize: bool = True, name: str | None = "edit_distance"
) -> Tensor:
    """The Levenshtein distance between the sequences of two sparse tensors.

    The last dimension is the sequences'. `normalize`: divide by the length of the truth. TypeError
    when an argument is not sparse.
    """
    hypothesis = _sparse_argument(hypothesis, "Hypothesis")
    truth = _sparse_argument(truth, "Truth")
    return gen_ops.edit_distance(
        hypothesis.indices, hypothesis.values, hypothesis.dense_shape, truth.indices, truth.values,
        truth.dense_shape, normalize=normalize, name=name,
    )  # fmt: skip


@export(v1=("scatter_nd", "manip.scatter_nd"), v2="scatter_nd")
def scatter_nd(indices: Any, updates: Any, shape: Any, name: str | None = None) -> Tensor:
    """Zeros of `shape`, with the updates added at the places that the rows of `indices` name."""
    return gen_ops.scatter_nd(indices, updates, shape, name=name)


@export(v1=("tensor_scatter_nd_update", "tensor_scatter_update"), v2="tensor_scatter_nd_update")
def tensor_scatter_nd_update(
    tensor: Any, indices: Any, updates: Any, name: str | None = None
) -> Tensor:
    """The tensor with `updates` at the places that the rows of `indices` name."""
    return gen_ops.tensor_scatter_update(tensor, indices, updates, name=name)


@export(v1=("tensor_scatter_nd_add", "tensor_scatter_add"), v2="tensor_scatter_nd_add")
def tensor_scatter_nd_add(
    tensor: Any, indices: Any, updates: Any, name: str | None = None
) -> Tensor:
    """The tensor with `updates` added at the places that the rows of `indices` name."""
    return gen_ops.tensor_scatter_add(tensor, indices, updates, name=name)


@export(v1=("tensor_scatter_nd_sub", "tensor_scatter_sub"), v2="tensor_scatter_nd_sub")
def tensor_scatter_nd_sub(
    tensor: Any, indices: Any, updates: Any, name: str | None = None
) -> Tensor:
    """The tensor with `updates` taken away at the places that the rows of `indices` name."""
    return gen_ops.tensor_scatter_sub(tensor, indices, updates, name=name)
