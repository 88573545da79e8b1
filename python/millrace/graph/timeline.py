"""What a run did and when, for chrome://tracing and Perfetto."""

import json
import re
from collections import namedtuple
from typing import Any

_LABEL = re.compile(r"(.*?) = ([^(]+)\((.*)\)$", re.DOTALL)
_TRANSFER = re.compile(r"\[.*B\] (.*) from (\S+) to (\S+)")
_OTHER_END = re.compile(r"(.*) @(\S+)")  # of a send or a receive: tensor, other device

AllocationMaximum = namedtuple("AllocationMaximum", ["timestamp", "num_bytes", "tensors"])
StepStatsAnalysis = namedtuple("StepStatsAnalysis", ["chrome_trace", "allocator_maximums"])


class _ChromeTrace:
    """Events in the format of Chrome's tracing tool. Times are in microseconds."""

    def __init__(self) -> None:
        self._names: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []

    def name_process(self, name: str, pid: int) -> None:
        """What a row of the picture is called."""
        self._names.append({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}})

    def add(
        self, phase: str, category: str, name: str, pid: int, tid: int, time: int, **more: Any
    ) -> None:
        """An event; `more` are fields of its kind."""
        event = {"ph": phase, "cat": category, "name": name, "pid": pid, "tid": tid, "ts": time}
        self._events.append({**event, **more})

    def format_to_string(self, pretty: bool = False) -> str:
        """All of it as JSON."""
        trace = {"traceEvents": self._names + self._events}
        if pretty:
            return json.dumps(trace, indent=4, separators=(",", ": "))
        return json.dumps(trace, separators=(",", ":"))


class Timeline:
    """The StepStats of a RunMetadata as a picture.

    Args:
      step_stats: `run_metadata.step_stats` of a run with RunOptions.FULL_TRACE.
      graph: not needed; taken since programs pass it.
    """

    def __init__(self, step_stats: Any, graph: Any = None):
        del graph
        self._step_stats = step_stats
        self._start_time = min(
            (n.all_start_micros for d in step_stats.dev_stats for n in d.node_stats), default=0
        )

    def generate_chrome_trace_format(
        self, show_dataflow: bool = True, show_memory: bool = False, op_time: str = "schedule"
    ) -> str:
        """The trace as JSON.

        Args:
          show_dataflow: with arrows from what makes a tensor to what takes it.
          show_memory: with a graph of the memory held.
          op_time: taken since programs pass it.
        """
        return self.analyze_step_stats(
            show_dataflow, show_memory, op_time
        ).chrome_trace.format_to_string(pretty=True)

    def analyze_step_stats(
        self, show_dataflow: bool = True, show_memory: bool = True, op_time: str = "schedule"
    ) -> StepStatsAnalysis:
        """The trace, and for each allocator the largest amount of memory that tensors held."""
        del op_time
        trace = _ChromeTrace()
        ends: dict[str, tuple[int, int, int]] = {}
        takes: list[tuple[str, int, int, int]] = []
        memory: dict[str, list[tuple[int, int, str]]] = {}
        lanes: dict[int, list[int]] = {}
        for pid, device in enumerate(self._step_stats.dev_stats, 1):
            trace.name_process(f"{device.device} Compute", pid)
            for node in sorted(device.node_stats, key=lambda n: n.all_start_micros):
                start = node.all_start_micros - self._start_time
                length = max(node.op_end_rel_micros, 1)
                tid = _free_lane(lanes.setdefault(pid, []), start, start + length)
                name, op, inputs = _parsed(node)
                args = {"name": name, "op": op}
                args.update({f"input{i}": text for i, text in enumerate(inputs)})
                trace.add("X", "Op", op, pid, tid, start, dur=length, args=args)
                ends[name] = (pid, tid, start + length)
                transfer = _transfer(op, inputs, device.device)
                if transfer is None:
                    takes += [
                        (text.lstrip("^").partition(":")[0], pid, tid, start) for text in inputs
                    ]
                elif op == "_Send":
                    ends[transfer] = (pid, tid, start)
                else:
                    takes.append((transfer, pid, tid, start + length))
                for used in node.memory:
                    held = memory.setdefault(used.allocator_name, [])
                    held.append((start, used.total_bytes, name))
        if show_dataflow:
            _add_arrows(trace, ends, takes)
        maximums = {}
        for pid, (allocator, held) in enumerate(
            memory.items(), len(self._step_stats.dev_stats) + 1
        ):
            maximums[allocator] = _memory(trace, pid, allocator, held, show_memory)
        return StepStatsAnalysis(trace, maximums)


def _parsed(node: Any) -> tuple[str, str, list[str]]:
    """Name, op and inputs of a node that ran."""
    label = node.timeline_label
    match = _LABEL.match(label)
    if match is not None:
        name, op, inputs = match.groups()
        return name, op, inputs.split(", ") if inputs else []
    match = _TRANSFER.match(label)
    if match is not None:
        return match.group(1), node.node_name, []
    return node.node_name, node.node_name.rpartition(":")[2], []


def _transfer(op: str, inputs: list[str], device: str) -> str | None:
    """What a node of a device sends or receives, the same for both ends; None for other nodes."""
    match = _OTHER_END.fullmatch(inputs[0]) if inputs else None
    if match is None:
        return None
    tensor, peer = match.groups()
    sender, receiver = (device, peer) if op == "_Send" else (peer, device)
    return f"{tensor} from {sender} to {receiver}"


def _free_lane(lanes: list[int], start: int, end: int) -> int:
    """The first row in which nothing runs at that time; it is taken until the end."""
    for i, busy_until in enumerate(lanes):
        if busy_until <= start:
            lanes[i] = end
            return i
    lanes.append(end)
    return len(lanes) - 1


def _add_arrows(trace: _ChromeTrace, ends: dict[str, Any], takes: list[Any]) -> None:
    for number, (source, pid, tid, start) in enumerate(takes):
        if source in ends:
            from_pid, from_tid, time = ends[source]
            trace.add("s", "DataFlow", source, from_pid, from_tid, time, id=number)
            trace.add("t", "DataFlow", source, pid, tid, max(start, time), id=number)


def _memory(
    trace: _ChromeTrace, pid: int, allocator: str, held: list[tuple[int, int, str]], show: bool
) -> AllocationMaximum:
    """The memory of an allocator over time; gives the most."""
    if show:
        trace.name_process(f"{allocator} Memory", pid)
    total, tensors = 0, []
    for time, size, name in sorted(held):
        total += size
        tensors.append(name)
        if show:
            trace.add("C", "Memory", "Memory", pid, 0, time, args={allocator: total})
    return AllocationMaximum(max((t for t, _, _ in held), default=0), total, tensors)
