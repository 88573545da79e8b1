"""Servers of this process, and the sessions that run on them."""

import socket
import threading

import pytest

import millrace.compat.v1 as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as made:
        yield made


def free_address():
    with socket.socket() as holder:
        holder.bind(("", 0))
        return f"localhost:{holder.getsockname()[1]}"


def test_state_outlives_sessions_and_is_shared():
    server = tf.train.Server.create_local_server()
    assert server.target.startswith("grpc://localhost:") and not server.target.endswith(":0")
    v = tf.Variable(2.0, name="v")
    with tf.Session(server.target) as first:
        first.run(v.initializer)
        (device,) = first.list_devices()
        assert device.name == "/job:local/replica:0/task:0/device:CPU:0"
        first.run(v.assign_add(1.0))
    with tf.Session(server.target) as second:
        assert second.run(v) == 3.0
    elsewhere = tf.Session(tf.train.Server.create_local_server().target)
    with pytest.raises(tf.errors.FailedPreconditionError):
        elsewhere.run(v)


def test_a_queue_without_a_shared_name_belongs_to_its_session():
    server = tf.train.Server.create_local_server()
    queue = tf.FIFOQueue(3, tf.float32)
    shared = tf.FIFOQueue(3, tf.float32, shared_name="shared")
    with tf.Session(server.target) as first, tf.Session(server.target) as second:
        first.run([queue.enqueue(1.0), shared.enqueue(1.0)])
        assert second.run([queue.size(), shared.size()]) == [0, 1]


def test_reset_drops_containers_and_ends_sessions():
    server = tf.train.Server.create_local_server()
    other = tf.train.Server({"other": ["localhost:0"]})
    with tf.container("box"):
        boxed = tf.Variable(1.0)
    plain = tf.Variable(2.0)
    init = tf.global_variables_initializer()
    session, untouched = tf.Session(server.target), tf.Session(other.target)
    session.run(init)
    untouched.run(init)

    tf.Session.reset(server.target, ["box"])
    with pytest.raises(tf.errors.AbortedError, match="new session"):
        session.run(plain)
    session.close()
    session = tf.Session(server.target)
    assert session.run(plain) == 2.0
    with pytest.raises(tf.errors.FailedPreconditionError):
        session.run(boxed)

    tf.Session.reset(server.target, ["local"])  # the job's name is that of the default container
    with pytest.raises(tf.errors.FailedPreconditionError):
        tf.Session(server.target).run(plain)
    assert untouched.run([boxed, plain]) == [1.0, 2.0]


def test_reset_leaves_tasks_alone_that_filters_leave_out():
    server = tf.train.Server({"local": ["localhost:0"], "absent": [free_address()]}, "local", 0)
    near = tf.ConfigProto(device_filters=["/job:local"], operation_timeout_in_ms=20_000)
    variable = tf.Variable(2.0)
    with tf.Session(server.target, config=near) as session:
        session.run(variable.initializer)
    tf.Session.reset(server.target, config=near)
    with (
        tf.Session(server.target, config=near) as session,
        pytest.raises(tf.errors.FailedPreconditionError),
    ):
        session.run(variable)
    everywhere = tf.ConfigProto(operation_timeout_in_ms=5)
    with pytest.raises(tf.errors.DeadlineExceededError, match="/job:absent"):
        tf.Session.reset(server.target, config=everywhere)


def test_a_cluster_in_one_process():
    spec = tf.train.ClusterSpec({"ps": [free_address()], "worker": {3: free_address()}})
    worker = tf.train.Server(spec, job_name="worker", task_index=3)
    soon = tf.ConfigProto(operation_timeout_in_ms=1)
    with pytest.raises(tf.errors.DeadlineExceededError, match="/job:ps/replica:0/task:0 at"):
        tf.Session(worker.target, config=soon)
    only_workers = tf.ConfigProto(device_filters=["/job:worker"])
    with tf.Session(worker.target, config=only_workers) as session:
        assert len(session.list_devices()) == 1
    ps = tf.train.Server(spec, job_name="ps", task_index=0)
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(3.0)
    with tf.device("/job:worker/task:3"):
        doubled = v * 2.0
    with tf.Session(worker.target) as session:
        session.run(v.initializer)
        assert session.run(doubled) == 6.0
    with tf.Session(ps.target) as session:  # the same variable, by way of the other task
        assert session.run(v) == 3.0


def test_runs_in_pieces_and_the_end_of_what_waits():
    server = tf.train.Server.create_local_server()
    a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    total = a + b
    scaled = total * 2.0
    session = tf.Session(server.target)
    handle = session.partial_run_setup([total, scaled], [a, b])
    assert session.partial_run(handle, total, {a: 1.0, b: 2.0}) == 3.0
    assert session.partial_run(handle, scaled) == 6.0

    entered = threading.Event()
    with tf.control_dependencies([tf.py_func(lambda: entered.set() or 1.0, [], tf.double)]):
        wait = tf.FIFOQueue(1, tf.float32).dequeue()
    ends = []

    def blocked():
        with pytest.raises(tf.errors.CancelledError, match="Session::Close") as error:
            session.run(wait)
        ends.append(error)

    thread = threading.Thread(target=blocked)
    thread.start()
    assert entered.wait(60)
    session.close()
    thread.join()
    assert ends


def brought(*servers, **more):
    """A config that makes task 0, 1, ... of a job "brought" of the servers."""
    config = tf.ConfigProto(**more)
    job = config.cluster_def.job.add(name="brought")
    for number, server in enumerate(servers):
        job.tasks[number] = server.target.removeprefix("grpc://")
    return config


def test_a_session_brings_its_cluster():
    # Neither knows of the other, and both have the same name.
    servers = [tf.train.Server.create_local_server() for _ in range(2)]
    with tf.device("/job:brought/task:1"):
        v = tf.Variable(3.0)
    with tf.device("/job:brought/task:0"):
        doubled = v * 2.0
    shared, own = brought(*servers), brought(*servers, isolate_session_state=True)
    with tf.Session(servers[0].target, config=shared) as session:
        assert [d.name for d in session.list_devices()] == [
            f"/job:brought/replica:0/task:{task}/device:CPU:0" for task in range(2)
        ]
        session.run(v.initializer)
        assert session.run(doubled) == 6.0
        handle = session.partial_run_setup([doubled, tf.identity(v)], [])
        assert session.partial_run(handle, doubled) == 6.0
    # What it left is the server's, whatever that is called: here it is the other task, alone.
    with tf.Graph().as_default():
        again = tf.Variable(0.0, name="Variable")
        with tf.Session(servers[1].target) as session:
            assert session.run(again) == 3.0
    with tf.Session(servers[1].target, config=shared) as session:
        assert session.run(v) == 3.0
    session = tf.Session(servers[0].target, config=own)
    with session, pytest.raises(tf.errors.FailedPreconditionError):
        session.run(v)


def test_clusters_that_no_session_can_bring():
    server, other = (tf.train.Server.create_local_server() for _ in range(2))
    with pytest.raises(tf.errors.InvalidArgumentError, match="where the session begins"):
        tf.Session(server.target, config=brought(other))
    with pytest.raises(tf.errors.InvalidArgumentError, match="have one address"):
        tf.Session(server.target, config=brought(server, server))
    no_address = brought(server)
    no_address.cluster_def.job[0].tasks[1] = "somewhere"
    with pytest.raises(tf.errors.InvalidArgumentError, match="host:port"):
        tf.Session(server.target, config=no_address)
    # A session of this process has no cluster, as in TensorFlow.
    with tf.Session(config=brought(server)) as session:
        assert session.run(tf.constant(1)) == 1


def test_what_no_server_can_be():
    with pytest.raises(tf.errors.InvalidArgumentError, match="port"):
        tf.train.Server({"local": ["localhost"]})
    with pytest.raises(tf.errors.InvalidArgumentError, match="elsewhere"):
        tf.train.Server({"local": ["localhost:0", "elsewhere"]}, task_index=0)
    server = tf.train.Server.create_local_server()
    address = server.target.removeprefix("grpc://")
    with pytest.raises(tf.errors.UnknownError, match=address):
        tf.train.Server({"another": [address]})
    with pytest.raises(tf.errors.UnknownError):
        tf.train.Server({"another": ["localhost:99999"]})
    soon = tf.ConfigProto(operation_timeout_in_ms=5)
    for act in (tf.Session, tf.Session.reset):
        with pytest.raises(tf.errors.DeadlineExceededError):
            act("grpc://localhost:0", config=soon)
        with pytest.raises(tf.errors.NotFoundError):
            act("nonexistent")
