"""Trains a small convolutional network on 8x8 images of handwritten digits.

python digits.py [epochs]: prints a table of what was taken for what, shows a few digits that were
misread, and saves pictures of them in misread.png. Event files for TensorBoard go to digits_logs.
"""

import importlib
import importlib.util
import struct
import sys
import time
import zlib
from pathlib import Path

import numpy as np

import millrace.compat.v1 as tf

HERE = Path(__file__).parent
BATCH = 32
LOGS = Path("digits_logs")


def read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 8, 8, 1] from 0 to 1, and what they show."""
    rows = np.loadtxt(HERE / "digits.csv", delimiter=",", dtype=np.float32)
    return rows[:, :64].reshape(-1, 8, 8, 1) / 16, rows[:, 64].astype(np.int32)


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


def main(epochs: int = 30) -> float:
    tf.set_random_seed(7)
    rng = np.random.default_rng(7)
    data, digits = read_digits()
    order = rng.permutation(len(data))
    test, rest = order[:300], order[300:]

    images = tf.placeholder(tf.float32, [None, 8, 8, 1], name="images")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    training = tf.placeholder_with_default(False, [], name="training")
    logits = network(images, training)
    guesses = tf.argmax(logits, 1, output_type=tf.int32)
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )
    train = tf.train.AdamOptimizer(2e-3).minimize(loss)
    confusion = tf.confusion_matrix(labels, guesses, 10)
    right = tf.reduce_mean(tf.cast(tf.equal(guesses, labels), tf.float32), name="right")
    summaries = summarize(images, loss, right)

    steps = len(rest) // BATCH
    progress = None
    if sys.stderr.isatty() and importlib.util.find_spec("tqdm"):
        progress = importlib.import_module("tqdm").tqdm(total=epochs * steps, unit="step")
    run = LOGS / time.strftime("%m%d-%H%M%S")
    with (
        tf.Session() as session,
        tf.summary.FileWriter(run / "train", session.graph) as writer,
        tf.summary.FileWriter(run / "test") as test_writer,
    ):
        session.run(tf.global_variables_initializer())
        step = session.make_callable([train, loss], [images, labels, training])
        for epoch in range(1, epochs + 1):
            shuffled = rng.permutation(rest)
            losses = []
            for i in range(steps):
                batch = shuffled[i * BATCH : (i + 1) * BATCH]
                losses.append(step(data[batch], digits[batch], True)[1])
                if progress is not None:
                    progress.update()
            feed = {images: data[batch], labels: digits[batch]}
            writer.add_summary(session.run(summaries, feed), epoch * steps)
            feed = {images: data[test], labels: digits[test]}
            test_writer.add_summary(session.run(summaries, feed), epoch * steps)
            if progress is None:
                print(f"epoch {epoch:2}  loss {np.mean(losses):.4f}")
            else:
                progress.set_postfix(loss=f"{np.mean(losses):.4f}")
        if progress is not None:
            progress.close()
        table, said = session.run([confusion, guesses], feed)
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
    main(*map(int, sys.argv[1:]))
