"""Iterators over datasets."""

from typing import Any

from millrace import _core, gen_ops, protos
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.data import structure
from millrace.data.specs import spec_of_leaves
from millrace.data.structure import attrs_of, map_leaves
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.importer import import_graph_def
from millrace.graph.operation import Operation
from millrace.graph.static_value import constant_value

_CAPTURES = (
    "Failed to create a one-shot iterator for a dataset. `Dataset.make_one_shot_iterator()` does "
    "not support datasets that capture stateful objects, such as a `Variable` or `LookupTable`. In "
    "these cases, use `Dataset.make_initializable_iterator()`."
)


@export(v1=("data.Iterator", "contrib.data.Iterator"), v2="data.Iterator")
class Iterator:
    """A place in a dataset: each run of `get_next()` gives the next element."""

    def __init__(self, iterator_resource: Tensor, initializer: Operation | None, spec: Any):
        self._iterator_resource = iterator_resource
        self._initializer = initializer
        self._spec = spec
        self._string_handle: Tensor | None = None

    @staticmethod
    def from_spec(spec: Any, shared_name: str | None = None) -> "Iterator":
        """One without a dataset yet."""
        handle = gen_ops.iterator_v2(shared_name=shared_name or "", container="", **attrs_of(spec))
        return Iterator(handle, None, spec)

    @staticmethod
    def from_structure(
        output_types: Any, output_shapes: Any = None, shared_name: str | None = None,
        output_classes: Any = None,
    ) -> "Iterator":  # fmt: skip
        """An iterator without a dataset: `make_initializer(dataset)` gives it one, and another."""
        spec = structure.spec_of(output_types, output_shapes, output_classes)
        return Iterator.from_spec(spec, shared_name)

    @staticmethod
    def from_string_handle(
        string_handle: Any, output_types: Any, output_shapes: Any = None,
        output_classes: Any = None,
    ) -> "Iterator":  # fmt: skip
        """The iterator that a string names, as `string_handle()` of it gives: fed, it chooses
        between iterators."""
        spec = structure.spec_of(output_types, output_shapes, output_classes)
        text = convert_to_tensor(string_handle, dtype=dtypes.string)
        return Iterator(gen_ops.iterator_from_string_handle_v2(text, **attrs_of(spec)), None, spec)

    @property
    def initializer(self) -> Operation:
        """The operation that begins it at the first element."""
        if self._initializer is None:
            raise ValueError(
                "Iterator does not have an initializer: a one-shot iterator needs none, one from a "
                "structure has make_initializer(dataset)."
            )
        return self._initializer

    def make_initializer(self, dataset: Any, name: str | None = None) -> Operation:
        """An operation that begins it at the first element of `dataset`."""
        mine, given = structure.flatten(self._spec), structure.flatten(dataset._spec)
        for what in ("dtype", "cls"):
            if [getattr(leaf, what) for leaf in mine] != [getattr(leaf, what) for leaf in given]:
                raise TypeError(
                    f"Expected output types {self.output_types!r} but got dataset with output "
                    f"types {dataset.output_types!r}."
                )
        if not all(a.shape.is_compatible_with(b.shape) for a, b in zip(mine, given, strict=True)):
            raise TypeError(
                f"Expected output shapes compatible with {self.output_shapes!r} but got dataset "
                f"with output shapes {dataset.output_shapes!r}."
            )
        return gen_ops.make_iterator(dataset._variant_tensor, self._iterator_resource, name=name)

    def get_next(self, name: str | None = None) -> Any:
        """The next element: OutOfRangeError where there is none. Call it once and run what it gives
        often."""
        values = gen_ops.iterator_get_next(
            self._iterator_resource, name=name, **attrs_of(self._spec)
        )
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        return structure.from_tensors(self._spec, values)

    def string_handle(self, name: str | None = None) -> Tensor:
        """A string that names it, for `from_string_handle`."""
        if name is None and self._string_handle is not None:
            return self._string_handle
        handle = gen_ops.iterator_to_string_handle(self._iterator_resource, name=name)
        self._string_handle = handle
        return handle

    def report(self, name: str | None = None) -> Tensor:
        """A string: a table of the stages of its dataset, with elements, time for each of them and
        how full buffers were."""
        return gen_ops.iterator_report(self._iterator_resource, name=name)

    @property
    def element_spec(self) -> Any:
        """What the parts of an element are: a structure of TensorSpecs and such."""
        return spec_of_leaves(self._spec)

    @property
    def output_types(self) -> Any:
        """The types of the parts of an element."""
        return map_leaves(lambda leaf: leaf.dtype, self._spec)

    @property
    def output_shapes(self) -> Any:
        """The shapes of the parts of an element."""
        return map_leaves(lambda leaf: leaf.shape, self._spec)

    @property
    def output_classes(self) -> Any:
        """The classes of the parts of an element."""
        return map_leaves(lambda leaf: leaf.cls, self._spec)


def begin_once(dataset: Any) -> Iterator:
    """An iterator that makes its dataset itself, by a function."""

    def code(_: list[Tensor]) -> list[Tensor]:
        return [_copied(dataset._variant_tensor)]

    graph = get_default_graph()
    try:
        name, captured, _, _, _ = _core.add_function(
            graph, "OneShotIterator_dataset", [], [], [], code, False
        )
    except ValueError as error:
        raise ValueError(f"{_CAPTURES} {error}") from None
    if captured:
        names = ", ".join(repr(tensor.name) for tensor in captured)
        raise ValueError(f"{_CAPTURES} It uses {names}.")
    handle = gen_ops.one_shot_iterator(dataset_factory=name, **attrs_of(dataset._spec))
    return Iterator(handle, None, dataset._spec)


def _copied(tensor: Tensor) -> Tensor:
    """A tensor of the graph around, computed again in the default graph, of constants alone."""
    needed: dict[str, Operation] = {}
    constants: dict[str, Tensor] = {}
    todo = [tensor]
    while todo:
        source = todo.pop()
        op = source.op
        if op.type == "Const":
            if source.name not in constants:
                value = constant_value(source)
                constants[source.name] = convert_to_tensor(value, dtype=source.dtype)
        elif op.name not in needed:
            if op.type in _STATEFUL or any(t.dtype._is_ref_dtype for t in op.outputs):
                raise ValueError(f"It uses {op.type} '{op.name}'.")
            needed[op.name] = op
            todo += op.inputs
    graph_def = protos.GraphDef()
    for op in needed.values():
        node = graph_def.node.add()
        node.CopyFrom(op.node_def)
        kept = [name for name in node.input if not name.startswith("^")]
        del node.input[:]
        node.input.extend(kept)
        node.device = ""
        if "_class" in node.attr:
            del node.attr["_class"]
    (copy,) = import_graph_def(graph_def, constants, [tensor.name], name="")
    return copy


_STATEFUL = {
    "Placeholder", "PlaceholderV2", "VarHandleOp", "VariableV2", "HashTableV2", "IteratorV2",
    "MutableHashTableV2", "IteratorGetNext", "_Arg",
}  # fmt: skip
