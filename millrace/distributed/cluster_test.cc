#include "millrace/distributed/cluster.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(ClusterSpec, ReadsJobsAndTasks) {
  Result<ClusterSpec> spec = ClusterSpec::parse("worker|a:1;b:2,ps|c:3");
  ASSERT_TRUE(spec.ok()) << spec.status().to_string();
  EXPECT_EQ(str_join(spec->task_names(), " "),
            "/job:ps/replica:0/task:0 /job:worker/replica:0/task:0 /job:worker/replica:0/task:1");
  EXPECT_EQ(*spec->address("/job:worker/replica:0/task:1"), "b:2");
  EXPECT_EQ(spec->address("/job:worker/replica:0/task:2").status().code(), Code::kNotFound);
}

TEST(ClusterSpec, AllowsGaps) {
  ClusterSpec spec;
  ASSERT_TRUE(spec.add("worker", 3, "a:1").ok());
  ASSERT_TRUE(spec.add("worker", 1, "b:1").ok());
  EXPECT_EQ(spec.to_string(),
            "/job:worker/replica:0/task:1 at b:1, /job:worker/replica:0/task:3 at a:1");
}

TEST(ClusterSpec, RefusesWhatIsNoCluster) {
  for (const char* text : {"", "worker", "worker|", "|a:1", "1w|a:1", "w|a:1;", "w|a:1,", "w|a|b",
                           "w|a:1;a:1", "w|a:1,v|a:1", "w-x|a:1", "w|a:1,w|b:1"}) {
    EXPECT_EQ(ClusterSpec::parse(text).status().code(), Code::kInvalidArgument) << text;
  }
  ClusterSpec spec;
  EXPECT_EQ(spec.add("worker", -1, "a:1").code(), Code::kInvalidArgument);
}

TEST(WorkerCache, KnowsWhoAnsweredLast) {
  Ref<WorkerCache> cache = make_ref<WorkerCache>();
  ASSERT_TRUE(cache->add(task_name("worker", 0), nullptr).ok());
  EXPECT_EQ(cache->add(task_name("worker", 0), nullptr).code(), Code::kAlreadyExists);
  EXPECT_TRUE(cache->alive(task_name("worker", 0)));
  cache->report(task_name("worker", 0), unavailable("gone"));
  EXPECT_FALSE(cache->alive(task_name("worker", 0)));
  cache->report(task_name("worker", 0), aborted("restarted"));
  EXPECT_TRUE(cache->alive(task_name("worker", 0)));

  Status unknown = cache->find(task_name("worker", 7)).status();
  EXPECT_EQ(unknown.code(), Code::kNotFound);
  EXPECT_NE(unknown.message().find("/job:worker/replica:0/task:0"), std::string_view::npos);
  EXPECT_FALSE(cache->alive(task_name("worker", 7)));
}

}  // namespace
}  // namespace millrace
