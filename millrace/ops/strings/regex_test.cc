#include "millrace/ops/strings/regex.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_strings_ops});

bool matches(std::string_view pattern, std::string_view text) {
  Result<Regex> regex = Regex::parse(pattern);
  EXPECT_TRUE(regex.ok()) << pattern << ": " << regex.status().to_string();
  return regex.ok() && regex->full_match(text);
}

TEST(Regex, MatchesWholeTexts) {
  EXPECT_TRUE(matches("^s3://.*", "s3://bucket/model"));
  EXPECT_FALSE(matches("^s3://.*", "/tmp/s3://"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_TRUE(matches("a|bc|", "bc"));
  EXPECT_TRUE(matches("a|bc|", ""));
  EXPECT_FALSE(matches("(a|b)c", "ab"));
  EXPECT_TRUE(matches("(?:ab)+?", "ababab"));
  EXPECT_FALSE(matches("(ab)+", "aba"));
  EXPECT_FALSE(matches(".", "\n"));
  EXPECT_TRUE(matches("a$", "a"));
  EXPECT_FALSE(matches("a^b", "ab"));
}

TEST(Regex, CountsRepetitions) {
  EXPECT_FALSE(matches("a{2,3}", "a"));
  EXPECT_TRUE(matches("a{2,3}", "aaa"));
  EXPECT_FALSE(matches("a{2,3}", "aaaa"));
  EXPECT_TRUE(matches("(ab){2}", "abab"));
  EXPECT_TRUE(matches("a{0,1}b{1,}", "bbb"));
  EXPECT_TRUE(matches("a{,2}", "a{,2}"));  // no count
  EXPECT_TRUE(matches("((a*)*)*", std::string(1000, 'a')));
}

TEST(Regex, KnowsClasses) {
  EXPECT_TRUE(matches("[a-c_]+[^0-9]", "ab_x"));
  EXPECT_FALSE(matches("[a-c_]+[^0-9]", "ab_3"));
  EXPECT_TRUE(matches("[]x]", "]"));
  EXPECT_TRUE(matches(R"(\d+\.\w\s[\d.-]*)", "12.z 3.4-5"));
  EXPECT_FALSE(matches(R"(\D)", "1"));
  EXPECT_TRUE(matches(".ä[ä-ü]", "€äö"));  // one character each
  EXPECT_TRUE(matches("..", "\xff\xfe"));
}

TEST(Regex, RefusesWhatIsNone) {
  for (const char* bad : {"(", ")", "(a", "[a", "[]", "*", "a**", "\\", "\\y", "(?P<n>a)", "[b-a]",
                          "a{3,2}", "a{2000}", "((((((a{999}){999}){999}){999}){999}){999})"}) {
    EXPECT_EQ(Regex::parse(bad).status().code(), Code::kInvalidArgument) << bad;
  }
  EXPECT_FALSE(Regex::parse(std::string(100000, '(')).ok());
}

TEST(Regex, RandomPatternsEnd) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  const std::string_view letters = "ab(|)*+?[]^$.{2,3}\\d-\xc3\xa4";
  for (int i = 0; i < 2000; ++i) {
    std::string pattern, text;
    for (int k = 0; k < 12; ++k) pattern += letters[random() % letters.size()];
    for (int k = 0; k < 12; ++k) text += letters[random() % 2];
    Result<Regex> regex = Regex::parse(pattern);
    if (regex.ok()) (void)regex->full_match(text);
  }
  SUCCEED() << "seed " << seed;
}

TEST(StaticRegexFullMatch, OfATensor) {
  const Tensor texts = Tensor::vector<std::string>({"ab", "b", ""});
  const Tensor expected = Tensor::vector<bool>({true, false, false});
  OpTester fixed("StaticRegexFullMatch");
  expect_tensor_equal(*fixed.attr("pattern", "a.*").input(texts).run_one(), expected);
  OpTester wrong("StaticRegexFullMatch");
  EXPECT_EQ(wrong.attr("pattern", "(").input(texts).run_one().status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
