"""Eight programs to train, each written once over the parts that every framework has.

A program lists its parameters, makes its inputs, and computes its loss from both by the functions
of a framework `f`, which are named alike in graph.py, pytorch.py and jax_numpy.py. Images are NHWC,
filters HWIO and matrices [in, out] here; a framework that likes another order takes care of it.

Sizes of the convolutional networks are those of the public convnet-benchmarks: one tower, no local
response normalisation, no auxiliary heads, no dropout.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

# How far apart the losses of two frameworks may be, of the loss.
TOLERANCE = 2e-3


@dataclasses.dataclass(frozen=True)
class Parameter:
    """What is trained: uniform numbers of a standard deviation, around one value for all."""

    kind: str  # filter, dense, lstm, table, class (a row for each class) or vector
    shape: tuple[int, ...]
    deviation: float = 0.0
    center: float = 0.0

    def initial(self, rng):
        values = rng.random(self.shape, np.float32)
        values -= 0.5
        values *= self.deviation * 12**0.5
        values += self.center
        return values


@dataclasses.dataclass(frozen=True)
class Convolution:
    """Of square images with a square window; `pad` is on each side."""

    size: int
    channels: int
    filters: int
    window: int
    stride: int
    pad: int


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    about: str
    parameters: list[Parameter]
    inputs: Callable  # of a random generator: arrays
    loss: Callable  # of a framework, what it made of the parameters, and of the inputs
    rate: float
    # How far losses of frameworks may be apart, as a share of them: rounding alone, unless
    # frameworks draw numbers of their own.
    tolerance: float = TOLERANCE
    # Of the frameworks' names; all where it is empty.
    only: tuple[str, ...] = ()
    convolutions: tuple[Convolution, ...] = ()


def initial_values(program, seed=1):
    """The parameters' and the inputs' first values."""
    rng = np.random.default_rng(seed)
    return [p.initial(rng) for p in program.parameters], program.inputs(rng)


class Layers:
    """A chain of layers, from its description: their parameters, and their output in a framework.

    `narrow` divides the widths, for trials."""

    def __init__(self, size, channels, narrow=1):
        self.size, self.channels, self.narrow = size, channels, narrow
        self.parameters, self.convolutions, self._steps = [], [], []

    def conv(self, width, kernel, stride=1, pad=0):
        step, self.channels = self._conv(self.channels, width, kernel, stride, pad)
        self._steps.append(step)
        self.size = (self.size + 2 * pad - kernel) // stride + 1
        return self

    def pool(self, kernel, stride):
        """The greatest of windows within the image."""
        self._steps.append(lambda f, p, x: f.max_pool(x, kernel, stride, "VALID"))
        self.size = (self.size - kernel) // stride + 1
        return self

    def pool_over_edge(self):
        """Windows of 3 by 3 at every second pixel, the last of which may reach over the edge."""
        self._steps.append(lambda f, p, x: f.max_pool(x, 3, 2, "SAME"))
        self.size = -(-self.size // 2)
        return self

    def inception(self, one, three, five, pooled):
        """Four branches beside each other: 1x1; 1x1 and 3x3; 1x1 and 5x5; pool and 1x1."""
        first, a = self._conv(self.channels, one, 1, 1, 0)
        three_in, b_in = self._conv(self.channels, three[0], 1, 1, 0)
        three_out, b = self._conv(b_in, three[1], 3, 1, 1)
        five_in, c_in = self._conv(self.channels, five[0], 1, 1, 0)
        five_out, c = self._conv(c_in, five[1], 5, 1, 2)
        last, d = self._conv(self.channels, pooled, 1, 1, 0)

        def step(f, p, x):
            branches = [
                first(f, p, x),
                three_out(f, p, three_in(f, p, x)),
                five_out(f, p, five_in(f, p, x)),
                last(f, p, f.max_pool(x, 3, 1, "SAME")),
            ]
            return f.concat_channels(branches)

        self._steps.append(step)
        self.channels = a + b + c + d
        return self

    def mean_of_image(self):
        self._steps.append(lambda f, p, x: f.mean_of_image(x))
        self.size = 1
        return self

    def flat(self):
        self._steps.append(lambda f, p, x: f.flat(x))
        self.channels, self.size = self.size * self.size * self.channels, 1
        return self

    def dense(self, width, relu=True, narrow=True):
        width = self._narrowed(width) if narrow else width
        weights = self._add("dense", (self.channels, width), (2 if relu else 1) / self.channels)
        bias = self._add("vector", (width,))

        def step(f, p, x):
            y = f.dense(x, p[weights], p[bias])
            return f.relu(y) if relu else y

        self._steps.append(step)
        self.channels = width
        return self

    def output(self, f, parameters, x):
        for step in self._steps:
            x = step(f, parameters, x)
        return x

    def _narrowed(self, width):
        return max(width // self.narrow, 2)

    def _conv(self, channels, width, kernel, stride, pad):
        width = self._narrowed(width)
        self.convolutions.append(Convolution(self.size, channels, width, kernel, stride, pad))
        shape = (kernel, kernel, channels, width)
        weights = self._add("filter", shape, 2 / (kernel * kernel * channels))
        bias = self._add("vector", (width,))
        return lambda f, p, x: f.relu(f.conv(x, p[weights], p[bias], stride, pad)), width

    def _add(self, kind, shape, variance=0.0):
        self.parameters.append(Parameter(kind, shape, variance**0.5))
        return len(self.parameters) - 1


def _classifier(name, layers, inputs, rate, about):
    """Layers whose last gives scores of classes."""
    classes = layers.channels

    def make(rng):
        labels = rng.integers(0, classes, inputs[0]).astype(np.int32)
        return [rng.standard_normal(inputs, np.float32), labels]

    def loss(f, p, x, labels):
        return f.cross_entropy(layers.output(f, p, x), labels)

    convolutions = tuple(layers.convolutions)
    return Program(name, about, layers.parameters, make, loss, rate, convolutions=convolutions)


def _images(name, size, batch, tiny_size, describe, rate):
    def program(tiny=False):
        side, count = (tiny_size, 2) if tiny else (size, batch)
        layers = Layers(side, 3, 16 if tiny else 1)
        describe(layers)
        layers.dense(10 if tiny else 1000, relu=False, narrow=False)
        about = f"batch {count}, {side}x{side}"
        return _classifier(name, layers, (count, side, side, 3), rate, about)

    return program


def _alexnet(net):
    net.conv(64, 11, 4, 2).pool(3, 2).conv(192, 5, pad=2).pool(3, 2)
    net.conv(384, 3, pad=1).conv(256, 3, pad=1).conv(256, 3, pad=1).pool(3, 2)
    net.flat().dense(4096).dense(4096)


def _overfeat(net):
    net.conv(96, 11, 4).pool(2, 2).conv(256, 5).pool(2, 2)
    net.conv(512, 3, pad=1).conv(1024, 3, pad=1).conv(1024, 3, pad=1).pool(2, 2)
    net.flat().dense(3072).dense(4096)


def _oxfordnet(net):
    for widths in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for width in widths:
            net.conv(width, 3, pad=1)
        net.pool(2, 2)
    net.flat().dense(4096).dense(4096)


def _googlenet(net):
    net.conv(64, 7, 2, 3).pool_over_edge().conv(64, 1).conv(192, 3, pad=1).pool_over_edge()
    net.inception(64, (96, 128), (16, 32), 32).inception(128, (128, 192), (32, 96), 64)
    net.pool_over_edge()
    net.inception(192, (96, 208), (16, 48), 64).inception(160, (112, 224), (24, 64), 64)
    net.inception(128, (128, 256), (24, 64), 64).inception(112, (144, 288), (32, 64), 64)
    net.inception(256, (160, 320), (32, 128), 128).pool_over_edge()
    net.inception(256, (160, 320), (32, 128), 128).inception(384, (192, 384), (48, 128), 128)
    net.mean_of_image()


def mlp(tiny=False, batch=100):
    count = 4 if tiny else batch
    net = Layers(1, 784, 16 if tiny else 1).dense(256).dense(128)
    net.dense(10, relu=False, narrow=False)
    about = f"784-256-128-10, batch {count}"
    return _classifier("MLP", net, (count, 784), 0.01, about)


def _language_model(name, tiny, samples):
    """Words to hidden, two layers of LSTM, hidden to words; all softmax or some of it."""
    layers, hidden, steps, batch, words = 2, 650, 35, 20, 10000
    if tiny:
        hidden, steps, batch, words, samples = 8, 5, 2, 40, min(samples, 20)
    # The last is the scores' weights. A sampled softmax looks a word's up as a row of its own.
    scores = ("class", (words, hidden)) if samples else ("dense", (hidden, words))
    parameters = [Parameter("table", (words, hidden), 1.0)]
    for _ in range(layers):
        parameters.append(Parameter("lstm", (2 * hidden, 4 * hidden), (2 * hidden) ** -0.5))
        parameters.append(Parameter("vector", (4 * hidden,)))
    parameters += [Parameter(*scores, hidden**-0.5), Parameter("vector", (words,))]

    def make(rng):
        ids = rng.integers(0, words, (batch, steps + 1)).astype(np.int32)
        return [ids[:, :-1].copy(), ids[:, 1:].copy()]

    def loss(f, p, ids, following):
        x = f.rows(p[0], ids)
        for i in range(layers):
            x = f.lstm(x, p[1 + 2 * i], p[2 + 2 * i])
        x = f.reshape(x, (batch * steps, hidden))
        if samples:
            return f.sampled_softmax(x, p[-2], p[-1], following, samples, words)
        return f.cross_entropy(f.dense(x, p[-2], p[-1]), f.reshape(following, (batch * steps,)))

    about = f"{layers} layers of {hidden}, {steps} steps, batch {batch}, {words} words"
    if not samples:
        return Program(name, about, parameters, make, loss, 0.5)
    about += f", {samples} samples"
    only = ("Millrace", "TensorFlow")
    return Program(name, about, parameters, make, loss, 0.5, tolerance=0.05, only=only)


def lstm(tiny=False):
    return _language_model("LSTM", tiny, 0)


def sampled_lstm(tiny=False):
    return _language_model("LSTM, sampled softmax", tiny, 512)


def transformer(tiny=False):
    """A block that normalises before attention and before its two dense layers."""
    width, heads, inner, tokens, batch = (8, 2, 16, 4, 2) if tiny else (512, 8, 2048, 64, 8)
    sizes = [(width, 3 * width), (width, width), (width, inner), (inner, width)]
    parameters = []
    for into, out in sizes:
        parameters.append(Parameter("dense", (into, out), into**-0.5))
        parameters.append(Parameter("vector", (out,)))
    for _ in range(2):
        parameters.append(Parameter("vector", (width,), center=1.0))
        parameters.append(Parameter("vector", (width,)))

    def make(rng):
        return [rng.standard_normal((batch, tokens, width), np.float32) for _ in range(2)]

    def split(f, x):
        return f.transpose(f.reshape(x, (batch, tokens, heads, width // heads)), (0, 2, 1, 3))

    def loss(f, p, x, wanted):
        x = f.reshape(x, (batch * tokens, width))
        y = f.dense(f.layer_norm(x, p[8], p[9]), p[0], p[1])
        query, key, value = (split(f, part) for part in f.split(y, 3))
        y = f.transpose(f.attention(query, key, value), (0, 2, 1, 3))
        x = x + f.dense(f.reshape(y, (batch * tokens, width)), p[2], p[3])
        y = f.gelu(f.dense(f.layer_norm(x, p[10], p[11]), p[4], p[5]))
        x = x + f.dense(y, p[6], p[7])
        return f.mean_square(x - f.reshape(wanted, (batch * tokens, width)))

    about = f"width {width}, {heads} heads, inner {inner}, {tokens} tokens, batch {batch}"
    return Program("Transformer block", about, parameters, make, loss, 0.1)


def _programs(batches):
    return [
        _images("AlexNet", 224, batches[0], 67, _alexnet, 0.0001),
        _images("Overfeat", 231, batches[1], 71, _overfeat, 0.00005),
        _images("OxfordNet", 224, batches[2], 32, _oxfordnet, 0.0001),
        _images("GoogleNet", 224, batches[3], 32, _googlenet, 0.0001),
        lstm,
        sampled_lstm,
        mlp,
        transformer,
    ]


# Functions of whether a program is to be tiny.
PROGRAMS = _programs((16, 8, 8, 8))
# The same, images in the batches of the published table, which was measured on a GPU.
GPU_PROGRAMS = _programs((128, 128, 64, 128))
