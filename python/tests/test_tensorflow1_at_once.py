"""TensorFlow 1's names where operations run at once, and specs of values."""

import pickle

import numpy as np
import pytest

import millrace as tf
from millrace import _core
from millrace.compat import v1


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


def test_templates_share_variables():
    def dense(x):
        return x * v1.get_variable("w", [], initializer=v1.ones_initializer())

    template = v1.make_template("layer", dense)
    other = v1.make_template("layer", dense)
    assert template.variables == []
    x = tf.constant(3.0)
    assert template(x).numpy() == 3.0
    (w,) = template.variables
    w.assign(2.0)
    assert template(x).numpy() == 6.0 and len(template.trainable_variables) == 1
    assert other(x).numpy() == 3.0 and other.variables[0] is not w
    assert w.name == "layer/w:0" and other.variables[0].name == "layer_1/w:0"


def test_wrapped_functions_hold_their_variables():
    def code(x, n):
        a = v1.get_variable("a", initializer=2.0)
        b = v1.get_variable("a", initializer=7.0)  # the same again
        assert a is b
        return {"sum": a + x, "product": b * x + n}

    specs = [tf.TensorSpec([], tf.float32, "x"), tf.TensorSpec([], tf.float32, "n")]
    f = v1.wrap_function(code, specs)
    made = f(tf.constant(3.0), tf.constant(1.0))
    assert (made["sum"].numpy(), made["product"].numpy()) == (5.0, 7.0)
    (a,) = f.variables
    a.assign(10.0)
    assert f(tf.constant(3.0), tf.constant(1.0))["sum"].numpy() == 13.0
    part = f.prune(f.inputs[0], f.structured_outputs["sum"])
    assert part(tf.constant(1.0)).numpy() == 11.0
    with tf.GradientTape() as tape:
        y = f(tf.constant(3.0), tf.constant(1.0))["product"]
    assert tape.gradient(y, a).numpy() == 3.0


def test_averages_follow_variables():
    average, v = tf.train.ExponentialMovingAverage(0.5), tf.Variable(1.0, name="w")
    average.apply([v])
    v.assign(2.0)
    average.apply([v])
    assert average.average(v).numpy() == 1.5
    assert average.average(v).name == "w/ExponentialMovingAverage:0"
    assert average.average_name(v) == "w/ExponentialMovingAverage"
    assert average.average(tf.Variable(1.0)) is None


def test_rates_are_functions():
    step = tf.Variable(0)
    rate = v1.train.exponential_decay(1.0, step, 10, 0.5)
    piecewise = v1.train.piecewise_constant(step, [5], [1.0, 2.0])
    assert rate().numpy() == 1.0 and piecewise().numpy() == 1.0
    step.assign(10)
    assert rate().numpy() == 0.5 and piecewise().numpy() == 2.0
    optimizer, v = v1.train.GradientDescentOptimizer(rate), tf.Variable(1.0)
    optimizer.apply_gradients([(tf.constant(1.0), v)])
    assert v.numpy() == 0.5
    with tf.Graph().as_default(), v1.Session() as session:
        assert session.run(v1.train.exponential_decay(1.0, 10, 10, 0.5)) == 0.5


def test_the_step_is_counted():
    v1.get_default_graph()._collections.pop(v1.GraphKeys.GLOBAL_STEP, None)
    assert v1.train.get_global_step() is None
    step = v1.train.get_or_create_global_step()
    assert step.numpy() == 0 and v1.train.get_or_create_global_step() is step
    v1.train.GradientDescentOptimizer(0.1).minimize(lambda: step_loss(), global_step=step)
    assert step.numpy() == 1
    with pytest.raises(ValueError, match="already exists"):
        v1.train.create_global_step()
    v1.get_default_graph()._collections.pop(v1.GraphKeys.GLOBAL_STEP)


W = []


def step_loss():
    W.append(tf.Variable(1.0)) if not W else None
    return W[0] * W[0]


def test_nothing_is_fed():
    with pytest.raises(RuntimeError, match="not compatible with eager execution"):
        v1.placeholder(tf.float32)


# Specs.


def test_specs_of_tensors():
    spec = tf.TensorSpec([1, 2], tf.float32, "x")
    assert isinstance(spec, tf.TypeSpec) and isinstance(tf.SparseTensorSpec([1]), tf.TypeSpec)
    assert tf.TensorSpec.from_spec(spec, name="y") == tf.TensorSpec([1, 2], tf.float32, "y")
    assert pickle.loads(pickle.dumps(spec)) == spec and spec.value_type is tf.Tensor
    wide = tf.TensorSpec([None, 2])
    assert spec.is_subtype_of(wide) and not wide.is_subtype_of(spec)
    assert not spec.is_subtype_of(tf.TensorSpec([1, 2], tf.int32))
    assert spec.most_specific_common_supertype([tf.TensorSpec([3, 2])]) == wide
    assert spec.most_specific_common_supertype([tf.TensorSpec([1, 2], tf.int32)]) is None
    assert spec.most_specific_compatible_type(tf.TensorSpec([2])) == tf.TensorSpec(None)
    with pytest.raises(ValueError, match="No TypeSpec is compatible"):
        spec.most_specific_compatible_type(tf.TensorSpec([1, 2], tf.int32))


def test_specs_of_values():
    of = tf.type_spec_from_value
    assert of(tf.zeros([2, 3])) == tf.TensorSpec([2, 3]) == of(tf.Variable(tf.zeros([2, 3])))
    assert of(3) == tf.TensorSpec([], tf.int32) and of("a") == tf.TensorSpec([], tf.string)
    assert of(np.zeros([2])) == tf.TensorSpec([2], tf.float64)
    assert of(tf.sparse.from_dense([1])) == tf.SparseTensorSpec([1], tf.int32)
    with pytest.raises(TypeError, match="Could not build a TypeSpec"):
        of(object())
    slices = tf.IndexedSlices(tf.ones([1, 4]), tf.constant([2]))
    spec = of(slices)
    assert spec == tf.IndexedSlicesSpec([None, 4], tf.float32, tf.int32, None, [1])
    assert spec.is_compatible_with(slices) and isinstance(spec, tf.TypeSpec)
    whole = tf.IndexedSlices(tf.ones([1, 4]), tf.constant([2]), tf.constant([3, 4]))
    assert of(whole).shape == [3, 4] and not spec.is_compatible_with(whole)
    assert str(slices).startswith("IndexedSlices(indices=tf.Tensor([2], shape=(1,)")
    sparse = tf.sparse.from_dense([0, 7]).with_values([5])
    assert tf.sparse.to_dense(sparse).numpy().tolist() == [0, 5]


# Checkpoints.


def test_savers_keep_variables_by_name(tmp_path):
    v, w = tf.Variable([1.0, 2.0], name="v"), tf.Variable(3, name="w")
    saver = v1.train.Saver([v, w], max_to_keep=2)
    path = str(tmp_path / "model")
    saved = [saver.save(None, path, global_step=i) for i in (1, tf.Variable(2), 3)]
    assert saved == [f"{path}-1", f"{path}-2", f"{path}-3"] and saver.last_checkpoints == saved[1:]
    assert tf.train.latest_checkpoint(tmp_path) == saved[2]
    assert tf.train.list_variables(saved[2]) == [("v", [2]), ("w", [])]
    assert not list(tmp_path.glob("model-1*"))
    v.assign([0.0, 0.0])
    other = tf.Variable(0, name="other")
    v1.train.Saver({"v": v, "w": other}).restore(None, saved[1])
    assert v.numpy().tolist() == [1.0, 2.0] and other.numpy() == 3
    with pytest.raises(tf.errors.NotFoundError, match="other"):
        v1.train.Saver([v, other]).restore(None, saved[1])
    with pytest.raises(ValueError, match="not a valid checkpoint"):
        saver.restore(None, path + "-9")
    with pytest.raises(ValueError, match="Parent directory"):
        saver.save(None, str(tmp_path / "none" / "model"))
    with pytest.raises(RuntimeError, match="must specify a list or dict of variables"):
        v1.train.Saver()
    with pytest.raises(TypeError, match="Can only save Variables"):
        v1.train.Saver([1])
    with pytest.raises(ValueError, match="have the same name: v"):
        v1.train.Saver([v, tf.Variable(1.0, name="v")])


def test_checkpoints_have_generators(tmp_path):
    generator = tf.random.Generator.from_seed(5)
    path = tf.train.Checkpoint(g=generator).write(str(tmp_path / "g"))
    first = generator.uniform([3]).numpy()
    again = tf.random.Generator.from_seed(7)
    tf.train.Checkpoint(g=again).read(path).assert_consumed()
    assert again.uniform([3]).numpy().tolist() == first.tolist()


def test_checkpoints_of_other_shapes(tmp_path):
    path = tf.train.Checkpoint(v=tf.Variable(1.0)).write(str(tmp_path / "v"))
    match = r"incompatible tensor with shape \(\) .* with shape \(2,\) and name mine:0"
    with pytest.raises(ValueError, match=match):
        tf.train.Checkpoint(v=tf.Variable([1.0, 2.0], name="mine")).read(path)


def test_lists_of_modules_are_lists():
    module = tf.Module()
    module.list = [2, 1]
    assert [0] + module.list == [0, 2, 1] and module.list + [3] == [2, 1, 3]


def test_an_iterator_that_goes_through_once():
    dataset = v1.data.Dataset.range(2).map(lambda x: x + 5)
    iterator = v1.data.make_one_shot_iterator(dataset)
    assert [iterator.get_next().numpy() for _ in range(2)] == [5, 6]
    with pytest.raises(tf.errors.OutOfRangeError):
        iterator.get_next()
