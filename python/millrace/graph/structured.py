"""Structures of values and specs as messages: StructuredValue."""

import collections
import functools
from typing import Any, Callable

from millrace import _core, protos
from millrace.core import dtypes, nest
from millrace.core.shapes import TensorShape
from millrace.core.specs import TensorSpec
from millrace.graph.tensor_util import make_tensor_proto

# Deeper ones are not ours, and would exhaust the stack.
_MOST_DEPTH = 100


def encode(value: Any) -> Any:
    """A StructuredValue. TypeError for what it has no form for."""
    out = protos.StructuredValue()
    _write(value, out)
    return out


def is_encodable(value: Any) -> bool:
    """Whether there is a StructuredValue for it."""
    try:
        encode(value)
    except TypeError:
        return False
    return True


def _write(value: Any, out: Any) -> None:
    if value is None:
        out.none_value.SetInParent()
    elif isinstance(value, bool):
        out.bool_value = value
    elif isinstance(value, int):
        out.int64_value = value
    elif isinstance(value, float):
        out.float64_value = value
    elif isinstance(value, str):
        out.string_value = value
    elif isinstance(value, dtypes.DType):
        out.tensor_dtype_value = value.as_datatype_enum
    elif isinstance(value, TensorShape):
        out.tensor_shape_value.CopyFrom(value.as_proto())
    elif isinstance(value, TensorSpec):
        out.tensor_spec_value.name = value.name or ""
        out.tensor_spec_value.shape.CopyFrom(value.shape.as_proto())
        out.tensor_spec_value.dtype = value.dtype.as_datatype_enum
    elif nest.is_namedtuple(value):
        out.named_tuple_value.name = type(value).__name__
        for name, part in zip(value._fields, value, strict=True):
            pair = out.named_tuple_value.values.add()
            pair.key = name
            _write(part, pair.value)
    elif isinstance(value, (list, tuple)):
        kind = out.list_value if isinstance(value, list) else out.tuple_value
        kind.SetInParent()
        for part in value:
            _write(part, kind.values.add())
    elif isinstance(value, collections.abc.Mapping):
        out.dict_value.SetInParent()
        for key, part in value.items():
            if not isinstance(key, str):
                raise TypeError(f"a dictionary with the key {key!r}, no text, cannot be saved")
            _write(part, out.dict_value.fields[key])
    elif _core.is_eager_tensor(value) and value.dtype.is_numpy_compatible:
        out.tensor_value.CopyFrom(make_tensor_proto(value.numpy(), value.dtype))
    else:
        raise TypeError(f"{value!r} cannot be saved as part of a structure")


def decode(message: Any, damaged: Callable[[str], Exception]) -> Any:
    """What a StructuredValue says; damaged(why) is raised for one that says nothing."""
    return _read(message, damaged, 0)


def tensor_from_message(message: Any) -> Any:
    """The tensor, with its value, that a TensorProto holds. ValueError for one that holds none, or
    more than fits into a message."""
    attrs = {"value": message, "dtype": dtypes.as_dtype(message.dtype)}
    return _core.execute("Const", [], attrs)[0]


@functools.cache
def _named_tuple(name: str, fields: tuple[str, ...]) -> Any:
    return collections.namedtuple(name, fields)


def _read(message: Any, damaged: Callable[[str], Exception], depth: int) -> Any:
    if depth > _MOST_DEPTH:
        raise damaged(f"structures within each other, more than {_MOST_DEPTH} deep")
    read = functools.partial(_read, damaged=damaged, depth=depth + 1)
    kind = message.WhichOneof("kind")
    if kind == "none_value":
        return None
    if kind in ("bool_value", "int64_value", "float64_value", "string_value"):
        return getattr(message, kind)
    try:
        if kind == "tensor_dtype_value":
            return dtypes.as_dtype(message.tensor_dtype_value)
        if kind == "tensor_shape_value":
            return TensorShape(message.tensor_shape_value)
        if kind == "tensor_spec_value":
            spec = message.tensor_spec_value
            return TensorSpec(
                TensorShape(spec.shape), dtypes.as_dtype(spec.dtype), spec.name or None
            )
        if kind == "named_tuple_value":
            pairs = message.named_tuple_value.values
            names = tuple(pair.key for pair in pairs)
            made = _named_tuple(message.named_tuple_value.name, names)
            return made(*[read(pair.value) for pair in pairs])
        if kind in ("tensor_value", "numpy_value"):
            tensor = tensor_from_message(getattr(message, kind))
            return tensor.numpy() if kind == "numpy_value" else tensor
    except (TypeError, ValueError) as error:
        raise damaged(f"{kind} is not one: {error}") from None
    if kind == "list_value":
        return [read(part) for part in message.list_value.values]
    if kind == "tuple_value":
        return tuple(read(part) for part in message.tuple_value.values)
    if kind == "dict_value":
        return {key: read(part) for key, part in message.dict_value.fields.items()}
    raise damaged(f"a value of kind {kind}, expected one of numbers, texts, specs or structures")
