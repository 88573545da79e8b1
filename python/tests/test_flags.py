"""Command-line flags and the run of a program's main function."""

import enum
import subprocess
import sys

import numpy as np
import pytest

from millrace.compat.v1 import flags
from millrace.compat.v1 import program as app
from millrace.compat.v1.flags import definitions, flag_values, validators


@pytest.fixture
def values(monkeypatch):
    """A set of flags of its own, that reads this program's command line as an empty one."""
    monkeypatch.setattr(sys, "argv", ["program"])
    fresh = flags.FlagValues()
    for module in (flags, definitions, flag_values, validators):
        monkeypatch.setattr(module, "FLAGS", fresh)
    flags.DEFINE_string("name", "x", "A name.")
    flags.DEFINE_integer("count", 3, "A count.")
    flags.DEFINE_float("rate", 1, "A rate.")
    flags.DEFINE_boolean("quick", False, "Whether to be quick.")
    flags.DEFINE_bool("safe", True, "Whether to be safe.")
    flags.DEFINE_enum("kind", "big", ["big", "small"], "A kind.")
    flags.DEFINE_list("parts", ["1", "2"], "Parts.")
    flags.DEFINE_multi_integer("size", [1], "Sizes.")
    return fresh


def test_defaults_are_there_without_a_command_line(values):
    assert values.flag_values_dict() == {
        "name": "x",
        "count": 3,
        "rate": 1.0,
        "quick": False,
        "safe": True,
        "kind": "big",
        "parts": ["1", "2"],
        "size": [1],
    }
    assert isinstance(values.rate, float)
    flags.DEFINE_integer("batch", np.power(2, 7), "A count of NumPy's.")
    flags.DEFINE_float("decay", np.float32(0.5), "A rate of NumPy's.")
    assert (values.batch, type(values.batch), values.decay) == (128, int, 0.5)


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        (["--count=5"], {"count": 5}),
        (["--count", "5"], {"count": 5}),
        (["-count", "-5"], {"count": -5}),
        (["--count=0x10"], {"count": 16}),
        (["--rate=.5"], {"rate": 0.5}),
        (["--rate=1e-3"], {"rate": 1e-3}),
        (["--quick", "--nosafe"], {"quick": True, "safe": False}),
        (["--quick=true", "--safe=0"], {"quick": True, "safe": False}),
        (["--name="], {"name": ""}),
        (["--name=a=b"], {"name": "a=b"}),
        (["--kind=small"], {"kind": "small"}),
        (["--parts=a, b"], {"parts": ["a", "b"]}),
        (["--size=3", "--size=4"], {"size": [3, 4]}),
    ],
)
def test_the_command_line_is_parsed_when_a_flag_is_read(values, monkeypatch, arguments, changed):
    monkeypatch.setattr(sys, "argv", ["program", *arguments])
    assert not values.is_parsed()
    for name, value in changed.items():
        assert getattr(values, name) == value
    assert values.is_parsed()


def test_what_is_no_flag_is_left(values):
    assert values(["p", "a", "--count=4", "-", "b"]) == ["p", "a", "-", "b"]
    assert values(["p", "--", "--count=5"]) == ["p", "--count=5"]
    assert values(["p", "--other=3", "--count=6"], known_only=True) == ["p", "--other=3"]
    assert values.count == 6


def test_parsing_again_keeps_what_was_set(values):
    values.count = 9
    values(["p", "--size=2"])
    assert values(["p", "--size=2"]) == ["p"]
    assert values.count == 9 and values.size == [2]
    values.unparse_flags()
    assert values.count == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--count=abc"], "flag --count=abc: invalid literal"),
        (["--count=1.5"], "flag --count=1.5"),
        (["--rate=fast"], "flag --rate=fast: could not convert"),
        (["--quick=maybe"], "flag --quick=maybe: a boolean flag is one of"),
        (["--kind=smal"], r"one of <big\|small>, nearest: small"),
        (["--noquick=1"], "takes no value"),
        (["--count"], "Missing value for flag --count"),
        (["--cuont=1"], "Unknown command line flag 'cuont'; nearest flags: --count"),
        (["--nocount"], "Unknown command line flag 'nocount'"),
    ],
)
def test_bad_command_lines(values, arguments, message):
    with pytest.raises(flags.Error, match=message):
        values(["p", *arguments])


def test_flags_that_are_not_defined(values):
    with pytest.raises(AttributeError, match="'cuont'; nearest flags: --count"):
        _ = values.cuont
    with pytest.raises(flags.UnrecognizedFlagError, match="nearest flags: --count"):
        values.cuont = 3
    with pytest.raises(KeyError):
        _ = values["cuont"]
    assert not hasattr(values, "cuont") and "cuont" not in values and "count" in values


@pytest.mark.parametrize(
    "define",
    [
        lambda: flags.DEFINE_string("s", 5, ""),
        lambda: flags.DEFINE_integer("s", 1.5, ""),
        lambda: flags.DEFINE_float("s", "a", ""),
        lambda: flags.DEFINE_boolean("s", "xx", ""),
        lambda: flags.DEFINE_enum("s", "z", ["a"], ""),
        lambda: flags.DEFINE_integer("s", 9, "", upper_bound=5),
    ],
)
def test_bad_defaults(values, define):
    with pytest.raises(flags.IllegalFlagValueError, match="flag --s="):
        define()


def test_bad_definitions(values):
    with pytest.raises(flags.DuplicateFlagError, match=f"first in {__name__}.*A count"):
        flags.DEFINE_integer("count", 8, "")
    for name in ("", "is_parsed", "_flags"):
        with pytest.raises(flags.Error):
            flags.DEFINE_string(name, "", "")
    with pytest.raises(TypeError, match="colour"):
        flags.DEFINE_string("s", "", "", colour=1)


def test_old_argument_names(values):
    flags.DEFINE_string(flag_name="old", default_value="k", docstring="Help.")
    assert values.old == "k" and values["old"].help == "Help."


def test_other_kinds_of_flags(values):
    class Colour(enum.Enum):
        RED = 1
        BLUE = 2

    flags.DEFINE_enum_class("colour", Colour.RED, Colour, "")
    flags.DEFINE_spaceseplist("words", "a b", "", comma_compat=True)
    flags.DEFINE_multi_string("texts", None, "")
    flags.DEFINE_multi_float("rates", 1.5, "")
    flags.DEFINE_multi_enum("kinds", ["a"], ["a", "b"], "")
    flags.DEFINE_string("long", "v", "", short_name="l")
    flags.DEFINE_alias("tall", "long")
    assert (values.colour, values.words, values.texts) == (Colour.RED, ["a", "b"], None)
    assert (values.rates, values.kinds, values.tall) == ([1.5], ["a"], "v")
    values(["p", "--colour=blue", "--words=c,d e", "--texts=q", "--kinds=b", "-l", "w"])
    assert (values.colour, values.words, values.texts) == (Colour.BLUE, ["c", "d", "e"], ["q"])
    assert (values.kinds, values.tall, values.l) == (["b"], "w", "w")


def test_holders(values):
    holder = flags.DEFINE_string("held", "v", "")
    assert (holder.name, holder.default, holder.value, holder.present) == ("held", "v", "v", False)
    values(["p", "--held=w"])
    assert (holder.value, holder.present) == ("w", True)


def test_validators(values):
    flags.register_validator("count", lambda n: n < 4, message="too many")
    flags.DEFINE_string("needed", None, "")
    flags.mark_flag_as_required("needed")
    with pytest.raises(flags.IllegalFlagValueError) as caught:
        values(["p", "--count=5"])
    assert "flag --count=5: too many" in str(caught.value)
    assert "--needed must have a value" in str(caught.value)
    values(["p", "--count=1", "--needed=x"])
    with pytest.raises(flags.IllegalFlagValueError, match="too many"):
        values.count = 50


def test_exclusive_flags(values):
    for name in ("a", "b"):
        flags.DEFINE_string(name, None, "")
    flags.mark_flags_as_mutual_exclusive(["a", "b"])
    values(["p", "--a=1"])
    with pytest.raises(flags.IllegalFlagValueError, match="At most one"):
        values(["p", "--b=1"])


def test_names_of_tensorflow_1_0(values):
    assert values._parse_flags(["--count=7", "--other"]) == ["--other"]
    assert getattr(values, "__flags")["count"] == 7


def test_run_passes_what_is_left(values):
    seen = []
    with pytest.raises(SystemExit) as stop:
        app.run(lambda argv: seen.append((argv, values.count)), ["p", "a", "--count=4", "--zz=1"])
    assert seen == [(["p", "a", "--zz=1"], 4)] and stop.value.code is None


def test_run_returns_what_main_returns(values):
    with pytest.raises(SystemExit) as stop:
        app.run(lambda argv: 7, ["p"])
    assert stop.value.code == 7


def test_run_reports_bad_flags(values, capsys):
    with pytest.raises(SystemExit) as stop:
        app.run(lambda argv: None, ["p", "--count=abc"])
    assert stop.value.code == 1
    assert "flag --count=abc" in capsys.readouterr().err


def test_run_prints_help(values, capsys):
    with pytest.raises(SystemExit) as stop:
        app.run(lambda argv: None, ["p", "--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert "--[no]quick: Whether to be quick." in printed and "default: 3" in printed


def test_run_finds_main(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from millrace.compat.v1 import program as app\n"
        "from millrace.compat.v1 import flags\n"
        "flags.DEFINE_integer('n', 1, '')\n"
        "def main(argv):\n"
        "    print(argv[1:], flags.FLAGS.n)\n"
        "app.run()\n"
    )
    done = subprocess.run(
        [sys.executable, script, "a", "--n=5"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['a'] 5\n"


def test_run_without_main(values, monkeypatch):
    monkeypatch.delattr(sys.modules["__main__"], "main", raising=False)
    with pytest.raises(ValueError, match="define main"):
        app.run()
