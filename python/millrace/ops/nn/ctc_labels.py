"""Connectionist temporal classification as TensorFlow 2 has it: dense labels, any blank."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import SparseTensor, SparseTensorValue
from millrace.ops import along, array, gather, math, partition, reduce
from millrace.ops.nn.ctc import ctc_loss
from millrace.ops.sizes import sizes_of


@export(v1="nn.ctc_loss_v2", v2="nn.ctc_loss")
def ctc_loss_v2(
    labels: Any, logits: Any, label_length: Any, logit_length: Any, logits_time_major: bool = True,
    unique: Any = None, blank_index: int | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """-log of the probability of each example's labels, summed over all alignments.

    Args:
      labels: dense, [batch, longest], of which `label_length` count; or sparse.
      logits: [time, batch, classes], or [batch, time, classes] unless `logits_time_major`.
      logit_length: [batch], how many times of each example count.
      unique: what `ctc_unique_labels` gives; it makes no difference here.
      blank_index: the class that stands for no label: 0 by default for dense labels. Negative ones
        count from the last class. Sparse labels need it.
    """
    del unique
    with name_scope(name, "ctc_loss", [logits]):
        logits = convert_to_tensor(logits, name="logits")
        if isinstance(labels, SparseTensorValue):
            labels = SparseTensor.from_value(labels)
        if isinstance(labels, SparseTensor):
            if blank_index is None:
                raise ValueError(
                    "Argument `blank_index` must be provided when labels is a SparseTensor."
                )
        else:
            blank_index = 0 if blank_index is None else blank_index
            labels = _sparse_labels(labels, label_length)
        classes = logits.shape._size_at(-1)
        if classes is None:
            raise ValueError("ctc_loss needs logits of a known number of classes")
        if blank_index < 0:
            blank_index += classes
        if not 0 <= blank_index < classes:
            raise ValueError(f"blank_index {blank_index} is not one of {classes} classes")
        if blank_index != classes - 1:
            logits = array.concat(
                [
                    logits[..., :blank_index],
                    logits[..., blank_index + 1 :],
                    logits[..., blank_index : blank_index + 1],
                ],
                -1,
            )
            after = math.cast(gen_ops.greater(labels.values, blank_index), labels.values.dtype)
            labels = SparseTensor(labels.indices, labels.values - after, labels.dense_shape)
        values = math.cast(labels.values, dtypes.int32)
        labels = SparseTensor(labels.indices, values, labels.dense_shape)
        return ctc_loss(
            labels, logits, logit_length, time_major=logits_time_major,
            ignore_longer_outputs_than_inputs=False,
        )  # fmt: skip


def _sparse_labels(labels: Any, label_length: Any) -> SparseTensor:
    labels = convert_to_tensor(labels, name="labels")
    lengths = convert_to_tensor(label_length, name="label_length")
    mask = array.sequence_mask(lengths, array.shape(labels)[1])
    indices = gen_ops.where(mask)
    values = gather.gather_nd(labels, indices)
    return SparseTensor(indices, values, array.shape(labels, out_type=dtypes.int64))


@export(v1="nn.collapse_repeated", v2="nn.collapse_repeated")
def collapse_repeated(
    labels: Any, seq_length: Any, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """(labels, lengths) in which repeated labels stand once, zeros behind them.

    Args:
      labels: [batch, longest], of which `seq_length` count.
    """
    with name_scope(name, "collapse_repeated_labels", [labels, seq_length]):
        labels = convert_to_tensor(labels, name="labels")
        lengths = convert_to_tensor(seq_length, name="seq_length")
        first = array.ones_like(labels[:, :1], dtype=dtypes.bool_)
        changed = math.not_equal(labels[:, 1:], labels[:, :-1])
        within = array.sequence_mask(lengths, sizes_of(labels)[1])
        kept = math.logical_and(array.concat([first, changed], 1), within)
        new_lengths = reduce.reduce_sum(math.cast(kept, lengths.dtype), 1)
        longest = reduce.reduce_max(new_lengths)
        values = partition.boolean_mask(labels, kept)
        places = gen_ops.where(array.sequence_mask(new_lengths, longest))
        shape = array.stack(
            [math.cast(sizes_of(labels)[0], dtypes.int64), math.cast(longest, dtypes.int64)]
        )
        return partition.scatter_nd(places, values, shape), new_lengths


@export(v1="nn.ctc_unique_labels", v2="nn.ctc_unique_labels")
def ctc_unique_labels(labels: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """(unique, index): the labels of each row without repetition, zeros behind them, and for each
    label its place among them."""
    with name_scope(name, "ctc_unique_labels", [labels]):
        labels = convert_to_tensor(labels, name="labels")
        width = array.shape(labels)[1]
        same = math.equal(array.expand_dims(labels, 1), array.expand_dims(labels, 2))
        # Where each label is for the first time, and how many such places are before.
        first = along.argmax(math.cast(same, dtypes.int32), 2)
        numbers = math.cast(along.range(width), dtypes.int64)
        is_first = math.equal(first, numbers)
        place = along.cumsum(math.cast(is_first, dtypes.int32), axis=1) - 1
        index = gather.batch_gather(place, math.cast(first, dtypes.int32))
        at = gen_ops.where(is_first)
        columns = math.cast(gather.gather_nd(place, at), dtypes.int64)
        indices = array.stack([at[:, 0], columns], 1)
        unique = partition.scatter_nd(
            indices, gather.gather_nd(labels, at), array.shape(labels, out_type=dtypes.int64)
        )
        return unique, index
