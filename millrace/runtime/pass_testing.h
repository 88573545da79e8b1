#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/kernel/registry.h"
#include "millrace/runtime/device_set.h"
#include "millrace/runtime/subgraph.h"

// Small graphs for the tests of passes: a few ops of their own, next to the real control-flow ops,
// in registries that nobody else uses.
//
//   Const, Identity           on CPU and CUDA
//   Add, AddV2, Mul, Sub,     on CPU and CUDA; int32 and float; put into one node by _FusedToys,
//   Less                      on CPU
//   Normalize                 x * scale + shift, and scale; on CPU
//   SumRows                   int32 along the last dimensions, with keep_dims; in the same node
//   AsShape, Permute, SumOver x reshaped, transposed, summed as a list in input 1 says; Reshape, of
//                             any type
//   CpuOnly                   an Identity for CPU
//   SizeOf                    metadata_only
//   SumAll, SumOfMul          int32: sums of all inputs; of some and of Mul of pairs
//   Product                   of two int32 matrices, either transposed; on CPU
//                             CloseProduct computes the same
//   KeepAndFlip                             x, ~x
//   Fail                                    an error
//   Tick                                    stateful: how often it has run
//   Var, Assign; Handle, UseHandle          reference and resource edges

namespace millrace {

struct ToyOps {
  OpRegistry ops;
  KernelRegistry kernels;
  static ToyOps& get();
};

struct ToyPlace {
  std::string device = {};
  std::vector<NodeId> after = {};
  std::string name = {};  // empty: made up
};

class ToyGraph {
 public:
  ToyGraph();
  Subgraph graph;

  // Output 0 of a new node. Type attributes T and N follow from the inputs.
  Output add(std::string_view op, std::vector<Output> inputs, AttrMap attrs, ToyPlace place);
  Output add(std::string_view op, std::vector<Output> inputs, ToyPlace place = {}) {
    return add(op, std::move(inputs), {}, std::move(place));
  }
  Output constant(Tensor value, ToyPlace place = {});
  Output constant(int32_t value, ToyPlace place = {}) {
    return constant(Tensor::scalar<int32_t>(value), std::move(place));
  }
  Output feed(DType dtype, int position, ToyPlace place = {});
  void fetch(Output value, int position, ToyPlace place = {});
  const SubNode& node(std::string_view name) const;
  // What that node asks for or is on.
  const std::string& device(std::string_view name) const;
};

// The node of that name; fails the test when there is none.
const SubNode& node_named(const Subgraph& graph, std::string_view name);
int count_op(const Subgraph& graph, std::string_view op);

// `per_task` CPU devices on each of `tasks` tasks of the job "worker".
std::vector<Ref<Device>> toy_devices(int per_task, int tasks = 1);
DeviceSet device_set(const std::vector<Ref<Device>>& devices);
// Facts alone, for placement: complete names, kinds by type.
DeviceSet named_devices(std::vector<std::string> names);

// Cuts a placed graph and runs it; by task first when there are several. Keys that somebody still
// waits for after ten seconds are in the error.
Result<std::vector<Tensor>> run_toy(const Subgraph& graph, const std::vector<Ref<Device>>& devices,
                                    std::vector<Tensor> feeds, int fetches);

}  // namespace millrace
