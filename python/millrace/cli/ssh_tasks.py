"""Tasks on other machines, which `millrace launch --hosts` reaches by ssh."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping

from millrace.cli.command import CommandError
from millrace.core.lifeline import END_WITH_INPUT

_HOST = re.compile(r"(?:[\w.-]+@)?[\w.][\w.-]*", re.ASCII)
# What a task is told of its launcher's environment: where Python looks, and all of Millrace's.
_PASSED_ON = re.compile(r"PYTHONPATH|PYTHONUNBUFFERED|TF_CONFIG|MILLRACE_\w+", re.ASCII)


def parse_hosts(text: str) -> list[str]:
    """The hosts of "a,user@b". CommandError for others, and for what ssh would take as options."""
    hosts = [host.strip() for host in text.split(",")]
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise CommandError(f'--hosts: expected names between commas, got "{text}"')
    return hosts


def addresses_on(hosts: list[str], number: int, first_port: int) -> list[tuple[str, str]]:
    """(host for ssh, address) of each of `number` tasks: they go to the hosts in turn, each with a
    port that no other has."""
    if first_port + number > 65536:
        raise CommandError(f"--port: expected one with {number - 1} more above it")
    chosen = [hosts[i % len(hosts)] for i in range(number)]
    return [(host, f"{host.rpartition('@')[2]}:{first_port + i}") for i, host in enumerate(chosen)]


def ssh_command(
    ssh: str, host: str, command: list[str], environment: Mapping[str, str]
) -> list[str]:
    """The command that runs `command` on a host, in the folder of the same name as this one. It
    ends when its input does."""
    settings = {name: value for name, value in environment.items() if _PASSED_ON.fullmatch(name)}
    settings[END_WITH_INPUT] = "1"
    words = ["env", *(f"{name}={value}" for name, value in settings.items()), *command]
    remote = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(words)}"
    return [*shlex.split(ssh), "-T", "-o", "BatchMode=yes", host, remote]
