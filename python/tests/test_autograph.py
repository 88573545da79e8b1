"""AutoGraph: what Python's control flow does to tensors in tf.function. Each function gives the
same with Python values, converted or not, as with tensors."""

import functools
import types

import numpy as np
import pytest

import millrace as tf
from millrace import _core


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


def plain(value):
    """A result without tensors."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(each) for each in value)
    return value.numpy().tolist() if isinstance(value, tf.Tensor) else value


def check(f, *args, want=None):
    """`f` gives the same of Python values, converted of Python values, and of tensors."""
    expected = f(*args)
    if want is not None:
        assert expected == want
    assert tf.autograph.to_graph(f)(*args) == expected
    assert plain(tf.function(f)(*args)) == expected
    assert plain(tf.function(f)(*[tf.constant(a) for a in args])) == expected


def collatz(n):
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


def first_square_above(limit):
    for i in tf.range(100) if isinstance(limit, tf.Tensor) else range(100):
        if i * i > limit:
            return i
    return -1


class TestBranches:
    @pytest.mark.parametrize("x", [-3, 0, 4, 9])
    def test_if_elif_else(self, x):
        def f(x):
            size = 0
            if x > 5:
                size = 2
                x = x - 5
            elif x > 0:
                size = 1
            else:
                x = -x
            return x, size

        check(f, x)

    @pytest.mark.parametrize("x", [1, 7])
    def test_a_name_of_one_branch_stays_there(self, x):
        def f(x):
            if x > 3:
                half = x // 2
                x = half + 1
            return x

        check(f, x)

    def test_both_branches_make_a_name(self):
        def f(x):
            if x > 3:
                y = x
            else:
                y = -x
            return y

        check(f, 2, want=-2)
        check(f, 5, want=5)

    @pytest.mark.parametrize("a", [0, 1])
    @pytest.mark.parametrize("b", [0, 1])
    def test_nested(self, a, b):
        def f(a, b):
            out = 0
            if a > 0:
                if b > 0:
                    out = 1
                else:
                    out = 2
                out += 10
            elif b > 0:
                out = 3
            return out

        check(f, a, b)

    def test_structures_that_branches_make(self):
        def f(x):
            if x > 0:
                out = {"a": (x, [x + 1]), "b": x * 2}
            else:
                out = {"a": (-x, [x - 1]), "b": x * 3}
            return out

        check(f, 3, want={"a": (3, [4]), "b": 6})
        check(f, -3, want={"a": (3, [-4]), "b": -9})

    def test_attributes_and_elements(self):
        class Box:
            pass

        def f(x):
            box = Box()
            box.size = 1
            table = {"n": 0}
            if x > 0:
                box.size = x
                table["n"] += 5
            return box.size, table["n"]

        check(f, 4, want=(4, 5))
        check(f, -4, want=(1, 0))

    @pytest.mark.parametrize("x", [-1, 1])
    def test_conditional_expressions(self, x):
        def f(x):
            return (x if x > 0 else -x) + (1 if x > 0 else 2 if x < -5 else 3)

        check(f, x)

    def test_an_attribute_of_one_branch(self):
        def f(x):
            box = types.SimpleNamespace()
            if x > 0:
                box.size = 1
            else:
                box.size = 2
            return box.size

        check(f, 3, want=1)
        check(f, -3, want=2)

    def test_variables_change_in_the_branch_that_is_taken(self):
        v = tf.Variable(0)

        @tf.function
        def f(x):
            if x > 0:
                v.assign_add(1)
            else:
                v.assign_add(100)
            return v.read_value()

        assert f(tf.constant(1)).numpy() == 1
        assert f(tf.constant(-1)).numpy() == 101

    def test_a_variable_is_a_condition(self):
        v = tf.Variable(True)

        @tf.function
        def f():
            if v:
                return 1
            return 2

        assert f().numpy() == 1
        v.assign(False)
        assert f().numpy() == 2

    def test_the_same_object_in_both_branches_stays_it(self):
        def double(x):
            return x * 2

        @tf.function
        def f(x):
            if x > 0:
                g = double
                x = x + 1
            else:
                g = double
            return g(x)

        assert f(tf.constant(3)).numpy() == 8


class TestLogic:
    @pytest.mark.parametrize("x", [-1, 1, 3, 8])
    def test_and_or_not(self, x):
        def f(x):
            out = 0
            if x > 0 and x < 5 and not x == 3:  # noqa: SIM201
                out += 1
            if x < 0 or x > 5 or x == 3:
                out += 2
            return out

        check(f, x)

    @pytest.mark.parametrize("x", [0, 2, 5])
    def test_chains_of_comparisons(self, x):
        def f(x):
            return 0 < x < 5, 0 <= x <= 2 < 3

        check(f, x)

    def test_operands_are_computed_once_and_only_if_needed(self):
        asked = []

        def ask(x):
            asked.append(x)
            return x

        def f():
            a = ask(1) < ask(0) < ask(5)
            b = ask(0) and ask(9)
            c = ask(3) or ask(9)
            return a, b, c

        assert f() == tf.autograph.to_graph(f)() == (False, 0, 3)
        assert asked == [1, 0, 0, 3, 1, 0, 0, 3]

    def test_python_operands_come_back_as_they_are(self):
        def f(a, b):
            return a and b, a or b, not a, [] or "x", None and 3  # noqa: SIM222, SIM223

        assert tf.autograph.to_graph(f)([], {}) == ([], {}, True, "x", None)

    def test_the_second_operand_is_not_run(self):
        v = tf.Variable(0)

        def count():
            v.assign_add(1)
            return tf.constant(True)

        @tf.function
        def f(x):
            return x > 0 and count()

        assert not f(tf.constant(-1)).numpy() and v.numpy() == 0
        assert f(tf.constant(1)).numpy() and v.numpy() == 1

    def test_assignment_expressions(self):
        def f(x):
            if (y := x * 2) > 3:
                y += 1
            return y

        check(f, 1, want=2)
        check(f, 2, want=5)


class TestLoops:
    @pytest.mark.parametrize("n", [1, 6, 7])
    def test_while(self, n):
        check(collatz, n)

    def test_while_with_two_loops(self):
        def f(n):
            total = 0
            i = 0
            while i < n:
                j = 0
                while j < i:
                    total += j
                    j += 1
                i += 1
            return total

        check(f, 5, want=10)
        check(f, 0, want=0)

    @pytest.mark.parametrize("n", [0, 1, 5])
    def test_for_in_range(self, n):
        def f(n):
            total = 0
            last = -1
            for i in range(n):
                total += i * i
                last = i
            return total, last

        check(f, n)

    @pytest.mark.parametrize("bounds", [(2, 9, 3), (9, 2, -3), (3, 3, 1)])
    def test_ranges_with_steps(self, bounds):
        def f(start, stop, step):
            total = 0
            for i in range(start, stop, step):
                total = total * 10 + i
            return total

        expected = f(*bounds)
        assert tf.autograph.to_graph(f)(*bounds) == expected
        assert tf.function(f)(*map(tf.constant, bounds)).numpy() == expected

    def test_rows_of_a_tensor(self):
        def f(rows):
            total = 0
            for row in rows:
                for x in row:
                    total = total * 2 + x
            return total

        check(f, [[1, 2], [3, 4], [5, 6]])

    def test_rows_whose_number_is_not_known(self):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def f(xs):
            total = 0.0
            for x in xs:
                total += x
            return total

        assert f(tf.constant([1.0, 2.0, 4.0])).numpy() == 7
        assert f(tf.constant([])).numpy() == 0

    def test_enumerate_and_zip(self):
        def f(a, b):
            total = 0
            for i, x in enumerate(a):
                total += i * x
            for i, (x, y) in enumerate(zip(a, b), 5):  # noqa: B905
                total += i * x * y
            return total

        check(f, [1, 2, 3], [4, 5, 6])

    @pytest.mark.parametrize("limit", [-1, 0, 5, 50])
    def test_break_and_continue(self, limit):
        def f(n):
            odd = 0
            i = 0
            while True if not isinstance(n, tf.Tensor) else tf.constant(True):
                i += 1
                if i > n:
                    break
                if i % 2 == 0:
                    continue
                if odd > 20:
                    break
                odd += i
            return odd, i

        check(f, limit)

    def test_break_in_for(self):
        def f(n):
            found = -1
            for i in range(n):
                if i * i > 10:
                    found = i
                    break
                if i == 2:
                    continue
            return found

        check(f, 3, want=-1)
        check(f, 9, want=4)

    def test_else_of_loops(self):
        def f(n):
            for i in range(n):
                if i == 3:
                    out = 1
                    break
            else:
                out = 2
            while n > 0:
                n -= 2
                if n == 1:
                    break
            else:
                out += 10
            return out

        for n in range(6):
            expected = f(n)
            assert tf.autograph.to_graph(f)(n) == expected

    def test_else_of_a_loop_of_the_graph(self):
        def f(n):
            out = 0
            for i in range(n):
                if i == 3:
                    break
            else:
                out = 2
            return out

        check(f, 2, want=2)
        check(f, 5, want=0)

    @pytest.mark.parametrize("limit", [0, 24, 99999])
    def test_return_in_a_loop(self, limit):
        check(first_square_above, limit)

    def test_return_in_two_loops(self):
        def f(n):
            for i in range(n):
                for j in range(n):
                    if i * j == 6:
                        return i * 100 + j
            return -1

        check(f, 2, want=-1)
        check(f, 5, want=203)

    def test_names_that_the_loop_makes(self):
        def f(n):
            i = 0
            while i < n:
                pair = (i, i * 2)
                i += 1
            return pair

        check(f, 3, want=(2, 4))

    def test_a_loop_must_run_to_make_them(self):
        @tf.function
        def f(n):
            for i in range(n):
                last = i * 2
            return last

        assert f(tf.constant(2)).numpy() == 2
        with pytest.raises(tf.errors.InvalidArgumentError, match="initialize last"):
            f(tf.constant(0))

    def test_a_loop_stops_at_the_end_of_state_that_nobody_changes(self):
        log = []

        def f(n):
            for i in range(n):
                log.append(i)
            return n

        assert tf.autograph.to_graph(f)(3) == 3 and log == [0, 1, 2]

    def test_python_loops_over_other_things(self):
        def f(table):
            out = []
            for key, value in sorted(table.items()):
                out.append((key, value))
            for letter in "ab":
                out.append(letter)
            for x in (y * 2 for y in range(3)):
                out.append(x)
            return out

        assert tf.function(f).python_function({"b": 1, "a": 2}) == f({"b": 1, "a": 2})
        assert tf.autograph.to_graph(f)({"b": 1, "a": 2}) == f({"b": 1, "a": 2})

    def test_a_python_loop_unrolls(self):
        @tf.function
        def f(x):
            for i in range(3):
                if x > i:
                    x += 10
            return x

        assert f(tf.constant(1)).numpy() == 31
        assert f(tf.constant(0)).numpy() == 0

    def test_shape_invariants(self):
        @tf.function
        def f(n):
            v = tf.constant([0])
            for i in tf.range(n):
                tf.autograph.experimental.set_loop_options(
                    shape_invariants=[(v, tf.TensorShape([None]))]
                )
                v = tf.concat([v, [i]], 0)
            return v

        assert f(tf.constant(3)).numpy().tolist() == [0, 0, 1, 2]

    def test_maximum_iterations(self):
        @tf.function
        def f():
            n = 0
            for _ in tf.range(10):
                tf.autograph.experimental.set_loop_options(maximum_iterations=3)
                n += 1
            return n

        assert f().numpy() == 3

    def test_tensor_arrays(self):
        @tf.function
        def f(n):
            squares = tf.TensorArray(tf.int32, size=n)
            for i in tf.range(n):
                squares = squares.write(i, i * i)
            return squares.stack()

        assert f(tf.constant(4)).numpy().tolist() == [0, 1, 4, 9]

    def test_gradients_go_through(self):
        @tf.function
        def f(x, n):
            y = x
            for _ in tf.range(n):
                if y < 100.0:
                    y = y * x
            return y

        x = tf.Variable(3.0)
        with tf.GradientTape() as tape:
            y = f(x, tf.constant(3))
        assert y.numpy() == 81
        assert tape.gradient(y, x).numpy() == 4 * 27

    def test_attributes_of_self(self):
        class Counter:
            def __init__(self):
                self.count = 0

            @tf.function
            def run(self, n):
                self.count = 0
                for i in tf.range(n):
                    if i % 2 == 0:
                        self.count += 1
                return self.count

        assert Counter().run(tf.constant(5)).numpy() == 3


class TestReturn:
    @pytest.mark.parametrize("x", [-2, 0, 3, 8])
    def test_in_branches(self, x):
        def f(x):
            if x > 5:
                return x
            elif x > 0:
                y = x * 2
                return y
            if x < 0:
                return -x
            return 100

        check(f, x)

    def test_with_and_try(self):
        def f(x):
            try:
                with tf.name_scope("a"):
                    if x > 0:
                        return x * 2
                    else:
                        return x - 1
            finally:
                x = 1000

        check(f, 2, want=4)
        check(f, -2, want=-3)

    def test_exceptions_of_python(self):
        def f(table, key):
            try:
                value = table[key]
            except KeyError as error:
                return str(error)
            else:
                if value:
                    return value
            finally:
                table["seen"] = True
            return None

        for key in "abc":
            one, other = {"a": 1, "b": 0}, {"a": 1, "b": 0}
            assert f(one, key) == tf.autograph.to_graph(f)(other, key)
            assert one == other

    def test_loops_in_try(self):
        def f(items):
            seen = 0
            for item in items:
                try:
                    if item == 0:
                        continue
                    seen += 10 // item
                    if seen > 20:
                        break
                except TypeError:
                    return -seen
                finally:
                    seen += 1
            return seen

        converted = tf.autograph.to_graph(f)
        for items in ([], [1, 0, 5], [1, 1, 1, 1], [2, "a", 3]):
            assert converted(items) == f(items)

    def test_no_value(self):
        def f(x):
            if x:
                return
            return None

        assert tf.autograph.to_graph(f)(True) is None
        assert tf.autograph.to_graph(f)(False) is None

    def test_match(self):
        def f(value):
            match value:
                case [x, y] if x > 1:
                    return x * y
                case {"a": z}:
                    out = z
                case _:
                    out = "other"
            return out

        converted = tf.autograph.to_graph(f)
        for value in ([2, 3], [1, 3], {"a": 5}, 7):
            assert converted(value) == f(value)


def above(x, limit=2):
    if x > limit:
        return x
    return limit


class Scale:
    factor = 3

    def __init__(self):
        self.__hidden = 10

    def __call__(self, x):
        if x > 0:
            return x * self.factor
        return x

    def hidden(self, x):
        if x > 0:
            return x + self.__hidden
        return x

    @classmethod
    def of_class(cls, x):
        if x > 0:
            return x * cls.factor
        return x

    @staticmethod
    def static(x):
        if x > 0:
            return x * 7
        return x


class Doubled(Scale):
    def __call__(self, x):
        if x > 0:
            x = super().__call__(x)
        return x * 2


class TestCallables:
    @pytest.mark.parametrize("x", [-1, 5])
    def test_functions_that_are_called(self, x):
        def f(x):
            return above(x) + above(x, limit=3) + above(*[x], **{"limit": 4})

        check(f, x)

    @pytest.mark.parametrize("x", [-1, 5])
    @pytest.mark.parametrize("make", [
        lambda: Scale(), lambda: Doubled(), lambda: Scale().hidden, lambda: Scale.of_class,
        lambda: Scale.static, lambda: functools.partial(above, limit=1),
        lambda: functools.partial(Doubled()),
        lambda: lambda x: x if x > 0 else -x,
    ])  # fmt: skip
    def test_kinds(self, make, x):
        called = make()

        def f(x):
            return called(x)

        check(f, x)
        assert tf.function(called)(tf.constant(x)).numpy() == called(x)

    def test_nested_functions_and_closures(self):
        offset = 10

        def f(x):
            def inner(y):
                nonlocal x
                if y > 0:
                    x = x + 1
                    return y + offset
                return y

            total = inner(x) + (lambda z: z if z > 0 else offset)(x)
            return total, x

        assert tf.autograph.to_graph(f)(1) == f(1) == (13, 2)
        assert tf.autograph.to_graph(f)(-1) == f(-1)

    def test_closures_defaults_and_globals_are_live(self):
        box = [1]
        value = 1

        def f(x, extra=0):
            if x > 0:
                return x + value + extra + box[0] + _LIVE["n"]
            return x

        converted = tf.autograph.to_graph(f)
        assert converted(1) == f(1) == 3
        value = 5
        box[0] = 2
        _LIVE["n"] = 100
        assert converted(1) == f(1) == 108
        f.__defaults__ = (1000,)
        assert tf.autograph.to_graph(f)(1) == f(1) == 1108
        _LIVE["n"] = 0

    def test_one_conversion_serves_all_closures(self):
        def make(n):
            def f(x):
                if x > 0:
                    return x + n
                return x

            return f

        assert [plain(tf.function(make(n))(tf.constant(1))) for n in (1, 2, 3)] == [2, 3, 4]
        a, b = (tf.autograph.to_graph(make(n)) for n in (1, 2))
        assert a.__code__ is b.__code__

    def test_several_lambdas_in_a_line(self):
        fs = [
            lambda x: x if x > 0 else 1,
            lambda x: x if x > 0 else 2,
            lambda x, y: x if x > 0 else y,
        ]
        negative = tf.constant(-1)
        assert tf.function(fs[0])(negative).numpy() == 1
        assert tf.function(fs[1])(negative).numpy() == 2
        assert tf.function(fs[2])(negative, tf.constant(3)).numpy() == 3

    def test_keyword_only_and_annotations(self):
        def f(x: int, *rest: int, scale: int = 2, **more: int) -> int:
            """Says what it does."""
            if x > 0:
                return x * scale + sum(rest) + more.get("y", 0)
            return x

        converted = tf.autograph.to_graph(f)
        assert converted(1, 2, 3, scale=5, y=7) == f(1, 2, 3, scale=5, y=7) == 17
        assert converted.__doc__ == f.__doc__ and converted.__name__ == "f"
        assert converted.__annotations__ == f.__annotations__

    def test_libraries_and_builtins_run_as_they_are(self):
        def f(x):
            a = np.sort(np.array([3, 1, 2]))
            b = functools.reduce(lambda p, q: p + q, [1, 2, 3])
            return sorted([len(a), b, abs(-x), max(x, 2), min(x, 2), int(2.5), float(3)])

        assert tf.autograph.to_graph(f)(-4) == f(-4)

    def test_builtins_of_tensors(self):
        @tf.function
        def f(x, y):
            return abs(x), float(x), int(y), len(y), max(x, -5), min(y), sum(y), any(y > 1.0)

        out = f(tf.constant(-3), tf.constant([1.5, 2.5]))
        assert plain(out) == (3, -3.0, [1, 2], 2, -3, 1.5, 4.0, True)

    def test_generators_and_classes_are_left_alone(self):
        def f(n):
            def numbers():
                for i in range(n):
                    if i % 2:
                        yield i

            class Pair:
                def __init__(self, a):
                    self.a = a if a else 1

            return [Pair(i).a for i in numbers()]

        assert tf.autograph.to_graph(f)(5) == f(5) == [1, 3]

    def test_comprehensions_call_converted_functions(self):
        @tf.function
        def f(x):
            return [above(x, limit=n) for n in range(3) if n != 1]

        assert plain(f(tf.constant(1))) == [1, 2]

    def test_recursion(self):
        def power(x, n):
            if n == 0:
                return x * 0 + 1
            return x * power(x, n - 1)

        assert tf.function(power)(tf.constant(2), 5).numpy() == 32

    def test_decorated_functions(self):
        def twice(g):
            @functools.wraps(g)
            def run(x):
                return g(g(x))

            return run

        @twice
        def f(x):
            if x > 10:
                return x
            return x * 3

        check(f, 2, want=18)

    def test_functions_of_functions(self):
        @tf.function
        def inner(x):
            if x > 0:
                return x
            return -x

        @tf.function
        def outer(x):
            if inner(x) > 2:
                return inner(x) * 2
            return inner(x)

        assert outer(tf.constant(-3)).numpy() == 6 and outer(tf.constant(1)).numpy() == 1

    def test_global_names(self):
        def f(x):
            global _SEEN
            if x > 0:
                _SEEN = x
            else:
                _SEEN = -1
            return _SEEN + 1

        assert tf.autograph.to_graph(f)(4) == 5 and _SEEN == 4
        assert tf.function(f)(tf.constant(7)).numpy() == 8

    def test_delete(self):
        def f(x):
            y = x + 1
            z = y
            if x > 0:
                del y
                y = 5
            del z
            return y

        check(f, 1, want=5)
        check(f, -1, want=0)


_LIVE = {"n": 0}
_SEEN = 0


class TestRunTime:
    def test_assert(self):
        @tf.function
        def f(x):
            assert x > 0, "too small"
            return x

        assert f(tf.constant(1)).numpy() == 1
        with pytest.raises(tf.errors.InvalidArgumentError, match="too small"):
            f(tf.constant(-1))

    def test_assert_of_python(self):
        def f(x, said):
            assert x, said()

        converted = tf.autograph.to_graph(f)
        converted(1, None)
        with pytest.raises(AssertionError, match="what"):
            converted(0, lambda: "what")

    def test_print_when_traced_or_when_run(self, capfd):
        def f(x):
            print("value", x)
            return x

        traced = tf.function(f)
        traced(tf.constant(3))
        traced(tf.constant(4))
        assert capfd.readouterr().out.count("value") == 1
        printing = tf.autograph.experimental.Feature.BUILTIN_FUNCTIONS
        run = tf.function(f, experimental_autograph_options=printing)
        run(tf.constant(3))
        run(tf.constant(4))
        assert capfd.readouterr().out == "value 3\nvalue 4\n"

    def test_state_in_loops_runs_in_order(self):
        v = tf.Variable(1)

        @tf.function
        def f(n):
            for i in tf.range(n):
                v.assign(v * 2)
                if i == 2:
                    v.assign_add(1)
            return v.read_value()

        assert f(tf.constant(4)).numpy() == 18

    def test_a_while_test_runs_as_often_as_python_runs_it(self):
        asked = []

        def more():
            asked.append(len(asked))
            return len(asked) < 4

        def f():
            n = 0
            while more():
                n += 1
            return n

        assert tf.function(f)().numpy() == 3
        assert asked == [0, 1, 2, 3]

    def test_eager_tensors_outside_of_functions_are_values(self):
        def f(x):
            total = 0
            for row in x:
                while row > 0:
                    total += row
                    row -= 1
            return total if total > 3 else -1

        assert tf.autograph.to_graph(f)(tf.constant([2, 1])).numpy() == 4
        assert tf.autograph.to_graph(f)(tf.constant([1, 1])) == -1


class TestLists:
    """Lists that staged loops append to."""

    @pytest.mark.parametrize("n", [0, 1, 5])
    def test_append(self, n):
        @tf.function
        def f(n):
            doubled = []
            for i in tf.range(n):
                doubled.append(i * 2)
            return tf.stack(doubled), len(doubled)

        assert plain(f(tf.constant(n))) == ([2 * i for i in range(n)], n)

    def test_some_of_them_and_before_and_after(self):
        @tf.function
        def f(n):
            out = [tf.constant(7)]
            i = 0
            while i < n:
                if i % 2 == 0:
                    out.append(i)
                i += 1
            out.append(-1)
            return out, out[0], out[-1], len(out)

        assert plain(f(tf.constant(5))) == ([7, 0, 2, 4, -1], 7, -1, 5)

    def test_nested_loops_and_going_over_them(self):
        @tf.function
        def f(n):
            rows = []
            for i in tf.range(n):
                for j in tf.range(i):
                    rows.append(tf.stack([i, j]))
            total = 0
            for row in rows:
                total += tf.reduce_sum(row)
            return tf.stack(rows), tf.concat(rows, 0), total

        stacked, joined, total = f(tf.constant(3))
        assert plain(stacked) == [[1, 0], [2, 0], [2, 1]]
        assert plain(joined) == [1, 0, 2, 0, 2, 1] and plain(total) == 6

    def test_elements_of_several_shapes(self):
        @tf.function
        def f(n):
            parts = []
            for i in tf.range(n):
                parts.append(tf.fill([i], i))
            return tf.concat(parts, 0)

        assert plain(f(tf.constant(4))) == [1, 2, 2, 3, 3, 3]

    def test_of_datasets(self):
        @tf.function
        def f():
            kept = []
            for x in tf.data.Dataset.range(4):
                if x == 1:
                    continue
                kept.append(x)
            return kept

        assert plain(f()) == [0, 2, 3]

    def test_gradients(self):
        @tf.function
        def f(xs):
            kept = []
            for x in xs:
                if x > 1.0:
                    kept.append(x * x)
            return tf.reduce_sum(tf.stack(kept))

        xs = tf.Variable([1.0, 2.0, 3.0])
        with tf.GradientTape() as tape:
            y = f(xs)
        assert y.numpy() == 13
        assert plain(tape.gradient(y, xs)) == [0, 4, 6]

    def test_branches_append_alike(self):
        def f(x):
            out = []
            if x > 0:
                out.append(x)
            else:
                out.append(-x)
            return out

        assert plain(tf.function(f)(tf.constant(3))) == f(3) == [3]
        assert plain(tf.function(f)(tf.constant(-3))) == f(-3) == [3]

    def test_python_lists_stay_lists(self):
        class Log:
            def __init__(self):
                self.seen = []

            def append(self, x):
                self.seen.append(x)

        def f(n):
            out, log = [], Log()
            same = out
            for i in range(n):
                if i != 1:
                    out.append(i)
                log.append(i)
            return same is out, out, log.seen, [].append(1)

        assert tf.autograph.to_graph(f)(3) == f(3) == (True, [0, 2], [0, 1, 2], None)

    def test_length_is_not_pythons(self):
        def f(n):
            out = []
            for i in tf.range(n):
                out.append(i)
            return [x for x in out]

        with pytest.raises(TypeError, match="tf.stack"):
            tf.function(f)(tf.constant(3))


class TestDatasets:
    def test_elements(self):
        @tf.function
        def f(limit):
            total = tf.constant(0, tf.int64)
            count = 0
            for x in tf.data.Dataset.range(10):
                if x == 1:
                    continue
                if total > limit:
                    break
                total += x
                count += 1
            return total, count

        assert plain(f(tf.constant(100, tf.int64))) == (44, 9)
        assert plain(f(tf.constant(4, tf.int64))) == (5, 3)

    def test_structures_and_names_that_the_loop_makes(self):
        @tf.function
        def f(xs):
            for x, row in tf.data.Dataset.from_tensor_slices((xs, {"a": xs * 2})):
                last = (x, row["a"])
            return last

        assert plain(f(tf.constant([1, 5]))) == (5, 10)
        with pytest.raises(tf.errors.InvalidArgumentError, match="initialize last"):
            f(tf.constant([], tf.int32))

    def test_enumerate_and_zip(self):
        @tf.function
        def f():
            a, b = tf.data.Dataset.range(4), tf.data.Dataset.range(10, 15)
            total = tf.constant(0, tf.int64)
            for i, x in enumerate(b):
                total += i * x
            for x, y in zip(a, b):  # noqa: B905
                total += x * y
            return total

        assert f().numpy() == sum(i * x for i, x in enumerate(range(10, 15))) + 74

    def test_return(self):
        @tf.function
        def f(n):
            for x in tf.data.Dataset.range(5):
                if x == n:
                    return x * 100
            return tf.constant(-1, tf.int64)

        assert f(tf.constant(3, tf.int64)).numpy() == 300
        assert f(tf.constant(7, tf.int64)).numpy() == -1

    def test_every_call_begins_anew(self):
        @tf.function
        def f():
            count = 0
            for _ in tf.data.Dataset.range(3):
                count += 1
            return count

        assert [f().numpy() for _ in range(3)] == [3, 3, 3]

    def test_functions_of_datasets_are_converted(self):
        def halve(x):
            if x % 2 == 0:
                return x // 2
            return x

        @tf.function
        def f():
            total = tf.constant(0, tf.int64)
            for x in tf.data.Dataset.range(5).map(halve).filter(lambda x: x > 1 and x < 9):
                total += x
            return total

        assert f().numpy() == 5

    def test_and_those_of_loops_and_maps(self):
        def halve(x):
            if x % 2 == 0:
                return x // 2
            return x

        @tf.function
        def f(xs):
            return (
                tf.map_fn(halve, xs),
                tf.while_loop(lambda x: x % 2 == 0 and x > 0, halve, [xs[0]]),
                tf.foldl(lambda a, x: a + halve(x), xs),
                tf.vectorized_map(halve, xs),
            )

        mapped, looped, folded, each = f(tf.constant([8, 6, 5]))
        assert plain(each) == [4, 3, 5]
        assert plain(mapped) == [4, 3, 5] and plain(looped) == [1] and plain(folded) == 16


# With the user's line.
UNCONVERTED = r"(?s)as a Python `bool` is not allowed.*test_autograph.py:\d+ .*x > 0"


class TestSwitches:
    def test_autograph_false(self):
        @tf.function(autograph=False)
        def f(x):
            if x > 0:
                return x
            return -x

        with pytest.raises(tf.errors.OperatorNotAllowedInGraphError, match=UNCONVERTED):
            f(tf.constant(1))

    def test_do_not_convert(self):
        @tf.autograph.experimental.do_not_convert
        def unconverted(x):
            if isinstance(x, tf.Tensor) or x > 0:
                return 1
            return 2

        @tf.autograph.experimental.do_not_convert()
        def also(x):
            return bool(x > 0)

        @tf.function
        def f(x):
            return unconverted(x)

        @tf.function
        def g(x):
            return also(x)

        assert f(tf.constant(-1)).numpy() == 1
        assert unconverted.__name__ == "unconverted"
        with pytest.raises(tf.errors.OperatorNotAllowedInGraphError, match=UNCONVERTED):
            g(tf.constant(1))

    def test_to_code_is_python(self):
        text = tf.autograph.to_code(collatz)
        assert text.startswith("def tf__collatz(n):") and "ag__.while_stmt(" in text
        compile(text, "<text>", "exec")

    def test_features(self):
        feature = tf.autograph.experimental.Feature
        assert feature.LISTS in feature.all()
        assert feature.LISTS not in feature.all_but(feature.LISTS)
        with pytest.raises(TypeError, match="Feature"):
            tf.function(above, experimental_autograph_options="LISTS")(1)

    def test_to_graph_takes_functions(self):
        with pytest.raises(Exception, match="expose a __code__"):
            tf.autograph.to_graph(tf.function(above))

    def test_trace_prints_while_tracing(self, capsys):
        @tf.function
        def f(x):
            tf.autograph.trace("traced", 1)
            return x

        f(tf.constant(1))
        f(tf.constant(2))
        assert capsys.readouterr().out == "traced 1\n"

    def test_functions_keep_what_they_are(self):
        converted = tf.autograph.to_graph(above)
        assert isinstance(converted, types.FunctionType)
        assert converted.__code__.co_filename == above.__code__.co_filename
        assert converted.__code__.co_firstlineno == above.__code__.co_firstlineno
        assert converted.__globals__ is above.__globals__
