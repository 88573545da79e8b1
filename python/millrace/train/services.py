"""The threads of a supervisor: each does one thing every so many seconds."""

import time
from typing import Any

from millrace import protos
from millrace.core import logging
from millrace.train.coordinator import LooperThread


class CheckpointThread(LooperThread):
    """Writes checkpoints."""

    def __init__(self, sv: Any, sess: Any):
        super().__init__(sv.coord, sv.save_model_secs)
        self._sv, self._sess = sv, sess

    def run_loop(self) -> None:
        """Writes one."""
        sv = self._sv
        logging.info("Saving checkpoint to path %s", sv.save_path)
        sv.saver.save(self._sess, sv.save_path, global_step=sv.global_step)
        if sv.summary_writer is not None and sv.global_step is not None:
            log = protos.SessionLog(
                status=protos.SessionLog.CHECKPOINT, checkpoint_path=sv.save_path
            )
            sv.summary_writer.add_session_log(log, int(self._sess.run(sv.global_step)))


class SummaryThread(LooperThread):
    """Writes summaries."""

    def __init__(self, sv: Any, sess: Any):
        super().__init__(sv.coord, sv.save_summaries_secs)
        self._sv, self._sess = sv, sess

    def run_loop(self) -> None:
        """Writes what there is now."""
        step = self._sv.global_step
        fetches = [self._sv.summary_op] if step is None else [self._sv.summary_op, step]
        values = self._sess.run(fetches)
        self._sv.summary_writer.add_summary(values[0], None if step is None else int(values[1]))


class StepCounterThread(LooperThread):
    """Writes how many steps a second are made."""

    def __init__(self, sv: Any, sess: Any):
        super().__init__(sv.coord, sv.save_summaries_secs)
        self._sv, self._sess = sv, sess
        self._tag = f"{sv.global_step.op.name}/sec"

    def start_loop(self) -> None:
        """Starts to count."""
        self._last_time = time.time()
        self._last_step = int(self._sess.run(self._sv.global_step))

    def run_loop(self) -> None:
        """Writes the rate since the last time."""
        step, now = int(self._sess.run(self._sv.global_step)), time.time()
        rate = (step - self._last_step) / max(now - self._last_time, 1e-9)
        self._last_step, self._last_time = step, now
        logging.info("%s: %g", self._tag, rate)
        summary = protos.Summary()
        value = summary.value.add()
        value.tag, value.simple_value = self._tag, rate
        self._sv.summary_writer.add_summary(summary, step)
