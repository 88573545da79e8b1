"""Recurrent networks over sequences: in a loop (dynamic) or step by step in the graph (static)."""

from typing import Any, Callable

from millrace import gen_ops
from millrace.compat.v1.rnn.cells import check_cell, static_with_batch, zero_state
from millrace.core import dtypes, nest
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.graph.convert import convert_to_tensor
from millrace.graph.graph import Tensor, control_dependencies, name_scope
from millrace.graph.static_value import constant_value
from millrace.ops import array, control_flow
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


def _is_structure(size: Any) -> bool:
    return nest.is_nested(size) and not isinstance(size, TensorShape)


def _state_dtype(explicit: Any, state: Any) -> dtypes.DType:
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


def _where(done: Tensor, old: Any, new: Any) -> Any:
    """The rows of `old` where the sequence is over, else of `new`."""
    if hasattr(new, "_with_flow") or new.shape.rank == 0:
        return new
    chosen = gen_ops.select(done, old, new)
    chosen.set_shape(new.shape)
    return chosen


def _checked_lengths(sequence_length: Any) -> Tensor:
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


def _lengths_of_batch(lengths: Tensor, batch_size: Any) -> Tensor:
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
    check = control_flow.Assert(
        reduce_all(same),
        [f"Expected shape for Tensor {lengths.name} is ", expected, " but saw shape: ", found],
    )
    with control_dependencies([check]):
        return array.identity(lengths, name="CheckSeqLen")


def _batch_size_of(inputs: Any) -> Any:
    """The number of sequences of time-major inputs: a number where it is known."""
    flat = nest.flatten(inputs)
    for one in flat:
        shape = one.shape
        if shape.rank is not None and shape.rank >= 2 and shape.as_list()[1] is not None:
            return shape.as_list()[1]
    return array.shape(flat[0])[1]


@export("nn.dynamic_rnn")
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
        lengths = None if sequence_length is None else _checked_lengths(sequence_length)
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
            lengths = _lengths_of_batch(lengths, batch_size)
        outputs, final = _loop(
            cell, inputs, state, lengths, batch_size, dtype, parallel_iterations or 32, swap_memory
        )
        if not time_major:
            outputs = nest.map_structure(_swap_first_two, outputs)
        return outputs, final


def _state_leaf(leaf: Any) -> Any:
    return leaf if hasattr(leaf, "_with_flow") else convert_to_tensor(leaf)


def _zero_outputs(cell: Any, batch_size: Any, types: Any) -> Any:
    """Zeros like the cell's output; `types`: one type, or one for each part."""
    sizes = nest.flatten(cell.output_size) if _is_structure(cell.output_size) else [
        cell.output_size
    ]  # fmt: skip
    types = types if isinstance(types, list) else [types] * len(sizes)
    flat = [zero_state(size, batch_size, t) for size, t in zip(sizes, types, strict=True)]
    if not _is_structure(cell.output_size):
        return flat[0]
    return nest.pack_sequence_as(cell.output_size, flat)


def _step(
    time: Any, lengths: Tensor, zero_output: Any, state: Any, new_output: Any, new_state: Any
) -> Any:
    """Output and state of a step, where sequences that are over give zeros and keep their state."""
    done = gen_ops.greater_equal(convert_to_tensor(time), lengths)
    nest.assert_same_structure(zero_output, new_output)
    nest.assert_same_structure(state, new_state)
    output = nest.map_structure(lambda a, b: _where(done, a, b), zero_output, new_output)
    kept = nest.map_structure(lambda a, b: _where(done, a, b), state, new_state)
    return output, kept


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
        sizes = nest.flatten(cell.output_size) if _is_structure(cell.output_size) else [
            cell.output_size
        ]  # fmt: skip
        out_type = _state_dtype(dtype, initial)
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
        zero_output = None if lengths is None else _zero_outputs(cell, batch_size, out_type)

        def step(time: Tensor, arrays: Any, state: Any) -> Any:
            now = [r.read(time) for r in rows]
            for value, x in zip(now, flat_inputs, strict=True):
                value.set_shape(x.shape.as_list()[1:])
            output, new_state = cell(nest.pack_sequence_as(inputs, now), state)
            nest.assert_same_structure(state, new_state)
            if lengths is not None:
                output, new_state = _step(time, lengths, zero_output, state, output, new_state)
            flat = nest.flatten(output) if _is_structure(cell.output_size) else [output]
            written = tuple(a.write(time, o) for a, o in zip(arrays, flat, strict=True))
            return time + 1, written, new_state

        bound = min(32, parallel_iterations)
        _, arrays, final = control_flow.while_loop(
            lambda time, *_: time < steps, step, (0, tuple(outputs), initial),
            parallel_iterations=bound, swap_memory=swap_memory, maximum_iterations=None,
        )  # fmt: skip
        stacked = []
        for one, size in zip(arrays, sizes, strict=True):
            value = one.stack()
            static_batch = batch_size if isinstance(batch_size, int) else None
            value.set_shape([first, static_batch, *_dims(size)])
            stacked.append(value)
    if _is_structure(cell.output_size):
        return nest.pack_sequence_as(cell.output_size, stacked), final
    return stacked[0], final


@export("nn.bidirectional_dynamic_rnn")
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
                return array.reverse_sequence(
                    x, sequence_length, seq_axis=time_axis, batch_axis=batch_axis
                )
            return array.reverse(x, axis=[time_axis])

        with variable_scope("bw") as bw:
            turned = nest.map_structure(backwards, nest.map_structure(convert_to_tensor, inputs))
            out_bw, state_bw = dynamic_rnn(
                cell_bw, turned, initial_state=initial_state_bw, scope=bw, **options
            )
    out_bw = nest.map_structure(backwards, out_bw)
    return (out_fw, out_bw), (state_fw, state_bw)


@export("nn.raw_rnn")
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
                for s in (nest.flatten(structure) if _is_structure(structure) else [structure])
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
        nested = _is_structure(structure)

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
                return _where(done, convert_to_tensor(old), convert_to_tensor(new))

            emit = nest.map_structure(choose, zero_emit, emit)
            next_state = nest.map_structure(choose, state, next_state)
            arrays = tuple(a.write(time, e) for a, e in zip(arrays, flatten(emit), strict=True))
            over = gen_ops.logical_or(over, done)
            return now, over, following, arrays, next_state, next_loop

        current = nest.pack_sequence_as(next_input, flat_input)
        result = control_flow.while_loop(
            lambda _, done, *rest: gen_ops.logical_not(reduce_all(done)), body,
            [time, finished, current, tuple(emit_arrays), state, loop_state],
            parallel_iterations=parallel_iterations or 32, swap_memory=swap_memory,
        )  # fmt: skip
        _, _, _, arrays, state, loop_state = result
        return pack(list(arrays)), state, loop_state if has_loop_state else None


@export("nn.static_rnn", "contrib.rnn.static_rnn")
def static_rnn(
    cell: Any, inputs: Any, initial_state: Any = None, dtype: Any = None,
    sequence_length: Any = None, scope: Any = None,
) -> Any:  # fmt: skip
    """Runs a cell over a list of inputs, one for each step: (list of outputs, final state).

    Arguments are those of `dynamic_rnn`; `inputs` are [batch, ...] each.
    """
    check_cell(cell)
    if not nest.is_nested(inputs):
        raise TypeError(f"inputs must be a sequence, got {inputs}")
    if not inputs:
        raise ValueError("inputs must not be empty")
    outputs = []
    with variable_scope(scope or "rnn") as opened:
        first = nest.flatten(inputs)[0]
        for x in nest.flatten(inputs):
            if x.shape.rank is not None and any(d is None for d in x.shape.as_list()[1:]):
                raise ValueError(
                    "Input size (second dimension of inputs[0]) must be accessible via shape "
                    f"inference, but saw value None in shape {x.shape} of '{x.name}'."
                )
        batch_size: Any = first.shape.as_list()[0] if first.shape.rank else None
        if batch_size is None:
            batch_size = array.shape(first)[0]
        if initial_state is not None:
            state = initial_state
        elif dtype is None:
            raise ValueError(
                "If no initial_state is provided, dtype must be specified for the initial state."
            )
        elif getattr(cell, "get_initial_state", None) is not None:
            state = cell.get_initial_state(inputs=None, batch_size=batch_size, dtype=dtype)
        else:
            state = cell.zero_state(batch_size, dtype)
        lengths = zero_output = None
        if sequence_length is not None:
            lengths = _checked_lengths(sequence_length)
            zero_output = _zero_outputs(cell, batch_size, _state_dtype(dtype, state))
        for time, x in enumerate(inputs):
            if time > 0:
                opened.reuse_variables()
            output, new_state = cell(x, state)
            if lengths is not None:
                output, new_state = _step(time, lengths, zero_output, state, output, new_state)
            state = new_state
            outputs.append(output)
        return outputs, state


@export("nn.static_state_saving_rnn", "contrib.rnn.static_state_saving_rnn")
def static_state_saving_rnn(
    cell: Any, inputs: Any, state_saver: Any, state_name: Any, sequence_length: Any = None,
    scope: Any = None,
) -> Any:  # fmt: skip
    """As `static_rnn`, with a state that is loaded from and saved to `state_saver`.

    Args:
      state_saver: has `state(name)` and `save_state(name, value)`.
      state_name: the name of the state, or a tuple of names like the cell's state.
    """
    size = cell.state_size
    is_tuple, names_tuple = nest.is_nested(size), nest.is_nested(state_name)
    if is_tuple != names_tuple:
        raise ValueError(
            "state_name should be the same type as cell.state_size.  state_name: "
            f"{state_name}, cell.state_size: {size}"
        )
    if is_tuple:
        names, sizes = nest.flatten(state_name), nest.flatten(size)
        if len(names) != len(sizes):
            raise ValueError(
                f"#elems(state_name) != #elems(state_size): {len(names)} vs. {len(sizes)}"
            )
        initial = nest.pack_sequence_as(size, [state_saver.state(n) for n in names])
    else:
        initial = state_saver.state(state_name)
    outputs, state = static_rnn(
        cell, inputs, initial_state=initial, sequence_length=sequence_length, scope=scope
    )
    if is_tuple:
        saves = [
            state_saver.save_state(name, part)
            for name, part in zip(names, nest.flatten(state), strict=True)
        ]
    else:
        saves = [state_saver.save_state(state_name, state)]
    with control_dependencies(saves):
        last = outputs[-1]
        if _is_structure(last):
            last = nest.map_structure(array.identity, last)
        else:
            last = array.identity(last)
        outputs[-1] = last
        state = nest.map_structure(array.identity, state)
    return outputs, state


def _reverse_list(sequence: Any, lengths: Any) -> list[Any]:
    """A list of the steps of sequences, each turned round within its length."""
    if lengths is None:
        return list(reversed(sequence))
    flat = [nest.flatten(step) for step in sequence]
    turned = []
    for parts in zip(*flat, strict=True):
        known = TensorShape(None)
        for part in parts:
            part.shape.assert_is_compatible_with(known) if known.rank is not None else None
            known = part.shape
        joined = array.reverse_sequence(array.stack(list(parts)), lengths, seq_axis=0, batch_axis=1)
        steps = array.unstack(joined, num=len(parts))
        for step in steps:
            step.set_shape(known)
        turned.append(steps)
    return [
        nest.pack_sequence_as(step, list(parts)) if nest.is_nested(step) else parts[0]
        for step, parts in zip(sequence, zip(*turned, strict=True), strict=True)
    ]


@export("nn.static_bidirectional_rnn", "contrib.rnn.static_bidirectional_rnn")
def static_bidirectional_rnn(
    cell_fw: Any, cell_bw: Any, inputs: Any, initial_state_fw: Any = None,
    initial_state_bw: Any = None, dtype: Any = None, sequence_length: Any = None,
    scope: Any = None,
) -> Any:  # fmt: skip
    """Runs one cell forwards and one backwards over a list of inputs.

    Returns (list of both outputs joined along axis 1, forward state, backward state).
    """
    check_cell(cell_fw, "cell_fw")
    check_cell(cell_bw, "cell_bw")
    if not nest.is_nested(inputs):
        raise TypeError(f"inputs must be a sequence, got {inputs}")
    if not inputs:
        raise ValueError("inputs must not be empty")
    with variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw") as fw:
            out_fw, state_fw = static_rnn(
                cell_fw, inputs, initial_state_fw, dtype, sequence_length, scope=fw
            )
        with variable_scope("bw") as bw:
            turned = _reverse_list(inputs, sequence_length)
            out_bw, state_bw = static_rnn(
                cell_bw, turned, initial_state_bw, dtype, sequence_length, scope=bw
            )
    out_bw = _reverse_list(out_bw, sequence_length)
    outputs = [
        nest.pack_sequence_as(
            a,
            [
                array.concat([x, y], 1)
                for x, y in zip(nest.flatten(a), nest.flatten(b), strict=True)
            ],
        )
        if nest.is_nested(a)
        else array.concat([a, b], 1)
        for a, b in zip(out_fw, out_bw, strict=True)
    ]
    return outputs, state_fw, state_bw


def _check_stacks(cells_fw: Any, cells_bw: Any, states_fw: Any, states_bw: Any) -> None:
    if not isinstance(cells_fw, list) or not cells_fw:
        raise ValueError("Must specify at least one fw cell for BidirectionalRNN.")
    if not isinstance(cells_bw, list) or not cells_bw:
        raise ValueError("Must specify at least one bw cell for BidirectionalRNN.")
    if len(cells_fw) != len(cells_bw):
        raise ValueError(
            f"Forward and Backward cells must have the same depth: {len(cells_fw)} and "
            f"{len(cells_bw)}"
        )
    for label, states in (("fw", states_fw), ("bw", states_bw)):
        if states is not None and (not isinstance(states, list) or len(states) != len(cells_fw)):
            raise ValueError(
                f"initial_states_{label} must be a list of state tensors (one per layer)."
            )


@export("contrib.rnn.stack_bidirectional_dynamic_rnn")
def stack_bidirectional_dynamic_rnn(
    cells_fw: Any, cells_bw: Any, inputs: Any, initial_states_fw: Any = None,
    initial_states_bw: Any = None, dtype: Any = None, sequence_length: Any = None,
    parallel_iterations: int | None = None, time_major: bool = False, scope: Any = None,
    swap_memory: bool = False,
) -> Any:  # fmt: skip
    """Bidirectional layers on top of each other, each with the joined outputs of the one below.

    Returns (outputs, forward states, backward states), the states one for each layer.
    """
    _check_stacks(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
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


@export("contrib.rnn.stack_bidirectional_rnn")
def stack_bidirectional_rnn(
    cells_fw: Any, cells_bw: Any, inputs: Any, initial_states_fw: Any = None,
    initial_states_bw: Any = None, dtype: Any = None, sequence_length: Any = None,
    scope: Any = None,
) -> Any:  # fmt: skip
    """As `stack_bidirectional_dynamic_rnn`, over a list of inputs."""
    _check_stacks(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
    states_fw, states_bw = [], []
    layer = inputs
    with variable_scope(scope or "stack_bidirectional_rnn"):
        for i, (fw, bw) in enumerate(zip(cells_fw, cells_bw, strict=True)):
            with variable_scope(f"cell_{i}"):
                layer, state_fw, state_bw = static_bidirectional_rnn(
                    fw, bw, layer,
                    None if initial_states_fw is None else initial_states_fw[i],
                    None if initial_states_bw is None else initial_states_bw[i],
                    dtype, sequence_length,
                )  # fmt: skip
            states_fw.append(state_fw)
            states_bw.append(state_bw)
    return layer, tuple(states_fw), tuple(states_bw)
