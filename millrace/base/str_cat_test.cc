#include "millrace/base/str_cat.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <vector>

#include "millrace/base/source_location.h"

namespace millrace {
namespace {

TEST(StrCat, JoinsPartsOfEveryKind) {
  const std::string s = "s";
  EXPECT_EQ(str_cat("a", std::string_view("b"), s, 'c', true, -1, 2u, int8_t{-3}, uint8_t{4}),
            "absctrue-12-34");
  EXPECT_EQ(str_cat(), "");
  EXPECT_EQ(str_cat(static_cast<const char*>(nullptr)), "(null)");
}

TEST(StrCat, WritesTheExtremesOfIntegers) {
  EXPECT_EQ(str_cat(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(str_cat(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
}

TEST(StrCat, WritesTheShortestTextThatReadsBack) {
  EXPECT_EQ(str_cat(0.1), "0.1");
  EXPECT_EQ(str_cat(0.1f), "0.1");
  for (const double v : {1.0 / 3, 5e-324, 1.7976931348623157e308, -123456789.125}) {
    EXPECT_EQ(std::strtod(str_cat(v).c_str(), nullptr), v);
  }
}

TEST(StrJoin, PutsSeparatorsBetween) {
  EXPECT_EQ(str_join(std::vector<int>{1, 2, 3}, ", "), "1, 2, 3");
  EXPECT_EQ(str_join(std::vector<std::string>{}, ", "), "");
}

std::string caller_line(SourceLocation location = SourceLocation::current()) {
  return str_cat(location);
}

TEST(SourceLocation, IsTheCallersPlace) {
  const int line = __LINE__ + 1;
  const std::string text = caller_line();
  EXPECT_EQ(text, str_cat(__FILE__, ":", line));
}

}  // namespace
}  // namespace millrace
