"""Files and folders as TensorFlow programs reach them: `tf.gfile`.

Errors are those of `millrace.core.errors`. A path may be text, bytes or a path object, and may
start with the scheme of a registered file system (`file_systems.py`).
"""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import IO, Any, NamedTuple

from millrace.core.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    OutOfRangeError,
    PermissionDeniedError,
    UnimplementedError,
)
from millrace.core.export import export
from millrace.core.face import part_of_v2
from millrace.core.text import as_bytes
from millrace.io import places
from millrace.io.places import LocalFiles, RegisteredFiles, find, run_on

_MODES = ("r", "w", "a", "r+", "w+", "a+")


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
        files, path = find(self._name)
        return files.open(path, mode)

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
        return run_on(os.fsdecode(self._name), operation, *args)

    def read(self, n: int = -1) -> Any:
        """At most `n` bytes from here on, as text or bytes; all that is left by default."""
        if n < -1:
            raise InvalidArgumentError(None, None, f"read(): n must be -1 or more: {n}")
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
            if offset is not None:
                raise TypeError("seek(): offset and position are one argument, got both")
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


@export(v1=("gfile.GFile", "gfile.Open", "io.gfile.GFile"), v2="io.gfile.GFile")
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
    files, path = find(filename)
    return files.exists(path)


@export(v1="gfile.IsDirectory")
def IsDirectory(dirname: Any) -> bool:
    """Whether there is a folder of that path."""
    files, path = find(dirname)
    return files.is_folder(path)


@export(v1="gfile.ListDirectory")
def ListDirectory(dirname: Any) -> list[str]:
    """The names in a folder, sorted, without `.` and `..`; NotFoundError without the folder."""
    files, path = find(dirname)
    if not files.is_folder(path):
        raise NotFoundError(None, None, f"Could not find directory {path}")
    return files.names(path)


@export(v1="gfile.MkDir")
def MkDir(dirname: Any) -> None:
    """Makes a folder in one that exists (NotFoundError otherwise); it may be there already."""
    files, path = find(dirname)
    files.make_folder(path)


@export(v1="gfile.MakeDirs")
def MakeDirs(dirname: Any) -> None:
    """Makes a folder and those above it; all may be there already.

    Raises FailedPreconditionError where a file is in the way.
    """
    files, path = find(dirname)
    files.make_folders(path)


@export(v1="gfile.Remove")
def Remove(filename: Any) -> None:
    """Deletes a file; NotFoundError without one, FailedPreconditionError for a folder."""
    files, path = find(filename)
    files.remove(path)


@export(v1="gfile.DeleteRecursively")
def DeleteRecursively(dirname: Any) -> None:
    """Deletes a folder with all that is in it; NotFoundError without one."""
    files, path = find(dirname)
    files.remove_tree(path)


def _refuse_existing(files: LocalFiles | RegisteredFiles, path: str, overwrite: bool) -> None:
    if not overwrite and files.exists(path):
        raise AlreadyExistsError(None, None, f"{path}: file already exists, and overwrite is False")


@export(v1="gfile.Rename")
def Rename(oldname: Any, newname: Any, overwrite: bool = False) -> None:
    """Renames a file or folder; AlreadyExistsError where the new one exists, or `overwrite`."""
    (files, old), (others, new) = find(oldname), find(newname)
    if files is not others:
        raise UnimplementedError(
            None, None, f"cannot rename {old} to {new}: they are on different file systems"
        )
    _refuse_existing(files, new, overwrite)
    files.replace(old, new)


@export(v1="gfile.Copy")
def Copy(oldpath: Any, newpath: Any, overwrite: bool = False) -> None:
    """Copies a file; AlreadyExistsError where the new one exists, or `overwrite`."""
    (files, old), (others, new) = find(oldpath), find(newpath)
    _refuse_existing(others, new, overwrite)
    if files is others and posixpath.normpath(old) == posixpath.normpath(new):
        return
    if files is others is places.LOCAL and others.exists(new) and os.path.samefile(old, new):
        return
    with files.open(old, "rb") as source, others.open(new, "wb") as target:
        run_on(new, shutil.copyfileobj, source, target)


def _matching(files: LocalFiles | RegisteredFiles, prefix: str, pattern: str) -> list[str]:
    """The paths, without `prefix`, that match `pattern`, whose parts each match in one folder."""
    folder, _, last = pattern.rpartition("/")
    if not any(c in pattern for c in "*?["):
        return [pattern] if files.exists(prefix + pattern) else []
    if prefix and not folder:
        folders = [""]
    elif pattern.startswith("/") and not folder:
        folders = ["/"]
    else:
        folders = _matching(files, prefix, folder) if folder else ["."]
    found = []
    for each in folders:
        try:
            names = files.names(prefix + (each or "/"))
        except OpError:
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
    found = []
    for pattern in patterns:
        files, path = find(pattern)
        scheme, mark, rest = path.partition("://") if files is places.REGISTERED else ("", "", path)
        found += [scheme + mark + p for p in sorted(_matching(files, scheme + mark, rest))]
    return found


@export(v1="gfile.Stat")
def Stat(filename: Any) -> FileStatistics:
    """Length in bytes, time of the last change and kind of a file; NotFoundError without it."""
    files, path = find(filename)
    length, is_folder, changed = files.info(path)
    return FileStatistics(length, changed, is_folder)


@export(v1="gfile.Walk")
def Walk(top: Any, in_order: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields (folder, its folders, its files) for `top` and all below it.

    A folder comes before what is in it, or after with `in_order=False`. Without `top` there is
    nothing to yield.
    """
    files, path = find(top)
    yield from files.walk(path, in_order)


__getattr__ = part_of_v2("io.gfile")
