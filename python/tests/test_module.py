"""tf.Module: names, and the variables and modules below."""

import collections

import pytest

import millrace as tf
from millrace import _core


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


class Dense(tf.Module):
    def __init__(self, sizes, name=None):
        super().__init__(name)
        with self.name_scope:
            self.w = tf.Variable(tf.ones(sizes), name="w")
            self.b = tf.Variable(tf.zeros(sizes[1:]), name="b", trainable=False)

    @tf.Module.with_name_scope
    def __call__(self, x):
        if not hasattr(self, "scale"):
            self.scale = tf.Variable(2.0, name="scale")
        return (x @ self.w + self.b) * self.scale


class Net(tf.Module):
    def __init__(self):
        super().__init__()
        self.layers = [Dense((2, 3), "first"), Dense((3, 1))]
        self.extras = {"z": tf.Variable(1.0, name="z"), "a": (tf.Variable(2.0, name="a"), "text")}


class TestNames:
    def test_of_the_class(self):
        assert tf.Module().name == "module"
        assert Net().name == "net"
        assert type("HTTPServer2Net", (tf.Module,), {})().name == "http_server2_net"

    def test_must_be_identifiers(self):
        for name in ("8a", "a-b", "", "a/b"):
            with pytest.raises(ValueError, match="is not a valid module name"):
                tf.Module(name=name)

    def test_begin_the_names_of_variables(self):
        layer = Dense((2, 2), "layer")
        assert layer.w.name == "layer/w:0"
        assert layer(tf.ones((1, 2))).numpy().tolist() == [[4, 4]]
        assert layer.scale.name == "layer/scale:0"

    def test_stand_within_each_other(self):
        class Outer(tf.Module):
            def __init__(self):
                super().__init__(name="outer")
                with self.name_scope:
                    self.inner = Dense((1, 1), "inner")

        assert Outer().inner.w.name == "outer/inner/w:0"


class TestWhatIsBelow:
    def test_variables_by_the_names_of_attributes(self):
        net = Net()
        names = [v.name for v in net.variables]
        assert names == ["a:0", "z:0", "first/b:0", "first/w:0", "dense/b:0", "dense/w:0"]
        assert [v.name for v in net.trainable_variables] == [
            "a:0", "z:0", "first/w:0", "dense/w:0",
        ]  # fmt: skip
        assert [v.name for v in net.non_trainable_variables] == ["first/b:0", "dense/b:0"]

    def test_each_once(self):
        net = Net()
        net.again = net.layers[0]
        net.itself = net
        assert len(net.variables) == 6
        assert [module.name for module in net.submodules] == ["first", "dense"]

    def test_paths(self):
        net = Net()
        found = dict(net._flatten(predicate=lambda v: isinstance(v, tf.Variable), with_path=True))
        assert found[("layers", 0, "w")] is net.layers[0].w
        assert found[("extras", "a", 0)].name == "a:0"

    def test_attributes_can_be_left_out(self):
        class Hidden(tf.Module):
            _TF_MODULE_IGNORED_PROPERTIES = frozenset(("hidden",))

        module = Hidden()
        module.hidden, module.seen = tf.Variable(1.0), tf.Variable(2.0)
        assert module.variables == (module.seen,) or module.variables[0] is module.seen

    def test_a_structure_that_cannot_be_walked_names_the_attribute(self):
        module = tf.Module()
        module.odd = {1: 2, "a": 3}
        with pytest.raises(ValueError, match="Error processing property 'odd'"):
            _ = module.variables


class TestTrackedStructures:
    def test_are_what_they_were(self):
        module = tf.Module()
        module.list, module.dict, module.tuple = [1, [2]], {"a": [1]}, (1, 2)
        assert module.list == [1, [2]] and isinstance(module.list, list)
        assert module.dict == {"a": [1]} and isinstance(module.dict, dict)
        assert module.tuple == (1, 2) and type(module.tuple) is tuple
        module.list += [3]
        module.list.extend([4])
        assert module.list == [1, [2], 3, 4] and module.list[1:] == [[2], 3, 4]
        module.dict.update(b=2)
        assert sorted(module.dict) == ["a", "b"] and module.dict.setdefault("c", 5) == 5

    def test_named_tuples_stay_such(self):
        pair = collections.namedtuple("pair", "x y")
        module = tf.Module()
        module.pair = pair(tf.Variable(1.0), 2)
        assert isinstance(module.pair, pair) and module.pair.y == 2
        assert list(module.pair._trackable_children()) == ["x", "0"]

    def test_dictionaries_keep_their_kind(self):
        module = tf.Module()
        module.ordered = collections.OrderedDict([("b", 1), ("a", 2)])
        module.counts = collections.defaultdict(list)
        module.counts["x"].append(tf.Variable(3.0, name="x"))
        assert list(module.ordered) == ["b", "a"]
        assert isinstance(module.ordered, collections.OrderedDict)
        assert [v.name for v in module.variables] == ["x:0"]
