#include "millrace/distributed/metrics.h"

#include <initializer_list>
#include <utility>

#include "millrace/base/str_cat.h"

namespace millrace {
namespace {

using Label = std::pair<std::string_view, std::string_view>;

void append_value(std::string& out, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\\' || c == '"') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte >= 0x7f) {
      // Names of queues are what their makers gave: bytes that may be no text.
      out += str_cat("\\\\x", "0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]);
    } else {
      out += c;
    }
  }
}

class MetricsWriter {
 public:
  explicit MetricsWriter(std::string_view task) : task_(task) {}

  // What follows are values of it. `type`: "counter" or "gauge".
  void begin(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    out_ += str_cat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
  }
  void add(int64_t value, std::initializer_list<Label> labels = {}) {
    out_ += str_cat(name_, "{task=\"");
    append_value(out_, task_);
    for (const auto& [label, text] : labels) {
      out_ += str_cat("\",", label, "=\"");
      append_value(out_, text);
    }
    out_ += str_cat("\"} ", value, "\n");
  }
  std::string text() && { return std::move(out_); }

 private:
  const std::string_view task_;
  std::string_view name_;
  std::string out_;
};

void add_steps(const WorkerActivity& activity, MetricsWriter& out) {
  out.begin("millrace_steps_begun_total", "counter", "Steps that began on the task.");
  out.add(activity.steps_begun);
  out.begin("millrace_steps_ended_total", "counter", "Steps that ended there, well or not.");
  out.add(activity.steps_ended);
  out.begin("millrace_steps_failed_total", "counter", "Steps that ended with an error.");
  out.add(activity.steps_failed);
  int64_t waiting = 0;
  for (const WorkerActivity::Step& step : activity.steps) waiting += !step.waits_for.empty();
  out.begin("millrace_steps_waiting", "gauge",
            "Steps that wait for a tensor, a queue or the like.");
  out.add(waiting);
}

void add_transfers(const WorkerActivity& activity, MetricsWriter& out) {
  out.begin("millrace_received_bytes_total", "counter",
            "Bytes of tensors and graphs that came, by who sent them and what they were.");
  for (const WorkerActivity::Transfer& transfer : activity.transfers) {
    if (transfer.received_bytes == 0) continue;
    out.add(transfer.received_bytes, {{"peer", transfer.peer}, {"kind", transfer.kind}});
  }
  out.begin("millrace_sent_bytes_total", "counter",
            "Bytes of tensors that went, by who got them and what they were.");
  for (const WorkerActivity::Transfer& transfer : activity.transfers) {
    if (transfer.sent_bytes == 0) continue;
    out.add(transfer.sent_bytes, {{"peer", transfer.peer}, {"kind", transfer.kind}});
  }
}

void add_queues(const WorkerActivity& activity, MetricsWriter& out) {
  const auto add = [&](const WorkerActivity::Queue& queue, int64_t value) {
    out.add(value,
            {{"device", queue.device}, {"container", queue.container}, {"queue", queue.name}});
  };
  out.begin("millrace_queue_elements", "gauge", "Elements in a queue.");
  for (const WorkerActivity::Queue& queue : activity.queues) add(queue, queue.size);
  out.begin("millrace_queue_capacity_elements", "gauge",
            "Elements that fit in a queue; absent where there is no limit.");
  for (const WorkerActivity::Queue& queue : activity.queues) {
    if (queue.capacity >= 0) add(queue, queue.capacity);
  }
}

}  // namespace

std::string metrics_text(std::string_view task, const WorkerActivity& activity) {
  MetricsWriter out(task);
  out.begin("millrace_uptime_seconds", "gauge", "Seconds since the task began.");
  out.add(activity.up_ms / 1000);
  add_steps(activity, out);
  add_transfers(activity, out);
  out.begin("millrace_sessions", "gauge", "Sessions that the task has.");
  out.add(static_cast<int64_t>(activity.sessions.size()));
  int64_t graphs = 0;
  for (const WorkerActivity::Session& session : activity.sessions) graphs += session.graphs;
  out.begin("millrace_graphs", "gauge", "Graphs that are registered with the task.");
  out.add(graphs);
  add_queues(activity, out);
  return std::move(out).text();
}

}  // namespace millrace
