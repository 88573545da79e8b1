"""Reads files of one message: GraphDefs, MetaGraphs and SavedModels, in binary and as text."""

from __future__ import annotations

import os
from typing import Any

from millrace import protos
from millrace.cli.command import CommandError, reason
from millrace.saved_model import constants

# No message may be larger, by the rules of the format.
_LIMIT = 2**31 - 1


def check_size(path: str) -> None:
    """CommandError for a file that is too large to be one message."""
    length = os.stat(path).st_size
    if length > _LIMIT:
        raise CommandError(f"{path}: {length} bytes are more than a message may have")


def saved_model_file(folder: str) -> str | None:
    """The file of the SavedModel in a folder, or None. CommandError for one too large."""
    names = (constants.SAVED_MODEL_FILENAME_PB, constants.SAVED_MODEL_FILENAME_PBTXT)
    paths = [os.path.join(folder, name) for name in names]
    found = next((path for path in paths if os.path.exists(path)), None)
    if found is not None:
        check_size(found)
    return found


def variables_prefix(folder: str) -> str:
    """The prefix of the checkpoint of a SavedModel's variables."""
    return os.path.join(folder, constants.VARIABLES_DIRECTORY, constants.VARIABLES_FILENAME)


def read_message(path: str) -> Any:
    """The GraphDef, MetaGraphDef or SavedModel in a file, or in the folder of a model. CommandError
    when it holds none."""
    path = saved_model_file(path) or path
    check_size(path)
    with open(path, "rb") as file:
        data = file.read()
    problems = []
    for name in _candidates(os.path.basename(path)):
        for parse in (_parse_text, _parse_binary) if _is_text(data) else (_parse_binary,):
            try:
                message = parse(data, getattr(protos, name))
            except (protos.DecodeError, UnicodeDecodeError) as error:
                problems.append(f"as {name}: {reason(error)}")
                continue
            if _is_plausible(message):
                return message
            problems.append(f"as {name}: it has no node with a name and an op")
    raise CommandError(f"{path}: holds no graph and nothing else that is known: {problems[0]}")


def _candidates(name: str) -> list[str]:
    """The kinds to try, the one that a file of that name should be first."""
    kinds = ["GraphDef", "MetaGraphDef", "SavedModel"]
    if ".meta" in name:
        kinds.insert(0, kinds.pop(1))
    elif name.startswith("saved_model"):
        kinds.insert(0, kinds.pop(2))
    return kinds


def _is_text(data: bytes) -> bool:
    return not any(byte < 9 or 13 < byte < 32 for byte in data[:1024])


def _parse_text(data: bytes, kind: Any) -> Any:
    return protos.text_format.Parse(data.decode(), kind())


def _parse_binary(data: bytes, kind: Any) -> Any:
    return kind.FromString(data)


def _is_plausible(message: Any) -> bool:
    """Whether it is of the kind it was read as: other kinds can often be read as well."""
    if isinstance(message, protos.SavedModel):
        return any(_is_plausible(each) for each in message.meta_graphs)
    if isinstance(message, protos.MetaGraphDef):
        return _is_plausible(message.graph_def)
    if not message.node:
        return len(message.library.function) > 0
    return all(node.name and node.op for node in message.node)
