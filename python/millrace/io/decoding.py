"""Strings into tensors, and whole files into strings."""

from itertools import pairwise
from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.operation import Operation


def _either(first: Any, second: Any, names: tuple[str, str]) -> Any:
    value = second if first is None else first
    if value is None:
        raise TypeError(f"one of {names[0]!r} and {names[1]!r} must be given")
    return value


@export(v1=("decode_raw", "io.decode_raw"))
def decode_raw(
    input_bytes: Any = None, out_type: Any = None, little_endian: bool = True,
    name: str | None = None, bytes: Any = None,
) -> Tensor:  # fmt: skip
    """The bytes of strings of one length as numbers, along a new last dimension."""
    strings = _either(input_bytes, bytes, ("input_bytes", "bytes"))
    if out_type is None:
        raise TypeError("decode_raw: 'out_type' must be given")
    return gen_ops.decode_raw(
        strings, out_type=dtypes.as_dtype(out_type), little_endian=little_endian, name=name
    )


@export(v2="io.decode_raw")
def decode_raw_v2(
    input_bytes: Any, out_type: Any, little_endian: bool = True, fixed_length: Any = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The bytes of strings as numbers, along a new last dimension.

    `fixed_length`: how many bytes each string is cut or filled up to, with zeros; strings have one
    length where it is None.
    """
    out_type = dtypes.as_dtype(out_type)
    if fixed_length is None:
        return gen_ops.decode_raw(
            input_bytes, out_type=out_type, little_endian=little_endian, name=name
        )
    return gen_ops.decode_padded_raw(
        input_bytes, fixed_length, out_type=out_type, little_endian=little_endian, name=name
    )


@export(v1=("decode_csv", "io.decode_csv"))
def decode_csv(
    records: Any, record_defaults: Any, field_delim: str | None = ",",
    use_quote_delim: bool = True, name: str | None = None, na_value: str = "",
    select_cols: Any = None,
) -> list[Tensor]:  # fmt: skip
    """The fields of CSV records, a tensor of the records' shape for each column.

    Args:
      records: strings, one record each.
      record_defaults: for each column what an empty field means, and with it the column's type;
        an empty vector where the field is required.
      field_delim: the character between fields.
      use_quote_delim: whether fields may stand in double quotes.
      na_value: what else counts as an empty field.
      select_cols: the columns to take, in increasing order; all by default.
    """
    columns = [] if select_cols is None else list(select_cols)
    if any(later <= earlier for earlier, later in pairwise(columns)):
        raise ValueError("select_cols is not strictly increasing.")
    if columns and columns[0] < 0:
        raise ValueError("select_cols contains negative values.")
    if columns and len(columns) != len(record_defaults):
        raise ValueError("Length of select_cols and record_defaults do not match.")
    outputs = gen_ops.decode_csv(
        records, [convert_to_tensor(default) for default in record_defaults],
        field_delim="," if field_delim is None else field_delim,
        use_quote_delim=use_quote_delim, na_value=na_value, select_cols=columns, name=name,
    )  # fmt: skip
    return list(outputs)


decode_csv_v2 = export(v2="io.decode_csv")(
    reordered(
        decode_csv,
        "records record_defaults field_delim use_quote_delim na_value select_cols name",
    )
)


@export(v1=("decode_json_example", "io.decode_json_example"), v2="io.decode_json_example")
def decode_json_example(json_examples: Any, name: str | None = None) -> Tensor:
    """Examples in JSON as serialized `tf.train.Example` messages."""
    return gen_ops.decode_json_example(json_examples, name=name)


@export(v1=("decode_compressed", "io.decode_compressed"), v2="io.decode_compressed")
def decode_compressed(bytes: Any, compression_type: str = "", name: str | None = None) -> Tensor:
    """Strings with their compression undone: "ZLIB", "GZIP" or ""."""
    return gen_ops.decode_compressed(bytes, compression_type=compression_type, name=name)


@export(v1=("parse_tensor", "io.parse_tensor"), v2="io.parse_tensor")
def parse_tensor(serialized: Any, out_type: Any, name: str | None = None) -> Tensor:
    """The tensor in a serialized TensorProto, which must be of type `out_type`."""
    return gen_ops.parse_tensor(serialized, out_type=dtypes.as_dtype(out_type), name=name)


@export(v1=("serialize_tensor", "io.serialize_tensor"), v2="io.serialize_tensor")
def serialize_tensor(tensor: Any, name: str | None = None) -> Tensor:
    """A tensor as a serialized TensorProto."""
    return gen_ops.serialize_tensor(tensor, name=name)


@export(v1=("read_file", "io.read_file"), v2="io.read_file")
def read_file(filename: Any, name: str | None = None) -> Tensor:
    """The contents of a file."""
    return gen_ops.read_file(filename, name=name)


@export(v1=("write_file", "io.write_file"), v2="io.write_file")
def write_file(filename: Any, contents: Any, name: str | None = None) -> Operation:
    """Writes a file whole, making the folders it needs."""
    return gen_ops.write_file(filename, contents, name=name)


@export(v1=("matching_files", "io.matching_files"), v2="io.matching_files")
def matching_files(pattern: Any, name: str | None = None) -> Tensor:
    """The files that patterns match, sorted; `*`, `?` and `[a-z]` match within a name."""
    return gen_ops.matching_files(pattern, name=name)
