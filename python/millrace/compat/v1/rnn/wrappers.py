"""Cells made of other cells."""

import hashlib
from typing import Any, Callable

from millrace import gen_ops
from millrace.compat.v1.rnn.cell import (
    BIAS,
    KERNEL,
    RNNCell,
    check_cell,
    known_depth,
    zero_state,
    zeros_initializer,
)
from millrace.compat.v1.rnn.cells import LSTMStateTuple
from millrace.core import nest
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph, name_scope
from millrace.graph.static_value import constant_value
from millrace.ops import array, gather, random
from millrace.ops.nn.activations import dropout
from millrace.state.initializers import RandomUniform
from millrace.state.variable_scope import get_variable, get_variable_scope, variable_scope


@export(v1=("nn.rnn_cell.MultiRNNCell", "contrib.rnn.MultiRNNCell"))
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


@export(v1=("nn.rnn_cell.DropoutWrapper", "contrib.rnn.DropoutWrapper"))
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


@export(v1=("nn.rnn_cell.ResidualWrapper", "contrib.rnn.ResidualWrapper"))
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


@export(v1=("nn.rnn_cell.DeviceWrapper", "contrib.rnn.DeviceWrapper"))
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
    depth = known_depth(x.shape, "projection")
    kernel = get_variable(KERNEL, [depth, output_size], dtype=x.dtype.base_dtype)
    bias = get_variable(
        BIAS, [output_size], dtype=x.dtype.base_dtype, initializer=zeros_initializer()
    )
    return gen_ops.bias_add(gen_ops.mat_mul(x, kernel), bias)


@export(v1="contrib.rnn.EmbeddingWrapper")
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
            rows = gather.gather(table, array.reshape(inputs, [-1]))
        return self._cell(rows, state)


@export(v1="contrib.rnn.InputProjectionWrapper")
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


@export(v1="contrib.rnn.OutputProjectionWrapper")
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
