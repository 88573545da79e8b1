"""Images from the bytes of files, and back."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops.image.color import convert_image_dtype


@export(v1=("image.decode_jpeg", "io.decode_jpeg"), v2=("image.decode_jpeg", "io.decode_jpeg"))
def decode_jpeg(
    contents: Any, channels: int | None = 0, ratio: int | None = 1,
    fancy_upscaling: bool | None = True, try_recover_truncated: bool | None = False,
    acceptable_fraction: float | None = 1, dct_method: str | None = "", name: str | None = None,
) -> Tensor:  # fmt: skip
    """The pixels of a JPEG image, [height, width, channels] of uint8.

    Args:
      contents: the bytes of the file, a string scalar.
      channels: 1 for gray, 3 for colours, 0 for what the image has.
      ratio: 1, 2, 4 or 8: decodes at a part of the size, which is quick.
      fancy_upscaling: whether colours are interpolated between their samples.
      try_recover_truncated: whether an image that ends too soon is shown as far as it goes.
      acceptable_fraction: the part of the rows that must be there.
      dct_method: "INTEGER_ACCURATE" or "INTEGER_FAST", the default.
      name: of the operation.
    """
    return gen_ops.decode_jpeg(
        contents, channels or 0, 1 if ratio is None else ratio, fancy_upscaling is not False,
        bool(try_recover_truncated), 1 if acceptable_fraction is None else acceptable_fraction,
        dct_method or "", name=name,
    )  # fmt: skip


@export(
    v1=("image.decode_and_crop_jpeg", "io.decode_and_crop_jpeg"),
    v2=("image.decode_and_crop_jpeg", "io.decode_and_crop_jpeg"),
)
def decode_and_crop_jpeg(
    contents: Any, crop_window: Any, channels: int | None = 0, ratio: int | None = 1,
    fancy_upscaling: bool | None = True, try_recover_truncated: bool | None = False,
    acceptable_fraction: float | None = 1, dct_method: str | None = "", name: str | None = None,
) -> Tensor:  # fmt: skip
    """A window of a JPEG image, `crop_window` being [y, x, height, width]; see `decode_jpeg`."""
    return gen_ops.decode_and_crop_jpeg(
        contents, crop_window, channels or 0, 1 if ratio is None else ratio,
        fancy_upscaling is not False, bool(try_recover_truncated),
        1 if acceptable_fraction is None else acceptable_fraction, dct_method or "", name=name,
    )  # fmt: skip


@export(v1=("image.encode_jpeg", "io.encode_jpeg"), v2=("image.encode_jpeg", "io.encode_jpeg"))
def encode_jpeg(
    image: Any, format: str | None = "", quality: int | None = 95,
    progressive: bool | None = False, optimize_size: bool | None = False,
    chroma_downsampling: bool | None = True, density_unit: str | None = "in",
    x_density: int | None = 300, y_density: int | None = 300, xmp_metadata: str | None = "",
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """An image [height, width, 1 or 3] of uint8 as the bytes of a JPEG file.

    Args:
      image: the pixels.
      format: "grayscale" or "rgb"; by default what the channels say.
      quality: 0 to 100.
      progressive: whether the file can be shown roughly before all of it is there.
      optimize_size: takes longer to make a shorter file of the same quality.
      chroma_downsampling: whether colours have half the resolution.
      density_unit: "in" or "cm".
      x_density, y_density: pixels in such a unit.
      xmp_metadata: put into the file as it is.
      name: of the operation.
    """
    return gen_ops.encode_jpeg(
        image, format or "", 95 if quality is None else quality, bool(progressive),
        bool(optimize_size), chroma_downsampling is not False, density_unit or "in",
        300 if x_density is None else x_density, 300 if y_density is None else y_density,
        xmp_metadata or "", name=name,
    )  # fmt: skip


@export(v1="image.adjust_jpeg_quality", v2="image.adjust_jpeg_quality")
def adjust_jpeg_quality(
    image: Any, jpeg_quality: Any, dct_method: str = "", name: str | None = None
) -> Tensor:
    """The image [height, width, 1 or 3] as JPEG of that quality, 0 to 100, leaves it."""
    with name_scope(name, "adjust_jpeg_quality", [image]):
        image = convert_to_tensor(image, name="image")
        pixels = convert_image_dtype(image, dtypes.uint8, saturate=True)
        encoded = gen_ops.encode_jpeg_variable_quality(pixels, jpeg_quality)
        decoded = decode_jpeg(encoded, dct_method=dct_method)
        return convert_image_dtype(decoded, image.dtype, saturate=True)


@export(
    v1=("image.extract_jpeg_shape", "io.extract_jpeg_shape"),
    v2=("image.extract_jpeg_shape", "io.extract_jpeg_shape"),
)
def extract_jpeg_shape(
    contents: Any, output_type: Any = dtypes.int32, name: str | None = None
) -> Tensor:
    """Height, width and channels of a JPEG image, from its header alone."""
    return gen_ops.extract_jpeg_shape(contents, output_type=output_type, name=name)


@export(v1=("image.is_jpeg", "io.is_jpeg"), v2=("image.is_jpeg", "io.is_jpeg"))
def is_jpeg(contents: Any, name: str | None = None) -> Tensor:
    """Whether the bytes begin as JPEG does."""
    with name_scope(name, "is_jpeg"):
        return gen_ops.equal(gen_ops.substr(contents, 0, 3), b"\xff\xd8\xff", name=name)


@export(v1=("image.decode_png", "io.decode_png"), v2=("image.decode_png", "io.decode_png"))
def decode_png(
    contents: Any, channels: int | None = 0, dtype: Any = dtypes.uint8, name: str | None = None
) -> Tensor:
    """The pixels of a PNG image, [height, width, channels] of uint8 or uint16.

    Args:
      contents: the bytes of the file, a string scalar.
      channels: 1 for gray, 3 for colours, 4 for colours with alpha, 0 for what the image has.
      dtype: uint8 or uint16.
      name: of the operation.
    """
    return gen_ops.decode_png(
        contents, channels=channels or 0, dtype=dtypes.uint8 if dtype is None else dtype, name=name
    )


@export(v1=("image.encode_png", "io.encode_png"), v2=("image.encode_png", "io.encode_png"))
def encode_png(image: Any, compression: int | None = -1, name: str | None = None) -> Tensor:
    """An image [height, width, 1 to 4] of uint8 or uint16 as the bytes of a PNG file.

    Args:
      image: the pixels; with more dimensions, a tensor of files.
      compression: zlib's level, 0 to 9, or -1 for its default.
      name: of the operation.
    """
    image = convert_to_tensor(image, name="image")  # of its own type, not the op's default
    return gen_ops.encode_png(
        image, compression=-1 if compression is None else compression, name=name
    )


@export(v1=("image.decode_gif", "io.decode_gif"), v2=("image.decode_gif", "io.decode_gif"))
def decode_gif(contents: Any, name: str | None = None) -> Tensor:
    """All frames of a GIF image, [frames, height, width, 3] of uint8."""
    return gen_ops.decode_gif(contents, name=name)


@export(v1=("image.decode_bmp", "io.decode_bmp"), v2=("image.decode_bmp", "io.decode_bmp"))
def decode_bmp(contents: Any, channels: int | None = 0, name: str | None = None) -> Tensor:
    """The pixels of a BMP image, [height, width, channels] of uint8."""
    return gen_ops.decode_bmp(contents, channels or 0, name=name)


@export(v1=("image.decode_image", "io.decode_image"), v2=("image.decode_image", "io.decode_image"))
def decode_image(
    contents: Any, channels: int | None = None, dtype: Any = dtypes.uint8,
    name: str | None = None, expand_animations: bool = True,
) -> Tensor:  # fmt: skip
    """The pixels of a JPEG, PNG, BMP or GIF image, whichever the bytes are.

    A GIF image comes as [frames, height, width, 3], the others as [height, width, channels], so the
    shape is not known before it runs, unless `expand_animations` is false.

    Args:
      contents: the bytes of the file, a string scalar.
      channels: 0, 1, 3 or 4; 0 for what the image has.
      dtype: uint8, uint16 or float32; floating numbers are from 0 to 1.
      name: of the operation.
      expand_animations: false to have only the first frame of GIF.
    """
    channels = channels or 0
    if channels not in (0, 1, 3, 4):
        raise ValueError(f"`channels` must be in (0, 1, 3, 4), got {channels}")
    return gen_ops.decode_image(
        contents, channels=channels, dtype=dtype, expand_animations=expand_animations, name=name
    )
