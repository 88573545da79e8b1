"""Elementwise functions, comparisons, casts and sums of tensors."""

from typing import Any, Callable

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import IndexedSlices, SparseTensor, convert_to_tensor_or_indexed_slices

# Functions that are ops as they stand.

acos = export(v1=("acos", "math.acos"), v2=("acos", "math.acos"))(gen_ops.acos)
asin = export(v1=("asin", "math.asin"), v2=("asin", "math.asin"))(gen_ops.asin)
atan = export(v1=("atan", "math.atan"), v2=("atan", "math.atan"))(gen_ops.atan)
ceil = export(v1=("ceil", "math.ceil"), v2="math.ceil")(gen_ops.ceil)
cos = export(v1=("cos", "math.cos"), v2=("cos", "math.cos"))(gen_ops.cos)
erfc = export(v1=("erfc", "math.erfc"), v2="math.erfc")(gen_ops.erfc)
exp = export(v1=("exp", "math.exp"), v2=("exp", "math.exp"))(gen_ops.exp)
expm1 = export(v1=("expm1", "math.expm1"), v2="math.expm1")(gen_ops.expm1)
floor = export(v1=("floor", "math.floor"), v2=("floor", "math.floor"))(gen_ops.floor)
is_finite = export(v1=("is_finite", "math.is_finite", "debugging.is_finite"), v2="math.is_finite")(
    gen_ops.is_finite
)
is_inf = export(v1=("is_inf", "math.is_inf", "debugging.is_inf"), v2="math.is_inf")(gen_ops.is_inf)
is_nan = export(v1=("is_nan", "math.is_nan", "debugging.is_nan"), v2="math.is_nan")(gen_ops.is_nan)
log = export(v1=("log", "math.log"), v2="math.log")(gen_ops.log)
log1p = export(v1=("log1p", "math.log1p"), v2="math.log1p")(gen_ops.log1p)
logical_and = export(
    v1=("logical_and", "math.logical_and"), v2=("logical_and", "math.logical_and")
)(gen_ops.logical_and)
logical_not = export(
    v1=("logical_not", "math.logical_not"), v2=("logical_not", "math.logical_not")
)(gen_ops.logical_not)
logical_or = export(v1=("logical_or", "math.logical_or"), v2=("logical_or", "math.logical_or"))(
    gen_ops.logical_or
)
reciprocal = export(v1=("reciprocal", "math.reciprocal"), v2="math.reciprocal")(gen_ops.reciprocal)
rint = export(v1=("rint", "math.rint"), v2="math.rint")(gen_ops.rint)
rsqrt = export(v1=("rsqrt", "math.rsqrt"), v2="math.rsqrt")(gen_ops.rsqrt)
sigmoid = export(
    v1=("sigmoid", "math.sigmoid", "nn.sigmoid"), v2=("sigmoid", "math.sigmoid", "nn.sigmoid")
)(gen_ops.sigmoid)
sin = export(v1=("sin", "math.sin"), v2=("sin", "math.sin"))(gen_ops.sin)
tan = export(v1=("tan", "math.tan"), v2=("tan", "math.tan"))(gen_ops.tan)

greater = export(v1=("greater", "math.greater"), v2=("greater", "math.greater"))(gen_ops.greater)
greater_equal = export(
    v1=("greater_equal", "math.greater_equal"), v2=("greater_equal", "math.greater_equal")
)(gen_ops.greater_equal)
less = export(v1=("less", "math.less"), v2=("less", "math.less"))(gen_ops.less)
less_equal = export(v1=("less_equal", "math.less_equal"), v2=("less_equal", "math.less_equal"))(
    gen_ops.less_equal
)
maximum = export(v1=("maximum", "math.maximum"), v2=("maximum", "math.maximum"))(gen_ops.maximum)
minimum = export(v1=("minimum", "math.minimum"), v2=("minimum", "math.minimum"))(gen_ops.minimum)

add = export(v1=("add", "math.add"), v2=("add", "math.add"))(gen_ops.add)
subtract = export(v1=("subtract", "math.subtract"), v2=("subtract", "math.subtract"))(gen_ops.sub)
multiply = export(v1=("multiply", "math.multiply"), v2=("multiply", "math.multiply"))(gen_ops.mul)
realdiv = export(v1="realdiv", v2="realdiv")(gen_ops.real_div)
truncatediv = export(v1="truncatediv", v2="truncatediv")(gen_ops.truncate_div)
truncatemod = export(v1="truncatemod", v2="truncatemod")(gen_ops.truncate_mod)
floor_div = export(v1="floor_div")(gen_ops.floor_div)
floormod = export(
    v1=("floormod", "mod", "math.floormod", "math.mod"), v2=("math.floormod", "math.mod")
)(gen_ops.floor_mod)
pow = export(v1=("pow", "math.pow"), v2=("pow", "math.pow"))(gen_ops.pow)
squared_difference = export(
    v1=("squared_difference", "math.squared_difference"), v2="math.squared_difference"
)(gen_ops.squared_difference)

arg_max = export(v1="arg_max")(gen_ops.arg_max)
arg_min = export(v1="arg_min")(gen_ops.arg_min)


@export(v1=("equal", "math.equal"), v2=("equal", "math.equal"))
def equal(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x == y elementwise, with broadcasting. (`==` asks whether two tensors are the same one.)"""
    return gen_ops.equal(x, y, name=name)


@export(v1=("not_equal", "math.not_equal"), v2=("not_equal", "math.not_equal"))
def not_equal(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x != y elementwise, with broadcasting."""
    return gen_ops.not_equal(x, y, name=name)


def _of_values(
    op: Callable[..., Tensor], default: str, x: SparseTensor, name: str | None
) -> SparseTensor:
    """The sparse tensor of op(x.values)."""
    with name_scope(name, default, [x.indices, x.values, x.dense_shape]) as scope:
        return SparseTensor(x.indices, op(x.values, name=scope), x.dense_shape)


def _dense_abs(x: Any, name: str | None) -> Tensor:
    with name_scope(name, "Abs", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        if x.dtype.is_complex:
            return gen_ops.complex_abs(x, Tout=x.dtype.base_dtype.real_dtype, name=scope)
        return gen_ops.abs(x, name=scope)


@export(v1=("abs", "math.abs"), v2=("abs", "math.abs"))
def abs(x: Any, name: str | None = None) -> Any:
    """|x|: of the same type, and of the real type for complex numbers. Takes sparse tensors too."""
    if isinstance(x, SparseTensor):
        return _of_values(_dense_abs, "Abs", x, name)
    return _dense_abs(x, name)


@export(v1=("negative", "math.negative"), v2=("negative", "math.negative"))
def negative(x: Any, name: str | None = None) -> Any:
    """-x. Takes sparse tensors too."""
    if isinstance(x, SparseTensor):
        return _of_values(gen_ops.neg, "Neg", x, name)
    return gen_ops.neg(x, name)


@export(v1=("sign", "math.sign"), v2=("sign", "math.sign"))
def sign(x: Any, name: str | None = None) -> Any:
    """-1, 0 or 1; x / |x| for complex numbers. Takes sparse tensors too."""
    if isinstance(x, SparseTensor):
        return _of_values(gen_ops.sign, "Sign", x, name)
    return gen_ops.sign(x, name)


@export(v1=("square", "math.square"), v2=("square", "math.square"))
def square(x: Any, name: str | None = None) -> Any:
    """x * x. Takes sparse tensors too."""
    if isinstance(x, SparseTensor):
        return _of_values(gen_ops.square, "Square", x, name)
    return gen_ops.square(x, name)


@export(v1=("sqrt", "math.sqrt"), v2=("sqrt", "math.sqrt"))
def sqrt(x: Any, name: str | None = None) -> Any:
    """The square root. Takes sparse tensors too."""
    if isinstance(x, SparseTensor):
        return _of_values(gen_ops.sqrt, "Sqrt", x, name)
    return gen_ops.sqrt(x, name)


@export(v1=("tanh", "math.tanh", "nn.tanh"), v2=("tanh", "math.tanh", "nn.tanh"))
def tanh(x: Any, name: str | None = None) -> Any:
    """The hyperbolic tangent. Takes sparse tensors too."""
    if isinstance(x, SparseTensor):
        return _of_values(gen_ops.tanh, "Tanh", x, name)
    return gen_ops.tanh(x, name)


@export(v1=("erf", "math.erf"), v2="math.erf")
def erf(x: Any, name: str | None = None) -> Any:
    """The error function. Takes sparse tensors too."""
    if isinstance(x, SparseTensor):
        return _of_values(gen_ops.erf, "Erf", x, name)
    return gen_ops.erf(x, name)


@export(v1=("log_sigmoid", "math.log_sigmoid"), v2="math.log_sigmoid")
def log_sigmoid(x: Any, name: str | None = None) -> Tensor:
    """log(sigmoid(x)), accurate for all x."""
    with name_scope(name, "LogSigmoid", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return gen_ops.neg(gen_ops.softplus(gen_ops.neg(x)), name=scope)


@export(v1=("round", "math.round"), v2=("round", "math.round"))
def round(x: Any, name: str | None = None) -> Tensor:
    """The nearest integer, the even one of two. Integers are returned as they are."""
    x = convert_to_tensor(x, name="x")
    return x if x.dtype.is_integer else gen_ops.round(x, name=name)


@export(v1=("logical_xor", "math.logical_xor"), v2="math.logical_xor")
def logical_xor(x: Any, y: Any, name: str | None = "LogicalXor") -> Tensor:
    """Whether exactly one of x and y is true."""
    return gen_ops.logical_and(
        gen_ops.logical_or(x, y), gen_ops.logical_not(gen_ops.logical_and(x, y)), name=name
    )


# Division.


def _operands(x: Any, y: Any, what: str) -> tuple[Tensor, Tensor]:
    """Both as tensors of one type. TypeError when they differ."""
    x = convert_to_tensor(x, name="x")
    y = convert_to_tensor(y, name="y", dtype=None if isinstance(y, Tensor) else x.dtype.base_dtype)
    if x.dtype.base_dtype != y.dtype.base_dtype:
        raise TypeError(
            f"{what}: x and y must have the same dtype, got {x.dtype.base_dtype!r} "
            f"('{label_of(x)}', "
            f"shape {x.shape}) != {y.dtype.base_dtype!r} ('{label_of(y)}', shape {y.shape})"
        )
    return x, y


_FLOAT_FOR_QUOTIENT = {
    dtypes.uint8: dtypes.float32,
    dtypes.int8: dtypes.float32,
    dtypes.uint16: dtypes.float32,
    dtypes.int16: dtypes.float32,
    dtypes.int32: dtypes.float64,
    dtypes.int64: dtypes.float64,
    dtypes.uint32: dtypes.float64,
    dtypes.uint64: dtypes.float64,
}


@export(v1=("truediv", "math.truediv"), v2=("truediv", "math.truediv"))
def truediv(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x / y as Python 3 has it: integers are cast to floats (float64 for 32 bits and more)."""
    with name_scope(name, "truediv", [x, y]) as scope:
        x, y = _operands(x, y, "truediv")
        to = _FLOAT_FOR_QUOTIENT.get(x.dtype.base_dtype)
        if to is not None:
            x, y = gen_ops.cast(x, to), gen_ops.cast(y, to)
        elif not (x.dtype.is_floating or x.dtype.is_complex):
            raise TypeError(f"Invalid dtype {x.dtype.base_dtype!r} in __truediv__.")
        return gen_ops.real_div(x, y, name=scope)


@export(v1=("divide", "math.divide"), v2=("divide", "math.divide"))
def divide(x: Any, y: Any, name: str | None = None) -> Any:
    """x / y, as the operator does it."""
    if name is not None:
        return truediv(x, y, name)
    if not isinstance(x, Tensor) and not hasattr(x, "_as_graph_element"):
        like = y.dtype.base_dtype if isinstance(y, Tensor) else None
        x = convert_to_tensor(x, dtype=like)
    return x / y


@export(v1="div")
def div(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x / y as Python 2 has it: for integers the quotient rounded towards minus infinity."""
    with name_scope(name, "div", [x, y]) as scope:
        x, y = _operands(x, y, "div")
        if x.dtype.is_floating or x.dtype.is_complex:
            return gen_ops.real_div(x, y, name=scope)
        return gen_ops.floor_div(x, y, name=scope)


@export(v1=("floordiv", "math.floordiv"), v2="math.floordiv")
def floordiv(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x // y, rounded towards minus infinity."""
    with name_scope(name, "floordiv", [x, y]) as scope:
        return gen_ops.floor_div(x, y, name=scope)


@export(v1=("div_no_nan", "math.divide_no_nan"), v2="math.divide_no_nan")
def div_no_nan(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x / y, and 0 where y is 0."""
    with name_scope(name, "div_no_nan", [x, y]) as scope:
        x, y = _operands(x, y, "div_no_nan")
        return gen_ops.div_no_nan(x, y, name=scope)


@export(v1="math.multiply_no_nan", v2="math.multiply_no_nan")
def multiply_no_nan(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x * y, and 0 where y is 0 even if x is not finite."""
    with name_scope(name, "multiply_no_nan", [x, y]) as scope:
        x, y = _operands(x, y, "multiply_no_nan")
        return gen_ops.mul_no_nan(x, y, name=scope)


@export(v1="math.reciprocal_no_nan", v2="math.reciprocal_no_nan")
def reciprocal_no_nan(x: Any, name: str | None = None) -> Tensor:
    """1 / x, and 0 where x is 0."""
    with name_scope(name, "reciprocal_no_nan", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return gen_ops.div_no_nan(convert_to_tensor(1, dtype=x.dtype.base_dtype), x, name=scope)


@export(v1=("scalar_mul", "math.scalar_mul"), v2=("scalar_mul", "math.scalar_mul"))
def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """A scalar times a Tensor or IndexedSlices. ValueError when it is no scalar."""
    if not isinstance(x, (Tensor, IndexedSlices)):
        x = convert_to_tensor(x, name="x")
    scalar = convert_to_tensor(scalar, dtype=x.dtype.base_dtype, name="scalar")
    if scalar.shape.ndims != 0:
        raise ValueError(
            f"Only scalar multiply works, got '{label_of(scalar)}' of shape {scalar.shape}"
        )
    if isinstance(x, IndexedSlices):
        return IndexedSlices(gen_ops.mul(scalar, x.values, name=name), x.indices, x.dense_shape)
    return gen_ops.mul(scalar, x, name=name)


# Complex numbers.


@export(v1=("complex", "dtypes.complex"), v2=("complex", "dtypes.complex"))
def complex(real: Any, imag: Any, name: str | None = None) -> Tensor:
    """real + i imag. TypeError unless both are float32 or both float64."""
    real = convert_to_tensor(real, name="real")
    imag = convert_to_tensor(imag, name="imag")
    with name_scope(name, "Complex", [real, imag]) as scope:
        types = (real.dtype.base_dtype, imag.dtype.base_dtype)
        if types == (dtypes.float64, dtypes.float64):
            out = dtypes.complex128
        elif types == (dtypes.float32, dtypes.float32):
            out = dtypes.complex64
        else:
            raise TypeError(
                "real and imag have incorrect types: they must be float32 or float64 alike, got "
                f"{types[0].name} ('{label_of(real)}', shape {real.shape}) and {types[1].name} "
                f"('{label_of(imag)}', shape {imag.shape})"
            )
        return gen_ops.complex(real, imag, Tout=out, name=scope)


@export(v1=("real", "math.real"), v2="math.real")
def real(input: Any, name: str | None = None) -> Tensor:
    """The real part; real numbers as they are."""
    with name_scope(name, "Real", [input]) as scope:
        input = convert_to_tensor(input, name="input")
        if not input.dtype.is_complex:
            return input
        return gen_ops.real(input, Tout=input.dtype.base_dtype.real_dtype, name=scope)


@export(v1=("imag", "math.imag"), v2="math.imag")
def imag(input: Any, name: str | None = None) -> Tensor:
    """The imaginary part; zeros for real numbers."""
    with name_scope(name, "Imag", [input]) as scope:
        input = convert_to_tensor(input, name="input")
        if not input.dtype.is_complex:
            return gen_ops.zeros_like(input, name=scope)
        return gen_ops.imag(input, Tout=input.dtype.base_dtype.real_dtype, name=scope)


@export(v1=("conj", "math.conj"), v2="math.conj")
def conj(x: Any, name: str | None = None) -> Tensor:
    """The complex conjugate; real numbers as they are. TypeError for what is no number."""
    x = x if isinstance(x, Tensor) else convert_to_tensor(x, name="x")
    if x.dtype.is_complex:
        return gen_ops.conj(x, name=name)
    if x.dtype.is_floating or x.dtype.is_integer:
        return x
    raise TypeError(f"Expected numeric or variant tensor, got dtype {x.dtype!r} ('{label_of(x)}')")


# Casts.


@export(v1=("cast", "dtypes.cast"), v2=("cast", "dtypes.cast"))
def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """x in another type: itself when it has it. Takes SparseTensor and IndexedSlices too."""
    to = dtypes.as_dtype(dtype).base_dtype
    if isinstance(x, Tensor) and x.dtype is to:
        return x
    with name_scope(name, "Cast", [getattr(x, "values", x)]) as scope:
        if isinstance(x, SparseTensor):
            return SparseTensor(x.indices, cast(x.values, to, name=scope), x.dense_shape)
        if isinstance(x, IndexedSlices):
            return IndexedSlices(cast(x.values, to, name=scope), x.indices, x.dense_shape)
        x = convert_to_tensor(x, name="x")
        if x.dtype.base_dtype is to:
            return x
        return gen_ops.cast(x, to, name=scope)


def _bounds_within(source: dtypes.DType, to: dtypes.DType) -> tuple[Any, Any]:
    """The least and greatest values of `source` that `to` holds; None where all fit."""
    storage = source.as_numpy_dtype
    least, greatest = to.min, to.max
    low, high = None, None
    if source.min < least:
        low = storage(least)
        if source.is_floating and int(low) < int(least):
            low = np.nextafter(low, storage(0))
    if source.max > greatest:
        high = storage(greatest)
        if source.is_floating and to.is_integer and int(high) > int(greatest):
            high = np.nextafter(high, storage(0))
    return low, high


@export(v1=("saturate_cast", "dtypes.saturate_cast"), v2=("saturate_cast", "dtypes.saturate_cast"))
def saturate_cast(value: Any, dtype: Any, name: str | None = None) -> Tensor:
    """x in another type, where what does not fit becomes the nearest value that does."""
    with name_scope(name, "saturate_cast", [value]) as scope:
        value = convert_to_tensor(value, name="value")
        to = dtypes.as_dtype(dtype).base_dtype
        low, high = _bounds_within(value.dtype.base_dtype, to)
        if low is not None:
            low = convert_to_tensor(low, dtype=value.dtype.base_dtype, name="min")
            value = gen_ops.maximum(value, low)
        if high is not None:
            high = convert_to_tensor(high, dtype=value.dtype.base_dtype, name="max")
            value = gen_ops.minimum(value, high)
        return cast(value, to, name=scope)


@export(v1="to_float")
def to_float(x: Any, name: str | None = "ToFloat") -> Any:
    """x as float32."""
    return cast(x, dtypes.float32, name=name)


@export(v1="to_double")
def to_double(x: Any, name: str | None = "ToDouble") -> Any:
    """x as float64."""
    return cast(x, dtypes.float64, name=name)


@export(v1="to_int32")
def to_int32(x: Any, name: str | None = "ToInt32") -> Any:
    """x as int32."""
    return cast(x, dtypes.int32, name=name)


@export(v1="to_int64")
def to_int64(x: Any, name: str | None = "ToInt64") -> Any:
    """x as int64."""
    return cast(x, dtypes.int64, name=name)


@export(v1="to_bfloat16")
def to_bfloat16(x: Any, name: str | None = "ToBFloat16") -> Any:
    """x as bfloat16."""
    return cast(x, dtypes.bfloat16, name=name)


@export(v1="to_complex64")
def to_complex64(x: Any, name: str | None = "ToComplex64") -> Any:
    """x as complex64."""
    return cast(x, dtypes.complex64, name=name)


@export(v1="to_complex128")
def to_complex128(x: Any, name: str | None = "ToComplex128") -> Any:
    """x as complex128."""
    return cast(x, dtypes.complex128, name=name)


# Sums of many tensors.


def _summands(inputs: Any, what: str) -> list[Any]:
    problem = (
        f"{what}: inputs must be an iterable of at least one Tensor/IndexedSlices with the same "
        "dtype and shape"
    )
    if isinstance(inputs, (str, bytes, Tensor)) or not hasattr(inputs, "__iter__"):
        raise ValueError(f"{problem}, got {inputs!r}")
    inputs = [convert_to_tensor_or_indexed_slices(x) for x in inputs]
    if not inputs or not all(isinstance(x, (Tensor, IndexedSlices)) for x in inputs):
        raise ValueError(f"{problem}, got {inputs!r}")
    return inputs


@export(v1=("add_n", "math.add_n"), v2=("add_n", "math.add_n"))
def add_n(inputs: Any, name: str | None = None) -> Tensor:
    """The sum of a list of tensors of one shape and type. ValueError for an empty list."""
    inputs = _summands(inputs, "add_n")
    if len(inputs) > 1:
        return gen_ops.add_n([convert_to_tensor(x) for x in inputs], name=name)
    value = convert_to_tensor(inputs[0])
    return value if name is None else gen_ops.identity(value, name=name)


@export(v1=("accumulate_n", "math.accumulate_n"), v2="math.accumulate_n")
def accumulate_n(
    inputs: Any, shape: Any = None, tensor_dtype: Any = None, name: str | None = None
) -> Tensor:
    """As `add_n`. `shape` and `tensor_dtype`, where given, must be those of every summand."""
    inputs = _summands(inputs, "accumulate_n")
    kind = inputs[0].dtype.base_dtype
    if not all(x.dtype.base_dtype is kind for x in inputs):
        raise ValueError(
            "accumulate_n: inputs must be a list of at least one Tensor with the same dtype and "
            f"shape, got types {[x.dtype.base_dtype.name for x in inputs]}"
        )
    merged = TensorShape(shape)
    for x in inputs:
        merged = merged.merge_with(x.shape)
    if tensor_dtype is not None and dtypes.as_dtype(tensor_dtype).base_dtype is not kind:
        raise TypeError(
            f"tensor_dtype is {dtypes.as_dtype(tensor_dtype).name}, but input is of type "
            f"{kind.name}"
        )
    return add_n(inputs, name=name)


@export(v1="math.polyval", v2="math.polyval")
def polyval(coeffs: Any, x: Any, name: str | None = None) -> Tensor:
    """A polynomial at x; the coefficient of the highest power first. ValueError if no list."""
    if not isinstance(coeffs, list):
        raise ValueError(f"coeffs must be a list of coefficients, got {type(coeffs).__name__}")
    with name_scope(name, "polyval", [x, *coeffs]) as scope:
        x = convert_to_tensor(x, name="x")
        if not coeffs:
            return gen_ops.zeros_like(x, name=scope)
        parts = [convert_to_tensor(c, name=f"coeff_{i}") for i, c in enumerate(coeffs)]
        value = parts[0]
        for part in parts[1:]:
            value = part + value * x
        return gen_ops.identity(value, name=scope)
