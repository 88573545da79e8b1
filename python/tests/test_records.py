"""TFRecord files, whole files, and readers fed by queues."""

import gzip
import zlib
from pathlib import Path

import numpy as np
import pytest
from tensorflow_twin import needs_tensorflow, run_tensorflow

import millrace.compat.v1 as tf

RECORDS = [b"", b"one", bytes(range(256)) * 10]


def write(path, records=RECORDS, options=None):
    with tf.python_io.TFRecordWriter(str(path), options) as writer:
        for record in records:
            writer.write(record)
    return str(path)


@pytest.mark.parametrize("kind", [None, "", "ZLIB", "GZIP"])
def test_what_is_written_is_read(tmp_path, kind):
    path = write(tmp_path / "records", options=kind)
    assert list(tf.python_io.tf_record_iterator(path, kind)) == RECORDS
    data = (tmp_path / "records").read_bytes()
    plain = {"ZLIB": zlib.decompress, "GZIP": gzip.decompress}.get(kind, bytes)(data)
    assert plain[:12] == bytes(8) + plain[8:12] and len(plain) == 3 * 16 + 3 + 2560


def test_options_name_the_compression(tmp_path):
    options = tf.python_io.TFRecordOptions(tf.python_io.TFRecordCompressionType.GZIP)
    path = write(tmp_path / "records", options=options)
    assert list(tf.python_io.tf_record_iterator(path, options)) == RECORDS
    with pytest.raises(ValueError, match="compression_type"):
        tf.python_io.TFRecordOptions("LZ4")


def test_record_input_gives_each_record_once_per_epoch(tmp_path):
    tf.reset_default_graph()
    for i in range(3):
        write(tmp_path / f"part.{i}", [b"%d" % (4 * i + k) for k in range(4)])
    batch = tf.raw_ops.RecordInput(
        file_pattern=str(tmp_path / "part.*"), file_buffer_size=5, batch_size=3,
        file_shuffle_shift_ratio=0.3,
    )  # fmt: skip
    missing = tf.raw_ops.RecordInput(file_pattern=str(tmp_path / "none.*"))
    with tf.Session() as sess:
        epochs = [[r for _ in range(4) for r in sess.run(batch)] for _ in range(3)]
        with pytest.raises(tf.errors.NotFoundError, match="Found no files"):
            sess.run(missing)
    assert batch.shape.as_list() == [3]
    assert all(sorted(map(int, epoch)) == list(range(12)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_a_cut_file_is_data_loss(tmp_path):
    path = tmp_path / "records"
    write(path)
    path.write_bytes(path.read_bytes()[:-1])
    records = tf.python_io.tf_record_iterator(str(path))
    assert [next(records), next(records)] == RECORDS[:2]
    with pytest.raises(tf.errors.DataLossError, match="is cut"):
        next(records)
    with pytest.raises(tf.errors.NotFoundError, match="missing"):
        list(tf.python_io.tf_record_iterator(str(tmp_path / "missing")))


def test_memory_files_are_files_too():
    with tf.python_io.TFRecordWriter("memory://test_records/a") as writer:
        writer.write("text")
        writer.flush()
    assert list(tf.python_io.tf_record_iterator("memory://test_records/a")) == [b"text"]
    with pytest.raises(tf.errors.UnimplementedError, match="gs"):
        tf.python_io.TFRecordWriter("gs://bucket/a")


def run_reader(reader, files, up_to=None):
    """All keys and records that the reader finds, until the queue is empty."""
    queue = tf.FIFOQueue(10, [tf.string], shapes=[()])
    fill = [queue.enqueue_many([files]), queue.close()]
    read = reader.read(queue) if up_to is None else reader.read_up_to(queue, up_to)
    counts = reader.num_records_produced(), reader.num_work_units_completed()
    results = []
    with tf.Session() as session:
        for op in fill:
            session.run(op)
        with pytest.raises(tf.errors.OutOfRangeError, match="is closed"):
            while True:
                results.append(session.run(read))
        assert session.run(counts)[1] == len(files)
        return results


def test_record_reader_keys_are_offsets(tmp_path):
    for kind in (None, "ZLIB"):
        path = write(tmp_path / "records", options=kind)
        got = run_reader(tf.TFRecordReader(options=kind), [path, path])
        keys = [f"{path}:{offset}".encode() for offset in (0, 16, 35)]
        assert got == list(zip(keys * 2, RECORDS * 2, strict=True))


def test_text_lines_and_their_header(tmp_path):
    path = tmp_path / "lines"
    path.write_text("header\none\r\n\nlast")
    got = run_reader(tf.TextLineReader(skip_header_lines=1), [str(path)])
    lines = [(2, b"one"), (3, b""), (4, b"last")]
    assert got == [(f"{path}:{number}".encode(), line) for number, line in lines]


def test_fixed_length_records_hop(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"HabcdefgF")
    reader = tf.FixedLengthRecordReader(3, header_bytes=1, footer_bytes=1, hop_bytes=2)
    assert [value for _, value in run_reader(reader, [str(path)])] == [b"abc", b"cde", b"efg"]
    packed = tmp_path / "packed"
    packed.write_bytes(zlib.compress(b"abcdef"))
    reader = tf.FixedLengthRecordReader(2, encoding="ZLIB")
    assert [value for _, value in run_reader(reader, [str(packed)])] == [b"ab", b"cd", b"ef"]


def test_read_up_to_goes_on_with_the_next_file(tmp_path):
    path = write(tmp_path / "records")
    got = run_reader(tf.TFRecordReader(), [path, path], up_to=4)
    assert [values.tolist() for _, values in got] == [[*RECORDS, b""], RECORDS[1:]]


def test_whole_file_reader_state_can_be_restored(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"contents")
    reader = tf.WholeFileReader()
    queue = tf.FIFOQueue(10, [tf.string], shapes=[()])
    key, value = reader.read(queue)
    state = tf.placeholder(tf.string, [])
    restore = reader.restore_state(state)
    with tf.Session() as session:
        session.run(queue.enqueue_many([[str(path)] * 3]))
        assert session.run([key, value]) == [str(path).encode(), b"contents"]
        saved = session.run(reader.serialize_state())
        session.run([key, value])
        session.run(restore, {state: saved})
        assert session.run(reader.num_records_produced()) == 1
        session.run(reader.reset())
        assert session.run(reader.num_records_produced()) == 0
        for bad in (saved[:1], saved[:-1], saved[1:], b"\x08\x01\x10\x02"):
            with pytest.raises(tf.errors.InvalidArgumentError, match="state for WholeFileReader"):
                session.run(restore, {state: bad})


def test_a_read_that_waits_ends_with_its_deadline():
    reader = tf.IdentityReader()
    queue = tf.FIFOQueue(10, [tf.string], shapes=[()])
    read = reader.read(queue)
    with tf.Session() as session:
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(read, options=tf.RunOptions(timeout_in_ms=50))
        session.run(queue.enqueue([b"work"]))
        assert session.run(read) == (b"work", b"work")


def test_records_through_a_whole_input_pipeline(tmp_path):
    paths = [write(tmp_path / str(i), [f"{i}-{k}" for k in range(5)]) for i in range(3)]
    files = tf.train.string_input_producer(
        tf.train.match_filenames_once(str(tmp_path / "*")), num_epochs=2, shuffle=False
    )
    _, value = tf.TFRecordReader().read(files)
    batch = tf.train.batch([value], batch_size=4, allow_smaller_final_batch=True)
    seen = []
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                seen.extend(session.run(batch))
        coordinator.request_stop()
        coordinator.join(threads)
    expected = [f"{i}-{k}".encode() for i in range(len(paths)) for k in range(5)]
    assert seen == expected * 2


def test_files_are_written_read_and_found(tmp_path):
    with tf.Session() as session:
        for name in ("b.txt", "a.txt", "sub/c.txt", ".hidden.txt"):
            session.run(tf.write_file(str(tmp_path / name), name))
        assert session.run(tf.read_file(str(tmp_path / "sub/c.txt"))) == b"sub/c.txt"
        found = session.run(tf.matching_files([str(tmp_path / "*.txt"), str(tmp_path / "s*/?.*")]))
        names = [name.decode()[len(str(tmp_path)) + 1 :] for name in found]
        assert names == ["a.txt", "b.txt", "sub/c.txt"]
        assert session.run(tf.matching_files(str(tmp_path / "none*"))).shape == (0,)
        with pytest.raises(tf.errors.NotFoundError, match="missing"):
            session.run(tf.read_file(str(tmp_path / "missing")))


def test_compressed_strings_are_unpacked():
    text = b"some text " * 100
    with tf.Session() as session:
        for kind, data in (
            ("", text),
            ("ZLIB", zlib.compress(text)),
            ("GZIP", gzip.compress(text)),
        ):
            got = session.run(tf.decode_compressed([data, data], compression_type=kind))
            assert got.tolist() == [text, text]
        with pytest.raises(tf.errors.DataLossError, match="too early"):
            session.run(tf.decode_compressed(zlib.compress(text)[:-3], compression_type="ZLIB"))
    with pytest.raises(ValueError, match="compression type"):
        tf.decode_compressed(b"", compression_type="SNAPPY")


def test_tensors_as_strings_come_back():
    with tf.Session() as session:
        for value in (
            np.arange(6, dtype=np.float32).reshape(2, 3),
            np.array([b"a", b"bc"], object),
        ):
            packed = tf.serialize_tensor(value)
            back = tf.parse_tensor(packed, tf.as_dtype(value.dtype))
            assert session.run(back).tolist() == value.tolist()
        with pytest.raises(tf.errors.InvalidArgumentError, match="mismatch"):
            session.run(tf.parse_tensor(tf.serialize_tensor([1.0]), tf.int32))


@pytest.mark.parametrize("kind", ["", "ZLIB", "GZIP"])
def test_files_of_tensorflow(kind):
    folder = Path(__file__).parents[2] / "tests" / "data" / "records"
    path = str(folder / (kind.lower() or "plain"))
    records = list(tf.python_io.tf_record_iterator(path, kind))
    features = {
        "i": tf.FixedLenFeature([2], tf.int64),
        "f": tf.FixedLenFeature([], tf.float32),
        "s": tf.VarLenFeature(tf.string),
    }
    with tf.Session() as session:
        got = session.run(tf.parse_example(records, features))
    assert got["i"].tolist() == [[0, 0], [1, -1], [2, -2]]
    assert got["f"].tolist() == [0.0, 0.5, 1.0]
    assert got["s"].values.tolist() == [b"0", b"0", b"1", b"0", b"1", b"2"]
    examples = [tf.train.Example.FromString(record) for record in records]
    assert list(examples[2].features.feature["i"].int64_list.value) == [2, -2]


@needs_tensorflow
def test_tensorflow_reads_what_is_written(tmp_path):
    for kind in ("", "ZLIB", "GZIP"):
        path = write(tmp_path / "records", options=kind)
        printed = run_tensorflow(
            """
            options = tf.io.TFRecordOptions(args[1])
            print([len(r) for r in tf.io.tf_record_iterator(args[0], options)])
            """,
            path,
            kind,
        )
        assert printed.strip() == "[0, 3, 2560]"
