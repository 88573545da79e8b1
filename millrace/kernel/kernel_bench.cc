#include <benchmark/benchmark.h>

#include <utility>

#include "millrace/kernel/kernel.h"
#include "millrace/kernel/resource_manager.h"

namespace millrace {
namespace {

class HostDevice final : public Device {
 public:
  HostDevice() : Device(make_info(), make_ref<ResourceManager>()) {}
  Allocator& allocator() override { return cpu_allocator(); }
  Allocator& host_allocator() override { return cpu_allocator(); }
  void copy_to_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) override {
    done(from);
  }
  void copy_from_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) override {
    done(from);
  }

 private:
  static Info make_info() {
    Info info;
    info.name = DeviceName::parse("/job:localhost/replica:0/task:0/device:CPU:0").value();
    info.incarnation = 1;
    return info;
  }
};

// One scalar output per step, as the executor runs it: context, allocation, release of the input.
void scalar_output(benchmark::State& state, bool forward) {
  Ref<Device> device = make_ref<HostDevice>();
  KernelNode node;
  node.output_types = {DType::kFloat};
  Ref<Step> step = make_ref<Step>();
  Value input = Value::of(Tensor::scalar(1.0f));
  Value output;
  Value* pointer = &input;
  KernelContext::Args args;
  args.node = &node;
  args.step = step.get();
  args.device = device.get();
  args.inputs = &pointer;
  args.outputs = &output;
  args.num_inputs = args.num_outputs = 1;
  args.movable = forward ? 1 : 0;
  for (auto _ : state) {
    KernelContext ctx(args);
    Result<Tensor*> y = ctx.forward_or_allocate_output({0}, 0, ctx.input(0).shape());
    (*y)->mutable_data<float>()[0] = ctx.input(0).data<float>()[0] + 1.0f;
    input = std::exchange(output, Value());
  }
}
void allocate_scalar_output(benchmark::State& state) { scalar_output(state, false); }
void forward_scalar_output(benchmark::State& state) { scalar_output(state, true); }
BENCHMARK(allocate_scalar_output);
BENCHMARK(forward_scalar_output);

class Variable : public Resource {
 public:
  static constexpr std::string_view kTypeName = "Variable";
  std::string describe() const override { return "Variable"; }
};

void resource_lookup(benchmark::State& state) {
  static Ref<ResourceManager> manager = [] {
    Ref<ResourceManager> m = make_ref<ResourceManager>();
    for (int i = 0; i < 1000; ++i) {
      (void)m->create("localhost", str_cat("model/layer", i, "/weights"), make_ref<Variable>());
    }
    return m;
  }();
  std::string name = str_cat("model/layer", 10 + state.thread_index(), "/weights");
  for (auto _ : state) {
    benchmark::DoNotOptimize(manager->lookup<Variable>("localhost", name).ok());
  }
}
BENCHMARK(resource_lookup)->ThreadRange(1, 2);

}  // namespace
}  // namespace millrace
