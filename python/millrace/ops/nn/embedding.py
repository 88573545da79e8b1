"""Looking rows up in tables, whole or in shards."""

from typing import Any, Callable

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import colocate_with, name_scope
from millrace.graph.sparse import SparseTensor
from millrace.graph.static_value import constant_value
from millrace.ops import along, array, clip, gather, math, reduce
from millrace.ops.sparse import arrange


def shards(params: Any) -> list[Any]:
    """The table as a list of shards. ValueError when there are none."""
    if hasattr(params, "_get_variable_list"):  # a PartitionedVariable
        params = params._get_variable_list()
    if not isinstance(params, (list, tuple)):
        params = [params]
    if any(p is None for p in params) or not len(params):
        raise ValueError("params: Need at least one param, got none to look ids up in")
    return list(params)


def _rank(x: Tensor) -> tuple[Any, bool]:
    known = x.shape.ndims
    return (array.rank(x), False) if known is None else (known, True)


def _clip(rows: Tensor, ids: Tensor, max_norm: Any) -> Tensor:
    """Rows longer than max_norm, shortened to it. `ids` says how many dimensions count rows."""
    if max_norm is None:
        return rows
    ids_rank, ids_known = _rank(ids)
    rows_rank, rows_known = _rank(rows)
    if ids_known and rows_known:
        axes = list(range(ids_rank, rows_rank))
    else:
        axes = along.range(ids_rank, rows_rank)
    return clip.clip_by_norm(rows, max_norm, axes=axes)


def _row_shape(params: list[Any]) -> Any:
    """The shape of one row, as far as all shards know it."""
    shape = params[0].shape[1:]
    for p in params[1:]:
        shape = shape.merge_with(p.shape[1:])
    return shape


def _partition(params: list[Any], ids: Tensor, strategy: str) -> tuple[Tensor, Tensor]:
    """Which shard each id lives in, and where in it."""
    count = len(params)
    if strategy == "mod":
        return ids % count, ids // count
    if strategy != "div":
        raise ValueError(f'Unrecognized partition strategy: {strategy}: expected "mod" or "div"')
    sizes = []
    for p in params:
        known = p.shape._size_at(0) if p.shape.ndims else None
        if known is None:
            with colocate_with(p):
                sizes.append(math.cast(array.shape(p)[0], ids.dtype))
        else:
            sizes.append(known)
    if all(isinstance(s, int) for s in sizes):
        total = convert_to_tensor(sum(sizes), dtype=ids.dtype)
    else:
        total = reduce.reduce_sum(
            array.stack([convert_to_tensor(s, dtype=ids.dtype) for s in sizes])
        )
    # The first `extras` shards hold one row more than the others.
    each, extras = total // count, total % count
    shard = math.maximum(ids // (each + 1), (ids - extras) // each)
    in_first = shard < extras
    place = gather.where(in_first, ids % (each + 1), (ids - extras) % each)
    return shard, place


def lookup(
    params: Any, ids: Any, partition_strategy: str = "mod", name: str | None = None,
    max_norm: Any = None, transform: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:  # fmt: skip
    """The rows of `params` at `ids`; `transform` is applied to the rows of each shard where they
    are."""
    params = shards(params)
    with name_scope(name, "embedding_lookup", [*params, ids]) as scope:
        count = len(params)
        params = [_table(p) for p in params]
        ids = convert_to_tensor(ids, name="ids")
        if count == 1 and (transform is None or ids.shape.ndims == 1):
            with colocate_with(params[0]):
                rows = _clip(gather.gather(params[0], ids, name=scope), ids, max_norm)
                if transform is not None:
                    rows = transform(rows)
            # The copy may live elsewhere than the table.
            return array.identity(rows)
        flat = array.reshape(ids, [-1])
        shard, place = _partition(params, flat, partition_strategy)
        shard = math.cast(shard, dtypes.int32)
        gathers = gen_ops.dynamic_partition(place, shard, count)
        positions = gen_ops.dynamic_partition(along.range(array.size(flat)), shard, count)
        parts = []
        for p, wanted in zip(params, gathers, strict=True):
            with colocate_with(p):
                rows = gather.gather(p, wanted)
                if transform is not None:
                    rows = transform(_clip(rows, wanted, max_norm))
                parts.append(rows)
        result = gen_ops.dynamic_stitch(positions, parts, name=scope)
        if transform is None:
            row = _row_shape(params)
            if row.is_fully_defined():
                inner: Any = row.as_list()
            else:
                with colocate_with(params[0]):
                    inner = array.shape(params[0])[1:]
            result = array.reshape(result, array.concat([array.shape(ids), inner], 0))
            result.set_shape(ids.shape.concatenate(row))
            return _clip(result, ids, max_norm)
        row = parts[0].shape[1:]
        for part in parts[1:]:
            row = row.merge_with(part.shape[1:])
        inner = array.shape(result)[1:]
        result = array.reshape(result, array.concat([array.shape(ids), inner], 0))
        result.set_shape(ids.shape.concatenate(row))
        return result


def _table(param: Any) -> Any:
    """A shard that `gather` takes: variables as they are, so that they are not read whole."""
    if hasattr(param, "sparse_read") or hasattr(param, "_as_graph_element"):
        return param
    return convert_to_tensor(param, name="params")


@export(v1="nn.embedding_lookup")
def embedding_lookup(
    params: Any, ids: Any, partition_strategy: str = "mod", name: str | None = None,
    validate_indices: bool = True, max_norm: Any = None,
) -> Tensor:  # fmt: skip
    """The rows of a table at `ids`; the result has the shape of the ids, then that of a row.

    Args:
      params: a table, a partitioned variable, or a list of the shards of a table.
      partition_strategy: "mod" (id i is in shard i % n) or "div" (shards hold ranges of ids).
      max_norm: rows are shortened to this norm.

    Errors: ValueError for no shards or an unknown strategy.
    """
    del validate_indices
    return lookup(params, ids, partition_strategy, name, max_norm)


embedding_lookup_v2 = export(v2="nn.embedding_lookup")(
    reordered(embedding_lookup, "params ids max_norm name")
)


def _check_sparse(sp_ids: Any, sp_weights: Any) -> None:
    if not isinstance(sp_ids, SparseTensor):
        raise TypeError(f"sp_ids must be SparseTensor, got {type(sp_ids).__name__}: {sp_ids}")
    if sp_weights is None:
        return
    if not isinstance(sp_weights, SparseTensor):
        raise TypeError(
            f"sp_weights must be either None or SparseTensor, got {type(sp_weights).__name__}"
        )
    for ids, weights in (
        (sp_ids.values, sp_weights.values),
        (sp_ids.indices, sp_weights.indices),
        (sp_ids.dense_shape, sp_weights.dense_shape),
    ):
        ids.shape.assert_is_compatible_with(weights.shape)


@export(v1="nn.embedding_lookup_sparse")
def embedding_lookup_sparse(
    params: Any, sp_ids: Any, sp_weights: Any, partition_strategy: str = "mod",
    name: str | None = None, combiner: str | None = None, max_norm: Any = None,
) -> Tensor:  # fmt: skip
    """The rows that each row of the sparse `sp_ids` names, combined into one.

    Args:
      params: as for `embedding_lookup`.
      sp_ids: [N, M] ids; every row must have at least one.
      sp_weights: how much each id counts, or None.
      combiner: "sum", "mean" (the default; by the sum of the weights) or "sqrtn" (by the root of
        the sum of their squares).
    """
    if combiner is None:
        combiner = "mean"
    if combiner not in ("mean", "sqrtn", "sum"):
        raise ValueError(f"combiner must be one of 'mean', 'sqrtn' or 'sum', got {combiner!r}")
    params = shards(params)
    _check_sparse(sp_ids, sp_weights)
    with name_scope(name, "embedding_lookup_sparse", [*params, sp_ids.values]) as scope:
        segments = sp_ids.indices[:, 0]
        if segments.dtype is not dtypes.int32:
            segments = math.cast(segments, dtypes.int32)
        unique, places = gen_ops.unique(sp_ids.values)
        rows = lookup(params, unique, partition_strategy, max_norm=max_norm)
        if rows.dtype in (dtypes.float16, dtypes.bfloat16):
            rows = math.cast(rows, dtypes.float32)
        if sp_weights is None:
            op = {
                "sum": gen_ops.sparse_segment_sum,
                "mean": gen_ops.sparse_segment_mean,
                "sqrtn": gen_ops.sparse_segment_sqrt_n,
            }[combiner]
            return op(rows, places, segments, name=scope)
        weights = sp_weights.values
        if weights.dtype != rows.dtype:
            weights = math.cast(weights, rows.dtype)
        rows = gather.gather(rows, places)
        # Weights multiply whole rows: as many dimensions of size one as a row has.
        known = rows.shape.ndims
        if known is None:
            ones = array.fill(array.expand_dims(array.rank(rows) - 1, 0), 1)
            wide = array.reshape(weights, array.concat([array.shape(weights), ones], 0))
        else:
            wide = array.reshape(weights, [-1] + [1] * (known - 1))
        total = gen_ops.segment_sum(rows * wide, segments)
        if combiner == "sum":
            return array.identity(total, name=scope)
        if combiner == "mean":
            return math.div(total, gen_ops.segment_sum(wide, segments), name=scope)
        squares = gen_ops.segment_sum(math.square(wide), segments)
        return math.div(total, math.sqrt(squares), name=scope)


embedding_lookup_sparse_v2 = export(v2="nn.embedding_lookup_sparse")(
    reordered(embedding_lookup_sparse, "params sp_ids sp_weights combiner max_norm name")
)


@export(v1=("nn.safe_embedding_lookup_sparse", "contrib.layers.safe_embedding_lookup_sparse"))
def safe_embedding_lookup_sparse(
    embedding_weights: Any, sparse_ids: Any, sparse_weights: Any = None,
    combiner: str | None = "mean", default_id: int | None = None, name: str | None = None,
    partition_strategy: str = "div", max_norm: Any = None,
) -> Tensor:  # fmt: skip
    """As `embedding_lookup_sparse`, for ids that may be missing or invalid.

    Negative ids, and ids of weights not above zero, are left out. A row without ids is the row of
    `default_id`, or zeros. Leading dimensions of `sparse_ids` are kept.
    """
    params = shards(embedding_weights)
    if combiner is None:
        combiner = "mean"
    with name_scope(name, "embedding_lookup", [*params, sparse_ids.values]) as scope:
        original = sparse_ids.dense_shape
        rank = original.shape._size_at(0) if original.shape.ndims == 1 else None
        if rank is None:
            rank = array.size(original)
        outer = gen_ops.slice(original, [0], array.stack([rank - 1]))
        sparse_ids = arrange.sparse_reshape(
            sparse_ids, array.stack([reduce.reduce_prod(outer), gather.gather(original, rank - 1)])
        )
        if sparse_weights is not None:
            sparse_weights = SparseTensor(
                sparse_ids.indices, sparse_weights.values, sparse_ids.dense_shape
            )
        keep = math.greater_equal(sparse_ids.values, 0)
        if sparse_weights is not None:
            if combiner != "sum":
                keep = math.logical_and(keep, math.greater(sparse_weights.values, 0))
            sparse_weights = arrange.sparse_retain(sparse_weights, keep)
        sparse_ids = arrange.sparse_retain(sparse_ids, keep)
        sparse_ids, empty = arrange.sparse_fill_empty_rows(sparse_ids, default_id or 0)
        if sparse_weights is not None:
            sparse_weights, _ = arrange.sparse_fill_empty_rows(sparse_weights, 1.0)
        result = embedding_lookup_sparse(
            params, sparse_ids, sparse_weights, partition_strategy,
            None if default_id is None else scope, combiner, max_norm,
        )  # fmt: skip
        if default_id is None:
            empty = array.tile(
                array.reshape(empty, [-1, 1]), array.stack([1, array.shape(result)[1]])
            )
            result = gather.where(empty, array.zeros_like(result), result, name=scope)
        final = array.reshape(
            result,
            array.concat([math.cast(outer, dtypes.int32), array.shape(result)[1:]], 0),
        )
        known = constant_value(outer)
        if known is not None:
            sizes = [int(n) for n in np.asarray(known)]
            final.set_shape([*sizes, *result.shape.as_list()[1:]])
        return final


safe_embedding_lookup_sparse_v2 = export(v2="nn.safe_embedding_lookup_sparse")(
    reordered(
        safe_embedding_lookup_sparse,
        "embedding_weights sparse_ids sparse_weights combiner default_id max_norm name",
    )
)
