"""Losses: one number of predictions, labels and weights, kept in a collection."""

from typing import Any

from millrace import gen_ops
from millrace.compat.v1.weighting import assert_broadcastable, broadcast_weights, safe_div
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.default_graph import control_dependencies, get_default_graph, name_scope
from millrace.graph.keys import GraphKeys
from millrace.ops import along, array, control_flow, gather, math, reduce
from millrace.ops.confusion import remove_squeezable_dimensions
from millrace.ops.nn import cross_entropy


@export(v1="losses.Reduction")
class Reduction:
    """How the losses of a batch become one number."""

    NONE = "none"
    SUM = "weighted_sum"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"
    MEAN = "weighted_mean"
    SUM_BY_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"
    SUM_OVER_NONZERO_WEIGHTS = SUM_BY_NONZERO_WEIGHTS

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """All of them."""
        return (
            cls.NONE, cls.SUM, cls.MEAN, cls.SUM_OVER_BATCH_SIZE, cls.SUM_OVER_NONZERO_WEIGHTS,
            cls.SUM_BY_NONZERO_WEIGHTS,
        )  # fmt: skip

    @classmethod
    def validate(cls, key: Any) -> None:
        """ValueError unless the key is one of them."""
        if key not in cls.all():
            raise ValueError(f"Invalid Reduction Key {key}. Key should be one of {cls.all()}")


# The collection.


@export(v1="losses.add_loss")
def add_loss(loss: Tensor, loss_collection: str | None = GraphKeys.LOSSES) -> None:
    """Adds a loss to the collection."""
    if loss_collection:
        get_default_graph().add_to_collection(loss_collection, loss)


@export(v1="losses.get_losses")
def get_losses(scope: str | None = None, loss_collection: str = GraphKeys.LOSSES) -> list[Tensor]:
    """The losses of the collection, those of a scope where one is given."""
    return get_default_graph().get_collection(loss_collection, scope)


@export(v1="losses.get_regularization_losses")
def get_regularization_losses(scope: str | None = None) -> list[Tensor]:
    """The losses of regularizers."""
    return get_default_graph().get_collection(GraphKeys.REGULARIZATION_LOSSES, scope)


@export(v1="losses.get_regularization_loss")
def get_regularization_loss(
    scope: str | None = None, name: str = "total_regularization_loss"
) -> Tensor:
    """The sum of the losses of regularizers."""
    losses = get_regularization_losses(scope)
    return math.add_n(losses, name=name) if losses else constant(0.0)


@export(v1="losses.get_total_loss")
def get_total_loss(
    add_regularization_losses: bool = True, name: str = "total_loss", scope: str | None = None
) -> Tensor:
    """The sum of all losses. ValueError where there are none."""
    losses = get_losses(scope=scope)
    if add_regularization_losses:
        losses += get_regularization_losses(scope=scope)
    return math.add_n(losses, name=name)


# Weighted sums.


def _num_present(losses: Tensor, weights: Any, per_batch: bool = False) -> Tensor:
    """How many elements have a weight that is not zero; of each example where `per_batch`."""
    with name_scope(None, "num_present", [losses, weights]) as scope:
        weights = convert_to_tensor(weights)
        present = gather.where(
            math.equal(weights, 0.0), array.zeros_like(weights), array.ones_like(weights)
        )
        present = broadcast_weights(math.cast(present, dtypes.float32), losses)
        if per_batch:
            return reduce.reduce_sum(
                present, along.range(1, array.rank(present)), keepdims=True, name=scope
            )
        return reduce.reduce_sum(present, name=scope)


@export(v1="losses.compute_weighted_loss")
def compute_weighted_loss(
    losses: Any, weights: Any = 1.0, scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """The losses times their weights, reduced to one number and added to the collection.

    Args:
      weights: one number, or of the rank of the losses, each size theirs or 1.
      reduction: one of `Reduction`; the sum over the number of nonzero weights by default.

    Errors: ValueError for weights that do not fit.
    """
    Reduction.validate(reduction)
    with (
        name_scope(scope, "weighted_loss", [losses, weights]),
        control_dependencies([assert_broadcastable(weights, losses)]),
    ):
        losses = convert_to_tensor(losses)
        kind = losses.dtype
        losses = math.cast(losses, dtypes.float32)
        weights = math.cast(convert_to_tensor(weights), dtypes.float32)
        weighted = math.multiply(losses, weights)
        if reduction == Reduction.NONE:
            loss = weighted
        else:
            loss = reduce.reduce_sum(weighted)
            if reduction == Reduction.MEAN:
                total = reduce.reduce_sum(array.ones_like(losses) * weights)
                loss = safe_div(loss, total, name="value")
            elif reduction == Reduction.SUM_BY_NONZERO_WEIGHTS:
                loss = safe_div(loss, _num_present(losses, weights), name="value")
            elif reduction == Reduction.SUM_OVER_BATCH_SIZE:
                count = math.cast(array.size(losses, name="num_elements"), dtypes.float32)
                loss = safe_div(loss, count, name="value")
        loss = math.cast(loss, kind)
        add_loss(loss, loss_collection)
        return loss


def _operands(labels: Any, predictions: Any, second: str = "predictions") -> tuple[Tensor, Tensor]:
    """Both as floats of one shape."""
    predictions = math.cast(convert_to_tensor(predictions), dtypes.float32)
    labels = math.cast(convert_to_tensor(labels), dtypes.float32)
    if not predictions.shape.is_compatible_with(labels.shape):
        raise ValueError(
            f"Shapes {predictions.shape} and {labels.shape} are incompatible: the {second} "
            f"'{predictions.name}' and the labels '{labels.name}' must have one shape"
        )
    return labels, predictions


def _given(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is None:
            raise ValueError(f"Argument `{name}` must not be None.")


@export(v1="losses.absolute_difference")
def absolute_difference(
    labels: Any, predictions: Any, weights: Any = 1.0, scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """The mean of |predictions - labels|; weights as for `compute_weighted_loss`."""
    _given(labels=labels, predictions=predictions)
    with name_scope(scope, "absolute_difference", [predictions, labels, weights]) as scope:
        labels, predictions = _operands(labels, predictions)
        losses = math.abs(math.subtract(predictions, labels))
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export(v1="losses.cosine_distance")
def cosine_distance(
    labels: Any, predictions: Any, axis: int | None = None, weights: Any = 1.0,
    scope: str | None = None, loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS, dim: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of 1 - labels * predictions along `axis`, of vectors that have length one."""
    axis = axis if axis is not None else dim
    if axis is None:
        raise ValueError("You must specify argument `axis`.")
    _given(labels=labels, predictions=predictions)
    with name_scope(scope, "cosine_distance_loss", [predictions, labels, weights]) as scope:
        labels, predictions = _operands(labels, predictions)
        products = math.multiply(predictions, labels)
        losses = 1 - reduce.reduce_sum(products, axis=(axis,), keepdims=True)
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export(v1="losses.hinge_loss")
def hinge_loss(
    labels: Any, logits: Any, weights: Any = 1.0, scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """The mean of max(0, 1 - y * logits), where y is -1 for labels of 0 and 1 for labels of 1."""
    _given(labels=labels, logits=logits)
    with name_scope(scope, "hinge_loss", [logits, labels, weights]) as scope:
        labels, logits = _operands(labels, logits, "logits")
        ones = array.ones_like(labels)
        sides = math.subtract(2 * labels, ones)
        losses = gen_ops.relu(math.subtract(ones, math.multiply(sides, logits)))
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export(v1="losses.huber_loss")
def huber_loss(
    labels: Any, predictions: Any, weights: Any = 1.0, delta: float = 1.0,
    scope: str | None = None, loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """The mean of a loss that is square for errors below `delta` and linear above."""
    _given(labels=labels, predictions=predictions)
    with name_scope(scope, "huber_loss", [predictions, labels, weights]) as scope:
        labels, predictions = _operands(labels, predictions)
        error = math.abs(math.subtract(predictions, labels))
        quadratic = math.minimum(error, delta)
        linear = math.subtract(error, quadratic)
        losses = math.add(0.5 * quadratic * quadratic, delta * linear)
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export(v1="losses.log_loss")
def log_loss(
    labels: Any, predictions: Any, weights: Any = 1.0, epsilon: float = 1e-7,
    scope: str | None = None, loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """The mean cross entropy of predicted probabilities; `epsilon` keeps logarithms finite."""
    _given(labels=labels, predictions=predictions)
    with name_scope(scope, "log_loss", [predictions, labels, weights]) as scope:
        labels, predictions = _operands(labels, predictions)
        hit = math.multiply(labels, math.log(predictions + epsilon))
        miss = math.multiply(1 - labels, math.log(1 - predictions + epsilon))
        return compute_weighted_loss(-hit - miss, weights, scope, loss_collection, reduction)


@export(v1="losses.mean_pairwise_squared_error")
def mean_pairwise_squared_error(
    labels: Any, predictions: Any, weights: Any = 1.0, scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
) -> Tensor:  # fmt: skip
    """The mean square of the differences between errors, of all pairs of elements of an example.

    `weights`: one number, or one per example.
    """
    _given(labels=labels, predictions=predictions)
    with name_scope(scope, "mean_pairwise_squared_error", [predictions, labels, weights]):
        weights = math.cast(convert_to_tensor(weights), dtypes.float32)
        labels = math.cast(convert_to_tensor(labels), dtypes.float32)
        with control_dependencies([assert_broadcastable(weights, labels)]):
            labels, predictions = _operands(labels, predictions)
            errors = math.subtract(predictions, labels)
            axes = along.range(1, array.rank(errors))
            squares = reduce.reduce_sum(math.square(errors), axes, keepdims=True)
            sums = reduce.reduce_sum(errors, axes, keepdims=True)
            count = _num_present(errors, weights, per_batch=True)
            others = math.maximum(count - 1, 0)
            first = 2.0 * safe_div(squares, others, name="value")
            pairs = math.maximum(math.multiply(count, count - 1), 0)
            second = 2.0 * safe_div(math.square(sums), pairs, name="value")
            loss = reduce.reduce_sum(math.multiply(first - second, weights))
            loss = gather.where(
                reduce.reduce_sum(count) > 0, loss, array.zeros_like(loss), name="value"
            )
            add_loss(loss, loss_collection)
            return loss


@export(v1="losses.mean_squared_error")
def mean_squared_error(
    labels: Any, predictions: Any, weights: Any = 1.0, scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """The mean of (predictions - labels)^2; weights as for `compute_weighted_loss`."""
    _given(labels=labels, predictions=predictions)
    with name_scope(scope, "mean_squared_error", [predictions, labels, weights]) as scope:
        labels, predictions = _operands(labels, predictions)
        losses = math.squared_difference(predictions, labels)
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


# Cross entropies.


def _same_shape(labels: Tensor, logits: Tensor) -> None:
    if not logits.shape.is_compatible_with(labels.shape):
        raise ValueError(
            f"Shapes {logits.shape} and {labels.shape} are incompatible: the logits "
            f"'{logits.name}' ({logits.dtype.name}) and the labels '{labels.name}' "
            f"({labels.dtype.name}) must have one shape"
        )


@export(v1="losses.sigmoid_cross_entropy")
def sigmoid_cross_entropy(
    multi_class_labels: Any, logits: Any, weights: Any = 1.0, label_smoothing: float = 0,
    scope: str | None = None, loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """The mean cross entropy of sigmoid(logits) and labels of 0 or 1.

    `label_smoothing`: moves labels this far towards 1/2.
    """
    _given(multi_class_labels=multi_class_labels, logits=logits)
    with name_scope(
        scope, "sigmoid_cross_entropy_loss", [logits, multi_class_labels, weights]
    ) as scope:
        logits = convert_to_tensor(logits)
        labels = math.cast(convert_to_tensor(multi_class_labels), logits.dtype)
        _same_shape(labels, logits)
        if label_smoothing > 0:
            labels = labels * (1 - label_smoothing) + 0.5 * label_smoothing
        losses = cross_entropy.sigmoid_cross_entropy_with_logits(
            labels=labels, logits=logits, name="xentropy"
        )
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export(v1="losses.softmax_cross_entropy")
def softmax_cross_entropy(
    onehot_labels: Any, logits: Any, weights: Any = 1.0, label_smoothing: float = 0,
    scope: str | None = None, loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """The mean cross entropy of softmax(logits) and distributions over classes.

    `label_smoothing`: moves labels this far towards the uniform distribution.
    """
    _given(onehot_labels=onehot_labels, logits=logits)
    with name_scope(scope, "softmax_cross_entropy_loss", [logits, onehot_labels, weights]) as scope:
        logits = convert_to_tensor(logits)
        labels = math.cast(convert_to_tensor(onehot_labels), logits.dtype)
        _same_shape(labels, logits)
        if label_smoothing > 0:
            classes = math.cast(array.shape(labels)[-1], logits.dtype)
            labels = labels * (1.0 - label_smoothing) + label_smoothing / classes
        labels = array.stop_gradient(labels, name="labels_stop_gradient")
        losses = cross_entropy.softmax_cross_entropy_with_logits_v2(
            labels=labels, logits=logits, name="xentropy"
        )
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


@export(v1="losses.sparse_softmax_cross_entropy")
def sparse_softmax_cross_entropy(
    labels: Any, logits: Any, weights: Any = 1.0, scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:  # fmt: skip
    """The mean cross entropy of softmax(logits) and classes.

    Labels and weights may have a last dimension of size 1.
    """
    _given(labels=labels, logits=logits)
    with name_scope(scope, "sparse_softmax_cross_entropy_loss", [logits, labels, weights]) as scope:
        labels, logits = remove_squeezable_dimensions(labels, logits, expected_rank_diff=1)
        if weights is not None:
            weights = _like_labels(convert_to_tensor(weights), labels)
        losses = cross_entropy.sparse_softmax_cross_entropy_with_logits(
            labels=labels, logits=logits, name="xentropy"
        )
        return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def _like_labels(weights: Tensor, labels: Tensor) -> Tensor:
    """Weights without a last dimension of size 1 that the labels do not have."""
    rank, wanted = weights.shape.ndims, labels.shape.ndims
    if rank == 0:
        return weights
    if rank is not None and wanted is not None:
        return array.squeeze(weights, [-1]) if rank - wanted == 1 else weights
    if rank is not None and weights.shape._size_at(-1) not in (None, 1):
        return weights
    return control_flow.cond(
        math.equal(array.rank(weights), array.rank(labels) + 1),
        lambda: array.squeeze(weights, [-1]),
        lambda: array.identity(weights),
    )
