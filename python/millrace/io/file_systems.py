"""File systems for paths with a scheme, `s3://bucket/file`.

The library has those of `memory://`, which ends with the process, and `file://`. Others come from
Python, as fsspec has them: `register_file_system("s3", fsspec.filesystem("s3"))`. Every function
that takes a path then takes theirs: checkpoints, records, event files, `tf.data`, `tf.gfile`.
"""

from __future__ import annotations

import datetime
import errno
import importlib
import io
import posixpath
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from millrace import _core
from millrace.core import errors

_KINDS = {
    errno.ENOENT: errors.NotFoundError,
    errno.EEXIST: errors.AlreadyExistsError,
    errno.EACCES: errors.PermissionDeniedError,
    errno.EPERM: errors.PermissionDeniedError,
    errno.EROFS: errors.PermissionDeniedError,
    errno.EISDIR: errors.FailedPreconditionError,
    errno.ENOTDIR: errors.FailedPreconditionError,
    errno.ENOTEMPTY: errors.FailedPreconditionError,
    errno.EBUSY: errors.UnavailableError,
    errno.EINVAL: errors.InvalidArgumentError,
    errno.ENAMETOOLONG: errors.InvalidArgumentError,
    errno.ENOSPC: errors.ResourceExhaustedError,
    errno.EMFILE: errors.ResourceExhaustedError,
}
# Errors that are raised without a number.
_NUMBERS = {
    FileNotFoundError: errno.ENOENT,
    FileExistsError: errno.EEXIST,
    PermissionError: errno.EACCES,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
}


def file_error(error: OSError, path: str) -> Exception:
    """The exception of `millrace.core.errors` for an error of the operating system."""
    number = error.errno or _NUMBERS.get(type(error), 0)
    kind = _KINDS.get(number, errors.UnknownError)
    return kind(None, None, f"{path}; {error.strerror or error}")


def register_file_system(scheme: str, file_system: Any = None) -> None:
    """Makes a file system the one for paths that begin with "scheme://".

    Args:
      scheme: letters, digits, `+`, `-` and `.`.
      file_system: an object with the methods of fsspec's file systems: `open`, `info`, `exists`,
        `ls`, `makedirs`, `mv`, `rm_file` and `rmdir`, which take paths without the scheme, on any
        thread. By default that of fsspec's for the scheme, where fsspec is installed.

    Raises:
      AlreadyExistsError: the scheme has a file system.
      InvalidArgumentError: `scheme` cannot be one.
      ImportError: no file system is given, and fsspec is not installed.
    """
    if file_system is None:
        file_system = importlib.import_module("fsspec").filesystem(scheme)
    missing = [name for name in _Methods.NEEDED if not hasattr(file_system, name)]
    if missing:
        raise TypeError(
            f"{file_system!r} is no file system as fsspec has them: it lacks {', '.join(missing)}"
        )
    _core.register_file_system(scheme, _Methods(scheme, file_system))


def _nanoseconds(details: Any) -> int:
    """When a file was changed, as far as its details say."""
    for key in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = details.get(key)
        if isinstance(value, datetime.datetime):
            return int(value.timestamp() * 1e9)
        if isinstance(value, (int, float)):
            return int(value * 1e9)
    return 0


class _Methods:
    """What the library calls: plain values, errors of `millrace.core.errors`."""

    NEEDED = ("open", "info", "exists", "ls", "makedirs", "mv", "rm_file", "rmdir")

    def __init__(self, scheme: str, file_system: Any):
        self._scheme = scheme
        self._files = file_system

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise file_error(error, f"{self._scheme}://{path}") from None
        except NotImplementedError as error:
            raise errors.UnimplementedError(
                None, None, f"{self._scheme}://{path}: {error or 'not supported'}"
            ) from None

    def open_readable(self, path: str) -> _Reader:
        with self._errors(path):
            return _Reader(self, path, self._files.open(path, "rb"))

    def open_writable(self, path: str, append: bool) -> _Writer:
        with self._errors(path):
            return _Writer(self, path, self._files.open(path, "ab" if append else "wb"))

    def exists(self, path: str) -> bool:
        with self._errors(path):
            return bool(self._files.exists(path))

    def info(self, path: str) -> tuple[int, bool, int]:
        with self._errors(path):
            details = self._files.info(path)
        size = details.get("size") or 0
        return int(size), details.get("type") == "directory", _nanoseconds(details)

    def list(self, path: str) -> list[str]:
        if not self.info(path)[1]:
            raise errors.FailedPreconditionError(
                None, None, f"{self._scheme}://{path}; Not a directory"
            )
        with self._errors(path):
            found = self._files.ls(path, detail=False)
        names = {str(name).rstrip("/").rpartition("/")[2] for name in found}
        own = path.rstrip("/").rpartition("/")[2]
        # Some list the folder itself where it was made by hand.
        empty = [str(name) for name in found if str(name).strip("/") == path.strip("/")]
        return sorted(names - {""} - ({own} if empty else set()))

    def mkdir_all(self, path: str) -> None:
        with self._errors(path):
            self._files.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        is_folder = self.info(path)[1]
        with self._errors(path):
            if is_folder:
                self._files.rmdir(path)
            else:
                self._files.rm_file(path)

    def rename(self, old: str, new: str) -> None:
        self.info(old)
        with self._errors(old):
            self._files.mv(old, new)

    def real_path(self, path: str) -> str:
        return posixpath.normpath("/" + path).lstrip("/")


class _Reader:
    """A file that threads read at any place."""

    def __init__(self, methods: _Methods, path: str, file: IO[bytes]):
        self._methods, self._path, self._file = methods, path, file
        self._lock = threading.Lock()

    def read_at(self, offset: int, size: int) -> bytes:
        with self._lock, self._methods._errors(self._path):
            self._file.seek(offset)
            parts = []
            while size > 0 and (part := self._file.read(size)):
                parts.append(part)
                size -= len(part)
            return b"".join(parts)

    def size(self) -> int:
        return self._methods.info(self._path)[0]


class _Writer:
    """A file that is written at its end."""

    def __init__(self, methods: _Methods, path: str, file: IO[bytes]):
        self._methods, self._path, self._file = methods, path, file

    def append(self, data: bytes) -> None:
        self._run(lambda: self._file.write(data))

    def flush(self) -> None:
        self._run(self._file.flush)

    def close(self) -> None:
        self._run(self._file.close)

    def _run(self, action: Callable[[], Any]) -> None:
        with self._methods._errors(self._path):
            action()


class RegisteredReader(io.RawIOBase):
    """A file of any file system that the library knows, to be read by Python."""

    def __init__(self, path: str):
        self._file = _core.ReadableFile(path)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._file.size() if whence == 2 else 0)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._file.read_at(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class RegisteredWriter(io.RawIOBase):
    """A file of any file system that the library knows, to be written at its end by Python."""

    def __init__(self, path: str, append: bool):
        self._at = _core.file_info(path)[0] if append and _core.file_exists(path) else 0
        self._file = _core.WritableFile(path, append)

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        self._file.append(bytes(data))
        self._at += len(data)
        return len(data)

    def flush(self) -> None:
        if not self.closed:
            self._file.flush()

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._file.close()
