"""The optimisers."""

from typing import Any

from millrace import gen_ops
from millrace._export import export
from millrace.graph.convert import convert_to_tensor
from millrace.graph.graph import Operation, control_dependencies, get_default_graph
from millrace.initializers import constant_initializer, ones_initializer
from millrace.ops.control_flow import group
from millrace.train.optimizer import FusedOptimizer


class _WithRate(FusedOptimizer):
    """An optimiser with a learning rate: a number, a tensor, or a function that gives one."""

    def __init__(self, learning_rate: Any, use_locking: bool, name: str):
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._tensors: dict[str, Any] = {}

    def _hyper(self) -> dict[str, Any]:
        """The hyperparameters besides the learning rate, by name."""
        return {}

    def _prepare(self) -> None:
        values = {"learning_rate": self._learning_rate, **self._hyper()}
        self._tensors = {
            name: convert_to_tensor(self._call_if_callable(value), name=name)
            for name, value in values.items()
        }

    def _value(self, name: str, var: Any) -> Any:
        tensor = self._tensors[name]
        dtype = var.dtype.base_dtype
        return tensor if tensor.dtype.base_dtype is dtype else gen_ops.cast(tensor, dtype)


@export("train.GradientDescentOptimizer")
class GradientDescentOptimizer(_WithRate):
    """var -= learning_rate * grad."""

    _rule = "gradient_descent"
    _dense_gradient = "delta"

    def __init__(
        self, learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent"
    ):
        super().__init__(learning_rate, use_locking, name)

    def _arguments(self, var: Any) -> dict[str, Any]:
        return {"alpha": self._value("learning_rate", var)}


@export("train.MomentumOptimizer")
class MomentumOptimizer(_WithRate):
    """accum = momentum * accum + grad; var -= learning_rate * accum (or Nesterov's variant)."""

    _rule = "momentum"

    def __init__(
        self, learning_rate: Any, momentum: Any, use_locking: bool = False, name: str = "Momentum",
        use_nesterov: bool = False,
    ):  # fmt: skip
        super().__init__(learning_rate, use_locking, name)
        self._momentum = momentum
        self._use_nesterov = use_nesterov

    def _hyper(self) -> dict[str, Any]:
        return {"momentum": self._momentum}

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "momentum", self._name)

    def _arguments(self, var: Any) -> dict[str, Any]:
        return {
            "accum": self.get_slot(var, "momentum"),
            "lr": self._value("learning_rate", var),
            "momentum": self._value("momentum", var),
            "use_nesterov": self._use_nesterov,
        }


def _constant_slot(optimizer: Any, var: Any, value: Any, name: str) -> None:
    dtype = var.dtype.base_dtype
    if var.shape.is_fully_defined():
        initial = constant_initializer(value, dtype=dtype)
        optimizer._get_or_make_slot_with_initializer(
            var, initial, var.shape, dtype, name, optimizer._name
        )
        return
    filled = gen_ops.fill(gen_ops.shape(var.initialized_value()), gen_ops.cast(value, dtype))
    optimizer._get_or_make_slot(var, filled, name, optimizer._name)


@export("train.AdagradOptimizer")
class AdagradOptimizer(_WithRate):
    """accum += grad^2; var -= learning_rate * grad / sqrt(accum)."""

    _rule = "adagrad"

    def __init__(
        self, learning_rate: Any, initial_accumulator_value: float = 0.1, use_locking: bool = False,
        name: str = "Adagrad",
    ):  # fmt: skip
        if initial_accumulator_value <= 0.0:
            raise ValueError(
                f"initial_accumulator_value must be positive: {initial_accumulator_value}"
            )
        super().__init__(learning_rate, use_locking, name)
        self._initial_accumulator_value = initial_accumulator_value

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            _constant_slot(self, var, self._initial_accumulator_value, "accumulator")

    def _arguments(self, var: Any) -> dict[str, Any]:
        return {
            "accum": self.get_slot(var, "accumulator"),
            "lr": self._value("learning_rate", var),
        }


@export("train.AdagradDAOptimizer")
class AdagradDAOptimizer(_WithRate):
    """Adagrad with dual averaging: sparse linear models with strong regularisation."""

    _rule = "adagrad_da"

    def __init__(
        self, learning_rate: Any, global_step: Any,
        initial_gradient_squared_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0, l2_regularization_strength: float = 0.0,
        use_locking: bool = False, name: str = "AdagradDA",
    ):  # fmt: skip
        if initial_gradient_squared_accumulator_value <= 0.0:
            raise ValueError(
                "initial_gradient_squared_accumulator_value must be positive: "
                f"{initial_gradient_squared_accumulator_value}"
            )
        super().__init__(learning_rate, use_locking, name)
        self._initial = initial_gradient_squared_accumulator_value
        self._l1 = l1_regularization_strength
        self._l2 = l2_regularization_strength
        self._global_step = global_step

    def _hyper(self) -> dict[str, Any]:
        return {"l1": self._l1, "l2": self._l2}

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "gradient_accumulator", self._name + "/gradient_accumulator")
            dtype = var.dtype.base_dtype
            self._get_or_make_slot_with_initializer(
                var, constant_initializer(self._initial, dtype=dtype), var.shape, dtype,
                "gradient_squared_accumulator", self._name + "/gradient_squared_accumulator",
            )  # fmt: skip

    def _arguments(self, var: Any) -> dict[str, Any]:
        return {
            "gradient_accumulator": self.get_slot(var, "gradient_accumulator"),
            "gradient_squared_accumulator": self.get_slot(var, "gradient_squared_accumulator"),
            "lr": self._value("learning_rate", var),
            "l1": self._value("l1", var),
            "l2": self._value("l2", var),
            "global_step": gen_ops.cast(convert_to_tensor(self._global_step), "int64"),
        }


@export("train.AdadeltaOptimizer")
class AdadeltaOptimizer(_WithRate):
    """Steps in the units of the variable: by averages of past gradients and past steps."""

    _rule = "adadelta"

    def __init__(
        self, learning_rate: Any = 0.001, rho: Any = 0.95, epsilon: Any = 1e-8,
        use_locking: bool = False, name: str = "Adadelta",
    ):  # fmt: skip
        super().__init__(learning_rate, use_locking, name)
        self._rho = rho
        self._epsilon = epsilon

    def _hyper(self) -> dict[str, Any]:
        return {"rho": self._rho, "epsilon": self._epsilon}

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "accum", self._name)
            self._zeros_slot(var, "accum_update", self._name)

    def _arguments(self, var: Any) -> dict[str, Any]:
        return {
            "accum": self.get_slot(var, "accum"),
            "accum_update": self.get_slot(var, "accum_update"),
            "lr": self._value("learning_rate", var),
            "rho": self._value("rho", var),
            "epsilon": self._value("epsilon", var),
        }


@export("train.AdamOptimizer")
class AdamOptimizer(_WithRate):
    """Steps by averages of the gradient and of its square, corrected for their start at zero."""

    _rule = "adam"

    def __init__(
        self, learning_rate: Any = 0.001, beta1: Any = 0.9, beta2: Any = 0.999,
        epsilon: Any = 1e-8, use_locking: bool = False, name: str = "Adam",
    ):  # fmt: skip
        super().__init__(learning_rate, use_locking, name)
        self._beta1 = beta1
        self._beta2 = beta2
        self._epsilon = epsilon

    def _hyper(self) -> dict[str, Any]:
        return {"beta1": self._beta1, "beta2": self._beta2, "epsilon": self._epsilon}

    def _powers(self) -> tuple[Any, Any]:
        graph = get_default_graph()
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
        dtype = var.dtype.base_dtype
        powers = [convert_to_tensor(power) for power in self._powers()]
        powers = [p if p.dtype.base_dtype is dtype else gen_ops.cast(p, dtype) for p in powers]
        return {
            "m": self.get_slot(var, "m"),
            "v": self.get_slot(var, "v"),
            "beta1_power": powers[0],
            "beta2_power": powers[1],
            "lr": self._value("learning_rate", var),
            "beta1": self._value("beta1", var),
            "beta2": self._value("beta2", var),
            "epsilon": self._value("epsilon", var),
        }

    def _finish(self, update_ops: list[Any], name_scope: str) -> Operation:
        updates = []
        with control_dependencies(update_ops):
            for power, beta in zip(self._powers(), ("beta1", "beta2"), strict=True):
                with get_default_graph().colocate_with(power.op):
                    updates.append(
                        power.assign(
                            power * self._value(beta, power), use_locking=self._use_locking
                        )
                    )
        return group(*update_ops, *updates, name=name_scope)


@export("train.RMSPropOptimizer")
class RMSPropOptimizer(_WithRate):
    """Divides the gradient by a running average of its size; `centered` takes the mean off first."""

    def __init__(
        self, learning_rate: Any, decay: Any = 0.9, momentum: Any = 0.0, epsilon: Any = 1e-10,
        use_locking: bool = False, centered: bool = False, name: str = "RMSProp",
    ):  # fmt: skip
        super().__init__(learning_rate, use_locking, name)
        self._decay = decay
        self._momentum = momentum
        self._epsilon = epsilon
        self._centered = centered
        self._rule = "centered_rms_prop" if centered else "rms_prop"

    def _hyper(self) -> dict[str, Any]:
        return {"decay": self._decay, "momentum": self._momentum, "epsilon": self._epsilon}

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            dtype = var.dtype.base_dtype
            if var.shape.is_fully_defined():
                self._get_or_make_slot_with_initializer(
                    var, ones_initializer(dtype=dtype), var.shape, dtype, "rms", self._name
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
            "lr": self._value("learning_rate", var),
            "rho": self._value("decay", var),
            "momentum": self._value("momentum", var),
            "epsilon": self._value("epsilon", var),
        }
        if self._centered:
            arguments["mg"] = self.get_slot(var, "mg")
        return arguments


@export("train.FtrlOptimizer")
class FtrlOptimizer(_WithRate):
    """Follows the regularised leader: sparse solutions for linear models."""

    _rule = "ftrl"

    def __init__(
        self, learning_rate: Any, learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1, l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0, use_locking: bool = False, name: str = "Ftrl",
        accum_name: str | None = None, linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0,
    ):  # fmt: skip
        super().__init__(learning_rate, use_locking, name)
        for label, value, good in (
            ("initial_accumulator_value", initial_accumulator_value, initial_accumulator_value >= 0),
            ("learning_rate_power", learning_rate_power, learning_rate_power <= 0),
            ("l1_regularization_strength", l1_regularization_strength, l1_regularization_strength >= 0),
            ("l2_regularization_strength", l2_regularization_strength, l2_regularization_strength >= 0),
            (
                "l2_shrinkage_regularization_strength", l2_shrinkage_regularization_strength,
                l2_shrinkage_regularization_strength >= 0,
            ),
        ):  # fmt: skip
            if not good:
                sign = (
                    "negative or zero"
                    if label == "learning_rate_power"
                    else "greater than or equal to zero"
                )
                raise ValueError(f"{label} {value} needs to be {sign}")
        self._power = learning_rate_power
        self._initial = initial_accumulator_value
        self._l1 = l1_regularization_strength
        self._l2 = l2_regularization_strength
        self._shrinkage = l2_shrinkage_regularization_strength
        self._accum_name = accum_name
        self._linear_name = linear_name
        self._rule = "ftrl_v2" if self._shrinkage > 0 else "ftrl"

    def _hyper(self) -> dict[str, Any]:
        return {
            "l1": self._l1,
            "l2": self._l2,
            "lr_power": self._power,
            "l2_shrinkage": self._shrinkage,
        }

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            dtype = var.dtype.base_dtype
            self._get_or_make_slot_with_initializer(
                var, constant_initializer(self._initial, dtype=dtype), var.shape, dtype, "accum",
                self._accum_name or self._name,
            )  # fmt: skip
            self._zeros_slot(var, "linear", self._linear_name or self._name)

    def _arguments(self, var: Any) -> dict[str, Any]:
        arguments = {
            "accum": self.get_slot(var, "accum"),
            "linear": self.get_slot(var, "linear"),
            "lr": self._value("learning_rate", var),
            "l1": self._value("l1", var),
            "l2": self._value("l2", var),
            "lr_power": self._value("lr_power", var),
        }
        if self._shrinkage > 0:
            arguments["l2_shrinkage"] = self._value("l2_shrinkage", var)
        return arguments


@export("train.ProximalGradientDescentOptimizer")
class ProximalGradientDescentOptimizer(_WithRate):
    """Gradient descent that draws weights to zero exactly."""

    _rule = "proximal_gradient_descent"
    _dense_gradient = "delta"

    def __init__(
        self, learning_rate: Any, l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0, use_locking: bool = False,
        name: str = "ProximalGradientDescent",
    ):  # fmt: skip
        super().__init__(learning_rate, use_locking, name)
        self._l1 = l1_regularization_strength
        self._l2 = l2_regularization_strength

    def _hyper(self) -> dict[str, Any]:
        return {"l1": self._l1, "l2": self._l2}

    def _arguments(self, var: Any) -> dict[str, Any]:
        return {
            "alpha": self._value("learning_rate", var),
            "l1": self._value("l1", var),
            "l2": self._value("l2", var),
        }


@export("train.ProximalAdagradOptimizer")
class ProximalAdagradOptimizer(_WithRate):
    """Adagrad that draws weights to zero exactly."""

    _rule = "proximal_adagrad"

    def __init__(
        self, learning_rate: Any, initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0, l2_regularization_strength: float = 0.0,
        use_locking: bool = False, name: str = "ProximalAdagrad",
    ):  # fmt: skip
        if initial_accumulator_value <= 0.0:
            raise ValueError(
                f"initial_accumulator_value must be positive: {initial_accumulator_value}"
            )
        super().__init__(learning_rate, use_locking, name)
        self._initial = initial_accumulator_value
        self._l1 = l1_regularization_strength
        self._l2 = l2_regularization_strength

    def _hyper(self) -> dict[str, Any]:
        return {"l1": self._l1, "l2": self._l2}

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            _constant_slot(self, var, self._initial, "accumulator")

    def _arguments(self, var: Any) -> dict[str, Any]:
        return {
            "accum": self.get_slot(var, "accumulator"),
            "lr": self._value("learning_rate", var),
            "l1": self._value("l1", var),
            "l2": self._value("l2", var),
        }
