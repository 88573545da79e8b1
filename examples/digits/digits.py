"""Trains a small convolutional network on 8x8 images of handwritten digits.

python digits.py [epochs]: prints a table of what was taken for what, shows a few digits that were
misread, and saves pictures of them in misread.png. Checkpoints and event files for TensorBoard go
to a folder of digits_logs. Started again after it was stopped or killed, it goes on where it was.
"""

import struct
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

import millrace.compat.v1 as tf

HERE = Path(__file__).parent
BATCH = 32
LOGS = Path("digits_logs")


def read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 8, 8, 1] from 0 to 1, and what they show."""
    rows = np.loadtxt(HERE / "digits.csv", delimiter=",", dtype=np.float32)
    return rows[:, :64].reshape(-1, 8, 8, 1) / 16, rows[:, 64].astype(np.int32)


def batches(data: np.ndarray, digits: np.ndarray, chosen: np.ndarray) -> list[tf.Tensor]:
    """Images and labels of the next step, shuffled in each epoch; checkpoints keep the place."""
    order = tf.data.Dataset.from_tensor_slices(chosen).shuffle(len(chosen), seed=7)
    iterator = order.repeat().batch(BATCH).make_one_shot_iterator()
    place = tf.data.experimental.make_saveable_from_iterator(iterator)
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, place)
    following = iterator.get_next()
    return [tf.gather(data, following, name="images"), tf.gather(digits, following, name="labels")]


def network(images: tf.Tensor, training: tf.Tensor) -> tf.Tensor:
    """The scores of the ten digits for each image."""
    net = tf.layers.conv2d(images, 16, 3, padding="same", activation=tf.nn.relu)
    net = tf.layers.max_pooling2d(net, 2, 2)
    net = tf.layers.conv2d(net, 32, 3, padding="same", activation=tf.nn.relu)
    net = tf.layers.max_pooling2d(net, 2, 2)
    net = tf.layers.dense(tf.layers.flatten(net), 64, activation=tf.nn.relu)
    net = tf.layers.dropout(net, 0.3, training=training)
    return tf.layers.dense(net, 10)


def summarize(images: tf.Tensor, loss: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """What event files tell of a step: its loss, how often it was right, weights and images."""
    weights = [tf.summary.histogram(v.op.name, v) for v in tf.trainable_variables()]
    numbers = [tf.summary.scalar("loss", loss), tf.summary.scalar("accuracy", right)]
    return tf.summary.merge([*numbers, *weights, tf.summary.image("digits", images)])


def save_png(path: Path, pixels: np.ndarray) -> None:
    """Writes a grey picture, rows of bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    height, width = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels.astype(np.uint8))
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + data)


def show_misread(images: np.ndarray, labels: np.ndarray, guesses: np.ndarray) -> None:
    """Prints up to five misread digits side by side, and saves all of them in one picture."""
    wrong = np.flatnonzero(labels != guesses)
    if wrong.size == 0:
        print("nothing was misread")
        return
    print("\n" + "  ".join(f"{labels[i]} read as {guesses[i]}".ljust(16) for i in wrong[:5]))
    for y in range(8):
        rows = ("".join(2 * " .:*#@"[int(p * 5)] for p in images[i, y, :, 0]) for i in wrong[:5])
        print("  ".join(rows))
    tiles = [np.kron(images[i, :, :, 0], np.ones((8, 8))) for i in wrong]
    save_png(Path("misread.png"), 255 * np.concatenate([np.pad(t, 4) for t in tiles], axis=1))
    print(f"\n{wrong.size} misread digits saved in misread.png")


def find_run(last_step: int) -> tuple[Path, int]:
    """The folder of a run that was stopped, and its step; or a new folder, and 0."""
    for run in sorted(LOGS.glob("*/"), reverse=True):
        try:
            step = int(tf.train.load_variable(str(run), "global_step"))
        except (tf.errors.OpError, ValueError):
            continue  # no checkpoint there
        if 0 < step < last_step:
            return run, step
    return LOGS / time.strftime("%Y%m%d-%H%M%S"), 0


class Report(tf.train.SessionRunHook):
    """After each epoch prints the loss and writes summaries; at the end runs `last`."""

    def __init__(self, run: Path, steps: int, summaries: tf.Tensor, loss: tf.Tensor, last: Any):
        self.writers = {part: tf.summary.FileWriter(run / part) for part in ("train", "test")}
        self.steps, self.summaries, self.loss, self.last = steps, summaries, loss, last
        self.feeds: dict[str, Any] = {}
        self.losses: list[float] = []

    def after_create_session(self, session: tf.Session, coord: Any) -> None:
        self.step = int(session.run(tf.train.get_global_step()))

    def before_run(self, run_context: Any) -> Any:
        return tf.train.SessionRunArgs(self.loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.step += 1
        self.losses.append(run_values.results)
        if self.step % self.steps == 0:
            for part, feed in self.feeds.items():
                summary = run_context.session.run(self.summaries, feed)
                self.writers[part].add_summary(summary, self.step)
            clear = "\x1b[K" if sys.stdout.isatty() else ""  # of the line that shows progress
            print(f"{clear}epoch {self.step // self.steps:2}  loss {np.mean(self.losses):.4f}")
            self.losses.clear()

    def end(self, session: tf.Session) -> None:
        self.results = session.run(self.last, self.feeds["test"])
        for writer in self.writers.values():
            writer.close()


def main(epochs: int = 30) -> float:
    tf.set_random_seed(7)
    data, digits = read_digits()
    order = np.random.default_rng(7).permutation(len(data)).astype(np.int32)
    test, rest = order[:300], order[300:]
    steps = len(rest) // BATCH
    run, first = find_run(epochs * steps)
    if first:
        print(f"going on in {run} after step {first} of {epochs * steps}")
    else:
        print(f"a new run in {run}; stopped or killed, it goes on when it is started again")

    images, labels = batches(data, digits, rest)
    training = tf.placeholder_with_default(False, [], name="training")
    logits = network(images, training)
    guesses = tf.argmax(logits, 1, output_type=tf.int32)
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )
    train = tf.train.AdamOptimizer(2e-3).minimize(loss, tf.train.get_or_create_global_step())
    confusion = tf.confusion_matrix(labels, guesses, 10)
    right = tf.reduce_mean(tf.cast(tf.equal(guesses, labels), tf.float32), name="right")
    report = Report(run, steps, summarize(images, loss, right), loss, [confusion, guesses])
    for part, rows in (("train", rest[:300]), ("test", test)):
        report.feeds[part] = {images: data[rows], labels: digits[rows]}

    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=str(run),
        save_checkpoint_steps=steps,
        save_summaries_steps=None,
        save_summaries_secs=None,
        hooks=[tf.train.StopAtStepHook(last_step=epochs * steps), report],
    ) as session:
        while not session.should_stop():
            session.run(train, {training: True})
    table, said = report.results
    accuracy = float(np.trace(table)) / len(test)
    print(f"\ntest accuracy {accuracy:.1%}\n\nrows: what it is, columns: what it was taken for")
    print("     " + "".join(f"{d:4}" for d in range(10)))
    for digit, row in enumerate(table):
        print(f"{digit:4} " + "".join(f"{n:4}" if n else "   ." for n in row))
    show_misread(data[test], digits[test], said)
    print(f"curves, weights and the graph: tensorboard --logdir {LOGS}")
    print(f"curves here: {sys.executable} -m millrace watch {LOGS}")
    return accuracy


if __name__ == "__main__":
    try:
        main(*map(int, sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("\nstopped; started again, it goes on after the last epoch it finished")
