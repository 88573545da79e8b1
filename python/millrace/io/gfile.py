"""Files and folders as TensorFlow programs reach them: `tf.gfile`.

Errors are those of `millrace.core.errors`. A path may be text, bytes or a path object, and may
start with `file://`; other schemes are not supported.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import IO, Any, NamedTuple

from millrace.core import errors
from millrace.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    UnimplementedError,
)
from millrace.core.export import export
from millrace.core.text import as_bytes

_MODES = ("r", "w", "a", "r+", "w+", "a+")


def _path(name: Any) -> str:
    """The path in the file system; UnimplementedError where `name` has a scheme we lack."""
    if not isinstance(name, (str, bytes)) and not hasattr(name, "__fspath__"):
        raise TypeError(f"Expected a path as text or bytes, got {name!r}")
    path = os.fsdecode(name)
    scheme, separator, rest = path.partition("://")
    if not separator or not scheme.isalnum():
        return path
    if scheme == "file":
        return rest
    raise UnimplementedError(
        None, None, f"File system scheme '{scheme}' not implemented (file: '{path}')"
    )


def _error(error: OSError, path: str) -> Exception:
    """The exception of `millrace.core.errors` for an error of the operating system."""
    kinds = {
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
    kind = kinds.get(error.errno or 0, errors.UnknownError)
    return kind(None, None, f"{path}; {error.strerror or error}")


class FileIO:
    """A file, opened when it is first read or written."""

    def __init__(self, name: Any, mode: str = "r") -> None:
        """`mode` is r, w, a, r+, w+ or a+, with b for bytes instead of text.

        Raises InvalidArgumentError for any other mode. A file that is missing shows at the
        first read.
        """
        self._name = name
        self._mode = mode
        self._plain_mode = mode.replace("b", "", 1)
        self._text = "b" not in mode
        if self._plain_mode not in _MODES:
            raise InvalidArgumentError(
                None, None, f"mode '{mode}' of file '{name}' is not one of {', '.join(_MODES)}"
            )
        self._reader: IO[bytes] | None = None
        self._writer: IO[bytes] | None = None

    @property
    def name(self) -> Any:
        """The path as it was given."""
        return self._name

    @property
    def mode(self) -> str:
        """The mode as it was given."""
        return self._mode

    def _open(self, mode: str) -> IO[bytes]:
        path = _path(self._name)
        try:
            return open(path, mode)
        except OSError as error:
            raise _error(error, path) from None

    def _denied(self, what: str) -> Exception:
        return PermissionDeniedError(None, None, f"File '{self._name}' isn't open for {what}")

    def _reading(self) -> IO[bytes]:
        """The file to read from, with all that was written in it."""
        if self._reader is None:
            if self._plain_mode in ("w", "a"):
                raise self._denied("reading")
            if self._plain_mode not in ("r", "r+"):
                self._writing()
            self._reader = self._open("rb")
        if self._writer is not None:
            self._writer.flush()
        return self._reader

    def _writing(self) -> IO[bytes]:
        if self._writer is None:
            if self._plain_mode == "r":
                raise self._denied("writing")
            letter = self._plain_mode[0]
            if letter == "r":  # makes a file where there is none, and leaves one that is there
                self._open("ab").close()
                letter = "r+"
            self._writer = self._open(letter + "b")
        return self._writer

    def _value(self, data: bytes) -> Any:
        return data.decode() if self._text else data

    def _run(self, operation: Any, *args: Any) -> Any:
        try:
            return operation(*args)
        except OSError as error:
            raise _error(error, _path(self._name)) from None

    def read(self, n: int = -1) -> Any:
        """At most `n` bytes from here on, as text or bytes; all that is left by default."""
        return self._value(self._run(self._reading().read, n))

    def readline(self) -> Any:
        """The next line with its newline; empty at the end."""
        line = self._run(self._reading().readline)
        if self._text and line.endswith(b"\r\n"):
            line = line[:-2] + b"\n"
        return self._value(line)

    def readlines(self) -> list[Any]:
        """The lines that are left."""
        return list(self)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def next(self) -> Any:
        """The next line; StopIteration at the end."""
        return self.__next__()

    def write(self, file_content: Any) -> None:
        """Writes text (as UTF-8) or bytes."""
        self._run(self._writing().write, as_bytes(file_content))

    def seek(self, offset: int | None = None, whence: int = 0, position: int | None = None) -> None:
        """Goes on reading at `offset` from the start (whence 0), here (1) or the end (2).

        `position` is an older name of `offset`. Raises OutOfRangeError past the end.
        """
        if position is not None:
            offset, whence = position, 0
        if offset is None:
            raise TypeError("seek(): offset argument required")
        if whence not in (0, 1, 2):
            raise InvalidArgumentError(None, None, f"seek(): whence must be 0, 1 or 2: {whence}")
        file, size = self._reading(), self.size()
        target = offset + (0, file.tell(), size)[whence]
        if target < 0:
            raise InvalidArgumentError(None, None, f"seek(): position {target} is before the start")
        file.seek(min(target, size))
        if target > size:
            raise OutOfRangeError(
                None, None, f"seek(): position {target} is past the end of '{self._name}' ({size})"
            )

    def seekable(self) -> bool:
        """True: files can be sought in."""
        return True

    def tell(self) -> int:
        """The position of the next read, or of the next write in a file that is only written."""
        file = self._writing() if self._plain_mode in ("w", "a") else self._reading()
        return file.tell()

    def size(self) -> int:
        """The number of bytes in the file."""
        self.flush()
        return Stat(self._name).length

    def flush(self) -> None:
        """Hands what was written to the operating system."""
        if self._writer is not None:
            self._run(self._writer.flush)

    def close(self) -> None:
        """Closes the file; it is opened again where it is used again."""
        for file in (self._reader, self._writer):
            if file is not None:
                self._run(file.close)
        self._reader = self._writer = None

    def __enter__(self) -> FileIO:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


@export(v1=("gfile.GFile", "gfile.Open"))
class GFile(FileIO):
    """A file: `GFile(name, mode="r")`."""


Open = GFile


@export(v1="gfile.FastGFile")
class FastGFile(FileIO):
    """The same as `GFile`."""


class FileStatistics(NamedTuple):
    """What `Stat` tells of a file."""

    length: int
    mtime_nsec: int
    is_directory: bool


@export(v1="gfile.Exists")
def Exists(filename: Any) -> bool:
    """Whether there is a file or folder of that path."""
    return os.path.exists(_path(filename))


@export(v1="gfile.IsDirectory")
def IsDirectory(dirname: Any) -> bool:
    """Whether there is a folder of that path."""
    return os.path.isdir(_path(dirname))


@export(v1="gfile.ListDirectory")
def ListDirectory(dirname: Any) -> list[str]:
    """The names in a folder, sorted, without `.` and `..`; NotFoundError without the folder."""
    path = _path(dirname)
    if not os.path.isdir(path):
        raise NotFoundError(None, None, f"Could not find directory {path}")
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        raise _error(error, path) from None


@export(v1="gfile.MkDir")
def MkDir(dirname: Any) -> None:
    """Makes a folder in one that exists (NotFoundError otherwise); it may be there already."""
    path = _path(dirname)
    try:
        os.mkdir(path)
    except OSError as error:
        if not os.path.isdir(path):
            raise _error(error, path) from None


@export(v1="gfile.MakeDirs")
def MakeDirs(dirname: Any) -> None:
    """Makes a folder and those above it; all may be there already.

    Raises FailedPreconditionError where a file is in the way.
    """
    path = _path(dirname)
    try:
        os.makedirs(path, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise FailedPreconditionError(
            None, None, f"{path}: a part of the path is not a directory"
        ) from None
    except OSError as error:
        raise _error(error, path) from None


@export(v1="gfile.Remove")
def Remove(filename: Any) -> None:
    """Deletes a file; NotFoundError without one, FailedPreconditionError for a folder."""
    path = _path(filename)
    try:
        os.remove(path)
    except OSError as error:
        raise _error(error, path) from None


@export(v1="gfile.DeleteRecursively")
def DeleteRecursively(dirname: Any) -> None:
    """Deletes a folder with all that is in it; NotFoundError without one."""
    path = _path(dirname)
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.remove(path)
    except OSError as error:
        raise _error(error, path) from None


def _refuse_existing(path: str, overwrite: bool) -> None:
    if not overwrite and os.path.exists(path):
        raise AlreadyExistsError(None, None, f"{path}: file already exists, and overwrite is False")


@export(v1="gfile.Rename")
def Rename(oldname: Any, newname: Any, overwrite: bool = False) -> None:
    """Renames a file or folder; AlreadyExistsError where the new one exists, or `overwrite`."""
    old, new = _path(oldname), _path(newname)
    _refuse_existing(new, overwrite)
    try:
        os.replace(old, new)
    except OSError as error:
        raise _error(error, old) from None


@export(v1="gfile.Copy")
def Copy(oldpath: Any, newpath: Any, overwrite: bool = False) -> None:
    """Copies a file; AlreadyExistsError where the new one exists, or `overwrite`."""
    old, new = _path(oldpath), _path(newpath)
    _refuse_existing(new, overwrite)
    try:
        shutil.copyfile(old, new)
    except shutil.SameFileError:
        return
    except OSError as error:
        raise _error(error, error.filename or old) from None


def _matching(pattern: str) -> list[str]:
    """The paths that match `pattern`, whose parts each match names of one folder."""
    folder, _, last = pattern.rpartition("/")
    if not any(c in pattern for c in "*?["):
        return [pattern] if os.path.exists(pattern) else []
    if pattern.startswith("/") and not folder:
        folders = ["/"]
    else:
        folders = _matching(folder) if folder else ["."]
    found = []
    for each in folders:
        try:
            names = os.listdir(each)
        except OSError:
            continue
        found += [os.path.join(each, name) for name in names if fnmatchcase(name, last)]
    return found


@export(v1="gfile.Glob")
def Glob(filename: Any) -> list[str]:
    """The paths that match a pattern, or any of several, sorted.

    `*`, `?` and `[...]` match within one name; names that start with a dot match too. Paths of
    a pattern without a folder start with `./`.
    """
    patterns = filename if isinstance(filename, (list, tuple)) else [filename]
    return [path for pattern in patterns for path in sorted(_matching(_path(pattern)))]


@export(v1="gfile.Stat")
def Stat(filename: Any) -> FileStatistics:
    """Length in bytes, time of the last change and kind of a file; NotFoundError without it."""
    path = _path(filename)
    try:
        found = os.stat(path)
    except OSError as error:
        raise _error(error, path) from None
    return FileStatistics(found.st_size, found.st_mtime_ns, os.path.isdir(path))


@export(v1="gfile.Walk")
def Walk(top: Any, in_order: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields (folder, its folders, its files) for `top` and all below it.

    A folder comes before what is in it, or after with `in_order=False`. Without `top` there is
    nothing to yield.
    """
    for folder, folders, files in os.walk(_path(top), topdown=in_order):
        if in_order:
            folders.sort()
        yield folder, sorted(folders), sorted(files)
