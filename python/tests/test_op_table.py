"""What op_table.py says of every op: values, shapes and gradients."""

import fnmatch
import zlib

import numpy as np
import pytest
from op_table import COMPLEX, EXEMPT, FLOATS, INTS, ROWS, Draw

import millrace.compat.v1 as tf
from millrace import _core, protos, raw_ops

TYPE_ATTRS = ("DstT", "Tout", "type")
# How far results of each type may be off, where the row asks for 1e-9 in float64.
NEAR = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "complex64": 2e-5}


def definition(op):
    return protos.OpDef.FromString(_core.op_def(op))


def types_of(row):
    """The types of a row: its own, or all numbers that its op takes."""
    if row.types is not None:
        return row.types or ("",)
    inputs = list(row.cases[0].inputs)
    args = definition(row.op).input_arg
    drawn = next(a for a, i in zip(args, inputs, strict=True) if is_drawn(i))
    attr = next(a for a in definition(row.op).attr if a.name == drawn.type_attr)
    known = FLOATS + COMPLEX + INTS
    if not attr.HasField("allowed_values"):
        return known
    allowed = [tf.as_dtype(t).name for t in attr.allowed_values.list.type]
    return tuple(t for t in known if t in allowed)


def is_drawn(value):
    return isinstance(value, Draw) or (isinstance(value, list) and isinstance(value[0], Draw))


# A row without an op fails one test below, not all.
KNOWN = [row for row in ROWS if hasattr(raw_ops, row.op)]
PAIRS = [(row, kind) for row in KNOWN for kind in types_of(row)]
GRADIENTS = [row for row in KNOWN if row.gradient and "float64" in types_of(row)]


class Call:
    """One call of an op: its inputs as tensors that are fed, and its outputs."""

    def __init__(self, row, case, kind, known_shapes=True):
        self.rng = np.random.RandomState(zlib.crc32(f"{row.op} {kind}".encode()))
        self.feeds = {}
        self.kind = kind
        self.known_shapes = known_shapes
        self.attrs = {k: v(kind) if callable(v) else v for k, v in case.attrs.items()}
        self.inputs = [
            [self.tensor(v) for v in value] if isinstance(value, list) else self.tensor(value)
            for value in case.inputs
        ]
        names = [arg.name for arg in definition(row.op).input_arg]
        arguments = dict(zip(names, self.inputs, strict=True))
        attrs = {k: tf.as_dtype(v) if k in TYPE_ATTRS else v for k, v in self.attrs.items()}
        outputs = getattr(raw_ops, row.op)(**arguments, **attrs)
        self.outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]

    def tensor(self, value):
        if not isinstance(value, Draw):
            # Axes and sizes are constants, so that shapes can be inferred.
            return tf.constant(value)
        array = value.array(self.rng, self.kind)
        shape = array.shape if self.known_shapes else None
        tensor = tf.placeholder(tf.as_dtype(self.kind), shape)
        self.feeds[tensor] = array
        return tensor

    def expected(self, session, twin):
        """What the twin makes of the inputs as the op sees them, half types widened."""

        def one(tensor):
            value = session.run(tf.identity(tensor), self.feeds)
            return value.astype(np.float64) if tensor.dtype.name in FLOATS[:2] else value

        values = [[one(t) for t in v] if isinstance(v, list) else one(v) for v in self.inputs]
        with np.errstate(all="ignore"):
            outputs = twin(*values, **self.attrs)
        return outputs if isinstance(outputs, tuple) else (outputs,)


@pytest.mark.parametrize(("row", "kind"), PAIRS, ids=[f"{r.op}-{k}" for r, k in PAIRS])
def test_values_and_shapes(row, kind):
    with tf.Graph().as_default(), tf.Session() as session:
        for case in row.cases:
            call = Call(row, case, kind)
            got = session.run(call.outputs, call.feeds)
            expected = call.expected(session, row.twin)
            open_call = Call(row, case, kind, known_shapes=False)
            assert len(got) == len(expected)
            for i, (value, wanted) in enumerate(zip(got, expected, strict=True)):
                wanted = np.asarray(wanted)
                assert value.shape == wanted.shape
                if value.dtype.kind in "fc":
                    near = max(NEAR.get(kind, 0), row.tolerance)
                    np.testing.assert_allclose(value, wanted, rtol=near, atol=near)
                else:
                    np.testing.assert_array_equal(value, wanted)
                known = call.outputs[i].shape
                assert known.is_compatible_with(value.shape)
                assert row.dynamic or known.is_fully_defined()
                assert open_call.outputs[i].shape.is_compatible_with(value.shape)


@pytest.mark.parametrize("row", GRADIENTS, ids=[r.op for r in GRADIENTS])
def test_gradients(row):
    with tf.Graph().as_default(), tf.Session() as session:
        for case in row.cases:
            call = Call(row, case, "float64")
            output = call.outputs[0]
            if not (output.dtype.is_floating or output.dtype.is_complex) or not call.feeds:
                continue
            value = session.run(output, call.feeds)
            # Empty segments hold the limits of the type, in which differences drown.
            weights = call.rng.rand(*value.shape) * (np.abs(value) < 1e30)
            real = tf.real(output) if output.dtype.is_complex else output
            total = tf.reduce_sum(tf.cast(real, tf.float64) * weights)
            inputs = list(call.feeds)
            found = tf.gradients(total, inputs)
            run = session.make_callable(total, inputs)
            fine = output.dtype in (tf.float64, tf.complex128)
            step, near = (1e-6, 1e-5) if fine else (1e-2, 1e-2)
            for x, gradient in zip(inputs, found, strict=True):
                numeric = difference(run, call.feeds, x, step)
                symbolic = np.zeros_like(numeric)
                if gradient is not None:
                    symbolic = session.run(tf.convert_to_tensor(gradient), call.feeds)
                np.testing.assert_allclose(symbolic, numeric, rtol=near, atol=near)


def difference(run, feeds, x, step):
    """The gradient of a scalar by central differences."""
    value = feeds[x]
    out = np.zeros_like(value)
    for at in np.ndindex(value.shape):
        sides = []
        for sign in (1, -1):
            moved = value.copy()
            moved[at] += sign * step
            sides.append(run(*[moved if t is x else v for t, v in feeds.items()]))
        out[at] = (sides[0] - sides[1]) / (2 * step)
    return out


def test_every_op_has_a_row():
    ops = [name for name in dir(raw_ops) if name[0].isupper()]
    rows = {row.op for row in ROWS}
    missing = [
        op
        for op in ops
        if op not in rows and not any(fnmatch.fnmatchcase(op, pattern) for pattern in EXEMPT)
    ]
    assert not missing, f"give these ops a row in op_table.py: {missing}"
    assert rows <= set(ops), f"rows without an op: {sorted(rows - set(ops))}"
    twice = [row.op for i, row in enumerate(ROWS) if row.op in {r.op for r in ROWS[:i]}]
    assert not twice
