"""Tests of graphs: `test.TestCase`, and gradients against differences."""

import atexit
import contextlib
import os
import random
import re
import shutil
import tempfile
import threading
import unittest
from typing import Any, Callable, Iterator
from unittest import mock

import numpy as np

from millrace.core import dtypes, errors
from millrace.core.device import canonical_name
from millrace.core.export import export
from millrace.graph.default_graph import get_default_graph, reset_default_graph
from millrace.graph.default_session import get_default_session
from millrace.graph.graph import Graph
from millrace.graph.operation import Operation
from millrace.graph.session import Session
from millrace.graph.sparse import is_tensor
from millrace.protos import ConfigProto, text_format

mock = export(v1="test.mock")(mock)


@export(v1="test.is_built_with_cuda", v2="test.is_built_with_cuda")
def is_built_with_cuda() -> bool:
    """Whether this package can use NVIDIA GPUs, and has one."""
    return is_gpu_available()


@export(v1="test.is_gpu_available", v2="test.is_gpu_available")
def is_gpu_available(
    cuda_only: bool = False, min_cuda_compute_capability: tuple[int, int] | None = None
) -> bool:
    """Whether there is a GPU to run on."""
    del cuda_only, min_cuda_compute_capability
    return bool(gpu_device_name())


@export(v1="test.gpu_device_name", v2="test.gpu_device_name")
def gpu_device_name() -> str:
    """The name of a GPU, or the empty string."""
    with Graph().as_default(), Session() as session:
        return next((d.name for d in session.list_devices() if d.device_type == "GPU"), "")


@export(v1="test.get_temp_dir")
def get_temp_dir() -> str:
    """A folder for the files of tests, which stays the same in one process."""
    return _temporary_folder()


@export(v1="test.test_src_dir_path")
def test_src_dir_path(relative_path: str) -> str:
    """The path of a file beside the tests."""
    return os.path.join(os.environ.get("TEST_SRCDIR", os.getcwd()), relative_path)


_folder: str | None = None


def _temporary_folder() -> str:
    global _folder
    if _folder is None:
        _folder = os.environ.get("TEST_TMPDIR")
        if not _folder:
            _folder = tempfile.mkdtemp(prefix="millrace_test")
            atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    os.makedirs(_folder, exist_ok=True)
    return _folder


@export(v1="test.main", v2="test.main")
def main(argv: list[str] | None = None) -> None:
    """Runs the tests of the program and exits."""
    unittest.main(argv=argv)


def _config(force_gpu: bool) -> Any:
    """Of sessions that tests make: what asks for a device that is not there runs elsewhere."""
    return ConfigProto(allow_soft_placement=not force_gpu)


@export(v1="test.TestCase", v2="test.TestCase")
class TestCase(unittest.TestCase):
    """A test with a fresh graph and fixed seeds, and assertions for arrays."""

    _cached_session: Any = None

    def setUp(self) -> None:
        """Starts from an empty default graph, the same random numbers every time."""
        self._close_cached_session()
        random.seed(1618)
        np.random.seed(1618)
        reset_default_graph()
        get_default_graph().seed = 87654321

    def tearDown(self) -> None:
        """Closes the session that test_session kept."""
        self._close_cached_session()

    def _close_cached_session(self) -> None:
        if self._cached_session is not None:
            self._cached_session.close()
            self._cached_session = None

    def get_temp_dir(self) -> str:
        """A folder for the files of this test."""
        name = re.sub(r"[^\w.-]", "_", self.id())[-60:]
        return tempfile.mkdtemp(prefix=name, dir=_temporary_folder())

    @contextlib.contextmanager
    def test_session(
        self, graph: Any = None, config: Any = None, use_gpu: bool = False, force_gpu: bool = False
    ) -> Iterator[Session]:
        """A context with a session that is the default one.

        Without a graph it is the same session for the whole test, of the default graph.
        """
        del use_gpu
        if config is None:
            config = _config(force_gpu)
        if graph is not None:
            with Session(graph=graph, config=config) as session:
                yield session
            return
        if self._cached_session is None:
            self._cached_session = Session(config=config)
        with self._cached_session.graph.as_default(), self._cached_session.as_default():
            yield self._cached_session

    cached_session = test_session

    @contextlib.contextmanager
    def session(
        self, graph: Any = None, config: Any = None, use_gpu: bool = False
    ) -> Iterator[Session]:
        """A context with a session of its own."""
        del use_gpu
        with Session(graph=graph, config=config or _config(False)) as session:
            yield session

    def evaluate(self, tensors: Any) -> Any:
        """The values of tensors in the default session."""
        session = get_default_session()
        if session is not None:
            return session.run(tensors)
        with self.test_session() as session:
            return session.run(tensors)

    def _GetNdArray(self, a: Any) -> np.ndarray:
        return self._array(a)

    def _array(self, value: Any) -> np.ndarray:
        if is_tensor(value):
            value = self.evaluate(value)
        return value if isinstance(value, np.ndarray) else np.array(value)

    def assertNear(self, f1: float, f2: float, err: float, msg: str | None = None) -> None:
        """The two numbers differ by at most err."""
        close = f1 == f2 or abs(f1 - f2) <= err
        self.assertTrue(close, f"{f1} != {f2} +/- {err}{'' if msg is None else f' ({msg})'}")

    def assertArrayNear(
        self, farray1: Any, farray2: Any, err: float, msg: str | None = None
    ) -> None:
        """The elements of two lists differ by at most err."""
        self.assertEqual(len(farray1), len(farray2))
        for a, b in zip(farray1, farray2, strict=True):
            self.assertNear(float(a), float(b), err, msg)

    @staticmethod
    def _NDArrayNear(ndarray1: Any, ndarray2: Any, err: float) -> bool:
        return bool(np.linalg.norm(np.asarray(ndarray1) - np.asarray(ndarray2)) < err)

    def assertNDArrayNear(
        self, ndarray1: Any, ndarray2: Any, err: float, msg: str | None = None
    ) -> None:
        """The norm of the difference of two arrays is less than err."""
        self.assertTrue(
            self._NDArrayNear(ndarray1, ndarray2, err),
            msg or f"the norm of the difference of the arrays is not less than {err}",
        )

    def assertAllClose(
        self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None
    ) -> None:
        """Two arrays, or dicts and lists of them, have one shape and nearly the same elements."""
        if isinstance(a, dict) or isinstance(b, dict):
            self.assertTrue(isinstance(a, dict) and isinstance(b, dict), "one of them is no dict")
            self.assertEqual(set(a), set(b))
            for key in a:
                self.assertAllClose(a[key], b[key], rtol, atol, f"{msg or ''} key {key!r}")
            return
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and _ragged(a, b):
            self.assertEqual(len(a), len(b), msg)
            for x, y in zip(a, b, strict=True):
                self.assertAllClose(x, y, rtol, atol, msg)
            return
        a, b = self._array(a), self._array(b)
        self.assertEqual(a.shape, b.shape, f"Shape mismatch: expected {a.shape}, got {b.shape}.")
        if not np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
            a, b = np.atleast_1d(a), np.atleast_1d(b)
            difference = np.abs(a - b)
            bad = np.logical_or(difference > atol + rtol * np.abs(b), np.isnan(a) != np.isnan(b))
            bad = np.logical_or(bad, np.isinf(a) != np.isinf(b))
            self.fail(
                f"{msg or 'Arrays are not close'}: Not equal to tolerance rtol={rtol}, "
                f"atol={atol}: "
                f"{int(bad.sum())} of {a.size} elements differ, the first at "
                f"{[int(i[0]) for i in np.where(bad)]}: {a[bad].reshape(-1)[0]} != "
                f"{b[bad].reshape(-1)[0]}"
            )

    def assertAllCloseAccordingToType(
        self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6,
        float_rtol: float = 1e-6, float_atol: float = 1e-6, half_rtol: float = 1e-3,
        half_atol: float = 1e-3, bfloat16_rtol: float = 1e-2, bfloat16_atol: float = 1e-2,
        msg: str | None = None,
    ) -> None:  # fmt: skip
        """As assertAllClose, with tolerances for the less precise of the two types."""
        a, b = self._array(a), self._array(b)
        kinds = (a.dtype, b.dtype)
        if any(k in (np.float32, np.complex64) for k in kinds):
            rtol, atol = max(rtol, float_rtol), max(atol, float_atol)
        if np.float16 in kinds:
            rtol, atol = max(rtol, half_rtol), max(atol, half_atol)
        if any(k.name == "bfloat16" for k in kinds):
            rtol, atol = max(rtol, bfloat16_rtol), max(atol, bfloat16_atol)
        self.assertAllClose(a, b, rtol, atol, msg)

    def assertNotAllClose(self, a: Any, b: Any, **kwargs: Any) -> None:
        """assertAllClose would fail."""
        try:
            self.assertAllClose(a, b, **kwargs)
        except AssertionError:
            return
        self.fail("The two values are close at all elements.")

    def assertAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:
        """Two arrays have one shape and the same elements; NaN equals NaN."""
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and _ragged(a, b):
            self.assertEqual(len(a), len(b), msg)
            for x, y in zip(a, b, strict=True):
                self.assertAllEqual(x, y, msg)
            return
        a, b = self._array(a), self._array(b)
        self.assertEqual(
            a.shape, b.shape, f"{msg or 'Shape mismatch'}: expected {a.shape}, got {b.shape}."
        )
        same = a == b
        if a.dtype.kind in "fc" and b.dtype.kind in "fc":
            same = np.logical_or(same, np.logical_and(np.isnan(a), np.isnan(b)))
        if not np.all(same):
            a, b, bad = np.atleast_1d(a), np.atleast_1d(b), np.atleast_1d(np.logical_not(same))
            self.fail(
                f"{msg or 'Arrays are not equal'}: {int(np.sum(bad))} of {a.size} elements "
                "differ, the "
                f"first at {[int(i[0]) for i in np.where(bad)]}: {a[bad].reshape(-1)[0]!r} != "
                f"{b[bad].reshape(-1)[0]!r}"
            )

    def assertNotAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:
        """assertAllEqual would fail."""
        try:
            self.assertAllEqual(a, b)
        except AssertionError:
            return
        self.fail(msg or "The two values are equal at all elements.")

    def assertAllGreater(self, a: Any, comparison_target: Any) -> None:
        """All elements are greater."""
        self.assertGreater(np.min(self._array(a)), comparison_target)

    def assertAllLess(self, a: Any, comparison_target: Any) -> None:
        """All elements are less."""
        self.assertLess(np.max(self._array(a)), comparison_target)

    def assertAllGreaterEqual(self, a: Any, comparison_target: Any) -> None:
        """All elements are greater, or equal."""
        self.assertGreaterEqual(np.min(self._array(a)), comparison_target)

    def assertAllLessEqual(self, a: Any, comparison_target: Any) -> None:
        """All elements are less, or equal."""
        self.assertLessEqual(np.max(self._array(a)), comparison_target)

    def assertAllInRange(
        self, target: Any, lower_bound: Any, upper_bound: Any, open_lower_bound: bool = False,
        open_upper_bound: bool = False,
    ) -> None:  # fmt: skip
        """All elements are between the bounds, which count unless they are open."""
        (self.assertAllGreater if open_lower_bound else self.assertAllGreaterEqual)(
            target, lower_bound
        )
        (self.assertAllLess if open_upper_bound else self.assertAllLessEqual)(target, upper_bound)

    def assertAllInSet(self, target: Any, expected_set: Any) -> None:
        """All elements are among those expected."""
        self.assertEqual(np.setdiff1d(self._array(target), list(expected_set)).size, 0)

    def assertLen(self, container: Any, expected_len: int, msg: str | None = None) -> None:
        """A container has that many elements."""
        self.assertEqual(len(container), expected_len, msg)

    def assertEmpty(self, container: Any, msg: str | None = None) -> None:
        """A container has no elements."""
        self.assertEqual(len(container), 0, msg)

    def assertNotEmpty(self, container: Any, msg: str | None = None) -> None:
        """A container has elements."""
        self.assertGreater(len(container), 0, msg)

    def assertBetween(self, value: Any, minv: Any, maxv: Any, msg: str | None = None) -> None:
        """A number is between two others, or equal to one."""
        self.assertTrue(minv <= value <= maxv, msg or f"{value} is not between {minv} and {maxv}")

    def assertDTypeEqual(self, target: Any, expected_dtype: Any) -> None:
        """An array or a tensor has that type."""
        dtype = getattr(target, "dtype", None) or np.asarray(target).dtype
        self.assertEqual(dtypes.as_dtype(dtype).base_dtype, dtypes.as_dtype(expected_dtype))

    def assertShapeEqual(self, np_array: Any, tf_tensor: Any) -> None:
        """An array has the shape that is known of a tensor."""
        self.assertAllEqual(np_array.shape, tf_tensor.shape.as_list())

    def assertDeviceEqual(self, device1: Any, device2: Any) -> None:
        """Two names stand for one device."""
        self.assertEqual(canonical_name(device1), canonical_name(device2))

    def assertStartsWith(self, actual: str, expected_start: str, msg: str | None = None) -> None:
        """A text starts with another."""
        if not actual.startswith(expected_start):
            self.fail(msg or f"{actual!r} does not start with {expected_start!r}")

    def assertProtoEquals(self, expected_message_maybe_ascii: Any, message: Any) -> None:
        """A message has the fields given, as a message or as text."""
        expected = expected_message_maybe_ascii
        if isinstance(expected, str):
            expected = text_format.Parse(expected, type(message)())
        self.assertEqual(expected, message)

    def assertItemsEqual(self, first: Any, second: Any, msg: Any = None) -> None:
        """As assertCountEqual."""
        self.assertCountEqual(first, second, msg)

    @contextlib.contextmanager
    def assertRaisesWithPredicateMatch(
        self, exception_type: type[BaseException], expected_err_re_or_predicate: Any
    ) -> Iterator[None]:
        """The block raises such an exception, and its text matches, or the predicate holds."""
        try:
            yield
        except exception_type as error:
            if callable(expected_err_re_or_predicate):
                good = bool(expected_err_re_or_predicate(error))
            else:
                text = error.message if isinstance(error, errors.OpError) else str(error)
                op = error.op if isinstance(error, errors.OpError) else None
                if isinstance(op, Operation):
                    text += f"\nCaused by op: {op.name!r}"
                good = re.search(expected_err_re_or_predicate, text) is not None
            if not good:
                raise AssertionError(
                    f"{type(error).__name__} does not match {expected_err_re_or_predicate!r}: "
                    f"{error}"
                ) from error
        else:
            self.fail(f"{exception_type.__name__} not raised")

    def assertRaisesOpError(self, expected_err_re_or_predicate: Any) -> Any:
        """The block raises an OpError whose text matches."""
        return self.assertRaisesWithPredicateMatch(errors.OpError, expected_err_re_or_predicate)

    def assertRaisesRegexp(self, *args: Any, **kwargs: Any) -> Any:
        return self.assertRaisesRegex(*args, **kwargs)

    assertRegexpMatches = unittest.TestCase.assertRegex

    def checkedThread(
        self, target: Callable[..., Any], args: Any = None, kwargs: Any = None
    ) -> Any:
        """A thread whose `join` fails the test when `target` raised."""
        return _CheckedThread(self, target, args or (), kwargs or {})


def _ragged(a: Any, b: Any) -> bool:
    try:
        return len({np.shape(x) for x in (*a, *b)}) > 1
    except ValueError:  # elements that are no arrays themselves
        return True


class _CheckedThread:
    def __init__(self, case: TestCase, target: Callable[..., Any], args: Any, kwargs: Any):
        self._case = case
        self._error: BaseException | None = None

        def run() -> None:
            try:
                target(*args, **kwargs)
            except BaseException as error:  # told by join()
                self._error = error

        self._thread = threading.Thread(target=run, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def join(self) -> None:
        """Waits for its end. The test fails when the target raised."""
        self._thread.join()
        if self._error is not None:
            self._case.fail(f"Error in checkedThread: {self._error}")

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()


@export(v1="test.assert_equal_graph_def")
def assert_equal_graph_def(actual: Any, expected: Any, checkpoint_v2: bool = False) -> None:
    """Two GraphDefs have the same nodes, in any order."""
    del checkpoint_v2
    mine = {node.name: node for node in actual.node}
    theirs = {node.name: node for node in expected.node}
    if set(mine) != set(theirs):
        raise AssertionError(f"different nodes: {sorted(set(mine) ^ set(theirs))}")
    for name, node in mine.items():
        if node != theirs[name]:
            raise AssertionError(f"the node {name!r} differs: {node} against {theirs[name]}")
