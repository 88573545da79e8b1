"""Objects and functions as SavedModels: what is saved comes back, both ways with TensorFlow, and
damaged models are refused."""

import collections
import os
import random

import numpy as np
import pytest
from tensorflow_twin import needs_tensorflow, run_tensorflow

import millrace as tf
import millrace.compat.v1 as v1
from millrace import _core, protos


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.scale = tf.Variable(3.0, name="scale")
        self.parts = [tf.Variable([7, 8]), {"deep": tf.Variable(1.0, trainable=False)}]
        self.pair = (tf.Variable(5.0), 2)
        self.offset = tf.constant([1.0, 2.0])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def scaled(self, x):
        return {"y": x * self.scale}

    @tf.function
    def power(self, x, n=2):
        return self.scaled([x])["y"][0] ** n + tf.reduce_sum(self.offset)

    @tf.function
    def count(self):
        self.scale.assign_add(1.0)

    @tf.function
    def total(self, x):
        total = 0.0
        for i in tf.range(3):
            if i > 0:
                self.count()
            total += x * self.scale
        return total


def saved_model(folder):
    model = Model()
    model.power(tf.constant(2.0)), model.power(tf.constant(2.0), n=3)
    model.count.get_concrete_function(), model.total(tf.constant(0.0))
    model.scale.assign(3.0)
    tf.saved_model.save(model, str(folder), signatures={"serve": model.scaled})
    return model


@pytest.fixture
def loaded(tmp_path):
    saved_model(tmp_path / "m")
    return tf.saved_model.load(str(tmp_path / "m"))


class TestObjects:
    def test_variables_and_structures(self, loaded):
        assert loaded.scale.numpy() == 3 and loaded.scale.name == "scale:0"
        assert loaded.parts[0].numpy().tolist() == [7, 8]
        assert loaded.parts[1]["deep"].numpy() == 1 and not loaded.parts[1]["deep"].trainable
        assert loaded.pair[0].numpy() == 5 and isinstance(loaded.pair, tuple)

    def test_one_object_by_two_ways_is_one(self, tmp_path):
        root = tf.Module()
        root.a = root.b = tf.Module()
        root.a.back = root
        tf.saved_model.save(root, tmp_path)
        again = tf.saved_model.load(tmp_path)
        assert again.a is again.b and again.a.back is again

    def test_files_travel_along(self, tmp_path):
        root = tf.Module()
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "words").write_text(name)
        root.one = tf.saved_model.Asset(tmp_path / "one" / "words")
        root.two = tf.saved_model.Asset(tmp_path / "two" / "words")
        root.path = tf.function(lambda: root.two.asset_path, input_signature=[])
        tf.saved_model.save(root, tmp_path / "m")
        os.rename(tmp_path / "m", tmp_path / "moved")
        again = tf.saved_model.load(tmp_path / "moved")
        assert tf.io.read_file(again.one.asset_path).numpy() == b"one"
        assert tf.io.read_file(again.path()).numpy() == b"two"
        assert b"moved" in again.path().numpy()

    def test_elements_without_objects_are_none(self, tmp_path):
        root = tf.Module()
        root.values = [tf.Variable(1.0), 2, tf.Variable(3.0)]
        tf.saved_model.save(root, tmp_path)
        again = tf.saved_model.load(tmp_path)
        assert again.values[1] is None and again.values[2].numpy() == 3

    def test_callable_objects(self, tmp_path):
        class Doubled(tf.Module):
            @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
            def __call__(self, x):
                return 2.0 * x

        root = tf.Module()
        root.doubled = Doubled()
        tf.saved_model.save(root, tmp_path)
        again = tf.saved_model.load(tmp_path)
        assert again.doubled(tf.constant(2.0)).numpy() == 4
        assert not callable(again)


class TestFunctions:
    def test_overloads_by_value_and_type(self, loaded):
        assert loaded.power(tf.constant(2.0)).numpy() == 39
        assert loaded.power(tf.constant(2.0), n=3).numpy() == 219
        assert loaded.power(2.0).numpy() == 39  # made a tensor
        with pytest.raises(ValueError, match=r"(?s)Could not find matching.*Option 2.*float32"):
            loaded.power(tf.constant(2))
        with pytest.raises(ValueError, match="Could not find matching"):
            loaded.power(tf.constant(2.0), 7)

    def test_state_changes_and_loops(self, loaded):
        assert loaded.total(tf.constant(1.0)).numpy() == 3 + 4 + 5
        assert loaded.scale.numpy() == 5
        assert loaded.count() is None
        assert loaded.scale.numpy() == 6

    def test_gradients(self, loaded):
        with tf.GradientTape() as tape:
            y = loaded.power(tf.constant(2.0))
        assert tape.watched_variables() == (loaded.scale,)
        assert tape.gradient(y, loaded.scale).numpy() == 2 * 6 * 2
        with tf.GradientTape() as tape:
            y = loaded.total(tf.constant(2.0))
        assert tape.gradient(y, loaded.scale).numpy() == 6

    def test_in_another_function(self, loaded):
        @tf.function
        def twice(x):
            return loaded.power(x) + loaded.power(x, 3)

        assert twice(tf.constant(2.0)).numpy() == 39 + 219

    def test_structures_of_arguments_and_results(self, tmp_path):
        Pair = collections.namedtuple("Pair", ["b", "a"])
        root = tf.Module()

        @tf.function
        def mixed(pair, *rest, flag=True, **more):
            return [Pair(a=pair.a + rest[0], b=more["z"]), None, {"k": (pair.b,)}]

        root.mixed = mixed
        one = tf.constant(1)
        mixed(Pair(a=one, b=one + 1), one + 2, z=one + 3)
        tf.saved_model.save(root, tmp_path)
        again = tf.saved_model.load(tmp_path)
        first, nothing, last = again.mixed(Pair(a=one, b=one), one, z=one * 9)
        assert (first.a.numpy(), first.b.numpy(), nothing, last["k"][0].numpy()) == (2, 9, None, 1)
        with pytest.raises(ValueError, match="Could not find matching"):
            again.mixed(Pair(a=one, b=one), one, flag=False, z=one)

    def test_signatures_take_names_where_there_are_several(self, tmp_path):
        root = tf.Module()
        add = tf.function(lambda x, y: (x - y, x + y))
        spec = tf.TensorSpec([], tf.float32)
        tf.saved_model.save(root, tmp_path, add.get_concrete_function(spec, spec))
        serve = tf.saved_model.load(tmp_path).signatures["serving_default"]
        found = serve(x=tf.constant(3.0), y=tf.constant(1.0))
        assert {k: v.numpy() for k, v in found.items()} == {"output_0": 2, "output_1": 4}
        with pytest.raises(TypeError, match="by place"):
            serve(tf.constant(3.0), tf.constant(1.0))

    def test_the_same_again(self, loaded, tmp_path):
        for i in range(3):
            path = tmp_path / str(i)
            tf.saved_model.save(loaded, path, signatures=loaded.signatures)
            loaded = tf.saved_model.load(path)
        assert loaded.power(tf.constant(2.0), 3).numpy() == 219
        found = loaded.signatures["serve"](tf.constant([1.0, 2.0]))
        assert found["y"].numpy().tolist() == [3, 6]
        meta = protos.SavedModel.FromString((path / "saved_model.pb").read_bytes()).meta_graphs[0]
        # What is not of this model does not travel with it.
        assert len(meta.graph_def.library.function) < 40

    def test_one_model_twice_is_two(self, tmp_path):
        saved_model(tmp_path / "m")
        one, two = (tf.saved_model.load(tmp_path / "m") for _ in range(2))
        one.count()
        assert (one.scale.numpy(), two.scale.numpy()) == (4, 3)
        assert one.power(tf.constant(2.0)).numpy() != two.power(tf.constant(2.0)).numpy()

    def test_sizes_may_differ_from_value_to_value(self, tmp_path):
        root = tf.Module()

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
        def keep(values):
            if not hasattr(root, "kept"):
                root.kept = tf.Variable(values)
            return root.kept

        root.keep = keep
        assert keep([1, 2, 3]).numpy().tolist() == [1, 2, 3]
        tf.saved_model.save(root, tmp_path)
        again = tf.saved_model.load(tmp_path)
        assert again.kept.shape.as_list() == [None]
        again.kept.assign([1, 2, 3, 4])
        assert again.keep([0]).numpy().tolist() == [1, 2, 3, 4]

    def test_parts_of_a_function_in_another(self):
        whole = tf.function(lambda x: (x + 1.0) * 2.0)
        traced = whole.get_concrete_function(tf.TensorSpec([], tf.float32))
        [product] = traced.outputs
        part = traced.prune(traced.inputs[0], product)
        assert tf.function(lambda x: part(x) + 1.0)(tf.constant(1.0)).numpy() == 5

    def test_what_has_no_form_is_left_out(self, tmp_path):
        root = tf.Module()
        root.f = tf.function(lambda x, like=None: x * 2.0)
        root.g = tf.function(lambda x: tf.sparse.from_dense(x))
        x = tf.constant([1.0])
        root.f(x), root.f(x, object), root.f(x, tf.Variable(1.0)), root.g(x)
        tf.saved_model.save(root, tmp_path)
        again = tf.saved_model.load(tmp_path)
        assert len(again.f.concrete_functions) == 1 and again.f(x).numpy() == 2
        assert not again.g.concrete_functions

    def test_untraced_functions_say_so(self, tmp_path, caplog):
        root = tf.Module()
        root.f = tf.function(lambda x: x)
        tf.saved_model.save(root, tmp_path)
        assert "untraced" in caplog.text
        with pytest.raises(ValueError, match="zero restored functions"):
            tf.saved_model.load(tmp_path).f(1)


class Counter(tf.saved_model.experimental.TrackableResource):
    """A variable that the object makes itself, behind a handle."""

    def _create_resource(self):
        return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="counter")

    def _initialize(self):
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=5.0)


def words(folder):
    path = folder / "words"
    path.write_text("x\ny\n")
    root = tf.Module()
    root.mutable = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, -1)
    root.mutable.insert("b", 15)
    root.static = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), -1
    )
    index = tf.lookup.TextFileIndex
    lines = tf.lookup.TextFileInitializer(
        str(path), tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER
    )
    root.lines = tf.lookup.StaticHashTable(lines, -1)

    @tf.function(input_signature=[tf.TensorSpec(None, tf.string)])
    def find(keys):
        return root.mutable.lookup(keys), root.static.lookup(keys), root.lines.lookup(keys)

    root.find = find
    return root


KEYS = ["b", "y", "z"]
FOUND = [[15, -1, -1], [2, -1, -1], [-1, 1, -1]]


def found(tensors):
    return [t.numpy().tolist() for t in tensors]


class TestResources:
    def test_tables_come_back(self, tmp_path):
        root = words(tmp_path)
        assert found(root.find(tf.constant(KEYS))) == FOUND
        for i in range(2):  # what was loaded is saved, too
            tf.saved_model.save(root, tmp_path / str(i))
            (tmp_path / "words").unlink(missing_ok=True)
            root = tf.saved_model.load(tmp_path / str(i))
            assert found(root.find(tf.constant(KEYS))) == FOUND

    def test_tables_in_checkpoints(self, tmp_path):
        path = tf.train.Checkpoint(net=words(tmp_path)).write(tmp_path / "c")
        names = [name for name, _ in tf.train.list_variables(path)]
        assert names[1:] == [f"net/mutable/.ATTRIBUTES/table-{n}" for n in ("keys", "values")]
        other = words(tmp_path)
        other.mutable.remove(tf.constant(["b"]))
        tf.train.Checkpoint(net=other).read(path).assert_consumed()
        assert found(other.find(tf.constant(KEYS))) == FOUND

    def test_sessions_run_tables(self, tmp_path):
        tf.saved_model.save(words(tmp_path), tmp_path / "m")
        with v1.Session(graph=v1.Graph()) as session:
            loaded = v1.saved_model.load(session, ["serve"], str(tmp_path / "m"))
            signature = loaded.signature_def["serving_default"]
            out = [signature.outputs[f"output_{i}"].name for i in range(3)]
            feed = {signature.inputs["keys"].name: KEYS}
            assert [value.tolist() for value in session.run(out, feed)] == FOUND

    def test_resources_of_ones_own(self, tmp_path):
        root = tf.Module()
        root.counter = Counter()

        @tf.function(input_signature=[])
        def count():
            handle = root.counter.resource_handle
            tf.raw_ops.AssignAddVariableOp(resource=handle, value=10.0)
            return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

        root.count = count
        tf.saved_model.save(root, tmp_path)
        one, two = tf.saved_model.load(tmp_path), tf.saved_model.load(tmp_path)
        assert one.count().numpy() == 15 and one.count().numpy() == 25
        assert two.count().numpy() == 15  # each load has its own


def session_model(folder):
    """A model of TensorFlow 1: variables of both kinds, a table of a file, two signatures."""
    path = folder / "words"
    path.write_text("a\nb\n")
    with v1.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(v1.float32, [None, 2], name="x")
        w = v1.Variable([[1.0], [2.0]], name="w")
        r = v1.get_variable("r", initializer=[3.0], use_resource=True)
        product = v1.matmul(x, w, name="product")
        index = v1.lookup.TextFileIndex
        table = v1.lookup.StaticHashTable(
            v1.lookup.TextFileInitializer(
                str(path), v1.string, index.WHOLE_LINE, v1.int64, index.LINE_NUMBER
            ),
            -1,
        )
        keys = v1.placeholder(v1.string, [None], name="keys")
        numbers = table.lookup(keys)
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        builder = v1.saved_model.Builder(str(folder / "v1"))
        predict = v1.saved_model.predict_signature_def
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {
                "sum": predict({"x": x}, {"y": product + r}),
                "words": predict({"keys": keys}, {"n": numbers}),
            },
            assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
            main_op=v1.tables_initializer(),
        )
        builder.save()
    path.unlink()
    return str(folder / "v1")


class TestSessions:
    def test_objects_in_a_graph(self, tmp_path):
        saved_model(tmp_path / "m")
        tf.saved_model.save(words(tmp_path), tmp_path / "t")
        with v1.Graph().as_default() as graph, v1.Session() as session:
            model = tf.saved_model.load(tmp_path / "m")
            power = model.power(tf.constant(2.0), n=3)
            tables = tf.saved_model.load(tmp_path / "t")
            looked_up = tables.find(tf.constant(KEYS))[1:]
            assert model.scale in graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
            assert not graph.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES)
            assert len(graph.get_collection(v1.GraphKeys.ASSET_FILEPATHS)) == 1
            session.run([v1.global_variables_initializer(), v1.tables_initializer()])
            assert session.run([model.scale, power]) == [3, 219]
            assert [v.tolist() for v in session.run(looked_up)] == FOUND[1:]
            session.run(model.scale.assign(1.0))
            assert session.run(power) == 11

    def test_damage(self, tmp_path):
        saved_model(tmp_path)

        def change(meta):
            meta.object_graph_def.nodes[0].children[0].local_name = "other"
            for child in meta.object_graph_def.nodes[0].children:
                if child.local_name == "scale":
                    child.local_name = "none"

        replaced(tmp_path, change)
        with v1.Graph().as_default(), pytest.raises(ValueError, match="no value for variable"):
            tf.saved_model.load(tmp_path)


class TestModelsOfSessions:
    def test_signatures_are_functions(self, tmp_path):
        model = tf.saved_model.load(session_model(tmp_path))
        assert sorted(model.signatures) == ["sum", "words"]
        assert [v.name for v in model.variables] == ["w:0", "r:0"]
        x = tf.constant([[1.0, 1.0]])
        with tf.GradientTape() as tape:
            y = model.signatures["sum"](x=x)["y"]
        assert y.numpy() == 6
        dw, dr = tape.gradient(y, model.variables)
        assert dw.numpy().tolist() == [[1], [1]] and dr.numpy() == 1
        model.variables[0].assign([[5.0], [5.0]])
        assert model.signatures["sum"](x)["y"].numpy() == 13
        assert model.signatures["words"](tf.constant(["b", "c"]))["n"].numpy().tolist() == [1, -1]

    def test_parts_are_functions(self, tmp_path):
        model = tf.saved_model.load(session_model(tmp_path), tags="serve")
        of_product = model.prune("product:0", ["add:0", "product:0"])
        total, product = of_product(tf.constant([[4.0]]))
        assert (total.numpy(), product.numpy()) == (7, 4)
        x = model.graph.get_tensor_by_name("x:0")
        assert model.prune(x, "product:0")(tf.constant([[1.0, 1.0]])).numpy() == 3
        with pytest.raises(KeyError):
            model.prune("none:0", "product:0")

    def test_damage(self, tmp_path):
        path = session_model(tmp_path) + "/saved_model.pb"
        with open(path, "rb") as file:
            whole = file.read()
        for what in ("output", "variable", "input"):
            model = protos.SavedModel.FromString(whole)
            meta = model.meta_graphs[0]
            if what == "output":
                meta.signature_def["sum"].outputs["y"].name = "none:0"
            elif what == "input":
                meta.signature_def["sum"].inputs["x"].name = "x:7"
            else:
                next(n for n in meta.graph_def.node if n.name == "r").name = "s"
            with open(path, "wb") as file:
                file.write(model.SerializeToString())
            with pytest.raises((ValueError, KeyError)):
                tf.saved_model.load(os.path.dirname(path))


class TestRefusals:
    def test_what_cannot_be_saved(self, tmp_path):
        with pytest.raises(ValueError, match="Trackable"):
            tf.saved_model.save(3, tmp_path)
        root, outside = tf.Module(), tf.Variable(1.0)
        root.f = tf.function(lambda: outside + 1.0, input_signature=[])
        with pytest.raises(AssertionError, match="untracked"):
            tf.saved_model.save(root, tmp_path)
        with pytest.raises(ValueError, match="Only `tf.functions` with an input signature"):
            tf.saved_model.save(tf.Module(), tmp_path, signatures=tf.function(lambda x: x))
        other = tf.Module()
        other.signatures = {"a": tf.Variable(1.0)}
        with pytest.raises(ValueError, match="reserved"):
            tf.saved_model.save(other, tmp_path)

    def test_tags_and_folders(self, tmp_path):
        with pytest.raises(OSError, match="does not exist"):
            tf.saved_model.load(tmp_path)
        tf.saved_model.save(tf.Module(), tmp_path)
        assert tf.saved_model.contains_saved_model(tmp_path)
        with pytest.raises(ValueError, match="tags"):
            tf.saved_model.load(tmp_path, tags="eval")
        tf.saved_model.load(tmp_path, tags=["serve"])


def replaced(folder, change):
    path = folder / "saved_model.pb"
    model = protos.SavedModel.FromString(path.read_bytes())
    change(model.meta_graphs[0])
    path.write_bytes(model.SerializeToString())


class TestDamage:
    @pytest.mark.parametrize("number", [-1, 1 << 20])
    @pytest.mark.parametrize("what", ["child", "capture", "asset", "list", "saveable"])
    def test_numbers_are_checked(self, tmp_path, what, number):
        if what == "saveable":
            tf.saved_model.save(words(tmp_path), tmp_path)
        else:
            saved_model(tmp_path)

        def change(meta):
            graph = meta.object_graph_def
            if what == "child":
                graph.nodes[0].children[0].node_id = number
            elif what == "capture":
                for function in graph.concrete_functions.values():
                    for i in range(len(function.bound_inputs)):
                        function.bound_inputs[i] = number
            elif what == "saveable":
                for node in graph.nodes:
                    for saveable in node.saveable_objects.values():
                        saveable.restore_function = number
            elif what == "asset":
                graph.nodes[1].asset.asset_file_def_index = number
            else:
                for node in graph.nodes:
                    if node.user_object.identifier == "trackable_list_wrapper":
                        node.children[0].local_name = str(number * 16)

        replaced(tmp_path, change)
        with pytest.raises(ValueError, match="damaged"):
            tf.saved_model.load(tmp_path)

    def test_objects_do_not_stand_for_others(self, tmp_path):
        saved_model(tmp_path)
        wrong = ("dtype", "constant", "function", "kind", "tuple", "shape", "missing")
        for what in wrong:
            saved_model(tmp_path)

            def change(meta, what=what):
                graph = meta.object_graph_def
                nodes = graph.nodes
                variable = next(n for n in nodes if n.variable.name == "scale")
                if what == "dtype":
                    variable.variable.dtype = protos.DT_INT32
                elif what == "constant":
                    for node in nodes:
                        if node.constant.operation:
                            node.constant.operation = "init"
                elif what == "function":
                    for node in nodes:
                        if node.bare_concrete_function.concrete_function_name:
                            node.bare_concrete_function.concrete_function_name = "none"
                elif what == "kind":
                    nodes.add()
                elif what == "tuple":
                    for i, node in enumerate(nodes):
                        if node.user_object.identifier == "trackable_tuple_wrapper":
                            node.children[0].node_id = i
                elif what == "shape":
                    variable.variable.shape.dim.add().size = 1 << 40
                else:
                    extra = nodes.add()
                    extra.variable.dtype = protos.DT_FLOAT

            replaced(tmp_path, change)
            with pytest.raises(ValueError):
                tf.saved_model.load(tmp_path)

    def test_any_damage_is_an_error(self, tmp_path):
        seed = random.randrange(1 << 30)
        print(f"seed {seed}")
        choose = random.Random(seed)
        saved_model(tmp_path)
        path = tmp_path / "saved_model.pb"
        whole = path.read_bytes()
        errors = (ValueError, TypeError, KeyError, RuntimeError, OSError, tf.errors.OpError)
        for _ in range(60):
            data = bytearray(whole)
            for _ in range(choose.choice([1, 2, 5])):
                at = choose.randrange(len(data))
                if choose.random() < 0.1:
                    del data[at:]
                    break
                data[at] = choose.choice([0, 1, 0x7F, 0x80, 0xFF, choose.randrange(256)])
            path.write_bytes(bytes(data))
            try:
                tf.saved_model.load(tmp_path).power(tf.constant(2.0))
            except (*errors, AttributeError):
                pass  # an attribute may have another name now


@needs_tensorflow
class TestTensorFlow:
    def test_tensorflow_reads_what_is_written(self, tmp_path):
        saved_model(tmp_path / "m")
        printed = run_tensorflow(
            """
            tf = tensorflow
            m = tf.saved_model.load(args[0])
            print(m.scale.numpy(), m.parts[0].numpy().tolist(), m.parts[1]["deep"].trainable)
            print(m.power(tf.constant(2.0)).numpy(), m.power(tf.constant(2.0), n=3).numpy())
            with tf.GradientTape() as tape:
                y = m.power(tf.constant(2.0))
            print(tape.gradient(y, m.scale).numpy())
            print(m.signatures["serve"](tf.constant([1.0, 2.0]))["y"].numpy().tolist())
            print(m.count(), m.scale.numpy(), m.total(tf.constant(1.0)).numpy())
            v1 = tf.compat.v1
            with v1.Session(graph=tf.Graph()) as session:
                signature = v1.saved_model.load(session, ["serve"], args[0]).signature_def["serve"]
                x, y = signature.inputs["x"].name, signature.outputs["y"].name
                print(session.run(y, {x: [1.0, 2.0]}).tolist())
            tf.saved_model.save(m, args[1], signatures=m.signatures)
            """,
            tmp_path / "m",
            tmp_path / "back",
        )
        assert printed.split("\n") == [
            "3.0 [7, 8] False",
            "39.0 219.0",
            "24.0",
            "[3.0, 6.0]",
            "None 4.0 15.0",
            "[3.0, 6.0]",
            "",
        ]
        back = tf.saved_model.load(tmp_path / "back")
        assert back.scale.numpy() == 6
        assert back.power(tf.constant(1.0)).numpy() == 39

    def test_tables_go_both_ways(self, tmp_path):
        tf.saved_model.save(words(tmp_path), tmp_path / "m")
        printed = run_tensorflow(
            """
            tf = tensorflow
            m = tf.saved_model.load(args[0])
            print([t.numpy().tolist() for t in m.find(tf.constant(["b", "y", "z"]))])
            index = tf.lookup.TextFileIndex
            root = tf.Module()
            root.mutable = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, -1)
            root.mutable.insert("b", 15.0)
            root.static = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), -1)
            root.lines = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(
                args[2], tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER), -1)
            root.find = tf.function(
                lambda keys: [t.lookup(keys) for t in (root.mutable, root.static, root.lines)],
                input_signature=[tf.TensorSpec(None, tf.string)])
            tf.saved_model.save(root, args[1])
            """,
            tmp_path / "m",
            tmp_path / "back",
            tmp_path / "words",
        )
        assert printed == f"{[[float(x) for x in FOUND[0]], *FOUND[1:]]}\n"
        back = tf.saved_model.load(tmp_path / "back")
        assert found(back.find(tf.constant(KEYS))) == FOUND

    def test_what_tensorflow_wrote_is_read(self, tmp_path):
        run_tensorflow(
            """
            tf = tensorflow
            class Dense(tf.Module):
                def __init__(self):
                    super().__init__()
                    self.w = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="w")
                    self.b = tf.Variable([0.5, 0.5], name="b")
                    self.steps = [tf.Variable(0, trainable=False)]
                    self.scale = tf.constant(2.0)

                @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
                def __call__(self, x):
                    return tf.nn.relu(x @ self.w + self.b) * self.scale

                @tf.function
                def train(self, x, rate=0.1):
                    self.steps[0].assign_add(1)
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_sum(self(x))
                    g = tape.gradient(loss, self.w)
                    self.w.assign_sub(rate * g)
                    return {"loss": loss, "steps": self.steps[0]}

                @tf.function
                def loop(self, n):
                    def body(i, t):
                        return i + 1, tf.cond(i % 2 == 0, lambda: t + self.b, lambda: t)
                    return tf.while_loop(lambda i, t: i < n, body, (0, tf.zeros([2])))[1]

            m = Dense()
            m.train.get_concrete_function(tf.TensorSpec([None, 2], tf.float32))
            m.loop(tf.constant(3))
            tf.saved_model.save(m, args[0])
            """,
            tmp_path,
        )
        model = tf.saved_model.load(tmp_path)
        x = tf.constant([[1.0, 1.0]])
        assert model(x).numpy().tolist() == [[9.0, 13.0]]
        assert model.loop(tf.constant(5)).numpy().tolist() == [1.5, 1.5]
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(model.loop(tf.constant(5)))
        assert tape.gradient(y, model.b).numpy().tolist() == [3, 3]
        found = model.train(x)
        assert (found["loss"].numpy(), found["steps"].numpy()) == (22, 1)
        np.testing.assert_allclose(model.w.numpy(), [[0.8, 1.8], [2.8, 3.8]], rtol=1e-6)
        served = model.signatures["serving_default"](x)
        np.testing.assert_allclose(served["output_0"].numpy(), [[8.2, 12.2]], rtol=1e-6)
