"""The training loop with files: checkpoints, summaries, recovery, and the end by a signal."""

import io
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tensorflow_twin import needs_tensorflow, run_tensorflow
from training_program import digest as digest_of

import millrace.compat.v1 as tf
from millrace.train.progress import ProgressHook, progress_text

PROGRAM = Path(__file__).with_name("training_program.py")
KILLS = int(os.environ.get("MILLRACE_KILLS", 3))
STEPS = 12 * KILLS


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield
    tf.summary.FileWriterCache.clear()


def counting():
    """A model that counts: the operation of a step."""
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    tf.summary.scalar("height", w)
    return tf.group(tf.assign_add(step, 1), tf.assign_add(w, 0.5))


def training(folder, steps, **kwargs):
    """Trains a new graph up to a number of steps."""
    with tf.Graph().as_default():
        train = counting()
        hooks = [tf.train.StopAtStepHook(last_step=steps), *kwargs.pop("hooks", [])]
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=str(folder), hooks=hooks, **kwargs
        ) as session:
            while not session.should_stop():
                session.run(train)


def events(folder):
    """The events of a folder, in order."""
    tf.summary.FileWriterCache.clear()
    return [
        event
        for path in sorted(Path(folder).glob("events.*"))
        for event in tf.train.summary_iterator(str(path))
    ]


# Checkpoints.


def test_a_second_session_goes_on(tmp_path):
    training(tmp_path, 7, save_checkpoint_steps=3)
    state = tf.train.get_checkpoint_state(str(tmp_path))
    saved = [int(path.rpartition("-")[2]) for path in state.all_model_checkpoint_paths]
    assert saved == [0, 3, 6, 7]
    training(tmp_path, 9)
    assert tf.train.load_variable(str(tmp_path), "w") == 4.5
    assert tf.train.load_variable(str(tmp_path), "global_step") == 9
    assert (tmp_path / "graph.pbtxt").exists()


def test_listeners_are_told_and_may_stop(tmp_path):
    told = []

    class Listener(tf.train.CheckpointSaverListener):
        def begin(self):
            told.append("begin")

        def before_save(self, session, step):
            told.append(("before", int(step)))

        def after_save(self, session, step):
            told.append(("after", int(step)))
            return step >= 4

        def end(self, session, step):
            told.append(("end", int(step)))

    train = counting()
    saver = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=2, listeners=[Listener()])
    tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
    with tf.train.MonitoredSession(hooks=[saver]) as session:
        while not session.should_stop():
            session.run(train)
    pairs = [(when, step) for step in (0, 2, 4) for when in ("before", "after")]
    assert told == ["begin", *pairs, ("end", 4)]


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path):
    training(tmp_path, 4, save_checkpoint_steps=2)
    data = tmp_path / "model.ckpt-4.data-00000-of-00001"
    data.write_bytes(bytes(len(data.read_bytes())))
    training(tmp_path, 5)
    assert tf.train.load_variable(str(tmp_path), "w") == 2.5


def test_a_worker_waits_for_a_session_that_is_ready(tmp_path):
    training(tmp_path, 2)
    counting()
    saver = tf.train.Saver()
    manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables())
    session, restored = manager.recover_session("", saver=saver, checkpoint_dir=str(tmp_path))
    with session:
        assert restored and session.run("w:0") == 1.0
    session, restored = manager.recover_session(
        "", saver=saver, checkpoint_dir=str(tmp_path / "none")
    )
    session.close()
    assert not restored
    with pytest.raises(tf.errors.DeadlineExceededError):
        tf.train.SessionManager(
            ready_op=tf.report_uninitialized_variables(), recovery_wait_secs=0.01
        ).wait_for_session("", max_wait_secs=0.02)


@needs_tensorflow
def test_tensorflow_goes_on_with_graph_and_checkpoint(tmp_path):
    training(tmp_path, 3)
    told = run_tensorflow(
        """
        tf.disable_v2_behavior()
        path = tf.train.latest_checkpoint(args[0])
        saver = tf.train.import_meta_graph(path + ".meta")
        with tf.Session() as session:
            saver.restore(session, path)
            session.run("group_deps")
            print(session.run(["global_step:0", "w:0"]))
        """,
        tmp_path,
    )
    assert told.strip() == "[4, 2.0]"


# Summaries.


def test_summaries_and_rates_are_written(tmp_path):
    training(tmp_path, 20, save_summaries_steps=5, log_step_count_steps=10)
    found = events(tmp_path)
    values = {
        (value.tag, event.step): value.simple_value
        for event in found
        for value in event.summary.value
    }
    assert [step for tag, step in values if tag == "height"] == [1, 6, 11, 16]
    assert values["height", 11] in (5.0, 5.5)  # beside the step that is being made
    assert [step for tag, step in values if tag == "global_step/sec"] == [11]
    statuses = [event.session_log.status for event in found if event.HasField("session_log")]
    log = tf.SessionLog
    assert log.START in statuses and statuses.count(log.CHECKPOINT) == 2
    assert any(event.graph_def for event in found)


def test_supervisor_saves_and_writes(tmp_path):
    train = counting()
    supervisor = tf.train.Supervisor(logdir=str(tmp_path), save_model_secs=600)

    def step(session):
        session.run(train)
        supervisor.saver.save(session, supervisor.save_path, global_step=supervisor.global_step)
        if session.run(supervisor.global_step) == 3:
            supervisor.request_stop()

    tf.train.basic_train_loop(supervisor, step)
    with tf.Graph().as_default():
        counting()
        again = tf.train.Supervisor(logdir=str(tmp_path))
        with again.managed_session() as session:
            assert session.run("global_step:0") == 3
    assert any(event.session_log.status == tf.SessionLog.STOP for event in events(tmp_path))


# The line on a terminal.


def test_progress_line(monkeypatch):
    monkeypatch.setattr("millrace.train.progress._SECONDS_BETWEEN", 0.0)
    assert progress_text(30, 120, 15.0) == "step 30/120  25%  15.0 steps/s  0:00:06 left"
    assert progress_text(30, None, 15.0) == "step 30  15.0 steps/s"
    assert progress_text(3, 5, 0.0) == "step 3/5  60%  0.0 steps/s"
    train = counting()
    screen = io.StringIO()
    stop = tf.train.StopAtStepHook(num_steps=3)
    with tf.train.MonitoredSession(hooks=[stop, ProgressHook([stop], screen)]) as session:
        session.run(train)
        session.run(train)
    assert "/3  " in screen.getvalue() and screen.getvalue().endswith("\x1b[K")


def test_no_line_without_a_terminal(tmp_path, capfd):
    training(tmp_path, 2)
    assert capfd.readouterr().err == ""


# The end by a signal.


def run_program(folder, kill=None, sent=signal.SIGKILL, beside=False):
    """(exit status, digest or None) of the program, which gets a signal after so many steps."""
    command = [sys.executable, PROGRAM, folder, str(STEPS), *(["beside"] if beside else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        out = None
        for count, line in enumerate(program.stdout):
            kind, _, value = line.strip().partition(" ")
            if kind == "digest":
                out = value
            elif kill is not None and count >= kill:
                program.send_signal(sent)
                kill = None
    return program.returncode, out


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The digest of a run that nobody kills."""
    status, digest = run_program(tmp_path_factory.mktemp("unbroken"))
    assert status == 0
    return digest


def test_killed_runs_end_as_the_unbroken_one(tmp_path, unbroken):
    seed = int(os.environ.get("MILLRACE_SEED", random.randrange(10**6)))
    print("seed", seed)
    chance = random.Random(seed)
    killed = 0
    while killed < KILLS:
        beside = chance.random() < 0.5
        status, digest = run_program(tmp_path, kill=chance.randrange(10), beside=beside)
        if status == 0:  # it came to its end before the signal did
            break
        killed += 1
        assert status == -signal.SIGKILL
        newest = tf.train.latest_checkpoint(tmp_path)
        assert newest is None or digest_of(newest)  # whole: all of it can be read
    else:
        status, digest = run_program(tmp_path)
    print("kills", killed)
    assert killed and (status, digest) == (0, unbroken)


@pytest.mark.parametrize("beside", [False, True])
def test_sigterm_saves_and_ends(tmp_path, unbroken, beside):
    status, digest = run_program(tmp_path, kill=4, sent=signal.SIGTERM, beside=beside)
    assert status == 143 and digest is None
    assert tf.train.load_variable(str(tmp_path), "global_step") >= 5
    assert run_program(tmp_path) == (0, unbroken)


def test_sigterm_is_the_programs_where_it_has_a_handler(tmp_path):
    got = []
    before = signal.signal(signal.SIGTERM, lambda *_: got.append(1))
    try:
        train = counting()
        with tf.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as session:
            os.kill(os.getpid(), signal.SIGTERM)
            session.run(train)
        assert got == [1]
    finally:
        signal.signal(signal.SIGTERM, before)
    with tf.Graph().as_default():
        counting()
        with tf.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)):
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_changed_resource_variables_can_be_fetched_from_a_final_graph():
    v = tf.get_variable("v", [], initializer=tf.zeros_initializer(), use_resource=True)
    changed = v.assign_add(2.0)
    with tf.train.MonitoredSession() as session:
        assert session.run(changed) == 2.0
