#include "millrace/distributed/metrics.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

bool has_line(const std::string& text, std::string_view line) {
  return ("\n" + text).find("\n" + std::string(line) + "\n") != std::string::npos;
}

TEST(Metrics, TellWhatATaskDoes) {
  WorkerActivity activity;
  activity.up_ms = 61'999;
  activity.steps_begun = 5;
  activity.steps_ended = 4;
  activity.steps_failed = 1;
  activity.sessions = {{"a", -1, 2}, {"b", 10, 3}};
  activity.steps = {{1, "a", {"x"}}, {2, "a", {}}};
  activity.transfers = {{"/job:ps/replica:0/task:0", "tensor", 7, 8}, {"master", "fetch", 0, 9}};
  activity.queues = {{"/d", "", "q", 3, 10, false}, {"/d", "", "open", 4, -1, true}};
  const std::string text = metrics_text("/job:w/replica:0/task:1", activity);
  const std::string task = "task=\"/job:w/replica:0/task:1\"";
  for (const std::string& line :
       {"# TYPE millrace_steps_begun_total counter", "# TYPE millrace_queue_elements gauge"}) {
    EXPECT_TRUE(has_line(text, line)) << line << "\n" << text;
  }
  const std::pair<std::string, std::string> lines[] = {
      {"millrace_uptime_seconds{", "} 61"},
      {"millrace_steps_begun_total{", "} 5"},
      {"millrace_steps_ended_total{", "} 4"},
      {"millrace_steps_failed_total{", "} 1"},
      {"millrace_steps_waiting{", "} 1"},
      {"millrace_sessions{", "} 2"},
      {"millrace_graphs{", "} 5"},
      {"millrace_received_bytes_total{", ",peer=\"/job:ps/replica:0/task:0\",kind=\"tensor\"} 7"},
      {"millrace_sent_bytes_total{", ",peer=\"/job:ps/replica:0/task:0\",kind=\"tensor\"} 8"},
      {"millrace_sent_bytes_total{", ",peer=\"master\",kind=\"fetch\"} 9"},
      {"millrace_queue_elements{", ",device=\"/d\",container=\"\",queue=\"open\"} 4"},
      {"millrace_queue_capacity_elements{", ",device=\"/d\",container=\"\",queue=\"q\"} 10"},
  };
  for (const auto& [name, rest] : lines) EXPECT_TRUE(has_line(text, name + task + rest)) << text;
  EXPECT_EQ(text.find("capacity_elements{" + task + ",device=\"/d\",container=\"\",queue=\"open\""),
            std::string::npos);
}

TEST(Metrics, NamesOfAnyBytesAreText) {
  WorkerActivity activity;
  activity.queues = {{"/d", "c", std::string("a\"b\\c\nd\0\xff", 9), 1, -1, false}};
  const std::string text = metrics_text("t", activity);
  EXPECT_NE(text.find("queue=\"a\\\"b\\\\c\\nd\\\\x00\\\\xff\"} 1\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace millrace
