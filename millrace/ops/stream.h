#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "millrace/ops/isa_table.h"

// Results that no cache holds: written around the caches they cost one transfer where a plain store
// costs two, since a line is not read before it is written.

namespace millrace {

// Results of so many bytes are written around the caches: with what they are made of they are more
// than the third-level cache of most machines holds.
inline constexpr int64_t kStreamBytes = 16 << 20;

struct StreamLoops {
  // Copies bytes that do not overlap. What lies in `to` is not in the caches afterwards, but for
  // lines that are not copied as a whole.
  void (*copy)(const void* from, void* to, size_t bytes);
  // To be called after the last copy(), before another thread may read what was copied.
  void (*finish)();
};

// Calls loop(i, m, part) for the elements [i, i + m), part after part of n, which writes them,
// `size` bytes each, to `part`: to `out` itself, or with `stream` to a place in the first-level
// cache from where they go to `out` around the caches.
template <class Loop>
void write_parts(bool stream, int64_t n, void* out, size_t size, Loop&& loop) {
  char* const to = static_cast<char*>(out);
  if (!stream) return loop(int64_t{0}, n, to);
  static const StreamLoops& loops = isa_table<StreamLoops>();
  // As much as is on its way to memory at once, so that the next part is computed meanwhile.
  constexpr size_t kPart = 1024;
  alignas(64) char part[kPart];
  const int64_t step = static_cast<int64_t>(kPart / size);
  for (int64_t i = 0; i < n; i += step) {
    const int64_t m = n - i < step ? n - i : step;
    loop(i, m, static_cast<char*>(part));
    loops.copy(part, to + static_cast<size_t>(i) * size, static_cast<size_t>(m) * size);
  }
  loops.finish();
}

}  // namespace millrace
