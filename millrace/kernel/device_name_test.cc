#include "millrace/kernel/device_name.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

DeviceName name(std::string_view text) { return DeviceName::parse(text).value(); }

TEST(SemanticsOfDeviceNames, ReadsAllParts) {
  DeviceName n = name("/job:ps/replica:2/task:13/device:GPU:4");
  EXPECT_EQ(n.job, "ps");
  EXPECT_EQ(n.replica, 2);
  EXPECT_EQ(n.task, 13);
  EXPECT_EQ(n.type, "GPU");
  EXPECT_EQ(n.id, 4);
  EXPECT_TRUE(n.complete());
  EXPECT_EQ(n.to_string(), "/job:ps/replica:2/task:13/device:GPU:4");
  EXPECT_EQ(n.task_name(), "/job:ps/replica:2/task:13");
}

TEST(SemanticsOfDeviceNames, AnyOrderAndTheLastPartCounts) {
  EXPECT_EQ(name("/device:CPU:0/task:1/job:a"), name("/job:a/task:1/device:CPU:0"));
  EXPECT_EQ(name("/job:a/job:b"), name("/job:b"));
  EXPECT_EQ(name("/device:GPU:1/device:CPU"), name("/device:CPU"));
  EXPECT_EQ(name("/job:a/job:*"), DeviceName());
}

TEST(SemanticsOfDeviceNames, OldForms) {
  for (const char* text : {"/cpu:0", "/CPU:0", "/device:CPU:0"}) {
    EXPECT_EQ(name(text), name("/device:CPU:0")) << text;
  }
  EXPECT_EQ(name("/gpu:*"), name("/device:GPU"));
  EXPECT_EQ(name("/gpu:3").id, 3);
  // Types are case-sensitive.
  EXPECT_EQ(name("/device:cpu:0").type, "cpu");
}

TEST(SemanticsOfDeviceNames, Stars) {
  EXPECT_TRUE(name("/job:*/replica:*/task:*/device:*:*").empty());
  EXPECT_EQ(name("/device:*:2").to_string(), "/device:*:2");
  EXPECT_EQ(name("/device:GPU").to_string(), "/device:GPU:*");
  EXPECT_TRUE(name("").empty());
  EXPECT_TRUE(name("/").empty());
  EXPECT_EQ(name("").to_string(), "");
}

TEST(SemanticsOfDeviceNames, Malformed) {
  for (const char* text : {"job:a",          "/job:",    "/job:1a",
                           "/job:_a",        "/job:a-b", "/task:",
                           "/task:-1",       "/task:x",  "/task:99999999999",
                           "/task:1x",       "/device:", "/device:CPU:",
                           "/device:CPU:0x", "/cpu",     "/cpu:",
                           "/tpu:0",         "//",       "/job:a/",
                           "/job:a//task:0", " /job:a",  "/Job:a",
                           "/device:CPU:0:1"}) {
    Result<DeviceName> n = DeviceName::parse(text);
    ASSERT_FALSE(n.ok()) << text;
    EXPECT_EQ(n.status().code(), Code::kInvalidArgument) << text;
    EXPECT_NE(n.status().message().find(text), std::string_view::npos) << text;
  }
}

TEST(SemanticsOfDeviceNames, Matches) {
  DeviceName full = name("/job:a/replica:0/task:1/device:CPU:0");
  for (const char* pattern : {"", "/job:a", "/task:1/cpu:0", "/device:CPU"}) {
    EXPECT_TRUE(full.matches(name(pattern))) << pattern;
    EXPECT_TRUE(full.compatible(name(pattern))) << pattern;
    EXPECT_TRUE(name(pattern).compatible(full)) << pattern;
    EXPECT_FALSE(name(pattern).matches(full)) << pattern;
  }
  for (const char* pattern : {"/job:b", "/task:0", "/gpu:0", "/device:cpu:0"}) {
    EXPECT_FALSE(full.compatible(name(pattern))) << pattern;
  }
  // Neither specifies the other.
  EXPECT_FALSE(name("/job:a").compatible(name("/task:1")));
}

TEST(SemanticsOfDeviceNames, MergeAddsFields) {
  DeviceName n = name("/job:a");
  ASSERT_TRUE(n.merge(name("/task:1/device:GPU:2")).ok());
  EXPECT_EQ(n, name("/job:a/task:1/device:GPU:2"));
}

TEST(SemanticsOfDeviceNames, MergeRefusesDifferentFields) {
  for (auto [a, b] : {std::pair{"/job:a", "/job:b"}, std::pair{"/replica:0", "/replica:1"},
                      std::pair{"/task:0", "/task:1"}, std::pair{"/cpu:0", "/gpu:0"},
                      std::pair{"/gpu:0", "/gpu:1"}}) {
    DeviceName n = name(a);
    Status status = n.merge(name(b));
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << a << b;
    EXPECT_EQ(n, name(a));
  }
  DeviceName n = name("/job:a");
  EXPECT_FALSE(n.merge(name("/job:b"), /*soft=*/true).ok());
}

TEST(SemanticsOfDeviceNames, SoftMergeDropsTypeOrId) {
  DeviceName n = name("/job:a/gpu:1");
  ASSERT_TRUE(n.merge(name("/task:3/cpu:1"), /*soft=*/true).ok());
  EXPECT_EQ(n, name("/job:a/task:3"));
  n = name("/job:a/gpu:1");
  ASSERT_TRUE(n.merge(name("/gpu:2"), /*soft=*/true).ok());
  EXPECT_EQ(n, name("/job:a/device:GPU"));
}

}  // namespace
}  // namespace millrace
