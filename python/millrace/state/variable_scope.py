"""Variable scopes: variables found again by name, and how new ones are made."""

import functools
from typing import Any, Callable

from millrace.core import dtypes
from millrace.core.export import export
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph, graph_of_values, name_scope
from millrace.graph.graph import Graph, root_graph
from millrace.graph.keys import GraphKeys
from millrace.state.variable import Variable, VariableAggregation, VariableSynchronization
from millrace.state.variable_store import AUTO_REUSE, VariableStore, accepts


@export(v1="no_regularizer")
def no_regularizer(_: Any) -> None:
    """A regularizer that adds nothing; it keeps a scope's own from being used."""
    return None


def _call_getter(
    custom_getter: Callable[..., Any],
    getter: Callable[..., Any],
    name: str,
    options: dict[str, Any],
) -> Any:
    options = dict(options)
    if options["constraint"] is None and not accepts(custom_getter, "constraint"):
        del options["constraint"]
    return custom_getter(getter, name=name, **options)


@export(v1="VariableScope")
class VariableScope:
    """A prefix for the names of variables, and what holds for those made below it.

    Args:
      reuse: True to find existing variables, False to make new ones, AUTO_REUSE for either.
      name: the prefix.
      initializer, regularizer, caching_device, partitioner, custom_getter, dtype, use_resource,
        constraint: what `get_variable` takes where its caller says nothing.
      name_scope: the scope of the names of operations.
    """

    def __init__(
        self, reuse: Any, name: str = "", initializer: Any = None, regularizer: Any = None,
        caching_device: Any = None, partitioner: Any = None, custom_getter: Any = None,
        name_scope: str = "", dtype: Any = dtypes.float32, use_resource: bool | None = None,
        constraint: Any = None,
    ):  # fmt: skip
        self._reuse = reuse
        self._name = name
        self._initializer = initializer
        self._regularizer = regularizer
        self._caching_device = caching_device
        self._partitioner = partitioner
        self._custom_getter = custom_getter
        self._name_scope = name_scope
        self._dtype = dtype
        self._use_resource = use_resource
        self._constraint = constraint

    def _derived(self, **changes: Any) -> "VariableScope":
        scope = VariableScope.__new__(VariableScope)
        scope.__dict__.update(self.__dict__)
        for key, value in changes.items():
            setattr(scope, "_" + key, value)
        return scope

    @property
    def name(self) -> str:
        """The prefix."""
        return self._name

    @property
    def original_name_scope(self) -> str:
        """The scope of the names of operations, as it was when this was opened first."""
        return self._name_scope

    @property
    def reuse(self) -> Any:
        """Whether variables are found again."""
        return self._reuse

    @property
    def initializer(self) -> Any:
        """What makes initial values."""
        return self._initializer

    @property
    def dtype(self) -> Any:
        """The type of variables."""
        return self._dtype

    @property
    def use_resource(self) -> bool | None:
        """Whether variables are resources."""
        return self._use_resource

    @property
    def regularizer(self) -> Any:
        """What makes a loss of each variable."""
        return self._regularizer

    @property
    def caching_device(self) -> Any:
        """The device that keeps copies."""
        return self._caching_device

    @property
    def partitioner(self) -> Any:
        """What says how variables are cut."""
        return self._partitioner

    @property
    def custom_getter(self) -> Any:
        """What is asked for variables first."""
        return self._custom_getter

    @property
    def constraint(self) -> Any:
        """What optimizers apply to updated values."""
        return self._constraint

    def reuse_variables(self) -> None:
        """From now on finds existing variables only."""
        self._reuse = True

    def set_initializer(self, initializer: Any) -> None:
        """Sets what makes initial values."""
        self._initializer = initializer

    def set_dtype(self, dtype: Any) -> None:
        """Sets the type of variables."""
        self._dtype = dtype

    def set_use_resource(self, use_resource: bool | None) -> None:
        """Sets whether variables are resources."""
        self._use_resource = use_resource

    def set_regularizer(self, regularizer: Any) -> None:
        """Sets what makes a loss of each variable."""
        self._regularizer = regularizer

    def set_caching_device(self, caching_device: Any) -> None:
        """Sets the device that keeps copies."""
        self._caching_device = caching_device

    def set_partitioner(self, partitioner: Any) -> None:
        """Sets what says how variables are cut."""
        self._partitioner = partitioner

    def set_custom_getter(self, custom_getter: Any) -> None:
        """Sets what is asked for variables first."""
        self._custom_getter = custom_getter

    def get_collection(self, name: Any) -> list[Any]:
        """Those of a collection whose names begin with the prefix."""
        scope = self._name + "/" if self._name else self._name
        return get_default_graph().get_collection(name, scope)

    def trainable_variables(self) -> list[Any]:
        """The trainable variables below this scope."""
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def global_variables(self) -> list[Any]:
        """The global variables below this scope."""
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Any]:
        """The local variables below this scope."""
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def get_variable(
        self, var_store: VariableStore, name: str, shape: Any = None, dtype: Any = None,
        initializer: Any = None, regularizer: Any = None, reuse: Any = None,
        trainable: bool | None = None, collections: Any = None, caching_device: Any = None,
        partitioner: Any = None, validate_shape: bool = True, use_resource: bool | None = None,
        custom_getter: Any = None, constraint: Any = None,
        synchronization: Any = VariableSynchronization.AUTO,
        aggregation: Any = VariableAggregation.NONE,
    ) -> Any:  # fmt: skip
        """A variable of the store below this scope: found or made, as the scope says."""
        if custom_getter is None:
            custom_getter = self._custom_getter
        full_name = f"{self._name}/{name}" if self._name else name
        with name_scope(None):
            if dtype is not None and initializer is not None and not callable(initializer):
                own = convert_to_tensor(initializer).dtype.base_dtype
                if own is not dtypes.as_dtype(dtype).base_dtype:
                    raise ValueError(
                        f"Initializer type '{own.name}' and explicit dtype "
                        f"'{dtypes.as_dtype(dtype).name}' don't match (variable {full_name!r})."
                    )
            options = {
                "shape": shape,
                "dtype": self._dtype if dtype is None else dtype,
                "initializer": self._initializer if initializer is None else initializer,
                "regularizer": self._regularizer if regularizer is None else regularizer,
                "reuse": self._reuse if reuse is None else reuse,
                "trainable": trainable,
                "collections": collections,
                "caching_device": self._caching_device
                if caching_device is None
                else caching_device,
                "partitioner": self._partitioner if partitioner is None else partitioner,
                "validate_shape": validate_shape,
                "use_resource": self._use_resource if use_resource is None else use_resource,
                "constraint": self._constraint if constraint is None else constraint,
                "synchronization": synchronization,
                "aggregation": aggregation,
            }
            if custom_getter is not None:
                if not callable(custom_getter):
                    raise ValueError(
                        f"Passed a custom_getter which is not callable: {custom_getter}"
                    )
                return _call_getter(custom_getter, var_store.get, full_name, options)
            return var_store.get(full_name, **options)


def store_of(graph: Graph | None = None) -> VariableStore:
    """The variables of a graph (the default one) that `get_variable` knows."""
    root = root_graph(graph or get_default_graph())
    if root._variable_store is None:
        root._variable_store = VariableStore(lambda: VariableScope(False))
    return root._variable_store


@export(v1="get_variable_scope")
def get_variable_scope() -> VariableScope:
    """The open variable scope."""
    return store_of().scope


def unique_variable_scope(prefix: str) -> str:
    """A name for a scope below the open one that none has had."""
    return store_of().unique(prefix)


@export(v1="get_variable")
def get_variable(
    name: str, shape: Any = None, dtype: Any = None, initializer: Any = None,
    regularizer: Any = None, trainable: bool | None = None, collections: Any = None,
    caching_device: Any = None, partitioner: Any = None, validate_shape: bool = True,
    use_resource: bool | None = None, custom_getter: Any = None, constraint: Any = None,
    synchronization: Any = VariableSynchronization.AUTO,
    aggregation: Any = VariableAggregation.NONE,
) -> Any:  # fmt: skip
    """The variable of that name in the open variable scope: found or made, as the scope says.

    Args:
      name: the name below the scope's.
      shape: required for a new variable, unless the initializer is a value.
      dtype: the scope's by default, which is float32 by default.
      initializer: a function (shape, dtype) -> value, a class of such, or a value. By default the
        scope's, or Glorot's uniform one for floating types, zeros for the others.
      regularizer: a function from the variable to a loss, which goes to REGULARIZATION_LOSSES.
      partitioner: a function (shape, dtype) -> number of parts along each dimension, for a
        PartitionedVariable.
      custom_getter: a function (getter, name, ...) that is asked first, and may ask `getter`.
      trainable, collections, caching_device, validate_shape, use_resource, constraint,
        synchronization, aggregation: as of Variable.

    ValueError when it exists and must not, does not and must, or differs in shape or type. Where
    operations run at once, each call makes a variable: it belongs to who holds it.
    """
    store = store_of()
    return store.scope.get_variable(
        store, name, shape=shape, dtype=dtype, initializer=initializer, regularizer=regularizer,
        trainable=trainable, collections=collections, caching_device=caching_device,
        partitioner=partitioner, validate_shape=validate_shape, use_resource=use_resource,
        custom_getter=custom_getter, constraint=constraint, synchronization=synchronization,
        aggregation=aggregation,
    )  # fmt: skip


@export(v1="get_local_variable")
def get_local_variable(*args: Any, **kwargs: Any) -> Any:
    """As `get_variable`, for a variable of LOCAL_VARIABLES that is not trained."""
    kwargs["trainable"] = False
    kwargs["collections"] = [*(kwargs.get("collections") or []), GraphKeys.LOCAL_VARIABLES]
    return get_variable(*args, **kwargs)


def _wrapped_getter(custom_getter: Any, outer: Any) -> Any:
    """A getter that asks `custom_getter`, whose own getter is the outer one."""
    if outer is None:
        return custom_getter

    def wrapped(getter: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def around(*a: Any, **k: Any) -> Any:
            return outer(getter, *a, **k)

        return custom_getter(around, *args, **kwargs)

    return wrapped


class PureVariableScope:
    """A context for a variable scope alone, without a scope of names of operations."""

    def __init__(
        self, name_or_scope: Any, reuse: Any = None, initializer: Any = None,
        regularizer: Any = None, caching_device: Any = None, partitioner: Any = None,
        custom_getter: Any = None, old_name_scope: str | None = None, dtype: Any = None,
        use_resource: bool | None = None, constraint: Any = None,
    ):  # fmt: skip
        self._given = name_or_scope
        self._reuse = reuse
        self._old_name_scope = old_name_scope
        self._custom_getter = custom_getter
        self._changes = {
            key: value
            for key, value in {
                "initializer": initializer, "regularizer": regularizer,
                "caching_device": caching_device, "partitioner": partitioner, "dtype": dtype,
                "use_resource": use_resource, "constraint": constraint,
            }.items()
            if value is not None
        }  # fmt: skip

    def __enter__(self) -> VariableScope:
        self._store = store = store_of()
        self._old = store.scope
        given = self._given
        base = given if isinstance(given, VariableScope) else self._old
        changes = dict(self._changes)
        if self._custom_getter is not None:
            changes["custom_getter"] = _wrapped_getter(self._custom_getter, base.custom_getter)
        if isinstance(given, VariableScope):
            self._name = given.name
            store.open(self._name)
            self._old_counts = dict(store.counts)
            changes["name_scope"] = (
                given.original_name_scope if self._old_name_scope is None else self._old_name_scope
            )
            reuse = self._reuse or given.reuse
        else:
            self._name = f"{self._old.name}/{given}" if self._old.name else given
            changes["name_scope"] = self._old_name_scope or given
            reuse = self._reuse or self._old.reuse
            store.open(self._name)
        store.scope = base._derived(name=self._name, reuse=reuse, **changes)
        return store.scope

    def __exit__(self, *_: Any) -> None:
        self._store.close_below(self._name)
        if isinstance(self._given, VariableScope):
            self._store.counts = self._old_counts
        self._store.scope = self._old


@export(v1="variable_scope")
class variable_scope:
    """A context in which `get_variable` adds a prefix to names, and scopes of names likewise.

    Args:
      name_or_scope: a name, or a VariableScope to enter again.
      default_name: the name where `name_or_scope` is None, numbered to be new.
      values: tensors whose graph is used.
      initializer, regularizer, caching_device, partitioner, custom_getter, dtype, use_resource,
        constraint: what `get_variable` takes where its caller says nothing; the outer scope's by
        default.
      reuse: True to find existing variables only, AUTO_REUSE to find or make them, None for the
        outer scope's choice.
      auxiliary_name_scope: False to leave the names of operations as they are.
    """

    def __init__(
        self, name_or_scope: Any, default_name: str | None = None, values: Any = None,
        initializer: Any = None, regularizer: Any = None, caching_device: Any = None,
        partitioner: Any = None, custom_getter: Any = None, reuse: Any = None, dtype: Any = None,
        use_resource: bool | None = None, constraint: Any = None,
        auxiliary_name_scope: bool = True,
    ):  # fmt: skip
        if default_name is None and name_or_scope is None:
            raise TypeError("If default_name is None then name_or_scope is required")
        if reuse not in (None, True, False, AUTO_REUSE):
            raise ValueError(
                f"The reuse parameter must be True, False, None or tf.AUTO_REUSE, got {reuse!r}"
            )
        if name_or_scope is not None and not isinstance(name_or_scope, (str, VariableScope)):
            raise TypeError(
                "VariableScope: name_or_scope must be a string or VariableScope, got "
                f"{name_or_scope!r}."
            )
        if name_or_scope is None and reuse is True:
            raise ValueError("reuse=True cannot be used without a name_or_scope")
        if not isinstance(auxiliary_name_scope, bool):
            raise TypeError(
                f"The auxiliary_name_scope must be `True` or `False`, got {auxiliary_name_scope}"
            )
        self._name_or_scope = name_or_scope
        self._default_name = default_name
        self._values = list(values) if values is not None else []
        self._reuse = None if reuse is False else reuse
        self._auxiliary = auxiliary_name_scope
        self._options = {
            "initializer": initializer, "regularizer": regularizer,
            "caching_device": caching_device, "partitioner": partitioner,
            "custom_getter": custom_getter, "dtype": dtype, "use_resource": use_resource,
            "constraint": constraint,
        }  # fmt: skip
        self._contexts: list[list[Any]] = []

    def __enter__(self) -> VariableScope:
        contexts: list[Any] = []

        def enter(context: Any) -> Any:
            result = context.__enter__()
            contexts.append(context)
            return result

        try:
            graph = graph_of_values(self._values) if self._values else get_default_graph()
            if graph is not get_default_graph():
                enter(graph.as_default())
            given = self._name_or_scope
            if given is None:
                given = store_of().unique(self._default_name)
            own = given if isinstance(given, str) else given.name.rpartition("/")[2]
            if self._auxiliary:
                current = enter(name_scope(own)) if own else get_default_graph()._scope
            else:
                current = get_default_graph()._scope
            # A scope that is entered again keeps the names of its first opening.
            old = None if isinstance(given, VariableScope) else current
            scope = enter(
                PureVariableScope(given, self._reuse, old_name_scope=old, **self._options)
            )
        except BaseException:
            for context in reversed(contexts):
                context.__exit__(None, None, None)
            raise
        self._contexts.append(contexts)
        return scope

    def __exit__(self, *_: Any) -> None:
        for context in reversed(self._contexts.pop()):
            context.__exit__(None, None, None)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Makes a function open the scope around each call."""

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return inside


@export(v1="variable_op_scope")
def variable_op_scope(
    values: Any, name_or_scope: Any, default_name: str | None = None, initializer: Any = None,
    regularizer: Any = None, caching_device: Any = None, partitioner: Any = None,
    custom_getter: Any = None, reuse: Any = None, dtype: Any = None,
    use_resource: bool | None = None, constraint: Any = None,
) -> variable_scope:  # fmt: skip
    """As `variable_scope`, with the arguments in an older order."""
    return variable_scope(
        name_or_scope, default_name, values, initializer, regularizer, caching_device, partitioner,
        custom_getter, reuse, dtype, use_resource, constraint,
    )  # fmt: skip


@export(v1="create_partitioned_variables")
def create_partitioned_variables(
    shape: Any, slicing: Any, initializer: Any, dtype: Any = dtypes.float32,
    trainable: bool = True, collections: Any = None, name: str | None = None, reuse: Any = None,
) -> list[Variable]:  # fmt: skip
    """The parts of a variable cut as `slicing` says: the number of parts along each dimension.

    ValueError when the slicing does not fit the shape, or cuts more than one dimension.
    """
    if len(shape) != len(slicing):
        raise ValueError(
            "The 'shape' and 'slicing' of a partitioned Variable must have the length: shape: "
            f"{shape}, slicing: {slicing}"
        )
    if len(shape) < 1:
        raise ValueError(f"A partitioned Variable must have rank at least 1: shape: {shape}")

    def partitioner(**_: Any) -> Any:
        return slicing

    with variable_scope(name, "PartitionedVariable", reuse=reuse) as scope:
        whole = store_of().get(
            scope.name, shape=shape, dtype=dtype, initializer=initializer, trainable=trainable,
            partitioner=partitioner, collections=collections, reuse=scope.reuse,
            use_resource=scope.use_resource,
        )  # fmt: skip
        return list(whole)
