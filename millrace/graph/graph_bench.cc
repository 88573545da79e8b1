#include <benchmark/benchmark.h>

#include "millrace/graph/graph_builder.h"
#include "millrace/graph/op_def.h"

namespace millrace {
namespace {

constexpr int kNodes = 100000;

void register_ops(OpRegistry& registry) {
  const OpSpec source = {
      .name = "Source", .doc = "", .outputs = {{"y", "float"}}, .shape = shape_rules::scalar};
  const OpSpec add = {.name = "Add",
                      .doc = "",
                      .inputs = {{"x", "T"}, {"y", "T"}},
                      .outputs = {{"z", "T"}},
                      .types = {{"T", kNumbers}},
                      .shape = shape_rules::broadcast};
  MR_CHECK_OK(registry.add(parse_op_spec(source).value()));
  MR_CHECK_OK(registry.add(parse_op_spec(add).value()));
}

void report(benchmark::State& state) {
  state.counters["per_node"] = benchmark::Counter(
      kNodes, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void add_nodes(benchmark::State& state) {
  OpRegistry registry;
  register_ops(registry);
  for (auto _ : state) {
    const Ref<Graph> graph = make_ref<Graph>(registry);
    MR_CHECK_OK(graph->add({.name = "n0", .op = "Source"}).status());
    for (int i = 1; i < kNodes; ++i) {
      MR_CHECK_OK(graph
                      ->add({.name = str_cat("n", i),
                             .op = "Add",
                             .inputs = {{i - 1, 0}, {i / 2, 0}},
                             .attrs = {{"T", DType::kFloat}}})
                      .status());
    }
  }
  report(state);
}
BENCHMARK(add_nodes)->Unit(benchmark::kMillisecond);

// Through the builder: names made unique, type attributes inferred.
void build_nodes(benchmark::State& state) {
  OpRegistry registry;
  register_ops(registry);
  for (auto _ : state) {
    const Ref<Graph> graph = make_ref<Graph>(registry);
    GraphBuilder builder(*graph);
    NodeId last = builder.add("Source", "", {}).value();
    for (int i = 1; i < kNodes; ++i) last = builder.add("Add", "", {{last, 0}, {last, 0}}).value();
  }
  report(state);
}
BENCHMARK(build_nodes)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace millrace
