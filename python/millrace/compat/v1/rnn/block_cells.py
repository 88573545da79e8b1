"""Cells of TensorFlow that are one op each, with its names and variables."""

from typing import Any

from millrace import gen_ops
from millrace.compat.v1.rnn.cells import GRUCell, LSTMCell, LSTMStateTuple
from millrace.compat.v1.rnn.dynamic_rnn import dynamic_rnn
from millrace.compat.v1.rnn.static_rnn import static_rnn
from millrace.core import nest
from millrace.core.dtypes import int32, int64
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.ops import array
from millrace.ops.gather import gather_nd, reverse, reverse_sequence
from millrace.ops.reduce import reduce_max
from millrace.state.variable_scope import variable_scope


@export(v1="contrib.rnn.LSTMBlockCell")
class LSTMBlockCell(LSTMCell):
    """`LSTMCell`, whose states are tuples.

    Args:
      num_units: the size of c and h.
      forget_bias: added to the forget gate.
      cell_clip: c is clipped to this range; not where it is None or not above 0.
      use_peephole: the gates see c.
    """

    def __init__(
        self, num_units: int, forget_bias: float = 1.0, cell_clip: float | None = None,
        use_peephole: bool = False, dtype: Any = None, reuse: bool | None = None,
        name: str | None = "lstm_cell",
    ):  # fmt: skip
        clip = None if cell_clip is None or cell_clip <= 0 else cell_clip
        super().__init__(
            num_units, use_peepholes=use_peephole, cell_clip=clip, forget_bias=forget_bias,
            reuse=reuse, name=name, dtype=dtype,
        )  # fmt: skip

    def call(self, inputs: Tensor, state: Any) -> Any:
        """One step."""
        cs_prev, h_prev = state
        outputs = gen_ops.lstm_block_cell(
            inputs, cs_prev, h_prev, self._kernel, *self._peepholes(inputs), self._bias,
            **self._options(),
        )  # fmt: skip
        _, cs, _, _, _, _, h = outputs
        return h, LSTMStateTuple(cs, h)

    def _peepholes(self, inputs: Tensor) -> list[Any]:
        if self._use_peepholes:
            return [self._w_i_diag, self._w_f_diag, self._w_o_diag]
        return [array.zeros([self._num_units], inputs.dtype)] * 3

    def _options(self) -> dict[str, Any]:
        clip = self._cell_clip if self._cell_clip is not None else -1.0
        return {
            "forget_bias": self._forget_bias, "cell_clip": clip,
            "use_peephole": self._use_peepholes,
        }  # fmt: skip


@export(v1=("contrib.rnn.GRUBlockCell", "contrib.rnn.GRUBlockCellV2"))
class GRUBlockCell(GRUCell):
    """`GRUCell`; its size may be called `cell_size`."""

    def call(self, inputs: Tensor, state: Tensor) -> Any:
        """One step."""
        outputs = gen_ops.gru_block_cell(
            inputs, state, self._gate_kernel, self._candidate_kernel, self._gate_bias,
            self._candidate_bias,
        )  # fmt: skip
        return outputs[3], outputs[3]

    def __init__(
        self, num_units: int | None = None, cell_size: int | None = None,
        reuse: bool | None = None, name: str | None = "gru_cell", dtype: Any = None,
    ):  # fmt: skip
        if (cell_size is None) == (num_units is None):
            raise ValueError("Exactly one of num_units or cell_size must be provided.")
        size = num_units if num_units is not None else cell_size
        super().__init__(size, reuse=reuse, name=name, dtype=dtype)


@export(v1="contrib.rnn.FusedRNNCell")
class FusedRNNCell:
    """Runs over whole sequences at once."""

    def __call__(
        self, inputs: Any, initial_state: Any = None, dtype: Any = None,
        sequence_length: Any = None, scope: Any = None,
    ) -> Any:  # fmt: skip
        """Outputs and final state of [time, batch, size] inputs, or of a list with one per time."""
        raise NotImplementedError


@export(v1="contrib.rnn.FusedRNNCellAdaptor")
class FusedRNNCellAdaptor(FusedRNNCell):
    """Makes a `FusedRNNCell` of a cell, with a loop where `use_dynamic_rnn`, else unrolled."""

    def __init__(self, cell: Any, use_dynamic_rnn: bool = False):
        self._cell = cell
        self._use_dynamic_rnn = use_dynamic_rnn

    def __call__(
        self, inputs: Any, initial_state: Any = None, dtype: Any = None,
        sequence_length: Any = None, scope: Any = None,
    ) -> Any:  # fmt: skip
        is_list = isinstance(inputs, (list, tuple))
        options = {
            "sequence_length": sequence_length, "initial_state": initial_state, "dtype": dtype,
            "scope": scope,
        }  # fmt: skip
        if self._use_dynamic_rnn:
            whole = array.stack(inputs) if is_list else inputs
            outputs, state = dynamic_rnn(self._cell, whole, time_major=True, **options)
            return (array.unstack(outputs) if is_list else outputs), state
        parts = list(inputs) if is_list else array.unstack(inputs)
        outputs, state = static_rnn(self._cell, parts, **options)
        return (outputs if is_list else array.stack(outputs)), state


@export(v1="contrib.rnn.TimeReversedFusedRNN")
class TimeReversedFusedRNN(FusedRNNCell):
    """Runs a `FusedRNNCell` from the end of each sequence to its beginning."""

    def __init__(self, cell: FusedRNNCell):
        self._cell = cell

    def __call__(
        self, inputs: Any, initial_state: Any = None, dtype: Any = None,
        sequence_length: Any = None, scope: Any = None,
    ) -> Any:  # fmt: skip
        def turned(value: Tensor) -> Tensor:
            if sequence_length is None:
                return reverse(value, [0])
            return reverse_sequence(value, sequence_length, seq_axis=0, batch_axis=1)

        is_list = isinstance(inputs, (list, tuple))
        whole = turned(array.stack(inputs) if is_list else inputs)
        outputs, state = self._cell(whole, initial_state, dtype, sequence_length, scope)
        outputs = nest.map_structure(turned, outputs)
        return (array.unstack(outputs) if is_list else outputs), state


class _SequenceCell(LSTMBlockCell):
    """All steps of a sequence, with variables in `variables_scope`, wherever it is called."""

    variables_scope: Any = None

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        return super().__call__(inputs, state, scope=self.variables_scope)

    def call(self, inputs: Tensor, state: Any) -> Any:
        """All cs and h of [time, batch, size] inputs; of a state (length, c, h), zeros after
        `length` steps."""
        outputs = gen_ops.block_lstm(
            state[0], inputs, *state[1:], self._kernel, *self._peepholes(inputs), self._bias,
            **self._options(),
        )  # fmt: skip
        return outputs[1], outputs[6]


@export(v1="contrib.rnn.LSTMBlockFusedCell")
class LSTMBlockFusedCell(FusedRNNCell):
    """An LSTM over [time, batch, size] inputs, one op; the arguments are those of
    `LSTMBlockCell`."""

    def __init__(
        self, num_units: int, forget_bias: float = 1.0, cell_clip: float | None = None,
        use_peephole: bool = False, reuse: bool | None = None, dtype: Any = None,
        name: str | None = "lstm_fused_cell",
    ):  # fmt: skip
        self._name = name
        self._cell = _SequenceCell(
            num_units, forget_bias, cell_clip, use_peephole, dtype, reuse, name
        )

    @property
    def num_units(self) -> int:
        """The size of c and h."""
        return self._cell.output_size

    def __call__(
        self, inputs: Any, initial_state: Any = None, dtype: Any = None,
        sequence_length: Any = None, scope: Any = None,
    ) -> Any:  # fmt: skip
        is_list = isinstance(inputs, (list, tuple))
        whole = array.stack(inputs) if is_list else convert_to_tensor(inputs)
        with variable_scope(scope or self._name) as opened:
            self._cell.variables_scope = self._cell.variables_scope or opened
            steps, batch = array.shape(whole)[0], array.shape(whole)[1]
            if initial_state is None:
                initial_state = self._cell.zero_state(batch, dtype or whole.dtype)
            c, h = initial_state
            length = steps
            if sequence_length is not None:
                sequence_length = gen_ops.cast(convert_to_tensor(sequence_length), int32)
                length = reduce_max(sequence_length)
            all_c, all_h = self._cell(whole, (gen_ops.cast(length, int64), c, h))
            state = LSTMStateTuple(all_c[-1], all_h[-1])
            if sequence_length is not None:
                rows = array.stack([sequence_length, gen_ops.range(0, batch, 1)], 1)
                state = LSTMStateTuple(_last(c, all_c, rows), _last(h, all_h, rows))
                mask = array.sequence_mask(sequence_length, steps, whole.dtype)
                all_h = all_h * array.expand_dims(array.transpose(mask), -1)
        return (array.unstack(all_h) if is_list else all_h), state


def _last(first: Any, following: Tensor, rows: Tensor) -> Tensor:
    """Of states `first` and those after each step, the ones of [steps done, place in batch]."""
    return gather_nd(array.concat([array.expand_dims(first, 0), following], 0), rows)
