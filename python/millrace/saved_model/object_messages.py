"""The objects of a model as a message, SavedObjectGraph, and what functions use from outside."""

from typing import Any

from millrace import _core, protos
from millrace.checkpoint.object_graph import ObjectGraph
from millrace.core import dtypes
from millrace.core.specs import TensorSpec
from millrace.eager.concrete import ConcreteFunction
from millrace.eager.function import Function, function
from millrace.graph import structured
from millrace.graph.convert import convert_to_tensor
from millrace.saved_model.function_messages import function_spec
from millrace.saved_model.options import VariablePolicy
from millrace.saved_model.restored import RestoredResource
from millrace.state.asset import Asset
from millrace.state.eager_variable import is_eager_variable

_DTYPES_OF_HANDLES = ("resource", "variant")


class SavedObjects:
    """The objects below a root, numbered as in their checkpoint, and behind them the tensors that
    functions capture.

    ValueError for a function that uses what is not below the root.
    """

    def __init__(self, objects: ObjectGraph):
        self.objects = objects
        # By node: the nodes of (what gives the tensors to save, what takes them), by attribute.
        self.saveables: dict[int, dict[str, tuple[int, int]]] = {}
        for node, target in enumerate(list(objects.objects)):
            functions = _saveable_functions(target)
            if functions:
                self.saveables[node] = {
                    name: (objects.add(save), objects.add(restore))
                    for name, (save, restore) in functions.items()
                }
        self.functions: dict[str, ConcreteFunction] = {}
        # Captured tensors that no object stands for, by node.
        self.constants: dict[int, Any] = {}
        self._node_of_tensor: dict[int, int] = {}
        for node, target in enumerate(objects.objects):
            tensor = captured_as(target)
            if tensor is not None:
                self._node_of_tensor[id(tensor)] = node
        for target in objects.objects:
            if isinstance(target, ConcreteFunction):
                self.functions[target.name] = target
        self._captures = {name: self._capture(f) for name, f in self.functions.items()}

    def captures(self, name: str) -> list[int]:
        """The nodes of what a function uses, in the order of its arguments."""
        return self._captures[name]

    def _capture(self, function: ConcreteFunction) -> list[int]:
        nodes = []
        for tensor in function._all_captured():
            node = self._node_of_tensor.get(id(tensor))
            if node is None:
                node = self._constant(tensor, function)
            nodes.append(node)
        return nodes

    def _constant(self, tensor: Any, function: ConcreteFunction) -> int:
        if not _core.is_eager_tensor(tensor) or tensor.dtype.name in _DTYPES_OF_HANDLES:
            raise AssertionError(
                "Tried to export a function which references an 'untracked' resource. TensorFlow "
                "objects (e.g. tf.Variable) captured by functions must be 'tracked' by assigning "
                "them to an attribute of a tracked object or assigned to an attribute of the main "
                f"object directly. The function is {function._signature.described()}, the captured "
                f"tensor {tensor!r}."
            )
        node = len(self.objects.objects) + len(self.constants)
        self.constants[node] = tensor
        self._node_of_tensor[id(tensor)] = node
        return node

    def message(
        self, assets: dict[int, int], operations: dict[int, str], policy: VariablePolicy
    ) -> Any:
        """The SavedObjectGraph.

        Args:
          assets: the number of its file for the node of each Asset.
          operations: the name in the graph for the node of each constant.
          policy: whether devices of variables are written.
        """
        out = protos.SavedObjectGraph()
        graph = self.objects
        for node, target in enumerate(graph.objects):
            written = out.nodes.add()
            for name, child in graph.children[node].items():
                written.children.add(node_id=graph.ids[id(child)], local_name=name)
            _write_kind(written, target, assets.get(node, 0), policy)
            for name, (save, restore) in self.saveables.get(node, {}).items():
                written.saveable_objects[name].save_function = save
                written.saveable_objects[name].restore_function = restore
        for owner, original, name, slot in graph.slots:
            out.nodes[owner].slot_variables.add(
                original_variable_node_id=original, slot_name=name, slot_variable_node_id=slot
            )
        for node in self.constants:
            out.nodes.add().constant.operation = operations[node]
        for name, known in self.functions.items():
            saved = out.concrete_functions[name]
            saved.bound_inputs.extend(self._captures[name])
            signature = structured.encode(known.structured_input_signature)
            saved.canonicalized_input_signature.CopyFrom(signature)
            saved.output_signature.CopyFrom(structured.encode(known.result_specs))
        return out


def captured_as(target: Any) -> Any:
    """The tensor that stands for an object where functions use it, or None."""
    if is_eager_variable(target):
        return target.handle
    if isinstance(target, Asset):
        return target.asset_path
    if is_resource(target):
        return target.resource_handle
    return None


def is_resource(target: Any) -> bool:
    """Whether an object stands for a resource, which functions make."""
    return hasattr(target, "_create_resource")


def _saveable_functions(target: Any) -> dict[str, tuple[ConcreteFunction, ConcreteFunction]]:
    """Functions that give and take what a resource has in checkpoints, by attribute."""
    if isinstance(target, RestoredResource):
        return dict(target.saveable_functions)
    if not is_resource(target) or not target._saves_tensors() or target._attribute_name is None:
        return {}
    return {target._attribute_name: _traced_saveable(target)}


def _traced_saveable(target: Any) -> tuple[ConcreteFunction, ConcreteFunction]:
    types: list[Any] = []

    def save_fn(checkpoint_key: Any) -> Any:
        tensors = target._serialize_to_tensors()
        types.extend(tensor.dtype for tensor in tensors.values())
        return [
            {"name": checkpoint_key + name, "slice_spec": convert_to_tensor(""), "tensor": tensor}
            for name, tensor in tensors.items()
        ]

    def restore_fn(*restored_tensors: Any) -> int:
        names = target._saved_names()
        target._restore_from_tensors(dict(zip(names, restored_tensors, strict=True)))
        return 1

    key = TensorSpec([], dtypes.string, "checkpoint_key")
    save = function(save_fn, autograph=False).get_concrete_function(key)
    specs = [TensorSpec(None, dtype, f"restored_tensors_{i}") for i, dtype in enumerate(types)]
    return save, function(restore_fn, autograph=False).get_concrete_function(*specs)


def _write_kind(out: Any, target: Any, asset: int, policy: VariablePolicy) -> None:
    if is_eager_variable(target):
        _write_variable(out.variable, target, policy)
    elif is_resource(target):
        out.resource.device = getattr(target, "_resource_device", "")
    elif isinstance(target, Asset):
        out.asset.asset_file_def_index = asset
    elif isinstance(target, Function):
        traced = target._trackable_children("savedmodel").values()
        out.function.concrete_functions.extend([known.name for known in traced])
        out.function.function_spec.CopyFrom(function_spec(target.function_spec))
    elif isinstance(target, ConcreteFunction):
        _write_concrete(out.bare_concrete_function, target)
    else:
        out.user_object.identifier = target._object_identifier
        out.user_object.version.producer = 1
        out.user_object.version.min_consumer = 1


def _write_variable(out: Any, variable: Any, policy: VariablePolicy) -> None:
    out.dtype = variable.dtype.as_datatype_enum
    out.shape.CopyFrom(variable.shape.as_proto())
    out.trainable = variable.trainable
    out.synchronization = variable.synchronization.value
    out.aggregation = variable.aggregation.value
    out.name = variable._shared_name
    if policy is not VariablePolicy.NONE:
        out.device = variable.device


def _write_concrete(out: Any, function: ConcreteFunction) -> None:
    slots = function._slots()
    out.concrete_function_name = function.name
    out.argument_keywords.extend([slot.name for slot in slots])
    most = function._most_by_place
    out.allowed_positional_arguments = len(slots) if most is None else most
    out.function_spec.CopyFrom(function_spec(function._signature))
