"""tf.data.experimental and tf.contrib.data, and datasets of files."""

import gzip
import struct
import zlib

import numpy as np
import pytest
from test_data import elements, lists

import millrace.compat.v1 as tf

Dataset = tf.data.Dataset
experimental = tf.data.experimental


def test_older_names():
    assert tf.contrib.data.map_and_batch is experimental.map_and_batch
    assert tf.contrib.data.TextLineDataset is tf.data.TextLineDataset


def test_fused_names():
    five = Dataset.range(5)
    assert lists(five.apply(experimental.map_and_batch(lambda x: x * 2, 2))) == [
        [0, 2],
        [4, 6],
        [8],
    ]
    whole = five.apply(experimental.map_and_batch(lambda x: x, 2, drop_remainder=True))
    assert lists(whole) == [[0, 1], [2, 3]] and whole.output_shapes.as_list() == [2]
    mixed = lists(five.apply(experimental.shuffle_and_repeat(5, 2, seed=1)))
    assert sorted(mixed[:5]) == sorted(mixed[5:]) == list(range(5))
    nested = experimental.parallel_interleave(lambda x: Dataset.range(x), 2)
    assert lists(five.apply(nested)) == lists(five.interleave(lambda x: Dataset.range(x), 2))


def test_scan_counter_and_enumerate():
    sums = Dataset.range(5).apply(experimental.scan(np.int64(10), lambda s, x: (s + x, (s, x))))
    assert elements(sums) == [(10, 0), (10, 1), (11, 2), (13, 3), (16, 4)]
    assert lists(experimental.Counter(3, 2), most=3) == [3, 5, 7]
    assert elements(Dataset.range(2).apply(experimental.enumerate_dataset(7))) == [(7, 0), (8, 1)]
    with pytest.raises(TypeError, match="pair"):
        Dataset.range(5).apply(experimental.scan(np.int64(0), lambda s, x: s))


def test_groups():
    groups = Dataset.range(10).apply(
        experimental.group_by_window(lambda x: x % 3, lambda _, group: group.batch(2), 2)
    )
    assert lists(groups) == [[0, 3], [1, 4], [2, 5], [6, 9], [7], [8]]
    by_key = experimental.group_by_window(
        lambda x: x % 2, lambda _, group: group.batch(9), window_size_func=lambda key: key + 1
    )
    assert lists(Dataset.range(5).apply(by_key)) == [[0], [2], [1, 3], [4]]
    with pytest.raises(ValueError, match="window_size"):
        experimental.group_by_window(lambda x: x, lambda _, group: group)


def test_buckets():
    words = Dataset.range(1, 7).map(lambda n: tf.fill([n], n))
    bucketed = words.apply(
        experimental.bucket_by_sequence_length(lambda x: tf.shape(x)[0], [3, 5], [2, 2, 2])
    )
    assert [np.shape(b) for b in lists(bucketed)] == [(2, 2), (2, 4), (2, 6)]
    to_bound = experimental.bucket_by_sequence_length(
        lambda x: tf.shape(x)[0], [4, 9], [2, 3, 1], pad_to_bucket_boundary=True
    )
    assert [np.shape(b) for b in lists(words.apply(to_bound))] == [(2, 3), (3, 8), (1, 3)]


def test_sliding_windows_and_sparse_batches():
    slid = Dataset.range(6).apply(tf.contrib.data.sliding_window_batch(3, window_shift=2))
    assert lists(slid) == [[0, 1, 2], [2, 3, 4]]
    pairs = Dataset.zip((Dataset.range(3), Dataset.range(3)))
    assert len(elements(pairs.apply(tf.contrib.data.sliding_window_batch(2)))) == 2
    ragged = Dataset.range(1, 4).map(lambda n: tf.fill([n], n))
    first, second = elements(ragged.apply(experimental.dense_to_sparse_batch(2, [5])))
    assert first.values.tolist() == [1, 2, 2] and first.dense_shape.tolist() == [2, 5]
    assert first.indices.tolist() == [[0, 0], [1, 0], [1, 1]]
    assert second.values.tolist() == [3, 3, 3]


def test_errors_are_left_out():
    inverse = Dataset.range(4).map(
        lambda x: tf.check_numerics(1.0 / tf.cast(x - 2, tf.float32), "inverse")
    )
    assert lists(inverse.apply(experimental.ignore_errors())) == [-0.5, -1.0, 1.0]


def test_choices():
    parts = [Dataset.from_tensors(i).repeat(n) for i, n in enumerate((2, 3, 1))]
    choice = Dataset.from_tensor_slices(np.array([2, 1, 0, 2, 1, 1, 0, 0], np.int64))
    assert lists(experimental.choose_from_datasets(parts, choice)) == [2, 1, 0, 1, 1, 0]
    endless = [Dataset.from_tensors(i).repeat() for i in range(3)]
    drawn = lists(experimental.sample_from_datasets(endless, [0.1, 0.6, 0.3], seed=5), most=1000)
    assert np.allclose(np.bincount(drawn) / 1000, [0.1, 0.6, 0.3], atol=0.06)
    with pytest.raises(ValueError, match="weights"):
        experimental.sample_from_datasets(endless, [1.0])


def test_single_elements_and_sizes():
    with tf.Session() as session:
        only = experimental.get_single_element(Dataset.range(5).batch(9))
        assert session.run(only).tolist() == [0, 1, 2, 3, 4]
        for wrong, message in ((Dataset.range(0), "empty"), (Dataset.range(2), "more than one")):
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                session.run(experimental.get_single_element(wrong))
        sizes = {
            7: Dataset.range(10).skip(3), 3: Dataset.range(10).batch(4),
            30: Dataset.range(10).repeat(3), -1: Dataset.range(1).repeat(),
            -2: Dataset.range(9).filter(lambda x: x > 2),
        }  # fmt: skip
        for size, dataset in sizes.items():
            assert session.run(experimental.cardinality(dataset)) == size


def test_options_and_report():
    options = tf.data.Options()
    options.experimental_deterministic = False
    options.autotune.ram_budget = 1
    options.experimental_optimization.map_fusion = True
    dataset = Dataset.range(100).with_options(options).prefetch(50).with_options(options)
    assert dataset.options().experimental_deterministic is False
    iterator = dataset.make_one_shot_iterator()
    with tf.Session() as session:
        element = iterator.get_next()
        assert [session.run(element) for _ in range(100)] == list(range(100))
        table = session.run(iterator.report()).decode()
    assert table.split()[0] == "stage" and "Prefetch" in table and "of 50" in table


def test_lines(tmp_path):
    (tmp_path / "a").write_bytes(b"one\r\ntwo\n\nthree")
    (tmp_path / "b").write_bytes(gzip.compress(b"four\nfive\n"))
    first, second = str(tmp_path / "a"), str(tmp_path / "b")
    assert lists(tf.data.TextLineDataset(first)) == [b"one", b"two", b"", b"three"]
    assert lists(tf.data.TextLineDataset([second], "GZIP")) == [b"four", b"five"]
    names = Dataset.from_tensor_slices([first, first])
    assert len(lists(tf.data.TextLineDataset(names))) == 8
    with pytest.raises(tf.errors.NotFoundError, match="nowhere"):
        lists(tf.data.TextLineDataset(str(tmp_path / "nowhere")))


def test_pieces(tmp_path):
    path = tmp_path / "pieces"
    path.write_bytes(b"HH" + b"aaabbbccc" + b"F")
    pieces = tf.data.FixedLengthRecordDataset(str(path), 3, 2, 1)
    assert lists(pieces) == [b"aaa", b"bbb", b"ccc"]
    assert lists(pieces.skip(1)) == [b"bbb", b"ccc"]
    path.write_bytes(zlib.compress(b"HH" + b"aaabbb" + b"F"))
    packed = tf.data.FixedLengthRecordDataset(str(path), 3, 2, 1, compression_type="ZLIB")
    assert lists(packed) == [b"aaa", b"bbb"]
    path.write_bytes(b"1234")
    with pytest.raises(tf.errors.InvalidArgumentError, match="not an exact multiple"):
        lists(tf.data.FixedLengthRecordDataset(str(path), 3))


def masked_crc(data):
    table = [0] * 256
    for i in range(256):
        crc = i
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table[i] = crc
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(*values):
    out = b""
    for value in values:
        length = struct.pack("<Q", len(value))
        out += length + struct.pack("<I", masked_crc(length))
        out += value + struct.pack("<I", masked_crc(value))
    return out


def test_records(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(records(b"one", b"", b"three"))
    second.write_bytes(records(b"four", b"five"))
    names = [str(first), str(second)]
    assert lists(tf.data.TFRecordDataset(names)) == [b"one", b"", b"three", b"four", b"five"]
    turns = tf.data.TFRecordDataset(names, num_parallel_reads=2)
    assert lists(turns) == [b"one", b"four", b"", b"five", b"three"]
    damaged = bytearray(first.read_bytes())
    damaged[-6] ^= 1
    first.write_bytes(damaged)
    left = tf.data.TFRecordDataset(names).apply(experimental.ignore_errors())
    assert lists(left) == [b"one", b"", b"four", b"five"]
    with pytest.raises(tf.errors.DataLossError):
        lists(tf.data.TFRecordDataset(names))


def test_csv(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('a,b,c\n1,2.5,x\n3,,"y,z"\n')
    rows = experimental.CsvDataset(str(path), [tf.int32, [0.5], tf.string], header=True)
    assert elements(rows) == [(1, 2.5, b"x"), (3, 0.5, b"y,z")]
    some = experimental.CsvDataset(
        [str(path)], [tf.string, [-1.0]], header=True, select_cols=[0, 1]
    )
    assert elements(some) == [(b"1", 2.5), (b"3", -1.0)]
    batches = experimental.make_csv_dataset(
        str(path), 2, label_name="a", num_epochs=1, shuffle=False
    )
    ((columns, label),) = elements(batches)
    assert label.tolist() == [1, 3] and columns["b"].tolist() == [2.5, 0.0]
    assert columns["c"].tolist() == [b"x", b"y,z"]
    assert batches.output_types[0]["b"] == tf.float32
    for text, said in (("a,b\n1\n", "number of fields"), ("a,b\n1," + "x" * 200_000, "limit")):
        path.write_text(text)
        with pytest.raises(ValueError, match=said):
            experimental.make_csv_dataset(str(path), 2)


def test_files_by_pattern(tmp_path):
    for name in ("b.txt", "a.txt", "c.bin"):
        (tmp_path / name).write_text(name)
    found = Dataset.list_files(str(tmp_path / "*.txt"), shuffle=False)
    assert lists(found) == [str(tmp_path / n).encode() for n in ("a.txt", "b.txt")]
    assert sorted(lists(Dataset.list_files(str(tmp_path / "*")))) == sorted(
        str(p).encode() for p in tmp_path.iterdir()
    )


def test_cache_in_a_file(tmp_path):
    name = str(tmp_path / "kept")
    pairs = Dataset.zip((Dataset.range(4), Dataset.from_tensor_slices(["a", "b", "c", "d"])))
    expected = [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
    assert elements(pairs.cache(name), most=2) == expected[:2]
    assert not list(tmp_path.glob("*.cache"))
    assert elements(pairs.cache(name).repeat(2)) == expected * 2
    assert [p.name for p in tmp_path.iterdir()] == ["kept.cache"]
    # What is in the file, whatever the dataset has become.
    assert elements(pairs.take(1).cache(name)) == expected
    whole = (tmp_path / "kept.cache").read_bytes()
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        (tmp_path / "kept.cache").write_bytes(damaged)
        with pytest.raises(tf.errors.DataLossError, match="kept.cache"):
            elements(pairs.cache(name))


def test_a_checkpoint_holds_where_an_iterator_stands(tmp_path):
    def build():
        dataset = Dataset.range(50).shuffle(10, seed=3).map(lambda x: x * 2, 2).prefetch(3)
        iterator = dataset.repeat(2).make_initializable_iterator()
        saveable = experimental.make_saveable_from_iterator(iterator)
        tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
        steps = tf.Variable(0, name="steps")
        count = tf.assign_add(steps, 1)
        return iterator, iterator.get_next(), count, tf.train.Saver()

    with tf.Graph().as_default(), tf.Session() as session:
        iterator, element, count, saver = build()
        session.run([iterator.initializer, tf.global_variables_initializer()])
        for _ in range(30):
            session.run([element, count])
        path = saver.save(session, str(tmp_path / "model"))
        rest = [session.run(element) for _ in range(70)]
    with tf.Graph().as_default(), tf.Session() as session:
        iterator, element, count, saver = build()
        session.run(iterator.initializer)
        saver.restore(session, path)
        assert session.run(count) == 31
        assert [session.run(element) for _ in range(70)] == rest


def test_examples(tmp_path):
    for part in range(2):
        with tf.python_io.TFRecordWriter(str(tmp_path / f"part{part}")) as writer:
            for i in range(part * 3, part * 3 + 3):
                feature = {
                    "x": tf.train.Feature(float_list=tf.train.FloatList(value=[i, i / 2])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())
    features = {
        "x": tf.FixedLenFeature([2], tf.float32), "label": tf.FixedLenFeature([], tf.int64),
    }  # fmt: skip
    dataset = experimental.make_batched_features_dataset(
        str(tmp_path / "part*"), 4, features, label_key="label", num_epochs=1, shuffle=False
    )
    (first, labels), (_, rest) = elements(dataset)
    assert labels.tolist() == [0, 1, 2, 3] and rest.tolist() == [4, 5]
    assert first["x"].tolist() == [[0, 0], [1, 0.5], [2, 1], [3, 1.5]]


def test_a_watched_session_goes_on_with_the_next_element(tmp_path):
    def run(folder, steps):
        with tf.Graph().as_default():
            numbers = Dataset.range(1000).shuffle(10, seed=1).repeat().prefetch(3)
            iterator = numbers.make_one_shot_iterator()
            saveable = experimental.make_saveable_from_iterator(iterator)
            tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
            count = tf.assign_add(tf.train.get_or_create_global_step(), 1)
            fetches = [iterator.get_next(), count]
            with tf.train.MonitoredTrainingSession(
                checkpoint_dir=str(folder), save_checkpoint_steps=1000, log_step_count_steps=None
            ) as session:
                return [int(session.run(fetches)[0]) for _ in range(steps)]

    whole = run(tmp_path / "whole", 15)
    assert run(tmp_path / "parts", 7) + run(tmp_path / "parts", 8) == whole
