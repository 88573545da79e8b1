"""Readers: records of the files whose names come out of a queue."""

from __future__ import annotations

from typing import Any

from millrace import gen_ops
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.operation import Operation
from millrace.io.records import TFRecordOptions


def _queue_ref(queue: Any) -> Any:
    return queue if isinstance(queue, Tensor) else queue.queue_ref


@export(v1="ReaderBase")
class ReaderBase:
    """What readers of all kinds have: each `read` gives a key and a record.

    Work units are names of files mostly, taken from a queue when the one before is finished.
    """

    def __init__(self, reader_ref: Any, supports_serialize: bool = False) -> None:
        self._reader_ref = reader_ref
        self._supports_serialize = supports_serialize

    @property
    def reader_ref(self) -> Tensor:
        """The handle of the reader."""
        return self._reader_ref

    @property
    def supports_serialize(self) -> bool:
        """Whether `serialize_state` works."""
        return self._supports_serialize

    def read(self, queue: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
        """The next key and record; OutOfRangeError when the queue is closed and all is read."""
        return gen_ops.reader_read_v2(self._reader_ref, _queue_ref(queue), name=name)

    def read_up_to(
        self, queue: Any, num_records: Any, name: str | None = None
    ) -> tuple[Tensor, Tensor]:
        """The next keys and records: `num_records`, or fewer at the end."""
        return gen_ops.reader_read_up_to_v2(
            self._reader_ref, _queue_ref(queue), num_records, name=name
        )

    def num_records_produced(self, name: str | None = None) -> Tensor:
        """How many records were read."""
        return gen_ops.reader_num_records_produced_v2(self._reader_ref, name=name)

    def num_work_units_completed(self, name: str | None = None) -> Tensor:
        """How many work units were read to their end."""
        return gen_ops.reader_num_work_units_completed_v2(self._reader_ref, name=name)

    def serialize_state(self, name: str | None = None) -> Tensor:
        """Where the reader stands, as a string; not of every kind."""
        return gen_ops.reader_serialize_state_v2(self._reader_ref, name=name)

    def restore_state(self, state: Any, name: str | None = None) -> Operation:
        """Puts the reader where it stood."""
        return gen_ops.reader_restore_state_v2(self._reader_ref, state, name=name)

    def reset(self, name: str | None = None) -> Operation:
        """Makes the reader as new."""
        return gen_ops.reader_reset_v2(self._reader_ref, name=name)


@export(v1="WholeFileReader")
class WholeFileReader(ReaderBase):
    """Key: the file's name; record: its contents."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(gen_ops.whole_file_reader_v2(name=name), supports_serialize=True)


@export(v1="TextLineReader")
class TextLineReader(ReaderBase):
    """Lines without their ends; key: file and number of the line."""

    def __init__(self, skip_header_lines: int | None = None, name: str | None = None) -> None:
        super().__init__(
            gen_ops.text_line_reader_v2(skip_header_lines=skip_header_lines or 0, name=name)
        )


@export(v1="FixedLengthRecordReader")
class FixedLengthRecordReader(ReaderBase):
    """Records of `record_bytes` each, between a header and a footer; key: file and number."""

    def __init__(
        self, record_bytes: int, header_bytes: int | None = None, footer_bytes: int | None = None,
        hop_bytes: int | None = None, name: str | None = None, encoding: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            gen_ops.fixed_length_record_reader_v2(
                record_bytes=record_bytes, header_bytes=header_bytes or 0,
                footer_bytes=footer_bytes or 0, hop_bytes=hop_bytes or 0, encoding=encoding or "",
                name=name,
            )
        )  # fmt: skip


@export(v1="TFRecordReader")
class TFRecordReader(ReaderBase):
    """The records of TFRecord files; key: file and offset."""

    def __init__(self, name: str | None = None, options: Any = None) -> None:
        compression = TFRecordOptions.get_compression_type_string(options)
        super().__init__(gen_ops.tf_record_reader_v2(compression_type=compression, name=name))


@export(v1="IdentityReader")
class IdentityReader(ReaderBase):
    """Key and record are the work unit itself."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(gen_ops.identity_reader_v2(name=name), supports_serialize=True)
