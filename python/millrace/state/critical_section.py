"""CriticalSection: code that one run at a time executes."""

import itertools
import threading
from typing import Any, Callable

from millrace import _core, gen_ops
from millrace.core import dtypes, nest
from millrace.core.export import export
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies, get_default_graph, name_scope
from millrace.graph.operation import Operation
from millrace.graph.tracing import leaf_of, tensors_of, wholes

_numbers = itertools.count()


class _Thread(threading.local):
    def __init__(self) -> None:
        self.inside: list[CriticalSection] = []


_here = _Thread()


@export(v1="CriticalSection", v2="CriticalSection")
class CriticalSection:
    """A lock around operations: of all that is executed in it, one thing runs at a time.

    Args:
      name: a prefix for names.
      shared_name: sections of the same name have one lock.
    """

    def __init__(
        self, name: str | None = None, shared_name: str | None = None,
        critical_section_def: Any = None, import_scope: Any = None,
    ):  # fmt: skip
        if critical_section_def is not None or import_scope is not None:
            raise ValueError("critical_section_def and import_scope are not supported.")
        self._name = name or "CriticalSection"
        lock = shared_name or f"{self._name}_{next(_numbers)}"
        # Whoever puts the one element into it that it has room for has the lock.
        with _core.init_scope() if _core.eager_enabled() else control_dependencies(None):
            self._lock = gen_ops.fifo_queue_v2(
                [dtypes.bool_], [[]], 1, shared_name=f"lock of {lock}", name=self._name
            )

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    def execute(
        self, fn: Callable[[], Any], exclusive_resource_access: bool = True,
        name: str | None = None,
    ) -> Any:  # fmt: skip
        """What `fn()` gives, which runs while nothing else does that is executed here.

        `exclusive_resource_access` asks that variables used in it be used in no other section; it
        is not checked. ValueError where `fn` itself executes something here.
        """
        del exclusive_resource_access
        if self in _here.inside:
            raise ValueError(
                f"Attempting to lock CriticalSection '{self._name}' in which we are already "
                f"running: it would wait for itself.{_core.user_line()}"
            )
        _here.inside.append(self)
        try:
            return self._run(fn) if _core.executing_eagerly() else self._add(fn, name)
        finally:
            _here.inside.pop()

    def _run(self, fn: Callable[[], Any]) -> Any:
        gen_ops.queue_enqueue_v2(self._lock, [True])
        try:
            return nest.map_structure(_value, fn())
        finally:
            gen_ops.queue_dequeue_v2(self._lock, [dtypes.bool_])

    def _add(self, fn: Callable[[], Any], name: str | None) -> Any:
        graph = get_default_graph()
        with name_scope(name, "critical_section_execute", []):
            # What is there already, and may be used inside, does not wait for the lock.
            locked = gen_ops.queue_enqueue_v2(self._lock, [True], name="lock")
            begin = graph._num_nodes
            with control_dependencies([locked]):
                result = fn()
                leaves = [leaf_of(leaf) for leaf in nest.flatten(result)]
            made = [graph._operation(i) for i in range(begin, graph._num_nodes)]
            for op in made:
                for tensor in op.inputs:
                    if tensor.op._id < begin and tensor.op is not locked:
                        locked._add_control_inputs([tensor.op])
            with control_dependencies(made):
                (freed,) = gen_ops.queue_dequeue_v2(self._lock, [dtypes.bool_], name="free")
            with control_dependencies([freed]):
                parts = [gen_ops.identity(t) for leaf in leaves for t in tensors_of(leaf)]
            return nest.pack_sequence_as(result, list(wholes(leaves, parts)))


def _value(part: Any) -> Any:
    return None if part is None or isinstance(part, Operation) else convert_to_tensor(part)
