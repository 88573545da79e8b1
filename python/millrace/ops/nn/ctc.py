"""Connectionist temporal classification: sequences of labels without an alignment."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies, name_scope
from millrace.graph.sparse import SparseTensor, SparseTensorValue
from millrace.ops import along, array, check, functional, gather, linalg, math, reduce
from millrace.ops.sizes import sizes_of

# For the logarithm of zero: far below any sum of logarithms, with gradients that are finite.
_NOTHING = -1e30


def _log_sum(parts: list[Tensor]) -> Tensor:
    return reduce.reduce_logsumexp(array.stack(parts), 0)


def _dense(labels: SparseTensor, batch: Any, collapse: bool) -> tuple[Tensor, Tensor]:
    """The labels as [batch, longest], and how many each example has."""
    width = math.maximum(math.cast(labels.dense_shape[1], dtypes.int32), 1)
    shape = array.stack([batch, width])
    indices = math.cast(labels.indices, dtypes.int32)
    values = math.cast(labels.values, dtypes.int32)
    rows = gen_ops.sparse_to_dense(indices, shape, values, -1, validate_indices=False)
    if collapse:
        before = array.concat([-array.ones(array.stack([batch, 1]), dtypes.int32), rows[:, :-1]], 1)
        kept = math.logical_and(rows >= 0, math.not_equal(rows, before))
        places, values = _compacted(rows, kept)
        rows = gen_ops.sparse_to_dense(places, shape, values, -1, validate_indices=False)
    return rows, reduce.reduce_sum(math.cast(rows >= 0, dtypes.int32), 1)


def _compacted(rows: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """(indices, values) of what is kept, moved to the beginnings of its rows."""
    at = gen_ops.where(kept)
    place = along.cumsum(math.cast(kept, dtypes.int32), axis=1) - 1
    columns = gather.gather_nd(place, at)
    indices = array.stack([math.cast(at[:, 0], dtypes.int32), columns], 1)
    return indices, gather.gather_nd(rows, at)


@export(v1="nn.ctc_loss")
def ctc_loss(
    labels: Any, inputs: Any = None, sequence_length: Any = None,
    preprocess_collapse_repeated: bool = False, ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False, time_major: bool = True, logits: Any = None,
) -> Tensor:  # fmt: skip
    """-log of the probability of each example's labels, summed over all alignments.

    Args:
      labels: a sparse int32 [batch, longest]; classes below the last, which stands for no label.
      inputs: logits, [time, batch, classes] or, unless `time_major`, [batch, time, classes].
      sequence_length: [batch], how many times of each example count.
      preprocess_collapse_repeated: take repeated labels as one.
      ctc_merge_repeated: take a label repeated in an alignment as one.
      ignore_longer_outputs_than_inputs: a loss of 0, not an error, for more labels than times.

    Errors: TypeError unless the labels are sparse; InvalidArgumentError when the graph runs for
    labels that do not fit the times.
    """
    inputs = inputs if logits is None else logits
    if isinstance(labels, SparseTensorValue):
        labels = SparseTensor.from_value(labels)
    if not isinstance(labels, SparseTensor):
        raise TypeError(f"Expected labels (first argument) to be a SparseTensor, got {labels!r}")
    with name_scope(None, "CTCLoss", [inputs, labels.values]):
        inputs = convert_to_tensor(inputs, name="inputs")
        if not time_major:
            inputs = array.transpose(inputs, [1, 0, 2])
        lengths = convert_to_tensor(sequence_length, dtypes.int32, "sequence_length")
        times, batch, classes = sizes_of(inputs)
        rows, counts = _dense(labels, batch, preprocess_collapse_repeated)
        spread = _alternated(rows, classes)
        repeats = math.equal(spread[:, 2:], spread[:, :-2])
        repeats = math.logical_and(repeats, math.less(spread[:, 2:], classes - 1))
        needed = counts
        if ctc_merge_repeated:
            needed = counts + reduce.reduce_sum(math.cast(repeats, dtypes.int32), 1)
        checks = [
            check.assert_less_equal(
                lengths, times, message="sequence_length is longer than there are times"
            ),
            check.assert_less(
                rows, classes - 1, message="Saw a label that is not below the number of classes - 1"
            ),
        ]
        if not ignore_longer_outputs_than_inputs:
            checks.append(
                check.assert_less_equal(
                    needed, lengths, message="Not enough time for target transition sequence"
                )
            )
        with control_dependencies(checks):
            within = array.transpose(array.sequence_mask(lengths, times), [1, 0])
        # Times past an example's end may hold anything, even nan.
        within = math.logical_and(
            array.expand_dims(within, 2), array.ones_like(inputs, dtype=dtypes.bool_)
        )
        inputs = gather.where(within, inputs, array.zeros_like(inputs))
        scores = gen_ops.log_softmax(array.reshape(inputs, array.stack([-1, classes])))
        scores = array.reshape(scores, array.stack([times, batch, classes]))
        loss = _forward(scores, spread, repeats, counts, lengths, classes, ctc_merge_repeated)
        if ignore_longer_outputs_than_inputs:
            loss = gather.where(needed <= lengths, loss, array.zeros_like(loss))
        return loss


def _alternated(rows: Tensor, classes: Any) -> Tensor:
    """The blank before, between and after the labels; missing labels are blanks too."""
    labels = gather.where(rows >= 0, rows, array.zeros_like(rows) + (classes - 1))
    blanks = array.zeros_like(labels) + (classes - 1)
    pairs = array.reshape(array.stack([blanks, labels], 2), array.stack([array.shape(rows)[0], -1]))
    return array.concat([pairs, blanks[:, :1]], 1)


def _forward(
    scores: Tensor, spread: Tensor, repeats: Tensor, counts: Tensor, lengths: Tensor,
    classes: Any, merge: bool,
) -> Tensor:  # fmt: skip
    """The loss by dynamic programming over times: state u is at element u of `spread`."""
    kind = scores.dtype
    nothing = convert_to_tensor(_NOTHING, dtype=kind)
    chosen = gather.one_hot(spread, classes, dtype=kind)
    # [times, batch, states]: the score of each state's label at each time.
    emitted = array.transpose(linalg.matmul(chosen, array.transpose(scores, [1, 2, 0])), [2, 0, 1])
    is_label = math.less(spread, classes - 1)
    none = array.zeros_like(emitted[0]) + nothing
    # A label may follow another one directly, unless both are one when merged.
    skips = is_label[:, 2:]
    if merge:
        skips = math.logical_and(skips, math.logical_not(repeats))
    first = array.concat([array.zeros_like(none[:, :1]), none[:, 1:]], 1)

    def step(before: Tensor, row: Any) -> Tensor:
        emission, time = row
        stay = before if merge else gather.where(is_label, none, before)
        move = array.concat([none[:, :1], before[:, :-1]], 1)
        jump = gather.where(skips, before[:, :-2], none[:, 2:])
        jump = array.concat([none[:, :2], jump], 1)
        after = math.maximum(_log_sum([stay, move, jump]) + emission, nothing)
        return gather.where(math.less(time, lengths), after, before)

    times = along.range(array.shape(scores)[0])
    last = functional.foldl(step, (emitted, times), initializer=first)
    states = array.shape(spread)[1]
    at_end = gather.one_hot(2 * counts, states, on_value=True, off_value=False, dtype=dtypes.bool_)
    at_label = gather.one_hot(
        2 * counts - 1, states, on_value=True, off_value=False, dtype=dtypes.bool_
    )
    ends = gather.where(math.logical_or(at_end, at_label), last, none)
    return -reduce.reduce_logsumexp(ends, 1)


@export(v1="nn.ctc_greedy_decoder", v2="nn.ctc_greedy_decoder")
def ctc_greedy_decoder(
    inputs: Any, sequence_length: Any, merge_repeated: bool = True, blank_index: int | None = None
) -> tuple[list[SparseTensor], Tensor]:
    """The labels of the best class of each time.

    Args:
      inputs: logits, [time, batch, classes]; the last class stands for no label, or the one at
        `blank_index`.
      merge_repeated: take a class repeated at following times as one.

    Returns: a list of one sparse [batch, longest], and the negated sums [batch, 1] of the logits
    chosen.
    """
    with name_scope(None, "CTCGreedyDecoder", [inputs]):
        inputs = convert_to_tensor(inputs, name="inputs")
        lengths = convert_to_tensor(sequence_length, dtypes.int32, "sequence_length")
        times, batch, classes = sizes_of(inputs)
        blank = classes - 1 if blank_index is None else blank_index % classes
        with control_dependencies(
            [
                check.assert_less_equal(
                    lengths, times, message="sequence_length is longer than there are times"
                )
            ]
        ):
            best = array.transpose(along.argmax(inputs, 2), [1, 0])
        within = array.sequence_mask(lengths, times)
        kept = math.logical_and(within, math.not_equal(best, math.cast(blank, dtypes.int64)))
        if merge_repeated:
            start = -array.ones(array.stack([batch, 1]), dtypes.int64)
            before = array.concat([start, best[:, :-1]], 1)
            kept = math.logical_and(kept, math.not_equal(best, before))
        indices, values = _compacted(best, kept)
        longest = reduce.reduce_max(reduce.reduce_sum(math.cast(kept, dtypes.int64), 1))
        shape = array.stack([math.cast(batch, dtypes.int64), longest])
        decoded = SparseTensor(math.cast(indices, dtypes.int64), values, shape)
        tops = array.transpose(reduce.reduce_max(inputs, 2), [1, 0])
        sums = reduce.reduce_sum(
            gather.where(within, tops, array.zeros_like(tops)), 1, keepdims=True
        )
        return [decoded], -sums
