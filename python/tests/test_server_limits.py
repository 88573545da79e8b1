"""What many signatures and floods of sessions do to a server's process: nothing that lasts, and
nothing to others."""

import os
import subprocess
import sys
import time

import pytest
from sanitizers import measures_memory

import millrace.compat.v1 as tf

# MILLRACE_SIGNATURES=10000 says how many; the suite runs a few.
SIGNATURES = int(os.environ.get("MILLRACE_SIGNATURES", "1500"))
SESSIONS = 4
SERVE = """
import millrace.compat.v1 as tf
server = tf.train.Server({"ps": ["localhost:0"]}, "ps", 0)
print(server.target, flush=True)
server.join()
"""
# Says, for each line, the bytes of its heap that are in use.
SERVE_AND_COUNT = """
import ctypes, sys
import millrace.compat.v1 as tf
class Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost")]
mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Heap
server = tf.train.Server({"ps": ["localhost:0"]}, "ps", 0)
print(server.target, flush=True)
for line in sys.stdin:
    heap = mallinfo2()
    print(heap.uordblks + heap.hblkhd, flush=True)
"""
# Opens sessions on a server until one is refused, says how many there were, and holds on to them.
FLOOD = """
import sys
import millrace.compat.v1 as tf
with tf.device("/job:ps/task:0"):
    one = tf.constant(1) + tf.placeholder_with_default(1, [])
sessions = []
try:
    while True:
        sessions.append(tf.Session(sys.argv[1]))
        sessions[-1].run(one)
except tf.errors.ResourceExhaustedError as error:
    print(len(sessions) - 1, error.message, flush=True)
for line in sys.stdin:
    print(sessions[0].run(one), flush=True)
"""


@pytest.fixture
def start():
    started = []

    def begin(*command, **environment):
        process = subprocess.Popen(
            [sys.executable, "-c", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, **environment},
        )  # fmt: skip
        started.append(process)
        return process, process.stdout.readline().strip()

    yield begin
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def resident_mb(process):
    with open(f"/proc/{process.pid}/status") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    raise AssertionError("the kernel does not say")


def falling(value):
    """What value() says each tenth of a second while it becomes less."""
    last = float("inf")
    while (now := value()) < last:
        yield (last := now)
        time.sleep(0.1)


@measures_memory
def test_signatures_leave_nothing_in_a_server(start):
    server, target = start(SERVE_AND_COUNT)

    def in_use():
        server.stdin.write("\n")
        server.stdin.flush()
        return int(server.stdout.readline()) / 2**20

    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            x = tf.placeholder(tf.float32, [8])
            results = [tf.negative(x) * 2.0 + 1.0 for _ in range(SIGNATURES)]
        before = resident_mb(server)
        used, left, resident = [], [], []
        for _ in range(SESSIONS):
            with tf.Session(target) as session:
                for result in results:
                    session.run(result, {x: [1.0] * 8})
                used.append(in_use())
                resident.append(resident_mb(server))
            # The graphs go a moment after the session: until no more go.
            left.append(min(falling(in_use)))
        for what, values in (("used", used), ("left", left), ("resident", resident)):
            print(f"MB {what}, {SIGNATURES} signatures of each session:", *map(round, values))
    # A session's graphs go with it.
    session_takes = used[0] - left[0]
    assert session_takes > 0.002 * SIGNATURES, (used, left)
    assert max(left[1:]) - left[0] < 1 + 0.02 * session_takes, left
    # The next has their memory, but for what lies between things that stay.
    assert max(resident) - before < 20 + 2 * session_takes, (before, resident)


def test_a_flood_of_sessions_is_refused_and_harms_nobody(start):
    _, target = start(SERVE, MILLRACE_CLUSTER_MAX_SESSIONS="8")
    flood, said = start(FLOOD, target)
    assert said.startswith("4 ") and "MILLRACE_CLUSTER_MAX_SESSIONS_PER_CLIENT" in said
    # Who has sessions goes on, and others have room.
    flood.stdin.write("go on\n")
    flood.stdin.flush()
    assert flood.stdout.readline() == "2\n"
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        two = tf.constant(1) + tf.placeholder_with_default(1, [])
        with tf.Session(target) as session:
            assert session.run(two) == 2
    _, said = start(FLOOD, target)
    assert said.startswith("4 "), "what was closed makes room"
    _, said = start(FLOOD, target)
    assert said.startswith("0 ") and "MILLRACE_CLUSTER_MAX_SESSIONS " in said
