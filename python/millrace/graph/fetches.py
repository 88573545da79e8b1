"""What a run is asked for and given: structures of fetches, and values to feed."""

import weakref
from collections import defaultdict
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.operation import Operation
from millrace.graph.session_handles import fetched_handle

if TYPE_CHECKING:
    from millrace.graph.session import BaseSession


# (class, expand to tensors, contract values): how composite objects are fetched and fed.
_expansions: list[
    tuple[type, Callable[[Any], tuple[list[Any], Callable[..., Any]]], Callable[..., Any]]
] = []


@export(v1="register_session_run_conversion_functions")
def register_session_run_conversion_functions(
    tensor_type: type,
    fetch_function: Callable[[Any], tuple[list[Any], Callable[[list[Any]], Any]]],
    feed_function: Callable[[Any, Any], list[tuple[Any, Any]]] | None = None,
    feed_function_for_partial_run: Callable[[Any], list[Any]] | None = None,
) -> None:
    """Lets sessions fetch and feed objects of a type.

    `fetch_function(obj)` gives the tensors to fetch and a function from their values to the
    result; `feed_function(obj, value)` gives pairs of tensors and values;
    `feed_function_for_partial_run(obj)` gives the tensors that such a feed consists of.
    """
    if any(known is tensor_type for known, _, _ in _expansions):
        raise ValueError(f"{tensor_type} has already been registered so ignore it.")
    _expansions.insert(0, (tensor_type, fetch_function, feed_function))
    del feed_function_for_partial_run


def expansion_of(obj: Any) -> Any:
    for cls, fetch, feed in _expansions:
        if isinstance(obj, cls):
            return fetch, feed
    return None


def fixed_element(fetch: Any) -> Any:
    """The tensor or operation that an object stands for now, None where it may be several; the
    bindings call it for fetches and keys of feeds whose class does not say `_parts_never_change`.
    """
    convert = getattr(fetch, "_as_graph_element", None)
    return None if convert is None or expansion_of(fetch) is not None else convert()


def feed_array(value: Any, tensor: Tensor) -> np.ndarray:
    """A fed value as an array of the tensor's type; the bindings call it. TypeError, ValueError."""
    dtype = tensor.dtype.base_dtype
    if isinstance(value, Tensor) or hasattr(value, "_as_graph_element"):
        raise TypeError(
            f"The value of a feed cannot be a tf.Tensor object: {value} was fed for "
            f"'{tensor.name}'. "
            "Acceptable feed values include Python scalars, strings, lists and numpy ndarrays: run "
            "the tensor first."
        )
    if dtype is dtypes.resource or dtype is dtypes.variant:
        raise TypeError(f"'{tensor.name}' is a {dtype.name}: it cannot be fed")
    wanted = dtype.as_numpy_dtype
    if isinstance(value, int) and dtype.is_integer and not isinstance(value, bool):
        info = np.iinfo(wanted)
        if not info.min <= value <= info.max:
            raise TypeError(
                f"Type of feed value {value} with type {type(value)} is not compatible with Tensor "
                f"type {dtype.name} of '{tensor.name}'. Try explicitly setting the type of "
                "the feed "
                "tensor to a larger type (e.g. int64)."
            )
    try:
        if dtype is dtypes.string:
            # As objects: NumPy's own strings lose zeros at their end.
            array = value if isinstance(value, np.ndarray) else np.asarray(value, dtype=object)
            if array.size == 0:
                return array.astype(object)
            if array.dtype.kind not in "OSU":
                raise ValueError(f"an array of {array.dtype}")
            return array.astype(object) if array.dtype.kind in "U" else array
        return np.asarray(value, dtype=wanted)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"Cannot feed {_describe(value)} for the tensor '{tensor.name}' ({dtype.name}, shape "
            f"{tensor.shape}): {error}"
        ) from None


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with shape {value.shape}"
    text = repr(value)
    return f"{text if len(text) < 80 else text[:77] + '...'} of type '{type(value).__name__}'"


def feed_shape_message(shape: tuple[int, ...], tensor: Tensor) -> str:
    """What to say of a fed value that does not fit; the bindings call it."""
    return (
        f"Cannot feed value of shape {shape} for Tensor '{tensor.name}', which has shape "
        f"'{tensor.shape}' and dtype {tensor.dtype.name}.{_defined_at(tensor.op)}"
    )


def _defined_at(op: Operation) -> str:
    origin = op.traceback
    return f"\ndefined at {origin[0][0]}:{origin[0][1]}  {origin[0][3]}" if origin else ""


class Fetches:
    """Works out what a structure of fetches needs, and how its value is put together."""

    def __init__(self, session: "BaseSession"):
        # Weakly: the session holds what is made here.
        self._session = weakref.ref(session)
        self._graph = session._graph
        self.tensors: list[Tensor] = []
        self.targets: list[Operation] = []
        self._known: dict[int, int] = {}

    def read(self, fetch: Any) -> Any:
        """None for an operation, a number for a tensor, (kind, object, parts) for the rest."""
        if fetch is None:
            raise TypeError(
                "Fetch argument None has invalid type <class 'NoneType'>: expected a tensor, an "
                "operation, a name, or a structure of them"
            )
        if isinstance(fetch, (list, tuple)):
            parts = [self.read(f) for f in fetch]
            if isinstance(fetch, list):
                return "list", None, parts
            if type(fetch) is tuple:
                return "tuple", None, parts
            cls = type(fetch)
            if hasattr(cls, "_make"):
                return "call", cls._make, parts
            return "call", cls, parts
        if isinstance(fetch, Mapping):
            keys = list(fetch.keys())
            parts = [self.read(fetch[key]) for key in keys]
            if type(fetch) is dict:
                return "dict", keys, parts
            return "call", _mapping_maker(fetch, keys), parts
        if hasattr(type(fetch), "__attrs_attrs__"):
            names = [attribute.name for attribute in type(fetch).__attrs_attrs__]
            parts = [self.read(getattr(fetch, name)) for name in names]
            return "call", lambda values: type(fetch)(*values), parts
        expansion = expansion_of(fetch)
        if expansion is not None:
            tensors, contract = expansion[0](fetch)
            return "call", lambda values: contract(list(values)), [self._leaf(t) for t in tensors]
        return self._leaf(fetch)

    def _leaf(self, fetch: Any) -> Any:
        try:
            element = self._graph.as_graph_element(fetch)
        except TypeError as error:
            raise TypeError(
                f"Fetch argument {fetch!r} has invalid type {type(fetch)}, must be a string or "
                f"Tensor. ({error})"
            ) from None
        except ValueError as error:
            raise ValueError(
                f"Fetch argument {fetch!r} cannot be interpreted as a Tensor. ({error})"
            ) from None
        except KeyError as error:
            raise ValueError(
                f"Fetch argument {fetch!r} cannot be interpreted as a Tensor. ({error.args[0]})"
            ) from None
        if not self._graph.is_fetchable(element):
            raise ValueError(f"Operation {element.name!r} has been marked as not fetchable.")
        if isinstance(element, Operation):
            self.targets.append(element)
            return None
        at = self._known.get(id(element))
        if at is None:
            at = self._known[id(element)] = len(self.tensors)
            self.tensors.append(element)
        if element.dtype is dtypes.string and element.op.type == "GetSessionHandle":
            return "call", self._handle_maker(element), [at]
        return at

    def _handle_maker(self, tensor: Tensor) -> Callable[..., Any]:
        session, dtype = self._session, tensor.op.inputs[0].dtype.base_dtype
        return lambda values: fetched_handle(session(), values[0], dtype)


def _mapping_maker(like: Any, keys: list[Any]) -> Callable[..., Any]:
    """A function from values to a mapping of the class of `like`."""
    make = type(like)
    arguments = (like.default_factory,) if isinstance(like, defaultdict) else ()

    def build(values: Any) -> Any:
        if not issubclass(make, MutableMapping):
            return make(zip(keys, values, strict=True))
        out = make(*arguments)
        for key, value in zip(keys, values, strict=True):
            out[key] = value
        return out

    return build


def build_result(form: Any, arrays: list[Any]) -> Any:
    if form is None:
        return None
    if isinstance(form, int):
        return arrays[form]
    kind, obj, parts = form
    values = [build_result(part, arrays) for part in parts]
    if kind == "list":
        return values
    if kind == "dict":
        return dict(zip(obj, values, strict=True))
    return tuple(values) if kind == "tuple" else obj(tuple(values))
