"""Random pipelines against a model in plain Python, also when saved in the middle and restored."""

import random

import numpy as np

import millrace.compat.v1 as tf
from millrace import raw_ops

Dataset = tf.data.Dataset


def chunks(items, size):
    return [tuple(items[i : i + size]) for i in range(0, len(items), size)]


def interleave(items, cycle, block):
    """As InterleaveDataset does it, with datasets of `n % 3 + 1` times n. That one has ended is
    seen when it is asked again, and then it is the turn of the next."""
    rest, open_, out = list(items), [None] * cycle, []
    place, given = 0, 0
    while rest or any(nested is not None for nested in open_):
        if open_[place]:
            out.append(open_[place].pop())
            given += 1
        elif open_[place] is None and rest:
            n = rest.pop(0)
            open_[place] = [n] * (n % 3 + 1)
            continue
        else:
            open_[place], given = None, block
        if given == block:
            place, given = (place + 1) % cycle, 0
    return out


# name, dataset to dataset, list to list; all of numbers.
def stages(draw):
    n = draw.randint(1, 4)
    parallel = draw.choice([None, 2, -1])
    yield "take", lambda d: d.take(n * 3), lambda x: x[: n * 3]
    yield "skip", lambda d: d.skip(n), lambda x: x[n:]
    yield "repeat", lambda d: d.repeat(n), lambda x: x * n
    yield "shard", lambda d: d.shard(n, n - 1), lambda x: x[n - 1 :: n]
    yield "map", lambda d: d.map(lambda v: v + n, parallel), lambda x: [v + n for v in x]
    yield "filter", lambda d: d.filter(lambda v: v % 3 > 0), lambda x: [v for v in x if v % 3]
    yield "prefetch", lambda d: d.prefetch(n), lambda x: x
    yield "cache", lambda d: d.cache(), lambda x: x
    yield "concatenate", lambda d: d.concatenate(Dataset.range(n)), lambda x: x + list(range(n))
    yield (
        "flat_map",
        lambda d: d.flat_map(lambda v: Dataset.range(v % 3)),
        lambda x: [i for v in x for i in range(v % 3)],
    )
    yield (
        "interleave",
        lambda d: d.interleave(lambda v: Dataset.from_tensors(v).repeat(v % 3 + 1), n, 2, parallel),
        lambda x: interleave(x, n, 2),
    )
    yield "batch", lambda d: d.batch(n).map(tf.reduce_sum), lambda x: [sum(c) for c in chunks(x, n)]
    yield "unbatch", lambda d: d.batch(n).unbatch(), lambda x: x
    yield "window", lambda d: d.window(n).flat_map(lambda w: w), lambda x: x
    yield "zip", lambda d: Dataset.zip((d, d)).map(lambda a, b: a + b), lambda x: [2 * v for v in x]
    yield (
        "scan",
        lambda d: d.apply(tf.data.experimental.scan(np.int64(0), lambda s, v: (s + v, s))),
        lambda x: [sum(x[:i]) for i in range(len(x))],
    )


def run(session, element, count=10_000):
    out = []
    while len(out) < count:
        try:
            out.append(int(session.run(element)))
        except tf.errors.OutOfRangeError:
            break
    return out


def test_random_pipelines():
    seed = random.SystemRandom().randrange(10**9)
    print("seed", seed)
    draw = random.Random(seed)
    for _ in range(25):
        with tf.Graph().as_default(), tf.Session() as session:
            count = draw.randint(0, 12)
            dataset, model, names = Dataset.range(count), list(range(count)), ["range"]
            for _ in range(draw.randint(1, 5)):
                name, apply, expect = draw.choice(list(stages(draw)))
                if len(model) > 300 and name in ("repeat", "interleave"):
                    continue
                dataset, model = apply(dataset), expect(model)
                names.append(name)
            shuffled = draw.random() < 0.3
            if shuffled:
                dataset = dataset.shuffle(5, seed=draw.randint(1, 9))
            iterator = dataset.make_initializable_iterator()
            element = iterator.get_next()
            session.run(iterator.initializer)
            whole = run(session, element)
            key = sorted if shuffled else list
            assert key(whole) == key(model), (seed, names)
            # The same again, saved and restored into another iterator in the middle.
            other = dataset.make_initializable_iterator()
            state = raw_ops.SerializeIterator(resource_handle=iterator._iterator_resource)
            restore = raw_ops.DeserializeIterator(
                resource_handle=other._iterator_resource, serialized=state
            )
            rest = other.get_next()
            session.run([iterator.initializer, other.initializer])
            place = draw.randint(0, len(whole))
            assert run(session, element, place) == whole[:place], (seed, names)
            session.run(restore)
            assert run(session, rest) == whole[place:], (seed, names, place)
