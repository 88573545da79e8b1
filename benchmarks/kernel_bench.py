"""What products of matrices and convolutions reach, in GFLOP/s, in every framework.

python kernel_bench.py [--python TENSORFLOW_PYTHON] [--peers PYTORCH_AND_JAX_PYTHON] [WORD...]

A multiplication and an addition are two operations, whatever way a framework finds around them; the
rest is as rates.py says. Small products are chained, several in a call, so that what is measured is
the product and little of the call. Names say rows x inner x columns, T for a transposed operand;
convolutions are those of the programs of training_bench.py.
"""

import dataclasses

import numpy as np
import rates
from training.programs import PROGRAMS


@dataclasses.dataclass(frozen=True)
class Op(rates.Op):
    operations: float = 0.0

    def amount(self, inputs, result):
        return self.operations


def chained(multiply, count):
    """x y y ... y."""

    def call(x, y):
        for _ in range(count):
            x = multiply(x, y)
        return x

    return call


def square(n):
    count = max(1, min(64, 1024 // n))

    def make(rng):
        return [
            rng.standard_normal((n, n), np.float32),
            rng.standard_normal((n, n), np.float32) / np.float32(n**0.5),
        ]

    return Op(
        f"matmul {n}" + (f", {count} chained" if count > 1 else ""),
        make,
        lambda tf, x, y: chained(tf.matmul, count)(x, y),
        lambda torch, x, y: chained(torch.matmul, count)(x, y),
        lambda jax, x, y: chained(jax.numpy.matmul, count)(x, y),
        1e-3,
        operations=2.0 * n**3 * count,
    )


def product(m, k, n, transpose_x=False, transpose_y=False, batch=()):
    """Of a matrix of m rows and one of n columns; each may lie transposed in memory."""

    def make(rng):
        x = rng.standard_normal((*batch, *((k, m) if transpose_x else (m, k))), np.float32)
        y = rng.standard_normal((*batch, *((n, k) if transpose_y else (k, n))), np.float32)
        return [x, y]

    def multiply(x, y):
        x = x.swapaxes(-1, -2) if transpose_x else x
        y = y.swapaxes(-1, -2) if transpose_y else y
        return x @ y

    about = f"{'batched ' if batch else ''}{m}{' T' if transpose_x else ''} x {k} x {n}"
    return Op(
        about + (" T" if transpose_y else "") + (f", {np.prod(batch)} of them" if batch else ""),
        make,
        lambda tf, x, y: tf.matmul(x, y, transpose_a=transpose_x, transpose_b=transpose_y),
        lambda torch, x, y: multiply(x, y),
        lambda jax, x, y: multiply(x, y),
        1e-4,
        operations=2.0 * m * k * n * float(np.prod(batch)),
    )


def channels_first(tensors):
    """Images and filters as PyTorch has them by default."""
    return [x.contiguous() for x in channels_last(tensors)]


def channels_last(tensors):
    """The same in the order of memory that PyTorch calls so. Filters are the second of them."""
    orders = ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    return [x.permute(order) for x, order in zip(tensors, orders, strict=False)]


def channels_last_filters_too(tensors):
    image, filters, *rest = channels_last(tensors)
    strides_last = filters.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    return [image, strides_last, *rest]


TORCH_LAYOUTS = (channels_last_filters_too, channels_first)


def convolution(program, batch, c, kind):
    """Of `kind` "forward", "input gradient" or "filter gradient"."""
    out = (c.size + 2 * c.pad - c.window) // c.stride + 1
    image, filters = (
        (batch, c.size, c.size, c.channels),
        (c.window, c.window, c.channels, c.filters),
    )

    def make(rng):
        gradient = (batch, out, out, c.filters)
        shapes = (image, filters) if kind == "forward" else (image, filters, gradient)
        return [rng.standard_normal(shape, np.float32) for shape in shapes]

    def in_graph(tf, x, w, *gradient):
        sides = [c.pad, c.pad]
        padding = [[0, 0], sides, sides, [0, 0]] if c.pad else "VALID"
        if c.pad and c.stride == 1 and 2 * c.pad + 1 == c.window:
            padding = "SAME"
        how = {"strides": [1, c.stride, c.stride, 1], "padding": padding}
        if kind == "forward":
            return tf.nn.conv2d(x, w, **how)
        if kind == "input gradient":
            return tf.nn.conv2d_backprop_input(image, w, *gradient, **how)
        return tf.nn.conv2d_backprop_filter(x, filters, *gradient, **how)

    def in_torch(torch, x, w, *gradient):
        stride, pad = [c.stride] * 2, [c.pad] * 2
        if kind == "forward":
            return torch.nn.functional.conv2d(x, w, None, stride, pad).permute(0, 2, 3, 1)
        wanted = [kind == "input gradient", kind == "filter gradient", False]
        both = torch.ops.aten.convolution_backward(
            *gradient, x, w, None, stride, pad, [1, 1], False, [0, 0], 1, wanted
        )
        return both[0].permute(0, 2, 3, 1) if wanted[0] else both[1].permute(2, 3, 1, 0)

    def in_jax(jax, x, w, *gradient):
        def forward(x, w):
            return jax.lax.conv_general_dilated(
                x,
                w,
                [c.stride] * 2,
                [(c.pad, c.pad)] * 2,
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )

        if kind == "forward":
            return forward(x, w)
        gradients = jax.vjp(forward, x, w)[1](*gradient)
        return gradients[0 if kind == "input gradient" else 1]

    window = f"{c.window}x{c.window}" + (f"/{c.stride}" if c.stride > 1 else "")
    return Op(
        f"{program} {c.size}x{c.size}x{c.channels} {window} {c.filters} {kind}",
        make,
        in_graph,
        in_torch,
        in_jax,
        1e-4,
        TORCH_LAYOUTS,
        2.0 * batch * out * out * c.filters * c.channels * c.window**2,
    )


def convolutions():
    """Each layer of each program once; gradients for images of the first are nobody's."""
    for make_program in PROGRAMS[:4]:
        program = make_program(False)
        batch = 16 if program.name == "AlexNet" else 8
        for i, c in enumerate(dict.fromkeys(program.convolutions)):
            yield convolution(program.name, batch, c, "forward")
            if i > 0:
                yield convolution(program.name, batch, c, "input gradient")
            yield convolution(program.name, batch, c, "filter gradient")


OPS = [
    *(square(n) for n in (32, 64, 128, 256, 512, 1024, 2048, 4096)),
    # A step of an LSTM, forward and its two gradients; another, wider one.
    product(20, 1300, 2600),
    product(20, 2600, 1300, transpose_y=True),
    product(1300, 20, 2600, transpose_x=True),
    product(700, 650, 10000),
    # Few rows times a wide matrix.
    product(20, 1300, 2600, transpose_x=True),
    product(20, 650, 2600),
    product(20, 2600, 650, transpose_y=True),
    product(32, 1024, 4096),
    product(32, 1024, 4096, transpose_y=True),
    product(64, 1024, 4096),
    product(64, 1024, 4096, transpose_y=True),
    product(20, 1024, 4096),
    product(20, 2048, 8192),
    product(1, 1024, 1024),
    product(8, 4096, 4096),
    product(16, 9216, 4096),
    product(512, 64, 512),
    product(4096, 64, 64),
    product(64, 4096, 64),
    # The layers of a transformer, and of a perceptron.
    product(512, 512, 2048),
    product(512, 2048, 512, transpose_y=True),
    product(512, 512, 2048, transpose_x=True),
    product(100, 784, 256),
    product(784, 100, 256, transpose_x=True),
    product(1024, 1024, 1024, transpose_x=True),
    product(1024, 1024, 1024, transpose_y=True),
    product(1024, 1024, 1024, transpose_x=True, transpose_y=True),
    product(128, 64, 128, batch=(8, 8), transpose_y=True),
    product(128, 128, 64, batch=(8, 8)),
    product(128, 128, 64, batch=(8, 8), transpose_x=True),
    product(64, 64, 64, batch=(8, 8)),
    *convolutions(),
]


if __name__ == "__main__":
    rates.main(__file__, __doc__, "GFLOP/s", OPS)
