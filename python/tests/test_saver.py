"""Savers: checkpoints written, kept, named, restored, and what is said when they do not fit."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from tensorflow_twin import FILES, needs_tensorflow, run_tensorflow

import millrace.compat.v1 as tf
from millrace.checkpoint.saver_builder import BaseSaverBuilder

MODEL = str(FILES / "checkpoint" / "model-7")


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as made:
        yield made


def initialised():
    sess = tf.Session()
    sess.run(tf.global_variables_initializer())
    return sess


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("use_resource", [False, True])
def test_round_trip(tmp_path, use_resource, sharded):
    values = {
        "f": np.float32([[1, 2], [3, 4]]), "i": np.int64(7), "b": np.array([True, False]),
        "s": np.array([b"one", b""], dtype=object), "c": np.complex64([1 + 2j]),
        "h": np.float16([0.5]), "e": np.zeros([0, 3], np.float32),
    }  # fmt: skip
    for name, value in values.items():
        tf.Variable(value, name=name, trainable=False, use_resource=use_resource)
    path = tf.train.Saver(sharded=sharded).save(initialised(), str(tmp_path / "model"))
    with tf.Graph().as_default(), tf.Session() as sess:
        saver = tf.train.import_meta_graph(path + ".meta")
        saver.restore(sess, path)
        for v in tf.global_variables():
            np.testing.assert_array_equal(sess.run(v), values[v.op.name])
    assert {name: list(np.shape(v)) for name, v in values.items()} == dict(
        tf.train.list_variables(path)
    )


@pytest.mark.parametrize("sharded", [False, True])
def test_the_old_format_is_written_too(tmp_path, sharded, graph):
    weights = tf.get_variable(
        "w", [3, 2], partitioner=tf.fixed_size_partitioner(2), initializer=tf.ones_initializer()
    )
    text = tf.Variable("a", name="text")
    saver = tf.train.Saver(
        write_version=tf.train.SaverDef.V1, sharded=sharded, max_to_keep=1, random_state=True,
        asynchronous=True,
    )  # fmt: skip
    assert not [op for op in graph.get_operations() if op.type == "SaveV2"]
    sess = initialised()
    for step in (1, 2):
        path = saver.save(sess, str(tmp_path / "model"), global_step=step)
    assert os.path.basename(path) == ("model-2-?????-of-00001" if sharded else "model-2")
    file = "model-2-00000-of-00001" if sharded else "model-2"
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", file, "model-2.meta"]
    assert tf.train.latest_checkpoint(str(tmp_path)) == path and tf.train.checkpoint_exists(path)
    assert tf.train.list_variables(path) == [("text", []), ("w", [3, 2])]
    sess.run(text.assign("b"))
    saver.restore(sess, path)
    assert sess.run([text, tf.convert_to_tensor(weights)])[0] == b"a"
    with pytest.raises(ValueError, match="write_version"):
        tf.train.Saver(write_version=3)


def test_the_graph_is_tensorflows(graph):
    tf.Variable(1.0, name="v")
    tf.Variable(1.0, name="r", use_resource=True)
    made = tf.train.Saver().as_saver_def()
    names = [op.name for op in graph.get_operations() if op.name.startswith("save/")]
    for name in (
        "filename/input", "filename", "Const", "SaveV2/tensor_names", "SaveV2/shape_and_slices",
        "SaveV2", "control_dependency", "RestoreV2/tensor_names", "RestoreV2/shape_and_slices",
        "RestoreV2", "Assign", "AssignVariableOp", "restore_all",
    ):  # fmt: skip
        assert f"save/{name}" in names
    assert made.filename_tensor_name == "save/Const:0"
    assert made.save_tensor_name == "save/control_dependency:0"
    assert made.restore_op_name == "save/restore_all"
    assert tf.train.Saver(sharded=True).as_saver_def().save_tensor_name == "save_1/Identity:0"


def test_names_and_parts(tmp_path):
    whole = np.arange(30, dtype=np.float32).reshape(10, 3)

    def part(partitions):
        partitioner = tf.fixed_size_partitioner(partitions) if partitions else None
        return tf.get_variable("w", initializer=tf.constant(whole), partitioner=partitioner)

    path = tf.train.Saver({"other": part(3)}).save(initialised(), str(tmp_path / "model"))
    np.testing.assert_array_equal(tf.train.load_variable(path, "other"), whole)
    for partitions in (None, 2, 5):
        with tf.Graph().as_default(), tf.Session() as sess:
            made = part(partitions)
            tf.train.Saver({"other": made}).restore(sess, path)
            value = made if partitions is None else made.as_tensor()
            np.testing.assert_array_equal(sess.run(value), whole)


def test_what_cannot_be_saved():
    v0, v1 = tf.Variable(1.0, name="v0"), tf.Variable(1.0, name="v1")
    with pytest.raises(ValueError, match="two names: v0"):
        tf.train.Saver({"v0": v0, "v0too": v0})
    with pytest.raises(ValueError, match="same name: v0"):
        tf.train.Saver([v0, v0])
    with pytest.raises(TypeError, match="Not a variable"):
        tf.train.Saver({"sum": v0 + v1})
    with pytest.raises(TypeError, match="not a Variable"):
        tf.train.Saver([v0, 3])
    with pytest.raises(TypeError, match="not a string"):
        tf.train.Saver({3: v0})
    with pytest.raises(ValueError, match="defer_build"):
        tf.train.Saver([v0], defer_build=True)
    with tf.Graph().as_default(), pytest.raises(ValueError, match="No variables to save"):
        tf.train.Saver()


def test_building_later_and_nothing_at_all(tmp_path):
    saver = tf.train.Saver(defer_build=True)
    tf.Variable(1.0, name="late")
    sess = initialised()
    with pytest.raises(RuntimeError, match="build"):
        saver.save(sess, str(tmp_path / "model"))
    saver.build()
    assert tf.train.checkpoint_exists(saver.save(sess, str(tmp_path / "model")))
    with tf.Graph().as_default(), tf.Session() as sess:
        empty = tf.train.Saver(allow_empty=True)
        assert empty.save(sess, str(tmp_path / "empty")) is None
        empty.restore(sess, str(tmp_path / "empty"))


def test_objects_of_ones_own(tmp_path):
    class Negated(BaseSaverBuilder.SaveableObject):
        def __init__(self, variable):
            spec = BaseSaverBuilder.SaveSpec(-variable.value(), "", "negated")
            super().__init__(variable, [spec], "negated")

        def restore(self, restored_tensors, restored_shapes):
            return self.op.assign(-restored_tensors[0])

    v = tf.Variable(3.0)
    saver = tf.train.Saver([Negated(v)])
    sess = initialised()
    path = saver.save(sess, str(tmp_path / "model"))
    assert tf.train.load_variable(path, "negated") == -3.0
    sess.run(v.assign(0.0))
    saver.restore(sess, path)
    assert sess.run(v) == 3.0


def test_reshape(tmp_path):
    tf.Variable(np.float32([[1, 2, 3], [4, 5, 6]]), name="v")
    path = tf.train.Saver().save(initialised(), str(tmp_path / "model"))
    with tf.Graph().as_default(), tf.Session() as sess:
        v = tf.Variable(np.zeros([3, 2], np.float32), name="v")
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"v: \(3, 2\).*\(2, 3\)"):
            tf.train.Saver().restore(sess, path)
        tf.train.Saver(reshape=True).restore(sess, path)
        assert sess.run(v).tolist() == [[1, 2], [3, 4], [5, 6]]


def test_names_that_do_not_fit_are_listed(tmp_path):
    tf.Variable([1.0], name="dense/kernel")
    tf.Variable([1.0], name="dense/bias")
    path = tf.train.Saver().save(initialised(), str(tmp_path / "model"))
    with tf.Graph().as_default(), tf.Session() as sess:
        tf.Variable([1.0], name="dense/kernels")
        tf.Variable([1], name="dense/bias")
        with pytest.raises(tf.errors.OpError) as caught:
            tf.train.Saver().restore(sess, path)
    said = str(caught.value)
    assert "Not in the checkpoint:\n  dense/kernels (nearest: dense/kernel" in said
    assert "In the checkpoint, but not restored:\n  dense/kernel [1]" in said
    assert "dense/bias: (1,) int32 in the graph, (1,) float32 in the checkpoint" in said


def test_no_such_checkpoint(tmp_path):
    tf.Variable(1.0, name="v")
    saver = tf.train.Saver()
    with tf.Session() as sess:
        for kind in (ValueError, tf.errors.NotFoundError):
            with pytest.raises(kind, match="not a valid checkpoint"):
                saver.restore(sess, str(tmp_path / "nothing"))
        with pytest.raises(ValueError, match="None"):
            saver.restore(sess, None)
        sess.run(tf.global_variables_initializer())
        (tmp_path / "file").write_text("")
        with pytest.raises(ValueError, match="Parent directory of .* doesn't exist"):
            saver.save(sess, str(tmp_path / "file" / "model"))
        with pytest.raises(ValueError, match="collides with"):
            saver.save(sess, str(tmp_path / "checkpoint"))
        with pytest.raises(ValueError, match="path components"):
            saver.save(sess, str(tmp_path / "model"), latest_filename="a/b")
        with pytest.raises(TypeError, match="must be a Session"):
            saver.save(None, str(tmp_path / "model"))


def test_which_are_kept(tmp_path):
    tf.Variable(1.0, name="v")
    saver = tf.train.Saver(max_to_keep=2, pad_step_number=True)
    sess = initialised()
    paths = [saver.save(sess, str(tmp_path / "m"), global_step=i) for i in range(3)]
    assert paths[2].endswith("m-00000002")
    assert saver.last_checkpoints == paths[1:]
    assert sorted(os.listdir(tmp_path)) == ["checkpoint"] + [
        f"m-0000000{i}{suffix}" for i in (1, 2)
        for suffix in (".data-00000-of-00001", ".index", ".meta")
    ]  # fmt: skip
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert list(state.all_model_checkpoint_paths) == paths[1:]
    assert tf.train.latest_checkpoint(str(tmp_path)) == paths[2]
    assert tf.train.get_checkpoint_mtimes(paths)[0] > 1e9
    # Another one that knows what there is goes on from there.
    other = tf.train.Saver(saver_def=saver.as_saver_def())
    other.recover_last_checkpoints([*paths, str(tmp_path / "never")])
    assert other.last_checkpoints == paths[1:]
    other._next_checkpoint_time = 0  # the oldest is to be kept for good
    last = other.save(sess, str(tmp_path / "m"), global_step=tf.constant(3))
    assert other.last_checkpoints == [paths[2], last]
    assert tf.train.checkpoint_exists(paths[1])
    tf.train.remove_checkpoint(last)
    assert not tf.train.checkpoint_exists(last)
    assert tf.train.latest_checkpoint(str(tmp_path)) is None


def test_what_a_killed_save_left_is_removed_when_it_is_old(tmp_path):
    tf.Variable(1.0, name="v")
    left = [f"m.{part}.tempstate1-{n}" for n, part in enumerate(["data-00000-of-00001", "index"])]
    fresh = "m.index.tempstate1-2"  # may be of a save that goes on
    other = "n.index.tempstate1-3"
    for name in (*left, fresh, other):
        (tmp_path / name).write_bytes(b"part")
    for name in (*left, other):
        os.utime(tmp_path / name, (time.time() - 61, time.time() - 61))
    tf.train.Saver().save(initialised(), str(tmp_path / "m"), write_meta_graph=False)
    names = ["checkpoint", "m.data-00000-of-00001", "m.index", fresh, other]
    assert sorted(os.listdir(tmp_path)) == names


def test_state_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("run")
    tf.Variable(1.0)
    saver = tf.train.Saver()
    sess = initialised()
    saver.save(sess, "run/model")
    assert 'model_checkpoint_path: "model"' in (tmp_path / "run" / "checkpoint").read_text()
    assert tf.train.latest_checkpoint("run") == "run/model"
    relative = tf.train.Saver(save_relative_paths=True)
    relative.save(sess, str(tmp_path / "run" / "model2"))
    os.rename("run", "moved")
    assert tf.train.latest_checkpoint("moved") == "moved/model2"
    (tmp_path / "checkpoint").write_text("")
    with pytest.raises(ValueError, match="Invalid checkpoint state"):
        tf.train.get_checkpoint_state(str(tmp_path))
    (tmp_path / "checkpoint").write_text("model_checkpoint_path: {")
    assert tf.train.get_checkpoint_state(str(tmp_path)) is None
    made = tf.train.generate_checkpoint_state_proto("/a", "/a/m-2", ["/a/m-1"], [1.0, 2.0], 0.5)
    assert list(made.all_model_checkpoint_paths) == ["/a/m-1", "/a/m-2"]
    with pytest.raises(ValueError, match="timestamps"):
        tf.train.generate_checkpoint_state_proto("/a", "/a/m-2", [], [1.0, 2.0])


def test_files_of_tensorflow():
    with tf.Session() as sess:
        saver = tf.train.import_meta_graph(MODEL + ".meta")
        saver.restore(sess, tf.train.latest_checkpoint(os.path.dirname(MODEL)))
        y, counted = tf.get_collection("outputs")
        result = sess.run(y, {"x:0": np.eye(4, dtype=np.float32)})
        np.testing.assert_array_equal(result, np.arange(12).reshape(4, 3) + [1, 2, 3])
        assert sess.run(counted) == 3
        assert tf.train.global_step(sess, tf.train.get_global_step()) == 7
    reader = tf.train.NewCheckpointReader(MODEL)
    assert reader.has_tensor("w") and not reader.has_tensor("w/part_0")
    assert reader.get_tensor("words").tolist() == [b"a", b"bcd"]
    assert reader.get_variable_to_dtype_map()["z"] == tf.complex64
    assert b"w (DT_FLOAT) [4,3]\n" in reader.debug_string()
    with pytest.raises(tf.errors.NotFoundError, match="not found in checkpoint"):
        reader.get_tensor("v3")


def test_init_from_checkpoint():
    with tf.variable_scope("model"):
        w = tf.get_variable("w", [4, 3], partitioner=tf.fixed_size_partitioner(2, axis=1))
        b = tf.get_variable("b", [3], use_resource=True)
    step = tf.get_variable("step", [], tf.int64)
    tf.train.init_from_checkpoint(MODEL, {"/": "model/", "global_step": step})
    with initialised() as sess:
        np.testing.assert_array_equal(sess.run(w.as_tensor()), np.arange(12).reshape(4, 3))
        assert sess.run([b, step])[1] == 7
    for assignment, said in (
        ({"b2": "model/b"}, "not found in"),
        ({"b": "model/w"}, "doesn't match"),
        ({"b": "nothing/"}, "scope only"),
        ({"x/": "model/"}, "x/b .model/b in x/. is not found"),
    ):
        with pytest.raises(ValueError, match=said):
            tf.train.init_from_checkpoint(MODEL, assignment)


def test_contrib():
    v = tf.get_variable("v", [3])
    b = tf.get_variable("b", [3])
    op, feeds = tf.contrib.framework.assign_from_checkpoint(MODEL, {"b": v})
    restore = tf.contrib.slim.assign_from_checkpoint_fn(MODEL, [v, b], ignore_missing_vars=True)
    with tf.Session() as sess:
        sess.run(op, feeds)
        restore(sess)
        assert sess.run([v, b])[0].tolist() == sess.run(b).tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="missing variable .v."):
        tf.contrib.framework.assign_from_checkpoint(MODEL, [v])


def test_warm_start(tmp_path):
    (tmp_path / "old").write_text("a\nb\nc\nd\n")
    (tmp_path / "new").write_text("d\nnew\na\n")
    words = tf.get_variable("words/w", [4, 3])
    b = tf.get_variable("b", [3])
    info = tf.train.VocabInfo(str(tmp_path / "new"), 3, 1, str(tmp_path / "old"),
                              backup_initializer=tf.constant_initializer(-1.0))  # fmt: skip
    tf.train.warm_start(MODEL, "b", {"words/w": info}, {"words/w": "w"})
    with initialised() as sess:
        assert sess.run(words).tolist() == [[9, 10, 11], [-1] * 3, [0, 1, 2], [-1] * 3]
        assert sess.run(b).tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="not warm-started: c"):
        tf.train.warm_start(MODEL, "b", var_name_to_prev_var_name={"c": "b"})


def test_frozen_graphs(tmp_path):
    x = tf.placeholder(tf.float32, [2], name="x")
    v = tf.Variable([1.0, 2.0], name="v")
    r = tf.Variable(3.0, name="r", use_resource=True)
    tf.multiply(x + v, r, name="y")
    frozen = tf.graph_util.convert_variables_to_constants(
        initialised(), tf.get_default_graph().as_graph_def(), ["y"]
    )
    assert not any("Var" in node.op for node in frozen.node)
    path = tf.train.write_graph(frozen, str(tmp_path), "frozen.pb", as_text=False)
    read = tf.GraphDef.FromString(Path(path).read_bytes())
    with tf.Graph().as_default(), tf.Session() as sess:
        (y,) = tf.import_graph_def(read, return_elements=["y:0"])
        assert sess.run(y, {"import/x:0": [1.0, 1.0]}).tolist() == [6.0, 9.0]


def test_training_saves_and_goes_on(tmp_path):
    class Listener(tf.train.CheckpointSaverListener):
        steps: list[int] = []

        def after_save(self, session, global_step_value):
            self.steps.append(int(global_step_value))

    def train(steps):
        with tf.Graph().as_default():
            step = tf.train.get_or_create_global_step()
            w = tf.Variable(0.0, name="w")
            train_op = tf.group(w.assign_add(1.0), step.assign_add(1))
            hook = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=2, listeners=[Listener()])
            creator = tf.train.ChiefSessionCreator(checkpoint_dir=str(tmp_path))
            with tf.train.MonitoredSession(creator, hooks=[hook]) as sess:
                for _ in range(steps):
                    sess.run(train_op)
                return sess.run([w, step])

    assert train(3) == [3.0, 3]
    assert Listener.steps == [0, 2, 3]
    assert train(2) == [5.0, 5]
    assert tf.train.load_variable(str(tmp_path), "w") == 5.0
    assert (tmp_path / "graph.pbtxt").exists()


def test_supervisor_saves(tmp_path):
    step = tf.train.get_or_create_global_step()
    add = step.assign_add(1)
    for expected in (1, 2):
        supervisor = tf.train.Supervisor(logdir=str(tmp_path), save_model_secs=0, summary_op=None)
        with supervisor.managed_session() as sess:
            assert sess.run(add) == expected
            supervisor.saver.save(sess, supervisor.save_path, global_step=step)


@needs_tensorflow
def test_tensorflow_reads_what_is_written(tmp_path):
    w = tf.get_variable("w", initializer=tf.reshape(tf.range(12.0), [4, 3]),
                        partitioner=tf.fixed_size_partitioner(2))  # fmt: skip
    tf.Variable([b"a", b"bcd"], name="words", trainable=False)
    tf.Variable(np.float16([0.5]), name="h", use_resource=True, trainable=False)
    tf.identity(tf.reduce_sum(w.as_tensor()), name="total")
    path = tf.train.Saver(sharded=True).save(initialised(), str(tmp_path / "model"))
    printed = run_tensorflow(
        """
        tf.disable_eager_execution()
        print(tf.train.load_variable(args[0], "w").tolist())
        with tf.Session() as sess:
            saver = tf.train.import_meta_graph(args[0] + ".meta")
            saver.restore(sess, args[0])
            print(sess.run(["total:0", "words:0", "h/Read/ReadVariableOp:0"]))
            print(saver.save(sess, args[0] + "-again"))
        """,
        path,
    )
    lines = printed.splitlines()
    assert lines[0] == str([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0], [9.0, 10.0, 11.0]])
    assert lines[1].startswith("[66.0, array([b'a', b'bcd']")
    with tf.Graph().as_default(), tf.Session() as sess:
        tf.train.import_meta_graph(path + "-again.meta").restore(sess, path + "-again")
        assert sess.run("total:0") == 66.0
