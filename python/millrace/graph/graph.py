"""Graph, Operation and Tensor."""

import re
from collections import namedtuple
from typing import TYPE_CHECKING, Any, Callable, Iterator

from millrace import _core, protos
from millrace.core import dtypes
from millrace.core.device import merge_device
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.suggest import nearest_names
from millrace.graph.default_session import session_for


def result_class(op: str, names: list[str]) -> type:
    """The class of what an op with several outputs returns."""
    return namedtuple(op, [n + "_" if n in ("def", "lambda", "from") else n for n in names])


@export("Operation")
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
        self.graph._set_node_device(self._id, _device_text(device))

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


OPERATORS = (
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__div__", "__rdiv__",
    "__truediv__", "__rtruediv__", "__floordiv__", "__rfloordiv__", "__mod__", "__rmod__",
    "__pow__", "__rpow__", "__matmul__", "__rmatmul__", "__lt__", "__le__", "__gt__", "__ge__",
    "__and__", "__rand__", "__or__", "__ror__", "__xor__", "__rxor__", "__invert__", "__neg__",
    "__abs__", "__getitem__",
)  # fmt: skip


class TensorOperators:
    """The operators of tensors, and of what converts to them: functions of ops/overloads.py."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __add__(self, other: Any) -> "Tensor": ...
        def __radd__(self, other: Any) -> "Tensor": ...
        def __sub__(self, other: Any) -> "Tensor": ...
        def __rsub__(self, other: Any) -> "Tensor": ...
        def __mul__(self, other: Any) -> "Tensor": ...
        def __rmul__(self, other: Any) -> "Tensor": ...
        def __div__(self, other: Any) -> "Tensor": ...
        def __rdiv__(self, other: Any) -> "Tensor": ...
        def __truediv__(self, other: Any) -> "Tensor": ...
        def __rtruediv__(self, other: Any) -> "Tensor": ...
        def __floordiv__(self, other: Any) -> "Tensor": ...
        def __rfloordiv__(self, other: Any) -> "Tensor": ...
        def __mod__(self, other: Any) -> "Tensor": ...
        def __rmod__(self, other: Any) -> "Tensor": ...
        def __pow__(self, other: Any) -> "Tensor": ...
        def __rpow__(self, other: Any) -> "Tensor": ...
        def __matmul__(self, other: Any) -> "Tensor": ...
        def __rmatmul__(self, other: Any) -> "Tensor": ...
        def __lt__(self, other: Any) -> "Tensor": ...
        def __le__(self, other: Any) -> "Tensor": ...
        def __gt__(self, other: Any) -> "Tensor": ...
        def __ge__(self, other: Any) -> "Tensor": ...
        def __and__(self, other: Any) -> "Tensor": ...
        def __rand__(self, other: Any) -> "Tensor": ...
        def __or__(self, other: Any) -> "Tensor": ...
        def __ror__(self, other: Any) -> "Tensor": ...
        def __xor__(self, other: Any) -> "Tensor": ...
        def __rxor__(self, other: Any) -> "Tensor": ...
        def __getitem__(self, other: Any) -> "Tensor": ...
        def __invert__(self) -> "Tensor": ...
        def __neg__(self) -> "Tensor": ...
        def __abs__(self) -> "Tensor": ...


class Tensor(TensorOperators):
    """One output of an operation: what flows along the edges of a graph."""

    __slots__ = ("__dict__", "__weakref__", "_id", "_index", "dtype", "graph", "op")
    __array_priority__ = 100
    OVERLOADABLE_OPERATORS = frozenset(OPERATORS)

    op: Operation
    graph: "Graph"
    dtype: dtypes.DType

    @property
    def name(self) -> str:
        """The operation's name and the number of the output: "MatMul:0"."""
        return f"{self.graph._node_name(self._id)}:{self._index}"

    @property
    def value_index(self) -> int:
        """Which output of its operation it is."""
        return self._index

    @property
    def device(self) -> str:
        """The device of its operation."""
        return self.op.device

    @property
    def shape(self) -> TensorShape:
        """What is known of the shape before anything runs."""
        return TensorShape._from_tuple(self.graph._shape(self._id, self._index))

    def get_shape(self) -> TensorShape:
        """As `shape`."""
        return self.shape

    @property
    def _shape(self) -> TensorShape:
        return self.shape

    def _shape_tuple(self) -> tuple[int | None, ...] | None:
        return self.graph._shape(self._id, self._index)

    def _shape_as_list(self) -> list[int | None] | None:
        dims = self._shape_tuple()
        return None if dims is None else list(dims)

    def set_shape(self, shape: Any) -> None:
        """Adds to what is known of the shape. ValueError when it contradicts."""
        self.graph._set_shape(self._id, self._index, shape)

    def consumers(self) -> list[Operation]:
        """The operations that take it."""
        return [op for op in self.graph.get_operations() if any(i is self for i in op.inputs)]

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """Its value, computed in the session given or in the default one."""
        return session_for(session, self.graph, "evaluate this tensor").run(self, feed_dict)

    def _as_graph_element(self) -> "Tensor":
        return self

    def _as_node_def_input(self) -> str:
        name = self.op.name
        return name if self._index == 0 else f"{name}:{self._index}"

    def _is_ref(self) -> bool:
        return self.dtype._is_ref_dtype

    def __len__(self) -> int:
        raise TypeError(
            f"len is not well defined for a symbolic Tensor ({self.name}). Please call "
            "`x.shape` rather than `len(x)` for shape information."
        )

    def __iter__(self) -> Iterator["Tensor"]:
        shape = self._shape_tuple()
        raise TypeError(
            f"The tensor '{self.name}' of shape {TensorShape(shape)} cannot be iterated over: its "
            "elements are known only when the graph runs. Use tf.unstack, tf.map_fn or "
            "tf.while_loop."
        )

    def __bool__(self) -> bool:
        raise TypeError(
            f"Using a tf.Tensor ('{self.name}', {self.dtype.name}, shape {self.shape}) as a Python "
            "bool is not allowed: its value is known only when the graph runs. Use "
            "`if t is not None:` to ask whether there is a tensor, and tf.cond to choose by its "
            "value."
        )

    def __nonzero__(self) -> bool:
        return self.__bool__()

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            f"Cannot convert a symbolic Tensor ({self.name}) to a numpy array. Run it in a "
            "session: sess.run(t)."
        )

    def __float__(self) -> float:
        raise TypeError(
            f"The tensor '{self.name}' has no value before the graph runs: float(sess.run(t))"
        )

    def __int__(self) -> int:
        raise TypeError(
            f"The tensor '{self.name}' has no value before the graph runs: int(sess.run(t))"
        )

    def __repr__(self) -> str:
        return f"<tf.Tensor '{self.name}' shape={self.shape} dtype={self.dtype.name}>"

    def __str__(self) -> str:
        shape = "" if self._shape_tuple() is None else f", shape={self.shape}"
        device = f", device={self.device}" if self.device else ""
        return f'Tensor("{self.name}"{shape}, dtype={self.dtype.name}{device})'

    def __copy__(self) -> "Tensor":
        return self

    def __deepcopy__(self, memo: Any) -> "Tensor":
        return self

    def __hash__(self) -> int:
        return id(self) >> 4

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __reduce__(self) -> Any:
        raise TypeError(f"the tensor {self.name!r} belongs to a graph and cannot be pickled")


def is_tensor_like(value: Any) -> bool:
    """Whether a value stands for a tensor of a graph: a Tensor, a Variable."""
    return isinstance(value, Tensor) or hasattr(value, "_as_graph_element")


def other_graph_message(tensor: Tensor, graph: "Graph", arguments: Any = ()) -> str:
    """Why a tensor cannot be used in a graph, with the other tensors among `arguments`."""
    if isinstance(tensor.graph, FunctionGraph):
        return (
            f"The tensor '{tensor.name}' was made inside a branch, loop body or function and "
            f"cannot be used outside of it: return it from there.{_where(tensor.op)}"
        )
    flat = [a for arg in arguments for a in (arg if isinstance(arg, (list, tuple)) else [arg])]
    other = next((a for a in flat if isinstance(a, Tensor) and a.graph is graph), None)
    rest = "" if other is None else f" as the tensor {_describe(other)}"
    return (
        f"The tensor {_describe(tensor)} must be from the same graph{rest}: they belong to "
        "different graphs. Make all of a computation under one `with graph.as_default():`."
        f"{_where(tensor.op)}"
    )


def _describe(tensor: Tensor) -> str:
    return f"'{tensor.name}' ({tensor.dtype.name}, shape {tensor.shape})"


def _where_of(element: "Tensor | Operation") -> str:
    return _where(element.op if isinstance(element, Tensor) else element)


def _where(op: Operation) -> str:
    origin = op.traceback
    if not origin:
        return ""
    file, line, _, text = origin[0]
    return f"\ndefined at {file}:{line}  {text}"


def _device_text(device: Any) -> str:
    if device is None:
        return ""
    return device if isinstance(device, str) else device.to_string()


@export("Graph")
class Graph(_core.GraphBase):
    """A dataflow graph. `with graph.as_default():` makes operations go into it.

    Not to be added to by two threads at once.
    """

    _is_function = False

    def __init__(self, *args: Any):
        super().__init__(*args)
        self._operations: list[Operation | None] = []
        self._set_python(self._operations)
        self._collections: dict[Any, list[Any]] = {}
        self._device_stack: list[Any] = []
        self._control_stack: list[list[Operation]] = []
        self._colocation_stack: list[Operation] = []
        self._seed: int | None = None
        self._unfeedable: set[Tensor] = set()
        self._unfetchable: set[Any] = set()
        self._functions: dict[str, Any] = {}
        self._variable_store: Any = None
        self._variable_scope: Any = None
        self._container = ""
        # The open name scope was given whole: in a body, not below the scope around the body.
        self._scope_is_absolute = False
        self._local: dict[str, Any] = {}
        self._marked_names: set[str] = set()  # of scopes, and by unique_name

    # Operations.

    def get_operations(self) -> list[Operation]:
        """All operations, in the order in which they were made."""
        return [self._operation(i) for i in range(self._num_nodes)]

    def get_operation_by_name(self, name: str) -> Operation:
        """The operation of that full name. KeyError when there is none."""
        if not isinstance(name, str):
            raise TypeError(f"Operation names are strings (or similar), not {type(name).__name__}.")
        return self.as_graph_element(name, allow_tensor=False, allow_operation=True)

    def get_tensor_by_name(self, name: str) -> Tensor:
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
        if (isinstance(obj, Tensor) and allow_tensor) or (
            isinstance(obj, Operation) and allow_operation
        ):
            if obj.graph is not self:
                inside = isinstance(obj.graph, FunctionGraph)
                hint = (
                    " It was made inside a branch, loop body or function, where it has a value for "
                    f"each time that runs: return it from there.{_where_of(obj)}"
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
        """The graph as a GraphDef, from operation number `from_version` on."""
        graph_def = protos.GraphDef.FromString(self._graph_def(from_version or 0, -1))
        if add_shapes:
            for node in graph_def.node:
                op = self.get_operation_by_name(node.name)
                if op.outputs:
                    shapes = node.attr["_output_shapes"].list.shape
                    shapes.extend([out.shape.as_proto() for out in op.outputs])
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

    def as_default(self) -> "_AsDefault":
        """A context in which operations go into this graph."""
        return _AsDefault(self)

    # Names.

    def unique_name(self, name: str, mark_as_used: bool = True) -> str:
        """A full name below the open scope that nothing has yet."""
        full = self._scope + name
        if mark_as_used:
            return self._mark_name(full)
        candidate, number = full, 1
        while self._find(candidate) >= 0 or candidate in self._marked_names:
            candidate = f"{full}_{number}"
            number += 1
        return candidate

    def _mark_name(self, full: str) -> str:
        unique = self._unique_name(full)
        self._marked_names.add(unique)
        return unique

    def name_scope(self, name: str | None) -> "_NameScope":
        """A context in which names begin with `name/`.

        A name that ends in '/' is taken as it is, to enter a scope again; None or '' is the root.
        The context gives the scope's full name, with the '/'.
        """
        return _NameScope(self, name)

    def get_name_scope(self) -> str:
        """The open scope, without the '/'."""
        return self._scope[:-1]

    @property
    def _name_stack(self) -> str:
        return self._scope[:-1]

    # Devices, order, places.

    def device(self, device_name_or_function: Any) -> "_Device":
        """A context in which operations are asked to run on a device.

        A name ("/job:ps/cpu:0") is merged with those around it, a function from operations to names
        is asked for each operation, None ignores what is around.
        """
        return _Device(self, device_name_or_function)

    def control_dependencies(self, control_inputs: Any) -> "_ControlDependencies":
        """A context in which operations wait for those given; None: for nothing that is around."""
        return _ControlDependencies(self, control_inputs)

    def colocate_with(self, op: Any, ignore_existing: bool = False) -> "_ColocateWith":
        """A context in which operations run where `op` does."""
        return _ColocateWith(self, op, ignore_existing)

    def container(self, container_name: str) -> "_Container":
        """A context in which state is kept in a container of that name."""
        return _Container(self, container_name)

    def _apply_device_functions(self, op: Operation) -> None:
        device = ""
        for entry in reversed(self._device_stack):
            if entry is None:
                break
            chosen = entry(op) if callable(entry) else entry
            if chosen is None:
                break
            device = merge_device(_device_text(chosen), device)
            op._set_device(device)
        op._set_device(device)

    def gradient_override_map(self, op_type_map: dict[str, str]) -> "_Overrides":
        """A context in which operations of the types given take gradients registered by name."""
        if not isinstance(op_type_map, dict):
            raise TypeError("op_type_map must be a dictionary mapping strings to strings")
        for key, value in op_type_map.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError("op_type_map must be a dictionary mapping strings to strings")
        return _Overrides(op_type_map, self._gradient_override, self._set_gradient_override)

    def _kernel_label_map(self, op_to_kernel_label_map: dict[str, str]) -> "_Overrides":
        return _Overrides(op_to_kernel_label_map, lambda op: None, self._set_kernel_label)

    def _attr_scope(self, attr_map: dict[str, Any]) -> "_Overrides":
        values = {}
        for key, value in attr_map.items():
            values[key] = value.s.decode() if hasattr(value, "s") else value
        return _Overrides(values, self._local.setdefault("attrs", {}).get, self._put_attr_scope)

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
        """Nothing: the contexts of a graph are used by one thread at a time."""

    def _get_function(self, name: str) -> Any:
        return self._functions.get(name)

    def _is_function_name(self, name: str) -> bool:
        return name in self._functions or name in self._function_names()


class FunctionGraph(Graph):
    """The body of a branch, a loop or a function while it is built. Collections, seed and variables
    are those of the graph around it."""

    _is_function = True

    def __init__(self, outer: Graph):
        super().__init__(outer)
        self.outer_graph = outer
        self._collections = outer._collections
        self._variable_store = outer._variable_store
        self._variable_scope = outer._variable_scope
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


# Contexts: classes rather than generators, because they are entered for every layer of a model.


class _AsDefault:
    def __init__(self, graph: Graph):
        self._graph = graph
        self._depth: list[int] = []

    def __enter__(self) -> Graph:
        _core.open_graph(self._graph)
        self._depth.append(_core.open_graph_count())
        return self._graph

    def __exit__(self, *_: Any) -> None:
        if _core.open_graph_count() != self._depth.pop():
            raise AssertionError(
                "Nesting violated for default stack of graphs: a graph was closed before one that "
                "was opened inside it"
            )
        _core.close_graph()


class _NameScope:
    def __init__(self, graph: Graph, name: str | None):
        if name is not None and not isinstance(name, str):
            raise TypeError(f"'{name!r}' is not a valid scope name: expected a str")
        self._graph = graph
        self._name = name

    def __enter__(self) -> str:
        graph, name = self._graph, self._name
        self._before = graph._scope, graph._scope_is_absolute
        if not name:
            graph._scope = ""
            graph._scope_is_absolute = True
        elif name[-1] == "/":
            graph._scope = name
            graph._scope_is_absolute = True
        else:
            around = self._before[0]
            valid = _core.is_valid_scope_name if around else _core.is_valid_node_name
            if not valid(name):
                raise ValueError(f"'{name}' is not a valid scope name")
            graph._scope = graph._mark_name(around + name) + "/"
        return graph._scope

    def __exit__(self, *_: Any) -> None:
        self._graph._scope, self._graph._scope_is_absolute = self._before


class _Device:
    def __init__(self, graph: Graph, device: Any):
        self._graph = graph
        self._given = device

    def __enter__(self) -> None:
        graph, device = self._graph, self._given
        self._before = (graph._device, graph._device_functions_open)
        if device is not None and not callable(device):
            device = _device_text(device)
            merge_device(device, "")  # is it a device at all?
        graph._device_stack.append(device)
        stack = graph._device_stack
        last_none = max((i for i, d in enumerate(stack) if d is None), default=-1)
        if any(callable(d) for d in stack[last_none + 1 :]):
            graph._device_functions_open = True
        else:
            merged = ""
            for entry in stack[last_none + 1 :]:
                merged = merge_device(merged, entry)
            graph._device = merged
            graph._device_functions_open = False

    def __exit__(self, *_: Any) -> None:
        self._graph._device_stack.pop()
        self._graph._device, self._graph._device_functions_open = self._before


class _ControlDependencies:
    def __init__(self, graph: Graph, control_inputs: Any):
        self._graph = graph
        self._clear = control_inputs is None
        self._ops: list[Operation] = []
        if control_inputs is None:
            return
        if isinstance(control_inputs, (Tensor, Operation)):
            control_inputs = [control_inputs]
        for item in control_inputs:
            if hasattr(item, "values") and hasattr(item, "indices"):
                item = item.values  # IndexedSlices, SparseTensor
            convert = getattr(item, "_as_graph_element", None)
            element = convert() if convert is not None else graph.as_graph_element(item)
            op = element.op if isinstance(element, Tensor) else element
            if not isinstance(op, Operation):
                raise TypeError(
                    f"Control input must be Operation, Tensor or Variable, got "
                    f"{type(item).__name__}"
                )
            if op not in self._ops:
                self._ops.append(op)

    def __enter__(self) -> "_ControlDependencies":
        graph = self._graph
        if self._clear:
            self._saved = graph._swap_controllers(None)
            return self
        own, outer = [], []
        for op in self._ops:
            if op.graph is graph:
                own.append(op._id)
                continue
            inner = graph  # the body, among those that are open, that stands in the graph of op
            while isinstance(inner, FunctionGraph) and inner.outer_graph is not op.graph:
                inner = inner.outer_graph
            if not isinstance(inner, FunctionGraph):
                raise ValueError(other_graph_message_for_op(op))
            if inner is graph:
                outer.append(op._id)
            else:
                inner._add_outer_control(op._id)
        graph._open_controller(own, outer)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._clear:
            self._graph._swap_controllers(self._saved)
        else:
            self._graph._close_controller()


def other_graph_message_for_op(op: Operation) -> str:
    """Why an operation cannot be waited for."""
    return (
        f"The operation '{op.name}' ({op.type}) is not an element of this graph, so nothing here "
        f"can wait for it.{_where(op)}"
    )


class _ColocateWith:
    def __init__(self, graph: Graph, op: Any, ignore_existing: bool):
        self._graph = graph
        if op is not None:
            element = op._as_graph_element() if hasattr(op, "_as_graph_element") else op
            op = element.op if isinstance(element, Tensor) else element
            if not isinstance(op, Operation):
                raise TypeError(f"Tried to colocate with {op!r}, which is no operation or tensor")
        elif not ignore_existing:
            raise ValueError(
                "Trying to reset colocation (op is None) but ignore_existing is not True"
            )
        self._op = op
        self._ignore = ignore_existing

    def __enter__(self) -> None:
        graph, op = self._graph, self._op
        self._before = (
            graph._colocation, graph._device, graph._device_functions_open, graph._device_stack
        )  # fmt: skip
        groups = [] if self._ignore else graph._colocation
        if op is not None and op.graph is graph:
            names = [group[5:].decode() for group in op.colocation_groups()]
            graph._colocation = groups + [n for n in names if n not in groups]
            # What is colocated goes where its partner does, whatever devices are open.
            graph._device = op.device
            graph._device_stack = [op.device] if op.device else []
            graph._device_functions_open = False
        elif op is None:
            graph._colocation = groups

    def __exit__(self, *_: Any) -> None:
        graph = self._graph
        (graph._colocation, graph._device, graph._device_functions_open, graph._device_stack) = (
            self._before
        )


class _Container:
    def __init__(self, graph: Graph, name: str):
        self._graph = graph
        self._name = name

    def __enter__(self) -> str:
        self._before = self._graph._container
        self._graph._container = self._name
        return self._name

    def __exit__(self, *_: Any) -> None:
        self._graph._container = self._before


class _Overrides:
    """A context that sets some values by name and puts back what there was."""

    def __init__(self, values: dict[str, Any], get: Callable[[str], Any], put: Callable[..., None]):
        self._values, self._get, self._put = values, get, put

    def __enter__(self) -> None:
        self._before = {key: self._get(key) for key in self._values}
        for key, value in self._values.items():
            self._put(key, value)

    def __exit__(self, *_: Any) -> None:
        for key, value in self._before.items():
            self._put(key, value)


# The default graph.

_global: Graph | None = None


def global_graph() -> Graph:
    """The graph that operations go into when none is open."""
    global _global
    if _global is None:
        _global = Graph()
    return _global


@export("get_default_graph")
def get_default_graph() -> Graph:
    """The graph that operations go into now."""
    graph = _core.innermost_graph()
    return global_graph() if graph is None else graph


@export("reset_default_graph")
def reset_default_graph() -> None:
    """Starts anew with an empty global graph. Not inside `with graph.as_default():`."""
    global _global
    if _core.open_graph_count():
        raise AssertionError(
            "Do not use tf.reset_default_graph() to clear nested graphs. If you need a cleared "
            "graph, exit the nesting and create a new graph."
        )
    _global = None


@export("device")
def device(device_name_or_function: Any) -> _Device:
    """As `Graph.device`, for the default graph."""
    return get_default_graph().device(device_name_or_function)


@export("container")
def container(container_name: str) -> _Container:
    """As `Graph.container`, for the default graph."""
    return get_default_graph().container(container_name)


@export("control_dependencies")
def control_dependencies(control_inputs: Any) -> _ControlDependencies:
    """As `Graph.control_dependencies`, for the default graph."""
    return get_default_graph().control_dependencies(control_inputs)


@export("colocate_with")
def colocate_with(op: Any, ignore_existing: bool = False) -> _ColocateWith:
    """As `Graph.colocate_with`, for the default graph."""
    return get_default_graph().colocate_with(op, ignore_existing)


@export("name_scope", "keras.backend.name_scope")
class name_scope:
    """A context for the names of an operation made of others.

    `with name_scope(name, "my_op", [a, b]) as scope:` opens the scope `name`, or `my_op` where name
    is None, in the graph of the values (the default one when none is a tensor).
    """

    def __init__(self, name: str | None, default_name: str | None = None, values: Any = None):
        if values is None and default_name is not None and not isinstance(default_name, str):
            # The arguments of an older order: (values, name, default_name).
            name, default_name, values = default_name, values, name
        self._name = default_name if name is None else name
        if self._name is None and values is not None:
            raise ValueError(
                "At least one of name (None) and default_name (None) must be provided."
            )
        self._values = values

    @property
    def name(self) -> str | None:
        """The name asked for."""
        return self._name

    def __enter__(self) -> str:
        graph = graph_of_values(self._values) if self._values else get_default_graph()
        self._graph = graph
        self._open = graph is not _core.innermost_graph()
        if self._open:
            _core.open_graph(graph)
        try:
            self._scope = _NameScope(graph, self._name)
            return self._scope.__enter__()
        except BaseException:
            if self._open:
                _core.close_graph()
            raise

    def __exit__(self, *_: Any) -> None:
        self._scope.__exit__()
        if self._open:
            _core.close_graph()


@export("op_scope")
def op_scope(values: Any, name: str | None, default_name: str | None = None) -> name_scope:
    """As `name_scope`, with the arguments in an older order."""
    return name_scope(name, default_name, values)


def graph_of_values(values: Any) -> Graph:
    """The graph in which operations on these values belong. ValueError when they are of several."""
    current = get_default_graph()
    chosen: Graph | None = None
    first: Any = None
    for value in values:
        if isinstance(value, (list, tuple)):
            element = next((v for v in value if isinstance(v, (Tensor, Operation))), None)
        elif isinstance(value, (Tensor, Operation)):
            element = value
        else:
            convert = getattr(value, "_as_graph_element", None)
            element = convert() if convert is not None else None
        graph = getattr(element, "graph", None)
        # A finished body cannot be added to: whether its tensor may be used here shows later.
        if graph is None or isinstance(graph, FunctionGraph) or _is_around(graph, current):
            continue
        if chosen is None:
            chosen, first = graph, element
        elif chosen is not graph:
            raise ValueError(f"{element} must be from the same graph as {first}.")
    return current if chosen is None else chosen


def _is_around(graph: Graph, inner: Graph) -> bool:
    while inner is not graph:
        if not isinstance(inner, FunctionGraph):
            return False
        inner = inner.outer_graph
    return True
