"""Paths with a scheme: `memory://`, and file systems of Python's with the methods of fsspec."""

import io
import uuid

import numpy as np
import pytest

import millrace.compat.v1 as tf
from millrace.io.file_systems import register_file_system


class Stored(io.BytesIO):
    """A file that is stored when it is closed or flushed."""

    def __init__(self, files, path, old=b""):
        super().__init__()
        self.write(old)
        self.files, self.path = files, path
        self.flush()

    def flush(self):
        self.files[self.path] = self.getvalue()

    def close(self):
        if not self.closed:
            self.flush()
        super().close()


class Fake:
    """Files in a dict, with the interface of fsspec's file systems; folders are those of files."""

    def __init__(self):
        self.files, self.folders = {}, set()

    def open(self, path, mode):
        if mode != "rb":
            return Stored(self.files, path, self.files.get(path, b"") if mode == "ab" else b"")
        if path not in self.files:
            raise FileNotFoundError(path)
        return io.BytesIO(self.files[path])

    def info(self, path):
        path = path.rstrip("/")
        if path in self.files:
            return {"name": path, "size": len(self.files[path]), "type": "file", "mtime": 5.0}
        names = [*self.files, *self.folders]
        if path in names or any(name.startswith(path + "/") for name in names):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def exists(self, path):
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def ls(self, path, detail):
        assert not detail
        start = path.rstrip("/") + "/"
        names = [*self.files, *self.folders]
        return sorted({start + n[len(start) :].split("/")[0] for n in names if n.startswith(start)})

    def makedirs(self, path, exist_ok):
        assert exist_ok
        self.folders.add(path.rstrip("/"))

    def mv(self, old, new):
        self.files[new] = self.files.pop(old)

    def rm_file(self, path):
        del self.files[path]

    def rmdir(self, path):
        self.folders.discard(path.rstrip("/"))


FAKE = Fake()
register_file_system("fake", FAKE)


@pytest.fixture(params=["memory", "fake"])
def folder(request):
    """A folder of its own on a file system that is not the machine's."""
    return f"{request.param}://{uuid.uuid4().hex}/runs"


def test_files(folder):
    gfile = tf.io.gfile
    gfile.makedirs(folder + "/a")
    path = folder + "/a/text"
    with tf.gfile.GFile(path, "w") as file:
        file.write("one\ntwo\n")
        assert file.tell() == 8
    with tf.gfile.Open(path, "a") as file:
        file.write("three")
    with tf.gfile.GFile(path) as file:
        assert file.readline() == "one\n" and file.read() == "two\nthree"
        file.seek(4)
        assert list(file) == ["two\n", "three"] and file.size() == 13
    assert gfile.exists(path) and not gfile.exists(path + "x")
    assert gfile.stat(path).length == 13 and not gfile.stat(path).is_directory
    gfile.copy(path, folder + "/b")
    assert gfile.listdir(folder) == ["a", "b"] and gfile.isdir(folder + "/a")
    assert gfile.glob(folder + "/*/t*") == [path]
    assert list(gfile.walk(folder)) == [(folder, ["a"], ["b"]), (folder + "/a", [], ["text"])]
    with pytest.raises(tf.errors.AlreadyExistsError):
        gfile.rename(folder + "/b", path)
    gfile.rename(folder + "/b", path, overwrite=True)
    assert gfile.listdir(folder) == ["a"]
    with pytest.raises(tf.errors.FailedPreconditionError):
        gfile.remove(folder + "/a")
    gfile.remove(path)
    gfile.rmtree(folder)
    assert not gfile.exists(folder)
    for call in (gfile.stat, gfile.listdir, gfile.remove, gfile.rmtree):
        with pytest.raises(tf.errors.NotFoundError):
            call(folder)
    with pytest.raises(tf.errors.NotFoundError):
        tf.gfile.GFile(path).read()


def test_files_go_from_one_file_system_to_another(folder, tmp_path):
    local = str(tmp_path / "x")
    tf.gfile.GFile(local, "w").write("x")
    with tf.gfile.GFile(local, "w") as file:
        file.write("content")
    tf.gfile.Copy(local, folder + "/x")
    tf.gfile.Copy(folder + "/x", local + "2")
    assert (tmp_path / "x2").read_text() == "content"
    with pytest.raises(tf.errors.UnimplementedError, match="different file systems"):
        tf.gfile.Rename(folder + "/x", local)


def test_a_run_is_saved_and_goes_on(folder):
    def build():
        step = tf.train.get_or_create_global_step()
        weight = tf.get_variable("weight", [3], initializer=tf.zeros_initializer())
        loss = tf.reduce_sum(tf.square(weight - 1))
        tf.summary.scalar("loss", loss)
        return tf.train.GradientDescentOptimizer(0.1).minimize(loss, step)

    for last_step in (3, 6):
        with tf.Graph().as_default():
            train = build()
            hook = tf.train.StopAtStepHook(last_step=last_step)
            with tf.train.MonitoredTrainingSession(
                checkpoint_dir=folder, hooks=[hook], save_checkpoint_steps=1, save_summaries_steps=1
            ) as session:
                while not session.should_stop():
                    session.run(train)
    assert tf.train.latest_checkpoint(folder) == folder + "/model.ckpt-6"
    assert tf.train.load_variable(folder, "global_step") == 6
    assert dict(tf.train.list_variables(folder))["weight"] == [3]
    told = [
        event.step
        for path in tf.gfile.Glob(folder + "/events.out.tfevents.*")
        for event in tf.train.summary_iterator(path)
        for value in event.summary.value
        if value.tag == "loss"
    ]
    assert sorted(told) == [1, 2, 3, 4, 5, 6]


def test_a_saved_model(folder):
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None], name="x")
        y = tf.multiply(x, tf.get_variable("w", initializer=3.0), name="y")
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, folder + "/model", {"x": x}, {"y": y})
    with tf.Graph().as_default(), tf.Session() as session:
        tf.saved_model.load(session, ["serve"], folder + "/model")
        assert session.run("y:0", {"x:0": [2.0]}).tolist() == [6.0]


def test_records_and_lines_through_tf_data(folder):
    tf.gfile.MakeDirs(folder)
    for name, compression in (("plain", ""), ("packed", "GZIP")):
        with tf.python_io.TFRecordWriter(f"{folder}/{name}", compression) as writer:
            for i in range(100):
                writer.write(b"%d" % i)
    with tf.gfile.GFile(folder + "/lines", "w") as file:
        file.write("a\nb\n")
    assert len(list(tf.python_io.tf_record_iterator(folder + "/plain"))) == 100
    with tf.Graph().as_default(), tf.Session() as session:
        numbers = [
            tf.data.TFRecordDataset(f"{folder}/{name}", compression).batch(100).prefetch(1)
            for name, compression in (("plain", ""), ("packed", "GZIP"))
        ]
        lines = tf.data.TextLineDataset(folder + "/lines").batch(2)
        for dataset in numbers:
            batch = session.run(dataset.make_one_shot_iterator().get_next())
            np.testing.assert_array_equal(batch.astype(int), np.arange(100))
        found = session.run(lines.make_one_shot_iterator().get_next())
        assert found.tolist() == [b"a", b"b"]
        assert session.run(tf.read_file(folder + "/lines")) == b"a\nb\n"
        names = session.run(tf.matching_files(folder + "/p*")).tolist()
        assert names == [f"{folder}/{name}".encode() for name in ("packed", "plain")]


def test_an_unknown_scheme_is_answered_with_those_there_are(tmp_path):
    path = "s3://bucket/file"
    calls = [
        lambda: tf.gfile.Exists(path), lambda: tf.gfile.GFile(path).read(),
        lambda: tf.gfile.Glob(path + "*"), lambda: tf.summary.FileWriter(path),
        lambda: tf.python_io.TFRecordWriter(path), lambda: tf.train.load_checkpoint(path),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(tf.errors.UnimplementedError, match=r"'s3'.*there are.*fake, file, mem"):
            call()


def test_what_cannot_be_registered():
    with pytest.raises(tf.errors.AlreadyExistsError, match="'memory'"):
        register_file_system("memory", FAKE)
    with pytest.raises(tf.errors.InvalidArgumentError, match="is no scheme"):
        register_file_system("a b", FAKE)
    with pytest.raises(TypeError, match="it lacks open, info"):
        register_file_system("other", object())


class Broken(Fake):
    """Fails in every way that such an object can."""

    def open(self, path, mode):
        if path == "denied":
            raise PermissionError(13, "Permission denied")
        if path == "number":
            return 3
        raise NotImplementedError("no such mode")

    def exists(self, path):
        return path != "absent"

    def info(self, path):
        if path == "strange":
            return {"size": -5, "type": "file"}
        if path == "bug":
            raise KeyError("bug")
        return {"size": 1, "type": "file"}


def test_errors_of_python_come_through():
    register_file_system("broken", Broken())
    with pytest.raises(tf.errors.PermissionDeniedError, match="broken://denied; Permission denied"):
        tf.gfile.GFile("broken://denied").read()
    with pytest.raises(tf.errors.UnimplementedError, match="no such mode"):
        tf.gfile.GFile("broken://x", "w").write("x")
    with tf.Graph().as_default(), tf.Session() as session:
        for path in ("denied", "number", "x"):
            with pytest.raises(tf.errors.OpError):
                session.run(tf.read_file("broken://" + path))
    for path in ("strange", "bug"):
        with pytest.raises(tf.errors.OpError):
            tf.gfile.Stat("broken://" + path)
