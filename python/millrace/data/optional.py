"""Elements that may be missing."""

from typing import Any

from millrace import gen_ops
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.data import structure
from millrace.data.iterator import Iterator
from millrace.data.specs import leaves_of_spec, spec_of_leaves
from millrace.data.structure import attrs_of, map_leaves


@export(
    v1=("experimental.Optional", "data.experimental.Optional"),
    v2=("experimental.Optional", "data.experimental.Optional"),
)
class Optional:
    """An element that may be missing: what `get_next_as_optional` gives."""

    def __init__(self, variant_tensor: Tensor, spec: Any):
        self._variant_tensor = variant_tensor
        self._spec = spec

    @staticmethod
    def from_value(value: Any) -> "Optional":
        """An optional that has `value`, a structure of tensors."""
        value = structure.leaf_values(value)
        spec = map_leaves(structure.leaf_of, value)
        return Optional(gen_ops.optional_from_value(structure.to_tensors(spec, value)), spec)

    @staticmethod
    def none_from_structure(value_structure: Any) -> "Optional":
        """An optional without a value, which would be as those of `value_structure`: a dataset, an
        iterator or an optional."""
        return Optional(gen_ops.optional_none(), value_structure._spec)

    @staticmethod
    def empty(element_spec: Any) -> "Optional":
        """An optional without a value, which would be as the spec says."""
        return Optional(gen_ops.optional_none(), leaves_of_spec(element_spec))

    @property
    def element_spec(self) -> Any:
        """What the value is, or would be."""
        return spec_of_leaves(self._spec)

    @property
    def value_structure(self) -> Any:
        """As `element_spec`."""
        return self.element_spec

    def _as_leaf(self) -> structure.OptionalLeaf:
        return structure.OptionalLeaf(Optional, self._spec)

    # As an argument and a result of functions: one tensor, whose element is the same each time.

    def _parts(self) -> list[Tensor]:
        return [self._variant_tensor]

    def _from_parts(self, parts: list[Tensor]) -> "Optional":
        return Optional(parts[0], self._spec)

    @property
    def _parts_key(self) -> str:
        return repr(self.element_spec)

    def __repr__(self) -> str:
        return f"<tf.experimental.Optional element_spec={self.element_spec!r}>"

    def has_value(self, name: str | None = None) -> Tensor:
        """Whether it has a value, a bool."""
        return gen_ops.optional_has_value(self._variant_tensor, name=name)

    def get_value(self, name: str | None = None) -> Any:
        """The value; InvalidArgumentError where there is none."""
        values = gen_ops.optional_get_value(self._variant_tensor, name=name, **attrs_of(self._spec))
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        return structure.from_tensors(self._spec, values)

    @property
    def output_types(self) -> Any:
        """The types of the parts of the value."""
        return map_leaves(lambda leaf: leaf.dtype, self._spec)

    @property
    def output_shapes(self) -> Any:
        """The shapes of the parts of the value."""
        return map_leaves(lambda leaf: leaf.shape, self._spec)


structure.optional_class.append(Optional)


class StagedIterator:
    """What a loop of a graph over a dataset asks for elements."""

    def __init__(self, resource: Tensor, spec: Any):
        self._resource = resource
        self._spec = spec

    @staticmethod
    def over(dataset: Any) -> "StagedIterator":
        """One that begins at the first element whenever the graph comes to it."""
        attrs = attrs_of(dataset._spec)
        resource = gen_ops.iterator_v2(shared_name="", container="", **attrs)
        gen_ops.make_iterator(dataset._variant_tensor, resource)
        return StagedIterator(resource, dataset._spec)

    def get_next_as_optional(self) -> Optional:
        """The next element, if there is one."""
        variant = gen_ops.iterator_get_next_as_optional(self._resource, **attrs_of(self._spec))
        return Optional(variant, self._spec)


def _staged_iterator(iterator: Iterator) -> StagedIterator:
    return StagedIterator(iterator._iterator_resource, iterator._spec)


Iterator._staged_iterator = _staged_iterator  # type: ignore[attr-defined]


@export(v1="data.experimental.get_next_as_optional", v2="data.experimental.get_next_as_optional")
def get_next_as_optional(iterator: Iterator) -> Optional:
    """The next element of an iterator, without a value where there is none."""
    variant = gen_ops.iterator_get_next_as_optional(
        iterator._iterator_resource, **attrs_of(iterator._spec)
    )
    return Optional(variant, iterator._spec)
