"""Machines that are network namespaces, on a network that can be cut, slow or lossy.

Every host is a namespace with one cable to a switch, which is a bridge in a namespace of its own.
nft drops packets where they arrive, so that nobody is told of it. A cable may go through this
process instead, which then delays, loses and reorders frames (the kernel of a small machine may
have no netem). All of it needs root, and goes when the lab is left; what a lab left whose process
was killed goes with the next one.
"""

import fcntl
import heapq
import os
import random
import re
import select
import shutil
import struct
import subprocess
import threading
import time

_PREFIX = "millrace-lab"
_TUNSETIFF, _IFF_TAP_NO_INFO = 0x400454CA, 0x1002


def missing():
    """Why there can be no lab here, "" if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [program for program in ("ip", "nft") if not shutil.which(program)]
    return f"there is no {', '.join(absent)}" if absent else ""


class LabError(Exception):
    """The kernel has not what a lab needs."""


def _do(*command, text=None):
    done = subprocess.run(command, capture_output=True, text=True, input=text)
    if done.returncode != 0:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _remove_namespaces(prefix):
    for line in _do("ip", "netns", "list").splitlines():
        name = line.split()[0]
        if name.startswith(prefix):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _sweep():
    """Removes what is left of labs whose processes have gone."""
    for line in _do("ip", "netns", "list").splitlines():
        found = re.match(rf"{_PREFIX}-(\d+)-", line)
        if found and not os.path.exists(f"/proc/{found[1]}"):
            _remove_namespaces(f"{_PREFIX}-{found[1]}-")


class SlowCable:
    """A cable through this process: frames take `delay` seconds and up to `jitter` more, which lets
    them overtake each other, and a part of them, `loss`, never arrives. Both directions alike."""

    def __init__(self, near, far, seed):
        self.delay, self.jitter, self.loss = 0.0, 0.0, 0.0
        self.passed, self.lost = 0, 0
        self._ends = {near: far, far: near}
        self._random = random.Random(seed)
        self._stop_read, self._stop_write = os.pipe()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def _carry(self):
        waiting, number = [], 0  # (when, in which order, to, frame)
        while True:
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, to, frame = heapq.heappop(waiting)
                try:
                    os.write(to, frame)
                except OSError:  # that end is down
                    pass
            patience = waiting[0][0] - now if waiting else None
            ready, _, _ = select.select([*self._ends, self._stop_read], [], [], patience)
            if self._stop_read in ready:
                return
            for end in ready:
                try:
                    frame = os.read(end, 1 << 16)
                except OSError:
                    continue
                if self._random.random() < self.loss:
                    self.lost += 1
                    continue
                self.passed += 1
                due = time.monotonic() + self.delay + self._random.uniform(0, self.jitter)
                number += 1
                heapq.heappush(waiting, (due, number, self._ends[end], frame))

    def close(self):
        os.write(self._stop_write, b"x")
        self._thread.join()
        for fd in (*self._ends, self._stop_read, self._stop_write):
            os.close(fd)


class NetworkLab:
    """Hosts by name, for a `with`: LabError where the kernel cannot.

    Args:
      hosts: their names.
      slow: those of them whose cable is a SlowCable.
      seed: what a SlowCable loses.
    """

    _made = 0

    def __init__(self, hosts, slow=(), seed=0):
        NetworkLab._made += 1
        number = os.getpid()
        self._prefix = f"{_PREFIX}-{number}-{NetworkLab._made}-"
        self._tag = f"{number % 100_000}x{NetworkLab._made}"  # of devices, whose names are short
        self._net = f"10.{100 + NetworkLab._made % 100}.{number % 250}"
        self._addresses = {host: f"{self._net}.{i + 1}" for i, host in enumerate(hosts)}
        self._slow, self._seed = set(slow), seed
        self.cables = {}

    def __enter__(self):
        _sweep()
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for cable in self.cables.values():
            cable.close()
        _remove_namespaces(self._prefix)

    def _build(self):
        switch = self._prefix + "switch"
        _do("ip", "netns", "add", switch)
        _do("ip", "-n", switch, "link", "add", "bridge0", "type", "bridge")
        _do("ip", "-n", switch, "link", "set", "bridge0", "up")
        for number, (host, address) in enumerate(self._addresses.items()):
            name = self._prefix + host
            near, far = f"h{number}x{self._tag}", f"s{number}x{self._tag}"
            _do("ip", "netns", "add", name)
            if host in self._slow:
                ends = [_open_tap(device) for device in (near, far)]
                self.cables[host] = SlowCable(*ends, seed=f"{self._seed} {host}")
            else:
                _do("ip", "link", "add", near, "type", "veth", "peer", "name", far)
            _do("ip", "link", "set", near, "netns", name)
            _do("ip", "link", "set", far, "netns", switch)
            _do("ip", "-n", switch, "link", "set", far, "master", "bridge0", "up")
            _do("ip", "-n", name, "addr", "add", f"{address}/24", "dev", near)
            _do("ip", "-n", name, "link", "set", near, "up")
            _do("ip", "-n", name, "link", "set", "lo", "up")
            self._nft(
                host,
                "add table inet lab\n"
                "add chain inet lab arrive { type filter hook input priority 0; }\n",
            )

    def _nft(self, host, rules):
        _do("ip", "netns", "exec", self._prefix + host, "nft", "-f", "-", text=rules)

    def address(self, host):
        """Its IP address."""
        return self._addresses[host]

    def command(self, host, *command):
        """The command line that runs another one on a host."""
        return ["ip", "netns", "exec", self._prefix + host, *command]

    def drop(self, sender, receiver):
        """What one host sends to another does not arrive any more."""
        rule = f"add rule inet lab arrive ip saddr {self.address(sender)} drop\n"
        self._nft(receiver, rule)

    def cut(self, host, others=None, incoming=True, outgoing=True):
        """Nothing passes between a host and the others (all if None), or one way only."""
        for other in self._addresses if others is None else others:
            if other == host:
                continue
            if incoming:
                self.drop(other, host)
            if outgoing:
                self.drop(host, other)

    def heal(self):
        """What was dropped or cut passes again."""
        for host in self._addresses:
            self._nft(host, "flush chain inet lab arrive\n")


def _open_tap(name):
    """The descriptor of a new network device whose frames are read and written by this process."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP_NO_INFO))
    except OSError as error:
        os.close(fd)
        raise LabError(f"no tap device: {error}") from None
    os.set_blocking(fd, False)
    return fd
