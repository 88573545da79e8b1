"""What every layer does: names, variables, losses, updates."""

import copy
import inspect
import re
from typing import Any

import numpy as np

from millrace.core import dtypes, nest
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph, name_scope
from millrace.graph.graph import Graph, root_graph
from millrace.graph.keys import GraphKeys
from millrace.state.partitioned_variable import PartitionedVariable
from millrace.state.variable_scope import get_variable, get_variable_scope, variable_scope
from millrace.state.variables import outside_of_sessions


@export(v1="layers.InputSpec")
class InputSpec:
    """What a layer expects of an input: its type, rank, shape, or the sizes of some axes."""

    def __init__(
        self, dtype: Any = None, shape: Any = None, ndim: int | None = None,
        max_ndim: int | None = None, min_ndim: int | None = None,
        axes: dict[int, int | None] | None = None, allow_last_axis_squeeze: bool = False,
        name: str | None = None,
    ):  # fmt: skip
        self.dtype = None if dtype is None else dtypes.as_dtype(dtype).name
        self.shape = None if shape is None else TensorShape(shape)
        self.ndim = ndim if self.shape is None else self.shape.ndims
        self.max_ndim = max_ndim
        self.min_ndim = min_ndim
        self.axes = {int(k): v for k, v in (axes or {}).items()}
        self.allow_last_axis_squeeze = allow_last_axis_squeeze
        self.name = name

    def check(self, x: Tensor, layer: str, number: int) -> None:
        """ValueError when a tensor is not what is expected."""
        shape, rank = x.shape, x.shape.ndims
        if rank is None:
            if self.ndim is not None or self.min_ndim is not None or self.max_ndim is not None:
                self._fail(x, layer, number, "its rank is undefined, but the layer requires a "
                           "defined rank")  # fmt: skip
            return
        if self.ndim is not None and rank != self.ndim:
            self._fail(x, layer, number, f"expected ndim={self.ndim}, found ndim={rank}")
        if self.max_ndim is not None and rank > self.max_ndim:
            self._fail(x, layer, number, f"expected max_ndim={self.max_ndim}, found ndim={rank}")
        if self.min_ndim is not None and rank < self.min_ndim:
            self._fail(x, layer, number, f"expected min_ndim={self.min_ndim}, found ndim={rank}")
        if self.dtype is not None and x.dtype.base_dtype.name != self.dtype:
            self._fail(x, layer, number, f"expected dtype={self.dtype}, found {x.dtype.name}")
        sizes = shape.as_list()
        for axis, size in self.axes.items():
            if size is not None and sizes[axis] not in (size, None):
                self._fail(x, layer, number, f"expected axis {axis} of input shape to have value "
                           f"{size}")  # fmt: skip
        if self.shape is not None and not shape.is_compatible_with(self.shape):
            self._fail(x, layer, number, f"expected shape={self.shape}")

    def _fail(self, x: Tensor, layer: str, number: int, why: str) -> None:
        raise ValueError(
            f"Input {number} of layer {layer} is incompatible with the layer: {why}. Full shape "
            f"received: {x.shape} of '{x.name}' ({x.dtype.name})"
        )


def _snake(name: str) -> str:
    name = re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    name = re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()
    # A scope's name cannot begin with an underscore.
    return "private" + name if name[0] == "_" else name


def _listed(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (list, tuple)) else [x]


def add_elements(elements: Any, collection: str) -> None:
    """Adds elements to a collection, those that it does not hold yet."""
    present = get_default_graph().get_collection_ref(collection)
    known = {id(e) for e in present}
    for element in _listed(elements):
        if id(element) not in known:
            present.append(element)


def _uses(function: Any, argument: str) -> bool:
    parameters = inspect.signature(function).parameters
    return argument in parameters or any(
        p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()
    )


@export(v1="layers.Layer")
class Layer:
    """The base of layers. A subclass makes variables in `build` and computes in `call`.

    Variables are made by `get_variable` inside a scope of the layer's name, so that scopes, reuse
    and initializers of the program apply. The layer's call reuses them after the first time.

    Args:
      trainable: whether the variables belong to the trainable ones.
      name: the scope's name; made of the class's name by default.
      dtype: of the variables; that of the first input by default.
    """

    def __init__(
        self, trainable: bool = True, name: str | None = None, dtype: Any = None, **kwargs: Any
    ):
        self._scope: Any = None
        given = kwargs.pop("_scope", None)
        self._reuse = kwargs.pop("_reuse", None)
        kwargs.pop("autocast", None)
        self.activity_regularizer = kwargs.pop("activity_regularizer", None)
        if kwargs:
            raise TypeError(f"Keyword argument not understood: {', '.join(kwargs)}")
        self._trainable = trainable
        self.built = False
        self._trainable_variables: list[Any] = []
        self._non_trainable_variables: list[Any] = []
        self._updates: list[Any] = []
        self._losses: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._dtype = None if dtype is None else dtypes.as_dtype(dtype).base_dtype
        self._graph: Graph | None = None
        self.input_spec: Any = None
        self.stateful = False
        self.supports_masking = False
        if name is None:
            self._base_name = _snake(type(self).__name__)
            self._name = self._unique_name(self._base_name)
        else:
            self._base_name = self._name = name
        if given is not None:
            with variable_scope(given) as scope:
                self._scope = scope

    def _unique_name(self, base: str) -> str:
        graph = root_graph(get_default_graph())
        counts = graph._local.setdefault("layer_names", {})
        outer = get_variable_scope().name
        prefix = f"{outer}/" if outer else ""
        number = counts.get(prefix + base, 0)
        counts[prefix + base] = number + 1
        return base if number == 0 else f"{base}_{number}"

    @property
    def name(self) -> str:
        """The name given, or the class's with a number."""
        return self._name

    @property
    def dtype(self) -> Any:
        """The type of the variables."""
        return self._dtype

    @property
    def trainable(self) -> bool:
        """Whether the variables may be trained."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = value

    @property
    def graph(self) -> Graph | None:
        """The graph that it was first called in."""
        return self._graph

    @property
    def scope_name(self) -> str:
        """The name of its variable scope. ValueError before the first call."""
        if self._scope is None:
            raise ValueError(
                f'No name available for layer scope because the layer "{self._name}" has not been '
                "used yet. The scope name is determined the first time the layer is called."
            )
        return self._scope.name

    @property
    def trainable_variables(self) -> list[Any]:
        """The variables that may be trained."""
        return list(self._trainable_variables) if self._trainable else []

    @property
    def non_trainable_variables(self) -> list[Any]:
        """The other variables."""
        return list(self._non_trainable_variables) if self._trainable else self.variables

    @property
    def variables(self) -> list[Any]:
        """All variables of the layer."""
        return self._trainable_variables + self._non_trainable_variables

    @property
    def weights(self) -> list[Any]:
        """As `variables`."""
        return self.variables

    @property
    def trainable_weights(self) -> list[Any]:
        """As `trainable_variables`."""
        return self.trainable_variables

    @property
    def non_trainable_weights(self) -> list[Any]:
        """As `non_trainable_variables`."""
        return self.non_trainable_variables

    @property
    def updates(self) -> list[Any]:
        """What calls asked to be run along with a training step."""
        return list(self._updates) if self._trainable else []

    @property
    def losses(self) -> list[Any]:
        """What the layer adds to the loss."""
        return list(self._losses)

    def _node(self, kept: list[Any], what: str) -> Any:
        if len(kept) != 1:
            raise AttributeError(
                f"The layer {self._name} has been called {len(kept)} times: it has no one {what}"
            )
        return kept[0]

    @property
    def input(self) -> Any:
        """The input of the one call."""
        return self._node(self._inputs, "input")

    @property
    def output(self) -> Any:
        """The output of the one call."""
        return self._node(self._outputs, "output")

    @property
    def input_shape(self) -> Any:
        """The shape of the one call's input."""
        return nest.map_structure(lambda t: tuple(t.shape.as_list()), self.input)

    @property
    def output_shape(self) -> Any:
        """The shape of the one call's output."""
        return nest.map_structure(lambda t: tuple(t.shape.as_list()), self.output)

    def count_params(self) -> int:
        """How many numbers the variables hold. ValueError before they are made."""
        if not self.built:
            raise ValueError(
                f"You tried to call `count_params` on {self._name}, but the layer isn't built."
            )
        return sum(v.shape.num_elements() for v in self.variables)

    def add_update(self, updates: Any, inputs: Any = None) -> None:
        """Asks for operations to be run along with a training step."""
        del inputs
        self._updates += _listed(updates)

    def add_loss(self, losses: Any, inputs: Any = None) -> None:
        """Adds to the regularization losses."""
        del inputs
        found = [x() if callable(x) else x for x in _listed(losses)]
        found = [convert_to_tensor(x) for x in found if x is not None]
        self._losses += found
        add_elements(found, GraphKeys.REGULARIZATION_LOSSES)

    def get_updates_for(self, inputs: Any) -> list[Any]:
        """The updates; all of them, whatever the inputs are."""
        del inputs
        return self.updates

    def get_losses_for(self, inputs: Any) -> list[Any]:
        """The losses; all of them, whatever the inputs are."""
        del inputs
        return self.losses

    def build(self, input_shape: Any) -> None:
        """Makes the variables; called once, before the first `call`."""
        self._last_input_shape = input_shape
        self.built = True

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """What the layer computes."""
        return inputs

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """The shape of what `call` gives for an input of a shape."""
        raise NotImplementedError(f"{type(self).__name__} does not say its output's shape")

    def _compute_output_shape(self, input_shape: Any) -> TensorShape:
        return self.compute_output_shape(input_shape)

    def _set_scope(self, scope: Any) -> None:
        if self._scope is not None:
            return
        if self._reuse:
            with variable_scope(scope if scope is not None else self._base_name) as opened:
                self._scope = opened
        else:
            with variable_scope(scope, default_name=self._base_name) as opened:
                self._scope = opened

    def add_variable(
        self, name: str, shape: Any, dtype: Any = None, initializer: Any = None,
        regularizer: Any = None, trainable: bool = True, constraint: Any = None,
        partitioner: Any = None, use_resource: bool | None = None, synchronization: Any = None,
        aggregation: Any = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Makes a variable of the layer, or finds it where scopes say so.

        `regularizer`: its loss is added once, when the variable is new.
        """
        del kwargs, synchronization, aggregation
        if self._dtype is None and dtype is None:
            dtype = dtypes.float32
        dtype = self._dtype if dtype is None else dtype
        self._set_scope(None)
        graph = get_default_graph()
        existing = set(graph.get_collection(GraphKeys.GLOBAL_VARIABLES))
        reuse = self.built or self._reuse
        with (
            variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False) as scope,
            name_scope(scope.original_name_scope),
        ):
            variable = get_variable(
                name, shape=shape, dtype=dtype, initializer=initializer,
                trainable=trainable and self._trainable, constraint=constraint,
                partitioner=partitioner, use_resource=use_resource,
            )  # fmt: skip
            parts = list(variable) if isinstance(variable, PartitionedVariable) else [variable]
            new = outside_of_sessions() or not any(p in existing for p in parts)
            if regularizer is not None and new:
                for part in parts:
                    with name_scope(f"{name}/Regularizer"):
                        self.add_loss(regularizer(part))
        kept = self._trainable_variables if trainable else self._non_trainable_variables
        kept += [p for p in parts if not any(p is k for k in kept)]
        return variable

    add_weight = add_variable

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Makes the variables at the first call, then computes. `scope`: a variable scope to use
        at the first call."""
        scope = None
        if "scope" in kwargs and not _uses(self.call, "scope"):
            scope = kwargs.pop("scope")
        if scope is None and args and type(args[0]).__name__ == "VariableScope":
            scope, args = args[0], args[1:]
        self._set_scope(scope)
        inputs = nest.map_structure(_tensor, inputs)
        tensors = [t for t in nest.flatten(inputs) if isinstance(t, Tensor)]
        graph = get_default_graph()
        if outside_of_sessions():
            pass  # the variables belong to no graph
        elif self._graph is None:
            self._graph = root_graph(graph)
        elif self.built and self._graph is not root_graph(graph):
            raise ValueError(
                f"The layer {self._name} belongs to another graph: its inputs and the default "
                "graph must be those that its variables were made in"
            )
        reuse = True if self.built else self._reuse
        with (
            variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False) as opened,
            name_scope(opened.original_name_scope),
        ):
            self._check(tensors)
            if not self.built:
                if self._dtype is None and tensors:
                    self._dtype = tensors[0].dtype.base_dtype
                self._build(inputs)
                self._check(tensors)
            outputs = self.call(inputs, *args, **kwargs)
            if outputs is None:
                raise ValueError(
                    f"A layer's `call` method should return a tensor, not None (layer: "
                    f"{self._name})."
                )
            if self.activity_regularizer is not None:
                for output in _listed(outputs):
                    with name_scope("ActivityRegularizer"):
                        self.add_loss(self.activity_regularizer(output))
        self._inputs.append(inputs)
        self._outputs.append(outputs)
        add_elements(self.updates, GraphKeys.UPDATE_OPS)
        return outputs

    def _build(self, inputs: Any) -> None:
        shapes = nest.map_structure(
            lambda t: t.shape if hasattr(t, "shape") else TensorShape(None), inputs
        )
        if isinstance(shapes, list) and len(shapes) == 1:
            shapes = shapes[0]
        self.build(shapes)
        self.built = True

    def _check(self, tensors: list[Tensor]) -> None:
        if self.input_spec is None:
            return
        specs = _listed(self.input_spec)
        if len(specs) > 1 and len(specs) != len(tensors):
            raise ValueError(
                f"Layer {self._name} expects {len(specs)} inputs, but it received {len(tensors)}: "
                f"{tensors}"
            )
        for number, (spec, tensor) in enumerate(zip(specs, tensors, strict=False)):
            if spec is not None:
                spec.check(tensor, self._name, number)

    def apply(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """As calling the layer."""
        return self(inputs, *args, **kwargs)

    def __deepcopy__(self, memo: Any) -> "Layer":
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        shared = {"_graph", "_scope"}
        for key, value in self.__dict__.items():
            made.__dict__[key] = value if key in shared else copy.deepcopy(value, memo)
        return made


def _tensor(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic, float, int)) and not isinstance(value, bool):
        return convert_to_tensor(value)
    if hasattr(value, "_as_graph_element") and not isinstance(value, Tensor):
        return convert_to_tensor(value)
    return value
