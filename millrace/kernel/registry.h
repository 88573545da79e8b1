#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/graph/op_registry.h"
#include "millrace/kernel/kernel.h"

namespace millrace {

using KernelFunction = Status (*)(KernelContext&);
using KernelFactory = Result<std::unique_ptr<Kernel>> (*)(const KernelNode&);

// One way to run an op.
struct KernelDef {
  // A type attribute and the type (or types) this kernel handles.
  struct Constraint {
    SpecText attr;
    TypeSet types;
  };

  // The op's name, or "*": any op that this kind of device has no kernel for.
  SpecText op;
  // kAny: for every kind of device that has none for the op, "*" included.
  DeviceKind device = DeviceKind::kCpu;
  SpecList<Constraint> constraints = {};  // all must hold; none: any node
  // Exactly one of the two.
  KernelFunction function = nullptr;  // for kernels that need no attributes
  KernelFactory factory = nullptr;
  // Kernels of one op, device and type are tried in this order; the plain reference is 0.
  int priority = 0;
  SpecText label = {};  // for tests that want one kernel: "reference"
};

extern template class SpecList<KernelDef::Constraint>;

// Kernels by op and device. Append-only, safe to read while appended to.
class KernelRegistry {
 public:
  KernelRegistry();
  ~KernelRegistry();
  KernelRegistry(const KernelRegistry&) = delete;
  KernelRegistry& operator=(const KernelRegistry&) = delete;
  static KernelRegistry& global();

  // INVALID_ARGUMENT for a definition that says nothing sensible, ALREADY_EXISTS for one that
  // differs from an earlier one in nothing that could choose between them.
  Status add(KernelDef def);
  // The kernels for a node with these attributes on this kind of device, best first.
  std::vector<const KernelDef*> find(std::string_view op, DeviceKind device,
                                     const AttrMap& attrs) const;
  bool any(std::string_view op, DeviceKind device, const AttrMap& attrs) const;
  // All of them, for tests and documentation.
  std::vector<const KernelDef*> list(std::string_view op) const;

 private:
  struct Impl;
  Impl* impl_;
};

// Makes the first kernel that takes the node (a factory may refuse with UNIMPLEMENTED: then the
// next is tried). `label`: only kernels with that label. NOT_FOUND "No registered 'X' OpKernel ..."
// with the types there are.
Result<std::unique_ptr<Kernel>> make_kernel(const KernelRegistry& registry, const KernelNode& node,
                                            DeviceKind device, std::string_view label = {});

// Where op families register themselves: definitions and kernels together. Mistakes in a
// registration are collected: status() has the first.
class Registry {
 public:
  Registry(OpRegistry& ops, KernelRegistry& kernels) : ops_(ops), kernels_(kernels) {}

  // Calls are cold, so that the compiler spends no more on registration than it is worth.
  [[gnu::cold]] void add(const OpSpec& spec);
  [[gnu::cold]] void kernel(const KernelDef& def);

  // A kernel for nodes whose attribute "T" is dtype_of<T>, in each of the forms.
  template <class T>
  void kernel(SpecText op, DeviceKind device, KernelFunction function) {
    kernel_of_type(op, device, dtype_of<T>, function, nullptr);
  }
  // K is a Kernel with a constructor or `static Result<std::unique_ptr<Kernel>> make(const
  // KernelNode&)`.
  template <class T, class K>
  void kernel(SpecText op, DeviceKind device) {
    kernel_of_type(op, device, dtype_of<T>, nullptr, &K::make);
  }
  // For nodes of any type.
  void kernel(SpecText op, DeviceKind device, KernelFunction function) {
    kernel_of_type(op, device, DType::kInvalid, function, nullptr);
  }
  template <class K>
  void kernel(SpecText op, DeviceKind device) {
    kernel_of_type(op, device, DType::kInvalid, nullptr, &K::make);
  }

  const Status& status() const { return status_; }

 private:
  // kInvalid: of any type.
  [[gnu::cold]] void kernel_of_type(SpecText op, DeviceKind device, DType type,
                                    KernelFunction function, KernelFactory factory);

  OpRegistry& ops_;
  KernelRegistry& kernels_;
  Status status_;
};

}  // namespace millrace
