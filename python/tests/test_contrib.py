"""Parts of `tf.contrib` that stand alone: k-means, texts as numbers."""

import numpy as np
import pytest

import millrace.compat.v1 as tf
from millrace.core import logging

POINTS = np.random.RandomState(0).normal(0, 0.1, (60, 2)).astype(np.float32)
POINTS += np.repeat([[5, 0], [0, 5], [-5, -5]], 20, axis=0).astype(np.float32)


@pytest.mark.parametrize("metric", ["squared_euclidean", "cosine"])
@pytest.mark.parametrize("mini_batch, steps", [(False, 1), (True, 1), (True, 3)])
def test_kmeans_finds_the_clusters(metric, mini_batch, steps):
    with tf.Graph().as_default(), tf.Session() as session:
        points = tf.placeholder(tf.float32, [None, 2])
        kmeans = tf.contrib.factorization.KMeans(
            points, 3, initial_clusters=POINTS[[0, 20, 40]] + 1, distance_metric=metric,
            use_mini_batch=mini_batch, mini_batch_steps_per_iteration=steps,
        )  # fmt: skip
        scores, clusters, score, chosen, centers, init, train = kmeans.training_graph()
        session.run(tf.global_variables_initializer())
        assert not session.run(chosen)
        session.run(init, {points: POINTS})
        for _ in range(9):
            session.run(train, {points: POINTS})
        trained = session.run(centers)
        session.run(init, {points: POINTS})  # chosen already
        assert session.run(chosen) and (session.run(centers) == trained).all()
        all_scores, ids, nearest = session.run([scores[0], clusters[0], score[0]], {points: POINTS})
        assert (ids == np.repeat([0, 1, 2], 20)).all()
        np.testing.assert_allclose(all_scores.min(1), nearest)
        assert nearest.max() < 0.3


@pytest.mark.parametrize("init", ["random", "kmeans_plus_plus"])
def test_kmeans_chooses_among_the_points(init):
    with tf.Graph().as_default(), tf.Session() as session:
        *_, centers, init_op, _ = tf.contrib.factorization.KMeans(
            POINTS, 3, initial_clusters=init, random_seed=3
        ).training_graph()
        session.run(tf.global_variables_initializer())
        session.run(init_op)
        found = session.run(centers)
        near = np.abs(found[:, None] - POINTS[None]).max(-1).argmin(1)
        np.testing.assert_allclose(found, POINTS[near])
        if init == "kmeans_plus_plus":
            assert sorted(near // 20) == [0, 1, 2]


def test_kmeans_says_what_is_wrong():
    with pytest.raises(ValueError, match="squared_euclidean"):
        tf.contrib.factorization.KMeans(POINTS, 3, distance_metric="taxi")
    with tf.Graph().as_default(), tf.Session() as session:
        points = tf.placeholder(tf.float32, [None, 2])
        *_, init_op, _ = tf.contrib.factorization.KMeans(points, 3).training_graph()
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="fewer points than clusters"):
            session.run(init_op, {points: POINTS[:2]})


def test_a_vocabulary_is_learnt_saved_and_restored(tmp_path):
    texts = ["a red fox", "a dog", "the red dog sleeps"]
    words = tf.contrib.learn.preprocessing.VocabularyProcessor(3)
    assert np.array(list(words.fit_transform(texts))).tolist() == [[1, 2, 3], [1, 4, 0], [5, 2, 4]]
    assert len(words.vocabulary_) == 7
    words.save(str(tmp_path / "vocab"))
    again = tf.contrib.learn.preprocessing.VocabularyProcessor.restore(str(tmp_path / "vocab"))
    rows = list(again.transform(["the cat"]))
    assert rows[0].tolist() == [5, 0, 0] and list(again.reverse(rows)) == ["the <UNK> <UNK>"]
    (tmp_path / "other").write_text("[1]")
    with pytest.raises(ValueError, match="is no saved VocabularyProcessor"):
        tf.contrib.learn.preprocessing.VocabularyProcessor.restore(str(tmp_path / "other"))


def test_rare_words_are_dropped():
    words = tf.contrib.learn.preprocessing.VocabularyProcessor(4, min_frequency=1)
    assert [row.tolist() for row in words.fit_transform(["b a b", "a c b"])] == [
        [1, 2, 1, 0],
        [2, 0, 1, 0],
    ]


def test_bytes_of_texts():
    processor = tf.contrib.learn.preprocessing.ByteProcessor(4)
    rows = list(processor.fit(None).transform(["hé", b"longer"]))
    assert [row.tolist() for row in rows] == [[104, 195, 169, 0], [108, 111, 110, 103]]
    assert list(processor.reverse(rows)) == ["hé", "long"]


def test_assertions_evaluate_tensors():
    case = tf.test.TestCase()
    with tf.Graph().as_default(), case.test_session():
        case.assertAllEqual(tf.square([2, 3]), [4, 9])
        case.assertAllClose([1.0], tf.ones([1]))
        with pytest.raises(AssertionError):
            case.assertAllEqual(tf.square([2, 3]), [4, 8])


def write_examples(path, count):
    with tf.Graph().as_default(), tf.Session() as session:
        pictures = tf.placeholder(tf.uint8, [2, 3, 3])
        png, jpeg = tf.image.encode_png(pictures), tf.image.encode_jpeg(pictures)
        with tf.python_io.TFRecordWriter(path) as writer:
            for i in range(count):
                image = np.full([2, 3, 3], i, np.uint8)
                kind = [b"png", b"jpeg", b"RAW"][i % 3]
                data = session.run([png, jpeg], {pictures: image})
                features = {
                    "image/encoded": [[*data, image.tobytes()][i % 3]], "image/format": [kind],
                    "label": [i], "box/ymin": [0.1, 0.2], "box/xmin": [0.3, 0.4],
                    "box/ymax": [0.5, 0.6], "box/xmax": [0.7, 0.8], "pair": [1.0, 2.0], "size": [2],
                }  # fmt: skip
                example = tf.train.Example()
                for name, values in features.items():
                    kinds = {bytes: "bytes_list", int: "int64_list", float: "float_list"}
                    feature = example.features.feature[name]
                    getattr(feature, kinds[type(values[0])]).value.extend(values)
                writer.write(example.SerializeToString())


def test_slim_reads_decodes_trains_and_evaluates(tmp_path):
    slim = tf.contrib.slim
    decode = slim.tfexample_decoder
    write_examples(str(tmp_path / "data-0"), 6)
    floats, text = tf.VarLenFeature(tf.float32), tf.FixedLenFeature([], tf.string)
    decoder = decode.TFExampleDecoder(
        {"image/encoded": text, "image/format": text, "label": tf.FixedLenFeature([1], tf.int64),
         "size": tf.VarLenFeature(tf.int64), "pair": floats,
         **{"box/" + side: floats for side in ("ymin", "xmin", "ymax", "xmax")}},
        {"image": decode.Image(shape=[2, 3, 3]), "label": decode.Tensor("label", shape=[]),
         "pair": decode.Tensor("pair", shape_keys="size"),
         "boxes": decode.BoundingBox(prefix="box/"),
         "twice": decode.ItemHandlerCallback(["label"], lambda t: t["label"] * 2)},
    )  # fmt: skip
    dataset = slim.dataset.Dataset(
        str(tmp_path / "data-*"), tf.TFRecordReader, decoder, 6, {"image": "a picture"}, classes=6
    )
    assert dataset.classes == 6
    logdir = str(tmp_path / "logs")
    with tf.Graph().as_default():
        provider = slim.dataset_data_provider.DatasetDataProvider(dataset, shuffle=False)
        items = ["image", "label", "pair", "boxes", "twice"]
        image, label, pair, boxes, twice = tensors = provider.get(items)
        seen = []

        def step(session, train_op, global_step, kwargs):
            seen.append(session.run(tensors))
            return slim.learning.train_step(session, train_op, global_step, kwargs)

        features = tf.cast(tf.reshape(image, [1, 18]), tf.float32) / 10
        out = slim.fully_connected(features, 1, activation_fn=None, scope="out")
        loss = tf.reduce_mean(tf.square(out - tf.cast(label, tf.float32) / 10))
        tf.losses.add_loss(loss)
        train = slim.learning.create_train_op(loss, tf.train.GradientDescentOptimizer(0.01))
        last = slim.learning.train(train, logdir, step, number_of_steps=4, log_every_n_steps=2)
        assert np.isfinite(last)
        sizes = slim.model_analyzer.analyze_vars(tf.trainable_variables())
        assert sizes == (19, 76)
    numbers = [int(each[1]) for each in seen]
    assert len(numbers) == 4 and [int(each[4][0]) for each in seen] == [2 * n for n in numbers]
    for picture, number, values, found, _ in seen:
        assert (picture == number).all() and values.tolist() == [1, 2]
        np.testing.assert_allclose(found, [[0.1, 0.3, 0.5, 0.7], [0.2, 0.4, 0.6, 0.8]])
    checkpoint = tf.train.latest_checkpoint(logdir)
    assert checkpoint.endswith("-4")
    with tf.Graph().as_default():
        tf.get_variable("out/weights", [18, 1])
        mean, update = tf.metrics.mean(tf.ones([3]) * 2)
        tf.summary.scalar("mean", mean)
        value = slim.evaluation.evaluate_once(
            "", checkpoint, logdir, 3, eval_op=update, final_op=mean
        )
        assert value == 2.0


def test_slim_says_what_is_wrong(tmp_path):
    slim = tf.contrib.slim
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match="No data files found"):
            slim.parallel_reader.parallel_read(str(tmp_path / "x*"), tf.TFRecordReader)
        with pytest.raises(ValueError, match="4 keys"):
            slim.tfexample_decoder.BoundingBox(["a"])
        with pytest.raises(ValueError, match="number_of_steps"):
            slim.learning.train(tf.constant(1.0), None, number_of_steps=0)
        with pytest.raises(tf.errors.UnimplementedError, match="trace_every_n_steps"):
            slim.learning.train(tf.constant(1.0), str(tmp_path), trace_every_n_steps=3)


def test_what_is_deprecated_warns_once(monkeypatch):
    framework, told = tf.contrib.framework, []
    monkeypatch.setattr(logging, "warning", lambda text, *args: told.append(text % args))

    @framework.deprecated("2017-01-31", "Use new().")
    def old(x):
        """Adds one."""
        return x + 1

    assert (old(1), old(2), old.__doc__) == (2, 3, "Adds one.")
    assert len(told) == 1 and "will be removed after 2017-01-31" in told[0] and "new()" in told[0]

    @framework.deprecated_args(None, "Leave it.", "b", ("c", 0))
    def with_arguments(a, b=1, c=0):
        return a + b + c

    assert with_arguments(1) == 2 and with_arguments(1, c=0) == 2 and len(told) == 1
    assert with_arguments(1, 2) == 3 and "['b'] of" in told[1]
    assert with_arguments(1, c=5) == 7 and "['c'] of" in told[2] and len(told) == 3

    @framework.deprecated_arg_values(None, "Say new.", mode="old")
    def with_values(mode="new"):
        return mode

    assert with_values() == "new" and with_values("old") == "old" and len(told) == 4
    with pytest.raises(ValueError, match="no arguments nothing"):
        framework.deprecated_args(None, "x", "nothing")(old)
