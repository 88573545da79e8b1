#include "millrace/ops/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace millrace {
namespace {

TEST(Stream, CopiesFromAndToAnywhere) {
  std::vector<char> source(700);
  std::iota(source.begin(), source.end(), char{0});
  for (const Isa isa : kIsas) {
    if (isa > machine_isa()) break;
    const StreamLoops& loops = isa_table<StreamLoops>(isa);
    for (size_t from : {0, 1, 64}) {
      for (size_t to : {0, 1, 63, 64}) {
        for (size_t n : {0, 1, 63, 64, 65, 128, 500}) {
          std::vector<char> target(700, 'x'), wanted = target;
          std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), n,
                      wanted.begin() + static_cast<std::ptrdiff_t>(to));
          loops.copy(source.data() + from, target.data() + to, n);
          loops.finish();
          EXPECT_EQ(target, wanted)
              << isa_name(isa) << ": " << n << " from " << from << " to " << to;
        }
      }
    }
  }
}

TEST(Stream, WritesInParts) {
  constexpr int64_t kCount = 1000;
  for (bool stream : {false, true}) {
    std::vector<int32_t> out(kCount, -1);
    int64_t parts = 0;
    write_parts(stream, kCount, out.data(), sizeof(int32_t), [&](int64_t i, int64_t m, char* to) {
      std::iota(reinterpret_cast<int32_t*>(to), reinterpret_cast<int32_t*>(to) + m,
                static_cast<int32_t>(i));
      ++parts;
    });
    for (int64_t i = 0; i < kCount; ++i) EXPECT_EQ(out[static_cast<size_t>(i)], i);
    EXPECT_EQ(parts > 1, stream);
  }
}

}  // namespace
}  // namespace millrace
