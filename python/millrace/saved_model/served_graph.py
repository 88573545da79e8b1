"""The graph of a model that functions were saved into: what sessions and servers run.

Its signatures are calls of functions; variables and files are nodes of their own, which the graph
restores and fills in as graphs of TensorFlow 1 do.
"""

import functools
from typing import Any, Callable, NamedTuple

from millrace import gen_ops, protos
from millrace.checkpoint.foreign_functions import called_functions, rename_functions
from millrace.checkpoint.object_graph import OBJECT_GRAPH_KEY
from millrace.core import dtypes
from millrace.core.shapes import TensorShape
from millrace.eager.concrete import ConcreteFunction
from millrace.eager.function import Function
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies, device
from millrace.graph.graph import Graph
from millrace.graph.tensor_util import make_tensor_proto
from millrace.saved_model import constants
from millrace.saved_model.object_messages import SavedObjects, is_resource
from millrace.saved_model.signature_functions import SignatureMap
from millrace.saved_model.signatures import build_signature_def, build_tensor_info
from millrace.state.asset import Asset
from millrace.state.eager_variable import is_eager_variable


class ServedGraph:
    """The graph for some objects and their signatures.

    Args:
      saved: the objects.
      objects_message: the TrackableObjectGraph of their checkpoint.
    """

    def __init__(self, saved: SavedObjects, objects_message: Any):
        self._saved = saved
        self.graph = Graph()
        message = protos.GraphDef(library=_library(list(saved.functions.values())))
        self.graph._import(message.SerializeToString(), "", [], [], "", False, [])
        # By node: the tensor that calls of functions are given for it; the name of a constant.
        self._tensors: dict[int, Any] = {}
        self.operations: dict[int, str] = {}
        # By node: the name of the tensor that is fed a file's path.
        self.asset_feeds: dict[int, str] = {}
        self._saved_parts: list[_SavedPart] = []
        objects = saved.objects
        self._values = [objects.values(node) for node in range(len(objects.objects))]
        with self.graph.as_default():
            self._add_constants()
            init = self._add_objects()
            init += self._add_resources()
            self._saver = self._add_saver(objects_message)
            with control_dependencies(init):
                self._init = gen_ops.no_op(name="init")

    def _add_objects(self) -> list[Any]:
        """Adds variables and files. Gives the operations that fill in files' paths."""
        init = []
        objects = self._saved.objects
        for node, target in enumerate(objects.objects):
            if is_eager_variable(target):
                handle = self._handle(target.dtype, target.shape, target._shared_name)
                self._tensors[node] = handle
                [value] = self._values[node]
                self._saved_parts.append(_variable_part(value.key, handle, target.dtype))
            elif isinstance(target, Asset):
                # The path is fed where the graph is made ready, and kept for what runs later.
                path = gen_ops.placeholder(dtypes.string, [], name="asset_path")
                handle = self._handle(dtypes.string, [], "asset")
                init.append(gen_ops.assign_variable_op(handle, path))
                self.asset_feeds[node] = path.name
                self._tensors[node] = gen_ops.read_variable_op(handle, dtypes.string)
        return init

    def _add_resources(self) -> list[Any]:
        """Adds calls that make resources. Gives the operations that fill them."""
        objects, init = self._saved.objects, []
        resources = [
            node for node, target in enumerate(objects.objects)
            if is_resource(target)
        ]  # fmt: skip
        for node in resources:
            [self._tensors[node]] = self._call(objects.children[node]["_create_resource"], [])
        for node in resources:
            if "_initialize" in objects.children[node]:
                init += self._call(objects.children[node]["_initialize"], [])
        for node in self._saved.saveables:
            self._add_saveables(node)
        return init

    def _add_saveables(self, node: int) -> None:
        functions = self._saved.objects.objects
        values = self._values[node]
        for name, (save, restore) in self._saved.saveables[node].items():
            own = [value for value in values if value.name == name]
            saved = functions[save]
            outputs = saved._packed(self._call(saved, [convert_to_tensor(name)]))
            self._saved_parts.append(
                _SavedPart(
                    [value.key for value in own], [value.tensor.dtype for value in own],
                    [part["tensor"] for part in outputs],
                    functools.partial(self._call, functions[restore]),
                )
            )  # fmt: skip

    def _call(self, of: Any, inputs: list[Any]) -> list[Any]:
        """Adds a call of a function, or of what was traced first of a tf.function."""
        if isinstance(of, Function):
            [of, *_] = of._list_all_concrete_functions()
        captured = [self._tensors[node] for node in self._saved.captures(of.name)]
        return of.add_call(self.graph, [*inputs, *captured])

    def _handle(self, dtype: Any, shape: Any, name: str) -> Any:
        name = self.graph.unique_name(name, mark_as_used=False)
        return gen_ops.var_handle_op(dtype, shape, shared_name=name, name=name)

    def _add_constants(self) -> None:
        for node, tensor in self._saved.constants.items():
            with device("/device:CPU:0"):
                made = convert_to_tensor(tensor.numpy(), tensor.dtype, name="Const")
            self._tensors[node] = made
            self.operations[node] = made.op.name

    def _add_saver(self, objects_message: Any) -> Any:
        filename = gen_ops.placeholder(dtypes.string, [], name="saver_filename")
        keys = [key for part in self._saved_parts for key in part.keys]
        tensors = [tensor for part in self._saved_parts for tensor in part.tensors]
        types = [dtype for part in self._saved_parts for dtype in part.types]
        names = [*keys, OBJECT_GRAPH_KEY]
        tensors.append(convert_to_tensor(objects_message.SerializeToString()))
        save = gen_ops.save_v2(filename, names, [""] * len(names), tensors)
        with control_dependencies([save]):
            saved = gen_ops.identity(filename, name="saver_save")
        restored = []
        if keys:
            found = gen_ops.restore_v2(filename, keys, [""] * len(keys), types)
            values = iter(found if isinstance(found, (list, tuple)) else [found])
            for part in self._saved_parts:
                restored += part.restore([next(values) for _ in part.keys])
        with control_dependencies(restored):
            restore = gen_ops.no_op(name="saver_restore")
        return protos.SaverDef(
            filename_tensor_name=filename.name, save_tensor_name=saved.name,
            restore_op_name=restore.name, version=protos.SaverDef.V2,
        )  # fmt: skip

    def meta_graph(self, signatures: SignatureMap) -> Any:
        """The MetaGraphDef, without the objects."""
        out = protos.MetaGraphDef()
        with self.graph.as_default():
            for key in sorted(signatures):
                out.signature_def[key].CopyFrom(self._signature(key, signatures[key]))
        init = out.signature_def[constants.INIT_OP_SIGNATURE_KEY]
        init.outputs[constants.INIT_OP_SIGNATURE_KEY].name = self._init.name
        init.outputs[constants.INIT_OP_SIGNATURE_KEY].tensor_shape.unknown_rank = True
        out.collection_def[constants.MAIN_OP_KEY].node_list.value.append(self._init.name)
        out.graph_def.CopyFrom(self.graph.as_graph_def())
        _drop_stand_ins(
            out.graph_def, {f.name for f in self._saved.functions.values() if not f.graph.outputs}
        )
        self._write_texts(out.graph_def)
        _forget_origins(out.graph_def)
        out.saver_def.CopyFrom(self._saver)
        return out

    def _write_texts(self, graph_def: Any) -> None:
        """Constants that are texts, in the form that TensorFlow reads from Python."""
        texts = {
            self.operations[node]: tensor for node, tensor in self._saved.constants.items()
            if tensor.dtype == dtypes.string
        }  # fmt: skip
        for node in graph_def.node if texts else ():
            if node.name in texts:
                message = make_tensor_proto(texts[node.name].numpy(), dtypes.string)
                node.attr["value"].tensor.CopyFrom(message)

    def _signature(self, key: str, function: ConcreteFunction) -> Any:
        inputs = {
            slot.name: gen_ops.placeholder(
                slot.value.dtype, TensorShape(shape), name=f"{key}_{slot.name}"
            )
            for slot, shape in zip(function._slots(), function._shapes, strict=True)
        }
        results = function._packed(self._call(function, list(inputs.values())))
        return build_signature_def(
            {name: build_tensor_info(tensor) for name, tensor in inputs.items()},
            {name: build_tensor_info(tensor) for name, tensor in results.items()},
            constants.PREDICT_METHOD_NAME,
        )


class _SavedPart(NamedTuple):
    """Tensors of a checkpoint: keys, types, tensors to save, and what adds the operations that
    take restored ones."""

    keys: list[str]
    types: list[Any]
    tensors: list[Any]
    restore: Callable[[list[Any]], list[Any]]


def _variable_part(key: str, handle: Any, dtype: Any) -> _SavedPart:
    def restore(tensors: list[Any]) -> list[Any]:
        return [gen_ops.assign_variable_op(handle, tensors[0])]

    return _SavedPart([key], [dtype], [gen_ops.read_variable_op(handle, dtype)], restore)


def _library(functions: list[ConcreteFunction]) -> Any:
    """The functions and those that they call, as messages."""
    holder = Graph(True)
    with holder.as_default():
        for function in functions:
            inputs = [gen_ops.placeholder(dtype) for dtype in function._callee.inputs]
            function.add_call(holder, inputs)
    return protos.GraphDef.FromString(holder._functions_def()).library


def _drop_stand_ins(graph_def: Any, empty: set[str]) -> None:
    """Functions that return nothing have a result here that waits for what they do; in a model they
    have none. For those that call them the one with the result stays, under another name."""
    library = graph_def.library
    functions = [f for f in library.function if f.signature.name in empty and f.ret]
    kept = {f.signature.name: f"{f.signature.name}_awaited" for f in functions}
    called = called_functions(graph_def.node)
    called |= called_functions(node for f in library.function for node in f.node_def)
    for function in functions:
        if function.signature.name in called:
            copy = protos.FunctionDef()
            copy.CopyFrom(function)
            copy.signature.name = kept[function.signature.name]
            library.function.append(copy)
    rename_functions(graph_def.node, kept)
    for function in library.function:
        rename_functions(function.node_def, kept)
    for function in library.function:
        if function.signature.name in kept:
            [result] = function.ret.values()
            function.control_ret["done"] = result.partition(":")[0]
            function.signature.control_output.append("done")
            function.ret.clear()
            del function.signature.output_arg[:]


def _forget_origins(graph_def: Any) -> None:
    """Where a program made a node is no part of a model."""
    for nodes in (graph_def.node, *(f.node_def for f in graph_def.library.function)):
        for node in nodes:
            if "_mr_origin" in node.attr:
                del node.attr["_mr_origin"]
