"""Types for annotations: what functions take where they say tensor, shape or dtype."""

from collections.abc import Sequence
from typing import Any, Union

import numpy as np

from millrace.core.dtypes import DType
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor

TensorLike = Union[
    Tensor, np.ndarray, np.generic, int, float, complex, bool, str, bytes, Sequence[Any], Any
]
ShapeLike = Union[TensorShape, Sequence[Union[int, None]], None]
DTypeLike = Union[DType, type, np.dtype, str, int]
