"""Q-learning in a grid world, a whole episode in one run of the graph.

The agent walks from a corner to the goal around a wall. How many steps an episode takes depends on
what it does, so the episode is a while_loop, and the table of values is learnt inside of it.

python q_learning.py [episodes]
"""

import sys

import numpy as np

import millrace.compat.v1 as tf

SIDE, GOAL, LIMIT = 5, 24, 60
WALL = [7, 12, 17]
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]
ARROWS = "^v<>"


def world() -> np.ndarray:
    """[state, move] -> state: walls and edges keep the agent where it is."""
    to = np.zeros((SIDE * SIDE, len(MOVES)), dtype=np.int32)
    for state in range(SIDE * SIDE):
        for move, (down, right) in enumerate(MOVES):
            row, column = state // SIDE + down, state % SIDE + right
            inside = 0 <= row < SIDE and 0 <= column < SIDE
            there = row * SIDE + column
            to[state, move] = there if inside and there not in WALL else state
    return to


def main(episodes: int = 300) -> int:
    tf.set_random_seed(7)
    transitions = tf.constant(world())
    greed = tf.placeholder(tf.float32, [], name="greed")
    values = tf.Variable(tf.zeros([SIDE * SIDE, len(MOVES)]), name="values")

    def go_on(step: tf.Tensor, state: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
        return tf.logical_and(step < LIMIT, tf.not_equal(state, GOAL))

    def move(
        step: tf.Tensor, state: tf.Tensor, table: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        row = table[state]
        chosen = tf.cond(
            tf.random_uniform([]) < greed,
            lambda: tf.argmax(row, output_type=tf.int32),
            lambda: tf.random_uniform([], maxval=len(MOVES), dtype=tf.int32),
        )
        there = transitions[state, chosen]
        reward = tf.cast(tf.equal(there, GOAL), tf.float32)
        target = reward + 0.9 * (1 - reward) * tf.reduce_max(table[there])
        change = 0.5 * (target - row[chosen])
        update = tf.scatter_nd([[state, chosen]], [change], [SIDE * SIDE, len(MOVES)])
        return step + 1, there, table + update

    steps, _, learnt = tf.while_loop(go_on, move, [0, 0, values.read_value()])
    train = values.assign(learnt)

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for episode in range(episodes):
            took, _ = session.run([steps, train], {greed: min(0.9, episode / episodes)})
            if episode % max(episodes // 5, 1) == 0:
                print(f"episode {episode:4}: {took} steps")
        took, table = session.run([steps, values], {greed: 1.0})
    for row in range(SIDE):
        cells = range(row * SIDE, (row + 1) * SIDE)
        print(
            " ".join(
                "#" if c in WALL else "G" if c == GOAL else ARROWS[table[c].argmax()] for c in cells
            )
        )
    print(f"the way found takes {took} steps")
    return int(took)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
