"""The manifests of deploy/kubernetes: their form, and what tasks make of them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import manifests
import numpy as np
import pytest
from ports import free_ports

from millrace.distributed import cluster_from_environment

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "digits" / "synchronous.py"
FILES = sorted(path.name for path in manifests.FOLDER.glob("*.yaml"))


def objects():
    return {each["kind"]: each for name in FILES for each in manifests.read(name)}


def pods():
    """[(name of the pod, container, metadata)] of the StatefulSet and the Job."""
    found = objects()
    stateful, job = found["StatefulSet"], found["Job"]
    out = []
    for owner, number, field in (
        (stateful, stateful["spec"]["replicas"], ("labels", "apps.kubernetes.io/pod-index")),
        (job, job["spec"]["completions"],
         ("annotations", "batch.kubernetes.io/job-completion-index")),
    ):  # fmt: skip
        for i in range(number):
            spec = owner["spec"]["template"]["spec"]
            metadata = {f"metadata.{field[0]}['{field[1]}']": str(i)}
            out.append((f"{owner['metadata']['name']}-{i}", spec["containers"][0], metadata))
    return out


def environment(container, metadata):
    """What kubelet would set."""
    config = objects()["ConfigMap"]
    out = {}
    for source in container["envFrom"]:
        assert source["configMapRef"]["name"] == config["metadata"]["name"]
        out.update(config["data"])
    for entry in container["env"]:
        field = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        out[entry["name"]] = entry["value"] if field is None else metadata[field]
    return out


def test_the_reader_reads_them_as_others_do():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    for name in FILES:
        text = (manifests.FOLDER / name).read_text()
        assert manifests.read(name) == list(yaml.safe_load_all(text))


@pytest.mark.parametrize("name", FILES)
def test_the_real_schemas_accept_them(name):
    validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    )
    for each in manifests.read(name):
        if each["kind"] != "TFJob":  # not Kubernetes' own
            validate.validate(each, "1.31", strict=True)


def test_every_object_has_what_the_server_asks_for():
    versions = {
        "Service": "v1", "ConfigMap": "v1", "NetworkPolicy": "networking.k8s.io/v1",
        "StatefulSet": "apps/v1", "Job": "batch/v1", "TFJob": "kubeflow.org/v1",
    }  # fmt: skip
    found = objects()
    assert {kind: each["apiVersion"] for kind, each in found.items()} == versions
    service = found["Service"]["spec"]
    assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"] is True
    for kind in ("StatefulSet", "Job"):
        spec = found[kind]["spec"]
        template = spec["template"]
        labels = template["metadata"]["labels"]
        assert service["selector"].items() <= labels.items()
        if kind == "StatefulSet":
            assert spec["selector"]["matchLabels"] == labels
            assert spec["serviceName"] == found["Service"]["metadata"]["name"]
        else:
            assert template["spec"]["subdomain"] == found["Service"]["metadata"]["name"]
            assert spec["parallelism"] == spec["completions"]
            assert template["spec"]["restartPolicy"] == "OnFailure"
        (container,) = template["spec"]["containers"]
        assert container["ports"][0]["containerPort"] == service["ports"][0]["port"]
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        assert mounts == {volume["name"] for volume in template["spec"]["volumes"]}
    ps = found["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    ready = ps["command"][ps["command"].index("--ready-file") + 1]
    assert ready in ps["readinessProbe"]["exec"]["command"]
    assert ps["lifecycle"]["preStop"]["exec"]["command"]


def test_every_pod_is_the_task_whose_address_is_its_name():
    service = objects()["Service"]["metadata"]["name"]
    seen = set()
    for name, container, metadata in pods():
        task = cluster_from_environment(environment(container, metadata))
        assert task.address == f"{name}.{service}:2222"
        seen.add((task.job, task.index))
    assert seen == {(job, i) for job in task.cluster.jobs for i in task.cluster.task_indices(job)}


def test_the_operator_finds_what_it_looks_for():
    """And a task finds itself in the TF_CONFIG that the operator writes."""
    found = objects()["TFJob"]
    replicas = found["spec"]["tfReplicaSpecs"]
    cluster = {
        kind.lower(): [
            f"{found['metadata']['name']}-{kind.lower()}-{i}.default.svc:2222"
            for i in range(spec["replicas"])
        ]
        for kind, spec in replicas.items()
    }
    for kind, spec in replicas.items():
        (container,) = spec["template"]["spec"]["containers"]
        assert container["name"] == "tensorflow" and spec["restartPolicy"] == "OnFailure"
        assert container["ports"] == [{"name": "tfjob-port", "containerPort": 2222}]
        task = {"type": kind.lower(), "index": 0}
        text = json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})
        place = cluster_from_environment({"TF_CONFIG": text})
        assert place.is_chief == (kind == "Chief") and place.address == cluster[kind.lower()][0]


def test_wrong_manifests_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(manifests, "FOLDER", tmp_path)
    for text in ("a", "a:\n", "a: 1\na: 2\n", "a: {b: 1}\n", "a: 1\n  b: 2\n", "  a: 1\nb: 2\n"):
        (tmp_path / "x.yaml").write_text(text)
        with pytest.raises(ValueError):
            manifests.read("x.yaml")


def test_what_the_pods_run_trains(tmp_path):
    """The commands and variables of the manifests as processes of this machine."""
    environ = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    alone, together = tmp_path / "alone.npz", tmp_path / "together.npz"
    subprocess.run([sys.executable, SCRIPT, alone], check=True, timeout=120, env=environ)
    ready, token = tmp_path / "ready", tmp_path / "token"
    token.write_text("secret\n")
    token.chmod(0o600)
    first = free_ports(3)
    places = {name: f"localhost:{first + i}" for i, (name, _, _) in enumerate(pods())}
    here = {
        "millrace": [sys.executable, "-m", "millrace"], "/tmp/ready": [ready],
        "/app/train.py": [SCRIPT, together], "5": ["0"],
    }  # fmt: skip
    processes = {}
    try:
        for name, container, metadata in pods():
            variables = environment(container, metadata)
            for pod, place in places.items():
                own = f"{pod}.millrace:2222"
                variables["MILLRACE_CLUSTER"] = variables["MILLRACE_CLUSTER"].replace(own, place)
            # All are here: nothing has to listen to other machines.
            del variables["MILLRACE_CLUSTER_PLAIN_TEXT"]
            variables["MILLRACE_CLUSTER_TOKEN_FILE"] = str(token)
            command = [str(w) for word in container["command"] for w in here.get(word, [word])]
            processes[name] = subprocess.Popen(command, env={**environ, **variables})
        end = time.monotonic() + 60
        while not ready.exists():
            assert processes["millrace-ps-0"].poll() is None and time.monotonic() < end
            time.sleep(0.01)
        for name, process in processes.items():
            if name != "millrace-ps-0":
                assert process.wait(120) == 0
        processes["millrace-ps-0"].send_signal(signal.SIGTERM)
        assert processes["millrace-ps-0"].wait(60) == 0 and not ready.exists()
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    found = dict(np.load(together))
    for name, weights in np.load(alone).items():
        np.testing.assert_array_equal(found[name], weights, err_msg=name)


# A kubectl that writes its arguments down, and answers what check.sh asks.
KUBECTL = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in
  *current-context*) echo here ;;
  *"version -o json"*)
    printf '{"clientVersion": {\n"minor": "99"\n},\n'
    printf '"serverVersion": {\n"minor": "%s"\n}}\n' "$MINOR" ;;
  *"get crd"*) exit 1 ;;
  *uid*) echo "pod $(grep -c uid "$CALLS")" ;;
  *"-f -"*) grep -q "replicas: two" && exit 1 ;;
  *"$FAILS"*) exit 1 ;;
esac
exit 0
"""


@pytest.mark.parametrize(
    ("arguments", "fails", "code", "said"),
    [
        ([], "nothing", 0, "nothing was run"),
        (["registry/millrace:1"], "nothing", 0, "all is well"),
        (["registry/millrace:1"], "condition=complete", 1, "have not ended well"),
        ([], "ps.yaml", 1, ""),
    ],
)
def test_the_script_for_real_servers_leaves_nothing_behind(tmp_path, arguments, fails, code, said):
    kubectl, calls = tmp_path / "kubectl", tmp_path / "calls"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    done = subprocess.run(
        [manifests.FOLDER / "check.sh", *arguments], capture_output=True, text=True,
        env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(calls), "FAILS": fails,
            "MINOR": "28+",
        },
    )  # fmt: skip
    assert done.returncode == code and said in done.stdout + done.stderr, done
    lines = calls.read_text().splitlines()
    created = [line for line in lines if line.startswith("create namespace ")]
    space = created[0].split()[-1]
    assert f"delete namespace {space} " in lines[-1]
    changing = [line for line in lines if " apply " in line or " secret " in line]
    assert changing and all(f"--namespace {space}" in line for line in changing)


def test_the_script_for_real_servers_tells_old_ones(tmp_path):
    """They would drop what gives a task its number."""
    kubectl, calls = tmp_path / "kubectl", tmp_path / "calls"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    done = subprocess.run(
        [manifests.FOLDER / "check.sh"], capture_output=True, text=True,
        env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(calls), "FAILS": "nothing",
            "MINOR": "20",
        },
    )  # fmt: skip
    assert done.returncode == 1
    assert "is Kubernetes 1.20, expected 1.28 at least" in done.stderr, done
    assert "namespace" not in calls.read_text()
