"""What ops that do little with each number reach, in GB/s, in every framework that is installed.

python memory_bench.py [--python TENSORFLOW_PYTHON] [--peers PYTORCH_AND_JAX_PYTHON] [WORD...]

The bytes of an op are those of its inputs and its result, each once; the rest is as rates.py says.
"""

import dataclasses

import numpy as np
import rates


@dataclasses.dataclass(frozen=True)
class Op(rates.Op):
    result_bytes: int = 4  # of a number

    def amount(self, inputs, result):
        return sum(x.nbytes for x in inputs) + result.size * self.result_bytes


def floats(*shapes):
    return lambda rng: [rng.standard_normal(shape, np.float32) for shape in shapes]


def integers(*shapes):
    return lambda rng: [rng.integers(-999, 999, shape, np.int32) for shape in shapes]


def rows_and_ids(rows, width, ids):
    """A table, the numbers of some of its rows, and a row for each."""

    def make(rng):
        table = rng.standard_normal((rows, width), np.float32)
        return [table, rng.integers(0, rows, ids), rng.standard_normal((ids, width), np.float32)]

    return make


def logits_and_labels(rows, classes):
    return lambda rng: [
        rng.standard_normal((rows, classes), np.float32),
        rng.integers(0, classes, rows),
    ]


def segments(rows, width, count):
    return lambda rng: [
        rng.standard_normal((rows, width), np.float32),
        np.sort(rng.integers(0, count, rows)),
    ]


def layer_norm(square_mean, rsqrt, x, scale, shift):
    mean, variance = square_mean(x)
    return (x - mean) * rsqrt(variance + 1e-5) * scale + shift


def gelu(tanh, x):
    return 0.5 * x * (1.0 + tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


BIG, ROWS = 1 << 24, (4096, 1024)
IMAGES = (8, 56, 56, 64)
OPS = [
    Op(
        "add",
        floats(BIG, BIG),
        lambda tf, x, y: x + y,
        lambda torch, x, y: x + y,
        lambda jax, x, y: x + y,
    ),
    Op(
        "add, 256 Ki numbers",
        floats(1 << 18, 1 << 18),
        lambda tf, x, y: x + y,
        lambda torch, x, y: x + y,
        lambda jax, x, y: x + y,
    ),
    Op(
        "exp",
        floats(BIG),
        lambda tf, x: tf.exp(x),
        lambda torch, x: x.exp(),
        lambda jax, x: jax.numpy.exp(x),
    ),
    Op(
        "tanh",
        floats(BIG),
        lambda tf, x: tf.tanh(x),
        lambda torch, x: x.tanh(),
        lambda jax, x: jax.numpy.tanh(x),
    ),
    Op(
        "erf",
        floats(BIG),
        lambda tf, x: tf.erf(x),
        lambda torch, x: x.erf(),
        lambda jax, x: jax.lax.erf(x),
    ),
    Op(
        "gelu",
        floats(BIG),
        lambda tf, x: gelu(tf.tanh, x),
        lambda torch, x: gelu(torch.tanh, x),
        lambda jax, x: gelu(jax.numpy.tanh, x),
    ),
    Op(
        "pow",
        lambda rng: [rng.random(BIG, np.float32) + 0.5, rng.random(BIG, np.float32)],
        lambda tf, x, y: tf.pow(x, y),
        lambda torch, x, y: x.pow(y),
        lambda jax, x, y: x**y,
    ),
    Op(
        "sin",
        floats(BIG),
        lambda tf, x: tf.sin(x),
        lambda torch, x: x.sin(),
        lambda jax, x: jax.numpy.sin(x),
    ),
    Op(
        "comparison",
        floats(BIG, BIG),
        lambda tf, x, y: x > y,
        lambda torch, x, y: x > y,
        lambda jax, x, y: x > y,
        result_bytes=1,
    ),
    Op(
        "select",
        floats(BIG, BIG),
        lambda tf, x, y: tf.where(x > y, x, y),
        lambda torch, x, y: torch.where(x > y, x, y),
        lambda jax, x, y: jax.numpy.where(x > y, x, y),
    ),
    Op(
        "product of int32",
        integers(BIG, BIG),
        lambda tf, x, y: x * y,
        lambda torch, x, y: x * y,
        lambda jax, x, y: x * y,
    ),
    Op(
        "cast to bfloat16",
        floats(BIG),
        lambda tf, x: tf.cast(x, tf.bfloat16),
        lambda torch, x: x.bfloat16(),
        lambda jax, x: x.astype(jax.numpy.bfloat16),
        result_bytes=2,
    ),
    Op(
        "cast to int32",
        floats(BIG),
        lambda tf, x: tf.cast(x, tf.int32),
        lambda torch, x: x.int(),
        lambda jax, x: x.astype(jax.numpy.int32),
    ),
    Op(
        "cast to half",
        floats(BIG),
        lambda tf, x: tf.cast(x, tf.float16),
        lambda torch, x: x.half(),
        lambda jax, x: x.astype(jax.numpy.float16),
        result_bytes=2,
    ),
    Op(
        "cast to bool",
        floats(BIG),
        lambda tf, x: tf.cast(x, tf.bool),
        lambda torch, x: x.bool(),
        lambda jax, x: x.astype(bool),
        result_bytes=1,
    ),
    Op(
        "sum",
        floats(BIG),
        lambda tf, x: tf.reduce_sum(x),
        lambda torch, x: x.sum(),
        lambda jax, x: x.sum(),
        1e-3,
    ),
    Op(
        "sum of rows",
        floats(ROWS),
        lambda tf, x: tf.reduce_sum(x, 1),
        lambda torch, x: x.sum(1),
        lambda jax, x: x.sum(1),
    ),
    Op(
        "sum of columns",
        floats(ROWS),
        lambda tf, x: tf.reduce_sum(x, 0),
        lambda torch, x: x.sum(0),
        lambda jax, x: x.sum(0),
    ),
    Op(
        "largest of rows",
        floats(ROWS),
        lambda tf, x: tf.reduce_max(x, 1),
        lambda torch, x: x.amax(1),
        lambda jax, x: x.max(1),
    ),
    Op(
        "sum of middle axis",
        floats((64, 1024, 64)),
        lambda tf, x: tf.reduce_sum(x, 1),
        lambda torch, x: x.sum(1),
        lambda jax, x: x.sum(1),
    ),
    Op(
        "largest of columns",
        floats(ROWS),
        lambda tf, x: tf.reduce_max(x, 0),
        lambda torch, x: x.amax(0),
        lambda jax, x: x.max(0),
    ),
    Op(
        "sum of short rows",
        floats((1 << 19, 10)),
        lambda tf, x: tf.reduce_sum(x, 1),
        lambda torch, x: x.sum(1),
        lambda jax, x: x.sum(1),
    ),
    Op(
        "softmax, 1024 wide",
        floats(ROWS),
        lambda tf, x: tf.nn.softmax(x),
        lambda torch, x: torch.softmax(x, 1),
        lambda jax, x: jax.nn.softmax(x),
    ),
    Op(
        "softmax, 10 wide",
        floats((1 << 18, 10)),
        lambda tf, x: tf.nn.softmax(x),
        lambda torch, x: torch.softmax(x, 1),
        lambda jax, x: jax.nn.softmax(x),
    ),
    Op(
        "softmax, 64 wide",
        floats((1 << 16, 64)),
        lambda tf, x: tf.nn.softmax(x),
        lambda torch, x: torch.softmax(x, 1),
        lambda jax, x: jax.nn.softmax(x),
    ),
    Op(
        "log-softmax, 10 wide",
        floats((1 << 18, 10)),
        lambda tf, x: tf.nn.log_softmax(x),
        lambda torch, x: torch.log_softmax(x, 1),
        lambda jax, x: jax.nn.log_softmax(x),
    ),
    Op(
        "cross entropy, 10 wide",
        logits_and_labels(1 << 18, 10),
        lambda tf, x, ids: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=ids, logits=x),
        lambda torch, x, ids: torch.nn.functional.cross_entropy(x, ids, reduction="none"),
        lambda jax, x, ids: -jax.nn.log_softmax(x)[jax.numpy.arange(x.shape[0]), ids],
    ),
    Op(
        "cross entropy",
        logits_and_labels(*ROWS),
        lambda tf, x, ids: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=ids, logits=x),
        lambda torch, x, ids: torch.nn.functional.cross_entropy(x, ids, reduction="none"),
        lambda jax, x, ids: -jax.nn.log_softmax(x)[jax.numpy.arange(x.shape[0]), ids],
    ),
    Op(
        "layer normalisation",
        floats(ROWS, ROWS[1:], ROWS[1:]),
        lambda tf, x, a, b: layer_norm(
            lambda x: tf.nn.moments(x, [-1], keep_dims=True), tf.rsqrt, x, a, b
        ),
        lambda torch, x, a, b: torch.nn.functional.layer_norm(x, x.shape[1:], a, b, 1e-5),
        lambda jax, x, a, b: layer_norm(
            lambda x: (x.mean(-1, keepdims=True), x.var(-1, keepdims=True)),
            jax.lax.rsqrt,
            x,
            a,
            b,
        ),
    ),
    Op(
        "batch normalisation",
        floats(IMAGES, IMAGES[3:], IMAGES[3:]),
        lambda tf, x, a, b: tf.nn.fused_batch_norm(x, a, b, epsilon=1e-3)[0],
        lambda torch, x, a, b: torch.nn.functional.batch_norm(
            x.permute(0, 3, 1, 2), None, None, a, b, True, 0.1, 1e-3
        ).permute(0, 2, 3, 1),
        lambda jax, x, a, b: (
            (x - x.mean((0, 1, 2))) * jax.lax.rsqrt(x.var((0, 1, 2)) + 1e-3) * a + b
        ),
        1e-4,
    ),
    Op(
        "bias of images",
        floats(IMAGES, IMAGES[3:]),
        lambda tf, x, b: tf.nn.bias_add(x, b),
        lambda torch, x, b: x + b,
        lambda jax, x, b: x + b,
    ),
    Op(
        "transposition",
        floats(ROWS),
        lambda tf, x: tf.transpose(x),
        lambda torch, x: x.t().contiguous(),
        lambda jax, x: x.T.copy(),
    ),
    Op(
        "images to NCHW",
        floats(IMAGES),
        lambda tf, x: tf.transpose(x, [0, 3, 1, 2]),
        lambda torch, x: x.permute(0, 3, 1, 2).contiguous(),
        lambda jax, x: x.transpose(0, 3, 1, 2).copy(),
    ),
    Op(
        "concatenation",
        floats(ROWS, ROWS),
        lambda tf, x, y: tf.concat([x, y], 1),
        lambda torch, x, y: torch.cat([x, y], 1),
        lambda jax, x, y: jax.numpy.concatenate([x, y], 1),
    ),
    Op(
        "gather",
        rows_and_ids(100_000, 128, 65_536),
        lambda tf, table, ids, rows: tf.gather(table, ids),
        lambda torch, table, ids, rows: table[ids],
        lambda jax, table, ids, rows: table[ids],
    ),
    Op(
        "scatter-add",
        rows_and_ids(100_000, 128, 65_536),
        lambda tf, table, ids, rows: tf.tensor_scatter_nd_add(table, ids[:, None], rows),
        lambda torch, table, ids, rows: table.index_add(0, ids, rows),
        lambda jax, table, ids, rows: table.at[ids].add(rows),
    ),
    Op(
        "sums of segments",
        segments(65_536, 128, 8192),
        lambda tf, x, ids: tf.unsorted_segment_sum(x, ids, 8192),
        lambda torch, x, ids: torch.zeros(8192, x.shape[1]).index_add_(0, ids, x),
        lambda jax, x, ids: jax.ops.segment_sum(x, ids, 8192),
        1e-4,
    ),
]


if __name__ == "__main__":
    rates.main(__file__, __doc__, "GB/s", OPS)
