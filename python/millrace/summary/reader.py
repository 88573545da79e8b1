"""Reads event files."""

import os
from collections.abc import Iterator
from typing import Any

from millrace import _core, protos
from millrace.core.errors import DataLossError, InvalidArgumentError
from millrace.core.export import export
from millrace.core.text import as_text


class EventReader:
    """The events of a file that may still be written."""

    def __init__(self, path: Any):
        """NotFoundError where there is no such file, InvalidArgumentError where none can be."""
        self._path = as_text(os.fspath(path))
        try:
            self._path.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(None, None, f"{self._path!r}: {error}") from None
        self._reader = _core.EventReader(self._path)

    def next(self) -> Any:
        """The next event; None where there is none yet. DataLossError where the file is damaged."""
        record = self._reader.next()
        if record is None:
            return None
        try:
            return protos.Event.FromString(record)
        except protos.DecodeError as error:
            raise DataLossError(
                None, None, f"'{self._path}' has a record that is not an event: {error}"
            ) from None


@export(v1="train.summary_iterator")
def summary_iterator(path: Any) -> Iterator[Any]:
    """The `Event` messages of an event file, one by one.

    DataLossError where the file is damaged, or ends in the middle of an event.
    """
    reader = EventReader(path)
    while (event := reader.next()) is not None:
        yield event
