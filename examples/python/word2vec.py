"""Word vectors from a small made-up language, trained with sampled softmax.

Words of one topic appear together, so their vectors end up near each other.

python word2vec.py [steps]
"""

import sys

import numpy as np

import millrace.compat.v1 as tf

TOPICS = {
    "river": ["water", "mill", "wheel", "stream", "bank", "boat"],
    "bakery": ["flour", "bread", "oven", "salt", "yeast", "crust"],
    "sky": ["cloud", "wind", "star", "moon", "rain", "storm"],
}
WORDS = [word for words in TOPICS.values() for word in words]


def pairs(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Words and words that stand near them."""
    topics = rng.integers(0, len(TOPICS), count)
    first, second = rng.integers(0, 6, (2, count))
    return (topics * 6 + first).astype(np.int64), (topics * 6 + second).astype(np.int64)[:, None]


def main(steps: int = 1000) -> float:
    tf.set_random_seed(6)
    rng = np.random.default_rng(6)
    words = tf.placeholder(tf.int64, [None], name="words")
    context = tf.placeholder(tf.int64, [None, 1], name="context")
    table = tf.Variable(tf.random_uniform([len(WORDS), 8], -1, 1), name="table")
    weights = tf.Variable(tf.truncated_normal([len(WORDS), 8], stddev=0.3), name="weights")
    biases = tf.Variable(tf.zeros([len(WORDS)]), name="biases")
    vectors = tf.nn.embedding_lookup(table, words)
    loss = tf.reduce_mean(
        tf.nn.sampled_softmax_loss(
            weights, biases, labels=context, inputs=vectors, num_sampled=8, num_classes=len(WORDS)
        )
    )
    train = tf.train.AdagradOptimizer(0.5).minimize(loss)
    normal = tf.nn.l2_normalize(table, 1)
    likeness = tf.matmul(normal, normal, transpose_b=True)

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(steps):
            first, second = pairs(rng, 64)
            _, now = session.run([train, loss], {words: first, context: second})
            if step % max(steps // 5, 1) == 0:
                print(f"step {step:4}  loss {now:.4f}")
        near = session.run(likeness)
    right = 0
    for i, word in enumerate(WORDS):
        best = int(np.argsort(-near[i])[1])
        right += best // 6 == i // 6
        if i % 6 == 0:
            print(f"nearest to {word}: {WORDS[best]}")
    return right / len(WORDS)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
