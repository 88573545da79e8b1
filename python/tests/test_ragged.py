"""Ragged tensors: what TensorFlow 2's functions do with them, compared with loops over lists."""

import os
import random

import numpy as np
import pytest

import millrace as tf
from millrace import _core

SEED = int(os.environ.get("MILLRACE_TEST_SEED", random.SystemRandom().randrange(2**31)))


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


@pytest.fixture
def rng():
    print("MILLRACE_TEST_SEED =", SEED)
    return random.Random(SEED)


def rows_of(rng, depth=1, least=0, most=4, element=None):
    """Nested lists: rows of rows ... of numbers, of other lengths each."""
    if depth == 0:
        return float(rng.randrange(-9, 10)) if element is None else element()
    return [
        rows_of(rng, depth - 1, least, most, element) for _ in range(rng.randrange(least, most + 1))
    ]


def ragged(lists, depth, dtype=tf.float32):
    return tf.ragged.constant(lists, ragged_rank=depth - 1, dtype=dtype)


def mapped(function, *values):
    """function of the elements that stand at the same places of nested lists."""
    if isinstance(values[0], list):
        return [mapped(function, *parts) for parts in zip(*values, strict=True)]
    return function(*values)


def listed(value):
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    return np.asarray(value).tolist()


def close(value, expected):
    """The value has the structure of nested lists, and numbers near theirs."""
    value = listed(value)

    def compare(a, b):
        if isinstance(b, list):
            assert isinstance(a, list), (a, b)
            assert len(a) == len(b), (value, expected)
            for x, y in zip(a, b, strict=True):
                compare(x, y)
        elif isinstance(b, float):
            assert a == pytest.approx(b, rel=1e-5, abs=1e-5, nan_ok=True)
        else:
            assert a == b

    compare(value, expected)


# ---- Elements.

UNARY = [
    (tf.abs, abs),
    (tf.negative, lambda x: -x),
    (tf.square, lambda x: x * x),
    (tf.exp, np.exp),
    (tf.math.floor, np.floor),
    (tf.math.sign, np.sign),
    (tf.tanh, np.tanh),
    (tf.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    (tf.nn.relu, lambda x: max(x, 0.0)),
    (tf.nn.leaky_relu, lambda x: x if x > 0 else 0.2 * x),
    (tf.identity, lambda x: x),
    (tf.zeros_like, lambda x: 0.0),
    (tf.ones_like, lambda x: 1.0),
    (tf.math.is_nan, lambda x: False),
    (lambda x: tf.cast(x, tf.int32), int),
    (lambda x: tf.clip_by_value(x, -2, 3), lambda x: min(max(x, -2.0), 3.0)),
    (lambda x: -x, lambda x: -x),
    (abs, abs),
    (tf.math.softplus, lambda x: np.log1p(np.exp(x))),
]

BINARY = [
    (tf.add, lambda a, b: a + b),
    (tf.subtract, lambda a, b: a - b),
    (tf.multiply, lambda a, b: a * b),
    (tf.maximum, max),
    (tf.minimum, min),
    (tf.less, lambda a, b: a < b),
    (tf.equal, lambda a, b: a == b),
    (tf.math.squared_difference, lambda a, b: (a - b) ** 2),
    (tf.not_equal, lambda a, b: a != b),
    (tf.math.divide_no_nan, lambda a, b: a / b if b else 0.0),
    (tf.math.floormod, lambda a, b: a % b if b else float("nan")),
    (lambda a, b: a + b, lambda a, b: a + b),
    (lambda a, b: a - b, lambda a, b: a - b),
    (lambda a, b: a * b, lambda a, b: a * b),
    (lambda a, b: a > b, lambda a, b: a > b),
    (lambda a, b: a <= b, lambda a, b: a <= b),
    (lambda a, b: a == b, lambda a, b: a == b),
    (lambda a, b: a != b, lambda a, b: a != b),
]


@pytest.mark.parametrize("depth", [2, 3])
def test_functions_of_elements(rng, depth):
    for function, plain in UNARY:
        lists = rows_of(rng, depth)
        close(function(ragged(lists, depth)), mapped(lambda x, f=plain: _plain(f(x)), lists))


def _plain(value):
    return float(value) if isinstance(value, np.floating) else value


@pytest.mark.parametrize("depth", [2, 3])
def test_functions_of_pairs(rng, depth):
    for function, plain in BINARY:
        a = rows_of(rng, depth)
        b = mapped(lambda _: float(rng.randrange(-3, 4)), a)
        close(function(ragged(a, depth), ragged(b, depth)), mapped(plain, a, b))
        # With scalars on both sides.
        close(function(ragged(a, depth), 2.0), mapped(lambda x, f=plain: f(x, 2.0), a))
        close(function(tf.constant(7.0), ragged(a, depth)), mapped(lambda x, f=plain: f(7.0, x), a))


def test_a_function_is_the_same_for_all_its_names():
    assert tf.add is tf.math.add
    assert tf.add.__name__ == "add"
    assert tf.add(1, 2).numpy() == 3


def test_dense_tensors_are_broadcast_to_rows(rng):
    rows = rows_of(rng, 2, least=1)
    column = [[float(i)] for i in range(len(rows))]
    expected = [[x + c[0] for x in row] for row, c in zip(rows, column, strict=True)]
    close(ragged(rows, 2) + column, expected)
    close(tf.constant(column) + ragged(rows, 2), expected)
    # As ragged tensors of other ranks, and of uniform rows.
    batch = [rows, rows]
    close(ragged(batch, 3) - ragged(rows, 2), [[[0.0 for _ in row] for row in rows] for _ in batch])
    uniform = tf.RaggedTensor.from_tensor(tf.constant(column))
    close(uniform + ragged(rows, 2), expected)
    # Inner dimensions are broadcast by themselves.
    pairs = tf.RaggedTensor.from_row_lengths([[1.0, 2.0], [3.0, 4.0]], [2, 0])
    assert (pairs * [10.0, 1.0]).to_list() == [[[10.0, 2.0], [30.0, 4.0]], []]


@pytest.mark.parametrize(
    "other",
    [
        [[1.0], [2.0, 3.0, 4.0]],
        [[1.0, 2.0], [3.0]],
        [[1.0, 2.0]],
    ],
)
def test_other_rows_are_refused(other):
    rows = tf.ragged.constant([[1.0, 2.0], [3.0, 4.0, 5.0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="dimension size mismatch"):
        tf.add(rows, tf.ragged.constant(other))
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(tf.add)(rows, tf.ragged.constant(other))


def test_splits_of_two_types_are_refused():
    rows = tf.ragged.constant([[1.0]])
    with pytest.raises(ValueError, match="mismatched row_splits dtypes"):
        tf.add(rows, rows.with_row_splits_dtype(tf.int32))


def test_comparisons_with_what_cannot_be_compared():
    rows = tf.ragged.constant([[1], [2, 3]])
    assert (rows == "a") is False
    assert (rows != None) is True  # noqa: E711
    with pytest.raises(TypeError, match="boolean"):
        bool(rows == rows)


def test_map_flat_values():
    rows = tf.ragged.constant([[1, 2], [], [3]])
    assert tf.ragged.map_flat_values(tf.add_n, [rows, rows]).to_list() == [[2, 4], [], [6]]
    with pytest.raises(ValueError, match="same outer-dimension size"):
        tf.ragged.map_flat_values(tf.reduce_sum, rows)
    with pytest.raises(tf.errors.InvalidArgumentError, match="identical ragged splits"):
        tf.ragged.map_flat_values(tf.add, rows, tf.ragged.constant([[1], [2], [3]]))


# ---- Reductions.

REDUCTIONS = [
    (tf.reduce_sum, sum),
    (tf.reduce_max, max),
    (tf.reduce_min, min),
    (tf.reduce_prod, lambda v: float(np.prod(v))),
    (tf.reduce_mean, lambda v: float(np.mean(v))),
    (tf.math.reduce_variance, lambda v: float(np.var(v))),
    (tf.math.reduce_std, lambda v: float(np.std(v))),
]


@pytest.mark.parametrize("reduction, plain", REDUCTIONS)
def test_reductions(rng, reduction, plain):
    def number():
        return rng.randrange(1, 6) / 2

    cubes = [
        [[number() for _ in range(rng.randrange(1, 4))] for _ in range(rng.randrange(1, 4))]
        for _ in range(3)
    ]
    x = ragged(cubes, 3)
    everything = [v for rows in cubes for row in rows for v in row]
    close(reduction(x), plain(everything))
    close(reduction(x, 2), [[plain(row) for row in rows] for rows in cubes])
    close(reduction(x, -1, keepdims=True), [[[plain(row)] for row in rows] for rows in cubes])
    close(reduction(x, [1, 2]), [plain([v for row in rows for v in row]) for rows in cubes])
    columns = [
        [plain([row[i] for row in rows if i < len(row)]) for i in range(max(map(len, rows)))]
        for rows in cubes
    ]
    close(reduction(x, 1), columns)
    close(reduction(x, axis=1, keepdims=True), [[c] for c in columns])
    first = [
        [
            plain([rows[i][j] for rows in cubes if i < len(rows) and j < len(rows[i])])
            for j in range(max(len(rows[i]) for rows in cubes if i < len(rows)))
        ]
        for i in range(max(map(len, cubes)))
    ]
    close(reduction(x, 0), first)
    close(tf.function(reduction)(x, 1), columns)


def test_reductions_of_logic_and_of_nothing():
    x = tf.ragged.constant([[True, False], [], [True]])
    assert tf.reduce_all(x, 1).numpy().tolist() == [False, True, True]
    assert tf.reduce_any(x, 1).numpy().tolist() == [True, False, True]
    assert bool(tf.reduce_any(x))
    assert not bool(tf.reduce_all(x))
    y = tf.ragged.constant([[], [2.0]])
    assert np.isnan(tf.reduce_mean(y, 1).numpy()[0])
    assert tf.reduce_max(y, 1).numpy()[0] == np.finfo(np.float32).min
    assert tf.reduce_mean(tf.ragged.constant([[1, 2]]), 1).dtype is tf.float64
    with pytest.raises(ValueError, match="out of bounds"):
        tf.reduce_sum(y, 2)


def test_groups_of_rows(rng):
    rows = rows_of(rng, 2, least=3, most=6)
    ids = [rng.randrange(4) for _ in rows]
    expected = []
    for group in range(4):
        members = [row for row, i in zip(rows, ids, strict=True) if i == group]
        longest = max(map(len, members), default=0)
        expected.append([sum(row[i] for row in members if i < len(row)) for i in range(longest)])
    close(tf.math.unsorted_segment_sum(ragged(rows, 2), ids, 4), expected)


# ---- Arrangement.


@pytest.mark.parametrize("depth", [2, 3])
def test_joined(rng, depth):
    a, b = rows_of(rng, depth), rows_of(rng, depth)
    close(tf.concat([ragged(a, depth), ragged(b, depth)], 0), a + b)
    close(tf.stack([ragged(a, depth), ragged(b, depth)]), [a, b])
    b = [rows_of(rng, depth - 1) for _ in a]
    joined = [x + y for x, y in zip(a, b, strict=True)]
    close(tf.concat([ragged(a, depth), ragged(b, depth)], 1), joined)
    close(
        tf.stack([ragged(a, depth), ragged(b, depth)], 1),
        [[x, y] for x, y in zip(a, b, strict=True)],
    )
    close(
        tf.function(lambda x, y: tf.concat([x, y], 1))(ragged(a, depth), ragged(b, depth)), joined
    )


def test_joined_with_dense_ones():
    rows = tf.ragged.constant([[1, 2], [3]])
    assert tf.concat([rows, [[4], [5]]], 1).to_list() == [[1, 2, 4], [3, 5]]
    assert tf.concat([[[9, 9, 9]], rows], 0).to_list() == [[9, 9, 9], [1, 2], [3]]
    assert tf.ragged.stack([[1, 2], [3]]).to_list() == [[1, 2], [3]]
    assert tf.ragged.stack([[1, 2], [3]], axis=0).ragged_rank == 1
    with pytest.raises(tf.errors.InvalidArgumentError, match="numbers of rows"):
        tf.concat([rows, [[4]]], 1)
    with pytest.raises(ValueError, match="out of bounds"):
        tf.concat([rows, rows], 2)


def test_tiled(rng):
    for _ in range(5):
        x = rows_of(rng, 3)
        m = [rng.randrange(0, 3) for _ in range(3)]
        expected = [[row * m[2] for row in rows] * m[1] for rows in x] * m[0]
        close(tf.tile(ragged(x, 3), m), expected)


def test_dimensions_of_size_one(rng):
    x = rows_of(rng, 2)
    value = ragged(x, 2)
    close(tf.expand_dims(value, 0), [x])
    close(tf.expand_dims(value, 1), [[row] for row in x])
    close(tf.expand_dims(value, -1), [[[v] for v in row] for row in x])
    for axis in (0, 1, 2):
        close(tf.squeeze(tf.expand_dims(value, axis), axis), x)
    with pytest.raises(ValueError, match="axis"):
        tf.squeeze(value)
    with pytest.raises(tf.errors.InvalidArgumentError, match="squeezable"):
        tf.squeeze(tf.ragged.constant([[1, 2]]), 1)


def test_reversed_and_split(rng):
    x = rows_of(rng, 3, least=2)
    value = ragged(x, 3)
    close(tf.reverse(value, [0]), x[::-1])
    close(tf.reverse(value, [1]), [rows[::-1] for rows in x])
    close(tf.reverse(value, [0, 2]), [[row[::-1] for row in rows] for rows in x[::-1]])
    a, b = tf.split(value, [1, -1])
    close(a, x[:1])
    close(b, x[1:])
    with pytest.raises(ValueError, match="ragged dimension"):
        tf.split(value, 2, axis=1)


def test_sizes(rng):
    x = rows_of(rng, 3)
    value = ragged(x, 3)
    assert int(tf.rank(value)) == 3
    assert int(tf.size(value)) == sum(len(row) for rows in x for row in rows)


# ---- Picking.


def test_gathered(rng):
    x = rows_of(rng, 3, least=2)
    picks = [rng.randrange(len(x)) for _ in range(5)]
    close(tf.gather(ragged(x, 3), picks), [x[i] for i in picks])
    nested = [[picks[0]], [], picks[1:]]
    close(
        tf.gather(ragged(x, 3), tf.ragged.constant(nested)), [[x[i] for i in row] for row in nested]
    )
    close(tf.gather(ragged(x, 3), [picks, picks]), [[x[i] for i in picks]] * 2)
    # Within rows.
    inner = [[rng.randrange(len(rows)) for _ in range(rng.randrange(4))] for rows in x]
    expected = [[rows[i] for i in row] for rows, row in zip(x, inner, strict=True)]
    close(tf.gather(ragged(x, 3), tf.ragged.constant(inner, tf.int32), batch_dims=1), expected)
    close(tf.gather(ragged(x, 3), [1, 0], axis=1), [[rows[1], rows[0]] for rows in x])
    places = [[i, rng.randrange(len(x[i]))] for i in picks]
    close(tf.gather_nd(ragged(x, 3), places), [x[i][j] for i, j in places])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tf.gather(x, [2]),
        lambda x: tf.gather(x, [-1]),
        lambda x: tf.gather_nd(x, [[1, 1]]),
        lambda x: tf.gather_nd(x, [[0, -1]]),
        lambda x: tf.gather(x, [[0], [1]], batch_dims=1),
        lambda x: tf.gather(x, [1], axis=1),
    ],
)
def test_indices_are_checked(call):
    x = tf.ragged.constant([[1, 2], [3]])
    with pytest.raises(tf.errors.InvalidArgumentError):
        call(x)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(call)(x)


def test_where(rng):
    a = rows_of(rng, 3)
    b = mapped(lambda _: float(rng.randrange(100)), a)
    c = mapped(lambda _: rng.random() < 0.5, a)
    condition = ragged(c, 3, tf.bool)
    close(
        tf.where(condition, ragged(a, 3), ragged(b, 3)),
        mapped(lambda t, x, y: x if t else y, c, a, b),
    )
    close(tf.where(condition, 1.0, ragged(b, 3)), mapped(lambda t, y: 1.0 if t else y, c, b))
    places = [
        [i, j, k] for i, x in enumerate(c) for j, y in enumerate(x) for k, z in enumerate(y) if z
    ]
    assert np.asarray(tf.where(condition)).tolist() == places


def test_masks(rng):
    x = rows_of(rng, 3)
    outer = [rng.random() < 0.5 for _ in x]
    close(
        tf.ragged.boolean_mask(ragged(x, 3), outer), [r for r, t in zip(x, outer, strict=True) if t]
    )
    masks = [[rng.random() < 0.5 for _ in rows] for rows in x]
    kept = [
        [row for row, t in zip(rows, m, strict=True) if t] for rows, m in zip(x, masks, strict=True)
    ]
    close(
        tf.ragged.boolean_mask(ragged(x, 3), tf.ragged.constant(masks, tf.bool, ragged_rank=1)),
        kept,
    )
    dense = tf.ragged.boolean_mask([[1, 2], [3, 4]], [[True, False], [True, True]])
    assert dense.to_list() == [[1], [3, 4]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="row splits"):
        tf.ragged.boolean_mask(
            tf.ragged.constant([[1, 2], [3]]), tf.ragged.constant([[True], [True, False]])
        )


def test_groups(rng):
    data = [rng.randrange(100) for _ in range(20)]
    ids = [rng.randrange(5) for _ in data]
    expected = [[d for d, i in zip(data, ids, strict=True) if i == g] for g in range(5)]
    close(tf.ragged.stack_dynamic_partitions(data, ids, 5), expected)
    with pytest.raises(tf.errors.InvalidArgumentError, match="less than num_partitions"):
        tf.ragged.stack_dynamic_partitions([1], [5], 5)


@pytest.mark.parametrize(
    "key",
    [
        0,
        -1,
        slice(1, None),
        slice(None, None, -1),
        slice(None, None, 2),
        Ellipsis,
        None,
        (slice(None), slice(1, None)),
        (slice(None), slice(None, -1)),
        (1, 0),
        (1, slice(None, None, -1)),
        (Ellipsis, slice(0, 1)),
        (slice(None), slice(None), slice(None, None, -2)),
        (slice(0, 2), slice(1, 2), slice(0, 1)),
        (None, 1),
        (slice(None), None),
    ],
)
def test_slices(key):
    x = [[[1, 2, 3], [4], []], [[5, 6], [7, 8, 9]], [[10]]]
    keys = list(key) if isinstance(key, tuple) else [key]
    at = [i for i, k in enumerate(keys) if k is Ellipsis]
    if at:
        rest = 3 - sum(k is not None and k is not Ellipsis for k in keys)
        keys[at[0] : at[0] + 1] = [slice(None)] * rest

    def plain(value, keys):
        if not keys:
            return value
        first, rest = keys[0], keys[1:]
        if first is None:
            return [plain(value, rest)]
        if isinstance(first, slice):
            return [plain(v, rest) for v in value[first]]
        return plain(value[first], rest)

    close(tf.ragged.constant(x)[key], plain(x, keys))


# ---- Numbers.


def test_ranges(rng):
    starts = [rng.randrange(-9, 10) for _ in range(8)]
    limits = [rng.randrange(-9, 10) for _ in starts]
    deltas = [rng.choice([-3, -2, -1, 1, 2, 3]) for _ in starts]
    expected = [list(range(*arguments)) for arguments in zip(starts, limits, deltas, strict=True)]
    close(tf.ragged.range(starts, limits, deltas), expected)
    made = tf.ragged.range([3, 0], row_splits_dtype=tf.int32, dtype=tf.float32)
    assert (made.dtype, made.row_splits.dtype) == (tf.float32, tf.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="delta != 0"):
        tf.ragged.range([1], [2], [0])
    with pytest.raises(ValueError, match="shape"):
        tf.ragged.range([1, 2], [3, 4, 5])


def test_softmax_and_sums(rng):
    x = rows_of(rng, 2, least=1)
    expected = [(np.exp(row) / np.sum(np.exp(row))).tolist() if row else [] for row in x]
    close(tf.nn.softmax(ragged(x, 2)), expected)
    close(tf.cumsum(ragged(x, 2), 1), [np.cumsum(row).tolist() for row in x])
    close(tf.add_n([ragged(x, 2)] * 3), [[3 * v for v in row] for row in x])
    close(
        tf.one_hot(tf.ragged.constant([[1], [0, 2]]), 3),
        [[[0.0, 1.0, 0.0]], [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]],
    )


def test_products_of_matrices(rng):
    def matrix(rows, columns):
        return [[float(rng.randrange(-3, 4)) for _ in range(columns)] for _ in range(rows)]

    sizes = [(rng.randrange(1, 4), rng.randrange(1, 4), rng.randrange(1, 4)) for _ in range(4)]
    a, b = [matrix(n, k) for n, k, _ in sizes], [matrix(k, m) for _, k, m in sizes]
    expected = [(np.array(x) @ np.array(y)).tolist() for x, y in zip(a, b, strict=True)]
    close(tf.matmul(ragged(a, 3), ragged(b, 3)), expected)
    close(ragged(a, 3) @ ragged(b, 3), expected)
    turned = [np.transpose(y).tolist() for y in b]
    close(tf.matmul(ragged(a, 3), ragged(turned, 3), transpose_b=True), expected)
    with pytest.raises(tf.errors.InvalidArgumentError, match="fit"):
        tf.matmul(ragged([[[1.0, 2.0]]], 3), ragged([[[1.0]]], 3))


def test_rows_by_number():
    assert tf.ragged.row_splits_to_segment_ids([0, 3, 3, 5]).numpy().tolist() == [0, 0, 0, 2, 2]
    assert tf.ragged.segment_ids_to_row_splits([0, 0, 0, 2, 2]).numpy().tolist() == [0, 3, 3, 5]
    for bad in ([1, 2], [0, 3, 2]):
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.ragged.row_splits_to_segment_ids(bad)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.ragged.segment_ids_to_row_splits([1, 0])


# ---- Malformed rows.


@pytest.mark.parametrize(
    "splits", [[1, 3], [0, 2, 1, 3], [0, 2], [0, 4], [0, -1, 3], [3], [0, 2**40]]
)
def test_splits_are_checked(splits):
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.RaggedTensor.from_row_splits([1, 2, 3], splits)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(tf.RaggedTensor.from_row_splits)(
            tf.constant([1, 2, 3]), tf.constant(splits, tf.int64)
        )


def test_what_goes_into_functions_and_comes_out():
    @tf.function
    def f(x, y):
        assert isinstance(x, tf.RaggedTensor)
        return {"sum": tf.reduce_sum(x * y, 1), "rows": tf.concat([x, y], 0)[1:, :1]}

    x = tf.ragged.constant([[1.0, 2.0], [3.0]])
    out = f(x, x + 1.0)
    assert out["sum"].numpy().tolist() == [8.0, 12.0]
    assert out["rows"].to_list() == [[3.0], [2.0], [4.0]]


GRADIENTS = [
    lambda x: tf.reduce_sum(x * x, 1),
    lambda x: tf.reduce_max(x, 0),
    lambda x: tf.concat([x, tf.exp(x)], 1).flat_values ** 2,
    lambda x: tf.gather(x, [1, 1, 0]).flat_values ** 2,
    lambda x: x.to_tensor() ** 2,
    lambda x: tf.nn.softmax(x).flat_values ** 2,
    lambda x: (x + tf.constant([[1.0], [2.0], [3.0]])).flat_values ** 2,
    lambda x: tf.reverse(x, [1])[:, :1].flat_values ** 2,
    lambda x: tf.tile(x, [2, 3]).flat_values ** 2,
    lambda x: tf.where(x > 0.5, x, 3.0 * x).flat_values,
    lambda x: tf.math.reduce_variance(x, 1)[:2],
]


@pytest.mark.parametrize("function", GRADIENTS)
def test_gradients(function):
    flat = tf.constant([0.25, 1.0, 0.75, -0.5])
    splits = [0, 2, 3, 4]

    def loss(values):
        return tf.reduce_sum(function(tf.RaggedTensor.from_row_splits(values, splits)))

    with tf.GradientTape() as tape:
        tape.watch(flat)
        y = loss(flat)
    slope = tf.convert_to_tensor(tape.gradient(y, flat)).numpy()
    for i in range(4):
        step = np.zeros(4, np.float32)
        step[i] = 1e-2
        expected = (loss(flat + step) - loss(flat - step)).numpy() / 2e-2
        assert slope[i] == pytest.approx(expected, rel=2e-2, abs=2e-2)


def test_text():
    assert repr(tf.ragged.constant([[1, 2], [3]])) == "<tf.RaggedTensor [[1, 2], [3]]>"
    assert repr(tf.ragged.constant([["a"], []])) == "<tf.RaggedTensor [[b'a'], []]>"
    many = repr(tf.ragged.constant([list(range(2000)), [1]]))
    assert many == "<tf.RaggedTensor [[0, 1, 2, ..., 1997, 1998, 1999], [1]]>"


def test_strings():
    words = tf.ragged.constant([["ab", "c"], [], ["d"]])
    assert tf.strings.length(words).to_list() == [[2, 1], [], [1]]
    assert tf.strings.upper(words).to_list() == [[b"AB", b"C"], [], [b"D"]]
    assert tf.strings.join([words, "!"]).to_list() == [[b"ab!", b"c!"], [], [b"d!"]]
    joined = tf.strings.reduce_join(words, 1, separator="-")
    assert joined.numpy().tolist() == [b"ab-c", b"", b"d"]
    assert tf.strings.reduce_join(words, 0).numpy().tolist() == [b"abd", b"c"]
    assert tf.strings.to_number(tf.ragged.constant([["1"], ["2.5"]])).to_list() == [[1.0], [2.5]]


def test_graphs_for_sessions():
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        rows = v1.ragged.placeholder(tf.float32, 1)
        fed = v1.ragged.constant_value([[1.0, 2.0], [3.0]], dtype=np.float32)
        total = tf.reduce_sum(rows + 1.0, 1)
        parts = {rows.flat_values: fed.flat_values, rows.row_splits: fed.row_splits}
        assert session.run(total, parts).tolist() == [5.0, 4.0]


# ---- Specs.


def test_specs():
    spec = tf.RaggedTensorSpec([2, None, 3], tf.int32, ragged_rank=1)
    assert repr(spec) == "RaggedTensorSpec(TensorShape([2, None, 3]), tf.int32, 1, tf.int64)"
    value = tf.RaggedTensor.from_row_splits(tf.zeros([4, 3], tf.int32), [0, 1, 4])
    assert spec.is_compatible_with(value)
    assert tf.RaggedTensorSpec.from_value(value) == spec
    assert not spec.is_compatible_with(tf.ragged.constant([[1], [2]]))
    assert not tf.RaggedTensorSpec([None, None]).is_compatible_with(tf.ragged.constant([[1]]))
    with pytest.raises(ValueError, match="ragged_rank"):
        tf.RaggedTensorSpec(None)
    with pytest.raises(ValueError, match="less than rank"):
        tf.RaggedTensorSpec([None], ragged_rank=1)


def test_functions_for_specs():
    traces = []

    @tf.function(input_signature=[tf.RaggedTensorSpec([None, None])])
    def ragged_sum(x):
        traces.append("ragged")
        return tf.reduce_sum(x, 1)

    @tf.function(input_signature=[tf.SparseTensorSpec([None, None])])
    def dense(x):
        traces.append("sparse")
        return tf.sparse.to_dense(x)

    for count in (1, 2, 5):
        rows = [[float(i)] * i for i in range(count)]
        made = ragged_sum(tf.ragged.constant(rows, tf.float32, ragged_rank=1))
        assert made.numpy().tolist() == [float(i * i) for i in range(count)]
        matrix = np.eye(count, dtype=np.float32)
        assert np.array_equal(dense(tf.sparse.from_dense(matrix)), matrix)
    assert traces == ["ragged", "sparse"]
    with pytest.raises(TypeError, match="RaggedTensorSpec"):
        ragged_sum(tf.ragged.constant([[1]]))
    made = tf.function(lambda x: x + 1.0).get_concrete_function(tf.RaggedTensorSpec([None, None]))
    assert made(tf.ragged.constant([[1.0], []])).to_list() == [[2.0], []]


def test_lists_of_ragged_tensors_in_converted_functions():
    @tf.function
    def twice(x):
        return tf.concat([x, x], 0)

    assert twice(tf.ragged.constant([[1], []])).to_list() == [[1], [], [1], []]


# ---- Loops, combinations, runs.


@pytest.mark.parametrize("inside", [False, True])
def test_map_fn_over_rows(rng, inside):
    run = tf.function if inside else (lambda f: f)
    x = rows_of(rng, 3, least=1)
    value = ragged(x, 3)
    close(run(lambda v: tf.map_fn(lambda rows: rows + 1.0, v))(value), mapped(lambda e: e + 1.0, x))
    reverse = run(lambda v: tf.map_fn(lambda rows: tf.reverse(rows, [0]), v))
    close(reverse(value), [rows[::-1] for rows in x])
    total = run(lambda v: tf.map_fn(tf.reduce_sum, v, fn_output_signature=tf.float32))
    close(total(value), [float(sum(map(sum, rows))) for rows in x])
    spec = tf.RaggedTensorSpec([None], tf.int32)
    counts = [3, 0, 2]
    made = run(lambda n: tf.map_fn(tf.range, n, fn_output_signature=spec))(tf.constant(counts))
    close(made, [list(range(n)) for n in counts])


def test_map_fn_over_sparse_rows():
    matrix = np.array([[1, 0, 2], [0, 0, 0], [0, 3, 0]])
    rows = tf.sparse.from_dense(matrix)
    twice = tf.map_fn(lambda row: tf.sparse.map_values(tf.multiply, row, 2), rows)
    assert np.array_equal(tf.sparse.to_dense(twice), 2 * matrix)
    dense = tf.map_fn(tf.sparse.to_dense, rows, fn_output_signature=tf.int64)
    assert np.array_equal(dense, matrix)


def test_map_fn_refuses_what_is_not_as_said():
    rows = tf.ragged.constant([[1.0], [2.0, 3.0]])
    with pytest.raises(ValueError, match="fn_output_signature"):
        tf.map_fn(tf.reduce_sum, rows)
    with pytest.raises(ValueError, match="of ragged rank 1"):
        spec = tf.RaggedTensorSpec([None, None])
        tf.map_fn(lambda row: row, rows, fn_output_signature=spec)
    with pytest.raises(TypeError, match="SparseTensor"):
        tf.map_fn(lambda row: row, rows, fn_output_signature=tf.SparseTensorSpec([None]))


def test_combinations():
    a = tf.ragged.constant([["a"], ["b", "c"]])
    b = tf.ragged.constant([[1], [2, 300000000000]], dtype=tf.int64)
    c = tf.constant([["f", "g"], ["h", "i"]])
    assert tf.ragged.cross([c, a]).to_list() == [
        [b"f_X_a", b"g_X_a"],
        [b"h_X_b", b"h_X_c", b"i_X_b", b"i_X_c"],
    ]
    # TensorFlow's hashes.
    hashed = [[2, 0], [0, 9, 3, 9, 0, 5, 2, 5]]
    assert tf.ragged.cross_hashed([c, a, b], 10).to_list() == hashed
    keyed = tf.ragged.cross_hashed([c, a, b], 1000, hash_key=7).to_list()
    assert keyed == [[129, 875], [610, 594, 872, 35, 267, 296, 891, 865]]
    s = tf.sparse.from_dense([["x", ""], ["y", "z"]])
    assert tf.sparse.cross([c, s], separator="-").values.numpy().tolist()[:2] == [b"x-f", b"x-g"]
    assert tf.sparse.cross_hashed([c, s]).values.numpy()[0] == 4485326455660069122
    with pytest.raises(tf.errors.InvalidArgumentError, match="batch dimension"):
        tf.ragged.cross([a, tf.ragged.constant([["a"]])])
    with pytest.raises(ValueError, match="rank=2"):
        tf.ragged.cross([tf.ragged.constant([[["a"]]])])


def runs_of(row, width, left, right, padding):
    if left is not None:
        count = width - 1 if padding is None else min(width - 1, padding)
        row = [left] * count + row + [right] * count
    return [" ".join(row[i : i + width]).encode() for i in range(len(row) - width + 1)]


def test_runs_of_strings(rng):
    rows = rows_of(rng, 2, element=lambda: rng.choice("abcdef")) + [["x"]]
    value = tf.ragged.constant(rows, tf.string, ragged_rank=1)
    for width in (1, 2, 3):
        for left, right, padding in [(None, None, None), ("<", ">", None), ("_", "_", 1)]:
            pads = None if left is None else (left, right)
            made = tf.strings.ngrams(value, width, pad_values=pads, padding_width=padding)
            expected = [runs_of(row, width, left, right, padding) for row in rows]
            assert made.to_list() == expected
    several = tf.strings.ngrams(value, [2, 3], preserve_short_sequences=True).to_list()
    for row, made in zip(rows, several, strict=True):
        whole = [" ".join(row).encode()] if row else []
        runs = runs_of(row, 2, None, None, None) + runs_of(row, 3, None, None, None)
        assert made == (runs or whole)
    assert tf.strings.ngrams(["a", "b", "c"], 2).numpy().tolist() == [b"a b", b"b c"]
    with pytest.raises(ValueError, match="greater than 0"):
        tf.strings.ngrams(value, 0)


def test_elements_of_sparse_tensors():
    x = tf.sparse.from_dense([[1, 0], [0, 2]])
    made = tf.sparse.map_values(tf.add, x, 5)
    assert tf.sparse.to_dense(made).numpy().tolist() == [[6, 0], [0, 7]]
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.sparse.map_values(tf.add, x, tf.sparse.from_dense([[1, 0], [2, 0]]))
    with pytest.raises(ValueError, match="No SparseTensor"):
        tf.sparse.map_values(tf.add, 1, 2)


# ---- Shapes and partitions.


def test_shapes():
    nested = tf.ragged.constant([[[1, 2], [3]], [], [[4]]])
    shape = tf.shape(nested)
    assert repr(shape) == (
        "<DynamicRaggedShape lengths=[3, (2, 0, 1), (2, 1, 1)] num_row_partitions=2>"
    )
    assert (shape.rank, shape.num_row_partitions, int(shape[0])) == (3, 2, 3)
    assert repr(shape[:2]) == "<DynamicRaggedShape lengths=[3, (2, 0, 1)] num_row_partitions=1>"
    with pytest.raises(ValueError, match="not uniform"):
        shape[1]
    lengths = tf.experimental.DynamicRaggedShape.from_lengths([2, (1, 2), 3])
    assert lengths.static_lengths() == [2, (1, 2), 3]
    assert lengths.inner_shape.numpy().tolist() == [3, 3]
    assert bool(lengths == tf.experimental.DynamicRaggedShape.from_lengths([2, (1, 2), 3]))
    assert not bool(lengths == tf.experimental.DynamicRaggedShape.from_lengths([2, (2, 1), 3]))
    with pytest.raises(ValueError, match="lengths are given"):
        tf.experimental.DynamicRaggedShape.from_lengths([2, (1, 2, 3)])


@pytest.mark.parametrize("inside", [False, True])
def test_functions_that_take_shapes(inside):
    run = tf.function if inside else (lambda f: f)
    rows = tf.ragged.constant([[1, 2], [], [3]])
    assert run(lambda r: tf.reshape(tf.range(3), tf.shape(r)))(rows).to_list() == [[0, 1], [], [2]]
    wide = run(lambda r: tf.broadcast_to([[1], [2], [3]], tf.shape(r)))(rows)
    assert wide.to_list() == [[1, 1], [], [3]]
    assert run(lambda r: tf.zeros(tf.shape(r), tf.int32))(rows).to_list() == [[0, 0], [], [0]]
    assert run(lambda r: tf.fill(tf.shape(r), "x"))(rows).to_list() == [[b"x"] * 2, [], [b"x"]]
    assert run(lambda r: tf.reshape(r, [-1]))(rows).numpy().tolist() == [1, 2, 3]
    both = tf.broadcast_dynamic_shape(tf.shape(rows), [3, 1])
    assert both.static_lengths() == [3, (2, 0, 1)]


def test_row_partitions():
    made = tf.experimental.RowPartition
    rows = made.from_row_lengths([2, 0, 1])
    assert repr(rows) == "tf.RowPartition(row_splits=[0 2 2 3])"
    assert rows.value_rowids().numpy().tolist() == [0, 0, 2]
    assert rows.offsets_in_rows().numpy().tolist() == [0, 1, 0]
    assert (int(rows.nrows()), int(rows.nvals()), rows.static_nrows) == (3, 3, 3)
    for same in (
        made.from_row_splits([0, 2, 2, 3]), made.from_value_rowids([0, 0, 2]),
        made.from_row_starts([0, 2, 2], nvals=3), made.from_row_limits([2, 2, 3]),
    ):  # fmt: skip
        assert repr(same) == repr(rows)
    uniform = made.from_uniform_row_length(2, nrows=3)
    assert repr(uniform) == "tf.RowPartition(nrows=3, uniform_row_length=2)"
    assert (int(uniform.nvals()), uniform.static_uniform_row_length) == (6, 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda made: made.from_row_splits([1, 2]),
        lambda made: made.from_row_splits([0, 3, 2]),
        lambda made: made.from_row_splits(tf.zeros([0], tf.int64)),
        lambda made: made.from_row_lengths([-1]),
        lambda made: made.from_value_rowids([1, 0]),
        lambda made: made.from_value_rowids([0, 3], nrows=2),
        lambda made: made.from_row_starts([1, 2], nvals=3),
        lambda made: made.from_row_limits([2, 1]),
        lambda made: made.from_uniform_row_length(2, nvals=5),
        lambda made: made.from_row_splits([[0, 1]]),
    ],
)
def test_partitions_are_checked(call):
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        call(tf.experimental.RowPartition)


@pytest.mark.parametrize("ids", [[1, 0], [-1, 0], [0, 2**40]])
def test_rows_of_values_are_checked_in_functions(ids):
    make = tf.function(lambda v, i: tf.RaggedTensor.from_value_rowids(v, i, nrows=2))
    with pytest.raises(tf.errors.InvalidArgumentError):
        make(tf.constant([1, 2]), tf.constant(ids, tf.int64))


def test_specs_of_values():
    slices = tf.IndexedSlices(tf.ones([2, 3]), tf.constant([0, 1]))
    spec = tf.type_spec_from_value(slices)
    assert spec == tf.IndexedSlicesSpec([None, 3], tf.float32, tf.int32, None, [2])
    twice = tf.function(lambda x: x.values * 2.0, input_signature=[
        tf.IndexedSlicesSpec([None, 3], tf.float32, tf.int32)
    ])  # fmt: skip
    assert twice(slices).numpy().tolist() == [[2.0] * 3] * 2
    rows = tf.ragged.constant([[1], []])
    assert tf.type_spec_from_value(rows) == tf.RaggedTensorSpec([2, None], tf.int32)
    sparse = tf.sparse.from_dense([[1, 0]])
    assert tf.type_spec_from_value(sparse) == tf.SparseTensorSpec([1, 2], tf.int32)
    assert tf.type_spec_from_value(tf.constant(1)) == tf.TensorSpec([], tf.int32)
    with pytest.raises(TypeError, match="TypeSpec"):
        tf.type_spec_from_value(object())


# ---- Dimensions that are uniform, and merged.


def test_merged_dimensions(rng):
    x = rows_of(rng, 4, most=3)
    value = ragged(x, 4)

    def joined(rows):
        return [v for row in rows for v in row]

    close(value.merge_dims(0, 1), joined(x))
    close(value.merge_dims(1, 2), [joined(rows) for rows in x])
    close(value.merge_dims(2, -1), [[joined(row) for row in rows] for rows in x])
    close(value.merge_dims(1, 3), [joined(joined(rows)) for rows in x])
    close(value.merge_dims(0, 3), joined(joined(joined(x))))
    inner = tf.RaggedTensor.from_row_lengths([[1, 2], [3, 4], [5, 6]], [2, 1])
    assert inner.merge_dims(1, 2).to_list() == [[1, 2, 3, 4], [5, 6]]


def test_uniform_dimensions_stay_so():
    value = tf.RaggedTensor.from_uniform_row_length(tf.ragged.constant([[1], [2, 3], [], [4]]), 2)
    for made, sizes in (
        (value[::-1], [2, 2, None]), (value[:, 1:], [2, 1, None]),
        (value[tf.newaxis], [1, 2, 2, None]),
        (value[:, tf.newaxis], [2, 1, 2, None]), (value + 1, [2, 2, None]),
        (tf.gather(value, [1]), [1, 2, None]),
    ):  # fmt: skip
        assert made.shape.as_list() == sizes
    assert value[:, 1].to_list() == [[2, 3], [4]]
    assert value[:, -1].to_list() == [[2, 3], [4]]
    for index in (2, -3):
        with pytest.raises(tf.errors.InvalidArgumentError, match="out of range"):
            value[:, index]
    assert value[tf.constant(-1)].to_list() == [[], [4]]


def test_rows_of_int32_splits():
    rows = tf.ragged.constant([[1, 2], [3]], row_splits_dtype=tf.int32)
    assert tf.expand_dims(rows, 1).to_list() == [[[1, 2]], [[3]]]
    assert tf.stack([rows, rows], 1).row_splits.dtype is tf.int32


def test_stacked_matrices_of_several_sizes():
    assert tf.ragged.stack([[[1, 2]], [[3], [4]]]).to_list() == [[[1, 2]], [[3], [4]]]
    rows = tf.ragged.constant([[1], [2, 3]])
    pairs = tf.stack([rows, rows], -1)
    assert (pairs.ragged_rank, pairs.to_list()) == (1, [[[1, 1]], [[2, 2], [3, 3]]])
    assert tf.gather(rows, [0], axis=1).numpy().tolist() == [[1], [2]]
    assert tf.math.bincount(tf.ragged.constant([[[1], [2]], [[2]]])).numpy().tolist() == [0, 1, 2]


def test_assertions():
    rows = tf.ragged.constant([[1], [2, 3]])
    assert tf.debugging.assert_less(rows, rows + 1) is None
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.debugging.assert_equal(rows, [[1], [2]])


# ---- Features of examples.


def example(**features):
    train = tf.compat.v1.train
    made = {
        name: train.Feature(int64_list=train.Int64List(value=values))
        for name, values in features.items()
    }
    return train.Example(features=train.Features(feature=made)).SerializeToString()


EXAMPLES = [
    example(
        v=[1, 2, 3], splits=[0, 2, 3], lengths=[2, 1], starts=[0, 2], limits=[2, 3], ids=[0, 0, 1],
        outer=[0, 2],
    ),
    example(
        v=[4, 5, 6, 7], splits=[0, 0, 4], lengths=[0, 4], starts=[0, 0], limits=[0, 4],
        ids=[1, 1, 1, 1], outer=[0, 1, 2],
    ),
    example(v=[], splits=[0], lengths=[], starts=[], limits=[], ids=[], outer=[0]),
]  # fmt: skip
PARTITIONS = [
    tf.io.RaggedFeature.RowSplits("splits"), tf.io.RaggedFeature.RowLengths("lengths"),
    tf.io.RaggedFeature.RowStarts("starts"), tf.io.RaggedFeature.RowLimits("limits"),
    tf.io.RaggedFeature.ValueRowIds("ids"),
]  # fmt: skip


def parsed(partitions, examples=EXAMPLES, inside=False, **kwargs):
    feature = tf.io.RaggedFeature(tf.int64, "v", partitions, **kwargs)
    run = tf.function(tf.io.parse_example) if inside else tf.io.parse_example
    return run(tf.constant(examples), {"x": feature})["x"]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("partition", PARTITIONS)
def test_ragged_features(partition, inside):
    rows = parsed([partition], inside=inside)
    assert rows.to_list() == [[[1, 2], [3]], [[], [4, 5, 6, 7]], []]
    assert rows.row_splits.dtype is tf.int32
    feature = tf.io.RaggedFeature(tf.int64, "v", [partition])
    assert tf.io.parse_single_example(EXAMPLES[0], {"x": feature})["x"].to_list() == [[1, 2], [3]]


def test_ragged_features_of_several_partitions():
    assert parsed([]).to_list() == [[1, 2, 3], [4, 5, 6, 7], []]
    nested = parsed([tf.io.RaggedFeature.RowSplits("outer"), PARTITIONS[0]])
    assert nested.to_list() == [[[[1, 2], [3]]], [[[]], [[4, 5, 6, 7]]], []]
    pairs = parsed([tf.io.RaggedFeature.UniformRowLength(2)], EXAMPLES[1:])
    assert pairs.to_list() == [[[4, 5], [6, 7]], []]
    single = {"v": tf.io.RaggedFeature(tf.int64)}
    assert tf.io.parse_single_example(EXAMPLES[0], single)["v"].numpy().tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "features",
    [
        {"splits": [0, 5]}, {"splits": [1, 2]}, {"splits": [0, 3, 2]}, {"splits": []},
        {"lengths": [9]}, {"lengths": [-1, 3]}, {"starts": [1]}, {"starts": [0, 2**40]},
        {"limits": [1]}, {"limits": [5]}, {"ids": [1, 0]}, {"ids": [-1, 0]}, {"ids": [0]},
    ],
)  # fmt: skip
def test_rows_in_files_are_checked(features):
    ((name, _),) = features.items()
    (partition,) = [p for p in PARTITIONS if p.key == name]
    for examples in ([example(v=[1, 2], **features)], [example(v=[1, 2], **features), EXAMPLES[0]]):
        with pytest.raises(tf.errors.InvalidArgumentError):
            parsed([partition], examples)
    with pytest.raises(tf.errors.InvalidArgumentError):
        parsed([tf.io.RaggedFeature.UniformRowLength(3)], [example(v=[1, 2])])
