"""Parts of `tf.contrib` that stand alone: k-means, texts as numbers."""

import numpy as np
import pytest

import millrace.compat.v1 as tf

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
