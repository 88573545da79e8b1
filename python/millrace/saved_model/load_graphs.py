"""SavedModels of graphs for sessions, as objects: their signatures become functions."""

import os
from typing import Any, Callable

from millrace import protos
from millrace.checkpoint.foreign_functions import rename_functions
from millrace.checkpoint.reader import NewCheckpointReader
from millrace.checkpoint.restoration import restore_tensors
from millrace.core import dtypes, nest
from millrace.core.shapes import TensorShape
from millrace.core.specs import TensorSpec
from millrace.core.tracked_data import AutoTrackable
from millrace.eager import tape
from millrace.eager.concrete import ConcreteFunction, symbolic
from millrace.eager.function import function
from millrace.graph.graph import Graph
from millrace.graph.graph_util import extract_sub_graph
from millrace.graph.importer import import_graph_def
from millrace.graph.keys import GraphKeys
from millrace.saved_model import constants
from millrace.saved_model.assets import asset_feeds
from millrace.saved_model.function_library import ModelFunctions, mark_resources
from millrace.saved_model.loader import init_op_name
from millrace.saved_model.options import LoadOptions
from millrace.saved_model.signature_functions import SignatureMap
from millrace.state.asset import Asset
from millrace.state.eager_variable import Variable
from millrace.state.variable import VariableAggregation, VariableSynchronization

_HANDLES, _REFERENCES = ("VarHandleOp",), ("VariableV2", "Variable")


def load_graph(folder: str, meta_graph: Any, options: LoadOptions) -> Any:
    """The object for a MetaGraph: `variables`, `signatures`, `asset_paths`, `graph`, and
    `prune(feeds, fetches)`, a function from tensors of the graph to others, by their names.

    ValueError for a signature that cannot be a function: one of sparse tensors, or one that assigns
    to reference variables. KeyError for a tensor that the graph does not have.
    """
    model = _Model(folder, meta_graph)
    if not options.experimental_skip_checkpoint:
        model.restore(options.allow_partial_checkpoint)
    root = AutoTrackable()
    root.variables = list(model.variables.values())
    root.asset_paths = list(model.assets.values())
    init = init_op_name(meta_graph)
    if init is not None:
        model.pruned([], init, "initializer")()
    signatures = {}
    for key, signature in meta_graph.signature_def.items():
        if key not in (constants.INIT_OP_SIGNATURE_KEY, constants.TRAIN_OP_SIGNATURE_KEY):
            signatures[key] = model.signature(key, signature)
    root.signatures = SignatureMap(signatures)
    root.graph = model.graph
    root.prune = model.pruned
    return root


class _Model:
    """A graph whose variables are variables outside of it."""

    def __init__(self, folder: str, meta_graph: Any):
        self._folder = folder
        self._graph_def = protos.GraphDef()
        self._graph_def.CopyFrom(meta_graph.graph_def)
        self.graph = Graph()
        with self.graph.as_default():
            import_graph_def(self._graph_def, name="")
        library = ModelFunctions(self._graph_def.library, {})
        self._graph_def.ClearField("library")
        rename_functions(self._graph_def.node, library.names)
        mark_resources(self._graph_def.node)
        trained = _trained_names(meta_graph)
        self.variables: dict[str, Variable] = {}
        for node in self._graph_def.node:
            if node.op in _HANDLES + _REFERENCES:
                self.variables[node.name] = _variable(node, node.name in trained)
        # By the tensor that holds the path.
        self.assets = {
            tensor: Asset(path) for tensor, path in asset_feeds(folder, meta_graph, None).items()
        }

    def restore(self, partial: bool) -> None:
        """Gives the variables the values of the checkpoint. ValueError where one has none."""
        prefix = os.path.join(
            self._folder, constants.VARIABLES_DIRECTORY, constants.VARIABLES_FILENAME
        )
        if not self.variables:
            return
        types = NewCheckpointReader(prefix).get_variable_to_dtype_map()
        names = [name for name in self.variables if name in types]
        if len(names) < len(self.variables) and not partial:
            missing = sorted(set(self.variables) - set(names))
            raise ValueError(f"The checkpoint {prefix} has no value for {', '.join(missing)}")
        if names:
            values = restore_tensors(prefix, names, [types[name] for name in names])
            for name, value in zip(names, values, strict=True):
                self.variables[name].assign(value)

    def signature(self, key: str, signature: Any) -> ConcreteFunction:
        """A signature as a function from tensors by name to tensors by name."""
        names = sorted(signature.outputs)
        infos = {**dict(signature.inputs.items()), **dict(signature.outputs.items())}
        for name, info in infos.items():
            if info.WhichOneof("encoding") != "name":
                raise ValueError(f"{name!r} of the signature {key!r} is no dense tensor")
        specs, feeds = {}, {}
        for name, info in signature.inputs.items():
            dtype = dtypes.as_dtype(info.dtype)
            specs[name] = TensorSpec(TensorShape(info.tensor_shape), dtype, name)
            feeds[name] = self._element(info.name).name
        fetches = [self._element(signature.outputs[name].name).name for name in names]
        made = self._function(
            f"signature_{key}", specs, feeds, fetches,
            lambda found: dict(zip(names, found, strict=True)),
        )  # fmt: skip
        made._most_by_place = 1 if len(specs) == 1 else 0
        return made

    def pruned(self, feeds: Any, fetches: Any, name: str | None = None) -> ConcreteFunction:
        """A function from some tensors of the graph to others, or to operations: names, or what
        `graph` has. Called with tensors in the order of the feeds."""
        given = [self._element(feed) for feed in nest.flatten(feeds)]
        wanted = nest.flatten(fetches)
        specs = {
            f"feed_{i:05}": TensorSpec(tensor.shape, tensor.dtype) for i, tensor in enumerate(given)
        }
        inputs = {key: tensor.name for key, tensor in zip(specs, given, strict=True)}
        return self._function(
            name or "pruned", specs, inputs, [self._element(fetch).name for fetch in wanted],
            lambda found: nest.pack_sequence_as(fetches, found),
        )  # fmt: skip

    def _element(self, of: Any) -> Any:
        return self.graph.as_graph_element(of if isinstance(of, str) else of.name)

    def _function(
        self, name: str, specs: dict[str, TensorSpec], feeds: dict[str, str], fetches: list[str],
        packed: Callable[[list[Any]], Any],
    ) -> ConcreteFunction:  # fmt: skip
        part = self._part(feeds.values(), fetches)
        there = {node.name for node in part.node}

        def run(**tensors: Any) -> Any:
            values = {node: variable for node, variable in self.variables.items() if node in there}
            mapped = {f"{node}:0": self._used(node, v) for node, v in values.items()}
            for tensor, asset in self.assets.items():
                if tensor.partition(":")[0] in there:
                    mapped[tensor] = symbolic(asset.asset_path)
            mapped |= {feed: tensors[key] for key, feed in feeds.items()}
            return packed(import_graph_def(part, mapped, fetches, name="") or [])

        run.__name__ = name
        return function(run, autograph=False).get_concrete_function(**specs)

    def _used(self, node: str, variable: Variable) -> Any:
        """What stands for a variable in the graph: the handle, or the value of a reference."""
        if self.graph.get_operation_by_name(node).type in _REFERENCES:
            return variable.value()
        if variable.trainable:
            tape.variable_read(variable.handle)
        return symbolic(variable.handle)

    def _part(self, feeds: Any, fetches: list[str]) -> Any:
        """What is needed for the fetches: from the feeds on, where these are all of a node."""
        stops = {feed.partition(":")[0] for feed in feeds}
        stops = {name for name in stops if len(self.graph.get_operation_by_name(name).outputs) == 1}
        stops |= self.variables.keys()
        cut = protos.GraphDef()
        cut.versions.CopyFrom(self._graph_def.versions)
        for node in self._graph_def.node:
            if node.name in stops:
                tensor = self.graph.get_operation_by_name(node.name).outputs[0]
                added = cut.node.add(name=node.name, op="Placeholder")
                added.attr["dtype"].type = tensor.dtype.base_dtype.as_datatype_enum
                added.attr["shape"].shape.CopyFrom(tensor.shape.as_proto())
            else:
                cut.node.add().CopyFrom(node)
        return extract_sub_graph(cut, list({name.partition(":")[0] for name in fetches}))


def _trained_names(meta_graph: Any) -> set[str]:
    """The names of the variables that are trained, as far as the collections tell."""
    names = set()
    key = GraphKeys.TRAINABLE_VARIABLES
    if key in meta_graph.collection_def:
        for data in meta_graph.collection_def[key].bytes_list.value:
            try:
                variable = protos.VariableDef.FromString(data)
            except protos.DecodeError as error:
                raise ValueError(
                    f"the collection {key} holds what is no variable: {error}"
                ) from None
            names.add(variable.variable_name.partition(":")[0])
    return names


def _variable(node: Any, trainable: bool) -> Variable:
    shape = TensorShape(node.attr["shape"].shape)
    dtype = dtypes.as_dtype(node.attr["dtype"].type)
    auto, none = VariableSynchronization.AUTO, VariableAggregation.NONE
    return Variable._without_value(node.name, dtype, shape, trainable, auto, none)
