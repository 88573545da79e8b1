"""Text and bytes, and the classes that count as numbers."""

from __future__ import annotations

import numbers
import os
from typing import Any

import numpy as np

from millrace.core.export import export

integral_types = export(v1="compat.integral_types", v2="compat.integral_types")(
    (numbers.Integral, np.integer)
)
real_types = export(v1="compat.real_types", v2="compat.real_types")(
    (numbers.Real, np.integer, np.floating)
)
complex_types = export(v1="compat.complex_types", v2="compat.complex_types")(
    (numbers.Complex, np.number)
)
bytes_or_text_types = export(v1="compat.bytes_or_text_types", v2="compat.bytes_or_text_types")(
    (bytes, str)
)


@export(v1="compat.as_bytes", v2="compat.as_bytes")
def as_bytes(bytes_or_text: Any, encoding: str = "utf-8") -> bytes:
    """Bytes as they are, text encoded; TypeError for anything else."""
    if isinstance(bytes_or_text, bytes):
        return bytes_or_text
    if isinstance(bytes_or_text, str):
        return bytes_or_text.encode(encoding)
    if isinstance(bytes_or_text, bytearray):
        return bytes(bytes_or_text)
    raise TypeError(f"Expected binary or unicode string, got {bytes_or_text!r}")


@export(v1="compat.as_text", v2="compat.as_text")
def as_text(bytes_or_text: Any, encoding: str = "utf-8") -> str:
    """Text as it is, bytes decoded; TypeError for anything else."""
    if isinstance(bytes_or_text, str):
        return bytes_or_text
    if isinstance(bytes_or_text, bytes):
        return bytes_or_text.decode(encoding)
    raise TypeError(f"Expected binary or unicode string, got {bytes_or_text!r}")


@export(v1="compat.as_str", v2="compat.as_str")
def as_str(bytes_or_text: Any, encoding: str = "utf-8") -> str:
    """The same as `as_text`."""
    return as_text(bytes_or_text, encoding)


@export(v1="compat.as_str_any", v2="compat.as_str_any")
def as_str_any(value: Any, encoding: str = "utf-8") -> str:
    """Bytes decoded, anything else as `str` writes it."""
    return value.decode(encoding) if isinstance(value, bytes) else str(value)


@export(v1="compat.path_to_str", v2="compat.path_to_str")
def path_to_str(path: Any) -> Any:
    """A path object as text; anything else as it is."""
    return os.fspath(path) if hasattr(path, "__fspath__") else path


def printable(text: str) -> str:
    """`text` as it is shown: with escapes for what would move a terminal's cursor."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


@export(v1="compat.forward_compatible", v2="compat.forward_compatible")
def forward_compatible(year: int, month: int, day: int) -> bool:
    """Whether programs of that date can be relied on; always True."""
    del year, month, day
    return True
