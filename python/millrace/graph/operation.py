"""A node of a graph."""

from collections import namedtuple
from typing import TYPE_CHECKING, Any

from millrace import _core, protos
from millrace.core import dtypes
from millrace.core.device import device_text
from millrace.core.export import export
from millrace.graph.default_session import session_for

if TYPE_CHECKING:
    from millrace.core.tensor import Tensor
    from millrace.graph.graph import Graph


def result_class(op: str, names: list[str]) -> type:
    """The class of what an op with several outputs returns."""
    return namedtuple(op, [n + "_" if n in ("def", "lambda", "from") else n for n in names])


@export(v1="Operation", v2="Operation")
class Operation:
    """A node of a graph. Made by the functions of ops; `run()` runs it."""

    __slots__ = ("__dict__", "__weakref__", "_id", "_outputs", "graph")

    graph: "Graph"
    _id: int
    _outputs: list["Tensor"]

    @property
    def name(self) -> str:
        """The full name, unique in the graph."""
        return self.graph._node_name(self._id)

    @property
    def type(self) -> str:
        """The op: "MatMul"."""
        return self.graph._node_type(self._id)

    @property
    def outputs(self) -> list["Tensor"]:
        """The tensors that it makes."""
        return self._outputs

    @property
    def inputs(self) -> "_Inputs":
        """The tensors that it takes."""
        return _Inputs(self.graph._node_inputs(self._id))

    @property
    def _input_types(self) -> list[dtypes.DType]:
        return self.graph._node_input_types(self._id)

    @property
    def control_inputs(self) -> list["Operation"]:
        """The operations that run before it, besides those that make its inputs."""
        return self.graph._node_control_inputs(self._id)

    @property
    def device(self) -> str:
        """Where it was asked to run; empty where nobody asked."""
        return self.graph._node_device(self._id)

    @property
    def node_def(self) -> Any:
        """The node as a NodeDef."""
        whole = protos.GraphDef.FromString(self.graph._graph_def(self._id, self._id + 1))
        node = whole.node[0]
        if "_mr_origin" in node.attr:  # where it was made, for messages
            del node.attr["_mr_origin"]
        return node

    @property
    def op_def(self) -> Any:
        """The op's definition as an OpDef."""
        return protos.OpDef.FromString(_core.op_def(self.type))

    @property
    def traceback(self) -> list[tuple[str, int, str, str]]:
        """Where it was made: [(file, line, function, text)] with the user's innermost frame."""
        origin = self.graph._node_origin(self._id)
        return [origin] if origin[0] else []

    @property
    def _original_op(self) -> "Operation | None":
        """What it was made for, inside `Graph._original_op`."""
        return self.graph._originals.get(self._id)

    @property
    def _is_stateful(self) -> bool:
        return self.graph._node_stateful(self._id)

    def get_attr(self, name: str) -> Any:
        """The value of an attribute. ValueError when there is none of that name."""
        return self.graph._node_attr(self._id, name)

    def _set_attr(self, name: str, value: Any) -> None:
        if hasattr(value, "SerializeToString"):  # an AttrValue
            field = value.WhichOneof("value")
            value = getattr(value, field)
            if field == "list":
                value = list(value.s)
        self.graph._set_node_attr(self._id, name, value)

    def _set_device(self, device: Any) -> None:
        self.graph._set_node_device(self._id, device_text(device))

    def colocation_groups(self) -> list[bytes]:
        """The groups of operations that run where this one does: [b"loc:@name"]."""
        if "_class" in self.graph._node_attr_names(self._id):
            groups = [g for g in self.get_attr("_class") if g.startswith(b"loc:@")]
            if groups:
                return groups
        return [b"loc:@" + self.name.encode()]

    def values(self) -> tuple["Tensor", ...]:
        """The outputs as a tuple."""
        return tuple(self._outputs)

    def run(self, feed_dict: Any = None, session: Any = None) -> None:
        """Runs it in the session given, or in the default one."""
        session_for(session, self.graph, "run this operation").run(self, feed_dict)

    def consumers(self) -> list["Operation"]:
        """The operations that take one of its outputs."""
        return [op for out in self._outputs for op in out.consumers()]

    def _as_graph_element(self) -> "Operation":
        return self

    def _add_control_input(self, op: "Operation") -> None:
        self.graph._add_control_input(self._id, op._id)

    def _update_input(self, index: int, tensor: "Tensor") -> None:
        """Closes a loop of primitives: input `index` of this Merge becomes the tensor."""
        self.graph._set_back_edge(self._id, index, tensor._id, tensor._index)

    def _add_control_inputs(self, ops: list["Operation"]) -> None:
        for op in ops:
            self._add_control_input(op)

    def __repr__(self) -> str:
        return f"<tf.Operation '{self.name}' type={self.type}>"

    def __str__(self) -> str:
        return str(self.node_def)

    def __copy__(self) -> "Operation":
        return self

    def __deepcopy__(self, memo: Any) -> "Operation":
        return self

    def __reduce__(self) -> Any:
        raise TypeError(f"the operation {self.name!r} belongs to a graph and cannot be pickled")


class _Inputs(list):
    """The inputs of an operation; equal to a list or tuple of the same tensors."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (list, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(a is b for a, b in zip(self, other, strict=True))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None
