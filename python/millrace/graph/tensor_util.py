"""Tensors as messages: TensorProto from values, arrays from TensorProto."""

from typing import Any

import numpy as np

from millrace import protos
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.graph.convert import make_array

TensorProto = export(v1="TensorProto")(protos.TensorProto)

# Types whose elements are written as bytes where there is more than one of them.
_AS_BYTES = frozenset(
    {dtypes.float16, dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.int8, dtypes.int16,
     dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64,
     dtypes.qint8, dtypes.quint8, dtypes.qint16, dtypes.quint16, dtypes.qint32}
)  # fmt: skip
_FIELDS = {
    dtypes.float32: "float_val", dtypes.float64: "double_val", dtypes.int64: "int64_val",
    dtypes.bool_: "bool_val", dtypes.uint32: "uint32_val", dtypes.uint64: "uint64_val",
    dtypes.float16: "half_val", dtypes.bfloat16: "half_val", dtypes.string: "string_val",
    dtypes.complex64: "scomplex_val", dtypes.complex128: "dcomplex_val",
}  # fmt: skip
_MAX_BYTES = 2 << 30


def _field(dtype: dtypes.DType) -> str:
    return _FIELDS.get(dtype, "int_val")


@export(v1=("make_tensor_proto", "contrib.util.make_tensor_proto"), v2="make_tensor_proto")
def make_tensor_proto(
    values: Any, dtype: Any = None, shape: Any = None, verify_shape: bool = False,
    allow_broadcast: bool = False,
) -> Any:  # fmt: skip
    """Values as a TensorProto.

    `shape`: a shape to give them; the last is repeated where they are too few. `verify_shape`: they
    must have it already. TypeError for values that do not fit the type, ValueError for ones that do
    not fit the shape.
    """
    if isinstance(values, protos.TensorProto):
        return values
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype).base_dtype
    if values is None:
        raise ValueError("None values not supported.")
    given = values
    if shape is not None and not isinstance(values, np.ndarray):
        sizes = TensorShape(shape).as_list()
        if 0 in sizes and np.size(values) == 0:
            values = np.empty(sizes, np.float32 if dtype is None else dtype.as_numpy_dtype)
    if dtype is not None and dtype.is_quantized and not isinstance(values, np.ndarray):
        array = _quantized_array(values, dtype)
    else:
        array = make_array(values, dtype)
    kind = dtype if dtype is not None and dtype.is_quantized else dtypes.as_dtype(array.dtype)
    if dtype is dtypes.bfloat16:
        kind = dtype
        array = dtypes.read_special(array, dtype._number)[0].reshape(array.shape)
    if dtype is not None and dtype is not kind:
        raise TypeError(f"Incompatible types: {dtype} vs. {kind}. Value is {given}")
    if shape is None:
        sizes = list(array.shape)
    else:
        sizes = [int(d) for d in TensorShape(shape).as_list()]
        if verify_shape and list(array.shape) != sizes:
            raise TypeError(f"Expected Tensor's shape: {tuple(sizes)}, got {array.shape}.")
    count = int(np.prod(sizes, dtype=np.int64))
    if allow_broadcast and list(array.shape) != sizes:
        array = np.broadcast_to(array, sizes)
    if array.size > count:
        raise ValueError(
            f"Too many elements provided. Needed at most {count}, but received {array.size}"
        )
    if array.dtype != object and array.nbytes >= _MAX_BYTES:
        raise ValueError(f"{array.nbytes} bytes do not fit into a message, which holds 2 GiB.")
    proto = protos.TensorProto(
        dtype=kind.as_datatype_enum, tensor_shape=TensorShape(sizes).as_proto()
    )
    if array.size == count and count > 1 and kind in _AS_BYTES:
        proto.tensor_content = np.ascontiguousarray(array).tobytes()
        return proto
    getattr(proto, _field(kind)).extend(_elements(array.reshape(-1), kind))
    return proto


def _quantized_array(values: Any, dtype: dtypes.DType) -> np.ndarray:
    """Numbers of a quantized type: each is a tuple of one, as in NumPy's array of them."""
    first = values
    while isinstance(first, list) and first:
        first = first[0]
    if not isinstance(first, (tuple, np.void, list)):
        raise TypeError(
            f"Expected {dtype.name}, got {first!r} of type '{type(first).__name__}' instead: write "
            "(value,) for a number of a quantized type."
        )
    return np.array(values, dtype=dtype._storage_dtype)


def _elements(flat: np.ndarray, dtype: dtypes.DType) -> list[Any]:
    """The elements as the message's fields hold them."""
    if dtype is dtypes.string:
        return [v.encode() if isinstance(v, str) else bytes(v) for v in flat]
    if dtype is dtypes.float16:
        flat = flat.view(np.uint16)
    elif dtype.is_quantized and flat.dtype.names:
        flat = flat.view(flat.dtype[0])
    elif dtype.is_complex:
        flat = flat.view(np.float32 if dtype is dtypes.complex64 else np.float64)
    return flat.tolist()


@export(v1=("make_ndarray", "contrib.util.make_ndarray"), v2="make_ndarray")
def make_ndarray(tensor: Any) -> np.ndarray:
    """The array that a TensorProto holds. TypeError for a type without arrays."""
    if not hasattr(tensor, "tensor_shape"):
        raise TypeError(f"expected a TensorProto, got {type(tensor).__name__}")
    sizes = [int(d.size) for d in tensor.tensor_shape.dim]
    count = int(np.prod(sizes, dtype=np.int64))
    dtype = dtypes.as_dtype(tensor.dtype)
    if dtype in (dtypes.resource, dtypes.variant) or dtype._storage_dtype is None:
        raise TypeError(f"Unsupported tensor type: {dtype.name}")
    storage = dtype._storage_dtype
    if tensor.tensor_content and dtype is not dtypes.string:
        flat = np.frombuffer(tensor.tensor_content, dtype=storage).copy()
        return _finish(flat, dtype).reshape(sizes)
    values = list(getattr(tensor, _field(dtype)))
    if dtype is dtypes.string:
        flat = np.array(values, dtype=object)
    elif dtype is dtypes.float16 or dtype is dtypes.bfloat16:
        flat = np.array(values, dtype=np.uint16)
        flat = flat.view(np.float16) if dtype is dtypes.float16 else flat
    elif dtype.is_complex:
        flat = np.array(values, np.float32 if dtype is dtypes.complex64 else np.float64)
        flat = flat.view(storage)
    elif storage.names:
        flat = np.array(values, dtype=storage[0]).view(storage)
    else:
        flat = np.array(values, dtype=storage)
    flat = _finish(flat, dtype)
    if flat.size == 0:
        flat = np.zeros(count, flat.dtype)
    elif flat.size < count:
        # The last element stands for all that are left out.
        flat = np.concatenate([flat, np.repeat(flat[-1:], count - flat.size)])
    return flat.reshape(sizes)


def _finish(flat: np.ndarray, dtype: dtypes.DType) -> np.ndarray:
    return dtypes.from_bfloat16_bits(flat) if dtype is dtypes.bfloat16 else flat
