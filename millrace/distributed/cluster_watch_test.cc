// test-labels: threads
#include "millrace/distributed/cluster_watch.h"

#include <gtest/gtest.h>

#include "millrace/base/str_cat.h"
#include "millrace/distributed/server.h"

namespace millrace {
namespace {

TEST(ClusterWatch, TellsWhoAnswersAndWhoDoesNot) {
  Server::Options options;
  options.cluster = ClusterSpec::parse("worker|localhost:0;localhost:1").value();
  options.job = "worker";
  auto server = Server::start(options).value();
  const std::string target = str_cat("grpc://", server->address());
  const Ref<ClusterWatch> watch = ClusterWatch::begin(target).value();
  std::vector<ClusterWatch::Task> tasks = watch->look(60'000);
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[0].name, "/job:worker/replica:0/task:0");
  EXPECT_EQ(tasks[0].address, server->address());
  EXPECT_TRUE(tasks[0].status.ok()) << tasks[0].status.to_string();
  EXPECT_GT(tasks[0].activity.clock_ns, 0);
  EXPECT_EQ(tasks[1].status.code(), Code::kUnavailable);
  EXPECT_EQ(tasks[1].address, "localhost:1");

  server.reset();
  EXPECT_EQ(watch->look(60'000)[0].status.code(), Code::kUnavailable);
  EXPECT_EQ(ClusterWatch::begin(target).status().code(), Code::kUnavailable);
  EXPECT_EQ(ClusterWatch::begin("localhost:1").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
