"""Cells of recurrent networks: one step each."""

import hashlib
from collections import namedtuple
from typing import Any, Callable

from millrace import gen_ops
from millrace.compat.v1.layers.base import Layer
from millrace.core import dtypes, nest
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.graph.convert import convert_to_tensor
from millrace.graph.graph import Tensor, get_default_graph, name_scope
from millrace.graph.static_value import constant_value
from millrace.ops import array, random, reduce
from millrace.ops.nn import activations
from millrace.ops.nn.activations import dropout
from millrace.state.initializers import Constant, RandomUniform, Zeros
from millrace.state.partitioners import fixed_size_partitioner
from millrace.state.variable_scope import get_variable, get_variable_scope, variable_scope

_KERNEL = "kernel"
_BIAS = "bias"


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


def _activation(activation: Any, default: Callable[..., Any]) -> Callable[..., Any]:
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


def _depth(shape: Any, what: str) -> int:
    depth = TensorShape(shape).with_rank_at_least(1).as_list()[-1]
    if depth is None:
        raise ValueError(f"Expected inputs.shape[-1] to be known, saw shape: {shape} ({what})")
    return depth


@export("nn.rnn_cell.RNNCell", "contrib.rnn.RNNCell")
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


@export("nn.rnn_cell.BasicRNNCell", "contrib.rnn.BasicRNNCell")
class BasicRNNCell(RNNCell):
    """output = new_state = act(W input + U state + b)."""

    def __init__(
        self, num_units: int, activation: Any = None, reuse: bool | None = None,
        name: str | None = None, dtype: Any = None, **kwargs: Any,
    ):  # fmt: skip
        kwargs.pop("input_size", None)
        super().__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self._num_units = num_units
        self._activation = _activation(activation, gen_ops.tanh)

    @property
    def state_size(self) -> int:
        """num_units."""
        return self._num_units

    @property
    def output_size(self) -> int:
        """num_units."""
        return self._num_units

    def build(self, inputs_shape: Any) -> None:
        """Makes kernel and bias."""
        depth = _depth(inputs_shape, self.name)
        self._kernel = self.add_variable(_KERNEL, [depth + self._num_units, self._num_units])
        self._bias = self.add_variable(_BIAS, [self._num_units], initializer=_zeros())
        self.built = True

    def call(self, inputs: Tensor, state: Tensor) -> Any:
        """One step."""
        gates = gen_ops.mat_mul(array.concat([inputs, state], 1), self._kernel)
        output = self._activation(gen_ops.bias_add(gates, self._bias))
        return output, output


def _zeros() -> Any:
    return Zeros()


def _constant(value: float, dtype: Any = dtypes.float32) -> Any:
    return Constant(value, dtype=dtype or dtypes.float32)


@export("nn.rnn_cell.GRUCell", "contrib.rnn.GRUCell")
class GRUCell(RNNCell):
    """Gated recurrent unit (Cho et al. 2014): a reset and an update gate."""

    def __init__(
        self, num_units: int, activation: Any = None, reuse: bool | None = None,
        kernel_initializer: Any = None, bias_initializer: Any = None, name: str | None = None,
        dtype: Any = None, **kwargs: Any,
    ):  # fmt: skip
        kwargs.pop("input_size", None)
        super().__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self._num_units = num_units
        self._activation = _activation(activation, gen_ops.tanh)
        self._kernel_initializer = kernel_initializer
        self._bias_initializer = bias_initializer

    @property
    def state_size(self) -> int:
        """num_units."""
        return self._num_units

    @property
    def output_size(self) -> int:
        """num_units."""
        return self._num_units

    def build(self, inputs_shape: Any) -> None:
        """Makes the kernels and biases of the gates and of the candidate."""
        units, depth = self._num_units, _depth(inputs_shape, self.name)
        init = self._kernel_initializer
        bias = self._bias_initializer
        self._gate_kernel = self.add_variable(
            "gates/" + _KERNEL, [depth + units, 2 * units], initializer=init
        )
        self._gate_bias = self.add_variable(
            "gates/" + _BIAS, [2 * units],
            initializer=bias if bias is not None else _constant(1.0, self.dtype),
        )  # fmt: skip
        self._candidate_kernel = self.add_variable(
            "candidate/" + _KERNEL, [depth + units, units], initializer=init
        )
        self._candidate_bias = self.add_variable(
            "candidate/" + _BIAS, [units], initializer=bias if bias is not None else _zeros()
        )
        self.built = True

    def call(self, inputs: Tensor, state: Tensor) -> Any:
        """One step."""
        gates = gen_ops.mat_mul(array.concat([inputs, state], 1), self._gate_kernel)
        gates = gen_ops.sigmoid(gen_ops.bias_add(gates, self._gate_bias))
        reset, update = array.split(value=gates, num_or_size_splits=2, axis=1)
        candidate = gen_ops.mat_mul(
            array.concat([inputs, reset * state], 1), self._candidate_kernel
        )
        candidate = self._activation(gen_ops.bias_add(candidate, self._candidate_bias))
        new_state = update * state + (1 - update) * candidate
        return new_state, new_state


class LSTMStateTuple(namedtuple("LSTMStateTuple", ("c", "h"))):
    """The state of an LSTM: (c, h)."""

    __slots__ = ()

    @property
    def dtype(self) -> dtypes.DType:
        """The type of both. TypeError when they differ."""
        c, h = self
        if c.dtype != h.dtype:
            raise TypeError(f"Inconsistent dtypes for internal state: {c.dtype} vs {h.dtype}")
        return c.dtype


LSTMStateTuple = export("nn.rnn_cell.LSTMStateTuple", "contrib.rnn.LSTMStateTuple")(LSTMStateTuple)


@export("nn.rnn_cell.BasicLSTMCell", "contrib.rnn.BasicLSTMCell")
class BasicLSTMCell(RNNCell):
    """Long short-term memory without peepholes, clipping or projection.

    Args:
      num_units: the size of c and h.
      forget_bias: added to the forget gate, so that training begins with remembering.
      state_is_tuple: states are LSTMStateTuples; otherwise c and h joined along axis 1.
    """

    def __init__(
        self, num_units: int, forget_bias: float = 1.0, state_is_tuple: Any = True,
        activation: Any = None, reuse: bool | None = None, name: str | None = None,
        dtype: Any = None, **kwargs: Any,
    ):  # fmt: skip
        kwargs.pop("input_size", None)
        super().__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self._num_units = num_units
        self._forget_bias = forget_bias
        self._state_is_tuple = state_is_tuple is None or bool(state_is_tuple)
        self._activation = _activation(activation, gen_ops.tanh)

    @property
    def state_size(self) -> Any:
        """LSTMStateTuple(num_units, num_units), or 2 num_units."""
        units = self._num_units
        return LSTMStateTuple(units, units) if self._state_is_tuple else 2 * units

    @property
    def output_size(self) -> int:
        """num_units."""
        return self._num_units

    def build(self, inputs_shape: Any) -> None:
        """Makes kernel and bias."""
        units, depth = self._num_units, _depth(inputs_shape, self.name)
        self._kernel = self.add_variable(_KERNEL, [depth + units, 4 * units])
        self._bias = self.add_variable(_BIAS, [4 * units], initializer=_zeros())
        self.built = True

    def call(self, inputs: Tensor, state: Any) -> Any:
        """One step."""
        if self._state_is_tuple:
            c, h = state
        else:
            c, h = array.split(value=state, num_or_size_splits=2, axis=1)
        gates = gen_ops.mat_mul(array.concat([inputs, h], 1), self._kernel)
        gates = gen_ops.bias_add(gates, self._bias)
        i, j, f, o = array.split(value=gates, num_or_size_splits=4, axis=1)
        new_c = c * gen_ops.sigmoid(f + self._forget_bias) + gen_ops.sigmoid(i) * self._activation(
            j
        )
        new_h = self._activation(new_c) * gen_ops.sigmoid(o)
        if self._state_is_tuple:
            return new_h, LSTMStateTuple(new_c, new_h)
        return new_h, array.concat([new_c, new_h], 1)


@export("nn.rnn_cell.LSTMCell", "contrib.rnn.LSTMCell")
class LSTMCell(RNNCell):
    """Long short-term memory, with peepholes, clipping and projection where asked for.

    Args:
      num_units: the size of c.
      use_peepholes: the gates see c.
      cell_clip: c is clipped to this range.
      num_proj: the output is projected to this size.
      proj_clip: the projection is clipped to this range.
      num_unit_shards, num_proj_shards: in how many parts the kernels are kept.
      state_is_tuple: states are LSTMStateTuples; otherwise c and h joined along axis 1.
    """

    def __init__(
        self, num_units: int, use_peepholes: bool = False, cell_clip: float | None = None,
        initializer: Any = None, num_proj: int | None = None, proj_clip: float | None = None,
        num_unit_shards: int | None = None, num_proj_shards: int | None = None,
        forget_bias: float = 1.0, state_is_tuple: bool = True, activation: Any = None,
        reuse: bool | None = None, name: str | None = None, dtype: Any = None, **kwargs: Any,
    ):  # fmt: skip
        kwargs.pop("input_size", None)
        super().__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self._num_units = num_units
        self._use_peepholes = bool(use_peepholes)
        self._cell_clip = cell_clip
        self._initializer = initializer
        self._num_proj = num_proj
        self._proj_clip = proj_clip
        self._num_unit_shards = num_unit_shards
        self._num_proj_shards = num_proj_shards
        self._forget_bias = forget_bias
        self._state_is_tuple = state_is_tuple
        self._activation = _activation(activation, gen_ops.tanh)
        self._output_size = num_proj or num_units

    @property
    def state_size(self) -> Any:
        """LSTMStateTuple(num_units, output_size), or their sum."""
        if self._state_is_tuple:
            return LSTMStateTuple(self._num_units, self._output_size)
        return self._num_units + self._output_size

    @property
    def output_size(self) -> int:
        """num_proj, or num_units without a projection."""
        return self._output_size

    def build(self, inputs_shape: Any) -> None:
        """Makes kernel, bias, peepholes and projection."""
        units, depth, init = self._num_units, _depth(inputs_shape, self.name), self._initializer

        def parts(count: int | None) -> Any:
            return fixed_size_partitioner(count) if count is not None else None

        self._kernel = self.add_variable(
            _KERNEL, [depth + self._output_size, 4 * units], initializer=init,
            partitioner=parts(self._num_unit_shards),
        )  # fmt: skip
        self._bias = self.add_variable(_BIAS, [4 * units], initializer=_zeros())
        if self._use_peepholes:
            self._w_f_diag = self.add_variable("w_f_diag", [units], initializer=init)
            self._w_i_diag = self.add_variable("w_i_diag", [units], initializer=init)
            self._w_o_diag = self.add_variable("w_o_diag", [units], initializer=init)
        if self._num_proj is not None:
            self._proj_kernel = self.add_variable(
                "projection/" + _KERNEL, [units, self._num_proj], initializer=init,
                partitioner=parts(self._num_proj_shards),
            )  # fmt: skip
        self.built = True

    def call(self, inputs: Tensor, state: Any) -> Any:
        """One step."""
        if self._state_is_tuple:
            c, m = state
        else:
            c = state[:, : self._num_units]
            m = state[:, self._num_units :]
        gates = gen_ops.mat_mul(array.concat([inputs, m], 1), self._kernel)
        gates = gen_ops.bias_add(gates, self._bias)
        i, j, f, o = array.split(value=gates, num_or_size_splits=4, axis=1)
        f = f + self._forget_bias
        if self._use_peepholes:
            f = f + self._w_f_diag * c
            i = i + self._w_i_diag * c
        new_c = gen_ops.sigmoid(f) * c + gen_ops.sigmoid(i) * self._activation(j)
        if self._cell_clip is not None:
            new_c = _clip(new_c, self._cell_clip)
        if self._use_peepholes:
            o = o + self._w_o_diag * new_c
        new_m = gen_ops.sigmoid(o) * self._activation(new_c)
        if self._num_proj is not None:
            new_m = gen_ops.mat_mul(new_m, self._proj_kernel)
            if self._proj_clip is not None:
                new_m = _clip(new_m, self._proj_clip)
        if self._state_is_tuple:
            return new_m, LSTMStateTuple(new_c, new_m)
        return new_m, array.concat([new_c, new_m], 1)


def _clip(x: Tensor, limit: float) -> Tensor:
    return gen_ops.maximum(gen_ops.minimum(x, limit), -limit)


@export("contrib.rnn.NASCell")
class NASCell(RNNCell):
    """The cell that architecture search found (Zoph and Le 2016)."""

    def __init__(
        self, num_units: int, num_proj: int | None = None, use_biases: bool = False,
        reuse: bool | None = None, **kwargs: Any,
    ):  # fmt: skip
        super().__init__(_reuse=reuse, **kwargs)
        self._num_units = num_units
        self._num_proj = num_proj
        self._use_biases = use_biases

    @property
    def state_size(self) -> LSTMStateTuple:
        """LSTMStateTuple(num_units, output_size)."""
        return LSTMStateTuple(self._num_units, self.output_size)

    @property
    def output_size(self) -> int:
        """num_proj, or num_units without a projection."""
        return self._num_proj or self._num_units

    def build(self, inputs_shape: Any) -> None:
        """Makes the kernels, the bias and the projection."""
        units, depth = self._num_units, _depth(inputs_shape, self.name)
        self._recurrent = self.add_variable("recurrent_kernel", [self.output_size, 8 * units])
        self._kernel = self.add_variable(_KERNEL, [depth, 8 * units])
        if self._use_biases:
            self._bias = self.add_variable(_BIAS, [8 * units], initializer=_zeros())
        if self._num_proj is not None:
            self._projection = self.add_variable("projection_weights", [units, self._num_proj])
        self.built = True

    def call(self, inputs: Tensor, state: Any) -> Any:
        """One step."""
        sigmoid, tanh, relu = gen_ops.sigmoid, gen_ops.tanh, gen_ops.relu
        c, m = state
        from_state = gen_ops.mat_mul(m, self._recurrent)
        if self._use_biases:
            from_state = gen_ops.bias_add(from_state, self._bias)
        a = array.split(gen_ops.mat_mul(inputs, self._kernel), 8, 1)
        b = array.split(from_state, 8, 1)
        left = tanh(tanh(sigmoid(a[0] + b[0]) * relu(a[1] + b[1])) + c)
        right = tanh(sigmoid(a[2] + b[2]) + relu(a[3] * b[3]))
        third = tanh(tanh(a[4] + b[4]) * sigmoid(a[5] + b[5]))
        fourth = sigmoid(tanh(a[6] + b[6]) + sigmoid(a[7] + b[7]))
        new_c = left * right
        new_m = tanh(new_c * tanh(third + fourth))
        if self._num_proj is not None:
            new_m = gen_ops.mat_mul(new_m, self._projection)
        return new_m, LSTMStateTuple(new_c, new_m)


@export("contrib.rnn.LayerNormBasicLSTMCell")
class LayerNormBasicLSTMCell(RNNCell):
    """An LSTM whose gates and state are normalised over the units (Ba et al. 2016), with recurrent
    dropout (Semeniuta et al. 2016)."""

    def __init__(
        self, num_units: int, forget_bias: float = 1.0, input_size: Any = None,
        activation: Any = None, layer_norm: bool = True, norm_gain: float = 1.0,
        norm_shift: float = 0.0, dropout_keep_prob: Any = 1.0, dropout_prob_seed: Any = None,
        reuse: bool | None = None,
    ):  # fmt: skip
        del input_size
        super().__init__(_reuse=reuse)
        self._num_units = num_units
        self._activation = _activation(activation, gen_ops.tanh)
        self._forget_bias = forget_bias
        self._keep_prob = dropout_keep_prob
        self._seed = dropout_prob_seed
        self._layer_norm = layer_norm
        self._gain = norm_gain
        self._shift = norm_shift

    @property
    def state_size(self) -> LSTMStateTuple:
        """LSTMStateTuple(num_units, num_units)."""
        return LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> int:
        """num_units."""
        return self._num_units

    def _norm(self, x: Tensor, scope: str) -> Tensor:
        units = [self._num_units]
        with variable_scope(scope):
            gamma = get_variable("gamma", units, initializer=_constant(self._gain))
            beta = get_variable("beta", units, initializer=_constant(self._shift))
        mean = reduce.reduce_mean(x, [1], keepdims=True)
        variance = reduce.reduce_mean(gen_ops.squared_difference(x, mean), [1], keepdims=True)
        return (x - mean) * gen_ops.rsqrt(variance + 1e-12) * gamma + beta

    def call(self, inputs: Tensor, state: Any) -> Any:
        """One step."""
        c, h = state
        args = array.concat([inputs, h], 1)
        units = self._num_units
        kernel = get_variable(_KERNEL, [_depth(args.shape, self.name), 4 * units])
        gates = gen_ops.mat_mul(args, kernel)
        if not self._layer_norm:
            gates = gen_ops.bias_add(gates, get_variable(_BIAS, [4 * units], initializer=_zeros()))
        i, j, f, o = array.split(value=gates, num_or_size_splits=4, axis=1)
        if self._layer_norm:
            i, j = self._norm(i, "input"), self._norm(j, "transform")
            f, o = self._norm(f, "forget"), self._norm(o, "output")
        g = self._activation(j)
        if not isinstance(self._keep_prob, float) or self._keep_prob < 1:
            g = dropout(g, self._keep_prob, seed=self._seed)
        new_c = c * gen_ops.sigmoid(f + self._forget_bias) + gen_ops.sigmoid(i) * g
        if self._layer_norm:
            new_c = self._norm(new_c, "state")
        new_h = self._activation(new_c) * gen_ops.sigmoid(o)
        return new_h, LSTMStateTuple(new_c, new_h)


@export("nn.rnn_cell.MultiRNNCell", "contrib.rnn.MultiRNNCell")
class MultiRNNCell(RNNCell):
    """Cells on top of each other: the output of one is the input of the next.

    Args:
      cells: a list of them, different objects.
      state_is_tuple: states are tuples of the cells' states; otherwise joined along axis 1.
    """

    def __init__(self, cells: Any, state_is_tuple: bool = True):
        super().__init__()
        if not cells:
            raise ValueError("Must specify at least one cell for MultiRNNCell.")
        if not nest.is_nested(cells):
            raise TypeError(f"cells must be a list or tuple, but saw: {cells}.")
        self._cells = list(cells)
        self._state_is_tuple = state_is_tuple
        if not state_is_tuple and any(nest.is_nested(c.state_size) for c in self._cells):
            raise ValueError(
                "Some cells return tuples of states, but the flag state_is_tuple is not set. "
                f"State sizes are: {[c.state_size for c in self._cells]}"
            )

    @property
    def state_size(self) -> Any:
        """The sizes of the cells' states."""
        if self._state_is_tuple:
            return tuple(cell.state_size for cell in self._cells)
        return sum(cell.state_size for cell in self._cells)

    @property
    def output_size(self) -> Any:
        """That of the last cell."""
        return self._cells[-1].output_size

    @property
    def trainable_variables(self) -> list[Any]:
        """Those of the cells."""
        return [v for c in self._cells for v in getattr(c, "trainable_variables", [])]

    @property
    def variables(self) -> list[Any]:
        """Those of the cells."""
        return [v for c in self._cells for v in getattr(c, "variables", [])]

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """The zero states of the cells."""
        with name_scope(type(self).__name__ + "ZeroState", None, None):
            if self._state_is_tuple:
                return tuple(cell.zero_state(batch_size, dtype) for cell in self._cells)
            return zero_state(self.state_size, batch_size, dtype)

    def call(self, inputs: Any, state: Any) -> Any:
        """One step through all cells."""
        at, current, states = 0, inputs, []
        for i, cell in enumerate(self._cells):
            with variable_scope(f"cell_{i}"):
                if self._state_is_tuple:
                    if not nest.is_nested(state):
                        raise ValueError(
                            f"Expected state to be a tuple of length {len(self._cells)}, but "
                            f"received: {state}"
                        )
                    own = state[i]
                else:
                    own = state[:, at : at + cell.state_size]
                    at += cell.state_size
                current, new_state = cell(current, own)
                states.append(new_state)
        return current, tuple(states) if self._state_is_tuple else array.concat(states, 1)


class _Wrapper(RNNCell):
    """A cell that changes what goes into or comes out of another, without a scope of its own."""

    def __init__(self, cell: Any, **kwargs: Any):
        super().__init__(**kwargs)
        check_cell(cell)
        self._cell = cell

    @property
    def wrapped_cell(self) -> Any:
        """The cell inside."""
        return self._cell

    @property
    def state_size(self) -> Any:
        """That of the cell inside."""
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        """That of the cell inside."""
        return self._cell.output_size

    @property
    def trainable_variables(self) -> list[Any]:
        """Those of the cell inside."""
        return self._cell.trainable_variables

    @property
    def variables(self) -> list[Any]:
        """Those of the cell inside."""
        return self._cell.variables

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """That of the cell inside."""
        with name_scope(type(self).__name__ + "ZeroState", None, None):
            return self._cell.zero_state(batch_size, dtype)


@export("nn.rnn_cell.DropoutWrapper", "contrib.rnn.DropoutWrapper")
class DropoutWrapper(_Wrapper):
    """Drops some of a cell's inputs, outputs or state.

    Args:
      input_keep_prob, output_keep_prob, state_keep_prob: the parts that are kept: numbers in (0, 1]
        or tensors.
      variational_recurrent: drop the same units at every step (Gal and Ghahramani 2015).
      input_size, dtype: of the inputs; for `variational_recurrent`.
      dropout_state_filter_visitor: says of each part of the state whether it is dropped; not c of
        an LSTM and no TensorArray by default.
    """

    def __init__(
        self, cell: Any, input_keep_prob: Any = 1.0, output_keep_prob: Any = 1.0,
        state_keep_prob: Any = 1.0, variational_recurrent: bool = False, input_size: Any = None,
        dtype: Any = None, seed: int | None = None, dropout_state_filter_visitor: Any = None,
        **kwargs: Any,
    ):  # fmt: skip
        super().__init__(cell, **kwargs)
        probabilities = (input_keep_prob, state_keep_prob, output_keep_prob)
        for label, value in zip(("input", "state", "output"), probabilities, strict=True):
            known = constant_value(convert_to_tensor(value))
            if known is not None and not 0 <= float(known) <= 1:
                raise ValueError(
                    f"Parameter {label}_keep_prob must be between 0 and 1: {float(known)}"
                )
        if dropout_state_filter_visitor is not None and not callable(dropout_state_filter_visitor):
            raise TypeError("dropout_state_filter_visitor must be callable")
        self._input_keep_prob, self._state_keep_prob, self._output_keep_prob = probabilities
        self._variational = variational_recurrent
        self._seed = seed
        self._filter = dropout_state_filter_visitor or _drop_all_but_memory
        self._noise: dict[str, Any] = {}
        if variational_recurrent:
            self._make_noise(input_size, dtype)

    def _make_noise(self, input_size: Any, dtype: Any) -> None:
        if dtype is None:
            raise ValueError("When variational_recurrent=True, dtype must be provided")

        def noise(salt: str, sizes: Any) -> Any:
            def one(size: Any, number: int) -> Tensor:
                dims = TensorShape(size if isinstance(size, (list, tuple)) else [size]).as_list()
                return random.random_uniform(
                    [1, *dims], dtype=dtype, seed=self._salted(f"{salt}_{number}")
                )

            flat = nest.flatten(sizes)
            return nest.pack_sequence_as(sizes, [one(s, i) for i, s in enumerate(flat)])

        if _drops(self._input_keep_prob):
            if input_size is None:
                raise ValueError(
                    "When variational_recurrent=True and input_keep_prob < 1.0 or is unknown, "
                    "input_size must be provided"
                )
            self._noise["input"] = noise("input", input_size)
        self._noise["state"] = noise("state", self._cell.state_size)
        self._noise["output"] = noise("output", self._cell.output_size)

    def _salted(self, salt: str) -> int | None:
        if self._seed is None:
            return None
        text = f"{self._seed}{salt}".encode()
        return int(hashlib.md5(text).hexdigest()[:8], 16) & 0x7FFFFFFF

    def _drop(self, values: Any, salt: str, keep_prob: Any, shallow: Any = None) -> Any:
        if shallow is None:
            shallow = nest.map_structure(lambda _: True, values)
        flat = nest.flatten(values)
        chosen = nest.flatten(shallow)
        noises = nest.flatten(self._noise[salt]) if self._variational else [None] * len(flat)
        out = []
        for i, (value, drop, noise) in enumerate(zip(flat, chosen, noises, strict=True)):
            if not drop or hasattr(value, "_with_flow"):
                out.append(value)
            elif noise is not None:
                mask = gen_ops.floor(noise + keep_prob)
                dropped = value / keep_prob * mask
                dropped.set_shape(value.shape)
                out.append(dropped)
            else:
                out.append(dropout(value, keep_prob, seed=self._salted(f"{salt}_{i}")))
        return nest.pack_sequence_as(values, out)

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        """One step of the cell inside, with things dropped."""
        if _drops(self._input_keep_prob):
            inputs = self._drop(inputs, "input", self._input_keep_prob)
        if scope is None:
            output, new_state = self._cell(inputs, state)
        else:
            output, new_state = self._cell(inputs, state, scope)
        if _drops(self._state_keep_prob):
            shallow = _filtered(self._filter, new_state)
            new_state = self._drop(new_state, "state", self._state_keep_prob, shallow)
        if _drops(self._output_keep_prob):
            output = self._drop(output, "output", self._output_keep_prob)
        return output, new_state


def _drops(keep_prob: Any) -> bool:
    return not isinstance(keep_prob, (int, float)) or keep_prob < 1


def _drop_all_but_memory(substate: Any) -> Any:
    if isinstance(substate, LSTMStateTuple):
        return LSTMStateTuple(c=False, h=True)
    return not hasattr(substate, "_with_flow")


def _filtered(visitor: Callable[[Any], Any], state: Any) -> Any:
    """What the visitor says, for every leaf of the state."""
    said = visitor(state)
    if nest.is_nested(state) and isinstance(said, bool):
        if nest.is_nested(state) and not said:
            return nest.map_structure(lambda _: False, state)
        if isinstance(state, dict):
            return {k: _filtered(visitor, v) for k, v in state.items()}
        parts = [_filtered(visitor, part) for part in state]
        return type(state)(*parts) if nest.is_namedtuple(state) else type(state)(parts)
    return said


@export("nn.rnn_cell.ResidualWrapper", "contrib.rnn.ResidualWrapper")
class ResidualWrapper(_Wrapper):
    """Adds a cell's inputs to its outputs.

    `residual_fn(inputs, outputs)`: another way to join them.
    """

    def __init__(self, cell: Any, residual_fn: Any = None, **kwargs: Any):
        super().__init__(cell, **kwargs)
        self._residual_fn = residual_fn

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        """One step of the cell inside, with the inputs added."""
        if scope is None:
            outputs, new_state = self._cell(inputs, state)
        else:
            outputs, new_state = self._cell(inputs, state, scope)

        def add(inp: Tensor, out: Tensor) -> Tensor:
            inp.shape.assert_is_compatible_with(out.shape)
            return inp + out

        if self._residual_fn is not None:
            return self._residual_fn(inputs, outputs), new_state
        nest.assert_same_structure(inputs, outputs)
        return nest.map_structure(add, inputs, outputs), new_state


@export("nn.rnn_cell.DeviceWrapper", "contrib.rnn.DeviceWrapper")
class DeviceWrapper(_Wrapper):
    """Runs a cell on a device."""

    def __init__(self, cell: Any, device: Any, **kwargs: Any):
        super().__init__(cell, **kwargs)
        self._device = device

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """That of the cell inside, on the device."""
        with get_default_graph().device(self._device):
            return super().zero_state(batch_size, dtype)

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        """One step of the cell inside, on the device."""
        with get_default_graph().device(self._device):
            if scope is None:
                return self._cell(inputs, state)
            return self._cell(inputs, state, scope)


class _Scoped(_Wrapper):
    """A wrapper with variables and so a scope of its own."""

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        """One step."""
        return RNNCell.__call__(self, inputs, state, scope)


def _linear(x: Tensor, output_size: int) -> Tensor:
    depth = _depth(x.shape, "projection")
    kernel = get_variable(_KERNEL, [depth, output_size], dtype=x.dtype.base_dtype)
    bias = get_variable(_BIAS, [output_size], dtype=x.dtype.base_dtype, initializer=_zeros())
    return gen_ops.bias_add(gen_ops.mat_mul(x, kernel), bias)


@export("contrib.rnn.EmbeddingWrapper")
class EmbeddingWrapper(_Scoped):
    """Looks integer inputs up in a table before they go into a cell."""

    def __init__(
        self, cell: Any, embedding_classes: int, embedding_size: int, initializer: Any = None,
        reuse: bool | None = None,
    ):  # fmt: skip
        super().__init__(cell, _reuse=reuse)
        if embedding_classes <= 0 or embedding_size <= 0:
            raise ValueError(
                "Both embedding_classes and embedding_size must be > 0: "
                f"{embedding_classes}, {embedding_size}."
            )
        self._classes = embedding_classes
        self._size = embedding_size
        self._initializer = initializer

    def call(self, inputs: Tensor, state: Any) -> Any:
        """One step."""
        initializer = self._initializer or get_variable_scope().initializer
        if initializer is None:
            limit = 3**0.5  # uniform with variance 1
            initializer = RandomUniform(-limit, limit)
        first = nest.flatten(state)[0]
        with get_default_graph().device("/cpu:0"):
            table = get_variable(
                "embedding", [self._classes, self._size], initializer=initializer,
                dtype=first.dtype.base_dtype,
            )  # fmt: skip
            rows = array.gather(table, array.reshape(inputs, [-1]))
        return self._cell(rows, state)


@export("contrib.rnn.InputProjectionWrapper")
class InputProjectionWrapper(_Scoped):
    """Projects inputs before they go into a cell."""

    def __init__(
        self, cell: Any, num_proj: int, activation: Any = None, input_size: Any = None,
        reuse: bool | None = None,
    ):  # fmt: skip
        del input_size
        super().__init__(cell, _reuse=reuse)
        self._num_proj = num_proj
        self._activation = activation

    def call(self, inputs: Tensor, state: Any) -> Any:
        """One step."""
        projected = _linear(inputs, self._num_proj)
        if self._activation is not None:
            projected = self._activation(projected)
        return self._cell(projected, state)


@export("contrib.rnn.OutputProjectionWrapper")
class OutputProjectionWrapper(_Scoped):
    """Projects what comes out of a cell."""

    def __init__(
        self, cell: Any, output_size: int, activation: Any = None, reuse: bool | None = None
    ):
        super().__init__(cell, _reuse=reuse)
        if output_size < 1:
            raise ValueError(f"Parameter output_size must be > 0: {output_size}.")
        self._projected_size = output_size
        self._activation = activation

    @property
    def output_size(self) -> int:
        """The size of the projection."""
        return self._projected_size

    def call(self, inputs: Any, state: Any) -> Any:
        """One step."""
        output, new_state = self._cell(inputs, state)
        projected = _linear(output, self._projected_size)
        return projected if self._activation is None else self._activation(projected), new_state
