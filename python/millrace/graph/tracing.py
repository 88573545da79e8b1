"""What goes into the bodies of branches, loops and functions, and what comes out of them.

A body is traced by the extension module: it opens a graph for it, calls Python code with the
parameters, a list of tensors, and takes the list of tensors that comes back (`add_if`, `add_while`,
`add_function`, ... of `_core`). Here are the two directions between such lists and the values that
programs use: values made of several tensors travel in parts and come out whole.
"""

from typing import Any

from millrace import gen_ops
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies
from millrace.graph.operation import Operation
from millrace.graph.sparse import IndexedSlices, SparseTensor, SparseTensorValue


def leaf_of(value: Any) -> Any:
    """A leaf of a structure as tensors, or what is made of them. An operation becomes a bool that
    waits for it; None stays None."""
    if isinstance(value, Operation):
        with control_dependencies([value]):
            return gen_ops.identity(convert_to_tensor(True))
    if isinstance(value, SparseTensorValue):
        return SparseTensor.from_value(value)
    if value is None or is_composite(value):
        return value
    return convert_to_tensor(value)


def tensors_of(leaf: Any) -> list[Tensor]:
    """The tensors that a leaf of a structure is made of."""
    if isinstance(leaf, Tensor):
        return [leaf]
    if isinstance(leaf, IndexedSlices):
        parts = [leaf.values, leaf.indices]
        return parts if leaf.dense_shape is None else [*parts, leaf.dense_shape]
    if isinstance(leaf, SparseTensor):
        return [leaf.indices, leaf.values, leaf.dense_shape]
    if leaf is None:
        return []
    if hasattr(leaf, "_parts"):
        return leaf._parts()
    return [leaf.flow]  # a TensorArray


def _whole(leaf: Any, parts: list[Tensor]) -> Any:
    """A value like `leaf` made of other tensors."""
    if isinstance(leaf, Tensor):
        return parts[0]
    if isinstance(leaf, IndexedSlices):
        return IndexedSlices(*parts)
    if isinstance(leaf, SparseTensor):
        return SparseTensor(*parts)
    if hasattr(leaf, "_parts"):
        return leaf._from_parts(parts)
    return None if leaf is None else leaf._with_flow(parts[0])


def wholes(leaves: list[Any], tensors: list[Tensor]) -> list[Any]:
    out, at = [], 0
    for leaf in leaves:
        count = len(tensors_of(leaf))
        out.append(_whole(leaf, tensors[at : at + count]))
        at += count
    return out


def is_composite(value: Any) -> bool:
    """Whether a value is made of tensors: sparse, or one that has `_parts` or a flow."""
    composite = isinstance(value, (IndexedSlices, SparseTensor))
    return composite or hasattr(value, "_with_flow") or hasattr(value, "_parts")


def kind_of(leaf: Any) -> str:
    return "Tensor" if isinstance(leaf, Tensor) else type(leaf).__name__


def value_of(tensor: Tensor) -> Tensor:
    """References are read: what leaves a branch is a value."""
    return gen_ops.identity(tensor) if tensor.dtype._is_ref_dtype else tensor


def described(tensor: Tensor) -> str:
    return f"{tensor.dtype.base_dtype.name} of shape {tensor.shape} ('{tensor.name}')"
