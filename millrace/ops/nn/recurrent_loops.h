#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"

namespace millrace {

// What the cells of LSTMs and GRUs do between their products, in one pass over the units of a row.
// Gates come as sums of products; biases are added here. The functions are those of the ops Sigmoid
// and Tanh and the order of steps is that of cells made of such ops, so bits are equal to theirs.
// No output overlaps an input.

// n units of an LSTM. Gates are numbered in the order of BasicLSTMCell.
template <class T>
struct LstmUnits {
  enum Gate : int { kInput, kCandidate, kForget, kOutput };
  const T* sums[4];
  const T* bias[4];
  const T* cs_prev;
  const T* peephole[3];  // of input, forget and output gate; null: none
  T forget_bias;
  T clip;  // cs is clipped to [-clip, clip] where that is above zero
  T *i, *cs, *f, *o, *ci, *co, *h;
};

// The way back: the gradients of the sums, and of cs_prev.
template <class T>
struct LstmGradUnits {
  const T *i, *cs, *f, *o, *ci, *co;
  const T* cs_prev;
  const T* peephole[3];
  const T *cs_grad, *h_grad;
  // What came back from the step after this one; null: nothing.
  const T *cs_grad_after, *h_grad_after;
  T* sums_grad[4];  // by LstmUnits::Gate
  T* cs_prev_grad;  // may be cs_grad_after
};

// n units of a GRU: reset and update gate, and what of the state is seen by the candidate; then the
// candidate and the new state.
template <class T>
struct GruGateUnits {
  const T *r_sums, *u_sums, *r_bias, *u_bias, *h_prev;
  T *r, *u, *h_prev_reset;
};
template <class T>
struct GruUnits {
  const T *c_sums, *c_bias, *u, *h_prev;
  T *c, *h;
};

// The gradients of the sums of candidate and update gate; then, with that of the state as the
// candidate saw it, of those of the reset gate, and what reaches h_prev past the products.
template <class T>
struct GruGradUnits {
  const T *h_prev, *u, *c, *h_grad;
  T *c_sums_grad, *u_sums_grad;
};
template <class T>
struct GruResetGradUnits {
  const T *h_prev, *r, *u, *h_grad, *reset_grad;
  T *r_sums_grad, *h_prev_grad;
};

// T: float or double. Bits are the same for every instruction set.
template <class T>
struct RecurrentLoops {
  void (*lstm)(int64_t n, const LstmUnits<T>& units);
  void (*lstm_grad)(int64_t n, const LstmGradUnits<T>& units);
  void (*gru_gates)(int64_t n, const GruGateUnits<T>& units);
  void (*gru)(int64_t n, const GruUnits<T>& units);
  void (*gru_grad)(int64_t n, const GruGradUnits<T>& units);
  void (*gru_reset_grad)(int64_t n, const GruResetGradUnits<T>& units);
};

}  // namespace millrace
