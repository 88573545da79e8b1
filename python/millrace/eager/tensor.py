"""Tensors that have a value: what operations give outside of graphs."""

from typing import Any, Iterator, NoReturn

import numpy as np

from millrace import _core
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor

EagerTensor = _core.make_eager_tensor_class(Tensor)


def _shape(self: Any) -> TensorShape:
    return TensorShape._from_tuple(self._shape_tuple())


def numpy(self: Any) -> Any:
    """The elements as an array of the caller's own; a NumPy scalar, or bytes, for a scalar."""
    if self.dtype in (dtypes.resource, dtypes.variant):
        raise _no_array(self)
    value = self._numpy()
    return value[value.dtype.names[0]] if self.dtype.is_quantized else value


def _no_array(self: Any) -> Exception:
    from millrace.core.errors import InvalidArgumentError  # late: only errors need it

    return InvalidArgumentError(
        None, None, f"a tensor of type {self.dtype.name} cannot be converted to an array"
    )


def __array__(self: Any, dtype: Any = None, copy: Any = None) -> Any:
    del copy
    array = np.asarray(numpy(self)) if self.dtype is not dtypes.string else _strings(self)
    return array if dtype is None else array.astype(dtype)


def _strings(self: Any) -> Any:
    return np.array(numpy(self), dtype=object)


def _scalar(self: Any, kind: str) -> Any:
    value = numpy(self)
    if getattr(value, "size", 1) != 1 or self.ndim != 0:
        if getattr(value, "size", 1) != 1:
            raise TypeError(
                f"only tensors of one element can be converted to {kind}, this one has shape "
                f"{self.shape}"
            )
        value = np.asarray(value).reshape(())[()]
    return value


def __int__(self: Any) -> int:
    return int(_scalar(self, "int"))


def __float__(self: Any) -> float:
    return float(_scalar(self, "float"))


def __complex__(self: Any) -> complex:
    return complex(_scalar(self, "complex"))


def __index__(self: Any) -> int:
    if not self.dtype.is_integer or self.ndim != 0:
        raise TypeError(
            f"only integer scalar tensors can be converted to a scalar index, this one is "
            f"{self.dtype.name} of shape {self.shape}"
        )
    return int(numpy(self))


def __bool__(self: Any) -> bool:
    shape = self._shape_tuple()
    if self.ndim != 0 and shape != (1,) * len(shape):
        raise ValueError(
            "The truth value of an array with more than one element is ambiguous. Use a.any() or "
            "a.all()"
        )
    return bool(_scalar(self, "bool"))


def __len__(self: Any) -> int:
    if self.ndim == 0:
        raise TypeError("Scalar tensor has no `len()`")
    return self._shape_tuple()[0]


def __iter__(self: Any) -> Iterator[Any]:
    if self.ndim == 0:
        raise TypeError("Cannot iterate over a scalar tensor.")
    return iter([self[i] for i in range(len(self))])


def __hash__(self: Any) -> NoReturn:
    raise TypeError("Tensor is unhashable. Instead, use tensor.ref() as the key.")


def _text(self: Any, quoted: bool) -> str:
    if self.dtype in (dtypes.resource, dtypes.variant):
        return f"<{self.dtype.name}>"
    value = numpy(self)
    text = repr(value) if (quoted and self.ndim) or isinstance(value, bytes) else str(value)
    return "\n" + text if "\n" in text else text


def __repr__(self: Any) -> str:
    return f"<tf.Tensor: shape={self.shape}, dtype={self.dtype.name}, numpy={_text(self, True)}>"


def __str__(self: Any) -> str:
    return f"tf.Tensor({_text(self, False)}, shape={self.shape}, dtype={self.dtype.name})"


def __format__(self: Any, spec: str) -> str:
    if self.ndim == 0 and spec:
        return format(numpy(self), spec)
    return format(numpy(self), spec) if self.ndim == 0 else format(str(numpy(self)), spec)


class Reference:
    """A key that stands for a tensor in dictionaries and sets: two are equal when they are of one
    object."""

    __slots__ = ("_object",)

    def __init__(self, target: Any):
        self._object = target

    def deref(self) -> Any:
        """The object."""
        return self._object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and other._object is self._object

    def __hash__(self) -> int:
        return id(self._object) >> 4

    def __repr__(self) -> str:
        return f"<Reference wrapping {self._object!r}>"


def ref(self: Any) -> Reference:
    """A key for dictionaries and sets."""
    return Reference(self)


def set_shape(self: Any, shape: Any) -> None:
    """ValueError unless the tensor has such a shape."""
    if not self.shape.is_compatible_with(shape):
        raise ValueError(
            f"Tensor's shape {self.shape} is not compatible with supplied shape {shape}"
        )


def _only_in_graphs(name: str) -> property:
    def get(self: Any) -> NoReturn:
        raise AttributeError(f"Tensor.{name} is undefined when eager execution is enabled.")

    return property(get)


def eval(self: Any, feed_dict: Any = None, session: Any = None) -> NoReturn:
    """Tensors of graphs have it."""
    raise NotImplementedError(
        "eval is not supported when eager execution is enabled, is .numpy() what you're looking "
        "for?"
    )


def __copy__(self: Any) -> Any:
    return self


def __deepcopy__(self: Any, memo: Any) -> Any:
    del memo
    return _core.copy_tensor(self)


def _restore(array: Any, dtype: Any) -> Any:
    return _core.constant(array, dtypes.as_dtype(dtype), "Const")


def __reduce__(self: Any) -> Any:
    return _restore, (np.asarray(numpy(self)), self.dtype.name)


def _copy_to_host(self: Any) -> Any:
    return _core.execute("Identity", [self], {})[0]


def _install() -> None:
    methods = (
        numpy, __array__, __int__, __float__, __complex__, __index__, __bool__, __len__, __iter__,
        __hash__, __repr__, __str__, __format__, ref, set_shape, eval, __copy__,
        __deepcopy__, __reduce__,
    )  # fmt: skip
    for method in methods:
        setattr(EagerTensor, method.__name__, method)
    EagerTensor.cpu = _copy_to_host
    EagerTensor.shape = property(_shape)
    EagerTensor.backing_device = property(lambda self: self.device)
    EagerTensor.is_tensor_like = True
    for name in ("name", "op", "graph", "value_index"):
        setattr(EagerTensor, name, _only_in_graphs(name))


_install()


@export(v1="executing_eagerly", v2="executing_eagerly")
def executing_eagerly() -> bool:
    """Whether operations of this thread run at once: eager execution is on and no graph is open."""
    return _core.executing_eagerly()


@export(v1="executing_eagerly_outside_functions")
def executing_eagerly_outside_functions() -> bool:
    """Whether operations outside of functions run at once."""
    return _core.eager_enabled() and (_core.executing_eagerly() or _in_function())


@export(v2="inside_function")
def inside_function() -> bool:
    """Whether the code runs while a `tf.function` is traced, or builds the body of a function."""
    return _in_function()


def _in_function() -> bool:
    graph = _core.innermost_graph()
    return graph is not None and graph._is_function


def __dlpack__(self: Any, **options: Any) -> Any:
    """A capsule with a copy of the elements, for other libraries."""
    return np.asarray(numpy(self)).__dlpack__(**options)


def __dlpack_device__(self: Any) -> tuple[int, int]:
    """The host."""
    del self
    return 1, 0


EagerTensor.__dlpack__ = __dlpack__
EagerTensor.__dlpack_device__ = __dlpack_device__


@export(v2="experimental.dlpack.to_dlpack")
def to_dlpack(tf_tensor: Any) -> Any:
    """A capsule with a copy of the elements of a tensor, which other libraries take."""
    return tf_tensor.__dlpack__()


class _Capsule:
    """What NumPy reads a capsule from."""

    def __init__(self, capsule: Any):
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@export(v2="experimental.dlpack.from_dlpack")
def from_dlpack(dlcapsule: Any) -> Any:
    """A tensor of the elements in a capsule, each of which is taken once."""
    source = dlcapsule if hasattr(dlcapsule, "__dlpack__") else _Capsule(dlcapsule)
    array = np.from_dlpack(source)
    return _core.constant(array, None, "dlpack")
