"""Optimisers of TensorFlow 2: objects whose state is variables, for loops with a tape.

The formulas are those of the ops ResourceApply..., as in `train/optimizers.py`. Names of attributes
are Keras's, so that checkpoints go both ways.
"""

import re
from typing import Any, Callable

from millrace import _core, gen_ops
from millrace.core import dtypes, logging
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.core.tracked_data import AutoTrackable
from millrace.eager.tape import GradientTape
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import IndexedSlices
from millrace.ops.clip import clip_by_global_norm, clip_by_norm, clip_by_value
from millrace.ops.ordering import group
from millrace.state.eager_variable import Variable
from millrace.train.optimizer import as_type, sum_duplicates
from millrace.train.rate_schedules import LearningRateSchedule

_COMMON = ("weight_decay", "clipnorm", "clipvalue", "global_clipnorm")
_TAKEN = (
    "use_ema", "ema_momentum", "ema_overwrite_frequency", "jit_compile", "is_legacy_optimizer",
)  # fmt: skip


class _Variables(list):  # type: ignore[type-arg]
    """A list that can be called, as Keras's: `optimizer.variables` and `optimizer.variables()`."""

    def __call__(self) -> list[Any]:
        return list(self)


@export(v2=("optimizers.Optimizer", "keras.optimizers.Optimizer"))
class Optimizer(AutoTrackable):
    """The base of optimisers.

    `apply_gradients([(gradient, variable)])` is one step, `minimize(loss, variables)` computes the
    gradients too. `iterations` counts the steps, `learning_rate` can be set.

    A new optimiser has `build(var_list)`, which makes the variables that it needs, and
    `update_step(gradient, variable)`.

    Args:
      name: what variables are called after.
      weight_decay: how much of each variable is taken off at each step, times the learning rate.
      clipnorm, clipvalue, global_clipnorm: limits of gradients, at most one of them: of each one's
        norm, of elements, of the norm of all.
    """

    # (attribute of the list, name of each variable, name in the op) for what there is one of for
    # each trained variable.
    _slots: tuple[tuple[str, str, str], ...] = ()
    _rule = ""
    _gradient_name = "grad"
    _sparse = False  # whether rows that a gradient does not have stay as they are
    _hyper: tuple[str, ...] = ()

    def __init__(
        self, name: str, weight_decay: float | None = None, clipnorm: float | None = None,
        clipvalue: float | None = None, global_clipnorm: float | None = None, **kwargs: Any,
    ):  # fmt: skip
        learning_rate = kwargs.pop("learning_rate", None)
        for taken in _TAKEN:
            if taken == "use_ema" and kwargs.get(taken):
                raise NotImplementedError(
                    "use_ema: average the variables with tf.train.ExponentialMovingAverage instead"
                )
            kwargs.pop(taken, None)
        if kwargs:
            raise TypeError(
                f"{type(self).__name__} got unexpected arguments: {', '.join(sorted(kwargs))}"
            )
        if sum(limit is not None for limit in (clipnorm, clipvalue, global_clipnorm)) > 1:
            raise ValueError(
                "At most one of `clipnorm`, `clipvalue` and `global_clipnorm` can be set. "
                f"Received: clipnorm={clipnorm}, clipvalue={clipvalue}, "
                f"global_clipnorm={global_clipnorm}."
            )
        self.name = name
        self.weight_decay, self.clipnorm = weight_decay, clipnorm
        self.clipvalue, self.global_clipnorm = clipvalue, global_clipnorm
        self._variables: list[Any] = []
        with _core.init_scope():
            self._iterations = Variable(0, trainable=False, dtype=dtypes.int64, name="iteration")
        self._variables.append(self._iterations)
        self._index_dict: dict[Any, int] = {}
        self._excluded_from_decay: list[Any] = []
        self._learning_rate: Any = None
        if learning_rate is not None:
            self._learning_rate = self._build_learning_rate(learning_rate)

    # What can be set and asked.

    def _build_learning_rate(self, learning_rate: Any) -> Any:
        with _core.init_scope():
            if isinstance(learning_rate, LearningRateSchedule):
                first = learning_rate(self._iterations)
                self._current_learning_rate = Variable(
                    first, trainable=False, name="current_learning_rate", dtype=first.dtype
                )
                return learning_rate
            if isinstance(learning_rate, Variable) or callable(learning_rate):
                return learning_rate
            return Variable(
                learning_rate, trainable=False, name="learning_rate", dtype=dtypes.float32
            )

    @property
    def iterations(self) -> Variable:
        """The number of steps taken, a variable."""
        return self._iterations

    @iterations.setter
    def iterations(self, variable: Variable) -> None:
        if self._index_dict:
            raise RuntimeError(
                "Cannot set `iterations` to a new Variable after the Optimizer weights have been "
                "created."
            )
        self._iterations = variable
        self._variables = [variable]

    @property
    def learning_rate(self) -> Any:
        """The rate of this step: a variable, or what a schedule gives."""
        rate = self._learning_rate
        if isinstance(rate, LearningRateSchedule):
            return rate(self._iterations)
        return rate() if callable(rate) and not isinstance(rate, Variable) else rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        if isinstance(self._learning_rate, LearningRateSchedule):
            if not isinstance(learning_rate, LearningRateSchedule):
                raise TypeError(
                    "This optimizer was created with a `LearningRateSchedule` object as its "
                    "`learning_rate` constructor argument, hence its learning rate is not "
                    "settable. If you need the learning rate to be settable, you should "
                    "instantiate the optimizer with a float `learning_rate` argument."
                )
            self._learning_rate = learning_rate
        elif isinstance(learning_rate, LearningRateSchedule) or callable(learning_rate):
            self._learning_rate = self._build_learning_rate(learning_rate)
        elif isinstance(self._learning_rate, Variable):
            self._learning_rate.assign(learning_rate)
        else:
            self._learning_rate = self._build_learning_rate(learning_rate)

    lr = learning_rate

    @property
    def variables(self) -> Any:
        """The variables that it made: the number of steps first."""
        return _Variables(self._variables)

    def get_weights(self) -> list[Any]:
        """The values of its variables."""
        return [variable.numpy() for variable in self._variables]

    def set_weights(self, weights: Any) -> None:
        """Sets the values of its variables. ValueError for another number of them."""
        if len(weights) != len(self._variables):
            raise ValueError(
                f"expected {len(self._variables)} values for the variables of {self.name}, got "
                f"{len(weights)}"
            )
        for variable, value in zip(self._variables, weights, strict=True):
            variable.assign(value)

    def exclude_from_weight_decay(self, var_list: Any = None, var_names: Any = None) -> None:
        """Variables, or patterns of names of variables, that weights do not decay in."""
        self._excluded_from_decay += [("key", _key(v)) for v in var_list or ()]
        self._excluded_from_decay += [("name", pattern) for pattern in var_names or ()]

    # Steps.

    def build(self, var_list: Any) -> None:
        """Makes the variables that are needed beside those."""
        for attribute, name, _ in self._slots:
            if attribute not in self.__dict__:
                setattr(self, attribute, [])
            made = getattr(self, attribute)
            for variable in var_list:
                made.append(self._add_slot(variable, name, self._initial(name, variable)))
        for variable in var_list:
            self._index_dict[_key(variable)] = len(self._index_dict)

    def _initial(self, name: str, variable: Any) -> Any:
        """What a slot begins with."""
        del name
        return gen_ops.zeros_like(variable.value())

    def _add_slot(self, variable: Any, name: str, value: Any) -> Variable:
        whole = f"{self.name}/{name}/{variable._shared_name}"
        slot = Variable(value, trainable=False, name=whole, dtype=variable.dtype)
        self._variables.append(slot)
        return slot

    def add_variable_from_reference(
        self, model_variable: Any, variable_name: str, shape: Any = None, initial_value: Any = None
    ) -> Variable:
        """A variable of the shape and type of another, zeros by default."""
        with _core.init_scope():
            if initial_value is None:
                sizes = model_variable.shape if shape is None else shape
                initial_value = gen_ops.fill(
                    convert_to_tensor(list(sizes), dtype=dtypes.int32),
                    convert_to_tensor(0, dtype=model_variable.dtype),
                )
            return self._add_slot(model_variable, variable_name, initial_value)

    def add_variable(
        self, shape: Any, dtype: Any = None, initializer: str = "zeros", name: str | None = None
    ) -> Variable:
        """A variable of its own."""
        with _core.init_scope():
            number = {"zeros": 0, "ones": 1}[initializer]
            value = gen_ops.fill(
                convert_to_tensor(list(shape), dtype=dtypes.int32),
                convert_to_tensor(number, dtype=dtype or dtypes.float32),
            )
            variable = Variable(value, trainable=False, name=name)
        self._variables.append(variable)
        return variable

    def compute_gradients(
        self, loss: Any, var_list: Any, tape: GradientTape | None = None
    ) -> list[tuple[Any, Any]]:
        """[(gradient, variable)] of a function that gives the loss, or of a loss that a tape has.

        `var_list` may be a function that gives the variables, called after the loss.
        """
        if not callable(loss) and tape is None:
            raise ValueError(
                "`tape` is required when a `Tensor` loss is passed. Received: "
                f"loss={loss}, tape={tape}."
            )
        if tape is None:
            tape = GradientTape()
        if callable(loss):
            with tape:
                if not callable(var_list):
                    tape.watch(var_list)
                loss = loss()
        variables = list(var_list() if callable(var_list) else var_list)
        return list(zip(tape.gradient(loss, variables), variables, strict=True))

    def minimize(self, loss: Any, var_list: Any, tape: GradientTape | None = None) -> Any:
        """One step that makes the loss smaller: the gradients, and `apply_gradients` of them."""
        return self.apply_gradients(self.compute_gradients(loss, var_list, tape))

    def apply_gradients(
        self, grads_and_vars: Any, name: str | None = None,
        skip_gradients_aggregation: bool = False, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Updates each variable by its gradient, and counts the step. Gives the count.

        ValueError when there is no gradient at all; a variable without one stays as it is, with a
        warning.
        """
        del skip_gradients_aggregation
        kwargs.pop("experimental_aggregate_gradients", None)
        if kwargs:
            raise TypeError(f"apply_gradients got unexpected arguments: {', '.join(kwargs)}")
        pairs = list(grads_and_vars)
        missing = [variable.name for gradient, variable in pairs if gradient is None]
        pairs = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
        if not pairs:
            raise ValueError(
                f"No gradients provided for any variable: {missing}. Provided `grads_and_vars` "
                "must have at least one gradient."
            )
        if missing:
            logging.warning(
                "Gradients do not exist for variables %s when minimizing the loss. If you're using "
                "`model.compile()`, did you forget to provide a `loss` argument?",
                missing,
            )
        with _core.init_scope():
            new = [v for _, v in pairs if _key(v) not in self._index_dict]
            if new:
                self.build(new)
        with name_scope(name or self.name):
            clipped = self._clipped([self._converted(g, v) for g, v in pairs])
            updates = []
            for gradient, (_, variable) in zip(clipped, pairs, strict=True):
                self._decay(variable)
                updates.append(self.update_step(gradient, variable))
                if variable.constraint is not None:
                    variable.assign(variable.constraint(variable))
            self._after_updates()
            if isinstance(self._learning_rate, LearningRateSchedule):
                self._current_learning_rate.assign(self._learning_rate(self._iterations))
            counted = self._iterations.assign_add(1)
        if not _core.executing_eagerly():
            group(*[u for u in updates if u is not None])
        return counted

    def _converted(self, gradient: Any, variable: Any) -> Any:
        if not isinstance(gradient, IndexedSlices):
            return convert_to_tensor(gradient)
        if self._sparse:
            return gradient
        rows = gen_ops.shape(variable.value())[0]
        return gen_ops.unsorted_segment_sum(gradient.values, gradient.indices, rows)

    def _clipped(self, gradients: list[Any]) -> list[Any]:
        if self.clipvalue:
            low, high = -self.clipvalue, self.clipvalue
            return [_on_values(g, lambda v: clip_by_value(v, low, high)) for g in gradients]
        if self.clipnorm:
            limit = self.clipnorm
            return [_on_values(g, lambda v: clip_by_norm(v, limit)) for g in gradients]
        if self.global_clipnorm:
            return list(clip_by_global_norm(gradients, self.global_clipnorm)[0])
        return gradients

    def _decay(self, variable: Any) -> None:
        if not self.weight_decay:
            return
        for kind, value in self._excluded_from_decay:
            if (value == _key(variable)) if kind == "key" else re.search(value, variable.name):
                return
        rate = self._rate(variable.dtype)
        variable.assign_sub(variable.value() * rate * float(self.weight_decay))

    def _rate(self, dtype: Any) -> Tensor:
        return as_type(convert_to_tensor(self.learning_rate), dtype)

    def _after_updates(self) -> None:
        """What is to be done once a step."""

    def update_step(self, gradient: Any, variable: Any) -> Any:
        """Changes a variable by its gradient: the op of the rule."""
        dtype = variable.dtype
        at = self._index_dict[_key(variable)]
        arguments: dict[str, Any] = {
            in_op: getattr(self, attribute)[at].handle for attribute, _, in_op in self._slots
        }
        for name, value in self._numbers(dtype).items():
            if isinstance(value, (bool, Tensor)):
                arguments[name] = value
            else:
                arguments[name] = convert_to_tensor(value, dtype=dtype)
        if isinstance(gradient, IndexedSlices):
            rows, indices = sum_duplicates(gradient.values, gradient.indices)
            change = getattr(gen_ops, "resource_sparse_apply_" + self._rule)
            return change(var=variable.handle, grad=rows, indices=indices, **arguments)
        change = getattr(gen_ops, "resource_apply_" + self._rule)
        return change(var=variable.handle, **{self._gradient_name: gradient}, **arguments)

    def _numbers(self, dtype: Any) -> dict[str, Any]:
        """The arguments of the op besides slots: numbers, tensors, flags."""
        raise NotImplementedError

    def _power(self, beta: float, dtype: Any) -> Tensor:
        """beta ^ (number of this step)."""
        step = gen_ops.cast(self._iterations.value() + 1, dtype)
        return gen_ops.pow(convert_to_tensor(beta, dtype=dtype), step)

    # As a configuration.

    def get_config(self) -> dict[str, Any]:
        """The arguments that make such an optimiser."""
        rate = self._learning_rate
        if isinstance(rate, LearningRateSchedule):
            given: Any = {"class_name": type(rate).__name__, "config": rate.get_config()}
        elif isinstance(rate, Variable):
            given = float(rate.numpy())
        else:
            given = rate
        config = {name: getattr(self, name) for name in ("name", *_COMMON)}
        return {**config, "learning_rate": given, **{n: getattr(self, n) for n in self._hyper}}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "Optimizer":
        """The optimiser of a configuration."""
        rate = config.get("learning_rate")
        if isinstance(rate, dict):
            known = {kind.__name__: kind for kind in _kinds_of(LearningRateSchedule)}
            known.update(custom_objects or {})
            rate = known[rate["class_name"]].from_config(rate["config"])
        return cls(**{**config, "learning_rate": rate})


def _kinds_of(cls: type) -> list[type]:
    return [cls, *(kind for below in cls.__subclasses__() for kind in _kinds_of(below))]


def _key(variable: Any) -> Any:
    return variable._unique_id


def _on_values(gradient: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(gradient, IndexedSlices):
        return IndexedSlices(change(gradient.values), gradient.indices, gradient.dense_shape)
    return change(gradient)


@export(v2=("optimizers.SGD", "keras.optimizers.SGD"))
class SGD(Optimizer):
    """var -= learning_rate * grad; with momentum, v = momentum * v - learning_rate * grad; var += v
    (or Nesterov's variant)."""

    _slots = (("momentums", "m", "accum"),)
    _hyper = ("momentum", "nesterov")

    def __init__(
        self, learning_rate: Any = 0.01, momentum: float = 0.0, nesterov: bool = False,
        name: str = "SGD", **kwargs: Any,
    ):  # fmt: skip
        super().__init__(name, learning_rate=learning_rate, **kwargs)
        if isinstance(momentum, (int, float)) and not 0 <= momentum <= 1:
            raise ValueError("`momentum` must be between [0, 1].")
        self.momentum, self.nesterov = momentum, nesterov
        self._sparse = not momentum
        self._rule = "keras_momentum"

    def _numbers(self, dtype: Any) -> dict[str, Any]:
        return {
            "lr": self._rate(dtype), "momentum": self.momentum, "use_nesterov": self.nesterov,
        }  # fmt: skip

    def update_step(self, gradient: Any, variable: Any) -> Any:
        if self.momentum:
            return super().update_step(gradient, variable)
        rate = self._rate(variable.dtype)
        if isinstance(gradient, IndexedSlices):
            rows = -gradient.values * rate
            return gen_ops.resource_scatter_add(variable.handle, gradient.indices, rows)
        return gen_ops.resource_apply_gradient_descent(variable.handle, rate, gradient)


@export(v2=("optimizers.Adam", "keras.optimizers.Adam"))
class Adam(Optimizer):
    """Steps by averages of the gradient and of its square, corrected for their start at zero.
    `amsgrad`: by the largest of the latter so far."""

    _slots = (("_momentums", "m", "m"), ("_velocities", "v", "v"))
    _rule = "adam"
    _hyper = ("beta_1", "beta_2", "epsilon", "amsgrad")

    def __init__(
        self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.999,
        epsilon: float = 1e-7, amsgrad: bool = False, name: str = "Adam", **kwargs: Any,
    ):  # fmt: skip
        super().__init__(name, learning_rate=learning_rate, **kwargs)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.amsgrad = amsgrad
        if amsgrad:
            self._slots = (*type(self)._slots, ("_velocity_hats", "vhat", "vhat"))
            self._rule = "adam_with_amsgrad"

    def _numbers(self, dtype: Any) -> dict[str, Any]:
        return {
            "beta1_power": self._power(self.beta_1, dtype),
            "beta2_power": self._power(self.beta_2, dtype),
            "lr": self._rate(dtype), "beta1": self.beta_1, "beta2": self.beta_2,
            "epsilon": self.epsilon,
        }  # fmt: skip


@export(v2=("optimizers.AdamW", "keras.optimizers.AdamW"))
class AdamW(Adam):
    """Adam with weights that decay apart from the gradient."""

    def __init__(
        self, learning_rate: Any = 0.001, weight_decay: float = 0.004, beta_1: float = 0.9,
        beta_2: float = 0.999, epsilon: float = 1e-7, amsgrad: bool = False, name: str = "AdamW",
        **kwargs: Any,
    ):  # fmt: skip
        super().__init__(
            learning_rate, beta_1, beta_2, epsilon, amsgrad, name, weight_decay=weight_decay,
            **kwargs,
        )  # fmt: skip
        if weight_decay is None:
            raise ValueError("Missing value of `weight_decay` which is required.")


@export(v2=("optimizers.Adamax", "keras.optimizers.Adamax"))
class Adamax(Optimizer):
    """Adam with the largest gradient so far in place of the average of squares."""

    _slots = (("_m", "m", "m"), ("_u", "u", "v"))
    _rule = "ada_max"
    _hyper = ("beta_1", "beta_2", "epsilon")

    def __init__(
        self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.999,
        epsilon: float = 1e-7, name: str = "Adamax", **kwargs: Any,
    ):  # fmt: skip
        super().__init__(name, learning_rate=learning_rate, **kwargs)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def _numbers(self, dtype: Any) -> dict[str, Any]:
        return {
            "beta1_power": self._power(self.beta_1, dtype), "lr": self._rate(dtype),
            "beta1": self.beta_1, "beta2": self.beta_2, "epsilon": self.epsilon,
        }  # fmt: skip


@export(v2=("optimizers.Adagrad", "keras.optimizers.Adagrad"))
class Adagrad(Optimizer):
    """accum += grad^2; var -= learning_rate * grad / (sqrt(accum) + epsilon)."""

    _slots = (("_accumulators", "accumulator", "accum"),)
    _rule = "adagrad_v2"
    _hyper = ("initial_accumulator_value", "epsilon")
    _sparse = True

    def __init__(
        self, learning_rate: Any = 0.001, initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7, name: str = "Adagrad", **kwargs: Any,
    ):  # fmt: skip
        super().__init__(name, learning_rate=learning_rate, **kwargs)
        self.initial_accumulator_value, self.epsilon = initial_accumulator_value, epsilon

    def _initial(self, name: str, variable: Any) -> Any:
        first = convert_to_tensor(self.initial_accumulator_value, dtype=variable.dtype)
        return gen_ops.fill(gen_ops.shape(variable.value()), first)

    def _numbers(self, dtype: Any) -> dict[str, Any]:
        return {"lr": self._rate(dtype), "epsilon": self.epsilon}


@export(v2=("optimizers.Adadelta", "keras.optimizers.Adadelta"))
class Adadelta(Optimizer):
    """Steps in the units of the variable: by averages of past gradients and past steps."""

    _slots = (
        ("_accumulated_grads", "accumulated_grad", "accum"),
        ("_accumulated_delta_vars", "accumulated_delta_var", "accum_update"),
    )
    _rule = "adadelta"
    _hyper = ("rho", "epsilon")

    def __init__(
        self, learning_rate: Any = 0.001, rho: float = 0.95, epsilon: float = 1e-7,
        name: str = "Adadelta", **kwargs: Any,
    ):  # fmt: skip
        super().__init__(name, learning_rate=learning_rate, **kwargs)
        self.rho, self.epsilon = rho, epsilon

    def _numbers(self, dtype: Any) -> dict[str, Any]:
        return {"lr": self._rate(dtype), "rho": self.rho, "epsilon": self.epsilon}


@export(v2=("optimizers.RMSprop", "keras.optimizers.RMSprop"))
class RMSprop(Optimizer):
    """Divides the gradient by an average of its size; `centered` takes the mean off first."""

    _hyper = ("rho", "momentum", "epsilon", "centered")

    def __init__(
        self, learning_rate: Any = 0.001, rho: float = 0.9, momentum: float = 0.0,
        epsilon: float = 1e-7, centered: bool = False, name: str = "RMSprop", **kwargs: Any,
    ):  # fmt: skip
        super().__init__(name, learning_rate=learning_rate, **kwargs)
        self.rho, self.momentum, self.epsilon = rho, momentum, epsilon
        self.centered = centered
        slots = [("_velocities", "velocity", "ms")]
        if momentum:
            slots.append(("_momentums", "momentum", "mom"))
        if centered:
            slots.append(("_average_gradients", "average_gradient", "mg"))
        self._slots = tuple(slots)
        self._rule = "centered_rms_prop" if centered else "rms_prop"
        # What the op needs without momentum too, and nobody saves.
        self.__dict__["_no_momentums"] = {}

    def _numbers(self, dtype: Any) -> dict[str, Any]:
        return {
            "lr": self._rate(dtype), "rho": self.rho, "momentum": self.momentum,
            "epsilon": self.epsilon,
        }  # fmt: skip

    def build(self, var_list: Any) -> None:
        super().build(var_list)
        if not self.momentum:
            for variable in var_list:
                zeros = gen_ops.zeros_like(variable.value())
                self.__dict__["_no_momentums"][_key(variable)] = Variable(zeros, trainable=False)

    def update_step(self, gradient: Any, variable: Any) -> Any:
        if self.momentum:
            return super().update_step(gradient, variable)
        at = self._index_dict[_key(variable)]
        own = {"mom": self.__dict__["_no_momentums"][_key(variable)].handle}
        for attribute, _, in_op in self._slots:
            own[in_op] = getattr(self, attribute)[at].handle
        numbers = {
            name: convert_to_tensor(value, dtype=variable.dtype)
            for name, value in self._numbers(variable.dtype).items()
        }
        change = getattr(gen_ops, "resource_apply_" + self._rule)
        return change(var=variable.handle, grad=gradient, **own, **numbers)


@export(v2=("optimizers.Ftrl", "keras.optimizers.Ftrl"))
class Ftrl(Optimizer):
    """Follows the regularised leader: sparse solutions for linear models."""

    _slots = (("_accumulators", "accumulator", "accum"), ("_linears", "linear", "linear"))
    _rule = "ftrl_v2"
    _hyper = (
        "learning_rate_power", "initial_accumulator_value", "l1_regularization_strength",
        "l2_regularization_strength", "l2_shrinkage_regularization_strength", "beta",
    )  # fmt: skip

    def __init__(
        self, learning_rate: Any = 0.001, learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1, l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        l2_shrinkage_regularization_strength: float = 0.0, beta: float = 0.0, name: str = "Ftrl",
        **kwargs: Any,
    ):  # fmt: skip
        super().__init__(name, learning_rate=learning_rate, **kwargs)
        for label, value in (
            ("initial_accumulator_value", initial_accumulator_value),
            ("l1_regularization_strength", l1_regularization_strength),
            ("l2_regularization_strength", l2_regularization_strength),
            ("l2_shrinkage_regularization_strength", l2_shrinkage_regularization_strength),
        ):
            if value < 0.0:
                raise ValueError(
                    f"`{label}` needs to be positive or zero. Received: {label}={value}."
                )
        if learning_rate_power > 0.0:
            raise ValueError(
                "`learning_rate_power` needs to be negative or zero. Received: "
                f"learning_rate_power={learning_rate_power}."
            )
        self.learning_rate_power = learning_rate_power
        self.initial_accumulator_value = initial_accumulator_value
        self.l1_regularization_strength = l1_regularization_strength
        self.l2_regularization_strength = l2_regularization_strength
        self.l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength
        self.beta = beta

    def _initial(self, name: str, variable: Any) -> Any:
        if name != "accumulator":
            return super()._initial(name, variable)
        first = convert_to_tensor(self.initial_accumulator_value, dtype=variable.dtype)
        return gen_ops.fill(gen_ops.shape(variable.value()), first)

    def _numbers(self, dtype: Any) -> dict[str, Any]:
        rate = self._rate(dtype)
        strength: Any = self.l2_regularization_strength
        if self.beta:
            strength = strength + self.beta / (2.0 * rate)
        return {
            "lr": rate, "l1": self.l1_regularization_strength, "l2": strength,
            "l2_shrinkage": self.l2_shrinkage_regularization_strength,
            "lr_power": self.learning_rate_power,
        }  # fmt: skip
