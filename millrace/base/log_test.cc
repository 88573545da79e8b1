#include "millrace/base/log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "millrace/base/env.h"

namespace millrace {
namespace {

class Kept final : public LogSink {
 public:
  void write(const LogRecord& record) override {
    lines.push_back(str_cat(log_level_name(record.level), ": ", record.text));
    last = record.location;
  }
  std::vector<std::string> lines;
  SourceLocation last;
};

class LogTest : public ::testing::Test {
 protected:
  LogTest() { set_log_sink(&kept_); }
  ~LogTest() override {
    set_log_sink(nullptr);
    set_log_level(LogLevel::kOff);
  }
  Kept kept_;
};

int evaluated = 0;
int count() { return ++evaluated; }

TEST_F(LogTest, OffCostsNothingAndSaysNothing) {
  set_log_level(LogLevel::kOff);
  evaluated = 0;
  MR_LOG(kError, "value ", count());
  EXPECT_EQ(evaluated, 0);
  EXPECT_TRUE(kept_.lines.empty());
}

TEST_F(LogTest, LetsTheLevelAndAboveThrough) {
  set_log_level(LogLevel::kWarning);
  MR_VLOG("details");
  MR_LOG(kInfo, "news");
  MR_LOG(kWarning, "careful ", 1);
  const int line = __LINE__ + 1;
  MR_LOG(kError, "wrong");
  EXPECT_EQ(kept_.lines, (std::vector<std::string>{"warning: careful 1", "error: wrong"}));
  EXPECT_EQ(kept_.last.line, line);
}

TEST_F(LogTest, NoticesComeUnaskedUnlessAllIsOff) {
  unsetenv("MILLRACE_LOG");
  set_log_level(LogLevel::kOff);
  MR_NOTICE("stuck ", 1);
  setenv("MILLRACE_LOG", "off", 1);
  MR_NOTICE("stuck ", 2);
  unsetenv("MILLRACE_LOG");
  EXPECT_EQ(kept_.lines, (std::vector<std::string>{"warning: stuck 1"}));
}

TEST_F(LogTest, EnvironmentSetsTheLevelAndTheCallOverrides) {
  setenv("MILLRACE_LOG", "info", 1);
  log_internal::threshold = log_internal::kNotRead;
  EXPECT_EQ(log_level(), LogLevel::kInfo);
  set_log_level(LogLevel::kError);
  EXPECT_EQ(log_level(), LogLevel::kError);
  unsetenv("MILLRACE_LOG");
  log_internal::threshold = log_internal::kNotRead;
  MR_LOG(kError, "unasked");
  EXPECT_EQ(log_level(), LogLevel::kOff);
  EXPECT_TRUE(kept_.lines.empty());
}

TEST_F(LogTest, WithoutASinkALineGoesToStderr) {
  set_log_sink(nullptr);
  set_log_level(LogLevel::kInfo);
  ::testing::internal::CaptureStderr();
  MR_LOG(kInfo, "hello");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.starts_with("millrace info ")) << text;
  EXPECT_TRUE(text.find("log_test.cc:") != std::string::npos) << text;
  EXPECT_TRUE(text.ends_with(": hello\n")) << text;
}

TEST_F(LogTest, EnvIntTakesNumbersInRangeOnly) {
  set_log_level(LogLevel::kWarning);
  unsetenv("MILLRACE_TEST_INT");
  EXPECT_EQ(env_int("MILLRACE_TEST_INT", 3, 1, 10), 3);
  EXPECT_TRUE(kept_.lines.empty());
  setenv("MILLRACE_TEST_INT", "7", 1);
  EXPECT_EQ(env_int("MILLRACE_TEST_INT", 3, 1, 10), 7);
  EXPECT_EQ(env_string("MILLRACE_TEST_INT"), "7");
  for (const char* bad : {"0", "11", "x", "5x", "99999999999999999999", " 5"}) {
    kept_.lines.clear();
    setenv("MILLRACE_TEST_INT", bad, 1);
    EXPECT_EQ(env_int("MILLRACE_TEST_INT", 3, 1, 10), 3) << bad;
    ASSERT_EQ(kept_.lines.size(), 1u) << bad;
    EXPECT_TRUE(kept_.lines[0].find(bad) != std::string::npos) << kept_.lines[0];
  }
  unsetenv("MILLRACE_TEST_INT");
}

}  // namespace
}  // namespace millrace
