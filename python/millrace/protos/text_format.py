"""Messages as text, the format of protobuf's `text_format`."""

from typing import TypeVar

from millrace import _core
from millrace._core import DecodeError as ParseError
from millrace._core import Message

__all__ = ["Merge", "MessageToString", "Parse", "ParseError", "PrintMessage"]

M = TypeVar("M", bound=Message)


def MessageToString(
    message: Message,
    as_utf8: bool = False,
    as_one_line: bool = False,
    use_short_repeated_primitives: bool = False,
    *,
    print_unknown_fields: bool = False,
    indent: int = 0,
) -> str:
    """Returns the message as text.

    Args:
      message: the message.
      as_utf8: write characters beyond ASCII as they are, not as escapes.
      as_one_line: write no line breaks.
      use_short_repeated_primitives: write lists of numbers as `[1, 2]`.
      print_unknown_fields: also write fields that the type does not know, by number.
      indent: spaces before each line; an even number.
    """
    return _core.message_to_text(
        message,
        as_utf8,
        as_one_line,
        use_short_repeated_primitives,
        print_unknown_fields,
        indent,
    )


def PrintMessage(message: Message, out, **how) -> None:
    """Writes the message as text to the file `out`; `how` as for MessageToString."""
    out.write(MessageToString(message, **how))


def Merge(text: str | bytes, message: M, *, allow_unknown_field: bool = False) -> M:
    """Adds what the text says to the message, and returns the message.

    Raises:
      ParseError: the text is not a message of this type; the message is not changed.
    """
    if isinstance(text, bytes):
        text = text.decode()
    # Zeros may stand in strings as they are; the parser of the extension module ends at them.
    _core.merge_text(message, text.replace("\0", "\\000"), allow_unknown_field)
    return message


def Parse(text: str | bytes, message: M, *, allow_unknown_field: bool = False) -> M:
    """Reads a message from text into an empty `message`, and returns it.

    Raises:
      ParseError: the text is not a message of this type; the message is not changed.
    """
    return Merge(text, message, allow_unknown_field=allow_unknown_field)
