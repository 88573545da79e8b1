"""A table of programs that give the same bits at once, as a function and in a session of graphs.

So do their gradients, of first and second order, and with one thread as with two.
"""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

import millrace as tf
from millrace import _core

PROGRAMS = {
    "add": lambda t, x, y: x + y,
    "broadcast": lambda t, x, y: x * y[:1] - y,
    "divide": lambda t, x, y: x / (y * y + 1.0),
    "matmul": lambda t, x, y: t.matmul(x, y, transpose_b=True),
    "softmax": lambda t, x, y: t.nn.softmax(x * y),
    "log_softmax": lambda t, x, y: t.nn.log_softmax(x),
    "tanh": lambda t, x, y: t.tanh(x) * t.sigmoid(y),
    "elu": lambda t, x, y: t.nn.elu(x) + t.nn.selu(y) + t.nn.softplus(x),
    "relu": lambda t, x, y: t.nn.relu(x - y) + t.nn.relu6(y) + t.nn.leaky_relu(x),
    "reduce": lambda t, x, y: t.reduce_sum(x * y, axis=1) + t.reduce_mean(y),
    "reduce_max": lambda t, x, y: t.reduce_max(x, axis=0) * t.reduce_min(y),
    "logsumexp": lambda t, x, y: t.reduce_logsumexp(x + y, axis=1),
    "prod": lambda t, x, y: t.reduce_prod(x, axis=1),
    "std": lambda t, x, y: t.math.reduce_std(x) + t.math.reduce_variance(y),
    "concat": lambda t, x, y: t.concat([x, y, x], 1),
    "stack": lambda t, x, y: t.stack([x, y], axis=1) * 2.0,
    "split": lambda t, x, y: t.split(x, 2, axis=1)[1] * y[:, :2],
    "transpose": lambda t, x, y: t.transpose(x) * 3.0,
    "slice": lambda t, x, y: x[1:, ::2] * y[:-1, 1::2],
    "gather": lambda t, x, y: t.gather(x, [2, 0, 2]) * y,
    "where": lambda t, x, y: t.where(x > y, t.sin(x), t.exp(y)),
    "clip": lambda t, x, y: t.clip_by_value(x, -0.5, 0.5) + t.clip_by_norm(y, 1.0),
    "pow": lambda t, x, y: t.pow(t.abs(x) + 1.0, y),
    "exp_log": lambda t, x, y: t.math.log(t.exp(x) + t.exp(y)),
    "trig": lambda t, x, y: t.sin(x) + t.cos(y) * t.tan(x) + t.atan(y),
    "hyperbolic": lambda t, x, y: t.sinh(x) + t.cosh(y) + t.math.erf(x),
    "special": lambda t, x, y: t.math.lgamma(t.abs(x) + 1.0) + t.math.digamma(t.abs(y) + 1.0),
    "square_root": lambda t, x, y: t.sqrt(t.abs(x)) + t.math.rsqrt(t.square(y) + 1.0),
    "cumsum": lambda t, x, y: t.cumsum(x, axis=1) * t.math.cumprod(y, axis=0, exclusive=True),
    "one_hot": lambda t, x, y: t.one_hot([1, 3, 0], 4) * x,
    "tile": lambda t, x, y: t.tile(x, [2, 1]) + 1.0,
    "pad": lambda t, x, y: t.pad(x, [[1, 1], [0, 2]]) * 2.0,
    "reverse": lambda t, x, y: t.reverse(x, [1]) - t.roll(y, 1, 0),
    "einsum": lambda t, x, y: t.einsum("ij,kj->ik", x, y),
    "tensordot": lambda t, x, y: t.tensordot(x, y, [[1], [1]]),
    "norm": lambda t, x, y: t.norm(x) * t.nn.l2_normalize(y, 1),
    "cholesky": lambda t, x, y: t.linalg.cholesky(
        t.matmul(x, x, transpose_b=True) + t.eye(3) * 3.0
    ),
    "inverse": lambda t, x, y: t.linalg.inv(t.matmul(x, x, transpose_b=True) + t.eye(3) * 3.0),
    "determinant": lambda t, x, y: t.linalg.det(t.matmul(x, y, transpose_b=True)),
    "band": lambda t, x, y: t.linalg.band_part(t.matmul(x, y, transpose_b=True), 1, 0),
    "segments": lambda t, x, y: t.math.segment_sum(x, [0, 0, 1]),
    "unsorted": lambda t, x, y: t.math.unsorted_segment_mean(x, [1, 0, 1], 2),
    "scatter": lambda t, x, y: t.scatter_nd([[2], [0]], x[:2], [3, 4]) + y,
    "top_k": lambda t, x, y: t.math.top_k(x, 2)[0],
    "sort": lambda t, x, y: t.sort(x, axis=1),
    "moments": lambda t, x, y: t.stack(t.nn.moments(x, [0])),
    "bias": lambda t, x, y: t.nn.bias_add(x, y[0]),
    "conv": lambda t, x, y: t.nn.conv2d(
        t.reshape(x, [1, 3, 4, 1]), t.reshape(y[:2, :2], [2, 2, 1, 1]), [1, 1, 1, 1], "SAME"
    ),
    "pool": lambda t, x, y: t.nn.max_pool2d(t.reshape(x, [1, 3, 4, 1]), 2, 1, "VALID"),
    "lrn": lambda t, x, y: t.nn.local_response_normalization(t.reshape(x, [1, 1, 3, 4])),
    "complex": lambda t, x, y: t.math.real(t.complex(x, y) * t.complex(y, x)),
    "stop": lambda t, x, y: t.stop_gradient(x) * y,
    "expand": lambda t, x, y: t.squeeze(t.expand_dims(x, 1) * y, []),
    "broadcast_to": lambda t, x, y: t.broadcast_to(x[0], [3, 4]) * y,
    "maximum": lambda t, x, y: t.maximum(x, y) - t.minimum(x, y),
    "squared_difference": lambda t, x, y: t.math.squared_difference(x, y),
    "cross_entropy": lambda t, x, y: t.nn.softmax_cross_entropy_with_logits(
        labels=t.nn.softmax(y), logits=x
    ),
    "sigmoid_loss": lambda t, x, y: t.nn.sigmoid_cross_entropy_with_logits(
        labels=t.sigmoid(y), logits=x
    ),
    "polynomial": lambda t, x, y: t.math.polyval([2.0, -1.0, 3.0], x),
    "boolean_mask": lambda t, x, y: t.boolean_mask(x, [True, False, True]),
    "identity": lambda t, x, y: t.identity(x) + t.zeros_like(y) + t.ones_like(y),
    "xlogy": lambda t, x, y: t.math.xlogy(x, t.abs(y) + 0.5),
    "meshgrid": lambda t, x, y: t.meshgrid(x[0], y[0])[1],
    "fill": lambda t, x, y: t.fill([3, 4], 2.0) * x,
    "repeat_slice": lambda t, x, y: t.strided_slice(x, [0, 1], [3, 4], [1, 2]),
    "negative": lambda t, x, y: -x + abs(y),
    "floor": lambda t, x, y: t.floor(x) + t.math.ceil(y) + t.round(x),
    "add_n": lambda t, x, y: t.add_n([x, y, x]),
    "floor_mod": lambda t, x, y: t.math.floormod(x, t.abs(y) + 0.5) + t.math.floordiv(x, 2.0),
    "atan2": lambda t, x, y: t.atan2(x, y) + t.math.expm1(x) + t.math.log1p(t.abs(y)),
    "inverse_trig": lambda t, x, y: t.asin(t.tanh(x)) + t.acos(t.tanh(y)) + t.asinh(x),
    "bessel": lambda t, x, y: t.math.bessel_i0e(x) + t.math.bessel_i1e(y),
    "igamma": lambda t, x, y: t.math.igamma(t.abs(x) + 1.0, t.abs(y) + 1.0),
    "betainc": lambda t, x, y: t.math.betainc(t.abs(x) + 1.0, t.abs(y) + 1.0, t.sigmoid(x)),
    "zeta": lambda t, x, y: t.math.zeta(t.abs(x) + 2.0, t.abs(y) + 1.0),
    "erf_inverse": lambda t, x, y: t.math.erfinv(t.tanh(x) * 0.9) + t.math.ndtri(t.sigmoid(y)),
    "select": lambda t, x, y: t.where([True, False, True, True], x, y),
    "gather_nd": lambda t, x, y: t.gather_nd(x, [[2, 1], [0, 3]]) * y[0, :2],
    "gather_columns": lambda t, x, y: t.gather(x, [3, 0, 3], axis=1) * y[:, :3],
    "scatter_add": lambda t, x, y: t.tensor_scatter_nd_add(x, [[1], [1]], y[:2]),
    "scatter_update": lambda t, x, y: t.tensor_scatter_nd_update(x, [[2]], y[:1]),
    "dynamic_stitch": lambda t, x, y: t.dynamic_stitch([[0, 2], [1, 3]], [x[:2], y[:2]]),
    "dynamic_partition": lambda t, x, y: t.dynamic_partition(x, [0, 1, 0], 2)[0] * 2.0,
    "reverse_sequence": lambda t, x, y: t.reverse_sequence(x, [2, 4, 1], seq_axis=1),
    "sequence_mask": lambda t, x, y: x * t.cast(t.sequence_mask([1, 4, 2], 4), t.float32),
    "space_to_batch": lambda t, x, y: t.space_to_batch(
        t.reshape(x, [1, 3, 4, 1]), [1, 2], [[0, 0], [0, 0]]
    ),
    "depth_to_space": lambda t, x, y: t.nn.depth_to_space(t.reshape(x, [1, 3, 1, 4]), 2),
    "matrix_solve": lambda t, x, y: t.linalg.solve(
        t.matmul(x, x, transpose_b=True) + t.eye(3) * 3.0, y
    ),
    "triangular_solve": lambda t, x, y: t.linalg.triangular_solve(
        t.linalg.band_part(x[:, :3], -1, 0) + t.eye(3) * 4.0, y
    ),
    "qr": lambda t, x, y: t.linalg.qr(t.transpose(x))[1],
    "singular_values": lambda t, x, y: t.linalg.svd(x, compute_uv=False),
    "eigenvalues": lambda t, x, y: t.linalg.eigvalsh(t.matmul(x, x, transpose_b=True)),
    "diagonals": lambda t, x, y: t.linalg.diag(x[0]) + t.linalg.diag(t.linalg.diag_part(y)[:1]),
    "trace": lambda t, x, y: t.linalg.trace(t.matmul(x, y, transpose_b=True)),
    "batched_product": lambda t, x, y: t.matmul(
        t.reshape(x, [2, 2, 3]), t.reshape(y, [2, 3, 2])
    ),
    "cross": lambda t, x, y: t.linalg.cross(x[:, :3], y[:, 1:]),
    "average_pool": lambda t, x, y: t.nn.avg_pool2d(t.reshape(x, [1, 3, 4, 1]), 2, 1, "SAME"),
    "depthwise": lambda t, x, y: t.nn.depthwise_conv2d(
        t.reshape(x, [1, 3, 2, 2]), t.reshape(y[:2], [2, 2, 2, 1]), [1, 1, 1, 1], "SAME"
    ),
    "transposed_conv": lambda t, x, y: t.nn.conv2d_transpose(
        t.reshape(x, [1, 3, 4, 1]), t.reshape(y[:2, :2], [2, 2, 1, 1]), [1, 6, 8, 1], 2
    ),
    "conv3d": lambda t, x, y: t.nn.conv3d(
        t.reshape(x, [1, 3, 2, 2, 1]), t.reshape(y[:2], [2, 2, 2, 1, 1]), [1] * 5, "SAME"
    ),
    "batch_norm": lambda t, x, y: t.nn.batch_normalization(x, y[0], t.abs(y[1]), y[2], x[0], 1e-3),
    "dilation": lambda t, x, y: t.nn.dilation2d(
        t.reshape(x, [1, 3, 4, 1]), t.reshape(y[:2, :2], [2, 2, 1]), [1] * 4, "SAME", "NHWC",
        [1] * 4,
    ),
    "embedding": lambda t, x, y: t.nn.embedding_lookup(x, [[2, 0], [2, 2]]) * y[:2],
    "sparse_loss": lambda t, x, y: t.nn.sparse_softmax_cross_entropy_with_logits([1, 0, 3], x * y),
    "resize": lambda t, x, y: t.compat.v1.image.resize_bilinear(t.reshape(x, [1, 3, 4, 1]), [5, 7]),
    "nearest": lambda t, x, y: t.compat.v1.image.resize_nearest_neighbor(
        t.reshape(x, [1, 3, 4, 1]), [6, 2]
    ),
    "fourier": lambda t, x, y: t.math.real(t.compat.v1.fft(t.complex(x, y))),
    "sparse_product": lambda t, x, y: t.sparse.sparse_dense_matmul(
        t.sparse.SparseTensor([[0, 1], [2, 0]], x[0, :2], [3, 3]), y
    ),
    "double": lambda t, x, y: t.cast(t.exp(t.cast(x, t.float64)) * t.cast(y, t.float64), t.float32),
    "bfloat16": lambda t, x, y: t.cast(t.cast(x, t.bfloat16) * t.cast(y, t.bfloat16), t.float32),
    "integers": lambda t, x, y: t.cast(t.cast(x * 10.0, t.int32) // 3, t.float32) * y,
    "counts": lambda t, x, y: t.cast(t.argmax(x, 1), t.float32) + t.reduce_sum(y, 1),
    "strings": lambda t, x, y: x + t.strings.to_number(t.strings.join(["1", ".5"])),
    "condition": lambda t, x, y: t.cond(t.reduce_sum(x) > 0.0, lambda: x * y, lambda: x - y),
    "other_branch": lambda t, x, y: t.cond(t.reduce_sum(x) < -99.0, lambda: x * y, lambda: x - y),
    "case": lambda t, x, y: t.switch_case(t.constant(1), [lambda: x, lambda: x * y, lambda: y]),
    "loop": lambda t, x, y: t.while_loop(
        lambda i, z: i < 4, lambda i, z: (i + 1, t.tanh(z * y) + x), [0, x]
    )[1],
    "loop_in_loop": lambda t, x, y: t.while_loop(
        lambda i, z: i < 3,
        lambda i, z: (
            i + 1,
            t.while_loop(lambda j, w: j < i, lambda j, w: (j + 1, w * y), [0, z])[1] + x,
        ),
        [0, x],
    )[1],
    "map": lambda t, x, y: t.map_fn(lambda row: t.tanh(row) * y[0], x),
    "scan": lambda t, x, y: t.scan(lambda last, row: last * 0.5 + row, x, y[0]),
    "fold": lambda t, x, y: t.foldl(lambda last, row: last * row + 1.0, x, y[0]),
    "stateless_random": lambda t, x, y: x
    * t.random.stateless_normal([3, 4], seed=[3, 5])
    + t.random.stateless_uniform([3, 4], seed=[1, 2]),
    "random": lambda t, x, y: x * t.random.normal([3, 4], seed=4)
    + t.random.uniform([4], seed=5) * y,
    "truncated": lambda t, x, y: x * t.random.truncated_normal([3, 4], seed=9),
    "dropout": lambda t, x, y: t.compat.v1.nn.dropout(x, rate=0.4, seed=6) * y,
    "shuffle": lambda t, x, y: t.gather(x, t.random.shuffle([0, 1, 2], seed=3)) * y,
}  # fmt: skip


# What has no second derivatives.
FIRST_ORDER = {"igamma"}
# A loop that runs at once is a line of operations for the tape, whose gradients are added up one by
# one; the gradient of a loop of a graph adds up those of each iteration first.
UNROLLED = {"loop", "loop_in_loop"}

# A variable v is changed; what the program returns, and what v is then, are compared.
CHANGES = {
    "assign": lambda t, v, x: v.assign(x * 2.0) + x,
    "assign_add": lambda t, v, x: v.assign_add(x) * x,
    "assign_sub": lambda t, v, x: v.assign_sub(x * x) - x,
    "scatter_add": lambda t, v, x: t.compat.v1.scatter_add(v, [2, 0, 2], x) * 1.0,
    "scatter_update": lambda t, v, x: t.compat.v1.scatter_update(v, [1], x[:1]) * 1.0,
    "branch": lambda t, v, x: t.cond(
        t.reduce_sum(x) > -99.0, lambda: v.assign_add(x) * 1.0, lambda: x
    ),
    "momentum": lambda t, v, x: v.assign(v * 0.9 + x * 0.1) * 3.0,
}

POINTS = np.random.default_rng(7).normal(size=(2, 3, 4)).astype(np.float32)
SEED = 11


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


ZERO = tf.UnconnectedGradients.ZERO


def derived(name, x, y, gradient):
    """The value, its gradients, and those of their sum."""
    value = PROGRAMS[name](tf, x, y)
    first = gradient(value, [x, y], unconnected_gradients=ZERO)
    if name in FIRST_ORDER:
        return [value, *first]
    total = tf.add_n([tf.reduce_sum(tf.convert_to_tensor(g)) for g in first])
    return [value, *first, *gradient(total, [x, y], unconnected_gradients=ZERO)]


def on_tape(name, x, y):
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, y])
        return [tf.convert_to_tensor(value) for value in derived(name, x, y, tape.gradient)]


def at_once(name):
    tf.random.set_seed(SEED)
    return [value.numpy() for value in on_tape(name, *map(tf.constant, POINTS))]


def as_function(name):
    tf.random.set_seed(SEED)
    traced = tf.function(lambda x, y: on_tape(name, x, y))
    return [value.numpy() for value in traced(*map(tf.constant, POINTS))]


def in_session(name):
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(SEED)
        given = [tf.compat.v1.placeholder(tf.float32, [3, 4]) for _ in POINTS]
        wanted = [tf.convert_to_tensor(v) for v in derived(name, *given, tf.compat.v1.gradients)]
        config = tf.compat.v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True  # which round otherwise
        with tf.compat.v1.Session(config=config) as session:
            return session.run(wanted, dict(zip(given, POINTS, strict=True)))


def same_as(first, second):
    for a, b in zip(first, second, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert a.tobytes() == b.tobytes(), (a, b)


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_program(name):
    eager, traced, graph = at_once(name), as_function(name), in_session(name)
    same_as(traced, graph)
    if name in UNROLLED:
        same_as(eager[:1], graph[:1])
        for a, b in zip(eager, graph, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    else:
        same_as(eager, graph)


@pytest.mark.parametrize("name", list(CHANGES))
def test_change(name):
    program = CHANGES[name]
    results = []
    for run in (program, tf.function(program)):
        v = tf.Variable(POINTS[0])
        results.append([run(tf, v, tf.constant(POINTS[1])).numpy(), v.numpy()])
    with tf.Graph().as_default():
        v = tf.Variable(POINTS[0])
        given = tf.compat.v1.placeholder(tf.float32, [3, 4])
        out = program(tf, v, given)
        with tf.compat.v1.Session() as session:
            session.run(v.initializer)
            results.append([session.run(out, {given: POINTS[1]}), session.run(v)])
    same_as(results[0], results[1])
    same_as(results[0], results[2])


def digest():
    """Of all that the programs give at once and as functions."""
    _core.choose_eager(True)
    seen = hashlib.sha256()
    for name in PROGRAMS:
        for value in [*at_once(name), *as_function(name)]:
            seen.update(value.tobytes())
    return seen.hexdigest()


def test_threads_change_nothing():
    digests = {
        subprocess.run(
            [sys.executable, __file__],
            env=os.environ | {"MILLRACE_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2")
    }
    assert len(digests) == 1


if __name__ == "__main__":
    print(digest())
