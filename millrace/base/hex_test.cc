#include "millrace/base/hex.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(Hex, HasAllDigits) {
  EXPECT_EQ(hex_digits(0), "0000000000000000");
  EXPECT_EQ(hex_digits(0xdeadbeef), "00000000deadbeef");
  EXPECT_EQ(hex_digits(~uint64_t{0}), "ffffffffffffffff");
  EXPECT_EQ(hex_digits(0x0123456789abcdef), "0123456789abcdef");
}

}  // namespace
}  // namespace millrace
