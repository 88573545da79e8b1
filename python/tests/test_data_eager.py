"""tf.data outside of graphs: loops over datasets, specs, iterators in checkpoints."""

import collections
import gc
import gzip
import threading
import weakref

import numpy as np
import pytest

import millrace as tf
from millrace import _core

Dataset = tf.data.Dataset


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


def values(dataset):
    return [
        np.asarray(v).tolist() if not isinstance(v, (tuple, dict)) else v
        for v in dataset.as_numpy_iterator()
    ]


class TestLoops:
    def test_for(self):
        assert [x.numpy() for x in Dataset.range(3)] == [0, 1, 2]
        assert [int(a + b) for a, b in Dataset.zip(Dataset.range(3), Dataset.range(5, 9))] == [
            5, 7, 9,
        ]  # fmt: skip

    def test_each_loop_begins_anew(self):
        dataset = Dataset.range(3).map(lambda x: x * 2)
        assert values(dataset) == values(dataset) == [0, 2, 4]

    def test_next(self):
        iterator = iter(Dataset.range(2))
        assert iter(iterator) is iterator and iterator.element_spec == tf.TensorSpec([], tf.int64)
        assert next(iterator).numpy() == 0 and iterator.get_next().numpy() == 1
        with pytest.raises(StopIteration):
            next(iterator)
        with pytest.raises(tf.errors.OutOfRangeError):
            iterator.get_next()
        assert not iterator.get_next_as_optional().has_value()
        assert int(iter(Dataset.range(5, 6)).get_next_as_optional().get_value()) == 5

    def test_arrays(self):
        point = collections.namedtuple("point", "x y")
        dataset = Dataset.from_tensor_slices({"a": [1, 2], "p": point([[3], [4]], ["u", "v"])})
        first = next(dataset.as_numpy_iterator())
        assert first["a"] == 1 and first["p"].x.tolist() == [3] and first["p"].y == b"u"
        with pytest.raises(ValueError, match="read-only"):
            first["p"].x[0] = 1
        with pytest.raises(TypeError, match="does not support datasets containing"):
            Dataset.from_tensors(Dataset.range(1)).as_numpy_iterator()

    def test_in_functions(self):
        @tf.function
        def two():
            iterator = iter(Dataset.range(5).map(lambda x: x * 3))
            return next(iterator) + next(iterator)

        assert two().numpy() == 3

    def test_graphs_have_none(self):
        with tf.Graph().as_default():
            with pytest.raises(RuntimeError, match="eager"):
                iter(Dataset.range(1))
            with pytest.raises(RuntimeError, match="eager"):
                Dataset.range(1).as_numpy_iterator()

    def test_errors_of_functions_are_told_where_elements_are_asked_for(self):
        iterator = iter(Dataset.range(-1, 2).map(lambda x: 6 // x))
        assert next(iterator).numpy() == -6
        with pytest.raises(tf.errors.InvalidArgumentError, match="zero"):
            next(iterator)
        assert next(iterator).numpy() == 6


class TestWhatIsKnown:
    def test_sizes(self):
        assert len(Dataset.range(10).map(lambda x: x).batch(4)) == 3
        assert int(Dataset.range(3).repeat().cardinality()) == tf.data.INFINITE_CARDINALITY
        for dataset, why in (
            (Dataset.range(3).repeat(), "infinite"),
            (Dataset.range(3).filter(lambda x: x > 1), "unknown"),
        ):
            with pytest.raises(TypeError, match=why):
                len(dataset)
        assert Dataset.range(0)  # a dataset is one, however long

    def test_specs(self):
        dataset = Dataset.from_tensor_slices({"a": [[1.0, 2.0]], "b": (["x"], [True])})
        assert dataset.element_spec == {
            "a": tf.TensorSpec([2], tf.float32),
            "b": (tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.bool)),
        }
        sparse = tf.SparseTensor([[0]], [1], [2])
        assert Dataset.from_tensors(sparse).element_spec == tf.SparseTensorSpec([2], tf.int32)
        windows = Dataset.range(4).window(2)
        assert windows.element_spec == tf.data.DatasetSpec(tf.TensorSpec([], tf.int64))
        assert tf.data.experimental.get_structure(windows) == windows.element_spec
        assert tf.data.DatasetSpec(tf.TensorSpec([None])).is_compatible_with(
            Dataset.from_tensors([1.0])
        )

    def test_the_only_element(self):
        assert Dataset.range(5, 6).get_single_element().numpy() == 5
        for count in (0, 2):
            with pytest.raises(tf.errors.InvalidArgumentError):
                Dataset.range(count).get_single_element()


class TestFunctions:
    def test_use_variables_as_they_are(self):
        v = tf.Variable(1, dtype=tf.int64)
        iterator = iter(Dataset.range(4).map(lambda x: x + v))
        assert next(iterator).numpy() == 1
        v.assign(10)
        assert next(iterator).numpy() == 11

    def test_within_functions(self):
        dataset = Dataset.range(1, 4).flat_map(lambda n: Dataset.range(n).map(lambda x: x + n))
        assert values(dataset) == [1, 2, 3, 3, 4, 5]

    def test_reduce_and_scan(self):
        assert int(Dataset.range(5).reduce(np.int64(0), lambda s, x: s + x)) == 10
        sums = Dataset.range(5).scan(np.int64(0), lambda s, x: (s + x, s + x))
        assert values(sums) == [0, 1, 3, 6, 10]

    def test_have_control_flow_over_tensors(self):
        def collatz(x):
            steps = tf.constant(0)
            while x > 1:
                if x % 2 == 0:
                    x = x // 2
                else:
                    x = 3 * x + 1
                steps += 1
            return steps

        assert values(Dataset.range(1, 8).map(collatz)) == [0, 1, 7, 2, 5, 8, 16]

    def test_give_elements(self):
        with pytest.raises(TypeError, match=r"Unsupported return value .* Dataset.map\(\)"):
            Dataset.range(1).map(lambda x: object())

    def test_of_python(self):
        seen = []

        def see(x):
            seen.append(int(x))
            return x * 2

        dataset = Dataset.range(3).map(lambda x: tf.numpy_function(see, [x], tf.int64))
        gc.collect()
        assert values(dataset.batch(3)) == [[0, 2, 4]] and seen == [0, 1, 2]

    def test_methods_that_were_functions(self):
        dataset = Dataset.range(6)
        assert values(dataset.unique()) == list(range(6))
        assert values(dataset.take_while(lambda x: x < 2)) == [0, 1]
        assert values(dataset.map(lambda x: 6 // x).ignore_errors()) == [6, 3, 2, 1, 1]
        even = dataset.group_by_window(lambda x: x % 2, lambda _, w: w.batch(3), 3)
        assert values(even) == [[0, 2, 4], [1, 3, 5]]
        chosen = Dataset.choose_from_datasets(
            [dataset, dataset.skip(3)], Dataset.from_tensor_slices(np.int64([1, 0, 1]))
        )
        assert values(chosen) == [3, 0, 4]
        assert values(Dataset.random(seed=3).take(2)) == values(Dataset.random(seed=3).take(2))
        assert values(Dataset.counter(5, 2).take(2)) == [5, 7]

    @pytest.mark.parametrize("known", [True, False])
    def test_classes_are_resampled(self, known):
        tf.random.set_seed(4)
        kinds = Dataset.range(4000).map(lambda x: tf.cast(tf.equal(x % 4, 0), tf.int64))
        sampled = kinds.rejection_resample(
            lambda k: k, [0.5, 0.5], [0.75, 0.25] if known else None, seed=1
        )
        drawn = [int(kind) for kind, element in sampled]
        assert abs(np.mean(drawn) - 0.5) < 0.05 and len(drawn) > 1500


class TestGenerators:
    def test_by_signature(self):
        def lists():
            for i in range(3):
                yield i, [1.0] * i

        dataset = Dataset.from_generator(
            lists, output_signature=(tf.TensorSpec([], tf.int32), tf.TensorSpec([None]))
        )
        gc.collect()
        for _ in range(2):
            assert [(int(i), x.tolist()) for i, x in dataset.as_numpy_iterator()] == [
                (0, []), (1, [1]), (2, [1, 1]),
            ]  # fmt: skip
        assert [int(i) for i, _ in dataset.map(lambda i, x: (i + 1, x))] == [1, 2, 3]

    def test_needs_one_way_to_say_what_elements_are(self):
        for kwargs, why in (
            ({}, "must be specified"),
            ({"output_signature": tf.TensorSpec([]), "output_types": tf.int32}, "can not be used"),
            ({"output_signature": 5}, "TypeSpec"),
        ):
            with pytest.raises(TypeError, match=why):
                Dataset.from_generator(lambda: [], **kwargs)

    def test_is_let_go(self):
        class Numbers:
            def __iter__(self):
                return iter([1, 2])

        numbers = Numbers()
        dataset = Dataset.from_generator(numbers.__iter__, tf.int32)
        gone = weakref.ref(numbers)
        assert values(dataset) == [1, 2]
        del numbers, dataset
        gc.collect()
        assert gone() is None


class TestCheckpoints:
    @pytest.mark.parametrize(
        "make",
        [
            lambda: Dataset.range(20).shuffle(5, seed=1).batch(3).prefetch(2),
            lambda: Dataset.range(20).map(lambda x: x * 2, num_parallel_calls=2),
            lambda: Dataset.range(5).flat_map(lambda n: Dataset.range(n)),
            lambda: Dataset.from_generator(lambda: range(20), tf.int64),
        ],
    )
    def test_go_on_where_they_stood(self, tmp_path, make):
        tf.random.set_seed(5)
        iterator = iter(make())
        next(iterator), next(iterator)
        path = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "c")
        rest = [x.numpy().tolist() for x in iterator]
        other = iter(make())
        next(other)
        tf.train.Checkpoint(iterator=other).restore(path).assert_consumed()
        assert [x.numpy().tolist() for x in other] == rest

    def test_state_that_functions_hold_is_told(self, tmp_path):
        dataset = Dataset.range(9).map(lambda x: tf.random.uniform([]) + tf.cast(x, tf.float32))
        with pytest.raises(tf.errors.FailedPreconditionError, match="state of its own"):
            tf.train.Checkpoint(iterator=iter(dataset)).save(tmp_path / "c")
        options = tf.data.Options()
        options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.WARN
        tf.train.Checkpoint(iterator=iter(dataset.with_options(options))).save(tmp_path / "c")


class TestEnds:
    @pytest.mark.parametrize("calls", [None, 2])
    def test_of_functions_are_errors_where_sizes_are_kept(self, calls):
        def end(x):
            iterator = iter(Dataset.range(0))
            return next(iterator) + x

        iterator = iter(Dataset.range(2).map(end, num_parallel_calls=calls))
        with pytest.raises(tf.errors.InvalidArgumentError, match="produced OutOfRangeError"):
            next(iterator)


class TestElements:
    def test_may_be_none(self):
        dataset = Dataset.range(2).map(lambda x: (x, None))
        assert [(int(a), b) for a, b in dataset] == [(0, None), (1, None)]
        seen = []
        dataset = dataset.map(lambda a, b: seen.append(b) or a).batch(2)
        assert values(dataset) == [[0, 1]] and seen == [None]

    def test_may_be_arrays(self):
        def rows(n):
            count = tf.cast(n, tf.int32)
            return tf.TensorArray(tf.int32, count, element_shape=()).unstack(tf.range(count))

        dataset = Dataset.range(3).map(rows)
        assert dataset.element_spec == tf.TensorArraySpec((), tf.int32)
        assert [t.stack().numpy().tolist() for t in dataset] == [[], [0], [0, 1]]
        assert values(dataset.map(lambda t: t.size())) == [0, 1, 2]
        with pytest.raises(TypeError, match="batches"):
            dataset.batch(2)

    def test_arrays_may_be_states(self):
        start = tf.TensorArray(tf.int64, 0, dynamic_size=True, element_shape=()).write(0, 7)
        step = tf.data.experimental.scan(start, lambda t, x: (t.write(t.size(), x), t.stack()))
        assert values(Dataset.range(3).apply(step)) == [[7], [7, 0], [7, 0, 1]]

    def test_generators_may_give_sparse_tensors(self):
        def give():
            yield tf.SparseTensor([[1]], [5], [3])
            yield tf.SparseTensor([[0]], [6], [3])

        dataset = Dataset.from_generator(give, output_signature=tf.SparseTensorSpec([3], tf.int32))
        assert [tf.sparse.to_dense(s).numpy().tolist() for s in dataset] == [[0, 5, 0], [6, 0, 0]]
        wrong = Dataset.from_generator(give, output_signature=tf.SparseTensorSpec([4], tf.int32))
        with pytest.raises(tf.errors.OpError, match="no SparseTensor of int32 and shape"):
            next(iter(wrong))

    def test_optionals_are_arguments_of_functions(self):
        traces = []

        @tf.function
        def value(optional):
            traces.append(optional.element_spec)
            return optional.get_value()

        optional = tf.experimental.Optional.from_value
        assert value(optional(tf.constant(1.0))).numpy() == 1.0
        assert value(optional(tf.constant(2.0))).numpy() == 2.0 and len(traces) == 1
        assert value(optional(tf.constant("a"))).numpy() == b"a" and len(traces) == 2

    def test_sparse_batches(self):
        dataset = Dataset.range(3).map(lambda n: tf.fill([n], n))
        batches = dataset.apply(tf.data.experimental.dense_to_sparse_batch(2, [None]))
        assert [tf.sparse.to_dense(b).numpy().tolist() for b in batches] == [[[0], [1]], [[2, 2]]]
        small = dataset.apply(tf.data.experimental.dense_to_sparse_batch(3, [1]))
        with pytest.raises(tf.errors.DataLossError, match="larger than the row shape"):
            next(iter(small))
        flat = dataset.apply(tf.data.experimental.dense_to_sparse_batch(3, [2, 2]))
        with pytest.raises(tf.errors.InvalidArgumentError, match="incompatible with the row shape"):
            next(iter(flat))


class TestOrders:
    @pytest.mark.parametrize("seed", [None, 3])
    def test_change_with_each_loop(self, seed):
        dataset = Dataset.range(100).shuffle(100, seed=seed)
        assert len({tuple(values(dataset)) for _ in range(3)}) == 3
        kept = Dataset.range(100).shuffle(100, seed=seed, reshuffle_each_iteration=False)
        assert values(kept) == values(kept)

    def test_options_set_afterwards_count(self):
        late = threading.Event()

        def wait(x):
            if x == 0:
                assert late.wait(60)
            return x

        dataset = Dataset.range(4).map(
            lambda x: tf.numpy_function(wait, [x], tf.int64), num_parallel_calls=4
        )
        options = tf.data.Options()
        options.deterministic = False
        iterator = iter(dataset.with_options(options))
        first = next(iterator).numpy()
        late.set()
        assert first != 0 and sorted([first, *(x.numpy() for x in iterator)]) == [0, 1, 2, 3]

    def test_order_of_a_stage_counts_more(self):
        options = tf.data.Options()
        options.deterministic = False
        dataset = Dataset.range(50).map(lambda x: x, num_parallel_calls=4, deterministic=True)
        assert values(dataset.with_options(options)) == list(range(50))

    def test_damaged_options(self):
        with pytest.raises(tf.errors.InvalidArgumentError, match="serialized_options"):
            tf.raw_ops.OptionsDataset(
                input_dataset=Dataset.range(1)._variant_tensor, serialized_options=b"\x0a\xff",
                output_types=[tf.int64], output_shapes=[[]],
            )  # fmt: skip


class TestSizes:
    def test_of_samples(self):
        endless, short = Dataset.range(1).repeat(), Dataset.range(1)
        sample = Dataset.sample_from_datasets
        assert sample([endless, endless]).cardinality().numpy() == tf.data.INFINITE_CARDINALITY
        assert sample([endless, short]).cardinality().numpy() == tf.data.INFINITE_CARDINALITY
        assert sample([short, short]).cardinality().numpy() == tf.data.UNKNOWN_CARDINALITY
        chosen = Dataset.choose_from_datasets([endless, endless], Dataset.range(2))
        assert chosen.cardinality().numpy() == tf.data.UNKNOWN_CARDINALITY


class TestWholes:
    def test_from_lists(self):
        made = tf.data.experimental.from_list([{"a": [1]}, {"a": [2]}, {"a": [3, 4]}])
        assert [e["a"].numpy().tolist() for e in made] == [[1], [2], [3, 4]]
        with pytest.raises(ValueError, match="non-empty"):
            tf.data.experimental.from_list([])

    def test_padded(self):
        pad = tf.data.experimental.pad_to_cardinality
        made = Dataset.range(1, 3).map(lambda x: {"x": x}).apply(pad(4))
        assert [(int(e["x"]), bool(e["valid"])) for e in made] == [
            (1, True), (2, True), (0, False), (0, False),
        ]  # fmt: skip
        with pytest.raises(ValueError, match="no end"):
            Dataset.range(1).map(lambda x: {"x": x}).repeat().apply(pad(4))
        with pytest.raises(ValueError, match="more than 1"):
            Dataset.range(2).map(lambda x: {"x": x}).apply(pad(1))
        with pytest.raises(ValueError, match="dictionaries"):
            Dataset.range(2).apply(pad(4))

    def test_by_number(self):
        assert tf.data.experimental.at(Dataset.range(10), 4).numpy() == 4
        for index in (10, -1):
            with pytest.raises(tf.errors.OutOfRangeError):
                tf.data.experimental.at(Dataset.range(10), index)

    def test_as_tensors(self):
        variant = tf.data.experimental.to_variant(Dataset.range(3))
        again = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.int64))
        assert values(again) == [0, 1, 2]

    def test_snapshots(self, tmp_path):
        made = []

        def count(x):
            made.append(int(x))
            return x

        dataset = Dataset.range(3).map(lambda x: tf.numpy_function(count, [x], tf.int64))
        kept = dataset.snapshot(str(tmp_path / "s"))
        assert values(kept) == values(kept) == [0, 1, 2] and made == [0, 1, 2]
        other = Dataset.range(9).snapshot(
            str(tmp_path / "s"), reader_func=lambda shards: shards.flat_map(lambda s: s)
        )
        assert values(other) == [0, 1, 2]


class TestFiles:
    @pytest.mark.parametrize("compression", [None, "GZIP"])
    def test_keep_elements(self, tmp_path, compression):
        pair = collections.namedtuple("pair", "x y")
        dataset = Dataset.from_tensor_slices(
            {"a": [1, 2, 3], "p": pair(["u", "v", "w"], [[1.0]] * 3)}
        )
        path = str(tmp_path / "d")
        dataset.save(path, compression=compression)
        loaded = Dataset.load(path, compression=compression)
        assert loaded.element_spec == dataset.element_spec and len(loaded) == 3
        for a, b in zip(loaded.as_numpy_iterator(), dataset.as_numpy_iterator(), strict=False):
            assert a["a"] == b["a"] and a["p"].x == b["p"].x and a["p"].y.tolist() == [1]

    def test_in_shards(self, tmp_path):
        path = str(tmp_path / "d")
        tf.data.experimental.save(Dataset.range(6), path, shard_func=lambda x: x // 3)
        assert values(tf.data.experimental.load(path)) == [0, 3, 1, 4, 2, 5]
        in_turn = tf.data.experimental.load(path, reader_func=lambda d: d.flat_map(lambda x: x))
        assert values(in_turn) == list(range(6))

    def test_written_by_functions(self, tmp_path):
        path = str(tmp_path / "d")
        tf.function(lambda: Dataset.range(4).save(path))()
        assert values(Dataset.load(path)) == [0, 1, 2, 3]

    def test_that_are_damaged(self, tmp_path):
        path = tmp_path / "d"
        with pytest.raises(tf.errors.NotFoundError, match="no dataset was saved"):
            Dataset.load(str(path))
        Dataset.range(4).save(str(path))
        spec = path / "dataset_spec.pb"
        whole = spec.read_bytes()
        for damaged in (b"\xff\xff", b"", whole[:-2]):
            spec.write_bytes(damaged)
            with pytest.raises(tf.errors.DataLossError, match="dataset_spec.pb"):
                Dataset.load(str(path))
        spec.write_bytes(whole)
        (path / "00000000.records").write_bytes(b"\x01" * 40)
        with pytest.raises(tf.errors.DataLossError):
            values(Dataset.load(str(path)))


class TestCompressedTables:
    def test_columns_are_read(self, tmp_path):
        (tmp_path / "t.gz").write_bytes(gzip.compress(b"a,b\n1,x\n2,y\n"))
        dataset = tf.data.experimental.make_csv_dataset(
            str(tmp_path / "t.gz"), 2, shuffle=False, num_epochs=1, compression_type="GZIP"
        )
        (batch,) = dataset
        assert batch["a"].numpy().tolist() == [1, 2] and batch["b"].numpy().tolist() == [b"x", b"y"]
        with pytest.raises(ValueError, match="ZLIB is not supported"):
            tf.data.experimental.make_csv_dataset(
                str(tmp_path / "t.gz"), 2, compression_type="ZLIB"
            )
