"""An optimiser of one's own: fixed steps in the direction of the averaged gradient's sign.

python custom_optimizer.py [steps]
"""

import sys
from typing import Any

import millrace.compat.v1 as tf


class SignOptimizer(tf.train.Optimizer):
    """var -= rate * sign(average), average = decay * average + (1 - decay) * grad."""

    def __init__(self, learning_rate: float, decay: float = 0.9, name: str = "Sign"):
        super().__init__(use_locking=False, name=name)
        self._rate = learning_rate
        self._decay = decay

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "average", self._name)

    def _apply_dense(self, grad: tf.Tensor, var: Any) -> Any:
        average = self.get_slot(var, "average")
        new = average.assign(self._decay * average + (1 - self._decay) * grad)
        return var.assign_sub(self._rate * tf.sign(new)).op


def main(steps: int = 300) -> float:
    x = tf.Variable([3.0, -2.0], name="x")
    loss = tf.square(x[0] - 1) + 10 * tf.square(x[1] + x[0])
    rate = 0.02
    train = SignOptimizer(rate).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(steps):
            _, now = session.run([train, loss])
            if step % max(steps // 5, 1) == 0:
                print(f"step {step:4}  loss {now:.4f}")
        found, final = session.run([x, loss])
    print(f"x = {found}, loss {final:.4f}")
    return float(final)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
