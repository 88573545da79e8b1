"""Recurrent cells and networks against NumPy."""

import json
import textwrap

import numpy as np
import pytest
from tensorflow_twin import needs_tensorflow, run_tensorflow

import millrace.compat.v1 as tf

rng = np.random.default_rng(7)
X = rng.normal(size=(3, 5, 4)).astype(np.float32)
LENGTHS = [5, 3, 0]


@pytest.fixture
def sess():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, lengths, kernel, bias):
    units = bias.size // 4
    c, h = np.zeros((len(x), units)), np.zeros((len(x), units))
    out = np.zeros((*x.shape[:2], units))
    for t in range(x.shape[1]):
        i, j, f, o = np.split(np.concatenate([x[:, t], h], 1) @ kernel + bias, 4, 1)
        new_c = c * sigmoid(f + 1) + sigmoid(i) * np.tanh(j)
        new_h = np.tanh(new_c) * sigmoid(o)
        live = (t < np.array(lengths))[:, None]
        c, h = np.where(live, new_c, c), np.where(live, new_h, h)
        out[:, t] = np.where(live, new_h, 0)
    return out, c, h


def test_dynamic_static_and_bidirectional_agree_with_numpy(sess):
    x = tf.constant(X)
    cells = [tf.nn.rnn_cell.BasicLSTMCell(6) for _ in range(3)]
    dynamic, state = tf.nn.dynamic_rnn(
        cells[0], x, sequence_length=LENGTHS, dtype=tf.float32, scope="a"
    )
    both, states = tf.nn.bidirectional_dynamic_rnn(
        cells[1], cells[2], x, sequence_length=LENGTHS, dtype=tf.float32, scope="b"
    )
    with tf.variable_scope("", reuse=True):
        static, _ = tf.nn.static_rnn(
            tf.nn.rnn_cell.BasicLSTMCell(6), tf.unstack(x, axis=1), sequence_length=LENGTHS,
            dtype=tf.float32, scope="a",
        )  # fmt: skip
    sess.run(tf.global_variables_initializer())
    kernel, bias = sess.run(cells[0].variables)
    out, c, h = lstm(X, LENGTHS, kernel, bias)
    np.testing.assert_allclose(sess.run(dynamic), out, atol=1e-5)
    np.testing.assert_allclose(sess.run(state.c), c, atol=1e-5)
    np.testing.assert_allclose(sess.run(state.h), h, atol=1e-5)
    np.testing.assert_allclose(sess.run(tf.stack(static, 1)), out, atol=1e-5)
    turned = X.copy()
    turned[1, :3] = X[1, 2::-1]
    turned[0] = X[0, ::-1]
    back, _, h = lstm(turned, LENGTHS, *sess.run(cells[2].variables))
    np.testing.assert_allclose(sess.run(states[1].h), h, atol=1e-5)
    np.testing.assert_allclose(sess.run(both[1])[0], back[0, ::-1], atol=1e-5)


def test_names_of_variables(sess):
    cell = tf.nn.rnn_cell.MultiRNNCell(
        [tf.nn.rnn_cell.GRUCell(3), tf.nn.rnn_cell.LSTMCell(4, use_peepholes=True, num_proj=2)]
    )
    outputs, state = tf.nn.dynamic_rnn(cell, tf.constant(X), dtype=tf.float32)
    assert outputs.shape == (3, 5, 2)
    assert state[1].c.shape == (3, 4)
    names = [v.name for v in tf.trainable_variables()]
    first, second = "rnn/multi_rnn_cell/cell_0/gru_cell/", "rnn/multi_rnn_cell/cell_1/lstm_cell/"
    assert names == [
        first + "gates/kernel:0", first + "gates/bias:0", first + "candidate/kernel:0",
        first + "candidate/bias:0", second + "kernel:0", second + "bias:0",
        second + "w_f_diag:0", second + "w_i_diag:0", second + "w_o_diag:0",
        second + "projection/kernel:0",
    ]  # fmt: skip


def test_trains(sess):
    x = tf.constant(X)
    cell = tf.nn.rnn_cell.DropoutWrapper(tf.nn.rnn_cell.GRUCell(8), output_keep_prob=0.9)
    outputs, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32)
    loss = tf.reduce_mean(tf.square(outputs[:, -1, 0] - [0.5, -0.5, 0.25]))
    step = tf.train.AdamOptimizer(0.05).minimize(loss)
    sess.run(tf.global_variables_initializer())
    before = sess.run(loss)
    for _ in range(60):
        sess.run(step)
    assert np.mean([sess.run(loss) for _ in range(10)]) < before


def test_optimizers_multiply_what_a_loop_collects_once():
    values = np.random.RandomState(7).randn(3, 6, 8).astype(np.float32)

    def train(gate):
        with tf.Graph().as_default(), tf.Session() as sess:
            tf.set_random_seed(1)
            cell = tf.nn.rnn_cell.LSTMCell(16, initializer=tf.random_uniform_initializer(-1, 1))
            outputs, _ = tf.nn.dynamic_rnn(cell, tf.constant(values), dtype=tf.float32)
            loss = tf.reduce_mean(tf.square(outputs))
            step = tf.train.GradientDescentOptimizer(0.5).minimize(loss, gate_gradients=gate)
            sess.run(tf.global_variables_initializer())
            losses = [sess.run([loss, step])[0] for _ in range(4)]
            plan = sess.explain([loss, step]).splitlines()
        products = [line.split("(frame ")[1] for line in plan if line.startswith("  MatMul ")]
        # One in the loop and one, the gradient of its input, on the way back.
        assert sorted(p.startswith("0)") for p in products) == [False, False, True]
        return losses

    optimizer = tf.train.Optimizer
    gated = train(optimizer.GATE_OP)
    assert gated[3] < gated[0]
    np.testing.assert_allclose(gated, train(optimizer.GATE_NONE), rtol=1e-5)


def test_raw_rnn_is_steered(sess):
    cell = tf.nn.rnn_cell.BasicRNNCell(2)
    rows = tf.TensorArray(tf.float32, 5, clear_after_read=False).unstack(
        tf.transpose(tf.constant(X), [1, 0, 2])
    )

    def steer(time, output, state, loop_state):
        following = cell.zero_state(3, tf.float32) if output is None else state
        done = time >= tf.constant(LENGTHS)
        given = tf.cond(tf.reduce_all(done), lambda: tf.zeros([3, 4]), lambda: rows.read(time))
        return done, given, following, output, None

    outputs, state, _ = tf.nn.raw_rnn(cell, steer, scope="rnn")
    with tf.variable_scope("", reuse=True):
        expected, _ = tf.nn.dynamic_rnn(
            tf.nn.rnn_cell.BasicRNNCell(2), tf.constant(X), LENGTHS, dtype=tf.float32
        )
    stacked = tf.transpose(outputs.stack(), [1, 0, 2])
    sess.run(tf.global_variables_initializer())
    np.testing.assert_allclose(*sess.run([stacked, expected]), atol=1e-6)


def test_mistakes(sess):
    cell = tf.nn.rnn_cell.GRUCell(3)
    with pytest.raises(ValueError, match="must be a vector"):
        tf.nn.dynamic_rnn(cell, tf.constant(X), [[4]], dtype=tf.float32)
    with pytest.raises(ValueError, match="you must give a dtype"):
        tf.nn.dynamic_rnn(cell, tf.constant(X))
    with pytest.raises(TypeError, match="not an RNNCell"):
        tf.nn.dynamic_rnn(3, tf.constant(X), dtype=tf.float32)
    with pytest.raises(ValueError, match="between 0 and 1"):
        tf.nn.rnn_cell.DropoutWrapper(cell, input_keep_prob=2.0)


def test_block_cells_compute_what_cells_do():
    x = np.random.RandomState(0).normal(size=(5, 2, 3)).astype(np.float32)  # [time, batch, size]
    lengths = [5, 3]
    pairs = [
        (tf.contrib.rnn.LSTMBlockCell(4), tf.nn.rnn_cell.LSTMCell(4, name="lstm_cell")),
        (tf.contrib.rnn.LSTMBlockCell(4, cell_clip=0.1, use_peephole=True),
         tf.nn.rnn_cell.LSTMCell(4, True, 0.1, name="lstm_cell")),
        (tf.contrib.rnn.GRUBlockCell(4), tf.nn.rnn_cell.GRUCell(4)),
    ]  # fmt: skip
    for ours, usual in pairs:
        results = []
        for cell in (ours, usual):
            with tf.Graph().as_default(), tf.Session() as session:
                with tf.variable_scope("net", initializer=tf.constant_initializer(0.3)):
                    outputs = tf.nn.dynamic_rnn(cell, x, lengths, dtype=tf.float32, time_major=True)
                session.run(tf.global_variables_initializer())
                names = sorted(v.op.name for v in tf.global_variables())
                results.append((names, session.run(outputs)))
        assert results[0][0] == results[1][0]
        flatten = tf.contrib.framework.nest.flatten
        for a, b in zip(flatten(results[0][1]), flatten(results[1][1]), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("as_list", [False, True])
def test_fused_cells(as_list):
    x = np.random.RandomState(0).normal(size=(5, 2, 3)).astype(np.float32)
    rnn = tf.contrib.rnn
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = tf.unstack(tf.constant(x)) if as_list else tf.constant(x)
        with tf.variable_scope("net", initializer=tf.constant_initializer(0.3)):
            fused = rnn.LSTMBlockFusedCell(4)(inputs, sequence_length=[5, 3])
            back = rnn.TimeReversedFusedRNN(rnn.FusedRNNCellAdaptor(rnn.LSTMBlockCell(4)))
            backward = back(inputs, dtype=tf.float32)
            dynamic = rnn.FusedRNNCellAdaptor(rnn.LSTMBlockCell(4, name="other"), True)
            forward = dynamic(inputs, dtype=tf.float32, sequence_length=[5, 3])
        session.run(tf.global_variables_initializer())
        names = {v.op.name for v in tf.global_variables()}
        assert "net/lstm_fused_cell/kernel" in names
        fused, backward, forward = session.run([fused, backward, forward])
        assert isinstance(fused[0], list) == as_list and np.shape(fused[0]) == (5, 2, 4)
        np.testing.assert_allclose(np.array(fused[0]), np.array(forward[0]), atol=1e-6)
        np.testing.assert_allclose(fused[1].h, forward[1].h, atol=1e-6)
        np.testing.assert_allclose(fused[1].c, forward[1].c, atol=1e-6)
        assert (np.array(fused[0])[3:, 1] == 0).all()
        np.testing.assert_array_equal(backward[1].h, np.array(backward[0])[0])


def test_a_block_cell_has_one_size():
    with pytest.raises(ValueError, match="Exactly one of num_units or cell_size"):
        tf.contrib.rnn.GRUBlockCell()


def test_block_cells_have_the_gradients_of_cells():
    x = np.random.RandomState(1).normal(size=(5, 2, 3)).astype(np.float32)
    rnn = tf.contrib.rnn

    def in_loop(cell):
        return tf.nn.dynamic_rnn(cell, x, [5, 3], dtype=tf.float32, time_major=True)[0]

    def fused(cell):
        return cell(tf.constant(x), dtype=tf.float32, sequence_length=[5, 3])[0]

    for cell, call, usual in (
        (rnn.LSTMBlockCell(4, use_peephole=True), in_loop, tf.nn.rnn_cell.LSTMCell(4, True)),
        (rnn.LSTMBlockFusedCell(4), fused, tf.nn.rnn_cell.LSTMCell(4)),
        (rnn.GRUBlockCell(4), in_loop, tf.nn.rnn_cell.GRUCell(4)),
    ):
        gradients = []
        for made, outputs_of in ((cell, call), (usual, in_loop)):
            with tf.Graph().as_default(), tf.Session() as session:
                with tf.variable_scope("net", initializer=tf.constant_initializer(0.3)):
                    loss = tf.reduce_sum(tf.square(outputs_of(made)))
                variables = sorted(tf.trainable_variables(), key=lambda v: v.op.name.split("/")[-1])
                variables.sort(key=lambda v: (v.shape.ndims, v.shape.as_list(), v.op.name[-9:]))
                grads = tf.gradients(loss, variables)
                session.run(tf.global_variables_initializer())
                gradients.append(session.run(grads))
        for a, b in zip(*gradients, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


RECURRENT_OPS = """
    import json
    rng = np.random.RandomState(3)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32) * 0.5
    cell = [draw(2, 3), draw(2, 4), draw(2, 4), draw(7, 16), draw(4), draw(4), draw(4), draw(16)]
    values = [draw(2, 4) for _ in range(8)]
    sequence = [np.int64(3), draw(5, 2, 3), *cell[1:]]
    more = [draw(5, 2, 4) for _ in range(9)]
    gru = [draw(2, 3), draw(2, 4), draw(7, 8), draw(7, 4), draw(8), draw(4)]
    raw = {raw}
    results = []
    with tf.Graph().as_default(), tf.Session() as session:
        def call(op, inputs, **attrs):
            names = [n for n in INPUTS[op].split()]
            results.extend(getattr(raw, op)(**dict(zip(names, inputs)), **attrs))
        state = "x cs_prev h_prev w wci wcf wco b"
        INPUTS = {{
            "LSTMBlockCell": state,
            "LSTMBlockCellGrad": state + " i cs f o ci co cs_grad h_grad",
            "BlockLSTM": "seq_len_max " + state,
            "BlockLSTMV2": "seq_len_max " + state,
            "BlockLSTMGrad": "seq_len_max " + state + " i cs f o ci co h cs_grad h_grad",
            "BlockLSTMGradV2": "seq_len_max " + state + " i cs f o ci co h cs_grad h_grad",
            "GRUBlockCell": "x h_prev w_ru w_c b_ru b_c",
            "GRUBlockCellGrad": "x h_prev w_ru w_c b_ru b_c r u c d_h",
        }}
        for peephole in (False, True):
            call("LSTMBlockCell", cell, forget_bias=0.5, cell_clip=0.4, use_peephole=peephole)
            call("LSTMBlockCellGrad", cell + values, use_peephole=peephole)
            call("BlockLSTM", sequence, forget_bias=0.5, cell_clip=0.4, use_peephole=peephole)
            call("BlockLSTMV2", sequence, cell_clip=-1.0, use_peephole=peephole)
            call("BlockLSTMGrad", sequence + more, use_peephole=peephole)
            call("BlockLSTMGradV2", sequence + more, use_peephole=peephole)
        call("GRUBlockCell", gru)
        call("GRUBlockCellGrad", gru + values[:4])
        out = [value.tolist() for value in session.run(results)]
"""


@needs_tensorflow
def test_recurrent_ops_compute_what_tensorflow_does():
    theirs = json.loads(
        run_tensorflow(
            textwrap.dedent(RECURRENT_OPS.format(raw="tensorflow.raw_ops"))
            + "print(json.dumps(out))\n"
        )
    )
    scope = {"np": np, "tf": tf}
    exec(textwrap.dedent(RECURRENT_OPS.format(raw="tf.raw_ops")), scope)
    assert len(theirs) == len(scope["out"])
    for i, (ours, wanted) in enumerate(zip(scope["out"], theirs, strict=True)):
        if len(wanted) == 5:  # TensorFlow leaves some of the steps after seq_len_max as they were
            assert not np.any(ours[3:]), i
            ours, wanted = ours[:3], wanted[:3]
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-5, err_msg=f"result {i}")
