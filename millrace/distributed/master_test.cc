// test-labels: threads
#include "millrace/distributed/master.h"

#include <gtest/gtest.h>

#include "millrace/device/cpu/cpu_device.h"
#include "millrace/distributed/distributed_testing.h"
#include "millrace/kernel/resource_manager.h"

namespace millrace {
namespace {

class MasterTest : public testing::Test {
 protected:
  MasterTest() {
    options_.task = std::string(kTask0);
    options_.call_timeout_ms = 20;
  }

  void add(std::string_view task, bool answers) {
    std::vector<Device::Info> devices;
    if (answers) {
      devices.push_back(make_cpu_device(DeviceName::parse(task).value()).value()->info());
    }
    silent_.push_back(make_ref<SilentWorker>(std::move(devices)));
    ASSERT_TRUE(workers_->add(std::string(task), silent_.back()).ok());
  }
  Result<Ref<SessionBackend>> backend() { return make_master_backend(workers_, options_); }

  std::vector<Ref<SilentWorker>> silent_;
  Ref<WorkerCache> workers_ = make_ref<WorkerCache>();
  MasterOptions options_;
};

TEST_F(MasterTest, NamesTasksThatDoNotAnswer) {
  add(kTask0, true);
  add(kTask1, false);
  Status status = backend().status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_NE(status.message().find(kTask1), std::string_view::npos) << status.to_string();
  EXPECT_EQ(status.message().find(kTask0), std::string_view::npos) << status.to_string();
}

TEST_F(MasterTest, NamesWhoIsAtTheAddressOfAnother) {
  add(kTask0, true);
  const DeviceName other = DeviceName::parse("/job:ps/replica:0/task:3").value();
  const Ref<SilentWorker> wrong =
      make_ref<SilentWorker>(std::vector<Device::Info>{make_cpu_device(other).value()->info()});
  ASSERT_TRUE(workers_->add(std::string(kTask1), wrong).ok());
  const Status status = backend().status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find(kTask1), std::string_view::npos) << status.to_string();
  EXPECT_NE(status.message().find("/job:ps/replica:0/task:3"), std::string_view::npos);
}

TEST_F(MasterTest, FiltersLeaveTasksOut) {
  add(kTask0, true);
  add(kTask1, false);
  add("/job:ps/replica:0/task:0", true);
  options_.device_filters = {"/job:ps"};
  Result<Ref<SessionBackend>> made = backend();
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ((*made)->devices().devices().size(), 2u);
  EXPECT_EQ((*made)->devices().client_name(), str_cat(kTask0, "/device:CPU:0"));
}

TEST_F(MasterTest, TheOwnTaskMustBeInTheCluster) {
  add(kTask1, true);
  EXPECT_EQ(backend().status().code(), Code::kNotFound);
}

// And does not wait for them.
TEST_F(MasterTest, CloseTellsAllTasks) {
  add(kTask0, true);
  add(kTask1, true);
  Ref<SessionBackend> one = backend().value(), other = backend().value();
  one->close("s");
  other->close("s");
  for (const Ref<SilentWorker>& worker : silent_) {
    ASSERT_EQ(worker->deleted.size(), 2u);
    EXPECT_TRUE(worker->deleted[0].ends_with("_s")) << worker->deleted[0];
    EXPECT_NE(worker->deleted[0], worker->deleted[1]) << "sessions of two masters are two";
  }
}

TEST_F(MasterTest, RegistrationAndResetHaveADeadline) {
  add(kTask0, true);
  Ref<SessionBackend> made = backend().value();
  EXPECT_EQ(made->reset({}).code(), Code::kDeadlineExceeded);
  TestGraph g;
  g.builder().context().device = made->devices().client_name();
  g.fetch(g.constant(1), 0);
  Status status =
      made->prepare(Subgraph::from_graph(g.graph()), {{}, {"Const:0"}, {}}, "s").status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_NE(status.message().find(kTask0), std::string_view::npos) << status.to_string();
}

}  // namespace
}  // namespace millrace
