"""Writes the files of this folder with TensorFlow 2.15: `python make.py FOLDER`."""

import os
import sys

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def checkpoint(folder: str) -> None:
    """A checkpoint with a partitioned variable and several types, and its MetaGraph."""
    with v1.Graph().as_default(), v1.Session() as sess:
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        w = v1.get_variable(
            "w", initializer=tf.reshape(tf.range(12.0), [4, 3]),
            partitioner=v1.fixed_size_partitioner(2), use_resource=False,
        )  # fmt: skip
        b = v1.get_variable("b", initializer=np.float32([1, 2, 3]), use_resource=True)
        step = v1.train.get_or_create_global_step()
        words = v1.Variable([b"a", b"bcd"], name="words", use_resource=False)
        v1.Variable(np.array([True, False]), name="flags", trainable=False, use_resource=False)
        v1.Variable(np.complex64(1 + 2j), name="z", trainable=False, use_resource=False)
        y = tf.add(tf.matmul(x, w), b, name="y")
        count = v1.while_loop(lambda i: i < 3, lambda i: i + 1, [tf.constant(0)], name="count")
        v1.add_to_collection("outputs", y)
        v1.add_to_collection("outputs", tf.identity(count, name="counted"))
        sess.run(v1.global_variables_initializer())
        sess.run(step.assign(7))
        del words
        saver = v1.train.Saver(sharded=True, save_relative_paths=True)
        saver.save(sess, os.path.join(folder, "model"), global_step=7)


def saved_model(folder: str) -> None:
    """A SavedModel as TensorFlow 1 writes it, with an asset and a main op."""
    os.chdir(os.path.dirname(folder))
    vocabulary = "words.txt"
    with open(vocabulary, "w") as file:
        file.write("one\ntwo\n")
    with v1.Graph().as_default(), v1.Session() as sess:
        x = v1.placeholder(tf.float32, [None, 2], name="x")
        w = v1.get_variable("w", initializer=np.float32([[1], [2]]), use_resource=False)
        ready = v1.Variable(False, trainable=False, collections=["local_variables"], name="ready",
                            use_resource=False)  # fmt: skip
        y = tf.matmul(x, w, name="y")
        path = tf.constant(vocabulary, name="vocabulary")
        tf.identity(path, name="path")
        sess.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(folder)
        builder.add_meta_graph_and_variables(
            sess, ["serve"],
            {"serving_default": v1.saved_model.predict_signature_def({"x": x}, {"y": y})},
            assets_collection=[path], main_op=v1.group(ready.assign(True)),
        )  # fmt: skip
        builder.save()
    os.remove(vocabulary)


class Module(tf.Module):
    """A function with variables and a branch."""

    def __init__(self):
        self.a = tf.Variable(2.0, name="a")
        self.b = tf.Variable([1.0, -1.0], name="b")

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def __call__(self, x):
        y = self.a * x + self.b
        return tf.cond(tf.reduce_sum(y) > 0.0, lambda: y, lambda: -y)


def module(folder: str) -> None:
    """A function of TensorFlow 2."""
    made = Module()
    tf.saved_model.save(made, folder, signatures=made.__call__)


def keras(folder: str) -> None:
    """A small network of Keras, with what it answers to a ramp."""
    tf.keras.utils.set_random_seed(1)
    inputs = tf.keras.Input([5, 5, 1], name="image")
    h = tf.keras.layers.Conv2D(2, 3, activation="relu", name="conv")(inputs)
    h = tf.keras.layers.BatchNormalization(name="norm")(h)
    h = tf.keras.layers.MaxPooling2D(3, name="pool")(h)
    h = tf.keras.layers.Flatten(name="flat")(h)
    outputs = tf.keras.layers.Dense(3, activation="softmax", name="out")(h)
    model = tf.keras.Model(inputs, outputs)
    archive = tf.keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint(
        "serve", lambda image: model(image, training=False),
        [tf.TensorSpec([None, 5, 5, 1], tf.float32, name="image")],
    )  # fmt: skip
    archive.write_out(folder)
    ramp = np.linspace(-1, 1, 50).reshape(2, 5, 5, 1).astype(np.float32)
    np.save(os.path.join(folder, "expected.npy"), model(ramp, training=False).numpy())


def batches():
    """A straight pipeline."""
    numbers = v1.data.Dataset.range(20).map(lambda x: x * 2, num_parallel_calls=2)
    return numbers.filter(lambda x: x % 3 > 0).batch(3).prefetch(2)


def nested():
    """Datasets within datasets."""
    Dataset = v1.data.Dataset
    parts = Dataset.range(4).interleave(lambda x: Dataset.range(x), 2, num_parallel_calls=2)
    sums = parts.cache().take(5).scan(np.int64(0), lambda s, x: (s + x, s))
    windows = Dataset.range(9).window(2).flat_map(lambda w: w.batch(2))
    return Dataset.zip((sums, windows))


def padded():
    """Rows of arrays, made equal."""
    rows = {"a": np.arange(6.0), "b": np.arange(12).reshape(6, 2)}
    repeated = v1.data.Dataset.from_tensor_slices(rows).repeat(2)
    return repeated.padded_batch(4, {"a": [], "b": [3]}, drop_remainder=True)


def sparse():
    """Features of Examples, and rows of any length, as sparse tensors."""
    Dataset = v1.data.Dataset

    def example(i):
        numbers = tf.train.Feature(int64_list=tf.train.Int64List(value=range(i)))
        name = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"x" * i]))
        features = tf.train.Features(feature={"numbers": numbers, "name": name})
        return tf.train.Example(features=features).SerializeToString()

    features = {"numbers": v1.VarLenFeature(tf.int64), "name": v1.FixedLenFeature([], tf.string)}
    examples = Dataset.from_tensor_slices([example(i) for i in range(4)]).batch(2)
    parsed = examples.apply(v1.data.experimental.parse_example_dataset(features))
    rows = Dataset.range(4).map(lambda x: tf.range(x))
    joined = rows.apply(v1.data.experimental.dense_to_sparse_batch(2, [6]))
    return Dataset.zip((parsed, joined))


def reduced():
    """Groups, batches of other sizes, elements of which there are several."""
    Dataset = v1.data.Dataset
    add = v1.data.experimental.Reducer(
        lambda _: np.int64(0), lambda total, x: total + x, lambda total: total
    )
    sums = Dataset.range(10).apply(v1.data.experimental.group_by_reducer(lambda x: x % 3, add))
    once = Dataset.range(9).map(lambda x: x % 3).apply(v1.data.experimental.unique())
    return Dataset.zip((sums, once, Dataset.range(7).batch(3).rebatch([2, 1])))


def chosen():
    """Elements of several datasets, counted."""
    Dataset = v1.data.Dataset
    turns = Dataset.range(2).apply(v1.data.experimental.shuffle_and_repeat(1, 3))
    both = Dataset.choose_from_datasets([Dataset.range(3), Dataset.range(10, 13)], turns)
    six = both.apply(v1.data.experimental.assert_cardinality(6))
    return six.batch(4, num_parallel_calls=2)


def datasets(folder: str) -> None:
    """Graphs with iterators: the parts of an element are out0, out1 ..."""
    os.makedirs(folder)
    for make in (batches, nested, padded, sparse, reduced, chosen):
        with v1.Graph().as_default() as graph:
            element = v1.data.make_one_shot_iterator(make()).get_next()
            for i, part in enumerate(tf.nest.flatten(element, expand_composites=True)):
                tf.identity(part, name=f"out{i}")
            with open(os.path.join(folder, f"{make.__name__}.pb"), "wb") as file:
                file.write(graph.as_graph_def().SerializeToString())


def events(folder: str) -> None:
    """An event file of TensorFlow 1 and one of TensorFlow 2."""
    with v1.Graph().as_default(), v1.Session() as sess:
        x = v1.placeholder(tf.float32, [4], name="x")
        v1.summary.scalar("loss", tf.reduce_mean(x))
        v1.summary.histogram("x", x, family="spread")
        v1.summary.image("square", tf.reshape(x, [1, 2, 2, 1]), max_outputs=1)
        v1.summary.text("note", tf.constant("hello"))
        merged = v1.summary.merge_all()
        writer = v1.summary.FileWriter(os.path.join(folder, "one"))
        for step in range(3):
            writer.add_summary(sess.run(merged, {x: [step, 1, 2, 3]}), step)
        writer.close()
    with tf.summary.create_file_writer(os.path.join(folder, "two")).as_default():
        for step in range(3):
            tf.summary.scalar("loss", 1.0 / (step + 1), step=step)
    for run in ("one", "two"):
        (name,) = os.listdir(os.path.join(folder, run))
        os.rename(
            os.path.join(folder, run, name),
            os.path.join(folder, run, "events.out.tfevents.1700000000.host"),
        )


def images(folder: str) -> None:
    """Small images, with what TensorFlow decodes of them."""
    os.makedirs(folder)
    x, y = np.meshgrid(np.arange(21), np.arange(17))
    ramp = np.stack([x * 11, y * 13, (x + y) * 6], axis=-1).astype(np.uint8)
    files = {
        "colour.jpg": tf.io.encode_jpeg(ramp),
        "progressive.jpg": tf.io.encode_jpeg(ramp, progressive=True, quality=60),
        "gray.jpg": tf.io.encode_jpeg(ramp[:, :, :1]),
        "alpha16.png": tf.io.encode_png(ramp[:, :, :2].astype(np.uint16) * 257),
    }
    expected = {}
    for name, contents in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(contents.numpy())
        expected[name] = tf.io.decode_image(contents).numpy()
        if name.endswith("jpg"):
            expected[name + " half"] = tf.io.decode_jpeg(contents, ratio=2).numpy()
    np.savez_compressed(os.path.join(folder, "expected.npz"), **expected)


if __name__ == "__main__":
    root = os.path.abspath(sys.argv[1])
    os.makedirs(os.path.join(root, "checkpoint"))
    checkpoint(os.path.join(root, "checkpoint"))
    saved_model(os.path.join(root, "saved_model"))
    module(os.path.join(root, "module"))
    keras(os.path.join(root, "keras"))
    datasets(os.path.join(root, "datasets"))

    events(os.path.join(root, "events"))
    images(os.path.join(root, "images"))
