"""What cells are: a step of a recurrent network, from input and state to output and state."""

from typing import Any, Callable

from millrace import gen_ops
from millrace.compat.v1.layers.base import Layer
from millrace.core import dtypes, nest
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.static_value import constant_value
from millrace.ops import array
from millrace.ops.nn import activations
from millrace.state.initializers import Constant, Zeros
from millrace.state.variable_scope import get_variable_scope, variable_scope

KERNEL = "kernel"
BIAS = "bias"


def is_cell(cell: Any) -> bool:
    """Whether an object can be used as a cell."""
    return (
        hasattr(cell, "output_size")
        and hasattr(cell, "state_size")
        and (hasattr(cell, "zero_state") or hasattr(cell, "get_initial_state"))
        and callable(cell)
    )


def check_cell(cell: Any, name: str = "cell") -> None:
    """TypeError unless an object can be used as a cell."""
    if not is_cell(cell):
        raise TypeError(
            f"The argument '{name}' ({cell!r}) is not an RNNCell: it must be callable and have "
            "output_size, state_size and zero_state."
        )


def with_batch(batch_size: Any, size: Any) -> Any:
    """The shape [batch_size, *size]: a tensor where the batch size is one."""
    dims = TensorShape(size if isinstance(size, (list, tuple, TensorShape)) else [size]).as_list()
    if isinstance(batch_size, Tensor):
        known = constant_value(batch_size)
        if known is None:
            return array.concat([array.expand_dims(batch_size, 0), dims], 0)
        batch_size = int(known)
    return [batch_size, *dims]


def static_with_batch(batch_size: Any, size: Any) -> list[int | None]:
    """What is known of `with_batch` before anything runs."""
    dims = TensorShape(size if isinstance(size, (list, tuple, TensorShape)) else [size]).as_list()
    if isinstance(batch_size, Tensor):
        known = constant_value(batch_size)
        batch_size = None if known is None else int(known)
    return [batch_size, *dims]


def zero_state(state_size: Any, batch_size: Any, dtype: Any) -> Any:
    """Zeros of a structure of state sizes."""

    def zeros(size: Any) -> Tensor:
        made = array.zeros(with_batch(batch_size, size), dtype=dtype)
        made.set_shape(static_with_batch(batch_size, size))
        return made

    if isinstance(state_size, TensorShape) or not nest.is_nested(state_size):
        return zeros(state_size)
    return nest.map_structure(zeros, state_size)


def as_activation(activation: Any, default: Callable[..., Any]) -> Callable[..., Any]:
    if activation is None:
        return default
    if isinstance(activation, str):
        found = {
            "linear": lambda x: x, "tanh": gen_ops.tanh, "sigmoid": gen_ops.sigmoid,
        }.get(activation) or getattr(activations, activation, None) or getattr(
            gen_ops, activation, None
        )  # fmt: skip
        if found is None:
            raise ValueError(f"Unknown activation function: {activation!r}")
        return found
    return activation


def known_depth(shape: Any, what: str) -> int:
    depth = TensorShape(shape).with_rank_at_least(1).as_list()[-1]
    if depth is None:
        raise ValueError(f"Expected inputs.shape[-1] to be known, saw shape: {shape} ({what})")
    return depth


@export(v1=("nn.rnn_cell.RNNCell", "contrib.rnn.RNNCell"))
class RNNCell(Layer):
    """The base of cells: `output, next_state = cell(inputs, state)`.

    A subclass has `state_size` and `output_size` (numbers, shapes, or structures of them) and
    `call(inputs, state)`, in which `get_variable` and `add_variable` make its variables; or
    `__call__(inputs, state, scope=None)` itself.
    """

    def __init__(
        self, trainable: bool = True, name: str | None = None, dtype: Any = None, **kwargs: Any
    ):
        super().__init__(trainable=trainable, name=name, dtype=dtype, **kwargs)
        self._is_tf_rnn_cell = True

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        """One step: (output, next state).

        `scope`: the variable scope of the cell's variables; the one that is open by default.
        """
        if scope is not None:
            with variable_scope(scope) as opened:
                return super().__call__(inputs, state, scope=opened)
        if getattr(self, "_outer_scope", None) is None:
            self._outer_scope = get_variable_scope()
        with variable_scope(self._outer_scope, auxiliary_name_scope=False):
            return super().__call__(inputs, state)

    @property
    def state_size(self) -> Any:
        """The sizes of the state."""
        raise NotImplementedError("Abstract method")

    @property
    def output_size(self) -> Any:
        """The size of the output."""
        raise NotImplementedError("Abstract method")

    def build(self, _: Any) -> None:
        """Nothing: cells that need it make their variables here."""

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """The state that a sequence begins with: zeros of [batch_size, size]."""
        with name_scope(type(self).__name__ + "ZeroState", None, None):
            return zero_state(self.state_size, batch_size, dtype)

    def get_initial_state(
        self, inputs: Any = None, batch_size: Any = None, dtype: Any = None
    ) -> Any:
        """`zero_state`, with batch size and type taken from `inputs` where they are given."""
        if inputs is not None:
            inputs = convert_to_tensor(inputs, name="inputs")
            batch_size = array.shape(inputs)[0] if batch_size is None else batch_size
            dtype = inputs.dtype if dtype is None else dtype
        if batch_size is None or dtype is None:
            raise ValueError(
                "batch_size and dtype cannot be None while constructing initial state: "
                f"batch_size={batch_size}, dtype={dtype}"
            )
        return self.zero_state(batch_size, dtype)


def zeros_initializer() -> Any:
    return Zeros()


def constant_initializer(value: float, dtype: Any = dtypes.float32) -> Any:
    return Constant(value, dtype=dtype or dtypes.float32)


def check_stacks(cells_fw: Any, cells_bw: Any, states_fw: Any, states_bw: Any) -> None:
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
