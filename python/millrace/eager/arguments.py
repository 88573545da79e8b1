"""How functions that are traced take their arguments."""

import inspect
import weakref
from typing import Any, Callable

import numpy as np

from millrace.core import dtypes, nest
from millrace.core.shapes import TensorShape
from millrace.core.specs import TensorSpec
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.tracing import is_composite, tensors_of

Sizes = tuple[int | None, ...] | None


def sizes_of(shape: Any) -> Sizes:
    """A shape as a tuple with None for unknown sizes, or None."""
    shape = TensorShape(shape)
    return None if shape.ndims is None else tuple(shape.as_list())


def shape_of(tensor: Any) -> Sizes:
    """The same of a tensor or a TensorSpec."""
    return sizes_of(tensor.shape) if isinstance(tensor, TensorSpec) else tensor._shape_tuple()


class Leaf:
    """Stands for a tensor, or something made of tensors, in the structure of arguments."""

    def __init__(self, value: Any, count: int, name: str):
        self.value = value  # a TensorSpec, or something like what is made of tensors
        self.count = count  # of the tensors
        self.name = name

    def __repr__(self) -> str:
        return repr(self.value)


class Same:
    """Equal for one object alone; does not keep it alive where that is possible."""

    __slots__ = ("__weakref__", "_get", "_id")

    def __init__(self, of: Any):
        self._id = id(of)
        try:
            self._get: Callable[[], Any] = weakref.ref(of)
        except TypeError:
            self._get = lambda: of

    def get(self) -> Any:
        """The object; None where it is gone."""
        return self._get()

    @property
    def alive(self) -> bool:
        """Whether the object is still there: if not, nothing is equal to this any more."""
        return self._get() is not None

    def __repr__(self) -> str:
        return repr(self._get())

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        mine = self._get()
        return mine is not None and isinstance(other, Same) and other._get() is mine

    def __hash__(self) -> int:
        return self._id


PLAIN = (bool, int, float, complex, str, bytes, type(None), type, TensorShape, dtypes.DType)


def _key_of(leaf: Any) -> Any:
    if isinstance(leaf, PLAIN):
        return type(leaf), (repr(leaf) if isinstance(leaf, (float, complex)) else leaf)
    try:
        weakref.ref(leaf)
    except TypeError:
        try:
            hash(leaf)
            return type(leaf), leaf
        except TypeError:
            return Same(leaf)
    return Same(leaf)


def _structure_of(value: Any) -> Any:
    if isinstance(value, dict):
        return type(value), tuple((k, _structure_of(value[k])) for k in sorted(value, key=str))
    if isinstance(value, (list, tuple)):
        return type(value), tuple(_structure_of(v) for v in value)
    if nest.is_nested(value):
        return type(value), len(nest.flatten(value))
    return None


class Call:
    """The arguments of one call: what to trace with, what to call with, and by which key such calls
    are known."""

    def __init__(self, signature: "Signature", args: Any, kwargs: Any):
        self.tensors: list[Any] = []
        self.types: list[dtypes.DType] = []
        self.shapes: list[Sizes] = []
        # Of the tensors: whether other shapes may be traced in place of these.
        self.free: list[bool] = []
        self.variables: list[Any] = []
        kinds: list[Any] = []
        leaves = []
        paths = _names_of(signature, args, kwargs)
        for leaf, name in zip(nest.flatten((args, kwargs)), paths, strict=True):
            leaves.append(self._add(leaf, name, kinds))
        self.structure = nest.pack_sequence_as((args, kwargs), leaves)
        self.names = paths
        # With shapes apart: calls of one kind differ in shapes alone.
        self.kind = (_structure_of((args, kwargs)), tuple(kinds))

    def _add(self, leaf: Any, name: str, kinds: list[Any]) -> Any:
        if isinstance(leaf, (np.ndarray, np.generic)):
            leaf = convert_to_tensor(leaf)
        if isinstance(leaf, (Tensor, TensorSpec)):
            self.tensors.append(leaf)
            self.types.append(leaf.dtype)
            self.shapes.append(shape_of(leaf))
            self.free.append(isinstance(leaf, Tensor))
            kinds.append(leaf.dtype)
            own = getattr(leaf, "name", None) if isinstance(leaf, TensorSpec) else None
            return Leaf(TensorSpec(leaf.shape, leaf.dtype, own or name), 1, own or name)
        if is_composite(leaf):
            parts = tensors_of(leaf)
            for part in parts:
                self.tensors.append(part)
                self.types.append(part.dtype)
                shape = part._shape_tuple()
                # How many rows there are is not part of what such a value is.
                self.shapes.append(shape and (None, *shape[1:]))
                self.free.append(False)
            kinds.append((type(leaf), len(parts), tuple(p.dtype for p in parts)))
            return Leaf(leaf, len(parts), name)
        if hasattr(leaf, "_gradient_source"):
            self.variables.append(leaf)
        kinds.append(_key_of(leaf))
        return leaf

    def fix_shapes(self, specs: Any) -> None:
        """Takes the shapes that specs have for those of the first tensors."""
        i = 0
        for spec, leaf in zip(nest.flatten(specs), nest.flatten(self.structure), strict=False):
            if isinstance(spec, TensorSpec):
                self.shapes[i] = sizes_of(spec.shape)
            i += leaf.count

    def described(self) -> list[str]:
        """The leaves of the arguments, for messages."""
        out = []
        shapes = iter(self.shapes)
        for leaf in nest.flatten(self.structure):
            if not isinstance(leaf, Leaf):
                out.append(f"{leaf!r} of type {type(leaf).__name__}")
                continue
            own = [next(shapes) for _ in range(leaf.count)]
            kind = getattr(leaf.value, "dtype", None)
            shape = str(TensorShape(own[0])) if own else ""
            out.append(f"{getattr(kind, 'name', 'a value')} of shape {shape}")
        return out

    def key(self) -> Any:
        """The kind together with the shapes."""
        return self.kind, tuple(self.shapes)


def _names_of(signature: "Signature", args: Any, kwargs: Any) -> list[str]:
    """A name for each leaf: that of its parameter, and the way to it inside."""
    out = []
    for path, _ in nest.flatten_with_tuple_paths((args, kwargs)):
        head = path[1] if len(path) > 1 else 0
        first = signature.parameter_name(head) if path[0] == 0 else str(head)
        out.append("_".join([first, *(str(p) for p in path[2:])]))
    return out


class Signature:
    """The parameters of a Python function, and what its user says that they are."""

    def __init__(self, function: Callable[..., Any], specs: Any, name: str):
        self.name = name
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self._signature = None
        parameters = list(self._signature.parameters.values()) if self._signature else []
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._names = [p.name for p in parameters if p.kind in positional]
        self._has_default = [
            p.default is not inspect.Parameter.empty for p in parameters if p.kind in positional
        ]
        self._varied = next(
            (p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), None
        )
        self.simple = all(p.kind in positional for p in parameters) and not any(self._has_default)
        self.count = len(self._names)
        if specs is not None and not isinstance(specs, (tuple, list)):
            raise TypeError(
                f"input_signature must be either a tuple or a list, got {type(specs).__name__}."
            )
        self.specs = None if specs is None else tuple(specs)
        if self.specs is not None:
            self._check_specs()

    def _check_specs(self) -> None:
        assert self.specs is not None
        for spec in nest.flatten(self.specs):
            if not isinstance(spec, TensorSpec) and not hasattr(spec, "_component_specs"):
                raise TypeError(
                    "input_signature must be a possibly nested sequence of TensorSpec objects, "
                    f"got {spec!r} in the signature of {self.name}."
                )
        if self._signature is None:
            return
        if len(self.specs) > self.count and self._varied is None:
            raise TypeError(
                f"input_signature has {len(self.specs)} elements, but {self.described()} takes "
                f"{self.count} positional arguments."
            )
        missing = [
            name
            for name, default in zip(
                self._names[len(self.specs) :], self._has_default[len(self.specs) :], strict=True
            )
            if not default
        ]
        if missing:
            raise TypeError(
                f"input_signature has {len(self.specs)} elements, but {self.described()} also "
                f"needs a value for {', '.join(missing)}: give them a default or a TensorSpec."
            )

    def described(self) -> str:
        """The function with its parameters, for messages."""
        return f"{self.name}{self._signature if self._signature is not None else '(...)'}"

    def parameter_name(self, position: Any) -> str:
        """The name of the parameter for a positional argument."""
        if position < len(self._names):
            return self._names[position]
        return f"{self._varied or 'arg'}_{position - len(self._names)}"

    def bind(self, args: Any, kwargs: Any, partial: bool = False) -> tuple[Any, Any]:
        """The arguments as Python binds them: positional ones by place, defaults filled in."""
        if self._signature is None:
            return args, kwargs
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            if partial:
                raise
            raise TypeError(
                f"Binding inputs to tf.function failed due to `{error}`. Received args: {args} and "
                f"kwargs: {kwargs} for signature: {self.described()}."
            ) from None
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def specified(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments, bound and made what the specs ask for."""
        assert self.specs is not None
        args, kwargs = self.bind(args, kwargs)
        count = len(self.specs)
        if len(args) < count:
            raise TypeError(
                f"{self.name}() takes {count} arguments by its input_signature, got {len(args)}."
            )
        for i in range(count, len(args)):
            if i >= len(self._names) or args[i] is not self._default(i):
                raise TypeError(
                    f"{self.name}() takes {count} arguments by its input_signature, got a value "
                    f"for {self.parameter_name(i)}: {args[i]!r}. Only what it has a TensorSpec for "
                    "can be given."
                )
        made = tuple(self._as_specified(i, a) for i, a in enumerate(args[:count]))
        return made + tuple(args[count:]), kwargs

    def _default(self, i: int) -> Any:
        assert self._signature is not None
        return self._signature.parameters[self._names[i]].default

    def _as_specified(self, i: int, argument: Any) -> Any:
        assert self.specs is not None
        spec = self.specs[i]
        try:
            nest.assert_same_structure(spec, _without_arrays(argument, spec), check_types=False)
        except (TypeError, ValueError) as error:
            raise TypeError(
                "Structure of Python function inputs does not match input_signature:\n"
                f"  argument {self.parameter_name(i)} of {self.described()}: {argument!r}\n"
                f"  input_signature: {spec!r}\n{error}"
            ) from None
        leaves = [
            as_spec(s, a, f"argument {self.parameter_name(i)} of {self.described()}")
            for s, a in zip(
                nest.flatten(spec), nest.flatten_up_to(spec, argument, check_types=False),
                strict=True,
            )
        ]  # fmt: skip
        return nest.pack_sequence_as(spec, leaves)


def _without_arrays(argument: Any, spec: Any) -> Any:
    """The argument, where a list stands for one tensor with a leaf in its place."""
    if not nest.is_nested(spec):
        return None
    if not nest.is_nested(argument):
        return argument
    if isinstance(spec, dict) or isinstance(argument, dict):
        if not (isinstance(spec, dict) and isinstance(argument, dict)):
            return argument
        return {k: _without_arrays(v, spec[k]) if k in spec else v for k, v in argument.items()}
    parts, specs = list(argument), list(spec)
    if len(parts) != len(specs):
        return argument
    return [_without_arrays(a, s) for a, s in zip(parts, specs, strict=True)]


def as_spec(spec: Any, value: Any, what: str) -> Any:
    """A tensor as the spec wants it. TypeError for other types, ValueError for other shapes."""
    if not isinstance(spec, TensorSpec):
        if not spec.is_compatible_with(value):
            raise TypeError(f"{what} must be {spec!r}, got {value!r}")
        return value
    if isinstance(value, TensorSpec):
        if not spec.is_compatible_with(value):
            raise TypeError(f"{what} must be {spec!r}, got {value!r}")
        return spec
    if isinstance(value, Tensor) and value.dtype != spec.dtype:
        raise TypeError(
            f"Python inputs incompatible with input_signature: {what} must be {spec!r}, got a "
            f"tensor of type {value.dtype.name} and shape {value.shape}"
        )
    try:
        tensor = convert_to_tensor(value, dtype=spec.dtype)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"Python inputs incompatible with input_signature: {what} must be {spec!r}: {error}"
        ) from None
    if not spec.shape.is_compatible_with(tensor.shape):
        raise ValueError(
            f"Python inputs incompatible with input_signature: {what} must be {spec!r}, got a "
            f"tensor of shape {tensor.shape}"
        )
    return tensor
