"""`millrace launch`."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import time

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


class Terminal:
    """A launch on a terminal of 24 lines and 70 columns; `out`: where its standard output goes
    instead, if given."""

    def __init__(self, tmp_path, program, *arguments, out=None, **variables):
        script = tmp_path / "program.py"
        script.write_text(HEAD + textwrap.dedent(program))
        self._end, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 70, 0, 0))
        environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "", **variables}
        for name in ("COLUMNS", "LINES"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "millrace", "launch", *arguments, str(script)],
            stdout=terminal if out is None else out,
            stderr=terminal,
            env=environment,
        )
        os.close(terminal)
        self.text = ""

    def read_until(self, pattern):
        """Until what was written has the pattern; pytest's own limits end a wait in vain."""
        end = time.monotonic() + 120
        while not re.search(pattern, self.text):
            assert time.monotonic() < end, self.text
            self.text += self._chunk()
        return self.text

    def finish(self):
        while chunk := self._chunk():
            self.text += chunk
        os.close(self._end)
        return self.process.wait(timeout=60)

    def _chunk(self):
        try:
            return os.read(self._end, 65536).decode()
        except OSError:  # all that had the terminal have ended
            return ""


def screen(text):
    """The lines that stand on a terminal after `text`, without colours."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[[0-9]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1])
        elif part == "\x1b[J":
            del lines[row + 1 :]
            lines[row] = ""
        elif not part.startswith(("\x1b", "\r")):
            lines[row] += part
    return lines


def test_a_terminal_shows_a_live_table(tmp_path):
    program = """
        print("hello", flush=True)
        while index == 0 and not os.path.exists("go"):
            time.sleep(0.01)
        print("a" * 200)
    """
    terminal = Terminal(tmp_path, f"os.chdir({str(tmp_path)!r})" + textwrap.dedent(program),
                        "-n", "2")  # fmt: skip
    terminal.read_until(r"worker 1\x1b\[0m +\d+  ended")  # the other one waits
    shown = screen(terminal.read_until(r"worker 0\x1b\[0m +\d+  runs +0 +0:00:\d\d  hello"))
    (tmp_path / "go").touch()
    assert terminal.finish() == 0
    assert any(line.startswith("task      pid") for line in shown)
    final = screen(terminal.text)
    table = [line for line in final if re.match(r"task|worker \d  +\d", line)]
    assert re.split(r"  +", table[0]) == ["task", "pid", "state", "restarts", "time", "last line"]
    assert len(table) == 3 and final[-4:-1] == table, final
    for i, line in enumerate(table[1:]):
        cells = re.split(r"  +", line)
        assert cells[0] == f"worker {i}" and cells[2:4] == ["ended", "0"]
        assert re.fullmatch(r"0:0\d:\d\d", cells[4]) and set(cells[5]) == {"a"}
        assert len(line) < 70
    # All that was printed stands above it, once.
    assert sorted(line[:12] for line in final[:-4]) == [
        "worker 0 | a", "worker 0 | h", "worker 1 | a", "worker 1 | h",
    ]  # fmt: skip
    assert "\x1b[36mworker 0\x1b[0m" in terminal.text


def test_colours_are_left_out_when_asked(tmp_path):
    terminal = Terminal(tmp_path, "print('hello')", "-n", "1", NO_COLOR="1")
    assert terminal.finish() == 0
    assert "worker 0 | hello" in terminal.text and "last line" in terminal.text
    assert not re.search(r"\x1b\[[0-9]*m", terminal.text)


def test_a_simple_terminal_has_lines_only(tmp_path):
    terminal = Terminal(tmp_path, "print('hello')", "-n", "1", TERM="dumb")
    assert terminal.finish() == 0
    assert terminal.text == "worker 0 | hello\r\n"


def test_the_table_counts_restarts_while_lines_go_elsewhere(tmp_path):
    program = """
        if not os.path.exists(mark := os.path.join(os.path.dirname(sys.argv[0]), "failed")):
            open(mark, "w").close()
            sys.exit(3)
        print("done")
    """
    with open(tmp_path / "out", "w") as out:
        terminal = Terminal(tmp_path, program, "--restart", "1", out=out)
        assert terminal.finish() == 0
    assert (tmp_path / "out").read_text() == "worker 0 | done\n"
    final = screen(terminal.text)
    assert final[0] == "millrace launch: worker 0 ended with 3; started again, 1 of 1"
    assert re.fullmatch(r"worker 0  +\d+  ended  1 +0:\d\d:\d\d  done", final[2])


def test_ctrl_c_on_a_terminal_ends_all(tmp_path):
    program = """
        print("up", flush=True)
        time.sleep(600)
    """
    terminal = Terminal(tmp_path, program, "-n", "2")
    terminal.read_until(r"worker 0\S* \| up")
    terminal.read_until(r"worker 1\S* \| up")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.finish() == 130
    assert "millrace launch: stops, for SIGINT" in terminal.text
    assert len(re.findall(r"SIGINT|failed", screen(terminal.text)[-2])) == 1


def fake_ssh(folder, monkeypatch):
    """A program ssh that runs what it is given here, and notes for which host."""
    ssh = folder / "ssh"
    ssh.write_text(
        "#!/bin/sh\n"
        '[ "$1 $2 $3" = "-T -o BatchMode=yes" ] || exit 9\n'
        f'echo "$4" >> {folder}/hosts\n'
        'exec sh -c "$5"\n'
    )
    ssh.chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_tasks_on_other_machines(tmp_path, monkeypatch):
    fake_ssh(tmp_path, monkeypatch)
    monkeypatch.setenv("MILLRACE_QUOTED", "it's $HOME")
    # SIGTERM does not wake the parameter server's main thread: another thread takes it.
    program = f"""
        import signal
        ready = {str(tmp_path / "ready")!r}
        if job == "ps":
            signal.signal(signal.SIGTERM, lambda *_: (print("told"), os._exit(0)))
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            open(ready, "w").close()
            time.sleep(600)
        while not os.path.exists(ready):
            time.sleep(0.01)
        print(config["cluster"]["worker"][index], os.environ["MILLRACE_QUOTED"], sys.argv[1:])
    """
    script = tmp_path / "program.py"
    script.write_text(HEAD + textwrap.dedent(program))
    options = ["--hosts", "a,me@b", "--port", "4000", "-n", "2", "--ps", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "millrace", "launch", *options, str(script), "x y"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    code, lines, err = finish(process)
    assert (code, err) == (0, "")
    assert lines == [
        "ps 0     | told",
        "worker 0 | b:4001 it's $HOME ['x y']",
        "worker 1 | a:4002 it's $HOME ['x y']",
    ]
    assert sorted((tmp_path / "hosts").read_text().split()) == ["a", "a", "me@b"]


def test_a_task_on_another_machine_ends_with_its_launcher(tmp_path, monkeypatch):
    fake_ssh(tmp_path, monkeypatch)
    program = f"""
        from pathlib import Path
        folder = Path({str(tmp_path)!r})
        import signal
        signal.signal(signal.SIGTERM, lambda *_: ((folder / "told").touch(), os._exit(0)))
        print("up", flush=True)
        time.sleep(600)
    """
    process = launch(tmp_path, program, "--hosts", "a")
    assert process.stdout.readline() == "worker 0 | up\n"
    process.kill()
    process.communicate()
    end = time.monotonic() + 60
    while not (tmp_path / "told").exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_hosts_that_cannot_be(tmp_path):
    for hosts in ("-oProxyCommand=x", "a,,b", "a b", "", "a;b", "$(x)"):
        process = launch(tmp_path, "", f"--hosts={hosts}")
        code, lines, err = finish(process)
        assert code == 1 and lines == [] and "--hosts: expected names between commas" in err
    assert finish(launch(tmp_path, "", "--hosts", "a", "--port", "65536"))[0] == 2
    code, _, err = finish(launch(tmp_path, "", "--hosts", "a", "--port", "65535", "-n", "2"))
    assert code == 1 and "--port" in err


def test_what_a_task_leaves_running_is_not_waited_for(tmp_path):
    program = """
        import subprocess
        left = subprocess.Popen(["sleep", "600"], start_new_session=True)
        print(left.pid)
    """
    process = launch(tmp_path, program)
    left = int(process.stdout.readline().removeprefix("worker 0 | "))
    try:
        assert process.wait(timeout=60) == 0
    finally:
        os.kill(left, signal.SIGKILL)


def test_a_task_whose_port_was_taken_comes_back_elsewhere(tmp_path):
    program = f"""
        import subprocess
        from pathlib import Path
        address = config["cluster"][job][index]
        holder = Path({str(tmp_path)!r}, "holder")
        if job == "ps" and not holder.exists():
            hold = "import socket, sys, time; s = socket.create_server(('localhost', "
            hold += "int(sys.argv[1]))); print('held', flush=True); time.sleep(600)"
            held = subprocess.Popen([sys.executable, "-c", hold, address.rpartition(":")[2]],
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                    start_new_session=True)
            held.stdout.readline()
            holder.write_text(str(held.pid))
            sys.exit(3)
        server = tf.train.Server(config["cluster"], job, index)
        if job == "ps":
            server.join()
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", [], initializer=tf.ones_initializer())
        with tf.train.MonitoredTrainingSession(server.target) as session:
            print("sees", session.run(v))
    """
    process = launch(tmp_path, program, "--ps", "1", "--restart", "1")
    try:
        code, lines, err = finish(process)
    finally:
        os.kill(int((tmp_path / "holder").read_text()), signal.SIGKILL)
    assert code == 0 and lines == ["worker 0 | sees 1.0"], (lines, err)
    assert re.search(r"ps 0 moves to localhost:\d+: another program has localhost:\d+\n", err), err
