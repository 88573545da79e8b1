#include "millrace/api/recurrent.h"

#include "millrace/api/control_flow.h"
#include "millrace/api/layer_support.h"

namespace millrace::layers {
namespace {

Expr sigmoid(Expr x) { return call("Sigmoid", {x}); }

// Element by element; shapes are broadcast.
Expr choose(Expr condition, Expr if_true, Expr if_false) {
  return call("SelectV2", {condition, if_true, if_false});
}

// As many invalid ones after an error.
std::vector<Expr> split(OpBuilder& b, Expr x, int parts) {
  std::vector<Expr> out =
      call_multi("Split", {int32_scalar(b, 1), x}, {{"num_split", int64_t{parts}}});
  out.resize(static_cast<size_t>(parts));
  return out;
}

Expr swap_batch_and_time(OpBuilder& b, Expr x) { return transpose(x, int32_vector(b, {1, 0, 2})); }

// Dimension `axis` of x as a vector of one int64.
Expr size_at(OpBuilder& b, Expr x, int axis) {
  if (x.shape().rank_known() && x.shape().dim_known(axis)) {
    return b.constant(Tensor::vector<int64_t>({x.shape().dim(axis)}));
  }
  return call("Slice", {shape_of(x, DType::kInt64), b.constant(Tensor::vector<int64_t>({axis})),
                        b.constant(Tensor::vector<int64_t>({1}))});
}

Expr number_vector(OpBuilder& b, int64_t value) {
  return b.constant(Tensor::vector<int64_t>({value}));
}

// Zeros [batch, units] for a sequence [time, batch, n].
Expr zero_state(OpBuilder& b, Expr sequence, int64_t units) {
  return fill(concat({size_at(b, sequence, 1), number_vector(b, units)}, 0),
              constant_like(sequence, 0));
}

struct Weights {
  Expr kernel, recurrent, bias;
};

// x kernel + bias for all times at once: [time, batch, n] to [time, batch, m].
Expr project(OpBuilder& b, Expr x, const Weights& w) {
  Expr flat = reshape(x, concat({number_vector(b, -1), size_at(b, x, 2)}, 0));
  Expr y = call("BiasAdd", {matmul(flat, w.kernel), w.bias});
  return reshape(y, concat({size_at(b, x, 0), size_at(b, x, 1), size_at(b, w.bias, 0)}, 0));
}

// The element at the last time.
Expr last(OpBuilder& b, Expr sequence) {
  return call("StridedSlice",
              {sequence, int32_vector(b, {-1}), int32_vector(b, {0}), int32_vector(b, {1})},
              {{"end_mask", int64_t{1}}, {"shrink_axis_mask", int64_t{1}}});
}

// Makes x a tensor of the layer's graph; an error unless it has this rank. The size of its last
// dimension.
int64_t checked_input(Layer& layer, Expr& x, int rank) {
  const int64_t inputs = layer.known_last(x, "x");
  if (layer.scope().ok() && x.shape().rank() != rank) {
    layer.fail(invalid_argument("x must have ", rank, " dimensions, its shape is ", x.shape()));
  }
  return inputs;
}

// The sequences that a layer goes over: [time, batch, n], and which of them go on at a time.
class Sequences {
 public:
  Sequences(OpBuilder& b, Expr x, bool time_major, Expr lengths)
      : builder_(b), time_major_(time_major), x_(time_major ? x : swap_batch_and_time(b, x)) {
    if (!lengths.valid()) return;
    const Expr times = range(b.constant(Tensor::scalar<int64_t>(0)),
                             reshape(size_at(b, x_, 0), int32_vector(b, {})),
                             b.constant(Tensor::scalar<int64_t>(1)));
    const Expr going = less(expand_dims(times, int32_scalar(b, 1)),
                            expand_dims(cast(lengths, DType::kInt64), int32_scalar(b, 0)));
    going_ = expand_dims(going, int32_scalar(b, 2));
    x_ = zeros_past_the_end(x_);
  }

  Expr x() const { return x_; }
  // Input for the body of the loop: its time's share comes to next_state().
  std::vector<Expr> with_ends(Expr projected) const {
    if (!going_.valid()) return {projected};
    return {projected, going_};
  }
  static Expr next_state(const std::vector<Expr>& ends, Expr next, Expr state) {
    return ends.empty() ? next : choose(ends[0], next, state);
  }
  // The states at all times, as the user wants them.
  Expr outputs(Expr states) const {
    if (going_.valid()) states = zeros_past_the_end(states);
    return time_major_ ? states : swap_batch_and_time(builder_, states);
  }

 private:
  Expr zeros_past_the_end(Expr sequence) const {
    return choose(going_, sequence, constant_like(sequence, 0));
  }

  OpBuilder& builder_;
  const bool time_major_;
  Expr x_;
  Expr going_;  // bool [time, batch, 1]; invalid where all sequences go on to the end
};

// Makes the lengths a tensor of the layer's graph; an error unless there is one per sequence.
Expr checked_lengths(Layer& layer, Expr x, bool time_major, Expr lengths) {
  if (!lengths.valid() || !layer.scope().ok()) return Expr();
  lengths = layer.scope().builder().import(lengths);
  if (!layer.scope().ok()) return Expr();
  if (lengths.dtype() != DType::kInt32 && lengths.dtype() != DType::kInt64) {
    layer.fail(invalid_argument("lengths must be int32 or int64, got ", lengths.dtype()));
    return Expr();
  }
  const PartialShape expected = {x.shape().dim(time_major ? 1 : 0)};
  if (!expected.compatible(lengths.shape())) {
    layer.fail(invalid_argument("lengths must have one number per sequence, ", expected, ", got ",
                                lengths.shape()));
    return Expr();
  }
  return lengths;
}

Weights lstm_weights(Layer& layer, int64_t inputs, int64_t units, DType dtype,
                     const LstmOptions& options) {
  Weights w;
  w.kernel = layer.weight("kernel", {inputs, 4 * units}, dtype, options.kernel_initializer);
  w.recurrent =
      layer.weight("recurrent_kernel", {units, 4 * units}, dtype, options.recurrent_initializer);
  w.bias = layer.weight(
      "bias", {4 * units}, dtype, [&](const Scope& scope, const Shape&, DType type, Seed seed) {
        const Shape part = {units};
        Expr zero = initializers::zeros()(scope, part, type, seed);
        Expr forget = initializers::constant(options.forget_bias)(scope, part, type, seed);
        return concat({zero, forget, zero, zero}, 0);
      });
  return w;
}

// `projected` is x kernel + bias.
LstmState lstm_step(OpBuilder& b, Expr projected, const LstmState& state, Expr recurrent) {
  std::vector<Expr> gates = split(b, projected + matmul(state.h, recurrent), 4);
  Expr c = sigmoid(gates[1]) * state.c + sigmoid(gates[0]) * tanh(gates[2]);
  return {sigmoid(gates[3]) * tanh(c), c};
}

Weights gru_weights(Layer& layer, int64_t inputs, int64_t units, DType dtype,
                    const GruOptions& options) {
  return {
      layer.weight("kernel", {inputs, 3 * units}, dtype, options.kernel_initializer),
      layer.weight("recurrent_kernel", {units, 3 * units}, dtype, options.recurrent_initializer),
      layer.weight("bias", {3 * units}, dtype, initializers::zeros())};
}

// The recurrent kernel in two: of the gates z and r, and of the candidate n.
struct GruRecurrent {
  Expr gates, candidate;
};
GruRecurrent split_recurrent(OpBuilder& b, Expr recurrent) {
  std::vector<Expr> parts = split(b, recurrent, 3);
  return {concat({parts[0], parts[1]}, 1), parts[2]};
}

Expr gru_step(OpBuilder& b, Expr projected, Expr h, const GruRecurrent& recurrent) {
  std::vector<Expr> own = split(b, projected, 3);
  std::vector<Expr> gates = split(b, matmul(h, recurrent.gates), 2);
  Expr z = sigmoid(own[0] + gates[0]), r = sigmoid(own[1] + gates[1]);
  Expr n = tanh(own[2] + matmul(r * h, recurrent.candidate));
  return z * h + (1.0 - z) * n;
}

}  // namespace

LstmResult lstm(const Scope& scope, Variables& variables, std::string_view name, Expr x,
                int64_t units, const LstmOptions& options, SourceLocation where) {
  Layer layer(scope, variables, "lstm", name, where);
  const int64_t inputs = checked_input(layer, x, 3);
  if (!layer.positive(units, "units")) return {};
  const Expr lengths = checked_lengths(layer, x, options.time_major, options.lengths);
  const Weights w = lstm_weights(layer, inputs, units, x.dtype(), options);
  return layer.build([&](GraphBuilder& b) -> LstmResult {
    const Sequences sequences(b, x, options.time_major, lengths);
    LstmState state = options.initial;
    if (!state.h.valid()) state.h = zero_state(b, sequences.x(), units);
    if (!state.c.valid()) state.c = zero_state(b, sequences.x(), units);
    std::vector<Expr> out = scan(
        layer.scope(), sequences.with_ends(project(b, sequences.x(), w)), {state.h, state.c},
        [&](const Scope& s, const std::vector<Expr>& v) {
          LstmState next = lstm_step(s.builder(), v[2], {v[0], v[1]}, w.recurrent);
          const std::vector<Expr> ends(v.begin() + 3, v.end());
          return std::vector<Expr>{Sequences::next_state(ends, next.h, v[0]),
                                   Sequences::next_state(ends, next.c, v[1])};
        },
        {}, where);
    if (out.size() != 2) return {};
    return {sequences.outputs(out[0]), {last(b, out[0]), last(b, out[1])}};
  });
}

LstmState lstm_cell(const Scope& scope, Variables& variables, std::string_view name, Expr x,
                    const LstmState& state, int64_t units, const LstmOptions& options,
                    SourceLocation where) {
  Layer layer(scope, variables, "lstm_cell", name, where);
  const int64_t inputs = checked_input(layer, x, 2);
  if (!layer.positive(units, "units")) return {};
  const Weights w = lstm_weights(layer, inputs, units, x.dtype(), options);
  return layer.build([&](GraphBuilder& b) {
    return lstm_step(b, call("BiasAdd", {matmul(x, w.kernel), w.bias}), state, w.recurrent);
  });
}

GruResult gru(const Scope& scope, Variables& variables, std::string_view name, Expr x,
              int64_t units, const GruOptions& options, SourceLocation where) {
  Layer layer(scope, variables, "gru", name, where);
  const int64_t inputs = checked_input(layer, x, 3);
  if (!layer.positive(units, "units")) return {};
  const Expr lengths = checked_lengths(layer, x, options.time_major, options.lengths);
  const Weights w = gru_weights(layer, inputs, units, x.dtype(), options);
  return layer.build([&](GraphBuilder& b) -> GruResult {
    const Sequences sequences(b, x, options.time_major, lengths);
    Expr h = options.initial.valid() ? options.initial : zero_state(b, sequences.x(), units);
    const GruRecurrent recurrent = split_recurrent(b, w.recurrent);
    std::vector<Expr> out = scan(
        layer.scope(), sequences.with_ends(project(b, sequences.x(), w)), {h},
        [&](const Scope& s, const std::vector<Expr>& v) {
          const std::vector<Expr> ends(v.begin() + 2, v.end());
          const Expr next = gru_step(s.builder(), v[1], v[0], recurrent);
          return std::vector<Expr>{Sequences::next_state(ends, next, v[0])};
        },
        {}, where);
    if (out.size() != 1) return {};
    return {sequences.outputs(out[0]), last(b, out[0])};
  });
}

Expr gru_cell(const Scope& scope, Variables& variables, std::string_view name, Expr x, Expr h,
              int64_t units, const GruOptions& options, SourceLocation where) {
  Layer layer(scope, variables, "gru_cell", name, where);
  const int64_t inputs = checked_input(layer, x, 2);
  if (!layer.positive(units, "units")) return Expr();
  const Weights w = gru_weights(layer, inputs, units, x.dtype(), options);
  return layer.build([&](GraphBuilder& b) {
    return gru_step(b, call("BiasAdd", {matmul(x, w.kernel), w.bias}), h,
                    split_recurrent(b, w.recurrent));
  });
}

}  // namespace millrace::layers
