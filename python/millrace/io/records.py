"""TFRecord files, outside of graphs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from millrace import _core
from millrace.core.export import export
from millrace.core.text import as_bytes, as_text


@export(v1=("python_io.TFRecordCompressionType", "io.TFRecordCompressionType"))
class TFRecordCompressionType:
    """How the records of a file are compressed."""

    NONE = 0
    ZLIB = 1
    GZIP = 2


@export(v1=("python_io.TFRecordOptions", "io.TFRecordOptions"), v2="io.TFRecordOptions")
class TFRecordOptions:
    """How a TFRecord file is compressed: the kind, and zlib's parameters for who writes."""

    compression_type_map = {
        TFRecordCompressionType.ZLIB: "ZLIB",
        TFRecordCompressionType.GZIP: "GZIP",
        TFRecordCompressionType.NONE: "",
    }

    def __init__(
        self, compression_type: Any = None, flush_mode: int | None = None,
        input_buffer_size: int | None = None, output_buffer_size: int | None = None,
        window_bits: int | None = None, compression_level: int | None = None,
        compression_method: int | None = None, mem_level: int | None = None,
        compression_strategy: int | None = None,
    ) -> None:  # fmt: skip
        """`compression_type`: of `TFRecordCompressionType`, or "", "ZLIB" or "GZIP".

        Buffers have sizes of their own, so those arguments are taken and do nothing.
        """
        self.get_compression_type_string(compression_type)
        self.compression_type = compression_type
        self.flush_mode = flush_mode
        self.input_buffer_size = input_buffer_size
        self.output_buffer_size = output_buffer_size
        self.window_bits = window_bits
        self.compression_level = compression_level
        self.compression_method = compression_method
        self.mem_level = mem_level
        self.compression_strategy = compression_strategy

    @classmethod
    def get_compression_type_string(cls, options: Any) -> str:
        """ "", "ZLIB" or "GZIP", of options, a type of compression, or None."""
        if isinstance(options, TFRecordOptions):
            return cls.get_compression_type_string(options.compression_type)
        if not options:
            return ""
        if isinstance(options, (str, bytes)):
            text = as_text(options)
            if text in cls.compression_type_map.values():
                return text
        elif options in cls.compression_type_map:
            return cls.compression_type_map[options]
        raise ValueError(
            f'Not a valid compression_type: "{options}"; expected "", "ZLIB", "GZIP", or one of '
            "TFRecordCompressionType"
        )


@export(v1=("python_io.tf_record_iterator", "io.tf_record_iterator"))
def tf_record_iterator(path: Any, options: Any = None) -> Iterator[bytes]:
    """The records of a file, in order, each checked against its checksums.

    `options`: a `TFRecordOptions` or a type of compression. `errors.DataLossError` where the file
    is cut or damaged.
    """
    reader = _core.RecordReader(
        as_text(os.fspath(path)), TFRecordOptions.get_compression_type_string(options)
    )
    while (record := reader.next()) is not None:
        yield record


@export(v1=("python_io.TFRecordWriter", "io.TFRecordWriter"), v2="io.TFRecordWriter")
class TFRecordWriter:
    """Writes a TFRecord file: `with TFRecordWriter(path) as writer: writer.write(b"record")`."""

    def __init__(self, path: Any, options: Any = None) -> None:
        """`options`: a `TFRecordOptions` or a type of compression. The file is emptied."""
        if not isinstance(options, TFRecordOptions):
            options = TFRecordOptions(compression_type=options)

        def given(value: int | None, otherwise: int) -> int:
            return otherwise if value is None else value

        self._writer = _core.RecordWriter(
            as_text(os.fspath(path)),
            TFRecordOptions.get_compression_type_string(options),
            level=given(options.compression_level, -1),
            window_bits=given(options.window_bits, 15),
            memory_level=given(options.mem_level, 8),
            strategy=given(options.compression_strategy, 0),
        )

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def write(self, record: Any) -> None:
        """Adds a record: bytes, or text, which is written as UTF-8."""
        self._writer.write(as_bytes(record))

    def flush(self) -> None:
        """What was written so far can be read."""
        self._writer.flush()

    def close(self) -> None:
        """Ends the file. Without it records may be lost."""
        self._writer.close()
