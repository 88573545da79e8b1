"""What stands for names that have no value (yet)."""

from typing import Any, Callable


class Undefined:
    """A name without a value. Reading it in converted code is an UnboundLocalError."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def read(self) -> Any:
        """Raises what reading a name without a value does."""
        raise UnboundLocalError(f"'{self.name}' is used before assignment")

    def __repr__(self) -> str:
        return f"<undefined {self.name}>"


class UndefinedReturnValue:
    """The return value of a function that has not returned (yet)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<no return value>"


def is_undefined(value: Any) -> bool:
    """Whether the value stands for none."""
    return isinstance(value, (Undefined, UndefinedReturnValue))


def ld(value: Any) -> Any:
    """A name's value; UnboundLocalError where it has none."""
    if type(value) is Undefined:
        value.read()
    return value


def ldu(read: Callable[[], Any], name: str) -> Any:
    """What `read()` gives, or an Undefined where there is nothing of that name."""
    try:
        return read()
    except (AttributeError, IndexError, KeyError, NameError):
        return Undefined(name)


def returned(value: Any) -> Any:
    """What a function returns whose `return` statements set `value`."""
    return None if isinstance(value, UndefinedReturnValue) else value
