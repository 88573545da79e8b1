"""Strings."""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.sparse import SparseTensor
from millrace.ops import array


@export(
    v1=("as_string", "strings.as_string", "dtypes.as_string"), v2=("as_string", "strings.as_string")
)
def as_string(
    input: Any, precision: int = -1, scientific: bool = False, shortest: bool = False,
    width: int = -1, fill: str = "", name: str | None = None,
) -> Tensor:  # fmt: skip
    """Numbers or booleans as text.

    `precision`: digits after the point; `scientific`, `shortest`: the form; `width`: at least that
    many characters; `fill`: with which to fill up.
    """
    return gen_ops.as_string(
        input, precision=precision, scientific=scientific, shortest=shortest, width=width,
        fill=fill, name=name,
    )  # fmt: skip


@export(v1=("string_join", "strings.join"), v2="strings.join")
def string_join(inputs: Any, separator: str = "", name: str | None = None) -> Tensor:
    """Joins the strings of tensors of one shape, element by element; scalars go with all."""
    return gen_ops.string_join(inputs, separator=separator, name=name)


@export(v1="string_split")
def string_split(
    source: Any, sep: Any = None, skip_empty: bool = True, delimiter: Any = None,
    result_type: str = "SparseTensor", name: str | None = None,
) -> Any:  # fmt: skip
    """Splits the strings of a vector; a sparse matrix with a row for each, or a RaggedTensor, as
    `result_type` says.

    `sep` (`delimiter`): every character of it separates; an empty one splits into single
    characters; a space by default. `skip_empty`: leave empty parts out.
    """
    delimiter = " " if sep is None and delimiter is None else (delimiter if sep is None else sep)
    source = convert_to_tensor(source, dtype=dtypes.string)
    more = {} if skip_empty else {"skip_empty": False}
    indices, values, shape = gen_ops.string_split(source, delimiter, **more, name=name)
    indices.set_shape([None, 2])
    values.set_shape([None])
    shape.set_shape([2])
    pieces = SparseTensor(indices, values, shape)
    if result_type == "SparseTensor":
        return pieces
    if result_type != "RaggedTensor":
        raise ValueError("result_type must be 'RaggedTensor' or 'SparseTensor'.")
    from millrace.ops.ragged.tensor import RaggedTensor  # late: it is made of what stands here

    return RaggedTensor.from_sparse(pieces)


@export(v1=("reduce_join", "strings.reduce_join"))
def reduce_join(
    inputs: Any, axis: Any = None, keep_dims: bool | None = None, separator: str = "",
    name: str | None = None, reduction_indices: Any = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """Joins strings across the dimensions `axis`, one after another; all, from the last to the
    first, when it is None."""
    axis = reduction_indices if axis is None else axis
    inputs = convert_to_tensor(inputs, dtype=dtypes.string)
    if axis is None:
        ndims = inputs.shape.ndims
        if ndims is not None:
            axis = np.arange(ndims - 1, -1, -1, dtype=np.int32)
        else:
            axis = gen_ops.range(array.rank(inputs) - 1, -1, -1)
    keep = bool(keepdims) or bool(keep_dims)
    return gen_ops.reduce_join(inputs, axis, keep_dims=keep, separator=separator, name=name)


reduce_join_v2 = export(v2="strings.reduce_join")(
    reordered(reduce_join, "inputs axis keepdims separator name")
)


def _either(first: Any, second: Any, names: tuple[str, str]) -> Any:
    value = second if first is None else first
    if value is None:
        raise TypeError(f"one of {names[0]!r} and {names[1]!r} must be given")
    return value


@export(v1=("string_to_hash_bucket", "strings.to_hash_bucket"))
def string_to_hash_bucket(
    string_tensor: Any = None, num_buckets: int | None = None, name: str | None = None,
    input: Any = None,
) -> Tensor:  # fmt: skip
    """A number below `num_buckets` for each string. Prefer `string_to_hash_bucket_fast`."""
    strings = _either(string_tensor, input, ("string_tensor", "input"))
    return gen_ops.string_to_hash_bucket(strings, num_buckets, name=name)


string_to_hash_bucket_v2 = export(v2="strings.to_hash_bucket")(
    reordered(string_to_hash_bucket, "input num_buckets name")
)


@export(
    v1=("string_to_hash_bucket_fast", "strings.to_hash_bucket_fast"),
    v2="strings.to_hash_bucket_fast",
)
def string_to_hash_bucket_fast(input: Any, num_buckets: int, name: str | None = None) -> Tensor:
    """A number below `num_buckets` for each string, the same on every machine."""
    return gen_ops.string_to_hash_bucket_fast(input, num_buckets, name=name)


@export(
    v1=("string_to_hash_bucket_strong", "strings.to_hash_bucket_strong"),
    v2="strings.to_hash_bucket_strong",
)
def string_to_hash_bucket_strong(
    input: Any, num_buckets: int, key: Any, name: str | None = None
) -> Tensor:
    """As `string_to_hash_bucket_fast`, keyed with two integers: collisions are hard to provoke."""
    return gen_ops.string_to_hash_bucket_strong(input, num_buckets, key, name=name)


@export(v1=("string_to_number", "strings.to_number"))
def string_to_number(
    string_tensor: Any = None, out_type: Any = dtypes.float32, name: str | None = None,
    input: Any = None,
) -> Tensor:  # fmt: skip
    """The numbers that strings write. Other text is an error when the graph runs."""
    strings = _either(string_tensor, input, ("string_tensor", "input"))
    return gen_ops.string_to_number(strings, out_type, name=name)


string_to_number_v2 = export(v2="strings.to_number")(
    reordered(string_to_number, "input out_type name")
)


@export(v1=("substr", "strings.substr"))
def substr(input: Any, pos: Any, len: Any, name: str | None = None, unit: str = "BYTE") -> Tensor:
    """The `len` characters from `pos` on of each string; the three broadcast together.

    `unit`: "BYTE", or "UTF8_CHAR" to count characters of UTF-8.
    """
    more = {} if unit == "BYTE" else {"unit": unit}
    return gen_ops.substr(input, pos, len, **more, name=name)


substr_v2 = export(v2="strings.substr")(reordered(substr, "input pos len unit name"))


@export(v1=("encode_base64", "io.encode_base64"), v2="io.encode_base64")
def encode_base64(input: Any, pad: bool = False, name: str | None = None) -> Tensor:
    """Strings in the web-safe base64 alphabet; `pad`: filled up with '='."""
    return gen_ops.encode_base64(input, pad=pad, name=name)


@export(v1=("decode_base64", "io.decode_base64"), v2="io.decode_base64")
def decode_base64(input: Any, name: str | None = None) -> Tensor:
    """Undoes `encode_base64`. Other characters are an error when the graph runs."""
    return gen_ops.decode_base64(input, name=name)


@export(v1="strings.length")
def length(input: Any, name: str | None = None, unit: str = "BYTE") -> Tensor:
    """How many bytes, or with `unit="UTF8_CHAR"` characters, each string has."""
    return gen_ops.string_length(input, unit=unit, name=name)


length_v2 = export(v2="strings.length")(reordered(length, "input unit name"))


@export(v1="strings.lower", v2="strings.lower")
def lower(input: Any, encoding: str = "", name: str | None = None) -> Tensor:
    """The strings in lower case. `encoding`: "" for ASCII, or "utf-8"."""
    return gen_ops.string_lower(input, encoding=encoding, name=name)


@export(v1="strings.upper", v2="strings.upper")
def upper(input: Any, encoding: str = "", name: str | None = None) -> Tensor:
    """The strings in upper case. `encoding`: "" for ASCII, or "utf-8"."""
    return gen_ops.string_upper(input, encoding=encoding, name=name)


@export(v1="strings.strip", v2="strings.strip")
def strip(input: Any, name: str | None = None) -> Tensor:
    """The strings without white space at their ends."""
    return gen_ops.string_strip(input, name=name)


@export(v1="strings.regex_full_match", v2="strings.regex_full_match")
def regex_full_match(input: Any, pattern: Any, name: str | None = None) -> Tensor:
    """Whether each string, as a whole, matches a regular expression of RE2's language."""
    if isinstance(pattern, (str, bytes)):
        return gen_ops.static_regex_full_match(input, pattern=pattern, name=name)
    return gen_ops.regex_full_match(input, pattern, name=name)


@export(v1=("regex_replace", "strings.regex_replace"), v2="strings.regex_replace")
def regex_replace(
    input: Any, pattern: Any, rewrite: Any, replace_global: bool = True, name: str | None = None
) -> Tensor:
    r"""The strings with what matches a regular expression replaced.

    `rewrite`: by what; \0 in it is the match, \1 to \9 are its groups. `replace_global`: each
    match, or only the first.
    """
    if isinstance(pattern, (str, bytes)) and isinstance(rewrite, (str, bytes)):
        return gen_ops.static_regex_replace(
            input, pattern=pattern, rewrite=rewrite, replace_global=replace_global, name=name
        )
    return gen_ops.regex_replace(input, pattern, rewrite, replace_global=replace_global, name=name)


@export(v1="strings.split")
def split(
    input: Any = None, sep: str | None = None, maxsplit: int = -1,
    result_type: str = "SparseTensor", source: Any = None, name: str | None = None,
) -> Any:  # fmt: skip
    """Splits the strings of a vector at `sep` (white space); a sparse matrix with a row for each,
    or a RaggedTensor, as `result_type` says.

    `maxsplit`: in at most so many places. ValueError for another result type.
    """
    from millrace.ops.ragged.strings import split_v1  # late: ragged tensors are made of these

    given = _either(input, source, ("input", "source"))
    return split_v1(given, sep, maxsplit, result_type, name)
