"""Averages that follow values over the steps."""

from contextlib import nullcontext
from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies, get_default_graph, name_scope
from millrace.graph.keys import GraphKeys
from millrace.graph.operation import Operation
from millrace.ops.math import div
from millrace.ops.math import truediv as true_divide
from millrace.ops.ordering import group
from millrace.state.eager_variable import is_eager_variable
from millrace.state.init_scope import init_scope
from millrace.state.initializers import Zeros
from millrace.state.variable import Variable
from millrace.state.variable_lists import (
    global_variables,
    moving_average_variables,
    trainable_variables,
)
from millrace.state.variable_scope import get_variable, get_variable_scope, variable_scope
from millrace.train.slots import create_slot, create_zeros_slot


def assign_moving_average(
    variable: Any, value: Any, decay: Any, zero_debias: bool = True, name: str | None = None
) -> Any:
    """variable = variable * decay + value * (1 - decay). Gives the variable after that.

    `zero_debias`: corrects for a start at zero, with two variables "biased" and "local_step" below
    the name of the variable.
    """
    at_once = is_eager_variable(variable)
    beside = nullcontext() if at_once else get_default_graph().colocate_with(variable.op)
    with name_scope(name, "AssignMovingAvg", [variable, value, decay]) as scope, beside:
        rate = convert_to_tensor(1.0 - decay, name="decay")
        dtype = variable.dtype.base_dtype
        if rate.dtype.base_dtype is not dtype:
            rate = gen_ops.cast(rate, dtype)
        if zero_debias and not at_once:
            return _assign_unbiased(variable, value, rate)
        return variable.assign_sub((variable - value) * rate, name=scope)


def _assign_unbiased(variable: Any, value: Any, rate: Any) -> Any:
    dtype = variable.dtype.base_dtype
    with variable_scope(variable.op.name, values=[variable, value, rate]):
        biased = get_variable(
            _unique("biased"), shape=variable.shape, dtype=dtype, initializer=Zeros(),
            trainable=False,
        )  # fmt: skip
        local_step = get_variable(
            _unique("local_step"), shape=[], dtype=dtype, initializer=Zeros(), trainable=False
        )
    averaged = biased.assign_sub((biased - value) * rate)
    counted = local_step.assign_add(1)
    with control_dependencies([averaged, counted]):
        steps = local_step.read_value()
        factor = 1 - gen_ops.pow(1.0 - rate, steps)
        return variable.assign(biased.read_value() / factor)


def _unique(name: str) -> str:
    """The name, numbered where a variable of the open scope has it and is not to be shared."""
    scope = get_variable_scope()
    if scope.reuse:
        return name
    prefix = scope.name + "/" if scope.name else ""
    taken = {v.op.name for v in scope.global_variables()}
    candidate, number = name, 1
    while prefix + candidate in taken:
        candidate = f"{name}_{number}"
        number += 1
    return candidate


def weighted_moving_average(
    value: Any, decay: Any, weight: Any, truediv: bool = True, collections: Any = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """The moving average of `value`, each time with a weight.

    Args:
      truediv: whether integers are divided as floating numbers.
      collections: for the two variables that it makes; GLOBAL_VARIABLES by default.
    """
    if collections is None:
        collections = [GraphKeys.GLOBAL_VARIABLES]
    with variable_scope(name, "WeightedMovingAvg", [value, weight, decay]) as scope:
        value, weight = convert_to_tensor(value), convert_to_tensor(weight)

        def average(name: str, of: Any, shape: Any) -> Any:
            variable = get_variable(
                name, shape=shape, dtype=of.dtype.base_dtype, initializer=Zeros(),
                trainable=False, collections=collections,
            )  # fmt: skip
            return assign_moving_average(variable, of, decay, zero_debias=False)

        numerator = average("value_x_weight", value * weight, value.shape)
        denominator = average("weight", weight, weight.shape)
        divide = true_divide if truediv else div
        return divide(numerator, denominator, name=scope.name.split("/")[-1])


def _key(var: Any) -> Any:
    """What stands for a variable in dictionaries: those with values compare by elements."""
    return var.ref() if is_eager_variable(var) else var


@export(v1="train.ExponentialMovingAverage", v2="train.ExponentialMovingAverage")
class ExponentialMovingAverage:
    """Keeps averages of variables: shadow = decay * shadow + (1 - decay) * variable.

    Args:
      decay: near one: 0.999.
      num_updates: a count of steps that makes the decay smaller at first:
        min(decay, (1 + num_updates) / (10 + num_updates)).
      zero_debias: whether averages of tensors are corrected for their start at zero.
      name: what the averages are called: "w/ExponentialMovingAverage".
    """

    def __init__(
        self, decay: Any, num_updates: Any = None, zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ):  # fmt: skip
        self._decay = decay
        self._num_updates = num_updates
        self._zero_debias = zero_debias
        self._name = name
        self._averages: dict[Any, Any] = {}
        self._debiased: set[Any] = set()

    @property
    def name(self) -> str:
        """What the averages are called."""
        return self._name

    def apply(self, var_list: Any = None) -> Operation:
        """An operation that brings the averages up to date, which are made on the first call.

        `var_list`: variables or tensors of floating type; all trainable variables by default.
        TypeError for other types.
        """
        variables = list(trainable_variables() if var_list is None else var_list)
        for var in variables:
            if not var.dtype.base_dtype.is_floating:
                raise TypeError(f"The variables must be half, float, or double: {var.name}")
            if _key(var) not in self._averages:
                with init_scope():
                    self._averages[_key(var)] = self._make(var)
        with name_scope(self._name) as scope:
            decay = convert_to_tensor(self._decay, dtype=dtypes.float32, name="decay")
            if self._num_updates is not None:
                count = convert_to_tensor(self._num_updates)
                count = gen_ops.cast(count, dtypes.float32, name="num_updates")
                decay = gen_ops.minimum(decay, (1.0 + count) / (10.0 + count))
            updates = []
            for var in variables:
                average = self._averages[_key(var)]
                updates.append(
                    assign_moving_average(average, var, decay, _key(average) in self._debiased)
                )
            return group(*updates, name=scope)

    def _make(self, var: Any) -> Any:
        if is_eager_variable(var):
            return create_slot(var, var.value(), self._name)
        if isinstance(var, Variable):
            graph = get_default_graph()
            with graph.device(var.device or None):
                initial = var.initialized_value()
            average = create_slot(var, initial, self._name)
            graph.add_to_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, var)
            return average
        is_variable = var.op.type in ("Variable", "VariableV2", "VarHandleOp")
        average = create_zeros_slot(var, self._name, colocate_with_primary=is_variable)
        if self._zero_debias:
            self._debiased.add(_key(average))
        return average

    def average(self, var: Any) -> Any:
        """The variable that has the average of `var`, or None."""
        return self._averages.get(_key(var))

    def average_name(self, var: Any) -> str:
        """The name of the variable that has the average of `var`, or would have."""
        if is_eager_variable(var):
            return f"{var._shared_name}/{self._name}"
        if var in self._averages:
            return self._averages[var].op.name
        return get_default_graph().unique_name(f"{var.op.name}/{self._name}", mark_as_used=False)

    def variables_to_restore(self, moving_avg_variables: Any = None) -> dict[str, Any]:
        """{name in a checkpoint: variable}, with averages in the place of the variables.

        `moving_avg_variables`: the variables that averages are kept of; all trainable ones and
        those that `apply` was called with by default.
        """
        if moving_avg_variables is None:
            moving_avg_variables = trainable_variables() + moving_average_variables()
        averaged = dict.fromkeys(moving_avg_variables)
        names = {self.average_name(v): v for v in averaged}
        known = {v.name for v in averaged}
        for v in dict.fromkeys(global_variables()):
            if v.name not in known and v.op.name not in names:
                names[v.op.name] = v
        return names
