"""AutoGraph: what cannot be converted or staged says so, on the user's line."""

import inspect
import logging
import re
import traceback
import types

import pytest

import millrace as tf
from millrace import _core
from millrace.core.tracebacks import users_frames


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


def frames(error):
    """[(line of this file, function)] of the user's frames of an error."""
    shown = traceback.extract_tb(users_frames(error.__traceback__))
    return [(frame.lineno, frame.name) for frame in shown if frame.filename == __file__]


def line_of(f, text):
    """The line of this file that has `text` in the code of a function."""
    lines, first = inspect.getsourcelines(f)
    return first + next(i for i, line in enumerate(lines) if text in line)


def raises(kind, match, f, *args):
    with pytest.raises(kind, match=match) as caught:
        tf.function(f)(*args)
    return caught.value


TRUE = tf.constant(True)
COUNT = tf.constant(3)


class TestPlaces:
    def test_an_error_in_a_branch_of_a_loop(self):
        def f(n):
            total = tf.zeros([2])
            for i in tf.range(n):
                if i > 1:
                    total = tf.matmul(total, tf.ones([3, 4]))  # here
            return total

        error = raises(ValueError, None, f, tf.constant(3))
        places = frames(error)
        assert places[-1] == (line_of(f, "# here"), "f")
        assert (line_of(f, "for i in"), "f") in places
        assert (line_of(f, "if i > 1"), "f") in places

    def test_an_error_below_decorators(self):
        def unchanged(f):
            return f

        @tf.function
        @unchanged
        def f(n):
            for i in tf.range(n):
                if i > 1:
                    raise ValueError("wrong")  # here
            return n

        with pytest.raises(ValueError, match="wrong") as caught:
            f(COUNT)
        places = frames(caught.value)
        code = f.python_function
        assert places[-1] == (line_of(code, "# here"), "f")
        assert (line_of(code, "for i in"), "f") in places

    def test_an_error_in_a_function_that_is_called(self):
        def inner(x):
            if x > 0:
                raise RuntimeError("no")  # here
            return x

        def f(x):
            return inner(x)  # called

        places = frames(raises(RuntimeError, "no", f, tf.constant(1)))
        assert places[-1] == (line_of(inner, "# here"), "inner")
        assert (line_of(f, "# called"), "f") in places

    def test_the_traceback_shows_the_users_source(self):
        def f(x):
            while x > 0:
                x = x + "text"  # what the program says
            return x

        error = raises(Exception, None, f, tf.constant(1))
        text = "".join(traceback.format_tb(users_frames(error.__traceback__)))
        assert "# what the program says" in text and "while x > 0:" in text and "ag__" not in text

    def test_methods_and_lambdas(self):
        class Model:
            def __call__(self, x):
                if x > 0:
                    x = [][1]  # here
                return x

        places = frames(raises(IndexError, None, Model(), tf.constant(1)))
        assert places[-1] == (line_of(Model.__call__, "# here"), "__call__")
        g = lambda x: [][0] if x > 0 else x  # noqa: E731
        places = frames(raises(IndexError, None, g, tf.constant(1)))
        assert places[-1][0] == line_of(TestPlaces.test_methods_and_lambdas, "g = lambda")


class TestBranches:
    def test_initialized_in_one_branch(self):
        def f(c):
            if c:
                x = 1
            return x

        def g(c):
            if c:
                pass
            else:
                x = 1
            return x

        error = raises(ValueError, "'x' must also be initialized in the else branch", f, TRUE)
        assert frames(error)[-1] == (line_of(f, "if c:"), "f")
        raises(ValueError, "'x' must also be initialized in the main branch", g, TRUE)
        raises(UnboundLocalError, "'x' is used before assignment", f, False)
        assert tf.function(f)(True).numpy() == 1

    def test_attributes_of_one_branch(self):
        def f(c):
            box = types.SimpleNamespace()
            if c:
                box.size = 1
            return box.size

        match = "'box.size' must also be initialized in the else branch"
        raises(ValueError, match, f, TRUE)
        raises(AttributeError, "size", f, False)

    def test_deleted_in_one_branch(self):
        def f(c):
            x = 1
            if c:
                del x
            return x

        raises(ValueError, "'x' must also be initialized in the main branch", f, TRUE)
        raises(UnboundLocalError, "'x' is used before assignment", f, True)

    def test_types_differ(self):
        def f(c):
            if c:
                x = 1
            else:
                x = 2.0
            return x

        match = "'x' has dtype int32 in the main branch, but dtype float32 in the else branch"
        raises(TypeError, match, f, TRUE)
        assert tf.function(f)(False).numpy() == 2.0

    def test_structures_differ(self):
        def f(c):
            if c:
                x = (1, 2)
            else:
                x = (1, 2, 3)
            return x

        match = "'x' must have the same nested structure in the main and else branches"
        raises(TypeError, match, f, TRUE)

    def test_one_branch_appends(self):
        def f(c):
            x = []
            if c:
                x.append(1)
            return x

        match = "'x' must have the same nested structure in the main and else branches"
        raises(TypeError, match, f, TRUE)

    def test_none(self):
        def f(c):
            x = 1
            if c:
                x = None
            return x

        raises(ValueError, "'x' is None at the end of the main branch", f, TRUE)

    def test_objects_differ(self):
        def f(c):
            if c:
                x = object()
            else:
                x = object()
            return x

        raises(TypeError, "'x' must be a tensor, a number", f, TRUE)

    def test_returns_in_one_branch(self):
        def f(c):
            if c:  # noqa: SIM102
                if c:
                    return 1
            return 2

        raises(ValueError, "the else branch must also have a return statement", f, TRUE)
        assert tf.function(f)(True).numpy() == 1

    def test_conditions(self):
        def f(c):
            if c:
                return 1
            return 2

        match = "condition of if statement expected to be `tf.bool` scalar"
        error = raises(ValueError, match, f, tf.constant(1.0))
        assert "use `tf.cast`" in str(error)
        raises(ValueError, match, f, tf.constant([True, False]))
        assert tf.function(f)(tf.constant([[True]])).numpy() == 1

    def test_conditional_expressions(self):
        def f(c):
            return 1 if c else 2.0

        raises(TypeError, "'1 if c else 2.0' has dtype int32 in the main branch", f, TRUE)


class TestLoops:
    def test_undefined_before(self):
        def f(n):
            for i in tf.range(n):
                x = x + i  # noqa: F821
            return x

        error = raises(ValueError, "'x' must be defined before the loop", f, tf.constant(2))
        assert "'x' is used before assignment" in str(error)

    def test_none_before(self):
        def f(n):
            x = None
            for _ in tf.range(n):
                x = None
            return x

        raises(ValueError, "'x' is not allowed to be None before the loop", f, tf.constant(2))

    def test_types_change(self):
        def f(n):
            x = 0
            for _ in tf.range(n):
                x = tf.cast(x, tf.float32) + 0.5
            return x

        match = "'x' has dtype int32 before the loop, but dtype float32 after one iteration"
        error = raises(TypeError, match, f, tf.constant(2))
        assert frames(error)[-1] == (line_of(f, "for _"), "f")

    def test_shapes_change(self):
        def f(n):
            x = tf.constant([1])
            while n > 0:
                n -= 1
                x = tf.concat([x, x], 0)
            return x

        match = re.escape("before the loop, but shape")
        error = raises(ValueError, match, f, tf.constant(2))
        assert "'x' has shape (1,)" in str(error) and "set_loop_options" in str(error)

    def test_invariants_that_do_not_hold(self):
        def f(n):
            x = tf.constant([[1]])
            for _ in tf.range(n):
                tf.autograph.experimental.set_loop_options(
                    shape_invariants=[(x, tf.TensorShape([1, None]))]
                )
                x = tf.concat([x, x], 0)
            return x

        raises(ValueError, "'x' has shape .* does not conform with the shape invariant", f,
               tf.constant(2))  # fmt: skip

    def test_structures_change(self):
        def f(n):
            x = (1, 2)
            for _ in tf.range(n):
                x = (1, 2, 3)
            return x

        raises(TypeError, "'x' does not have the same nested structure", f, tf.constant(2))

    def test_none_after(self):
        def f(n):
            x = 1
            for _ in tf.range(n):
                x = None
            return x

        raises((ValueError, TypeError), "'x' is None at the end of the iteration", f,
               tf.constant(2))  # fmt: skip

    def test_jumps_that_depend_on_tensors_in_python_loops(self):
        def f(items):
            for x in items:
                if tf.greater(x, 1):
                    break
            return x

        def g(n):
            while n > 0:
                n -= 1
                if tf.greater(n, 1):
                    break
            return n

        raises(NotImplementedError, "not supported in Python for loops", f, [1, 2])
        raises(NotImplementedError, "started as non-Tensor, then changed to Tensor", g, 3)

    def test_scalars_cannot_be_iterated_over(self):
        def f(x):
            for each in x:
                x = each
            return x

        raises(ValueError, "iterating over a scalar", f, tf.constant(1))


class TestConversion:
    def test_without_source_it_runs_as_it_is(self, caplog, monkeypatch):
        monkeypatch.delenv("AUTOGRAPH_STRICT_CONVERSION", raising=False)
        space = {}
        exec(compile("def made(x):\n    return x + 1\n", "<made up>", "exec"), space)
        with caplog.at_level(logging.WARNING, "tensorflow"):
            for _ in range(2):
                assert tf.function(space["made"])(tf.constant(1)).numpy() == 2
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == 1
        assert "could not transform" in told[0] and "<made up>:1: no source code" in told[0]
        assert "do_not_convert" in told[0]

    def test_strictly(self, monkeypatch):
        monkeypatch.setenv("AUTOGRAPH_STRICT_CONVERSION", "1")
        space = {}
        exec(compile("def strict(x):\n    return x + 1\n", "<strict>", "exec"), space)
        with pytest.raises(ValueError, match="no source code available for 'strict'"):
            tf.function(space["strict"])(tf.constant(1))

    def test_to_graph_of_what_has_no_source(self):
        space = {}
        exec(compile("def other(x):\n    return x\n", "<other>", "exec"), space)
        with pytest.raises(ValueError, match="<other>:1: no source code"):
            tf.autograph.to_graph(space["other"])
        with pytest.raises(Exception, match="builtin|expose"):
            tf.autograph.to_graph(len)

    def test_a_file_that_changed(self, tmp_path, monkeypatch):
        file = tmp_path / "changing_module.py"
        file.write_text("def f(x):\n    return x\n")
        monkeypatch.syspath_prepend(tmp_path)
        import changing_module

        file.write_text("# another line\n\n\ndef g(x):\n    return x\n")
        with pytest.raises(ValueError, match=r"changing_module.py:1: the source code of 'f'"):
            tf.autograph.to_graph(changing_module.f)

    def test_generators(self):
        def numbers(x):
            yield x

        with pytest.raises(NotImplementedError, match="'numbers' is a generator"):
            tf.autograph.to_graph(numbers)

    def test_verbosity(self, capsys):
        def f(x):
            return x

        tf.autograph.set_verbosity(1, alsologtostdout=True)
        try:
            tf.autograph.to_graph(f)
        finally:
            tf.autograph.set_verbosity(0)
        assert "Converting" in capsys.readouterr().out
