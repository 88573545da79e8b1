"""What an element of an input pipeline costs, beside TensorFlow where it is installed.

    python benchmarks/data_bench.py [--python PYTHON] [--rounds N] [WORD ...]

Microseconds for each element that a step takes (and does not fetch), of the clock and of the
processors, which says more on a machine that is not idle: the least of many measurements, in
processes that take turns. WORDs choose pipelines. PYTHON is one with TensorFlow.
"""

import os

import beside


def write_files(folder):
    """Eight files of records, of 100 bytes each, and one of lines of numbers."""
    import millrace.compat.v1 as tf

    for i in range(8):
        with tf.python_io.TFRecordWriter(os.path.join(folder, f"records{i}")) as writer:
            for k in range(5000):
                writer.write(b"%08d" % k + bytes(92))
    with open(os.path.join(folder, "lines.csv"), "w", encoding="ascii") as file:
        for i in range(20000):
            file.write(",".join([str(i), *(str((i * k) % 97 / 8) for k in range(8))]) + "\n")


def pipelines(tf, folder):
    """Name, elements in each call and the function that makes the dataset."""
    import numpy as np

    Dataset = tf.data.Dataset
    images = np.random.default_rng(0).random((10000, 28, 28), np.float32)
    labels = np.arange(10000)
    sentences = [np.arange(1 + i % 20) for i in range(64)]
    names = [os.path.join(folder, f"records{i}") for i in range(8)]
    lines = os.path.join(folder, "lines.csv")

    def rows():
        return Dataset.from_tensor_slices((images, labels)).repeat()

    def mapped(parallel):
        return rows().map(lambda x, y: (x * 2 - 1, y), num_parallel_calls=parallel).batch(128)

    def words():
        return Dataset.range(10**9).map(lambda x: tf.range(1 + x % 20))

    def endless():
        while True:
            yield from range(1000)

    def text():
        return tf.data.TextLineDataset(lines).repeat()

    def numbers():
        return Dataset.range(10**9)

    return [
        ("get_next alone", 1, numbers),
        ("batch of numbers", 1000, lambda: numbers().batch(1000)),
        ("batch, ten stages before", 1000, lambda: ten_stages(numbers()).batch(1000)),
        ("shuffle of 10000, batch", 1000, lambda: numbers().shuffle(10000).batch(1000)),
        ("map of numbers, batch", 1000, lambda: numbers().map(lambda x: x + 1).batch(1000)),
        ("filter of numbers, batch", 500, lambda: numbers().filter(lambda x: x % 2 < 1).batch(500)),
        ("rows of images, batch", 128, lambda: rows().batch(128)),
        ("shuffled images, batch", 128, lambda: rows().shuffle(10000).batch(128)),
        ("map of images, batch", 128, lambda: mapped(None)),
        ("map of images, 2 at once", 128, lambda: mapped(2)),
        ("map, batch, prefetch", 128, lambda: mapped(None).prefetch(2)),
        ("cached images, batch", 128, lambda: cached(rows().take(2000))),
        ("padded_batch of words", 128, lambda: words().padded_batch(128, [None])),
        ("words, bucketed", 128, lambda: bucketed(words(), tf)),
        ("ragged lists, from rows", len(sentences), lambda: joined(Dataset, sentences)),
        ("interleave of 8 files", 128, lambda: interleaved(Dataset, names, None, tf)),
        ("interleave, parallel", 128, lambda: interleaved(Dataset, names, 2, tf)),
        ("text lines, batch", 128, lambda: text().batch(128)),
        ("text lines, decode_csv", 128, lambda: text().batch(128).map(csv_parser(tf))),
        ("generator, batch", 128, lambda: Dataset.from_generator(endless, tf.int64).batch(128)),
    ]


def ten_stages(dataset):
    for _ in range(10):
        dataset = dataset.take(10**9)
    return dataset


def cached(dataset):
    return dataset.map(lambda x, y: (x * 2, y)).cache().repeat().batch(128)


def bucketed(dataset, tf):
    bucket = tf.data.experimental.bucket_by_sequence_length
    return dataset.apply(bucket(lambda x: tf.shape(x)[0], [5, 10, 15], [128] * 4))


def joined(Dataset, sentences):
    dataset = Dataset.from_tensors(sentences[0])
    for sentence in sentences[1:8]:
        dataset = dataset.concatenate(Dataset.from_tensors(sentence))
    return dataset.repeat().padded_batch(len(sentences), [None])


def interleaved(Dataset, names, parallel, tf):
    files = Dataset.from_tensor_slices(names)
    mixed = files.interleave(
        tf.data.TFRecordDataset, cycle_length=8, block_length=4, num_parallel_calls=parallel
    )
    return mixed.repeat().batch(128)


def csv_parser(tf):
    return lambda batch: tf.decode_csv(batch, [[0]] + [[0.0]] * 8)


def measure(tf, folder, chosen):
    for name, elements, make in pipelines(tf, folder):
        if not chosen(name):
            continue
        with tf.Graph().as_default(), tf.Session() as session:
            element = tf.data.make_one_shot_iterator(make()).get_next()
            first = element[0] if isinstance(element, (tuple, list)) else element
            call = session.make_callable([first.op])
            yield name, [value / elements for value in beside.cost(call)]


if __name__ == "__main__":
    beside.main(__file__, __doc__, "us for each element", write_files, measure)
