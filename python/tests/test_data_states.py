"""Positions of iterators that somebody changed, or that take long to come back to."""

import random
import time

import pytest

import millrace.compat.v1 as tf
from millrace import protos

ERRORS = (tf.errors.InvalidArgumentError, tf.errors.DataLossError)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as made:
        yield made


class Position:
    """An iterator over a dataset, and its position as bytes."""

    def __init__(self, dataset):
        iterator = tf.data.make_initializable_iterator(dataset)
        resource = iterator._iterator_resource
        self.next = iterator.get_next()
        self.begin = iterator.initializer
        self._save = tf.raw_ops.SerializeTensor(
            tensor=tf.raw_ops.SerializeIterator(resource_handle=resource)
        )
        self._saved = tf.placeholder(tf.string, [])
        self._restore = tf.raw_ops.DeserializeIterator(
            resource_handle=resource,
            serialized=tf.raw_ops.ParseTensor(serialized=self._saved, out_type=tf.variant),
        )

    def save(self, session):
        return protos.TensorProto.FromString(session.run(self._save))

    def restore(self, session, message, **options):
        feed = {self._saved: message.SerializeToString()}
        session.run(self._restore, feed, options=tf.RunOptions(**options))


def changed(message, edit):
    """The message with other bytes of the position."""
    out = protos.TensorProto()
    out.CopyFrom(message)
    out.variant_val[0].metadata = edit(bytes(out.variant_val[0].metadata))
    return out


def test_a_place_that_was_never_filled():
    numbers = tf.data.Dataset.range(4)
    dataset = numbers.interleave(tf.data.Dataset.from_tensors, cycle_length=1 << 40)
    position = Position(dataset)
    with tf.Session() as session:
        session.run([position.begin])
        message = position.save(session)
        position.restore(session, message)
        place = b"Interleaven\0n" + b"\0"
        far = b"Interleaven\0n" + b"\x80\x80\x80\x80\x80\x01"
        assert place in message.variant_val[0].metadata
        with pytest.raises(tf.errors.DataLossError, match="place"):
            position.restore(session, changed(message, lambda data: data.replace(place, far)))


def test_coming_back_to_a_place_can_be_cancelled():
    def forever():
        while True:
            yield 1

    position = Position(tf.data.Dataset.from_generator(forever, tf.int64, []).prefetch(2))
    with tf.Session() as session:
        session.run(position.begin)
        message = position.save(session)
        made = message.variant_val[0].metadata
        at = made.index(b"Generator") + len(b"Generator") + 2
        assert made[at : at + 2] == b"n\0"
        far = made[:at] + b"n" + b"\xff" * 8 + b"\x7f" + made[at + 2 :]
        begin = time.monotonic()
        with pytest.raises(tf.errors.DeadlineExceededError):
            position.restore(session, changed(message, lambda _: far), timeout_in_ms=200)
        assert time.monotonic() - begin < 30


def test_windows_in_use_are_saved():
    windows = tf.data.Dataset.range(13).window(4, shift=3)
    position = Position(windows.shuffle(2, seed=1).flat_map(lambda x: x.batch(3)).prefetch(2))

    def rest(session):
        try:
            while True:
                yield session.run(position.next).tolist()
        except tf.errors.OutOfRangeError:
            pass

    with tf.Session() as session:
        session.run(position.begin)
        whole = list(rest(session))
        assert len(whole) == 9
        for done in range(len(whole)):
            session.run(position.begin)
            for _ in range(done):
                session.run(position.next)
            message = position.save(session)
            session.run(position.begin)
            position.restore(session, message)
            assert list(rest(session)) == whole[done:]


def test_datasets_as_elements_are_windows_or_refused():
    ranges = tf.data.Dataset.range(3).map(lambda x: tf.data.Dataset.range(x))
    position = Position(ranges.prefetch(1).flat_map(lambda x: x))
    with tf.Session() as session:
        session.run(position.begin)
        session.run(position.next)
        with pytest.raises(tf.errors.UnimplementedError, match="Range"):
            position.save(session)


def test_random_damage():
    numbers = tf.data.Dataset.range(20)
    dataset = tf.data.Dataset.zip((
        numbers.map(lambda x: x * 2, num_parallel_calls=2).shuffle(4),
        numbers.interleave(lambda x: tf.data.Dataset.range(x), 3, 2).repeat(),
        numbers.apply(tf.data.experimental.group_by_window(
            lambda x: x % 2, lambda _, window: window.batch(3), 3)).repeat(),
        numbers.flat_map(lambda x: tf.data.Dataset.from_tensors(x)).prefetch(2),
    ))  # fmt: skip
    position = Position(dataset)
    seed = random.randrange(1 << 30)
    print("seed", seed)
    choose = random.Random(seed)

    def edit(data):
        at = choose.randrange(len(data))
        return choose.choice([
            data[:at] + bytes([data[at] ^ 1 << choose.randrange(8)]) + data[at + 1 :],
            data[:at] + choose.randbytes(2) + data[at:],
            data[:at],
        ])  # fmt: skip

    with tf.Session() as session:
        session.run(position.begin)
        for _ in range(7):
            session.run(position.next)
        message = position.save(session)
        for _ in range(60):
            try:
                position.restore(session, changed(message, edit), timeout_in_ms=5000)
                session.run(position.next, options=tf.RunOptions(timeout_in_ms=5000))
            except (*ERRORS, tf.errors.OutOfRangeError):
                pass
        position.restore(session, message)
        session.run(position.next)
