"""Programs that measure time."""

import time
from typing import Any

import numpy as np

from millrace.core import logging
from millrace.core.export import export


@export(v1="test.Benchmark", v2="test.Benchmark")
class Benchmark:
    """A base class for benchmarks, which report what they measured."""

    def run_op_benchmark(
        self, sess: Any, op_or_tensor: Any, feed_dict: Any = None, burn_iters: int = 2,
        min_iters: int = 10, name: str | None = None, **kwargs: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """Runs something often: {"name", "iters", "wall_time" (median, in seconds)}."""
        del kwargs
        for _ in range(burn_iters):
            sess.run(op_or_tensor, feed_dict)
        times = []
        for _ in range(min_iters):
            start = time.perf_counter()
            sess.run(op_or_tensor, feed_dict)
            times.append(time.perf_counter() - start)
        result = {
            "name": name or type(self).__name__,
            "iters": min_iters,
            "wall_time": float(np.median(times)),
        }
        self.report_benchmark(**result)
        return result

    def report_benchmark(
        self, iters: int | None = None, cpu_time: float | None = None,
        wall_time: float | None = None, throughput: float | None = None, extras: Any = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        """Logs what was measured."""
        logging.info(
            "Benchmark [%s] iters: %s, wall_time: %s, cpu_time: %s, throughput: %s %s",
            name, iters, wall_time, cpu_time, throughput, extras or "",
        )  # fmt: skip
