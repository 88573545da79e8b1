"""What a path stands for: found out by its name and the first bytes, not told by the user."""

from __future__ import annotations

import os
import re
import stat
import zlib
from typing import NamedTuple

from millrace.checkpoint.checkpoint_state import checkpoint_exists, latest_checkpoint
from millrace.cli.command import CommandError
from millrace.cli.messages import saved_model_file

CHECKPOINT = "checkpoint"
SAFETENSORS = "safetensors file"
MESSAGE = "graph"  # GraphDef, MetaGraph or SavedModel: which of them is seen when it is read
SAVED_MODEL = "SavedModel"
RECORDS = "TFRecord file"
EVENTS = "event file"

_TABLE_MAGIC = bytes.fromhex("57fb808b247547db")
_HEAD = 1 << 12  # of compressed records, more than the tables before the first one
_LARGEST_STATE = 1 << 26
_DATA_FILE = re.compile(r"(.+)\.data-\d{5}-of-\d{5}", re.DOTALL)


class Found(NamedTuple):
    """A file or folder of a known kind."""

    kind: str
    path: str  # of a checkpoint its prefix
    compression: str = ""  # of records: "", "ZLIB" or "GZIP"


def find(path: str) -> Found:
    """What is there. CommandError when there is nothing, or nothing that is known."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        if checkpoint_exists(path):
            return Found(CHECKPOINT, path)
        raise CommandError(f"{path}: there is no such file, folder or checkpoint") from None
    except (OSError, ValueError) as error:
        raise CommandError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISDIR(status.st_mode):
        return _find_folder(path)
    if not stat.S_ISREG(status.st_mode):
        raise CommandError(f"{path}: is neither a file nor a folder")
    return _find_file(path, status.st_size)


def _find_folder(path: str) -> Found:
    if saved_model_file(path) is not None:
        return Found(SAVED_MODEL, path)
    state = os.path.join(path, "checkpoint")
    if os.path.exists(state) and os.stat(state).st_size > _LARGEST_STATE:
        raise CommandError(f"{state}: is too large to be a list of checkpoints")
    newest = latest_checkpoint(path)
    if newest is not None:
        return Found(CHECKPOINT, newest)
    if os.path.exists(path + ".index"):
        return Found(CHECKPOINT, path)
    events = sorted(name for name in os.listdir(path) if "tfevents" in name)
    if events:
        return Found(EVENTS, os.path.join(path, events[-1]))
    raise CommandError(f"{path}: the folder has no checkpoint, no SavedModel and no event file")


def _find_file(path: str, length: int) -> Found:
    folder, name = os.path.split(path)
    if name == "checkpoint":
        return _find_folder(folder or ".")
    if name.endswith(".index"):
        return Found(CHECKPOINT, path.removesuffix(".index"))
    if data_file := _DATA_FILE.fullmatch(path):
        return Found(CHECKPOINT, data_file[1])
    if length == 0:
        raise CommandError(f"{path}: the file is empty")
    if name.endswith(".safetensors"):
        return Found(SAFETENSORS, path)
    if name.endswith((".pb", ".pbtxt", ".meta")):
        return Found(MESSAGE, path)
    with open(path, "rb") as file:
        head = file.read(_HEAD)
        file.seek(max(0, length - 8))
        tail = file.read(8)
    if "tfevents" in name or (is_record_header(head) and b"brain.Event:" in head[:64]):
        return Found(EVENTS, path)
    if tail == _TABLE_MAGIC or os.path.exists(path + ".index"):
        return Found(CHECKPOINT, path)
    compression = record_compression(head)
    if compression is not None:
        return Found(RECORDS, path, compression)
    if ".tfrecord" in name:
        return Found(RECORDS, path)
    return Found(MESSAGE, path)


def record_compression(head: bytes) -> str | None:
    """How the records are compressed of a file that begins so; None when it holds no records."""
    if is_record_header(head):
        return ""
    for kind, magic, window in (("GZIP", b"\x1f\x8b", 31), ("ZLIB", b"\x78", 15)):
        if head.startswith(magic):
            try:
                if is_record_header(zlib.decompressobj(window).decompress(head, 12)):
                    return kind
            except zlib.error:
                continue
    return None


def is_record_header(head: bytes) -> bool:
    """Whether a record's length and the checksum of that stand at the beginning."""
    if len(head) < 12:
        return False
    crc = 0xFFFFFFFF
    for byte in head[:8]:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    return masked == int.from_bytes(head[8:12], "little")
