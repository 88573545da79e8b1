"""What to say when a checkpoint does not fit a graph: which names and shapes differ."""

from typing import Any, NamedTuple

from millrace.checkpoint.reader import NewCheckpointReader
from millrace.checkpoint.saver_builder import RANDOM_STATE
from millrace.core import dtypes, errors
from millrace.core.shapes import TensorShape
from millrace.core.suggest import nearest
from millrace.graph.graph import Graph
from millrace.graph.static_value import constant_value

_SHOWN = 20


class NoCheckpointError(errors.NotFoundError, ValueError):
    """There is no checkpoint of that name. TensorFlow calls it a NotFoundError before 1.12, and a
    ValueError since."""

    def __init__(self, save_path: str):
        super().__init__(
            None, None,
            f"The passed save_path is not a valid checkpoint: {save_path}. Failed to find any "
            f"matching files for {save_path}",
        )  # fmt: skip

    def __reduce__(self) -> Any:
        return errors.NotFoundError, (None, None, self.message)


class _Wanted(NamedTuple):
    """A tensor that a graph restores, and what is known of what it is assigned to."""

    whole: bool
    shape: TensorShape
    dtype: dtypes.DType


def explained(error: errors.OpError, graph: Graph, saver_def: Any, save_path: str) -> Exception:
    """The error of a restore, with lists of what the checkpoint lacks, has besides, and has in
    other shapes and types."""
    if isinstance(error, errors.NotFoundError):
        reason = "a Variable name or other graph key that is missing"
    else:
        reason = "a mismatch between the current graph and the graph"
    said = (
        f"Restoring from checkpoint failed. This is most likely due to {reason} from the "
        "checkpoint. Please ensure that you have not altered the graph expected based on the "
        f"checkpoint.{_differences(graph, saver_def, save_path)}\n\nOriginal error:\n\n"
        f"{error.message}"
    )
    return type(error)(error._node_def, error.op, said)


def _differences(graph: Graph, saver_def: Any, save_path: str) -> str:
    try:
        reader = NewCheckpointReader(save_path)
        shapes = reader.get_variable_to_shape_map()
        types = reader.get_variable_to_dtype_map()
        wanted = _wanted(graph, saver_def.restore_op_name)
    except (errors.OpError, KeyError, ValueError):  # the first error is the one to tell
        return ""
    missing = [_with_nearest(name, shapes) for name in sorted(wanted) if name not in shapes]
    extra = [
        f"{name} {shapes[name]}"
        for name in sorted(shapes)
        if name not in wanted and not name.startswith(RANDOM_STATE)
    ]
    other = [
        f"{name}: {want.shape} {want.dtype.name} in the graph, {TensorShape(shapes[name])} "
        f"{types[name].name} in the checkpoint"
        for name, want in sorted(wanted.items())
        if name in shapes
        and (
            want.dtype != types[name]
            or (want.whole and not want.shape.is_compatible_with(shapes[name]))
        )
    ]
    return "".join(
        _listed(what, lines)
        for what, lines in (
            ("Not in the checkpoint", missing),
            ("In the checkpoint, but not restored", extra),
            ("Of another shape or type", other),
        )
    )


def _listed(what: str, lines: list[str]) -> str:
    if not lines:
        return ""
    shown = "".join(f"\n  {line}" for line in lines[:_SHOWN])
    more = f"\n  and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return f"\n\n{what}:{shown}{more}"


def _with_nearest(name: str, known: Any) -> str:
    near = nearest(name, known)
    return f"{name} (nearest: {', '.join(near)})" if near else name


def _wanted(graph: Graph, restore_op: str) -> dict[str, _Wanted]:
    """What an operation restores: {name in the checkpoint: what it is assigned to}."""
    out: dict[str, _Wanted] = {}
    todo = [graph.get_operation_by_name(restore_op)]
    seen = set(todo)
    while todo:
        op = todo.pop()
        if op.type in ("Assign", "AssignVariableOp"):
            target, value = op.inputs[0], op.inputs[1]
            reshaped = False
            while value.op.type in ("Identity", "Reshape"):
                reshaped = reshaped or value.op.type == "Reshape"
                value = value.op.inputs[0]
            if value.op.type == "RestoreV2":
                shape = target.shape if op.type == "Assign" else _resource_shape(target)
                _add(out, value, TensorShape(None) if reshaped else shape)
        for before in (*op.control_inputs, *(i.op for i in op.inputs)):
            if before not in seen:
                seen.add(before)
                todo.append(before)
    return out


def _add(out: dict[str, _Wanted], restored: Any, shape: TensorShape) -> None:
    names = constant_value(restored.op.inputs[1])
    slices = constant_value(restored.op.inputs[2])
    index = restored.value_index
    if names is None or slices is None or index >= min(names.size, slices.size):
        return
    whole = not slices.flat[index]
    out[names.flat[index].decode()] = _Wanted(whole, shape, restored.dtype.base_dtype)


def _resource_shape(handle: Any) -> TensorShape:
    return TensorShape(handle.op.get_attr("shape") if handle.op.type == "VarHandleOp" else None)
