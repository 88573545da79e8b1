"""What variables have in common."""

import enum
from typing import Any, Callable

from millrace import protos
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor, TensorOperators, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.default_session import session_for
from millrace.graph.graph import FunctionGraph, Graph, root_graph
from millrace.graph.keys import GraphKeys, prepend_name_scope, strip_name_scope
from millrace.graph.operation import Operation
from millrace.graph.sparse import IndexedSlices
from millrace.ops import control_flow
from millrace.state.init_scope import Lifted
from millrace.state.save_slice_info import SaveSliceInfo


@export(v1="VariableSynchronization", v2="VariableSynchronization")
class VariableSynchronization(enum.Enum):
    """When copies of a variable on several devices are brought together."""

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


@export(v1="VariableAggregation", v2="VariableAggregation")
class VariableAggregation(enum.Enum):
    """How values for copies of a variable on several devices become one."""

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3


_PARAMETERS = (
    "initial_value", "trainable", "collections", "validate_shape", "caching_device", "name",
    "variable_def", "dtype", "expected_shape", "import_scope", "constraint", "use_resource",
    "synchronization", "aggregation", "shape",
)  # fmt: skip


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
        create: Callable[..., Any] = Variable._create
        for creator in root_graph(get_default_graph())._local.get("variable_creators", ()):
            create = _chained(creator, create)
        return create(**kwargs)


def _chained(creator: Callable[..., Any], following: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **kwargs: creator(following, **kwargs)


@export(v1="variable_creator_scope")
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


class ColocatedBy:
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

    _parts_never_change = True  # a run may be kept by the object
    __array_priority__ = 100
    SaveSliceInfo = SaveSliceInfo
    # The innermost creator, which chooses the kind: state/variables.py knows the kinds.
    _create: Callable[..., "Variable"]

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
        with Lifted() as graph:
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

    def _has_value(self, name: str | None = None) -> Tensor:
        """Whether the variable has a value, as a tensor."""
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
        with Lifted() as graph, graph.device(self.device or None):
            return control_flow.cond(
                self._has_value(), self.read_value, lambda: self.initializer.inputs[1]
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

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            f"Cannot convert the variable {self.name} to a numpy array: sess.run(v) reads it."
        )

    def numpy(self) -> Any:
        """NotImplementedError: variables of a graph have values in sessions."""
        raise NotImplementedError(
            f"numpy() is only available when eager execution is enabled: sess.run(v) reads the "
            f"variable {self.name}"
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


def initial_tensor(initial_value: Any, dtype: Any, name: str | None) -> Tensor:
    """An initial value that is no function, as a tensor."""
    if isinstance(initial_value, Tensor) and isinstance(initial_value.graph, FunctionGraph):
        raise ValueError(
            f"The initial value '{label_of(initial_value)}' of the variable "
            f"{name or 'Variable'!r} was "
            "made inside a branch, loop body or function, but variables live outside of them. Pass "
            "a function that makes the value: tf.Variable(lambda: ...)."
        )
    return convert_to_tensor(initial_value, dtype, name="initial_value")


def checked_shape(initial_value: Tensor, validate_shape: bool, shape: Any) -> TensorShape:
    known = initial_value.shape if validate_shape else TensorShape(None)
    if validate_shape and not known.is_fully_defined():
        raise ValueError(
            f"initial_value must have a shape specified: {initial_value}. Set the shape of the "
            "tensor, or pass validate_shape=False for a variable whose shape may change."
        )
    return known if shape is None else TensorShape(shape)


def check_slices(slices: Any) -> None:
    if not isinstance(slices, IndexedSlices):
        raise TypeError(f"sparse_delta is not IndexedSlices: {slices}")
