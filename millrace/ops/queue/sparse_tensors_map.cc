// Sparse tensors that wait in a map while a queue holds the numbers they are kept under.

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/ops/indices.h"
#include "millrace/ops/queue/batch.h"
#include "millrace/ops/sparse/sparse_input.h"
#include "millrace/ops/state/variable.h"

namespace millrace {
namespace {

// The elements `values` at the rows of `indices` of a tensor of shape `dims`.
struct SparseEntry {
  Tensor indices;
  Tensor values;
  std::vector<int64_t> dims;
};

class SparseTensorsMap : public Resource {
 public:
  static constexpr std::string_view kTypeName = "SparseTensorsMap";

  std::string describe() const override {
    MutexLock lock(mu_);
    return str_cat("SparseTensorsMap of ", entries_.size());
  }

  int64_t add(SparseEntry entry) {
    MutexLock lock(mu_);
    entries_.emplace(next_, std::move(entry));
    return next_++;
  }

  // Takes all of them, or none: INVALID_ARGUMENT when one is not there.
  Result<std::vector<SparseEntry>> take(std::span<const int64_t> handles) {
    MutexLock lock(mu_);
    std::vector<SparseEntry> taken;
    for (size_t i = 0; i < handles.size(); ++i) {
      const auto found = entries_.find(handles[i]);
      if (found == entries_.end()) {
        for (size_t k = 0; k < i; ++k) entries_.emplace(handles[k], std::move(taken[k]));
        return invalid_argument("Unable to find SparseTensor: ", handles[i],
                                " in map; it was taken already or never added");
      }
      taken.push_back(std::move(found->second));
      entries_.erase(found);
    }
    return taken;
  }

 private:
  mutable Mutex mu_;
  std::unordered_map<int64_t, SparseEntry> entries_ MR_GUARDED_BY(mu_);
  int64_t next_ MR_GUARDED_BY(mu_) = 0;
};

Status add_shape(ShapeContext& c) {
  c.set_output(0, PartialShape::scalar());
  return sparse_rank(c, 0).status();
}

Status add_many_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const int64_t rank, sparse_rank(c, 0));
  MR_TRY_ASSIGN(const PartialShape shape, sizes_input(c, 2));
  const bool known = rank > 0 && shape.rank_known() && shape.rank() > 0;
  c.set_output(0, PartialShape{known ? shape.dim(0) : PartialShape::kUnknownDim});
  return ok_status();
}

Status take_shape(ShapeContext& c) {
  c.set_output(0, PartialShape::of_rank(2));
  c.set_output(1, PartialShape::of_rank(1));
  c.set_output(2, PartialShape::of_rank(1));
  return c.with_rank(0, 1).status();
}

// The inputs of an op that adds: (indices, values, shape).
Result<SparseEntry> sparse_input(const KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 0, 2));
  MR_TRY(expect_rank(ctx, 1, 1));
  MR_TRY(expect_rank(ctx, 2, 1));
  const Tensor& indices = ctx.input(0);
  const Tensor& values = ctx.input(1);
  const Tensor& shape = ctx.input(2);
  if (indices.dim(0) != values.dim(0) || indices.dim(1) != shape.dim(0)) {
    return invalid_argument("sparse_indices ", indices.shape(), " must have a row for each of ",
                            values.dim(0), " values and a column for each of ", shape.dim(0),
                            " dimensions");
  }
  const std::span<const int64_t> dims = shape.data<int64_t>();
  SparseEntry entry{indices, values, std::vector<int64_t>(dims.begin(), dims.end())};
  MR_TRY(Shape::make(entry.dims).status());
  return entry;
}

// Where a node keeps what it adds.
Result<StateName> map_name(const KernelNode& node) {
  MR_TRY_ASSIGN(StateName name, StateName::make(node));
  if (name.shared_name.empty()) {
    name.shared_name = ResourceManager::session_name(node.session_prefix, node.name);
  }
  return name;
}

template <bool kMany>
class AddSparse : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(StateName name, map_name(node));
    return std::make_unique<AddSparse>(std::move(name));
  }
  explicit AddSparse(StateName name) : name_(std::move(name)) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(SparseEntry entry, sparse_input(ctx));
    MR_TRY_ASSIGN(
        Ref<SparseTensorsMap> map,
        ctx.resources().lookup_or_create<SparseTensorsMap>(
            container_or_default(name_.container), name_.shared_name,
            []() -> Result<Ref<SparseTensorsMap>> { return make_ref<SparseTensorsMap>(); }));
    if constexpr (kMany) return add_each(ctx, *map, entry);
    MR_TRY_ASSIGN(entry.indices, own_memory(entry.indices));
    MR_TRY_ASSIGN(entry.values, own_memory(entry.values));
    ctx.set_output(0, Tensor::scalar(map->add(std::move(entry))));
    return ok_status();
  }

 private:
  // Adds the parts of `batch` along its first dimension one by one.
  static Status add_each(KernelContext& ctx, SparseTensorsMap& map, const SparseEntry& batch) {
    const int64_t rank = static_cast<int64_t>(batch.dims.size());
    if (rank < 2) {
      return invalid_argument("Rank of input SparseTensor should be > 1, but saw rank: ", rank);
    }
    const int64_t count = batch.dims[0];
    MR_TRY(check_row_by_row(count));
    const int64_t* at = batch.indices.data<int64_t>().data();
    const int64_t values = batch.values.dim(0);
    for (int64_t i = 0; i < values; ++i) {
      const int64_t part = at[i * rank];
      if (part < 0 || part >= count || (i > 0 && part < at[(i - 1) * rank])) {
        return invalid_argument("sparse_indices must be in order and below ", count,
                                " in their first column, got ", part, " in row ", i);
      }
    }
    MR_TRY_ASSIGN(Tensor * handles, ctx.allocate_output(0, Shape{count}));
    const std::span<int64_t> out = handles->mutable_data<int64_t>();
    // There may be far more parts without elements than with some, and they are all alike.
    SparseEntry none;
    MR_TRY_ASSIGN(none.indices, ctx.allocate_temp(DType::kInt64, Shape{0, rank - 1}));
    MR_TRY_ASSIGN(none.values, batch.values.rows(0, 0).clone());
    none.dims.assign(batch.dims.begin() + 1, batch.dims.end());
    int64_t begin = 0;
    for (int64_t part = 0; part < count; ++part) {
      int64_t end = begin;
      while (end < values && at[end * rank] == part) ++end;
      SparseEntry entry = none;
      if (end > begin) {
        MR_TRY_ASSIGN(entry.indices,
                      ctx.allocate_temp(DType::kInt64, Shape{end - begin, rank - 1}));
        int64_t* to = entry.indices.mutable_data<int64_t>().data();
        for (int64_t i = begin; i < end; ++i) to = std::copy_n(at + i * rank + 1, rank - 1, to);
        MR_TRY_ASSIGN(entry.values, batch.values.rows(begin, end).clone());
      }
      out[static_cast<size_t>(part)] = map.add(std::move(entry));
      begin = end;
    }
    return ok_status();
  }

  const StateName name_;
};

class TakeSparse : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(StateName name, StateName::make(node));
    MR_TRY_ASSIGN(const DType dtype, node.attr<DType>("dtype"));
    std::string of_node = ResourceManager::session_name(
        node.session_prefix, name.shared_name.empty() ? node.name : name.shared_name);
    return std::make_unique<TakeSparse>(std::move(name), std::move(of_node), dtype);
  }
  TakeSparse(StateName name, std::string of_node, DType dtype)
      : name_(std::move(name)), of_node_(std::move(of_node)), dtype_(dtype) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 1));
    if (ctx.input(0).dim(0) == 0) {
      return invalid_argument("Must have at least 1 sparse_handle, got none");
    }
    MR_TRY_ASSIGN(Ref<SparseTensorsMap> map, find(ctx));
    MR_TRY_ASSIGN(const Indices handles, Indices::read(ctx, ctx.input(0)));
    MR_TRY_ASSIGN(std::vector<SparseEntry> entries, map->take(handles.span()));
    return stack(ctx, entries);
  }

 private:
  // The map that a node of that name made for itself, or one shared under the name.
  Result<Ref<SparseTensorsMap>> find(KernelContext& ctx) const {
    const std::string_view container = container_or_default(name_.container);
    Result<Ref<SparseTensorsMap>> own =
        ctx.resources().lookup<SparseTensorsMap>(container, of_node_);
    if (own.ok() || name_.shared_name.empty()) return own;
    return ctx.resources().lookup<SparseTensorsMap>(container, name_.shared_name);
  }

  Status stack(KernelContext& ctx, std::span<const SparseEntry> entries) const {
    const std::vector<int64_t>& first = entries[0].dims;
    std::vector<int64_t> dims = {static_cast<int64_t>(entries.size())};
    dims.insert(dims.end(), first.begin(), first.end());
    int64_t total = 0;
    for (const SparseEntry& entry : entries) {
      const ptrdiff_t i = &entry - entries.data();
      if (entry.values.dtype() != dtype_) {
        return invalid_argument("Requested SparseTensor of type ", dtype_, " but SparseTensor[", i,
                                "].values.dtype() == ", entry.values.dtype());
      }
      if (entry.dims.size() != first.size()) {
        return invalid_argument(
            "Inconsistent rank across SparseTensors: rank prior to SparseTensor[", i,
            "] was: ", first.size() + 1, " but rank of SparseTensor[", i,
            "] is: ", entry.dims.size() + 1);
      }
      for (size_t d = 0; d < first.size(); ++d) dims[d + 1] = std::max(dims[d + 1], entry.dims[d]);
      total += entry.values.dim(0);
    }
    const int64_t rank = static_cast<int64_t>(dims.size());
    MR_TRY_ASSIGN(Tensor * indices, ctx.allocate_output(0, Shape{total, rank}));
    MR_TRY_ASSIGN(Tensor * values, ctx.allocate_output(1, Shape{total}));
    int64_t* to = indices->mutable_data<int64_t>().data();
    int64_t begin = 0;
    for (size_t i = 0; i < entries.size(); ++i) {
      const int64_t count = entries[i].values.dim(0);
      const int64_t* from = entries[i].indices.data<int64_t>().data();
      for (int64_t k = 0; k < count; ++k) {
        *to++ = static_cast<int64_t>(i);
        to = std::copy_n(from + k * (rank - 1), rank - 1, to);
      }
      Tensor part = values->rows(begin, begin + count);
      copy_elements(entries[i].values, part);
      begin += count;
    }
    ctx.set_output(2, Tensor::vector<int64_t>(dims));
    return ok_status();
  }

  const StateName name_;
  const std::string of_node_;
  const DType dtype_;
};

}  // namespace

void register_sparse_tensors_map(Registry& registry) {
  const std::vector<OpSpec::Attr> attrs = {
      {"container", "string = ''"},
      {"shared_name", "string = ''", "Nodes with the same name share a map."}};
  const std::vector<OpSpec::Arg> sparse = {
      {"sparse_indices", "int64"}, {"sparse_values", "T"}, {"sparse_shape", "host(int64)"}};
  registry.add({.name = "AddSparseToTensorsMap",
                .doc = "Keeps a sparse tensor, and gives the number it is kept under.",
                .inputs = sparse,
                .outputs = {{"sparse_handle", "int64"}},
                .types = {{"T", {}}},
                .attrs = attrs,
                .traits = {.stateful = true, .owns_state = true, .cannot_differentiate = true},
                .shape = add_shape});
  registry.kernel({.op = "AddSparseToTensorsMap", .factory = AddSparse<false>::make});
  registry.add({.name = "AddManySparseToTensorsMap",
                .doc = "Keeps the parts of a sparse tensor along its first dimension.",
                .inputs = sparse,
                .outputs = {{"sparse_handles", "int64"}},
                .types = {{"T", {}}},
                .attrs = attrs,
                .traits = {.stateful = true, .owns_state = true, .cannot_differentiate = true},
                .shape = add_many_shape});
  registry.kernel({.op = "AddManySparseToTensorsMap", .factory = AddSparse<true>::make});
  registry.add(
      {.name = "TakeManySparseFromTensorsMap",
       .doc = "Takes sparse tensors by their numbers and stacks them along a new first dimension.",
       .inputs = {{"sparse_handles", "int64"}},
       .outputs = {{"sparse_indices", "int64"},
                   {"sparse_values", "dtype"},
                   {"sparse_shape", "host(int64)"}},
       .types = {{"dtype", {}}},
       .attrs = {attrs[0], {"shared_name", "string = ''", "Of the node that added them."}},
       .traits = {.stateful = true, .cannot_differentiate = true},
       .shape = take_shape});
  registry.kernel({.op = "TakeManySparseFromTensorsMap", .factory = TakeSparse::make});
}

}  // namespace millrace
