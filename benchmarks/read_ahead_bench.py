"""What reading parameters ahead saves where the network takes time.

    python benchmarks/read_ahead_bench.py [--delays MS ...] [--steps N]

Milliseconds of an asynchronous training step, the median, with and without ReadAhead. One worker
has one parameter server, little to read, and a long way to it: gRPC through a forwarder that has
every byte take so many milliseconds, each way.
"""

import argparse
import json
import os
import queue
import socket
import statistics
import subprocess
import sys
import threading
import time

from cluster_bench import free_address

_SERVER = """
import json, sys
import millrace.compat.v1 as tf
tf.train.Server(json.loads(sys.argv[1]), "ps", 0).join()
"""
WIDTH, BATCH, LAYERS = 64, 16384, 2


def forward(address, delay):
    """Forwards connections to the address, from the port that is given back, for ever."""
    listener = socket.create_server(("127.0.0.1", 0))

    def carry(source, sink):
        waiting = queue.Queue()

        def deliver():
            while True:
                due, data = waiting.get()
                time.sleep(max(0.0, due - time.monotonic()))
                try:
                    sink.sendall(data) if data else sink.shutdown(socket.SHUT_WR)
                except OSError:  # it has ended
                    return

        threading.Thread(target=deliver, daemon=True).start()
        data = b"-"
        while data:
            try:
                data = source.recv(1 << 20)
            except OSError:
                data = b""
            waiting.put((time.monotonic() + delay, data))

    def accept():
        while True:
            near, _ = listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
            except ConnectionRefusedError:  # the server has not begun
                near.close()
                continue
            for end in near, far:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for ends in (near, far), (far, near):
                threading.Thread(target=carry, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return f"localhost:{listener.getsockname()[1]}"


def step_ms(delay_ms, ahead, steps):
    """Of a worker of this process."""
    import millrace.compat.v1 as tf
    from millrace.distributed import ReadAhead

    real, worker = free_address(), free_address()
    said = json.dumps({"ps": [real], "worker": [worker]})
    server = subprocess.Popen([sys.executable, "-c", _SERVER, said], stderr=subprocess.DEVNULL)
    jobs = {"ps": [forward(real, delay_ms / 1e3)], "worker": [worker]}
    own = tf.train.Server(jobs, "worker", 0)
    try:
        with tf.Graph().as_default(), tf.device(tf.train.replica_device_setter(cluster=jobs)):
            getter = ReadAhead() if ahead else None
            with tf.variable_scope(tf.get_variable_scope(), custom_getter=getter):
                x = tf.ones([BATCH, WIDTH])
                for _ in range(LAYERS):
                    x = tf.layers.dense(x, WIDTH, activation=tf.nn.relu)
            optimizer = tf.train.GradientDescentOptimizer(1e-6)
            train = optimizer.minimize(tf.reduce_mean(tf.square(x)))
            with tf.Session(own.target) as session:
                session.run([tf.global_variables_initializer()])
                session.run([tf.local_variables_initializer()])
                call = session.make_callable([train])
                took = []
                for _ in range(steps):
                    start = time.perf_counter()
                    call()
                    took.append(time.perf_counter() - start)
        return statistics.median(took[steps // 4 :]) * 1e3
    finally:
        own.stop()
        server.kill()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--delays", type=float, nargs="*", default=[0, 1, 5, 20])
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    os.environ["MILLRACE_SAME_HOST"] = "0"
    print(f"{'delay each way, ms':20} {'without':>10} {'read ahead':>12}")
    for delay in arguments.delays:
        plain, ahead = (step_ms(delay, ahead, arguments.steps) for ahead in (False, True))
        print(f"{delay:<20g} {plain:10.2f} {ahead:12.2f}", flush=True)


if __name__ == "__main__":
    main()
