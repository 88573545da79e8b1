"""Functions inside TensorFlow that programs use though they were never public.

`millrace.compat.tensorflow.imports` finds them here by the name of their module and their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any


def _with_dependencies(tf: ModuleType) -> Any:
    def with_dependencies(dependencies: Any, output_tensor: Any, name: str | None = None) -> Any:
        """`output_tensor`, available only after `dependencies` have run."""
        with tf.control_dependencies(dependencies):
            return tf.identity(output_tensor, name=name)

    return with_dependencies


def _convert_n_to_tensor(tf: ModuleType) -> Any:
    def convert_n_to_tensor(values: Any, dtype: Any = None, name: str | None = None) -> list[Any]:
        """A tensor of each of `values`, called NAME_0, NAME_1 and so on."""
        return [
            tf.convert_to_tensor(value, dtype, None if name is None else f"{name}_{i}")
            for i, value in enumerate(values)
        ]

    return convert_n_to_tensor


def _resource_variable(tf: ModuleType) -> Any:
    def resource_variable(*args: Any, **kwargs: Any) -> Any:
        """A variable that is a resource."""
        return tf.Variable(*args, use_resource=True, **kwargs)

    return resource_variable


def _reference_type(name: str) -> Callable[[ModuleType], Any]:
    return lambda tf: tf.as_dtype(name)


def _make_decorator(tf: ModuleType) -> Any:
    del tf

    def make_decorator(target: Any, decorator_func: Any, *args: Any, **kwargs: Any) -> Any:
        """`decorator_func` with the name and the documentation of `target`."""
        del args, kwargs
        return functools.update_wrapper(decorator_func, target)

    return make_decorator


_MAKERS: dict[str, Callable[[ModuleType], Any]] = {
    "control_flow_ops.with_dependencies": _with_dependencies,
    "ops.convert_n_to_tensor": _convert_n_to_tensor,
    "resource_variable_ops.ResourceVariable": _resource_variable,
    "tf_decorator.make_decorator": _make_decorator,
}


def find(module: str, name: str, tf: ModuleType) -> Any:
    """The function `name` of the module whose last part is `module`, or None.

    It is made of the names of `tf`.
    """
    maker = _MAKERS.get(f"{module}.{name}")
    if module == "dtypes" and name.endswith("_ref"):
        maker = _reference_type(name)
    return None if maker is None else maker(tf)
