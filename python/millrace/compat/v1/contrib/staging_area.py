"""Staging areas: where a run leaves tensors for the next, so that making and using overlap."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.dtypes import as_dtype
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import colocate_with, get_default_graph, name_scope
from millrace.graph.operation import Operation


@export(v1="contrib.staging.StagingArea")
class StagingArea:
    """Holds elements, each a tuple of tensors, in the order in which they were put.

    It is on the device where it was made: what is taken on another device is copied.
    """

    def __init__(
        self, dtypes: Any, shapes: Any = None, names: Any = None, shared_name: str | None = None,
        capacity: int = 0, memory_limit: int = 0,
    ):  # fmt: skip
        """An area for elements of these types.

        Args:
          dtypes: the types of the tensors of an element.
          shapes: their shapes; None for any.
          names: their names; elements are then dictionaries.
          shared_name: areas of one name are the same one.
          capacity: how many elements have room; 0 for any number.
          memory_limit: only 0, no limit, is supported.

        ValueError when the numbers of types, shapes and names differ, or for limits below 0.
        """
        self._dtypes = [as_dtype(t) for t in dtypes]
        if shapes is not None and len(shapes) != len(self._dtypes):
            raise ValueError(
                f"StagingArea shapes must be the same length as dtypes: {len(shapes)} shapes, "
                f"{len(self._dtypes)} dtypes"
            )
        self._shapes = [TensorShape(s) for s in shapes or [None] * len(self._dtypes)]
        if names is not None and len(names) != len(self._dtypes):
            raise ValueError(
                f"StagingArea names must be the same length as dtypes: {len(names)} names, "
                f"{len(self._dtypes)} dtypes"
            )
        self._names = names
        if capacity < 0 or memory_limit < 0:
            raise ValueError(
                "capacity and memory_limit of a StagingArea must not be negative, got "
                f"{capacity} and {memory_limit}"
            )
        self._capacity, self._memory_limit = capacity, memory_limit
        self._name = shared_name or get_default_graph().unique_name("StagingArea")
        with name_scope(f"{self._name}_root"):
            self._root = gen_ops.no_op()

    @property
    def name(self) -> str:
        """The name of the area."""
        return self._name

    @property
    def dtypes(self) -> "list[dtypes.DType]":
        """The types of the tensors of an element."""
        return self._dtypes

    @property
    def shapes(self) -> list[TensorShape]:
        """Their shapes."""
        return self._shapes

    @property
    def names(self) -> list[str] | None:
        """Their names, or None."""
        return self._names

    @property
    def capacity(self) -> int:
        """How many elements have room; 0 for any number."""
        return self._capacity

    @property
    def memory_limit(self) -> int:
        """How many bytes have room; 0 for any number."""
        return self._memory_limit

    def _components(self, values: Any) -> list[Tensor]:
        if isinstance(values, dict):
            if not self._names:
                raise ValueError("Staging areas must have names to enqueue a dictionary")
            if sorted(values) != sorted(self._names):
                raise ValueError(
                    "Keys in dictionary to put do not match names of staging area. Dictionary: "
                    f"{sorted(values)}, staging area: {sorted(self._names)}"
                )
            values = [values[name] for name in self._names]
        elif self._names:
            raise ValueError("You must enqueue a dictionary in a staging area with names")
        elif not isinstance(values, (list, tuple)):
            values = [values]
        if len(values) != len(self._dtypes):
            raise ValueError(
                f"Unexpected number of inputs {len(values)} to the staging area '{self._name}', "
                f"expected {len(self._dtypes)}"
            )
        tensors = []
        for i, (value, dtype) in enumerate(zip(values, self._dtypes, strict=True)):
            tensor = convert_to_tensor(value, dtype=dtype, name=f"component_{i}")
            if not tensor.shape.is_compatible_with(self._shapes[i]):
                raise ValueError(
                    f"Component {i} of the staging area '{self._name}' has shape "
                    f"{self._shapes[i]}, got {tensor.shape}"
                )
            tensors.append(tensor)
        return tensors

    def _shared(self) -> dict[str, Any]:
        return {
            "capacity": self._capacity, "memory_limit": self._memory_limit,
            "shared_name": self._name,
        }  # fmt: skip

    def put(self, values: Any, name: str | None = None) -> Operation:
        """An operation that adds an element, waiting while there is no room.

        `values`: a tensor, a list of them, or a dictionary where they have names. ValueError when
        they do not fit.
        """
        given = list(values.values()) if isinstance(values, dict) else values
        given = given if isinstance(given, (list, tuple)) else [given]
        with name_scope(name, f"{self._name}_put", given) as scope:
            components = self._components(values)
            with colocate_with(self._root):
                return gen_ops.stage(components, name=scope, **self._shared())

    def get(self, name: str | None = None) -> Any:
        """The next element: a tensor, a list, or a dictionary where they have names.

        In a run it waits for one.
        """
        with colocate_with(self._root):
            tensors = gen_ops.unstage(
                self._dtypes, name=name or f"{self._name}_get", **self._shared()
            )
        if gen_ops.no_op().device != self._root.device:
            tensors = [gen_ops.identity(t) for t in tensors]
        for tensor, shape in zip(tensors, self._shapes, strict=True):
            tensor.set_shape(shape)
        if self._names:
            return dict(zip(self._names, tensors, strict=True))
        return tensors[0] if len(tensors) == 1 else tensors

    def size(self, name: str | None = None) -> Tensor:
        """The number of elements."""
        with colocate_with(self._root):
            return gen_ops.stage_size(
                self._dtypes, name=name or f"{self._name}_size", **self._shared()
            )
