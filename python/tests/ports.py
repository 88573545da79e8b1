"""Ports that nobody has."""

import socket


def free_ports(number):
    """The first of some free ports in a row."""
    while True:
        with socket.socket() as holder:
            holder.bind(("", 0))
            first = holder.getsockname()[1]
        holders = [socket.socket() for _ in range(number)]
        try:
            for i, each in enumerate(holders):
                each.bind(("", first + i))
            return first
        except (OSError, OverflowError):
            continue
        finally:
            for each in holders:
                each.close()
