"""Cells of TensorFlow that are one op each, with its names and variables, made of the usual ops."""

from typing import Any

from millrace.compat.v1.rnn.cells import GRUCell, LSTMCell, LSTMStateTuple
from millrace.compat.v1.rnn.dynamic_rnn import dynamic_rnn
from millrace.compat.v1.rnn.static_rnn import static_rnn
from millrace.core import nest
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.ops import array
from millrace.ops.gather import reverse, reverse_sequence
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


@export(v1=("contrib.rnn.GRUBlockCell", "contrib.rnn.GRUBlockCellV2"))
class GRUBlockCell(GRUCell):
    """`GRUCell`; its size may be called `cell_size`."""

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


class _CellOfScope(LSTMBlockCell):
    """A cell whose variables are in `variables_scope`, wherever it is called."""

    variables_scope: Any = None

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        return super().__call__(inputs, state, scope=self.variables_scope)


@export(v1="contrib.rnn.LSTMBlockFusedCell")
class LSTMBlockFusedCell(FusedRNNCell):
    """An LSTM over [time, batch, size] inputs; the arguments are those of `LSTMBlockCell`."""

    def __init__(
        self, num_units: int, forget_bias: float = 1.0, cell_clip: float | None = None,
        use_peephole: bool = False, reuse: bool | None = None, dtype: Any = None,
        name: str | None = "lstm_fused_cell",
    ):  # fmt: skip
        self._name = name
        self._cell = _CellOfScope(
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
        if initial_state is None:
            dtype = dtype or whole.dtype
        else:
            initial_state = LSTMStateTuple(*initial_state)
        with variable_scope(scope or self._name) as opened:
            self._cell.variables_scope = self._cell.variables_scope or opened
            outputs, state = dynamic_rnn(
                self._cell, whole, sequence_length, initial_state, dtype, time_major=True
            )
        return (array.unstack(outputs) if is_list else outputs), state
