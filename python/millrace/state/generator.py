"""Generator: a stream of random numbers as an object, whose place is a variable."""

import secrets
from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.core.trackable import Trackable
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops.math import cast
from millrace.ops.random import shape_tensor
from millrace.ops.stateless_random import algorithm_number, check_bounds_of_integers
from millrace.state.eager_variable import Variable

_PHILOX = 1
# How far one number takes a stream: it may need as many blocks.
_BLOCKS = 256


def _as_int64(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


@export(v2=("random.create_rng_state", "random.experimental.create_rng_state"))
def create_rng_state(seed: Any, alg: Any) -> Tensor:
    """[3] int64: where the stream of a seed begins. The seed is an integer of up to 192 bits, or up
    to three of 64."""
    _check_algorithm(alg)
    if isinstance(seed, (int, np.integer)):
        number = int(seed)
        words = [_as_int64(number >> shift) for shift in (0, 64, 128)]
        if not -(1 << 191) <= number < 1 << 192:
            raise ValueError(f"the seed {number} has more than 192 bits")
        if number < 0:
            words = [w if i == 0 or number >> (64 * i) != -1 else 0 for i, w in enumerate(words)]
        return convert_to_tensor(np.array(words, np.int64))
    seed = convert_to_tensor(seed, name="seed")
    if seed.dtype not in (dtypes.int32, dtypes.int64):
        raise TypeError(f"a seed is made of integers, got {seed.dtype.name}")
    seed = gen_ops.reshape(cast(seed, dtypes.int64), [-1])
    given = seed.shape.as_list()[0]
    if given is None or given > 3:
        raise ValueError(f"Seed has too many elements: at most 3, got {given}")
    zeros = convert_to_tensor(np.zeros(3 - given, np.int64))
    return gen_ops.concat_v2([seed, zeros], 0)


def _check_algorithm(alg: Any) -> int:
    number = algorithm_number(_PHILOX if alg is None else alg)
    if number == 3:
        number = _PHILOX
    if number != _PHILOX:
        raise ValueError(f"Unsupported algorithm {alg!r}: numbers are made by Philox")
    return number


@export(v2=("random.Generator", "random.experimental.Generator"))
class Generator(Trackable):
    """A stream of random numbers: each call goes on where the one before ended.

    Made by `from_seed`, `from_non_deterministic_state`, `from_state` and `from_key_counter`.
    """

    def __init__(self, copy_from: Any = None, state: Any = None, alg: Any = None):
        if copy_from is not None:
            if state is not None or alg is not None:
                raise ValueError("give copy_from, or state and alg")
            state, alg = copy_from.state.read_value(), copy_from.algorithm
        if state is None or alg is None:
            raise ValueError("give copy_from, or state and alg")
        self._alg = _check_algorithm(alg)
        state = convert_to_tensor(state, dtype=dtypes.int64, name="state")
        if not state.shape.is_compatible_with([3]):
            raise ValueError(f"the state of Philox is 3 integers, got shape {state.shape}")
        self._state = Variable(state, trainable=False, name="StateVar")
        self._track_trackable(self._state, "_state_var")

    @classmethod
    def from_state(cls, state: Any, alg: Any) -> "Generator":
        """From what another one's `state` was."""
        return cls(state=state, alg=alg)

    @classmethod
    def from_seed(cls, seed: Any, alg: Any = None) -> "Generator":
        """The stream of a seed: the same seed, the same numbers."""
        alg = _check_algorithm(alg)
        return cls(state=create_rng_state(seed, alg), alg=alg)

    @classmethod
    def from_non_deterministic_state(cls, alg: Any = None) -> "Generator":
        """A stream that begins somewhere at random."""
        words = [_as_int64(secrets.randbits(64)) for _ in range(3)]
        return cls(state=np.array(words, np.int64), alg=_check_algorithm(alg))

    @classmethod
    def from_key_counter(cls, key: Any, counter: Any, alg: Any) -> "Generator":
        """The stream of a key, from a counter, two integers, on."""
        return cls(state=_state_of(key, counter), alg=_check_algorithm(alg))

    def reset(self, state: Any) -> None:
        """Goes to the place that another one's `state` was."""
        self._state.assign(convert_to_tensor(state, dtype=dtypes.int64))

    def reset_from_seed(self, seed: Any) -> None:
        """Goes to the beginning of the stream of a seed."""
        self.reset(create_rng_state(seed, self._alg))

    def reset_from_key_counter(self, key: Any, counter: Any) -> None:
        """Goes to a place in the stream of a key."""
        self.reset(_state_of(key, counter))

    @property
    def state(self) -> Any:
        """The variable with the place in the stream: the counter, two integers, and the key."""
        return self._state

    @property
    def algorithm(self) -> int:
        """The number of the algorithm."""
        return self._alg

    @property
    def key(self) -> Tensor:
        """The key of the stream."""
        return self._state.read_value()[2]

    def skip(self, delta: Any) -> Tensor:
        """Goes on as if `delta` numbers were drawn; returns the place it was at."""
        before = self._state.read_value()
        words = gen_ops.bitcast(before, dtypes.uint64)
        blocks = gen_ops.bitcast(
            cast(convert_to_tensor(delta), dtypes.int64) * _BLOCKS, dtypes.uint64
        )
        low = gen_ops.add(words[0], blocks)
        carry = cast(gen_ops.less(low, words[0]), dtypes.uint64)
        after = gen_ops.pack([low, gen_ops.add(words[1], carry), words[2]])
        self._state.assign(gen_ops.bitcast(after, dtypes.int64))
        return before

    def _stream(self, shape: Tensor) -> tuple[Tensor, Tensor, int]:
        place = gen_ops.bitcast(
            self.skip(gen_ops.prod(cast(shape, dtypes.int64), 0)), dtypes.uint64
        )
        return place[2:], place[:2], self._alg

    def normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32,
        name: str | None = None,
    ) -> Tensor:  # fmt: skip
        """Values of a normal distribution."""
        return self._scaled(
            "stateful_normal", gen_ops.stateless_random_normal_v2, shape, mean, stddev, dtype, name
        )

    def truncated_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32,
        name: str | None = None,
    ) -> Tensor:  # fmt: skip
        """Values of a normal distribution within two deviations."""
        return self._scaled(
            "truncated_normal", gen_ops.stateless_truncated_normal_v2, shape, mean, stddev, dtype,
            name,
        )  # fmt: skip

    def _scaled(
        self, what: str, op: Any, shape: Any, mean: Any, stddev: Any, dtype: Any, name: str | None
    ) -> Tensor:
        with name_scope(name, what, [shape, mean, stddev]) as scope:
            shape = shape_tensor(shape)
            mean = convert_to_tensor(mean, dtype=dtype, name="mean")
            stddev = convert_to_tensor(stddev, dtype=dtype, name="stddev")
            values = op(shape, *self._stream(shape), dtype=dtypes.as_dtype(dtype))
            return gen_ops.add(values * stddev, mean, name=scope)

    def uniform(
        self, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = dtypes.float32,
        name: str | None = None,
    ) -> Tensor:  # fmt: skip
        """Values in [minval, maxval), each as likely. `maxval`: 1 by default; integers need it,
        unless both are None, for any integers."""
        dtype = dtypes.as_dtype(dtype)
        if dtype.is_integer:
            check_bounds_of_integers(dtype, minval, maxval)
            if minval is None:
                return self.uniform_full_int(shape, dtype, name)
        elif maxval is None:
            maxval = 1
        with name_scope(name, "stateful_uniform", [shape, minval, maxval]) as scope:
            shape = shape_tensor(shape)
            minval = convert_to_tensor(minval, dtype=dtype, name="min")
            maxval = convert_to_tensor(maxval, dtype=dtype, name="max")
            stream = self._stream(shape)
            if dtype.is_integer:
                return gen_ops.stateless_random_uniform_int_v2(
                    shape, *stream, minval, maxval, name=scope
                )
            values = gen_ops.stateless_random_uniform_v2(shape, *stream, dtype=dtype)
            return gen_ops.add(values * (maxval - minval), minval, name=scope)

    def uniform_full_int(
        self, shape: Any, dtype: Any = dtypes.uint64, name: str | None = None
    ) -> Tensor:
        """Any integers of a type, each as likely."""
        with name_scope(name, "stateful_uniform_full_int", [shape]) as scope:
            shape = shape_tensor(shape)
            return gen_ops.stateless_random_uniform_full_int_v2(
                shape, *self._stream(shape), dtype=dtypes.as_dtype(dtype), name=scope
            )

    def make_seeds(self, count: int = 1) -> Tensor:
        """[2, count]: seeds for functions such as `tf.random.stateless_uniform`."""
        keys = self.uniform_full_int([count], dtypes.int64)
        return gen_ops.pack([keys, gen_ops.zeros_like(keys)])

    def split(self, count: int = 1) -> list["Generator"]:
        """Generators whose streams have nothing to do with each other."""
        keys = self.uniform_full_int([count], dtypes.int64)
        zero = convert_to_tensor(np.zeros((), np.int64))
        return [
            Generator(state=gen_ops.pack([zero, zero, keys[i]]), alg=self._alg)
            for i in range(count)
        ]


def _state_of(key: Any, counter: Any) -> Tensor:
    key = gen_ops.reshape(cast(convert_to_tensor(key), dtypes.int64), [1])
    counter = cast(convert_to_tensor(counter), dtypes.int64)
    if not counter.shape.is_compatible_with([2]):
        raise ValueError(f"the counter of Philox is 2 integers, got shape {counter.shape}")
    return gen_ops.concat_v2([counter, key], 0)


_global: list[Generator] = []


@export(v2=("random.get_global_generator", "random.experimental.get_global_generator"))
def get_global_generator() -> Generator:
    """The generator that a program shares."""
    if not _global:
        _global.append(Generator.from_non_deterministic_state())
    return _global[0]


@export(v2=("random.set_global_generator", "random.experimental.set_global_generator"))
def set_global_generator(generator: Generator) -> None:
    """Makes another one the generator that a program shares."""
    _global[:] = [generator]
