"""The functions of `tf.gfile` under their newer names: `tf.io.gfile`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from millrace.core.errors import OpError
from millrace.core.export import export
from millrace.io import gfile


@export(v1="io.gfile.exists", v2="io.gfile.exists")
def exists(path: Any) -> bool:
    """Whether there is a file or folder of that path."""
    return gfile.Exists(path)


@export(v1="io.gfile.isdir", v2="io.gfile.isdir")
def isdir(path: Any) -> bool:
    """Whether there is a folder of that path."""
    return gfile.IsDirectory(path)


@export(v1="io.gfile.listdir", v2="io.gfile.listdir")
def listdir(path: Any) -> list[str]:
    """The names in a folder, sorted; NotFoundError without the folder."""
    return gfile.ListDirectory(path)


@export(v1="io.gfile.mkdir", v2="io.gfile.mkdir")
def mkdir(path: Any) -> None:
    """Makes a folder in one that exists; it may be there already."""
    gfile.MkDir(path)


@export(v1="io.gfile.makedirs", v2="io.gfile.makedirs")
def makedirs(path: Any) -> None:
    """Makes a folder and those above it; all may be there already."""
    gfile.MakeDirs(path)


@export(v1="io.gfile.remove", v2="io.gfile.remove")
def remove(path: Any) -> None:
    """Deletes a file."""
    gfile.Remove(path)


@export(v1="io.gfile.rmtree", v2="io.gfile.rmtree")
def rmtree(path: Any) -> None:
    """Deletes a folder with all that is in it."""
    gfile.DeleteRecursively(path)


@export(v1="io.gfile.rename", v2="io.gfile.rename")
def rename(src: Any, dst: Any, overwrite: bool = False) -> None:
    """Renames a file or folder; AlreadyExistsError where the new one exists, or `overwrite`."""
    gfile.Rename(src, dst, overwrite)


@export(v1="io.gfile.copy", v2="io.gfile.copy")
def copy(src: Any, dst: Any, overwrite: bool = False) -> None:
    """Copies a file, also to another file system; AlreadyExistsError as `rename`."""
    gfile.Copy(src, dst, overwrite)


@export(v1="io.gfile.glob", v2="io.gfile.glob")
def glob(pattern: Any) -> list[str]:
    """The paths that match a pattern, or any of several, sorted."""
    return gfile.Glob(pattern)


@export(v1="io.gfile.stat", v2="io.gfile.stat")
def stat(path: Any) -> gfile.FileStatistics:
    """Length in bytes, time of the last change and kind of a file."""
    return gfile.Stat(path)


@export(v1="io.gfile.walk", v2="io.gfile.walk")
def walk(
    top: Any, topdown: bool = True, onerror: Callable[[Exception], Any] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """As `gfile.Walk`; `onerror` is called with the error where `top` is no folder."""
    if onerror is not None:
        try:
            gfile.ListDirectory(top)
        except OpError as error:
            onerror(error)
    return gfile.Walk(top, topdown)


@export(v1="io.gfile.join", v2="io.gfile.join")
def join(path: Any, *paths: Any) -> str:
    """The parts of a path as one, also where the first has a scheme."""
    return os.path.join(os.fsdecode(path), *map(os.fsdecode, paths))
