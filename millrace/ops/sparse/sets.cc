// Sets in the last dimension: of a dense tensor its elements, of a sparse one those that are given.

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "millrace/kernel/registry.h"
#include "millrace/ops/sparse/elements.h"
#include "millrace/ops/sparse/sparse_input.h"

namespace millrace {
namespace {

constexpr TypeSet kSetTypes = {DType::kInt8,  DType::kInt16,  DType::kInt32, DType::kInt64,
                               DType::kUInt8, DType::kUInt16, DType::kString};

// The sets that are not empty, by the number of their place in the outer dimensions.
template <class T>
using Sets = std::map<int64_t, std::set<T>>;

template <class T>
Result<Sets<T>> sets_of(const Tensor& dense) {
  Sets<T> sets;
  MR_TRY_ASSIGN(std::vector<T> data, read_elements<T>(dense));
  const int64_t columns = dense.dim(dense.rank() - 1);
  for (size_t i = 0; i < data.size(); ++i) {
    sets[static_cast<int64_t>(i) / columns].insert(std::move(data[i]));
  }
  return sets;
}

template <class T>
Result<Sets<T>> sets_of(const SparseInput& sparse) {
  Sets<T> sets;
  MR_TRY_ASSIGN(std::vector<T> data, read_elements<T>(*sparse.values));
  for (int64_t i = 0; i < sparse.count; ++i) {
    sets[sparse.group(i)].insert(std::move(data[static_cast<size_t>(i)]));
  }
  return sets;
}

enum class Operation : uint8_t { kAMinusB, kBMinusA, kIntersection, kUnion };

template <class T>
std::set<T> combine(Operation operation, const std::set<T>& a, const std::set<T>& b) {
  std::set<T> out;
  const auto to = std::inserter(out, out.end());
  switch (operation) {
    case Operation::kAMinusB:
      std::set_difference(a.begin(), a.end(), b.begin(), b.end(), to);
      break;
    case Operation::kBMinusA:
      std::set_difference(b.begin(), b.end(), a.begin(), a.end(), to);
      break;
    case Operation::kIntersection:
      std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), to);
      break;
    case Operation::kUnion:
      std::set_union(a.begin(), a.end(), b.begin(), b.end(), to);
      break;
  }
  return out;
}

// Sets the three outputs.
template <class T>
Status write_sets(KernelContext& ctx, const Shape& outer, const Sets<T>& sets) {
  int64_t count = 0, longest = 0;
  for (const auto& [place, set] : sets) {
    const auto size = static_cast<int64_t>(set.size());
    count += size;
    longest = std::max(longest, size);
  }
  const int rank = outer.rank() + 1;
  MR_TRY_ASSIGN(Tensor * indices, ctx.allocate_output(0, Shape{count, rank}));
  MR_TRY_ASSIGN(Tensor * values, ctx.allocate_output(1, Shape{count}));
  MR_TRY_ASSIGN(Tensor * shape, ctx.allocate_output(2, Shape{rank}));
  int64_t* index = indices->mutable_data<int64_t>().data();
  std::vector<T> elements;
  for (const auto& [place, set] : sets) {
    int64_t column = 0;
    for (const T& element : set) {
      int64_t left = place;
      for (int k = rank - 2; k >= 0; --k) {
        index[k] = left % outer.dim(k);
        left /= outer.dim(k);
      }
      index[rank - 1] = column++;
      index += rank;
      elements.push_back(element);
    }
  }
  const std::span<int64_t> sizes = shape->mutable_data<int64_t>();
  std::copy(outer.dims().begin(), outer.dims().end(), sizes.begin());
  sizes.back() = longest;
  return write_elements(elements, *values);
}

// An argument: a dense tensor, or a sparse one of which it is the first of three inputs.
struct Argument {
  const Tensor* dense = nullptr;
  SparseInput sparse;
  Shape outer;

  static Result<Argument> read_dense(const KernelContext& ctx, int i) {
    const Tensor& tensor = ctx.input(i);
    if (tensor.rank() < 2) {
      return invalid_argument("sets need rank 2 or more, got shape ", tensor.shape());
    }
    const auto outer = static_cast<size_t>(tensor.rank() - 1);
    return Argument{&tensor, {}, *Shape::make(tensor.shape().dims().first(outer))};
  }
  static Result<Argument> read_sparse(KernelContext& ctx, int first, std::string_view name,
                                      bool validate) {
    MR_TRY_ASSIGN(SparseInput sparse, SparseInput::read(ctx, first, name));
    if (sparse.rank < 2) {
      return invalid_argument("sets need rank 2 or more, got shape ", sparse.shape);
    }
    if (validate) MR_TRY(sparse.check_order());
    Shape outer = sparse.outer();
    return Argument{nullptr, std::move(sparse), std::move(outer)};
  }
  template <class T>
  Result<Sets<T>> sets() const {
    return dense != nullptr ? sets_of<T>(*dense) : sets_of<T>(sparse);
  }
};

Result<Operation> operation_named(std::string_view name) {
  if (name == "a-b") return Operation::kAMinusB;
  if (name == "b-a") return Operation::kBMinusA;
  if (name == "intersection") return Operation::kIntersection;
  if (name == "union") return Operation::kUnion;
  return invalid_argument("set_operation must be a-b, b-a, intersection or union, got \"", name,
                          "\"");
}

// DenseToDense, DenseToSparse and SparseToSparseSetOperation, by the number of sparse arguments.
template <int kSparse>
class SetOperation : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const std::string name, node.attr<std::string>("set_operation"));
    MR_TRY_ASSIGN(const bool validate, node.attr<bool>("validate_indices"));
    MR_TRY_ASSIGN(const Operation operation, operation_named(name));
    return std::make_unique<SetOperation>(operation, validate);
  }
  SetOperation(Operation operation, bool validate) : operation_(operation), validate_(validate) {}

  Status compute(KernelContext& ctx) const override {
    Argument a, b;
    if constexpr (kSparse == 2) {
      MR_TRY_ASSIGN(a, Argument::read_sparse(ctx, 0, "set1", validate_));
      MR_TRY_ASSIGN(b, Argument::read_sparse(ctx, 3, "set2", validate_));
    } else {
      MR_TRY_ASSIGN(a, Argument::read_dense(ctx, 0));
      if constexpr (kSparse == 1) {
        MR_TRY_ASSIGN(b, Argument::read_sparse(ctx, 1, "set2", validate_));
      } else {
        MR_TRY_ASSIGN(b, Argument::read_dense(ctx, 1));
      }
    }
    if (a.outer != b.outer) {
      return invalid_argument("Mismatched group shapes: the sets of set1 are in shape ", a.outer,
                              ", those of set2 in ", b.outer);
    }
    return with_kept_element(ctx.output_type(1), [&]<class T>() -> Status {
      MR_TRY_ASSIGN(Sets<T> first, a.sets<T>());
      MR_TRY_ASSIGN(const Sets<T> second, b.sets<T>());
      for (const auto& [place, set] : second) first.try_emplace(place);
      const std::set<T> none;
      for (auto& [place, set] : first) {
        const auto other = second.find(place);
        set = combine(operation_, set, other == second.end() ? none : other->second);
      }
      return write_sets(ctx, a.outer, first);
    });
  }

 private:
  Operation operation_;
  bool validate_;
};

class SetSize : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool validate, node.attr<bool>("validate_indices"));
    return std::make_unique<SetSize>(validate);
  }
  explicit SetSize(bool validate) : validate_(validate) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const Argument a, Argument::read_sparse(ctx, 0, "set", validate_));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, a.outer));
    const std::span<int32_t> sizes = out->mutable_data<int32_t>();
    std::fill(sizes.begin(), sizes.end(), 0);
    return with_kept_element(a.sparse.values->dtype(), [&]<class T>() -> Status {
      MR_TRY_ASSIGN(const Sets<T> sets, a.sets<T>());
      for (const auto& [place, set] : sets) {
        sizes[static_cast<size_t>(place)] = static_cast<int32_t>(set.size());
      }
      return ok_status();
    });
  }

 private:
  bool validate_;
};

template <int kSparse>
Status set_operation_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const std::string name, c.attr<std::string>("set_operation"));
  MR_TRY(operation_named(name).status());
  int64_t rank = PartialShape::kUnknownDim;
  const auto note = [&](int64_t other) -> Status {
    if (rank >= 0 && other >= 0 && rank != other) {
      return invalid_argument("the sets must have one rank, got ", rank, " and ", other);
    }
    rank = std::max(rank, other);
    return ok_status();
  };
  const auto dense = [&](int i) -> Status {
    MR_TRY(c.with_rank_at_least(i, 2).status());
    return note(c.input(i).rank_known() ? c.input(i).rank() : -1);
  };
  const auto sparse = [&](int first) -> Status {
    MR_TRY_ASSIGN(const int64_t known, sparse_rank(c, first));
    return note(known);
  };
  if constexpr (kSparse == 2) {
    MR_TRY(sparse(0));
    MR_TRY(sparse(3));
  } else {
    MR_TRY(dense(0));
    MR_TRY(kSparse == 1 ? sparse(1) : dense(1));
  }
  c.set_output(0, PartialShape{PartialShape::kUnknownDim, rank});
  c.set_output(1, PartialShape::of_rank(1));
  c.set_output(2, PartialShape{rank});
  return ok_status();
}

// Programs expect the shape to be unknown until the graph runs.
Status set_size_shape(ShapeContext& c) { return sparse_rank(c, 0).status(); }

OpSpec set_operation_spec(const char* name, const std::vector<OpSpec::Arg>& inputs) {
  return {.name = name,
          .doc = "Combines the sets of the last dimension of two tensors.",
          .inputs = inputs,
          .outputs = {{"result_indices", "int64"},
                      {"result_values", "T"},
                      {"result_shape", "host(int64)"}},
          .types = {{"T", kSetTypes}},
          .attrs = {{"set_operation", "string", "a-b, b-a, intersection or union."},
                    {"validate_indices", "bool = true",
                     "Whether indices must be sorted and without repeats."}},
          .traits = {.cannot_differentiate = true, .cost = 50}};
}

}  // namespace

void register_sets(Registry& registry) {
  OpSpec dense = set_operation_spec("DenseToDenseSetOperation", {{"set1", "T"}, {"set2", "T"}});
  dense.shape = set_operation_shape<0>;
  registry.add(dense);
  registry.kernel<SetOperation<0>>("DenseToDenseSetOperation", DeviceKind::kCpu);
  OpSpec mixed = set_operation_spec("DenseToSparseSetOperation", {{"set1", "T"},
                                                                  {"set2_indices", "int64"},
                                                                  {"set2_values", "T"},
                                                                  {"set2_shape", "host(int64)"}});
  mixed.shape = set_operation_shape<1>;
  registry.add(mixed);
  registry.kernel<SetOperation<1>>("DenseToSparseSetOperation", DeviceKind::kCpu);
  OpSpec sparse = set_operation_spec("SparseToSparseSetOperation", {{"set1_indices", "int64"},
                                                                    {"set1_values", "T"},
                                                                    {"set1_shape", "host(int64)"},
                                                                    {"set2_indices", "int64"},
                                                                    {"set2_values", "T"},
                                                                    {"set2_shape", "host(int64)"}});
  sparse.shape = set_operation_shape<2>;
  registry.add(sparse);
  registry.kernel<SetOperation<2>>("SparseToSparseSetOperation", DeviceKind::kCpu);
  registry.add(
      {.name = "SetSize",
       .doc = "The number of elements of each set of the last dimension.",
       .inputs = {{"set_indices", "int64"}, {"set_values", "T"}, {"set_shape", "host(int64)"}},
       .outputs = {{"size", "int32"}},
       .types = {{"T", kSetTypes}},
       .attrs = {{"validate_indices", "bool = true",
                  "Whether indices must be sorted and without repeats."}},
       .traits = {.cannot_differentiate = true, .cost = 50},
       .shape = set_size_shape});
  registry.kernel<SetSize>("SetSize", DeviceKind::kCpu);
}

}  // namespace millrace
