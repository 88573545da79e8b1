"""Initializers: functions from a shape and a type to the initial value of a variable."""

import math
from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.graph.convert import constant, convert_to_tensor
from millrace.ops import array, random


def _float_type(dtype: Any) -> dtypes.DType:
    dtype = dtypes.as_dtype(dtype)
    if not dtype.is_floating:
        raise ValueError(f"Expected floating point type, got {dtype.name}.")
    return dtype


class Initializer:
    """What all initializers have: `initializer(shape, dtype, partition_info)` makes the value.

    `partition_info` says which part of a larger variable the value is for.
    """

    takes_partition_info = True

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """The arguments that make the same initializer."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Initializer":
        """The initializer that `get_config` was asked of."""
        config = dict(config)
        if "dtype" in config:
            config["dtype"] = dtypes.as_dtype(config["dtype"])
        return cls(**config)


@export(
    v1=("zeros_initializer", "initializers.zeros", "keras.initializers.Zeros"),
    v2="zeros_initializer",
)
class Zeros(Initializer):
    """Zeros."""

    def __init__(self, dtype: Any = dtypes.float32):
        self.dtype = dtypes.as_dtype(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        return array.zeros(shape, self.dtype if dtype is None else dtype)

    def get_config(self) -> dict[str, Any]:
        return {"dtype": self.dtype.name}


@export(
    v1=("ones_initializer", "initializers.ones", "keras.initializers.Ones"), v2="ones_initializer"
)
class Ones(Initializer):
    """Ones."""

    def __init__(self, dtype: Any = dtypes.float32):
        self.dtype = dtypes.as_dtype(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        return array.ones(shape, self.dtype if dtype is None else dtype)

    def get_config(self) -> dict[str, Any]:
        return {"dtype": self.dtype.name}


@export(v1=("constant_initializer", "initializers.constant", "keras.initializers.Constant"))
class Constant(Initializer):
    """A value, or values in row-major order, the last of which is repeated where they are too few.

    `verify_shape`: TypeError where the values do not have the variable's shape.
    """

    def __init__(self, value: Any = 0, dtype: Any = dtypes.float32, verify_shape: bool = False):
        if not (np.isscalar(value) or isinstance(value, (list, tuple, np.ndarray))):
            raise TypeError(
                f"Invalid type for initial value: {type(value)} (expected Python scalar, list or "
                "tuple of values, or numpy.ndarray)."
            )
        self.value = value
        self.dtype = dtypes.as_dtype(dtype)
        self._verify_shape = verify_shape

    def __call__(
        self, shape: Any, dtype: Any = None, partition_info: Any = None,
        verify_shape: bool | None = None,
    ) -> Any:  # fmt: skip
        return constant(
            self.value,
            self.dtype if dtype is None else dtype,
            shape,
            verify_shape=self._verify_shape if verify_shape is None else verify_shape,
        )

    def get_config(self) -> dict[str, Any]:
        return {"value": self.value, "dtype": self.dtype.name}


@export(v2="constant_initializer")
class ConstantValues(Constant):
    """A value, or as many values as the shape has elements, in row-major order."""

    def __init__(self, value: Any = 0, support_partition: bool = False):
        del support_partition
        super().__init__(value)

    def __call__(self, shape: Any, dtype: Any = None, **kwargs: Any) -> Any:
        values = convert_to_tensor(self.value, dtype=dtype)
        if values.shape.ndims == 0:
            return array.fill(shape, values)
        return array.reshape(values, shape)

    def get_config(self) -> dict[str, Any]:
        return {"value": self.value}


@export(
    v1=(
        "random_uniform_initializer",
        "initializers.random_uniform",
        "random.uniform_initializer",
        "keras.initializers.RandomUniform",
    ),
    v2="random_uniform_initializer",
)
class RandomUniform(Initializer):
    """Values spread evenly over [minval, maxval); maxval is 1 by default, for floating types."""

    def __init__(
        self, minval: Any = 0.0, maxval: Any = None, seed: int | None = None,
        dtype: Any = dtypes.float32,
    ):  # fmt: skip
        self.minval, self.maxval, self.seed = minval, maxval, seed
        self.dtype = dtypes.as_dtype(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        dtype = dtypes.as_dtype(self.dtype if dtype is None else dtype)
        minval = int(self.minval) if dtype.is_integer and self.minval == 0 else self.minval
        return random.random_uniform(shape, minval, self.maxval, dtype, seed=self.seed)

    def get_config(self) -> dict[str, Any]:
        return {
            "minval": self.minval,
            "maxval": self.maxval,
            "seed": self.seed,
            "dtype": self.dtype.name,
        }


class _Normal(Initializer):
    """What draws by mean and deviation: `_draw` names the function of ops/random.py."""

    _draw = ""

    def __init__(
        self, mean: Any = 0.0, stddev: Any = 1.0, seed: int | None = None,
        dtype: Any = dtypes.float32,
    ):  # fmt: skip
        self.mean, self.stddev, self.seed = mean, stddev, seed
        self.dtype = _float_type(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        return getattr(random, self._draw)(
            shape, self.mean, self.stddev, self.dtype if dtype is None else dtype, seed=self.seed
        )

    def get_config(self) -> dict[str, Any]:
        return {
            "mean": self.mean,
            "stddev": self.stddev,
            "seed": self.seed,
            "dtype": self.dtype.name,
        }


@export(
    v1=(
        "random_normal_initializer",
        "initializers.random_normal",
        "random.normal_initializer",
        "keras.initializers.RandomNormal",
    ),
    v2="random_normal_initializer",
)
class RandomNormal(_Normal):
    """Values of the normal distribution."""

    _draw = "random_normal"


@export(
    v1=(
        "truncated_normal_initializer",
        "initializers.truncated_normal",
        "keras.initializers.TruncatedNormal",
    )
)
class TruncatedNormal(_Normal):
    """Values of the normal distribution, those over two deviations from the mean drawn again."""

    _draw = "truncated_normal"


def _full_shape(shape: Any, partition_info: Any) -> list[int]:
    """The shape of the whole variable that a value is for, or for a part of."""
    full = shape if partition_info is None else partition_info.full_shape
    return [int(d) for d in TensorShape(full).as_list()]


@export(v1=("uniform_unit_scaling_initializer", "initializers.uniform_unit_scaling"))
class UniformUnitScaling(Initializer):
    """Values spread evenly, such that a product with them keeps the scale of what goes in.

    Over [-a, a) with a = sqrt(3 / rows) * factor.
    """

    def __init__(self, factor: float = 1.0, seed: int | None = None, dtype: Any = dtypes.float32):
        self.factor, self.seed = factor, seed
        self.dtype = _float_type(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        # The rows are what goes in; a vector is all columns.
        rows = max(float(math.prod(_full_shape(shape, partition_info)[:-1])), 1.0)
        limit = math.sqrt(3 / rows) * self.factor
        return random.random_uniform(
            shape, -limit, limit, self.dtype if dtype is None else dtype, seed=self.seed
        )

    def get_config(self) -> dict[str, Any]:
        return {"factor": self.factor, "seed": self.seed, "dtype": self.dtype.name}


def _fans(shape: list[int]) -> tuple[float, float]:
    """The numbers of inputs and outputs of one unit with weights of that shape."""
    if len(shape) < 1:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    field = math.prod(shape[:-2])
    return shape[-2] * field, shape[-1] * field


# The standard deviation of a normal distribution cut at two deviations.
_TRUNCATED_STDDEV = 0.87962566103423978


@export(
    v1=(
        "variance_scaling_initializer",
        "initializers.variance_scaling",
        "keras.initializers.VarianceScaling",
    )
)
class VarianceScaling(Initializer):
    """Random values whose variance is scale / n, with n the inputs or outputs of a unit.

    Args:
      mode: what n is: "fan_in", "fan_out", or "fan_avg" for their mean.
      distribution: "truncated_normal" (also "normal"), "untruncated_normal" or "uniform".
    """

    def __init__(
        self, scale: float = 1.0, mode: str = "fan_in", distribution: str = "truncated_normal",
        seed: int | None = None, dtype: Any = dtypes.float32,
    ):  # fmt: skip
        if scale <= 0.0:
            raise ValueError(f"`scale` must be positive float, got {scale}.")
        if mode not in ("fan_in", "fan_out", "fan_avg"):
            raise ValueError(f"Invalid `mode` argument: {mode}; expected fan_in, fan_out, fan_avg.")
        distribution = distribution.lower()
        if distribution not in ("normal", "uniform", "truncated_normal", "untruncated_normal"):
            raise ValueError(f"Invalid `distribution` argument: {distribution}")
        self.scale, self.mode, self.distribution, self.seed = scale, mode, distribution, seed
        self.dtype = _float_type(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        dtype = self.dtype if dtype is None else dtype
        fan_in, fan_out = _fans(_full_shape(shape, partition_info))
        if self.mode == "fan_in":
            count = max(1.0, fan_in)
        elif self.mode == "fan_out":
            count = max(1.0, fan_out)
        else:
            count = max(1.0, (fan_in + fan_out) / 2.0)
        variance = self.scale / count
        if self.distribution == "uniform":
            limit = math.sqrt(3.0 * variance)
            return random.random_uniform(shape, -limit, limit, dtype, seed=self.seed)
        stddev = math.sqrt(variance)
        if self.distribution == "untruncated_normal":
            return random.random_normal(shape, 0.0, stddev, dtype, seed=self.seed)
        return random.truncated_normal(
            shape, 0.0, stddev / _TRUNCATED_STDDEV, dtype, seed=self.seed
        )

    def get_config(self) -> dict[str, Any]:
        return {
            "scale": self.scale,
            "mode": self.mode,
            "distribution": self.distribution,
            "seed": self.seed,
            "dtype": self.dtype.name,
        }


@export(
    v1=(
        "glorot_uniform_initializer",
        "initializers.glorot_uniform",
        "keras.initializers.glorot_uniform",
    )
)
class GlorotUniform(VarianceScaling):
    """Values spread evenly over [-a, a) with a = sqrt(6 / (inputs + outputs)) (Glorot, Bengio)."""

    def __init__(self, seed: int | None = None, dtype: Any = dtypes.float32):
        super().__init__(1.0, "fan_avg", "uniform", seed, dtype)

    def get_config(self) -> dict[str, Any]:
        return {"seed": self.seed, "dtype": self.dtype.name}


@export(
    v1=(
        "glorot_normal_initializer",
        "initializers.glorot_normal",
        "keras.initializers.glorot_normal",
    )
)
class GlorotNormal(VarianceScaling):
    """Truncated normal values of variance 2 / (inputs + outputs) (Glorot, Bengio)."""

    def __init__(self, seed: int | None = None, dtype: Any = dtypes.float32):
        super().__init__(1.0, "fan_avg", "truncated_normal", seed, dtype)

    def get_config(self) -> dict[str, Any]:
        return {"seed": self.seed, "dtype": self.dtype.name}


@export(v1=("initializers.he_normal", "keras.initializers.he_normal"))
def he_normal(seed: int | None = None) -> VarianceScaling:
    """Truncated normal values of variance 2 / inputs (He and others)."""
    return VarianceScaling(2.0, "fan_in", "truncated_normal", seed)


@export(v1=("initializers.he_uniform", "keras.initializers.he_uniform"))
def he_uniform(seed: int | None = None) -> VarianceScaling:
    """Evenly spread values of variance 2 / inputs (He and others)."""
    return VarianceScaling(2.0, "fan_in", "uniform", seed)


@export(v1=("initializers.lecun_normal", "keras.initializers.lecun_normal"))
def lecun_normal(seed: int | None = None) -> VarianceScaling:
    """Truncated normal values of variance 1 / inputs (LeCun and others)."""
    return VarianceScaling(1.0, "fan_in", "truncated_normal", seed)


@export(v1=("initializers.lecun_uniform", "keras.initializers.lecun_uniform"))
def lecun_uniform(seed: int | None = None) -> VarianceScaling:
    """Evenly spread values of variance 1 / inputs (LeCun and others)."""
    return VarianceScaling(1.0, "fan_in", "uniform", seed)


@export(v1=("orthogonal_initializer", "initializers.orthogonal", "keras.initializers.Orthogonal"))
class Orthogonal(Initializer):
    """A random matrix with orthogonal rows or columns, whichever are fewer, times `gain`.

    All dimensions but the last are taken for rows.
    """

    def __init__(self, gain: float = 1.0, seed: int | None = None, dtype: Any = dtypes.float32):
        self.gain, self.seed = gain, seed
        self.dtype = _float_type(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        dtype = self.dtype if dtype is None else dtypes.as_dtype(dtype)
        dims = [int(d) for d in TensorShape(shape).as_list()]
        if len(dims) < 2:
            raise ValueError(
                f"The tensor to initialize must be at least two-dimensional, got shape {dims}"
            )
        rows, columns = math.prod(dims[:-1]), dims[-1]
        flat = [max(rows, columns), min(rows, columns)]
        values = random.random_normal(flat, dtype=dtype, seed=self.seed)
        q, r = gen_ops.qr(values, full_matrices=False)
        # The signs of the diagonal make the distribution uniform.
        q = gen_ops.mul(q, gen_ops.sign(gen_ops.matrix_diag_part(r)))
        if rows < columns:
            q = gen_ops.transpose(q, [1, 0])
        return gen_ops.mul(
            constant(self.gain, dtype), gen_ops.reshape(q, constant(dims, dtypes.int32))
        )

    def get_config(self) -> dict[str, Any]:
        return {"gain": self.gain, "seed": self.seed, "dtype": self.dtype.name}


@export(v1=("initializers.identity", "keras.initializers.Identity"))
class Identity(Initializer):
    """The identity matrix, times `gain`. ValueError for a shape that is no matrix's."""

    def __init__(self, gain: float = 1.0, dtype: Any = dtypes.float32):
        self.gain = gain
        self.dtype = _float_type(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        full = _full_shape(shape, partition_info)
        if len(full) != 2:
            raise ValueError(
                f"Identity matrix initializer can only be used for 2D matrices: {full}"
            )
        dtype = self.dtype if dtype is None else dtypes.as_dtype(dtype)
        whole = np.eye(*full, dtype=dtype.as_numpy_dtype) * self.gain
        if partition_info is not None:
            offset = partition_info.var_offset
            part = [int(d) for d in TensorShape(shape).as_list()]
            whole = whole[tuple(slice(o, o + s) for o, s in zip(offset, part, strict=True))]
        return constant(whole, dtype)

    def get_config(self) -> dict[str, Any]:
        return {"gain": self.gain, "dtype": self.dtype.name}
