"""Random numbers that follow from a seed: the same seed, the same numbers."""

import enum
from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.static_value import constant_value_as_shape
from millrace.ops.array import broadcast_dynamic_shape
from millrace.ops.array import shape as shape_of
from millrace.ops.math import cast
from millrace.ops.random import shape_tensor


@export(v2=("random.Algorithm", "random.experimental.Algorithm"))
class Algorithm(enum.Enum):
    """How random numbers are made of keys and counters."""

    PHILOX = 1
    THREEFRY = 2
    AUTO_SELECT = 3


def algorithm_number(alg: Any) -> Any:
    """The number of an algorithm given by number, name or `Algorithm`. ValueError."""
    if isinstance(alg, Algorithm):
        return alg.value
    if isinstance(alg, str):
        known = {"philox": 1, "threefry": 2, "auto_select": 3}
        if alg not in known:
            raise ValueError(
                f"Argument `alg` got unsupported string value {alg}. Supported string values are "
                '"philox" for the Philox algorithm, "threefry" for the ThreeFry algorithm, and '
                '"auto_select" for auto-selection.'
            )
        return known[alg]
    if isinstance(alg, Tensor):
        return alg
    if isinstance(alg, int):
        return alg
    raise TypeError(f"Can't convert argument `alg` (of value {alg!r}) to an algorithm")


def _stream(seed: Any, alg: Any) -> tuple[Any, Any, Any]:
    seed = convert_to_tensor(seed, name="seed")
    key, counter = gen_ops.stateless_random_get_key_counter(seed)
    return key, counter, algorithm_number(alg)


def _fixed(out: Tensor, shape: Tensor) -> Tensor:
    if out.shape.ndims is None:
        out.set_shape(constant_value_as_shape(shape))
    return out


@export(v2="random.experimental.stateless_split")
def stateless_split(seed: Any, num: Any = 2, alg: Any = "auto_select") -> Tensor:
    """[num, 2]: seeds that follow from `seed` and have nothing to do with each other.

    Args:
      seed: two integers, int32 or int64.
    """
    seed = convert_to_tensor(seed)
    return stateless_random_uniform(
        shape=[num, 2], seed=seed, dtype=seed.dtype, minval=None, maxval=None, alg=alg
    )


@export(v2="random.experimental.stateless_fold_in")
def stateless_fold_in(seed: Any, data: Any, alg: Any = "auto_select") -> Tensor:
    """A seed, of the type of `data`, that follows from a seed and an integer."""
    data = convert_to_tensor(data)
    first = stateless_random_uniform(
        shape=[], seed=seed, dtype=data.dtype, minval=None, maxval=None, alg=alg
    )
    return gen_ops.pack([first, data])


_UNIFORM_TYPES = (
    dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64,
    dtypes.uint32, dtypes.uint64,
)  # fmt: skip


def check_bounds_of_integers(dtype: dtypes.DType, minval: Any, maxval: Any) -> None:
    """ValueError unless uniform integers of a type can be drawn between these bounds."""
    if dtype not in (dtypes.int32, dtypes.int64) and dtype.is_integer:
        if minval is not None or maxval is not None:
            raise ValueError(f"uint32 and uint64 take no minval and maxval, got {minval}, {maxval}")
    elif dtype.is_integer and (minval is None) != (maxval is None):
        raise ValueError(
            f"For integer `dtype` argument {dtype!r}, argument `minval` and `maxval` must be both "
            f"None or not None. Got `minval`={minval} and `maxval`={maxval}."
        )


@export(v2="random.stateless_uniform")
def stateless_random_uniform(
    shape: Any, seed: Any, minval: Any = 0, maxval: Any = None, dtype: Any = dtypes.float32,
    name: str | None = None, alg: Any = "auto_select",
) -> Tensor:  # fmt: skip
    """Values in [minval, maxval), each as likely.

    Args:
      seed: two integers, int32 or int64.
      minval, maxval: `maxval` is 1 by default; both None for any integers of the type.
    """
    dtype = dtypes.as_dtype(dtype)
    if dtype not in _UNIFORM_TYPES:
        raise ValueError(
            f"Argument `dtype` got invalid value {dtype!r}. Accepted dtypes are "
            f"{', '.join(t.name for t in _UNIFORM_TYPES)}."
        )
    check_bounds_of_integers(dtype, minval, maxval)
    if maxval is None and not dtype.is_integer:
        maxval = 1
    with name_scope(name, "stateless_random_uniform", [shape, seed, minval, maxval]) as scope:
        shape = shape_tensor(shape)
        stream = _stream(seed, alg)
        if dtype.is_integer and minval is None:
            out = gen_ops.stateless_random_uniform_full_int_v2(
                shape, *stream, dtype=dtype, name=scope
            )
            return _fixed(out, shape)
        minval = convert_to_tensor(minval, dtype=dtype, name="min")
        maxval = convert_to_tensor(maxval, dtype=dtype, name="max")
        if dtype.is_integer:
            for bound, what in ((minval, "minval"), (maxval, "maxval")):
                if bound.shape.ndims not in (None, 0):
                    raise ValueError(
                        f"{what} must be a scalar; got a tensor of shape {bound.shape}"
                    )
            out = gen_ops.stateless_random_uniform_int_v2(
                shape, *stream, minval, maxval, name=scope
            )
        else:
            values = gen_ops.stateless_random_uniform_v2(shape, *stream, dtype=dtype)
            out = gen_ops.add(values * (maxval - minval), minval, name=scope)
        return _fixed(out, shape)


def _scaled(
    what: str, op: Any, shape: Any, seed: Any, mean: Any, stddev: Any, dtype: Any,
    name: str | None, alg: Any,
) -> Tensor:  # fmt: skip
    with name_scope(name, what, [shape, seed, mean, stddev]) as scope:
        shape = shape_tensor(shape)
        mean = convert_to_tensor(mean, dtype=dtype, name="mean")
        stddev = convert_to_tensor(stddev, dtype=dtype, name="stddev")
        values = op(shape, *_stream(seed, alg), dtype=dtypes.as_dtype(dtype))
        return _fixed(gen_ops.add(values * stddev, mean, name=scope), shape)


@export(v2="random.stateless_normal")
def stateless_random_normal(
    shape: Any, seed: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32,
    name: str | None = None, alg: Any = "auto_select",
) -> Tensor:  # fmt: skip
    """Values of a normal distribution. `seed`: two integers."""
    return _scaled(
        "stateless_random_normal", gen_ops.stateless_random_normal_v2, shape, seed, mean, stddev,
        dtype, name, alg,
    )  # fmt: skip


@export(v2="random.stateless_truncated_normal")
def stateless_truncated_normal(
    shape: Any, seed: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32,
    name: str | None = None, alg: Any = "auto_select",
) -> Tensor:  # fmt: skip
    """Values of a normal distribution within two deviations. `seed`: two integers."""
    return _scaled(
        "stateless_truncated_normal", gen_ops.stateless_truncated_normal_v2, shape, seed, mean,
        stddev, dtype, name, alg,
    )  # fmt: skip


@export(v1="random.stateless_multinomial")
def stateless_multinomial(
    logits: Any, num_samples: Any, seed: Any, output_dtype: Any = dtypes.int64,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """[batch, num_samples] classes: class k with a probability in proportion to exp(logits[b, k]).
    `seed`: two integers."""
    with name_scope(name, "stateless_multinomial", [logits, seed]):
        return _classes(logits, num_samples, output_dtype, seed)


@export(v1="random.stateless_categorical", v2="random.stateless_categorical")
def stateless_categorical(
    logits: Any, num_samples: Any, seed: Any, dtype: Any = dtypes.int64, name: str | None = None
) -> Tensor:
    """[batch, num_samples] classes: class k with a probability in proportion to exp(logits[b, k]).
    `seed`: two integers."""
    with name_scope(name, "stateless_categorical", [logits, seed]):
        return _classes(logits, num_samples, dtype, seed)


def _classes(logits: Any, num_samples: Any, dtype: Any, seed: Any) -> Tensor:
    logits = convert_to_tensor(logits, name="logits")
    dtype = dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)
    if dtype not in (dtypes.int32, dtypes.int64):
        raise ValueError(f"classes are numbered by int32 or int64, not {dtype.name}")
    return gen_ops.stateless_multinomial(logits, num_samples, seed, output_dtype=dtype)


@export(v2="random.stateless_gamma")
def stateless_random_gamma(
    shape: Any, seed: Any, alpha: Any, beta: Any = None, dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Values of gamma distributions.

    Args:
      shape: of the result; it ends with what alpha and beta broadcast to.
      seed: two integers.
      alpha: their shapes.
      beta: their inverse scales, 1 by default.
    """
    with name_scope(name, "stateless_random_gamma", [shape, seed, alpha, beta]) as scope:
        shape = convert_to_tensor(shape, dtype=dtypes.int32, name="shape")
        alpha = convert_to_tensor(alpha, dtype=dtype, name="alpha")
        beta = convert_to_tensor(1 if beta is None else beta, dtype=dtype, name="beta")
        both = gen_ops.broadcast_to(alpha, broadcast_dynamic_shape(shape_of(alpha), shape_of(beta)))
        values = gen_ops.stateless_random_gamma_v3(shape, *_stream(seed, "auto_select"), both)
        kind = np.float32 if alpha.dtype == dtypes.bfloat16 else alpha.dtype.as_numpy_dtype
        smallest = cast(convert_to_tensor(np.finfo(kind).tiny), alpha.dtype)
        return _fixed(gen_ops.maximum(smallest, values / beta, name=scope), shape)


@export(v2="random.stateless_poisson")
def stateless_random_poisson(
    shape: Any, seed: Any, lam: Any, dtype: Any = dtypes.int32, name: str | None = None
) -> Tensor:
    """Values of Poisson distributions.

    Args:
      shape: of the result; it ends with that of `lam`.
      seed: two integers.
      lam: their rates.
    """
    with name_scope(name, "stateless_random_poisson", [shape, seed, lam]) as scope:
        shape = convert_to_tensor(shape, dtype=dtypes.int32, name="shape")
        lam = convert_to_tensor(lam, name="lam")
        out = gen_ops.stateless_random_poisson(
            shape, seed, lam, dtype=dtypes.as_dtype(dtype), name=scope
        )
        return _fixed(out, shape)
