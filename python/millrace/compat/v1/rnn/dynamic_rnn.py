"""Recurrent networks over sequences: in a loop (dynamic) or step by step in the graph (static)."""

from typing import Any, Callable

from millrace import gen_ops
from millrace.compat.v1.rnn.cell import check_cell, check_stacks, static_with_batch, zero_state
from millrace.compat.v1.rnn.lengths import (
    checked_lengths,
    common_dtype,
    is_structure,
    lengths_of_batch,
    step_within,
    unless_done,
    zero_outputs,
)
from millrace.core import dtypes, nest
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import array, gather, loops
from millrace.ops.reduce import reduce_all
from millrace.ops.tensor_array import TensorArray
from millrace.state.variable_scope import variable_scope


def _swap_first_two(x: Any) -> Tensor:
    """Batch-major to time-major and back; what has fewer than two dimensions stays."""
    x = convert_to_tensor(x)
    rank = x.shape.rank
    if rank is not None and rank < 2:
        return x
    if rank is not None:
        return array.transpose(x, [1, 0, *range(2, rank)])
    order = array.concat([[1, 0], gen_ops.range(2, array.rank(x), 1)], 0)
    return array.transpose(x, order)


def _dims(size: Any) -> list[int | None]:
    return TensorShape(size if isinstance(size, (list, tuple, TensorShape)) else [size]).as_list()


def _batch_size_of(inputs: Any) -> Any:
    """The number of sequences of time-major inputs: a number where it is known."""
    flat = nest.flatten(inputs)
    for one in flat:
        shape = one.shape
        if shape.rank is not None and shape.rank >= 2 and shape.as_list()[1] is not None:
            return shape.as_list()[1]
    return array.shape(flat[0])[1]


@export(v1="nn.dynamic_rnn")
def dynamic_rnn(
    cell: Any, inputs: Any, sequence_length: Any = None, initial_state: Any = None,
    dtype: Any = None, parallel_iterations: int | None = None, swap_memory: bool = False,
    time_major: bool = False, scope: Any = None,
) -> Any:  # fmt: skip
    """Runs a cell over sequences: (outputs, final state).

    Args:
      cell: an RNNCell.
      inputs: [batch, time, ...] tensors, or [time, batch, ...] where `time_major`; a structure of
        them for cells that take one.
      sequence_length: [batch] int32: behind the end of a sequence outputs are zeros and the state
        stays what it was.
      initial_state: the state to begin with; zeros of `dtype` without it.
      dtype: the type of the initial state and the expected output.
      swap_memory: let what gradients need wait in host memory.
      scope: the variable scope, "rnn" by default.

    ValueError when neither state nor dtype is given, or shapes do not fit.
    """
    check_cell(cell)
    with variable_scope(scope or "rnn"):
        flat = [convert_to_tensor(x) for x in nest.flatten(inputs)]
        if not time_major:
            flat = [_swap_first_two(x) for x in flat]
        for x in flat:
            x.shape.with_rank_at_least(3)
        inputs = nest.pack_sequence_as(inputs, flat)
        lengths = None if sequence_length is None else checked_lengths(sequence_length)
        batch_size = _batch_size_of(inputs)
        if initial_state is not None:
            state = nest.map_structure(_state_leaf, initial_state)
        elif dtype is None:
            raise ValueError("If there is no initial_state, you must give a dtype.")
        elif getattr(cell, "get_initial_state", None) is not None:
            state = cell.get_initial_state(inputs=None, batch_size=batch_size, dtype=dtype)
        else:
            state = cell.zero_state(batch_size, dtype)
        if lengths is not None:
            lengths = lengths_of_batch(lengths, batch_size)
        outputs, final = _loop(
            cell, inputs, state, lengths, batch_size, dtype, parallel_iterations or 32, swap_memory
        )
        if not time_major:
            outputs = nest.map_structure(_swap_first_two, outputs)
        return outputs, final


def _state_leaf(leaf: Any) -> Any:
    return leaf if hasattr(leaf, "_with_flow") else convert_to_tensor(leaf)


def _loop(
    cell: Any, inputs: Any, initial: Any, lengths: Any, batch_size: Any, dtype: Any,
    parallel_iterations: int, swap_memory: bool,
) -> Any:  # fmt: skip
    flat_inputs = nest.flatten(inputs)
    first = flat_inputs[0].shape.as_list()[0] if flat_inputs[0].shape.rank else None
    for x in flat_inputs:
        sizes = x.shape.as_list()
        if any(size is None for size in sizes[2:]):
            raise ValueError(
                f"Input size (depth of inputs) must be accessible via shape inference, but saw "
                f"value None in shape {x.shape} of '{x.name}'."
            )
        for axis, expected in ((0, first), (1, batch_size)):
            if isinstance(expected, int) and sizes[axis] not in (None, expected):
                raise ValueError(
                    f"{'Time steps' if axis == 0 else 'Batch size'} is not the same for all the "
                    f"elements in the input: {[str(i.shape) for i in flat_inputs]}"
                )
    steps: Any = array.shape(flat_inputs[0])[0] if first is None else first
    with name_scope("dynamic_rnn"):
        sizes = nest.flatten(cell.output_size) if is_structure(cell.output_size) else [
            cell.output_size
        ]  # fmt: skip
        out_type = common_dtype(dtype, initial)
        outputs = [
            TensorArray(
                out_type, size=steps, tensor_array_name=f"dynamic_rnn/output_{i}",
                element_shape=static_with_batch(
                    batch_size if isinstance(batch_size, int) else None, size
                ),
            )
            for i, size in enumerate(sizes)
        ]  # fmt: skip
        rows = [
            TensorArray(
                x.dtype.base_dtype, size=steps, tensor_array_name=f"dynamic_rnn/input_{i}",
                clear_after_read=False,
            ).unstack(x)
            for i, x in enumerate(flat_inputs)
        ]  # fmt: skip
        zero_output = None if lengths is None else zero_outputs(cell, batch_size, out_type)

        def step(time: Tensor, arrays: Any, state: Any) -> Any:
            now = [r.read(time) for r in rows]
            for value, x in zip(now, flat_inputs, strict=True):
                value.set_shape(x.shape.as_list()[1:])
            output, new_state = cell(nest.pack_sequence_as(inputs, now), state)
            nest.assert_same_structure(state, new_state)
            if lengths is not None:
                output, new_state = step_within(
                    time, lengths, zero_output, state, output, new_state
                )
            flat = nest.flatten(output) if is_structure(cell.output_size) else [output]
            written = tuple(a.write(time, o) for a, o in zip(arrays, flat, strict=True))
            return time + 1, written, new_state

        bound = min(32, parallel_iterations)
        _, arrays, final = loops.while_loop(
            lambda time, *_: time < steps, step, (0, tuple(outputs), initial),
            parallel_iterations=bound, swap_memory=swap_memory, maximum_iterations=None,
        )  # fmt: skip
        stacked = []
        for one, size in zip(arrays, sizes, strict=True):
            value = one.stack()
            static_batch = batch_size if isinstance(batch_size, int) else None
            value.set_shape([first, static_batch, *_dims(size)])
            stacked.append(value)
    if is_structure(cell.output_size):
        return nest.pack_sequence_as(cell.output_size, stacked), final
    return stacked[0], final


@export(v1="nn.bidirectional_dynamic_rnn")
def bidirectional_dynamic_rnn(
    cell_fw: Any, cell_bw: Any, inputs: Any, sequence_length: Any = None,
    initial_state_fw: Any = None, initial_state_bw: Any = None, dtype: Any = None,
    parallel_iterations: int | None = None, swap_memory: bool = False, time_major: bool = False,
    scope: Any = None,
) -> Any:  # fmt: skip
    """Runs one cell forwards and one backwards: ((outputs, outputs), (state, state)).

    Arguments are those of `dynamic_rnn`.
    """
    check_cell(cell_fw, "cell_fw")
    check_cell(cell_bw, "cell_bw")
    options = {
        "sequence_length": sequence_length, "dtype": dtype,
        "parallel_iterations": parallel_iterations, "swap_memory": swap_memory,
        "time_major": time_major,
    }  # fmt: skip
    with variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw") as fw:
            out_fw, state_fw = dynamic_rnn(
                cell_fw, inputs, initial_state=initial_state_fw, scope=fw, **options
            )
        time_axis, batch_axis = (0, 1) if time_major else (1, 0)

        def backwards(x: Any) -> Tensor:
            if sequence_length is not None:
                return gather.reverse_sequence(
                    x, sequence_length, seq_axis=time_axis, batch_axis=batch_axis
                )
            return gather.reverse(x, axis=[time_axis])

        with variable_scope("bw") as bw:
            turned = nest.map_structure(backwards, nest.map_structure(convert_to_tensor, inputs))
            out_bw, state_bw = dynamic_rnn(
                cell_bw, turned, initial_state=initial_state_bw, scope=bw, **options
            )
    out_bw = nest.map_structure(backwards, out_bw)
    return (out_fw, out_bw), (state_fw, state_bw)


@export(v1="nn.raw_rnn")
def raw_rnn(
    cell: Any, loop_fn: Callable[..., Any], parallel_iterations: int | None = None,
    swap_memory: bool = False, scope: Any = None,
) -> Any:  # fmt: skip
    """Runs a cell in a loop that `loop_fn` steers: (TensorArrays of outputs, state, loop state).

    `loop_fn(time, cell_output, cell_state, loop_state)` gives (finished, next input, next state,
    emitted output, next loop state). It is called once with time 0 and None for the rest, and gives
    then the first input and state and the structure of what is emitted.
    """
    check_cell(cell)
    if not callable(loop_fn):
        raise TypeError("loop_fn must be a callable")
    with variable_scope(scope or "rnn"):
        time = convert_to_tensor(0, dtype=dtypes.int32)
        finished, next_input, state, emit_structure, loop_state = loop_fn(time, None, None, None)
        flat_input = [convert_to_tensor(x) for x in nest.flatten(next_input)]
        has_loop_state = loop_state is not None
        if not has_loop_state:
            loop_state = convert_to_tensor(0, dtype=dtypes.int32)
        state = nest.map_structure(_state_leaf, state)
        batch_size: Any = flat_input[0].shape.as_list()[0] if flat_input[0].shape.rank else None
        if batch_size is None:
            batch_size = array.shape(flat_input[0])[0]
        if emit_structure is not None:
            emitted = [convert_to_tensor(e) for e in nest.flatten(emit_structure)]
            shapes = [e.shape for e in emitted]
            types = [e.dtype.base_dtype for e in emitted]
            structure = emit_structure
        else:
            structure = cell.output_size
            shapes = [
                TensorShape(_dims(s))
                for s in (nest.flatten(structure) if is_structure(structure) else [structure])
            ]
            types = [nest.flatten(state)[0].dtype.base_dtype] * len(shapes)
        emit_arrays = [
            TensorArray(
                t, size=0, dynamic_size=True, tensor_array_name=f"rnn_output_{i}",
                element_shape=[
                    batch_size if isinstance(batch_size, int) else None, *s.as_list()
                ] if s.rank is not None else None,
            )
            for i, (t, s) in enumerate(zip(types, shapes, strict=True))
        ]  # fmt: skip
        nested = is_structure(structure)

        def pack(flat: list[Any]) -> Any:
            return nest.pack_sequence_as(structure, flat) if nested else flat[0]

        def flatten(value: Any) -> list[Any]:
            return nest.flatten(value) if nested else [value]

        zero_emit = pack([zero_state(s, batch_size, t) for s, t in zip(shapes, types, strict=True)])
        finished = convert_to_tensor(finished)

        def body(time: Any, done: Any, current: Any, arrays: Any, state: Any, looped: Any) -> Any:
            output, cell_state = cell(current, state)
            nest.assert_same_structure(state, cell_state)
            now = time + 1
            over, following, next_state, emit, next_loop = loop_fn(
                now, output, cell_state, looped if has_loop_state else None
            )
            nest.assert_same_structure(state, next_state)
            nest.assert_same_structure(current, following)
            if not has_loop_state or next_loop is None:
                next_loop = looped

            def choose(old: Any, new: Any) -> Any:
                if hasattr(new, "_with_flow"):
                    return new
                return unless_done(done, convert_to_tensor(old), convert_to_tensor(new))

            emit = nest.map_structure(choose, zero_emit, emit)
            next_state = nest.map_structure(choose, state, next_state)
            arrays = tuple(a.write(time, e) for a, e in zip(arrays, flatten(emit), strict=True))
            over = gen_ops.logical_or(over, done)
            return now, over, following, arrays, next_state, next_loop

        current = nest.pack_sequence_as(next_input, flat_input)
        result = loops.while_loop(
            lambda _, done, *rest: gen_ops.logical_not(reduce_all(done)), body,
            [time, finished, current, tuple(emit_arrays), state, loop_state],
            parallel_iterations=parallel_iterations or 32, swap_memory=swap_memory,
        )  # fmt: skip
        _, _, _, arrays, state, loop_state = result
        return pack(list(arrays)), state, loop_state if has_loop_state else None


@export(v1="contrib.rnn.stack_bidirectional_dynamic_rnn")
def stack_bidirectional_dynamic_rnn(
    cells_fw: Any, cells_bw: Any, inputs: Any, initial_states_fw: Any = None,
    initial_states_bw: Any = None, dtype: Any = None, sequence_length: Any = None,
    parallel_iterations: int | None = None, time_major: bool = False, scope: Any = None,
    swap_memory: bool = False,
) -> Any:  # fmt: skip
    """Bidirectional layers on top of each other, each with the joined outputs of the one below.

    Returns (outputs, forward states, backward states), the states one for each layer.
    """
    check_stacks(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
    states_fw, states_bw = [], []
    layer = inputs
    with variable_scope(scope or "stack_bidirectional_rnn"):
        for i, (fw, bw) in enumerate(zip(cells_fw, cells_bw, strict=True)):
            with variable_scope(f"cell_{i}"):
                outputs, states = bidirectional_dynamic_rnn(
                    fw, bw, layer, sequence_length,
                    None if initial_states_fw is None else initial_states_fw[i],
                    None if initial_states_bw is None else initial_states_bw[i],
                    dtype, parallel_iterations, swap_memory, time_major,
                )  # fmt: skip
            layer = array.concat(list(outputs), 2)
            states_fw.append(states[0])
            states_bw.append(states[1])
    return layer, tuple(states_fw), tuple(states_bw)
