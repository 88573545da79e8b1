"""Values that become tensors: constants, variables, and whatever registers a conversion."""

from typing import Any, Callable

import numpy as np

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.core.errors import MismatchedTypesError
from millrace.core.export import export
from millrace.core.shapes import Dimension, TensorShape
from millrace.core.tensor import Tensor, is_tensor_like
from millrace.graph.default_graph import get_default_graph, name_scope
from millrace.graph.graph import root_graph

_NONE = (
    "None values not supported: Attempt to convert a value (None) with an unsupported type (<class "
    "'NoneType'>) to a Tensor."
)

# Conversion functions by priority: [(priority, [(type, function)])].
_conversions: list[tuple[int, list[tuple[Any, Callable[..., Any]]]]] = []
_by_type: dict[type, list[Callable[..., Any]]] = {}


@export(v1="register_tensor_conversion_function", v2="register_tensor_conversion_function")
def register_tensor_conversion_function(
    base_type: Any, conversion_func: Callable[..., Any], priority: int = 100
) -> None:
    """Makes objects of a type usable where tensors are.

    `conversion_func(value, dtype=None, name=None, as_ref=False)` gives a Tensor, or NotImplemented
    to leave it to the next. Smaller priorities are asked first.
    """
    types = base_type if isinstance(base_type, tuple) else (base_type,)
    if not all(isinstance(t, type) for t in types):
        raise TypeError("base_type must be a type or a tuple of types.")
    if not callable(conversion_func):
        raise TypeError("conversion_func must be callable.")
    for known, functions in _conversions:
        if known == priority:
            functions.append((base_type, conversion_func))
            break
    else:
        _conversions.append((priority, [(base_type, conversion_func)]))
        _conversions.sort(key=lambda entry: entry[0])
    _by_type.clear()


def _functions_for(cls: type) -> list[Callable[..., Any]]:
    found = _by_type.get(cls)
    if found is None:
        found = [
            function
            for _, functions in _conversions
            for base, function in functions
            if issubclass(cls, base)
        ]
        _by_type[cls] = found
    return found


@export(v1="convert_to_tensor")
def convert_to_tensor(
    value: Any, dtype: Any = None, name: str | None = None, preferred_dtype: Any = None,
    dtype_hint: Any = None,
) -> Tensor:  # fmt: skip
    """The value as a Tensor: itself, a constant, or what a registered conversion makes of it.

    `preferred_dtype`: the type for values that do not say theirs, where it fits. TypeError when
    nothing converts it, ValueError when the type is not the one asked for.
    """
    return internal_convert(value, dtype, name, False, preferred_dtype or dtype_hint)


def internal_convert(
    value: Any, dtype: Any = None, name: str | None = None, as_ref: bool = False,
    preferred_dtype: Any = None,
) -> Any:  # fmt: skip
    """`convert_to_tensor`, with references where `as_ref`."""
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype)
    if isinstance(value, Tensor):
        if dtype is not None and not dtype.is_compatible_with(value.dtype):
            raise ValueError(
                f"Tensor conversion requested dtype {dtype.name} for Tensor with dtype "
                f"{value.dtype.name}: {value}"
            )
        return value
    if value is None:
        raise ValueError(_NONE)
    functions = _functions_for(type(value))
    if dtype is None and preferred_dtype is not None:
        preferred_dtype = dtypes.as_dtype(preferred_dtype)
    if dtype is None and preferred_dtype is not None and not _too_large(value, preferred_dtype):
        for function in functions:
            try:
                made = function(value, dtype=preferred_dtype, name=name, as_ref=as_ref)
            except (TypeError, ValueError):
                break
            if made is not NotImplemented:
                return made
    for function in functions:
        made = function(value, dtype=dtype, name=name, as_ref=as_ref)
        if made is NotImplemented:
            continue
        if not isinstance(made, Tensor):
            raise RuntimeError(
                f"Conversion function {function!r} for type {type(value)} returned non-Tensor: "
                f"{made!r}"
            )
        if dtype is not None and not dtype.is_compatible_with(made.dtype):
            raise RuntimeError(
                f"Conversion function {function!r} for type {type(value)} returned incompatible "
                f"dtype: requested = {dtype.name}, actual = {made.dtype.name}"
            )
        return made
    raise (ValueError if _core.executing_eagerly() else TypeError)(
        f"Cannot convert {value!r} with type {type(value)} to Tensor: no conversion function "
        f"registered. Attempt to convert a value ({_short(value)}) with an unsupported type "
        f"({type(value)}) to a Tensor."
    )


def _too_large(value: Any, dtype: dtypes.DType) -> bool:
    """Whether an array has integers that others would become in the type, of integers too."""
    if not isinstance(value, (np.ndarray, np.generic)) or value.dtype.kind not in "iu":
        return False
    if not dtype.is_integer or value.dtype.itemsize <= dtype.size or value.size == 0:
        return False
    return bool(value.min() < dtype.min or value.max() > dtype.max)


def convert_input(
    value: Any, dtype: Any, name: str, as_ref: bool, preferred: Any, op: str
) -> Tensor:
    """An argument of an op that is no Tensor yet; the bindings call it."""
    try:
        return internal_convert(value, dtype, name, as_ref, preferred)
    except (TypeError, ValueError) as error:
        if hasattr(value, "row_splits"):
            raise  # its elements, which may be many, are no part of the message
        observed = getattr(value, "dtype", None)
        kind = MismatchedTypesError if _core.executing_eagerly() else TypeError
        if dtype is not None and isinstance(observed, dtypes.DType):
            raise kind(
                f"Input '{name}' of '{op}' Op has type {observed.name} that does not match "
                f"expected type of {dtype.name}: {value}.{_core.user_line()}"
            ) from None
        if dtype is not None and isinstance(error, TypeError) and "Expected" in str(error):
            raise kind(
                f"Expected {dtype.name} passed to parameter '{name}' of op '{op}', got "
                f"{_short(value)} of type '{type(value).__name__}' instead. Error: {error}"
            ) from None
        raise _located(error, f"It is argument '{name}' of '{op}' Op.") from None


def _located(error: Exception, more: str) -> Exception:
    """The error with a sentence more, and the user's line."""
    text, mark, line = str(error).partition("\ndefined at ")
    line = mark + line if mark else _core.user_line()
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(f"{text} {more}{line}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


# Constants.


def _check_elements(values: Any, dtype: dtypes.DType, truths: bool = False) -> None:
    """TypeError, naming the element, when a Python value does not fit the type. `truths`: True and
    False are the numbers 1 and 0."""
    if isinstance(values, (list, tuple)):
        for value in values:
            _check_elements(value, dtype, truths)
        return
    if isinstance(values, (np.ndarray, np.generic)):
        return
    if isinstance(values, Dimension):
        values = values.value
    if truths and isinstance(values, bool) and (dtype.is_floating or dtype.is_integer):
        return
    good = True
    if dtype.is_floating:
        good = isinstance(values, (int, float, np.integer, np.floating)) and not isinstance(
            values, bool
        )
    elif dtype.is_integer or dtype.is_quantized:
        good = isinstance(values, (int, np.integer)) and not isinstance(values, bool)
    elif dtype.is_complex:
        good = isinstance(values, (int, float, complex, np.number)) and not isinstance(values, bool)
    elif dtype.is_bool:
        good = isinstance(values, bool)
    elif dtype is dtypes.string:
        good = isinstance(values, (str, bytes))
    if not good:
        raise TypeError(
            f"Expected {dtype.name}, got {_short(values)} of type '{type(values).__name__}' "
            "instead."
        )


def _plain(values: Any) -> Any:
    """Dimensions as numbers, in lists of any depth."""
    if isinstance(values, (list, tuple)):
        return [_plain(v) for v in values]
    if isinstance(values, Dimension):
        if values.value is None:
            raise TypeError("an unknown dimension has no value to make a tensor of")
        return values.value
    return values


def _first(values: Any) -> Any:
    while isinstance(values, (list, tuple)):
        if not values:
            return None
        values = values[0]
    return values


def make_array(values: Any, dtype: dtypes.DType | None, shape: Any = None) -> np.ndarray:
    """The values as an array of the type, or of the type that such values have by default.

    TypeError when a value does not fit the type, ValueError for lists that are not regular.
    """
    if dtype in (dtypes.resource, dtypes.variant):
        raise TypeError(f"A tensor of type {dtype.name} cannot be made from {_short(values)}.")
    if isinstance(values, (np.ndarray, np.generic)):
        array = np.asarray(values)
        if dtype is not None and dtype is not dtypes.string:
            storage = dtype.as_numpy_dtype
            if array.dtype == object or array.dtype.kind in "SU":
                raise TypeError(f"Expected {dtype.name}, got an array of type {array.dtype}.")
            if array.dtype != storage and not dtype.is_quantized:
                array = array.astype(storage)
        return array
    if hasattr(values, "__array__") and not isinstance(values, (list, tuple)):
        return make_array(np.asarray(values), dtype, shape)
    at_once = _core.executing_eagerly()
    if dtype is not None:
        _check_elements(values, dtype, truths=at_once)
    first = _first(values)
    if isinstance(first, Dimension) or isinstance(values, Dimension):
        values = _plain(values)
    if values is None:
        raise ValueError(_NONE)
    if dtype is dtypes.string or isinstance(first, (str, bytes)):
        return _string_array(values)
    wanted = None
    if dtype is not None:
        wanted = dtype._storage_dtype[0] if dtype._storage_dtype.names else dtype.as_numpy_dtype
    try:
        if isinstance(first, int) and dtype is not None and dtype.is_floating:
            with np.errstate(over="ignore"):  # which takes as long as all the rest
                array = np.array(values, dtype=wanted)
        else:
            array = np.array(values, dtype=wanted)
    except OverflowError:
        round_the_type = dtype is not None and dtype.is_integer and _fits_int64(values)
        if round_the_type and (at_once or (dtype.is_unsigned and np.max(values) <= dtype.max)):
            # Negative numbers are those that are as many below zero, counted round the type.
            return np.array(values, dtype=np.int64).astype(wanted)
        raise ValueError(
            f"{_short(values)} does not fit into {dtype.name if dtype else 'a number'}: Can't "
            "convert Python sequence with out-of-range integer to Tensor."
        ) from None
    except ValueError:
        raise _not_dense(values) from None
    if array.dtype == object:
        bad = [v for v in array.flat if not isinstance(v, (int, float, complex))][:1]
        if not bad and array.size:
            raise ValueError(
                f"{_short(values)} does not fit into int64: Can't convert Python sequence with "
                "out-of-range integer to Tensor."
            )
        if not bad:
            return array.astype(np.float32)
        if isinstance(bad[0], (list, tuple)):
            raise _not_dense(values)
        text = "Can't convert Python sequence with mixed types to Tensor."
        if array.ndim == 0:
            text = (
                f"Attempt to convert a value ({_short(bad[0])}) with an unsupported type "
                f"({type(bad[0])}) to a Tensor."
            )
        raise (ValueError if at_once else TypeError)(
            f"Expected numbers, got {bad[0]!r} of type '{type(bad[0]).__name__}' instead. {text}"
        )
    if array.dtype.kind in "SU" and isinstance(values, (list, tuple)):
        raise ValueError(
            f"Can't convert Python sequence with mixed types to Tensor: {_short(values)}."
        )
    if dtype is None:
        if array.size == 0 and not isinstance(values, np.ndarray):
            return array.astype(np.float32)
        if not isinstance(first, np.ndarray) or first.ndim == 0:
            # Numbers in lists, NumPy's too, take the types that programs expect of them.
            if array.dtype == np.float64:
                array = array.astype(np.float32)
            elif array.dtype == np.int64:
                info = np.iinfo(np.int32)
                if array.size == 0 or (array.min() >= info.min and array.max() <= info.max):
                    array = array.astype(np.int32)
    elif dtype.is_quantized:
        array = array.astype(dtype._storage_dtype[0]).view(dtype._storage_dtype)
    return array


def _fits_int64(values: Any) -> bool:
    try:
        np.array(values, dtype=np.int64)
    except OverflowError:
        return False
    return True


def _not_dense(values: Any) -> ValueError:
    """Why lists of different lengths are no tensor: where the first one differs."""
    wanted, part = [], values
    while isinstance(part, (list, tuple)):
        wanted.append(len(part))
        part = part[0] if part else None
    level: list[tuple[str, Any]] = [("", values)]
    for depth, size in enumerate(wanted):
        for path, item in level:
            length = len(item) if isinstance(item, (list, tuple)) else None
            if length != size:
                found = "is no list" if length is None else f"has length {length}"
                return ValueError(
                    f"Argument must be a dense tensor: {_short(values)} - got shape "
                    f"{wanted[:depth]}, but wanted {wanted}: element {path} {found}. Can't convert "
                    "non-rectangular Python sequence to Tensor."
                )
        level = [(f"{path}[{i}]", v) for path, item in level for i, v in enumerate(item)]
    mixed = any(isinstance(v, (list, tuple)) for _, v in level)
    return ValueError(
        f"Argument must be a dense tensor: {_short(values)} - got deeper lists. Can't convert "
        f"{'Python sequence with mixed types' if mixed else 'non-rectangular Python sequence'} to "
        "Tensor."
    )


def _string_array(values: Any) -> np.ndarray:
    def shape_of(v: Any) -> tuple[int, ...]:
        return (
            (len(v), *shape_of(v[0]))
            if isinstance(v, (list, tuple)) and v
            else ((0,) if isinstance(v, (list, tuple)) else ())
        )

    shape = shape_of(values)
    out = np.empty(shape, dtype=object)

    def fill(at: tuple[int, ...], v: Any) -> None:
        if len(at) == len(shape):
            if not isinstance(v, (str, bytes)):
                raise TypeError(f"Expected string, got {v!r} of type '{type(v).__name__}' instead.")
            out[at] = v
            return
        if not isinstance(v, (list, tuple)) or len(v) != shape[len(at)]:
            raise _not_dense(values)
        for i, part in enumerate(v):
            fill((*at, i), part)

    fill((), values)
    return out


def shaped(array: np.ndarray, shape: Any, verify_shape: bool = False) -> np.ndarray:
    """The array in another shape of as many elements, the last element repeated to fill it up."""
    dims = tuple(int(d) for d in TensorShape(shape).as_list())
    if verify_shape and dims != array.shape:
        raise TypeError(f"Expected Tensor's shape: {dims}, got {array.shape}.")
    count = int(np.prod(dims, dtype=np.int64))
    if count == 0:
        return np.empty(dims, dtype=array.dtype)
    if array.size == count:
        return array.reshape(dims)
    if array.size > count:
        raise ValueError(
            f"Too many elements provided. Needed at most {count}, but received {array.size}"
        )
    if array.size == 0:
        raise ValueError(f"Cannot fill the shape {dims} with no elements")
    if array.size == 1:  # no memory before the tensor's own
        return np.broadcast_to(array.reshape(()), dims)
    flat = np.full(count, array.reshape(-1)[-1], dtype=array.dtype)
    flat[: array.size] = array.reshape(-1)
    return flat.reshape(dims)


def _check_size(array: np.ndarray, shape: Any) -> None:
    dims = tuple(int(d) for d in TensorShape(shape).as_list())
    if array.size != int(np.prod(dims, dtype=np.int64)):
        raise TypeError(
            f"Eager execution of tf.constant with unsupported shape. Tensor has {array.size} "
            f"elements, but got `shape` {dims}. Expected Tensor's shape: {dims}, got {array.shape}."
        )


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else name


@export(v1="constant", v2="constant")
def constant(
    value: Any,
    dtype: Any = None,
    shape: Any = None,
    name: str = "Const",
    verify_shape: bool = False,
) -> Tensor:
    """A constant tensor.

    `dtype`: float32, int32, bool or string for Python's values by default, and an array's own type.
    `shape`: a shape to give the values: one value is repeated to fill it, and in graphs for
    sessions the last one where they are too few.
    TypeError for values that do not fit the type, ValueError for ones that do not fit the shape
    (TypeError outside of such graphs). Where operations run at once, True and False are numbers as
    well, and integers too large for the type are counted round it.
    """
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype).base_dtype
    at_once = _core.executing_eagerly()
    if value is not None and _core.is_eager_tensor(value):
        if dtype is not None and value.dtype is not dtype:
            raise TypeError(
                f"Expected tensor {value} with dtype {dtype!r}, but got dtype {value.dtype!r}."
            )
        if at_once and shape is None:
            return value
        value = value.numpy()
    elif isinstance(value, Tensor):
        raise TypeError(f"constant takes values, not the tensor {value}: use tf.identity")
    if shape is None:
        made = _core.constant_of_numbers(value, dtype)
        if made is not NotImplemented:
            return made
    try:
        array = make_array(value, dtype)
        if shape is not None:
            if (at_once or root_graph(get_default_graph())._captures_values) and array.size != 1:
                _check_size(array, shape)
            array = shaped(array, shape, verify_shape)
    except (TypeError, ValueError) as error:
        more = f"It is the value of the constant '{_text(name)}'."
        if at_once and isinstance(error, TypeError) and dtype is not None:
            more = f"{more} Cannot convert {_short(value)} to EagerTensor of dtype {dtype.name}."
        raise _located(error, more) from None
    return _core.constant(array, dtype, _text(name or "Const"))


def _constant_conversion(
    value: Any, dtype: Any = None, name: Any = None, as_ref: bool = False
) -> Any:
    del as_ref
    return constant(value, dtype, name=name or "Const")


def _number_conversion(
    value: Any, dtype: Any = None, name: Any = None, as_ref: bool = False
) -> Any:
    """What constants outside of graphs mostly are."""
    del name, as_ref
    return _core.constant_of_numbers(value, dtype)


def _pack_conversion(value: Any, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
    """Lists and tuples that hold tensors are packed; others are constants."""
    if as_ref or not _holds_tensor(value):
        return NotImplemented
    return _auto_pack(value, dtype, name or "packed")


def _holds_tensor(value: Any) -> bool:
    for item in value:
        if isinstance(item, (list, tuple)):
            if _holds_tensor(item):
                return True
        elif isinstance(item, Tensor) or hasattr(item, "_as_graph_element"):
            return True
    return False


def _types_within(value: Any) -> Any:
    """The types of the tensors in nested lists."""
    for part in value:
        if isinstance(part, (list, tuple)):
            yield from _types_within(part)
        elif is_tensor_like(part):
            yield part.dtype.base_dtype


def _auto_pack(value: Any, dtype: Any, name: str) -> Any:
    """Nested lists that hold tensors as one tensor, of the tensors' type.

    NotImplemented where they are not of the type asked for. TypeError, with the types, where they
    differ among themselves.
    """
    found = next(_types_within(value), None)
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype).base_dtype
        if found is not None and found is not dtype:
            return NotImplemented
    return _pack_nested(value, dtype or found, name)


def _pack_nested(value: Any, dtype: dtypes.DType, name: str) -> Tensor:
    with name_scope(name) as scope:
        parts = []
        for i, part in enumerate(value):
            if isinstance(part, (list, tuple)):
                part = (
                    _pack_nested(part, dtype, str(i))
                    if any(True for _ in _types_within(part))
                    else constant(part, dtype, name=str(i))
                )
            elif is_tensor_like(part):
                part = part if isinstance(part, Tensor) else convert_to_tensor(part)
                if part.dtype.base_dtype is not dtype:
                    raise TypeError(
                        f"Cannot convert a list containing a tensor of dtype "
                        f"{part.dtype.base_dtype.name} to {dtype.name} (Tensor is: {part!r})"
                    )
            else:
                part = constant(part, dtype, name=str(i))
            parts.append(part)
        return gen_ops.pack(parts, name=scope)


def _shape_conversion(value: Any, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
    del as_ref
    if not value.is_fully_defined():
        raise ValueError(f"Cannot convert a partially known TensorShape to a Tensor: {value}")
    dims = value.as_list()
    if dtype is None:
        dtype = dtypes.int64 if any(d > 2**31 - 1 for d in dims) else dtypes.int32
    elif dtype not in (dtypes.int32, dtypes.int64):
        raise TypeError(f"Cannot convert a TensorShape to dtype: {dtypes.as_dtype(dtype).name}")
    return constant(dims, dtype, name=name or "shape_as_tensor")


def _dimension_conversion(
    value: Any, dtype: Any = None, name: Any = None, as_ref: bool = False
) -> Any:
    del as_ref
    if value.value is None:
        raise ValueError("Cannot convert an unknown Dimension to a Tensor: ?")
    if dtype is None:
        dtype = dtypes.int32 if value.value <= 2**31 - 1 else dtypes.int64
    elif dtype not in (dtypes.int32, dtypes.int64):
        raise TypeError(f"Cannot convert a Dimension to dtype: {dtypes.as_dtype(dtype).name}")
    return constant(value.value, dtype, name=name or "shape_as_tensor")


def _element_conversion(
    value: Any, dtype: Any = None, name: Any = None, as_ref: bool = False
) -> Any:
    """Objects that say which tensor they stand for, such as variables."""
    del name
    convert = getattr(value, "_as_tensor", None)
    if convert is None:
        return NotImplemented
    return convert(dtype=dtype, as_ref=as_ref)


register_tensor_conversion_function(TensorShape, _shape_conversion, 100)
register_tensor_conversion_function(Dimension, _dimension_conversion, 100)
register_tensor_conversion_function((list, tuple, int, float), _number_conversion, 98)
register_tensor_conversion_function((list, tuple), _pack_conversion, 99)
register_tensor_conversion_function(
    (np.ndarray, np.generic, list, tuple, int, float, complex, bool, str, bytes),
    _constant_conversion,
    101,
)
register_tensor_conversion_function(object, _element_conversion, 200)
