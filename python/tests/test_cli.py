"""The command `millrace`."""

import os
import signal
import subprocess
import sys

import pytest

# Programs here use no name of TensorFlow, which would need the extension module.
PROGRAM = """\
'''Doc.'''
import sys
print(__name__, __file__, __doc__, sys.argv, sys.path[0], __spec__, __package__)
print(sys.modules['__main__'].sys is sys)
"""


def millrace(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "millrace", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        timeout=60,
        check=False,
    )


def plain(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, check=False
    )


@pytest.fixture
def script(tmp_path):
    """Writes a script and returns its path."""

    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return write


def test_a_script_sees_what_python_shows_it(script, tmp_path):
    path = script(PROGRAM)
    ours, python = millrace("run", path, "-x", "--help"), plain(path, "-x", "--help")
    assert (ours.stdout, ours.stderr, ours.returncode) == (python.stdout, "", 0)
    ours, python = millrace("run", "script.py", cwd=tmp_path), plain("script.py", cwd=tmp_path)
    assert ours.stdout == python.stdout


def test_modules_beside_the_script_are_found(script, tmp_path):
    (tmp_path / "beside.py").write_text("value = 42\n")
    done = millrace("run", script("import beside\nprint(beside.value)\n"))
    assert done.stdout == "42\n"


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("", 0),
        ("import sys; sys.exit(7)", 7),
        ("raise SystemExit", 0),
        ("import sys; sys.exit('words')", 1),
        ("import os; os._exit(3)", 3),
        ("1/0", 1),
    ],
)
def test_exit_codes_are_kept(script, ending, code):
    assert millrace("run", script(ending)).returncode == code


def test_interrupts_are_kept(script):
    done = millrace("run", script("import os, signal; os.kill(os.getpid(), signal.SIGINT)"))
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in done.stderr and "cli.py" not in done.stderr


def test_tracebacks_are_those_of_python(script):
    path = script("def f():\n    return 1/0\n\nf()\n")
    assert millrace("run", path).stderr == plain(path).stderr


def test_syntax_errors_are_those_of_python(script):
    path = script("x = = 1\n")
    assert millrace("run", path).stderr == plain(path).stderr


def test_tracebacks_hide_libraries(script):
    path = script("import millrace.core.nest as nest\n\nnest.map_structure(1, [2])\n")
    done = millrace("run", path)
    assert f'File "{path}", line 3' in done.stderr and "nest.py" not in done.stderr
    assert done.stderr.endswith("TypeError: func must be callable, got: 1\n")
    assert done.stderr.count("File ") == 1


def test_tracebacks_hide_libraries_in_causes_and_threads(script):
    path = script(
        "import threading\n"
        "import millrace.core.nest as nest\n"
        "def work():\n"
        "    try:\n"
        "        nest.map_structure(1, [2])\n"
        "    except TypeError as error:\n"
        "        raise RuntimeError('outer') from error\n"
        "thread = threading.Thread(target=work)\n"
        "thread.start()\n"
        "thread.join()\n"
    )
    done = millrace("run", path)
    assert "RuntimeError: outer" in done.stderr and "nest.py" not in done.stderr
    assert "threading.py" not in done.stderr and done.stderr.count("File ") == 2


def test_the_hook_of_the_program_is_used(script):
    path = script("import sys\nsys.excepthook = lambda *a: print('mine')\n1/0\n")
    done = millrace("run", path)
    assert (done.stdout, done.stderr, done.returncode) == ("mine\n", "", 1)


def test_a_script_that_is_not_there(tmp_path):
    done = millrace("run", tmp_path / "none.py")
    assert done.returncode == 2 and "can't open file" in done.stderr
    assert "none.py" in done.stderr and "Traceback" not in done.stderr


def test_help_and_version():
    done = millrace("--help")
    assert done.returncode == 0 and "millrace run SCRIPT" in done.stdout
    done = millrace("run", "--help")
    assert done.returncode == 0 and "import tensorflow" in done.stdout
    done = millrace("--version")
    assert done.returncode == 0 and done.stdout.startswith("millrace ")


@pytest.mark.parametrize("arguments", [[], ["rnu"], ["run"], ["run", "--fast", "x.py"]])
def test_wrong_commands(arguments):
    done = millrace(*arguments)
    assert done.returncode == 2 and done.stdout == "" and "usage:" in done.stderr
