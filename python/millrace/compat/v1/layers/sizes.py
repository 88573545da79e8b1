"""Arguments of layers in their canonical forms."""

from typing import Any


def normalize_tuple(value: Any, n: int, name: str) -> tuple[int, ...]:
    """`n` integers, from one or `n` of them. ValueError for anything else, naming the argument."""
    if isinstance(value, int):
        return (value,) * n
    try:
        values = tuple(value)
    except TypeError:
        values = ()
    if len(values) != n or any(not _is_int(v) for v in values):
        raise ValueError(
            f"The `{name}` argument must be a tuple of {n} integers. Received: {value}"
        )
    return tuple(int(v) for v in values)


def _is_int(value: Any) -> bool:
    try:
        int(value)
    except (ValueError, TypeError):
        return False
    return True


def normalize_data_format(value: str) -> str:
    """ "channels_first" or "channels_last", or ValueError."""
    data_format = value.lower()
    if data_format not in ("channels_first", "channels_last"):
        raise ValueError(
            'The `data_format` argument must be one of "channels_first", "channels_last". '
            f"Received: {value}"
        )
    return data_format


def normalize_padding(value: str, causal: bool = False) -> str:
    """ "valid", "same", or "causal" where that is allowed; ValueError otherwise."""
    padding = value.lower()
    if padding not in ("valid", "same") and not (causal and padding == "causal"):
        raise ValueError(
            f'The `padding` argument must be one of "valid", "same". Received: {value}'
        )
    return padding


def native_format(data_format: str, rank: int) -> str:
    """The data format as ops spell it, for a rank of images with batch and channels."""
    spatial = {3: "W", 4: "HW", 5: "DHW"}[rank]
    return f"N{spatial}C" if data_format == "channels_last" else f"NC{spatial}"


def conv_output_length(
    length: int | None, filter_size: int, padding: str, stride: int, dilation: int = 1
) -> int | None:
    """The size that a convolution or pooling makes of `length`."""
    if length is None:
        return None
    size = filter_size + (filter_size - 1) * (dilation - 1)
    out = length if padding in ("same", "causal") else length - size + 1
    return (out + stride - 1) // stride


def deconv_output_length(length: Any, filter_size: int, padding: str, stride: int) -> Any:
    """The size that a transposed convolution makes of `length`, a number or a tensor."""
    if length is None:
        return None
    length = length * stride
    return length + max(filter_size - stride, 0) if padding == "valid" else length
