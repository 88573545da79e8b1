"""hostile_calls.py SEED ATTEMPTS: calls every raw op with values that fit nothing, and runs it.

Prints each op before it is called, and what is wrong: an error that no user could have caused.
Whoever starts it notices a process that dies. Values are given as constants or fed.
"""

import inspect
import random
import sys

import numpy as np

import millrace.compat.v1 as tf
from millrace import raw_ops

SHAPES = [(), (0,), (1,), (2,), (4,), (1, 1), (2, 3), (0, 2), (2, 2, 2), (2, 0, 3), (1, 4, 4, 1)]
HUGE = [2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 10**6]
TYPES = [tf.float32, tf.half, tf.int32, tf.bool, tf.string, tf.qint8, tf.resource, tf.variant]
EXPECTED = (tf.errors.OpError, TypeError, ValueError, NotImplementedError, LookupError)
LEFT_OUT = ("PyFunc", "PyFuncStateless")  # their tokens are ours to make


def scalar(draw):
    return draw.choice(
        [0, 1, -1, 2, *HUGE, 2**31, 0.5, float("nan"), float("inf"), -1e300]
        + [True, b"", b"\xff\x00", "a" * 300, 1j]
    )


def array(draw):
    shape = draw.choice(SHAPES)
    kind = draw.randrange(5)
    if kind == 0:
        with np.errstate(over="ignore"):
            scaled = np.full(shape, draw.choice([0.5, -1.0, 1e30, np.nan]))
            return scaled.astype(draw.choice(["f2", "f4", "f8"]))
    if kind == 1:
        numbers = [draw.randint(-3, 3) for _ in range(int(np.prod(shape)))]
        return np.array(numbers).reshape(shape).astype(draw.choice(["i1", "u1", "i4", "i8"]))
    if kind == 2:
        return np.full(shape, draw.choice(HUGE), "i8")
    return np.full(shape, *draw.choice([(b"x", object), (True, bool), (1j, "c8")]))


def value(draw):
    kind = draw.randrange(10)
    if kind < 3:
        return scalar(draw)
    if kind < 6:
        return array(draw)
    if kind == 6:
        return draw.choice(TYPES)
    if kind == 7:
        return [value(draw) for _ in range(draw.randrange(4))]
    if kind == 8:
        return draw.choice([[2**40], [2**31, 2**31], [2**62, 4], [-5], [1] * 200, [1, 2, 2, 1]])
    return draw.choice([None, [], [None], {}, object(), "SAME", "VALID", "NHWC"])


def arguments(draw, function):
    """Arguments for the function, some of them fed."""
    given, feeds = {}, {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "name":
            continue
        if parameter.default is not parameter.empty and draw.random() < 0.5:
            continue
        drawn = value(draw)
        if isinstance(drawn, np.ndarray) and draw.random() < 0.5:
            known = drawn.shape if draw.random() < 0.3 else None
            fed = tf.placeholder(tf.string if drawn.dtype == object else drawn.dtype, known)
            feeds[fed] = drawn
            drawn = fed
        given[parameter.name] = drawn
    return given, feeds


def call(draw, function):
    given, feeds = arguments(draw, function)
    output = function(**given)
    with tf.Session() as session:
        session.run(output, feeds, options=tf.RunOptions(timeout_in_ms=1_000))


def main(seed, attempts):
    for op in sorted(name for name in dir(raw_ops) if name[0].isupper()):
        if op in LEFT_OUT:
            continue
        print(op, flush=True)
        draw = random.Random(f"{seed} {op}")
        for _ in range(attempts):
            with tf.Graph().as_default():
                try:
                    call(draw, getattr(raw_ops, op))
                except tf.errors.InternalError as error:
                    if "two live inputs" not in str(error):  # what TensorFlow says of Merge
                        print("WRONG:", error, flush=True)
                except EXPECTED as error:
                    if len(str(error)) > 20_000:
                        print("WRONG: a message of", len(str(error)), "characters", flush=True)


if __name__ == "__main__":
    np.seterr(all="ignore")
    main(int(sys.argv[1]), int(sys.argv[2]))
