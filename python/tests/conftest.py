import signal

import pytest

from millrace import _core
from millrace.core.shapes import plain_sizes

# What a process ignores, its children ignore too: where the tests run with Ctrl-C ignored (nohup, a
# script's background job), the programs that they start are to see it all the same.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Modules are collected in one process. Names of TensorFlow 2 that some use as they are imported are
# not to turn eager execution on for the others: those that want it choose it in a fixture.
_core.choose_eager(False)


@pytest.fixture(autouse=True)
def _sizes(monkeypatch):
    """Shapes have TensorFlow 2's sizes in tests that run operations at once."""
    monkeypatch.setattr(plain_sizes, "on", _core.eager_enabled())
