"""Parameters that were read while the step before was computed."""

from typing import Any, Callable

from millrace import gen_ops
from millrace.core.tensor import Tensor
from millrace.graph.default_graph import control_dependencies, get_default_graph
from millrace.graph.gradients import add_stand_in, has_stand_in
from millrace.graph.graph import Graph
from millrace.graph.keys import GraphKeys
from millrace.graph.operation import Operation
from millrace.state.init_scope import Lifted
from millrace.state.partitioned_variable import PartitionedVariable
from millrace.state.reference_variable import RefVariable
from millrace.state.resource_variable import ResourceVariable
from millrace.state.variables import Variable


class ReadAhead:
    """Lets a worker that trains asynchronously read the parameters of its next step while it
    computes: a `custom_getter` for `tf.variable_scope`.

        with tf.variable_scope(tf.get_variable_scope(), custom_getter=ReadAhead()):
            loss = model(...)
        train = optimizer.minimize(loss, global_step)

    Trainable variables that are got in the scope are read from a copy on the worker. A run that
    computes gradients by way of such copies computes with them as they are, reads all variables
    anew meanwhile, and lets no gradient go to its variable before: so the next run's parameters
    have all of this worker's updates but the last. Runs without gradients leave copies as they are.

    Copies are local variables, which `local_init_op` fills in every new session, or
    `tf.local_variables_initializer()`. All else that is done with a variable is done to the one on
    the server: changes, saving, fetches, `read_value()`, and lookups of rows.
    """

    def __init__(self) -> None:
        self._gates: dict[tuple[Graph, str], Operation] = {}
        self._views: dict[tuple[Any, str], Variable] = {}

    def __call__(self, getter: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A variable, as `tf.variable_scope` asks for it. TypeError where another getter inside
        gives something else."""
        regularizer = kwargs.get("regularizer")
        if regularizer is not None:
            # Called for a new variable, beside it: its loss is the worker's, as that of the model.
            def regularize(variable: Any) -> Any:
                with get_default_graph().colocate_with(None, ignore_existing=True):
                    return regularizer(self._view(variable))

            kwargs["regularizer"] = regularize
        found = getter(*args, **kwargs)
        if not isinstance(found, PartitionedVariable):
            return self._view(found)
        parts = [self._view(part) for part in found]
        return PartitionedVariable(
            found.name, found.shape, found.dtype, parts, found._get_partitions()
        )

    def _view(self, variable: Any) -> Any:
        """The variable as the worker sees it whose device is open."""
        if not isinstance(variable, Variable):
            raise TypeError(
                f"ReadAhead reads variables, and the getter inside gave {variable!r}: expected its "
                "scope inside the one of the getter that makes this of a variable"
            )
        if not variable.trainable:
            return variable
        with Lifted() as graph, graph.colocate_with(None, ignore_existing=True):
            place = gen_ops.no_op(name="read_ahead/worker")
            # One gate for all that is read to a device, and one copy of each variable.
            gate = self._gates.setdefault((graph, place.device), place)
        view = self._views.get((variable, place.device))
        if view is None:
            kind = _ResourceView if isinstance(variable, ResourceVariable) else _RefView
            view = self._views[variable, place.device] = kind(variable, gate)
        return view


def refuse_read_ahead(variables: Any, who: str) -> None:
    """ValueError where one of the variables is read ahead, which would be of no use to `who`."""
    for variable in variables:
        if has_stand_in(variable):
            raise ValueError(
                f"{who} makes steps of gradients at the newest parameters, and '{variable.name}' "
                "is read ahead: ReadAhead is for workers that train asynchronously"
            )


def _copy(variable: Any, gate: Operation) -> Tensor:
    """The value of a copy beside `gate`; who passes the gate has brought the copy up to date."""
    with Lifted() as graph, graph.name_scope(None):
        with graph.colocate_with(None, ignore_existing=True):
            # Also where one run initialises everything.
            first, newest = variable.initialized_value(), variable.value()
        first.set_shape(variable.shape)

        def initial() -> Tensor:
            return first

        initial.reads_variables = False
        with graph.colocate_with(gate, ignore_existing=True):
            copy = ResourceVariable(
                initial, trainable=False, collections=[GraphKeys.LOCAL_VARIABLES],
                validate_shape=variable.shape.is_fully_defined(),
                name=f"{variable.op.name}/read_ahead",
            )  # fmt: skip
            used = copy._as_graph_element()
            with control_dependencies([used.op]):
                gate._add_control_input(copy.assign(newest, read_value=False))
    add_stand_in(variable, used, gate)
    return used


class _View:
    """A variable whose value is that of a copy, made when it is first used: one that is only
    looked up by rows is not read whole."""

    # These are the class's beside this one, a Variable's.
    __dict__: dict[str, Any]

    def __init__(self, variable: Any, gate: Operation):
        self.__dict__.update(variable.__dict__)
        self._read_ahead_of = variable
        self._gate = gate
        self._used: Tensor | None = None

    def value(self) -> Tensor:
        if self._used is None:
            self._used = _copy(self._read_ahead_of, self._gate)
        return self._used

    def __eq__(self, other: object) -> bool:
        return self._read_ahead_of is getattr(other, "_read_ahead_of", other)

    def __hash__(self) -> int:
        return hash(self._read_ahead_of)


class _ResourceView(_View, ResourceVariable):
    def _as_tensor(self, dtype: Any = None, as_ref: bool = False) -> Tensor:
        return self._read_ahead_of._as_tensor(dtype, True) if as_ref else _value(self, dtype)

    def sparse_read(self, indices: Any, name: str | None = None) -> Tensor:
        return self._read_ahead_of.sparse_read(indices, name)


class _RefView(_View, RefVariable):
    def _as_tensor(self, dtype: Any = None, as_ref: bool = False) -> Tensor:
        return self._read_ahead_of._as_tensor(dtype, True) if as_ref else _value(self, dtype)

    _AsTensor = _as_tensor

    def sparse_read(self, indices: Any, name: str | None = None) -> Tensor:
        """The slices at `indices` of the first dimension, taken where the variable is."""
        variable = self._read_ahead_of
        with get_default_graph().colocate_with(variable.op):
            return gen_ops.gather(variable, indices, name=name)


def _value(view: Any, dtype: Any) -> Tensor:
    view._check_type(dtype)
    return view.value()
