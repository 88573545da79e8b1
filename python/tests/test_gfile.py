"""Files and folders, text and bytes."""

import pathlib

import numpy as np
import pytest

from millrace.core import errors
from millrace.core import text as compat
from millrace.io import gfile, resource_loader

GFile = gfile.GFile


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"hello\r\nw\xc3\xb6rld\n")
    return tmp_path


def test_reading():
    assert GFile("a.txt").read() == "hello\r\nwörld\n"
    assert GFile("a.txt", "rb").read(4) == b"hell"
    assert GFile("a.txt").readline() == "hello\n"
    assert GFile("a.txt").readlines() == list(gfile.FastGFile("a.txt")) == ["hello\n", "wörld\n"]
    assert GFile("a.txt", "rb").readlines() == [b"hello\r\n", b"w\xc3\xb6rld\n"]
    assert GFile(b"a.txt").size() == GFile(pathlib.Path("a.txt")).size() == 14
    with GFile("a.txt") as file:
        assert (file.name, file.mode, file.next(), file.tell()) == ("a.txt", "r", "hello\n", 7)
        assert file.read(1) == "w"


def test_writing():
    with gfile.Open("b.txt", "w") as file:
        file.write("text\n")
        file.write(b"bytes")
        assert (file.tell(), file.size()) == (10, 10)
    GFile("b.txt", "a").write(" more")
    assert GFile("b.txt").read() == "text\nbytes more"
    with GFile("b.txt", "w+") as file:
        file.write("new")
        assert file.read() == "new"
    with pytest.raises(TypeError):
        GFile("b.txt", "w").write(5)


def test_files_open_when_they_are_used():
    GFile("c.txt", "w").close()
    assert not gfile.Exists("c.txt")
    missing = GFile("c.txt")
    with pytest.raises(errors.NotFoundError, match=r"c\.txt; No such file"):
        missing.read()


def test_seeking():
    file = GFile("a.txt")
    file.seek(3)
    assert file.read(2) == "lo"
    file.seek(-3, 2)
    assert file.read() == "ld\n"
    file.seek(position=1)
    file.seek(1, 1)
    assert file.tell() == 2 and file.seekable()
    with pytest.raises(errors.OutOfRangeError):
        file.seek(1000)
    assert file.read() == ""
    with pytest.raises(errors.InvalidArgumentError):
        file.seek(0, 5)
    with pytest.raises(errors.InvalidArgumentError):
        file.seek(-1)
    with pytest.raises(TypeError):
        file.seek()


def test_modes():
    for mode in ("z", "rt", ""):
        with pytest.raises(errors.InvalidArgumentError, match="is not one of"):
            GFile("a.txt", mode)
    with pytest.raises(errors.PermissionDeniedError, match="reading"):
        GFile("b.txt", "w").read()
    with pytest.raises(errors.PermissionDeniedError, match="writing"):
        GFile("a.txt").write("x")
    with pytest.raises(errors.NotFoundError):
        GFile("none/x", "w").write("x")
    with pytest.raises(errors.FailedPreconditionError):
        GFile(".").read()


def test_folders():
    gfile.MkDir("d")
    gfile.MkDir("d")
    gfile.MakeDirs("x/y/z")
    gfile.MakeDirs("x/y/z")
    assert gfile.IsDirectory("d") and not gfile.IsDirectory("a.txt")
    assert gfile.ListDirectory(".") == ["a.txt", "d", "x"]
    assert list(gfile.Walk("x")) == [("x", ["y"], []), ("x/y", ["z"], []), ("x/y/z", [], [])]
    assert [path for path, _, _ in gfile.Walk("x", in_order=False)] == ["x/y/z", "x/y", "x"]
    assert list(gfile.Walk("none")) == []
    gfile.DeleteRecursively("x")
    assert not gfile.Exists("x")
    with pytest.raises(errors.NotFoundError):
        gfile.MkDir("x/y")
    with pytest.raises(errors.FailedPreconditionError):
        gfile.MakeDirs("a.txt/b")
    for path in ("none", "a.txt"):
        with pytest.raises(errors.NotFoundError, match="Could not find directory"):
            gfile.ListDirectory(path)
    with pytest.raises(errors.NotFoundError):
        gfile.DeleteRecursively("x")


def test_copying_renaming_removing():
    gfile.Copy("a.txt", "b.txt")
    with pytest.raises(errors.AlreadyExistsError):
        gfile.Copy("a.txt", "b.txt")
    gfile.Copy("a.txt", "b.txt", overwrite=True)
    with pytest.raises(errors.AlreadyExistsError):
        gfile.Rename("a.txt", "b.txt")
    gfile.Rename("b.txt", "c.txt")
    assert gfile.ListDirectory(".") == ["a.txt", "c.txt"]
    gfile.Remove("c.txt")
    for action in (
        lambda: gfile.Copy("none", "d.txt"),
        lambda: gfile.Rename("none", "d.txt"),
        lambda: gfile.Remove("none"),
        lambda: gfile.Stat("none"),
    ):
        with pytest.raises(errors.NotFoundError, match="none; No such file"):
            action()
    with pytest.raises(errors.FailedPreconditionError):
        gfile.Remove(".")


def test_stat(folder):
    found = gfile.Stat("a.txt")
    assert (found.length, found.is_directory) == (14, False)
    assert found.mtime_nsec == (folder / "a.txt").stat().st_mtime_ns
    assert gfile.Stat(".").is_directory


def test_glob(folder):
    gfile.MakeDirs("x/y/z")
    (folder / ".hidden").touch()
    assert gfile.Glob("*") == ["./.hidden", "./a.txt", "./x"]
    assert gfile.Glob(["*.txt", "x/*/*"]) == ["./a.txt", "x/y/z"]
    assert gfile.Glob(str(folder / "[ab].tx?")) == [str(folder / "a.txt")]
    assert gfile.Glob("none*") == gfile.Glob("none/*") == gfile.Glob("") == []


def test_schemes(folder):
    assert gfile.Exists(f"file://{folder}/a.txt")
    with pytest.raises(errors.UnimplementedError, match="scheme 'gs' not implemented"):
        gfile.Exists("gs://bucket/file")


@pytest.mark.parametrize("name", ["a\0b", b"a\0b", "\ud800", "x" * 5000])
def test_what_no_file_can_be_called(name):
    for function in (
        gfile.MkDir, gfile.MakeDirs, gfile.Remove, gfile.DeleteRecursively, gfile.Stat,
        lambda path: gfile.Rename("a.txt", path), lambda path: gfile.Copy("a.txt", path),
        lambda path: GFile(path).read(), lambda path: GFile(path, "w").write("x"),
    ):  # fmt: skip
        with pytest.raises(errors.InvalidArgumentError):
            function(name)


def test_text_and_bytes():
    assert compat.as_bytes("é") == b"\xc3\xa9" and compat.as_bytes("é", "latin-1") == b"\xe9"
    assert compat.as_bytes(b"a") == compat.as_bytes(bytearray(b"a")) == b"a"
    assert compat.as_text(b"\xc3\xa9") == compat.as_str("é") == "é"
    assert compat.as_str_any(3) == "3" and compat.as_str_any(b"a") == "a"
    assert compat.path_to_str(pathlib.Path("a/b")) == "a/b" and compat.path_to_str(3) == 3
    for convert in (compat.as_bytes, compat.as_text, compat.as_str):
        with pytest.raises(TypeError, match="Expected binary or unicode string, got 3"):
            convert(3)
    with pytest.raises(UnicodeDecodeError):
        compat.as_text(b"\xff")


def test_classes_of_numbers():
    assert isinstance(np.int32(1), compat.integral_types) and isinstance(1, compat.integral_types)
    assert isinstance(np.float32(1), compat.real_types)
    assert not isinstance(1.5, compat.integral_types)
    assert isinstance(np.complex64(1), compat.complex_types)
    assert isinstance("a", compat.bytes_or_text_types)


def test_files_beside_the_program():
    here = pathlib.Path(__file__)
    assert resource_loader.get_data_files_path() == str(here.parent)
    assert resource_loader.get_path_to_datafile("x") == str(here.parent / "x")
    assert resource_loader.load_resource(here.name) == here.read_bytes()
    with pytest.raises(IOError):
        resource_loader.load_resource("none")
