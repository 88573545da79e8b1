"""One row per op: its NumPy twin, how its inputs are drawn, in which types, how near it must be.

test_op_table.py derives the tests: the values in every type, the inferred shape against the real
one, and the gradients against differences. A new op needs a row here, or an entry in EXEMPT that
says which tests cover it instead.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Callable

import numpy as np

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@dataclass
class Draw:
    """An input of the row's type, drawn from [low, high]; `apart` keeps elements distinct."""

    shape: tuple[int, ...] = (2, 3)
    low: float = -3
    high: float = 3
    apart: bool = False

    def array(self, rng: np.random.RandomState, kind: str) -> np.ndarray:
        if kind == "bool":
            return np.asarray(rng.rand(*self.shape) < 0.5)
        if kind in INTS:
            low = max(math.ceil(self.low), 0 if kind.startswith("u") else -(2**7))
            low = max(low, 1) if self.low > 0 else low
            return rng.randint(low, max(math.floor(self.high), low) + 1, self.shape).astype(kind)
        size = int(np.prod(self.shape))
        if self.apart:
            places = (rng.permutation(size) + 0.5) / size
            x = (self.low + (self.high - self.low) * places).reshape(self.shape)
        else:
            x = self.low + (self.high - self.low) * rng.rand(*self.shape)
        x = np.asarray(x)
        if kind in COMPLEX:
            x = x + 1j * (self.low + (self.high - self.low) * rng.rand(*self.shape))
        return x.astype("float32" if kind == "bfloat16" else kind)


@dataclass
class Case:
    """Inputs (Draw, an array as it is, or a list of those) and attributes of one call.

    An attribute that depends on the type is a function of its name.
    """

    inputs: list[Any]
    attrs: dict[str, Any] = field(default_factory=dict)


@dataclass
class Row:
    """`twin(*inputs, **attrs)` computes in NumPy what the op does; a tuple for several outputs.

    `types`: those of the row's inputs, all that the op takes by default. `tolerance`: relative and
    absolute, in float64; other types have their own share of it. `dynamic`: the shape is known only
    when the op runs. `gradient`: whether it has one, in float64.
    """

    op: str
    twin: Callable[..., Any]
    cases: list[Case]
    types: tuple[str, ...] | None = None
    tolerance: float = 1e-9
    dynamic: bool = False
    gradient: bool = True


def vector(*values: Any, dtype: str = "int32") -> np.ndarray:
    return np.array(values, dtype=dtype)


def scalar(value: Any, dtype: str = "int32") -> np.ndarray:
    return np.array(value, dtype=dtype)


ROWS: list[Row] = []


def add(op: str, twin: Callable[..., Any], *cases: Case, **options: Any) -> None:
    ROWS.append(Row(op, twin, list(cases), **options))


def unary(
    op: str, twin: Callable[..., Any], low: float = -3, high: float = 3, **options: Any
) -> None:
    cases = [Case([Draw(shape, low, high)]) for shape in ((2, 3), (), (0, 2), (67,))]
    add(op, twin, *cases, **options)


def binary(
    op: str, twin: Callable[..., Any], x: tuple = (-3, 3), y: tuple = (-3, 3), **options: Any
) -> None:
    shapes = [
        ((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (4,)), ((33,), ()), ((0, 3), (3,)),
    ]  # fmt: skip
    cases = [Case([Draw(a, *x), Draw(b, *y)]) for a, b in shapes]
    add(op, twin, *cases, **options)


# Elementwise.


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _erfc(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erfc, otypes=[np.float64])(x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(x, 0)


def _elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.expm1(x))


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _selu(x: np.ndarray) -> np.ndarray:
    return _SELU_SCALE * np.where(x > 0, x, _SELU_ALPHA * np.expm1(x))


def _sign(x: np.ndarray) -> np.ndarray:
    if np.iscomplexobj(x):
        size = np.abs(x)
        return np.where(size == 0, 0, x / np.where(size == 0, 1, size))
    return np.sign(x)


def _truncate_div(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind in "iu":
        return (np.abs(x) // np.abs(y) * np.sign(x) * np.sign(y)).astype(x.dtype)
    return x / y


def _div(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return _truncate_div(x, y) if x.dtype.kind in "iu" else x / y


REAL_AND_COMPLEX = FLOATS + COMPLEX
WIDE = ("float32", "float64", "int32", "int64")

unary("Abs", np.abs, types=FLOATS + ("int8", "int16", "int32", "int64"))
unary("Neg", np.negative)
unary("Sign", _sign)
unary("Square", np.square)
unary("Sqrt", np.sqrt, 0.5, 4, types=REAL_AND_COMPLEX)
unary("Rsqrt", lambda x: 1 / np.sqrt(x), 0.5, 4, types=REAL_AND_COMPLEX)
unary("Reciprocal", lambda x: 1 / x, 0.5, 4, types=REAL_AND_COMPLEX)
unary("Exp", np.exp, types=REAL_AND_COMPLEX)
unary("Expm1", np.expm1, types=REAL_AND_COMPLEX)
unary("Log", np.log, 0.5, 4, types=REAL_AND_COMPLEX)
unary("Log1p", np.log1p, -0.5, 4, types=REAL_AND_COMPLEX)
unary("Sin", np.sin, types=REAL_AND_COMPLEX)
unary("Cos", np.cos, types=REAL_AND_COMPLEX)
unary("Tan", np.tan, -1, 1, types=REAL_AND_COMPLEX)
unary("Asin", np.arcsin, -0.9, 0.9, types=FLOATS)
unary("Acos", np.arccos, -0.9, 0.9, types=FLOATS)
unary("Atan", np.arctan, -0.9, 0.9, types=FLOATS)
unary("Tanh", np.tanh, -1, 1, types=REAL_AND_COMPLEX)
unary("Sigmoid", _sigmoid, -1, 1, types=REAL_AND_COMPLEX)
unary("Erf", _erf, types=FLOATS)
unary("Erfc", _erfc, types=FLOATS)
unary("Floor", np.floor, types=FLOATS)
unary("Ceil", np.ceil, types=FLOATS)
unary("Rint", np.rint, types=FLOATS)
unary("Round", np.round, types=FLOATS + ("int32", "int64"))
unary("Relu", lambda x: np.maximum(x, 0), types=FLOATS + ("int8", "int16", "int32", "int64"))
unary("Relu6", lambda x: np.clip(x, 0, 6), -8, 8, types=FLOATS + ("int32", "int64"))
unary("Elu", _elu, types=FLOATS)
unary("Selu", _selu, types=FLOATS)
unary("Softplus", _softplus, types=FLOATS)
unary("Softsign", lambda x: x / (1 + np.abs(x)), types=FLOATS)
unary("IsFinite", np.isfinite, types=FLOATS)
unary("IsInf", np.isinf, types=FLOATS)
unary("IsNan", np.isnan, types=FLOATS)
unary("LogicalNot", np.logical_not, types=("bool",))
unary("ZerosLike", np.zeros_like)
unary("OnesLike", np.ones_like)
unary("Identity", lambda x: x)
unary("StopGradient", lambda x: x, gradient=False)
unary("Conj", np.conj, types=COMPLEX)
_REAL_OF = {"complex64": "float32", "complex128": "float64"}
for _op, _twin in (("Real", np.real), ("Imag", np.imag), ("ComplexAbs", np.abs)):
    add(
        _op, lambda x, Tout, _twin=_twin: _twin(x), Case([Draw()], {"Tout": _REAL_OF.get}),
        types=COMPLEX,
    )  # fmt: skip

binary("Add", np.add)
binary("AddV2", np.add)
binary("Sub", np.subtract)
binary("Mul", np.multiply)
binary("RealDiv", np.divide, y=(0.5, 3), types=REAL_AND_COMPLEX)
binary("Div", _div, y=(0.5, 3), types=REAL_AND_COMPLEX + ("int32", "int64", "uint8"))
binary("TruncateDiv", _truncate_div, y=(1, 3), types=("int8", "int16", "int32", "int64", "uint8"))
binary("FloorDiv", np.floor_divide, y=(0.5, 3), types=(*WIDE, "uint8"))
binary("FloorMod", np.mod, y=(0.7, 3), types=WIDE, gradient=False)
binary("Mod", np.fmod, y=(0.7, 3), types=WIDE, gradient=False)
binary("TruncateMod", np.fmod, y=(0.7, 3), types=WIDE, gradient=False)
binary("Pow", np.power, (0.5, 2), (0, 2), types=REAL_AND_COMPLEX + ("int32", "int64"))
binary("Maximum", np.maximum, types=FLOATS + ("int32", "int64", "uint8"))
binary("Minimum", np.minimum, types=FLOATS + ("int32", "int64", "uint8"))
binary(
    "SquaredDifference", lambda x, y: (x - y) * np.conj(x - y), types=FLOATS + ("int32", "int64")
)
binary("Less", np.less)
binary("LessEqual", np.less_equal)
binary("Greater", np.greater)
binary("GreaterEqual", np.greater_equal)
binary("Equal", np.equal)
binary("NotEqual", np.not_equal)
binary("LogicalAnd", np.logical_and, types=("bool",))
binary("LogicalOr", np.logical_or, types=("bool",))
add(
    "Complex", lambda x, y, Tout: x + 1j * y,
    Case([Draw(), Draw()], {"Tout": {v: k for k, v in _REAL_OF.items()}.get}),
    types=("float32", "float64"),
)  # fmt: skip

add(
    "AddN", lambda xs: sum(xs[1:], xs[0]),
    Case([[Draw(), Draw(), Draw()]]), Case([[Draw(())]]),
    types=FLOATS + COMPLEX + ("int32", "int64", "uint8"),
)  # fmt: skip
add(
    "Select", lambda c, x, y: np.where(c.reshape(c.shape + (1,) * (x.ndim - c.ndim)), x, y),
    Case([np.array([[True, False, True], [False, False, True]]), Draw(), Draw()]),
    Case([np.array([True, False]), Draw(), Draw()]),
    Case([np.array(True), Draw(), Draw()]),
)  # fmt: skip
add(
    "SelectV2", np.where,
    Case([np.array([True, False, True]), Draw((2, 3)), Draw((2, 1))]),
    Case([np.array(False), Draw(()), Draw((4,))]),
)  # fmt: skip
add(
    "Cast", lambda x, DstT: x.astype(DstT),
    *[Case([Draw(low=0)], {"DstT": to}) for to in ("float32", "float64", "int32", "int64", "bool")],
    types=FLOATS + INTS + ("bool",),
)  # fmt: skip
add(
    "Bitcast", lambda x, type: x.view(type),
    Case([Draw((2, 3))], {"type": "int32"}), types=("float32", "uint32"), gradient=False,
)  # fmt: skip

# Gradients of elementwise functions, as ops of their own.


def gradient_op(
    op: str, twin: Callable[..., Any], first: tuple, second: tuple, **options: Any
) -> None:
    options.setdefault("types", FLOATS)
    add(op, twin, Case([Draw((2, 3), *first), Draw((2, 3), *second)]), **options)


gradient_op("SigmoidGrad", lambda y, dy: dy * y * (1 - y), (0.1, 0.9), (-3, 3))
gradient_op("TanhGrad", lambda y, dy: dy * (1 - y * y), (-0.9, 0.9), (-3, 3))
gradient_op("SqrtGrad", lambda y, dy: dy * 0.5 / y, (0.5, 3), (-3, 3))
gradient_op("RsqrtGrad", lambda y, dy: dy * -0.5 * y**3, (0.5, 3), (-3, 3))
gradient_op("ReciprocalGrad", lambda y, dy: -dy * y * y, (0.5, 3), (-3, 3))
gradient_op("ReluGrad", lambda dy, x: dy * (x > 0), (-3, 3), (-3, 3))
gradient_op("Relu6Grad", lambda dy, x: dy * ((x > 0) & (x < 6)), (-3, 3), (-8, 8))
gradient_op("EluGrad", lambda dy, y: np.where(y < 0, dy * (y + 1), dy), (-3, 3), (-0.9, 3))
gradient_op(
    "SeluGrad",
    lambda dy, y: dy * np.where(y < 0, y + _SELU_SCALE * _SELU_ALPHA, _SELU_SCALE),
    (-3, 3), (-1.5, 3),
)  # fmt: skip
gradient_op("SoftplusGrad", lambda dy, x: dy * _sigmoid(x), (-3, 3), (-3, 3))
gradient_op("SoftsignGrad", lambda dy, x: dy / (1 + np.abs(x)) ** 2, (-3, 3), (-3, 3))

# Reductions.


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def twin(x: np.ndarray, axes: np.ndarray, keep_dims: bool = False) -> Any:
        axis = tuple(int(a) for a in np.atleast_1d(axes))
        return function(x, axis=axis, keepdims=keep_dims)

    return twin


def _mean(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    if x.dtype.kind not in "iu":
        return np.mean(x, axis=axis, keepdims=keepdims)
    count = int(np.prod([x.shape[a] for a in axis]))
    total = np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype)
    return (np.sign(total) * (np.abs(total) // max(count, 1))).astype(x.dtype)


def _typed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Sums of small integers stay in their type."""
    return lambda x, axis, keepdims: function(x, axis=axis, keepdims=keepdims, dtype=x.dtype)


def reduction(op: str, function: Callable[..., Any], **options: Any) -> None:
    draw = options.pop("draw", Draw((2, 3, 4), -2, 2, apart=True))
    add(
        op, _reduction(function),
        Case([draw, vector(0)]), Case([draw, vector(1, -1)]), Case([draw, scalar(1)]),
        Case([draw, vector(0, 1, 2)]), Case([draw, vector()]),
        Case([draw, vector(0, 2, dtype="int64")], {"keep_dims": True}),
        **options,
    )  # fmt: skip


_SUMMED = FLOATS + COMPLEX + ("int32", "int64")
reduction("Sum", _typed(np.sum), types=_SUMMED, tolerance=1e-8)
reduction("Prod", _typed(np.prod), types=_SUMMED, tolerance=1e-8, draw=Draw((2, 3, 2), 0.5, 1.5))
reduction("Mean", _mean, types=_SUMMED, tolerance=1e-8)
reduction("Max", np.max, types=FLOATS + ("int8", "int32", "int64", "uint8"))
reduction("Min", np.min, types=FLOATS + ("int8", "int32", "int64", "uint8"))
reduction("All", np.all, types=("bool",))
reduction("Any", np.any, types=("bool",))
add(
    "ArgMax", lambda x, axis: np.argmax(x, int(axis)),
    Case([Draw((3, 4), apart=True), scalar(0)]), Case([Draw((3, 4), apart=True), scalar(-1)]),
    types=FLOATS + ("int32", "int64", "uint8"),
)  # fmt: skip
add(
    "ArgMin", lambda x, axis: np.argmin(x, int(axis)),
    Case([Draw((3, 4), apart=True), scalar(1)]), Case([Draw((5,), apart=True), scalar(0)]),
    types=FLOATS + ("int32", "int64", "uint8"),
)  # fmt: skip


def _scan(function: Callable[..., Any], start: int) -> Callable[..., Any]:
    def twin(
        x: np.ndarray, axis: Any, exclusive: bool = False, reverse: bool = False
    ) -> np.ndarray:
        axis = int(axis)
        x = np.flip(x, axis) if reverse else x
        y = function(x, axis=axis, dtype=x.dtype)
        if exclusive:
            first = np.full_like(np.take(y, [0], axis), start)
            y = np.concatenate([first, np.delete(y, -1, axis)], axis)
        return np.flip(y, axis) if reverse else y

    return twin


for _op, _function, _start in (("Cumsum", np.cumsum, 0), ("Cumprod", np.cumprod, 1)):
    add(
        _op, _scan(_function, _start),
        *[
            Case([Draw((3, 4), 0.5, 2), scalar(axis)], {"exclusive": exclusive, "reverse": reverse})
            for axis in (0, -1)
            for exclusive in (False, True)
            for reverse in (False, True)
        ],
        types=FLOATS + COMPLEX + ("int32", "int64"),
        tolerance=1e-8,
    )  # fmt: skip

add("L2Loss", lambda t: np.sum(t * t) / 2, Case([Draw((3, 4))]), types=FLOATS, tolerance=1e-8)

# Segments.


def _segments(fold: Callable[..., Any], empty: Any = 0) -> Callable[..., Any]:
    def twin(data: np.ndarray, ids: np.ndarray, count: Any = None) -> np.ndarray:
        n = int(ids.max()) + 1 if count is None else int(count)
        rows = [data[ids == i] for i in range(n)]
        shape = data.shape[1:]
        return np.stack(
            [fold(r) if len(r) else np.full(shape, empty(data.dtype) if callable(empty) else empty)
             for r in rows]
        ).astype(data.dtype)  # fmt: skip

    return twin


def _least(kind: np.dtype) -> Any:
    return np.finfo(kind).min if kind.kind == "f" else np.iinfo(kind).min


def _greatest(kind: np.dtype) -> Any:
    return np.finfo(kind).max if kind.kind == "f" else np.iinfo(kind).max


_SEGMENT_DATA = Draw((4, 2), 0.5, 3, apart=True)
_FOLDS = {
    "Sum": (lambda r: r.sum(0, dtype=r.dtype), 0),
    "Prod": (lambda r: r.prod(0, dtype=r.dtype), 1),
    "Max": (lambda r: r.max(0), _least),
    "Min": (lambda r: r.min(0), _greatest),
}
for _name, (_fold, _empty) in _FOLDS.items():
    # In sorted segments what is empty is 0 (1 for products).
    add(
        f"Segment{_name}", _segments(_fold, 1 if _name == "Prod" else 0),
        Case([_SEGMENT_DATA, vector(0, 0, 1, 3)]),
        types=WIDE, dynamic=True,
    )  # fmt: skip
    add(
        f"UnsortedSegment{_name}", _segments(_fold, _empty),
        Case([_SEGMENT_DATA, vector(2, 0, 2, 0), scalar(3)]),
        types=WIDE,
    )  # fmt: skip
add(
    "SegmentMean", _segments(lambda r: r.mean(0)), Case([_SEGMENT_DATA, vector(0, 0, 1, 3)]),
    types=("float32", "float64"), dynamic=True,
)  # fmt: skip

_SPARSE_FOLDS = {
    "Sum": lambda r: r.sum(0),
    "Mean": lambda r: r.mean(0),
    "SqrtN": lambda r: r.sum(0) / np.sqrt(len(r)),
}
for _name, _fold in _SPARSE_FOLDS.items():
    _whole = _segments(_fold)
    add(
        f"SparseSegment{_name}",
        lambda data, indices, ids, _whole=_whole: _whole(data[indices], ids),
        Case([_SEGMENT_DATA, vector(0, 2, 3, 2), vector(0, 0, 1, 3)]),
        types=("float32", "float64"), dynamic=True,
    )  # fmt: skip
    add(
        f"SparseSegment{_name}WithNumSegments",
        lambda data, indices, ids, count, _whole=_whole: _whole(data[indices], ids, count),
        Case([_SEGMENT_DATA, vector(0, 2, 3, 2), vector(0, 0, 1, 3), scalar(5)]),
        types=("float32", "float64"),
    )  # fmt: skip

# Matrix products.


def _matmul(
    a: np.ndarray, b: np.ndarray, transpose_a: bool = False, transpose_b: bool = False
) -> Any:
    return (a.T if transpose_a else a) @ (b.T if transpose_b else b)


def _batch_matmul(x: np.ndarray, y: np.ndarray, adj_x: bool = False, adj_y: bool = False) -> Any:
    x = np.conj(np.swapaxes(x, -1, -2)) if adj_x else x
    y = np.conj(np.swapaxes(y, -1, -2)) if adj_y else y
    return x @ y


_PRODUCTS = FLOATS + COMPLEX + ("int32", "int64")
add(
    "MatMul", _matmul,
    Case([Draw((2, 3)), Draw((3, 4))]),
    Case([Draw((3, 2)), Draw((3, 4))], {"transpose_a": True}),
    Case([Draw((2, 3)), Draw((4, 3))], {"transpose_b": True}),
    Case([Draw((3, 2)), Draw((4, 3))], {"transpose_a": True, "transpose_b": True}),
    Case([Draw((2, 0)), Draw((0, 4))]),
    types=_PRODUCTS, tolerance=1e-8,
)  # fmt: skip
for _op in ("BatchMatMul", "BatchMatMulV2"):
    add(
        _op, _batch_matmul,
        Case([Draw((2, 2, 3)), Draw((2, 3, 4))]),
        Case([Draw((2, 3, 2)), Draw((2, 4, 3))], {"adj_x": True, "adj_y": True}),
        Case([Draw((2, 3)), Draw((3, 2))]),
        *([Case([Draw((2, 1, 2, 3)), Draw((3, 3, 2))])] if _op == "BatchMatMulV2" else []),
        types=_PRODUCTS, tolerance=1e-8,
    )  # fmt: skip


def _einsum(xs, equation):
    """NumPy's, and sums over an ellipsis that the result lacks, which that does not."""
    inputs, output = equation.split("->")
    if "..." not in inputs or "..." in output:
        return np.einsum(equation, *xs)
    wide = np.einsum(f"{inputs}->...{output}", *xs)
    return wide.sum(axis=tuple(range(wide.ndim - len(output))), dtype=wide.dtype)


add(
    "Einsum", _einsum,
    Case([[Draw((2, 3)), Draw((3, 4))]], {"equation": "ij,jk->ik"}),
    Case([[Draw((2, 3, 4)), Draw((4, 2, 5))]], {"equation": "bic,cbj->jbi"}),
    Case([[Draw((2, 1, 2, 3)), Draw((4, 3, 2))]], {"equation": "...ij,...jk->...ik"}),
    Case([[Draw((2, 3)), Draw((4, 5))]], {"equation": "ij,kl->jk"}),
    Case([[Draw((2, 3, 4))]], {"equation": "abc->ca"}),
    Case([[Draw((3,)), Draw((3,))]], {"equation": "i,i->"}),
    Case([[Draw((3, 2, 3))]], {"equation": "iji->j"}),
    Case([[Draw((3, 3)), Draw((2, 3))]], {"equation": "ii,ji->j"}),
    Case([[Draw((2, 3, 4)), Draw((3, 5))]], {"equation": "...i,...j->ij"}),
    Case([[Draw((2, 3, 4))]], {"equation": "...i->i"}),
    types=_PRODUCTS, tolerance=1e-8,
)  # fmt: skip

# Arrays.

add(
    "Reshape", lambda x, shape: x.reshape(shape),
    Case([Draw((2, 6)), vector(3, -1)]), Case([Draw((1,)), vector()]),
    Case([Draw((2, 6)), vector(4, 3, dtype="int64")]),
)  # fmt: skip
add(
    "Transpose", lambda x, perm: np.transpose(x, perm),
    Case([Draw((2, 3, 4)), vector(2, 0, 1)]), Case([Draw((5,)), vector(0)]),
)  # fmt: skip
add(
    "ConjugateTranspose", lambda x, perm: np.conj(np.transpose(x, perm)),
    Case([Draw((2, 3)), vector(1, 0)]), types=FLOATS + COMPLEX,
)  # fmt: skip
add(
    "ExpandDims", lambda x, dim: np.expand_dims(x, int(dim)),
    Case([Draw(), scalar(0)]), Case([Draw(), scalar(-1)]), Case([Draw(()), scalar(0)]),
)  # fmt: skip
add(
    "Squeeze", lambda x, squeeze_dims=(): np.squeeze(x, tuple(squeeze_dims) or None),
    Case([Draw((1, 3, 1))]), Case([Draw((1, 3, 1))], {"squeeze_dims": [-1]}),
)  # fmt: skip
add(
    "Concat", lambda dim, xs: np.concatenate(xs, int(dim)),
    Case([scalar(1), [Draw((2, 1)), Draw((2, 3))]]), Case([scalar(0), [Draw((2,)), Draw((0,))]]),
)  # fmt: skip
add(
    "ConcatV2", lambda xs, axis: np.concatenate(xs, int(axis)),
    Case([[Draw((2, 1)), Draw((2, 3))], scalar(-1)]), Case([[Draw((2,)), Draw((3,))], scalar(0)]),
)  # fmt: skip
add(
    "Pack", lambda xs, axis=0: np.stack(xs, axis),
    Case([[Draw(), Draw()]]), Case([[Draw(), Draw()]], {"axis": -1}),
)  # fmt: skip
add(
    "Unpack", lambda x, num, axis=0: tuple(np.moveaxis(x, axis, 0)),
    Case([Draw((2, 3))], {"num": 2}), Case([Draw((2, 3))], {"num": 3, "axis": 1}),
)  # fmt: skip
add(
    "Split", lambda dim, x, num_split: tuple(np.split(x, num_split, int(dim))),
    Case([scalar(1), Draw((2, 6))], {"num_split": 3}),
)  # fmt: skip
add(
    "SplitV", lambda x, sizes, dim, num_split: tuple(np.split(x, np.cumsum(sizes)[:-1], int(dim))),
    Case([Draw((2, 6)), vector(1, 2, 3), scalar(1)], {"num_split": 3}),
)  # fmt: skip
add(
    "Slice", lambda x, begin, size: x[tuple(map(slice, begin, begin + size))],
    Case([Draw((3, 4)), vector(1, 0), vector(2, 3)]),
    Case([Draw((3, 4)), vector(0, 1), vector(0, 2)]),
)  # fmt: skip


def _strided_slice(x: np.ndarray, begin: Any, end: Any, strides: Any, **masks: int) -> np.ndarray:
    items: list[Any] = []
    for i, (b, e, s) in enumerate(zip(begin, end, strides, strict=True)):
        bit = 1 << i
        if masks.get("new_axis_mask", 0) & bit:
            items.append(None)
        elif masks.get("ellipsis_mask", 0) & bit:
            items.append(Ellipsis)
        elif masks.get("shrink_axis_mask", 0) & bit:
            items.append(int(b))
        else:
            first = None if masks.get("begin_mask", 0) & bit else int(b)
            last = None if masks.get("end_mask", 0) & bit else int(e)
            items.append(slice(first, last, int(s)))
    return x[tuple(items)]


add(
    "StridedSlice", _strided_slice,
    Case([Draw((4, 5)), vector(1, 0), vector(4, 5), vector(2, 1)]),
    Case([Draw((4, 5)), vector(3, 1), vector(0, 0), vector(-1, 1)], {"shrink_axis_mask": 2}),
    Case([Draw((4, 5)), vector(0, 0, 2), vector(0, 0, 4), vector(1, 1, 1)],
         {"ellipsis_mask": 1, "new_axis_mask": 2}),
    Case([Draw((4, 5)), vector(2, 3), vector(2, 3), vector(1, -1)],
         {"begin_mask": 1, "end_mask": 3}),
)  # fmt: skip
add(
    "Pad", lambda x, paddings: np.pad(x, paddings),
    Case([Draw(), vector([1, 0], [0, 2])]), Case([Draw((2,)), vector([1, 1], dtype="int64")]),
)  # fmt: skip
add(
    "PadV2", lambda x, paddings, value: np.pad(x, paddings, constant_values=value),
    Case([Draw(), vector([1, 0], [0, 2]), Draw(())]),
)  # fmt: skip
add("Tile", lambda x, multiples: np.tile(x, multiples), Case([Draw(), vector(2, 3)]))
add(
    "Gather", lambda x, indices: x[indices],
    Case([Draw((4, 2)), vector(3, 0, 3)]), Case([Draw((4, 2)), vector([1], [0])]),
    Case([Draw((4, 2)), scalar(2)]),
)  # fmt: skip
add(
    "GatherV2", lambda x, indices, axis: np.take(x, indices, int(axis)),
    Case([Draw((4, 3)), vector(3, 0, 3), scalar(0)]),
    Case([Draw((4, 3)), vector(2, 0), scalar(-1)]),
)  # fmt: skip
add(
    "GatherNd", lambda x, indices: x[tuple(np.moveaxis(indices, -1, 0))],
    Case([Draw((4, 3)), vector([3, 0], [1, 2])]), Case([Draw((4, 3)), vector([2], [0])]),
)  # fmt: skip


def _scatter_nd(indices: np.ndarray, updates: np.ndarray, shape: np.ndarray) -> np.ndarray:
    out = np.zeros(shape, updates.dtype)
    np.add.at(out, tuple(np.moveaxis(indices, -1, 0)), updates)
    return out


add(
    "ScatterNd", _scatter_nd, Case([vector([1], [3], [1]), Draw((3, 2)), vector(4, 2)]),
    types=FLOATS + COMPLEX + ("int32", "int64"),
)  # fmt: skip
add(
    "OneHot",
    lambda indices, depth, on, off, axis=-1: np.moveaxis(
        np.where(np.arange(depth) == indices[..., None], on, off), -1, axis
    ),
    Case([vector(2, 0, 5), scalar(4), Draw(()), Draw(())]),
    Case([vector(2, 0), scalar(3), Draw(()), Draw(())], {"axis": 0}),
    gradient=False,
)  # fmt: skip
add(
    "Fill",
    lambda dims, value: np.full(dims, value),
    Case([vector(2, 3), Draw(())]),
    Case([vector(), Draw(())]),
)
add("Shape", lambda x: vector(*x.shape), Case([Draw((2, 0, 3))]), Case([Draw(())]))
add("ShapeN", lambda xs: tuple(vector(*x.shape) for x in xs), Case([[Draw((2, 3)), Draw((4,))]]))
add("Size", lambda x: scalar(x.size), Case([Draw((2, 3))]))
add("Rank", lambda x: scalar(x.ndim), Case([Draw((2, 3))]))
add(
    "Range", lambda start, limit, delta: np.arange(start, limit, delta, start.dtype),
    *[Case([scalar(1, t), scalar(8, t), scalar(3, t)]) for t in WIDE],
    Case([scalar(5), scalar(0), scalar(-2)]), types=(), gradient=False,
)  # fmt: skip
add(
    "LinSpace", lambda start, stop, num: np.linspace(start, stop, int(num)),
    Case([Draw(()), Draw(()), scalar(5)]), Case([Draw(()), Draw(()), scalar(1)]), types=FLOATS,
)  # fmt: skip
add(
    "Reverse", lambda x, dims: np.flip(x, tuple(np.flatnonzero(dims))),
    Case([Draw((2, 3)), np.array([True, False])]),
)  # fmt: skip
add("ReverseV2", lambda x, axis: np.flip(x, tuple(axis)), Case([Draw((2, 3)), vector(-1, 0)]))


def _reverse_sequence(
    x: np.ndarray, lengths: np.ndarray, seq_dim: int, batch_dim: int = 0
) -> np.ndarray:
    moved = np.moveaxis(x, (batch_dim, seq_dim), (0, 1)).copy()
    for row, n in zip(moved, lengths, strict=True):
        row[:n] = row[:n][::-1].copy()
    return np.moveaxis(moved, (0, 1), (batch_dim, seq_dim))


add(
    "ReverseSequence", _reverse_sequence,
    Case([Draw((2, 4)), vector(3, 2, dtype="int64")], {"seq_dim": 1}),
    Case([Draw((4, 2)), vector(0, 4, dtype="int64")], {"seq_dim": 0, "batch_dim": 1}),
)  # fmt: skip
add("Where", lambda x: np.argwhere(x), Case([Draw((3, 4))]), types=("bool",), dynamic=True)
add(
    "Unique", lambda x: _unique(x)[:2], Case([Draw((9,), 0, 3)]), types=("int32", "int64"),
    dynamic=True,
)  # fmt: skip
add(
    "UniqueWithCounts", lambda x: _unique(x), Case([Draw((9,), 0, 3)]), types=("int32", "int64"),
    dynamic=True,
)  # fmt: skip


def _unique(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """In the order in which they first come."""
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)
    place = np.argsort(order)
    return (
        values[order],
        place[inverse.reshape(-1)].astype(np.int32),
        counts[order].astype(np.int32),
    )


add(
    "ListDiff",
    lambda x, y: (x[~np.isin(x, y)], np.flatnonzero(~np.isin(x, y)).astype(np.int32)),
    Case([Draw((9,), 0, 5), Draw((3,), 0, 5)]), types=("int32", "int64"), dynamic=True,
)  # fmt: skip
add("InvertPermutation", np.argsort, Case([vector(2, 0, 1)]), types=())
add(
    "UnravelIndex", lambda i, dims: np.array(np.unravel_index(i, tuple(dims)), i.dtype),
    Case([Draw((4,), 0, 11), vector(2, 2, 3)]), Case([Draw((), 0, 5), vector(6)]),
    types=("int32",),
)  # fmt: skip
add(
    "Bucketize", lambda x, boundaries: np.searchsorted(boundaries, x, side="right"),
    Case([Draw((3, 5), -3, 5)], {"boundaries": [-1.0, 0.0, 0.0, 2.5]}),
    Case([Draw((4,))], {"boundaries": []}), Case([Draw((0, 2))], {"boundaries": [1.0]}),
)  # fmt: skip
add(
    "BroadcastTo",
    np.broadcast_to,
    Case([Draw((3,)), vector(2, 3)]),
    Case([Draw((2, 1)), vector(2, 3)]),
)
add(
    "BroadcastArgs", lambda a, b: vector(*np.broadcast_shapes(tuple(a), tuple(b))),
    Case([vector(2, 1), vector(3)]), types=(), dynamic=True,
)  # fmt: skip
add(
    "ConcatOffset",
    lambda dim, shapes: tuple(
        vector(*[sum(int(t[d]) for t in shapes[:i]) if d == dim else 0 for d in range(len(s))])
        for i, s in enumerate(shapes)
    ),
    Case([scalar(1), [vector(2, 3), vector(2, 4), vector(2, 1)]]), types=(),
)  # fmt: skip
add(
    "DynamicPartition",
    lambda data, parts, num_partitions: tuple(data[parts == i] for i in range(num_partitions)),
    Case([Draw((4, 2)), vector(1, 0, 1, 2)], {"num_partitions": 3}), dynamic=True,
)  # fmt: skip


def _dynamic_stitch(indices: list[np.ndarray], data: list[np.ndarray]) -> np.ndarray:
    size = max(int(i.max()) for i in indices) + 1
    out = np.zeros((size, *data[0].shape[indices[0].ndim :]), data[0].dtype)
    for i, d in zip(indices, data, strict=True):
        out[i] = d
    return out


add(
    "DynamicStitch", _dynamic_stitch,
    Case([[vector(0, 3), vector(2, 1)], [Draw((2, 2)), Draw((2, 2))]]), dynamic=True,
)  # fmt: skip


def _sparse_to_dense(
    indices: np.ndarray, shape: np.ndarray, values: Any, default: Any
) -> np.ndarray:
    out = np.full(shape, default)
    out[tuple(np.moveaxis(indices, -1, 0))] = values
    return out


add(
    "SparseToDense", _sparse_to_dense,
    Case([vector([0, 1], [2, 0]), vector(3, 2), Draw((2,)), Draw(())]),
    types=WIDE,
)  # fmt: skip

# Diagonals and blocks.


def _diag(x: np.ndarray) -> np.ndarray:
    return np.diag(x.reshape(-1)).reshape(x.shape + x.shape)


def _diag_part(x: np.ndarray) -> np.ndarray:
    half = x.shape[: x.ndim // 2]
    return np.diagonal(x.reshape(int(np.prod(half)), -1)).reshape(half)


def _matrix_diag(x: np.ndarray) -> np.ndarray:
    return x[..., None] * np.eye(x.shape[-1], dtype=x.dtype)


def _matrix_set_diag(x: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
    out = x.copy()
    n = np.arange(diagonal.shape[-1])
    out[..., n, n] = diagonal
    return out


def _band(x: np.ndarray, lower: Any, upper: Any) -> np.ndarray:
    i, j = np.indices(x.shape[-2:])
    inside = ((lower < 0) | (i - j <= lower)) & ((upper < 0) | (j - i <= upper))
    return np.where(inside, x, np.zeros((), x.dtype))


_MOVED = FLOATS + COMPLEX + ("int32", "int64")
add("Diag", _diag, Case([Draw((3,))]), Case([Draw((2, 2))]), types=_MOVED)
add("DiagPart", _diag_part, Case([Draw((3, 3))]), Case([Draw((2, 2, 2, 2))]), types=_MOVED)
add("MatrixDiag", _matrix_diag, Case([Draw((2, 3))]), types=_MOVED)
add(
    "MatrixDiagPart", lambda x: np.diagonal(x, axis1=-2, axis2=-1), Case([Draw((2, 3, 4))]),
    types=_MOVED,
)  # fmt: skip
add("MatrixSetDiag", _matrix_set_diag, Case([Draw((2, 3, 4)), Draw((2, 3))]), types=_MOVED)
add(
    "MatrixBandPart", _band,
    Case([Draw((2, 4, 5)), scalar(1, "int64"), scalar(-1, "int64")]),
    Case([Draw((4, 5)), scalar(0, "int64"), scalar(2, "int64")]),
    types=_MOVED,
)  # fmt: skip
add(
    "MirrorPad", lambda x, paddings, mode: np.pad(x, paddings, mode=mode.lower()),
    Case([Draw((3, 4)), vector([1, 2], [0, 3])], {"mode": "REFLECT"}),
    Case([Draw((3,)), vector([3, 1])], {"mode": "SYMMETRIC"}),
)  # fmt: skip
add(
    "Roll", lambda x, shift, axis: np.roll(x, tuple(shift), tuple(axis)),
    Case([Draw((3, 4)), vector(1, -2), vector(0, 1)]),
)  # fmt: skip


def _space_to_depth(x: np.ndarray, block_size: int) -> np.ndarray:
    n, h, w, c = x.shape
    b = block_size
    return x.reshape(n, h // b, b, w // b, b, c).transpose(0, 1, 3, 2, 4, 5).reshape(
        n, h // b, w // b, b * b * c
    )  # fmt: skip


def _depth_to_space(x: np.ndarray, block_size: int) -> np.ndarray:
    n, h, w, c = x.shape
    b = block_size
    return x.reshape(n, h, w, b, b, c // (b * b)).transpose(0, 1, 3, 2, 4, 5).reshape(
        n, h * b, w * b, c // (b * b)
    )  # fmt: skip


add("SpaceToDepth", _space_to_depth, Case([Draw((1, 4, 6, 2))], {"block_size": 2}), types=FLOATS)
add("DepthToSpace", _depth_to_space, Case([Draw((1, 2, 3, 8))], {"block_size": 2}), types=FLOATS)


def _space_to_batch(x: np.ndarray, block: np.ndarray, paddings: np.ndarray) -> np.ndarray:
    (b,) = block
    x = np.pad(x, [[0, 0], *paddings.tolist(), *[[0, 0]] * (x.ndim - 2)])
    n, w, *rest = x.shape
    return np.moveaxis(x.reshape(n, w // b, b, *rest), 2, 0).reshape(n * b, w // b, *rest)


def _batch_to_space(x: np.ndarray, block: np.ndarray, crops: np.ndarray) -> np.ndarray:
    (b,) = block
    n, w, *rest = x.shape
    wide = np.moveaxis(x.reshape(b, n // b, w, *rest), 0, 2).reshape(n // b, w * b, *rest)
    return wide[:, crops[0][0] : w * b - crops[0][1]]


add(
    "SpaceToBatchND", _space_to_batch,
    Case([Draw((2, 5, 3)), vector(2), vector([0, 1], dtype="int32")]), types=FLOATS,
)  # fmt: skip
add(
    "BatchToSpaceND", _batch_to_space,
    Case([Draw((4, 3, 2)), vector(2), vector([1, 0], dtype="int32")]), types=FLOATS,
)  # fmt: skip

# Linear algebra.


def _triangular_solve(
    a: np.ndarray, b: np.ndarray, lower: bool = True, adjoint: bool = False
) -> Any:
    a = np.tril(a) if lower else np.triu(a)
    return np.linalg.solve(np.conj(np.swapaxes(a, -1, -2)) if adjoint else a, b)


# Far from singular: the diagonal is the larger part.
_WELL = np.array([[4.0, 1, 0.5], [1, 5, 2], [0.5, 2, 6]])
_EXACT = ("float64",)
add("Cross", np.cross, Case([Draw((2, 3)), Draw((2, 3))]), types=FLOATS + ("int32", "int64"))
add("Cholesky", np.linalg.cholesky, Case([_WELL]), types=(), tolerance=1e-8)
add("MatrixDeterminant", np.linalg.det, Case([Draw((2, 3, 3))]), types=_EXACT, tolerance=1e-8)


def _three_diagonals(d: np.ndarray) -> np.ndarray:
    return np.diag(d[0, :-1], 1) + np.diag(d[1]) + np.diag(d[2, 1:], -1)


_DIAGONALS = np.array([[1.0, -1, 2, 0], [4, 5, -6, 4], [0, 1, -1, 2]])
add(
    "TridiagonalSolve",
    lambda d, b, partial_pivoting=True: np.linalg.solve(_three_diagonals(d), b),
    Case([_DIAGONALS, Draw((4, 2))]), Case([_DIAGONALS, Draw((4, 2))], {"partial_pivoting": False}),
    types=("float64",),
)  # fmt: skip
add(
    "TridiagonalMatMul",
    lambda a, b, c, x: _three_diagonals(np.concatenate([a, b, c])) @ x,
    Case([Draw((1, 4)), Draw((1, 4)), Draw((1, 4)), Draw((4, 2))]),
    types=("float32", "float64", *COMPLEX),
)
add(
    "NthElement",
    lambda x, n, reverse=False: np.sort(x)[..., x.shape[-1] - 1 - n if reverse else n],
    Case([Draw((2, 3, 5), apart=True), scalar(1)]),
    Case([Draw((2, 3, 5), apart=True), scalar(1)], {"reverse": True}),
)
for _op, _twin in (
    ("BitwiseAnd", np.bitwise_and), ("BitwiseOr", np.bitwise_or), ("BitwiseXor", np.bitwise_xor),
):  # fmt: skip
    binary(_op, _twin, types=INTS, gradient=False)
binary("LeftShift", np.left_shift, y=(0, 6), types=INTS, gradient=False)
binary("RightShift", np.right_shift, y=(0, 6), types=INTS, gradient=False)
unary("Invert", np.invert, types=INTS, gradient=False)
add(
    "MatrixInverse",
    lambda a, adjoint=False: np.linalg.inv(np.conj(np.swapaxes(a, -1, -2)) if adjoint else a),
    Case([_WELL]), Case([_WELL + np.triu(np.ones((3, 3)))], {"adjoint": True}), types=(),
    tolerance=1e-8,
)  # fmt: skip
add(
    "MatrixSolve",
    lambda a, b, adjoint=False: np.linalg.solve(np.conj(a.T) if adjoint else a, b),
    Case([_WELL, Draw((3, 2))]), Case([_WELL, Draw((3, 2))], {"adjoint": True}),
    types=_EXACT, tolerance=1e-8,
)  # fmt: skip
add(
    "MatrixTriangularSolve", _triangular_solve,
    Case([_WELL, Draw((3, 2))]), Case([_WELL, Draw((3, 2))], {"lower": False}),
    Case([_WELL, Draw((3, 2))], {"adjoint": True}),
    types=_EXACT, tolerance=1e-8,
)  # fmt: skip

# Special functions.


def _lgamma(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.lgamma, otypes=[np.float64])(x)


def _digamma(x: np.ndarray) -> np.ndarray:
    """By its recurrence to where the series is exact."""
    x = np.array(x, np.float64)
    out = np.zeros_like(x)
    for _ in range(12):
        out -= 1 / x
        x = x + 1
    square = 1 / (x * x)
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
    return out + np.log(x) - 0.5 / x - series


unary("Lgamma", _lgamma, 0.5, 6, types=FLOATS, tolerance=1e-8)
unary("Digamma", _digamma, 0.5, 6, types=FLOATS, tolerance=1e-8)


def _no_nan(function: Callable[..., Any], zero: int) -> Callable[..., Any]:
    """0 where the operand of that number is 0."""

    def twin(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        by = np.broadcast_to((x, y)[zero], np.broadcast_shapes(x.shape, y.shape))
        return np.where(by == 0, 0, function(x, y)).astype(x.dtype)

    return twin


binary("DivNoNan", _no_nan(np.divide, 1), types=("float32", "float64"), y=(0.5, 3))
binary("MulNoNan", _no_nan(np.multiply, 1), types=("float32", "float64"))
binary("Xdivy", _no_nan(np.divide, 0), types=("float32", "float64"), y=(0.5, 3))
binary("Xlogy", _no_nan(lambda x, y: x * np.log(y), 0), types=("float32", "float64"), y=(0.5, 3))
binary("Xlog1py", _no_nan(lambda x, y: x * np.log1p(y), 0), types=("float32", "float64"), y=(0, 3))

# Neural networks: the functions that NumPy says in a line or two.


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _cross_entropy(features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    p = _softmax(features)
    return -(labels * np.log(p)).sum(-1), p - labels


add("Softmax", _softmax, Case([Draw((2, 5))]), types=FLOATS, tolerance=1e-8)
add("LogSoftmax", lambda x: np.log(_softmax(x)), Case([Draw((2, 5))]), types=FLOATS, tolerance=1e-8)
add(
    "SoftmaxCrossEntropyWithLogits", _cross_entropy,
    Case([Draw((2, 4)), np.array([[0.1, 0.2, 0.3, 0.4], [1, 0, 0, 0]])]),
    types=("float64",), tolerance=1e-8, gradient=False,
)  # fmt: skip
add(
    "SparseSoftmaxCrossEntropyWithLogits",
    lambda x, labels: _cross_entropy(x, np.eye(x.shape[-1], dtype=x.dtype)[labels]),
    Case([Draw((2, 4)), vector(3, 1)]), types=FLOATS, tolerance=1e-8, gradient=False,
)  # fmt: skip
add(
    "BiasAdd", lambda x, bias: x + bias, Case([Draw((2, 3, 4)), Draw((4,))]),
    types=FLOATS + ("int32", "int64"),
)  # fmt: skip
add("BiasAddV1", lambda x, bias: x + bias, Case([Draw((2, 4)), Draw((4,))]), types=FLOATS)
add(
    "BiasAddGrad", lambda dy: dy.reshape(-1, dy.shape[-1]).sum(0, dtype=dy.dtype),
    Case([Draw((2, 3, 4))]), types=FLOATS, tolerance=1e-8,
)  # fmt: skip


def _top_k(x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, order, -1), order.astype(np.int32)


add(
    "TopKV2",
    lambda x, k: _top_k(x, int(k)),
    Case([Draw((2, 5), apart=True), scalar(3)]),
    types=FLOATS,
)


def _in_top_k(predictions: np.ndarray, targets: np.ndarray, k: Any) -> np.ndarray:
    own = np.take_along_axis(predictions, targets[:, None], 1)
    return (predictions > own).sum(1) < k


add(
    "InTopK", _in_top_k, Case([Draw((3, 5), apart=True), vector(0, 3, 4)], {"k": 2}),
    types=("float32",),
)  # fmt: skip
add(
    "InTopKV2", _in_top_k, Case([Draw((3, 5), apart=True), vector(0, 3, 4), scalar(2)]),
    types=("float32",),
)  # fmt: skip


# Fourier transforms. Sizes that are no powers of two, too.
for _op, _axes in (("", (-1,)), ("2D", (-2, -1)), ("3D", (-3, -2, -1))):
    add(
        "FFT" + _op, lambda x, _axes=_axes: np.fft.fftn(x, axes=_axes),
        Case([Draw((2, 3, 4, 5))]), Case([Draw((1, 2, 7))]), types=COMPLEX, gradient=False,
    )  # fmt: skip
    add(
        "IFFT" + _op, lambda x, _axes=_axes: np.fft.ifftn(x, axes=_axes),
        Case([Draw((2, 3, 4, 5))]), Case([Draw((1, 2, 7))]), types=COMPLEX, gradient=False,
    )  # fmt: skip
    _sizes = (4, 6, 5)[-len(_axes) :]
    add(
        "RFFT" + _op, lambda x, n, _axes=_axes: np.fft.rfftn(x, n, axes=_axes),
        Case([Draw((2, 4, 6, 5)), vector(*_sizes)]), types=("float32",), tolerance=1e-8,
        gradient=False,
    )  # fmt: skip
    add(
        "IRFFT" + _op, lambda x, n, _axes=_axes: np.fft.irfftn(x, n, axes=_axes),
        Case([Draw((2, 4, 6, 3)), vector(*_sizes)]), types=("complex64",), tolerance=1e-8,
        gradient=False,
    )  # fmt: skip


# Ops without a row, by name or by the beginning of it ("Queue*"): which tests cover them.
EXEMPT: dict[str, str] = {
    **dict.fromkeys(
        ["Apply*", "ResourceApply*", "SparseApply*", "ResourceSparseApply*"],
        "optimisers change variables: millrace/ops/training, against plain loops",
    ),
    **dict.fromkeys(
        ["Assign*", "Variable*", "VarHandleOp", "VarIsInitializedOp", "ReadVariableOp",
         "IsVariableInitialized", "CountUpTo", "Scatter*", "ResourceScatter*", "ResourceGather*",
         "TemporaryVariable", "DestroyTemporaryVariable", "DestroyResourceOp", "Stack*",
         "DisableCopyOnRead",
         "ResourceCountUpTo", "GetSession*", "DeleteSession*", "Barrier*", "Stage*", "Unstage*",
         "ResourceStridedSliceAssign", "StridedSliceAssign"],
        "state: millrace/ops/state",
    ),
    **dict.fromkeys(
        ["Save*", "Restore*", "MergeV2Checkpoints", "ShardedFile*"],
        "files: millrace/ops/io",
    ),
    **dict.fromkeys(
        ["FIFOQueue*", "PaddingFIFOQueue*", "PriorityQueue*", "RandomShuffleQueue*", "Queue*",
         "ConditionalAccumulator", "SparseConditionalAccumulator", "Accumulator*",
         "SparseAccumulator*", "ResourceAccumulator*", "ResourceConditionalAccumulator",
         "StepGate*",
         "Add*SparseToTensorsMap", "TakeManySparseFromTensorsMap"],
        "queues and accumulators: millrace/ops/queue",
    ),
    **dict.fromkeys(
        ["Collective*"],
        "what several processes compute: millrace/distributed/collective and "
        "python/tests/test_collective.py",
    ),
    **dict.fromkeys(
        ["*Dataset", "*DatasetV*", "*Iterator", "*IteratorV*", "Iterator*",
         "DatasetToSingleElement", "*DatasetCardinality", "*SeedGenerator", "*MemoryCache",
         "DummyIterationCounter", "*DatasetToTFRecord", "*IteratorGetDevice", "*ThreadPoolHandle",
         "*DatasetVariant"],
        "datasets: python/tests/test_data*.py and millrace/data",
    ),
    **dict.fromkeys(
        ["TensorArray*", "TensorList*", "EmptyTensorList", "Optional*"],
        "lists of tensors: millrace/ops/tensor_array and tensor_list",
    ),
    **dict.fromkeys(
        ["Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch", "Ref*", "If", "While",
         "Case", "Stateless*", "PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient",
         "ControlTrigger", "NoOp", "Placeholder*", "Const", "FakeParam", "IdentityN", "ToBool",
         "PyFunc*", "Assert", "Abort", "Print*", "PreventGradient", "CheckNumerics", "Timestamp",
         "EagerPyFunc", "BroadcastGradientArgs", "StridedSliceGrad", "LinearRecurrence"],
        "control flow and the parts of gradients: millrace/ops/control, runtime and autodiff",
    ),
    **dict.fromkeys(
        ["Random*", "TruncatedNormal", "Multinomial", "*CandidateSampler", "ComputeAccidentalHits",
         "ParameterizedTruncatedNormal", "SampleDistortedBoundingBox*"],
        "random: millrace/ops/random, streams and moments",
    ),
    **dict.fromkeys(
        ["AvgPool*", "MaxPool*", "Conv2D*", "Conv3D*", "DepthwiseConv2d*", "FusedBatchNorm*",
         "BatchNorm*", "LRN*", "Dilation2D*", "Fractional*", "Quantize*", "Dequantize*",
         "FakeQuant*", "CTC*"],
        "neural networks: millrace/ops/nn, against plain loops",
    ),
    **dict.fromkeys(
        ["LSTMBlockCell*", "BlockLSTM*", "GRUBlockCell*"],
        "recurrent cells: millrace/ops/nn/recurrent_test.cc, python/tests/test_rnn.py",
    ),
    **dict.fromkeys(
        ["Adjust*", "CropAndResize*", "DrawBoundingBoxes*", "ExtractGlimpse*", "ExtractImage*",
         "HSVToRGB", "RGBToHSV", "NonMaxSuppression*", "Resize*", "Decode*", "Encode*",
         "ExtractJpegShape"],
        "images and bytes: millrace/ops/image and strings",
    ),
    **dict.fromkeys(
        ["DenseBincount", "SparseBincount", "RaggedBincount", "*CountSparseOutput",
         "ExtractVolumePatches"],
        "python/tests/test_tensorflow2_ops.py",
    ),
    **dict.fromkeys(["*Summary*"], "messages for event files: millrace/ops/summary"),
    **dict.fromkeys(
        ["Parse*Example*", "ParseTensor", "SerializeTensor", "ReadFile", "WriteFile",
         "MatchingFiles", "*Table", "*TableV2", "LookupTable*", "*HashTableOfTensors*",
         "InitializeTableFrom*", "*Reader", "*ReaderV2", "Reader*", "RecordInput"],
        "files, records and examples: millrace/io, python/tests/test_records.py, test_parsing.py",
    ),
    **dict.fromkeys(
        ["String*", "AsString", "Substr", "ReduceJoin", "StaticRegex*", "Regex*", "Unicode*"],
        "strings: millrace/ops/strings",
    ),
    **dict.fromkeys(
        ["Igamma*", "RandomGammaGrad", "Betainc", "Polygamma", "Zeta", "Bessel*", "Erfinv",
         "Ndtri", "Dawsn", "Expint", "Fresnel*", "Spence"],
        "functions that NumPy does not have: millrace/ops/math, against known values",
    ),
    **dict.fromkeys(
        ["SelfAdjointEig*", "Svd", "Qr", "MatrixSolveLs", "LogMatrixDeterminant", "CholeskyGrad",
         "MatrixDiag*V*", "MatrixSetDiagV*", "Eig", "MatrixLogarithm", "MatrixSquareRoot"],
        "decompositions: millrace/ops/linalg, by what their parts multiply to",
    ),
    **dict.fromkeys(
        ["BatchCholesky*", "BatchFFT*", "BatchIFFT*", "BatchMatrix*", "BatchSelfAdjointEig*",
         "BatchSvd"],
        "older names of ops with a row, refused in new graphs: millrace/ops/linalg and math",
    ),
    **dict.fromkeys(
        ["BatchMatMulV3", "SpaceToBatch", "BatchToSpace", "MirrorPadGrad", "ParallelConcat",
         "EnsureShape", "Snapshot", "DeepCopy", "TensorScatter*", "UniqueV2", "UniqueWithCountsV2",
         "Bincount", "ClipByValue", "ParallelDynamicStitch"],
        "twins and parts of ops with a row: millrace/ops/array and linalg",
    ),
    **dict.fromkeys(
        ["DenseTo*SetOperation", "SparseTo*SetOperation", "SetSize", "EditDistance",
         "Serialize*Sparse", "SerializeSparse", "Deserialize*", "*SparseToTensorsMap",
         "TakeManySparseFromTensorsMap", "Sparse[A-RT-Z]*", "SparseSlice*", "SparseSoftmax",
         "SparseSparse*", "SparseSplit"],
        "sparse tensors and sets: millrace/ops/sparse",
    ),
    **dict.fromkeys(
        ["RaggedTensorToVariant", "RaggedTensorFromVariant"],
        "ragged tensors as parts of elements: python/tests/test_data_ragged.py",
    ),
    **dict.fromkeys(
        ["Inv", "InvGrad", "TopK"], "only graphs of long ago may hold them; twins of ops with a row"
    ),
    **dict.fromkeys(["SparseSegment*Grad"], "gradients of segments: millrace/ops/reduce"),
}  # fmt: skip
