"""Networks unrolled over lists of inputs."""

from typing import Any

from millrace.compat.v1.rnn.cell import check_cell, check_stacks
from millrace.compat.v1.rnn.lengths import (
    checked_lengths,
    common_dtype,
    is_structure,
    step_within,
    zero_outputs,
)
from millrace.core import nest
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.graph.default_graph import control_dependencies
from millrace.ops import array, gather
from millrace.state.variable_scope import variable_scope


@export(v1=("nn.static_rnn", "contrib.rnn.static_rnn"))
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
            lengths = checked_lengths(sequence_length)
            zero_output = zero_outputs(cell, batch_size, common_dtype(dtype, state))
        for time, x in enumerate(inputs):
            if time > 0:
                opened.reuse_variables()
            output, new_state = cell(x, state)
            if lengths is not None:
                output, new_state = step_within(
                    time, lengths, zero_output, state, output, new_state
                )
            state = new_state
            outputs.append(output)
        return outputs, state


@export(v1=("nn.static_state_saving_rnn", "contrib.rnn.static_state_saving_rnn"))
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
        if is_structure(last):
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
        joined = gather.reverse_sequence(
            array.stack(list(parts)), lengths, seq_axis=0, batch_axis=1
        )
        steps = array.unstack(joined, num=len(parts))
        for step in steps:
            step.set_shape(known)
        turned.append(steps)
    return [
        nest.pack_sequence_as(step, list(parts)) if nest.is_nested(step) else parts[0]
        for step, parts in zip(sequence, zip(*turned, strict=True), strict=True)
    ]


@export(v1=("nn.static_bidirectional_rnn", "contrib.rnn.static_bidirectional_rnn"))
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


@export(v1="contrib.rnn.stack_bidirectional_rnn")
def stack_bidirectional_rnn(
    cells_fw: Any, cells_bw: Any, inputs: Any, initial_states_fw: Any = None,
    initial_states_bw: Any = None, dtype: Any = None, sequence_length: Any = None,
    scope: Any = None,
) -> Any:  # fmt: skip
    """As `stack_bidirectional_dynamic_rnn`, over a list of inputs."""
    check_stacks(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
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
