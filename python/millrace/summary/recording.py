"""tf.summary of TensorFlow 2: what is told goes to the default writer, for a step."""

import io
import os
import threading
import wave
from contextlib import contextmanager
from typing import Any, Callable, Iterator

import numpy as np

from millrace import _core, gen_ops, protos
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.graph import Graph
from millrace.graph.tensor_util import make_tensor_proto
from millrace.ops.image.codecs import encode_png
from millrace.ops.image.color import convert_image_dtype
from millrace.ops.py_func import py_func
from millrace.summary.writer import FileWriter


class _Thread(threading.local):
    def __init__(self) -> None:
        self.writer: SummaryWriter | None = None
        self.step: Any = None
        self.condition: Any = True


_here = _Thread()


@export(v2="summary.SummaryWriter")
class SummaryWriter:
    """Where summaries go: an event file, or nowhere. Made by `create_file_writer`."""

    def __init__(self, file: FileWriter | None):
        self._file = file

    def init(self) -> None:
        """Nothing: it is ready."""

    @contextmanager
    def as_default(self, step: Any = None) -> Iterator["SummaryWriter"]:
        """Makes it the default writer of what is inside; `step`: for which step that is."""
        before = _here.writer, _here.step
        self.set_as_default(step)
        try:
            yield self
            self.flush()
        finally:
            _here.writer, _here.step = before

    def set_as_default(self, step: Any = None) -> None:
        """Makes it the default writer of this thread from now on."""
        _here.writer = self
        if step is not None:
            _here.step = step

    def flush(self) -> None:
        """Waits until all that was told can be read from the file."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Writes what there is and closes the file."""
        if self._file is not None:
            self._file.close()

    def _add(self, summary: Any, step: int) -> None:
        if self._file is not None:
            self._file.add_summary(summary, step)


@export(v2="summary.create_file_writer")
def create_file_writer(
    logdir: Any, max_queue: int | None = None, flush_millis: int | None = None,
    filename_suffix: str | None = None, name: str | None = None,
    experimental_trackable: bool = False,
) -> SummaryWriter:  # fmt: skip
    """A writer of an event file in a folder, which is made where there is none.

    Args:
      max_queue: how many events may wait; who adds another waits.
      flush_millis: how long events may stay in memory.
      filename_suffix: the end of the file's name.
    """
    del name, experimental_trackable
    if logdir is None:
        raise ValueError("Argument `logdir` cannot be None")
    seconds = 120 if flush_millis is None else int(flush_millis) / 1000
    file = FileWriter(
        os.fspath(logdir), max_queue=10 if max_queue is None else int(max_queue),
        flush_secs=seconds, filename_suffix=".v2" if filename_suffix is None else filename_suffix,
    )  # fmt: skip
    return SummaryWriter(file)


@export(v2="summary.create_noop_writer")
def create_noop_writer() -> SummaryWriter:
    """A writer that drops what it is told."""
    return SummaryWriter(None)


@export(v2="summary.flush")
def flush(writer: SummaryWriter | None = None, name: str | None = None) -> None:
    """Waits until all that was told to a writer, the default one by default, can be read."""
    del name
    chosen = _here.writer if writer is None else writer
    if chosen is not None:
        chosen.flush()


@export(v2="summary.experimental.get_step")
def get_step() -> Any:
    """The step that summaries are for where they name none, or None."""
    return _here.step


@export(v2="summary.experimental.set_step")
def set_step(step: Any) -> None:
    """Sets the step that summaries of this thread are for: a number, a tensor or a variable."""
    _here.step = step


@export(v2="summary.record_if")
@contextmanager
def record_if(condition: Any) -> Iterator[None]:
    """What is inside is recorded where `condition` holds: a bool, a tensor, or a function that
    gives one and is called for each summary."""
    before, _here.condition = _here.condition, condition
    try:
        yield
    finally:
        _here.condition = before


def _condition() -> Any:
    return _here.condition() if callable(_here.condition) else _here.condition


@export(v2="summary.should_record_summaries")
def should_record_summaries() -> Any:
    """Whether a summary would be recorded here."""
    return False if _here.writer is None else _condition()


@export(v2="summary.experimental.summary_scope")
@contextmanager
def summary_scope(
    name: str, default_name: str = "summary", values: Any = None
) -> Iterator[tuple[str, str]]:
    """Opens the scope of a summary; gives its tag, with the scopes around, and the scope."""
    del values
    with name_scope(name or default_name) as scope:
        yield scope.rstrip("/"), scope


@export(v2="summary.write")
def write(
    tag: Any, tensor: Any, step: Any = None, metadata: Any = None, name: str | None = None
) -> Tensor:
    """Tells the default writer a tensor, or what a function gives; whether it was recorded.

    Args:
      step: by default that of `set_step` or `as_default`; ValueError where there is none.
      metadata: a `SummaryMetadata` message: what shows the tag.
    """
    with name_scope(name, "write_summary"):
        return _record(str(tag), tensor, step, metadata, None)


def _record(
    tag: str, tensor: Any, step: Any, metadata: Any,
    prepare: Callable[[np.ndarray], np.ndarray] | None,
) -> Tensor:  # fmt: skip
    """`prepare`: from the value to what is written; called only where it is."""
    writer = _here.writer
    if writer is None:
        return convert_to_tensor(False)
    step = _here.step if step is None else step
    if step is None:
        raise ValueError(
            "No step set. Please specify one either through the `step` argument or through "
            f"tf.summary.experimental.set_step().{_core.user_line()}"
        )

    def put(wanted: Any, number: Any, array: Any) -> np.bool_:
        if not wanted:
            return np.False_
        value = protos.Summary.Value(tag=tag)
        made = array if prepare is None else prepare(np.asarray(array))
        value.tensor.CopyFrom(make_tensor_proto(made))
        if metadata is not None:
            value.metadata.CopyFrom(metadata)
        writer._add(protos.Summary(value=[value]), int(number))
        return np.True_

    condition = _condition()
    if _core.executing_eagerly():
        if not bool(condition):
            return convert_to_tensor(False)
        value = convert_to_tensor(tensor() if callable(tensor) else tensor)
        number = convert_to_tensor(step, dtype_hint=dtypes.int64)
        return convert_to_tensor(bool(put(True, number.numpy(), value.numpy())))
    value = convert_to_tensor(tensor() if callable(tensor) else tensor)
    number = gen_ops.cast(convert_to_tensor(step), DstT=dtypes.int64)
    return py_func(put, [convert_to_tensor(condition), number, value], dtypes.bool_)


def _metadata(plugin: str, description: Any, data_class: int) -> Any:
    made = protos.SummaryMetadata()
    made.plugin_data.plugin_name = plugin
    made.summary_description = description or ""
    made.data_class = data_class
    return made


_SCALAR, _TENSOR, _BLOBS = 1, 2, 3


@export(v2="summary.scalar")
def scalar(name: str, data: Any, step: Any = None, description: str | None = None) -> Tensor:
    """Tells a number, which TensorBoard shows as a curve over steps; whether it was recorded."""
    with summary_scope(name, "scalar_summary") as (tag, _):
        value = convert_to_tensor(data)
        if value.shape.ndims not in (None, 0):
            raise ValueError(f"`data` must be a scalar, got shape {value.shape}")

        def number(array: np.ndarray) -> np.ndarray:
            return np.float32(array)

        return _record(tag, value, step, _metadata("scalars", description, _SCALAR), number)


@export(v2="summary.histogram")
def histogram(
    name: str, data: Any, step: Any = None, buckets: int | None = None,
    description: str | None = None,
) -> Tensor:  # fmt: skip
    """Tells how numbers are spread, over `buckets` ranges of one width (30 by default)."""
    count = 30 if buckets is None else max(int(buckets), 0)

    def counted(array: np.ndarray) -> np.ndarray:
        values = array.astype(np.float64).ravel()
        if values.size == 0 or count == 0:
            return np.zeros((count, 3))
        low, high = values.min(), values.max()
        if low == high:
            rows = np.tile([[low, high, 0.0]], (count, 1))
            rows[-1, 2] = values.size
            return rows
        edges = np.linspace(low, high, count + 1)
        places = np.clip(((values - low) / ((high - low) / count)).astype(np.int64), 0, count - 1)
        numbers = np.bincount(places, minlength=count).astype(np.float64)
        return np.stack([edges[:-1], edges[1:], numbers], axis=1)

    with summary_scope(name, "histogram_summary") as (tag, _):
        return _record(tag, data, step, _metadata("histograms", description, _TENSOR), counted)


@export(v2="summary.image")
def image(
    name: str, data: Any, step: Any = None, max_outputs: int = 3, description: str | None = None
) -> Tensor:
    """Tells images [count, height, width, channels], floats from 0 to 1 or uint8; the first
    `max_outputs` of them."""

    def encoded() -> Tensor:
        pictures = convert_image_dtype(convert_to_tensor(data), dtypes.uint8, saturate=True)
        if pictures.shape.ndims not in (None, 4):
            raise ValueError(f"`data` must have 4 dimensions, got shape {pictures.shape}")
        sizes = gen_ops.as_string(gen_ops.shape(pictures))
        return gen_ops.concat_v2([sizes[2:3], sizes[1:2], encode_png(pictures[:max_outputs])], 0)

    with summary_scope(name, "image_summary") as (tag, _):
        return _record(tag, encoded, step, _metadata("images", description, _BLOBS), None)


@export(v2="summary.text")
def text(name: str, data: Any, step: Any = None, description: str | None = None) -> Tensor:
    """Tells text, which TensorBoard shows as Markdown; a matrix of strings as a table."""
    with summary_scope(name, "text_summary") as (tag, _):
        value = convert_to_tensor(data)
        if value.dtype != dtypes.string:
            raise TypeError(f"`data` must be strings, got {value.dtype.name}")
        return _record(tag, value, step, _metadata("text", description, _TENSOR), None)


@export(v2="summary.audio")
def audio(
    name: str, data: Any, sample_rate: Any, step: Any = None, max_outputs: int = 3,
    encoding: str | None = None, description: str | None = None,
) -> Tensor:  # fmt: skip
    """Tells sounds [count, frames, channels] from -1 to 1; the first `max_outputs` of them."""
    if encoding not in (None, "wav"):
        raise ValueError(f"Unknown encoding: {encoding!r}")

    def encoded(sounds: np.ndarray) -> np.ndarray:
        if sounds.ndim != 3:
            raise ValueError(f"`data` must have 3 dimensions, got shape {sounds.shape}")
        rows = [[_wav(sound, int(sample_rate)), b""] for sound in sounds[:max_outputs]]
        return np.array(rows, object).reshape(-1, 2)

    with summary_scope(name, "audio_summary") as (tag, _):
        return _record(tag, data, step, _metadata("audio", description, _BLOBS), encoded)


def _wav(sound: np.ndarray, rate: int) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(sound.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.rint(np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())
    return out.getvalue()


@export(v2="summary.experimental.write_raw_pb")
def write_raw_pb(tensor: Any, step: Any = None, name: str | None = None) -> bool:
    """Tells the default writer a serialised `Summary`. Outside of functions only."""
    del name
    if _here.writer is None or not bool(_condition()):
        return False
    step = _here.step if step is None else step
    if step is None:
        raise ValueError("No step set: give `step`, or call tf.summary.experimental.set_step().")
    content = convert_to_tensor(tensor, dtype=dtypes.string).numpy()
    number = convert_to_tensor(step, dtype_hint=dtypes.int64).numpy()
    _here.writer._add(protos.Summary.FromString(content), int(number))
    return True


@export(v2="summary.graph")
def graph(graph_data: Any) -> bool:
    """Tells the default writer a Graph or a GraphDef, which TensorBoard draws."""
    if _here.writer is None or not bool(_condition()):
        return False
    if _here.writer._file is not None:
        given = {"graph": graph_data} if isinstance(graph_data, Graph) else {}
        _here.writer._file.add_graph(given.get("graph"), graph_def=None if given else graph_data)
    return True
