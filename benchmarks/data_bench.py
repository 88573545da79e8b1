"""What an element of an input pipeline costs, beside TensorFlow where it is installed.

python data_bench.py [python with TensorFlow]: microseconds for each element, best of many rounds.
"""

import json
import subprocess
import sys
import time


def per_element(tf, make, elements, seconds=1.0):
    """Microseconds for each element of a pipeline that gives `elements` at a time."""
    with tf.Graph().as_default(), tf.Session() as session:
        call = session.make_callable(tf.data.make_one_shot_iterator(make()).get_next())
        for _ in range(5):
            call()
        best, end = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            for _ in range(10):
                call()
            best = min(best, (time.perf_counter() - start) / 10)
    return best / elements * 1e6


def figures(tf):
    """The pipelines, whoever provides TensorFlow 1's interface."""
    import numpy as np

    Dataset = tf.data.Dataset
    images = np.random.default_rng(0).random((10000, 28, 28), np.float32)
    labels = np.arange(10000)

    def stages(count):
        dataset = Dataset.range(10**9)
        for _ in range(count):
            dataset = dataset.take(10**9)
        return dataset.batch(1000)

    def mapped(parallel):
        rows = Dataset.from_tensor_slices((images, labels)).repeat()
        return rows.map(lambda x, y: (x * 2 - 1, y), num_parallel_calls=parallel).batch(128)

    none = per_element(tf, lambda: stages(0), 1000)
    return {
        "batch of numbers": none,
        "a stage between": (per_element(tf, lambda: stages(10), 1000) - none) / 10,
        "map of numbers, batch": per_element(
            tf, lambda: Dataset.range(10**9).map(lambda x: x + 1).batch(1000), 1000
        ),
        "map of images, batch": per_element(tf, lambda: mapped(None), 128),
        "map of images, 2 at once": per_element(tf, lambda: mapped(2), 128),
        "map, batch, prefetch": per_element(tf, lambda: mapped(None).prefetch(2), 128),
        "shuffle, batch": per_element(
            tf, lambda: Dataset.range(10**9).shuffle(1000).batch(1000), 1000
        ),
    }


def main():
    if sys.argv[1:] == ["--peer"]:
        import tensorflow

        tensorflow.compat.v1.disable_eager_execution()
        print(json.dumps(figures(tensorflow.compat.v1)))
        return
    import millrace.compat.v1 as tf

    mine, theirs = figures(tf), {}
    python = sys.argv[1] if len(sys.argv) > 1 else sys.executable
    done = subprocess.run([python, __file__, "--peer"], capture_output=True, text=True)
    if done.returncode == 0:
        theirs = json.loads(done.stdout.splitlines()[-1])
    print(f"{'us for each element':28} {'Millrace':>10} {'TensorFlow':>11}")
    for name, value in mine.items():
        other = f"{theirs[name]:11.3f}" if theirs else f"{'-':>11}"
        print(f"{name:28} {value:10.3f} {other}")


if __name__ == "__main__":
    main()
