"""Checkpoints of objects: names by structure, values that come later, files of TensorFlow's."""

import gc
import logging

import numpy as np
import pytest
from tensorflow_twin import needs_tensorflow, run_tensorflow

import millrace as tf
from millrace import _core, protos


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


class Net(tf.Module):
    def __init__(self, first=0.0):
        super().__init__()
        self.w = tf.Variable([first, first + 1])
        self.parts = [tf.Variable(first + 2), {"deep": tf.Variable(first + 3)}]
        self.pair = (tf.Variable(first + 4), 5)


def values(net):
    return [v.numpy().tolist() for v in net.variables]


def graph_of(prefix):
    reader = tf.train.load_checkpoint(prefix)
    return protos.TrackableObjectGraph.FromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))


class TestSaving:
    def test_names_follow_the_structure(self, tmp_path):
        path = tf.train.Checkpoint(net=Net()).save(tmp_path / "c")
        assert path == str(tmp_path / "c-1")
        assert tf.train.latest_checkpoint(tmp_path) == path
        assert [name for name, _ in tf.train.list_variables(path)] == [
            "_CHECKPOINTABLE_OBJECT_GRAPH",
            "net/pair/0/.ATTRIBUTES/VARIABLE_VALUE",
            "net/parts/0/.ATTRIBUTES/VARIABLE_VALUE",
            "net/parts/1/deep/.ATTRIBUTES/VARIABLE_VALUE",
            "net/w/.ATTRIBUTES/VARIABLE_VALUE",
            "save_counter/.ATTRIBUTES/VARIABLE_VALUE",
        ]
        name = "net/w/.ATTRIBUTES/VARIABLE_VALUE"
        assert tf.train.load_variable(path, name).tolist() == [0, 1]

    def test_names_with_slashes_and_dots(self, tmp_path):
        net = tf.Module()
        net.d = {"a/b": tf.Variable(1.0), ".ATTRIBUTES": tf.Variable(2.0)}
        path = tf.train.Checkpoint(net).write(tmp_path / "c")
        names = [name for name, _ in tf.train.list_variables(path)]
        assert names[1:] == [
            "d/..ATTRIBUTES/.ATTRIBUTES/VARIABLE_VALUE", "d/a.Sb/.ATTRIBUTES/VARIABLE_VALUE",
        ]  # fmt: skip
        net.d["a/b"].assign(0.0)
        tf.train.Checkpoint(net).read(path).assert_consumed()
        assert net.d["a/b"].numpy() == 1

    def test_the_message_says_where_values_are(self, tmp_path):
        nodes = graph_of(tf.train.Checkpoint(net=Net(), empty=[]).write(tmp_path / "c")).nodes
        children = {c.local_name: c.node_id for c in nodes[0].children}
        assert sorted(children) == ["empty", "net"]
        assert nodes[children["net"]].has_checkpoint_values.value
        assert not nodes[children["empty"]].has_checkpoint_values.value

    def test_counts_and_restores_the_count(self, tmp_path):
        checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
        for number in (1, 2):
            assert checkpoint.save(tmp_path / "c").endswith(f"c-{number}")
        other = tf.train.Checkpoint(v=tf.Variable(0.0))
        other.restore(tmp_path / "c-2").assert_consumed()
        assert other.save(tmp_path / "c").endswith("c-3")

    def test_in_a_function(self, tmp_path):
        v = tf.Variable(1.0)
        checkpoint = tf.train.Checkpoint(v=v)
        prefix = str(tmp_path / "c")

        @tf.function
        def write():
            v.assign_add(1.0)
            return checkpoint.write(prefix)

        for expected in (2, 3):
            assert write().numpy() == prefix.encode()
            v.assign(0.0)
            checkpoint.read(prefix).assert_consumed()
            assert v.numpy() == expected
        with pytest.raises(NotImplementedError, match="Checkpoint.write"):
            tf.function(lambda: checkpoint.save(prefix))()

    def test_what_is_no_object(self):
        with pytest.raises(ValueError, match="was expecting x to be a trackable object"):
            tf.train.Checkpoint(x=5)
        with pytest.raises(ValueError, match="root.w already exists"):
            tf.train.Checkpoint(Net(), w=tf.Variable(1.0))

    def test_lists_that_changed_say_so(self, tmp_path):
        net = Net()
        del net.parts[0]
        with pytest.raises(ValueError, match="cannot be saved"):
            tf.train.Checkpoint(net).save(tmp_path / "c")
        net.parts = [tf.Variable(1.0)]
        tf.train.Checkpoint(net).save(tmp_path / "c")
        net.keys = {5: tf.Variable(1.0)}
        with pytest.raises(ValueError, match="non-string key"):
            tf.train.Checkpoint(net).save(tmp_path / "c")


class TestRestoring:
    def test_into_the_same_structure(self, tmp_path):
        path = tf.train.Checkpoint(net=Net(7.0)).save(tmp_path / "c")
        net = Net()
        status = tf.train.Checkpoint(net=net).restore(path)
        status.assert_consumed().assert_existing_objects_matched().assert_nontrivial_match()
        assert values(net) == values(Net(7.0))

    def test_when_objects_are_attached(self, tmp_path):
        path = tf.train.Checkpoint(net=Net(7.0)).save(tmp_path / "c")
        root = tf.train.Checkpoint()
        status = root.restore(path)
        with pytest.raises(AssertionError, match=r"Unresolved object.*\(root\).net"):
            status.assert_consumed()
        net = tf.Module()
        root.net = net
        net.parts = []
        net.parts.append(tf.Variable(0.0))
        assert net.parts[0].numpy() == 9
        net.parts.append({})
        net.parts[1]["deep"] = tf.Variable(0.0)
        assert net.parts[1]["deep"].numpy() == 10
        net.w, net.pair = tf.Variable([0.0, 0.0]), (tf.Variable(0.0),)
        assert net.w.numpy().tolist() == [7, 8] and net.pair[0].numpy() == 11
        status.assert_consumed()

    def test_the_last_restore_counts(self, tmp_path):
        paths = [tf.train.Checkpoint(d=Net(float(i))).write(tmp_path / f"c{i}") for i in range(2)]
        for order in ((0, 1), (1, 0)):
            roots = {}
            for i in order:
                roots[i] = tf.train.Checkpoint()
                roots[i].read(paths[i]).expect_partial()
            net = tf.Module()
            net.w = tf.Variable([9.0, 9.0])
            roots[0].d = net
            roots[1].d = net
            assert net.w.numpy()[0] == order[1]

    def test_roots_and_what_is_beside_them(self, tmp_path):
        net, extra = Net(3.0), tf.Variable(8.0)
        path = tf.train.Checkpoint(net, extra=extra).save(tmp_path / "c")
        again, other = Net(), tf.Variable(0.0)
        checkpoint = tf.train.Checkpoint(again, extra=other)
        checkpoint.restore(path).assert_consumed()
        assert values(again) == values(net) and other.numpy() == 8
        assert checkpoint.save_counter.numpy() == 1

    def test_loops_of_objects(self, tmp_path):
        def pair(value):
            a, b = tf.Module(), tf.Module()
            a.other, b.other, b.v = b, a, tf.Variable(value)
            return a

        path = tf.train.Checkpoint(pair(4.0)).write(tmp_path / "c")
        root = pair(0.0)
        tf.train.Checkpoint(root).read(path).assert_consumed()
        assert root.other.v.numpy() == 4

    def test_one_object_for_two_is_told(self, tmp_path):
        shared = tf.Variable(1.0)
        path = tf.train.Checkpoint(a=shared, b=shared).write(tmp_path / "c")
        status = tf.train.Checkpoint(a=tf.Variable(0.0), b=tf.Variable(0.0)).read(path)
        with pytest.raises(AssertionError, match="1 Python objects that were not bound"):
            status.assert_existing_objects_matched()

    def test_what_is_left_over_is_logged(self, tmp_path, caplog):
        path = tf.train.Checkpoint(a=tf.Variable(1.0), b=tf.Variable(2.0)).write(tmp_path / "c")

        def restore(quiet):
            caplog.clear()
            with caplog.at_level(logging.WARNING, logger="tensorflow"):
                root = tf.train.Checkpoint(a=tf.Variable(0.0))
                status = root.read(path)
                if quiet:
                    status.expect_partial()
                del root, status
                gc.collect()
            return caplog.text

        logging.getLogger("tensorflow").addHandler(caplog.handler)
        try:
            assert "(root).b" in restore(quiet=False)
            assert restore(quiet=True) == ""
        finally:
            logging.getLogger("tensorflow").removeHandler(caplog.handler)

    def test_nothing_to_restore(self, tmp_path):
        status = tf.train.Checkpoint(v=tf.Variable(1.0)).restore(None)
        with pytest.raises(AssertionError, match="No checkpoint specified"):
            status.assert_consumed()
        with pytest.raises(tf.errors.NotFoundError, match="Error when restoring"):
            tf.train.Checkpoint(v=tf.Variable(1.0)).restore(tmp_path / "nothing")

    def test_checkpoints_by_name(self, tmp_path):
        v1 = tf.compat.v1
        with tf.Graph().as_default(), v1.Session() as session:
            v1.get_variable("w", initializer=[1.0, 2.0], use_resource=True)
            session.run(v1.global_variables_initializer())
            path = v1.train.Saver().save(session, str(tmp_path / "c"))
        w = tf.Variable([0.0, 0.0], name="w")
        tf.train.Checkpoint(w=w).restore(path).assert_consumed()
        assert w.numpy().tolist() == [1, 2]

    def test_other_shapes_and_types_are_errors(self, tmp_path):
        path = tf.train.Checkpoint(v=tf.Variable([1.0, 2.0])).write(tmp_path / "c")
        with pytest.raises(ValueError, match="incompatible tensor with shape"):
            tf.train.Checkpoint(v=tf.Variable([1.0])).read(path)
        with pytest.raises(ValueError, match="dtype|type"):
            tf.train.Checkpoint(v=tf.Variable([1, 2])).read(path)


class TestOwnValues:
    def test_of_objects(self, tmp_path):
        class Counter(tf.Module):
            n = 5

            def _serialize_to_tensors(self):
                return {"n": tf.constant(self.n), "text": tf.constant("x")}

            def _restore_from_tensors(self, restored_tensors):
                self.n = int(restored_tensors["n"])
                assert restored_tensors["text"].numpy() == b"x"

        path = tf.train.Checkpoint(c=Counter()).write(tmp_path / "c")
        counter = Counter()
        counter.n = 0
        tf.train.Checkpoint(c=counter).read(path).assert_consumed()
        assert counter.n == 5


class TestDamage:
    """Whatever a file says, the error names it and what is wrong."""

    def write(self, tmp_path, content, **tensors):
        names = ["_CHECKPOINTABLE_OBJECT_GRAPH", *tensors]
        values = [tf.constant(content), *map(tf.constant, tensors.values())]
        prefix = str(tmp_path / "c")
        tf.raw_ops.SaveV2(
            prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values
        )
        return prefix

    def read(self, prefix):
        return tf.train.Checkpoint(v=tf.Variable(1.0)).read(prefix)

    def test_of_the_message(self, tmp_path):
        for content in (b"\xff\xff\xff\xff", b""):
            with pytest.raises(tf.errors.DataLossError, match="c.index: the graph of objects"):
                self.read(self.write(tmp_path, content))
        with pytest.raises(tf.errors.DataLossError, match="must be a scalar string"):
            self.read(self.write(tmp_path, [b"a", b"b"]))

    def test_of_references(self, tmp_path):
        for number in (-1, 7, 2**31 - 1):
            graph = protos.TrackableObjectGraph()
            graph.nodes.add().children.add(node_id=number, local_name="v")
            with pytest.raises(tf.errors.DataLossError, match=f"node {number}, expected one of 0"):
                self.read(self.write(tmp_path, graph.SerializeToString()))
        graph = protos.TrackableObjectGraph()
        graph.nodes.add().slot_variables.add(slot_name="m", slot_variable_node_id=9)
        with pytest.raises(tf.errors.DataLossError, match="slot 'm' of node 0 is node 9"):
            self.read(self.write(tmp_path, graph.SerializeToString()))

    def test_of_keys(self, tmp_path):
        graph = protos.TrackableObjectGraph()
        graph.nodes.add().children.add(node_id=1, local_name="v")
        graph.nodes.add().attributes.add(name="VARIABLE_VALUE", checkpoint_key="gone")
        with pytest.raises(tf.errors.DataLossError, match="'gone', which it does not have"):
            self.read(self.write(tmp_path, graph.SerializeToString()))

    def test_of_files(self, tmp_path):
        path = tf.train.Checkpoint(v=tf.Variable([1.0] * 100)).write(tmp_path / "c")
        index = tmp_path / "c.index"
        whole = index.read_bytes()
        random = np.random.default_rng(5)
        for _ in range(40):
            damaged = bytearray(whole)
            at = int(random.integers(len(whole)))
            damaged[at] ^= int(random.integers(1, 256))
            index.write_bytes(damaged if random.integers(2) else damaged[:at])
            v = tf.Variable([0.0] * 100)
            try:
                tf.train.Checkpoint(v=v).read(path).expect_partial()
            except (tf.errors.OpError, ValueError) as error:
                assert str(error)
        index.write_bytes(whole)
        tf.train.Checkpoint(v=tf.Variable([0.0] * 100)).read(path).assert_consumed()


class TestManager:
    def test_keeps_the_newest(self, tmp_path):
        step = tf.Variable(0)
        manager = tf.train.CheckpointManager(tf.train.Checkpoint(s=step), tmp_path, max_to_keep=2)
        assert manager.latest_checkpoint is None
        paths = [manager.save() for _ in range(4)]
        assert manager.checkpoints == paths[-2:] == [str(tmp_path / f"ckpt-{i}") for i in (3, 4)]
        assert manager.latest_checkpoint == paths[-1]
        assert sorted(p.name for p in tmp_path.glob("*.index")) == ["ckpt-3.index", "ckpt-4.index"]
        again = tf.train.CheckpointManager(tf.train.Checkpoint(s=step), tmp_path, max_to_keep=1)
        assert again.checkpoints == paths[-2:]
        last = again.save(checkpoint_number=10)
        assert again.checkpoints == [last] and len(list(tmp_path.glob("*.index"))) == 1

    def test_intervals(self, tmp_path):
        step = tf.Variable(0)
        manager = tf.train.CheckpointManager(
            tf.train.Checkpoint(s=step), tmp_path, None, step_counter=step, checkpoint_interval=2
        )
        saved = []
        for _ in range(4):
            saved.append(manager.save() is not None)
            step.assign_add(1)
        assert saved == [True, False, True, False]
        assert manager.save(check_interval=False) is not None
        with pytest.raises(ValueError, match="step_counter"):
            tf.train.CheckpointManager(tf.train.Checkpoint(), tmp_path, 1, checkpoint_interval=2)
        with pytest.raises(ValueError, match="max_to_keep"):
            tf.train.CheckpointManager(tf.train.Checkpoint(), tmp_path, 0)

    def test_restores_or_begins(self, tmp_path):
        begun = []

        def manager(value):
            checkpoint = tf.train.Checkpoint(v=tf.Variable(value))
            return tf.train.CheckpointManager(
                checkpoint, tmp_path, 3, init_fn=lambda: begun.append(True)
            )

        first = manager(4.0)
        assert first.restore_or_initialize() is None and begun == [True]
        path = first.save()
        second = manager(0.0)
        assert second.restore_or_initialize() == path and len(begun) == 1
        assert second.checkpoint.v.numpy() == 4

    def test_keeps_one_of_some_hours(self, tmp_path, monkeypatch):
        now = [1000.0]
        monkeypatch.setattr("time.time", lambda: now[0])
        manager = tf.train.CheckpointManager(
            tf.train.Checkpoint(), tmp_path, 1, keep_checkpoint_every_n_hours=1
        )
        for _ in range(5):
            now[0] += 1800
            manager.save()
        kept = sorted(p.name for p in tmp_path.glob("*.index"))
        assert kept == ["ckpt-2.index", "ckpt-4.index", "ckpt-5.index"]


class TestOptimizers:
    def step(self, v, optimizer):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(v * v)
        optimizer.apply_gradients([(tape.gradient(loss, v), v)])

    @pytest.mark.parametrize(
        "make",
        [
            lambda: tf.optimizers.Adam(0.1),
            lambda: tf.optimizers.SGD(0.1, momentum=0.9),
            lambda: tf.compat.v1.train.AdamOptimizer(0.1),
            lambda: tf.compat.v1.train.MomentumOptimizer(0.1, 0.9),
        ],
    )
    def test_go_on_where_they_were(self, tmp_path, make):
        v, optimizer = tf.Variable([1.0, 2.0]), make()
        for _ in range(3):
            self.step(v, optimizer)
        path = tf.train.Checkpoint(v=v, o=optimizer).save(tmp_path / "c")
        other, again = tf.Variable([0.0, 0.0]), make()
        status = tf.train.Checkpoint(o=again, v=other).restore(path)
        self.step(v, optimizer)
        self.step(other, again)
        status.assert_consumed()
        assert v.numpy().tobytes() == other.numpy().tobytes()


@needs_tensorflow
class TestTensorFlow:
    def test_reads_ours(self, tmp_path):
        v = tf.Variable([1.0, 2.0])
        optimizer, old = tf.optimizers.Adam(0.1), tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)
        for each in (optimizer, old):
            each.apply_gradients([(tf.constant([1.0, 1.0]), v)])
        checkpoint = tf.train.Checkpoint(net=Net(7.0), v=v, o=optimizer, old=old)
        path = checkpoint.save(tmp_path / "c")
        done = run_tensorflow(
            """
            tf = tensorflow
            class Net(tf.Module):
                def __init__(self):
                    self.w = tf.Variable([0.0, 0.0])
                    self.parts = [tf.Variable(0.0), {"deep": tf.Variable(0.0)}]
                    self.pair = (tf.Variable(0.0), 5)
            net, v = Net(), tf.Variable([0.0, 0.0])
            o, old = tf.keras.optimizers.Adam(0.5), tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)
            o.build([v])
            status = tf.train.Checkpoint(net=net, v=v, o=o, old=old).restore(args[0])
            status.assert_consumed()
            for each in (o, old):
                each.apply_gradients([(tf.constant([1.0, 1.0]), v)])
            print([x.numpy().tolist() for x in net.variables], int(o.iterations), o.lr.numpy())
            print(v.numpy().tolist())
            """,
            path,
        )
        first, second = done.strip().splitlines()
        assert first == f"{values(Net(7.0))} 2 0.1"
        for each in (optimizer, old):
            each.apply_gradients([(tf.constant([1.0, 1.0]), v)])
        assert np.allclose(eval(second), v.numpy(), rtol=1e-6)

    def test_writes_what_we_read(self, tmp_path):
        done = run_tensorflow(
            """
            tf = tensorflow
            class Net(tf.Module):
                def __init__(self):
                    self.w = tf.Variable([7.0, 8.0])
                    self.parts = [tf.Variable(9.0), {"deep": tf.Variable(10.0)}]
                    self.pair = (tf.Variable(11.0), 5)
            v, o, old = tf.Variable([1.0, 2.0]), tf.keras.optimizers.Adam(0.1), None
            old = tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)
            for each in (o, old):
                each.apply_gradients([(tf.constant([1.0, 1.0]), v)])
            print(tf.train.Checkpoint(net=Net(), v=v, o=o, old=old).save(args[0]))
            for each in (o, old):
                each.apply_gradients([(tf.constant([1.0, 1.0]), v)])
            print(v.numpy().tolist())
            """,
            tmp_path / "c",
        )
        path, after = done.strip().splitlines()
        net, v = Net(), tf.Variable([0.0, 0.0])
        optimizer, old = tf.optimizers.Adam(0.5), tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)
        optimizer.build([v])
        status = tf.train.Checkpoint(net=net, v=v, o=optimizer, old=old).restore(path)
        status.assert_consumed()
        assert values(net) == values(Net(7.0)) and optimizer.iterations.numpy() == 1
        for each in (optimizer, old):
            each.apply_gradients([(tf.constant([1.0, 1.0]), v)])
        assert np.allclose(eval(after), v.numpy(), rtol=1e-6)
