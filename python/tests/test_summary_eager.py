"""tf.summary of TensorFlow 2: summaries that go to the default writer, at once and in functions."""

import io
import wave

import numpy as np
import pytest

import millrace as tf
import millrace.compat.v1 as v1
from millrace import _core, protos


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


@pytest.fixture
def writer(tmp_path):
    made = tf.summary.create_file_writer(tmp_path / "logs")
    yield made
    made.close()


@pytest.fixture
def told(writer, tmp_path):
    def read():
        writer.close()
        (path,) = (tmp_path / "logs").glob("*")
        return [
            (event.step, value)
            for event in v1.train.summary_iterator(str(path))
            for value in event.summary.value
        ]

    return read


def kind(value):
    return value.metadata.plugin_data.plugin_name, value.metadata.data_class


def test_numbers(writer, told):
    with writer.as_default():
        assert tf.summary.scalar("loss", tf.constant(2.5, tf.float64), step=3).numpy()
        with tf.name_scope("train"):
            tf.summary.scalar("loss", 1, step=tf.Variable(4), description="of training")
    (first, a), (second, b) = told()
    assert (first, a.tag, kind(a)) == (3, "loss", ("scalars", 1))
    assert (second, b.tag, b.metadata.summary_description) == (4, "train/loss", "of training")
    assert tf.make_ndarray(a.tensor) == np.float32(2.5)
    assert tf.make_ndarray(a.tensor).dtype == tf.make_ndarray(b.tensor).dtype == np.float32


def test_histograms(writer, told):
    with writer.as_default(step=1):
        tf.summary.histogram("spread", [0.0, 1.0, 1.0, 4.0], buckets=2)
        tf.summary.histogram("one", [3, 3], buckets=2)
        tf.summary.histogram("none", tf.zeros([0]), buckets=2)
    spread, one, none = [tf.make_ndarray(value.tensor).tolist() for _, value in told()]
    assert spread == [[0, 2, 3], [2, 4, 1]]
    assert one == [[3, 3, 0], [3, 3, 2]] and none == [[0, 0, 0]] * 2


def test_images_text_and_sounds(writer, told):
    with writer.as_default(step=1):
        tf.summary.image("picture", np.zeros([5, 2, 3, 1], np.float32), max_outputs=2)
        tf.summary.text("words", ["a", "b"])
        tf.summary.audio("sound", np.float32([[[0.0], [1.0]]]), 8000)
    picture, words, sound = [(kind(v), tf.make_ndarray(v.tensor)) for _, v in told()]
    assert picture[0] == ("images", 3) and picture[1][:2].tolist() == [b"3", b"2"]
    assert len(picture[1]) == 4 and tf.image.decode_png(picture[1][2]).shape.as_list() == [2, 3, 1]
    assert words[0] == ("text", 2) and words[1].tolist() == [b"a", b"b"]
    assert sound[0] == ("audio", 3) and sound[1].shape == (1, 2)
    with wave.open(io.BytesIO(sound[1][0, 0])) as file:
        assert (file.getframerate(), file.readframes(2)) == (8000, b"\x00\x00\xff\x7f")


def test_functions_tell_when_they_run(writer, told):
    step = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def train(x):
        with writer.as_default(step=step), tf.summary.record_if(lambda: step % 2 == 0):
            tf.summary.scalar("x", x)

    for i in range(4):
        step.assign(i)
        train(tf.constant(10.0 * i))
    assert [(s, float(tf.make_ndarray(v.tensor))) for s, v in told()] == [(0, 0), (2, 20)]


def test_steps(writer, told):
    with writer.as_default():
        with pytest.raises(ValueError, match="No step set"):
            tf.summary.scalar("x", 1.0)
        tf.summary.experimental.set_step(5)
        try:
            tf.summary.scalar("x", 1.0)
            with writer.as_default(step=6):
                assert tf.summary.experimental.get_step() == 6
            assert tf.summary.experimental.get_step() == 5
        finally:
            tf.summary.experimental.set_step(None)
    assert [step for step, _ in told()] == [5]


def test_what_is_not_recorded(writer, told):
    assert not tf.summary.scalar("x", 1.0, step=1).numpy()
    assert not tf.summary.should_record_summaries()
    calls = []
    with writer.as_default(step=1):
        assert tf.summary.should_record_summaries()
        with tf.summary.record_if(False):
            assert not tf.summary.write("x", lambda: calls.append(1)).numpy()
        with tf.summary.create_noop_writer().as_default():
            tf.summary.scalar("x", 1.0)
    assert told() == [] and calls == []


def test_messages_and_graphs(writer, told):
    summary = protos.Summary(value=[protos.Summary.Value(tag="own", simple_value=2.0)])
    with writer.as_default():
        assert tf.summary.experimental.write_raw_pb(summary.SerializeToString(), step=7)
        graph = tf.Graph()
        with graph.as_default():
            tf.constant(1)
        assert tf.summary.graph(graph) and tf.summary.graph(graph.as_graph_def())
    ((step, value),) = told()
    assert (step, value.tag, value.simple_value) == (7, "own", 2.0)


def test_wrong_arguments(writer):
    with pytest.raises(ValueError, match="logdir"):
        tf.summary.create_file_writer(None)
    with writer.as_default(step=1):
        with pytest.raises(ValueError, match="scalar"):
            tf.summary.scalar("x", [1.0, 2.0])
        with pytest.raises(TypeError, match="strings"):
            tf.summary.text("x", 1)
        with pytest.raises(ValueError, match="4 dimensions"):
            tf.summary.image("x", np.zeros([2, 2], np.float32))
        with pytest.raises(ValueError, match="encoding"):
            tf.summary.audio("x", np.zeros([1, 2, 1], np.float32), 8000, encoding="mp3")
