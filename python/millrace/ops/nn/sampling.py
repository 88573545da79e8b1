"""Candidate samplers, and losses over a sample of the classes."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import array, linalg, math, random
from millrace.ops.nn import cross_entropy
from millrace.ops.nn.embedding import lookup, shards


def _seeds(seed: int | None) -> dict[str, int]:
    first, second = random.get_seed(seed)
    return {"seed": first or 0, "seed2": second or 0}


@export(
    v1=("nn.uniform_candidate_sampler", "random.uniform_candidate_sampler"),
    v2="random.uniform_candidate_sampler",
)
def uniform_candidate_sampler(
    true_classes: Any, num_true: int, num_sampled: int, unique: bool, range_max: int,
    seed: int | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """Samples classes below `range_max` uniformly.

    Args:
      true_classes: [batch, num_true] int64.
      unique: whether a class is drawn once at most.

    Returns: (sampled_candidates, true_expected_count, sampled_expected_count).
    """
    return gen_ops.uniform_candidate_sampler(
        true_classes, num_true=num_true, num_sampled=num_sampled, unique=unique,
        range_max=range_max, **_seeds(seed), name=name,
    )  # fmt: skip


@export(
    v1=("nn.log_uniform_candidate_sampler", "random.log_uniform_candidate_sampler"),
    v2="random.log_uniform_candidate_sampler",
)
def log_uniform_candidate_sampler(
    true_classes: Any, num_true: int, num_sampled: int, unique: bool, range_max: int,
    seed: int | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """Samples classes below `range_max`, small ones more often (Zipf's law). Otherwise as
    `uniform_candidate_sampler`."""
    return gen_ops.log_uniform_candidate_sampler(
        true_classes, num_true=num_true, num_sampled=num_sampled, unique=unique,
        range_max=range_max, **_seeds(seed), name=name,
    )  # fmt: skip


@export(
    v1=("nn.learned_unigram_candidate_sampler", "random.learned_unigram_candidate_sampler"),
    v2=("nn.learned_unigram_candidate_sampler", "random.learned_unigram_candidate_sampler"),
)
def learned_unigram_candidate_sampler(
    true_classes: Any, num_true: int, num_sampled: int, unique: bool, range_max: int,
    seed: int | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """Samples classes as often as it has met them. Otherwise as `uniform_candidate_sampler`."""
    return gen_ops.learned_unigram_candidate_sampler(
        true_classes, num_true=num_true, num_sampled=num_sampled, unique=unique,
        range_max=range_max, **_seeds(seed), name=name,
    )  # fmt: skip


@export(
    v1=("nn.fixed_unigram_candidate_sampler", "random.fixed_unigram_candidate_sampler"),
    v2=("nn.fixed_unigram_candidate_sampler", "random.fixed_unigram_candidate_sampler"),
)
def fixed_unigram_candidate_sampler(
    true_classes: Any, num_true: int, num_sampled: int, unique: bool, range_max: int,
    vocab_file: str = "", distortion: float = 1.0, num_reserved_ids: int = 0,
    num_shards: int = 1, shard: int = 0, unigrams: Any = (), seed: int | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Samples classes by weights given in `unigrams`, or in a file.

    Args:
      vocab_file: its lines end with a comma and a weight, one line per class.
      distortion: the weights are raised to this power.
      num_reserved_ids: classes at the beginning that are never drawn and have no weight.
      num_shards, shard: draws only from this share of the classes.
    """
    return gen_ops.fixed_unigram_candidate_sampler(
        true_classes, num_true=num_true, num_sampled=num_sampled, unique=unique,
        range_max=range_max, vocab_file=vocab_file, distortion=distortion,
        num_reserved_ids=num_reserved_ids, num_shards=num_shards, shard=shard,
        unigrams=list(unigrams), **_seeds(seed), name=name,
    )  # fmt: skip


@export(
    v1=("nn.all_candidate_sampler", "random.all_candidate_sampler"),
    v2=("nn.all_candidate_sampler", "random.all_candidate_sampler"),
)
def all_candidate_sampler(
    true_classes: Any, num_true: int, num_sampled: int, unique: bool, seed: int | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Samples all of `num_sampled` classes: for tests of what uses a sampler."""
    return gen_ops.all_candidate_sampler(
        true_classes, num_true=num_true, num_sampled=num_sampled, unique=unique, **_seeds(seed),
        name=name,
    )  # fmt: skip


@export(v1="nn.compute_accidental_hits", v2="nn.compute_accidental_hits")
def compute_accidental_hits(
    true_classes: Any, sampled_candidates: Any, num_true: int, seed: int | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Where a sampled class is a true one: (row, place in the sample, a large negative weight)."""
    return gen_ops.compute_accidental_hits(
        true_classes, sampled_candidates, num_true=num_true, **_seeds(seed), name=name
    )


def _row_sums(x: Tensor) -> Tensor:
    """Sums along rows, as a product with ones, whose gradient is quick."""
    columns = array.shape(x)[1]
    ones = array.ones(array.stack([columns, 1]), x.dtype)
    return array.reshape(linalg.matmul(x, ones), [-1])


def _sampled_logits(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int,
    num_true: int, sampled_values: Any, subtract_log_q: bool, remove_accidental_hits: bool,
    partition_strategy: str, name: str | None, seed: int | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The logits and the labels of the true classes and then the sampled ones, per row."""
    weights, biases = shards(weights), shards(biases)
    with name_scope(name, "compute_sampled_logits", [*weights, *biases, inputs, labels]):
        labels = convert_to_tensor(labels)
        if labels.dtype != dtypes.int64:
            labels = math.cast(labels, dtypes.int64)
        flat = array.reshape(labels, [-1])
        if sampled_values is None:
            sampled_values = log_uniform_candidate_sampler(
                labels, num_true, num_sampled, True, num_classes, seed
            )
        sampled, true_count, sampled_count = (
            gen_ops.stop_gradient(value) for value in sampled_values
        )
        sampled = math.cast(sampled, dtypes.int64)
        # One lookup for both: the gradient of the table is then one set of slices.
        ids = array.concat([flat, sampled], 0)
        rows = lookup(weights, ids, partition_strategy)
        row_biases = lookup(biases, ids, partition_strategy)
        inputs = convert_to_tensor(inputs)
        if rows.dtype != inputs.dtype:
            rows = math.cast(rows, inputs.dtype)
        if row_biases.dtype != inputs.dtype:
            row_biases = math.cast(row_biases, inputs.dtype)
        count = array.shape(flat)[0]
        true_rows = gen_ops.slice(rows, [0, 0], array.stack([count, -1]))
        sampled_rows = gen_ops.slice(rows, array.stack([count, 0]), [-1, -1])
        true_biases = gen_ops.slice(row_biases, [0], array.reshape(count, [1]))
        sampled_biases = gen_ops.slice(row_biases, array.reshape(count, [1]), [-1])
        width = array.shape(true_rows)[1:2]
        by_true = array.concat([[-1, num_true], width], 0)
        products = math.multiply(array.expand_dims(inputs, 1), array.reshape(true_rows, by_true))
        true_logits = _row_sums(array.reshape(products, array.concat([[-1], width], 0)))
        true_logits = array.reshape(true_logits, [-1, num_true])
        true_logits += array.reshape(true_biases, [-1, num_true])
        sampled_logits = linalg.matmul(inputs, sampled_rows, transpose_b=True) + sampled_biases
        if remove_accidental_hits:
            sampled_logits += _hits(labels, sampled, num_true, sampled_logits)
        if subtract_log_q:
            true_logits -= math.log(true_count)
            sampled_logits -= math.log(sampled_count)
        logits = array.concat([true_logits, sampled_logits], 1)
        targets = array.concat(
            [array.ones_like(true_logits) / num_true, array.zeros_like(sampled_logits)], 1
        )
        return logits, targets


def _hits(labels: Tensor, sampled: Tensor, num_true: int, logits: Tensor) -> Tensor:
    """Large negative values where a sampled class is a true one of its row."""
    row, place, weight = compute_accidental_hits(labels, sampled, num_true)
    indices = array.concat(
        [
            array.reshape(row, [-1, 1]),
            array.reshape(math.cast(place, dtypes.int32), [-1, 1]),
        ],
        1,
        name="sparse_indices",
    )
    shape = array.concat([array.shape(labels)[:1], array.expand_dims(array.size(sampled), 0)], 0)
    if weight.dtype != logits.dtype:
        weight = math.cast(weight, logits.dtype)
    return gen_ops.sparse_to_dense(
        indices, shape, weight, convert_to_tensor(0, dtype=logits.dtype), validate_indices=False
    )


@export(v1="nn.nce_loss")
def nce_loss(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int,
    num_true: int = 1, sampled_values: Any = None, remove_accidental_hits: bool = False,
    partition_strategy: str = "mod", name: str | None = "nce_loss",
) -> Tensor:  # fmt: skip
    """The noise-contrastive estimation loss of each row.

    Args:
      weights: [num_classes, dim], or its shards; biases: [num_classes].
      labels: [batch, num_true] int64; inputs: [batch, dim].
      sampled_values: what a candidate sampler gave; the log-uniform one's by default.
      remove_accidental_hits: leave out samples that are true classes.
    """
    logits, targets = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, True,
        remove_accidental_hits, partition_strategy, name, None,
    )  # fmt: skip
    losses = cross_entropy.sigmoid_cross_entropy_with_logits(
        labels=targets, logits=logits, name="sampled_losses"
    )
    return _row_sums(losses)


nce_loss_v2 = export(v2="nn.nce_loss")(
    reordered(
        nce_loss,
        "weights biases labels inputs num_sampled num_classes num_true sampled_values "
        "remove_accidental_hits name",
    )
)


@export(v1="nn.sampled_softmax_loss")
def sampled_softmax_loss(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int,
    num_true: int = 1, sampled_values: Any = None, remove_accidental_hits: bool = True,
    partition_strategy: str = "mod", name: str | None = "sampled_softmax_loss",
    seed: int | None = None,
) -> Tensor:  # fmt: skip
    """The softmax loss of each row over its true classes and a sample of the others.

    Arguments as for `nce_loss`. For training: evaluate with the softmax over all classes.
    """
    logits, targets = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, True,
        remove_accidental_hits, partition_strategy, name, seed,
    )  # fmt: skip
    targets = gen_ops.stop_gradient(targets, name="labels_stop_gradient")
    return cross_entropy.softmax_cross_entropy_with_logits_v2(labels=targets, logits=logits)


sampled_softmax_loss_v2 = export(v2="nn.sampled_softmax_loss")(
    reordered(
        sampled_softmax_loss,
        "weights biases labels inputs num_sampled num_classes num_true sampled_values "
        "remove_accidental_hits seed name",
    )
)
