"""Replicas that make their steps together, as tasks of one process."""

import threading

import numpy as np
import pytest
from ports import free_ports

import millrace.compat.v1 as tf
from millrace.train.living_tasks import Era, LivingTasks, is_synchronous


class Cluster:
    """A parameter server and workers; a replica of the model in a graph of each worker.

    The gradient of worker i is i + 1 in every step, and a step subtracts the mean from `w`.
    """

    def __init__(self, workers, needed):
        first = free_ports(workers + 1)
        places = [f"localhost:{first + i}" for i in range(workers + 1)]
        spec = tf.train.ClusterSpec({"ps": places[:1], "worker": places[1:]})
        self.ps = tf.train.Server(spec, "ps", 0)
        self.servers = [tf.train.Server(spec, "worker", i) for i in range(workers)]
        self.replicas = [Replica(self.servers[i], spec, i, needed) for i in range(workers)]

    def start(self):
        """Sessions of all replicas, initialised by the first, whose thread makes the steps."""
        self.sessions = [tf.Session(r.server.target, graph=r.graph) for r in self.replicas]
        chief = self.replicas[0]
        for replica, session in zip(self.replicas, self.sessions, strict=True):
            session.run(replica.local_init)
            if replica is chief:
                session.run(chief.init)
                session.run(chief.chief_init)
        self.coord = tf.train.Coordinator()
        runner = chief.optimizer.get_chief_queue_runner()
        with chief.graph.as_default():
            self.threads = runner.create_threads(
                self.sessions[0], self.coord, daemon=True, start=True
            )
        return self.sessions

    def stop(self):
        self.coord.request_stop()
        for session in self.sessions:
            session.close()
        self.coord.join(self.threads)


class Replica:
    def __init__(self, server, spec, index, needed):
        self.server, self.graph = server, tf.Graph()
        own = f"/job:worker/task:{index}"
        setter = tf.train.replica_device_setter(cluster=spec, worker_device=own)
        with self.graph.as_default(), tf.device(setter):
            self.step = tf.train.get_or_create_global_step()
            self.w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
            descent = tf.train.GradientDescentOptimizer(1.0)
            self.optimizer = tf.train.SyncReplicasOptimizer(
                descent, needed, total_num_replicas=spec.num_tasks("worker")
            )
            self.train = self.optimizer.minimize(self.w * (index + 1.0), global_step=self.step)
            self.init = tf.global_variables_initializer()
            self.local_init = tf.local_variables_initializer()
            self.chief_init = self.optimizer.chief_init_op
            self.local_step_init = self.optimizer.local_step_init_op


def test_a_fast_replica_does_not_take_the_place_of_a_slow_one():
    cluster = Cluster(workers=2, needed=2)
    sessions = cluster.start()

    def run(i):
        for _ in range(50):
            sessions[i].run(cluster.replicas[i].train)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    chief = cluster.replicas[0]
    assert sessions[0].run([chief.step, chief.w]) == [50, -75.0]
    assert [
        s.run(r.optimizer.late_gradients) for s, r in zip(sessions, cluster.replicas, strict=True)
    ] == [0, 0]
    cluster.stop()


def test_a_restarted_replica_gives_its_gradient_once():
    cluster = Cluster(workers=2, needed=2)
    sessions = cluster.start()
    chief, other = cluster.replicas

    def give(session):
        with pytest.raises((tf.errors.CancelledError, tf.errors.AbortedError, RuntimeError)):
            session.run(other.train)

    accumulators = chief.optimizer._accumulator_list
    with chief.graph.as_default():
        given = accumulators[0][0].num_accumulated()
    # The first life gives a gradient and ends in its wait for the step.
    first = threading.Thread(target=give, args=(sessions[1],))
    first.start()
    while sessions[0].run(given) == 0:
        pass
    sessions[1].close()
    first.join()
    sessions[1] = tf.Session(other.server.target, graph=other.graph)
    sessions[1].run([other.local_init, other.local_step_init])
    second = threading.Thread(target=sessions[1].run, args=(other.train,))
    second.start()
    sessions[0].run(chief.train)
    second.join()
    assert sessions[0].run([chief.step, chief.w]) == [1, -1.5]
    assert sessions[1].run(other.optimizer.late_gradients) == 1
    cluster.stop()


def test_a_graph_is_known_to_train_synchronously():
    def trains(sparse, synchronous):
        with tf.Graph().as_default() as graph:
            w = tf.get_variable("w", [3, 2])
            loss = tf.reduce_sum(tf.gather(w, [1]) if sparse else w)
            optimizer = tf.train.GradientDescentOptimizer(1.0)
            if synchronous:
                optimizer = tf.train.SyncReplicasOptimizer(optimizer, 2)
            optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())
        return is_synchronous(graph)

    # Then a lost parameter server sets the whole model back, not its own variables alone.
    for sparse in (False, True):
        assert trains(sparse, synchronous=True)
        assert not trains(sparse, synchronous=False)


def test_a_late_gradient_is_dropped_and_told():
    cluster = Cluster(workers=2, needed=1)
    sessions = cluster.start()
    chief, slow = cluster.replicas
    for _ in range(3):
        sessions[0].run(chief.train)
    sessions[1].run(slow.train)
    assert sessions[1].run(slow.optimizer.late_gradients) == 1
    assert sessions[0].run([chief.step, chief.w]) == [3, -3.0]
    # It is at the latest step now, not at the one after its own.
    sessions[1].run(slow.train)
    assert sessions[1].run(slow.optimizer.late_gradients) == 1
    assert sessions[0].run([chief.step, chief.w]) == [4, -5.0]
    cluster.stop()


@pytest.mark.parametrize("first_to_end", ["a worker", "the chief"])
def test_the_end_of_the_data_leaves_nobody_waiting(first_to_end):
    cluster = Cluster(workers=3, needed=2)
    # The steps that the data of each are enough for.
    data = [3, 10**6, 10**6] if first_to_end == "the chief" else [10**6, 3, 5]
    made = [0, 0, 0]

    def run(i):
        replica = cluster.replicas[i]
        with replica.graph.as_default():
            hook = replica.optimizer.make_session_run_hook(i == 0, num_tokens=0)
            source = tf.data.Dataset.range(data[i]).make_initializable_iterator()
            with tf.control_dependencies([source.get_next()]):
                train = tf.group(replica.train)
            scaffold = tf.train.Scaffold(
                local_init_op=tf.group(replica.local_init, source.initializer)
            )
            with tf.train.MonitoredTrainingSession(
                cluster.servers[i].target, i == 0, hooks=[hook], scaffold=scaffold
            ) as session:
                while not session.should_stop():
                    session.run(train)
                    made[i] += 1

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.all(np.array(made) <= data)
    assert made.count(0) <= 1


def test_an_era_outlives_the_chief(tmp_path):
    folder = str(tmp_path / "checkpoints")
    assert LivingTasks(folder).era == 0
    tasks = LivingTasks(folder)
    tasks.begin_era(7)
    tasks._now = {"/job:ps/task:0": 3}
    assert LivingTasks(folder).era == 7
    assert LivingTasks(folder)._given == {}, "the model has no values yet"
    tasks.note()
    assert LivingTasks(folder)._given == {"/job:ps/task:0": 3}
    tasks.forget()
    assert LivingTasks(folder)._given == {}
    assert LivingTasks(folder).era == 7, "the next run ends it"
    (tmp_path / "checkpoints" / "cluster_tasks.json").write_text('{"incarnations": {}, "era": "x"}')
    assert LivingTasks(folder).era == 0


class Recorder:
    """A session that notes which runs it is asked for, and refuses the first few."""

    def __init__(self, *refusals):
        self.runs, self.refusals = [], list(refusals)

    def _run_update(self, fetches, feeds, options, metadata, stream, number):
        self.runs.append((fetches, stream, number))
        if self.refusals:
            raise tf.errors.AbortedError(None, None, self.refusals.pop(0))


def test_an_era_ends_when_its_last_run_has():
    busy = "update 1005 of stream 7 has not ended yet, as step 12"
    session, era = Recorder(busy, busy), Era(7, goes_on=False)
    era.run_step(Recorder(), "step", None, 5)
    era.end(session, "look")
    assert len(session.runs) == 3
    assert set(session.runs) == {("look", 7, 1 << 62)}, "above all numbers of steps"
    with pytest.raises(tf.errors.AbortedError, match="has restarted"):
        era.end(Recorder("task /job:ps/task:0 has restarted"), "look")
    # What gives the model its values comes before all steps.
    prepares, steps = Recorder(), Recorder()
    for _ in range(3):
        era.prepare(prepares, "restore", None)
    era.run_step(steps, "step", None, 0)
    numbers = [number for _, _, number in prepares.runs + steps.runs]
    assert numbers == sorted(set(numbers))


def test_a_chief_without_the_hook_makes_steps_without_ids():
    cluster = Cluster(workers=1, needed=1)
    era = Era(7, goes_on=False)
    chief = cluster.replicas[0]
    with tf.Session(cluster.servers[0].target, graph=chief.graph) as session:
        session._era = era
        session.run(chief.local_init)
        session.run(chief.init)
        session.run(chief.chief_init)  # as a Supervisor's local_init_op, in no era
        runner = chief.optimizer.get_chief_queue_runner()
        coord = tf.train.Coordinator()
        threads = runner.create_threads(session, coord, daemon=True, start=True)
        for _ in range(3):
            session.run(chief.train)
        assert session.run([chief.step, chief.w]) == [3, -3.0]
        coord.request_stop()
    coord.join(threads)


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_chief_that_goes_on_does_not_save_half_a_step(tmp_path, goes_on):
    with tf.Graph().as_default():
        tf.train.get_or_create_global_step()
        saver = tf.train.Saver()
        hook = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=5, saver=saver)
        hook.begin()
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session._era = Era(7, goes_on)
            hook.after_create_session(session, None)
    assert (tf.train.latest_checkpoint(str(tmp_path)) is None) == goes_on


def test_gradients_are_applied_when_all_are_there():
    """The update of each variable comes after what is taken for the others."""
    with tf.Graph().as_default():
        step = tf.train.get_or_create_global_step()
        a, b = (tf.get_variable(name, [2]) for name in "ab")
        optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 1)
        optimizer.minimize(tf.reduce_sum(a * b), global_step=step)
        takes = {op for op in tf.get_default_graph().get_operations() if "TakeStep" in op.type}
        updates = [
            op for op in tf.get_default_graph().get_operations() if "GradientDescent" in op.type
        ]
    assert len(takes) == len(updates) == 2

    def before(op, seen):
        for other in [*(t.op for t in op.inputs), *op.control_inputs]:
            if other not in seen:
                seen.add(other)
                before(other, seen)
        return seen

    for update in updates:
        assert takes <= before(update, set())
