"""Sessions: structures in and out, what is kept, threads, interrupts, the end of the process."""

import collections
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import numpy as np
import pytest
from sanitizers import measures_memory

import millrace.compat.v1 as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def test_fetches_come_back_in_their_structure():
    a, b = tf.constant(1.0), tf.constant([2, 3])
    pair = collections.namedtuple("pair", "first second")
    with tf.Session() as session:
        assert session.run(a) == 1.0
        assert session.run([]) == []
        assert session.run([a, (b.op, a)]) == [1.0, (None, 1.0)]
        result = session.run({"x": a, "y": {"z": [b]}})
        assert result["x"] == 1.0 and result["y"]["z"][0].tolist() == [2, 3]
        assert session.run(pair(a, a)) == pair(1.0, 1.0)
        ordered = session.run(collections.OrderedDict([("b", a), ("a", a)]))
        assert type(ordered) is collections.OrderedDict and list(ordered) == ["b", "a"]
        assert session.run("Const:0") == 1.0


def test_a_structure_that_changed_is_fetched_as_it_is_now():
    a, b = tf.constant(1), tf.constant(2)
    pair = collections.namedtuple("pair", "items")
    ordered, nested = collections.OrderedDict(x=a, y=b), pair([a])
    groups = collections.defaultdict(list, x=[a])
    user_dict = collections.UserDict(x=a)
    with tf.Session() as session:
        assert list(session.run(ordered).items()) == [("x", 1), ("y", 2)]
        assert session.run(nested) == pair([1])
        assert session.run(groups) == {"x": [1]}
        assert session.run(user_dict) == {"x": 1}
        ordered.move_to_end("x")
        nested.items.append(b)
        groups["x"][0] = b
        groups["z"].append(a)
        user_dict["y"] = b
        assert list(session.run(ordered).items()) == [("y", 2), ("x", 1)]
        assert session.run(nested) == pair([1, 2])
        again = session.run(groups)
        assert again == {"x": [2], "z": [1]} and again["new"] == []
        assert session.run(user_dict) == {"x": 1, "y": 2}
        del ordered["y"]
        ordered["x"] = b
        assert session.run(ordered) == {"x": 2}


def test_an_object_that_stands_for_another_tensor_now_is_fetched_and_fed_as_that():
    class Current:
        def _as_graph_element(self):
            return self.tensor

    class Parts:
        pass

    tf.register_session_run_conversion_functions(
        Parts, lambda p: (p.tensors, sum), lambda p, v: [(t, v) for t in p.tensors]
    )
    x, y = tf.placeholder(tf.int32), tf.placeholder(tf.int32)
    both = tf.stack([tf.placeholder_with_default(i, []) for i in (1, 2)])
    a, b = both.op.inputs
    current, parts = Current(), Parts()
    with tf.Session() as session:
        for tensor, other in ((x, y), (y, x)):
            current.tensor = tensor
            assert session.run(tf.identity(tensor), {current: 5}) == 5
            assert session.run(current, {tensor: 6, other: 7}) == 6
        for tensors, fetched, fed in (([a], 1, [9, 2]), ([a, b], 3, [9, 9]), ([b], 2, [1, 9])):
            parts.tensors = tensors
            assert session.run(parts) == fetched
            assert session.run(both, {parts: 9}).tolist() == fed


def test_fetches_that_contain_themselves_are_refused():
    fetches = [tf.constant(1)]
    fetches.append(fetches)
    with tf.Session() as session, pytest.raises(RecursionError):
        session.run(fetches)


def test_what_is_kept_for_the_next_run_is_bounded_by_its_size():
    big = tf.constant(np.ones(10 << 20, np.float32))
    at = tf.placeholder(tf.int32, [])
    with tf.Session() as sess:
        for i in range(12):
            assert sess.run(tf.gather(big, at) + i, {at: 3}) == 1 + i
            assert 1 <= sess._core.num_cached() <= 6  # of 40 MB each
    with tf.Session() as sess:
        for i in range(12):
            assert sess.run(at + i, {at: 3}) == 3 + i
        assert sess._core.num_cached() == 12


def test_a_callable_keeps_its_session():
    call = tf.Session().make_callable(tf.constant(3))
    gc.collect()
    assert call() == 3
    session = tf.Session()
    session.call = session.make_callable(tf.constant(4))
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None


def test_a_signal_that_comes_as_a_run_ends_is_raised_as_it_is():
    class Raised(Exception):
        pass

    handled, ends = threading.Event(), threading.Event()

    def handler(*_):
        handled.set()
        ends.wait()
        time.sleep(0.1)  # for the run to end
        raise Raised

    def end():
        handled.wait()
        ends.set()

    signalled = tf.py_func(lambda: os.kill(os.getpid(), signal.SIGUSR1), [], [])
    with tf.control_dependencies([signalled]):
        ended = tf.py_func(end, [], [])
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with tf.Session() as session:
            with pytest.raises(Raised):
                session.run(ended)
            assert session.run(tf.constant(3)) == 3
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_scalar_is_a_numpy_scalar_and_an_array_is_the_callers():
    with tf.Session() as session:
        assert type(session.run(tf.constant(1.0))) is np.float32
        assert type(session.run(tf.constant(True))) is np.bool_
        assert session.run(tf.constant("text")) == b"text"
        big = tf.ones([1000])
        first = session.run(big)
        first[:] = 5
        assert session.run(big).max() == 1


DTYPES = (
    "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 bool complex64 complex128".split()
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 2), (700, 3)])
def test_arrays_go_in_and_out(dtype, shape):
    x = tf.placeholder(dtype)
    given = (np.random.default_rng(0).normal(size=shape) * 10).astype(dtype)
    with tf.Session() as session:
        got = session.run(tf.identity(x), {x: given})
        assert np.asarray(got).dtype == given.dtype
        np.testing.assert_array_equal(got, given)
        strided = np.asfortranarray(given)
        np.testing.assert_array_equal(session.run(tf.identity(x), {x: strided}), given)
        swapped = given.astype(given.dtype.newbyteorder())
        np.testing.assert_array_equal(session.run(tf.identity(x), {x: swapped}), given)


def test_strings_go_in_and_out():
    x = tf.placeholder(tf.string, [None])
    with tf.Session() as session:
        got = session.run(tf.identity(x), {x: ["a", b"\x00\xff", "ü"]})
    assert got.tolist() == [b"a", b"\x00\xff", "ü".encode()]


def test_a_fed_array_is_not_kept_nor_changed():
    x = tf.placeholder(tf.float32, [5000])
    v = tf.Variable(tf.zeros([5000]))
    keep = tf.assign(v, x)
    given = np.ones(5000, np.float32)
    with tf.Session() as session:
        session.run(keep, {x: given})
        given[:] = 7
        assert session.run(v).max() == 1
        session.run(tf.assign_add(v, x), {x: given})
        assert given.max() == 7
    references = sys.getrefcount(given)
    with tf.Session() as session:
        session.run(keep, {x: given})
    gc.collect()
    assert sys.getrefcount(given) == references


def test_mistakes_in_feeds_and_fetches():
    x = tf.placeholder(tf.float32, [2])
    with tf.Session() as session:
        for feeds, kind in (
            ({x: [1, 2, 3]}, ValueError),
            ({x: "text"}, (ValueError, TypeError)),
            ({x: tf.ones([2])}, TypeError),
            ({"nothing:0": 1}, TypeError),
            ([x], TypeError),
            ({x: [[1], [2, 3]]}, (ValueError, TypeError)),
            ({x: None}, (ValueError, TypeError)),
        ):
            with pytest.raises(kind):
                session.run(x, feeds)
        for fetch in (None, 3.5, object(), "nothing", "nothing:0"):
            with pytest.raises((TypeError, ValueError)):
                session.run(fetch)
        assert session.run(x, {x: [1, 2]}).tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="closed"):
        session.run(x, {x: [1, 2]})


def test_a_value_may_change_the_feeds_while_it_is_converted():
    x, y = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.float32, [2])
    feeds = {}

    class Sly:
        def __array__(self, dtype=None, copy=None):
            feeds.clear()
            return np.ones(2, np.float32)

    with tf.Session() as session:
        for _ in range(3):
            feeds.update({x: Sly(), y: np.full(2, 2, np.float32)})
            assert session.run(x + y, feeds).tolist() == [3, 3]


def test_many_different_fetches_do_not_fill_the_memory():
    x = tf.placeholder(tf.float32, [])
    with tf.Session() as session:
        for i in range(5000):
            assert session.run({str(i): x}, {x: i}) == {str(i): i}


def test_a_callable_takes_its_feeds_in_order():
    x, y = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    with tf.Session() as session:
        call = session.make_callable([x - y, x], [x, y])
        assert call(5, 2) == [3, 5]
        with pytest.raises(ValueError, match="expected 2"):
            call(5)
    with pytest.raises(tf.errors.OpError):
        call(5, 2)


def test_partial_runs():
    a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    first, second = a * 2.0, a * b
    with tf.Session() as session:
        handle = session.partial_run_setup([first, second], [a, b])
        assert session.partial_run(handle, first, {a: 3}) == 6
        assert session.partial_run(handle, second, {b: 5}) == 15


def test_metadata_is_told_when_asked_for():
    y = tf.matmul(tf.ones([4, 4]), tf.ones([4, 4]))
    metadata = tf.RunMetadata()
    with tf.Session() as session:
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        session.run(y, options=options, run_metadata=metadata)
        names = [n.node_name for d in metadata.step_stats.dev_stats for n in d.node_stats]
        assert names
        with pytest.raises(tf.errors.DeadlineExceededError):
            queue = tf.FIFOQueue(1, tf.float32)
            session.run(queue.dequeue(), options=tf.RunOptions(timeout_in_ms=20))


def test_the_graph_grows_between_runs():
    with tf.Session() as session:
        x = tf.constant(1.0)
        for _ in range(20):
            x = x + 1.0
            session.run(x)
        assert session.run(x) == 21


def test_threads_run_at_once():
    barrier = threading.Barrier(2, timeout=30)

    def meet(x):
        barrier.wait()
        return x

    y = tf.py_func(meet, [tf.constant(1.0)], tf.float32)
    with tf.Session() as session:
        results = []
        threads = [
            threading.Thread(target=lambda: results.append(session.run(y))) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert results == [1.0, 1.0]


@measures_memory
def test_closed_sessions_leave_no_thread_and_no_memory_behind():
    y = tf.constant(1.0) + 1.0

    def open_and_close(count):
        for _ in range(count):
            with tf.Session() as session:
                session.run(y)
        gc.collect()

    def memory():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    open_and_close(100)
    threads, before = len(os.listdir("/proc/self/task")), memory()
    open_and_close(1000)
    assert len(os.listdir("/proc/self/task")) <= threads
    assert memory() - before < 1 << 20


@measures_memory
def test_runs_do_not_grow_the_process():
    x = tf.placeholder(tf.float32, [3])
    y = x * 2.0 + 1.0
    given = np.ones(3, np.float32)
    with tf.Session() as session:

        def memory():
            gc.collect()
            with open("/proc/self/statm") as f:
                return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        for _ in range(5000):
            session.run(y, {x: given})
        before = memory()
        for _ in range(100000):
            session.run(y, {x: given})
        assert memory() - before < 1 << 20


def python(code, **kwargs):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60,
        **kwargs,
    )  # fmt: skip


LOOP = """
    import os, signal, threading, time
    import millrace.compat.v1 as tf
    forever = tf.while_loop(lambda i: i < 2**31 - 2, lambda i: i + 1, [0])
    session = tf.Session()
"""


def test_an_interrupt_ends_a_run_and_leaves_the_session_usable():
    done = python(
        LOOP
        + """
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        session.run(forever)
    except KeyboardInterrupt:
        print("interrupted", session.run(tf.constant(3)))
    """
    )
    assert done.stdout == "interrupted 3\n", done.stderr


@pytest.mark.parametrize("made_by", ["call = session.make_callable(forever)", "call = prepare()"])
def test_an_interrupt_ends_a_run_that_another_thread_prepared(made_by):
    done = python(
        LOOP
        + f"""
    def prepare():
        # What a run comes to is worked out by the first one.
        n = tf.placeholder(tf.int32, [])
        loop = tf.while_loop(lambda i: i < n, lambda i: i + 1, [0])
        session.run(loop, {{n: 3}})
        return lambda: session.run(loop, {{n: 2**31 - 2}})
    def work():
        global call
        with session.graph.as_default():
            {made_by}
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        call()
    except KeyboardInterrupt:
        print("interrupted")
    """
    )
    assert done.stdout == "interrupted\n", done.stderr


@pytest.mark.parametrize(
    "work", ["session.run(forever)", "session.run(tf.py_func(lambda: time.sleep(50), [], []))"]
)
def test_the_interpreter_ends_during_a_run(work):
    started = time.monotonic()
    done = python(
        LOOP
        + f"""
    began = threading.Event()
    def work():
        print("running", flush=True)
        began.set()
        {work}
    with tf.Graph().as_default():
        pass
    threading.Thread(target=work, daemon=True).start()
    began.wait()
    time.sleep(0.3)  # mostly in the run
    """
    )
    assert done.returncode == 0 and done.stdout == "running\n", done.stderr
    assert time.monotonic() - started < 30


def test_importing_prints_nothing_and_loads_little():
    done = python("import sys, millrace.compat.v1; print('numpy' in sys.modules)")
    assert done.stdout == "False\n" and done.stderr == ""


def test_first_runs_on_several_threads_at_once():
    done = python(
        """
    import threading, time
    import millrace.compat.v1 as tf
    known = threading.main_thread()
    threading.main_thread = lambda: time.sleep(0.1) or known  # lets others run meanwhile
    graphs, done = [tf.Graph() for _ in range(8)], []
    start = threading.Barrier(len(graphs))
    def work(graph):
        start.wait()
        with graph.as_default(), tf.Session(graph=graph) as session:
            x = tf.placeholder(tf.float32)
            done.append(session.run(tf.cast(x, tf.int32), {x: 1}))
    threads = [threading.Thread(target=work, args=(g,)) for g in graphs]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(sum(done))
    """
    )
    assert done.stdout == "8\n", done.stderr


def test_no_python_thread_is_started_when_the_interpreter_ends():
    done = python(
        """
    import atexit, threading, time
    import millrace.compat.v1 as tf
    session = tf.Session()
    running = threading.Event()
    wait = tf.py_func(lambda: [running.set(), time.sleep(50)] and None, [], [])
    threading.Thread(target=session.run, args=(wait,), daemon=True).start()
    running.wait()
    def refuse(*_, **__):
        raise RuntimeError("can't create new thread at interpreter shutdown")
    atexit.register(lambda: setattr(threading.Thread, "start", refuse))
    """
    )
    assert done.returncode == 0 and done.stderr == ""


def test_cost_models():
    config = tf.ConfigProto()
    config.graph_options.build_cost_model = 3
    config.graph_options.build_cost_model_after = 1
    x = tf.placeholder(tf.float32, [2], name="x")
    with tf.control_dependencies([tf.negative(x, name="before")]):
        y = tf.multiply(x, x, name="y")
    told = []
    with tf.Session(config=config) as sess:
        for _ in range(7):
            metadata = tf.RunMetadata()
            assert sess.run(y, {x: [1, 2]}, run_metadata=metadata).tolist() == [1, 4]
            assert not metadata.HasField("step_stats")
            told.append(metadata.cost_graph if metadata.HasField("cost_graph") else None)
    assert [i for i, graph in enumerate(told) if graph] == [3, 6]
    nodes = {node.name: node for node in told[3].node}
    assert {"before", "y"} <= nodes.keys()
    assert nodes["y"].device.endswith("CPU:0") and nodes["y"].compute_cost >= 0
    assert list(nodes["y"].control_input) == [nodes["before"].id]
    (made,) = nodes["y"].output_info
    assert (made.size, made.dtype, made.shape.dim[0].size) == (8, 1, 2)
    assert len({node.id for node in told[3].node}) == len(told[3].node)
