"""Makes the objects of a model from their message, SavedObjectGraph."""

import os
from typing import Any, Callable

from millrace import protos
from millrace.checkpoint import object_graph
from millrace.checkpoint.reader import NewCheckpointReader
from millrace.checkpoint.restoration import Restoration
from millrace.core import dtypes
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.core.tracked_data import AutoTrackable, DictWrapper, ListWrapper, TupleWrapper
from millrace.eager.arguments import sizes_of
from millrace.eager.loaded import Capture, LoadedFunction
from millrace.graph import structured
from millrace.io import gfile
from millrace.saved_model import constants, restored
from millrace.saved_model.assets import asset_path
from millrace.saved_model.function_library import ModelFunctions
from millrace.saved_model.function_messages import read_function_spec, traced_name
from millrace.saved_model.object_messages import captured_as
from millrace.saved_model.options import LoadOptions
from millrace.saved_model.signature_functions import SignatureMap
from millrace.state.asset import Asset
from millrace.state.eager_variable import Variable, is_eager_variable
from millrace.state.variable import VariableAggregation, VariableSynchronization

# Tuples in each other: deeper ones are not ours, and would exhaust the stack.
_MOST_NESTED = 100
_CONTAINERS: dict[str, Callable[[], Any]] = {
    ListWrapper._object_identifier: ListWrapper,
    DictWrapper._object_identifier: DictWrapper,
    TupleWrapper._object_identifier: lambda: None,
    SignatureMap._object_identifier: lambda: SignatureMap({}),
}
_SETTERS: tuple[tuple[type, Callable[[Any, str, Any], None]], ...] = (
    (ListWrapper, restored.set_element),
    (DictWrapper, restored.set_key),
    (SignatureMap, restored.set_signature),
    (AutoTrackable, restored.set_attribute),
    (restored.RestoredResource, restored.set_resource_child),
)
_NO_SPEC = protos.FunctionSpec()


class _Damaged(ValueError):
    """A ValueError that says where the damage is."""


class ObjectLoader:
    """Makes the objects of a model, in the order in which they need each other."""

    # Variables that functions may use.
    _variable_classes: tuple[type, ...] = (Variable,)

    def __init__(self, folder: str, meta_graph: Any, options: LoadOptions):
        self._folder, self._meta_graph, self._options = folder, meta_graph, options
        self._graph = meta_graph.object_graph_def
        self._objects: list[Any] = [None] * len(self._graph.nodes)
        self._functions: dict[str, LoadedFunction] = {}
        self._bare: dict[str, Any] = {}
        self._creating: set[int] = set()

    def load(self) -> Any:
        """The root."""
        object_graph.check_references(self._graph, self._damaged)
        operations = {node.name: node for node in self._meta_graph.graph_def.node}
        for number, node in enumerate(self._graph.nodes):
            self._objects[number] = self._plain_object(number, node, operations)
        self._load_functions()
        for number, node in enumerate(self._graph.nodes):
            if _is_tuple(node):
                self._make_tuple(number, [])
        for number, node in enumerate(self._graph.nodes):
            self._set_children(number, node)
        for number, node in enumerate(self._graph.nodes):
            self._set_saveables(self._objects[number], node)
        self._restore_variables()
        for resource in self._objects:
            if isinstance(resource, restored.RestoredResource):
                self._initialize(resource)
        return self._objects[0]

    def _initialize(self, resource: restored.RestoredResource) -> None:
        resource._initialize()

    def _damaged(self, why: str) -> ValueError:
        return _Damaged(f"The SavedModel at {self._folder} is damaged: {why}")

    def _named(self, what: str, make: Callable[[], Any]) -> Any:
        """What is made for a part of the model, which an error names."""
        try:
            return make()
        except (TypeError, ValueError, KeyError) as error:
            raise (
                error if isinstance(error, _Damaged) else self._damaged(f"{what}: {error}")
            ) from None

    # Objects.

    def _plain_object(self, number: int, node: Any, operations: dict[str, Any]) -> Any:
        """The object of a node that needs no other ones; None for what comes later."""
        kind = node.WhichOneof("kind")
        if kind == "variable":
            return self._variable(number, node.variable)
        if kind == "constant":
            return self._constant(node.constant.operation, operations)
        if kind == "asset":
            return self._asset(node.asset.asset_file_def_index)
        if kind == "user_object":
            make = _CONTAINERS.get(node.user_object.identifier, restored.user_object)
            return make()
        if kind == "resource":
            return restored.RestoredResource(node.resource.device)
        if kind in ("function", "bare_concrete_function", "captured_tensor"):
            return None
        raise self._damaged(f"an object is of kind {kind}, which nobody knows")

    def _variable(self, number: int, saved: Any) -> Any:
        del number

        def make() -> Variable:
            return Variable._without_value(
                saved.name, dtypes.as_dtype(saved.dtype), TensorShape(saved.shape),
                saved.trainable, _numbered(VariableSynchronization, saved.synchronization),
                _numbered(VariableAggregation, saved.aggregation),
            )  # fmt: skip

        return self._named(f"variable {saved.name!r}", make)

    def _constant(self, operation: str, operations: dict[str, Any]) -> Any:
        node = operations.get(operation)
        if node is None or node.op != "Const" or not node.attr["value"].HasField("tensor"):
            raise self._damaged(f"the graph has no constant {operation!r}")
        value = node.attr["value"].tensor
        return self._named(operation, lambda: structured.tensor_from_message(value))

    def _asset(self, number: int) -> Asset:
        files = self._meta_graph.asset_file_def
        if not 0 <= number < len(files):
            raise self._damaged(f"file {number} of {len(files)} is named")
        return Asset(asset_path(self._folder, files[number].filename))

    # Functions.

    def _load_functions(self) -> None:
        nodes = self._graph.nodes
        library = self._meta_graph.graph_def.library
        self._library = self._named("functions", lambda: ModelFunctions(library, self._held()))
        for node in nodes:
            if node.WhichOneof("kind") == "bare_concrete_function":
                of = node.bare_concrete_function
                self._bare.setdefault(of.concrete_function_name, of)
        for number, node in enumerate(nodes):
            kind = node.WhichOneof("kind")
            if kind == "bare_concrete_function":
                name = node.bare_concrete_function.concrete_function_name
                self._objects[number] = self._function(name)
            elif kind == "function":
                self._objects[number] = self._restored_function(node.function)

    def _held(self) -> dict[tuple[str, int], tuple[Any, Any]]:
        """What ModelFunctions is told of handles."""
        nodes = self._graph.nodes
        counts = {
            function.signature.name: len(function.signature.input_arg)
            for function in self._meta_graph.graph_def.library.function
        }
        held = {}
        for name, saved in self._graph.concrete_functions.items():
            first = counts.get(name, 0) - len(saved.bound_inputs)
            for i, number in enumerate(saved.bound_inputs):
                if 0 <= number < len(nodes) and nodes[number].WhichOneof("kind") == "variable":
                    variable = nodes[number].variable
                    held[name, first + i] = variable.dtype, variable.shape
        return held

    def _restored_function(self, saved: Any) -> Any:
        overloads = [self._function(name) for name in saved.concrete_functions]
        name = overloads[0]._signature.name if overloads else "function"
        signature = read_function_spec(saved.function_spec, name, self._damaged)
        return restored.RestoredFunction(signature, overloads)

    def _function(self, name: str) -> LoadedFunction:
        known = self._functions.get(name)
        if known is None:
            known = self._functions[name] = self._named(
                f"function {name}", lambda: self._new_function(name, self._bare.get(name))
            )
        return known

    def _new_function(self, name: str, bare: Any) -> LoadedFunction:
        entry = self._library.entries.get(name)
        if entry is None or name not in self._graph.concrete_functions:
            raise self._damaged(f"there is no function {name!r}")
        saved = self._graph.concrete_functions[name]
        structure = structured.decode(saved.canonicalized_input_signature, self._damaged)
        if not (
            isinstance(structure, tuple) and len(structure) == 2
            and isinstance(structure[0], tuple) and isinstance(structure[1], dict)
        ):  # fmt: skip
            raise self._damaged(f"function {name} is traced for {structure!r:.200}")
        own = len(entry.types) - len(saved.bound_inputs)
        if own < 0:
            raise self._damaged(f"function {name} has more captures than arguments")
        names = entry.argument_names[:own]
        if bare is not None and len(bare.argument_keywords) == own:
            names = list(bare.argument_keywords)
        spec = bare.function_spec if bare is not None else _NO_SPEC
        made = LoadedFunction(
            self._library.graph, entry.name, entry.types,
            read_function_spec(spec, traced_name(name), self._damaged), structure, names,
            [self._capture(number, name) for number in saved.bound_inputs],
            structured.decode(saved.output_signature, self._damaged),
        )  # fmt: skip
        if bare is not None:
            made._most_by_place = max(bare.allowed_positional_arguments, 0)
        return made

    def _capture(self, number: int, function: str) -> Capture:
        if not 0 <= number < len(self._objects):
            raise self._damaged(f"function {function} uses object {number}, which is not there")
        found = self._objects[number]
        if type(found) in self._variable_classes:
            return Capture(found.handle, (found.dtype, sizes_of(found.shape)))
        if isinstance(found, restored.RestoredResource):
            self._create(number, found)
        tensor = found if isinstance(found, Tensor) else captured_as(found)
        if tensor is None:
            raise self._damaged(f"function {function} uses object {number}, which is no tensor")
        return Capture(tensor, None)

    def _create(self, number: int, resource: restored.RestoredResource) -> None:
        """Makes a resource, which functions use, before its other children are there."""
        if number in self._creating:
            return
        self._creating.add(number)
        for child in self._graph.nodes[number].children:
            made_by = self._graph.nodes[child.node_id]
            if child.local_name == "_create_resource" and made_by.function.concrete_functions:
                [name, *_] = made_by.function.concrete_functions
                creator = self._function(name)
                resource._track_trackable(creator, child.local_name, overwrite=True)
        resource._resource_handle = self._named(f"resource {number}", resource._create_resource)

    # References.

    def _make_tuple(self, number: int, around: list[int]) -> Any:
        """Makes the tuple of a node, and those in it first."""
        if self._objects[number] is not None:
            return self._objects[number]
        if number in around or len(around) > _MOST_NESTED:
            raise self._damaged(f"tuple {number} is an element of itself")
        pairs = []
        for child in self._graph.nodes[number].children:
            value = self._objects[child.node_id]
            if _is_tuple(self._graph.nodes[child.node_id]):
                value = self._make_tuple(child.node_id, [*around, number])
            pairs.append((child.local_name, value))
        self._objects[number] = self._named("tuple", lambda: restored.tuple_of(pairs))
        return self._objects[number]

    def _set_children(self, number: int, node: Any) -> None:
        target = self._objects[number]
        put = next((put for kind, put in _SETTERS if isinstance(target, kind)), None)
        if put is None:
            return
        for child in node.children:
            value = self._objects[child.node_id]
            if value is None:
                continue
            self._named(
                f"child {child.local_name!r} of object {number}",
                lambda value=value, name=child.local_name: put(target, name, value),
            )

    def _set_saveables(self, target: Any, node: Any) -> None:
        if not isinstance(target, restored.RestoredResource):
            return
        for name, saved in node.saveable_objects.items():
            functions = []
            for number in (saved.save_function, saved.restore_function):
                found = self._objects[number] if 0 <= number < len(self._objects) else None
                if not isinstance(found, LoadedFunction):
                    raise self._damaged(f"{name!r} of a resource is saved by object {number}")
                functions.append(found)
            target.saveable_functions[name] = (functions[0], functions[1])

    # Values.

    def _restore_variables(self) -> None:
        if self._options.experimental_skip_checkpoint:
            return
        variables = [each for each in self._objects if is_eager_variable(each)]
        prefix = os.path.join(
            self._folder, constants.VARIABLES_DIRECTORY, constants.VARIABLES_FILENAME
        )
        if not variables and not gfile.Exists(prefix + ".index"):
            return
        reader = NewCheckpointReader(prefix)
        graph = object_graph.read_graph(reader, prefix)
        if graph is None:
            raise self._damaged("its checkpoint has no objects")
        restoration = Restoration(prefix, reader, graph)
        restoration.expect_partial = True
        restoration.bind(0, self._objects[0])
        if self._options.allow_partial_checkpoint:
            return
        for variable in variables:
            if not variable.is_initialized():
                raise self._damaged(f"its checkpoint has no value for variable {variable.name}")


def _numbered(kind: Any, number: int) -> Any:
    """The constant of a class that has the number. ValueError where none has."""
    for value in vars(kind).values():
        if getattr(value, "value", None) == number:
            return value
    raise ValueError(f"{kind.__name__} {number} is none")


def _is_tuple(node: Any) -> bool:
    return (
        node.WhichOneof("kind") == "user_object"
        and node.user_object.identifier == TupleWrapper._object_identifier
    )
