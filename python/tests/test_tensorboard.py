"""TensorBoard reads what is written, asked through its own HTTP interface.

It runs in the interpreter that MILLRACE_TENSORBOARD_PYTHON names; without one the tests are left
out.
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import millrace.compat.v1 as tf
from millrace.summary import hparams as hp

PYTHON = os.environ.get("MILLRACE_TENSORBOARD_PYTHON", "")
# TensorFlow is kept away: what is asked for is TensorBoard's own reader.
SERVER = """
import sys
sys.modules["tensorflow"] = None
from tensorboard import default, program
board = program.TensorBoard(default.get_plugins())
board.configure(argv=["", "--logdir", sys.argv[1], "--host", "127.0.0.1", "--port", "0",
                      "--load_fast", "false", "--reload_interval", "1"])
print(board.launch(), flush=True)
sys.stdin.read()
"""


def _has_tensorboard():
    if not PYTHON:
        return False
    done = subprocess.run([PYTHON, "-c", "import tensorboard"], capture_output=True, check=False)
    return done.returncode == 0


pytestmark = pytest.mark.skipif(
    not _has_tensorboard(), reason="MILLRACE_TENSORBOARD_PYTHON names no Python with TensorBoard"
)


def write(logdir):
    rng = np.random.RandomState(0)
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None], name="x")
        with tf.name_scope("model"):
            loss = tf.reduce_mean(tf.square(x), name="loss")
        tf.summary.scalar("loss", loss)
        tf.summary.histogram("spread", x)
        tf.summary.image("noise", tf.reshape(x, [1, 5, 5, 1]), max_outputs=1)
        tf.summary.audio("sound", tf.reshape(x, [1, -1]), 1000.0, max_outputs=1)
        tf.summary.text("note", tf.constant("*fine*"))
        curve = tf.SummaryMetadata()
        curve.plugin_data.plugin_name = "pr_curves"
        curve.plugin_data.content = b"\x08\x00\x10\x05"  # version 0, 5 thresholds
        tf.summary.tensor_summary("pr", np.ones([6, 5], "float32"), summary_metadata=curve)
        merged = tf.summary.merge_all()
        metadata = tf.RunMetadata()
        with tf.summary.FileWriter(logdir, session.graph) as writer:
            for step in range(5):
                options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
                feed = {x: rng.rand(25) / (step + 1)}
                summary = session.run(merged, feed, options=options, run_metadata=metadata)
                writer.add_summary(summary, step)
            writer.add_run_metadata(metadata, "traced", 4)
            writer.add_summary(hp.hparams_pb({"rate": 0.5, "kind": "small"}))
            writer.add_summary(hp.session_end_pb())
    with tf.summary.FileWriter(os.path.dirname(logdir)) as writer:
        rate = hp.HParam("rate", hp.RealInterval(0.1, 1.0))
        kind = hp.HParam("kind", hp.Discrete(["small", "large"]))
        writer.add_summary(hp.hparams_config_pb([rate, kind], [hp.Metric("loss")]))


def write_demo(folder):
    """What the program of `make demo` writes."""
    program = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.py"
    subprocess.run(
        [sys.executable, program, "2"], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    (run,) = (folder / "digits_logs").iterdir()
    run.rename(folder / "demo")


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Asks TensorBoard for a path; the answer is JSON, or bytes."""
    logdir = tmp_path_factory.mktemp("logs")
    write(str(logdir / "run"))
    write_demo(logdir)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    server = subprocess.Popen(
        [PYTHON, "-c", SERVER, str(logdir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, env=environment,
    )  # fmt: skip
    address = server.stdout.readline().strip().rstrip("/")
    assert address.startswith("http"), address

    def ask(path, **query):
        url = f"{address}/data/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            body = answer.read()
        return json.loads(body) if answer.headers["Content-Type"].startswith("appl") else body

    def has_read_all():
        try:
            counts = [
                len(ask("plugin/scalars/scalars", run=run, tag="loss"))
                for run in ("run", "demo/train", "demo/test")
            ]
            graphs = ask("plugin/graphs/info")
        except urllib.error.HTTPError:
            return False
        return counts == [5, 2, 2] and {"run", "demo"} <= set(graphs) and "." in ask("runs")

    deadline = time.monotonic() + 60
    while not has_read_all():  # it reads in the background
        assert time.monotonic() < deadline
        time.sleep(0.2)
    yield ask
    server.stdin.close()
    server.wait(timeout=60)


def test_scalars(ask):
    assert list(ask("plugin/scalars/tags")["run"]) == ["loss"]
    points = ask("plugin/scalars/scalars", run="run", tag="loss")
    assert [step for _, step, _ in points] == list(range(5))
    assert points[0][2] > points[4][2] > 0


def test_histograms(ask):
    assert list(ask("plugin/histograms/tags")["run"]) == ["spread"]
    histograms = ask("plugin/histograms/histograms", run="run", tag="spread")
    assert len(histograms) == 5
    assert all(round(sum(count for _, _, count in buckets)) == 25 for _, _, buckets in histograms)
    assert len(ask("plugin/distributions/distributions", run="run", tag="spread")) == 5


def test_images(ask):
    assert list(ask("plugin/images/tags")["run"]) == ["noise/image"]
    images = ask("plugin/images/images", run="run", tag="noise/image", sample=0)
    assert [image["step"] for image in images] == list(range(5))
    query = dict(urllib.parse.parse_qsl(images[-1]["query"]))
    png = ask("plugin/images/individualImage", **query)
    with tf.Graph().as_default(), tf.Session() as session:
        assert session.run(tf.image.decode_png(png)).shape == (5, 5, 1)


def test_audio_and_text(ask):
    assert list(ask("plugin/audio/tags")["run"]) == ["sound/audio"]
    assert ask("plugin/text/tags")["run"] == ["note"]
    assert "<em>fine</em>" in ask("plugin/text/text", run="run", tag="note")[0]["text"]


def test_precision_and_recall(ask):
    assert list(ask("plugin/pr_curves/tags")["run"]) == ["pr"]
    curves = ask("plugin/pr_curves/pr_curves", run="run", tag="pr")["run"]
    assert len(curves) == 5 and len(curves[0]["precision"]) == 5


def test_the_graph_and_the_traced_run(ask):
    info = ask("plugin/graphs/info")["run"]
    assert info["run_graph"]
    assert any(tag["profile"] for tag in info["tags"].values())
    graph = ask("plugin/graphs/graph", run="run", conceptual="false").decode()
    assert 'name: "model/loss"' in graph and "_output_shapes" in graph
    stats = ask("plugin/graphs/run_metadata", run="run", tag="traced").decode()
    assert 'node_name: "model/loss"' in stats


def test_hyperparameters(ask):
    experiment = ask("plugin/hparams/experiment", request="{}")
    infos = {info["name"]: info for info in experiment["hparamInfos"]}
    assert infos["rate"]["domainInterval"] == {"minValue": 0.1, "maxValue": 1.0}
    assert infos["kind"]["domainDiscrete"] == ["large", "small"]
    assert experiment["metricInfos"][0]["name"]["tag"] == "loss"
    query = {
        "startIndex": 0, "sliceSize": 9, "allowedStatuses": ["STATUS_SUCCESS"],
        "colParams": [{"hparam": "rate"}, {"metric": {"tag": "loss"}}],
    }  # fmt: skip
    (group,) = ask("plugin/hparams/session_groups", request=json.dumps(query))["sessionGroups"]
    assert group["hparams"] == {"rate": 0.5, "kind": "small"}
    assert group["metricValues"][0]["trainingStep"] == 4
    assert group["sessions"][0]["status"] == "STATUS_SUCCESS"


def test_the_demo(ask):
    for run in ("demo/train", "demo/test"):
        assert sorted(ask("plugin/scalars/tags")[run]) == ["accuracy", "loss"]
        points = ask("plugin/scalars/scalars", run=run, tag="loss")
        assert [step for _, step, _ in points] == [46, 92] and points[0][2] > points[1][2]
        (kernel,) = [tag for tag in ask("plugin/histograms/tags")[run] if "conv2d/kernel" in tag]
        assert len(ask("plugin/histograms/histograms", run=run, tag=kernel)) == 2
        assert sorted(ask("plugin/images/tags")[run]) == [f"digits/image/{i}" for i in range(3)]
        images = ask("plugin/images/images", run=run, tag="digits/image/0", sample=0)
        assert [image["step"] for image in images] == [46, 92]
    assert ask("plugin/graphs/info")["demo"]["run_graph"]
    graph = ask("plugin/graphs/graph", run="demo", conceptual="false").decode()
    assert 'name: "conv2d/kernel"' in graph and 'op: "SparseSoftmaxCrossEntropyWithLogits"' in graph
