"""vectorized_map: a function on all rows of tensors."""

from typing import Any, Callable

from millrace import _core, gen_ops
from millrace.core import nest
from millrace.core.export import export
from millrace.graph.convert import convert_to_tensor
from millrace.ops.functional import map_fn


@export(v1="vectorized_map", v2="vectorized_map")
def vectorized_map(
    fn: Callable[[Any], Any], elems: Any, fallback_to_while_loop: bool = True, warn: bool = True
) -> Any:
    """The results of `fn` on each row of `elems`, as rows, whatever their types.

    `elems`: a tensor, or a structure of them with as many rows; one of a single row serves for all.
    ValueError for tensors without rows and for different numbers of them. The rows are taken one
    after the other.
    """
    del fallback_to_while_loop, warn
    tensors = [convert_to_tensor(e, name="elem") for e in nest.flatten(elems)]
    if not tensors:
        raise ValueError("vectorized_map: elems has no tensors")
    counts = []
    for tensor in tensors:
        if tensor.shape.rank == 0:
            raise ValueError(f"vectorized_map: elems must have rows, {tensor} is a scalar")
        counts.append(tensor.shape.as_list()[0] if tensor.shape.rank else None)
    known = sorted({c for c in counts if c is not None} - {1})
    if len(known) > 1:
        raise ValueError(f"vectorized_map: elems have different numbers of rows: {known}")

    def row(i: Any) -> Any:
        parts = [
            gen_ops.gather(t, 0 if c == 1 else i) for t, c in zip(tensors, counts, strict=True)
        ]
        return nest.pack_sequence_as(elems, parts)

    static = known[0] if known else 1 if None not in counts else None
    if static is not None and (_core.executing_eagerly() or static == 1):
        return _stacked([fn(row(i)) for i in range(static)])
    # What it gives is known from the first row.
    first = nest.map_structure(convert_to_tensor, fn(row(0)))
    number: Any = static
    if number is None:
        longest = tensors[counts.index(None)]
        number = gen_ops.gather(gen_ops.shape(longest), 0)
    rest = map_fn(
        lambda i: nest.map_structure(convert_to_tensor, fn(row(i))),
        gen_ops.range(1, number, 1),
        dtype=nest.map_structure(lambda t: t.dtype, first),
    )

    def joined(one: Any, others: Any) -> Any:
        whole = gen_ops.concat_v2([gen_ops.expand_dims(one, 0), others], 0)
        if static is not None and one.shape.rank is not None:
            whole.set_shape([static, *one.shape.as_list()])
        return whole

    return nest.map_structure(joined, first, rest)


def _stacked(results: list[Any]) -> Any:
    flat = [[convert_to_tensor(v) for v in nest.flatten(r)] for r in results]
    return nest.pack_sequence_as(
        results[0], [gen_ops.pack(list(rows)) for rows in zip(*flat, strict=True)]
    )
