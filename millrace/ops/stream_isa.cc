#include "millrace/ops/stream.h"
#include "millrace/ops/stream_vectors.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

constexpr size_t kLine = 64;
using Bytes = vec::Vec<uint8_t>;

void copy(const void* from, void* to, size_t bytes) {
  const char* x = static_cast<const char*>(from);
  char* y = static_cast<char*>(to);
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(y) % kLine) % kLine;
  if (head >= bytes) {
    __builtin_memcpy(y, x, bytes);
    return;
  }
  __builtin_memcpy(y, x, head);
  size_t i = head;
  for (; i + kLine <= bytes; i += kLine) {
    for (size_t k = 0; k < kLine; k += sizeof(Bytes)) {
      Bytes v;
      __builtin_memcpy(&v, x + i + k, sizeof v);
      stream_vector(y + i + k, v);
    }
  }
  __builtin_memcpy(y + i, x + i, bytes - i);
}

void finish() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

constexpr StreamLoops kStreamLoops = {&copy, &finish};

}  // namespace

template <>
const StreamLoops& isa_table<StreamLoops, Isa::MR_ISA>() {
  return kStreamLoops;
}

}  // namespace millrace
