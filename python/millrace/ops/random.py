"""Random values and the seeds they start from."""

from typing import Any

import numpy as np

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph, name_scope
from millrace.graph.eager_seed import LARGEST_SEED, EagerSeed
from millrace.graph.static_value import constant_value_as_shape

_DEFAULT_GRAPH_SEED = 87654321


@export(v1=("set_random_seed", "random.set_random_seed"), v2="random.set_seed")
def set_random_seed(seed: int | None) -> None:
    """Sets the seed from which operations without one get theirs: that of the default graph, or
    where operations run at once, the process's. Random numbers begin anew there."""
    if not _core.executing_eagerly():
        get_default_graph().seed = seed
        return
    EagerSeed.seed = seed
    EagerSeed.drawn = 0
    if _core.eager_started():  # else there is nothing to begin anew, and devices may still be set
        _core.clear_eager_cache()


@export(v1=("get_seed", "random.get_seed"))
def get_seed(op_seed: int | None) -> tuple[int | None, int | None]:
    """The two seeds of an operation: the graph's and its own, (None, None) when neither is set.

    In a graph with a seed, operations without one use their number in the program, bodies of
    branches, loops and functions included: the same program gives the same values, and no two
    operations the same.
    """
    if _core.executing_eagerly():
        return _eager_seed(op_seed)
    graph = get_default_graph()
    if graph.seed is not None:
        seeds = (graph.seed, graph._last_id if op_seed is None else op_seed)
    elif op_seed is not None:
        seeds = (_DEFAULT_GRAPH_SEED, op_seed)
    else:
        return None, None
    seeds = (seeds[0] % LARGEST_SEED, seeds[1] % LARGEST_SEED)
    # Kernels take two zeros for "choose a seed".
    return (0, LARGEST_SEED) if seeds == (0, 0) else seeds


def _eager_seed(op_seed: int | None) -> tuple[int | None, int | None]:
    if EagerSeed.seed is not None:
        own = EagerSeed.next() if op_seed is None else op_seed
        seeds = (EagerSeed.seed % LARGEST_SEED, own % LARGEST_SEED)
    elif op_seed is not None:
        seeds = (_DEFAULT_GRAPH_SEED, op_seed % LARGEST_SEED)
    else:
        return None, None
    return (0, LARGEST_SEED) if seeds == (0, 0) else seeds


def _seeds(seed: Any) -> dict[str, int]:
    first, second = get_seed(seed)
    return {} if first is None else {"seed": first, "seed2": second}


def shape_tensor(shape: Any, name: str = "shape") -> Tensor:
    """A shape as a tensor of integers; int32 where nothing else is said."""
    kind = dtypes.int32 if isinstance(shape, (list, tuple)) and not shape else None
    return convert_to_tensor(shape, dtype=kind, name=name)


def _with_shape(out: Tensor, shape: Tensor) -> Tensor:
    if out.shape.ndims is None:
        out.set_shape(constant_value_as_shape(shape))
    return out


@export(v1=("random_normal", "random.normal"), v2="random.normal")
def random_normal(
    shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32,
    seed: int | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Values of a normal distribution."""
    with name_scope(name, "random_normal", [shape, mean, stddev]) as scope:
        shape = shape_tensor(shape)
        mean = convert_to_tensor(mean, dtype=dtype, name="mean")
        stddev = convert_to_tensor(stddev, dtype=dtype, name="stddev")
        values = gen_ops.random_standard_normal(shape, dtype, **_seeds(seed))
        return _with_shape(gen_ops.add(values * stddev, mean, name=scope), shape)


@export(v1=("truncated_normal", "random.truncated_normal"), v2="random.truncated_normal")
def truncated_normal(
    shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32,
    seed: int | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Values of a normal distribution, drawn again where they are over two deviations away."""
    with name_scope(name, "truncated_normal", [shape, mean, stddev]) as scope:
        shape = shape_tensor(shape)
        mean = convert_to_tensor(mean, dtype=dtype, name="mean")
        stddev = convert_to_tensor(stddev, dtype=dtype, name="stddev")
        values = gen_ops.truncated_normal(shape, dtype, **_seeds(seed))
        return _with_shape(gen_ops.add(values * stddev, mean, name=scope), shape)


@export(v1="parameterized_truncated_normal")
def parameterized_truncated_normal(
    shape: Any, means: Any = 0.0, stddevs: Any = 1.0, minvals: Any = -2.0, maxvals: Any = 2.0,
    dtype: Any = dtypes.float32, seed: int | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Values of normal distributions between bounds.

    Each parameter is a scalar, or a vector with an element for each position of the first
    dimension of `shape`. In a run: InvalidArgumentError for a deviation that is not positive, or
    bounds that leave nothing.
    """
    given = [means, stddevs, minvals, maxvals]
    with name_scope(name, "parameterized_truncated_normal", [shape, *given]):
        shape = shape_tensor(shape)
        names = ("means", "stddevs", "minvals", "maxvals")
        parameters = [
            convert_to_tensor(value, dtype=dtype, name=own)
            for value, own in zip(given, names, strict=True)
        ]
        return gen_ops.parameterized_truncated_normal(shape, *parameters, **_seeds(seed))


_UNIFORM_TYPES = (
    dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64,
)  # fmt: skip


@export(v1=("random_uniform", "random.uniform"), v2="random.uniform")
def random_uniform(
    shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = dtypes.float32,
    seed: int | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Values in [minval, maxval), each as likely. `maxval`: 1 by default, needed for integers.

    ValueError for other types than floats, int32 and int64, and for integers without `maxval`.
    """
    dtype = dtypes.as_dtype(dtype)
    if dtype not in _UNIFORM_TYPES:
        allowed = ", ".join(t.name for t in _UNIFORM_TYPES)
        raise ValueError(f"random_uniform: invalid dtype {dtype.name}, expected one of {allowed}")
    if maxval is None:
        if dtype.is_integer:
            raise ValueError(f"Must specify maxval for integer dtype {dtype!r}")
        maxval = 1
    with name_scope(name, "random_uniform", [shape, minval, maxval]) as scope:
        shape = shape_tensor(shape)
        plain = _is_number(minval, 0) and _is_number(maxval, 1)
        if dtype.is_integer or not plain:
            minval = convert_to_tensor(minval, dtype=dtype, name="min")
            maxval = convert_to_tensor(maxval, dtype=dtype, name="max")
        seeds = _seeds(seed)
        if dtype.is_integer:
            out = gen_ops.random_uniform_int(shape, minval, maxval, **seeds, name=scope)
        elif plain:
            out = gen_ops.random_uniform(shape, dtype, **seeds)
        else:
            values = gen_ops.random_uniform(shape, dtype, **seeds)
            out = gen_ops.add(values * (maxval - minval), minval, name=scope)
        return _with_shape(out, shape)


def _is_number(value: Any, number: int) -> bool:
    return isinstance(value, (int, float)) and value == number


@export(v1=("random_shuffle", "random.shuffle"), v2="random.shuffle")
def random_shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """The rows of a tensor (along its first dimension) in a random order."""
    return gen_ops.random_shuffle(value, **_seeds(seed), name=name)


@export(v1=("random_crop", "image.random_crop"), v2="image.random_crop")
def random_crop(value: Any, size: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """A part of the given size at a random place. It fails when run if the value is smaller."""
    with name_scope(name, "random_crop", [value, size]) as scope:
        value = convert_to_tensor(value, name="value")
        size = convert_to_tensor(size, dtype=dtypes.int32, name="size")
        shape = gen_ops.shape(value)
        fits = gen_ops.all(gen_ops.greater_equal(shape, size), [0])
        message = "Need value.shape >= size, got "
        check = gen_ops.assert_(fits, [message, shape, size], summarize=1000, name="Assert")
        with get_default_graph().control_dependencies([check]):
            shape = gen_ops.identity(shape, name="control_dependency")
        room = shape - size + 1
        begin = random_uniform(
            gen_ops.shape(shape), dtype=size.dtype, maxval=size.dtype.max, seed=seed
        )
        return gen_ops.slice(value, begin % room, size, name=scope)


@export(v1=("multinomial", "random.multinomial"))
def multinomial(
    logits: Any, num_samples: Any, seed: int | None = None, name: str | None = None,
    output_dtype: Any = None,
) -> Tensor:  # fmt: skip
    """Classes drawn by their unnormalised log-probabilities: [batch, num_samples]."""
    with name_scope(name, "multinomial", [logits]):
        return _categorical(logits, num_samples, output_dtype, seed)


@export(v1="random.categorical", v2="random.categorical")
def categorical(
    logits: Any, num_samples: Any, dtype: Any = None, seed: int | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """As `multinomial`."""
    with name_scope(name, "categorical", [logits]):
        return _categorical(logits, num_samples, dtype, seed)


def _categorical(logits: Any, num_samples: Any, dtype: Any, seed: int | None) -> Tensor:
    logits = convert_to_tensor(logits, name="logits")
    return gen_ops.multinomial(logits, num_samples, output_dtype=dtype, **_seeds(seed))


@export(v1=("random_gamma", "random.gamma"), v2="random.gamma")
def random_gamma(
    shape: Any, alpha: Any, beta: Any = None, dtype: Any = dtypes.float32, seed: int | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Values of gamma distributions: `shape` of them for each of alpha and beta, broadcast.

    `alpha` is the shape of the distribution, `beta` its rate, the inverse of its scale.
    """
    with name_scope(name, "random_gamma", [shape, alpha, beta]):
        shape = convert_to_tensor(shape, dtype=dtypes.int32, name="shape")
        alpha = convert_to_tensor(alpha, dtype=dtype, name="alpha")
        beta = convert_to_tensor(1 if beta is None else beta, dtype=dtype, name="beta")
        both = gen_ops.broadcast_args(gen_ops.shape(alpha), gen_ops.shape(beta))
        wide = gen_ops.broadcast_to(alpha, both)
        values = gen_ops.random_gamma(shape, wide, **_seeds(seed))
        # A quotient that underflowed to 0 has no logarithm.
        least = np.finfo(alpha.dtype.as_numpy_dtype).tiny
        return gen_ops.maximum(least, values / beta)


@export(v1=("random_poisson", "random.poisson"), v2="random.poisson")
def random_poisson(
    lam: Any, shape: Any, dtype: Any = dtypes.float32, seed: int | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Values of Poisson distributions: `shape` of them for each mean in `lam`."""
    with name_scope(name, "random_poisson", [lam, shape]):
        shape = convert_to_tensor(shape, dtype=dtypes.int32, name="shape")
        return gen_ops.random_poisson_v2(shape, lam, dtype=dtype, **_seeds(seed))
