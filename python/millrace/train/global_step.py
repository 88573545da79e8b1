"""The variable that counts training steps."""

from contextlib import nullcontext
from typing import Any

from millrace import _core, gen_ops
from millrace.core import dtypes, logging
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.default_graph import control_dependencies, get_default_graph, name_scope
from millrace.graph.graph import Graph
from millrace.graph.keys import GraphKeys
from millrace.state.eager_variable import is_eager_variable
from millrace.state.initializers import Zeros
from millrace.state.variable import Variable, VariableAggregation
from millrace.state.variable_scope import get_variable

# The collection of the step as hooks read it.
_READS = "global_step_read_op_cache"


@export(v1="train.global_step")
def global_step(sess: Any, global_step_tensor: Any) -> int:
    """The number of steps so far, as a Python integer."""
    return int(sess.run(global_step_tensor))


@export(v1=("train.get_global_step", "contrib.framework.get_global_step"))
def get_global_step(graph: Graph | None = None) -> Any:
    """The variable or tensor that counts the steps of a graph, or None.

    It is the one in the collection GLOBAL_STEP, or the tensor named "global_step:0". TypeError when
    that cannot be one.
    """
    graph = graph or get_default_graph()
    found = graph.get_collection(GraphKeys.GLOBAL_STEP)
    if len(found) > 1:
        logging.error("Multiple tensors in global_step collection.")
        return None
    if found:
        step = found[0]
    else:
        try:
            step = graph.get_tensor_by_name("global_step:0")
        except KeyError:
            return None
    assert_global_step(step)
    return step


@export(v1=("train.create_global_step", "contrib.framework.create_global_step"))
def create_global_step(graph: Graph | None = None) -> Variable:
    """Makes the variable that counts the steps. ValueError when there is one."""
    graph = graph or get_default_graph()
    if get_global_step(graph) is not None:
        raise ValueError('"global_step" already exists.')
    at_once = _core.executing_eagerly()
    with nullcontext() if at_once else graph.as_default(), name_scope(None):
        step = get_variable(
            GraphKeys.GLOBAL_STEP, shape=[], dtype=dtypes.int64, initializer=Zeros(),
            trainable=False, aggregation=VariableAggregation.ONLY_FIRST_REPLICA,
            collections=[GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP],
        )  # fmt: skip
    if at_once:  # variables with values are in no other collection
        graph.add_to_collection(GraphKeys.GLOBAL_STEP, step)
    return step


@export(v1=("train.get_or_create_global_step", "contrib.framework.get_or_create_global_step"))
def get_or_create_global_step(graph: Graph | None = None) -> Any:
    """The variable that counts the steps, made where there is none."""
    graph = graph or get_default_graph()
    step = get_global_step(graph)
    return create_global_step(graph) if step is None else step


@export(v1=("train.assert_global_step", "contrib.framework.assert_global_step"))
def assert_global_step(global_step_tensor: Any) -> None:
    """TypeError unless it is an integer scalar: a variable or a tensor."""
    if not isinstance(global_step_tensor, (Variable, Tensor)) and not is_eager_variable(
        global_step_tensor
    ):
        raise TypeError(
            f'Existing "global_step" must be a Variable or Tensor: {global_step_tensor}.'
        )
    if not global_step_tensor.dtype.base_dtype.is_integer:
        raise TypeError(
            f'Existing "global_step" does not have integer type: {global_step_tensor.dtype.name}'
        )
    shape = global_step_tensor.shape
    if shape.ndims != 0 and shape.is_fully_defined():
        raise TypeError(f'Existing "global_step" is not scalar: {shape}')


def global_step_read(graph: Graph | None = None) -> Tensor | None:
    """The number of steps as a tensor that is read after what it is made to wait for; the same one
    for all who ask. None where no steps are counted."""
    graph = graph or get_default_graph()
    known = graph.get_collection(_READS)
    if known:
        return known[0]
    step = get_global_step(graph)
    if step is None:
        return None
    with graph.as_default(), graph.name_scope(step.op.name + "/"), control_dependencies(None):
        read = _value_or_initial(step) + 0
    graph.add_to_collection(_READS, read)
    return read


def _value_or_initial(step: Any) -> Any:
    """The value of the count, the initial one before it has any."""
    if not isinstance(step, Variable):
        return step
    if step._is_resource:
        return step.initialized_value()
    # As TensorFlow 1 writes a branch: it has no functions of references, and reads this graph too.
    with name_scope("cond"):
        has_value = step._has_value()
        _, reference = gen_ops.ref_switch(step._ref(), has_value)
        initial, _ = gen_ops.switch(step.initializer.inputs[1], has_value)
        return gen_ops.merge([initial, gen_ops.identity(reference)])[0]
