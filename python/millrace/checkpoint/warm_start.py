"""Warm-starting: a model that begins with variables of an earlier one, also where words moved."""

import re
from collections import namedtuple
from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.checkpoint.init_from_checkpoint import init_from_checkpoint, set_initializer
from millrace.checkpoint.reader import CheckpointReader, load_checkpoint
from millrace.checkpoint.saveable import saveables_of
from millrace.core import logging
from millrace.core.export import export
from millrace.graph.convert import constant
from millrace.graph.default_graph import get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.io import gfile
from millrace.state.init_scope import Lifted
from millrace.state.partitioned_variable import PartitionedVariable
from millrace.state.variable import Variable


@export(v1="train.VocabInfo", v2="train.experimental.VocabInfo")
class VocabInfo(
    namedtuple(
        "VocabInfo",
        ["new_vocab", "new_vocab_size", "num_oov_buckets", "old_vocab", "old_vocab_size",
         "backup_initializer", "axis"],
    )
):  # fmt: skip
    """How the rows (or columns, with `axis` 1) of a variable moved with the words they stand for.

    Args:
      new_vocab, new_vocab_size: the file with a word on each line, and how many of them are used.
      num_oov_buckets: rows after those of the words, which are initialised anew.
      old_vocab, old_vocab_size: the same for the checkpoint; -1 for all words of the file.
      backup_initializer: for rows of words that are new; zeros by default.
    """

    def __new__(
        cls, new_vocab: str, new_vocab_size: int, num_oov_buckets: int, old_vocab: str,
        old_vocab_size: int = -1, backup_initializer: Any = None, axis: int = 0,
    ) -> "VocabInfo":  # fmt: skip
        if axis not in (0, 1):
            raise ValueError(
                f"The only supported values for the axis argument are 0 and 1, got: {axis}"
            )
        return super().__new__(
            cls, new_vocab, new_vocab_size, num_oov_buckets, old_vocab, old_vocab_size,
            backup_initializer, axis,
        )  # fmt: skip


@export(v1="train.warm_start")
def warm_start(
    ckpt_to_initialize_from: Any, vars_to_warm_start: Any = ".*",
    var_name_to_vocab_info: Any = None, var_name_to_prev_var_name: Any = None,
) -> None:  # fmt: skip
    """Lets variables begin with their values in a checkpoint.

    Args:
      ckpt_to_initialize_from: a checkpoint's prefix, or a folder with one.
      vars_to_warm_start: a regular expression for names of trainable variables, a list of such for
        names of all variables, a list of variables, or None for those with a vocabulary only.
      var_name_to_vocab_info: {name of a variable: VocabInfo}.
      var_name_to_prev_var_name: {name: its name in the checkpoint} where that differs.

    ValueError for names in the dictionaries that no variable has.
    """
    vocabularies = dict(var_name_to_vocab_info or {})
    earlier = dict(var_name_to_prev_var_name or {})
    grouped = _grouped(_chosen(vars_to_warm_start), vocabularies)
    reader = load_checkpoint(ckpt_to_initialize_from)
    unused = (vocabularies.keys() | earlier.keys()) - grouped.keys()
    for name, parts in sorted(grouped.items()):
        tensor_name = earlier.get(name, name)
        info = vocabularies.get(name)
        logging.debug("Warm-starting variable: %s; earlier: %s", name, tensor_name)
        if info is None:
            given = parts if parts[0]._get_save_slice_info() is not None else parts[0]
            init_from_checkpoint(ckpt_to_initialize_from, {tensor_name: given})
        else:
            _warm_start_with_vocabulary(parts, reader, tensor_name, info)
    if unused:
        raise ValueError(
            "You provided names of variables that are not warm-started: "
            f"{', '.join(sorted(unused))}. Warm-started are: {', '.join(sorted(grouped))}."
        )


def _chosen(which: Any) -> list[Variable]:
    graph = get_default_graph()
    if which is None:
        return []
    if isinstance(which, str):
        return graph.get_collection(GraphKeys.TRAINABLE_VARIABLES, scope=which)
    if not isinstance(which, (list, tuple)):
        raise ValueError(
            "If `vars_to_warm_start` is a list, it must be all `Variable` or all `str`. Given "
            f"types are {type(which)}"
        )
    if all(isinstance(v, str) for v in which):
        found = [
            v for pattern in which
            for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES, scope=pattern)
        ]  # fmt: skip
        return list(dict.fromkeys(found))
    out: list[Variable] = []
    for each in which:
        if isinstance(each, PartitionedVariable):
            out += each._get_variable_list()
        elif isinstance(each, Variable):
            out.append(each)
        else:
            raise ValueError(
                "If `vars_to_warm_start` is a list, it must be all `Variable` or all `str`. Given "
                f"types are {[type(v) for v in which]}"
            )
    return out


def _full_name(variable: Variable) -> str:
    info = variable._get_save_slice_info()
    return variable.name.partition(":")[0] if info is None else info.full_name


def _grouped(chosen: list[Variable], vocabularies: Any) -> dict[str, list[Variable]]:
    """{name: the parts of a variable, in order}, with those that have a vocabulary."""
    everything = get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES)
    named = [v for v in everything if _full_name(v) in vocabularies]
    out: dict[str, list[Variable]] = {}
    for variable in dict.fromkeys([*chosen, *named]):
        out.setdefault(_full_name(variable), []).append(variable)
    for parts in out.values():
        if parts[0]._get_save_slice_info() is not None:
            parts.sort(key=lambda v: list(v._get_save_slice_info().var_offset))
    return out


def _words(path: str, size: int) -> list[bytes]:
    with gfile.GFile(path, "rb") as file:
        words = [re.sub(rb"\r?\n$", b"", line) for line in file]
    return words if size < 0 else words[:size]


def _warm_start_with_vocabulary(
    parts: list[Variable], reader: CheckpointReader, tensor_name: str, info: VocabInfo
) -> None:
    before = reader.get_tensor(tensor_name)
    old = {word: row for row, word in enumerate(_words(info.old_vocab, info.old_vocab_size))}
    new = _words(info.new_vocab, info.new_vocab_size)
    if len(new) < info.new_vocab_size:
        raise ValueError(
            f"The vocabulary {info.new_vocab} has {len(new)} words, {info.new_vocab_size} are used"
        )
    rows = np.array([old.get(word, -1) for word in new] + [-1] * info.num_oov_buckets, np.int64)
    rows[rows >= before.shape[info.axis]] = -1
    known = rows >= 0
    moved = np.take(before, np.where(known, rows, 0), axis=info.axis)
    mask = known.reshape([-1] + [1] * (before.ndim - 1 - info.axis))
    mask = np.broadcast_to(mask, moved.shape)
    with Lifted():
        for part in parts:
            _set_moved(part, moved, mask, info)


def _set_moved(part: Variable, moved: Any, mask: Any, info: VocabInfo) -> None:
    slice_info = part._get_save_slice_info()
    if slice_info is not None:
        where = tuple(
            slice(offset, offset + size)
            for offset, size in zip(slice_info.var_offset, slice_info.var_shape, strict=True)
        )
        moved, mask = moved[where], mask[where]
    if list(moved.shape) != part.shape.as_list():
        raise ValueError(
            f"The variable {part.name} has the shape {part.shape}, but its vocabulary and the "
            f"checkpoint make {list(moved.shape)}"
        )
    dtype = part.dtype.base_dtype
    value: Any = constant(np.where(mask, moved, np.zeros_like(moved)), dtype)
    if info.backup_initializer is not None:
        value = gen_ops.select_v2(
            mask, value, info.backup_initializer(part.shape.as_list(), dtype=dtype)
        )
    assign = next(saveables_of(part, part.name)).restore([value], None)
    set_initializer(part, value, assign)
