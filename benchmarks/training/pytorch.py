"""The parts of programs in PyTorch, eager or compiled, with images whose channels are last in
memory."""

import torch
from torch.nn import functional

relu = torch.relu
reshape = torch.reshape
gelu = functional.gelu
cross_entropy = functional.cross_entropy
dense = functional.linear
attention = functional.scaled_dot_product_attention


def conv(x, weights, bias, stride, pad):
    return functional.conv2d(x, weights, bias, stride, pad)


def max_pool(x, kernel, stride, padding):
    if padding == "SAME" and stride == 1:
        return functional.max_pool2d(x, kernel, stride, kernel // 2)
    return functional.max_pool2d(x, kernel, stride, ceil_mode=padding == "SAME")


def concat_channels(parts):
    return torch.cat(parts, 1)


def mean_of_image(x):
    return x.mean((2, 3))


def flat(x):
    return x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)


def rows(table, ids):
    return functional.embedding(ids, table, sparse=True)


def lstm(x, parameters, _):
    hidden = parameters[1].shape[1]
    zeros = x.new_zeros(1, x.shape[0], hidden)
    return torch._VF.lstm(x, (zeros, zeros), parameters, True, 1, 0.0, True, False, True)[0]


def transpose(x, order):
    return x.permute(order)


def split(x, count):
    return x.chunk(count, -1)


def layer_norm(x, scale, shift):
    return functional.layer_norm(x, scale.shape, scale, shift, 1e-5)


def mean_square(x):
    return x.square().mean()


def _placed(array, gpu):
    return torch.from_numpy(array).to("cuda" if gpu else "cpu")


def _lstm_parameters(kernel, bias):
    """As torch.nn.LSTM has them: of inputs and of outputs apart, gates in another order. Of its two
    biases one stays zero, since trained together they would move twice as far."""
    hidden = kernel.shape[1] // 4
    order = [0, 2, 1, 3]  # input, forget, candidate, output
    kernel = torch.cat([kernel.chunk(4, 1)[i] for i in order], 1).t().contiguous()
    bias = torch.cat([bias.chunk(4)[i] for i in order])
    cut = kernel.shape[1] - hidden
    trained = [kernel[:, :cut].contiguous(), kernel[:, cut:].contiguous(), bias]
    return [p.requires_grad_() for p in trained] + [torch.zeros_like(bias)]


def trainer(program, values, inputs, threads, gpu=False, compiled=False):
    """A call that trains for a step and gives the loss before it. Takes the values away. On a GPU
    in tf32, as ours and JAX, with algorithms chosen by measurement."""
    import sys

    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    parameters, trained = [], []
    kinds = [p.kind for p in program.parameters]
    values.reverse()
    for i, kind in enumerate(kinds):
        value = _placed(values.pop(), gpu)
        if kind == "filter":
            value = value.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
        elif kind == "dense":
            value = value.t().contiguous()
        elif kind == "lstm":
            made = _lstm_parameters(value, _placed(values[-1], gpu))
            parameters.append(made)
            trained += made[:3]
            continue
        if i > 0 and kinds[i - 1] == "lstm":
            parameters.append(None)  # the bias, which is with its kernel
            continue
        trained.append(value.requires_grad_())
        parameters.append(value)
    held = []
    for value in (_placed(value, gpu) for value in inputs):
        if value.dim() == 4:
            value = value.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
        held.append(value if value.is_floating_point() else value.long())
    optimizer = torch.optim.SGD(trained, program.rate)
    module = sys.modules[__name__]

    def loss_of(parameters, *held):
        return program.loss(module, parameters, *held)

    if compiled:
        loss_of = torch.compile(loss_of)

    def step():
        optimizer.zero_grad()
        loss = loss_of(parameters, *held)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step
