// test-labels: threads
#include "millrace/kernel/trace.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "millrace/base/str_cat.h"
#include "millrace/graph/op_def.h"
#include "millrace/kernel/kernel.h"
#include "millrace/kernel/kernel_testing.h"
#include "proto/step_stats.pb.h"

namespace millrace {
namespace {

using Kind = TraceEvent::Kind;

TraceEvent event(std::string node, int64_t start, int64_t end, Kind kind = Kind::kKernel) {
  TraceEvent e;
  e.kind = kind;
  e.node = std::move(node);
  e.op = "MatMul";
  e.device = "/device:CPU:0";
  e.start_ns = start;
  e.end_ns = end;
  return e;
}

int count(const std::string& text, std::string_view part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Trace, CollectsFromManyThreads) {
  Ref<TraceCollector> collector = make_ref<TraceCollector>();
  Ref<TraceCollector> other = make_ref<TraceCollector>();  // threads may write to two in turn
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        collector->record(event(str_cat("n", t, "_", i), 100 * i + t, 100 * i + t + 1));
        if (i % 10 == 0) other->record(event("o", 1, 2));
        if (i % 50 == 0) (void)collector->events();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  std::vector<TraceEvent> events = collector->events();
  ASSERT_EQ(events.size(), 400u);
  EXPECT_EQ(other->events().size(), 40u);
  std::set<uint32_t> ids;
  for (size_t i = 0; i < events.size(); ++i) {
    ids.insert(events[i].thread);
    if (i > 0) {
      EXPECT_LE(events[i - 1].start_ns, events[i].start_ns);
    }
  }
  EXPECT_EQ(ids.size(), 4u);
}

// What a plan keeps of its nodes.
struct Nodes : RefCounted {
  OpDef op;
  KernelNode node;
  Ref<Device> device = make_test_device();
  explicit Nodes(std::string name) {
    op.name = name;
    node.name = std::move(name);
    node.op = &op;
    node.device = device.get();
  }
};

TEST(Trace, CallsAreNamedByTheirNodesWhenRead) {
  Ref<TraceCollector> collector = make_ref<TraceCollector>();
  {
    const Ref<Nodes> plain = make_ref<Nodes>("Plain"), send = make_ref<Nodes>("Send");
    send->op.traits.send = true;
    send->node.attrs.set("recv_device", std::string("/task:1"));
    send->node.attrs.set("tensor_name", std::string("edge_1_x"));
    for (int i = 0; i < 3; ++i) {
      collector->keep(plain);
      collector->keep(send);
    }
    collector->record(TraceCall{.node = &send->node, .start_ns = 40, .end_ns = 50});
    collector->record(TraceCall{.node = &plain->node,
                                .origin = 7,
                                .scheduled_ns = 10,
                                .start_ns = 20,
                                .end_ns = 30,
                                .allocated_bytes = 64,
                                .blocks = {{.bytes = 64, .output = 0}}});
    collector->record(event("other", 35, 36));
  }
  const std::vector<TraceEvent> events = collector->events();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].kind, Kind::kQueueWait);
  EXPECT_EQ(events[0].start_ns, 10);
  EXPECT_EQ(events[0].end_ns, 20);
  EXPECT_EQ(events[1].kind, Kind::kKernel);
  EXPECT_EQ(events[1].node, "Plain");
  EXPECT_EQ(events[1].op, "Plain");
  EXPECT_EQ(events[1].device, make_test_device()->name());
  EXPECT_EQ(events[1].scheduled_ns, 10);
  EXPECT_EQ(events[1].allocated_bytes, 64);
  EXPECT_EQ(events[1].origin, 7);
  EXPECT_EQ(events[1].blocks.size(), 1u);
  EXPECT_EQ(events[1].thread, events[2].thread);
  EXPECT_EQ(events[2].node, "other");
  EXPECT_EQ(events[3].node, "Send");
  EXPECT_EQ(events[3].peer, "/task:1");
  EXPECT_EQ(events[3].tensor, "edge_1_x");
}

TEST(Trace, ChromeTracksHaveNames) {
  TraceEvent a = event("a", 1000, 3500);
  a.thread = 7;
  a.allocated_bytes = 64;
  TraceEvent wait1 = event("a", 0, 1000, Kind::kQueueWait);
  TraceEvent wait2 = event("b", 500, 2000, Kind::kQueueWait);  // overlaps: a track of its own
  TraceEvent wait3 = event("c", 1000, 2000, Kind::kQueueWait);
  TraceEvent recv = event("r", 0, 10, Kind::kRecvWait);
  recv.device = "/device:CPU:1";
  std::string json = chrome_trace({wait1, wait2, a, wait3, recv});
  EXPECT_EQ(count(json, "\"process_name\""), 2);
  EXPECT_EQ(count(json, "\"kernels, thread 7\""), 1);
  EXPECT_EQ(count(json, "\"queue waits\""), 1);
  EXPECT_EQ(count(json, "\"queue waits (2)\""), 1);
  EXPECT_EQ(count(json, "\"queue waits (3)\""), 0);
  EXPECT_EQ(count(json, "\"receive waits\""), 1);
  EXPECT_EQ(count(json, "\"ph\":\"X\""), 5);
  EXPECT_EQ(count(json, "\"ts\":1.000,\"dur\":2.500"), 1);
  EXPECT_EQ(count(json, "\"allocated_bytes\":64"), 1);
}

TEST(Trace, TransfersAreArrows) {
  TraceEvent send = event("x/_1", 1000, 2000);
  send.op = "_Send";
  send.device = "/task:0";
  send.peer = "/task:1";
  send.tensor = "edge_1_x";
  TraceEvent recv = event("x/_2", 500, 4000, Kind::kRecvWait);
  recv.device = "/task:1";
  recv.peer = "/task:0";
  recv.tensor = "edge_1_x";
  recv.allocated_bytes = 64;
  TraceEvent other = send;  // nobody receives it
  other.tensor = "edge_2_x";
  const std::string json = chrome_trace({recv, send, other});
  EXPECT_EQ(count(json,
                  "\"ph\":\"s\",\"pid\":2,\"tid\":2,\"name\":\"tensor\","
                  "\"cat\":\"transfer\",\"id\":1,\"ts\":0.500}"),
            1)
      << json;
  EXPECT_EQ(count(json,
                  "\"ph\":\"f\",\"bp\":\"e\",\"pid\":1,\"tid\":1,\"name\":\"tensor\","
                  "\"cat\":\"transfer\",\"id\":1,\"ts\":3.499}"),
            1)
      << json;
  EXPECT_EQ(count(json, "\"ph\":\"s\""), 1);
  EXPECT_EQ(count(json, "\"allocated_bytes\":64,\"tensor\":\"edge_1_x\",\"from\":\"/task:0\""), 1);
  EXPECT_EQ(count(json, "\"tensor\":\"edge_1_x\",\"to\":\"/task:1\""), 1);
  tensorflow::StepStats stats;
  TraceEvent call = event("run_graph", 0, 5000, Kind::kCall);
  call.device = "/task:1";
  to_step_stats({recv, call}, 0, stats);
  EXPECT_EQ(stats.dev_stats(0).node_stats(0).timeline_label(), "x/_2 = MatMul(edge_1_x @/task:0)");
  EXPECT_EQ(stats.dev_stats(1).device(), "/task:1/call");
}

TEST(Trace, EventsOfOtherProcessesKeepTheirThreads) {
  const Ref<TraceCollector> collector = make_ref<TraceCollector>();
  TraceEvent theirs = event("a", 0, 1);
  theirs.thread = 4711;
  collector->record(theirs);
  collector->record(event("b", 2, 3));
  EXPECT_EQ(collector->events()[0].thread, 4711u);
  EXPECT_EQ(collector->events()[1].thread, trace_thread_id());
}

TEST(Trace, ChromeTextIsEscaped) {
  std::string json = chrome_trace({event("a\"b\\c\n", 0, 1)});
  EXPECT_NE(json.find("\"a\\\"b\\\\c\\u000a\""), std::string::npos) << json;
  EXPECT_EQ(chrome_trace({}), "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n]}\n");
}

TEST(Trace, StepStats) {
  TraceEvent a = event("a", 5'000, 9'500);
  a.scheduled_ns = 2'000;
  a.thread = 3;
  a.allocated_bytes = 128;
  a.blocks = {{&a, 64}, {&stderr, 128, 1, true}};
  tensorflow::StepStats stats;
  to_step_stats({a, event("a", 2'000, 5'000, Kind::kQueueWait), event("x", 1, 2, Kind::kCopy)},
                1'000'000, stats);
  ASSERT_EQ(stats.dev_stats_size(), 2);
  EXPECT_EQ(stats.dev_stats(1).device(), "/device:CPU:0/memcpy");
  const tensorflow::DeviceStepStats& device = stats.dev_stats(0);
  EXPECT_EQ(device.device(), "/device:CPU:0");
  ASSERT_EQ(device.node_stats_size(), 1);
  const tensorflow::NodeExecStats& node = device.node_stats(0);
  EXPECT_EQ(node.node_name(), "a");
  EXPECT_EQ(node.all_start_micros(), 1005);
  EXPECT_EQ(node.all_end_rel_micros(), 4);
  EXPECT_EQ(node.op_end_rel_nanos(), 4500);
  EXPECT_EQ(node.scheduled_micros(), 1002);
  EXPECT_EQ(node.timeline_label(), "a = MatMul()");
  EXPECT_EQ(node.memory(0).total_bytes(), 128);
  ASSERT_EQ(node.output_size(), 1);
  EXPECT_EQ(node.output(0).slot(), 1);
  EXPECT_EQ(node.output(0).tensor_description().allocation_description().allocated_bytes(), 128);
  EXPECT_EQ(device.thread_names().at(3), "thread 3");
}

// a makes a block; b and c read it, b hands it on as its own; c makes another one, and d, later,
// one where the first was.
TEST(Trace, MemoryIsThatOfBlocksFromTheirMakerToTheirLastReader) {
  const int first = 0, second = 0, variable = 0;
  TraceEvent a = event("a", 0, 10), b = event("b", 20, 30), c = event("c", 40, 50);
  TraceEvent d = event("d", 60, 70);
  a.blocks = {{&first, 100, 0, true}};
  b.blocks = {{&first, 100}, {&variable, 5000}, {&first, 100, 0, false}};
  c.blocks = {{&first, 100}, {&second, 30, 1, true}, {&variable, 5000, 0, false}};
  d.blocks = {{&second, 30}, {&first, 90, 0, true}};
  const TraceMemory memory = memory_of({a, b, c, d});
  EXPECT_EQ(memory.peak_bytes, 130);
  ASSERT_EQ(memory.largest.size(), 2u);
  EXPECT_EQ(memory.largest[0].node, "a");
  EXPECT_EQ(memory.largest[1].node, "c");
  EXPECT_EQ(memory.largest[1].output, 1);
  EXPECT_NE(to_string(memory).find("100 a:0"), std::string::npos);
  EXPECT_EQ(memory_of({}).peak_bytes, 0);
}

}  // namespace
}  // namespace millrace
