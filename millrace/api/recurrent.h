#pragma once

#include <string_view>

#include "millrace/api/variables.h"

// Layers that go over a sequence and carry a state along. The loop does not unroll: sequences may
// be of any length, and the graph does not grow with it. See layers.h for names and weights.

namespace millrace::layers {

struct LstmState {
  Expr h, c;  // [batch, units]
};
struct LstmOptions {
  // Sequences are [time, batch, n], which is faster, instead of [batch, time, n].
  bool time_major = false;
  // [batch], int32 or int64: how many times each sequence has; all where invalid. Past its length
  // a sequence keeps its state, its outputs are zeros, and what x holds there has no influence.
  Expr lengths = {};
  LstmState initial = {};  // zeros where invalid
  Initializer kernel_initializer = initializers::glorot_uniform();
  Initializer recurrent_initializer = initializers::orthogonal();
  double forget_bias = 1;
};
struct LstmResult {
  Expr outputs;     // h at every time, in the layout of the input
  LstmState state;  // at the last time of each sequence
};
// With i, f, g, o the four parts of x kernel + h recurrent_kernel + bias:
// c = sigmoid(f) c + sigmoid(i) tanh(g); h = sigmoid(o) tanh(c).
LstmResult lstm(const Scope& scope, Variables& variables, std::string_view name, Expr x,
                int64_t units, const LstmOptions& options = {},
                SourceLocation where = SourceLocation::current());
// One step of it, on x [batch, n], with the weights of lstm(): for loops of other kinds. Of the
// options those that shape the weights count.
LstmState lstm_cell(const Scope& scope, Variables& variables, std::string_view name, Expr x,
                    const LstmState& state, int64_t units, const LstmOptions& options = {},
                    SourceLocation where = SourceLocation::current());

struct GruOptions {
  bool time_major = false;
  Expr lengths = {};  // as for an LSTM
  Expr initial = {};  // [batch, units]; zeros where invalid
  Initializer kernel_initializer = initializers::glorot_uniform();
  Initializer recurrent_initializer = initializers::orthogonal();
};
struct GruResult {
  Expr outputs;
  Expr state;
};
// With z, r, n the three parts of x kernel + bias, and U_z, U_r, U_n those of recurrent_kernel:
// z = sigmoid(z + h U_z); r = sigmoid(r + h U_r); n = tanh(n + (r h) U_n); h = z h + (1 - z) n.
GruResult gru(const Scope& scope, Variables& variables, std::string_view name, Expr x,
              int64_t units, const GruOptions& options = {},
              SourceLocation where = SourceLocation::current());
// The next h, from x [batch, n] and h.
Expr gru_cell(const Scope& scope, Variables& variables, std::string_view name, Expr x, Expr h,
              int64_t units, const GruOptions& options = {},
              SourceLocation where = SourceLocation::current());

}  // namespace millrace::layers
