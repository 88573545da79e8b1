"""Models of sequences to sequences, unrolled over lists of one tensor per step."""

import copy
from typing import Any, Callable

from millrace.compat.v1.contrib.sequence_losses import sequence_loss, sequence_loss_by_example
from millrace.compat.v1.rnn.static_rnn import static_rnn
from millrace.compat.v1.rnn.wrappers import EmbeddingWrapper, OutputProjectionWrapper
from millrace.core import dtypes, nest
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import along, array, control_flow, linalg, math, reduce
from millrace.ops.nn.activations import softmax, xw_plus_b
from millrace.ops.nn.conv import conv2d
from millrace.ops.nn.embedding import embedding_lookup
from millrace.state.initializers import Zeros
from millrace.state.variable_scope import get_variable, get_variable_scope, variable_scope

Outputs = tuple[list[Tensor], Any]


def _linear(parts: list[Tensor], size: int) -> Tensor:
    """The parts beside each other, times a kernel, plus a bias; both of the scope that is open."""
    whole = parts[0] if len(parts) == 1 else array.concat(parts, 1)
    kernel = get_variable("kernel", [whole.shape._size_at(1), size], dtype=whole.dtype)
    bias = get_variable("bias", [size], dtype=whole.dtype, initializer=Zeros())
    return linalg.matmul(whole, kernel) + bias


def _best_symbol(
    embedding: Any, output_projection: Any = None, update_embedding: bool = True
) -> Callable[..., Tensor]:
    """A loop function: the embedding of the symbol that the output before makes most likely."""

    def loop_function(prev: Tensor, _: int) -> Tensor:
        if output_projection is not None:
            prev = xw_plus_b(prev, output_projection[0], output_projection[1])
        row = embedding_lookup(embedding, along.argmax(prev, 1))
        return row if update_embedding else array.stop_gradient(row)

    return loop_function


def _check_projection(output_projection: Any, num_symbols: int, output_size: int | None) -> None:
    if output_projection is None:
        return
    weights = convert_to_tensor(output_projection[0], dtype=dtypes.float32)
    weights.shape.assert_is_compatible_with([output_size, num_symbols])
    biases = convert_to_tensor(output_projection[1], dtype=dtypes.float32)
    biases.shape.assert_is_compatible_with([num_symbols])


def _chosen(feed_previous: Any, decoder: Callable[[bool], Outputs], state: Any) -> Outputs:
    """What a decoder gives; both ways of feeding it are built where a tensor chooses."""
    if isinstance(feed_previous, bool):
        return decoder(feed_previous)

    def flat(previous: bool) -> list[Tensor]:
        with variable_scope(get_variable_scope(), reuse=None if previous else True):
            outputs, final = decoder(previous)
            return outputs + nest.flatten(final)

    everything = control_flow.cond(feed_previous, lambda: flat(True), lambda: flat(False))
    count = len(everything) - len(nest.flatten(state))
    return list(everything[:count]), nest.pack_sequence_as(state, list(everything[count:]))


@export(v1="contrib.legacy_seq2seq.rnn_decoder")
def rnn_decoder(
    decoder_inputs: Any, initial_state: Any, cell: Any, loop_function: Any = None,
    scope: Any = None,
) -> Outputs:  # fmt: skip
    """Runs a cell over inputs: (outputs, final state).

    `loop_function(output, step)` makes all inputs but the first from the output before, instead.
    """
    with variable_scope(scope or "rnn_decoder"):
        state, outputs, previous = initial_state, [], None
        for step, given in enumerate(decoder_inputs):
            if loop_function is not None and previous is not None:
                with variable_scope("loop_function", reuse=True):
                    given = loop_function(previous, step)
            if step > 0:
                get_variable_scope().reuse_variables()
            output, state = cell(given, state)
            outputs.append(output)
            if loop_function is not None:
                previous = output
        return outputs, state


@export(v1="contrib.legacy_seq2seq.basic_rnn_seq2seq")
def basic_rnn_seq2seq(
    encoder_inputs: Any, decoder_inputs: Any, cell: Any, dtype: Any = dtypes.float32,
    scope: Any = None,
) -> Outputs:  # fmt: skip
    """Encodes inputs into a state and decodes from it, with two sets of weights."""
    with variable_scope(scope or "basic_rnn_seq2seq"):
        _, state = static_rnn(copy.deepcopy(cell), encoder_inputs, dtype=dtype)
        return rnn_decoder(decoder_inputs, state, cell)


@export(v1="contrib.legacy_seq2seq.tied_rnn_seq2seq")
def tied_rnn_seq2seq(
    encoder_inputs: Any, decoder_inputs: Any, cell: Any, loop_function: Any = None,
    dtype: Any = dtypes.float32, scope: Any = None,
) -> Outputs:  # fmt: skip
    """As `basic_rnn_seq2seq`, with one set of weights for both."""
    with variable_scope("combined_tied_rnn_seq2seq"):
        scope = scope or "tied_rnn_seq2seq"
        _, state = static_rnn(cell, encoder_inputs, dtype=dtype, scope=scope)
        get_variable_scope().reuse_variables()
        return rnn_decoder(decoder_inputs, state, cell, loop_function, scope)


@export(v1="contrib.legacy_seq2seq.embedding_rnn_decoder")
def embedding_rnn_decoder(
    decoder_inputs: Any, initial_state: Any, cell: Any, num_symbols: int, embedding_size: int,
    output_projection: Any = None, feed_previous: bool = False,
    update_embedding_for_previous: bool = True, scope: Any = None,
) -> Outputs:  # fmt: skip
    """`rnn_decoder` over symbols, looked up in a table.

    Args:
      decoder_inputs: int32 [batch] per step.
      output_projection: (weights, biases) that make logits of outputs.
      feed_previous: decode from the best symbol of the step before.
      update_embedding_for_previous: whether gradients flow into the rows fed so.
    """
    with variable_scope(scope or "embedding_rnn_decoder"):
        _check_projection(output_projection, num_symbols, None)
        embedding = get_variable("embedding", [num_symbols, embedding_size])
        loop = None
        if feed_previous:
            loop = _best_symbol(embedding, output_projection, update_embedding_for_previous)
        rows = [embedding_lookup(embedding, i) for i in decoder_inputs]
        return rnn_decoder(rows, initial_state, cell, loop)


@export(v1="contrib.legacy_seq2seq.embedding_rnn_seq2seq")
def embedding_rnn_seq2seq(
    encoder_inputs: Any, decoder_inputs: Any, cell: Any, num_encoder_symbols: int,
    num_decoder_symbols: int, embedding_size: int, output_projection: Any = None,
    feed_previous: Any = False, dtype: Any = None, scope: Any = None,
) -> Outputs:  # fmt: skip
    """Encodes symbols into a state and decodes symbols from it.

    `feed_previous`: a bool, or a tensor of one that chooses when the graph runs.
    """
    with variable_scope(scope or "embedding_rnn_seq2seq", dtype=dtype or dtypes.float32):
        encoder = EmbeddingWrapper(copy.deepcopy(cell), num_encoder_symbols, embedding_size)
        _, state = static_rnn(encoder, encoder_inputs, dtype=dtype or dtypes.float32)
        if output_projection is None:
            cell = OutputProjectionWrapper(cell, num_decoder_symbols)
        is_fixed = isinstance(feed_previous, bool)

        def decoder(previous: bool) -> Outputs:
            return embedding_rnn_decoder(
                decoder_inputs, state, cell, num_decoder_symbols, embedding_size,
                output_projection, previous, update_embedding_for_previous=is_fixed,
            )  # fmt: skip

        return _chosen(feed_previous, decoder, state)


@export(v1="contrib.legacy_seq2seq.embedding_tied_rnn_seq2seq")
def embedding_tied_rnn_seq2seq(
    encoder_inputs: Any, decoder_inputs: Any, cell: Any, num_symbols: int, embedding_size: int,
    num_decoder_symbols: int | None = None, output_projection: Any = None,
    feed_previous: Any = False, dtype: Any = None, scope: Any = None,
) -> Outputs:  # fmt: skip
    """As `embedding_rnn_seq2seq`, with one table and one set of weights for both."""
    with variable_scope(scope or "embedding_tied_rnn_seq2seq", dtype=dtype or dtypes.float32):
        _check_projection(output_projection, num_symbols, None)
        embedding = get_variable("embedding", [num_symbols, embedding_size])
        encoded = [embedding_lookup(embedding, i) for i in encoder_inputs]
        decoded = [embedding_lookup(embedding, i) for i in decoder_inputs]
        count = num_symbols if num_decoder_symbols is None else num_decoder_symbols
        if output_projection is None:
            cell = OutputProjectionWrapper(cell, count)
        is_fixed = isinstance(feed_previous, bool)
        like = cell.zero_state(array.shape(encoded[0])[0], dtype or dtypes.float32)

        def decoder(previous: bool) -> Outputs:
            loop = _best_symbol(embedding, output_projection, is_fixed) if previous else None
            return tied_rnn_seq2seq(encoded, decoded, cell, loop, dtype or dtypes.float32)

        return _chosen(feed_previous, decoder, like)


@export(v1="contrib.legacy_seq2seq.attention_decoder")
def attention_decoder(
    decoder_inputs: Any, initial_state: Any, attention_states: Any, cell: Any,
    output_size: int | None = None, num_heads: int = 1, loop_function: Any = None,
    dtype: Any = None, scope: Any = None, initial_state_attention: bool = False,
) -> Outputs:  # fmt: skip
    """`rnn_decoder` that looks at states [batch, length, size] at each step.

    Args:
      num_heads: how many times it looks at each step.
      initial_state_attention: look before the first step too, instead of starting from zeros.

    Errors: ValueError for no inputs, no heads, or sizes that are not known.
    """
    if not decoder_inputs:
        raise ValueError("Must provide at least 1 input to attention decoder.")
    if num_heads < 1:
        raise ValueError("With less than 1 heads, use a non-attention decoder.")
    if attention_states.shape._size_at(2) is None:
        raise ValueError(f"Shape[2] of attention_states must be known: {attention_states.shape}")
    output_size = cell.output_size if output_size is None else output_size
    with variable_scope(scope or "attention_decoder", dtype=dtype):
        batch = array.shape(decoder_inputs[0])[0]
        length = attention_states.shape._size_at(1)
        if length is None:
            length = array.shape(attention_states)[1]
        size = attention_states.shape._size_at(2)
        hidden = array.reshape(attention_states, array.stack([-1, length, 1, size]))
        features, scorers = [], []
        for head in range(num_heads):
            kernel = get_variable(f"AttnW_{head}", [1, 1, size, size])
            features.append(conv2d(hidden, kernel, [1, 1, 1, 1], "SAME"))
            scorers.append(get_variable(f"AttnV_{head}", [size]))

        def attention(query: Any) -> list[Tensor]:
            parts = nest.flatten(query)
            whole = parts[0] if len(parts) == 1 else array.concat(parts, 1)
            seen = []
            for head in range(num_heads):
                with variable_scope(f"Attention_{head}"):
                    y = array.reshape(_linear([whole], size), [-1, 1, 1, size])
                    scores = reduce.reduce_sum(
                        scorers[head] * math.tanh(features[head] + y), [2, 3]
                    )
                    shares = array.reshape(softmax(scores), array.stack([-1, length, 1, 1]))
                    mixed = reduce.reduce_sum(shares * hidden, [1, 2])
                    seen.append(array.reshape(mixed, [-1, size]))
            return seen

        state, outputs, previous = initial_state, [], None
        seen = [array.zeros(array.stack([batch, size]), hidden.dtype) for _ in range(num_heads)]
        for part in seen:
            part.set_shape([None, size])
        if initial_state_attention:
            seen = attention(initial_state)
        for step, given in enumerate(decoder_inputs):
            if step > 0:
                get_variable_scope().reuse_variables()
            if loop_function is not None and previous is not None:
                with variable_scope("loop_function", reuse=True):
                    given = loop_function(previous, step)
            width = given.shape.with_rank(2)._size_at(1)
            if width is None:
                raise ValueError(f"Could not infer input size from input: {given.name}")
            output, state = cell(_linear([given, *seen], width), state)
            if step == 0 and initial_state_attention:
                with variable_scope(get_variable_scope(), reuse=True):
                    seen = attention(state)
            else:
                seen = attention(state)
            with variable_scope("AttnOutputProjection"):
                output = _linear([output, *seen], output_size)
            if loop_function is not None:
                previous = output
            outputs.append(output)
        return outputs, state


@export(v1="contrib.legacy_seq2seq.embedding_attention_decoder")
def embedding_attention_decoder(
    decoder_inputs: Any, initial_state: Any, attention_states: Any, cell: Any, num_symbols: int,
    embedding_size: int, num_heads: int = 1, output_size: int | None = None,
    output_projection: Any = None, feed_previous: bool = False,
    update_embedding_for_previous: bool = True, dtype: Any = None, scope: Any = None,
    initial_state_attention: bool = False,
) -> Outputs:  # fmt: skip
    """`attention_decoder` over symbols; arguments as for `embedding_rnn_decoder`."""
    output_size = cell.output_size if output_size is None else output_size
    _check_projection(output_projection, num_symbols, output_size)
    with variable_scope(scope or "embedding_attention_decoder", dtype=dtype):
        embedding = get_variable("embedding", [num_symbols, embedding_size])
        loop = None
        if feed_previous:
            loop = _best_symbol(embedding, output_projection, update_embedding_for_previous)
        rows = [embedding_lookup(embedding, i) for i in decoder_inputs]
        return attention_decoder(
            rows, initial_state, attention_states, cell, output_size, num_heads, loop,
            initial_state_attention=initial_state_attention,
        )  # fmt: skip


@export(v1="contrib.legacy_seq2seq.embedding_attention_seq2seq")
def embedding_attention_seq2seq(
    encoder_inputs: Any, decoder_inputs: Any, cell: Any, num_encoder_symbols: int,
    num_decoder_symbols: int, embedding_size: int, num_heads: int = 1,
    output_projection: Any = None, feed_previous: Any = False, dtype: Any = None,
    scope: Any = None, initial_state_attention: bool = False,
) -> Outputs:  # fmt: skip
    """As `embedding_rnn_seq2seq`, the decoder looking at the encoder's outputs."""
    dtype = dtype or dtypes.float32
    with variable_scope(scope or "embedding_attention_seq2seq", dtype=dtype):
        encoder = EmbeddingWrapper(copy.deepcopy(cell), num_encoder_symbols, embedding_size)
        encoded, state = static_rnn(encoder, encoder_inputs, dtype=dtype)
        tops = [array.reshape(e, [-1, 1, cell.output_size]) for e in encoded]
        attention_states = array.concat(tops, 1)
        output_size = None
        if output_projection is None:
            cell = OutputProjectionWrapper(cell, num_decoder_symbols)
            output_size = num_decoder_symbols
        is_fixed = isinstance(feed_previous, bool)

        def decoder(previous: bool) -> Outputs:
            return embedding_attention_decoder(
                decoder_inputs, state, attention_states, cell, num_decoder_symbols,
                embedding_size, num_heads, output_size, output_projection, previous,
                update_embedding_for_previous=is_fixed,
                initial_state_attention=initial_state_attention,
            )  # fmt: skip

        return _chosen(feed_previous, decoder, state)


@export(v1="contrib.legacy_seq2seq.one2many_rnn_seq2seq")
def one2many_rnn_seq2seq(
    encoder_inputs: Any, decoder_inputs_dict: dict[str, Any], enc_cell: Any,
    dec_cells_dict: dict[str, Any], num_encoder_symbols: int,
    num_decoder_symbols_dict: dict[str, int], embedding_size: int, feed_previous: Any = False,
    dtype: Any = None, scope: Any = None,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """One encoder and several decoders by name: ({name: outputs}, {name: final state})."""
    outputs: dict[str, Any] = {}
    states: dict[str, Any] = {}
    with variable_scope(scope or "one2many_rnn_seq2seq", dtype=dtype or dtypes.float32):
        encoder = EmbeddingWrapper(enc_cell, num_encoder_symbols, embedding_size)
        _, state = static_rnn(encoder, encoder_inputs, dtype=dtype or dtypes.float32)
        for name, decoder_inputs in decoder_inputs_dict.items():
            count = num_decoder_symbols_dict[name]
            with variable_scope(f"one2many_decoder_{name}"):
                cell = OutputProjectionWrapper(dec_cells_dict[name], count)

                def decoder(previous: bool, inputs=decoder_inputs, cell=cell, n=count) -> Outputs:
                    return embedding_rnn_decoder(
                        inputs, state, cell, n, embedding_size, feed_previous=previous
                    )

                outputs[name], states[name] = _chosen(feed_previous, decoder, state)
    return outputs, states


@export(v1="contrib.legacy_seq2seq.model_with_buckets")
def model_with_buckets(
    encoder_inputs: Any, decoder_inputs: Any, targets: Any, weights: Any, buckets: Any,
    seq2seq: Callable[..., Outputs], softmax_loss_function: Any = None,
    per_example_loss: bool = False, name: str | None = None,
) -> tuple[list[Any], list[Tensor]]:  # fmt: skip
    """One model for each pair of lengths in `buckets`, sharing weights: (outputs, losses).

    `seq2seq(encoder inputs, decoder inputs)` gives (outputs, states). ValueError for inputs
    shorter than the last bucket.
    """
    for values, size, what in (
        (encoder_inputs, buckets[-1][0], "encoder_inputs"),
        (targets, buckets[-1][1], "targets"),
        (weights, buckets[-1][1], "weights"),
    ):
        if len(values) < size:
            raise ValueError(
                f"Length of {what} ({len(values)}) must be at least that of last bucket ({size})."
            )
    outputs, losses = [], []
    everything = [*encoder_inputs, *decoder_inputs, *targets, *weights]
    loss_of = sequence_loss_by_example if per_example_loss else sequence_loss
    with name_scope(name, "model_with_buckets", everything):
        for number, (encoded, decoded) in enumerate(buckets):
            with variable_scope(get_variable_scope(), reuse=True if number > 0 else None):
                made, _ = seq2seq(encoder_inputs[:encoded], decoder_inputs[:decoded])
                outputs.append(made)
                losses.append(
                    loss_of(
                        made, targets[:decoded], weights[:decoded],
                        softmax_loss_function=softmax_loss_function,
                    )
                )  # fmt: skip
    return outputs, losses
