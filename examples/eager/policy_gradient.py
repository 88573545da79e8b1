"""An agent that learns to balance a pole, by policy gradients, without a graph.

How long an episode lasts depends on what the agent does: the loop is Python's own. The cart and its
pole are a few lines of physics; a push to the left or right is due every 20 ms, and an episode ends
when the pole leans more than 12 degrees, the cart leaves its track, or after 200 pushes.

python policy_gradient.py [episodes]
"""

import sys

import numpy as np

import millrace as tf

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, TICK = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
LONGEST, DISCOUNT = 200, 0.98


class CartPole:
    """Where the cart is, how fast it goes, how the pole leans and how fast it turns."""

    def __init__(self, rng: np.random.Generator):
        self.state = rng.uniform(-0.05, 0.05, 4)

    def push(self, right: bool) -> bool:
        """Whether the pole still stands after a push."""
        place, speed, lean, turn = self.state
        mass = CART + POLE
        pull = (FORCE if right else -FORCE) + POLE * HALF_LENGTH * turn**2 * np.sin(lean)
        swing = GRAVITY * np.sin(lean) - np.cos(lean) * pull / mass
        swing /= HALF_LENGTH * (4 / 3 - POLE * np.cos(lean) ** 2 / mass)
        drive = (pull - POLE * HALF_LENGTH * swing * np.cos(lean)) / mass
        self.state = self.state + TICK * np.array([speed, drive, turn, swing])
        return abs(self.state[0]) < 2.4 and abs(self.state[2]) < np.radians(12)


class Policy(tf.Module):
    """A small network that says how likely each push is."""

    def __init__(self, hidden: int = 32):
        super().__init__()
        self.inner = tf.Variable(tf.random.normal([4, hidden], stddev=0.5), name="inner")
        self.bias = tf.Variable(tf.zeros([hidden]), name="bias")
        self.outer = tf.Variable(tf.random.normal([hidden, 2], stddev=0.1), name="outer")

    def __call__(self, states: tf.Tensor) -> tf.Tensor:
        return tf.nn.log_softmax(tf.tanh(states @ self.inner + self.bias) @ self.outer)


def play(policy: Policy, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The states of an episode, and what was done in each."""
    world, states, pushes, stands = CartPole(rng), [], [], True
    while stands and len(states) < LONGEST:
        states.append(world.state.astype(np.float32) * [1, 1, 10, 2])
        chances = tf.exp(policy(tf.constant(states[-1][None], tf.float32)))
        pushes.append(int(rng.random() < chances[0, 1]))
        stands = world.push(pushes[-1] == 1)
    return np.array(states, np.float32), np.array(pushes)


def rewards(count: int) -> np.ndarray:
    """For every push, how many more followed, later ones counting less."""
    to_come = (1 - DISCOUNT ** np.arange(count, 0, -1)) / (1 - DISCOUNT)
    return to_come.astype(np.float32)


def main(episodes: int = 300) -> float:
    tf.random.set_seed(3)
    rng = np.random.default_rng(3)
    policy = Policy()
    variables = policy.trainable_variables
    optimizer = tf.optimizers.Adam(0.01)
    lengths, usual = [], 0.0
    for episode in range(episodes):
        states, pushes = play(policy, rng)
        earned = rewards(len(pushes))
        usual += 0.05 * (earned.mean() - usual)
        with tf.GradientTape() as tape:
            chosen = tf.reduce_sum(tf.one_hot(pushes, 2) * policy(tf.constant(states)), axis=1)
            loss = -tf.reduce_sum(chosen * (earned - usual)) / 50.0
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        lengths.append(len(pushes))
        if episode % max(episodes // 6, 1) == 0:
            print(f"episode {episode:3}  balanced for {np.mean(lengths[-20:]):5.1f} pushes")
    steady = float(np.mean(lengths[-50:]))
    print(f"the last episodes took {steady:.0f} pushes of {LONGEST}")
    return steady


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
