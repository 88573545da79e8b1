"""Writes safetensors files tensor by tensor, so that no two need be in memory at once."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

import numpy as np

from millrace.cli.tensors import Entry
from millrace.core import dtypes

METADATA = "__metadata__"  # the header's key for what is no tensor
TYPES = {
    dtypes.bool_: "BOOL", dtypes.uint8: "U8", dtypes.int8: "I8", dtypes.uint16: "U16",
    dtypes.int16: "I16", dtypes.uint32: "U32", dtypes.int32: "I32", dtypes.uint64: "U64",
    dtypes.int64: "I64", dtypes.float16: "F16", dtypes.bfloat16: "BF16", dtypes.float32: "F32",
    dtypes.float64: "F64", dtypes.complex64: "C64",
}  # fmt: skip


class SafetensorsWriter:
    """A file that appears when it is complete: `with` its entries, `write` each in their order."""

    def __init__(self, path: str, entries: list[Entry]):
        """`entries`: all that will be written, of types in TYPES."""
        self._path = path
        header: dict[str, Any] = {}
        offset = 0
        for entry in entries:
            end = offset + (entry.bytes or 0)
            header[entry.name] = {
                "dtype": TYPES[entry.dtype], "shape": entry.shape, "data_offsets": [offset, end],
            }  # fmt: skip
            offset = end
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        self._header = text + b" " * (-len(text) % 8)  # the elements lie at a multiple of 8

    def __enter__(self) -> SafetensorsWriter:
        folder = os.path.dirname(self._path) or "."
        self._file = tempfile.NamedTemporaryFile(
            dir=folder, prefix=os.path.basename(self._path) + ".", delete=False
        )
        self._file.write(len(self._header).to_bytes(8, "little") + self._header)
        return self

    def write(self, array: np.ndarray) -> None:
        """Adds the elements of the next entry."""
        self._file.write(np.ascontiguousarray(array).data)

    def __exit__(self, kind: Any, *unused: Any) -> None:
        try:
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
                os.chmod(self._file.name, 0o666 & ~_umask())
                os.replace(self._file.name, self._path)
        finally:
            self._file.close()
            if os.path.exists(self._file.name):
                os.unlink(self._file.name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
