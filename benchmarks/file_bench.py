"""What images, checkpoints of many variables and summaries cost, beside TensorFlow.

    python benchmarks/file_bench.py [--python PYTHON] [--rounds N] [WORD ...]

Microseconds, of the clock and of the processors. save_bench measures large checkpoints.
"""

import os
import pickle

import beside
import numpy as np

MANY = [f"layer{i // 10}/v{i}" for i in range(10_000)]
VARIABLES = 2000


def write_files(folder):
    """A picture of 375 x 500 pixels as JPEG and PNG, and the pixels."""
    import millrace.compat.v1 as tf

    y, x = np.mgrid[0:375, 0:500]
    waves = [np.sin(x / 17) * np.cos(y / 23), np.sin((x + y) / 31), np.cos(x * y / 9000)]
    noise = np.random.default_rng(0).normal(0, 12, (375, 500, 3))
    pixels = np.clip(128 + 100 * np.stack(waves, -1) + noise, 0, 255).astype(np.uint8)
    with tf.Graph().as_default(), tf.Session() as session:
        jpeg = session.run(tf.image.encode_jpeg(pixels, quality=90))
        png = session.run(tf.image.encode_png(pixels))
    with open(os.path.join(folder, "picture"), "wb") as file:
        pickle.dump((pixels, jpeg, png), file)


def images(tf, folder):
    with open(os.path.join(folder, "picture"), "rb") as file:
        pixels, jpeg, png = pickle.load(file)
    image, accurate = tf.image, "INTEGER_ACCURATE"
    for name, value, function in (
        ("decode_jpeg", jpeg, image.decode_jpeg),
        ("decode_jpeg, gray", jpeg, lambda x: image.decode_jpeg(x, channels=1)),
        ("decode_jpeg, accurate", jpeg, lambda x: image.decode_jpeg(x, dct_method=accurate)),
        ("decode_jpeg, ratio 2", jpeg, lambda x: image.decode_jpeg(x, ratio=2)),
        ("decode_jpeg, ratio 4", jpeg, lambda x: image.decode_jpeg(x, ratio=4)),
        ("decode_jpeg, ratio 8", jpeg, lambda x: image.decode_jpeg(x, ratio=8)),
        ("decode_and_crop_jpeg", jpeg, lambda x: image.decode_and_crop_jpeg(x, [100] * 4)),
        ("decode_png", png, image.decode_png),
        ("encode_jpeg", pixels, image.encode_jpeg),
        ("encode_png", pixels, image.encode_png),
    ):  # fmt: skip
        yield name, feeding(tf, value, function)


def feeding(tf, value, function):
    """A function that opens a session and gives a call of `function` with `value` fed."""

    def make(session):
        fed = tf.placeholder(tf.uint8 if isinstance(value, np.ndarray) else tf.string)
        call = session.make_callable([function(fed).op], feed_list=[fed])
        return lambda: call(value)

    return make


def checkpoints(tf, folder):
    prefix = os.path.join(folder, "many")

    def saving(session):
        value = tf.constant(np.zeros(10, np.float32))
        slices = [""] * len(MANY)
        return session.make_callable(
            [tf.raw_ops.SaveV2(prefix=prefix, tensor_names=MANY, shape_and_slices=slices,
                               tensors=[value] * len(MANY))]
        )  # fmt: skip

    def restoring(session):
        saving(session)()
        tensors = tf.raw_ops.RestoreV2(
            prefix=prefix, tensor_names=MANY, shape_and_slices=[""] * len(MANY),
            dtypes=[tf.float32] * len(MANY),
        )  # fmt: skip
        return session.make_callable([tensors[0].op])

    def reading(session):
        saving(session)()

        def read():
            reader = tf.train.NewCheckpointReader(prefix)
            reader.get_variable_to_shape_map()
            for name in MANY[:1000]:
                reader.get_tensor(name)

        return read

    def with_saver(step):
        def make(session):
            variables()
            session.run(tf.global_variables_initializer())
            saver = tf.train.Saver()
            saver.save(session, prefix)
            return lambda: step(saver, session)

        return make

    def variables():
        for i in range(VARIABLES):
            tf.get_variable(f"v{i}", [10], tf.float32, tf.zeros_initializer())

    def building(_):
        def build():
            with tf.Graph().as_default():
                variables()
                tf.train.Saver()

        return build

    yield "SaveV2 of 10000", saving
    yield "RestoreV2 of 10000", restoring
    yield "reader, 1000 of 10000", reading
    yield "graph of 2000 and Saver", building
    yield "save of 2000, MetaGraph", with_saver(lambda saver, s: saver.save(s, prefix))
    yield (
        "save of 2000",
        with_saver(lambda saver, s: saver.save(s, prefix, write_meta_graph=False)),
    )
    yield "restore of 2000", with_saver(lambda saver, s: saver.restore(s, prefix))


def summaries(tf, folder):
    def writing(function, value):
        def make(session):
            fed = tf.placeholder(tf.float32, value.shape)
            call = session.make_callable(function(fed), feed_list=[fed])
            writer = tf.summary.FileWriter(os.path.join(folder, "events"))
            return lambda: writer.add_summary(call(value), 1)

        return make

    def ten(x):
        return tf.summary.merge([tf.summary.scalar(f"x{i}", x) for i in range(10)])

    one = np.asarray(1, np.float32)
    many = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    yield "scalar summary", writing(lambda x: tf.summary.scalar("x", x), one)
    yield "ten scalar summaries", writing(ten, one)
    yield "histogram of 1000", writing(lambda x: tf.summary.histogram("x", x), many)


def measure(tf, folder, chosen):
    for kind in (images, checkpoints, summaries):
        for name, make in kind(tf, folder):
            if chosen(name):
                with tf.Graph().as_default(), tf.Session() as session:
                    yield name, beside.cost(make(session), windows=4)


if __name__ == "__main__":
    beside.main(__file__, __doc__, "us for each call", write_files, measure)
