"""The frame of optimisers: gradients, slots, and one update per variable."""

from contextlib import nullcontext
from typing import Any, Callable

from millrace import _core, gen_ops
from millrace.core import dtypes, nest
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.core.trackable import Trackable
from millrace.eager.tape import GradientTape
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies, get_default_graph, name_scope
from millrace.graph.gradients import gradients
from millrace.graph.keys import GraphKeys
from millrace.graph.operation import Operation
from millrace.graph.sparse import IndexedSlices
from millrace.ops.ordering import group, tuple_
from millrace.state.eager_variable import Variable as EagerVariable
from millrace.state.eager_variable import is_eager_variable
from millrace.state.init_scope import init_scope
from millrace.state.partitioned_variable import PartitionedVariable
from millrace.state.resource_variable import ResourceVariable
from millrace.state.variable_lists import trainable_variables
from millrace.state.variables import Variable
from millrace.train.slots import (
    create_slot,
    create_slot_with_initializer,
    create_zeros_slot,
    eager_slot,
)


def is_resource(variable: Any) -> bool:
    """Whether a variable is one behind a handle."""
    return isinstance(variable, ResourceVariable) or is_eager_variable(variable)


def colocated(variable: Any) -> Any:
    """A context in which operations stand beside a variable."""
    if is_eager_variable(variable):
        return nullcontext()
    return get_default_graph().colocate_with(variable.op)


def _var_key(variable: Any) -> Any:
    """What slots are kept by."""
    if is_eager_variable(variable):
        return variable._unique_id
    return (variable.op.graph, variable.op.name)


def _flat(var_list: Any) -> list[Any]:
    """The variables of a list, with those made of parts taken apart."""
    if not isinstance(var_list, PartitionedVariable) and not nest.is_collection(var_list):
        var_list = [var_list]
    variables: list[Any] = []
    for variable in var_list:
        if isinstance(variable, (list, tuple, PartitionedVariable)):
            variables += _flat(variable)
        else:
            variables.append(variable)
    return variables


def _check_variable(variable: Any) -> None:
    if not isinstance(variable, (Variable, EagerVariable, Tensor)):
        raise TypeError(f"Argument is not a tf.Variable: {variable!r}{_core.user_line()}")


@export(v1="train.Optimizer")
class Optimizer(Trackable):
    """The base of optimisers. `minimize(loss)` is what most programs need.

    A new optimiser says how to update: `_apply_dense(grad, var)` and `_apply_sparse(grad, var)` for
    reference variables, `_resource_apply_dense(grad, handle)` and
    `_resource_apply_sparse(grad, handle, indices)` for resource ones. `_create_slots(var_list)`
    makes variables beside the variables, `_prepare()` tensors of the hyperparameters, and
    `_finish(update_ops, name)` does what is to be done once a step.
    """

    GATE_NONE = 0
    GATE_OP = 1
    GATE_GRAPH = 2

    def __init__(self, use_locking: bool, name: str):
        if not name:
            raise ValueError("Must specify the optimizer name")
        self._use_locking = use_locking
        self._name = name
        self._slots: dict[str, dict[Any, Any]] = {}
        # The variables that slots outside of graphs belong to, by key.
        self._slot_owners: dict[Any, Any] = {}
        self._non_slot_dict: dict[Any, Any] = {}

    def get_name(self) -> str:
        """The name given."""
        return self._name

    def minimize(
        self, loss: Any, global_step: Any = None, var_list: Any = None,
        gate_gradients: int = GATE_OP, aggregation_method: Any = None,
        colocate_gradients_with_ops: bool = False, name: str | None = None, grad_loss: Any = None,
    ) -> Operation:  # fmt: skip
        """An operation that changes the variables so that `loss` becomes smaller.

        Args:
          loss: a tensor.
          global_step: a variable to count the steps in.
          var_list: the variables to change; all trainable ones by default.
          grad_loss: the gradient of the loss, ones by default.

        ValueError when no variable has a gradient.
        """
        pairs = self.compute_gradients(
            loss,
            var_list,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )
        if all(gradient is None for gradient, _ in pairs):
            variables = ", ".join(str(v) for _, v in pairs)
            raise ValueError(
                "No gradients provided for any variable, check your graph for ops that do not "
                f"support gradients, between variables [{variables}] and loss {loss}."
                f"{_core.user_line()}"
            )
        return self.apply_gradients(pairs, global_step, name)

    def compute_gradients(
        self, loss: Any, var_list: Any = None, gate_gradients: int = GATE_OP,
        aggregation_method: Any = None, colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Any]]:  # fmt: skip
        """[(gradient, variable)]; a gradient is None where the loss does not depend on it."""
        if callable(loss) and _core.eager_enabled():
            return self._compute_gradients_of(loss, var_list, grad_loss)
        if _core.executing_eagerly():
            raise RuntimeError(
                "`loss` passed to Optimizer.compute_gradients should be a function when eager "
                "execution is enabled."
            )
        if callable(loss):
            loss = loss()
        if gate_gradients not in (self.GATE_NONE, self.GATE_OP, self.GATE_GRAPH):
            raise ValueError(
                "gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, "
                f"Optimizer.GATE_GRAPH. Not {gate_gradients}"
            )
        self._assert_valid_dtypes([loss])
        if grad_loss is not None:
            self._assert_valid_dtypes([grad_loss])
        given = var_list is not None
        if not given:
            streaming = get_default_graph().get_collection(GraphKeys.TRAINABLE_RESOURCE_VARIABLES)
            var_list = trainable_variables() + streaming
        variables = _flat(var_list)
        if not variables:
            raise ValueError(
                "No variables to optimize. There are none in "
                f"{'var_list' if given else 'the collection of trainable variables'}, for the "
                f"loss {loss}.{_core.user_line()}"
            )
        for variable in variables:
            _check_variable(variable)
        found = gradients(
            loss, variables, grad_ys=grad_loss,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
            gate_gradients=gate_gradients == self.GATE_OP, aggregation_method=aggregation_method,
        )  # fmt: skip
        if gate_gradients == self.GATE_GRAPH:
            found = tuple_(found)
        pairs = list(zip(found, variables, strict=True))
        self._assert_valid_dtypes(
            [v for g, v in pairs if g is not None and v.dtype.base_dtype is not dtypes.resource]
        )
        return pairs

    def _compute_gradients_of(
        self, loss: Callable[[], Any], var_list: Any, grad_loss: Any
    ) -> list[tuple[Any, Any]]:
        """The gradients of what a function computes now."""
        with GradientTape() as tape:
            if var_list is not None:
                tape.watch(var_list)
            value = loss()
        variables = list(tape.watched_variables() if var_list is None else _flat(var_list))
        found = tape.gradient(value, variables, None if grad_loss is None else [grad_loss])
        pairs = list(zip(found, variables, strict=True))
        self._assert_valid_dtypes([v for g, v in pairs if g is not None])
        return pairs

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """An operation that updates each variable by its gradient, and then counts the step. Where
        operations run at once it has been done, and there is none.

        ValueError when there is no gradient, TypeError for what is none.
        """
        pairs = tuple(grads_and_vars)
        if not pairs:
            raise ValueError(
                "No variables provided. apply_gradients takes pairs of a gradient and a variable, "
                f"and got no pair.{_core.user_line()}"
            )
        converted = []
        for gradient, variable in pairs:
            if gradient is not None and not isinstance(gradient, IndexedSlices):
                try:
                    gradient = convert_to_tensor(gradient)
                except TypeError:
                    raise TypeError(
                        "Gradient must be convertible to a Tensor or IndexedSlices, or None: "
                        f"{gradient}"
                    ) from None
            _check_variable(variable)
            # A constraint is one of the variable itself, whatever was computed with.
            converted.append((gradient, getattr(variable, "_read_ahead_of", variable)))
        changed = [variable for gradient, variable in converted if gradient is not None]
        if not changed:
            names = ", ".join(v.name for _, v in converted)
            raise ValueError(f"No gradients provided for any variable: {names}.")
        with _core.init_scope() if is_eager_variable(changed[0]) else init_scope():
            self._create_slots(changed)
        updates = []
        with name_scope(name, self._name) as scope:
            self._prepare()
            for gradient, variable in converted:
                if gradient is None:
                    continue
                label = variable._shared_name if is_eager_variable(variable) else variable.op.name
                with name_scope("update_" + label), colocated(variable):
                    updates.append(self._update(gradient, variable))
            if global_step is None:
                done = self._finish(updates, scope)
            else:
                with control_dependencies([self._finish(updates, "update")]):
                    done = self._count(global_step, scope)
        if is_eager_variable(changed[0]):
            return done
        if isinstance(done, Tensor):
            done = done.op
        trained = get_default_graph().get_collection_ref(GraphKeys.TRAIN_OP)
        if done not in trained:
            trained.append(done)
        return done

    @staticmethod
    def _count(global_step: Any, name: str) -> Any:
        with colocated(global_step):
            if is_resource(global_step):
                one = convert_to_tensor(1, dtype=global_step.dtype.base_dtype)
                return gen_ops.assign_add_variable_op(global_step.handle, one, name=name)
            return gen_ops.assign_add(global_step, 1, name=name)

    def _update(self, gradient: Any, variable: Any) -> Any:
        if isinstance(variable, Tensor) and not variable.dtype._is_ref_dtype:
            raise NotImplementedError(f"Trying to update a Tensor {variable}")
        constraint = getattr(variable, "constraint", None)
        if isinstance(gradient, IndexedSlices):
            if constraint is not None:
                raise RuntimeError(
                    f"Cannot use a constraint function on a sparse variable: {variable}"
                )
            if is_resource(variable):
                return self._resource_apply_sparse_duplicate_indices(
                    gradient.values, variable, gradient.indices
                )
            return self._apply_sparse_duplicate_indices(gradient, variable)
        if is_resource(variable):
            done = self._resource_apply_dense(gradient, variable)
        else:
            done = self._apply_dense(gradient, variable)
        if constraint is None:
            return done
        with control_dependencies([done]):
            return variable.assign(constraint(variable))

    # Slots: variables beside the variables.

    def get_slot(self, var: Any, name: str) -> Any:
        """The slot of that name for a variable, or None."""
        return self._slots.get(name, {}).get(_var_key(var))

    def get_slot_names(self) -> list[str]:
        """The names of the slots there are."""
        return sorted(self._slots)

    def variables(self) -> list[Any]:
        """The variables that the optimiser made."""
        graph = get_default_graph()
        made = [v for slots in self._slots.values() for v in slots.values()]
        made += self._non_slot_variables()
        here = [v for v in made if is_eager_variable(v) or v.graph is graph]
        return sorted(here, key=lambda v: v.name)

    def _get_or_make_slot(self, var: Any, val: Any, slot_name: str, op_name: str) -> Any:
        return self._make_slot(var, slot_name, lambda: create_slot(var, val, op_name))

    def _get_or_make_slot_with_initializer(
        self, var: Any, initializer: Any, shape: Any, dtype: Any, slot_name: str, op_name: str
    ) -> Any:
        return self._make_slot(
            var, slot_name,
            lambda: create_slot_with_initializer(var, initializer, shape, dtype, op_name),
        )  # fmt: skip

    def _zeros_slot(self, var: Any, slot_name: str, op_name: str) -> Any:
        return self._make_slot(var, slot_name, lambda: create_zeros_slot(var, op_name))

    def _make_slot(self, var: Any, slot_name: str, make: Callable[[], Any]) -> Any:
        slots = self._slot_dict(slot_name)
        key = _var_key(var)
        if key not in slots:
            slots[key] = make()
            if is_eager_variable(var):
                self._slot_owners[key] = var
        return slots[key]

    # Slots in checkpoints of objects.

    def _slots_to_save(self) -> list[tuple[Any, str, Any]]:
        return [
            (self._slot_owners[key], name, slot)
            for name, slots in sorted(self._slots.items())
            for key, slot in slots.items()
            if key in self._slot_owners
        ]

    def _restore_slot(self, variable: Any, slot_name: str, position: Any) -> None:
        if not is_eager_variable(variable):
            return
        slot = self.get_slot(variable, slot_name)
        if slot is None:
            value = position.value()
            if value is None:
                return
            slot = self._make_slot(
                variable, slot_name, lambda: eager_slot(variable, self._name, value, None, None)
            )
        position.bind(slot)

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        children = super()._trackable_children(save_type, **kwargs)
        for (name, graph), variable in sorted(self._non_slot_dict.items(), key=lambda e: e[0][0]):
            if graph is None:
                children[name] = variable
        return children

    def _slot_dict(self, slot_name: str) -> dict[Any, Any]:
        return self._slots.setdefault(slot_name, {})

    def _create_non_slot_variable(self, initial_value: Any, name: str, colocate_with: Any) -> Any:
        if is_eager_variable(colocate_with):
            return self._create_eager_non_slot(initial_value, name)
        key = (name, colocate_with.graph)
        if key not in self._non_slot_dict:
            with get_default_graph().colocate_with(colocate_with.op):
                self._non_slot_dict[key] = Variable(
                    initial_value,
                    name=name,
                    trainable=False,
                    use_resource=is_resource(colocate_with),
                )
        return self._non_slot_dict[key]

    def _create_eager_non_slot(self, initial_value: Any, name: str) -> Any:
        key = (name, None)
        if key not in self._non_slot_dict:
            with _core.init_scope():
                made = EagerVariable(initial_value, name=name, trainable=False)
            self._non_slot_dict[key] = made
            self._handle_deferred_dependencies(name, made)
        return self._non_slot_dict[key]

    def _non_slot_variables(self) -> list[Any]:
        return list(self._non_slot_dict.values())

    def _get_non_slot_variable(self, name: str, graph: Any = None) -> Any:
        found = self._non_slot_dict.get((name, graph))
        return self._non_slot_dict.get((name, None)) if found is None else found

    # What an optimiser defines.

    def _valid_dtypes(self) -> set[dtypes.DType]:
        return {dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64}

    def _assert_valid_dtypes(self, tensors: list[Any]) -> None:
        valid = self._valid_dtypes()
        for tensor in tensors:
            dtype = tensor.dtype.base_dtype
            if dtype not in valid:
                known = ", ".join(sorted(d.name for d in valid))
                raise ValueError(
                    f"Invalid type {dtype.name} for {tensor.name}, expected: [{known}]."
                )

    def _create_slots(self, var_list: list[Any]) -> None:
        pass

    def _prepare(self) -> None:
        pass

    def _apply_dense(self, grad: Tensor, var: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no update for dense gradients")

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no update for sparse gradients")

    def _resource_apply_dense(self, grad: Tensor, handle: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no update of resource variables")

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} has no sparse update of resource variables"
        )

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Any) -> Any:
        values, indices = sum_duplicates(grad.values, grad.indices)
        return self._apply_sparse(IndexedSlices(values, indices, grad.dense_shape), var)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: Tensor, handle: Any, indices: Tensor
    ) -> Any:
        values, indices = sum_duplicates(grad, indices)
        return self._resource_apply_sparse(values, handle, indices)

    def _finish(self, update_ops: list[Any], name_scope: str) -> Any:
        return group(*update_ops, name=name_scope)

    def _call_if_callable(self, param: Any) -> Any:
        return param() if callable(param) else param


def sum_duplicates(values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Rows with each index once: those of equal indices are added."""
    unique, positions = gen_ops.unique(indices)
    count = gen_ops.shape(unique)[0]
    return gen_ops.unsorted_segment_sum(values, positions, count), unique


class FusedOptimizer(Optimizer):
    """An optimiser whose update is one op, dense and sparse, for references and resources.

    `_rule` names the op ("momentum" for ApplyMomentum, SparseApplyMomentum, ...), `_hyper` the
    hyperparameters: the name of the node, the attribute that has the value (a number, a tensor, or
    a function that gives one), and the attribute for the tensor. `_arguments(var)` gives slots and
    hyperparameters by the names that the op has for them.
    """

    _rule = ""
    _dense_gradient = "grad"
    _hyper: tuple[tuple[str, str, str], ...] = ()

    def _arguments(self, var: Any) -> dict[str, Any]:
        raise NotImplementedError

    def _prepare(self) -> None:
        for name, value, tensor in self._hyper:
            given = self._call_if_callable(getattr(self, value))
            setattr(self, tensor, convert_to_tensor(given, name=name))

    def _call(self, prefix: str, var: Any, given: dict[str, Any]) -> Any:
        rule = getattr(gen_ops, prefix + self._rule)
        dtype = var.dtype.base_dtype
        arguments = self._arguments(var)
        for name, value in arguments.items():
            if is_resource(value):
                arguments[name] = value.handle
            elif isinstance(value, Tensor):
                arguments[name] = as_type(value, dtype)
        reference = var.handle if is_resource(var) else var
        done = rule(var=reference, use_locking=self._use_locking, **arguments, **given)
        return done.op if isinstance(done, Tensor) else done

    def _apply_dense(self, grad: Tensor, var: Any) -> Any:
        return self._call("apply_", var, {self._dense_gradient: grad})

    def _resource_apply_dense(self, grad: Tensor, handle: Any) -> Any:
        return self._call("resource_apply_", handle, {self._dense_gradient: grad})

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        return self._call("sparse_apply_", var, {"grad": grad.values, "indices": grad.indices})

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        return self._call("resource_sparse_apply_", handle, {"grad": grad, "indices": indices})


def as_type(tensor: Tensor, dtype: dtypes.DType) -> Tensor:
    """A hyperparameter in the type of a variable. Whole numbers, such as steps, stay whole."""
    own = tensor.dtype.base_dtype
    return tensor if own is dtype or not own.is_floating else gen_ops.cast(tensor, dtype)
