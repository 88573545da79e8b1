// test-labels: threads
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "millrace/base/env.h"
#include "millrace/base/str_cat.h"
#include "millrace/distributed/in_process_cluster.h"
#include "millrace/session/session.h"
#include "tests/random_graph_testing.h"
#include "tests/simulated_backend_testing.h"

// Random programs give the same bits, or the same error, whatever way they run. A failure prints
// its seed; MILLRACE_TEST_SEED=<seed> repeats that program alone and prints it,
// MILLRACE_TEST_GRAPHS=<n> sets how many are tried.

namespace millrace {
namespace {

// Sanitizers make each graph about ten times as slow.
#if defined(MILLRACE_THREAD_SANITIZER) || defined(MILLRACE_ADDRESS_SANITIZER)
constexpr int kGraphs = 200;
#else
constexpr int kGraphs = 2000;
#endif
constexpr int64_t kTimeoutMs = 120'000;

struct Outcome {
  Status status;  // of the first request that failed, after which there are none
  std::vector<Tensor> values;
};

Status run_requests(Session& session, const RandomProgram& program, std::vector<Tensor>& values) {
  auto keep = [&](Result<std::vector<Tensor>> out) -> Status {
    MR_TRY(out.status());
    values.insert(values.end(), out->begin(), out->end());
    return ok_status();
  };
  if (!program.init.empty()) MR_TRY(keep(session.run({}, {}, program.init)));
  for (const Session::Feeds& feeds : program.steps) {
    MR_TRY(keep(session.run(feeds, program.fetches, program.targets)));
  }
  if (!program.reads.empty()) MR_TRY(keep(session.run({}, program.reads)));
  return ok_status();
}

Outcome run_program(const RandomProgram& program, SessionOptions options) {
  options.timeout_ms = kTimeoutMs;
  options.soft_placement = true;
  Outcome out;
  Result<std::unique_ptr<Session>> session = Session::create(program.graph, options);
  out.status = session.status();
  if (session.ok()) out.status = run_requests(**session, program, out.values);
  return out;
}

// Empty when they agree; values only count where both have them all.
std::string difference(const Outcome& a, const Outcome& b) {
  if (a.status.code() != b.status.code()) {
    return str_cat("status\n  ", a.status.to_string(), "\nbecomes\n  ", b.status.to_string());
  }
  if (a.values.size() != b.values.size()) return "another request failed";
  for (size_t i = 0; i < a.values.size(); ++i) {
    if (!bit_equal(a.values[i], b.values[i])) {
      return str_cat("value ", i, ": ", a.values[i].to_string(), " becomes ",
                     b.values[i].to_string());
    }
  }
  return "";
}

struct Way {
  const char* name;
  SessionOptions options;
  bool cluster = false;
};

class RandomGraphs : public ::testing::Test {
 protected:
  RandomGraphs() {
    // Two tasks, one of which has two devices in use.
    InProcessCluster::Options two = {.name = "random_graphs", .cpu_devices = 2};
    Result<std::unique_ptr<InProcessCluster>> cluster = InProcessCluster::create(two);
    EXPECT_TRUE(cluster.ok()) << cluster.status().to_string();
    if (cluster.ok()) cluster_ = *std::move(cluster);
  }

  static std::vector<Way> ways() {
    auto local = [](int devices, int level, Gear gear) {
      SessionOptions o;
      o.cpu_devices = devices;
      o.optimizer_level = level;
      o.gear = gear;
      return o;
    };
    auto tasks = [](int level) {
      SessionOptions o;
      o.target = "inprocess://random_graphs";
      o.optimizer_level = level;
      return o;
    };
    SessionOptions simulated = on_simulated_device();
    simulated.optimizer_level = 0;
    return {{"parallel", local(1, 0, Gear::kParallel)},
            {"straight, passes", local(1, 1, Gear::kStraight)},
            {"parallel, passes", local(1, 1, Gear::kParallel)},
            {"3 devices, parallel", local(3, 0, Gear::kParallel)},
            {"3 devices, straight, passes", local(3, 1, Gear::kStraight)},
            {"3 devices, parallel, passes", local(3, 1, Gear::kParallel)},
            {"simulated device", simulated},
            {"2 tasks", tasks(0), true},
            {"2 tasks, passes", tasks(1), true}};
  }

  // Runs one program in every way, against the straight gear without passes on one device.
  void check(uint64_t seed, bool print) {
    Result<RandomProgram> here = random_program(seed, {"/cpu:0", "/cpu:1", "/cpu:2"});
    ASSERT_TRUE(here.ok()) << here.status().to_string();
    Result<RandomProgram> there = random_program(
        seed, {"/job:worker/task:0", "/job:worker/task:1/cpu:0", "/job:worker/task:1/cpu:1"});
    ASSERT_TRUE(there.ok()) << there.status().to_string();
    if (print) fputs(here->to_string().c_str(), stderr);
    SessionOptions plain;
    plain.optimizer_level = 0;
    plain.gear = Gear::kStraight;
    const Outcome expected = run_program(*here, plain);
    count(*here, expected);
    if (!expected.status.ok()) {
      EXPECT_EQ(expected.status.code(), Code::kInvalidArgument) << expected.status.to_string();
    }
    for (const Way& way : ways()) {
      const Outcome got = run_program(way.cluster ? *there : *here, way.options);
      const std::string wrong = difference(expected, got);
      EXPECT_TRUE(wrong.empty()) << way.name << ": " << wrong;
    }
  }

  void count(const RandomProgram& program, const Outcome& outcome) {
    const RandomProgramCounts& c = program.counts;
    failed_ += !outcome.status.ok();
    flat_ += c.loops + c.conds == 0;
    nested_ += c.deepest == 3;
    in_middle_ += c.feeds_in_middle;
    control_edges_ += c.control_edges;
    state_ops_ += c.state_ops;
  }

  std::unique_ptr<InProcessCluster> cluster_;
  int failed_ = 0, flat_ = 0, nested_ = 0, in_middle_ = 0, control_edges_ = 0, state_ops_ = 0;
};

TEST_F(RandomGraphs, RunTheSameInEveryWay) {
  int64_t only = env_int("MILLRACE_TEST_SEED", -1, 0, INT64_MAX);
  int64_t graphs = env_int("MILLRACE_TEST_GRAPHS", kGraphs, 1, 100'000'000);
  if (only >= 0) return check(static_cast<uint64_t>(only), true);
  for (int64_t seed = 1; seed <= graphs && !HasFailure(); ++seed) {
    SCOPED_TRACE(str_cat("MILLRACE_TEST_SEED=", seed));
    check(static_cast<uint64_t>(seed), false);
  }
  // What the programs are for happens often enough.
  if (graphs < 100 || HasFailure()) return;
  EXPECT_LT(failed_, graphs / 5);
  EXPECT_GT(failed_, 0);
  EXPECT_GT(flat_, graphs / 10);
  EXPECT_GT(nested_, graphs / 50);
  EXPECT_GT(in_middle_, graphs / 5);
  EXPECT_GT(control_edges_, graphs);
  EXPECT_GT(state_ops_, graphs);
}

}  // namespace
}  // namespace millrace
