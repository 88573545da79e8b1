"""How similar images look."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import array, math, reduce
from millrace.ops.along import range as range_of
from millrace.ops.image.color import convert_image_dtype
from millrace.ops.nn.depthwise_conv import depthwise_conv2d


def _window(size: int, sigma: float) -> Tensor:
    """Weights of a Gaussian [size, size, 1, 1], whose sum is one."""
    away = math.cast(range_of(size), dtypes.float32) - (size - 1) / 2.0
    log = away * away * (-0.5 / (sigma * sigma))
    both = array.reshape(log, [1, -1]) + array.reshape(log, [-1, 1])
    return array.reshape(gen_ops.softmax(array.reshape(both, [1, -1])), [size, size, 1, 1])


def _by_channel(
    x: Tensor, y: Tensor, max_val: Tensor, size: int, sigma: float, k1: float, k2: float
) -> tuple[Tensor, Tensor]:
    """The similarity, and the part of it that is about contrast and structure: of each place and
    channel."""
    channels = array.shape(x)[-1]
    kernel = array.tile(_window(size, sigma), array.stack([1, 1, channels, 1]))

    def mean(values: Tensor) -> Tensor:
        outer = array.shape(values)
        flat = array.reshape(values, array.concat([[-1], outer[-3:]], 0))
        made = depthwise_conv2d(flat, kernel, strides=[1, 1, 1, 1], padding="VALID")
        return array.reshape(made, array.concat([outer[:-3], array.shape(made)[1:]], 0))

    c1, c2 = (k1 * max_val) ** 2, (k2 * max_val) ** 2
    mean_x, mean_y = mean(x), mean(y)
    product, squares = mean_x * mean_y * 2.0, mean_x * mean_x + mean_y * mean_y
    luminance = (product + c1) / (squares + c1)
    both, each = mean(x * y) * 2.0, mean(x * x + y * y)
    contrast = (both - product + c2) / (each - squares + c2)
    return luminance * contrast, contrast


def _pair(img1: Any, img2: Any, max_val: Any, size: int) -> tuple[Tensor, Tensor, Tensor]:
    x, y = convert_to_tensor(img1, name="img1"), convert_to_tensor(img2, name="img2")
    for image in (x, y):
        if image.shape.ndims is not None and image.shape.ndims < 3:
            raise ValueError(
                f"images must have a height, a width and channels, got shape {image.shape}"
            )
    if not x.shape.is_compatible_with(y.shape):
        raise ValueError(f"images must have one shape, got {x.shape} and {y.shape}")
    if x.shape.ndims is not None:
        height, width = x.shape.as_list()[-3:-1]
        if (height is not None and height < size) or (width is not None and width < size):
            raise ValueError(f"images of shape {x.shape} are smaller than the filter, {size}")
    most = convert_image_dtype(convert_to_tensor(max_val, dtype=x.dtype.base_dtype), dtypes.float32)
    x, y = convert_image_dtype(x, dtypes.float32), convert_image_dtype(y, dtypes.float32)
    return x, y, most


@export(v2="image.ssim")
def ssim(
    img1: Any, img2: Any, max_val: Any, filter_size: int = 11, filter_sigma: float = 1.5,
    k1: float = 0.01, k2: float = 0.03, return_index_map: bool = False,
) -> Tensor:  # fmt: skip
    """The structural similarity of images [..., height, width, channels], from -1 to 1.

    Args:
      max_val: the largest value that a pixel can have.
      filter_size, filter_sigma: of the Gaussian that neighbours are weighted by.
      return_index_map: that of each place, not the mean.
    """
    with name_scope(None, "SSIM", [img1, img2]):
        x, y, most = _pair(img1, img2, max_val, filter_size)
        similar, _ = _by_channel(x, y, most, filter_size, filter_sigma, k1, k2)
        axes = [-1] if return_index_map else [-3, -2, -1]
        return reduce.reduce_mean(similar, axes)


_WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)


@export(v2="image.ssim_multiscale")
def ssim_multiscale(
    img1: Any, img2: Any, max_val: Any, power_factors: Any = _WEIGHTS, filter_size: int = 11,
    filter_sigma: float = 1.5, k1: float = 0.01, k2: float = 0.03,
) -> Tensor:  # fmt: skip
    """The structural similarity of images at several scales, each half the one before.

    `power_factors`: how much each scale counts, the largest first; their number is that of scales.
    """
    factors = list(power_factors)
    with name_scope(None, "MS-SSIM", [img1, img2]):
        x, y, most = _pair(img1, img2, max_val, filter_size)
        parts = []
        for scale in range(len(factors)):
            if scale > 0:
                x, y = _half(x), _half(y)
            similar, contrast = _by_channel(x, y, most, filter_size, filter_sigma, k1, k2)
            part = similar if scale + 1 == len(factors) else contrast
            parts.append(gen_ops.relu(reduce.reduce_mean(part, [-3, -2])))
        powers = math.pow(array.stack(parts, -1), convert_to_tensor(factors, dtypes.float32))
        return reduce.reduce_mean(reduce.reduce_prod(powers, [-1]), [-1])


def _half(image: Tensor) -> Tensor:
    """The image with half as many pixels each way; odd ones are doubled at the end."""
    outer = array.shape(image)
    flat = array.reshape(image, array.concat([[-1], outer[-3:]], 0))
    odd = outer[-3:-1] % 2
    ends = array.stack([0, odd[0], odd[1], 0])
    flat = array.pad(flat, array.stack([array.zeros_like(ends), ends], 1), "SYMMETRIC")
    made = gen_ops.avg_pool(flat, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
    return array.reshape(made, array.concat([outer[:-3], array.shape(made)[1:]], 0))
