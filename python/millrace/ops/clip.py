"""Values and gradients kept within bounds."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes, nest
from millrace.core.export import export
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import colocate_with, name_scope
from millrace.graph.sparse import IndexedSlices, convert_to_tensor_or_indexed_slices
from millrace.ops.math import cast
from millrace.ops.reduce import reduce_sum


def _check_kept(before: Tensor, after: Tensor, what: str) -> None:
    """ValueError when a bound has broadcast the value to another shape."""
    if not before.shape.is_compatible_with(after.shape):
        raise ValueError(
            f"{what}: the bounds must broadcast to the shape of the value: '{label_of(before)}' "
            f"({before.dtype.name}) has shape {before.shape}, the result {after.shape}"
        )


@export(v1="clip_by_value", v2="clip_by_value")
def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Any:
    """Each element, or the bound that it lies beyond. Takes IndexedSlices too."""
    source = t.values if isinstance(t, IndexedSlices) else t
    with name_scope(name, "clip_by_value", [source, clip_value_min, clip_value_max]) as scope:
        values = convert_to_tensor(source, name="t")
        below = gen_ops.minimum(values, clip_value_max)
        _check_kept(values, below, "clip_by_value")
        clipped = gen_ops.maximum(below, clip_value_min, name=scope)
        _check_kept(values, clipped, "clip_by_value")
    if isinstance(t, IndexedSlices):
        return IndexedSlices(clipped, t.indices, t.dense_shape)
    return clipped


@export(v1="clip_by_norm", v2="clip_by_norm")
def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str | None = None) -> Any:
    """Scales a tensor down so that its L2 norm over `axes` is at most `clip_norm`."""
    source = t.values if isinstance(t, IndexedSlices) else t
    with name_scope(name, "clip_by_norm", [source, clip_norm]) as scope:
        values = convert_to_tensor(source, name="t")
        squares = reduce_sum(values * values, axes, keepdims=True)
        positive = gen_ops.greater(squares, gen_ops.zeros_like(squares))
        # The square root of 0 has no gradient.
        safe = gen_ops.select(positive, squares, gen_ops.ones_like(squares))
        norm = gen_ops.select(positive, gen_ops.sqrt(safe), squares)
        scaled = values * clip_norm
        _check_kept(values, scaled, "clip_by_norm")
        clipped = gen_ops.identity(scaled / gen_ops.maximum(norm, clip_norm), name=scope)
    if isinstance(t, IndexedSlices):
        return IndexedSlices(clipped, t.indices, t.dense_shape)
    return clipped


@export(v1="clip_by_average_norm")
def clip_by_average_norm(t: Any, clip_norm: Any, name: str | None = None) -> Tensor:
    """Scales a tensor down so that its L2 norm divided by its size is at most `clip_norm`."""
    with name_scope(name, "clip_by_average_norm", [t, clip_norm]) as scope:
        t = convert_to_tensor(t, name="t")
        count = cast(gen_ops.size(t), dtypes.float32)
        inverse = gen_ops.rsqrt(reduce_sum(t * t))
        scale = clip_norm * gen_ops.minimum(
            inverse * count, convert_to_tensor(1.0, dtype=inverse.dtype) / clip_norm
        )
        return gen_ops.identity(t * scale, name=scope)


def _gradients(t_list: Any) -> list[Any]:
    """Tensors and IndexedSlices of a list that may hold None. TypeError when it is no list."""
    if isinstance(t_list, (str, bytes, Tensor)) or not hasattr(t_list, "__iter__"):
        raise TypeError(f"t_list should be a sequence, got {t_list!r}")
    return [
        t if t is None else convert_to_tensor_or_indexed_slices(t, name=f"t_{i}")
        for i, t in enumerate(t_list)
    ]


def _parts(values: list[Any]) -> list[Tensor]:
    return [v.values if isinstance(v, IndexedSlices) else v for v in values if v is not None]


@export(v1=("global_norm", "linalg.global_norm"), v2="linalg.global_norm")
def global_norm(t_list: Any, name: str | None = None) -> Tensor:
    """The L2 norm of all tensors of a list together; None entries are left out."""
    if nest.is_collection(t_list):
        t_list = list(t_list)
    with name_scope(name, "global_norm", _scope_values(t_list)):
        half_squares = []
        for part in _parts(_gradients(t_list)):
            with colocate_with(part):
                half_squares.append(gen_ops.l2_loss(part))
        total = reduce_sum(gen_ops.pack(half_squares, name="stack"))
        two = convert_to_tensor(2.0, dtype=total.dtype.base_dtype)
        return gen_ops.sqrt(total * two, name="global_norm")


def _scope_values(t_list: Any) -> list[Any]:
    if isinstance(t_list, (str, bytes, Tensor)) or not hasattr(t_list, "__iter__"):
        return []
    return [t.values if isinstance(t, IndexedSlices) else t for t in t_list]


@export(v1="clip_by_global_norm", v2="clip_by_global_norm")
def clip_by_global_norm(
    t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None
) -> tuple[list[Any], Tensor]:
    """Scales the tensors of a list by one factor so that their norm is at most `clip_norm`.

    `use_norm`: their norm, where it is known already. None entries stay None; all become nan when
    the norm is not finite. Gives the tensors and the norm they had.
    """
    values = _gradients(t_list)
    use_norm = global_norm(values, name) if use_norm is None else convert_to_tensor(use_norm)
    with name_scope(name, "clip_by_global_norm", [*_parts(values), clip_norm]) as scope:
        clip_norm = convert_to_tensor(clip_norm, dtype=use_norm.dtype.base_dtype, name="clip_norm")
        one = convert_to_tensor(1.0, dtype=use_norm.dtype.base_dtype)
        scale = clip_norm * gen_ops.minimum(one / use_norm, one / clip_norm)
        # Adds nan to a factor made of an infinite norm, and 0 to any other.
        scale = scale + (use_norm - use_norm)
        clipped: list[Any] = []
        for i, value in enumerate(values):
            if value is None:
                clipped.append(None)
                continue
            part = value.values if isinstance(value, IndexedSlices) else value
            with colocate_with(part):
                scaled = gen_ops.identity(part * cast(scale, part.dtype), name=f"{scope}_{i}")
            if isinstance(value, IndexedSlices):
                scaled = IndexedSlices(scaled, value.indices, value.dense_shape)
            clipped.append(scaled)
    return clipped, use_norm
