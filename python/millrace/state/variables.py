"""Variables: tensors that keep their values between runs."""

from typing import Any, Callable

from millrace import gen_ops, protos
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.graph.convert import constant, convert_to_tensor, internal_convert
from millrace.graph.default_session import session_for
from millrace.graph.graph import (
    FunctionGraph,
    Graph,
    Operation,
    Tensor,
    TensorOperators,
    control_dependencies,
    get_default_graph,
    name_scope,
    root_graph,
)
from millrace.graph.keys import GraphKeys, prepend_name_scope, strip_name_scope
from millrace.graph.sparse import IndexedSlices
from millrace.ops import control_flow
from millrace.ops.control_flow import group


class _Numbered:
    """A named choice of a list, as an enum has them."""

    def __init__(self, name: str, value: int):
        self.name, self.value = name, value

    def __repr__(self) -> str:
        return self.name


@export("VariableSynchronization")
class VariableSynchronization:
    """When copies of a variable on several devices are brought together."""

    AUTO = _Numbered("AUTO", 0)
    NONE = _Numbered("NONE", 1)
    ON_WRITE = _Numbered("ON_WRITE", 2)
    ON_READ = _Numbered("ON_READ", 3)


@export("VariableAggregation")
class VariableAggregation:
    """How values for copies of a variable on several devices become one."""

    NONE = _Numbered("NONE", 0)
    SUM = _Numbered("SUM", 1)
    MEAN = _Numbered("MEAN", 2)
    ONLY_FIRST_REPLICA = _Numbered("ONLY_FIRST_REPLICA", 3)


_PARAMETERS = (
    "initial_value", "trainable", "collections", "validate_shape", "caching_device", "name",
    "variable_def", "dtype", "expected_shape", "import_scope", "constraint", "use_resource",
    "synchronization", "aggregation", "shape",
)  # fmt: skip


def _create(**arguments: Any) -> "Variable":
    """The innermost creator: chooses the kind of variable."""
    use_resource = arguments.pop("use_resource", None)
    if use_resource is None:
        store = root_graph(get_default_graph())._variable_store
        use_resource = None if store is None else store.scope.use_resource
        if use_resource is None:
            use_resource = resource_variables_enabled()
    variable_def = arguments.get("variable_def")
    if variable_def is not None:
        use_resource = variable_def.is_resource
    return (ResourceVariable if use_resource else RefVariable)(**arguments)


class _VariableMeta(type):
    """`Variable(...)` makes a variable of the kind asked for, through the open creators."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is not Variable:
            return super().__call__(*args, **kwargs)
        if len(args) > len(_PARAMETERS):
            raise TypeError(f"Variable takes at most {len(_PARAMETERS)} arguments, got {len(args)}")
        for name, value in zip(_PARAMETERS, args, strict=False):
            if name in kwargs:
                raise TypeError(f"Variable got multiple values for argument {name!r}")
            kwargs[name] = value
        unknown = [name for name in kwargs if name not in _PARAMETERS]
        if unknown:
            raise TypeError(f"Variable got an unexpected keyword argument {unknown[0]!r}")
        create: Callable[..., Any] = _create
        for creator in root_graph(get_default_graph())._local.get("variable_creators", ()):
            create = _chained(creator, create)
        return create(**kwargs)


def _chained(creator: Callable[..., Any], following: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **kwargs: creator(following, **kwargs)


@export("variable_creator_scope")
class variable_creator_scope:
    """A context in which `variable_creator(next_creator, **kwargs)` makes the variables.

    It calls `next_creator(**kwargs)`, with arguments of its choice, for the variable that would be
    made without it.
    """

    def __init__(self, variable_creator: Callable[..., Any]):
        self._creator = variable_creator

    def __enter__(self) -> None:
        graph = root_graph(get_default_graph())
        self._creators = graph._local.setdefault("variable_creators", [])
        self._creators.append(self._creator)

    def __exit__(self, *_: Any) -> None:
        self._creators.pop()


class _Lifted:
    """A context in the graph around all bodies, with no control dependencies: where variables go.

    Inside a body the open name scope is kept.
    """

    def __enter__(self) -> Graph:
        current = get_default_graph()
        root = root_graph(current)
        self._contexts: list[Any] = []
        if root is not current:
            scope = _scope_in(root, current)
            self._enter(root.as_default())
            self._enter(root.name_scope(scope))
            if current._device:
                self._enter(root.device(current._device))
        self._enter(control_dependencies(None))
        return root

    def _enter(self, context: Any) -> None:
        context.__enter__()
        self._contexts.append(context)

    def __exit__(self, *_: Any) -> None:
        for context in reversed(self._contexts):
            context.__exit__(None, None, None)


def _scope_in(root: Graph, inner: Any) -> str:
    """The name scope that is open in a body, as one of the graph around all bodies."""
    parts = []
    while inner is not root:
        parts.append(inner._scope)
        if inner._scope_is_absolute:
            break
        inner = inner.outer_graph
    if inner is root:
        parts.append(root._scope)
    return "".join(reversed(parts))


@export("init_scope")
def init_scope() -> _Lifted:
    """A context outside of control flow and control dependencies, for what happens once."""
    return _Lifted()


class _ColocatedBy:
    """A context in which operations are asked to run where the one of a name will, unless they are
    asked to run beside another already."""

    def __init__(self, graph: Graph, name: str):
        self._graph, self._name = graph, name

    def __enter__(self) -> None:
        self._before = self._graph._colocation
        if not self._before:
            self._graph._colocation = [self._name]

    def __exit__(self, *_: Any) -> None:
        self._graph._colocation = self._before


@export("Variable")
class Variable(TensorOperators, metaclass=_VariableMeta):
    """A tensor that keeps its value between runs, until it is assigned another.

    It has a value in a session once its initializer ran there, most often by way of
    `tf.global_variables_initializer()`.

    Args:
      initial_value: what the initializer assigns: a tensor or what converts to one, or a function
        of no arguments that makes it.
      trainable: whether optimizers change it (it is added to TRAINABLE_VARIABLES).
      collections: the collections to add it to; GLOBAL_VARIABLES by default.
      validate_shape: False lets the shape be unknown, and change.
      caching_device: a device that keeps a copy to read from.
      name: "Variable" by default.
      variable_def: a VariableDef to make it from, with `import_scope`; nothing else then.
      dtype: the type to convert the initial value to.
      constraint: a function from the updated value to the one to keep, for optimizers.
      use_resource: whether it is a resource, which reads and writes in the order of the program's
        control dependencies, rather than a reference.
      shape: what to claim of the shape instead of the initial value's.

    ValueError for an initial value of unknown shape (unless `validate_shape=False`).
    """

    __array_priority__ = 100
    SaveSliceInfo: type

    _save_slice_info: Any = None
    _update_uid: Any = None

    def __init__(
        self, initial_value: Any = None, trainable: bool | None = None, collections: Any = None,
        validate_shape: bool = True, caching_device: Any = None, name: str | None = None,
        variable_def: Any = None, dtype: Any = None, expected_shape: Any = None,
        import_scope: str | None = None, constraint: Any = None, use_resource: bool | None = None,
        synchronization: Any = VariableSynchronization.AUTO,
        aggregation: Any = VariableAggregation.NONE, shape: Any = None,
    ):  # fmt: skip
        del expected_shape, use_resource
        self._synchronization = synchronization
        self._aggregation = aggregation
        if variable_def is not None:
            if initial_value is not None:
                raise ValueError("variable_def and initial_value are mutually exclusive.")
            self._init_from_proto(variable_def, import_scope)
            return
        if trainable is None:
            trainable = synchronization is not VariableSynchronization.ON_READ
        if initial_value is None:
            raise ValueError(
                "initial_value must be specified: a tensor, an array, or a function of no "
                f"arguments that makes one (for the variable {name or 'Variable'!r})"
            )
        if collections is None:
            collections = [GraphKeys.GLOBAL_VARIABLES]
        if not isinstance(collections, (list, tuple, set)):
            raise ValueError(
                "collections argument to Variable constructor must be a list, tuple, or set. Got "
                f"{collections} of type {type(collections)}"
            )
        if constraint is not None and not callable(constraint):
            raise ValueError("The `constraint` argument must be a callable.")
        if trainable and GraphKeys.TRAINABLE_VARIABLES not in collections:
            collections = [*collections, GraphKeys.TRAINABLE_VARIABLES]
        self._trainable = bool(trainable)
        self._constraint = constraint
        self._in_graph_mode = True
        with _Lifted() as graph:
            self._make(graph, initial_value, validate_shape, caching_device, name, dtype, shape)
            graph.add_to_collections(collections, self)

    # What the kinds of variables do each in their way.

    def _make(
        self, graph: Graph, initial_value: Any, validate_shape: bool, caching_device: Any,
        name: str | None, dtype: Any, shape: Any,
    ) -> None:  # fmt: skip
        raise NotImplementedError

    def _init_from_proto(self, variable_def: Any, import_scope: str | None) -> None:
        raise NotImplementedError

    # The value.

    def value(self) -> Tensor:
        """The value, as a tensor that is read when the variable is used (once per run, or per
        device that caches it)."""
        raise NotImplementedError

    def read_value(self) -> Tensor:
        """The value, read by an operation of its own: after those that it is made to wait for."""
        raise NotImplementedError

    def eval(self, session: Any = None) -> Any:
        """The value in a session: the one given, or the default one."""
        return self._as_graph_element().eval(session=session)

    def initialized_value(self) -> Tensor:
        """The value, or the initial value where the variable has none yet."""
        with _Lifted() as graph, graph.device(self.device or None):
            return control_flow.cond(
                is_variable_initialized(self), self.read_value, lambda: self.initializer.inputs[1]
            )

    @property
    def initial_value(self) -> Tensor:
        """The tensor that the initializer assigns."""
        return self._initial_value

    @property
    def initializer(self) -> Operation:
        """The operation that assigns the initial value."""
        return self._initializer_op

    @property
    def constraint(self) -> Any:
        """The function that optimizers apply to updated values, or None."""
        return self._constraint

    def load(self, value: Any, session: Any = None) -> None:
        """Sets the value in a session: the one given, or the default one."""
        session = session_for(session, self.graph, "load a value into this variable")
        session.run(self.initializer, {self.initializer.inputs[1]: value})

    # What is known of it.

    @property
    def name(self) -> str:
        """The name, with the ":0" of a tensor's."""
        raise NotImplementedError

    @property
    def _shared_name(self) -> str:
        return self.name.partition(":")[0]

    @property
    def op(self) -> Operation:
        """The operation that holds it."""
        raise NotImplementedError

    @property
    def device(self) -> str:
        """The device of its operation."""
        return self.op.device

    @property
    def graph(self) -> Graph:
        """The graph that it belongs to."""
        return self.op.graph

    @property
    def dtype(self) -> dtypes.DType:
        """The type of its elements."""
        raise NotImplementedError

    @property
    def shape(self) -> TensorShape:
        """What is known of its shape."""
        raise NotImplementedError

    def get_shape(self) -> TensorShape:
        """As `shape`."""
        return self.shape

    def _shape_tuple(self) -> Any:
        return self._as_graph_element()._shape_tuple()

    @property
    def trainable(self) -> bool:
        """Whether optimizers change it."""
        return self._trainable

    @property
    def synchronization(self) -> Any:
        """When copies on several devices are brought together."""
        return self._synchronization

    @property
    def aggregation(self) -> Any:
        """How values for copies on several devices become one."""
        return self._aggregation

    def set_shape(self, shape: Any) -> None:
        """Adds to what is known of the shape."""
        raise NotImplementedError

    # Changes.

    def assign(
        self, value: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Sets the value. Gives the variable after that; the operation where not `read_value`."""
        raise NotImplementedError

    def assign_add(
        self, delta: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Adds to the value, as `assign` sets it."""
        raise NotImplementedError

    def assign_sub(
        self, delta: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Subtracts from the value, as `assign` sets it."""
        raise NotImplementedError

    def count_up_to(self, limit: int) -> Tensor:
        """Adds one and gives the value from before; OutOfRangeError at the limit."""
        raise NotImplementedError

    def __iter__(self) -> Any:
        raise TypeError(
            f"'Variable' object is not iterable: {self.name}'s elements are known only when the "
            "graph runs. Use tf.unstack, tf.map_fn or tf.while_loop."
        )

    def __len__(self) -> int:
        raise TypeError(f"len is not well defined for the variable {self.name}: use v.shape")

    def __bool__(self) -> bool:
        return bool(self.value())

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            f"Cannot convert the variable {self.name} to a numpy array: sess.run(v) reads it."
        )

    def __float__(self) -> float:
        return float(self.value())

    def __int__(self) -> int:
        return int(self.value())

    def __hash__(self) -> int:
        return id(self) >> 4

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"<tf.Variable '{self.name}' shape={self.shape} dtype={self.dtype.name}>"

    def __copy__(self) -> "Variable":
        return self

    def __deepcopy__(self, memo: Any) -> "Variable":
        return self

    def __reduce__(self) -> Any:
        raise TypeError(f"the variable {self.name!r} belongs to a graph and cannot be pickled")

    # Parts of larger variables; messages.

    def _set_save_slice_info(self, save_slice_info: "SaveSliceInfo") -> None:
        self._save_slice_info = save_slice_info

    def _get_save_slice_info(self) -> "SaveSliceInfo | None":
        return self._save_slice_info

    @staticmethod
    def from_proto(variable_def: Any, import_scope: str | None = None) -> "Variable":
        """The variable that a VariableDef describes, of nodes that are in the default graph."""
        return Variable(variable_def=variable_def, import_scope=import_scope)

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The variable as a VariableDef; None when it is not below `export_scope`."""
        if export_scope is not None and not self.name.startswith(export_scope):
            return None
        out = protos.VariableDef()
        out.variable_name = strip_name_scope(self._proto_name(), export_scope)
        if self._initial_value is not None:
            out.initial_value_name = strip_name_scope(self._initial_value.name, export_scope)
        out.trainable = self._trainable
        out.initializer_name = strip_name_scope(self.initializer.name, export_scope)
        out.snapshot_name = strip_name_scope(self._snapshot.name, export_scope)
        out.is_resource = self._is_resource
        if self._save_slice_info is not None:
            out.save_slice_info_def.MergeFrom(self._save_slice_info.to_proto(export_scope))
        return out

    def _proto_name(self) -> str:
        return self.name

    def _restore_common(
        self, variable_def: Any, import_scope: str | None, graph: Graph
    ) -> Callable[[str], Any]:
        """Takes what all kinds have from a VariableDef; gives the lookup of names in the graph."""

        def find(name: str) -> Any:
            return graph.as_graph_element(prepend_name_scope(name, import_scope))

        self._trainable = getattr(variable_def, "trainable", True)
        self._constraint = None
        self._initializer_op = find(variable_def.initializer_name)
        name = getattr(variable_def, "initial_value_name", "")
        self._initial_value = find(name) if name else None
        self._snapshot = find(variable_def.snapshot_name)
        if variable_def.HasField("save_slice_info_def"):
            self._save_slice_info = SaveSliceInfo(
                save_slice_info_def=variable_def.save_slice_info_def, import_scope=import_scope
            )
        return find

    def _check_type(self, dtype: Any) -> None:
        if dtype is not None and not dtype.is_compatible_with(self.dtype.base_dtype):
            raise ValueError(
                f"Incompatible type conversion requested to type '{dtype.name}' for variable "
                f"'{self.name}' of type '{self.dtype.name}' and shape {self.shape}"
            )


def _initial_tensor(initial_value: Any, dtype: Any, name: str | None) -> Tensor:
    """An initial value that is no function, as a tensor."""
    if isinstance(initial_value, Tensor) and isinstance(initial_value.graph, FunctionGraph):
        raise ValueError(
            f"The initial value '{initial_value.name}' of the variable {name or 'Variable'!r} was "
            "made inside a branch, loop body or function, but variables live outside of them. Pass "
            "a function that makes the value: tf.Variable(lambda: ...)."
        )
    return convert_to_tensor(initial_value, dtype, name="initial_value")


def _checked_shape(initial_value: Tensor, validate_shape: bool, shape: Any) -> TensorShape:
    known = initial_value.shape if validate_shape else TensorShape(None)
    if validate_shape and not known.is_fully_defined():
        raise ValueError(
            f"initial_value must have a shape specified: {initial_value}. Set the shape of the "
            "tensor, or pass validate_shape=False for a variable whose shape may change."
        )
    return known if shape is None else TensorShape(shape)


class RefVariable(Variable):
    """A variable whose operation gives a reference to the value, which other operations change."""

    _is_resource = False

    def _make(
        self, graph: Graph, initial_value: Any, validate_shape: bool, caching_device: Any,
        name: str | None, dtype: Any, shape: Any,
    ) -> None:  # fmt: skip
        from_function = callable(initial_value) and not isinstance(initial_value, Tensor)
        values = [] if from_function else [initial_value]
        with name_scope(name, "Variable", values) as scope:
            full_name = scope[:-1]
            if from_function:
                with _ColocatedBy(graph, full_name):
                    with graph.name_scope("Initializer"), graph.device(None):
                        self._initial_value = convert_to_tensor(
                            initial_value(), dtype, name="initial_value"
                        )
                    known = _checked_shape(self._initial_value, validate_shape, shape)
                    self._variable = self._variable_op(graph, known, scope)
            else:
                self._initial_value = _initial_tensor(initial_value, dtype, name)
                known = _checked_shape(self._initial_value, validate_shape, shape)
                self._variable = self._variable_op(graph, known, scope)
            with graph.colocate_with(self._variable.op):
                value = _guarded(self._initial_value, initial_value)
                self._initializer_op = gen_ops.assign(
                    self._variable, value, validate_shape=validate_shape
                ).op
                if caching_device is None:
                    self._snapshot = gen_ops.identity(self._variable, name="read")
            if caching_device is not None:
                with graph.device(caching_device):
                    self._snapshot = gen_ops.identity(self._variable, name="read")
        self._caching_device = caching_device

    def _variable_op(self, graph: Graph, shape: TensorShape, name: str) -> Tensor:
        return gen_ops.variable_v2(
            self._initial_value.dtype.base_dtype, shape, container=graph._container, name=name
        )

    def _init_from_proto(self, variable_def: Any, import_scope: str | None) -> None:
        find = self._restore_common(variable_def, import_scope, get_default_graph())
        self._variable = find(variable_def.variable_name)
        self._caching_device = None

    def _as_graph_element(self) -> Tensor:
        return self._variable

    def _as_tensor(self, dtype: Any = None, as_ref: bool = False) -> Tensor:
        self._check_type(dtype)
        return self._variable if as_ref else self._snapshot

    _AsTensor = _as_tensor

    def _gradient_source(self) -> Tensor:
        return self._variable

    def _ref(self) -> Tensor:
        return self._variable

    def value(self) -> Tensor:
        return self._snapshot

    def read_value(self) -> Tensor:
        return gen_ops.identity(self._variable, name="read")

    @property
    def name(self) -> str:
        return self._variable.name

    @property
    def op(self) -> Operation:
        return self._variable.op

    @property
    def dtype(self) -> dtypes.DType:
        return self._variable.dtype

    @property
    def shape(self) -> TensorShape:
        return self._variable.shape

    def set_shape(self, shape: Any) -> None:
        self._variable.set_shape(shape)
        self._snapshot.set_shape(shape)

    def ref(self) -> Any:
        """Something that can be a key of a dictionary: the variable itself."""
        return self

    def assign(
        self, value: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Sets the value. Gives the variable's tensor after that, or the operation."""
        return self._change(gen_ops.assign, value, use_locking, name, read_value)

    def assign_add(
        self, delta: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Adds to the value. Gives the variable's tensor after that, or the operation."""
        return self._change(gen_ops.assign_add, delta, use_locking, name, read_value)

    def assign_sub(
        self, delta: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Subtracts from the value. Gives the variable's tensor after that, or the operation."""
        return self._change(gen_ops.assign_sub, delta, use_locking, name, read_value)

    def count_up_to(self, limit: int) -> Tensor:
        """Adds one and gives the value from before; OutOfRangeError at the limit."""
        with self._beside():
            return gen_ops.count_up_to(self._variable, limit)

    def _change(
        self, op: Any, value: Any, use_locking: bool, name: str | None, read_value: bool
    ) -> Any:
        with self._beside():
            made = op(self._variable, value, use_locking=use_locking, name=name)
        return made if read_value else made.op

    def _beside(self) -> Any:
        return beside(self._variable)

    def _scatter(self, kind: str, slices: Any, use_locking: bool, name: str | None) -> Tensor:
        _check_slices(slices)
        scatter = getattr(gen_ops, "scatter_" + kind)
        with self._beside():
            return scatter(
                self._variable, slices.indices, slices.values, use_locking=use_locking, name=name
            )

    def _scatter_nd(self, kind: str, indices: Any, updates: Any, name: str | None) -> Tensor:
        with self._beside():
            return getattr(gen_ops, "scatter_nd_" + kind)(
                self._variable, indices, updates, use_locking=True, name=name
            )


def beside(ref: Tensor) -> Any:
    """A context for operations that change what a reference refers to: they run where it is."""
    return get_default_graph().colocate_with(ref.op)


def _check_slices(slices: Any) -> None:
    if not isinstance(slices, IndexedSlices):
        raise TypeError(f"sparse_delta is not IndexedSlices: {slices}")


class ResourceVariable(Variable):
    """A variable behind a handle: each read and write is an operation, in the order that control
    dependencies say."""

    _is_resource = True

    def _make(
        self, graph: Graph, initial_value: Any, validate_shape: bool, caching_device: Any,
        name: str | None, dtype: Any, shape: Any,
    ) -> None:  # fmt: skip
        from_function = callable(initial_value) and not isinstance(initial_value, Tensor)
        values = [] if from_function else [initial_value]
        with name_scope(name, "Variable", values) as scope:
            full_name = scope[:-1]
            with _ColocatedBy(graph, full_name):
                with graph.name_scope("Initializer"), graph.device(None):
                    value = initial_value() if from_function else initial_value
                    self._initial_value = _initial_tensor(value, dtype, name)
                known = _checked_shape(self._initial_value, validate_shape, shape)
                self._dtype = self._initial_value.dtype.base_dtype
                self._handle = gen_ops.var_handle_op(
                    self._dtype,
                    known,
                    container=graph._container,
                    shared_name=full_name,
                    name=scope,
                )
            self._declared_shape = known
            with graph.device(self._handle.device or None):
                with graph.name_scope("IsInitialized"):
                    self._is_initialized_op = gen_ops.var_is_initialized_op(self._handle)
                self._initializer_op = gen_ops.assign_variable_op(
                    self._handle, _guarded(self._initial_value, initial_value), name="Assign"
                )
            device = caching_device or self._handle.device or None
            with graph.device(device), graph.name_scope("Read"):
                self._snapshot = self._read()
            self._cached_value = self._snapshot if caching_device is not None else None
        self._caching_device = caching_device

    def _init_from_proto(self, variable_def: Any, import_scope: str | None) -> None:
        if not variable_def.is_resource:
            raise ValueError("Trying to restore Variable as ResourceVariable.")
        graph = get_default_graph()
        find = self._restore_common(variable_def, import_scope, graph)
        handle = find(variable_def.variable_name)
        self._handle = handle.outputs[0] if isinstance(handle, Operation) else handle
        self._dtype = dtypes.as_dtype(self._handle.op.get_attr("dtype"))
        self._declared_shape = TensorShape(self._handle.op.get_attr("shape"))
        self._is_initialized_op = None
        self._caching_device = None
        self._cached_value = None

    def _proto_name(self) -> str:
        return self._handle.name

    def _read(self) -> Tensor:
        value = gen_ops.read_variable_op(self._handle, self._dtype)
        value.set_shape(self._declared_shape)
        return value

    def _as_graph_element(self) -> Tensor:
        return self._snapshot

    def _as_tensor(self, dtype: Any = None, as_ref: bool = False) -> Tensor:
        self._check_type(dtype)
        return self.read_value().op.inputs[0] if as_ref else self.value()

    def _gradient_source(self) -> Tensor:
        return self._handle

    @property
    def handle(self) -> Tensor:
        """The tensor that stands for the variable: a handle of type resource."""
        return self._handle

    def ref(self) -> Any:
        """Something that can be a key of a dictionary: the variable itself."""
        return self

    def value(self) -> Tensor:
        if self._cached_value is not None:
            return self._cached_value
        graph = get_default_graph()
        anywhere = graph.colocate_with(None, ignore_existing=True)
        with anywhere, graph.device(self._handle.device or None):
            return self._read()

    def read_value(self) -> Tensor:
        with name_scope("Read"):
            value = self._read()
        return gen_ops.identity(value)

    def is_initialized(self, name: str | None = None) -> Tensor:
        """Whether it has a value, as a tensor."""
        return gen_ops.var_is_initialized_op(self._handle, name=name)

    @property
    def name(self) -> str:
        return self._handle.op.name + ":0"

    @property
    def op(self) -> Operation:
        return self._handle.op

    @property
    def create(self) -> Operation:
        """As `initializer`."""
        return self._initializer_op

    @property
    def dtype(self) -> dtypes.DType:
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        return self._declared_shape

    def _shape_tuple(self) -> Any:
        return self._snapshot._shape_tuple()

    def set_shape(self, shape: Any) -> None:
        self._declared_shape = self._declared_shape.merge_with(shape)
        self._snapshot.set_shape(shape)

    def _value_for(self, value: Any) -> Tensor:
        tensor = convert_to_tensor(value, dtype=self._dtype, name="value")
        if not self._declared_shape.is_compatible_with(tensor.shape):
            raise ValueError(
                f"Cannot assign value to variable '{self.name}': Shape mismatch. The variable "
                f"shape {self._declared_shape}, and the assigned value shape {tensor.shape} are "
                f"incompatible ({self._dtype.name})."
            )
        return tensor

    def _changed(self, op: Operation, read_value: bool) -> Any:
        return _Changed(self, op) if read_value else op

    def assign(
        self, value: Any, use_locking: Any = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Sets the value. Gives the variable as it is after that, or the operation."""
        del use_locking
        op = gen_ops.assign_variable_op(self._handle, self._value_for(value), name=name)
        return self._changed(op, read_value)

    def assign_add(
        self, delta: Any, use_locking: Any = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Adds to the value. Gives the variable as it is after that, or the operation."""
        del use_locking
        op = gen_ops.assign_add_variable_op(self._handle, self._value_for(delta), name=name)
        return self._changed(op, read_value)

    def assign_sub(
        self, delta: Any, use_locking: Any = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtracts from the value. Gives the variable as it is after that, or the operation."""
        del use_locking
        op = gen_ops.assign_sub_variable_op(self._handle, self._value_for(delta), name=name)
        return self._changed(op, read_value)

    def count_up_to(self, limit: int) -> Tensor:
        """Adds one and gives the value from before; OutOfRangeError at the limit."""
        return gen_ops.resource_count_up_to(self._handle, limit, T=self._dtype)

    def sparse_read(self, indices: Any, name: str | None = None) -> Tensor:
        """The slices at `indices` of the first dimension, without reading the rest."""
        with name_scope("Gather" if name is None else name) as scope:
            value = gen_ops.resource_gather(self._handle, indices, self._dtype, name=scope)
            return gen_ops.identity(value)

    def _scatter(self, kind: str, slices: Any, use_locking: bool, name: str | None) -> Any:
        del use_locking
        _check_slices(slices)
        values = convert_to_tensor(slices.values, dtype=self._dtype)
        op = getattr(gen_ops, "resource_scatter_" + kind)(
            self._handle, slices.indices, values, name=name
        )
        return self._changed(op, True)

    def _scatter_nd(self, kind: str, indices: Any, updates: Any, name: str | None) -> Any:
        updates = convert_to_tensor(updates, dtype=self._dtype)
        op = getattr(gen_ops, "resource_scatter_nd_" + kind)(
            self._handle, indices, updates, name=name
        )
        return self._changed(op, True)


class _Changed(ResourceVariable):
    """A resource variable after an operation that changes it: reads wait for that operation."""

    def __init__(self, variable: ResourceVariable, op: Operation):
        self.__dict__.update(variable.__dict__)
        self._variable_itself = variable
        self._parent_op = op
        self._cached_value = None
        self._changed_snapshot: Tensor | None = None

    @property
    def op(self) -> Operation:
        return self._parent_op

    @property
    def graph(self) -> Graph:
        return self._handle.graph

    def _read(self) -> Tensor:
        with control_dependencies([self._parent_op]):
            return super()._read()

    def _as_graph_element(self) -> Tensor:
        if self._changed_snapshot is None:
            with self._parent_op.graph.as_default(), control_dependencies(None):
                self._changed_snapshot = self._read()
        return self._changed_snapshot

    def eval(self, session: Any = None) -> Any:
        return self._as_graph_element().eval(session=session)

    def run(self, feed_dict: Any = None, session: Any = None) -> None:
        """Runs the operation that changes it."""
        self._parent_op.run(feed_dict, session)

    def set_shape(self, shape: Any) -> None:
        self._variable_itself.set_shape(shape)
        self._declared_shape = self._variable_itself._declared_shape


def _add_scatters() -> None:
    kinds = {
        "add": "Adds slices to those at their indices.",
        "sub": "Subtracts slices from those at their indices.",
        "update": "Sets the slices at their indices.",
        "max": "Keeps the larger of the slices and those at their indices.",
        "min": "Keeps the smaller of the slices and those at their indices.",
        "mul": "Multiplies the slices at their indices.",
        "div": "Divides the slices at their indices.",
    }

    def scatter(kind: str) -> Callable[..., Any]:
        def method(
            self: Any, sparse_delta: Any, use_locking: bool = False, name: str | None = None
        ) -> Any:
            return self._scatter(kind, sparse_delta, use_locking, name)

        return method

    def scatter_nd(kind: str) -> Callable[..., Any]:
        def method(self: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
            return self._scatter_nd(kind, indices, updates, name)

        return method

    for kind, doc in kinds.items():
        for prefix, make in (("scatter_", scatter), ("scatter_nd_", scatter_nd)):
            if prefix == "scatter_nd_" and kind in ("mul", "div"):
                continue
            method = make(kind)
            method.__name__, method.__doc__ = prefix + kind, doc
            setattr(Variable, prefix + kind, method)


_add_scatters()


# Initial values that depend on other variables.


def _guarded(initial_value: Tensor, given: Any) -> Tensor:
    """The initial value, with the variables that it reads replaced by their initialized values.

    So initializers may run in any order. What cannot be copied stays as it is. `given`: what the
    value was made from.
    """
    reads: dict[Operation, bool] = {}
    if not getattr(given, "reads_variables", True) or initial_value.op.type == "Const":
        return initial_value
    if not _reads_variables(initial_value.op, reads):
        return initial_value
    by_op = {v.op: v for v in _all_variables(initial_value.graph)}
    return _copied(initial_value, reads, by_op, {})


def _all_variables(graph: Graph) -> list[Variable]:
    return graph.get_collection(GraphKeys.GLOBAL_VARIABLES) + graph.get_collection(
        GraphKeys.LOCAL_VARIABLES
    )


_VARIABLE_OPS = ("Variable", "VariableV2", "VarHandleOp")
# Already right, or never to be doubled.
_NOT_COPIED = ("If", "StatelessIf", "While", "StatelessWhile", "Case", "Placeholder", "PyFunc")


def _reads_variables(op: Operation, known: dict[Operation, bool]) -> bool:
    """Whether a variable is read on the way to an operation; fills `known` for all on the way."""
    todo = [op]
    while todo:
        at = todo[-1]
        if at in known:
            todo.pop()
            continue
        if at.type in _VARIABLE_OPS:
            known[at] = True
            continue
        if at.type in _NOT_COPIED:
            known[at] = False
            continue
        parents = [t.op for t in at.inputs]
        missing = [p for p in parents if p not in known]
        if missing:
            todo += missing
            continue
        known[at] = any(known[p] for p in parents)
    return known[op]


def _copied(
    tensor: Tensor, reads: dict[Operation, bool], variables: dict[Operation, Variable],
    done: dict[Operation, Any],
) -> Tensor:  # fmt: skip
    op = tensor.op
    if not reads.get(op, False):
        return tensor
    if op.type in ("Identity", "ReadVariableOp") and op.inputs[0].op.type in _VARIABLE_OPS:
        source = op.inputs[0].op
        if source not in variables:
            return tensor
        if source not in done:
            done[source] = variables[source].initialized_value()
        return done[source]
    if op.type in _VARIABLE_OPS:
        if op not in variables or op.type == "VarHandleOp":
            return tensor
        if op not in done:
            done[op] = variables[op].initialized_value()
        return done[op]
    if any(t.dtype._is_ref_dtype and t.op.type not in _VARIABLE_OPS for t in op.inputs):
        return tensor
    if op not in done:
        inputs = [_copied(t, reads, variables, done) for t in op.inputs]
        if all(a is b for a, b in zip(inputs, op.inputs, strict=True)):
            done[op] = op
        else:
            attrs = {name: op.get_attr(name) for name in op.graph._node_attr_names(op._id)}
            attrs.pop("_class", None)
            done[op] = op.graph.create_op(
                op.type, inputs, name=f"{op.name.rpartition('/')[2]}_initialized", attrs=attrs
            )
    return done[op].outputs[tensor.value_index]


# Variables made of parts.


class SaveSliceInfo:
    """Which part of a larger variable a variable is.

    Args:
      full_name, full_shape: of the larger variable.
      var_offset, var_shape: where this part begins in it, and its shape.
    """

    def __init__(
        self, full_name: str | None = None, full_shape: Any = None, var_offset: Any = None,
        var_shape: Any = None, save_slice_info_def: Any = None, import_scope: str | None = None,
    ):  # fmt: skip
        if save_slice_info_def is not None:
            self.full_name = prepend_name_scope(save_slice_info_def.full_name, import_scope)
            self.full_shape = list(save_slice_info_def.full_shape)
            self.var_offset = list(save_slice_info_def.var_offset)
            self.var_shape = list(save_slice_info_def.var_shape)
        else:
            self.full_name = full_name
            self.full_shape = full_shape
            self.var_offset = var_offset
            self.var_shape = var_shape

    @property
    def spec(self) -> str:
        """The part in the words that checkpoints use: "10 4 0,5:0,4"."""
        shape = " ".join(str(int(d)) for d in self.full_shape)
        pairs = zip(self.var_offset, self.var_shape, strict=True)
        return f"{shape} " + ":".join(f"{int(o)},{int(s)}" for o, s in pairs)

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The part as a SaveSliceInfoDef; None when it is not below `export_scope`."""
        if export_scope is not None and not self.full_name.startswith(export_scope):
            return None
        return protos.SaveSliceInfoDef(
            full_name=strip_name_scope(self.full_name, export_scope),
            full_shape=[int(d) for d in self.full_shape],
            var_offset=[int(d) for d in self.var_offset],
            var_shape=[int(d) for d in self.var_shape],
        )


Variable.SaveSliceInfo = SaveSliceInfo


@export("PartitionedVariable")
class PartitionedVariable(TensorOperators):
    """A variable cut into parts, each a variable of its own; used as a tensor it is whole.

    Args:
      name, shape, dtype: of the whole.
      variable_list: the parts, each with its SaveSliceInfo.
      partitions: the number of parts along each dimension.
    """

    __array_priority__ = 100

    def __init__(self, name: str, shape: Any, dtype: Any, variable_list: Any, partitions: Any):
        if not isinstance(variable_list, (list, tuple)):
            raise TypeError(f"variable_list is not a list or tuple: {variable_list}")
        if not isinstance(partitions, (list, tuple)):
            raise TypeError(f"partitions is not a list or tuple: {partitions}")
        if not all(p >= 1 for p in partitions):
            raise ValueError(f"partition values must be positive: {partitions}")
        if not variable_list:
            raise ValueError("variable_list may not be empty")
        for part in variable_list:
            info = part._get_save_slice_info()
            if info is None:
                raise ValueError(
                    "All variables must have a save_slice_info available: " + part.name
                )
            if info.full_name != name:
                raise ValueError(
                    f"All variables' full names must match: {name}; But full name was: "
                    f"{info.full_name}"
                )
        self._name = name
        self._shape = TensorShape(shape)
        self._dtype = dtype
        self._partitions = list(partitions)
        self._variable_list = sorted(
            variable_list, key=lambda v: list(v._get_save_slice_info().var_offset)
        )

    @property
    def name(self) -> str:
        """The name of the whole."""
        return self._name

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        """The shape of the whole."""
        return self._shape

    def get_shape(self) -> TensorShape:
        """As `shape`."""
        return self._shape

    @property
    def graph(self) -> Graph:
        """The graph that the parts belong to."""
        return self._variable_list[0].graph

    @property
    def op(self) -> Any:
        """Not there: a variable of parts has no operation of its own."""
        raise AttributeError("a PartitionedVariable has no single operation: its parts do")

    def _get_variable_list(self) -> list[Variable]:
        return self._variable_list

    def _get_partitions(self) -> list[int]:
        return self._partitions

    def __iter__(self) -> Any:
        return iter(self._variable_list)

    def __len__(self) -> int:
        axes = self._partition_axes()
        if len(axes) > 1:
            raise NotImplementedError(f"Cannot get a length for {len(axes)} > 1 partition axes")
        return len(self._variable_list)

    def _partition_axes(self) -> list[int]:
        if all(p == 1 for p in self._partitions):
            return [0]
        return [i for i, p in enumerate(self._partitions) if p > 1]

    def _concat(self) -> Tensor:
        if len(self._variable_list) == 1:
            with name_scope(None):
                return gen_ops.identity(self._variable_list[0], name=self._name)
        axes = self._partition_axes()
        if len(axes) > 1:
            raise NotImplementedError(
                f"Cannot concatenate along more than one dimension: {axes}. Multi-axis partition "
                "concat is not supported"
            )
        with name_scope(self._name + "/ConcatPartitions/"):
            parts = [v.value() for v in self._variable_list]
            whole = gen_ops.concat_v2(parts, axes[0], name="concat")
        with name_scope(None):
            return gen_ops.identity(whole, name=self._name)

    def as_tensor(self) -> Tensor:
        """The whole as one tensor."""
        with control_dependencies(None):
            return self._concat()

    def _as_tensor(self, dtype: Any = None, as_ref: bool = False) -> Tensor:
        del as_ref
        if dtype is not None and not dtype.is_compatible_with(self._dtype):
            raise ValueError(
                f"Incompatible type conversion requested to type '{dtype.name}' for the "
                f"partitioned variable '{self._name}' of type '{self._dtype.name}' and shape "
                f"{self._shape}"
            )
        return self.as_tensor()

    def _apply(self, what: str, value: Any, use_locking: Any, name: Any, read_value: bool) -> Any:
        axes = self._partition_axes()
        if len(axes) > 1:
            raise NotImplementedError(
                "Cannot do assign action along more than one dimension: "
                f"{axes}. Multi-axis partition assign action is not supported"
            )
        if isinstance(value, list):
            values = value
        elif isinstance(value, PartitionedVariable):
            values = list(value)
        else:
            sizes = [int(v.shape[axes[0]]) for v in self._variable_list]
            values = gen_ops.split_v(value, sizes, axes[0], num_split=len(sizes))
        made = [
            getattr(v, what)(part, use_locking, name, read_value)
            for v, part in zip(self._variable_list, values, strict=True)
        ]
        return made

    def assign(
        self, value: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Sets the parts. Gives a list with what each part's `assign` gives."""
        return self._apply("assign", value, use_locking, name, read_value)

    def assign_add(
        self, value: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Adds to the parts. Gives a list with what each part's `assign_add` gives."""
        return self._apply("assign_add", value, use_locking, name, read_value)

    def assign_sub(
        self, value: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Subtracts from the parts. Gives a list with what each part's `assign_sub` gives."""
        return self._apply("assign_sub", value, use_locking, name, read_value)


# Collections of variables.


@export("global_variables")
def global_variables(scope: str | None = None) -> list[Any]:
    """The variables that are shared by all of a program; those whose names match `scope`."""
    return get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


@export("all_variables")
def all_variables() -> list[Any]:
    """An older name of `global_variables`."""
    return global_variables()


@export("local_variables")
def local_variables(scope: str | None = None) -> list[Any]:
    """The variables of this process alone, such as counters of epochs."""
    return get_default_graph().get_collection(GraphKeys.LOCAL_VARIABLES, scope)


@export("model_variables")
def model_variables(scope: str | None = None) -> list[Any]:
    """The variables that a model needs to make predictions."""
    return get_default_graph().get_collection(GraphKeys.MODEL_VARIABLES, scope)


@export("trainable_variables")
def trainable_variables(scope: str | None = None) -> list[Any]:
    """The variables that optimizers change by default."""
    return get_default_graph().get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


@export("moving_average_variables")
def moving_average_variables(scope: str | None = None) -> list[Any]:
    """The variables that moving averages are kept of."""
    return get_default_graph().get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


def _all_saveable_objects(scope: str | None = None) -> list[Any]:
    graph = get_default_graph()
    return graph.get_collection(GraphKeys.GLOBAL_VARIABLES, scope) + graph.get_collection(
        GraphKeys.SAVEABLE_OBJECTS, scope
    )


def _flat(var_list: Any) -> list[Variable]:
    out: list[Variable] = []
    for v in var_list:
        if isinstance(v, PartitionedVariable):
            out += v._get_variable_list()
        else:
            out.append(v)
    return out


@export("variables_initializer", "initializers.variables")
def variables_initializer(var_list: Any, name: str = "init") -> Operation:
    """An operation that runs the initializers of the variables, all at once."""
    return group(*[v.initializer for v in _flat(var_list or [])], name=name)


@export("initialize_variables")
def initialize_variables(var_list: Any, name: str = "init") -> Operation:
    """An older name of `variables_initializer`."""
    return variables_initializer(var_list, name)


@export("global_variables_initializer", "initializers.global_variables")
def global_variables_initializer() -> Operation:
    """An operation that initializes the global variables. Most programs run it first."""
    return variables_initializer(global_variables())


@export("initialize_all_variables")
def initialize_all_variables() -> Operation:
    """An older name of `global_variables_initializer`."""
    return global_variables_initializer()


@export("local_variables_initializer", "initializers.local_variables")
def local_variables_initializer() -> Operation:
    """An operation that initializes the local variables."""
    return variables_initializer(local_variables())


@export("initialize_local_variables")
def initialize_local_variables() -> Operation:
    """An older name of `local_variables_initializer`."""
    return local_variables_initializer()


@export("tables_initializer", "initializers.tables_initializer", "initialize_all_tables")
def tables_initializer(name: str = "init_all_tables") -> Operation:
    """An operation that initializes all tables of the graph."""
    ops = get_default_graph().get_collection(GraphKeys.TABLE_INITIALIZERS)
    return group(*ops, name=name) if ops else gen_ops.no_op(name=name)


def is_initialized(variable: Any, name: str | None = None) -> Tensor:
    """Whether a variable, or what a reference refers to, has a value."""
    if isinstance(variable, ResourceVariable):
        return variable.is_initialized(name)
    ref = internal_convert(variable, as_ref=True)
    with ref.graph.colocate_with(ref.op):
        return gen_ops.is_variable_initialized(ref, name=name)


@export("is_variable_initialized")
def is_variable_initialized(variable: Any) -> Tensor:
    """Whether a variable has a value, as a tensor."""
    return is_initialized(variable)


@export("assert_variables_initialized")
def assert_variables_initialized(var_list: Any = None) -> Any:
    """An operation that fails with FailedPreconditionError where a variable has no value.

    `var_list`: the variables to look at; all global and local ones by default. None when there are
    none.
    """
    variables = _chosen(var_list)
    if not variables:
        return None
    ranks = []
    for v in variables:
        with v.graph.colocate_with(v.op):
            ranks.append(gen_ops.rank(v.value()))
    return ranks[0] if len(ranks) == 1 else gen_ops.pack(ranks)


def _chosen(var_list: Any) -> list[Any]:
    if var_list is None:
        var_list = global_variables() + local_variables()
        if not var_list:
            wanted = _VARIABLE_OPS
            var_list = [
                op.outputs[0] for op in get_default_graph().get_operations() if op.type in wanted
            ]
    return _flat(var_list)


@export("report_uninitialized_variables")
def report_uninitialized_variables(
    var_list: Any = None, name: str = "report_uninitialized_variables"
) -> Tensor:
    """The names of the variables that have no value, as a vector of strings.

    `var_list`: the variables to look at; all global and local ones by default.
    """
    variables = _chosen(var_list)
    with name_scope(name):
        if not variables:
            return constant([], dtype=dtypes.string, shape=[0])
        missing = gen_ops.logical_not(gen_ops.pack([is_initialized(v) for v in variables]))
        names = constant([v.op.name for v in variables], dtype=dtypes.string)
        where = gen_ops.squeeze(gen_ops.where(missing), squeeze_dims=[1])
        return gen_ops.gather(names, where)


_use_resource_by_default = False


@export("enable_resource_variables")
def enable_resource_variables() -> None:
    """Makes new variables resources unless `use_resource` or the scope says otherwise."""
    global _use_resource_by_default
    _use_resource_by_default = True


@export("disable_resource_variables")
def disable_resource_variables() -> None:
    """Makes new variables references unless `use_resource` or the scope says otherwise."""
    global _use_resource_by_default
    _use_resource_by_default = False


@export("resource_variables_enabled")
def resource_variables_enabled() -> bool:
    """Whether new variables are resources by default."""
    return _use_resource_by_default
