#include "millrace/runtime/device_set.h"

#include <gtest/gtest.h>

#include "millrace/runtime/pass_testing.h"

namespace millrace {
namespace {

std::string local(std::string_view device) {
  return str_cat("/job:localhost/replica:0/task:0/device:", device);
}

TEST(DeviceSet, SortsByKindThenName) {
  DeviceSet devices =
      named_devices({local("CPU:1"), local("NULL:0"), local("CPU:0"), local("GPU:10"),
                     local("GPU:2"), "/job:a/replica:0/task:0/device:CPU:5"});
  EXPECT_EQ(devices.to_string(), str_cat(local("GPU:2"), ", ", local("GPU:10"),
                                         ", /job:a/replica:0/task:0/device:CPU:5, ", local("CPU:0"),
                                         ", ", local("CPU:1"), ", ", local("NULL:0")));
  EXPECT_EQ(devices.client_name(), local("CPU:1"));
  EXPECT_EQ(devices.client().name, devices.devices()[4].name);
}

TEST(DeviceSet, FindsByMeaningNotBySpelling) {
  DeviceSet devices = named_devices({local("CPU:0"), local("CPU:1")});
  EXPECT_EQ(devices.find(local("CPU:1")), 1);
  EXPECT_EQ(devices.find("/task:0/replica:0/job:localhost/cpu:1"), 1);
  EXPECT_EQ(devices.find(local("CPU:2")), -1);
  EXPECT_EQ(devices.find("/device:CPU:0"), -1);
  EXPECT_EQ(devices.find("nonsense"), -1);
}

}  // namespace
}  // namespace millrace
