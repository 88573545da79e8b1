"""What a traced step says of all the tasks that took part in it."""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from cluster_tasks import cluster_of

import millrace.compat.v1 as tf
from millrace.graph.timeline import Timeline

PS, WORKER = "/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"
CPU = "/device:CPU:0"
AHEAD = 1000  # seconds


def traced(jobs):
    """The RunMetadata of a step that goes from the client to the worker, and there and back to the
    parameter server; 400 bytes each way."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [100])
        with tf.device("/job:worker"):
            there = tf.negative(tf.negative(x, name="first"), name="sent")
        with tf.device("/job:ps"):
            back = tf.square(there, name="square")
        with tf.device("/job:worker"):
            out = tf.reduce_sum(back, name="out")
        with tf.Session(f"grpc://{jobs['worker'][0]}") as session:
            metadata = tf.RunMetadata()
            options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
            feed = {x: np.full(100, 2, np.float32)}
            assert session.run(out, feed, options=options, run_metadata=metadata) == 400.0
    return metadata


def nodes_of(metadata, device):
    (found,) = [d for d in metadata.step_stats.dev_stats if d.device == device]
    return {node.node_name: node for node in found.node_stats}


def span(node):
    return node.all_start_nanos, node.all_start_nanos + node.all_end_rel_nanos


def clock_of(metadata, task):
    """What is said of a task's clock: by how much it is ahead, and how well that is known."""
    (call,) = nodes_of(metadata, f"{task}/call").values()
    found = re.search(r"ahead by (-?\d+) ns, \+/- (\d+) ns", call.node_name)
    return int(found[1]), int(found[2]), span(call)


def check_order(metadata):
    """Nothing comes before its cause by more than the clocks are uncertain."""
    uncertain = sum(clock_of(metadata, task)[1] for task in (PS, WORKER))
    worker, ps = nodes_of(metadata, WORKER + CPU), nodes_of(metadata, PS + CPU)
    assert span(ps["square"])[0] >= span(worker["sent"])[1] - uncertain
    assert span(worker["out"])[0] >= span(ps["square"])[1] - uncertain
    for task, nodes in ((PS, ps), (WORKER, worker)):
        _, own, (began, ended) = clock_of(metadata, task)
        for node in nodes.values():
            assert began - own <= span(node)[0] and span(node)[1] <= ended + own


def test_all_tasks_are_in_it(tmp_path):
    with cluster_of() as (jobs, _):
        metadata = traced(jobs)
    devices = [d.device for d in metadata.step_stats.dev_stats]
    assert sorted(devices) == sorted([f"{PS}/call", f"{WORKER}/call", PS + CPU, WORKER + CPU])
    check_order(metadata)
    # Who sent what to whom, and how much.
    receives = [
        (device.device, re.search(r"= _Recv\(edge_\d+_(\w+) @(.*)\)$", node.timeline_label))
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        if "= _Recv(" in node.timeline_label and node.memory[0].total_bytes == 400
    ]
    assert {(to, m[1], m[2]) for to, m in receives} == {
        (PS + CPU, "sent", WORKER + CPU),
        (WORKER + CPU, "square", PS + CPU),
    }
    trace = json.loads(Timeline(metadata.step_stats).generate_chrome_trace_format())
    rows = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert {f"{PS}{CPU} Compute", f"{WORKER}{CPU} Compute"} <= rows
    arrows = {e["name"] for e in trace["traceEvents"] if e["ph"] == "s"}
    assert any(
        re.fullmatch(rf"edge_\d+_sent from {WORKER}{CPU} to {PS}{CPU}", name) for name in arrows
    )
    # What TensorBoard reads.
    with tf.summary.FileWriter(str(tmp_path)) as writer:
        writer.add_run_metadata(metadata, "step")
    (path,) = tmp_path.iterdir()
    (kept,) = [
        e.tagged_run_metadata.run_metadata
        for e in tf.train.summary_iterator(str(path))
        if e.HasField("tagged_run_metadata")
    ]
    read = tf.RunMetadata.FromString(kept)
    assert [d.device for d in read.step_stats.dev_stats] == devices


def _can_have_another_clock():
    unshare = shutil.which("unshare")
    command = ["unshare", "--time", "--fork", "--monotonic", "1", "true"]
    return unshare is not None and subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.skipif(not _can_have_another_clock(), reason="needs root, and time namespaces")
def test_a_task_with_another_clock():
    with cluster_of(ps=0, absent=1) as (jobs, tasks):
        text = ";".join(f"{job}={','.join(addresses)}" for job, addresses in jobs.items())
        ps = subprocess.Popen(
            ["unshare", "--time", "--fork", "--kill-child", "--monotonic", str(AHEAD),
             sys.executable, "-m", "millrace", "server", "--cluster", text, "--job", "ps",
             "--task", "0"],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "TF_CONFIG": ""},
        )  # fmt: skip
        try:
            assert "listens" in ps.stdout.readline()
            metadata = traced(jobs)
        finally:
            ps.kill()
            ps.communicate()
        assert tasks["worker", 0].poll() is None
    ahead, uncertainty, _ = clock_of(metadata, PS)
    assert abs(ahead - AHEAD * 10**9) <= uncertainty < 10 * 10**9
    ahead, uncertainty, _ = clock_of(metadata, WORKER)
    assert abs(ahead) <= uncertainty
    check_order(metadata)
