"""How functions that are traced take their arguments."""

import inspect
import weakref
from types import MethodType
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
    if isinstance(leaf, TensorShape):
        return TensorShape, sizes_of(leaf)
    if isinstance(leaf, MethodType):  # another object each time that it is asked for
        return MethodType, Same(leaf.__self__), Same(leaf.__func__)
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
    if not nest.is_nested(value):
        return None
    return type(value), tuple((key, _structure_of(part)) for key, part in nest.items_of(value))


class Call:
    """The arguments of one call: what to trace with, what to call with, and by which key such calls
    are known."""

    def __init__(self, signature: "Signature", args: Any, kwargs: Any):
        self.tensors: list[Any] = []
        self.types: list[dtypes.DType] = []
        self.shapes: list[Sizes] = []
        # Of the tensors: whether other shapes may be traced in place of these.
        self.free: list[bool] = []
        # The names that specs have of their own.
        self.spec_names: list[str | None] = []
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
            self.spec_names.append(own)
            return Leaf(TensorSpec(leaf.shape, leaf.dtype, own or name), 1, own or name)
        if is_composite(leaf):
            parts = tensors_of(leaf)
            # How many elements are given is not part of what such a value is, but the rank of what
            # is sparse, and the number of rows of what is ragged.
            fixed = 2 if hasattr(leaf, "dense_shape") else 1
            for i, part in enumerate(parts):
                self.tensors.append(part)
                self.types.append(part.dtype)
                shape = shape_of(part)
                whole = i == fixed or not shape or isinstance(part, TensorSpec)
                self.shapes.append(shape if whole else (None, *shape[1:]))
                self.free.append(False)
                self.spec_names.append(None)
            own = getattr(leaf, "_parts_key", None)  # what its parts do not say
            kind = getattr(leaf, "value_type", type(leaf))
            kinds.append((kind, own, len(parts), tuple(p.dtype for p in parts)))
            return Leaf(leaf, len(parts), name)
        kinds.append(_key_of(leaf))
        return leaf

    def fix_shapes(self, specs: Any) -> None:
        """Takes the shapes that specs have for those of the first tensors."""
        i = 0
        for spec, leaf in zip(nest.flatten(specs), nest.flatten(self.structure), strict=False):
            parts = [spec] if isinstance(spec, TensorSpec) else tensors_of(spec)
            self.shapes[i : i + len(parts)] = [sizes_of(part.shape) for part in parts]
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
        """The kind together with the shapes, and with names that specs have."""
        names = tuple(self.spec_names) if any(self.spec_names) else ()
        return self.kind, tuple(self.shapes), names


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
        check_specs(specs)
        self.specs = None if specs is None else tuple(specs)
        if self.specs is not None and self._signature is not None:
            self._check_specs(len(self.specs))

    def _check_specs(self, count: int) -> None:
        extra = count - self.count
        if extra > 0 and self._varied is None:
            raise TypeError(
                f"input_signature contains {extra} extra type constraints: {self.described()} "
                f"takes {self.count} positional arguments."
            )
        missing = [
            name
            for name, default in zip(self._names[count:], self._has_default[count:], strict=True)
            if not default
        ]
        if missing:
            raise TypeError(
                f"input_signature missing type constraint for {', '.join(missing)} of "
                f"{self.described()}."
            )

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """The parameters; those of a function that does not tell are any."""
        if self._signature is None:
            return [
                inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
                inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
            ]
        return list(self._signature.parameters.values())

    def described(self) -> str:
        """The function with its parameters, for messages."""
        return f"{self.name}{self._signature if self._signature is not None else '(...)'}"

    def parameter_name(self, position: Any) -> str:
        """The name of the parameter for a positional argument."""
        if position < len(self._names):
            return self._names[position]
        return f"{self._varied or 'arg'}_{position - len(self._names)}"

    def bind(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments as Python binds them: positional ones by place, defaults filled in."""
        if self._signature is None:
            return args, kwargs
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise self._refused(error, (args, kwargs)) from None
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def specified(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments, bound and made what the specs ask for."""
        assert self.specs is not None
        given = args, kwargs
        args, kwargs = self.bind(args, kwargs)
        count = len(self.specs)
        if len(args) < count:
            raise self._refused(f"{count} arguments are needed, got {len(args)}", given)
        for i in range(count, len(args)):
            if i >= len(self._names) or args[i] is not self._default(i):
                raise self._refused(
                    f"Can not cast {args[i]!r} to what {self.parameter_name(i)} is by default: "
                    "input_signature has no TensorSpec for it",
                    given,
                )
        made = tuple(self._as_specified(i, a, given) for i, a in enumerate(args[:count]))
        return made + tuple(args[count:]), kwargs

    def _refused(self, why: Any, given: tuple[Any, Any]) -> TypeError:
        return TypeError(
            f"Binding inputs to tf.function failed due to `{why}`. Received args: {given[0]} and "
            f"kwargs: {given[1]} for signature: {self.described()}."
        )

    def _default(self, i: int) -> Any:
        assert self._signature is not None
        return self._signature.parameters[self._names[i]].default

    def _as_specified(self, i: int, argument: Any, given: tuple[Any, Any]) -> Any:
        assert self.specs is not None
        spec = self.specs[i]
        try:
            nest.assert_same_structure(spec, _without_arrays(argument, spec), check_types=False)
        except (TypeError, ValueError):
            why = f"Can not cast {argument!r} to {spec!r}"
            raise self._refused(f"{why}, argument {self.parameter_name(i)}", given) from None
        try:
            leaves = [
                as_spec(s, a, f"argument {self.parameter_name(i)}")
                for s, a in zip(
                    nest.flatten(spec), nest.flatten_up_to(spec, argument, check_types=False),
                    strict=True,
                )
            ]  # fmt: skip
        except (TypeError, ValueError) as error:
            raise self._refused(error, given) from None
        return nest.pack_sequence_as(spec, leaves)


def check_specs(specs: Any) -> None:
    """TypeError for an input_signature that is none."""
    if specs is None:
        return
    if not isinstance(specs, (tuple, list)):
        raise TypeError(f"input_signature must be either a tuple or a list, got {type(specs)}.")
    wrong = [
        s
        for s in nest.flatten(tuple(specs))
        if not isinstance(s, TensorSpec) and not hasattr(s, "is_compatible_with")
    ]
    if wrong:
        raise TypeError(
            "input_signature must be a possibly nested sequence of TensorSpec objects, got invalid "
            f"args {wrong} with types {[type(s) for s in wrong]}."
        )


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
    """A tensor as the spec wants it. TypeError where it cannot be."""
    if not isinstance(spec, TensorSpec) or isinstance(value, TensorSpec):
        if not spec.is_compatible_with(value):
            raise TypeError(f"Can not cast {value!r} to {spec!r}, {what}")
        return spec if isinstance(value, TensorSpec) else value
    tensor = value
    if not isinstance(value, Tensor):
        try:
            tensor = convert_to_tensor(value, dtype=spec.dtype)
        except (TypeError, ValueError) as error:
            raise TypeError(f"Can not cast {value!r} to {spec!r}, {what}: {error}") from None
    if not spec.is_compatible_with(tensor):
        own = TensorSpec(tensor.shape, tensor.dtype)
        raise TypeError(f"Can not cast {own!r} to {spec!r}, {what}")
    return tensor
