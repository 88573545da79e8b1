"""Variables, branches, rows and assertions where operations run at once, as in TensorFlow 2."""

import gc

import numpy as np
import pytest

import millrace as tf
from millrace import _core
from millrace.eager import slices


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


class TestVariables:
    def test_slices_are_assigned_to(self):
        v = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
        assert v[0].assign([5.0, 6.0]) is v
        v[:, 1:].assign([[7.0], [8.0]])
        tf.function(lambda i: v[i, 0].assign(9.0))(tf.constant(1))
        assert v.numpy().tolist() == [[5.0, 7.0], [9.0, 8.0]]
        with pytest.raises(AttributeError, match="assign to a variable"):
            tf.constant([1, 2])[0].assign(1)

    def test_what_assigns_goes_with_the_slice(self):
        v = tf.Variable([1.0, 2.0])
        gc.collect()
        before = len(slices._assigns)
        part = v[1:]
        assert len(slices._assigns) == before + 1
        del part
        assert len(slices._assigns) == before

    def test_slices_of_each_element_of_a_batch(self):
        v = tf.Variable(tf.zeros([2, 2, 3]))
        indices = tf.constant([[[0, 2], [1, 0]], [[2, 1], [0, 1]]])
        values = tf.reshape(tf.range(1.0, 9.0), [2, 2, 2])
        v.batch_scatter_update(tf.IndexedSlices(values, indices))
        want = [[[1, 0, 2], [4, 3, 0]], [[0, 6, 5], [7, 8, 0]]]
        assert v.numpy().tolist() == want
        with pytest.raises(TypeError, match=r"must be a `tf.IndexedSlices`"):
            v.batch_scatter_update([1.0])

    def test_counting(self):
        v = tf.Variable(1)
        assert (v.count_up_to(2).numpy(), v.numpy()) == (1, 2)
        with pytest.raises(tf.errors.OutOfRangeError):
            v.count_up_to(2)

    def test_what_only_graphs_have(self):
        v = tf.Variable(1.0)
        v.load(2.0)
        assert v.numpy() == 2.0
        for attribute in ("op", "graph"):
            with pytest.raises(AttributeError, match="undefined when eager execution is enabled"):
                getattr(v, attribute)
        for method in (v.eval, v.to_proto):
            with pytest.raises(RuntimeError, match="not supported when eager execution"):
                method()
        assert repr(v.aggregation) == "<VariableAggregation.NONE: 0>"
        with tf.Graph().as_default(), pytest.raises(NotImplementedError, match="only available"):
            tf.Variable(1.0).numpy()


class TestBranches:
    def test_lists_of_one_stay(self):
        for run in (lambda f: f, tf.function):
            made = run(lambda x: tf.cond(x, lambda: [1], lambda: [2]))(tf.constant(False))
            assert isinstance(made, list) and made[0] == 2

    def test_nothing_in_both(self):
        @tf.function
        def f(x):
            assert tf.cond(x, lambda: None, lambda: None) is None
            return tf.cond(x, lambda: (1, None), lambda: (2, None))

        first, second = f(tf.constant(True))
        assert first.numpy() == 1 and second is None

    @pytest.mark.parametrize("error", [TypeError, ValueError])
    @pytest.mark.parametrize("other", [lambda: 2.0, lambda: (1, 2), lambda: None])
    def test_branches_that_differ(self, error, other):
        f = tf.function(lambda x: tf.cond(x, lambda: 1, other), autograph=False)
        with pytest.raises(error, match="must have the same number, type, and overall structure"):
            f(tf.constant(True))


class TestRows:
    def test_of_sparse_tensors(self):
        sparse = tf.sparse.from_dense([[0, 1], [2, 0], [0, 0]])
        for run in (lambda f: f, tf.function):
            same = run(lambda s: tf.map_fn(lambda row: row, s))(sparse)
            assert tf.sparse.to_dense(same).numpy().tolist() == [[0, 1], [2, 0], [0, 0]]
            sums = run(lambda s: tf.map_fn(tf.sparse.reduce_sum, s, fn_output_signature=tf.int32))(
                sparse
            )
            assert sums.numpy().tolist() == [1, 2, 0]
        made = tf.map_fn(
            lambda x: tf.sparse.from_dense([x, 0]), tf.constant([3, 0]),
            fn_output_signature=tf.SparseTensorSpec([2], tf.int32),
        )  # fmt: skip
        assert tf.sparse.to_dense(made).numpy().tolist() == [[3, 0], [0, 0]]
        with pytest.raises(TypeError, match="must return a SparseTensor"):
            tf.map_fn(lambda row: 1, sparse)

    def test_of_ragged_tensors(self):
        ragged = tf.ragged.constant([[1, 2], [3], []])
        for run in (lambda f: f, tf.function):
            more = run(lambda r: tf.map_fn(lambda row: row + 1, r))(ragged)
            assert more.to_list() == [[2, 3], [4], []]
            sums = run(lambda r: tf.map_fn(tf.reduce_sum, r, fn_output_signature=tf.int32))(ragged)
            assert sums.numpy().tolist() == [3, 3, 0]
        deep = tf.ragged.constant([[[1], [2, 3]], [[]], []], ragged_rank=2)
        same = tf.map_fn(lambda row: row.with_flat_values(-row.flat_values), deep)
        assert same.to_list() == [[[-1], [-2, -3]], [[]], []]
        with pytest.raises(ValueError, match="of ragged rank 1"):
            tf.map_fn(lambda row: tf.ragged.constant([[[1]]]), deep)

    def test_of_a_spec(self):
        spec = tf.TensorSpec([2], tf.int32)
        made = tf.map_fn(
            lambda x: tf.range(x, x + 2), tf.constant([1, 5]), fn_output_signature=spec
        )
        assert made.numpy().tolist() == [[1, 2], [5, 6]]


class TestAssertions:
    def test_say_which_elements_differ(self):
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            tf.debugging.assert_equal([1, 2, 3, 4], [1, 5, 3, 6], message="mine")
        text = str(caught.value).partition("\ndefined at")
        assert text[0].split("\n") == [
            "mine", "Condition x == y did not hold.", "Indices of first 2 different values:",
            "[[1]", " [3]]", "Corresponding x values:", "[2 4]", "Corresponding y values:",
            "[5 6]", "First 3 elements of x:", "[1 2 3]", "First 3 elements of y:", "[1 5 3]",
        ]  # fmt: skip
        assert "test_eager_variables.py" in text[2]
        with pytest.raises(tf.errors.InvalidArgumentError, match="x < y did not hold.\nFirst 1"):
            tf.debugging.assert_less(3, 2)
        assert tf.debugging.assert_less([1, 2], 3) is None

    def test_say_what_was_expected(self):
        expected = r"Expected 'tf.Tensor\(False.*to be true. Summarized data: 7\nb'x'"
        with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
            tf.debugging.Assert(tf.constant(False), [7, "x"])
        assert tf.debugging.Assert(np.bool_(True), [1]) is None


def test_inside_of_functions():
    assert not tf.inside_function()
    assert tf.function(lambda: tf.constant(tf.inside_function()))().numpy()
