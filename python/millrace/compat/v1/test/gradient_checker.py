"""Gradients compared with differences of values."""

from typing import Any

import numpy as np

from millrace.core.export import export
from millrace.graph.default_session import get_default_session
from millrace.graph.gradients import gradients
from millrace.ops.array import placeholder_with_default, zeros


def _numeric_jacobian(
    x: Any, x_shape: Any, x_data: Any, y: Any, y_shape: Any, delta: float, extra: Any
) -> Any:
    """d y / d x by central differences, a row per (real) element of x."""
    session = _default_session()
    data = np.array(x_data, dtype=x.dtype.as_numpy_dtype).reshape(x_shape)
    flat = data.reshape(-1).view(data.real.dtype)
    out_kind = y.dtype.real_dtype.base_dtype.as_numpy_dtype
    columns = int(np.prod(y_shape)) * (2 if y.dtype.is_complex else 1)
    jacobian = np.zeros((flat.size, columns), dtype=out_kind)
    for row in range(flat.size):
        kept = flat[row]
        results, at = [], []
        for sign in (1, -1):
            flat[row] = kept + sign * delta
            at.append(float(flat[row]))
            value = session.run(y, {**extra, x: data})
            results.append(np.asarray(value).reshape(-1).view(out_kind).astype(out_kind))
        flat[row] = kept
        # By the distance between the two points as they were rounded.
        jacobian[row] = (results[0] - results[1]) / (at[0] - at[1])
    return jacobian


def _symbolic_jacobian(
    x: Any, x_shape: Any, x_data: Any, dy: Any, dx: Any, y: Any, y_shape: Any, extra: Any
) -> Any:
    """The same by running the gradient, a column per (real) element of y."""
    session = _default_session()
    dy_data = np.zeros(y_shape, dtype=y.dtype.base_dtype.as_numpy_dtype)
    dy_flat = dy_data.reshape(-1).view(dy_data.real.dtype)
    real = x.dtype.real_dtype.base_dtype.as_numpy_dtype
    rows = int(np.prod(x_shape)) * (2 if x.dtype.is_complex else 1)
    jacobian = np.zeros((rows, dy_flat.size), dtype=real)
    if not dy_flat.size:
        value = np.asarray(session.run(dx, {**extra, x: x_data, dy: dy_data}))
        if value.shape != tuple(x_shape):
            raise ValueError(
                f"Empty gradient has wrong shape: expected {tuple(x_shape)}, got {value.shape}"
            )
        if np.any(value):
            raise ValueError("Empty gradient with nonzero values")
    for column in range(dy_flat.size):
        dy_flat[column] = 1
        value = session.run(dx, {**extra, x: x_data, dy: dy_data})
        if hasattr(value, "indices"):  # IndexedSlicesValue
            full = np.zeros(x_shape, dtype=x.dtype.base_dtype.as_numpy_dtype)
            np.add.at(full, value.indices, value.values)
            value = full
        jacobian[:, column] = np.ascontiguousarray(value).reshape(-1).view(real)
        dy_flat[column] = 0
    return jacobian


def _default_session() -> Any:
    session = get_default_session()
    if session is None:
        raise ValueError("compute_gradient needs a default session: call it inside `with sess:`")
    return session


@export(v1="test.compute_gradient")
def compute_gradient(
    x: Any, x_shape: Any, y: Any, y_shape: Any, x_init_value: Any = None, delta: float = 1e-3,
    init_targets: Any = None, extra_feed_dict: Any = None,
) -> Any:  # fmt: skip
    """The Jacobian of y with respect to x: by the gradient, and by differences.

    Args:
      x: a tensor or a list of them; then the result is a list too.
      x_shape, y_shape: their shapes (a list of shapes for a list).
      x_init_value: where to take it; random by default.
      delta: how far to move for the differences.
      init_targets: operations to run first.
      extra_feed_dict: values to feed besides.

    Returns two arrays of [elements of x, elements of y].
    """
    if init_targets is not None:
        for target in init_targets if isinstance(init_targets, (list, tuple)) else [init_targets]:
            target.run()
    extra = dict(extra_feed_dict or {})
    if isinstance(x, list):
        inits = x_init_value or [None] * len(x)
        values = [_initial(xi, si, vi) for xi, si, vi in zip(x, x_shape, inits, strict=True)]
        out = []
        for i, (xi, si) in enumerate(zip(x, x_shape, strict=True)):
            others = {xj: vj for j, (xj, vj) in enumerate(zip(x, values, strict=True)) if j != i}
            out.append(_one(xi, si, y, y_shape, values[i], delta, {**extra, **others}))
        return out
    return _one(x, x_shape, y, y_shape, _initial(x, x_shape, x_init_value), delta, extra)


def _initial(x: Any, x_shape: Any, value: Any) -> Any:
    dtype = x.dtype.base_dtype.as_numpy_dtype
    if value is None:
        value = np.random.random_sample(x_shape)
        if x.dtype.is_complex:
            value = value + 1j * np.random.random_sample(x_shape)
    return np.asarray(value, dtype=dtype)


def _one(x: Any, x_shape: Any, y: Any, y_shape: Any, data: Any, delta: float, extra: Any) -> Any:
    with x.graph.as_default():
        seed = zeros([int(n) for n in y_shape], dtype=y.dtype.base_dtype)
        dy = placeholder_with_default(seed, list(y_shape))
        dx = gradients(y, x, dy)[0]
    if dx is None:
        raise ValueError(
            f"the tensor '{y.name}' does not depend on '{x.name}': there is no gradient"
        )
    symbolic = _symbolic_jacobian(x, tuple(x_shape), data, dy, dx, y, tuple(y_shape), extra)
    numeric = _numeric_jacobian(x, tuple(x_shape), data, y, tuple(y_shape), delta, extra)
    return symbolic, numeric


@export(v1="test.compute_gradient_error")
def compute_gradient_error(
    x: Any, x_shape: Any, y: Any, y_shape: Any, x_init_value: Any = None, delta: float = 1e-3,
    init_targets: Any = None, extra_feed_dict: Any = None,
) -> float:  # fmt: skip
    """The largest difference between the Jacobian by the gradient and by differences."""
    both = compute_gradient(
        x, x_shape, y, y_shape, x_init_value, delta, init_targets, extra_feed_dict
    )
    pairs = [both] if isinstance(both, tuple) else both
    error = 0.0
    for symbolic, numeric in pairs:
        if symbolic.size or numeric.size:
            error = max(error, float(np.fabs(symbolic - numeric).max()))
    return error
