#pragma once

#include <array>
#include <string_view>
#include <unordered_map>

#include "millrace/ops/device_values.cuh"
#include "millrace/ops/math/elementwise.h"

// From an op's name and type to the function that launches its kernel.

namespace millrace {

// The types of a table entry that CUDA computes.
using DeviceElementTypes = ConcatTypes<DeviceRealTypes, TypeList<bool>>;

template <class Function>
class LaunchTable {
 public:
  Function find(std::string_view op, DType dtype) const {
    const auto found = functions_.find(op);
    return found == functions_.end() ? nullptr : found->second[static_cast<size_t>(dtype)];
  }
  TypeSet types(std::string_view op) const {
    TypeSet types;
    for (int i = 1; i < kNumDTypes; ++i) {
      if (find(op, static_cast<DType>(i)) != nullptr)
        types = types | TypeSet{static_cast<DType>(i)};
    }
    return types;
  }
  // Adds maker.make<Op, T>() for every op and type that its info allows.
  template <class Maker, class... Ops>
  void add(OpList<Ops...>) {
    (add_op<Maker, Ops>(DeviceElementTypes()), ...);
  }

 private:
  template <class Maker, class Op, class... Ts>
  void add_op(TypeList<Ts...>) {
    std::array<Function, kNumDTypes>& row = functions_[Op::info.name];
    row.fill(nullptr);
    (add_one<Maker, Op, Ts>(row), ...);
  }
  template <class Maker, class Op, class T>
  static void add_one(std::array<Function, kNumDTypes>& row) {
    if constexpr (Op::info.kernels.contains(dtype_of<T>)) {
      row[static_cast<size_t>(dtype_of<T>)] = Maker::template make<Op, T>();
    }
  }

  std::unordered_map<std::string_view, std::array<Function, kNumDTypes>> functions_;
};

using LaunchUnary = Status (*)(KernelContext&, const void* x, void* y, int64_t n);
using LaunchBinary = Status (*)(KernelContext&, const BroadcastIndex& index, const void* a,
                                const void* b, void* z, int64_t n);
const LaunchTable<LaunchUnary>& unary_launches();
const LaunchTable<LaunchBinary>& binary_launches();

}  // namespace millrace
