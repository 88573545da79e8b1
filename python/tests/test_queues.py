"""Queues, accumulators, and the threads and input pipelines over them."""

import threading

import numpy as np
import pytest

import millrace.compat.v1 as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as g:
        yield g


def test_fifo_with_names():
    queue = tf.FIFOQueue(10, [tf.int32, tf.float32], shapes=[[], [2]], names=["i", "f"])
    add = queue.enqueue({"i": 1, "f": [2.0, 3.0]})
    taken = queue.dequeue()
    assert taken["f"].shape.as_list() == [2]
    with tf.Session() as sess:
        sess.run(add)
        assert sess.run(queue.size()) == 1
        value = sess.run(taken)
    assert value["i"] == 1 and value["f"].tolist() == [2, 3]
    with pytest.raises(ValueError, match="dictionary"):
        queue.enqueue([1, [2.0, 3.0]])
    with pytest.raises(ValueError, match="match names of Queue"):
        queue.enqueue({"i": 1})


def test_what_does_not_fit_names_queue_component_and_tensor():
    queue = tf.FIFOQueue(3, [tf.float32, tf.int32], shapes=[[2], []], name="pairs")
    whole = tf.constant([1, 2], name="whole")
    long = tf.constant([1.0, 2.0, 3.0], name="long")
    for add, kind, parts in (
        (lambda: queue.enqueue([whole, 3]), ValueError, ["Component 0", "float32", "whole:0"]),
        (lambda: queue.enqueue([long, 3]), ValueError, ["Component 0", "(2,)", "'long:0'", "(3,)"]),
        (lambda: queue.enqueue([[1, 2], "a"]), TypeError, ["Component 1", "int32", "'a'"]),
        (lambda: queue.enqueue_many([[[1, 2]], [1.5]]), TypeError, ["Component 1", "1.5"]),
    ):
        with pytest.raises(kind) as error:
            add()
        for part in [*parts, "'pairs'", "test_queues.py"]:
            assert part in str(error.value)


def test_batches_and_the_end():
    queue = tf.FIFOQueue(10, tf.float32, shapes=[()])
    many = queue.dequeue_many(2)
    assert many.shape.as_list() == [2]
    with tf.Session() as sess:
        sess.run(queue.enqueue_many([[1.0, 2.0, 3.0]]))
        sess.run(queue.close())
        assert sess.run(many).tolist() == [1, 2]
        assert sess.run(queue.dequeue_up_to(2)).tolist() == [3]
        with pytest.raises(tf.errors.OutOfRangeError, match="insufficient"):
            sess.run(many)
        with pytest.raises(tf.errors.CancelledError, match="closed"):
            sess.run(queue.enqueue(1.0))


def test_wrong_shapes_are_told_early():
    queue = tf.FIFOQueue(10, tf.float32, shapes=[[2]])
    with pytest.raises(ValueError, match="3"):
        queue.enqueue([[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match="components"):
        queue.enqueue([[1.0, 2.0], 3.0])
    with pytest.raises(ValueError, match="fully defined"):
        tf.FIFOQueue(10, tf.float32, shapes=[[None]])


def test_other_kinds():
    padding = tf.PaddingFIFOQueue(10, tf.int32, shapes=[[None]])
    shuffle = tf.RandomShuffleQueue(10, 0, tf.int32, shapes=[()], seed=3)
    priority = tf.PriorityQueue(10, [tf.string], shapes=[()])
    with tf.Session() as sess:
        for row in ([1], [1, 2, 3]):
            sess.run(padding.enqueue([row]))
        assert sess.run(padding.dequeue_many(2)).tolist() == [[1, 0, 0], [1, 2, 3]]
        sess.run(shuffle.enqueue_many([list(range(10))]))
        assert sorted(sess.run(shuffle.dequeue_many(10))) == list(range(10))
        for number, text in ((2, "b"), (1, "a")):
            sess.run(priority.enqueue([np.int64(number), text]))
        assert sess.run(priority.dequeue()) == [1, b"a"]


def test_choice_among_queues():
    queues = [tf.FIFOQueue(5, tf.float32) for _ in range(2)]
    index = tf.placeholder(tf.int32, [])
    chosen = tf.QueueBase.from_list(index, queues).dequeue()
    with tf.Session() as sess:
        sess.run([queue.enqueue(float(i)) for i, queue in enumerate(queues)])
        assert sess.run(chosen, {index: 1}) == 1


def test_accumulators():
    dense = tf.ConditionalAccumulator(tf.float32, shape=[2])
    sparse = tf.SparseConditionalAccumulator(tf.float32, shape=[3, 2])
    rows = tf.IndexedSlices(tf.constant([[1.0, 2.0]]), tf.constant([1]))
    with tf.Session() as sess:
        sess.run(dense.apply_grad([1.0, 3.0]))
        sess.run(dense.apply_grad([3.0, 5.0]))
        assert sess.run(dense.num_accumulated()) == 2
        assert sess.run(dense.take_grad(2)).tolist() == [2, 4]
        sess.run(sparse.apply_indexed_slices_grad(rows))
        taken = sess.run(sparse.take_indexed_slices_grad(1))
        assert taken.indices.tolist() == [1] and taken.values.tolist() == [[1, 2]]


def test_coordinator_passes_errors_on():
    coord = tf.train.Coordinator()

    def work():
        with coord.stop_on_exception():
            raise ValueError("bad input")

    threads = [threading.Thread(target=work)]
    threads[0].start()
    with pytest.raises(ValueError, match="bad input"):
        coord.join(threads)
    assert coord.should_stop() and coord.joined


def test_looper_stops():
    coord = tf.train.Coordinator()
    calls = []

    def count():
        calls.append(1)
        if len(calls) == 3:
            coord.request_stop()

    coord.join([tf.train.LooperThread.loop(coord, 0, count)])
    assert len(calls) == 3


def batches(tensors):
    """Runs the queue runners, and gives all batches up to the end."""
    out = []
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        try:
            while True:
                out.append(sess.run(tensors))
        except tf.errors.OutOfRangeError:
            coord.request_stop()
        coord.join(threads)
    return out


def test_producers_and_batches():
    number = tf.train.range_input_producer(5, num_epochs=2, shuffle=False).dequeue()
    batch = tf.train.batch([number, number * number], 4, allow_smaller_final_batch=True)
    values = batches(batch)
    assert [len(v) for v, _ in values] == [4, 4, 2]
    assert np.concatenate([v for v, _ in values]).tolist() == [0, 1, 2, 3, 4] * 2
    assert np.concatenate([v for _, v in values]).tolist() == [0, 1, 4, 9, 16] * 2


def test_shuffled_batches_of_slices():
    x, y = tf.train.slice_input_producer(
        [np.arange(6), np.arange(6) * 10], num_epochs=1, shuffle=True, seed=1
    )
    batch = tf.train.shuffle_batch({"x": x, "y": y}, 3, capacity=10, min_after_dequeue=2)
    values = batches(batch)
    assert sorted(np.concatenate([v["x"] for v in values])) == list(range(6))
    assert all(np.array_equal(v["y"], v["x"] * 10) for v in values)


def test_kept_and_padded():
    number = tf.train.range_input_producer(6, num_epochs=1, shuffle=False).dequeue()
    kept = tf.train.maybe_batch([tf.range(number)], tf.equal(number % 2, 0), 3, dynamic_pad=True)
    (value,) = batches(kept)
    assert value.tolist() == [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 2, 3]]


def test_sparse_vectors_are_no_batches():
    vector = tf.SparseTensor([[0]], [1.0], [1])
    batched = tf.train.batch([vector], batch_size=2, enqueue_many=True)
    assert batched.dense_shape.shape == [1]
    handle = tf.raw_ops.AddManySparseToTensorsMap(
        sparse_indices=vector.indices, sparse_values=vector.values, sparse_shape=vector.dense_shape
    )
    assert handle.shape.as_list() in ([1], [None])
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError, match="rank: 1"):
        sess.run(handle)


def test_sparse_batches():
    number = tf.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()
    index = tf.to_int64(tf.reshape(number, [1, 1]))
    sparse = tf.SparseTensor(index, tf.reshape(number, [1]), [4])
    values = batches(tf.train.batch([sparse, number], 2))
    assert values[1][0].indices.tolist() == [[0, 2], [1, 3]]
    assert values[1][0].values.tolist() == [2, 3]
    assert values[1][0].dense_shape.tolist() == [2, 4]


def test_bad_inputs():
    with pytest.raises(ValueError, match="num_epochs"):
        tf.train.limit_epochs(tf.constant(1), num_epochs=0)
    with pytest.raises(ValueError, match="non-null"):
        tf.train.string_input_producer([])
    with pytest.raises(ValueError, match="default session"):
        tf.train.start_queue_runners()
    with pytest.raises(ValueError, match="min_after_dequeue"):
        tf.train.shuffle_batch([tf.constant(1)], 2, capacity=3, min_after_dequeue=3)
