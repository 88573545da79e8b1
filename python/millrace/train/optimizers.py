"""The optimisers."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies, get_default_graph
from millrace.graph.graph import root_graph
from millrace.graph.sparse import IndexedSlices
from millrace.ops.ordering import group
from millrace.state.initializers import Constant, Ones
from millrace.train.optimizer import FusedOptimizer, as_type, colocated

_LEARNING_RATE = ("learning_rate", "_learning_rate", "_learning_rate_tensor")
_L1 = (
    "l1_regularization_strength",
    "_l1_regularization_strength",
    "_l1_regularization_strength_tensor",
)
_L2 = (
    "l2_regularization_strength",
    "_l2_regularization_strength",
    "_l2_regularization_strength_tensor",
)


def _constant_slot(optimizer: Any, var: Any, value: float, slot: str, name: str) -> None:
    """A slot of the variable's shape, filled with one value."""
    dtype = var.dtype.base_dtype
    if var.shape.is_fully_defined():
        initial = Constant(value, dtype=dtype)
        optimizer._get_or_make_slot_with_initializer(var, initial, var.shape, dtype, slot, name)
    else:
        fill = convert_to_tensor(value, dtype=dtype)
        filled = gen_ops.fill(gen_ops.shape(var.initialized_value()), fill)
        optimizer._get_or_make_slot(var, filled, slot, name)


def _check_positive(name: str, value: float) -> None:
    if value <= 0.0:
        raise ValueError(f"{name} must be positive: {value}")


@export(v1="train.GradientDescentOptimizer")
class GradientDescentOptimizer(FusedOptimizer):
    """var -= learning_rate * grad."""

    _rule = "gradient_descent"
    _dense_gradient = "delta"
    _hyper = (_LEARNING_RATE,)

    def __init__(
        self, learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent"
    ):
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._learning_rate_tensor: Any = None

    def _arguments(self, var: Any) -> dict[str, Any]:
        return {"alpha": self._learning_rate_tensor}

    # Rows of equal indices are added by the scatters themselves.

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Any) -> Any:
        return self._apply_sparse(grad, var)

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        rate = as_type(self._learning_rate_tensor, var.dtype.base_dtype)
        delta = IndexedSlices(grad.values * rate, grad.indices, grad.dense_shape)
        return var.scatter_sub(delta, use_locking=self._use_locking)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: Tensor, handle: Any, indices: Tensor
    ) -> Any:
        return self._resource_apply_sparse(grad, handle, indices)

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        rate = as_type(self._learning_rate_tensor, handle.dtype.base_dtype)
        return gen_ops.resource_scatter_add(handle.handle, indices, -grad * rate)


@export(v1="train.MomentumOptimizer")
class MomentumOptimizer(FusedOptimizer):
    """accum = momentum * accum + grad; var -= learning_rate * accum (or Nesterov's variant)."""

    _rule = "momentum"
    _hyper = (_LEARNING_RATE, ("momentum", "_momentum", "_momentum_tensor"))

    def __init__(
        self, learning_rate: Any, momentum: Any, use_locking: bool = False, name: str = "Momentum",
        use_nesterov: bool = False,
    ):  # fmt: skip
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._momentum = momentum
        self._use_nesterov = use_nesterov

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "momentum", self._name)

    def _arguments(self, var: Any) -> dict[str, Any]:
        return {
            "accum": self.get_slot(var, "momentum"),
            "lr": self._learning_rate_tensor,
            "momentum": self._momentum_tensor,
            "use_nesterov": self._use_nesterov,
        }


@export(v1="train.AdagradOptimizer")
class AdagradOptimizer(FusedOptimizer):
    """accum += grad^2; var -= learning_rate * grad / sqrt(accum)."""

    _rule = "adagrad"
    _hyper = (_LEARNING_RATE,)

    def __init__(
        self, learning_rate: Any, initial_accumulator_value: float = 0.1, use_locking: bool = False,
        name: str = "Adagrad",
    ):  # fmt: skip
        _check_positive("initial_accumulator_value", initial_accumulator_value)
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._initial_accumulator_value = initial_accumulator_value

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            _constant_slot(self, var, self._initial_accumulator_value, "accumulator", self._name)

    def _arguments(self, var: Any) -> dict[str, Any]:
        return {"accum": self.get_slot(var, "accumulator"), "lr": self._learning_rate_tensor}


@export(v1="train.AdagradDAOptimizer")
class AdagradDAOptimizer(FusedOptimizer):
    """Adagrad with dual averaging: sparse linear models with strong regularisation.

    `global_step`: the variable that counts the steps.
    """

    _rule = "adagrad_da"
    _hyper = (_LEARNING_RATE,)

    def __init__(
        self, learning_rate: Any, global_step: Any,
        initial_gradient_squared_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0, l2_regularization_strength: float = 0.0,
        use_locking: bool = False, name: str = "AdagradDA",
    ):  # fmt: skip
        _check_positive(
            "initial_gradient_squared_accumulator_value",
            initial_gradient_squared_accumulator_value,
        )
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._initial_gradient_squared_accumulator_value = (
            initial_gradient_squared_accumulator_value
        )
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength
        self._global_step = global_step
        self._global_step_on_worker: Any = None

    def _create_slots(self, var_list: list[Any]) -> None:
        initial = self._initial_gradient_squared_accumulator_value
        for var in var_list:
            self._zeros_slot(var, "gradient_accumulator", self._name)
            _constant_slot(self, var, initial, "gradient_squared_accumulator", self._name)

    def _prepare(self) -> None:
        super()._prepare()
        step = gen_ops.identity(convert_to_tensor(self._global_step))
        self._global_step_on_worker = step + 1

    def _arguments(self, var: Any) -> dict[str, Any]:
        dtype = var.dtype.base_dtype
        step = gen_ops.identity(self._global_step_on_worker)
        return {
            "gradient_accumulator": self.get_slot(var, "gradient_accumulator"),
            "gradient_squared_accumulator": self.get_slot(var, "gradient_squared_accumulator"),
            "lr": self._learning_rate_tensor,
            "l1": convert_to_tensor(self._l1_regularization_strength, dtype=dtype),
            "l2": convert_to_tensor(self._l2_regularization_strength, dtype=dtype),
            "global_step": step if step.dtype is dtypes.int64 else gen_ops.cast(step, dtypes.int64),
        }


@export(v1="train.AdadeltaOptimizer")
class AdadeltaOptimizer(FusedOptimizer):
    """Steps in the units of the variable: by averages of past gradients and past steps."""

    _rule = "adadelta"
    _hyper = (
        ("lr", "_lr", "_lr_t"),
        ("rho", "_rho", "_rho_t"),
        ("epsilon", "_epsilon", "_epsilon_t"),
    )

    def __init__(
        self, learning_rate: Any = 0.001, rho: Any = 0.95, epsilon: Any = 1e-8,
        use_locking: bool = False, name: str = "Adadelta",
    ):  # fmt: skip
        super().__init__(use_locking, name)
        self._lr = learning_rate
        self._rho = rho
        self._epsilon = epsilon

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "accum", self._name)
            self._zeros_slot(var, "accum_update", self._name)

    def _arguments(self, var: Any) -> dict[str, Any]:
        return {
            "accum": self.get_slot(var, "accum"),
            "accum_update": self.get_slot(var, "accum_update"),
            "lr": self._lr_t,
            "rho": self._rho_t,
            "epsilon": self._epsilon_t,
        }


@export(v1="train.AdamOptimizer")
class AdamOptimizer(FusedOptimizer):
    """Steps by averages of the gradient and of its square, corrected for their start at zero.

    With sparse gradients the averages of all rows decay, and all rows move, as with dense ones.
    """

    _rule = "adam"
    _hyper = (
        ("learning_rate", "_lr", "_lr_t"),
        ("beta1", "_beta1", "_beta1_t"),
        ("beta2", "_beta2", "_beta2_t"),
        ("epsilon", "_epsilon", "_epsilon_t"),
    )

    def __init__(
        self, learning_rate: Any = 0.001, beta1: Any = 0.9, beta2: Any = 0.999,
        epsilon: Any = 1e-8, use_locking: bool = False, name: str = "Adam",
    ):  # fmt: skip
        super().__init__(use_locking, name)
        self._lr = learning_rate
        self._beta1 = beta1
        self._beta2 = beta2
        self._epsilon = epsilon

    def _get_beta_accumulators(self) -> tuple[Any, Any]:
        graph = root_graph(get_default_graph())
        return (
            self._get_non_slot_variable("beta1_power", graph),
            self._get_non_slot_variable("beta2_power", graph),
        )

    def _create_slots(self, var_list: list[Any]) -> None:
        first = min(var_list, key=lambda var: var.name)
        for name, value in (("beta1_power", self._beta1), ("beta2_power", self._beta2)):
            self._create_non_slot_variable(self._call_if_callable(value), name, first)
        for var in var_list:
            self._zeros_slot(var, "m", self._name)
            self._zeros_slot(var, "v", self._name)

    def _arguments(self, var: Any) -> dict[str, Any]:
        beta1_power, beta2_power = self._get_beta_accumulators()
        return {
            "m": self.get_slot(var, "m"),
            "v": self.get_slot(var, "v"),
            "beta1_power": beta1_power.value(),
            "beta2_power": beta2_power.value(),
            "lr": self._lr_t,
            "beta1": self._beta1_t,
            "beta2": self._beta2_t,
            "epsilon": self._epsilon_t,
        }

    def _apply_sparse_shared(self, grad: Any, var: Any, indices: Any, scatter_add: Any) -> Any:
        """The update as one of all rows. `scatter_add(slot, indices, rows)` gives the slot then."""
        dtype = var.dtype.base_dtype
        powers = [as_type(power.value(), dtype) for power in self._get_beta_accumulators()]
        rate = as_type(self._lr_t, dtype)
        beta1, beta2 = as_type(self._beta1_t, dtype), as_type(self._beta2_t, dtype)
        epsilon = as_type(self._epsilon_t, dtype)
        rate = rate * gen_ops.sqrt(1 - powers[1]) / (1 - powers[0])

        def averaged(name: str, rows: Any, beta: Any) -> Any:
            slot = self.get_slot(var, name)
            rows = rows * (1 - beta)
            decayed = slot.assign(slot * beta, use_locking=self._use_locking)
            with control_dependencies([decayed]):
                return scatter_add(slot, indices, rows)

        m = averaged("m", grad, beta1)
        v = averaged("v", grad * grad, beta2)
        step = rate * m / (gen_ops.sqrt(v) + epsilon)
        return group(var.assign_sub(step, use_locking=self._use_locking), m, v)

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        def scatter_add(slot: Any, indices: Any, rows: Any) -> Any:
            return slot.scatter_add(IndexedSlices(rows, indices), use_locking=self._use_locking)

        return self._apply_sparse_shared(grad.values, var, grad.indices, scatter_add)

    def _resource_scatter_add(self, x: Any, i: Any, v: Any) -> Any:
        with control_dependencies([gen_ops.resource_scatter_add(x.handle, i, v)]):
            return x.value()

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        return self._apply_sparse_shared(grad, handle, indices, self._resource_scatter_add)

    def _finish(self, update_ops: list[Any], name_scope: str) -> Any:
        powers = self._get_beta_accumulators()
        updates = []
        with control_dependencies(update_ops), colocated(powers[0]):
            for power, beta in zip(powers, (self._beta1_t, self._beta2_t), strict=True):
                beta = as_type(beta, power.dtype.base_dtype)
                updates.append(power.assign(power * beta, use_locking=self._use_locking))
        return group(*update_ops, *updates, name=name_scope)


@export(v1="train.RMSPropOptimizer")
class RMSPropOptimizer(FusedOptimizer):
    """Divides the gradient by an average of its size; `centered` takes the mean off first."""

    _hyper = (
        _LEARNING_RATE,
        ("decay", "_decay", "_decay_tensor"),
        ("momentum", "_momentum", "_momentum_tensor"),
        ("epsilon", "_epsilon", "_epsilon_tensor"),
    )

    def __init__(
        self, learning_rate: Any, decay: Any = 0.9, momentum: Any = 0.0, epsilon: Any = 1e-10,
        use_locking: bool = False, centered: bool = False, name: str = "RMSProp",
    ):  # fmt: skip
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._decay = decay
        self._momentum = momentum
        self._epsilon = epsilon
        self._centered = centered
        self._rule = "centered_rms_prop" if centered else "rms_prop"

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            dtype = var.dtype.base_dtype
            if var.shape.is_fully_defined():
                self._get_or_make_slot_with_initializer(
                    var, Ones(dtype=dtype), var.shape, dtype, "rms", self._name
                )
            else:
                ones = gen_ops.ones_like(var.initialized_value())
                self._get_or_make_slot(var, ones, "rms", self._name)
            if self._centered:
                self._zeros_slot(var, "mg", self._name)
            self._zeros_slot(var, "momentum", self._name)

    def _arguments(self, var: Any) -> dict[str, Any]:
        arguments = {
            "ms": self.get_slot(var, "rms"),
            "mom": self.get_slot(var, "momentum"),
            "lr": self._learning_rate_tensor,
            "rho": self._decay_tensor,
            "momentum": self._momentum_tensor,
            "epsilon": self._epsilon_tensor,
        }
        if self._centered:
            arguments["mg"] = self.get_slot(var, "mg")
        return arguments


@export(v1="train.FtrlOptimizer")
class FtrlOptimizer(FusedOptimizer):
    """Follows the regularised leader: sparse solutions for linear models.

    Args:
      learning_rate_power: zero or less; how the rate falls with the steps.
      initial_accumulator_value: zero or more.
      l1_regularization_strength, l2_regularization_strength: zero or more.
      accum_name, linear_name: what the slots are called, after the optimiser by default.
      l2_shrinkage_regularization_strength: zero or more; a penalty on the size of the weights.
      beta: a number added to the root of the accumulators.
    """

    def __init__(
        self, learning_rate: Any, learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1, l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0, use_locking: bool = False, name: str = "Ftrl",
        accum_name: str | None = None, linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0, beta: float | None = None,
    ):  # fmt: skip
        super().__init__(use_locking, name)
        for label, value in (
            ("initial_accumulator_value", initial_accumulator_value),
            ("l1_regularization_strength", l1_regularization_strength),
            ("l2_regularization_strength", l2_regularization_strength),
            ("l2_shrinkage_regularization_strength", l2_shrinkage_regularization_strength),
        ):
            if value < 0.0:
                raise ValueError(f"{label} {value} needs to be greater than or equal to zero")
        if learning_rate_power > 0.0:
            raise ValueError(
                f"learning_rate_power {learning_rate_power} needs to be negative or zero"
            )
        self._learning_rate = learning_rate
        self._learning_rate_power = learning_rate_power
        self._initial_accumulator_value = initial_accumulator_value
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength
        self._l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength
        self._beta = 0.0 if beta is None else beta
        self._accum_name = accum_name
        self._linear_name = linear_name
        shrinks = l2_shrinkage_regularization_strength > 0.0
        self._rule = "ftrl_v2" if shrinks else "ftrl"
        self._hyper = (
            _LEARNING_RATE,
            _L1,
            _L2,
            ("learning_rate_power", "_learning_rate_power", "_learning_rate_power_tensor"),
        )
        if shrinks:
            label = "l2_shrinkage_regularization_strength"
            self._hyper += ((label, f"_{label}", f"_{label}_tensor"),)

    def _create_slots(self, var_list: list[Any]) -> None:
        accum, linear = self._accum_name or self._name, self._linear_name or self._name
        for var in var_list:
            _constant_slot(self, var, self._initial_accumulator_value, "accum", accum)
            self._zeros_slot(var, "linear", linear)

    def _prepare(self) -> None:
        super()._prepare()
        if self._beta:
            rate = self._learning_rate_tensor
            self._l2_regularization_strength_tensor += self._beta / (2.0 * rate)

    def _arguments(self, var: Any) -> dict[str, Any]:
        arguments = {
            "accum": self.get_slot(var, "accum"),
            "linear": self.get_slot(var, "linear"),
            "lr": self._learning_rate_tensor,
            "l1": self._l1_regularization_strength_tensor,
            "l2": self._l2_regularization_strength_tensor,
            "lr_power": self._learning_rate_power_tensor,
        }
        if self._rule == "ftrl_v2":
            arguments["l2_shrinkage"] = self._l2_shrinkage_regularization_strength_tensor
        return arguments


@export(v1="train.ProximalGradientDescentOptimizer")
class ProximalGradientDescentOptimizer(FusedOptimizer):
    """Gradient descent that draws weights to zero exactly."""

    _rule = "proximal_gradient_descent"
    _dense_gradient = "delta"
    _hyper = (_LEARNING_RATE, _L1, _L2)

    def __init__(
        self, learning_rate: Any, l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0, use_locking: bool = False,
        name: str = "ProximalGradientDescent",
    ):  # fmt: skip
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength

    def _arguments(self, var: Any) -> dict[str, Any]:
        return {
            "alpha": self._learning_rate_tensor,
            "l1": self._l1_regularization_strength_tensor,
            "l2": self._l2_regularization_strength_tensor,
        }


@export(v1="train.ProximalAdagradOptimizer")
class ProximalAdagradOptimizer(FusedOptimizer):
    """Adagrad that draws weights to zero exactly."""

    _rule = "proximal_adagrad"
    _hyper = (_LEARNING_RATE, _L1, _L2)

    def __init__(
        self, learning_rate: Any, initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0, l2_regularization_strength: float = 0.0,
        use_locking: bool = False, name: str = "ProximalAdagrad",
    ):  # fmt: skip
        _check_positive("initial_accumulator_value", initial_accumulator_value)
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._initial_accumulator_value = initial_accumulator_value
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            _constant_slot(self, var, self._initial_accumulator_value, "accumulator", self._name)

    def _arguments(self, var: Any) -> dict[str, Any]:
        return {
            "accum": self.get_slot(var, "accumulator"),
            "lr": self._learning_rate_tensor,
            "l1": self._l1_regularization_strength_tensor,
            "l2": self._l2_regularization_strength_tensor,
        }
