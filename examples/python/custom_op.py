"""Operations of one's own: a Python function with a gradient, and one with a gradient it names.

An op in C++ is loaded with tf.load_op_library: see examples/consumer/cube.cc.

python custom_op.py [count]
"""

import sys
from typing import Any

import numpy as np

import millrace.compat.v1 as tf


@tf.custom_gradient
def clip_gradient(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """x itself; the gradient that comes back is kept within [-1, 1]."""
    return tf.identity(x), lambda dy: tf.clip_by_value(dy, -1.0, 1.0)


@tf.RegisterGradient("CubeRoot")
def _cube_root_grad(op: tf.Operation, dy: tf.Tensor) -> tf.Tensor:
    y = op.outputs[0]
    return dy / (3 * y * y)


def cube_root(x: tf.Tensor) -> tf.Tensor:
    """The real cube root, computed by NumPy, with a gradient."""
    with tf.get_default_graph().gradient_override_map({"PyFunc": "CubeRoot"}):
        y: tf.Tensor = tf.py_func(np.cbrt, [x], x.dtype)
    y.set_shape(x.shape)
    return y


def main(count: int = 5) -> float:
    x = tf.constant(np.linspace(1, 27, count), tf.float64)
    y = cube_root(x)
    slope = tf.gradients(y, x)[0]
    steep = tf.gradients(clip_gradient(x) ** 3, x)[0]
    with tf.Session() as session:
        at, roots, slopes, clipped = session.run([x, y, slope, steep])
    for row in zip(at, roots, slopes, clipped, strict=True):
        print("x {:5.2f}  root {:.4f}  slope {:.4f}  clipped {:.1f}".format(*row))
    return float(np.abs(slopes - np.cbrt(at) / (3 * at)).max())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
