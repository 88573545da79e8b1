"""The network of a training job fails between living tasks: it goes on by itself when that is over,
and no update is lost or made twice.

MILLRACE_CLUSTER_PARTITIONS=1 tries every kind of task, cut off in every way; the suite tries two.
"""

import os
import re
import time

import network_lab
import pytest
from sanitizers import measures_time
from training_job import JobOnHosts

from millrace import _core

pytestmark = [
    measures_time,
    pytest.mark.skipif(not _core.grpc_available(), reason="built without gRPC"),
    pytest.mark.skipif(bool(network_lab.missing()), reason=network_lab.missing()),
]

ALL = "MILLRACE_CLUSTER_PARTITIONS" in os.environ
LOST_AFTER = 0.8  # seconds; a lease is three times that
SHORT, LONG = 2 * LOST_AFTER, 6 * LOST_AFTER  # heals before the lease ends, and after it
WAYS = {"both": {}, "in": {"outgoing": False}, "out": {"incoming": False}}
CUTS = [(task, way, seconds) for task in ("worker1", "ps0", "worker0")
        for way in WAYS for seconds in (SHORT, LONG)]  # fmt: skip


class Training:
    """A job on a lab, which must be left as it should be."""

    def __init__(self, folder, slow=()):
        self.lab = network_lab.NetworkLab(JobOnHosts.hosts(), slow)
        self.folder = folder

    def __enter__(self):
        try:
            self.lab.__enter__()
        except network_lab.LabError as error:
            pytest.skip(str(error))
        try:
            environment = {
                "MILLRACE_LOST_AFTER_MS": str(int(LOST_AFTER * 1000)),
                "MILLRACE_REPORT_AFTER_MS": "1000",
            }
            self.job = JobOnHosts(self.lab, self.folder, environment=environment)
            self.job.all_step()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if hasattr(self, "job"):
            self.job.end()
        self.lab.__exit__()

    def check(self):
        """All go on, end well, and have lost or doubled nothing."""
        self.job.all_step()
        assert self.job.stop() == 0, self.job.text()
        assert self.job.faults() == []


@pytest.mark.parametrize(
    ("task", "way", "seconds"), CUTS if ALL else [("ps0", "both", LONG), ("worker1", "out", SHORT)]
)
def test_a_task_that_is_cut_off_comes_back(tmp_path, task, way, seconds):
    with Training(tmp_path) as training:
        training.lab.cut(task, **WAYS[way])
        began = time.monotonic()
        if task != "ps0":  # the others go on without it
            for worker in range(3):
                if task != f"worker{worker}":
                    training.job.step_after(worker, began + LOST_AFTER)
        time.sleep(max(0, began + seconds - time.monotonic()))
        training.lab.heal()
        healed = time.monotonic()
        training.job.all_step()
        print(f"{task} cut off ({way}) for {seconds:.1f} s: all step "
              f"{time.monotonic() - healed:.2f} s after that")  # fmt: skip
        training.check()
        if seconds == LONG:
            lost = "worker1" if task == "ps0" else task
            other = "/job:ps/replica:0/task:0" if task == "ps0" else "/job:"
            # Who is cut off says whom it waits for, and since when.
            said = training.job.said(lost)
            assert re.search(rf"is waited for since \d+ s: .*task {other}", said), said


def test_a_slow_and_lossy_network_loses_nobody(tmp_path):
    slow = ["worker1", "ps1"] if ALL else ["worker1"]
    with Training(tmp_path, slow) as training:
        for cable in training.lab.cables.values():
            cable.delay, cable.jitter, cable.loss = 0.01, 0.005, 0.03
        end = time.monotonic() + (20 if ALL else 3)
        while time.monotonic() < end:
            training.job.all_step()
        assert sum(cable.lost for cable in training.lab.cables.values()) > 0
        training.check()
