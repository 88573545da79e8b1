"""Files that lie beside a program."""

from __future__ import annotations

import os
import sys

from millrace.core.export import export


def _caller_folder(depth: int) -> str:
    """The folder of the file whose function called, `depth` frames above."""
    name = sys._getframe(depth + 1).f_code.co_filename
    return os.path.dirname(os.path.abspath(name))


@export(v1="resource_loader.get_data_files_path")
def get_data_files_path() -> str:
    """The folder of the file that calls this."""
    return _caller_folder(1)


@export(v1="resource_loader.get_root_dir_with_all_resources")
def get_root_dir_with_all_resources() -> str:
    """The folder of the file that calls this."""
    return _caller_folder(1)


@export(v1="resource_loader.get_path_to_datafile")
def get_path_to_datafile(path: str) -> str:
    """`path`, taken below the folder of the file that calls this."""
    return os.path.join(_caller_folder(1), path)


@export(v1="resource_loader.load_resource")
def load_resource(path: str) -> bytes:
    """The bytes of the file `path`, taken below the folder of the file that calls this.

    Raises IOError where it cannot be read.
    """
    with open(os.path.join(_caller_folder(1), path), "rb") as file:
        return file.read()
