#pragma once

#include <memory>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/status.h"
#include "millrace/kernel/registry.h"
#include "millrace/runtime/subgraph.h"

namespace millrace {

// Runs single kernels on the host while a graph is optimised, within limits: a kernel that would
// hold more memory than a constant is worth, or takes longer than is left, is given up. Work that
// is given up is cancelled; it owns what it touches and ends on its own.
class KernelFolder {
 public:
  // No allocation of a kernel may be larger.
  static constexpr size_t kMaxAllocation = size_t{256} << 20;

  // `budget_ms` is for all calls together. `cpu` is a host device.
  KernelFolder(Device& cpu, const KernelRegistry& kernels, int64_t budget_ms);
  ~KernelFolder();

  // The outputs of `node` for these inputs. RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED, or the kernel's
  // own error.
  Result<std::vector<Tensor>> run(const SubNode& node, std::vector<Tensor> inputs);

 private:
  struct Run;

  const Ref<Device> device_;  // `cpu` with limits
  const KernelRegistry& kernels_;
  int64_t left_ns_;
};

}  // namespace millrace
