"""What to say of a name that does not exist: whether it is planned, and what is like it."""

from __future__ import annotations

import os
from collections.abc import Iterable

# Names of TensorFlow before 1.0, and names that programs often get wrong, to what to write.
_RENAMED = {
    "audio_summary": "summary.audio",
    "batch_matmul": "matmul",
    "complex_abs": "abs",
    "concat_v2": "concat",
    "histogram_summary": "summary.histogram",
    "image_summary": "summary.image",
    "merge_all_summaries": "summary.merge_all",
    "merge_summary": "summary.merge",
    "mul": "multiply",
    "neg": "negative",
    "nn.deconv2d": "nn.conv2d_transpose",
    "nn.rnn": "nn.static_rnn",
    "pack": "stack",
    "scalar_summary": "summary.scalar",
    "select": "where",
    "softmax": "nn.softmax",
    "sub": "subtract",
    "train.SummaryWriter": "summary.FileWriter",
    "unpack": "unstack",
}

# The beginnings of names that have to do with summaries and records.
_OF_FILES = (
    "FixedLengthRecordReader", "IdentityReader", "TFRecordReader", "TextLineReader",
    "WholeFileReader", "python_io", "summary", "train.summary_iterator",
)  # fmt: skip


def nearest(name: str, available: Iterable[str], count: int = 3) -> list[str]:
    """At most `count` of the names that are most like `name`, the likest first.

    Names are paths. The last part decides first, so that `layers.conv_2d` finds `nn.conv2d`
    too; capitals matter only between names that are else the same.
    """
    from difflib import SequenceMatcher  # late: only errors need it

    wanted, wanted_leaf = name.lower(), name.lower().rpartition(".")[2]
    whole, leaf = SequenceMatcher(b=wanted), SequenceMatcher(b=wanted_leaf)
    scored, capitals = [], _capitals(name)
    for candidate in set(available):
        lower = candidate.lower()
        leaf.set_seq1(lower.rpartition(".")[2])
        if leaf.real_quick_ratio() < 0.6 or leaf.quick_ratio() < 0.6:
            continue
        score = leaf.ratio()
        if score < 0.6:
            continue
        whole.set_seq1(lower)
        scored.append((-score - whole.ratio(), abs(_capitals(candidate) - capitals), candidate))
    return [candidate for *_, candidate in sorted(scored)[:count]]


def _capitals(name: str) -> int:
    return sum(letter.isupper() for letter in name)


def nearest_names(name: str, known: Iterable[str]) -> str:
    """A sentence with the names that are most like `name`, to end a message; empty without any."""
    from difflib import get_close_matches  # late: only errors need it

    near = get_close_matches(name, list(known), 3)
    return f" The nearest names are: {', '.join(near)}." if near else ""


def _read_known_names() -> list[str]:
    with open(os.path.join(os.path.dirname(__file__), "known_names.txt")) as file:
        return file.read().splitlines()


def known_tier(path: str) -> int | None:
    """How much real programs use the TensorFlow name `path`: 1 often, 3 seldom, None not known.

    A namespace counts as much as the most used name in it.
    """
    prefix = path + "."
    tiers = []
    for line in _read_known_names():
        name, _, tier = line.partition("\t")
        if name == path:
            return int(tier)
        if name.startswith(prefix):
            tiers.append(int(tier))
    return min(tiers, default=None)


def unknown_name_message(path: str, available: Iterable[str]) -> str:
    """The message for a name that Millrace does not have.

    `path` is the name below `tf`, as in "nn.relu"; `available` are the names that exist,
    written in the same way.
    """
    if path in _RENAMED:
        return f"tf.{path} is called tf.{_RENAMED[path]} since TensorFlow 1.0"
    tier = known_tier(path)
    if tier is None:
        said = f"tf.{path} is no name that Millrace or TensorFlow 1.x has"
    elif path.startswith(_OF_FILES):
        return (
            f"tf.{path} is not in this version of Millrace: summaries and records come in a later "
            "version"
        )
    elif tier < 3:
        said = f"tf.{path} is planned, but not in this version of Millrace"
    else:
        said = f"tf.{path} of TensorFlow is seldom used and not planned in Millrace"
    like = nearest(path, (name for name in available if name != path))
    if like:
        said += f". Nearest names: {', '.join('tf.' + name for name in like)}"
    return said
