"""The training loop of `tf.contrib.slim`, an evaluation, and sizes of models."""

import time
from typing import Any, Callable, Iterable

from millrace.checkpoint.saver import Saver
from millrace.core import errors, logging
from millrace.core.export import export
from millrace.graph.convert import constant
from millrace.graph.default_graph import get_default_graph, name_scope
from millrace.graph.session import Session
from millrace.ops import math
from millrace.ops.ordering import group
from millrace.state.queue_runner import start_queue_runners
from millrace.state.variable_lists import (
    global_variables_initializer,
    local_variables_initializer,
    report_uninitialized_variables,
    tables_initializer,
)
from millrace.summary import ops as summary
from millrace.summary.writer import FileWriter
from millrace.train.coordinator import Coordinator
from millrace.train.global_step import get_or_create_global_step
from millrace.train.supervisor import Supervisor

_USE_DEFAULT = 0


@export(v1="contrib.slim.learning.train_step")
def train_step(
    sess: Any, train_op: Any, global_step: Any, train_step_kwargs: dict[str, Any]
) -> tuple[Any, Any]:
    """Takes a step: (loss, whether to stop).

    `train_step_kwargs` may have tensors "should_stop" and "should_log".
    """
    begin = time.monotonic()
    loss, step = sess.run([train_op, global_step])
    seconds = time.monotonic() - begin
    if "should_log" in train_step_kwargs and sess.run(train_step_kwargs["should_log"]):
        logging.info("global step %d: loss = %.4f (%.3f sec/step)", step, loss, seconds)
    stop = train_step_kwargs.get("should_stop")
    return loss, sess.run(stop) if stop is not None else False


@export(v1="contrib.slim.learning.train")
def train(
    train_op: Any, logdir: Any, train_step_fn: Callable[..., Any] = train_step,
    train_step_kwargs: Any = _USE_DEFAULT, log_every_n_steps: int = 1, graph: Any = None,
    master: str = "", is_chief: bool = True, global_step: Any = None,
    number_of_steps: int | None = None, init_op: Any = _USE_DEFAULT, init_feed_dict: Any = None,
    local_init_op: Any = _USE_DEFAULT, init_fn: Any = None, ready_op: Any = _USE_DEFAULT,
    summary_op: Any = _USE_DEFAULT, save_summaries_secs: float = 600,
    summary_writer: Any = _USE_DEFAULT, startup_delay_steps: int = 0, saver: Any = None,
    save_interval_secs: float = 600, sync_optimizer: Any = None, session_config: Any = None,
    session_wrapper: Any = None, trace_every_n_steps: int | None = None,
    ignore_live_threads: bool = False,
) -> Any:  # fmt: skip
    """Trains until `number_of_steps`, or the end of the data: the last loss.

    Args:
      train_op: a tensor of the loss whose evaluation takes a step (`create_train_op`).
      logdir: where checkpoints and summaries are written, and read to go on; None for neither.
      train_step_fn: takes a step, as `train_step` does, with `train_step_kwargs`.
      number_of_steps: the count of steps to stop at.
      init_op, init_feed_dict, local_init_op, init_fn, ready_op, summary_op, save_summaries_secs,
        summary_writer, saver: as those of `Supervisor`.
      save_interval_secs: how often a checkpoint is written.
      session_wrapper: makes the session that steps run in out of the supervisor's.

    `sync_optimizer`, `startup_delay_steps` and `trace_every_n_steps` are for several processes and
    traces, and not supported: UnimplementedError.
    """
    if train_op is None:
        raise ValueError("train_op cannot be None.")
    if number_of_steps is not None and number_of_steps <= 0:
        raise ValueError("`number_of_steps` must be either None or a positive number.")
    if logdir is None:
        for name, given in (("summary_op", summary_op or None), ("saver", saver)):
            if given is not None:
                raise ValueError(f"Cannot provide {name} because logdir=None")
    for name, given in (
        ("sync_optimizer", sync_optimizer), ("startup_delay_steps", startup_delay_steps or None),
        ("trace_every_n_steps", trace_every_n_steps),
    ):  # fmt: skip
        if given is not None:
            raise errors.UnimplementedError(None, None, f"slim.learning.train has no {name}")
    with (graph or get_default_graph()).as_default() as graph:
        if global_step is None:
            global_step = get_or_create_global_step()
        saver = saver or Saver()
        with name_scope("init_ops"):
            if init_op is _USE_DEFAULT:
                init_op = global_variables_initializer()
            if ready_op is _USE_DEFAULT:
                ready_op = report_uninitialized_variables()
            if local_init_op is _USE_DEFAULT:
                local_init_op = group(local_variables_initializer(), tables_initializer())
        if summary_op is _USE_DEFAULT:
            summary_op = summary.merge_all()
        if train_step_kwargs is _USE_DEFAULT:
            with name_scope("train_step"):
                train_step_kwargs = {
                    "should_stop": constant(False)
                    if number_of_steps is None
                    else math.greater_equal(global_step, number_of_steps),
                    "should_log": math.equal(math.floormod(global_step, log_every_n_steps), 0),
                }
    supervisor = Supervisor(
        graph=graph, is_chief=is_chief, logdir=logdir, init_op=init_op, saver=saver,
        init_feed_dict=init_feed_dict, local_init_op=local_init_op, ready_op=ready_op,
        summary_op=summary_op, global_step=global_step, init_fn=init_fn,
        save_summaries_secs=save_summaries_secs, save_model_secs=save_interval_secs,
        **({} if summary_writer is _USE_DEFAULT else {"summary_writer": summary_writer}),
    )  # fmt: skip
    loss = None
    with supervisor.managed_session(
        master, start_standard_services=False, config=session_config
    ) as sess:
        services = supervisor.start_standard_services(sess) if is_chief and logdir else []
        supervisor.start_queue_runners(sess)
        steps = sess if session_wrapper is None else session_wrapper(sess)
        try:
            while not supervisor.should_stop():
                loss, stop = train_step_fn(steps, train_op, global_step, train_step_kwargs)
                if stop:
                    break
        except errors.OutOfRangeError:
            logging.info("Caught OutOfRangeError. Stopping Training.")
        if logdir and is_chief:
            supervisor.request_stop()
            for service in services:  # one of which may be about to save, too
                service.join()
            supervisor.saver.save(sess, supervisor.save_path, global_step=global_step)
    return loss


@export(v1="contrib.slim.evaluation.evaluate_once")
def evaluate_once(
    master: str, checkpoint_path: Any, logdir: Any, num_evals: int = 1, initial_op: Any = None,
    initial_op_feed_dict: Any = None, eval_op: Any = None, eval_op_feed_dict: Any = None,
    final_op: Any = None, final_op_feed_dict: Any = None, summary_op: Any = _USE_DEFAULT,
    summary_op_feed_dict: Any = None, variables_to_restore: Any = None, session_config: Any = None,
    hooks: Any = None,
) -> Any:  # fmt: skip
    """Restores a checkpoint, runs `eval_op` `num_evals` times: the value of `final_op`, or None.

    `initial_op` runs before; then summaries, all by default, are written to `logdir`. `hooks` are
    not called: UnimplementedError where there are some.
    """
    if hooks:
        raise errors.UnimplementedError(None, None, "slim.evaluation.evaluate_once calls no hooks")
    if summary_op is _USE_DEFAULT:
        summary_op = summary.merge_all()
    step = get_or_create_global_step()
    saver = Saver(variables_to_restore)
    begin = group(local_variables_initializer(), tables_initializer())
    coordinator = Coordinator()
    with Session(master, config=session_config) as sess:
        sess.run(global_variables_initializer())
        saver.restore(sess, checkpoint_path)
        sess.run(begin)
        if initial_op is not None:
            sess.run(initial_op, initial_op_feed_dict)
        threads = start_queue_runners(sess, coordinator)
        try:
            for _ in range(num_evals if eval_op is not None else 0):
                sess.run(eval_op, eval_op_feed_dict)
            if summary_op is not None:
                with FileWriter(logdir, sess.graph) as writer:
                    writer.add_summary(sess.run(summary_op, summary_op_feed_dict), sess.run(step))
            return None if final_op is None else sess.run(final_op, final_op_feed_dict)
        finally:
            coordinator.request_stop()
            coordinator.join(threads, ignore_live_threads=True)


@export(v1="contrib.slim.model_analyzer.tensor_description")
def tensor_description(var: Any) -> str:
    """Type and shape: "(float32 1x8x8x1024)"."""
    return f"({var.dtype.base_dtype.name} {'x'.join(str(d) for d in var.get_shape())})"


@export(v1="contrib.slim.model_analyzer.analyze_vars")
def analyze_vars(variables: Iterable[Any], print_info: bool = False) -> tuple[int, int]:
    """How many elements and how many bytes variables have; prints each where `print_info`."""
    elements = size = 0
    rule = "---------"
    lines = [rule, "Variables: name (type shape) [size]", rule]
    for var in variables:
        count = var.get_shape().num_elements() or 0
        elements += count
        size += count * var.dtype.size
        what = f"[{count}, bytes: {count * var.dtype.size}]"
        lines.append(f"{var.name} {tensor_description(var)} {what}")
    lines += [f"Total size of variables: {elements}", f"Total bytes of variables: {size}"]
    if print_info:
        print("\n".join(lines))
    return elements, size
