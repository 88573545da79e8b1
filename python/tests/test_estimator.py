"""Estimators: training, evaluation, prediction, export; heads, canned models and contrib.learn."""

import inspect
import json
import os
import signal

import numpy as np
import pytest
from tensorflow_twin import needs_tensorflow, run_tensorflow

import millrace.compat.v1 as tf

estimator = tf.estimator
column = tf.feature_column
ROWS = np.arange(20, dtype=np.float32).reshape(10, 2) / 10
SUMS = (ROWS @ [[1.0], [-2.0]]).astype(np.float32)


@pytest.fixture(autouse=True)
def clean():
    with tf.Graph().as_default():
        yield
    tf.summary.FileWriterCache.clear()


def batches(x, y=None, size=4, epochs=1, shuffle=False):
    return estimator.inputs.numpy_input_fn(x, y, size, epochs, shuffle)


def model_fn(features, labels, mode, params):
    """A linear model by hand."""
    w = tf.get_variable("w", [2, 1], initializer=tf.zeros_initializer())
    out = tf.matmul(features["x"], w)
    if mode == estimator.ModeKeys.PREDICT:
        return estimator.EstimatorSpec(mode, predictions={"out": out})
    loss = tf.losses.mean_squared_error(labels, out)
    train = tf.train.AdamOptimizer(params["rate"]).minimize(loss, tf.train.get_global_step())
    metrics = {"mae": tf.metrics.mean_absolute_error(labels, out)}
    return estimator.EstimatorSpec(mode, loss=loss, train_op=train, eval_metric_ops=metrics)


def linear(folder, **kwargs):
    config = estimator.RunConfig(save_checkpoints_steps=10, tf_random_seed=1)
    return estimator.Estimator(model_fn, str(folder), config, {"rate": 0.05}, **kwargs)


FOREVER = batches({"x": ROWS}, SUMS, epochs=None)
ONCE = batches({"x": ROWS}, SUMS)


def test_train_evaluate_predict(tmp_path):
    model = linear(tmp_path)
    model.train(FOREVER, steps=25)
    model.train(FOREVER, max_steps=40)
    model.train(FOREVER, max_steps=40)  # is there already
    found = model.evaluate(ONCE)
    # As TensorFlow 2.15 gives them.
    assert found["global_step"] == 40
    assert found["loss"] == pytest.approx(0.00917, abs=1e-5)
    assert found["mae"] == pytest.approx(0.09713, abs=1e-5)
    out = [row["out"][0] for row in model.predict(ONCE)]
    np.testing.assert_allclose(out, ROWS @ model.get_variable_value("w")[:, 0], rtol=1e-5)
    assert next(model.predict(ONCE, yield_single_examples=False))["out"].shape == (4, 1)
    assert {"w", "w/Adam", "global_step"} <= set(model.get_variable_names())
    assert model.latest_checkpoint().endswith("model.ckpt-40")
    tf.summary.FileWriterCache.clear()
    (path,) = (tmp_path / "eval").glob("events.*")
    written = [e for e in tf.train.summary_iterator(str(path)) if e.step == 40]
    assert {v.tag for event in written for v in event.summary.value} == {"loss", "mae"}


def test_train_and_evaluate_and_export(tmp_path):
    model = linear(tmp_path)
    receive = estimator.export.build_raw_serving_input_receiver_fn(
        {"x": tf.placeholder(tf.float32, [None, 2])}
    )
    metrics, (path,) = estimator.train_and_evaluate(
        model,
        estimator.TrainSpec(FOREVER, max_steps=20),
        estimator.EvalSpec(
            ONCE, throttle_secs=0, exporters=estimator.FinalExporter("final", receive)
        ),
    )
    assert metrics["global_step"] == 20
    with tf.Session(graph=tf.Graph()) as sess:
        loaded = tf.saved_model.load(sess, ["serve"], path)
        signature = loaded.signature_def["serving_default"]
        fed = {signature.inputs["x"].name: ROWS}
        out = sess.run(signature.outputs["out"].name, fed)
    np.testing.assert_allclose(out, ROWS @ model.get_variable_value("w"), rtol=1e-5)


def test_an_evaluator_passes_over_what_is_deleted(monkeypatch, tmp_path):
    """A fast training keeps no checkpoint for as long as an evaluation takes."""
    newest = linear(tmp_path).train(FOREVER, max_steps=20).latest_checkpoint()
    task = {"cluster": {"chief": ["h0:1"]}, "task": {"type": "evaluator", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(task))
    specs = estimator.TrainSpec(FOREVER, max_steps=20), estimator.EvalSpec(ONCE, start_delay_secs=0)
    model, gone = linear(tmp_path), str(tmp_path / "gone")
    looks = iter([gone, newest, newest])
    monkeypatch.setattr(model, "latest_checkpoint", lambda: next(looks))
    estimator.train_and_evaluate(model, *specs)
    assert not list(looks) and (tmp_path / "eval").exists()
    monkeypatch.setattr(model, "latest_checkpoint", lambda: gone)
    with pytest.raises(tf.errors.NotFoundError, match="gone"):  # and nothing came after it
        estimator.train_and_evaluate(model, *specs)


def test_sigterm_leaves_the_evaluation_out(tmp_path):
    class Terminate(tf.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit):
        estimator.train_and_evaluate(
            linear(tmp_path),
            estimator.TrainSpec(FOREVER, max_steps=20, hooks=[Terminate()]),
            estimator.EvalSpec(ONCE),
        )
    assert linear(tmp_path).get_variable_value("global_step") == 1
    assert not (tmp_path / "eval").exists()


def test_warm_start(tmp_path):
    first = linear(tmp_path / "first").train(FOREVER, steps=20)
    second = linear(tmp_path / "second", warm_start_from=str(tmp_path / "first"))
    second.train(FOREVER, steps=1)
    before, after = first.get_variable_value("w"), second.get_variable_value("w")
    assert second.get_variable_value("global_step") == 1
    assert 0 < np.abs(after - before).max() < 0.06


def test_datasets_are_input(tmp_path):
    def input_fn():
        return tf.data.Dataset.from_tensor_slices(({"x": ROWS}, SUMS)).repeat().batch(4)

    by_dataset, by_arrays = linear(tmp_path / "dataset"), linear(tmp_path / "arrays")
    by_dataset.train(input_fn, steps=5)
    by_arrays.train(FOREVER, steps=5)
    assert (by_dataset.get_variable_value("w") == by_arrays.get_variable_value("w")).all()


def test_arrays_come_in_batches_across_epochs():
    features = batches({"x": np.arange(5)}, size=2, epochs=2)()
    seen = []
    with tf.Session() as sess, pytest.raises(tf.errors.OutOfRangeError):
        while True:
            seen.append(sess.run(features["x"]).tolist())
    assert seen == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]
    tf.set_random_seed(3)
    drawn = batches(np.arange(6), size=6, shuffle=True)()
    with tf.Session() as sess:
        assert sorted(sess.run(drawn)) == list(range(6))


# Canned models.


def people():
    draw = np.random.RandomState(0)
    x = draw.randn(60, 3).astype(np.float32)
    kind = draw.choice(["a", "b", "c"], 60).astype(object)
    return {"x": x, "kind": kind, "weight": draw.rand(60).astype(np.float32)}


def columns():
    kinds = column.categorical_column_with_vocabulary_list("kind", ["a", "b", "c"])
    return [column.numeric_column("x", shape=3), kinds]


def dense_columns():
    x, kinds = columns()
    return [x, column.indicator_column(kinds)]


def trained(model, features, labels):
    """The metrics and the first prediction after six steps."""
    model.train(batches(features, labels, 20, None), steps=6)
    found = model.evaluate(batches(features, labels, 20))
    return found, next(model.predict(batches(features, labels, 20)))


def test_linear_classifier_is_tensorflows(tmp_path):
    features = people()
    labels = (features["x"][:, 0] + (features["kind"] == "a") > 0).astype(np.int64)
    model = estimator.LinearClassifier(columns(), str(tmp_path))
    found, first = trained(model, features, labels)
    # TensorFlow 2.15's, for the same program.
    expected = {
        "accuracy": 0.8, "accuracy_baseline": 0.6833, "auc": 0.9936, "average_loss": 0.4322,
        "global_step": 6, "label/mean": 0.6833, "loss": 8.6434, "precision": 0.7736,
        "prediction/mean": 0.6771, "recall": 1.0,
    }  # fmt: skip
    assert {key: pytest.approx(found[key], abs=1e-4) for key in expected} == expected
    assert found["auc_precision_recall"] == pytest.approx(0.9972, abs=2e-4)
    assert set(first) == {"logits", "logistic", "probabilities", "class_ids", "classes"}
    assert {"linear/linear_model/kind/weights", "linear/linear_model/bias_weights"} <= set(
        model.get_variable_names()
    )


def test_more_classes_weights_and_names(tmp_path):
    features = people()
    labels = np.argmax(features["x"], 1)
    model = estimator.LinearClassifier(
        columns(), str(tmp_path / "three"), n_classes=3, weight_column="weight", optimizer="Adam"
    )
    found, first = trained(model, features, labels)
    assert set(found) == {"accuracy", "average_loss", "loss", "global_step"}
    assert first["probabilities"].shape == (3,)
    names = np.array(["no", "yes"], object)[labels % 2]
    model = estimator.LinearClassifier(
        columns(), str(tmp_path / "names"), label_vocabulary=["no", "yes"], optimizer="SGD"
    )
    found, first = trained(model, features, names)
    assert first["classes"][0] in (b"no", b"yes")


def test_networks_and_baselines(tmp_path):
    features = people()
    classes = np.argmax(features["x"], 1)
    sums = (features["x"] @ [1.0, 2.0, 3.0]).astype(np.float32)
    network = estimator.DNNClassifier(
        [8], dense_columns(), str(tmp_path / "dnn"), 3, dropout=0.1, batch_norm=True
    )
    found, first = trained(network, features, classes)
    assert found["global_step"] == 6 and first["probabilities"].sum() == pytest.approx(1.0)
    assert "dnn/hiddenlayer_0/batchnorm_0/moving_mean" in network.get_variable_names()
    wide = estimator.DNNLinearCombinedRegressor(
        str(tmp_path / "wide"), columns(), dnn_feature_columns=dense_columns(),
        dnn_hidden_units=[8], linear_optimizer="Adam",
    )  # fmt: skip
    found, first = trained(wide, features, sums)
    assert found["global_step"] == 6 and first["predictions"].shape == (1,)
    base = estimator.BaselineRegressor(str(tmp_path / "base"))
    base.train(batches(features, sums, 60, None), steps=100)
    assert base.get_variable_value("baseline/bias")[0] == pytest.approx(sums.mean(), abs=0.2)


def model(tf, kind, folder):
    estimator, columns = tf.estimator, [tf.feature_column.numeric_column("x", shape=2)]
    if kind == "linear":
        return estimator.LinearRegressor(columns, folder)
    if kind == "dnn":
        return estimator.DNNRegressor([3], columns, folder, optimizer="Adam", batch_norm=True)
    return estimator.DNNLinearCombinedRegressor(
        folder, linear_feature_columns=columns, dnn_feature_columns=columns, dnn_hidden_units=[3]
    )


def train(tf, kind, folder):
    x = {"x": np.arange(20, dtype=np.float32).reshape(10, 2) / 10}
    rows = tf.estimator.inputs.numpy_input_fn(x, x["x"][:, :1], 4, None, False)
    made = model(tf, kind, folder).train(rows, steps=2)
    return made.get_variable_value("global_step"), sorted(made.get_variable_names())


@pytest.mark.parametrize(
    ("kind", "slots"),
    [
        ("linear", ["linear/linear_model/x/weights/part_0/Ftrl"]),
        ("dnn", ["dnn/head/beta1_power", "dnn/hiddenlayer_0/kernel/t_0/Adam_1"]),
        ("both", ["dnn/logits/bias/Adagrad", "linear/linear_model/bias_weights/Ftrl_1"]),
    ],
)
def test_slots_have_the_names_of_tensorflow(tmp_path, kind, slots):
    assert set(slots) <= set(train(tf, kind, str(tmp_path))[1])


@needs_tensorflow
def test_training_goes_on_in_tensorflow_and_back(tmp_path):
    program = inspect.getsource(model) + inspect.getsource(train) + "print(train(tf, *args))"
    for kind in ("linear", "dnn", "both"):
        folder = str(tmp_path / kind)
        _, names = train(tf, kind, folder)
        told = run_tensorflow(program, kind, folder)
        assert told.strip() == str((4, names))
        assert train(tf, kind, folder) == (6, names)


def test_classifier_serves_examples(tmp_path):
    features = people()
    words = tmp_path / "kinds.txt"
    words.write_text("a\nb\nc\n")
    used = [
        column.numeric_column("x", shape=3),
        column.categorical_column_with_vocabulary_file("kind", str(words)),
    ]
    model = estimator.LinearClassifier(used, str(tmp_path / "model"))
    model.train(batches(features, np.zeros(60, np.int64), 20, None), steps=1)
    receive = estimator.export.build_parsing_serving_input_receiver_fn(
        column.make_parse_example_spec(used)
    )
    path = model.export_saved_model(str(tmp_path / "export"), receive)
    words.unlink()  # the model has its own
    example = tf.train.Example()
    example.features.feature["x"].float_list.value.extend([1.0, 2.0, 3.0])
    example.features.feature["kind"].bytes_list.value.append(b"a")
    with tf.Session(graph=tf.Graph()) as sess:
        loaded = tf.saved_model.load(sess, ["serve"], path)
        assert set(loaded.signature_def) == {
            "serving_default", "classification", "regression", "predict",
        }  # fmt: skip
        signature = loaded.signature_def["serving_default"]
        scores = sess.run(
            signature.outputs["scores"].name,
            {signature.inputs["inputs"].name: [example.SerializeToString()]},
        )
    assert scores.shape == (1, 2) and scores[0, 0] > 0.5


# contrib.learn.


def test_learn_takes_arrays(tmp_path):
    learn, layers = tf.contrib.learn, tf.contrib.layers
    x = people()["x"]
    classes = np.argmax(x, 1)
    model = learn.DNNClassifier(
        [16], learn.infer_real_valued_columns_from_input(x), str(tmp_path / "dnn"), n_classes=3
    )
    model.fit(x, classes, steps=100)
    assert model.evaluate(x, classes)["accuracy"] > 0.8
    assert np.mean(list(model.predict(x)) == classes) > 0.8
    assert model.predict_proba(x, as_iterable=False).shape == (60, 3)

    def by_hand(features, targets):
        hot = tf.one_hot(targets, 3)
        logits = layers.fully_connected(features, 3, activation_fn=None)
        loss = tf.losses.softmax_cross_entropy(hot, logits)
        step = tf.contrib.framework.get_global_step()
        return {"class": tf.argmax(logits, 1)}, loss, layers.optimize_loss(loss, step, 0.5, "SGD")

    model = learn.Estimator(by_hand, str(tmp_path / "hand")).fit(x, classes, steps=50)
    assert np.mean([row["class"] for row in model.predict(x)] == classes) > 0.8
    accuracy = learn.MetricSpec(tf.metrics.accuracy, "class")
    assert model.evaluate(x, classes, metrics={"accuracy": accuracy})["accuracy"] > 0.8


def test_learn_reads_csv(tmp_path):
    base = tf.contrib.learn.datasets.base
    path = tmp_path / "iris.csv"
    path.write_text("2,3,setosa,other\n1,2,3,0\n4,5,6,1\n")
    found = base.load_csv_with_header(str(path), int, float)
    assert found.data.tolist() == [[1, 2, 3], [4, 5, 6]] and found.target.tolist() == [0, 1]
    path.write_text("0,1.5\n1,2.5\n")
    assert base.load_csv_without_header(str(path), int, float, 0).data.tolist() == [[1.5], [2.5]]
    path.write_text("9,1\n0,1\n")
    with pytest.raises(ValueError, match="9 rows"):
        base.load_csv_with_header(str(path), int, float)


# Mistakes.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: estimator.Estimator(lambda x: None), "must include features"),
        (lambda: estimator.Estimator(lambda features, z: None), "not expected args"),
        (lambda: estimator.Estimator(lambda features: None, params={"a": 1}), "params"),
        (lambda: estimator.RunConfig(save_checkpoints_steps=1, save_checkpoints_secs=1), "both"),
        (lambda: estimator.RunConfig().replace(master="a"), "Replacing master"),
        (lambda: estimator.EstimatorSpec("train", loss=tf.constant(1.0)), "Missing train_op"),
        (lambda: estimator.EstimatorSpec("eval"), "Missing loss"),
        (lambda: estimator.EstimatorSpec("infer"), "Missing predictions"),
        (lambda: estimator.EstimatorSpec("eval", loss=tf.constant([1.0, 2.0])), "scalar"),
        (lambda: estimator.inputs.numpy_input_fn({"x": ROWS}), "shuffle must be provided"),
        (lambda: batches({"x": ROWS}, SUMS[:3])(), "mismatched"),
        (lambda: linear("x").train(FOREVER, steps=0), "steps > 0"),
        (lambda: linear("x").train(FOREVER, steps=1, max_steps=2), "both"),
        (lambda: linear("x").get_variable_names(), "Could not find trained model"),
        (lambda: estimator.LinearClassifier(columns(), n_classes=1), "n_classes"),
        (lambda: estimator.DNNLinearCombinedClassifier(), "must be defined"),
        (lambda: estimator.TrainSpec(FOREVER, max_steps=0), "max_steps > 0"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_wrong_types_of_specs():
    with pytest.raises(TypeError, match="must be Tensor"):
        estimator.EstimatorSpec("infer", predictions={"a": 1})
    loss = tf.constant(1.0)
    with pytest.raises(TypeError, match="tuples"):
        estimator.EstimatorSpec("eval", loss=loss, eval_metric_ops={"a": loss})
    with pytest.raises(TypeError, match="ExportOutput"):
        estimator.EstimatorSpec("infer", predictions=loss, export_outputs={"a": loss})
    with pytest.raises(TypeError, match="SessionRunHook"):
        estimator.EstimatorSpec("eval", loss=loss, evaluation_hooks=[1])
