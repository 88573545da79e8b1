"""Losses of sequences."""

from typing import Any

from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import array, math, reduce
from millrace.ops.nn.cross_entropy import sparse_softmax_cross_entropy_with_logits


def _loss_of(function: Any, labels: Tensor, logits: Tensor) -> Tensor:
    if function is None:
        return sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return function(labels=labels, logits=logits)


@export(v1="contrib.legacy_seq2seq.sequence_loss_by_example")
def sequence_loss_by_example(
    logits: Any, targets: Any, weights: Any, average_across_timesteps: bool = True,
    softmax_loss_function: Any = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The weighted cross entropy of each sequence of a batch.

    Args:
      logits, targets, weights: lists of one [batch, classes], [batch], [batch] per time.
      average_across_timesteps: divide by the weights of a sequence.
      softmax_loss_function: of `labels` and `logits`, instead of the softmax.

    Errors: ValueError when the lists are not of one length.
    """
    if not len(targets) == len(weights) == len(logits):
        raise ValueError(
            "Lengths of logits, weights, and targets must be the same "
            f"{len(logits)}, {len(weights)}, {len(targets)}."
        )
    with name_scope(name, "sequence_loss_by_example", [*logits, *targets, *weights]):
        losses = []
        for logit, target, weight in zip(logits, targets, weights, strict=True):
            target = convert_to_tensor(target)
            if softmax_loss_function is None:
                target = array.reshape(target, [-1])
            losses.append(_loss_of(softmax_loss_function, target, logit) * weight)
        total = math.add_n(losses)
        if average_across_timesteps:
            # The small number keeps sequences of no weight finite.
            total = total / (math.add_n(list(weights)) + 1e-12)
        return total


@export(v1="contrib.legacy_seq2seq.sequence_loss")
def sequence_loss(
    logits: Any, targets: Any, weights: Any, average_across_timesteps: bool = True,
    average_across_batch: bool = True, softmax_loss_function: Any = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The sum over a batch of `sequence_loss_by_example`, or the mean."""
    with name_scope(name, "sequence_loss", [*logits, *targets, *weights]):
        cost = reduce.reduce_sum(
            sequence_loss_by_example(
                logits, targets, weights, average_across_timesteps, softmax_loss_function
            )
        )
        if not average_across_batch:
            return cost
        size = array.shape(convert_to_tensor(targets[0]))[0]
        return cost / math.cast(size, cost.dtype)


@export(v1="contrib.seq2seq.sequence_loss")
def batch_sequence_loss(
    logits: Any, targets: Any, weights: Any, average_across_timesteps: bool = True,
    average_across_batch: bool = True, softmax_loss_function: Any = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The weighted cross entropy of sequences.

    Args:
      logits: [batch, length, classes]; targets, weights: [batch, length].
      average_across_timesteps, average_across_batch: what to average over; the loss keeps the
        other dimensions.

    Errors: ValueError for other ranks.
    """
    logits = convert_to_tensor(logits)
    targets, weights = convert_to_tensor(targets), convert_to_tensor(weights)
    for tensor, rank, what in ((logits, 3, "Logits"), (targets, 2, "Targets"),
                               (weights, 2, "Weights")):  # fmt: skip
        if tensor.shape.ndims not in (None, rank):
            raise ValueError(
                f"{what} must be a {rank}-dimensional tensor: '{tensor.name}' "
                f"({tensor.dtype.name}) has shape {tensor.shape}"
            )
    with name_scope(name, "sequence_loss", [logits, targets, weights]):
        classes = array.shape(logits)[2]
        losses = _loss_of(
            softmax_loss_function, array.reshape(targets, [-1]),
            array.reshape(logits, array.stack([-1, classes])),
        ) * array.reshape(weights, [-1])  # fmt: skip
        if average_across_timesteps and average_across_batch:
            return reduce.reduce_sum(losses) / (reduce.reduce_sum(weights) + 1e-12)
        losses = array.reshape(losses, array.shape(logits)[:2])
        if average_across_timesteps:
            return reduce.reduce_sum(losses, 1) / (reduce.reduce_sum(weights, 1) + 1e-12)
        if average_across_batch:
            return reduce.reduce_sum(losses, 0) / (reduce.reduce_sum(weights, 0) + 1e-12)
        return losses
