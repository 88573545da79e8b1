#include "millrace/base/bfloat16_products.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace millrace {
namespace {

#if defined(__x86_64__) && defined(__linux__)

TEST(BFloat16Products, AsTheSystemSays) {
  std::ifstream file("/proc/cpuinfo");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.empty()) GTEST_SKIP() << "no /proc/cpuinfo";
  EXPECT_EQ(machine_multiplies_bfloat16(), text.find(" avx512_bf16") != std::string::npos);
}

#endif

}  // namespace
}  // namespace millrace
