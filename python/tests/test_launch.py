"""`millrace launch`."""

import os
import signal
import subprocess
import sys
import textwrap

HEAD = """
import json, os, sys, time
import tensorflow as tf
config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]
"""


def launch(tmp_path, program, *arguments):
    script = tmp_path / "program.py"
    script.write_text(HEAD + textwrap.dedent(program))
    command = [sys.executable, "-m", "millrace", "launch", *arguments, str(script)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, sorted(out.splitlines()), err


def test_workers_train_beside_parameter_servers(tmp_path):
    program = """
        server = tf.train.Server(config["cluster"], job, index)
        if job == "ps":
            server.join()
        with tf.device(tf.train.replica_device_setter(cluster=config["cluster"])):
            v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
            w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
        add = [tf.assign_add(x, by, use_locking=True) for x, by in ((v, 1.0), (w, 2.0))]
        with tf.train.MonitoredTrainingSession(server.target, is_chief=index == 0) as session:
            for _ in range(20):
                session.run(add)
            while session.run(w) < 80:
                time.sleep(0.01)
            print("sees", session.run(v), session.run(w))
    """
    code, lines, err = finish(launch(tmp_path, program, "-n", "2", "--ps", "2"))
    assert (code, err) == (0, "")
    assert lines == ["worker 0 | sees 40.0 80.0", "worker 1 | sees 40.0 80.0"]


def test_a_task_that_fails_is_started_again(tmp_path):
    program = f"""
        mark = os.path.join({str(tmp_path)!r}, f"failed{{index}}")
        if index == 1 and not os.path.exists(mark):
            open(mark, "w").close()
            sys.exit(3)
        print("done")
    """
    code, lines, err = finish(launch(tmp_path, program, "-n", "2", "--restart", "1"))
    assert code == 0 and lines == ["worker 0 | done", "worker 1 | done"]
    assert err == "millrace launch: worker 1 ended with 3; started again, 1 of 1\n"


def test_the_last_failure_ends_all(tmp_path):
    program = """
        if index == 1:
            os.kill(os.getpid(), 9)
        time.sleep(600)
    """
    code, lines, err = finish(launch(tmp_path, program, "-n", "2"))
    assert code == 137 and lines == []
    assert err == "millrace launch: worker 1 was ended by SIGKILL; all tasks are stopped\n"


def test_signals_are_passed_on(tmp_path):
    program = """
        import signal
        signal.signal(signal.SIGTERM, lambda *_: (print("told"), os._exit(0)))
        print("up")
        time.sleep(600)
    """
    process = launch(tmp_path, program, "-n", "2")
    assert process.stdout.readline().endswith(" | up\n")
    assert process.stdout.readline().endswith(" | up\n")
    os.kill(process.pid, signal.SIGTERM)
    code, lines, err = finish(process)
    assert code == 143 and lines == ["worker 0 | told", "worker 1 | told"]
    assert err == "millrace launch: stops, for SIGTERM\n"


def test_wrong_arguments_are_refused(tmp_path):
    def run(*arguments):
        command = [sys.executable, "-m", "millrace", "launch", *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    assert run(str(tmp_path / "absent.py")).returncode == 1
    assert run("-n", "-1", "x.py").returncode == 2
    assert run("-n", "0", __file__).returncode == 1
    assert run("--help").returncode == 0


def test_synchronous_workers_end_together(tmp_path):
    program = """
        server = tf.train.Server(config["cluster"], job, index)
        if job == "ps":
            server.join()
        with tf.device(tf.train.replica_device_setter(cluster=config["cluster"])):
            step = tf.train.get_or_create_global_step()
            w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
            descent = tf.train.GradientDescentOptimizer(0.5)
            optimizer = tf.train.SyncReplicasOptimizer(descent, 2, total_num_replicas=2)
            train = optimizer.minimize(tf.square(w - 1.0), global_step=step)
        hooks = [optimizer.make_session_run_hook(index == 0), tf.train.StopAtStepHook(last_step=9)]
        with tf.train.MonitoredTrainingSession(server.target, index == 0, hooks=hooks) as session:
            while not session.should_stop():
                value = session.run([w, train])[0]
        print(f"{value:.3f}")
    """
    code, lines, err = finish(launch(tmp_path, program, "-n", "2", "--ps", "1"))
    assert (code, err) == (0, "")
    # The accumulator that the chief waits in at the end is given up at once.
    assert lines == ["worker 0 | 1.000", "worker 1 | 1.000"]
