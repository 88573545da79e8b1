#include <gtest/gtest.h>
#include <sched.h>

#include "millrace/base/file.h"
#include "millrace/base/file_testing.h"
#include "millrace/base/thread_pool.h"

namespace millrace {
namespace {

class CpusTest : public ::testing::Test {
 protected:
  void put(const std::string& path, std::string_view text) {
    FileSystem& fs = posix_file_system();
    ASSERT_TRUE(fs.mkdir_all(directory_of(root_ / path)).ok());
    ASSERT_TRUE(write_file_atomically(fs, root_ / path, text).ok());
  }
  int quota() { return cgroup_cpus(root_.path().c_str()); }

  TemporaryDirectory root_;
};

TEST_F(CpusTest, NothingToReadIsNoLimit) {
  EXPECT_EQ(quota(), 0);
  EXPECT_GE(usable_cpus(root_.path().c_str()), 1);
}

TEST_F(CpusTest, VersionTwoRoundsUp) {
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota(), 3);
  put("sys/fs/cgroup/a/b/cpu.max", "5000 100000\n");
  EXPECT_EQ(quota(), 1);
  EXPECT_EQ(usable_cpus(root_.path().c_str()), 1);
  put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 0);
}

TEST_F(CpusTest, TheStrictestAncestorHolds) {
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/b/cpu.max", "800000 100000\n");
  put("sys/fs/cgroup/a/cpu.max", "400000 100000\n");
  put("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 4);
}

TEST_F(CpusTest, InAContainerTheMountRootCounts) {
  put("proc/self/cgroup", "0::/kubepods/not/visible\n");
  put("sys/fs/cgroup/cpu.max", "600000 100000\n");
  EXPECT_EQ(quota(), 6);
}

TEST_F(CpusTest, VersionOne) {
  put("proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/\n");
  put("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "150000\n");
  put("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 2);
  put("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(quota(), 0);
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "700000\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 7);
}

TEST_F(CpusTest, NonsenseIsNoLimit) {
  put("proc/self/cgroup", "0::/a\n::::\nx\n");
  for (const char* text : {"", "x y", "100", "100 0", "-5 100", "99999999999999999999 1"}) {
    put("sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(quota(), 0) << text;
  }
}

TEST_F(CpusTest, AffinityBoundsTheNumber) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(usable_cpus(root_.path().c_str()), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(usable_cpus(root_.path().c_str()), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace millrace
