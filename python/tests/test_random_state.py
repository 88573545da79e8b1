"""The state of random ops in checkpoints: a run that is resumed draws the numbers that it would
have drawn."""

import numpy as np
import pytest
from tensorflow_twin import needs_tensorflow, run_tensorflow

import millrace.compat.v1 as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield
    tf.summary.FileWriterCache.clear()


def numbers():
    """Random numbers of every kind of place, none of them with a seed: a tensor."""
    yes = tf.placeholder_with_default(True, [])
    in_branch = tf.cond(yes, lambda: tf.random_uniform([2]), lambda: tf.zeros([2]))
    in_loop = tf.while_loop(
        lambda i, total: i < 3, lambda i, total: (i + 1, total + tf.random_normal([2])),
        (0, tf.zeros([2])), parallel_iterations=1,
    )[1]  # fmt: skip
    dropped = tf.nn.dropout(tf.ones([6]), rate=0.5)
    shuffled = tf.random_shuffle(tf.range(6.0))
    gamma = tf.random_gamma([2], 2.0)
    drawn = tf.cast(tf.multinomial(tf.zeros([1, 9]), 4)[0], tf.float32)
    _, expected, _ = tf.nn.learned_unigram_candidate_sampler(
        tf.constant([[1]], tf.int64), 1, 2, False, 5
    )
    parts = [in_branch, in_loop, dropped, shuffled, gamma, drawn, expected[0]]
    return tf.concat(parts, 0)


def draw(session, tensor, times=3):
    return np.stack([session.run(tensor) for _ in range(times)])


def test_another_session_draws_what_comes_next(tmp_path):
    tensor = numbers()
    tf.get_variable("v", [])
    saver = tf.train.Saver(random_state=True)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        draw(session, tensor)
        path = saver.save(session, str(tmp_path / "model"))
        after = draw(session, tensor)
    for _ in range(2):
        with tf.Session() as session:
            saver.restore(session, path)
            np.testing.assert_array_equal(draw(session, tensor), after)
    with tf.Graph().as_default():  # and so does the graph in the file
        saver = tf.train.import_meta_graph(f"{path}.meta")
        with tf.Session() as session:
            saver.restore(session, path)
            np.testing.assert_array_equal(draw(session, tensor.name), after)


def test_a_saver_holds_variables_only_unless_it_is_asked(tmp_path):
    numbers()
    tf.get_variable("v", [])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        plain = tf.train.Saver().save(session, str(tmp_path / "plain"))
        asked = tf.train.Saver(random_state=True).save(session, str(tmp_path / "asked"))
        assert [name for name, _ in tf.train.list_variables(plain)] == ["v"]
        assert tf.train.list_variables(asked) == [("_RANDOM_STATE", []), ("v", [])]
        # Either reads what the other wrote.
        tf.train.Saver(random_state=True).restore(session, plain)
        tf.train.Saver().restore(session, asked)


def test_another_graph_takes_what_it_knows(tmp_path):
    tf.get_variable("v", [])
    kept = tf.random_uniform([3], name="kept")
    gone = tf.random_uniform([3], name="gone")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run([kept, gone])
        path = tf.train.Saver(random_state=True).save(session, str(tmp_path / "model"))
        expected = session.run(kept)
    with tf.Graph().as_default():
        tf.get_variable("v", [])
        kept = tf.random_uniform([3], name="kept")
        new = tf.random_uniform([3], name="new")
        with tf.Session() as session:
            tf.train.Saver(random_state=True).restore(session, path)
            values = session.run([kept, new])
        np.testing.assert_array_equal(values[0], expected)


def watched(folder, steps, master=""):
    """The numbers that the steps of a watched session drew."""
    with tf.Graph().as_default():
        step = tf.train.get_or_create_global_step()
        tensor = numbers()
        train = tf.assign_add(step, 1)
        hooks = [tf.train.StopAtStepHook(last_step=steps)]
        with tf.train.MonitoredTrainingSession(
            master, checkpoint_dir=folder, hooks=hooks, save_checkpoint_steps=2
        ) as session:
            return [session.run([train, tensor])[1] for _ in iter(session.should_stop, True)]


@pytest.mark.parametrize("in_server", [False, True])
def test_watched_sessions_save_it(tmp_path, in_server):
    master = tf.train.Server.create_local_server().target if in_server else ""
    watched(str(tmp_path), 4, master)
    assert ("_RANDOM_STATE", []) in tf.train.list_variables(str(tmp_path))
    state = tf.train.get_checkpoint_state(str(tmp_path))
    at_two = next(path for path in state.all_model_checkpoint_paths if path.endswith("-2"))
    from_four = watched(str(tmp_path), 6, master)
    tf.train.update_checkpoint_state(str(tmp_path), at_two)
    again = watched(str(tmp_path), 6, master)
    np.testing.assert_array_equal(again[2:], from_four)


def test_supervisors_save_it(tmp_path):
    tf.train.get_or_create_global_step()
    supervisor = tf.train.Supervisor(logdir=str(tmp_path))
    with supervisor.managed_session() as session:
        path = supervisor.saver.save(session, str(tmp_path / "model"))
    assert tf.train.list_variables(path) == [("_RANDOM_STATE", []), ("global_step", [])]


def noisy(x):
    return tf.cast(x, tf.float32) + tf.random_uniform([])


PIPELINES = {
    "map": lambda d: d.map(noisy),
    "prefetch": lambda d: d.map(noisy).prefetch(3),
    "parallel": lambda d: d.map(noisy, num_parallel_calls=1).prefetch(2),
    "batch": lambda d: d.map(noisy).shuffle(5).batch(2),
    "filter": lambda d: d.repeat(9).filter(lambda x: tf.random_uniform([]) < 0.5),
    "nested": lambda d: d.interleave(lambda x: tf.data.Dataset.range(x, x + 3).map(noisy), 2),
    "scan": lambda d: d.apply(
        tf.data.experimental.scan(0.0, lambda s, x: (s + tf.random_uniform([]), s))
    ),
}


@pytest.mark.parametrize("kind", PIPELINES)
def test_functions_of_datasets_go_on_with_their_iterator(tmp_path, kind):
    dataset = PIPELINES[kind](tf.data.Dataset.range(20))
    iterator = dataset.make_initializable_iterator()
    element = iterator.get_next()
    saveable = tf.data.experimental.make_saveable_from_iterator(iterator)
    saver = tf.train.Saver([saveable], random_state=True)

    def rest(session):
        return [session.run(element) for _ in range(5)]

    with tf.Session() as session:
        session.run(iterator.initializer)
        for _ in range(4):
            session.run(element)
        path = saver.save(session, str(tmp_path / "model"))
        after = rest(session)
        saver.restore(session, path)
        np.testing.assert_array_equal(rest(session), after)
    with tf.Session() as session:
        saver.restore(session, path)
        np.testing.assert_array_equal(rest(session), after)


@needs_tensorflow
def test_tensorflow_reads_graph_and_checkpoint(tmp_path):
    value = tf.get_variable("v", initializer=2.0)
    drawn = tf.nn.dropout(tf.ones([3]), rate=0.5)
    saver = tf.train.Saver(random_state=True, sharded=True)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(drawn)
        path = saver.save(session, str(tmp_path / "model"))
    told = run_tensorflow(
        """
        tf.disable_v2_behavior()
        saver = tf.train.import_meta_graph(args[0] + ".meta")
        with tf.Session() as session:
            saver.restore(session, args[0])
            print(session.run("v:0"))
            saver.save(session, args[0] + "-resaved", write_state=False)
        """,
        path,
    )
    assert told.strip() == "2.0"
    with tf.Session() as session:
        saver.restore(session, path + "-resaved")  # without a state: numbers begin anew
        assert session.run(value) == 2.0
