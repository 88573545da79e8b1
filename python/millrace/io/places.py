"""Where a path leads: the machine's own files, or those of a registered file system.

Both have the same methods, which take whole paths; errors are those of `millrace.core.errors`.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Iterator
from typing import IO, Any

from millrace import _core
from millrace.core import errors
from millrace.core.errors import FailedPreconditionError, NotFoundError
from millrace.io.file_systems import RegisteredReader, RegisteredWriter, file_error


def find(name: Any) -> tuple[LocalFiles | RegisteredFiles, str]:
    """Who knows a path, and the path to give it.

    A path is text, bytes or a path object. UnimplementedError where it has a scheme that nobody
    registered, naming those there are; InvalidArgumentError for what no file can be called.
    """
    if not isinstance(name, (str, bytes)) and not hasattr(name, "__fspath__"):
        raise TypeError(f"Expected a path as text or bytes, got {name!r}")
    path = os.fsdecode(name)
    try:
        has_zero = b"\0" in os.fsencode(path)
    except UnicodeEncodeError as error:
        raise errors.InvalidArgumentError(None, None, f"{path!r} is no path: {error}") from None
    if has_zero:
        raise errors.InvalidArgumentError(None, None, f"{path!r} is no path: it has a zero byte")
    scheme, separator, rest = path.partition("://")
    if not separator or not scheme.replace("+", "").replace("-", "").replace(".", "").isalnum():
        return LOCAL, path
    if scheme == "file":
        return LOCAL, rest
    if scheme not in (schemes := _core.file_system_schemes()):
        raise errors.UnimplementedError(
            None, None, f"File system scheme '{scheme}' not implemented (file: '{path}'); there "
            f"are {', '.join(schemes)}",
        )  # fmt: skip
    return REGISTERED, path


def run_on(path: str, operation: Callable[..., Any], *args: Any) -> Any:
    """What an operation of the system gives; its OSError as an error of ours."""
    try:
        return operation(*args)
    except OSError as error:
        raise file_error(error, path) from None


class LocalFiles:
    """The machine's own files."""

    def open(self, path: str, mode: str) -> IO[bytes]:
        return run_on(path, open, path, mode)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def names(self, path: str) -> list[str]:
        """What is in a folder, sorted."""
        return sorted(run_on(path, os.listdir, path))

    def info(self, path: str) -> tuple[int, bool, int]:
        """Size, whether it is a folder, and when it was changed."""
        found = run_on(path, os.stat, path)
        return found.st_size, os.path.isdir(path), found.st_mtime_ns

    def make_folder(self, path: str) -> None:
        try:
            os.mkdir(path)
        except OSError as error:
            if not os.path.isdir(path):
                raise file_error(error, path) from None

    def make_folders(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise FailedPreconditionError(
                None, None, f"{path}: a part of the path is not a directory"
            ) from None
        except OSError as error:
            raise file_error(error, path) from None

    def remove(self, path: str) -> None:
        """Deletes a file."""
        run_on(path, os.remove, path)

    def remove_tree(self, path: str) -> None:
        """Deletes a folder with all that is in it."""
        is_tree = os.path.isdir(path) and not os.path.islink(path)
        run_on(path, shutil.rmtree if is_tree else os.remove, path)

    def replace(self, old: str, new: str) -> None:
        """Gives a file or folder another name, also where that is taken."""
        run_on(old, os.replace, old, new)

    def walk(self, top: str, top_down: bool) -> Iterator[tuple[str, list[str], list[str]]]:
        """Each folder, with the names of the folders and the files in it."""
        for folder, folders, files in os.walk(top, topdown=top_down):
            folders.sort()
            yield folder, folders, sorted(files)


class RegisteredFiles:
    """The files of the file systems that the library knows by their scheme."""

    def open(self, path: str, mode: str) -> IO[bytes]:
        if mode == "rb":
            return io.BufferedReader(RegisteredReader(path))
        if mode in ("wb", "ab"):
            return io.BufferedWriter(RegisteredWriter(path, mode == "ab"))
        raise errors.UnimplementedError(
            None, None, f"{path}: files of this file system are written whole or at their end"
        )

    def exists(self, path: str) -> bool:
        return _core.file_exists(path)

    def is_folder(self, path: str) -> bool:
        return _core.file_exists(path) and _core.file_info(path)[1]

    def names(self, path: str) -> list[str]:
        return _core.list_files(path)

    def info(self, path: str) -> tuple[int, bool, int]:
        return _core.file_info(path)

    def make_folder(self, path: str) -> None:
        _core.make_folders(path)

    make_folders = make_folder

    def remove(self, path: str) -> None:
        if _core.file_info(path)[1]:
            raise FailedPreconditionError(None, None, f"{path}; Is a directory")
        _core.remove_file(path)

    def remove_tree(self, path: str) -> None:
        if self.is_folder(path):
            for name in self.names(path):
                self.remove_tree(f"{path.rstrip('/')}/{name}")
            if not self.exists(path):
                return  # some have folders only as long as something is in them
        _core.remove_file(path)

    def replace(self, old: str, new: str) -> None:
        _core.rename_file(old, new)

    def walk(self, top: str, top_down: bool) -> Iterator[tuple[str, list[str], list[str]]]:
        try:
            names = self.names(top)
        except (NotFoundError, FailedPreconditionError):
            return
        below = f"{top.rstrip('/')}/"
        folders = [name for name in names if self.is_folder(below + name)]
        here = (top, folders, [name for name in names if name not in set(folders)])
        if top_down:
            yield here
        for name in folders:
            yield from self.walk(below + name, top_down)
        if not top_down:
            yield here


LOCAL = LocalFiles()
REGISTERED = RegisteredFiles()
