"""The lengths of sequences of a batch, and what is past their ends."""

from typing import Any

from millrace import gen_ops
from millrace.compat.v1.rnn.cell import zero_state
from millrace.core import dtypes, nest
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies
from millrace.graph.static_value import constant_value
from millrace.ops import array, ordering
from millrace.ops.reduce import reduce_all


def common_dtype(explicit: Any, state: Any) -> dtypes.DType:
    """The type of the state: the one given, or the one that all parts of it have."""
    if explicit is not None:
        return dtypes.as_dtype(explicit)
    found = [leaf.dtype for leaf in nest.flatten(state)]
    if not found:
        raise ValueError("Unable to infer dtype from empty state.")
    if any(t != found[0] for t in found):
        raise ValueError(
            "State has tensors of different inferred_dtypes. Unable to infer a single "
            f"representative dtype: {[t.name for t in found]}"
        )
    return found[0]


def unless_done(done: Tensor, old: Any, new: Any) -> Any:
    """The rows of `old` where the sequence is over, else of `new`."""
    if hasattr(new, "_with_flow") or new.shape.rank == 0:
        return new
    chosen = gen_ops.select(done, old, new)
    chosen.set_shape(new.shape)
    return chosen


def checked_lengths(sequence_length: Any) -> Tensor:
    lengths = convert_to_tensor(sequence_length, name="sequence_length")
    if lengths.dtype.base_dtype not in (dtypes.int32, dtypes.int64):
        lengths = gen_ops.cast(lengths, dtypes.int32)
    if lengths.shape.rank not in (None, 1):
        raise ValueError(
            f"sequence_length must be a vector of length batch_size, but saw shape: {lengths.shape}"
        )
    if lengths.dtype.base_dtype is not dtypes.int32:
        lengths = gen_ops.cast(lengths, dtypes.int32)
    return array.identity(lengths, name="sequence_length")


def lengths_of_batch(lengths: Tensor, batch_size: Any) -> Tensor:
    """The lengths, once it is known that there is one for each sequence."""
    expected = array.expand_dims(convert_to_tensor(batch_size, dtype=dtypes.int32), 0)
    found = array.shape(lengths)
    same = gen_ops.equal(
        array.concat([array.expand_dims(array.size(found), 0), found], 0),
        array.concat([array.expand_dims(array.size(expected), 0), expected], 0),
    )
    known = constant_value(lengths), constant_value(expected)
    if lengths.shape.rank == 1 and known[1] is not None:
        rows = lengths.shape.as_list()[0]
        if rows is not None and rows != int(known[1][0]):
            raise ValueError(
                f"sequence_length must have one length for each sequence: expected shape "
                f"[{int(known[1][0])}], got {lengths.shape} ('{lengths.name}')"
            )
    check = ordering.Assert(
        reduce_all(same),
        [f"Expected shape for Tensor {lengths.name} is ", expected, " but saw shape: ", found],
    )
    with control_dependencies([check]):
        return array.identity(lengths, name="CheckSeqLen")


def zero_outputs(cell: Any, batch_size: Any, types: Any) -> Any:
    """Zeros like the cell's output; `types`: one type, or one for each part."""
    sizes = nest.flatten(cell.output_size) if is_structure(cell.output_size) else [
        cell.output_size
    ]  # fmt: skip
    types = types if isinstance(types, list) else [types] * len(sizes)
    flat = [zero_state(size, batch_size, t) for size, t in zip(sizes, types, strict=True)]
    if not is_structure(cell.output_size):
        return flat[0]
    return nest.pack_sequence_as(cell.output_size, flat)


def step_within(
    time: Any, lengths: Tensor, zero_output: Any, state: Any, new_output: Any, new_state: Any
) -> Any:
    """Output and state of a step, where sequences that are over give zeros and keep their state."""
    done = gen_ops.greater_equal(convert_to_tensor(time), lengths)
    nest.assert_same_structure(zero_output, new_output)
    nest.assert_same_structure(state, new_state)
    output = nest.map_structure(lambda a, b: unless_done(done, a, b), zero_output, new_output)
    kept = nest.map_structure(lambda a, b: unless_done(done, a, b), state, new_state)
    return output, kept


def is_structure(size: Any) -> bool:
    return nest.is_nested(size) and not isinstance(size, TensorShape)
