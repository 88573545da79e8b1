// test-links: ops
#include "millrace/runtime/executor_testing.h"

#include <memory>

#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/kernel/rendezvous.h"
#include "millrace/ops/register_ops.h"

namespace millrace {

TestGraph::TestGraph() {
  MR_CHECK_OK(register_ops());
  graph_ = make_ref<Graph>();
  builder_ = std::make_unique<GraphBuilder>(*graph_);
}

Expr TestGraph::feed(DType dtype, int position) {
  return builder_->emit("_Arg", {}, {{"T", dtype}, {"index", position}})[0];
}

void TestGraph::fetch(Expr value, int position) {
  builder_->emit("_Retval", {value}, {{"index", position}});
}

Expr TestGraph::enter(Expr value, std::string frame, bool constant, int parallel) {
  return call(
      "Enter", {value},
      {{"frame_name", frame}, {"is_constant", constant}, {"parallel_iterations", parallel}});
}

TestGraph::Values TestGraph::while_loop(const std::string& frame, Values initial, Values invariants,
                                        FunctionRef<Expr(Values, Values)> cond,
                                        FunctionRef<Values(Values, Values)> body, int parallel) {
  Values vars, constants, inside, exits;
  for (Expr v : invariants) constants.push_back(enter(v, frame, true, parallel));
  std::vector<Expr> merges;
  for (Expr v : initial) {
    Expr entered = enter(v, frame, false, parallel);
    merges.push_back(call_multi("Merge", {entered, entered}, {{"N", 2}})[0]);
  }
  Expr predicate = call("LoopCond", {cond(merges, constants)});
  for (Expr m : merges) {
    std::vector<Expr> branch = call_multi("Switch", {m, predicate});
    exits.push_back(call("Exit", {branch[0]}));
    inside.push_back(call("Identity", {branch[1]}));
  }
  Values next = body(inside, constants);
  for (size_t i = 0; i < merges.size(); ++i) {
    Expr n = call("NextIteration", {next[i]});
    Status status =
        graph_->set_back_edge(GraphBuilder::output(merges[i]).node, 1, GraphBuilder::output(n));
    if (!status.ok()) builder_->fail(status);
  }
  return exits;
}

Expr TestGraph::cond(Expr pred, Expr x, FunctionRef<Expr(Expr)> then,
                     FunctionRef<Expr(Expr)> otherwise) {
  std::vector<Expr> branch = call_multi("Switch", {x, pred});
  Expr no = otherwise(branch[0]);
  Expr yes = then(branch[1]);
  return call_multi("Merge", {no, yes}, {{"N", 2}})[0];
}

Result<Ref<Plan>> TestGraph::plan(const CompileOptions& options) {
  MR_TRY(builder_->status());
  MR_TRY_ASSIGN(DeviceName task, DeviceName::parse("/job:localhost/replica:0/task:0"));
  MR_TRY_ASSIGN(std::vector<Ref<Device>> devices, make_cpu_devices(task, 1));
  return compile(Subgraph::from_graph(*graph_), devices[0], options);
}

Result<std::vector<Tensor>> run_plan(const Ref<Plan>& plan, std::vector<Tensor> feeds, int fetches,
                                     Gear gear) {
  Ref<Step> step = Step::make_shared(1);
  step->hold_feeds(std::move(feeds));
  step->fetches.resize(static_cast<size_t>(fetches));
  if (runs_straight(*plan, gear)) {
    MR_TRY(run_straight(*plan, *step));
    return std::move(step->fetches);
  }
  step->begin(1, nullptr);
  run_parallel(plan, step);
  step->wait();
  MR_TRY(step->status());
  return std::move(step->fetches);
}

}  // namespace millrace
