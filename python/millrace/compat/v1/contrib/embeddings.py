"""Embeddings of ids and of sequences."""

from typing import Any

from millrace import gen_ops
from millrace.compat.v1.contrib.variables import model_variable
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import SparseTensor
from millrace.ops import array, gather, math, reduce
from millrace.ops.nn import embedding
from millrace.state.variable_scope import variable_scope


@export(v1="contrib.layers.embedding_lookup_unique")
def embedding_lookup_unique(params: Any, ids: Any, name: str | None = None) -> Tensor:
    """`embedding_lookup` that reads each row once, however often its id occurs."""
    with name_scope(name, "EmbeddingLookupUnique", [params, ids]):
        ids = convert_to_tensor(ids)
        flat = array.reshape(ids, [-1])
        unique, places = gen_ops.unique(flat)
        rows = gather.gather(embedding.embedding_lookup(params, unique), places)
        result = array.reshape(rows, array.concat([array.shape(ids), array.shape(rows)[1:]], 0))
        result.set_shape(ids.shape.concatenate(rows.shape[1:]))
        return result


@export(v1="contrib.layers.embed_sequence")
def embed_sequence(
    ids: Any, vocab_size: int | None = None, embed_dim: int | None = None, unique: bool = False,
    initializer: Any = None, regularizer: Any = None, trainable: bool = True, scope: Any = None,
    reuse: Any = None,
) -> Tensor:  # fmt: skip
    """Rows of a table [vocab_size, embed_dim] for ids [batch, length].

    ValueError unless both sizes are given, or `reuse` is.
    """
    if not (reuse or (vocab_size and embed_dim)):
        raise ValueError(f"Must specify vocab size and embedding dimension when not reusing. Got "
                         f"vocab_size={vocab_size} and embed_dim={embed_dim}")  # fmt: skip
    with variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        table = model_variable(
            "embeddings", shape=[vocab_size, embed_dim], initializer=initializer,
            regularizer=regularizer, trainable=trainable,
        )  # fmt: skip
        if unique:
            return embedding_lookup_unique(table, ids)
        return embedding.embedding_lookup(table, ids)


@export(v1="contrib.layers.bow_encoder")
def bow_encoder(
    ids: Any, vocab_size: int, embed_dim: int, sparse_lookup: bool = True, initializer: Any = None,
    regularizer: Any = None, trainable: bool = True, scope: Any = None, reuse: Any = None,
) -> Tensor:  # fmt: skip
    """The mean of the rows of a table for the ids [batch, length] of each example.

    `sparse_lookup`: leave out ids of 0.
    """
    with variable_scope(scope, "BagOfWordsEmbedding", [ids], reuse=reuse):
        table = model_variable(
            "embeddings", shape=[vocab_size, embed_dim], initializer=initializer,
            regularizer=regularizer, trainable=trainable,
        )  # fmt: skip
        if not sparse_lookup:
            return reduce.reduce_mean(embedding.embedding_lookup(table, ids), 1)
        if not isinstance(ids, SparseTensor):
            ids = convert_to_tensor(ids)
            places = gen_ops.where(math.not_equal(ids, array.zeros_like(ids)))
            ids = SparseTensor(
                places, gather.gather_nd(ids, places), array.shape(ids, out_type=dtypes.int64)
            )
        return embedding.safe_embedding_lookup_sparse([table], ids, combiner="mean", default_id=0)
