"""The parts of programs in JAX, whose step is compiled."""

import sys

import jax
import jax.numpy as jnp
from jax import lax

relu = jax.nn.relu
reshape = jnp.reshape
transpose = jnp.transpose


def conv(x, weights, bias, stride, pad):
    layout = ("NHWC", "HWIO", "NHWC")
    pads = [(pad, pad), (pad, pad)]
    y = lax.conv_general_dilated(x, weights, (stride, stride), pads, dimension_numbers=layout)
    return y + bias


def max_pool(x, kernel, stride, padding):
    size, strides = (1, kernel, kernel, 1), (1, stride, stride, 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, size, strides, padding)


def concat_channels(parts):
    return jnp.concatenate(parts, 3)


def mean_of_image(x):
    return x.mean((1, 2))


def flat(x):
    return x.reshape(x.shape[0], -1)


def dense(x, weights, bias):
    return x @ weights + bias


def cross_entropy(scores, labels):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1)
    return -chosen.mean()


def rows(table, ids):
    return table[ids]


def lstm(x, kernel, bias):
    """A loop over steps; what comes of inputs alone is multiplied before it, all at once."""
    hidden = kernel.shape[1] // 4
    cut = kernel.shape[0] - hidden
    recurrent = kernel[cut:]

    def step(carry, gates):
        state, output = carry
        into, candidate, forget, out = jnp.split(gates + output @ recurrent, 4, 1)
        state = state * jax.nn.sigmoid(forget) + jax.nn.sigmoid(into) * jnp.tanh(candidate)
        output = jnp.tanh(state) * jax.nn.sigmoid(out)
        return (state, output), output

    zeros = jnp.zeros((x.shape[0], hidden))
    gates = jnp.swapaxes(x, 0, 1) @ kernel[:cut] + bias
    return jnp.swapaxes(lax.scan(step, (zeros, zeros), gates)[1], 0, 1)


def split(x, count):
    return jnp.split(x, count, -1)


def layer_norm(x, scale, shift):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + shift


def attention(query, key, value):
    scores = query @ jnp.swapaxes(key, -1, -2) * query.shape[-1] ** -0.5
    return jax.nn.softmax(scores) @ value


def gelu(x):
    return jax.nn.gelu(x, approximate=False)


def mean_square(x):
    return jnp.square(x).mean()


def trainer(program, values, inputs, threads):
    """A call that trains for a step and gives the loss before it. Takes the values away. The number
    of threads is what the process may use."""
    module = sys.modules[__name__]

    def loss(parameters, *held):
        return program.loss(module, parameters, *held)

    def step(parameters, *held):
        value, gradients = jax.value_and_grad(loss)(parameters, *held)
        return [p - program.rate * g for p, g in zip(parameters, gradients, strict=True)], value

    compiled = jax.jit(step, donate_argnums=0)
    state = [jnp.array(value) for value in values]
    held = [jnp.array(value) for value in inputs]
    values.clear()

    def run():
        nonlocal state
        state, value = compiled(state, *held)
        return float(value)

    return run
