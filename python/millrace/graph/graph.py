"""Graph: what operations go into, and the body of a function while it is built."""

import re
import threading
from typing import Any

from millrace import _core, protos
from millrace.core.device import device_text, merge_device
from millrace.core.export import export
from millrace.core.suggest import nearest_names
from millrace.graph.operation import Operation
from millrace.graph.other_graph import where_of
from millrace.graph.scopes import (
    AsDefault,
    ColocateWith,
    ContainerScope,
    ControlDependencies,
    DeviceScope,
    NameScope,
    OriginalOp,
    Overrides,
)
from millrace.graph.tensor import SymbolicTensor


class _ThreadDevices(threading.local):
    def __init__(self, first: list[Any]):
        self.stack = list(first)


@export(v1="Graph", v2="Graph")
class Graph(_core.GraphBase):
    """A dataflow graph. `with graph.as_default():` makes operations go into it.

    Not to be added to by two threads at once. Open name scopes and control dependencies are those
    of a thread, devices and colocations those of all until `switch_to_thread_local()`.
    """

    _is_function = False
    # Whether this is the body of a branch or loop.
    is_control_flow_graph = False

    def __init__(self, *args: Any):
        super().__init__(*args)
        self._operations: list[Operation | None] = []
        self._set_python(self._operations)
        self._collections: dict[Any, list[Any]] = {}
        self._shared_devices: list[Any] = []
        self._thread_devices: _ThreadDevices | None = None
        self._seed: int | None = None
        self._unfeedable: set[SymbolicTensor] = set()
        self._unfetchable: set[Any] = set()
        self._functions: dict[str, Any] = {}
        self._variable_store: Any = None
        self._container = ""
        self._originals: dict[int, Operation] = {}
        self._local: dict[str, Any] = {}

    # Operations.

    def get_operations(self) -> list[Operation]:
        """All operations, in the order in which they were made."""
        return [self._operation(i) for i in range(self._num_nodes)]

    def get_operation_by_name(self, name: str) -> Operation:
        """The operation of that full name. KeyError when there is none."""
        if not isinstance(name, str):
            raise TypeError(f"Operation names are strings (or similar), not {type(name).__name__}.")
        return self.as_graph_element(name, allow_tensor=False, allow_operation=True)

    def get_tensor_by_name(self, name: str) -> SymbolicTensor:
        """The tensor "operation:output". KeyError when there is none, ValueError for a bad name."""
        if not isinstance(name, str):
            raise TypeError(f"Tensor names are strings (or similar), not {type(name).__name__}.")
        return self.as_graph_element(name, allow_tensor=True, allow_operation=False)

    def _get_operation_by_name_unsafe(self, name: str) -> Operation:
        return self.get_operation_by_name(name)

    def as_graph_element(
        self, obj: Any, allow_tensor: bool = True, allow_operation: bool = True
    ) -> Any:
        """The operation or tensor that an object stands for: itself, a name, a variable.

        TypeError for an object that stands for neither, KeyError for a name that is not there.
        """
        what = " or ".join(
            kind
            for kind, allowed in (("Tensor", allow_tensor), ("Operation", allow_operation))
            if allowed
        )
        if isinstance(obj, bytes):
            obj = obj.decode()
        if isinstance(obj, str):
            return self._named_element(obj, allow_tensor, allow_operation, what)
        convert = getattr(obj, "_as_graph_element", None)
        if convert is not None:
            obj = convert()
        if (isinstance(obj, SymbolicTensor) and allow_tensor) or (
            isinstance(obj, Operation) and allow_operation
        ):
            if obj.graph is not self:
                inside = isinstance(obj.graph, FunctionGraph)
                hint = (
                    " It was made inside a branch, loop body or function, where it has a value for "
                    f"each time that runs: return it from there.{where_of(obj)}"
                    if inside
                    else ""
                )
                raise ValueError(f"{obj} is not an element of this graph.{hint}")
            return obj
        raise TypeError(f"Can not convert a {type(obj).__name__} into a {what}.")

    def _named_element(self, name: str, tensors: bool, operations: bool, what: str) -> Any:
        node, colon, index = name.partition(":")
        if colon and tensors:
            if not index.isdigit():
                raise ValueError(
                    f"The name {name!r} looks like a (invalid) Tensor name, but is not a "
                    "valid one: "
                    'Tensor names must be of the form "<op_name>:<output_index>".'
                )
            found = self._find(node)
            if found < 0:
                raise KeyError(
                    f"The name {name!r} refers to a Tensor which does not exist. The operation, "
                    f"{node!r}, does not exist in the graph.{self._nearest(node)}"
                )
            outputs = self._operation(found).outputs
            if int(index) >= len(outputs):
                raise KeyError(
                    f"The name {name!r} refers to a Tensor which does not exist. The operation, "
                    f"{node!r}, exists but only has {len(outputs)} outputs."
                )
            return outputs[int(index)]
        if colon:
            raise ValueError(f"Name {name!r} appears to refer to a Tensor, not a {what}.")
        if not operations:
            known = self._find(name) >= 0
            hint = f' Perhaps you meant "{name}:0"?' if known else ""
            raise ValueError(
                f"The name {name!r} refers to an Operation, not a {what}. Tensor names must be of "
                f'the form "<op_name>:<output_index>".{hint}'
            )
        found = self._find(name)
        if found < 0:
            raise KeyError(
                f"The name {name!r} refers to an Operation not in the graph.{self._nearest(name)}"
            )
        return self._operation(found)

    def _nearest(self, name: str) -> str:
        names = [self._node_name(i) for i in range(min(self._num_nodes, 20000))]
        return nearest_names(name, names)

    def create_op(
        self, op_type: str, inputs: Any, dtypes: Any = None, input_types: Any = None,
        name: str | None = None, attrs: Any = None, op_def: Any = None,
        compute_shapes: bool = True, compute_device: bool = True,
    ) -> Operation:  # fmt: skip
        """Adds an operation with everything given: the way in for tools, not for programs."""
        del dtypes, input_types, op_def, compute_shapes, compute_device
        values = {}
        for key, value in (attrs or {}).items():
            if hasattr(value, "WhichOneof"):
                field = value.WhichOneof("value")
                value = getattr(value, field)
                if field == "list":
                    value = next((list(v) for _, v in value.ListFields()), [])
            values[key] = value
        tensors = [self.as_graph_element(i, allow_operation=False) for i in inputs]
        return _core.create_op(
            self, op_type, tensors, _core.full_name(self, name or op_type), values
        )

    @property
    def version(self) -> int:
        """Grows with every operation."""
        return self._num_nodes

    @property
    def graph_def_versions(self) -> Any:
        """The versions of the graph format, as a VersionDef."""
        return protos.VersionDef(producer=self._producer, min_consumer=0)

    @property
    def seed(self) -> int | None:
        """The seed that random operations of this graph take theirs from."""
        return root_graph(self)._seed

    @seed.setter
    def seed(self, seed: int | None) -> None:
        root_graph(self)._seed = seed

    @property
    def finalized(self) -> bool:
        """Whether nothing can be added any more."""
        return self._finalized

    def finalize(self) -> None:
        """Makes every later attempt to add an operation an error."""
        self._finalized = True

    def _unsafe_unfinalize(self) -> None:
        self._finalized = False

    def _check_not_finalized(self) -> None:
        if self._finalized:
            raise RuntimeError("Graph is finalized and cannot be modified.")

    @property
    def building_function(self) -> bool:
        """Whether this is the body of a function."""
        return self._is_function

    def as_graph_def(self, from_version: int | None = None, add_shapes: bool = False) -> Any:
        """The graph as a GraphDef, from operation number `from_version` on.

        In a whole graph, control flow that takes references of variables is written as Switch,
        Merge and so on, since TensorFlow reads it in no other form.
        """
        begin, end = from_version or 0, self.version
        graph_def = protos.GraphDef.FromString(self._graph_def(begin, -1))
        if add_shapes:
            for i, node in zip(range(begin, end), graph_def.node, strict=False):
                operation = self._operation(i)
                outputs = operation.outputs if operation.type == node.op else ()
                if outputs:
                    shapes = node.attr["_output_shapes"].list.shape
                    for out in outputs:
                        out.shape.write_to(shapes.add())
        return graph_def

    def is_feedable(self, tensor: Any) -> bool:
        """Whether a value may be fed for the tensor."""
        return tensor not in self._unfeedable

    def is_fetchable(self, tensor_or_op: Any) -> bool:
        """Whether it may be fetched."""
        return tensor_or_op not in self._unfetchable

    def prevent_feeding(self, tensor: Any) -> None:
        """Makes feeding the tensor an error."""
        self._unfeedable.add(tensor)

    def prevent_fetching(self, op: Any) -> None:
        """Makes fetching the operation an error."""
        self._unfetchable.add(op)

    # The default graph.

    def as_default(self) -> "AsDefault":
        """A context in which operations go into this graph."""
        return AsDefault(self)

    # Names.

    def unique_name(self, name: str, mark_as_used: bool = True) -> str:
        """A full name below the open scope that nothing has yet."""
        return self._unique_name(self._scope + name, mark_as_used)

    def name_scope(self, name: str | None) -> "NameScope":
        """A context in which names begin with `name/`.

        A name that ends in '/' is taken as it is, to enter a scope again; None or '' is the root.
        The context gives the scope's full name, with the '/'.
        """
        return NameScope(self, name)

    def get_name_scope(self) -> str:
        """The open scope, without the '/'."""
        return self._scope[:-1]

    @property
    def _name_stack(self) -> str:
        return self._scope[:-1]

    # Devices, order, places.

    def device(self, device_name_or_function: Any) -> "DeviceScope":
        """A context in which operations are asked to run on a device.

        A name ("/job:ps/cpu:0") is merged with those around it, a function from operations to names
        is asked for each operation, None ignores what is around.
        """
        return DeviceScope(self, device_name_or_function)

    def control_dependencies(self, control_inputs: Any) -> "ControlDependencies":
        """A context in which operations wait for those given; None: for nothing that is around."""
        return ControlDependencies(self, control_inputs)

    def colocate_with(self, op: Any, ignore_existing: bool = False) -> "ColocateWith":
        """A context in which operations run where `op` does."""
        return ColocateWith(self, op, ignore_existing)

    def _original_op(self, op: Operation) -> "OriginalOp":
        """A context whose operations stand for `op`: their `_original_op`."""
        return OriginalOp(self, op)

    def container(self, container_name: str) -> "ContainerScope":
        """A context in which state is kept in a container of that name."""
        return ContainerScope(self, container_name)

    def _apply_device_functions(self, op: Operation) -> None:
        device = ""
        for entry in reversed(self._device_stack):
            if entry is None:
                break
            chosen = entry(op) if callable(entry) else entry
            if chosen is None:
                break
            device = merge_device(device_text(chosen), device)
            op._set_device(device)
        op._set_device(device)

    def gradient_override_map(self, op_type_map: dict[str, str]) -> "Overrides":
        """A context in which operations of the types given take gradients registered by name."""
        if not isinstance(op_type_map, dict):
            raise TypeError("op_type_map must be a dictionary mapping strings to strings")
        for key, value in op_type_map.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError("op_type_map must be a dictionary mapping strings to strings")
        return Overrides(op_type_map, self._gradient_override, self._set_gradient_override)

    def _kernel_label_map(self, op_to_kernel_label_map: dict[str, str]) -> "Overrides":
        return Overrides(op_to_kernel_label_map, lambda op: None, self._set_kernel_label)

    def _attr_scope(self, attr_map: dict[str, Any]) -> "Overrides":
        values = {}
        for key, value in attr_map.items():
            values[key] = value.s.decode() if hasattr(value, "s") else value
        return Overrides(values, self._local.setdefault("attrs", {}).get, self._put_attr_scope)

    def _put_attr_scope(self, name: str, value: str | None) -> None:
        self._local["attrs"][name] = value
        self._set_attr_scope(name, value)

    # Collections.

    def add_to_collection(self, name: Any, value: Any) -> None:
        """Appends a value to the collection of that name."""
        self._check_not_finalized()
        self._collections.setdefault(name, []).append(value)

    def add_to_collections(self, names: Any, value: Any) -> None:
        """Appends a value to several collections, to each once."""
        for name in (names,) if isinstance(names, str) else dict.fromkeys(names):
            self.add_to_collection(name, value)

    def get_collection_ref(self, name: Any) -> list[Any]:
        """The collection itself: changes to the list change it."""
        return self._collections.setdefault(name, [])

    def get_collection(self, name: Any, scope: str | None = None) -> list[Any]:
        """A copy of the collection, or of those values whose names match the regular expression
        `scope` at their beginning."""
        values = self._collections.get(name, [])
        if scope is None:
            return list(values)
        pattern = re.compile(scope)
        return [v for v in values if hasattr(v, "name") and pattern.match(v.name)]

    def get_all_collection_keys(self) -> list[str]:
        """The names of all collections that are strings."""
        return [key for key in self._collections if isinstance(key, str)]

    @property
    def collections(self) -> list[str]:
        """The names of all collections."""
        return list(self._collections)

    def clear_collection(self, name: Any) -> None:
        """Empties the collection."""
        self._collections.pop(name, None)

    def switch_to_thread_local(self) -> None:
        """Gives every thread open devices and colocations of its own, as name scopes and control
        dependencies are. They begin as they are now; there is no way back."""
        if self._thread_devices is None:
            self._thread_devices = _ThreadDevices(self._shared_devices)
            self._places_by_thread()

    @property
    def _device_stack(self) -> list[Any]:
        threads = self._thread_devices
        return self._shared_devices if threads is None else threads.stack

    @_device_stack.setter
    def _device_stack(self, stack: list[Any]) -> None:
        if self._thread_devices is None:
            self._shared_devices = stack
        else:
            self._thread_devices.stack = stack

    def _get_function(self, name: str) -> Any:
        return self._functions.get(name)

    def _is_function_name(self, name: str) -> bool:
        return name in self._functions or name in self._function_names()


class FunctionGraph(Graph):
    """The body of a branch, a loop or a function while it is built. Collections, seed and variables
    are those of the graph around it."""

    _is_function = True
    is_control_flow_graph = True

    def __init__(self, outer: Graph):
        super().__init__(outer)
        self.outer_graph = outer
        self._collections = outer._collections
        self._variable_store = outer._variable_store
        self._container = outer._container
        self._device_stack = list(outer._device_stack)
        self._functions = outer._functions
        self._device_functions_open = any(callable(d) for d in self._device_stack)

    @property
    def root(self) -> Graph:
        """The graph that is nobody's body."""
        graph: Graph = self
        while isinstance(graph, FunctionGraph):
            graph = graph.outer_graph
        return graph


def root_graph(graph: Graph) -> Graph:
    """The graph around all bodies: the graph itself when it is none."""
    return graph.root if isinstance(graph, FunctionGraph) else graph
