"""Addresses of tasks as people write them: checked before anything is made of them."""

import re
from typing import Any

# More tasks than that are a mistake, and a list up to the number of a task is made in places.
MAX_TASKS = 100_000

_JOB = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_CLUSTER_FORM = '"JOB=HOST:PORT,HOST:PORT;JOB=HOST:PORT"'


def checked_job(name: Any, where: str) -> str:
    """The name of a job. ValueError for what cannot be one; `where` says whose it is."""
    if not isinstance(name, str) or not _JOB.fullmatch(name):
        raise ValueError(f"{where}: expected the name of a job such as worker, got {shown(name)}")
    return name


def checked_address(address: Any, where: str) -> str:
    """An address. ValueError unless it is "host:port" without a scheme, the port up to 65535."""
    if isinstance(address, str):
        host, _, port = address.rpartition(":")
        good = host and not re.search(r"[\s/,;=]", host) and re.fullmatch(r"[0-9]{1,5}", port)
        if good and int(port) <= 65535:
            return address
    raise ValueError(f'{where}: expected an address "host:port", got {shown(address)}')


def checked_number(value: Any, where: str, limit: int = MAX_TASKS, least: int = 0) -> int:
    """A whole number from `least` to below `limit`, or its digits. ValueError otherwise."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < limit:
        raise ValueError(
            f"{where}: expected a whole number from {least} to {limit - 1}, got {shown(value)}"
        )
    return value


def parse_cluster(text: str, job: str | None, where: str) -> dict[str, list[str]]:
    """{job: [address]} of "ps=a:1,b:2;worker=c:3", or of "a:1,b:2", which are the tasks of `job`.

    ValueError for anything else, and for an address or a job that is there twice.
    """
    out: dict[str, list[str]] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, addresses = part.partition("=")
        if not equals:
            if job is None:
                raise ValueError(f"{where}: expected {_CLUSTER_FORM}, got {shown(part)}")
            name, addresses = job, part
        name = checked_job(name.strip(), where)
        if name in out:
            raise ValueError(f"{where}: the job {name} is there twice")
        out[name] = [checked_address(one.strip(), where) for one in addresses.split(",")]
    if not out:
        raise ValueError(f"{where}: expected {_CLUSTER_FORM}, got {shown(text)}")
    check_unique(out, where)
    return out


def check_unique(cluster: dict[str, Any], where: str) -> None:
    """ValueError where two tasks have one address."""
    seen: dict[str, str] = {}
    for job, tasks in cluster.items():
        for index, address in tasks.items() if isinstance(tasks, dict) else enumerate(tasks):
            task = f"{job} {index}"
            if seen.setdefault(address, task) != task:
                raise ValueError(f"{where}: {seen[address]} and {task} both have {address}")


def shown(value: Any) -> str:
    """A value in a message: not longer than a line."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
