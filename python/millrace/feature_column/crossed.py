"""Columns of pairs, triples and so on of ids."""

from dataclasses import dataclass
from typing import Any

from millrace.core import dtypes
from millrace.core.export import export
from millrace.feature_column.categorical import HashedColumn
from millrace.feature_column.column import CategoricalColumn, FeatureTransforms
from millrace.feature_column.numeric import BucketizedColumn
from millrace.graph.sparse import SparseTensor
from millrace.io.parsing import VarLenFeature
from millrace.ops.sparse.cross import cross_hashed


@dataclass(frozen=True)
class CrossedColumn(CategoricalColumn):
    """See `crossed_column`."""

    keys: tuple[Any, ...]
    hash_bucket_size: int
    hash_key: int | None

    def _leaves(self) -> list[Any]:
        """The features and columns it is made of, those of crossed columns among it in place."""
        out: list[Any] = []
        for key in self.keys:
            out += key._leaves() if isinstance(key, CrossedColumn) else [key]
        return out

    @property
    def name(self) -> str:
        """Made of the names of what is crossed, sorted."""
        names = [key if isinstance(key, str) else key.name for key in self._leaves()]
        return "_X_".join(sorted(names))

    @property
    def num_buckets(self) -> int:
        """The number of ids."""
        return self.hash_bucket_size

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        """Reads all that is crossed."""
        spec: dict[str, Any] = {}
        for key in self.keys:
            if isinstance(key, str):
                spec[key] = VarLenFeature(dtypes.string)
            else:
                spec.update(key.parse_example_spec)
        return spec

    def transform(self, inputs: FeatureTransforms) -> SparseTensor:
        """The hashes."""
        tensors = []
        for key in self._leaves():
            if isinstance(key, str):
                tensors.append(inputs.get(key))
                continue
            pair = key.get_sparse_tensors(inputs)
            if pair.weight_tensor is not None:
                raise ValueError(
                    f"crossed_column does not support weight_tensor, but the given column "
                    f"populates weight_tensor. Given column: {key.name}"
                )
            tensors.append(pair.id_tensor)
        return cross_hashed(tensors, self.hash_bucket_size, self.hash_key)


@export(v1="feature_column.crossed_column", v2="feature_column.crossed_column")
def crossed_column(keys: Any, hash_bucket_size: int, hash_key: int | None = None) -> CrossedColumn:
    """A column whose ids are hashes, below `hash_bucket_size`, of combinations of features.

    `keys` are features, which are strings or integers, and categorical columns other than hashed
    ones, two at least.
    """
    if not hash_bucket_size or hash_bucket_size < 1:
        raise ValueError(f"hash_bucket_size must be > 1. hash_bucket_size: {hash_bucket_size}")
    if not keys or len(keys) < 2:
        raise ValueError(f"keys must be a list with length > 1. Given: {keys}")
    for key in keys:
        if not isinstance(key, (str, CategoricalColumn, BucketizedColumn)):
            raise ValueError(
                "Unsupported key type. All keys must be either string, or categorical column "
                f"except HashedCategoricalColumn. Given: {key}"
            )
        if isinstance(key, HashedColumn):
            raise ValueError(
                "categorical_column_with_hash_bucket is not supported for crossing. Hashing before "
                "crossing will increase probability of collision. Instead, use the feature name as "
                f"a string. Given: {key}"
            )
    return CrossedColumn(tuple(keys), hash_bucket_size, hash_key)
