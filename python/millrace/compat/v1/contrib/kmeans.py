"""The graph of k-means clustering."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.default_graph import control_dependencies
from millrace.graph.operation import Operation
from millrace.ops import along, array, check, linalg, loops, math, random, reduce
from millrace.ops.control_flow import cond
from millrace.ops.gather import gather
from millrace.ops.nn.normalization import l2_normalize
from millrace.ops.ordering import group
from millrace.ops.partition import unique
from millrace.ops.segments import unsorted_segment_sum
from millrace.state.assign import assign, assign_sub, scatter_add
from millrace.state.variables import Variable

SQUARED_EUCLIDEAN_DISTANCE = export(v1="contrib.factorization.SQUARED_EUCLIDEAN_DISTANCE")(
    "squared_euclidean"
)
COSINE_DISTANCE = export(v1="contrib.factorization.COSINE_DISTANCE")("cosine")
RANDOM_INIT = export(v1="contrib.factorization.RANDOM_INIT")("random")
KMEANS_PLUS_PLUS_INIT = export(v1="contrib.factorization.KMEANS_PLUS_PLUS_INIT")("kmeans_plus_plus")


def _squared_distances(points: Any, centers: Any) -> Tensor:
    """[points, centers]."""
    return (
        reduce.reduce_sum(math.square(points), 1, keepdims=True)
        - 2 * linalg.matmul(points, centers, transpose_b=True)
        + reduce.reduce_sum(math.square(centers), 1)
    )


def _kmeans_plus_plus(points: Any, count: int, seed: int, retries: int) -> Tensor:
    """Points far from each other: each the best of some that were drawn by distance."""
    draws = 1 + (retries if retries >= 0 else 2 + count.bit_length())
    first = random.random_uniform([1], maxval=array.shape(points)[0], dtype=dtypes.int32, seed=seed)
    centers = gather(points, first)

    def another(chosen: Any, centers: Any, nearest: Any) -> list[Any]:
        logits = math.log(math.maximum(nearest, 1e-30))
        drawn = gather(points, random.multinomial([logits], draws, seed=seed)[0])
        distances = math.minimum(nearest[:, None], _squared_distances(points, drawn))
        best = along.argmin(reduce.reduce_sum(distances, 0), 0)
        return [
            chosen + 1,
            array.concat([centers, drawn[best][None]], 0),
            distances[:, best],
        ]

    nearest = _squared_distances(points, centers)[:, 0]
    shapes = [TensorShape([]), TensorShape([None, centers.shape[1]]), nearest.shape]
    return loops.while_loop(
        lambda chosen, *_: chosen < count, another, [1, centers, nearest], shapes
    )[1]


@export(v1="contrib.factorization.KMeans")
class KMeans:
    """Makes the graph of k-means clustering.

    Args:
      inputs: a matrix of points in rows, or a list of matrices.
      num_clusters: how many clusters there are.
      initial_clusters: "random" or "kmeans_plus_plus", which choose among the points; a matrix; or
        a function of the list of inputs and the number of clusters that gives one.
      distance_metric: "squared_euclidean" or "cosine".
      use_mini_batch: the points of a step are some of all. Each centre is the mean of the points
        it had so far; otherwise of those of the step.
      mini_batch_steps_per_iteration: after how many steps points are compared with the new centres.
      random_seed: the seed of the initial choice.
      kmeans_plus_plus_num_retries: how many more points "kmeans_plus_plus" draws for each that it
        chooses; negative: a number that grows with that of the clusters.
    """

    def __init__(
        self, inputs: Any, num_clusters: int, initial_clusters: Any = RANDOM_INIT,
        distance_metric: str = SQUARED_EUCLIDEAN_DISTANCE, use_mini_batch: bool = False,
        mini_batch_steps_per_iteration: int = 1, random_seed: int = 0,
        kmeans_plus_plus_num_retries: int = 2,
    ):  # fmt: skip
        if num_clusters < 1:
            raise ValueError(f"num_clusters must be 1 or more, got {num_clusters}")
        if distance_metric not in (SQUARED_EUCLIDEAN_DISTANCE, COSINE_DISTANCE):
            raise ValueError(
                "distance_metric must be 'squared_euclidean' or 'cosine', got "
                f"{distance_metric!r}"
            )
        inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        self._inputs = [convert_to_tensor(points) for points in inputs]
        self._num_clusters = num_clusters
        self._initial_clusters = RANDOM_INIT if initial_clusters is None else initial_clusters
        self._cosine = distance_metric == COSINE_DISTANCE
        self._use_mini_batch = use_mini_batch
        self._steps = int(mini_batch_steps_per_iteration) if use_mini_batch else 1
        self._seed = random_seed
        self._retries = kmeans_plus_plus_num_retries

    def training_graph(self) -> tuple[Any, ...]:
        """Makes the graph.

        Returns:
          For each input the distances [points, clusters], the number of each point's cluster and
          its distance, three tuples; then whether the centres were chosen, the variable of the
          centres, the operation that chooses them from the inputs, if that is not done, and the
          operation of a training step.
        """
        empty = constant([], dtype=self._inputs[0].dtype)
        centers = Variable(empty, name="clusters", validate_shape=False)
        initialized = Variable(False, dtype=dtypes.bool_, name="initialized")
        # Where steps gather before points see them, they gather in a copy.
        updated, counts, steps_left = centers, None, None
        if self._steps > 1:
            updated = Variable(empty, name="clusters_updated", validate_shape=False)
            steps_left = Variable(self._steps, dtype=dtypes.int64, name="update_in_steps")
        if self._use_mini_batch:
            start = array.zeros if self._steps > 1 else array.ones
            counts = Variable(start([self._num_clusters], dtype=dtypes.int64))
        init_op = self._initialization(initialized, {id(v): v for v in (centers, updated)})

        inputs, compared = self._inputs, centers
        if self._cosine:
            inputs = [l2_normalize(points, 1) for points in inputs]
            compared = l2_normalize(centers, 1)
        all_scores, clusters, scores = [], [], []
        for points in inputs:
            distances = _squared_distances(points, compared)
            # Of vectors of length one: 1 minus the cosine.
            all_scores.append(distances * 0.5 if self._cosine else distances)
            clusters.append(along.argmin(distances, 1))
            scores.append(reduce.reduce_min(all_scores[-1], 1))
        if self._use_mini_batch:
            with control_dependencies([self._sync(steps_left, centers, updated, counts)]):
                train_op = self._mini_batch_step(inputs, clusters, updated, counts)
        else:
            train_op = self._full_step(inputs, clusters, centers)
        found = (tuple(all_scores), tuple(clusters), tuple(scores))
        return (*found, initialized, centers, init_op, train_op)

    def _initial(self) -> Any:
        init = self._initial_clusters
        if callable(init):
            init = init(self._inputs, self._num_clusters)
        elif isinstance(init, str) and init == RANDOM_INIT:
            points = array.concat(self._inputs, 0)
            enough = check.assert_less_equal(
                self._num_clusters, array.shape(points)[0],
                message="there are fewer points than clusters",
            )  # fmt: skip
            with control_dependencies([enough]):
                chosen = random.random_uniform(
                    [self._num_clusters], maxval=array.shape(points)[0], dtype=dtypes.int32,
                    seed=self._seed,
                )  # fmt: skip
            init = gather(points, chosen)
        elif isinstance(init, str) and init == KMEANS_PLUS_PLUS_INIT:
            points = l2_normalize(self._inputs[0], 1) if self._cosine else self._inputs[0]
            init = _kmeans_plus_plus(points, self._num_clusters, self._seed, self._retries)
        elif isinstance(init, str):
            raise ValueError(
                "initial_clusters must be 'random', 'kmeans_plus_plus', a matrix or a function, "
                f"got {init!r}"
            )
        return l2_normalize(init, 1) if self._cosine else convert_to_tensor(init)

    def _initialization(self, initialized: Variable, variables: dict[int, Variable]) -> Operation:
        def choose() -> Operation:
            value = self._initial()
            done = [assign(v, value, validate_shape=False) for v in variables.values()]
            with control_dependencies(done):
                return assign(initialized, True).op

        return cond(initialized, gen_ops.no_op, choose).op

    def _sync(self, steps_left: Any, centers: Any, updated: Any, counts: Any) -> Any:
        """Gives the points the new centres when it is time."""
        if steps_left is None:
            return gen_ops.no_op()

        def give() -> Tensor:
            with control_dependencies([assign(steps_left, self._steps - 1)]):
                value = l2_normalize(updated, 1) if self._cosine else array.identity(updated)
            with (
                control_dependencies([assign(centers, value, validate_shape=False)]),
                control_dependencies([assign(counts, array.zeros_like(counts))]),
            ):
                return array.identity(steps_left)

        return cond(steps_left <= 0, give, lambda: array.identity(assign_sub(steps_left, 1)))

    def _mini_batch_step(
        self, inputs: list[Any], clusters: list[Any], centers: Any, counts: Any
    ) -> Operation:
        updates = []
        for points, cluster in zip(inputs, clusters, strict=True):
            ids, places = unique(cluster)
            room = array.size(ids)
            added = unsorted_segment_sum(array.ones_like(cluster), places, room)
            sums = unsorted_segment_sum(points, places, room)
            before = gather(counts, ids) + added
            weight = math.cast(added, points.dtype)[:, None]
            change = sums - weight * gather(centers, ids)
            change = change / math.cast(before, points.dtype)[:, None]
            with control_dependencies([change]):
                updates += [scatter_add(counts, ids, added), scatter_add(centers, ids, change)]
        return group(*updates)

    def _full_step(self, inputs: list[Any], clusters: list[Any], centers: Any) -> Operation:
        sums, counts = [], []
        for points, cluster in zip(inputs, clusters, strict=True):
            sums.append(unsorted_segment_sum(points, cluster, self._num_clusters))
            ones = array.ones_like(cluster, dtype=points.dtype)
            counts.append(unsorted_segment_sum(ones, cluster, self._num_clusters))
        means = math.add_n(sums) / (math.add_n(counts)[:, None] + 1e-6)
        if self._cosine:
            means = l2_normalize(means, 1)
        return assign(centers, means, validate_shape=False).op
