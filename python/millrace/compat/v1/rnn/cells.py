"""Cells of recurrent networks: one step each."""

from collections import namedtuple
from typing import Any

from millrace import gen_ops
from millrace.compat.v1.rnn.cell import (
    BIAS,
    KERNEL,
    RNNCell,
    as_activation,
    constant_initializer,
    known_depth,
    zeros_initializer,
)
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.ops import array, reduce
from millrace.ops.nn.activations import dropout
from millrace.state.partitioners import fixed_size_partitioner
from millrace.state.variable_scope import get_variable, variable_scope


@export(v1=("nn.rnn_cell.BasicRNNCell", "contrib.rnn.BasicRNNCell"))
class BasicRNNCell(RNNCell):
    """output = new_state = act(W input + U state + b)."""

    def __init__(
        self, num_units: int, activation: Any = None, reuse: bool | None = None,
        name: str | None = None, dtype: Any = None, **kwargs: Any,
    ):  # fmt: skip
        kwargs.pop("input_size", None)
        super().__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self._num_units = num_units
        self._activation = as_activation(activation, gen_ops.tanh)

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
        depth = known_depth(inputs_shape, self.name)
        self._kernel = self.add_variable(KERNEL, [depth + self._num_units, self._num_units])
        self._bias = self.add_variable(BIAS, [self._num_units], initializer=zeros_initializer())
        self.built = True

    def call(self, inputs: Tensor, state: Tensor) -> Any:
        """One step."""
        gates = gen_ops.mat_mul(array.concat([inputs, state], 1), self._kernel)
        output = self._activation(gen_ops.bias_add(gates, self._bias))
        return output, output


@export(v1=("nn.rnn_cell.GRUCell", "contrib.rnn.GRUCell"))
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
        self._activation = as_activation(activation, gen_ops.tanh)
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
        units, depth = self._num_units, known_depth(inputs_shape, self.name)
        init = self._kernel_initializer
        bias = self._bias_initializer
        self._gate_kernel = self.add_variable(
            "gates/" + KERNEL, [depth + units, 2 * units], initializer=init
        )
        self._gate_bias = self.add_variable(
            "gates/" + BIAS, [2 * units],
            initializer=bias if bias is not None else constant_initializer(1.0, self.dtype),
        )  # fmt: skip
        self._candidate_kernel = self.add_variable(
            "candidate/" + KERNEL, [depth + units, units], initializer=init
        )
        self._candidate_bias = self.add_variable(
            "candidate/" + BIAS,
            [units],
            initializer=bias if bias is not None else zeros_initializer(),
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


LSTMStateTuple = export(v1=("nn.rnn_cell.LSTMStateTuple", "contrib.rnn.LSTMStateTuple"))(
    LSTMStateTuple
)


@export(v1=("nn.rnn_cell.BasicLSTMCell", "contrib.rnn.BasicLSTMCell"))
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
        self._activation = as_activation(activation, gen_ops.tanh)

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
        units, depth = self._num_units, known_depth(inputs_shape, self.name)
        self._kernel = self.add_variable(KERNEL, [depth + units, 4 * units])
        self._bias = self.add_variable(BIAS, [4 * units], initializer=zeros_initializer())
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


@export(v1=("nn.rnn_cell.LSTMCell", "contrib.rnn.LSTMCell"))
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
        self._activation = as_activation(activation, gen_ops.tanh)
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
        units, depth, init = (
            self._num_units,
            known_depth(inputs_shape, self.name),
            self._initializer,
        )

        def parts(count: int | None) -> Any:
            return fixed_size_partitioner(count) if count is not None else None

        self._kernel = self.add_variable(
            KERNEL, [depth + self._output_size, 4 * units], initializer=init,
            partitioner=parts(self._num_unit_shards),
        )  # fmt: skip
        self._bias = self.add_variable(BIAS, [4 * units], initializer=zeros_initializer())
        if self._use_peepholes:
            self._w_f_diag = self.add_variable("w_f_diag", [units], initializer=init)
            self._w_i_diag = self.add_variable("w_i_diag", [units], initializer=init)
            self._w_o_diag = self.add_variable("w_o_diag", [units], initializer=init)
        if self._num_proj is not None:
            self._proj_kernel = self.add_variable(
                "projection/" + KERNEL, [units, self._num_proj], initializer=init,
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


@export(v1="contrib.rnn.NASCell")
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
        units, depth = self._num_units, known_depth(inputs_shape, self.name)
        self._recurrent = self.add_variable("recurrent_kernel", [self.output_size, 8 * units])
        self._kernel = self.add_variable(KERNEL, [depth, 8 * units])
        if self._use_biases:
            self._bias = self.add_variable(BIAS, [8 * units], initializer=zeros_initializer())
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


@export(v1="contrib.rnn.LayerNormBasicLSTMCell")
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
        self._activation = as_activation(activation, gen_ops.tanh)
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
            gamma = get_variable("gamma", units, initializer=constant_initializer(self._gain))
            beta = get_variable("beta", units, initializer=constant_initializer(self._shift))
        mean = reduce.reduce_mean(x, [1], keepdims=True)
        variance = reduce.reduce_mean(gen_ops.squared_difference(x, mean), [1], keepdims=True)
        return (x - mean) * gen_ops.rsqrt(variance + 1e-12) * gamma + beta

    def call(self, inputs: Tensor, state: Any) -> Any:
        """One step."""
        c, h = state
        args = array.concat([inputs, h], 1)
        units = self._num_units
        kernel = get_variable(KERNEL, [known_depth(args.shape, self.name), 4 * units])
        gates = gen_ops.mat_mul(args, kernel)
        if not self._layer_norm:
            gates = gen_ops.bias_add(
                gates, get_variable(BIAS, [4 * units], initializer=zeros_initializer())
            )
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
