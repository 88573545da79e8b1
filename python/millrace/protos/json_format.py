"""Messages as JSON, the format of protobuf's `json_format`."""

import json
from typing import Any, TypeVar

from millrace import _core
from millrace._core import DecodeError as ParseError
from millrace._core import EncodeError as SerializeToJsonError
from millrace._core import Message

__all__ = [
    "MessageToDict",
    "MessageToJson",
    "Parse",
    "ParseDict",
    "ParseError",
    "SerializeToJsonError",
]

M = TypeVar("M", bound=Message)


def MessageToDict(
    message: Message,
    including_default_value_fields: bool = False,
    preserving_proto_field_name: bool = False,
    use_integers_for_enums: bool = False,
) -> dict[str, Any]:
    """Returns the message as what its JSON form holds: dicts, lists, strings and numbers.

    Args:
      message: the message.
      including_default_value_fields: also give scalars that are zero and lists that are empty.
      preserving_proto_field_name: `graph_def` rather than `graphDef`.
      use_integers_for_enums: numbers rather than names.
    """
    return json.loads(
        _core.message_to_json(
            message,
            including_default_value_fields,
            preserving_proto_field_name,
            use_integers_for_enums,
        )
    )


def MessageToJson(
    message: Message,
    including_default_value_fields: bool = False,
    preserving_proto_field_name: bool = False,
    indent: int | None = 2,
    sort_keys: bool = False,
    use_integers_for_enums: bool = False,
    ensure_ascii: bool = True,
) -> str:
    """Returns the message as JSON; for the arguments see MessageToDict and `json.dumps`."""
    fields = MessageToDict(
        message,
        including_default_value_fields,
        preserving_proto_field_name,
        use_integers_for_enums,
    )
    return json.dumps(fields, indent=indent, sort_keys=sort_keys, ensure_ascii=ensure_ascii)


def Parse(text: str | bytes, message: M, ignore_unknown_fields: bool = False) -> M:
    """Adds what the JSON says to the message, and returns the message.

    Raises:
      ParseError: the text is not JSON of this type; the message is not changed.
    """
    if isinstance(text, bytes):
        text = text.decode()
    _core.merge_json(message, text, ignore_unknown_fields)
    return message


def ParseDict(js_dict: dict[str, Any], message: M, ignore_unknown_fields: bool = False) -> M:
    """The same as Parse for what `json.loads` would make of the text."""
    return Parse(json.dumps(js_dict), message, ignore_unknown_fields)
