"""Datasets: what each method gives, and what mistakes say."""

import collections
import threading

import numpy as np
import pytest

import millrace.compat.v1 as tf

Dataset = tf.data.Dataset


def elements(dataset, most=10_000):
    """The elements of a dataset, as a list."""
    item = dataset.make_initializable_iterator()
    element = item.get_next()
    out = []
    with tf.Session() as session:
        session.run(item.initializer)
        while len(out) < most:
            try:
                out.append(session.run(element))
            except tf.errors.OutOfRangeError:
                break
    return out


def lists(dataset, most=10_000):
    return [np.asarray(e).tolist() for e in elements(dataset, most)]


def test_sources():
    assert lists(Dataset.range(2, 11, 3)) == [2, 5, 8]
    assert lists(Dataset.range(3, -3, -2)) == [3, 1, -1]
    assert lists(Dataset.from_tensors([1, 2])) == [[1, 2]]
    pairs = elements(Dataset.from_tensor_slices({"a": [1, 2], "b": ["x", "y"]}))
    assert pairs == [{"a": 1, "b": b"x"}, {"a": 2, "b": b"y"}]
    Point = collections.namedtuple("Point", "x y")
    (point,) = elements(Dataset.from_tensors(Point(1, (2, 3))))
    assert point == Point(1, (2, 3)) and isinstance(point, Point)


def test_sparse_elements():
    sparse = tf.SparseTensor([[0, 0], [2, 1]], [1, 2], [3, 4])
    rows = elements(Dataset.from_tensor_slices(sparse))
    assert [r.values.tolist() for r in rows] == [[1], [], [2]]
    assert rows[2].indices.tolist() == [[1]] and rows[2].dense_shape.tolist() == [4]
    batch, _ = elements(Dataset.from_tensor_slices(sparse).batch(2))
    assert batch.indices.tolist() == [[0, 0]] and batch.dense_shape.tolist() == [2, 4]
    parts = elements(Dataset.from_sparse_tensor_slices(sparse))
    assert [p[1].tolist() for p in parts] == [[1], [], [2]]
    negative = tf.SparseTensor([[-1, 0], [0, 0]], [1, 2], [3, 4])
    with pytest.raises(tf.errors.InvalidArgumentError, match="row -1, which is negative"):
        elements(Dataset.from_sparse_tensor_slices(negative))
    assert Dataset.from_tensors(sparse).output_classes is tf.SparseTensor


def test_selections():
    ten = Dataset.range(10)
    assert lists(ten.take(3)) == [0, 1, 2] and lists(ten.take(-1)) == list(range(10))
    assert lists(ten.skip(8)) == [8, 9] and lists(ten.skip(-1)) == []
    assert lists(ten.shard(3, 1)) == [1, 4, 7]
    assert lists(ten.filter(lambda x: tf.equal(x % 3, 0))) == [0, 3, 6, 9]
    assert lists(ten.take_while(lambda x: x < 4)) == [0, 1, 2, 3]
    assert lists(ten.take(2).repeat(3)) == [0, 1] * 3
    assert lists(ten.take(2).repeat(), most=5) == [0, 1, 0, 1, 0]
    assert lists(ten.take(0).repeat()) == []
    assert lists(ten.take(2).concatenate(ten.skip(9))) == [0, 1, 9]
    assert elements(Dataset.zip((ten, (ten.skip(1), ten.take(2))))) == [(0, (1, 0)), (1, (2, 1))]
    assert elements(ten.take(2).enumerate(5)) == [(5, 0), (6, 1)]


def test_batches():
    assert lists(Dataset.range(5).batch(2)) == [[0, 1], [2, 3], [4]]
    dropped = Dataset.range(5).batch(2, drop_remainder=True)
    assert lists(dropped) == [[0, 1], [2, 3]] and dropped.output_shapes.as_list() == [2]
    strings = Dataset.from_tensor_slices([["a", "b"], ["c", "d"]]).batch(2)
    assert lists(strings) == [[[b"a", b"b"], [b"c", b"d"]]]
    ragged = Dataset.range(1, 4).map(lambda x: tf.fill([x], x))
    assert lists(ragged.padded_batch(2, [None])) == [[[1, 0], [2, 2]], [[3, 3, 3]]]
    assert lists(ragged.padded_batch(3, [4], np.int64(-1)))[0][0] == [1, -1, -1, -1]
    assert lists(Dataset.range(5).batch(2).unbatch()) == list(range(5))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"different shapes in component 0"):
        elements(ragged.batch(2))
    # Declared far larger than it gets: no memory is taken for what does not come.
    assert lists(Dataset.range(3).batch(2**40)) == [[0, 1, 2]]


def test_windows():
    windows = Dataset.range(7).window(3, shift=2, stride=2, drop_remainder=False)
    assert lists(windows.flat_map(lambda w: w.batch(3))) == [[0, 2, 4], [2, 4, 6], [4, 6], [6]]
    pairs = Dataset.zip((Dataset.range(4), Dataset.range(4))).window(2)
    sums = pairs.flat_map(lambda a, b: Dataset.zip((a, b)).map(lambda x, y: x + y))
    assert lists(sums) == [0, 2, 4, 6]


@pytest.mark.parametrize("parallel", [None, 1, 3, tf.data.experimental.AUTOTUNE])
def test_functions(parallel):
    ten = Dataset.range(10)
    offset = tf.constant(100, tf.int64)
    assert lists(ten.map(lambda x: x + offset, parallel)) == list(range(100, 110))
    both = Dataset.zip((ten, ten)).map(lambda a, b: {"sum": a + b, "pair": (a, b)}, parallel)
    assert elements(both)[3] == {"sum": 6, "pair": (3, 3)}
    nested = Dataset.range(5).interleave(
        lambda x: Dataset.from_tensors(x).repeat(3), 2, 2, num_parallel_calls=parallel
    )
    assert lists(nested) == [0, 0, 1, 1, 0, 1, 2, 2, 3, 3, 2, 3, 4, 4, 4]
    assert lists(ten.map(lambda x: tf.py_func(lambda v: v * 2, [x], tf.int64), parallel)) == list(
        range(0, 20, 2)
    )


def test_unordered_map_loses_nothing():
    mapped = Dataset.range(50).map(lambda x: x * x, 4, deterministic=False)
    assert sorted(lists(mapped)) == [x * x for x in range(50)]


def test_reduce_and_single_element():
    with tf.Session() as session:
        total = Dataset.range(5).reduce(np.int64(0), lambda state, x: state + x)
        assert session.run(total) == 10
        pair = Dataset.range(5).reduce((np.int64(0), 1), lambda s, x: (s[0] + x, s[1] * 2))
        assert session.run(pair) == (10, 32)


def test_shuffle():
    def order(**kwargs):
        return lists(Dataset.range(30).shuffle(8, **kwargs).repeat(2))

    with_seed = order(seed=7)
    assert with_seed == order(seed=7) and with_seed != order(seed=8)
    first, second = with_seed[:30], with_seed[30:]
    assert sorted(first) == sorted(second) == list(range(30)) and first != second
    same = order(seed=7, reshuffle_each_iteration=False)
    assert same[:30] == same[30:]
    # An element cannot come more than the buffer too early.
    assert all(value < place + 8 for place, value in enumerate(first))


def test_cache_makes_elements_once():
    calls = []

    def note(x):
        calls.append(int(x))
        return x

    dataset = Dataset.range(3).map(lambda x: tf.py_func(note, [x], tf.int64)).cache().repeat(3)
    assert lists(dataset) == [0, 1, 2] * 3 and calls == [0, 1, 2]


def test_generators():
    def pairs(n):
        for i in range(n):
            yield i, ["x"] * i

    dataset = Dataset.from_generator(pairs, (tf.int32, tf.string), ([], [None]), args=(3,))
    assert [(a, b.tolist()) for a, b in elements(dataset.repeat(2))] == [
        (0, []), (1, [b"x"]), (2, [b"x", b"x"]),
    ] * 2  # fmt: skip
    wrong = Dataset.from_generator(lambda: iter([(1, 2)]), tf.int32, [])
    with pytest.raises(tf.errors.InvalidArgumentError, match="shape"):
        elements(wrong)


def test_calls_on_one_thread_share_what_is_local_to_it():
    local = threading.local()

    def count(_):
        local.calls = getattr(local, "calls", 0) + 1
        return np.int64(local.calls)

    dataset = Dataset.range(6).map(lambda x: tf.py_func(count, [x], tf.int64)).batch(6)
    assert elements(dataset)[0].tolist() == [1, 2, 3, 4, 5, 6]


def test_prefetch_ends_with_its_iterator():
    running = threading.active_count()
    for _ in range(3):
        assert lists(Dataset.range(1000).prefetch(10), most=2) == [0, 1]
    assert threading.active_count() == running


def test_errors_name_the_line_and_leave_the_rest():
    def invert(x):
        return tf.check_numerics(1.0 / tf.cast(x - 1, tf.float32), "inverted")

    iterator = Dataset.range(3).map(invert).make_one_shot_iterator()
    element = iterator.get_next()
    with tf.Session() as session:
        assert session.run(element) == -1
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"test_data\.py.*check_numerics"):
            session.run(element)
        assert session.run(element) == 1
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(element)


def test_iterators():
    with tf.Session() as session:
        n = tf.placeholder(tf.int64, [])
        first = Dataset.range(n).map(lambda x: x + n).make_initializable_iterator()
        element = first.get_next()
        with pytest.raises(tf.errors.FailedPreconditionError, match="not been initialized"):
            session.run(element)
        session.run(first.initializer, {n: 3})
        assert session.run(element) == 3
        session.run(first.initializer, {n: 5})
        assert session.run(element) == 5
        second = tf.data.Iterator.from_structure(tf.int64, [])
        begins = [second.make_initializer(Dataset.range(a, 9)) for a in (1, 6)]
        element = second.get_next()
        for begin, value in zip(begins, (1, 6), strict=True):
            session.run(begin)
            assert session.run(element) == value
        name = tf.placeholder(tf.string, [])
        chosen = tf.data.Iterator.from_string_handle(name, tf.int64, []).get_next()
        names = session.run([first.string_handle(), second.string_handle()])
        assert [session.run(chosen, {name: text}) for text in names] == [6, 7]
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(chosen, {name: b"\xff"})
    with pytest.raises(TypeError, match="types"):
        second.make_initializer(Dataset.from_tensors(1.0))


def test_one_shot_iterators_hold_their_constants():
    rows = np.random.default_rng(0).normal(size=(3000, 2)).astype(np.float32)
    words = np.array(["a", "bb"] * 1500)
    scale = tf.constant(2.0)
    dataset = Dataset.from_tensor_slices((rows, words)).map(lambda x, w: (x * scale, w)).batch(3000)
    with tf.Session() as session:
        x, w = session.run(dataset.make_one_shot_iterator().get_next())
    assert (x == rows * 2).all() and (w == words.astype(bytes)).all()


def test_one_shot_iterators_take_no_state():
    variable = tf.get_variable("v", [], tf.int64)
    with pytest.raises(ValueError, match="make_initializable_iterator"):
        Dataset.range(3).map(lambda x: x + variable).make_one_shot_iterator()
    n = tf.placeholder(tf.int64, [])
    with pytest.raises(ValueError, match="Placeholder"):
        Dataset.range(n).make_one_shot_iterator()


@pytest.mark.parametrize("stage", ["filter", "reduce", "queue"])
def test_a_wait_ends_at_its_deadline_and_with_its_session(stage):
    endless = Dataset.range(1).repeat()
    if stage == "reduce":
        fetch = endless.reduce(np.int64(0), lambda state, x: state + x)
    elif stage == "filter":
        fetch = endless.filter(lambda x: x > 0).make_one_shot_iterator().get_next()
    else:
        queue = tf.FIFOQueue(1, tf.int64, [])
        queued = endless.map(lambda _: queue.dequeue()).prefetch(1).make_initializable_iterator()
        fetch = queued.get_next()
    with tf.Session() as session:
        if stage == "queue":
            session.run(queued.initializer)
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(fetch, options=tf.RunOptions(timeout_in_ms=50))
        seen = []

        def wait():
            try:
                session.run(fetch)
            except (tf.errors.CancelledError, tf.errors.FailedPreconditionError) as error:
                seen.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        session.close()
        thread.join(30)
        assert not thread.is_alive() and len(seen) == 1


def test_trees_deeper_than_a_stack_are_refused():
    dataset = Dataset.range(3)
    for _ in range(2100):
        dataset = dataset.take(2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than can be iterated"):
        elements(dataset)
    dataset = Dataset.range(3)
    for _ in range(1000):
        dataset = dataset.take(2)
    assert lists(dataset) == [0, 1]


def test_more_calls_than_elements():
    assert lists(Dataset.range(3).map(lambda x: x, 2**62)) == [0, 1, 2]
    assert lists(Dataset.range(3).repeat().map(lambda x: x, 2**62), most=4) == [0, 1, 2, 0]


def test_mistakes_are_told_where_they_are_made():
    ten = Dataset.range(10)
    with pytest.raises(ValueError, match="scalar boolean"):
        ten.filter(lambda x: x)
    with pytest.raises(TypeError, match="Dataset"):
        ten.flat_map(lambda x: x)
    with pytest.raises(TypeError, match="different types"):
        ten.concatenate(Dataset.from_tensors(1.0))
    with pytest.raises(TypeError, match="lists"):
        Dataset.zip([ten, ten])
    with pytest.raises(ValueError, match="scalar"):
        Dataset.from_tensor_slices(1)
    with pytest.raises(TypeError, match="must be callable"):
        ten.map(3)
    with pytest.raises(ZeroDivisionError):
        ten.map(lambda x: 1 // 0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Batch size must be greater than"):
        elements(ten.batch(0))


def test_rows_that_do_not_fit_are_left_together():
    vectors = Dataset.from_tensor_slices([2, 2, 1, 3, 1, 1]).map(tf.range)
    iterator = vectors.batch(3).make_one_shot_iterator()
    element = iterator.get_next()
    with tf.Session() as session:
        for _ in range(2):
            with pytest.raises(tf.errors.InvalidArgumentError, match="different shapes"):
                session.run(element)
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(element)


def test_errors_have_their_places_in_windows():
    inverse = Dataset.range(-2, 3).map(lambda x: 6 // x)
    windows = inverse.window(2, shift=1, drop_remainder=True).flat_map(lambda w: w.batch(2))
    element = windows.make_one_shot_iterator().get_next()
    seen = []
    with tf.Session() as session:
        for _ in range(4):
            try:
                seen.append(session.run(element).tolist())
            except tf.errors.InvalidArgumentError:
                seen.append("error")
    assert seen == [[-3, -6], "error", "error", [6, 3]]


def test_sizes_are_known_where_tensorflow_knows_them():
    ten = Dataset.range(10)
    sizes = {
        -2: ten.map(lambda x: x),
        -1: ten.filter(lambda x: x > 3).repeat(),
        5: ten.apply(tf.data.experimental.map_and_batch(lambda x: x, 2)),
        0: ten.skip(-1),
    }
    with tf.Session() as session:
        for size, dataset in sizes.items():
            assert session.run(tf.data.experimental.cardinality(dataset)) == size


def test_batches_of_batches_of_sparse_tensors():
    rows = Dataset.range(1, 5).map(lambda x: tf.SparseTensor([[x]], [x], [6]))
    twice = rows.batch(2).batch(2)
    assert twice.output_shapes.as_list() == [None, None, 6]
    (value,) = elements(twice)
    assert value.indices.tolist() == [[0, 0, 1], [0, 1, 2], [1, 0, 3], [1, 1, 4]]
    assert value.values.tolist() == [1, 2, 3, 4] and value.dense_shape.tolist() == [2, 2, 6]
