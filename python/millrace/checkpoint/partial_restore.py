"""Restoring a part of what a saver restores, with the operations that it has in the graph."""

from typing import Any, Callable

from millrace.checkpoint.checkpoint_state import checkpoint_exists
from millrace.checkpoint.restore_errors import NoCheckpointError, explained
from millrace.core import errors, logging
from millrace.graph.operation import Operation


def restoring_ops(saver: Any, graph: Any) -> list[Operation]:
    """The operations of a built saver that put values where they belong, one or more for each
    thing that it saves: the first input of each is what it sets."""
    out: list[Operation] = []
    left = [graph.get_operation_by_name(saver.saver_def.restore_op_name)]
    while left:
        op = left.pop()
        if op.type == "NoOp":  # a group, or a group of one device
            left += op.control_inputs
        else:
            out.append(op)
    return list(dict.fromkeys(out))


def restore_some(
    saver: Any, sess: Any, save_path: str, wanted: Callable[[Operation], bool]
) -> None:
    """As `saver.restore`, of those things only whose operation is `wanted`."""
    if not checkpoint_exists(save_path):
        raise NoCheckpointError(save_path)
    chosen = [op for op in restoring_ops(saver, sess.graph) if wanted(op.inputs[0].op)]
    if not chosen:
        return
    logging.info("Restoring %d parameters from %s", len(chosen), save_path)
    try:
        sess.run(chosen, {saver.saver_def.filename_tensor_name: save_path})
    except (errors.NotFoundError, errors.InvalidArgumentError) as error:
        raise explained(error, sess.graph, saver.saver_def, save_path) from None
