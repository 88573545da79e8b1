"""Functions as a model's signatures: from tensors by name to tensors by name."""

import collections
from typing import Any, Iterator

from millrace.core.specs import TensorSpec
from millrace.core.tensor import Tensor
from millrace.core.trackable import Trackable
from millrace.eager.concrete import ConcreteFunction
from millrace.eager.function import Function, function
from millrace.saved_model import constants

ATTRIBUTE = "signatures"
# A method of this name is the one signature of its object.
_DEFAULT_ATTRIBUTE = "_default_save_signature"


class SignatureMap(collections.abc.Mapping, Trackable):  # type: ignore[type-arg]
    """The signatures of a model by name. Does not change."""

    _object_identifier = "signature_map"

    def __init__(self, functions: dict[str, ConcreteFunction]):
        self._functions = dict(functions)

    def __getitem__(self, key: str) -> ConcreteFunction:
        return self._functions[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __repr__(self) -> str:
        return f"_SignatureMap({self._functions})"

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        return dict(self._functions) if save_type == "savedmodel" else {}


def default_signature(children: dict[str, Any]) -> Any:
    """The one function among an object's children that can be a signature, or None."""
    if _DEFAULT_ATTRIBUTE in children:
        return children[_DEFAULT_ATTRIBUTE]
    functions = [_concrete(child) for child in children.values() if child._is_function]
    possible = [known for known in functions if known is not None and _is_possible(known)]
    return possible[0] if len(possible) == 1 else None


def _is_possible(concrete: ConcreteFunction) -> bool:
    try:
        _check_arguments(concrete)
        results = _by_name(concrete.structured_outputs, concrete.name, "")
    except ValueError:
        return False
    return bool(results)


def _concrete(of: Any) -> ConcreteFunction | None:
    if isinstance(of, Function) and of.input_signature is not None:
        of = of.get_concrete_function()
    return of if isinstance(of, ConcreteFunction) else None


def signature_map(signatures: Any) -> SignatureMap:
    """The signatures for what a program names as such: a function with an input_signature or a
    ConcreteFunction, or a dictionary of them. ValueError for what can be none."""
    if signatures is None:
        return SignatureMap({})
    if not isinstance(signatures, collections.abc.Mapping):
        signatures = {constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY: signatures}
    made = {}
    for key, of in signatures.items():
        if not isinstance(key, str):
            raise ValueError(f"names of signatures are texts, got {key!r}")
        if key in (constants.INIT_OP_SIGNATURE_KEY, constants.TRAIN_OP_SIGNATURE_KEY):
            raise KeyError(f"The signature name {key!r} is reserved: choose another one.")
        concrete = _concrete(of)
        if concrete is None:
            raise ValueError(
                "Expected a TensorFlow function for which to generate a signature, but got "
                f"{of!r}. Only `tf.functions` with an input signature or concrete functions can be "
                "used as a signature."
            )
        made[key] = _wrapped(concrete, key)
    return SignatureMap(made)


def _check_arguments(concrete: ConcreteFunction) -> None:
    for slot in concrete._slots():
        if not isinstance(slot.value, TensorSpec):
            raise ValueError(
                f"{concrete.name} takes a {type(slot.value).__name__}, {slot.name}: a signature "
                "takes tensors"
            )
    if concrete._variable_arguments():
        raise ValueError(
            f"Unable to serialize concrete_function '{concrete.name}' with tf.Variable input. "
            "Functions that expect tf.Variable inputs cannot be exported as signatures."
        )


def _wrapped(concrete: ConcreteFunction, key: str) -> ConcreteFunction:
    _check_arguments(concrete)
    slots = concrete._slots()
    names = _argument_names(concrete)

    def signature_wrapper(**tensors: Any) -> Any:
        results = concrete.run([tensors[name] for name in names])
        return _by_name(results, concrete.name, key)

    signature_wrapper.__name__ = f"signature_wrapper_{concrete._signature.name}"
    specs = {
        name: TensorSpec(shape, slot.value.dtype, name)
        for name, slot, shape in zip(names, slots, concrete._shapes, strict=True)
    }
    made = function(signature_wrapper, autograph=False).get_concrete_function(**specs)
    made._most_by_place = 1 if len(names) == 1 else 0  # by name, where there could be doubt
    return made


def _argument_names(concrete: ConcreteFunction) -> list[str]:
    """A name for each tensor among the arguments: those of parameters, else of the body's."""
    names = [slot.name for slot in concrete._slots()]
    if len(set(names)) == len(names) and all(name.isidentifier() for name in names):
        return names
    return [inside.op.name for inside in concrete.inputs[: len(names)]]


def _by_name(results: Any, function_name: str, key: str) -> dict[str, Any]:
    """What a signature returns for the results of a function."""
    if hasattr(results, "_asdict"):
        results = results._asdict()
    if not isinstance(results, collections.abc.Mapping):
        if not isinstance(results, collections.abc.Sequence):
            results = [] if results is None else [results]
        results = {f"output_{i}": value for i, value in enumerate(results)}
    for name, value in results.items():
        if not isinstance(name, str):
            raise ValueError(
                f"Got a dictionary with a non-string key {name!r} in the output of the function "
                f"{function_name} used to generate the SavedModel signature {key!r}."
            )
        if not isinstance(value, Tensor):
            raise ValueError(
                f"Got a non-Tensor value {value!r} for key {name!r} in the output of the function "
                f"{function_name} used to generate the SavedModel signature {key!r}. Outputs for "
                "functions used as signatures must be a single Tensor, a sequence of Tensors, or a "
                "dictionary from string to Tensor."
            )
    return dict(results)
