"""Types for annotations: what functions take where they say tensor, shape or dtype."""

from collections.abc import Sequence
from typing import Any, Union

import numpy as np

from millrace.dtypes import DType
from millrace.graph.graph import Tensor
from millrace.shapes import TensorShape

TensorLike = Union[
    Tensor, np.ndarray, np.generic, int, float, complex, bool, str, bytes, Sequence[Any], Any
]
ShapeLike = Union[TensorShape, Sequence[Union[int, None]], None]
DTypeLike = Union[DType, type, np.dtype, str, int]
