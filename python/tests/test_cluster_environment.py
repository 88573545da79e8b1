"""The cluster and a task's place in it, from the environment."""

import json
import random
import re
import socket
import stat
import sys
import types

import pytest

import millrace
from millrace.distributed import cluster_from_environment
from millrace.distributed.slurm import expand_counts, expand_hosts, host_address, task_places
from millrace.distributed.tf_config import parse_tf_config


def of(**variables):
    return cluster_from_environment(variables)


def tf_config(cluster, job=None, index=None, **more):
    task = {} if job is None else {"task": {"type": job, "index": index}}
    return of(TF_CONFIG=json.dumps({"cluster": cluster, **task, **more}))


def test_a_process_alone_is_the_first_worker_of_nothing():
    for found in (of(), of(TF_CONFIG="{}"), of(TF_CONFIG='{"task": {"type": "worker"}}')):
        assert (not found.cluster, found.job, found.index, found.address) == (
            True, "worker", 0, None,
        )  # fmt: skip
        assert found.is_chief
    assert millrace.distributed.cluster_from_environment is cluster_from_environment


def test_tf_config():
    cluster = {"ps": ["a:1", "b:2"], "worker": ["c:3", "[::1]:4"]}
    found = tf_config(cluster, "worker", "1")
    assert found.cluster.as_dict() == cluster and (found.job, found.index) == ("worker", 1)
    assert found.address == "[::1]:4" and found.source == "TF_CONFIG"
    assert of(TF_CONFIG=found.tf_config()) == found


def test_who_is_chief():
    workers = {"worker": ["a:1", "b:2"], "ps": ["c:3"]}
    assert tf_config(workers, "worker", 0).is_chief
    assert not tf_config(workers, "worker", 1).is_chief
    assert not tf_config(workers, "ps", 0).is_chief
    for job in ("chief", "master"):
        jobs = {**workers, job: ["d:4"]}
        assert tf_config(jobs, job, 0).is_chief
        assert not tf_config(jobs, "worker", 0).is_chief


def test_an_evaluator_is_there_or_not_and_never_waited_for():
    cluster = {"chief": ["a:1"], "worker": ["b:2"]}
    for listed in (cluster, {**cluster, "evaluator": ["c:3"]}):
        found = tf_config(listed, "evaluator", 0)
        assert found.cluster.as_dict() == cluster and found.job == "evaluator"
        assert not found.is_chief and found.address is None
        assert tf_config(listed, "worker", 0).cluster.as_dict() == cluster


def test_dynamic_workers_know_themselves_only():
    sparse = {"worker": {"3": "w3:2222"}, "ps": ["p:2222"]}
    found = tf_config(sparse, "worker", 3)
    assert found.cluster.as_dict() == {"worker": {3: "w3:2222"}, "ps": ["p:2222"]}
    assert found.address == "w3:2222"
    assert of(TF_CONFIG=json.dumps({"sparseCluster": sparse, "task": {"type": "worker",
              "index": 3}})) == found  # fmt: skip


WRONG_TF_CONFIGS = {
    "{": "expected JSON, got '{'",
    "[1]": r"expected a JSON object, got \[1\]",
    "[" * 100000: "expected JSON",
    '{"cluster": ["a:1"]}': "TF_CONFIG, cluster: expected a JSON object",
    '{"cluster": {"ps": "a:1"}}': r"cluster\.ps: expected a list of addresses",
    '{"cluster": {"ps": ["a"]}}': r'cluster\.ps\[0\]: expected an address "host:port", got \'a\'',
    '{"cluster": {"ps": ["grpc://a:1"]}}': "expected an address",
    '{"cluster": {"ps": ["a:99999"]}}': "expected an address",
    '{"cluster": {"ps": [1]}}': "expected an address",
    '{"cluster": {"p s": ["a:1"]}}': "expected the name of a job",
    '{"cluster": {"ps": {"x": "a:1"}}}': "expected a whole number",
    '{"cluster": {"ps": {"999999999": "a:1"}}}': "expected a whole number from 0",
    '{"cluster": {"ps": ["a:1"], "worker": ["a:1"]}}': "ps 0 and worker 0 both have a:1",
    '{"cluster": {"ps": ["a:1"]}}': 'expected {"type": JOB, "index": NUMBER}',
    '{"cluster": {"ps": ["a:1"]}, "task": 3}': "TF_CONFIG, task: expected a JSON object",
    '{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 1}}': "no task 1 of job ps",
    '{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": -1}}': "from 0",
    '{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": true}}': "got True",
    '{"cluster": {"ps": ["a:1"]}, "task": {"type": "worker", "index": 0}}': r"there are: ps \[0\]",
    '{"cluster": {"ps": ["a:1"]}, "task": {"type": 7, "index": 0}}': "got 7",
}


@pytest.mark.parametrize("text", WRONG_TF_CONFIGS, ids=range(len(WRONG_TF_CONFIGS)))
def test_wrong_tf_configs_say_what_was_expected(text):
    with pytest.raises(ValueError, match=WRONG_TF_CONFIGS[text]) as error:
        of(TF_CONFIG=text)
    assert len(str(error.value)) < 400


def test_damaged_tf_configs_are_errors_of_value():
    seed = random.randrange(2**32)
    print("seed", seed)
    source = random.Random(seed)
    good = json.dumps({"cluster": {"ps": ["a:1"], "worker": {"0": "b:2"}}, "task": {"type": "ps",
                       "index": 0}})  # fmt: skip
    for _ in range(3000):
        text = list(good)
        for _ in range(source.randint(1, 4)):
            text[source.randrange(len(text))] = source.choice('{}[]",:019aNn -\\')
        try:
            parse_tf_config("".join(text))
        except ValueError:
            pass


def test_a_plain_list():
    found = of(MILLRACE_CLUSTER="ps=a:1, b:2; worker=c:3", MILLRACE_JOB="ps", MILLRACE_TASK="1",
               TF_CONFIG="not looked at")  # fmt: skip
    assert found.cluster.as_dict() == {"ps": ["a:1", "b:2"], "worker": ["c:3"]}
    assert (found.job, found.index, found.source) == ("ps", 1, "MILLRACE_CLUSTER")
    alone = of(MILLRACE_CLUSTER="a:1,b:2", MILLRACE_JOB="worker", MILLRACE_TASK="0")
    assert alone.cluster.as_dict() == {"worker": ["a:1", "b:2"]}
    for variables, said in (
        ({}, "MILLRACE_JOB: expected the name of a job"),
        ({"MILLRACE_JOB": "ps"}, "MILLRACE_TASK: expected a whole number from 0 .* got ''"),
        ({"MILLRACE_JOB": "ps", "MILLRACE_TASK": "9"}, "no task 9 of job ps"),
        ({"MILLRACE_JOB": "x", "MILLRACE_TASK": "0"}, "no task 0 of job x; there are: ps"),
    ):
        with pytest.raises(ValueError, match=said):
            of(MILLRACE_CLUSTER="ps=a:1", **variables)
    for text in (";", "ps=", "ps=a:1;ps=b:2", "ps=a:1,a:1", "ps=a", "=a:1"):
        with pytest.raises(ValueError, match="MILLRACE_CLUSTER: "):
            of(MILLRACE_CLUSTER=text, MILLRACE_JOB="ps", MILLRACE_TASK="0")


def slurm(rank, nodes="n[1-3]", per_node="1(x3)", size=3, **more):
    return of(**{"SLURM_PROCID": str(rank), "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "77",
                 "SLURM_STEP_NUM_TASKS": str(size), "SLURM_STEP_NODELIST": nodes,
                 "SLURM_STEP_TASKS_PER_NODE": per_node, **more})  # fmt: skip


@pytest.fixture
def known_names(monkeypatch):
    monkeypatch.setattr(host_address, "__defaults__", (lambda name: name,))


def test_a_slurm_step(known_names):
    found = [slurm(rank, MILLRACE_PS="1") for rank in range(3)]
    assert len({task.cluster.as_dict()["ps"][0] for task in found}) == 1
    assert [(task.job, task.index) for task in found] == [("ps", 0), ("worker", 0), ("worker", 1)]
    jobs = found[0].cluster.as_dict()
    hosts, ports = zip(*(a.split(":") for a in jobs["ps"] + jobs["worker"]), strict=True)
    assert hosts == ("n1", "n2", "n3") and len(set(ports)) == 3
    assert slurm(0, SLURM_STEP_ID="1").cluster != slurm(0).cluster
    assert slurm(0, SLURM_JOB_ID="78").cluster != slurm(0).cluster
    assert slurm(1, MILLRACE_PORT="4000").address == "n2:4001"
    # One machine: whatever its name is.
    assert slurm(1, "n1", "3", MILLRACE_PORT="4000").address == "localhost:4001"
    # In a batch script outside of a step this process is not one of several.
    assert not of(SLURM_PROCID="0", SLURM_NTASKS="3", SLURM_JOB_ID="1").cluster


def test_where_slurm_puts_tasks(known_names):
    assert task_places([2, 1, 2], "") == [0, 0, 1, 2, 2]
    assert task_places([2, 1, 2], "cyclic:block") == [0, 1, 2, 0, 2]
    cyclic = [
        slurm(r, "a,b", "2(x2)", 4, SLURM_DISTRIBUTION="cyclic", SLURM_NODEID=str(r % 2)).address
        for r in range(4)
    ]
    assert [address[0] for address in cyclic] == ["a", "b", "a", "b"]
    with pytest.raises(ValueError, match="SLURM_NODEID='1': expected task 1 on node 0"):
        slurm(1, "a,b", "2(x2)", 4, SLURM_NODEID="1")


def test_lists_of_slurm():
    assert expand_hosts("n[1-3,7],gpu[01-04]-x") == [
        "n1", "n2", "n3", "n7", "gpu01-x", "gpu02-x", "gpu03-x", "gpu04-x",
    ]  # fmt: skip
    assert expand_hosts("host.example.org") == ["host.example.org"]
    assert expand_hosts("r[1-2]n[09-10]") == ["r1n09", "r1n10", "r2n09", "r2n10"]
    assert expand_counts("2(x3),1") == [2, 2, 2, 1]
    for text in ("", ",", "n[", "n]", "n[1", "n[]", "n[a]", "n[3-1]", "n[1-]", "n[1-2-3]", "a,,b",
                 "n[1-99999999999]", "n[0-9999][0-9999]", "a b", "a;b", "n[[1]]"):  # fmt: skip
        with pytest.raises(ValueError, match="hosts: expected"):
            expand_hosts(text)
    for text in ("", "x", "1(x)", "1(3)", "-1", "1(x999999)", "1,,1"):
        with pytest.raises(ValueError, match="counts: expected"):
            expand_counts(text)


def test_wrong_variables_of_slurm(known_names):
    for wrong, said in (
        ({"size": "0"}, "SLURM_STEP_NUM_TASKS: expected a whole number from 1"),
        ({"size": "x"}, "got 'x'"),
        ({"rank": 3}, "SLURM_PROCID: expected a whole number from 0 to 2, got 3"),
        ({"per_node": "2(x3)"}, "add up to SLURM_STEP_NUM_TASKS=3"),
        ({"nodes": "n[1-2]"}, "for the 2 nodes of SLURM_STEP_NODELIST"),
        ({"nodes": ""}, "SLURM_STEP_NODELIST and SLURM_JOB_NODELIST and SLURM_NODELIST are not"),
        ({"MILLRACE_PS": "3"}, "MILLRACE_PS: expected a whole number from 0 to 2, got 3"),
        ({"MILLRACE_PORT": "65535"}, "MILLRACE_PORT: expected a whole number from 1 to 65533"),
        ({"SLURM_JOB_ID": "?"}, "SLURM_JOB_ID: expected"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            slurm(**{"rank": 0, **wrong})


def test_nodes_with_other_names_than_their_hosts(tmp_path, monkeypatch):
    def unknown(name):
        raise OSError

    monkeypatch.setenv("PATH", str(tmp_path))
    assert host_address("n1", unknown) == "n1"
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\necho "NodeName=$4 Arch=x NodeAddr=machine-of-$4 Port=1"\n')
    scontrol.chmod(stat.S_IRWXU)
    assert host_address("n1", unknown) == "machine-of-n1"
    assert host_address("n1", lambda name: name) == "n1"


def open_mpi(rank, size=3, here=3, **more):
    return of(**{"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(size),
                 "OMPI_COMM_WORLD_LOCAL_SIZE": str(here), "OMPI_MCA_ess_base_jobid": "5",
                 **more})  # fmt: skip


def test_ranks_of_one_machine():
    found = [open_mpi(rank, MILLRACE_PS="1", SLURM_PROCID="0") for rank in range(3)]
    assert [(task.job, task.index) for task in found] == [("ps", 0), ("worker", 0), ("worker", 1)]
    assert len({task.tf_config().partition('"task"')[0] for task in found}) == 1
    assert all(task.address.startswith("localhost:") for task in found)
    assert len({task.address for task in found}) == 3
    assert open_mpi(0).cluster != open_mpi(0, OMPI_MCA_ess_base_jobid="6").cluster
    mpich = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}
    assert (of(**mpich).job, of(**mpich).index) == ("worker", 1)


def test_ranks_of_several_machines(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)  # as if it were not installed
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    with pytest.raises(ValueError, match="Install mpi4py.*MILLRACE_HOSTS"):
        open_mpi(0, here=2)
    hosts = {"MILLRACE_HOSTS": "a, b,b", "MILLRACE_PORT": "5000"}
    assert open_mpi(2, here=2, **hosts).cluster.as_dict() == {
        "worker": ["a:5000", "b:5001", "b:5002"]
    }
    with pytest.raises(ValueError, match="MILLRACE_HOSTS: expected the hosts of 3 ranks"):
        open_mpi(0, here=2, MILLRACE_HOSTS="a,b")


def test_ranks_tell_each_other_their_hosts(monkeypatch):
    class World:
        def Get_size(self):
            return 3

        def allgather(self, host):
            assert host == socket.gethostname()
            return ["a", "a", "b"]

    monkeypatch.setitem(sys.modules, "mpi4py", types.ModuleType("mpi4py"))
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", types.SimpleNamespace(COMM_WORLD=World()))
    found = open_mpi(2, here=1, MILLRACE_PORT="5000")
    assert found.cluster.as_dict() == {"worker": ["a:5000", "a:5001", "b:5002"]}
    with pytest.raises(ValueError, match="mpi4py sees 3 ranks, expected OMPI_COMM_WORLD_SIZE=4"):
        open_mpi(2, size=4, here=1)


def test_wrong_variables_of_mpi():
    for variables, said in (
        ({"OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE is not: expected both"),
        ({"PMI_RANK": "0"}, "PMI_SIZE is not"),
        ({"PMI_RANK": "2", "PMI_SIZE": "2"}, "PMI_RANK: expected a whole number from 0 to 1"),
        ({"PMI_RANK": "0", "PMI_SIZE": "-1"}, "PMI_SIZE: expected"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "9"}, "MPI_LOCALNRANKS: expected"),
    ):
        with pytest.raises(ValueError, match=said):
            of(**variables)
