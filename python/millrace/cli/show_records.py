"""Shows TFRecord files: how many records of which sizes, and the first ones as Examples."""

from __future__ import annotations

from typing import Any

from millrace import protos
from millrace.cli.command import UntilDamage, count, size, write_json
from millrace.cli.kinds import Found
from millrace.core.text import printable
from millrace.io.records import tf_record_iterator

_VALUES = 6  # of a feature that are shown
_BYTES = 16  # of a text that are shown


def show(found: Found, options: Any) -> int:
    """Prints what `millrace inspect` was asked about a file of records."""
    number = total = largest = 0
    smallest: int | None = None
    first: list[bytes] = []
    records = UntilDamage(found.path, tf_record_iterator(found.path, found.compression))
    for record in records:
        if number < options.first:
            first.append(record)
        number += 1
        total += len(record)
        largest = max(largest, len(record))
        smallest = len(record) if smallest is None else min(smallest, len(record))
    if options.json:
        write_json({
            "kind": found.kind, "path": found.path, "compression": found.compression,
            "records": number, "bytes": total, "smallest": smallest, "largest": largest,
            "first": [_describe(record) for record in first], "damage": records.problem,
        })  # fmt: skip
        return records.exit_code()
    compressed = f" ({found.compression})" if found.compression else ""
    print(f"{found.kind} {printable(found.path)}{compressed}")
    sizes = f", each of {smallest or 0} to {largest} bytes" if number else ""
    print(f"{count(number, 'record')}, {size(total)}{sizes}")
    for i, record in enumerate(first):
        _show_record(i, record)
    return records.exit_code()


def _parse(record: bytes) -> Any:
    """The Example or SequenceExample in a record; None where it holds something else."""
    try:
        sequence = protos.SequenceExample.FromString(record)
        if sequence.feature_lists.feature_list:
            return sequence
        example = protos.Example.FromString(record)
    except protos.DecodeError:
        return None
    return example if example.features.feature else None


def _groups(message: Any) -> list[tuple[str, Any]]:
    """(label, {name: feature}) of a message."""
    if isinstance(message, protos.Example):
        return [("", message.features.feature)]
    return [("context ", message.context.feature)]


def _show_record(i: int, record: bytes) -> None:
    message = _parse(record)
    if message is None:
        print(f"record {i}: {count(len(record), 'byte')}: {_short(record)}")
        return
    print(f"record {i}: {type(message).__name__}, {count(len(record), 'byte')}")
    for label, features in _groups(message):
        for name in sorted(features):
            print(f"  {label}{printable(name)}: {_feature_text(features[name])}")
    if isinstance(message, protos.SequenceExample):
        lists = message.feature_lists.feature_list
        for name in sorted(lists):
            steps = lists[name].feature
            text = _feature_text(steps[0]) if steps else "nothing"
            print(f"  list {printable(name)}: {count(len(steps), 'step')}, the first: {text}")


def _feature_text(feature: Any) -> str:
    kind = feature.WhichOneof("kind")
    if kind is None:
        return "nothing"
    values = getattr(feature, kind).value
    shown = [_short(v) if isinstance(v, bytes) else f"{v:g}" for v in values[:_VALUES]]
    if kind == "int64_list":
        shown = [str(v) for v in values[:_VALUES]]
    more = ", ..." if len(values) > _VALUES else ""
    return f"{kind.removesuffix('_list')} [{len(values)}]  {', '.join(shown)}{more}"


def _short(data: bytes) -> str:
    return repr(data[:_BYTES]) + ("..." if len(data) > _BYTES else "")


def _describe(record: bytes) -> dict[str, Any]:
    message = _parse(record)
    if message is None:
        return {"bytes": len(record)}
    out: dict[str, Any] = {"bytes": len(record), "kind": type(message).__name__}
    for label, features in _groups(message):
        out[label.strip() or "features"] = {n: _values(f) for n, f in features.items()}
    if isinstance(message, protos.SequenceExample):
        lists = message.feature_lists.feature_list
        out["lists"] = {n: [_values(f) for f in each.feature] for n, each in lists.items()}
    return out


def _values(feature: Any) -> list[Any]:
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []
