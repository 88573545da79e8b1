#include "millrace/ops/rows.h"

#include <cstring>

namespace millrace {

void scatter_rows(const KernelContext& ctx, const BinaryFunction& function, const Tensor& from,
                  std::span<const int64_t> rows, int64_t run, Tensor& to) {
  if (rows.empty() || run == 0) return;
  const int64_t step = from.num_elements() == run ? 0 : run;
  if (!is_plain(to.dtype())) {
    with_element(to.dtype(), [&]<class T>() {
      const T* source = static_cast<const T*>(from.raw());
      T* target = static_cast<T*>(to.mutable_raw());
      for (const int64_t row : rows) {
        std::copy_n(source, run, target + row * run);
        source += step;
      }
    });
    return;
  }
  // Threads share the columns, never the rows: each element sees its updates in order.
  constexpr int64_t kStrip = 256;  // bytes of a row that one thread takes
  const auto size = static_cast<int64_t>(dtype_size(to.dtype()));
  const int64_t row_bytes = run * size;
  const double cost = static_cast<double>(rows.size()) * (5 + 0.1 * static_cast<double>(kStrip));
  ctx.parallel_for((row_bytes + kStrip - 1) / kStrip, cost, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kStrip;
    const int64_t bytes = std::min(last * kStrip, row_bytes) - begin;
    const char* source = static_cast<const char*>(from.raw()) + begin;
    char* target = static_cast<char*>(to.mutable_raw()) + begin;
    for (const int64_t row : rows) {
      char* place = target + row * row_bytes;
      if (function) {
        function(place, source, place, bytes / size);
      } else if (place != source) {
        std::memmove(place, source, static_cast<size_t>(bytes));
      }
      source += step * size;
    }
  });
}

}  // namespace millrace
