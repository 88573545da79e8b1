"""Records per second: reading TFRecord files and parsing Examples, beside TensorFlow.

    python benchmarks/record_bench.py [--package NAME ...] [--records N]

Each package reads the same file, with Examples of about 1 KB in batches of 128: the best of five
rounds. A package that is not installed is left out; each runs in a process of its own.
"""

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time

BATCH = 128


def write_file(path: str, records: int) -> None:
    """Examples with an id, a label, 16 ids, 128 floats and 256 bytes."""
    import millrace.compat.v1 as tf

    train = tf.train
    with tf.python_io.TFRecordWriter(path) as writer:
        for i in range(records):
            features = {
                "id": train.Feature(bytes_list=train.BytesList(value=[b"record-%08d" % i])),
                "label": train.Feature(int64_list=train.Int64List(value=[i % 10])),
                "words": train.Feature(
                    int64_list=train.Int64List(value=[(i * k) % 50_000 for k in range(16)])
                ),
                "dense": train.Feature(
                    float_list=train.FloatList(value=[(i % 7) * 0.25 + k for k in range(128)])
                ),
                "image": train.Feature(bytes_list=train.BytesList(value=[bytes(256)])),
            }
            example = train.Example(features=train.Features(feature=features))
            writer.write(example.SerializeToString())


def show(package: str, name: str, step, records: int) -> None:
    """The best of five rounds: records per second, and what one costs in processor time, which says
    more on a machine that is not idle."""
    rate, cost = 0.0, float("inf")
    for _ in range(5):
        start, used = time.perf_counter(), time.process_time()
        step()
        rate = max(rate, records / (time.perf_counter() - start))
        cost = min(cost, (time.process_time() - used) / records)
    print(f"{package:22} {name:22} {rate:12,.0f} records/s {cost * 1e6:6.2f} us", flush=True)


def measure(package: str, path: str) -> None:
    tf = importlib.import_module(package)
    if hasattr(tf, "disable_eager_execution"):
        tf.disable_eager_execution()
    features = {
        "id": tf.FixedLenFeature([], tf.string),
        "label": tf.FixedLenFeature([], tf.int64),
        "words": tf.VarLenFeature(tf.int64),
        "dense": tf.FixedLenFeature([128], tf.float32),
        "image": tf.FixedLenFeature([], tf.string),
    }
    records = list(tf.python_io.tf_record_iterator(path))[:BATCH]
    serialized = tf.constant(records)
    parsed = tf.parse_example(serialized, features)

    def next_of(dataset):
        return tf.data.make_one_shot_iterator(dataset.repeat()).get_next()

    files = tf.data.TFRecordDataset(path)
    raw = next_of(files.batch(BATCH))
    whole = next_of(files.batch(BATCH).map(lambda batch: tf.parse_example(batch, features)))
    parallel = next_of(
        files.batch(BATCH)
        .map(lambda batch: tf.parse_example(batch, features), num_parallel_calls=os.cpu_count())
        .prefetch(4)
    )
    with tf.Session() as session:
        for name, fetch in (
            ("parse", [parsed["label"].op]),
            ("read", [raw.op]),
            ("read+parse", [whole["label"].op]),
            ("read+parse, parallel", [parallel["label"].op]),
        ):
            step = session.make_callable(fetch)
            step()
            show(package, name, lambda step=step: [step() for _ in range(400)], 400 * BATCH)
    count = sum(1 for _ in tf.python_io.tf_record_iterator(path))
    iterate = lambda: sum(1 for _ in tf.python_io.tf_record_iterator(path))  # noqa: E731
    show(package, "tf_record_iterator", iterate, count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--package", action="append")
    parser.add_argument("--python", default=sys.executable, help="for packages but Millrace")
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.package[0], arguments.measure)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "records")
        write_file(path, arguments.records)
        size = os.path.getsize(path) / arguments.records
        print(f"{arguments.records} records of {size:.0f} bytes")
        for package in arguments.package or ["millrace.compat.v1", "tensorflow.compat.v1"]:
            own = package.startswith("millrace")
            command = [sys.executable if own else arguments.python, __file__]
            environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
            subprocess.run(
                [*command, "--package", package, "--measure", path], check=own, env=environment
            )


if __name__ == "__main__":
    main()
