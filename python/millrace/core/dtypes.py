"""The types of tensors' elements."""

from typing import Any

import numpy as np

from millrace import _core
from millrace.core.export import export


@export(v1=("DType", "dtypes.DType"), v2=("DType", "dtypes.DType"))
class DType:
    """The type of a tensor's elements. There is one object per type: compare with `is` or `==`.

    A reference type (`float32_ref`) is that of a tensor that stands for a variable itself.
    """

    __slots__ = ("_base", "_limits", "_number", "_numpy", "_ref", "_storage_dtype", "name")

    def __init__(self, number: int, name: str = "", numpy_type: Any = None, storage: Any = None):
        self._number = number
        self.name = name
        self._numpy = numpy_type
        self._storage_dtype = (
            storage if storage is not None else numpy_type and np.dtype(numpy_type)
        )
        self._base = self
        self._ref = None
        self._limits = None

    def __new__(cls, number: int, *args: Any) -> "DType":
        if not args:
            return as_dtype(number)
        return object.__new__(cls)

    @property
    def as_datatype_enum(self) -> int:
        """The number of the type in messages."""
        return self._number

    @property
    def as_numpy_dtype(self) -> Any:
        """The NumPy type of arrays of such elements."""
        if self._numpy is None:
            raise TypeError(f"{self.name} has no NumPy type")
        return self._numpy

    @property
    def real_dtype(self) -> "DType":
        """The type of the real part: float32 for complex64, the type itself for others."""
        if self._base is complex64:
            return float32
        if self._base is complex128:
            return float64
        return self

    @property
    def base_dtype(self) -> "DType":
        """The type itself, without being a reference."""
        return self._base

    @property
    def _is_ref_dtype(self) -> bool:
        return self._number > 100

    @property
    def _as_ref(self) -> "DType":
        return self if self._is_ref_dtype else self._ref

    @property
    def is_numpy_compatible(self) -> bool:
        """Whether NumPy has such elements."""
        return self._numpy is not None

    @property
    def is_bool(self) -> bool:
        """Whether this is bool."""
        return self._base is bool_

    @property
    def is_integer(self) -> bool:
        """Whether these are plain integers (no quantised ones)."""
        return self._base in _INTEGERS

    @property
    def is_floating(self) -> bool:
        """Whether these are real floating-point numbers."""
        return self._base in _FLOATS

    @property
    def is_complex(self) -> bool:
        """Whether these are complex numbers."""
        return self._base is complex64 or self._base is complex128

    @property
    def is_quantized(self) -> bool:
        """Whether these are quantised integers."""
        return self._base in _QUANTIZED

    @property
    def is_unsigned(self) -> bool:
        """Whether these are integers without a sign."""
        return self._base in (uint8, uint16, uint32, uint64)

    def _range(self) -> tuple[Any, Any]:
        base = self._base
        if base is bool_:
            return False, True
        if base is bfloat16:
            return -3.38953139e38, 3.38953139e38
        if base in _FLOATS and base._numpy is not None:
            info = np.finfo(base._numpy)
            return info.min, info.max
        storage = base._storage_dtype
        if base in _INTEGERS or base in _QUANTIZED:
            if storage.names:
                storage = storage[0]
            info = np.iinfo(storage)
            return info.min, info.max
        raise TypeError(f"{self.name} has no smallest and largest element")

    @property
    def min(self) -> Any:
        """The smallest number there is. TypeError for types without an order."""
        return self._range()[0]

    @property
    def max(self) -> Any:
        """The largest number there is. TypeError for types without an order."""
        return self._range()[1]

    @property
    def limits(self) -> tuple[Any, Any]:
        """What elements of a picture range over: (0, largest) for integers, (0, 1) for floats."""
        if self.is_integer:
            return 0, self.max
        return 0, 1

    @property
    def size(self) -> int:
        """Bytes of one element."""
        if self._storage_dtype is None:
            return 1
        return self._storage_dtype.itemsize

    def is_compatible_with(self, other: Any) -> bool:
        """Whether a tensor of the other type may stand where this one is asked for."""
        other = as_dtype(other)
        return self._number in (other._number, other._base._number)

    def __int__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if other is None or other is int or isinstance(other, DType):
            return False
        try:
            return self is as_dtype(other)
        except TypeError:
            return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return self._number

    def __str__(self) -> str:
        return f"<dtype: {self.name!r}>"

    def __repr__(self) -> str:
        return "tf." + self.name

    def __reduce__(self) -> Any:
        return as_dtype, (self.name,)


def _structured(name: str, base: Any) -> np.dtype:
    return np.dtype([(name, base)])


float32 = export(v1=("float32", "dtypes.float32"), v2=("float32", "dtypes.float32"))(
    DType(1, "float32", np.float32)
)
float64 = export(
    v1=("float64", "double", "dtypes.float64"),
    v2=("float64", "double", "dtypes.float64", "dtypes.double"),
)(DType(2, "float64", np.float64))
int32 = export(v1=("int32", "dtypes.int32"), v2=("int32", "dtypes.int32"))(
    DType(3, "int32", np.int32)
)
uint8 = export(v1=("uint8", "dtypes.uint8"), v2=("uint8", "dtypes.uint8"))(
    DType(4, "uint8", np.uint8)
)
int16 = export(v1=("int16", "dtypes.int16"), v2=("int16", "dtypes.int16"))(
    DType(5, "int16", np.int16)
)
int8 = export(v1=("int8", "dtypes.int8"), v2=("int8", "dtypes.int8"))(DType(6, "int8", np.int8))
string = export(v1=("string", "dtypes.string"), v2=("string", "dtypes.string"))(
    DType(7, "string", np.object_)
)
complex64 = export(v1=("complex64", "dtypes.complex64"), v2=("complex64", "dtypes.complex64"))(
    DType(8, "complex64", np.complex64)
)
int64 = export(v1=("int64", "dtypes.int64"), v2=("int64", "dtypes.int64"))(
    DType(9, "int64", np.int64)
)
bool_ = export(v1=("bool", "dtypes.bool"), v2=("bool", "dtypes.bool"))(DType(10, "bool", np.bool_))
qint8 = export(v1="qint8", v2=("qint8", "dtypes.qint8"))(
    DType(11, "qint8", _structured("qint8", np.int8))
)
quint8 = export(v1="quint8", v2=("quint8", "dtypes.quint8"))(
    DType(12, "quint8", _structured("quint8", np.uint8))
)
qint32 = export(v1="qint32", v2=("qint32", "dtypes.qint32"))(
    DType(13, "qint32", _structured("qint32", np.int32))
)
bfloat16 = export(v1="bfloat16", v2=("bfloat16", "dtypes.bfloat16"))(
    DType(14, "bfloat16", np.float32, np.dtype(np.uint16))
)
qint16 = export(v1="qint16", v2=("qint16", "dtypes.qint16"))(
    DType(15, "qint16", _structured("qint16", np.int16))
)
quint16 = export(v1="quint16", v2=("quint16", "dtypes.quint16"))(
    DType(16, "quint16", _structured("quint16", np.uint16))
)
uint16 = export(v1="uint16", v2=("uint16", "dtypes.uint16"))(DType(17, "uint16", np.uint16))
complex128 = export(v1=("complex128", "dtypes.complex128"), v2=("complex128", "dtypes.complex128"))(
    DType(18, "complex128", np.complex128)
)
float16 = export(
    v1=("float16", "half", "dtypes.float16"),
    v2=("float16", "half", "dtypes.float16", "dtypes.half"),
)(DType(19, "float16", np.float16))
resource = export(v1=("resource", "dtypes.resource"), v2=("resource", "dtypes.resource"))(
    DType(20, "resource", np.object_)
)
variant = export(v1=("variant", "dtypes.variant"), v2=("variant", "dtypes.variant"))(
    DType(21, "variant", np.object_)
)
uint32 = export(v1="uint32", v2=("uint32", "dtypes.uint32"))(DType(22, "uint32", np.uint32))
uint64 = export(v1="uint64", v2=("uint64", "dtypes.uint64"))(DType(23, "uint64", np.uint64))

_BASES = (
    float32, float64, int32, uint8, int16, int8, string, complex64, int64, bool_, qint8, quint8,
    qint32, bfloat16, qint16, quint16, uint16, complex128, float16, resource, variant, uint32,
    uint64,
    *(
        DType(24 + i, name, None, np.dtype(np.uint8))
        for i, name in enumerate(
            ("float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz",
             "float8_e5m2fnuz", "int4", "uint4", "int2", "uint2", "float4_e2m1fn")
        )
    ),
)  # fmt: skip
_INTEGERS = frozenset({int8, int16, int32, int64, uint8, uint16, uint32, uint64})
_FLOATS = frozenset({float16, bfloat16, float32, float64})
_QUANTIZED = frozenset({qint8, quint8, qint16, quint16, qint32})
QUANTIZED_DTYPES = export(v1="QUANTIZED_DTYPES", v2="dtypes.QUANTIZED_DTYPES")(_QUANTIZED)

_BY_NUMBER = {}
_BY_NAME = {}
for _base in _BASES:
    _ref = DType(_base._number + 100, _base.name + "_ref", _base._numpy, _base._storage_dtype)
    _ref._base = _base
    _base._ref = _ref
    for _dtype in (_base, _ref):
        _BY_NUMBER[_dtype._number] = _dtype
        _BY_NAME[_dtype.name] = _dtype
_BY_NAME.update(
    half=float16, float=float32, double=float64, half_ref=float16._ref, float_ref=float32._ref,
    double_ref=float64._ref,
)  # fmt: skip
_BY_PYTHON = {float: float32, int: int32, bool: bool_, complex: complex128, str: string,
              bytes: string, object: string}  # fmt: skip
_BY_NUMPY = {np.dtype(d._numpy): d for d in _BASES if d._numpy is not None and d is not bfloat16}
_BY_NUMPY[np.dtype(object)] = string
_core.register_dtypes(_BY_NUMBER)


@export(v1=("as_dtype", "dtypes.as_dtype"), v2=("as_dtype", "dtypes.as_dtype"))
def as_dtype(type_value: Any) -> DType:
    """The type that a value stands for: a DType, its name or number, a NumPy or Python type.

    TypeError for anything else.
    """
    if isinstance(type_value, DType):
        return type_value
    found = None
    if isinstance(type_value, str):
        found = _BY_NAME.get(type_value)
    elif isinstance(type_value, (int, np.integer)) and not isinstance(type_value, bool):
        found = _BY_NUMBER.get(int(type_value))
    elif isinstance(type_value, type):
        found = _BY_PYTHON.get(type_value)
    if found is None and type_value is not None:
        try:
            numpy_type = np.dtype(type_value)
        except TypeError:
            numpy_type = None
        if numpy_type is not None:
            found = _BY_NUMPY.get(numpy_type)
            if found is None and numpy_type.kind in "SU":
                found = string
            if found is None:
                found = _BY_NAME.get(numpy_type.name)  # bfloat16 of ml_dtypes
    if found is None:
        raise TypeError(f"Cannot convert value {type_value!r} to a TensorFlow DType.")
    return found


def opaque_value(text: str) -> np.ndarray:
    """What Python sees of a resource or a variant: a description, as an array of one object."""
    out = np.empty((), dtype=object)
    out[()] = text
    return out


def read_special(array: np.ndarray, expected: int) -> tuple[np.ndarray, int]:
    """For an array whose elements NumPy has no number for: its bits, and the number of its type."""
    dtype = array.dtype
    if expected == bfloat16._number or dtype.name == "bfloat16":
        if dtype.itemsize == 2 and dtype.kind != "f":
            return np.asarray(array, order="C").view(np.uint16), bfloat16._number
        return _round_to_bfloat16(array.astype(np.float32)), bfloat16._number
    if dtype.names and len(dtype.names) == 1:
        found = _BY_NAME.get(dtype.names[0])
        if found is not None and found._storage_dtype == dtype:
            return np.asarray(array, order="C").view(dtype[0]), found._number
    if expected and _BY_NUMBER[expected]._storage_dtype is not None:
        storage = _BY_NUMBER[expected]._storage_dtype
        return array.astype(storage[0] if storage.names else storage), expected
    raise TypeError(f"There is no tensor type for NumPy's {dtype}")


def _round_to_bfloat16(array: np.ndarray) -> np.ndarray:
    bits = np.asarray(array, order="C").view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(array), np.uint32(0x7FC0), rounded).astype(np.uint16)


def from_bfloat16_bits(bits: np.ndarray) -> np.ndarray:
    """The numbers that bits of bfloat16 stand for, as float32."""
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)
