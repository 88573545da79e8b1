#include "millrace/distributed/session_leases.h"

#include <gtest/gtest.h>

#include "millrace/base/str_cat.h"

namespace millrace {
namespace {

constexpr int64_t kMilli = 1'000'000;

TEST(SessionLeases, RunOutWhenNothingIsHeard) {
  SessionLeases leases("/job:w/replica:0/task:0");
  ASSERT_TRUE(leases.keep("kept", 100, 0).ok());
  ASSERT_TRUE(leases.keep("silent", 100, 0).ok());
  ASSERT_TRUE(leases.keep("here", 0, 0).ok());
  EXPECT_EQ(leases.next_lapse_ns(), 100 * kMilli);
  ASSERT_TRUE(leases.keep("kept", 100, 50 * kMilli).ok());
  EXPECT_TRUE(leases.take_lapsed(99 * kMilli).empty());

  const auto lapsed = leases.take_lapsed(100 * kMilli);
  ASSERT_EQ(lapsed.size(), 1u);
  EXPECT_EQ(lapsed[0].first, "silent");
  const Status reason = leases.check("silent");
  EXPECT_EQ(reason.code(), Code::kAborted);
  for (const char* text : {"lease of session silent on /job:w/replica:0/task:0 ran out at ",
                           "not heard of for 100 ms, since ", "the lease is 100 ms"}) {
    EXPECT_NE(reason.message().find(text), std::string_view::npos) << reason.to_string();
  }
  // For good: a master that comes back is told.
  EXPECT_EQ(leases.keep("silent", 100, 101 * kMilli), reason);

  EXPECT_EQ(leases.known().size(), 2u);
  EXPECT_EQ(leases.known().at("kept").left_ms(100 * kMilli), 50);
  EXPECT_EQ(leases.known().at("here").left_ms(100 * kMilli), -1);
  EXPECT_EQ(leases.next_lapse_ns(), 150 * kMilli);
  leases.drop("kept");
  EXPECT_EQ(leases.next_lapse_ns(), INT64_MAX);
  EXPECT_TRUE(leases.check("kept").ok());
}

TEST(SessionLeases, RefuseWhatIsNoLease) {
  SessionLeases leases("t");
  for (const int64_t wrong : {int64_t{-1}, SessionLeases::kMaxLeaseMs + 1, INT64_MAX}) {
    EXPECT_EQ(leases.keep("s", wrong, 0).code(), Code::kInvalidArgument);
  }
  EXPECT_TRUE(leases.known().empty());
}

TEST(SessionLeases, RememberSoManyAndNoMore) {
  SessionLeases leases("t");
  for (int i = 0; i < 5000; ++i) {
    ASSERT_TRUE(leases.keep(str_cat("s", i), 1, i * kMilli).ok());
    ASSERT_EQ(leases.take_lapsed((i + 1) * kMilli).size(), 1u);
  }
  EXPECT_TRUE(leases.check("s0").ok());
  EXPECT_TRUE(leases.check("s903").ok());
  EXPECT_EQ(leases.check("s904").code(), Code::kAborted);
  EXPECT_EQ(leases.check("s4999").code(), Code::kAborted);
}

}  // namespace
}  // namespace millrace
