"""Strings cut into rows: at separators, into characters of Unicode, into bytes."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import SparseTensor
from millrace.ops import array
from millrace.ops.ragged.tensor import RaggedTensor, as_ragged_or_tensor


def _rows_of_strings(strings: Any, function: Any) -> Any:
    """What function(vector of strings) gives, RaggedTensors with a row for each string, for strings
    of any shape: a row for each element."""
    if isinstance(strings, RaggedTensor):
        return _each(
            function(strings.flat_values)
            if strings.flat_values.shape.ndims == 1
            else _rows_of_strings(strings.flat_values, function),
            strings.with_flat_values,
        )
    rank = strings.shape.ndims
    if rank is None:
        raise ValueError("Rank of `input` must be statically known.")
    if rank == 0:
        return _each(function(array.reshape(strings, [1])), lambda rows: rows.values)
    if rank == 1:
        return function(strings)
    sizes = array.shape(strings, out_type=dtypes.int64)

    def with_outer(rows: RaggedTensor) -> Any:
        for axis in range(rank - 1, 0, -1):
            count = gen_ops.prod(sizes[:axis], 0)
            rows = RaggedTensor.from_uniform_row_length(rows, sizes[axis], nrows=count)
        return rows

    return _each(function(array.reshape(strings, [-1])), with_outer)


def _each(result: Any, function: Any) -> Any:
    return tuple(function(r) for r in result) if isinstance(result, tuple) else function(result)


@export(v2="strings.unicode_decode")
def unicode_decode(
    input: Any, input_encoding: str, errors: str = "replace", replacement_char: int = 0xFFFD,
    replace_control_characters: bool = False, name: str | None = None,
) -> Any:  # fmt: skip
    """The code points of each string, int32: a row for each.

    Args:
      input_encoding: "UTF-8", "UTF-16-BE", "SHIFT-JIS" ...
      errors: what bytes become that are no character: "replace", "ignore" or "strict", an error.
      replacement_char: what replaces them.
      replace_control_characters: whether code points below 32 are replaced too.
    """
    with name_scope(name, "UnicodeDecode", [input]):
        return _decoded(
            input, input_encoding, errors, replacement_char, replace_control_characters, False
        )


@export(v2="strings.unicode_decode_with_offsets")
def unicode_decode_with_offsets(
    input: Any, input_encoding: str, errors: str = "replace", replacement_char: int = 0xFFFD,
    replace_control_characters: bool = False, name: str | None = None,
) -> Any:  # fmt: skip
    """(code points, offsets): as `unicode_decode`, and the byte at which each begins."""
    with name_scope(name, "UnicodeDecodeWithOffsets", [input]):
        return _decoded(
            input, input_encoding, errors, replacement_char, replace_control_characters, True
        )


def _decoded(
    input: Any, encoding: str, errors: str, replacement: int, controls: bool, offsets: bool
) -> Any:
    def decode(strings: Tensor) -> Any:
        function = gen_ops.unicode_decode_with_offsets if offsets else gen_ops.unicode_decode
        parts = function(
            strings, input_encoding=encoding, errors=errors, replacement_char=replacement,
            replace_control_characters=controls,
        )  # fmt: skip
        rows = tuple(
            RaggedTensor.from_row_splits(part, parts[0], validate=False) for part in parts[1:]
        )
        return rows if offsets else rows[0]

    return _rows_of_strings(as_ragged_or_tensor(input), decode)


@export(v2="strings.unicode_split")
def unicode_split(
    input: Any, input_encoding: str, errors: str = "replace", replacement_char: int = 0xFFFD,
    name: str | None = None,
) -> Any:  # fmt: skip
    """The characters of each string, strings of the same encoding: a row for each. Arguments as of
    `unicode_decode`."""
    with name_scope(name, "UnicodeSplit", [input]):
        codes = _decoded(input, input_encoding, errors, replacement_char, False, False)
        return _encoded_one_by_one(codes, input_encoding, errors, replacement_char)


@export(v2="strings.unicode_split_with_offsets")
def unicode_split_with_offsets(
    input: Any, input_encoding: str, errors: str = "replace", replacement_char: int = 0xFFFD,
    name: str | None = None,
) -> Any:  # fmt: skip
    """(characters, offsets): as `unicode_split`, and the byte at which each begins."""
    with name_scope(name, "UnicodeSplitWithOffsets", [input]):
        codes, offsets = _decoded(input, input_encoding, errors, replacement_char, False, True)
        return _encoded_one_by_one(codes, input_encoding, errors, replacement_char), offsets


def _encoded_one_by_one(codes: Any, encoding: str, errors: str, replacement: int) -> Any:
    flat = codes.flat_values if isinstance(codes, RaggedTensor) else codes
    ends = gen_ops.range(0, array.size(flat) + 1, 1)
    strings = gen_ops.unicode_encode(
        flat, ends, output_encoding=encoding, errors=errors, replacement_char=replacement
    )
    return codes.with_flat_values(strings) if isinstance(codes, RaggedTensor) else strings


@export(v2="strings.unicode_encode")
def unicode_encode(
    input: Any, output_encoding: str, errors: str = "replace", replacement_char: int = 0xFFFD,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Strings of code points: one for each of the innermost rows.

    Args:
      output_encoding: "UTF-8", "UTF-16-BE" or "UTF-32-BE".
      errors, replacement_char: what becomes of numbers that are no characters, as of
        `unicode_decode`.
    """
    with name_scope(name, "UnicodeEncode", [input]):
        codes = as_ragged_or_tensor(input)
        if codes.shape.ndims is None:
            raise ValueError("Rank of input_tensor must be statically known.")
        return _encoded(codes, output_encoding, errors, replacement_char)


def _encoded(codes: Any, encoding: str, errors: str, replacement: int) -> Any:
    if isinstance(codes, RaggedTensor):
        values = codes.values
        if isinstance(values, RaggedTensor) or values.shape.ndims > 1:
            return codes.with_values(_encoded(values, encoding, errors, replacement))
        return gen_ops.unicode_encode(
            values, codes.row_splits, output_encoding=encoding, errors=errors,
            replacement_char=replacement,
        )  # fmt: skip
    rank = codes.shape.ndims
    if rank == 0:
        raise ValueError("input_tensor's rank must be at least 1.")
    if rank == 1:
        size = array.size(codes, out_type=dtypes.int64)
        rows = RaggedTensor.from_row_splits(codes, gen_ops.pack([size * 0, size]), validate=False)
        return array.reshape(_encoded(rows, encoding, errors, replacement), [])
    sizes = array.shape(codes, out_type=dtypes.int64)
    flat = array.reshape(codes, gen_ops.pack([-1, sizes[-1]]))
    rows = RaggedTensor.from_tensor(flat)
    made = _encoded(rows, encoding, errors, replacement)
    return array.reshape(made, sizes[:-1])


@export(v1="strings.unicode_transcode", v2="strings.unicode_transcode")
def unicode_transcode(
    input: Any, input_encoding: str, output_encoding: str, errors: str = "replace",
    replacement_char: int = 0xFFFD, replace_control_characters: bool = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Strings in another encoding. Arguments as of `unicode_decode` and `unicode_encode`."""
    given = as_ragged_or_tensor(input)
    flat = given.flat_values if isinstance(given, RaggedTensor) else given
    made = gen_ops.unicode_transcode(
        flat, input_encoding=input_encoding, output_encoding=output_encoding, errors=errors,
        replacement_char=replacement_char,
        replace_control_characters=replace_control_characters, name=name,
    )  # fmt: skip
    return given.with_flat_values(made) if isinstance(given, RaggedTensor) else made


@export(v2="strings.split")
def string_split_v2(
    input: Any, sep: str | None = None, maxsplit: int = -1, name: str | None = None
) -> Any:
    """The pieces of each string, cut at `sep` (white space) in at most `maxsplit` places: a row
    for each."""
    with name_scope(name, "StringSplit", [input]):
        given = as_ragged_or_tensor(input)
        if given.dtype is not dtypes.string:
            given = convert_to_tensor(given, dtype=dtypes.string)

        def split(strings: Tensor) -> RaggedTensor:
            indices, values, shape = gen_ops.string_split_v2(
                strings, "" if sep is None else sep, maxsplit
            )
            return RaggedTensor.from_value_rowids(values, indices[:, 0], shape[0], validate=False)

        return _rows_of_strings(given, split)


def split_v1(input: Any, sep: Any, maxsplit: int, result_type: str, name: Any) -> Any:
    """TensorFlow 1's `strings.split` once its arguments have their names."""
    if result_type == "RaggedTensor":
        rows = string_split_v2(input, sep, maxsplit, name)
        return rows
    if result_type != "SparseTensor":
        raise ValueError("result_type must be 'RaggedTensor' or 'SparseTensor'.")
    strings = as_ragged_or_tensor(input)
    if not isinstance(strings, RaggedTensor):
        strings = convert_to_tensor(strings, dtype=dtypes.string)
        if strings.shape.ndims == 0:
            strings = array.expand_dims(strings, 0)
        if strings.shape.ndims in (None, 1):
            made = gen_ops.string_split_v2(strings, "" if sep is None else sep, maxsplit, name=name)
            return SparseTensor(*made)
    return string_split_v2(strings, sep, maxsplit, name).to_sparse()


@export(v2="strings.bytes_split", v1="strings.bytes_split")
def bytes_split(input: Any, name: str | None = None) -> Any:
    """The bytes of each string, strings of length 1: a row for each."""
    with name_scope(name, "StringsByteSplit", [input]):

        def split(strings: Tensor) -> RaggedTensor:
            indices, values, shape = gen_ops.string_split(strings, "", skip_empty=False)
            return RaggedTensor.from_value_rowids(values, indices[:, 0], shape[0], validate=False)

        return _rows_of_strings(as_ragged_or_tensor(input), split)
