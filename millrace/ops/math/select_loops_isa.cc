#include "millrace/ops/math/select_loops.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

// All bits of lane i are set where picks[i].
template <class T>
MR_VECTOR_FN vec::Vec<T> lanes_of(const bool* picks) {
  typedef int8_t Bytes __attribute__((vector_size(vec::kLanes<T>)));
  Bytes bytes;
  __builtin_memcpy(&bytes, picks, sizeof bytes);
  return __builtin_convertvector(bytes != Bytes{}, vec::Vec<T>);
}

// An operand by vectors: at an element, or the same everywhere.
template <class T>
struct Vectors {
  const T* data;
  bool moves;
  vec::Vec<T> constant;

  MR_VECTOR_FN explicit Vectors(SelectOperand operand)
      : data(static_cast<const T*>(operand.data)),
        moves(operand.step != 0),
        constant(moves ? vec::Vec<T>{} : vec::broadcast(*data)) {}
  MR_VECTOR_FN vec::Vec<T> at(int64_t i) const { return moves ? vec::load(data + i) : constant; }
  MR_VECTOR_FN T element(int64_t i) const { return data[moves ? i : 0]; }
};

template <class T>
void select(const bool* picks, SelectOperand t, SelectOperand e, void* out, int64_t n) {
  constexpr int64_t kStep = vec::kLanes<T>;
  if (n == 0) return;
  const Vectors<T> yes(t), no(e);
  T* const to = static_cast<T*>(out);
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    const vec::Vec<T> mask = lanes_of<T>(picks + i);
    vec::store(to + i, (yes.at(i) & mask) | (no.at(i) & ~mask));
  }
  for (; i < n; ++i) to[i] = picks[i] ? yes.element(i) : no.element(i);
}

constexpr SelectLoops kSelectLoops = {
    {select<int8_t>, select<int16_t>, select<int32_t>, select<int64_t>}};

}  // namespace

template <>
const SelectLoops& isa_table<SelectLoops, Isa::MR_ISA>() {
  return kSelectLoops;
}

}  // namespace millrace
