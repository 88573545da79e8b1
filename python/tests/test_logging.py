"""The log of a program."""

import logging as standard
from contextlib import contextmanager

import pytest

from millrace.core import logging


@pytest.fixture(autouse=True)
def verbosity():
    before = logging.get_verbosity()
    logging.set_verbosity(logging.INFO)
    yield
    logging.set_verbosity(before)


@contextmanager
def root_handlers(*handlers):
    """The root logger with these handlers, without those that pytest gives it."""
    kept, standard.root.handlers = standard.root.handlers, list(handlers)
    try:
        yield
    finally:
        standard.root.handlers = kept


def test_lines_look_as_in_tensorflow(capsys):
    with root_handlers():
        logging.info("hi %d", 3)
        logging.warn("careful")
        logging.warning("careful")
        logging.error("bad")
        logging.fatal("worse")
        logging.log(logging.WARN, "leveled")
        logging.TaskLevelStatusMessage("task")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "INFO:tensorflow:hi 3",
        "WARNING:tensorflow:careful",
        "WARNING:tensorflow:careful",
        "ERROR:tensorflow:bad",
        "CRITICAL:tensorflow:worse",
        "WARNING:tensorflow:leveled",
        "ERROR:tensorflow:task",
    ]


def test_verbosity(capsys):
    with root_handlers():
        logging.debug("no")
        logging.vlog(1, "no")
        logging.vlog(20, "yes")
        logging.set_verbosity("DEBUG")
        assert logging.get_verbosity() == logging.DEBUG == 10
        logging.debug("yes")
        logging.set_verbosity(logging.ERROR)
        logging.warn("no")
    assert capsys.readouterr().err == "INFO:tensorflow:yes\nDEBUG:tensorflow:yes\n"


def test_counted_lines(capsys):
    with root_handlers():
        for i in range(5):
            logging.log_every_n(logging.INFO, "every %d", 2, i)
            logging.log_first_n(logging.INFO, "first %d", 2, i)
            logging.log_if(logging.INFO, "if %d", i > 3, i)
    lines = [line.rpartition(":")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["every 0", "first 0", "first 1", "every 2", "every 4", "if 4"]


def test_handlers_of_the_program_take_over(capsys):
    records = []
    handler = standard.Handler()
    handler.emit = records.append
    with root_handlers(handler):
        logging.info("once")
    assert [record.getMessage() for record in records] == ["once"]
    assert records[0].filename == "test_logging.py"
    assert capsys.readouterr().err == ""
