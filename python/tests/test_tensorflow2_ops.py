"""Functions of TensorFlow 2's face: values as TensorFlow 2.15 gives them, or as NumPy and SciPy."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.fft
import scipy.linalg
import scipy.special

import millrace as tf
from millrace import _core
from millrace.core.tensor import label_of


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


def floats(*shape, seed=0):
    return np.random.RandomState(seed).rand(*shape)


# ---- The face itself.


def test_a_name_loads_what_it_needs_alone():
    script = (
        "import sys, millrace as tf; tf.argmax([1, 2]);"
        "print('millrace.ops.nn.conv' in sys.modules, 'millrace.ops.image.boxes' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]


def test_tensors_with_values_have_labels():
    assert label_of(tf.ones([2, 3])) == "shape=(2, 3) dtype=float32"
    with tf.Graph().as_default():
        assert label_of(tf.compat.v1.placeholder(tf.float32, name="x")) == "x:0"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: tf.debugging.assert_equal([1, 2], [1, 3]), tf.errors.InvalidArgumentError),
        (lambda: tf.debugging.assert_positive([-1]), tf.errors.InvalidArgumentError),
        (lambda: tf.boolean_mask([[1, 2]], [True, False]), ValueError),
        (lambda: tf.complex(tf.ones([2]), tf.ones([2], tf.float64)), TypeError),
        (lambda: tf.truediv(tf.ones([2]), tf.ones([2], tf.float64)), TypeError),
        (lambda: tf.math.conj("x"), TypeError),
        (lambda: tf.norm(tf.ones([2]), ord="no"), ValueError),
        (lambda: tf.nn.dropout(tf.constant([1]), 0.5), ValueError),
    ],
)
def test_messages_need_no_name(call, error):
    with pytest.raises(error):
        call()


# ---- Control flow that runs at once.


def test_loops_and_branches_run_at_once():
    assert int(tf.while_loop(lambda i: i < 5, lambda i: (i + 1,), (tf.constant(0),))[0]) == 5
    limited = tf.while_loop(
        lambda i, x: True, lambda i, x: (i + 1, 2 * x), (0, 1), maximum_iterations=3
    )
    assert [int(v) for v in limited] == [3, 8]
    assert int(tf.cond(tf.constant(False), lambda: 1, lambda: 2)) == 2
    assert int(tf.switch_case(tf.constant(1), [lambda: 4, lambda: 5])) == 5
    assert int(tf.case([(tf.constant(False), lambda: 1)], default=lambda: 3)) == 3
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.case([(tf.constant(False), lambda: 1)])
    with pytest.raises(tf.errors.InvalidArgumentError, match="exclusive"):
        tf.case([(tf.constant(True), lambda: 1)] * 2, exclusive=True)
    assert tf.map_fn(lambda x: 2 * x, tf.constant([1, 2])).numpy().tolist() == [2, 4]


def test_arrays_of_values():
    array = tf.TensorArray(tf.float32, 2).write(0, 1.0).write(1, 2.0)
    assert array.stack().numpy().tolist() == [1, 2]
    with tf.GradientTape() as tape:
        x = tf.constant(3.0)
        tape.watch(x)
        y = tf.TensorArray(tf.float32, 1).write(0, x * x).stack()
    assert tape.gradient(y, x).numpy() == 6
    with pytest.raises(tf.errors.OutOfRangeError, match="not resizeable"):
        array.write(2, 1.0)
    once = tf.TensorArray(tf.float32, 1).write(0, 1.0)
    once.read(0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="twice"):
        once.read(0)
    grown = tf.TensorArray(tf.int32, 0, dynamic_size=True).write(2, 7)
    assert grown.stack().numpy().tolist() == [0, 0, 7]
    parts = tf.TensorArray(tf.int32, 2).split([1, 2, 3], [1, 2])
    assert parts.read(1).numpy().tolist() == [2, 3]


# ---- Random numbers, as TensorFlow's.


def test_stateless_numbers_are_tensorflows():
    seed = [1, 2]
    random = tf.random
    assert random.stateless_uniform([2], seed).numpy().tolist() == [
        0.8440604209899902, 0.19204533100128174,
    ]  # fmt: skip
    assert random.stateless_normal([2], seed).numpy().tolist() == [
        0.544110119342804, 0.20738030970096588,
    ]  # fmt: skip
    ints = random.stateless_uniform([3], seed, minval=0, maxval=100, dtype=tf.int32)
    assert ints.numpy().tolist() == [40, 49, 94]
    full = random.stateless_uniform([2], seed, minval=None, maxval=None, dtype=tf.int64)
    assert full.numpy().tolist() == [7464880146280614444, 1591045637757961278]
    drawn = random.stateless_categorical([[0.1, 0.4, 0.5]], 5, seed)
    assert drawn.numpy().tolist() == [[2, 2, 0, 2, 1]]
    assert random.stateless_gamma([3], seed, alpha=2.0).numpy().tolist() == [
        2.8172736167907715, 1.9241365194320679, 3.3360066413879395,
    ]  # fmt: skip
    assert random.stateless_poisson([4], seed, lam=3.0).numpy().tolist() == [5, 5, 4, 6]
    split = random.experimental.stateless_split(seed, 2)
    assert split.numpy().tolist() == [[1105988140, 1738052849], [-335576002, 370444179]]
    assert random.experimental.stateless_fold_in(seed, 3).numpy().tolist() == [1105988140, 3]
    with pytest.raises(ValueError, match="minval must be a scalar"):
        random.stateless_uniform([2], seed, minval=[0, 0], maxval=9, dtype=tf.int32)


def test_a_generator_goes_on():
    generator = tf.random.Generator.from_seed(1234)
    assert generator.normal([3]).numpy().tolist() == [
        0.9356608986854553, 1.0854305028915405, -0.937883734703064,
    ]  # fmt: skip
    assert generator.uniform([2]).numpy().tolist() == [0.3107341527938843, 0.36818230152130127]
    assert generator.state.numpy().tolist() == [2514, 0, 0]
    assert generator.uniform([2], maxval=10, dtype=tf.int32).numpy().tolist() == [2, 8]
    again = tf.random.Generator.from_state(generator.state.numpy(), "philox")
    assert (again.normal([2]).numpy() == generator.normal([2]).numpy()).all()
    one, other = generator.split(2)
    assert (one.normal([4]).numpy() != other.normal([4]).numpy()).all()
    # The counter carries over to its upper half.
    late = tf.random.Generator.from_key_counter(5, [-1, 0], "philox")
    late.skip(1)
    assert late.state.numpy().tolist() == [255, 1, 5]


# ---- Matrices.


def test_functions_of_matrices():
    a = floats(2, 5, 5) + 2 * np.eye(5)
    assert np.allclose(tf.linalg.expm(a), [scipy.linalg.expm(m) for m in a])
    assert np.allclose(tf.linalg.sqrtm(a), [scipy.linalg.sqrtm(m) for m in a])
    c = a.astype(np.complex128)
    assert np.allclose(tf.linalg.logm(c), [scipy.linalg.logm(m) for m in c])
    turning = np.array([[0.0, -1.0], [1.0, 0.0]])
    e, v = tf.linalg.eig(turning)
    assert np.allclose(turning @ v.numpy(), v.numpy() * e.numpy())
    assert np.isnan(tf.linalg.sqrtm([[1.0, 2.0], [3.0, 4.0]])).all()
    for singular in ([[0.0, 1.0], [0.0, 0.0]], [[np.inf, 0.0], [0.0, 1.0]]):
        try:
            tf.linalg.sqrtm(singular)
        except tf.errors.InvalidArgumentError:
            pass
    wide = floats(5, 3)
    assert np.allclose(tf.linalg.pinv(wide), np.linalg.pinv(wide))
    assert int(tf.linalg.matrix_rank([[1.0, 2.0], [2.0, 4.0]])) == 1


def slopes(function, x):
    """The gradient of sum(function(x)^2 weighted) by the tape, and by differences."""
    x = tf.constant(x)
    weights = tf.constant(floats(*function(x).shape, seed=5))

    def loss(value):
        return tf.reduce_sum(weights * function(value))

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = loss(x)
    by_tape = tape.gradient(y, x).numpy()
    by_steps = np.zeros(x.shape)
    for place in np.ndindex(*x.shape):
        step = np.zeros(x.shape)
        step[place] = 1e-6
        by_steps[place] = (loss(x + step) - loss(x - step)).numpy() / 2e-6
    return by_tape, by_steps


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.linalg.sqrtm(x),
        lambda x: tf.linalg.expm(x),
        lambda x: tf.linalg.tridiagonal_solve(x, tf.ones([3, 2], tf.float64)),
        lambda x: tf.linalg.tridiagonal_matmul(x, tf.ones([3, 2], tf.float64)),
    ],
)
def test_gradients_of_functions_of_matrices(function):
    by_tape, by_steps = slopes(function, floats(3, 3) + 2 * np.eye(3))
    assert np.allclose(by_tape, by_steps, atol=1e-6)


def test_gradient_of_eigenvalues():
    x = tf.constant(floats(3, 3) + np.diag([1.0, 3.0, 6.0]))
    with tf.GradientTape() as tape:
        tape.watch(x)
        e, _ = tf.linalg.eig(x)
        total = tf.reduce_sum(tf.math.real(e))
    assert np.allclose(tape.gradient(total, x), np.eye(3))


# ---- Signals.


def test_transforms_are_scipys():
    x = floats(3, 8)
    for kind in (1, 2, 3, 4):
        assert np.allclose(tf.signal.dct(x, type=kind), scipy.fft.dct(x, type=kind))
    for kind in (2, 3, 4):
        mine = tf.signal.dct(x, type=kind, norm="ortho")
        assert np.allclose(mine, scipy.fft.dct(x, type=kind, norm="ortho"))
        assert np.allclose(tf.signal.idct(mine, type=kind, norm="ortho"), x)
    assert np.allclose(tf.signal.rfft(x, [6]), np.fft.rfft(x, 6))
    assert np.allclose(tf.signal.rfft(x, [11]), np.fft.rfft(x, 11))
    assert np.allclose(tf.signal.irfft(np.fft.rfft(x), [12]), np.fft.irfft(np.fft.rfft(x), 12))
    assert np.allclose(tf.signal.fftshift(x), np.fft.fftshift(x))
    assert np.allclose(tf.signal.ifftshift(x, 1), np.fft.ifftshift(x, 1))


def test_frames():
    x = np.arange(9)
    assert tf.signal.frame(x, 4, 2).numpy().tolist() == [
        [0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7],
    ]  # fmt: skip
    padded = tf.signal.frame(x, 4, 3, pad_end=True, pad_value=-1)
    assert padded.numpy().tolist() == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, -1]]
    assert tf.signal.frame(np.zeros((2, 9, 3)), 4, 2, axis=1).shape == (2, 3, 4, 3)
    added = tf.signal.overlap_and_add(np.ones((2, 3, 4)), 2)
    assert added.numpy().tolist() == [[1, 1, 2, 2, 2, 2, 1, 1]] * 2
    with pytest.raises(ValueError, match="frame_step must be positive"):
        tf.signal.frame(x, 4, 0)


def test_spectra_have_inverses():
    x = floats(256).astype(np.float32)
    spectrum = tf.signal.stft(x, 32, 8)
    assert spectrum.shape == (29, 17)
    back = tf.signal.inverse_stft(
        spectrum, 32, 8, window_fn=tf.signal.inverse_stft_window_fn(8)
    ).numpy()
    assert np.allclose(back[32:-32], x[32:-32], atol=1e-5)
    for norm in (None, "ortho"):
        back = tf.signal.inverse_mdct(tf.signal.mdct(x, 32, norm=norm), norm=norm).numpy()
        assert np.allclose(back[16:-16], x[16 : len(back) - 16], atol=1e-5)
    assert tf.signal.linear_to_mel_weight_matrix(4, 9, 8000).shape == (9, 4)


# ---- Counts.


def test_counts():
    rows = [[3, 1, 1], [0, 1, 9]]
    dense = tf.math.bincount(rows, axis=-1, maxlength=4)
    assert dense.numpy().tolist() == [[0, 2, 0, 1], [1, 1, 0, 0]]
    assert tf.math.bincount(rows).numpy().tolist() == [1, 3, 0, 1, 0, 0, 0, 0, 0, 1]
    once = tf.math.bincount(rows, axis=-1, maxlength=2, binary_output=True)
    assert once.numpy().tolist() == [[0, 1], [1, 1]]
    weighted = tf.sparse.bincount(rows, weights=[[0.5, 1, 2], [3, 4, 5]], axis=-1)
    assert weighted.indices.numpy().tolist() == [[0, 1], [0, 3], [1, 0], [1, 1], [1, 9]]
    assert weighted.values.numpy().tolist() == [3, 0.5, 3, 4, 5]
    sparse = tf.sparse.from_dense([[0, 2, 2], [5, 0, 0]])
    assert tf.math.bincount(sparse, axis=-1).numpy()[:, [2, 5]].tolist() == [[2, 0], [0, 1]]
    ragged = tf.ragged.constant([[1, 1], [], [2]])
    assert tf.math.bincount(ragged, axis=-1).numpy().tolist() == [[0, 2, 0], [0, 0, 0], [0, 0, 1]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="non-negative"):
        tf.math.bincount([[1, -1]], axis=-1)
    with pytest.raises(ValueError, match="mutually exclusive"):
        tf.sparse.bincount(rows, weights=rows, binary_output=True)


def test_patches_of_volumes():
    x = floats(1, 3, 4, 4, 2)
    patches = tf.extract_volume_patches(x, [1, 2, 2, 2, 1], [1, 1, 2, 2, 1], "VALID").numpy()
    assert patches.shape == (1, 2, 2, 2, 16)
    assert np.allclose(patches[0, 1, 1, 0], x[0, 1:3, 2:4, 0:2].reshape(-1))
    by_tape, by_steps = slopes(
        lambda v: tf.extract_volume_patches(v, [1, 2, 2, 2, 1], [1, 1, 2, 2, 1], "SAME"), x
    )
    assert np.allclose(by_tape, by_steps, atol=1e-6)


# ---- Strings and rows of different lengths.


def test_unicode():
    texts = ["héllo", "你好", ""]
    codes = tf.strings.unicode_decode([t.encode() for t in texts], "UTF-8")
    assert codes.to_list() == [[ord(c) for c in t] for t in texts]
    assert [t.decode() for t in tf.strings.unicode_encode(codes, "UTF-8").numpy()] == texts
    for name, codec in (("UTF-16-BE", "utf-16-be"), ("SHIFT-JIS", "shift-jis")):
        made = tf.strings.unicode_decode_with_offsets("日本x".encode(codec), name)
        assert made[0].numpy().tolist() == [ord(c) for c in "日本x"]
        assert made[1].numpy().tolist() == [0, 2, 4]
    damaged = b"a\xe4\xbd\xffb"
    assert tf.strings.unicode_decode(damaged, "UTF-8").numpy().tolist() == [97, 65533, 65533, 98]
    assert tf.strings.unicode_decode(damaged, "UTF-8", "ignore").numpy().tolist() == [97, 98]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid formatting"):
        tf.strings.unicode_decode(damaged, "UTF-8", "strict")
    with pytest.raises(tf.errors.InvalidArgumentError, match="converter"):
        tf.strings.unicode_decode("x", "no such encoding")
    assert tf.strings.unicode_split("a你", "UTF-8").numpy().tolist() == [b"a", "你".encode()]
    moved = tf.strings.unicode_transcode("a你", "UTF-8", "UTF-16-BE")
    assert moved.numpy().decode("utf-16-be") == "a你"
    with pytest.raises(tf.errors.InvalidArgumentError, match="out of range"):
        tf.raw_ops.UnicodeEncode(
            input_values=[0xD800], input_splits=[0, 1], output_encoding="UTF-8", errors="strict"
        )


def test_rows_of_different_lengths():
    rows = tf.ragged.constant([[1, 2], [], [3]])
    assert rows.shape.as_list() == [3, None]
    assert rows.to_tensor(-1).numpy().tolist() == [[1, 2], [-1, -1], [3, -1]]
    assert rows.to_tensor(shape=[2, 1]).numpy().tolist() == [[1], [0]]
    assert rows.to_sparse().indices.numpy().tolist() == [[0, 0], [0, 1], [2, 0]]
    assert tf.RaggedTensor.from_sparse(rows.to_sparse()).to_list() == rows.to_list()
    assert rows.value_rowids().numpy().tolist() == [0, 0, 2]
    assert rows.row_lengths().numpy().tolist() == [2, 0, 1]
    assert rows[0].numpy().tolist() == [1, 2]
    assert rows[1:].to_list() == [[], [3]]
    assert rows[:, -1:].to_list() == [[2], [], [3]]
    nested = tf.ragged.constant([[[1], []], [[2, 3]]])
    assert nested.ragged_rank == 2
    assert nested[1, 0, 1].numpy() == 3
    assert nested.to_tensor().numpy().tolist() == [[[1, 0], [0, 0]], [[2, 3], [0, 0]]]
    assert nested.merge_dims(0, 1).to_list() == [[1], [], [2, 3]]
    ids = tf.RaggedTensor.from_value_rowids([1, 2, 3], [0, 0, 2], nrows=4)
    assert ids.to_list() == [[1, 2], [], [3], []]
    cut = tf.RaggedTensor.from_tensor([[1, 0, 0], [2, 3, 0]], padding=0)
    assert cut.to_list() == [[1], [2, 3]]
    for splits in ([1, 3], [0, 2, 1, 3], [0, 2]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="form a valid"):
            tf.RaggedTensor.from_row_splits([1, 2, 3], splits)
    assert tf.strings.split(["a b", ""]).to_list() == [[b"a", b"b"], []]
    assert tf.strings.bytes_split("abc").numpy().tolist() == [b"a", b"b", b"c"]


def test_rows_of_different_lengths_go_through_branches():
    with tf.Graph().as_default():
        rows = tf.ragged.constant([[1, 2], [3]])
        chosen = tf.compat.v1.placeholder(tf.bool, [])
        out = tf.cond(chosen, lambda: rows, lambda: rows.with_values(rows.values * 2))
        with tf.compat.v1.Session() as session:
            parts = session.run([out.values, out.row_splits], {chosen: False})
    assert [part.tolist() for part in parts] == [[2, 4, 6], [0, 2, 3]]


# ---- Others.


def test_repeat():
    x = [[1, 2], [3, 4]]
    for repeats, axis in (([1, 2], 0), (2, 1), ([0, 3], 1), (0, 0), (3, None)):
        assert tf.repeat(x, repeats, axis).numpy().tolist() == np.repeat(x, repeats, axis).tolist()


def test_labels_of_sequences():
    collapsed, lengths = tf.nn.collapse_repeated([[1, 3, 3, 0], [4, 2, 2, 4]], [3, 4])
    assert collapsed.numpy().tolist() == [[1, 3, 0], [4, 2, 4]]
    assert lengths.numpy().tolist() == [2, 3]
    unique, index = tf.nn.ctc_unique_labels([[3, 4, 4, 3]])
    assert unique.numpy().tolist() == [[3, 4, 0, 0]]
    assert index.numpy().tolist() == [[0, 1, 1, 0]]
    # One frame per label leaves one alignment.
    logits = floats(2, 1, 3).astype(np.float32)
    loss = tf.nn.ctc_loss([[1, 2]], logits, [2], [2])
    scores = scipy.special.log_softmax(logits, -1)
    assert np.allclose(loss, [-(scores[0, 0, 1] + scores[1, 0, 2])])


def test_devices():
    cpus = tf.config.list_physical_devices("CPU")
    assert [d.device_type for d in cpus] == ["CPU"]
    assert tf.config.list_logical_devices()[0].name == "/device:CPU:0"
    with pytest.raises(RuntimeError, match="after initialization"):
        tf.config.threading.set_intra_op_parallelism_threads(3)
    with pytest.raises(ValueError, match="Unrecognized device"):
        tf.config.set_visible_devices(["nothing"])


def test_threads_are_set_before_anything_runs():
    script = (
        "import millrace as tf\n"
        "tf.config.threading.set_intra_op_parallelism_threads(1)\n"
        "cpu = tf.config.list_physical_devices('CPU')[0]\n"
        "two = [tf.config.LogicalDeviceConfiguration()] * 2\n"
        "tf.config.set_logical_device_configuration(cpu, two)\n"
        "print(len(tf.config.list_logical_devices('CPU')))\n"
        "print(tf.config.threading.get_intra_op_parallelism_threads(), tf.constant(1).numpy())\n"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["2", "1", "1"]
