// The two directions between the memory of a device and the host's, where an edge has one end in
// each: the runtime puts them in (runtime/memory.h).

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"

namespace millrace {
namespace {

class HostCopy : public AsyncKernel {
 public:
  using Copy = void (Device::*)(const Tensor&, UniqueFunction<void(Result<Tensor>)>);

  template <bool kToHost>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode&) {
    return std::make_unique<HostCopy>(kToHost ? static_cast<Copy>(&Device::copy_to_host)
                                              : &Device::copy_from_host);
  }
  explicit HostCopy(Copy copy) : copy_(copy) {}

  void compute_async(KernelContext& ctx, Done done) const override {
    (ctx.device().*copy_)(ctx.input(0),
                          [&ctx, done = std::move(done)](Result<Tensor> copied) mutable {
                            if (!copied.ok()) return done(copied.status());
                            ctx.set_output(0, std::move(*copied));
                            done(ok_status());
                          });
  }

 private:
  const Copy copy_;
};

}  // namespace

void register_host_copies(Registry& registry) {
  const OpTraits traits = {.stateful = true, .cannot_differentiate = true};
  registry.add({.name = "_CopyToHost",
                .doc = "A tensor in the memory of its device, copied to the host's.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "host(T)"}},
                .types = {{"T", {}}},
                .traits = traits,
                .shape = shape_rules::unchanged});
  registry.add({.name = "_CopyFromHost",
                .doc = "A tensor in the memory of the host, copied to the device's.",
                .inputs = {{"input", "host(T)"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}},
                .traits = traits,
                .shape = shape_rules::unchanged});
  registry.kernel(
      {.op = "_CopyToHost", .device = DeviceKind::kAny, .factory = &HostCopy::make<true>});
  registry.kernel(
      {.op = "_CopyFromHost", .device = DeviceKind::kAny, .factory = &HostCopy::make<false>});
}

}  // namespace millrace
