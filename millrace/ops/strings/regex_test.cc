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
  for (const char* bad : {"(", ")", "(a", "[a", "[]", "*", "a**", "\\", "\\y", "(?P<n", "(?q)a",
                          "[b-a]", "[[:nothing:]]", "[a-\\d]", "\\x1", "\\pL", "a{3,2}", "a{2000}",
                          "((((((a{999}){999}){999}){999}){999}){999})"}) {
    EXPECT_EQ(Regex::parse(bad).status().code(), Code::kInvalidArgument) << bad;
  }
  EXPECT_FALSE(Regex::parse(std::string(100000, '(')).ok());
}

std::string replaced(std::string_view pattern, std::string_view rewrite, std::string_view text,
                     bool all = true) {
  Result<Regex> regex = Regex::parse(pattern);
  EXPECT_TRUE(regex.ok()) << pattern << ": " << regex.status().to_string();
  return regex.ok() ? *regex->replace(text, rewrite, all) : "";
}

TEST(Regex, KnowsNamesEscapesAndFlags) {
  EXPECT_TRUE(matches("[[:alpha:][:digit:]_]+", "aB3_"));
  EXPECT_FALSE(matches("[[:^space:]]", " "));
  EXPECT_TRUE(matches(R"([^\W\d]+)", "ab_"));
  EXPECT_FALSE(matches(R"([^\W\d]+)", "ab1"));
  EXPECT_TRUE(matches(R"([\x41-\x{43}\-]+)", "ABC-"));
  EXPECT_TRUE(matches("(?i)aB[c-d]", "AbD"));
  EXPECT_TRUE(matches("a(?i:b)c", "aBc"));
  EXPECT_FALSE(matches("a(?i:b)c", "aBC"));
  EXPECT_TRUE(matches("(?s).", "\n"));
  EXPECT_TRUE(matches("(?m)a$\n^b", "a\nb"));
  EXPECT_FALSE(matches("a$\n^b", "a\nb"));
}

TEST(Regex, ReplacesTheLeftmostAndTheLongestOfWhatIsPreferred) {
  EXPECT_EQ(replaced("a", "x", "banana"), "bxnxnx");
  EXPECT_EQ(replaced("a", "x", "banana", false), "bxnana");
  EXPECT_EQ(replaced("a+", "x", "aabaaa"), "xbx");
  EXPECT_EQ(replaced("a+?", "x", "aab"), "xxb");
  EXPECT_EQ(replaced("(?U)a+", "x", "aab"), "xxb");
  EXPECT_EQ(replaced("a|ab", "x", "abab"), "xbxb");  // the first alternative, not the longest
  EXPECT_EQ(replaced("ab|a", "x", "aab"), "xx");
  EXPECT_EQ(replaced("^a", "x", "aa"), "xa");  // the text begins once
  EXPECT_EQ(replaced(R"(\bcat\b)", "dog", "cat concat cat"), "dog concat dog");
  EXPECT_EQ(replaced("ä", "ae", "bär"), "baer");
  EXPECT_EQ(replaced("x", "y", "nothing"), "nothing");
}

TEST(Regex, ReplacesEmptyMatchesOncePerPlace) {
  EXPECT_EQ(replaced("", "-", "abc"), "-a-b-c-");
  EXPECT_EQ(replaced("b*", "-", "abc"), "-a-c-");
  EXPECT_EQ(replaced("b*", "-", ""), "-");
  EXPECT_EQ(replaced("", "-", "ä"), "-ä-");
}

TEST(Regex, RewritesWithGroups) {
  EXPECT_EQ(replaced(R"((\w+)@(?P<host>\w+))", R"(\2 at \1\\\0)", "me@home"),
            R"(home at me\me@home)");
  EXPECT_EQ(replaced("(a)|(b)", R"([\1\2])", "ab"), "[a][b]");
  EXPECT_EQ(replaced("(a|b)*c", R"(\1)", "abac"), "a");
  EXPECT_EQ(replaced("a", R"(\1)", "aaa"), "aaa");  // there is no such group
  EXPECT_EQ(replaced("a", R"(\x)", "aaa"), "aaa");
  EXPECT_EQ(replaced("a", "\\", "aaa"), "aaa");
}

TEST(Regex, NeedsNoMoreTimeForHostilePatterns) {
  EXPECT_FALSE(matches("(a?){200}a{200}b", std::string(300, 'a')));
  const std::string text = str_cat(std::string(500, 'a'), "b");
  EXPECT_EQ(replaced("((a*)*)*$", "x", text), str_cat(text, "x"));
  std::string nested = "a";
  for (int i = 0; i < 90; ++i) nested = str_cat("(", nested, ")*");
  EXPECT_TRUE(matches(nested, "aaa"));
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
    if (!regex.ok()) continue;
    // A text that matches as a whole has a match, which then is replaced.
    const bool whole = regex->full_match(text);
    const Result<std::string> all = regex->replace(text, "#", true);
    ASSERT_TRUE(all.ok()) << "seed " << seed << " " << pattern;
    EXPECT_TRUE(!whole || all->find('#') != std::string::npos) << "seed " << seed << " " << pattern;
  }
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

TEST(RegexOps, WithAPatternOfTheRun) {
  const Tensor texts = Tensor::vector<std::string>({"ab", "b", ""});
  OpTester match("RegexFullMatch");
  expect_tensor_equal(*match.input(texts).input(Tensor::scalar<std::string>("a.*")).run_one(),
                      Tensor::vector<bool>({true, false, false}));
  OpTester replace("RegexReplace");
  replace.input(texts).input(Tensor::scalar<std::string>("(b)"));
  expect_tensor_equal(*replace.input(Tensor::scalar<std::string>("\\1\\1")).run_one(),
                      Tensor::vector<std::string>({"abb", "bb", ""}));
  OpTester first("StaticRegexReplace");
  first.attr("pattern", "").attr("rewrite", "x").attr("replace_global", false);
  expect_tensor_equal(*first.input(texts).run_one(),
                      Tensor::vector<std::string>({"xab", "xb", "x"}));
  OpTester vector("RegexFullMatch");
  EXPECT_EQ(vector.input(texts).input(texts).run_one().status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
