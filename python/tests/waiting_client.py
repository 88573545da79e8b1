"""A program that waits in every way that a program of a cluster can: one of them for each line that
it reads. It says how each ended, and goes on. Run by test_cluster_waits.py."""

import json
import os
import sys
import threading
import time

import millrace.compat.v1 as tf
from millrace import raw_ops
from millrace.distributed import ending

cluster, job, index = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
server = tf.train.Server(cluster, job, index)
PS, OTHER = "/job:ps/task:0", "/job:ps/task:1"
OWN = f"/job:{job}/task:{index}"

WAYS = {}
AT_ONCE = set()  # those that wait from the beginning; the others once they have a session


def way(function):
    WAYS[function.__name__] = function
    return function


def at_once(function):
    AT_ONCE.add(function.__name__)
    return function


class Waits:
    """Says "waits" when a wait that has begun has lasted for a moment."""

    timer = None

    @classmethod
    def begin(cls):
        cls.end()
        cls.timer = threading.Timer(0.2, lambda: print("waits", flush=True))
        cls.timer.start()

    @classmethod
    def end(cls):
        if cls.timer is not None:
            cls.timer.cancel()


def session(*tasks, **settings):
    filters = [*(tasks or (PS, OTHER)), OWN]
    return tf.Session(server.target, config=tf.ConfigProto(device_filters=filters, **settings))


def run(fetch, options=None):
    with session(PS) as sess:
        Waits.begin()
        sess.run(fetch, options=options)


# Kernels that wait on a parameter server.


@way
def dequeue():
    with tf.device(PS):
        wait = tf.FIFOQueue(1, tf.float32).dequeue(name="nothing_comes")
    run(wait)


@way
def dequeue_many():
    with tf.device(PS):
        wait = tf.FIFOQueue(9, tf.float32, shapes=[[]]).dequeue_many(2, name="too_few_come")
    run(wait)


@way
def enqueue():
    with tf.device(PS):
        queue = tf.FIFOQueue(1, tf.float32, shared_name=f"full_{index}")
        wait = queue.enqueue(1.0, name="no_room")
    run(wait)
    run(wait)


@way
def shuffle_queue():
    with tf.device(PS):
        wait = tf.RandomShuffleQueue(9, 3, tf.float32).dequeue(name="none_to_shuffle")
    run(wait)


@way
def priority_queue():
    with tf.device(PS):
        queue = tf.PriorityQueue(9, tf.float32, [[]])
        wait = queue.dequeue(name="none_is_first")
    run(wait)


@way
def take_grad():
    with tf.device(PS):
        wait = tf.ConditionalAccumulator(tf.float32, [2]).take_grad(3, name="no_gradients")
    run(wait)


@way
def sparse_take_grad():
    with tf.device(PS):
        sums = tf.SparseConditionalAccumulator(tf.float32, [2])
        wait = sums.take_grad(3, name="no_slices")
    run(wait)


@way
def barrier():
    with tf.device(PS):
        wait = tf.Barrier(tf.float32, shapes=()).take_many(1, name="no_one_meets")
    run(wait[0])


@way
def unstage():
    with tf.device(PS):
        wait = raw_ops.Unstage(dtypes=[tf.float32], name="nothing_staged")
    run(list(wait))


@way
def reader():
    with tf.device(PS):
        files = tf.FIFOQueue(1, tf.string, shapes=[[]])
        wait = tf.TextLineReader().read(files, name="no_file")
    run(wait)


@way
def other_tasks_value():
    with tf.device(PS):
        value = tf.FIFOQueue(1, tf.float32).dequeue(name="sent_never")
    with tf.device(OWN):
        wait = value + 1.0
    run(wait)


@way
def two_tasks():
    with tf.device(OTHER):
        value = tf.FIFOQueue(1, tf.float32).dequeue(name="first_of_two")
    with tf.device(PS):
        wait = value + 1.0
    with session() as sess:
        sess.run(wait)


@way
def tokens():
    setter = tf.train.replica_device_setter(cluster=cluster, worker_device=OWN)
    with tf.device(setter):
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
        descent = tf.train.GradientDescentOptimizer(0.5)
        optimizer = tf.train.SyncReplicasOptimizer(descent, 2, total_num_replicas=2)
        train = optimizer.minimize(tf.square(w - 1.0), global_step=step)
    hook = optimizer.make_session_run_hook(True)
    config = tf.ConfigProto(device_filters=["/job:ps", OWN])
    with tf.train.MonitoredTrainingSession(
        server.target, hooks=[hook], config=config, stop_grace_period_secs=1
    ) as sess:
        for _ in range(9):  # the other worker never comes
            sess.run(train)


@way
def deadline():
    with tf.device(PS):
        wait = tf.FIFOQueue(1, tf.float32).dequeue(name="until_then")
    run(wait, tf.RunOptions(timeout_in_ms=300))


# Tasks that are not there, or not what they should be.


@way
def read_variable():
    with tf.device(PS):
        v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
    with session(PS) as sess:
        sess.run(v.initializer)
        Waits.begin()
        while True:
            sess.run(v)


@way
@at_once
def new_session():
    with session(PS) as sess:
        sess.list_devices()


@way
def new_session_with_deadline():
    session("/job:absent", operation_timeout_in_ms=300).close()


@way
def absent_task():
    session("/job:absent").close()


@way
def absent_server():
    tf.Session("grpc://" + cluster["absent"][0]).close()


@way
def wrong_address():
    session("/job:wrong").close()


@way
def model():
    with tf.device(OTHER):
        tf.get_variable("never_initialized", [], initializer=tf.zeros_initializer())
    config = tf.ConfigProto(device_filters=["/job:ps", OWN])
    with tf.train.MonitoredTrainingSession(server.target, is_chief=False, config=config):
        pass


@way
def model_with_deadline():
    with tf.device(OTHER):
        tf.get_variable("never_initialized", [], initializer=tf.zeros_initializer())
    config = tf.ConfigProto(device_filters=[OTHER, OWN])
    with tf.train.MonitoredTrainingSession(
        server.target, is_chief=False, config=config, max_wait_secs=0.3
    ):
        pass


@way
def save():
    with tf.device(PS):
        v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
    saver = tf.train.Saver()
    with session(PS) as sess:
        sess.run(v.initializer)
        Waits.begin()
        while True:
            saver.save(sess, os.path.join(sys.argv[4], f"saved_{index}"), write_meta_graph=False)


@way
@at_once
def reset():
    tf.Session.reset(server.target, config=tf.ConfigProto(device_filters=[PS, OWN]))


@way
@at_once
def activity():
    from millrace import _core

    while True:
        _core.server_activity("grpc://" + cluster["ps"][0])


# The program's own waits.


@way
@at_once
def join():
    server.join()


@way
def coordinator():
    coord = tf.train.Coordinator()
    with tf.device(PS):
        wait = tf.FIFOQueue(1, tf.float32).dequeue(name="in_a_thread")
    sess = session(PS)
    thread = threading.Thread(target=lambda: _until_closed(sess, wait), daemon=True)
    thread.start()
    try:
        coord.join([thread], stop_grace_period_secs=60)
    finally:
        sess.close()


def _until_closed(sess, fetch):
    try:
        sess.run(fetch)
    except tf.errors.CancelledError:
        pass


@way
def workers_end():
    ending.wait_for_workers("grpc://" + cluster["ps"][1], tf.train.ClusterSpec(cluster), 1)


def main():
    print("ready", flush=True)
    for line in sys.stdin:
        name = line.strip()
        began = time.monotonic()
        try:
            with tf.Graph().as_default():
                if name in AT_ONCE:
                    Waits.begin()
                WAYS[name]()
            ended = ["returned", ""]
        except BaseException as error:
            ended = [type(error).__name__, str(error)]
        Waits.end()
        print("ended:", *ended, file=sys.stderr, flush=True)
        print(json.dumps([*ended, time.monotonic() - began]), flush=True)


main()
