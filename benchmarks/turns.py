"""Frameworks beside each other, each in a process that stays alive while they take turns.

What disturbs the machine then disturbs all of them, and none waits for another's threads.
"""

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile

# The package that each is imported as, in the order of columns. Ours is the first.
FRAMEWORKS = {
    "Millrace": "millrace",
    "TensorFlow": "tensorflow",
    "PyTorch": "torch",
    "JAX": "jax",
}
# And those that a GPU has besides.
ON_GPU = {"torch.compile": "torch"}


def arguments(doc, **defaults):
    """A parser of what all these programs are asked: which interpreters, threads, rounds, files."""
    parser = argparse.ArgumentParser(
        description=doc.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    peers = os.environ.get("PEER_PYTHON", sys.executable)
    parser.add_argument("--python", default=peers, help="one that has TensorFlow")
    parser.add_argument("--peers", default=peers, help="one that has PyTorch and JAX")
    allowed = len(os.sched_getaffinity(0))
    parser.add_argument("--threads", type=int, default=allowed, help="of every framework")
    parser.add_argument("--rounds", type=int, default=defaults.get("rounds", 5))
    parser.add_argument("--frameworks", help="of those there are, these alone: JAX,PyTorch")
    parser.add_argument("--json", help="where the figures are kept")
    parser.add_argument("--svg", help="where the picture is drawn")
    parser.add_argument("words", nargs="*", help="of the names of what is to be measured")
    return parser


def chosen(name, words):
    return not words or any(word.lower() in name.lower() for word in words)


def find(options):
    """The interpreter of each framework that is installed, and a line about those that are not."""
    found = {"Millrace": sys.executable}
    missing = []
    more = ON_GPU if getattr(options, "gpu", False) else {}
    wanted = options.frameworks.split(",") if getattr(options, "frameworks", None) else None
    for name, package in list((FRAMEWORKS | more).items())[1:]:
        if wanted is not None and name not in wanted:
            continue
        code = f"import importlib.util as u, sys; sys.exit(not u.find_spec({package!r}))"
        for python in dict.fromkeys((options.python, options.peers, sys.executable)):
            if subprocess.run([python, "-c", code], stderr=subprocess.DEVNULL).returncode == 0:
                found[name] = python
                break
        else:
            missing.append(name)
    if missing:
        print(f"Not installed, so left out: {', '.join(missing)} (see --python and --peers).")
    return found


class Failed(Exception):
    """A process ended or refused; says its last words."""


class Worker:
    """A framework's process, which runs the script that asked for it and answers with serve()."""

    def __init__(self, script, framework, python, threads, gpu=False):
        self.framework = framework
        variables = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"]
        variables += ["MILLRACE_NUM_THREADS"]
        environment = os.environ | {name: str(threads) for name in variables}
        environment["TF_CPP_MIN_LOG_LEVEL"] = "3"
        if gpu:  # which they share, so none takes all of its memory
            environment |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        else:
            environment |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115, end() closes it
        self._process = subprocess.Popen(
            [python, script, "--work", framework, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            text=True,
        )

    def ask(self, question, **values):
        """The answer of the function of that name among those that the process serves."""
        try:
            print(json.dumps([question, values]), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._process.wait()
            self._errors.seek(0)
            said = self._errors.read().strip().splitlines() or ["nothing"]
            raise Failed(f"{self.framework} ended with {self._process.returncode}: {said[-1]}")
        return json.loads(line)

    def end(self):
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def start_work(argv):
    """In a worker's process, before frameworks are imported: its framework and threads, having kept
    itself to as many processors. None in another process."""
    if argv[1:2] != ["--work"]:
        return None
    framework, threads = argv[2], int(argv[3])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    return framework, threads


def serve(functions):
    """Answers questions by functions of that name until there are no more. What libraries print
    goes to where errors go."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        question, values = json.loads(line)
        print(json.dumps(functions[question](**values)), file=answers, flush=True)


def forget_peak():
    """Begins anew to measure peak_mb(), where the system lets it."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def peak_mb():
    """The most memory that this process has had, in MB; 0 where the system does not say."""
    try:
        with open("/proc/self/status") as file:
            words = [line.split() for line in file]
    except OSError:
        return 0
    return next((int(w[1]) * 1024 / 1e6 for w in words if w[0] == "VmHWM:"), 0)


def gpu_mb():
    """The memory of GPUs that this process holds, in MB; 0 where the driver does not say."""
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True).stdout.splitlines()
    except OSError:
        return 0
    held = [line.split(",") for line in lines if line.split(",")[0].strip() == str(os.getpid())]
    return sum(int(mib) * 2**20 / 1e6 for _, mib in held)


def page_faults():
    """How often this process has asked the system for a page so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def version(framework):
    """Of a framework, in its process."""
    package = (FRAMEWORKS | ON_GPU)[framework]
    assert importlib.util.find_spec(package), package
    return importlib.import_module(package).__version__


def machine():
    """The processor's name."""
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if "model name" in line)
    except (OSError, StopIteration):
        return os.uname().machine


def gpu():
    """The first GPU's name; nothing where there is none."""
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True).stdout.split("\n")[0]
    except OSError:
        return ""


def write_json(path, what):
    if path:
        with open(path, "w") as file:
            json.dump(what, file, indent=1)
            file.write("\n")
