"""Summaries and event files."""

import gc
import glob
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from tensorflow_twin import FILES, needs_tensorflow, run_tensorflow

import millrace.compat.v1 as tf
from millrace import protos
from millrace.protos import text_format
from millrace.summary import hparams as hp
from millrace.summary.watch import Folder


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def only_file(logdir):
    (path,) = glob.glob(os.path.join(logdir, "events.out.tfevents.*"))
    return path


def events(logdir):
    return list(tf.train.summary_iterator(only_file(logdir)))


def parsed(session, summary):
    return tf.Summary.FromString(session.run(summary))


def test_tags_are_names_in_scopes(session):
    with tf.name_scope("outer"):
        first = tf.summary.scalar("inner", 3)
        again = tf.summary.scalar("inner", 4)
        family = tf.summary.scalar("x", 1.0, family="f")
    assert parsed(session, first).value[0].tag == "outer/inner"
    assert parsed(session, first).value[0].simple_value == 3
    assert parsed(session, again).value[0].tag == "outer/inner_1"
    assert parsed(session, family).value[0].tag == "f/outer/f/x"


def test_names_that_operations_cannot_have(session):
    assert tf.summary.scalar("with spaces", 1).op.name == "with_spaces"
    assert tf.summary.scalar("/leading/slash", 1).op.name == "leading/slash"


def test_merged(session):
    assert tf.summary.merge_all() is None
    tf.summary.scalar("a", 1.0)
    tf.summary.scalar("b", 2.0, collections=["elsewhere"])
    tf.summary.histogram("c", [1.0, 2.0])
    merged = parsed(session, tf.summary.merge_all())
    assert [value.tag for value in merged.value] == ["a", "c"]
    other = parsed(session, tf.summary.merge_all("elsewhere"))
    assert [value.tag for value in other.value] == ["b"]
    both = tf.summary.merge([tf.constant(b""), merged.SerializeToString()])
    assert len(parsed(session, both).value) == 2


def test_kinds(session):
    image = tf.summary.image("i", np.zeros([4, 2, 3, 1], "uint8"), max_outputs=2)
    assert [v.tag for v in parsed(session, image).value] == ["i/image/0", "i/image/1"]
    audio = tf.summary.audio("s", np.zeros([1, 5]), 8000.0, max_outputs=1)
    assert parsed(session, audio).value[0].tag == "s/audio"
    text = parsed(session, tf.summary.text("t", "*hello*")).value[0]
    assert text.metadata.plugin_data.plugin_name == "text"
    assert tf.make_ndarray(text.tensor).tolist() == b"*hello*"
    tensor = tf.summary.tensor_summary("x", [1, 2], "about", display_name="X")
    value = parsed(session, tensor).value[0]
    assert (value.metadata.summary_description, value.metadata.display_name) == ("about", "X")
    assert tf.make_ndarray(value.tensor).tolist() == [1, 2]
    with pytest.raises(ValueError, match="string"):
        tf.summary.text("t", 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Nan in summary histogram"):
        session.run(tf.summary.histogram("h", [np.nan]))


def test_names_of_long_ago(session):
    tf.scalar_summary(["a", "b"], [1.0, 2.0])
    tf.histogram_summary("h", [1.0])
    tf.image_summary("i", np.zeros([1, 2, 2, 3], "float32"), max_images=1)
    merged = parsed(session, tf.merge_all_summaries())
    assert [v.tag for v in merged.value] == ["a", "b", "h", "i/image"]


def test_a_file_and_what_is_in_it(session, tmp_path):
    logdir = str(tmp_path / "run")
    with tf.summary.FileWriter(logdir, session.graph) as writer:
        assert writer.get_logdir() == logdir
        writer.add_summary(session.run(tf.summary.scalar("a", 1.5)), np.int64(7))
        writer.add_session_log(tf.SessionLog(status=tf.SessionLog.START), 1)
        metadata = tf.RunMetadata()
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        session.run(tf.constant(1) + 2, options=options, run_metadata=metadata)
        writer.add_run_metadata(metadata, "step 1", 8)
        with pytest.raises(ValueError, match="already used"):
            writer.add_run_metadata(metadata, "step 1", 9)
    read = events(logdir)
    kinds = ["file_version", "graph_def", "meta_graph_def", "summary", "session_log",
             "tagged_run_metadata"]  # fmt: skip
    assert [event.WhichOneof("what") for event in read] == kinds
    assert read[0].file_version == "brain.Event:2"
    assert read[3].step == 7 and read[3].summary.value[0].simple_value == 1.5
    stats = tf.RunMetadata.FromString(read[5].tagged_run_metadata.run_metadata).step_stats
    assert any(device.node_stats for device in stats.dev_stats)
    assert all(abs(event.wall_time - read[0].wall_time) < 60 for event in read)


def test_a_closed_writer_goes_on_in_a_new_file(tmp_path):
    writer = tf.summary.FileWriter(str(tmp_path))
    writer.close()
    writer.add_event(tf.Event(step=1))  # told, and dropped
    writer.close()
    writer.reopen()
    writer.add_event(tf.Event(step=2))
    writer.flush()
    paths = sorted(glob.glob(str(tmp_path / "*")))
    assert [len(list(tf.train.summary_iterator(path))) for path in paths] == [1, 2]


def test_how_to_show_a_tag_is_told_once(session, tmp_path):
    summary = session.run(tf.summary.text("t", "x"))
    with tf.summary.FileWriter(str(tmp_path)) as writer:
        writer.add_summary(summary, 1)
        writer.add_summary(summary, 2)
    told = [event.summary.value[0].HasField("metadata") for event in events(tmp_path)[1:]]
    assert told == [True, False]


def test_wrong_graphs(tmp_path):
    graph = tf.Graph()
    with pytest.raises(TypeError, match="instance of `Graph`"):
        tf.summary.FileWriter(str(tmp_path), "a string")
    with pytest.raises(ValueError, match="not both"):
        tf.summary.FileWriter(str(tmp_path), graph, graph_def=graph.as_graph_def())
    with pytest.raises(TypeError, match="MetaGraphDef"):
        tf.summary.FileWriter(str(tmp_path)).add_meta_graph("no")
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_queue"):
        tf.summary.FileWriter(str(tmp_path), max_queue=0)


def test_one_writer_for_each_folder(tmp_path):
    cache = tf.summary.FileWriterCache
    with tf.Graph().as_default():
        one = cache.get(str(tmp_path / "a"))
        assert cache.get(str(tmp_path / "a")) is one
        assert cache.get(str(tmp_path / "b")) is not one
    cache.clear()
    with tf.Graph().as_default():
        assert cache.get(str(tmp_path / "a")) is not one
    cache.clear()


def test_threads_share_a_writer(tmp_path):
    with tf.summary.FileWriter(str(tmp_path), max_queue=2) as writer:

        def write():
            for step in range(50):
                writer.add_event(tf.Event(step=step))

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(events(tmp_path)) == 201


def test_programs_need_not_close(tmp_path):
    program = f"""
import millrace.compat.v1 as tf
writer = tf.summary.FileWriter({str(tmp_path)!r})
for step in range(5):
    writer.add_event(tf.Event(step=step))
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert len(events(tmp_path)) == 6


def test_a_writer_that_nobody_has_ends(tmp_path):
    writer = tf.summary.FileWriter(str(tmp_path))
    writer.add_event(tf.Event(step=1))
    del writer
    gc.collect()
    assert len(events(tmp_path)) == 2


def test_damaged_files(tmp_path):
    with tf.summary.FileWriter(str(tmp_path)) as writer:
        for step in (1, 2):
            writer.add_event(tf.Event(step=step))
    path = only_file(tmp_path)
    with open(path, "rb") as file:
        whole = file.read()
    for i in range(len(whole)):
        with open(path, "wb") as file:
            file.write(whole[:i] + bytes([whole[i] ^ 0x41]) + whole[i + 1 :])
        with pytest.raises(tf.errors.DataLossError):
            events(tmp_path)
        with open(path, "wb") as file:
            file.write(whole[:i])
        try:
            steps = [event.step for event in events(tmp_path)]
        except tf.errors.DataLossError:
            continue
        assert steps == [0, 1, 2][: len(steps)]
    with pytest.raises(tf.errors.NotFoundError):
        next(tf.train.summary_iterator(str(tmp_path / "missing")))


def test_summaries_of_training(session):
    x = tf.placeholder(tf.float32, [None, 3])
    hidden = tf.contrib.layers.fully_connected(x, 4)
    tf.contrib.layers.summarize_activation(hidden)
    tf.contrib.layers.summarize_tensor(tf.identity(1.0, name="one"))
    loss = tf.reduce_mean(hidden)
    tf.contrib.layers.optimize_loss(
        loss, None, 0.1, "SGD", clip_gradients=1.0, summaries=tf.contrib.layers.OPTIMIZER_SUMMARIES
    )
    session.run(tf.global_variables_initializer())
    merged = tf.Summary.FromString(session.run(tf.summary.merge_all(), {x: np.ones([2, 3])}))
    tags = {value.tag for value in merged.value}
    assert {"fully_connected/Relu/zeros", "fully_connected/Relu/activation", "one/summary",
            "OptimizeLoss/loss", "OptimizeLoss/learning_rate_1",
            "OptimizeLoss/global_norm/gradient_norm",
            "OptimizeLoss/global_norm/clipped_gradient_norm",
            "OptimizeLoss/gradients/fully_connected/weights_0"} <= tags  # fmt: skip
    with pytest.raises(ValueError, match="Summaries should be one of"):
        tf.contrib.layers.optimize_loss(loss, None, 0.1, "SGD", summaries=["all"])


def test_queues_tell_how_full_they_are(session):
    tf.train.batch([tf.constant(1)], 2, capacity=8)
    (summary,) = tf.get_collection(tf.GraphKeys.SUMMARIES)
    value = tf.Summary.FromString(session.run(summary)).value[0]
    assert value.tag == "batch/fraction_of_8_full" and value.simple_value == 0


def test_what_tensorflow_wrote():
    one = events(FILES / "events" / "one")
    assert one[0].file_version == "brain.Event:2"
    by_tag = {value.tag: value for value in one[3].summary.value}
    assert set(by_tag) == {"loss", "spread/spread/x", "square/image", "note"}
    assert by_tag["loss"].simple_value == 2.0
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.constant([2.0, 1, 2, 3])
        ours = parsed(session, tf.summary.histogram("h", x)).value[0].histo
        assert ours == by_tag["spread/spread/x"].histo
        png = by_tag["square/image"].image.encoded_image_string
        square = session.run(tf.image.decode_png(png))
        image = tf.summary.image("i", tf.reshape(x, [1, 2, 2, 1]), max_outputs=1)
        ours = parsed(session, image).value[0].image.encoded_image_string
        np.testing.assert_array_equal(session.run(tf.image.decode_png(ours)), square)
    folder = Folder(str(FILES / "events"))
    folder.update()
    assert folder.curves["loss"]["two"].values == pytest.approx([1, 1 / 2, 1 / 3])


def test_hyperparameters(tmp_path):
    rate = hp.HParam("rate", hp.RealInterval(0.001, 0.1), display_name="Learning rate")
    units = hp.HParam("units", hp.Discrete([32, 16]))
    with tf.summary.FileWriter(str(tmp_path)) as writer:
        metric = hp.Metric("loss", group="test", dataset_type=hp.Metric.VALIDATION)
        writer.add_summary(hp.hparams_config_pb([rate, units], [metric], 5.0))
        writer.add_summary(hp.hparams_pb({rate: np.float32(0.5), units: 16, "kind": "a"}, "one"))
        writer.add_summary(hp.session_end_pb(end_time_secs=9.0))
    told = {}
    for event in tf.train.summary_iterator(only_file(tmp_path)):
        for value in event.summary.value:
            data = protos.message_class("tensorboard.hparams.HParamsPluginData")()
            data.ParseFromString(value.metadata.plugin_data.content)
            told[value.tag.removeprefix("_hparams_/")] = data
    first, second = told["experiment"].experiment.hparam_infos
    assert first.display_name == "Learning rate" and first.domain_interval.max_value == 0.1
    assert [v.number_value for v in second.domain_discrete.values] == [16, 32]
    assert told["experiment"].experiment.metric_infos[0].name.group == "test"
    start = told["session_start_info"].session_start_info
    assert start.group_name == "one" and start.hparams["kind"].string_value == "a"
    assert start.hparams["rate"].number_value == 0.5 and start.start_time_secs > 1e9
    assert told["session_end_info"].session_end_info.status == 1


def test_hyperparameters_of_one_trial_have_one_name():
    by_name = hp.hparams_pb({"a": 1, "b": True}, start_time_secs=0)
    by_param = hp.hparams_pb({hp.HParam("b"): True, "a": np.int64(1)}, start_time_secs=0)
    assert by_name == by_param != hp.hparams_pb({"a": 2, "b": True}, start_time_secs=0)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: hp.hparams_pb({"a": [1]}), TypeError),
        (lambda: hp.hparams_pb({"a": 1, hp.HParam("a"): 2}), ValueError),
        (lambda: hp.hparams_pb({}, trial_id=3), TypeError),
        (lambda: hp.HParam("a", [1, 2]), ValueError),
        (lambda: hp.IntInterval(1, 2.5), TypeError),
        (lambda: hp.RealInterval(2.0, 1.0), ValueError),
        (lambda: hp.Discrete([]), ValueError),
        (lambda: hp.Discrete([1, "a"]), TypeError),
        (lambda: hp.Metric("a", dataset_type=3), ValueError),
    ],
)
def test_hyperparameters_that_are_none(call, error):
    with pytest.raises(error):
        call()


def test_embeddings_for_the_projector(tmp_path):
    projector = tf.contrib.tensorboard.plugins.projector
    config = projector.ProjectorConfig()
    embedding = config.embeddings.add(tensor_name="words:0", metadata_path="words.tsv")
    embedding.sprite.single_image_dim.extend([28, 28])
    with tf.summary.FileWriter(str(tmp_path)) as writer:
        projector.visualize_embeddings(writer, config)
    text = (tmp_path / "projector_config.pbtxt").read_text()
    assert text.splitlines()[:2] == ["embeddings {", '  tensor_name: "words:0"']
    assert text_format.Parse(text, projector.ProjectorConfig()) == config


@needs_tensorflow
def test_tensorflow_reads_ours(session, tmp_path):
    with tf.summary.FileWriter(str(tmp_path), session.graph) as writer:
        summary = tf.summary.merge([tf.summary.scalar("a", 1.5), tf.summary.text("t", "hello")])
        writer.add_summary(session.run(summary), 3)
    told = run_tensorflow(
        """
        for event in tf.train.summary_iterator(args[0]):
            for value in event.summary.value:
                text = tensorflow.make_ndarray(value.tensor) if value.HasField("tensor") else ""
                print(event.step, value.tag, value.simple_value, text)
            if event.graph_def:
                tf.import_graph_def(tf.GraphDef.FromString(event.graph_def))
        """,
        only_file(tmp_path),
    )
    assert told.splitlines() == ["3 a 1.5 ", "3 t 0.0 b'hello'"]
