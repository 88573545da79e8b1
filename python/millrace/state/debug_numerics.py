"""Finding the NaN: a step that stops where a number is not finite, kept and run again."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from millrace import protos
from millrace.core import errors
from millrace.core.export import export
from millrace.graph.default_session import get_default_session
from millrace.graph.fetches import Fetches
from millrace.graph.graph import Graph
from millrace.graph.importer import import_graph_def
from millrace.graph.session import Session
from millrace.graph.tensor_util import make_ndarray, make_tensor_proto
from millrace.state.variable_lists import global_variables, local_variables

_FORMAT = 1


@export(v1="debugging.debug_numerics")
def debug_numerics(
    fetches: Any, feed_dict: Any = None, session: Any = None, save_to: Any = None
) -> Any:
    """Runs a step as `session.run` does, and ends it where a number is NaN or Inf.

    A tensor that is fetched, or that would change a variable or go into a queue, must be finite.
    Where one is not, the error tells which operation first made a NaN or Inf out of numbers that
    were finite, on which line of the program it stands, and the range of its inputs. In a step
    without branches and loops no variable has changed then. What becomes finite again on its way,
    such as the branch that `tf.where` does not choose, is fine.

    It takes several times as long as `session.run`: use it when the loss has become NaN, on the
    step that did it.

    Args:
      fetches: as for `Session.run`.
      feed_dict: as for `Session.run`.
      session: the session; the default one when None.
      save_to: a file for the step when it fails: the graph, the feeds, and the variables as they
        are then. `replay_numerics` runs it again, in another process too.

    Returns what `session.run` returns.

    Raises InvalidArgumentError where a number is not finite, and what `session.run` raises.
    """
    session = session if session is not None else get_default_session()
    if session is None:
        raise ValueError("debug_numerics needs a session: there is no default one")
    try:
        return session._run_checking_numerics(fetches, feed_dict)
    except errors.InvalidArgumentError:
        if save_to is not None:
            _save_step(session, fetches, feed_dict or {}, os.fspath(save_to))
        raise


@export(v1="debugging.replay_numerics")
def replay_numerics(path: Any) -> Any:
    """Runs a step that `debug_numerics` has saved once more, and gives the fetches as a list.

    Variables have the values that were saved. Operations that draw random numbers begin anew, so a
    step that depends on what they drew may end differently.

    Raises as `debug_numerics`, and DataLossError for a file that is no such step.
    """
    graph, step = _load_step(os.fspath(path))
    with Session(graph=graph) as session:
        for target, tensor, value in step["variables"]:
            session.run(target, {tensor: value})
        return session._run_checking_numerics(step["fetches"], step["feeds"])


def _bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


# As a TensorProto, which holds every type.
def _packed(value: Any) -> np.ndarray:
    return _bytes(make_tensor_proto(value).SerializeToString())


def _unpacked(data: np.ndarray) -> np.ndarray:
    return make_ndarray(protos.TensorProto.FromString(data.tobytes()))


def _save_step(session: Any, fetches: Any, feed_dict: Any, path: str) -> None:
    graph = session.graph
    handler = Fetches(session)
    handler.read(fetches)
    arrays: dict[str, Any] = {"graph": _bytes(graph.as_graph_def().SerializeToString())}
    step: dict[str, Any] = {
        "format": _FORMAT,
        "fetches": [t.name for t in handler.tensors] + [op.name for op in handler.targets],
        "feeds": [],
        "variables": [],
    }
    for key, value in feed_dict.items():
        tensors, maker = session._fed_tensors(key)
        for tensor, part in zip(
            tensors, [value] if maker is None else maker(key, value), strict=True
        ):
            name = f"feed{len(step['feeds'])}"
            step["feeds"].append([tensor.name, name])
            arrays[name] = _packed(np.asarray(part, tensor.dtype.as_numpy_dtype))
    with graph.as_default():
        variables = global_variables() + local_variables()
    for variable in variables:
        try:
            value = session.run(variable)
        except errors.FailedPreconditionError:
            continue  # has no value yet
        name = f"variable{len(step['variables'])}"
        initializer = variable.initializer
        step["variables"].append([initializer.name, initializer.inputs[1].name, name])
        arrays[name] = _packed(value)
    arrays["step"] = _bytes(json.dumps(step).encode())
    with open(path, "wb") as file:
        np.savez(file, **arrays)


def _load_step(path: str) -> tuple[Graph, dict[str, Any]]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            step = json.loads(arrays["step"].tobytes())
            if step["format"] != _FORMAT:
                raise ValueError(f"expected format {_FORMAT}, got {step['format']!r}")
            definition = protos.GraphDef.FromString(arrays["graph"].tobytes())
            feeds = {tensor: _unpacked(arrays[name]) for tensor, name in step["feeds"]}
            variables = [
                (op, tensor, _unpacked(arrays[name])) for op, tensor, name in step["variables"]
            ]
            fetches = [str(name) for name in step["fetches"]]
    except FileNotFoundError as error:
        raise errors.NotFoundError(None, None, f"There is no file '{path}'") from error
    except Exception as error:
        raise errors.DataLossError(
            None, None, f"'{path}' holds no step that debug_numerics saved: {error}"
        ) from error
    graph = Graph()
    with graph.as_default():
        import_graph_def(definition, name="")
    return graph, {"feeds": feeds, "variables": variables, "fetches": fetches}
