#include "millrace/ops/math/spread_loops.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

template <class T>
void spread(const void* from, int64_t count, int64_t times, void* out) {
  constexpr int64_t kStep = vec::kLanes<T>;
  const T* x = static_cast<const T*>(from);
  T* to = static_cast<T*>(out);
  for (int64_t left = count * times; left > 0; left -= times, to += times) {
    const T value = *x++;
    const vec::Vec<T> all = vec::broadcast(value);
    if (times >= kStep) {
      for (int64_t i = 0; i + kStep <= times; i += kStep) vec::store(to + i, all);
      vec::store(to + times - kStep, all);
    } else if (left >= kStep) {
      vec::store(to, all);  // what is too much is written again
    } else {
      for (int64_t i = 0; i < times; ++i) to[i] = value;
    }
  }
}

constexpr SpreadLoops kSpreadLoops = {
    {spread<int8_t>, spread<int16_t>, spread<int32_t>, spread<int64_t>}};

}  // namespace

template <>
const SpreadLoops& isa_table<SpreadLoops, Isa::MR_ISA>() {
  return kSpreadLoops;
}

}  // namespace millrace
