"""Cross entropies."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import along, array, gather, math


def _named_only(function: str, sentinel: Any, labels: Any, logits: Any) -> None:
    if sentinel is not None:
        raise ValueError(
            f"Only call `{function}` with named arguments (labels=..., logits=..., ...)"
        )
    if labels is None or logits is None:
        raise ValueError(f"{function}: both labels and logits must be provided.")


def _rows(tensor: Tensor) -> Tensor:
    """All but the last dimension made one."""
    shape = tensor.shape
    classes = shape.as_list()[-1] if shape.ndims else None
    if classes is None:
        classes = array.shape(tensor)[array.rank(tensor) - 1]
    return array.reshape(tensor, array.stack([-1, classes]))


def _for_rows_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Labels of any rank as rows, repeated where they have one row or one class."""
    if labels.shape.ndims != 2:
        labels = _rows(labels)
    given, wanted = labels.shape.as_list(), logits.shape.as_list()
    if any(a == 1 and b not in (1, None) for a, b in zip(given, wanted, strict=True)):
        labels = gen_ops.broadcast_to(labels, array.shape(logits))
    return labels


def _dense(labels: Any, logits: Any, axis: int, name: str | None) -> Tensor:
    with name_scope(name, "softmax_cross_entropy_with_logits", [logits, labels]) as scope:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, name="labels")
        precise = logits
        if logits.dtype in (dtypes.float16, dtypes.bfloat16):
            precise = math.cast(logits, dtypes.float32)
        labels = math.cast(labels, precise.dtype.base_dtype)
        rank = logits.shape.ndims
        if rank is not None and not -rank <= axis < rank:
            raise ValueError(
                f"dim must be in the range [-{rank}, {rank}) for logits of shape {logits.shape}: "
                f"{axis}"
            )
        if axis != -1 and axis != (rank or 0) - 1:
            count = array.rank(precise)
            at = axis % count if rank is None or axis < 0 else axis
            order = array.concat([along.range(at), along.range(at + 1, count), [at]], 0)
            precise, labels = array.transpose(precise, order), array.transpose(labels, order)
            batch = array.shape(precise)[:-1]
        else:
            batch = None
        if rank == 2 and batch is None:
            labels = _for_rows_of(precise, labels)
            cost = gen_ops.softmax_cross_entropy_with_logits(precise, labels, name=scope).loss
        else:
            outer = array.shape(precise)[:-1] if batch is None else batch
            rows = _rows(precise)
            labels = _for_rows_of(rows, labels)
            cost = gen_ops.softmax_cross_entropy_with_logits(rows, labels).loss
            cost = array.reshape(cost, outer, name=scope)
            if rank is not None:
                sizes = logits.shape.as_list()
                del sizes[axis]
                cost.set_shape(sizes)
        return cost if precise.dtype is logits.dtype else math.cast(cost, logits.dtype)


@export(v1="nn.softmax_cross_entropy_with_logits")
def softmax_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, dim: int = -1,
    name: str | None = None, axis: int | None = None,
) -> Tensor:  # fmt: skip
    """The cross entropy of softmax(logits) and the distributions `labels`, per row.

    Nothing flows back into the labels. Arguments by name only.
    """
    _named_only("softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    with name_scope(name, "softmax_cross_entropy_with_logits_sg", [logits, labels]) as scope:
        labels = gen_ops.stop_gradient(labels, name="labels_stop_gradient")
        return _dense(labels, logits, dim if axis is None else axis, scope)


@export(v1="nn.softmax_cross_entropy_with_logits_v2")
def softmax_cross_entropy_with_logits_v2(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, dim: int | None = None,
    name: str | None = None, axis: int | None = None,
) -> Tensor:  # fmt: skip
    """As `softmax_cross_entropy_with_logits`, with gradients for the labels too."""
    _named_only("softmax_cross_entropy_with_logits_v2", _sentinel, labels, logits)
    along = axis if axis is not None else dim
    return _dense(labels, logits, -1 if along is None else along, name)


softmax_with_logits_v2 = export(v2="nn.softmax_cross_entropy_with_logits")(
    reordered(softmax_cross_entropy_with_logits_v2, "labels logits axis name")
)


@export(v1="nn.sparse_softmax_cross_entropy_with_logits")
def sparse_softmax_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, name: str | None = None
) -> Tensor:
    """The cross entropy of softmax(logits) and the class `labels`, per row.

    Labels are integers of the logits' shape without the last dimension. Arguments by name only.
    """
    _named_only("sparse_softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    with name_scope(name, "SparseSoftmaxCrossEntropyWithLogits", [labels, logits]):
        labels = convert_to_tensor(labels)
        logits = convert_to_tensor(logits)
        precise = logits
        if logits.dtype in (dtypes.float16, dtypes.bfloat16):
            precise = math.cast(logits, dtypes.float32)
        rank = logits.shape.ndims
        if rank == 0:
            raise ValueError(f"Logits cannot be scalars - received shape {logits.shape}.")
        if rank is not None and labels.shape.ndims is not None and labels.shape.ndims != rank - 1:
            raise ValueError(
                f"Rank mismatch: Rank of labels (received {labels.shape.ndims}, shape "
                f"{labels.shape}, {labels.dtype.name}) should equal rank of "
                f"logits minus 1 (received {rank}, shape {logits.shape}, {logits.dtype.name})."
            )
        if not labels.shape.is_compatible_with(logits.shape[:-1]):
            raise ValueError(
                f"Shape mismatch: The shape of labels (received {labels.shape}, "
                f"{labels.dtype.name}) should equal the shape of logits except for the last "
                f"dimension (received {logits.shape}, {logits.dtype.name})."
            )
        if rank == 2:
            cost = gen_ops.sparse_softmax_cross_entropy_with_logits(precise, labels, name=name).loss
        else:
            shape = array.shape(labels)
            cost = gen_ops.sparse_softmax_cross_entropy_with_logits(
                _rows(precise), array.reshape(labels, [-1]), name=name
            ).loss
            cost = array.reshape(cost, shape)
            cost.set_shape(labels.shape)
        return cost if precise.dtype is logits.dtype else math.cast(cost, logits.dtype)


sparse_softmax_cross_entropy_with_logits_v2 = export(
    v2="nn.sparse_softmax_cross_entropy_with_logits"
)(reordered(sparse_softmax_cross_entropy_with_logits, "labels logits name"))


@export(v1="nn.sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, name: str | None = None
) -> Tensor:
    """The cross entropy of sigmoid(logits) and `labels`, per element. Arguments by name only."""
    _named_only("sigmoid_cross_entropy_with_logits", _sentinel, labels, logits)
    with name_scope(name, "logistic_loss", [logits, labels]) as scope:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, name="labels", dtype=logits.dtype.base_dtype)
        _same_shape("logits and labels must have the same shape", logits, labels)
        zeros = array.zeros_like(logits, dtype=logits.dtype.base_dtype)
        positive = math.greater_equal(logits, zeros)
        clipped = gather.where(positive, logits, zeros)
        negative = gather.where(positive, -logits, logits)
        return math.add(clipped - logits * labels, gen_ops.log1p(gen_ops.exp(negative)), name=scope)


sigmoid_cross_entropy_with_logits_v2 = export(v2="nn.sigmoid_cross_entropy_with_logits")(
    reordered(sigmoid_cross_entropy_with_logits, "labels logits name")
)


def _same_shape(message: str, a: Tensor, b: Tensor) -> None:
    if not a.shape.is_compatible_with(b.shape):
        raise ValueError(
            f"{message}: '{label_of(a)}' ({a.dtype.name}, shape {a.shape}) vs '{label_of(b)}' "
            f"({b.dtype.name}, shape {b.shape})"
        )


@export(v1="nn.weighted_cross_entropy_with_logits")
def weighted_cross_entropy_with_logits(
    targets: Any = None, logits: Any = None, pos_weight: Any = None, name: str | None = None,
    labels: Any = None,
) -> Tensor:  # fmt: skip
    """As `sigmoid_cross_entropy_with_logits`, positive targets counting `pos_weight` times."""
    targets = targets if labels is None else labels
    with name_scope(name, "logistic_loss", [logits, targets]) as scope:
        logits = convert_to_tensor(logits, name="logits")
        targets = convert_to_tensor(targets, name="targets", dtype=logits.dtype.base_dtype)
        _same_shape("logits and targets must have the same shape", logits, targets)
        weight = 1 + (pos_weight - 1) * targets
        softplus = gen_ops.log1p(gen_ops.exp(-math.abs(logits))) + gen_ops.relu(-logits)
        return math.add((1 - targets) * logits, weight * softplus, name=scope)


weighted_cross_entropy_with_logits_v2 = export(v2="nn.weighted_cross_entropy_with_logits")(
    reordered(weighted_cross_entropy_with_logits, "labels logits pos_weight name")
)


@export(v1="nn.log_poisson_loss", v2="nn.log_poisson_loss")
def log_poisson_loss(
    targets: Any, log_input: Any, compute_full_loss: bool = False, name: str | None = None
) -> Tensor:
    """The log-likelihood loss of Poisson-distributed targets, given the logarithm of the rate."""
    with name_scope(name, "log_poisson_loss", [log_input, targets]):
        log_input = convert_to_tensor(log_input, name="log_input")
        targets = convert_to_tensor(targets, name="targets", dtype=log_input.dtype.base_dtype)
        _same_shape("log_input and targets must have the same shape", log_input, targets)
        result = gen_ops.exp(log_input) - log_input * targets
        if compute_full_loss:
            # Stirling's approximation of log(targets!), which targets below 1 do not have.
            half = convert_to_tensor(0.5, dtype=targets.dtype)
            tau = convert_to_tensor(6.283185307179586, dtype=targets.dtype)
            stirling = targets * gen_ops.log(targets) - targets + half * gen_ops.log(tau * targets)
            zeros, ones = array.zeros_like(targets), array.ones_like(targets)
            small = gen_ops.logical_and(targets >= zeros, targets <= ones)
            result += gather.where(small, zeros, stirling)
        return result
