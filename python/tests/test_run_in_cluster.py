"""`millrace run` as one of several tasks that a scheduler started."""

import os
import subprocess
import sys
import textwrap

from ports import free_ports

PROGRAM = """
    import json, os
    import tensorflow as tf
    config = json.loads(os.environ["TF_CONFIG"])
    job, index = config["task"]["type"], config["task"]["index"]
    server = tf.train.Server(config["cluster"], job, index)
    if job == "ps":
        server.join()
    with tf.device("/job:ps/task:0"):
        v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
    add = tf.assign_add(v, 1.0, use_locking=True)
    with tf.train.MonitoredTrainingSession(server.target, is_chief=index == 0) as session:
        session.run(add)
        while session.run(v) < 2.0:
            pass
    print(job, index, "ended")
    if index:
        raise SystemExit(0)  # ends well, too
"""


def start(tmp_path, variables, *options, program=PROGRAM):
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program))
    environment = {**os.environ, "TF_CONFIG": "", **variables}
    command = [sys.executable, "-m", "millrace", "run", *options, str(script)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def test_parameter_servers_end_with_the_workers(tmp_path):
    ranks = {"PMI_SIZE": "3", "MPI_LOCALNRANKS": "3", "MILLRACE_PORT": str(free_ports(3))}
    tasks = [start(tmp_path, {**ranks, "PMI_RANK": str(i)}, "--ps", "1") for i in range(3)]
    ends = [(*task.communicate(timeout=120), task.returncode) for task in tasks]
    assert ends == [("", "", 0), ("worker 0 ended\n", "", 0), ("worker 1 ended\n", "", 0)]


def test_a_plain_list_of_tasks(tmp_path):
    first = free_ports(3)
    cluster = f"ps=localhost:{first};worker=localhost:{first + 1},localhost:{first + 2}"
    tasks = [
        start(tmp_path, {"MILLRACE_CLUSTER": cluster, "MILLRACE_JOB": job, "MILLRACE_TASK": index})
        for job, index in (("ps", "0"), ("worker", "0"), ("worker", "1"))
    ]
    assert [task.wait(timeout=120) for task in tasks] == [0, 0, 0]
    for task in tasks:
        task.communicate()


def test_a_process_alone_sees_no_cluster(tmp_path):
    program = "import os; print(repr(os.environ['TF_CONFIG']))"
    alone = start(tmp_path, {"PMI_RANK": "0", "PMI_SIZE": "1"}, program=program)
    assert alone.communicate(timeout=60) == ("''\n", "")
    given = start(tmp_path, {"PMI_RANK": "x", "TF_CONFIG": "{}"}, program=program)
    assert given.communicate(timeout=60) == ("'{}'\n", "")


def test_clusters_that_cannot_be(tmp_path):
    for variables, options, said in (
        ({"PMI_RANK": "7", "PMI_SIZE": "2"}, [], "PMI_RANK: expected a whole number from 0 to 1"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}, ["--ps", "2"],
         "the number of parameter servers: expected a whole number from 0 to 1, got 2"),
        ({}, ["--ps", "1"], "--ps: expected several tasks of srun or mpirun, got a process alone"),
        ({"TF_CONFIG": "{}"}, ["--ps", "1"], "got TF_CONFIG"),
    ):  # fmt: skip
        process = start(tmp_path, variables, *options, program="")
        out, err = process.communicate(timeout=60)
        assert process.returncode == 1 and out == ""
        assert err.startswith("millrace run: ") and said in err and err.count("\n") == 1
    process = start(tmp_path, {}, "--ps", "x", program="")
    assert "--ps needs a number" in process.communicate(timeout=60)[1] and process.returncode == 2
