"""Objects of a model in a graph for sessions: variables and tables are the graph's."""

import os
from typing import Any

from millrace import _core, gen_ops
from millrace.checkpoint import object_graph
from millrace.checkpoint.reader import NewCheckpointReader
from millrace.core import dtypes
from millrace.core.shapes import TensorShape
from millrace.core.trackable import VARIABLE_VALUE
from millrace.graph.convert import convert_to_tensor
from millrace.graph.keys import GraphKeys, add_to_collection
from millrace.saved_model import constants, restored
from millrace.saved_model.object_loader import ObjectLoader
from millrace.state.asset import Asset
from millrace.state.resource_variable import ResourceVariable


class GraphLoader(ObjectLoader):
    """Makes the objects of a model in the default graph. Variables begin with the values of the
    checkpoint; tables are filled by `tf.tables_initializer()`."""

    _variable_classes = (ResourceVariable,)

    def load(self) -> Any:
        self._prefix = os.path.join(
            self._folder, constants.VARIABLES_DIRECTORY, constants.VARIABLES_FILENAME
        )
        self._keys: dict[int, str] | None = None
        return super().load()

    def _variable(self, number: int, saved: Any) -> Any:
        if self._keys is None:
            self._keys = self._checkpoint_keys()
        key = self._keys.get(number)
        if key is None:
            raise self._damaged(f"its checkpoint has no value for variable {saved.name}")

        def make() -> ResourceVariable:
            shape, dtype = TensorShape(saved.shape), dtypes.as_dtype(saved.dtype)
            prefix = convert_to_tensor(self._prefix)
            found = gen_ops.restore_v2(prefix, [key], [""], [dtype])
            value = found[0] if isinstance(found, (list, tuple)) else found
            value.set_shape(shape)
            # Whether it is trained here is for those to say who train.
            made = ResourceVariable(
                value, trainable=False, name=saved.name or None, shape=shape,
                collections=[GraphKeys.GLOBAL_VARIABLES],
            )  # fmt: skip
            made._trainable = saved.trainable
            return made

        return self._named(f"variable {saved.name!r}", make)

    def _checkpoint_keys(self) -> dict[int, str]:
        """The keys of variables' values in the checkpoint, by their nodes here: the two graphs of
        objects have the same names."""
        reader = NewCheckpointReader(self._prefix)
        written = object_graph.read_graph(reader, self._prefix)
        if written is None:
            raise self._damaged("its checkpoint has no objects")
        pairs = [(0, 0)]
        there = {0: 0}
        for here, node in pairs:
            children = {c.local_name: c.node_id for c in written.nodes[node].children}
            for child in self._graph.nodes[here].children:
                other = children.get(child.local_name)
                if other is not None and child.node_id not in there:
                    there[child.node_id] = other
                    pairs.append((child.node_id, other))
        return {
            here: attribute.checkpoint_key
            for here, node in there.items()
            for attribute in written.nodes[node].attributes
            if attribute.name == VARIABLE_VALUE
        }

    def _constant(self, operation: str, operations: dict[str, Any]) -> Any:
        with _core.init_scope():
            value = super()._constant(operation, operations)
        return convert_to_tensor(value.numpy(), value.dtype)

    def _asset(self, number: int) -> Asset:
        with _core.init_scope():
            asset = super()._asset(number)
        asset._path = convert_to_tensor(asset._path.numpy(), dtypes.string, name="asset_path")
        add_to_collection(GraphKeys.ASSET_FILEPATHS, asset._path)
        return asset

    def _initialize(self, resource: restored.RestoredResource) -> None:
        filled = resource._initialize()
        if filled is not None:
            add_to_collection(GraphKeys.TABLE_INITIALIZERS, filled.op)

    def _restore_variables(self) -> None:
        """Nothing: initialisers do."""
