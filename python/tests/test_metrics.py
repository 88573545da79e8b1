"""What a task tells Prometheus."""

import json
import os
import socket
import subprocess
import urllib.error
import urllib.request

import pytest
from cli_runs import run
from cluster_tasks import end, start
from ports import free_ports
from prometheus_text import parse

import millrace.compat.v1 as tf

# An interpreter that has prometheus_client; the tests that need it are left out without it.
PROMETHEUS = os.environ.get("MILLRACE_PROMETHEUS_PYTHON", "")


def page(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return answer.read().decode()


@pytest.fixture
def server(monkeypatch):
    """A task in this process, which has run steps and has a queue with a name of any bytes."""
    monkeypatch.setenv("MILLRACE_METRICS_PORT", "0")
    # With a task that is not there, so that sessions talk to the worker as on any cluster.
    absent = f"localhost:{free_ports(1)}"
    server = tf.train.Server({"ps": ["localhost:0"], "worker": [absent]}, "ps", 0)
    # In a process of its own: here the session would use the devices directly.
    program = """if True:
        import sys
        import millrace.compat.v1 as tf
        queue = tf.FIFOQueue(7, tf.float32, shared_name='a "b" \\\\c\\nd\\xe9')
        put = queue.enqueue(1.0)
        with tf.Session(sys.argv[1], config=tf.ConfigProto(device_filters=["/job:ps"])) as session:
            for _ in range(3):
                session.run(put)
    """
    client = start("-c", program, server.target)
    assert client.wait(timeout=120) == 0, client.stdout.read()
    client.stdout.close()
    yield server
    server.stop()


def test_counters_and_gauges(server):
    assert server.metrics_url.startswith("http://127.0.0.1:")
    families = parse(page(server.metrics_url))
    task = ("task", "/job:ps/replica:0/task:0")
    plain = frozenset([task])
    assert families["millrace_steps_begun_total"] == ("counter", {plain: 3.0})
    assert families["millrace_steps_ended_total"][1] == {plain: 3.0}
    assert families["millrace_steps_failed_total"][1] == {plain: 0.0}
    assert families["millrace_uptime_seconds"][0] == "gauge"
    ((labels, size),) = families["millrace_queue_elements"][1].items()
    assert size == 3 and dict(labels)["queue"] == 'a "b" \\c\nd\\xc3\\xa9'
    assert list(families["millrace_queue_capacity_elements"][1].values()) == [7]
    graphs = frozenset([task, ("peer", "master"), ("kind", "graph")])
    assert families["millrace_received_bytes_total"][1][graphs] > 0
    assert families["millrace_sessions"][1] == {plain: 0.0}


@pytest.mark.skipif(not PROMETHEUS, reason="MILLRACE_PROMETHEUS_PYTHON is not set")
def test_prometheus_reads_the_same(server):
    text = page(server.metrics_url)
    program = """if True:
        import json, sys
        from prometheus_client.parser import text_string_to_metric_families
        print(json.dumps([
            [family.type, sample.name, sorted(sample.labels.items()), sample.value]
            for family in text_string_to_metric_families(sys.stdin.read())
            for sample in family.samples
        ]))
    """
    found = subprocess.run(
        [PROMETHEUS, "-c", program], input=text, capture_output=True, text=True, check=True
    )
    theirs = [(k, n, tuple(map(tuple, ls)), v) for k, n, ls, v in json.loads(found.stdout)]
    ours = [
        (kind, name, tuple(sorted(labels)), value)
        for name, (kind, samples) in parse(text).items()
        for labels, value in samples.items()
    ]
    assert sorted(theirs) == sorted(ours)


def test_the_port_is_of_this_machine_alone(server):
    port = int(server.metrics_url.rpartition(":")[2].partition("/")[0])
    with socket.socket() as other:
        other.settimeout(10)
        own = socket.gethostbyname(socket.gethostname())
        if not own.startswith("127."):
            assert other.connect_ex((own, port)) != 0
    with pytest.raises(urllib.error.HTTPError, match="404"):
        page(server.metrics_url + "x")


def test_with_a_token_others_say_it(tmp_path):
    secret = tmp_path / "token"
    secret.write_text("open-sesame\n")
    task = start(
        "-m", "millrace", "server", "--cluster", "localhost:0", "--metrics-port", 0,
        MILLRACE_CLUSTER_TOKEN_FILE=str(secret),
    )  # fmt: skip
    try:
        assert "listens" in task.stdout.readline()
        url = task.stdout.readline().split()[-1]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            page(url)
        assert parse(page(url, Authorization="Bearer open-sesame"))
    finally:
        end(task)


def test_tasks_of_a_launch_have_ports_in_a_row(tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import os; print(os.environ['MILLRACE_METRICS_PORT'])")
    launch = start("-m", "millrace", "launch", "-n", "2", script, MILLRACE_METRICS_PORT="9100")
    out, _ = launch.communicate(timeout=120)
    assert sorted(out.splitlines()) == ["worker 0 | 9100", "worker 1 | 9101"]


def test_a_port_that_is_none_or_taken(monkeypatch):
    monkeypatch.setenv("MILLRACE_METRICS_PORT", "many")
    with pytest.raises(ValueError, match="MILLRACE_METRICS_PORT: expected a port .* got 'many'"):
        tf.train.Server.create_local_server()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        code, out, err = run("server", "--cluster", "localhost:0", "--metrics-port", port)
        assert (code, out) == (1, "") and f"cannot have port {port} for metrics" in err
    monkeypatch.setenv("MILLRACE_METRICS_PORT", "")
    server = tf.train.Server.create_local_server()
    assert server.metrics_url == ""
    server.stop()
