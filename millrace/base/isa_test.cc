#include "millrace/base/isa.h"

#include <gtest/gtest.h>

#include "millrace/base/env.h"
#include "millrace/base/log.h"

namespace millrace {
namespace {

struct CountingSink final : LogSink {
  void write(const LogRecord&) override { ++count; }
  int count = 0;
};

TEST(Isa, CanOnlyBeLowered) {
  EXPECT_EQ(lower_isa(Isa::kAvx512, "baseline"), Isa::kBaseline);
  EXPECT_EQ(lower_isa(Isa::kAvx512, "avx2"), Isa::kAvx2);
  EXPECT_EQ(lower_isa(Isa::kAvx2, "avx512"), Isa::kAvx2);
  EXPECT_EQ(lower_isa(Isa::kBaseline, "avx2"), Isa::kBaseline);
  EXPECT_EQ(lower_isa(Isa::kAvx2, ""), Isa::kAvx2);
}

TEST(Isa, UnknownNameIsLoggedAndIgnored) {
  CountingSink sink;
  set_log_sink(&sink);
  set_log_level(LogLevel::kWarning);
  EXPECT_EQ(lower_isa(Isa::kAvx2, "AVX"), Isa::kAvx2);
  set_log_sink(nullptr);
  set_log_level(LogLevel::kOff);
  EXPECT_EQ(sink.count, 1);
}

TEST(Isa, BestFollowsMachineAndEnvironment) {
  EXPECT_EQ(best_isa(), lower_isa(machine_isa(), env_string("MILLRACE_ISA")));
#if defined(__x86_64__)
  // The compiler's own detection, where it knows the names.
  EXPECT_EQ(machine_isa() >= Isa::kAvx2,
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
#endif
}

}  // namespace
}  // namespace millrace
