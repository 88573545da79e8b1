#include "millrace/io/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace millrace {
namespace {

TEST(Crc32cTest, KnownValues) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c_mask(crc32c(std::string(4, '\0'))), 0x3A117BA6U);
  EXPECT_EQ(crc32c_mask(crc32c("")), 0xA282EAD8U);
}

TEST(Crc32cTest, UnmaskUndoesMask) {
  for (const uint32_t crc : {0U, 1U, 0x8000U, 0xE3069283U, 0xFFFFFFFFU}) {
    EXPECT_EQ(crc32c_unmask(crc32c_mask(crc)), crc);
  }
}

TEST(Crc32cTest, AnyLengthAlignmentAndSplitGiveThePortableSum) {
  const unsigned seed = 20161104;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::string bytes(20'000, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  const std::string_view all = bytes;
  for (int round = 0; round < 300; ++round) {
    const size_t begin = random() % 64;
    const size_t size = random() % (all.size() - begin);
    const size_t cut = random() % (size + 1);
    const std::string_view part = all.substr(begin, size);
    const uint32_t expected = crc32c_extend_portable(0, part);
    EXPECT_EQ(crc32c(part), expected) << begin << " " << size;
    EXPECT_EQ(crc32c_extend(crc32c(part.substr(0, cut)), part.substr(cut)), expected);
  }
}

}  // namespace
}  // namespace millrace
