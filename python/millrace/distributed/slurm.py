"""The tasks of a Slurm step: which ones there are, and where, from its environment."""

import re
import socket
import subprocess
from collections.abc import Callable, Mapping

from millrace.distributed.addresses import MAX_TASKS, checked_number, shown

_HOSTS = "such as n[1-3,7],gpu[01-04]-x"
_TASKS = 'such as "2(x3),1"'


def slurm_hosts(environ: Mapping[str, str]) -> list[str]:
    """The host of each task of the step, by number. ValueError for variables that make no sense or
    do not fit each other."""
    number = _variable(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    size = checked_number(environ[number], number, MAX_TASKS + 1, 1)
    listed = _variable(environ, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    nodes = expand_hosts(environ[listed], listed)
    counted = _variable(environ, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    counts = expand_counts(environ[counted], counted)
    if len(counts) != len(nodes) or sum(counts) != size:
        raise ValueError(
            f"{counted}={shown(environ[counted])}: expected numbers for the {len(nodes)} nodes of "
            f"{listed} that add up to {number}={size}"
        )
    places = task_places(counts, environ.get("SLURM_DISTRIBUTION", ""))
    rank = checked_number(environ["SLURM_PROCID"], "SLURM_PROCID", size)
    node = environ.get("SLURM_NODEID", "")
    if node and node != str(places[rank]):
        raise ValueError(
            f"SLURM_NODEID={shown(node)}: expected task {rank} on node {places[rank]} of {counts}; "
            "ask srun for --distribution=block or cyclic, or name all tasks in MILLRACE_CLUSTER"
        )
    hosts = [host_address(name) for name in nodes]
    return [hosts[place] for place in places]


def _variable(environ: Mapping[str, str], *names: str) -> str:
    """The first of these that is set."""
    for name in names:
        if environ.get(name):
            return name
    raise ValueError(
        f"SLURM_PROCID is set, but {' and '.join(names)} are not: expected one of them"
    )


def task_places(counts: list[int], distribution: str) -> list[int]:
    """The node of each task where node i has counts[i] of them.

    `distribution`: as srun has it. "cyclic" takes the nodes in turn, all else fills one after the
    other.
    """
    if distribution.split(":")[0] != "cyclic":
        return [node for node, count in enumerate(counts) for _ in range(count)]
    return [
        node
        for turn in range(max(counts, default=0))
        for node, count in enumerate(counts)
        if turn < count
    ]


def expand_hosts(text: str, where: str = "hosts") -> list[str]:
    """The names in a list as Slurm writes it: "n[1-2,7],x" is n1, n2, n7, x.

    ValueError for what is no such list, and for one of more than 100,000 names.
    """
    out: list[str] = []
    for part in _split(text, where):
        names = [""]
        for piece in re.split(r"(\[[^\[\]]*\])", part):
            if piece.startswith("["):
                numbers = _ranges(piece[1:-1], where, text)
                if len(names) * len(numbers) > MAX_TASKS:
                    raise ValueError(f"{where}: expected at most {MAX_TASKS} names: {shown(text)}")
                names = [name + number for name in names for number in numbers]
            else:
                names = [name + piece for name in names]
        out += names
        if len(out) > MAX_TASKS:
            raise ValueError(f"{where}: expected at most {MAX_TASKS} names: {shown(text)}")
    return out


def _split(text: str, where: str) -> list[str]:
    """At commas outside of brackets."""
    parts = re.findall(r"(?:[\w.:-]|\[[0-9,-]+\])+", text, re.ASCII)
    if not text or ",".join(parts) != text:
        raise ValueError(f"{where}: expected names of nodes {_HOSTS}, got {shown(text)}")
    return parts


def _ranges(text: str, where: str, whole: str) -> list[str]:
    """ "1-3,07" as ["1", "2", "3", "07"]; zeros before a number stay."""
    out: list[str] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", part)
        if not match:
            raise ValueError(f"{where}: expected names of nodes {_HOSTS}, got {shown(whole)}")
        first, last = match[1], match[2] or match[1]
        if not 0 <= int(last) - int(first) < MAX_TASKS:
            raise ValueError(f"{where}: expected a range that rises, of at most {MAX_TASKS} "
                             f"numbers, got {part} in {shown(whole)}")  # fmt: skip
        width = len(first) if first.startswith("0") else 0
        out += [str(number).zfill(width) for number in range(int(first), int(last) + 1)]
    return out


def expand_counts(text: str, where: str = "counts") -> list[int]:
    """The numbers in a list as Slurm writes it: "2(x3),1" is 2, 2, 2, 1. ValueError otherwise."""
    out: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?", part)
        if not match or len(out) + int(match[2] or 1) > MAX_TASKS:
            raise ValueError(f"{where}: expected numbers {_TASKS}, got {shown(text)}")
        out += [int(match[1])] * int(match[2] or 1)
    return out


def host_address(name: str, resolve: Callable[[str], object] = socket.gethostbyname) -> str:
    """The host of a node: its name or, where no host has that name, what scontrol says.

    Nodes may be called otherwise than their hosts, several nodes of one machine among them. The
    name again where scontrol does not know either: the error that follows names it.
    """
    try:
        resolve(name)
        return name
    except OSError:
        pass
    try:
        said = subprocess.run(
            ["scontrol", "show", "node", "--oneliner", name],
            capture_output=True, text=True, timeout=20, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return name
    match = re.search(r"\bNodeAddr=([\w.:-]+)", said)
    return match[1] if match else name
