"""Flags and their values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from millrace.compat.v1.flags.parsers import as_list
from millrace.core.export import export
from millrace.core.suggest import nearest


@export(v1=("flags.Error", "app.flags.Error"))
class Error(Exception):
    """The base of all errors of flags."""


@export(v1=("flags.DuplicateFlagError", "app.flags.DuplicateFlagError"))
class DuplicateFlagError(Error):
    """A flag is defined twice."""


@export(v1=("flags.IllegalFlagValueError", "app.flags.IllegalFlagValueError"))
class IllegalFlagValueError(Error):
    """A value that a flag cannot have."""


@export(v1=("flags.ValidationError", "app.flags.ValidationError"))
class ValidationError(Error):
    """Raised by validators that refuse a value."""


@export(v1=("flags.UnparsedFlagAccessError", "app.flags.UnparsedFlagAccessError"))
class UnparsedFlagAccessError(Error):
    """A flag is read before the command line has been parsed."""


@export(v1=("flags.UnrecognizedFlagError", "app.flags.UnrecognizedFlagError"))
class UnrecognizedFlagError(Error):
    """A flag that is not defined."""


_HELP_FLAGS = {"help", "helpshort", "helpfull", "h"}


def unknown_flag(name: str, defined: Iterable[str]) -> str:
    like = nearest(name, defined)
    hint = f"; nearest flags: {', '.join('--' + each for each in like)}" if like else ""
    return f"Unknown command line flag '{name}'{hint}"


class Flag:
    """One flag: what it is called, how its text is read, its default and its value."""

    def __init__(
        self,
        name: str,
        default: Any,
        help: str | None,
        parse: Callable[[Any], Any],
        *,
        kind: str = "",
        boolean: bool = False,
        multiple: bool = False,
    ) -> None:
        """`parse` makes a value of text, or of a default; ValueError where it cannot.

        `kind` says what a value is, for the help text. A flag that is `multiple` collects the
        values of all its occurrences in a list.
        """
        self.name = name
        self.help = help or ""
        self.kind = kind
        self.boolean = boolean
        self.multiple = multiple
        self.module = ""
        self._parse = parse
        self.present = 0
        if default is not None and multiple:
            values = [default] if isinstance(default, str) else as_list(default)
            default = [self._read(value) for value in values]
        elif default is not None:
            default = self._read(default)
        self.default = default
        self.value = default

    def _read(self, value: Any) -> Any:
        try:
            return self._parse(value)
        except (ValueError, TypeError) as error:
            raise IllegalFlagValueError(f"flag --{self.name}={value}: {error}") from None

    def parse(self, text: Any, again: bool = False) -> None:
        """Takes a value from the command line; `again` where that has given one before."""
        value = self._read(text)
        if self.multiple:
            value = [*self.value, value] if again else [value]
        self.value = value
        self.present += 1

    def unparse(self) -> None:
        """Goes back to the default."""
        self.value = self.default
        self.present = 0


@export(v1=("flags.FlagValues", "app.flags.FlagValues"))
class FlagValues:
    """All flags of a program; their values are attributes.

    Reading a flag parses `sys.argv` if nothing has yet. `flags[name]` is the Flag itself.
    """

    def __init__(self) -> None:
        self.__dict__["_flags"] = {}
        self.__dict__["_validators"] = []
        self.__dict__["_parsed"] = False

    def __getattr__(self, name: str) -> Any:
        flags = self.__dict__.get("_flags", {})
        flag = flags.get(name)
        if flag is None:
            if name == "__flags":
                return self.flag_values_dict()
            raise AttributeError(unknown_flag(name, flags))
        self._parse_if_needed()
        return flag.value

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._flags:
            raise UnrecognizedFlagError(unknown_flag(name, self._flags))
        flag = self._flags[name]
        flag.value = value
        flag.present += 1
        self._validate({name})

    def __delattr__(self, name: str) -> None:
        if name not in self._flags:
            raise AttributeError(unknown_flag(name, self._flags))
        del self._flags[name]

    def __getitem__(self, name: str) -> Flag:
        return self._flags[name]

    def __setitem__(self, name: str, flag: Flag) -> None:
        self._flags[name] = flag

    def __contains__(self, name: object) -> bool:
        return name in self._flags

    def __iter__(self) -> Iterator[str]:
        return iter(self._flags)

    def __len__(self) -> int:
        return len(self._flags)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._flags]

    def __call__(self, argv: list[str], known_only: bool = False) -> list[str]:
        """Parses `argv`, whose first element is the program; returns what is not a flag.

        Flags that are not defined are left in the result with `known_only`, and are an
        UnrecognizedFlagError otherwise. Raises IllegalFlagValueError for bad values.
        """
        if isinstance(argv, (str, bytes)):
            raise TypeError(f"the command line must be a list of strings, got {argv!r}")
        if not argv:
            raise ValueError("the command line must start with the program's name, got []")
        rest = self._parse_arguments(list(argv), known_only)
        self.__dict__["_parsed"] = True
        self._validate(self._flags)
        return rest

    def _parse_arguments(self, argv: list[str], known_only: bool) -> list[str]:
        rest, arguments, seen = argv[:1], iter(argv[1:]), set()
        for argument in arguments:
            if argument == "--":
                rest += [argument, *arguments] if known_only else arguments
                break
            if argument[:1] != "-" or argument == "-":
                rest.append(argument)
                continue
            name, equals, text = argument[2 if argument[:2] == "--" else 1 :].partition("=")
            flag = self._flags.get(name)
            if flag is not None and flag.boolean:
                flag.parse(text if equals else True)
            elif flag is not None:
                value = text if equals else self._next_value(name, arguments)
                flag.parse(value, again=flag.name in seen)
                seen.add(flag.name)
            elif name[:2] == "no" and name[2:] in self._flags and self._flags[name[2:]].boolean:
                if equals:
                    raise IllegalFlagValueError(f"--{name}={text}: --{name} takes no value")
                self._flags[name[2:]].parse(False)
            elif known_only:
                rest.append(argument)
            else:
                raise UnrecognizedFlagError(unknown_flag(name, self._flags))
        return rest

    @staticmethod
    def _next_value(name: str, arguments: Iterator[str]) -> str:
        value = next(arguments, None)
        if value is None:
            raise Error(f"Missing value for flag --{name}")
        return value

    def _parse_if_needed(self) -> None:
        if not self._parsed:
            argv = sys.argv or [""]
            exit_for_help(argv)
            self(argv)

    def _parse_flags(self, args: list[str] | None = None) -> list[str]:
        """Parses `args`, without the program's name; the name of this in TensorFlow 1.0."""
        return self([*(sys.argv[:1] or [""]), *(sys.argv[1:] if args is None else args)], True)[1:]

    def _validate(self, changed: Iterable[str]) -> None:
        problems = []
        for names, check, message in self._validators:
            if not any(name in changed for name in names) or any(n not in self for n in names):
                continue
            values = {name: self._flags[name].value for name in names}
            try:
                good = check(next(iter(values.values())) if len(names) == 1 else values)
            except ValidationError as error:
                good, message = False, str(error)
            if not good:
                shown = ", ".join(f"--{name}={value}" for name, value in values.items())
                problems.append(f"flag {shown}: {message}")
        if problems:
            raise IllegalFlagValueError("\n".join(problems))

    def is_parsed(self) -> bool:
        """Whether a command line has been parsed."""
        return self._parsed

    def mark_as_parsed(self) -> None:
        """Leaves the flags at their defaults, as if an empty command line had been parsed."""
        self.__dict__["_parsed"] = True

    def unparse_flags(self) -> None:
        """Sets all flags back to their defaults; the next read parses the command line again."""
        for flag in self._flags.values():
            flag.unparse()
        self.__dict__["_parsed"] = False

    def set_default(self, name: str, value: Any) -> None:
        """Changes the default of a flag, and its value where the command line gave none."""
        if name not in self._flags:
            raise UnrecognizedFlagError(unknown_flag(name, self._flags))
        flag = self._flags[name]
        flag.default = value if value is None or flag.multiple else flag._read(value)
        if not flag.present:
            flag.value = flag.default

    def flag_values_dict(self) -> dict[str, Any]:
        """The values of all flags by name."""
        self._parse_if_needed()
        return {name: flag.value for name, flag in self._flags.items()}

    def get_flag_value(self, name: str, default: Any) -> Any:
        """The value of a flag, or `default` where it is None."""
        value = getattr(self, name)
        return default if value is None else value

    def get_help(self) -> str:
        """What `--help` prints of the flags."""
        lines = []
        for name in sorted(self._flags):
            flag = self._flags[name]
            prefix = "--[no]" if flag.boolean else "--"
            lines.append(f"  {prefix}{name}: {flag.help}")
            notes = [f"a {flag.kind}"] if flag.kind else []
            if flag.multiple:
                notes.append("may be repeated")
            notes.append(f"default: {_written(flag.default)}")
            lines.append(f"    ({', '.join(notes)})")
        return "\n".join(lines)


def _written(value: Any) -> str:
    """A value as it would be written on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "'" + ",".join(map(str, value)) + "'"
    return repr(value) if isinstance(value, str) else str(value)


FLAGS = export(v1=("flags.FLAGS", "app.flags.FLAGS"))(FlagValues())


def exit_for_help(argv: list[str]) -> None:
    """Prints the flags and exits where `argv` asks for help before any `--`."""
    for argument in argv[1:]:
        if argument == "--":
            return
        name = argument.lstrip("-")
        if argument != name and name in _HELP_FLAGS and name not in FLAGS:
            about = getattr(sys.modules.get("__main__"), "__doc__", None)
            heading = about.strip() + "\n\n" if about else ""
            program = argv[0] or "program"
            sys.stdout.write(f"{heading}flags of {program}:\n\n{FLAGS.get_help()}\n")
            sys.exit(0)


@export(v1=("flags.FlagHolder", "app.flags.FlagHolder"))
class FlagHolder:
    """What a DEFINE function returns: one flag of a set of flags."""

    def __init__(self, flag_values: FlagValues, name: str) -> None:
        self._flag_values = flag_values
        self._name = name

    @property
    def name(self) -> str:
        """The name of the flag."""
        return self._name

    @property
    def value(self) -> Any:
        """The value, which parses the command line if nothing has yet."""
        return getattr(self._flag_values, self._name)

    @property
    def default(self) -> Any:
        """The value without a command line."""
        return self._flag_values[self._name].default

    @property
    def present(self) -> bool:
        """Whether the command line gave a value."""
        return bool(self._flag_values[self._name].present)
