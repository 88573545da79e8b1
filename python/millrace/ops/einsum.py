"""Sums of products by an equation, made of transposes, sums and matrix products."""

import re
from typing import Any

from millrace import gen_ops
from millrace.core.export import export
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops.reduce import reduce_sum
from millrace.ops.sizes import product_of, sizes_of

# Labels of the dimensions that "..." stands for: characters that no equation can hold.
_ELLIPSIS_LABELS = [chr(0xE000 + i) for i in range(64)]


def _parse(equation: str, inputs: list[Tensor]) -> tuple[list[str], str]:
    """The labels of each operand and of the result, "..." replaced by labels of its dimensions."""
    text = equation.replace(" ", "")
    match = re.fullmatch(r"((?:[a-zA-Z]|\.\.\.|,)*)(->((?:[a-zA-Z]|\.\.\.)*))?", text)
    if match is None:
        raise ValueError(f"einsum: indices have incorrect format: '{equation}'")
    operands = match.group(1).split(",")
    if len(operands) != len(inputs):
        raise ValueError(
            f"einsum: '{equation}' has {len(operands)} operands, got {len(inputs)} tensors of "
            f"shapes {[str(x.shape) for x in inputs]}"
        )
    wide = 0
    for i, (labels, x) in enumerate(zip(operands, inputs, strict=True)):
        if labels.count("...") > 1:
            raise ValueError(f"einsum: operand {i} of '{equation}' has more than one ellipsis")
        rank = x.shape.ndims
        if rank is None:
            raise ValueError(f"einsum needs tensors of known rank, got '{label_of(x)}'")
        named = len(labels.replace("...", ""))
        extra = rank - named
        if extra < 0 or (extra > 0 and "..." not in labels):
            raise ValueError(
                f"einsum: operand {i} of '{equation}' names {named} dimensions, but "
                f"'{label_of(x)}' "
                f"({x.dtype.name}) has shape {x.shape}"
            )
        # Broadcasting counts from the last dimension, and so do these labels.
        here = "".join(reversed(_ELLIPSIS_LABELS[:extra]))
        operands[i] = labels.replace("...", here)
        wide = max(wide, extra)
    all_wide = "".join(reversed(_ELLIPSIS_LABELS[:wide]))
    every = "".join(operands)
    if match.group(2) is None:
        once = sorted(c for c in set(every) if every.count(c) == 1 and c not in _ELLIPSIS_LABELS)
        output = all_wide + "".join(once)
    else:
        written = match.group(3)
        if written.count("...") > 1:
            raise ValueError(f"einsum: the result of '{equation}' has more than one ellipsis")
        if wide and "..." not in written:
            raise ValueError(
                f"einsum: the result of '{equation}' leaves out the dimensions that \"...\" stands "
                "for"
            )
        output = written.replace("...", all_wide)
    for c in output:
        if output.count(c) > 1:
            raise ValueError(f"einsum: '{c}' occurs twice in the result of '{equation}'")
        if c not in every:
            raise ValueError(f"einsum: '{c}' of the result of '{equation}' is in no operand")
    return operands, output


def _check_sizes(equation: str, operands: list[str], inputs: list[Tensor]) -> None:
    sizes: dict[str, int] = {}
    for labels, x in zip(operands, inputs, strict=True):
        for label, size in zip(labels, x.shape.as_list(), strict=True):
            broadcasts = label in _ELLIPSIS_LABELS
            if size is None or (broadcasts and size == 1):
                continue
            if sizes.setdefault(label, size) != size:
                raise ValueError(
                    f"einsum: '{equation}' gives one label the sizes {sizes[label]} and {size}: "
                    f"the shapes are {', '.join(str(t.shape) for t in inputs)}"
                )


def _diagonals(x: Tensor, labels: str) -> tuple[Tensor, str]:
    """x with every repeated label taken on its diagonal."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            rest = [i for i in range(len(labels)) if i not in (first, second)]
            x = gen_ops.transpose(x, [first, second, *rest])
            sizes = sizes_of(x)
            side = sizes[0]
            # Row i, column i of a matrix stands at i * (side + 1) of its elements.
            flat = gen_ops.reshape(x, [product_of([side, side]), *sizes[2:]])
            x = gen_ops.gather(flat, gen_ops.range(0, side, 1) * (side + 1))
            labels = label + "".join(labels[i] for i in rest)
    return x, labels


def _sum_out(x: Tensor, labels: str, keep: str) -> tuple[Tensor, str]:
    """x summed over the labels that are not to be kept."""
    gone = [i for i, c in enumerate(labels) if c not in keep]
    if not gone:
        return x, labels
    return reduce_sum(x, gone), "".join(c for c in labels if c in keep)


def _arranged(x: Tensor, labels: str, wanted: str) -> Tensor:
    order = [labels.index(c) for c in wanted]
    return x if order == list(range(len(order))) else gen_ops.transpose(x, order)


def _flat(x: Tensor, shape: list[object]) -> Tensor:
    return x if x.shape.as_list() == shape else gen_ops.reshape(x, shape)


def _product(a: Tensor, a_labels: str, b: Tensor, b_labels: str, keep: str) -> tuple[Tensor, str]:
    """The sum of products over the labels that both have and nobody needs."""
    a, a_labels = _sum_out(a, a_labels, keep + b_labels)
    b, b_labels = _sum_out(b, b_labels, keep + a_labels)
    shared = [c for c in a_labels if c in b_labels]
    # Dimensions of an ellipsis may have size 1 on one side, which only multiplication broadcasts.
    summed = [c for c in shared if c not in keep and c not in _ELLIPSIS_LABELS]
    if any(c in _ELLIPSIS_LABELS for c in shared) or not summed:
        return _broadcast_product(a, a_labels, b, b_labels, keep, summed)
    batch = [c for c in shared if c in keep]
    a_free = [c for c in a_labels if c not in b_labels]
    b_free = [c for c in b_labels if c not in a_labels]
    a = _arranged(a, a_labels, "".join(batch + a_free + summed))
    b = _arranged(b, b_labels, "".join(batch + summed + b_free))
    a_sizes, b_sizes = sizes_of(a), sizes_of(b)
    n_batch, n_free, n_sum = len(batch), len(a_free), len(summed)
    outer = a_sizes[:n_batch]
    rows, inner = a_sizes[n_batch : n_batch + n_free], a_sizes[n_batch + n_free :]
    columns = b_sizes[n_batch + n_sum :]
    lead = [product_of(outer)] if outer else []
    a = _flat(a, [*lead, product_of(rows), product_of(inner)])
    b = _flat(b, [*lead, product_of(inner), product_of(columns)])
    product = gen_ops.batch_mat_mul_v2(a, b) if lead else gen_ops.mat_mul(a, b)
    return _flat(product, [*outer, *rows, *columns]), "".join(batch + a_free + b_free)


def _broadcast_product(
    a: Tensor, a_labels: str, b: Tensor, b_labels: str, keep: str, summed: list[str]
) -> tuple[Tensor, str]:
    """The same with the sum as one batched matrix product that broadcasts its batch."""
    wide = [c for c in _ELLIPSIS_LABELS[::-1] if c in a_labels or c in b_labels]
    batch = wide + [c for c in a_labels if c in b_labels and c not in wide and c not in summed]
    a_free = [c for c in a_labels if c not in b_labels and c not in wide]
    b_free = [c for c in b_labels if c not in a_labels and c not in wide]

    def form(x: Tensor, labels: str, tail: list[str]) -> tuple[Tensor, list[object], list[object]]:
        present = [c for c in batch if c in labels]
        x = _arranged(x, labels, "".join(present + tail))
        sizes = dict(zip(present + tail, sizes_of(x), strict=True))
        return x, [sizes.get(c, 1) for c in batch], [sizes[c] for c in tail]

    a, a_batch, a_tail = form(a, a_labels, a_free + summed)
    b, b_batch, b_tail = form(b, b_labels, summed + b_free)
    rows, inner = a_tail[: len(a_free)], a_tail[len(a_free) :]
    columns = b_tail[len(summed) :]
    a = _flat(a, [*a_batch, product_of(rows), product_of(inner)])
    b = _flat(b, [*b_batch, product_of(inner), product_of(columns)])
    product = gen_ops.batch_mat_mul_v2(a, b) if summed else gen_ops.mul(a, b)
    lead = sizes_of(product)[: len(batch)]
    out = _flat(product, [*lead, *rows, *columns])
    return _sum_out(out, "".join(batch + a_free + b_free), keep)


@export(v1=("einsum", "linalg.einsum"), v2=("einsum", "linalg.einsum"))
def einsum(equation: str, *inputs: Any, **kwargs: Any) -> Tensor:
    """The sum of products that an equation describes: `einsum("ij,jk->ik", a, b)` is a matmul.

    Without "->" the labels that occur once are kept, in alphabetical order. "..." stands for
    dimensions that broadcast. A label twice in one operand takes a diagonal. ValueError for an
    equation that is not well formed or does not fit the shapes.
    """
    name = kwargs.pop("name", None)
    kwargs.pop("optimize", None)
    if kwargs:
        raise TypeError(f"invalid keyword arguments for this function: {', '.join(sorted(kwargs))}")
    if not isinstance(equation, str):
        raise TypeError(f"the equation of einsum is a string, got {type(equation).__name__}")
    if not inputs:
        raise ValueError(f"einsum: '{equation}' needs tensors")
    with name_scope(name, "einsum", list(inputs)) as scope:
        tensors = [convert_to_tensor(x, name="input") for x in inputs]
        operands, output = _parse(equation, tensors)
        _check_sizes(equation, operands, tensors)
        parts = [_diagonals(x, labels) for x, labels in zip(tensors, operands, strict=True)]
        value, labels = parts[0]
        for i, (x, x_labels) in enumerate(parts[1:], 1):
            later = output + "".join(rest for _, rest in parts[i + 1 :])
            value, labels = _product(value, labels, x, x_labels, later)
        value, labels = _sum_out(value, labels, output)
        return gen_ops.identity(_arranged(value, labels, output), name=scope)
