// Optimisers that update the rows of a variable which `indices` names. A row that is named several
// times takes its gradients in their order, whatever the number of threads.

#include <algorithm>

#include "millrace/graph/shape_context.h"
#include "millrace/ops/indices.h"
#include "millrace/ops/state/variable_update.h"
#include "millrace/ops/training/optimizer_op.h"

namespace millrace {
namespace {

// INVALID_ARGUMENT unless grad has one row of the variable for each index.
Status check_gradient_shape(const PartialShape& variable, const PartialShape& indices,
                            const PartialShape& grad) {
  if (variable.rank() == 0) return invalid_argument("var must have rank 1 or more, got []");
  if (indices.rank_known() && indices.rank() != 1) {
    return invalid_argument("indices must be a vector, got ", indices);
  }
  if (!variable.rank_known()) return ok_status();
  PartialShape expected = PartialShape::of_rank(variable.rank());
  if (indices.rank_known()) expected.set_dim(0, indices.dim(0));
  for (int i = 1; i < variable.rank(); ++i) expected.set_dim(i, variable.dim(i));
  if (expected.compatible(grad)) return ok_status();
  return invalid_argument("grad must have one row of var for each index, ", expected, ", got ",
                          grad);
}

Status sparse_apply_shape(ShapeContext& c) {
  const OptimizerInfo& info = optimizer_info(optimizer_of(c.op().name));
  const int slots = info.num_slots(), gradient = slots + info.gradient_place();
  const bool resource = c.input_type(0) == DType::kResource;
  PartialShape shape;
  for (int k = 0; k < slots; ++k) {
    PartialShape slot = c.input(k);
    if (resource) {
      MR_TRY_ASSIGN(slot, variable_shape(c, k, c.input_type(gradient)));
    }
    Result<PartialShape> merged = shape.merge(slot);
    if (!merged.ok()) {
      return invalid_argument(info.slots[k], " must have the shape of var, ", shape, ", got ",
                              slot);
    }
    shape = *merged;
  }
  for (int i = slots; i < c.num_inputs(); ++i) {
    if (i == gradient || i == gradient + 1) continue;
    MR_TRY_ASSIGN(PartialShape scalar, c.with_rank(i, 0));
  }
  MR_TRY(check_gradient_shape(shape, c.input(gradient + 1), c.input(gradient)));
  if (c.num_outputs() > 0) c.set_output(0, std::move(shape));
  return ok_status();
}

class SparseApply : public Kernel {
 public:
  explicit SparseApply(const OptimizerFunction& function) : function_(function) {}

  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(OptimizerFunction function, OptimizerFunction::make(node));
    return std::make_unique<SparseApply>(function);
  }

  Status compute(KernelContext& ctx) const override {
    const OptimizerInfo& info = function_.info();
    MR_TRY_ASSIGN(OptimizerScalars scalars, function_.read_scalars(ctx));
    const Tensor& grad = ctx.input(function_.gradient_input());
    const Tensor& indices = ctx.input(function_.gradient_input() + 1);
    VariableUpdate update(ctx, function_.use_locking());
    MR_TRY(update.open(info.num_slots(), function_.dtype()));
    const Shape shape = update.tensor(0).shape();
    for (int k = 1; k < info.num_slots(); ++k) {
      if (update.tensor(k).shape() == shape) continue;
      return invalid_argument(info.slots[k], " must have the shape of var, ", shape, ", got ",
                              update.tensor(k).shape());
    }
    MR_TRY(check_gradient_shape(shape, indices.shape(), grad.shape()));
    MR_TRY_ASSIGN(const Indices rows, Indices::read_below(ctx, indices, shape.dim(0)));
    const int64_t width = shape.without_first().num_elements();
    if (rows.size() > 0 && width > 0) {
      Work work = {.scalars = scalars,
                   .targets = rows.data(),
                   .grad = static_cast<const char*>(grad.raw()),
                   .count = rows.size(),
                   .width = width};
      for (int k = 0; k < info.num_slots(); ++k) {
        MR_TRY_ASSIGN(Tensor * tensor, update.writable(k));
        work.slots[k] = static_cast<char*>(tensor->mutable_raw());
      }
      MR_TRY(apply(ctx, work));
    }
    update.forward();
    return ok_status();
  }

 private:
  static constexpr int kMaxSlots = OptimizerInfo::kMaxSlots;

  struct Work {
    const OptimizerScalars& scalars;
    char* slots[kMaxSlots] = {};
    const int64_t* targets;
    const char* grad;
    int64_t count;
    int64_t width;
  };

  Status apply(KernelContext& ctx, const Work& work) const {
    constexpr int64_t kWide = 4096;
    constexpr double kWorthSharing = 30'000;
    if (work.width >= kWide) {
      by_columns(ctx, work);
      return ok_status();
    }
    const int64_t buckets = std::min(work.count / 4, kMostBuckets);
    if (buckets > 1 && row_cost(work.width) * static_cast<double>(work.count) > kWorthSharing) {
      return by_rows(ctx, work, buckets);
    }
    columns(work, 0, work.width);
    return ok_status();
  }

  // Nanoseconds for one row.
  double row_cost(int64_t width) const {
    return 10 + static_cast<double>(function_.info().cost) * static_cast<double>(width);
  }

  // Columns [begin, end) of all rows, in order.
  void columns(const Work& work, int64_t begin, int64_t end) const {
    constexpr int64_t kChunk = 256;
    int64_t sources[kChunk];
    void* slots[kMaxSlots];
    const int64_t offset = begin * element_size();
    for (int k = 0; k < function_.info().num_slots(); ++k) slots[k] = work.slots[k] + offset;
    for (int64_t i = 0; i < work.count; i += kChunk) {
      const int64_t n = std::min(work.count - i, kChunk);
      for (int64_t j = 0; j < n; ++j) sources[j] = i + j;
      const ApplyRows rows = {work.targets + i, sources, n, work.width, end - begin};
      function_(rows, slots, work.grad + offset, work.scalars);
    }
  }

  // Threads share the columns: each element sees its gradients in order.
  void by_columns(KernelContext& ctx, const Work& work) const {
    constexpr int64_t kStrip = 1024;
    const double cost = static_cast<double>(work.count) * row_cost(kStrip);
    const int64_t strips = (work.width + kStrip - 1) / kStrip;
    ctx.parallel_for(strips, cost, [&](int64_t first, int64_t last) {
      columns(work, first * kStrip, std::min(last * kStrip, work.width));
    });
  }

  static int64_t bucket_of(int64_t row, int64_t buckets) {
    const uint64_t mixed = static_cast<uint64_t>(row) * 0x9e3779b97f4a7c15U;
    return static_cast<int64_t>((mixed >> 32) * static_cast<uint64_t>(buckets) >> 32);
  }

  // Threads share buckets of rows. All gradients of a row are in one bucket, in order.
  Status by_rows(KernelContext& ctx, const Work& work, int64_t buckets) const {
    MR_TRY_ASSIGN(Tensor sorted, ctx.allocate_temp(DType::kInt64, Shape{2, work.count}));
    int64_t* targets = sorted.mutable_data<int64_t>().data();
    int64_t* sources = targets + work.count;
    int64_t starts[kMostBuckets + 1] = {}, next[kMostBuckets];
    for (int64_t i = 0; i < work.count; ++i) ++starts[bucket_of(work.targets[i], buckets) + 1];
    for (int64_t b = 0; b < buckets; ++b) {
      next[b] = starts[b];
      starts[b + 1] += starts[b];
    }
    for (int64_t i = 0; i < work.count; ++i) {
      const int64_t place = next[bucket_of(work.targets[i], buckets)]++;
      targets[place] = work.targets[i];
      sources[place] = i;
    }
    void* slots[kMaxSlots];
    for (int k = 0; k < function_.info().num_slots(); ++k) slots[k] = work.slots[k];
    const double cost =
        row_cost(work.width) * static_cast<double>(work.count) / static_cast<double>(buckets);
    ctx.parallel_for(buckets, cost, [&](int64_t first, int64_t last) {
      const int64_t begin = starts[first];
      const ApplyRows rows = {targets + begin, sources + begin, starts[last] - begin, work.width,
                              work.width};
      function_(rows, slots, work.grad, work.scalars);
    });
    return ok_status();
  }

  int64_t element_size() const { return static_cast<int64_t>(dtype_size(function_.dtype())); }

  static constexpr int64_t kMostBuckets = 64;

  const OptimizerFunction function_;
};

}  // namespace

void register_sparse_apply(Registry& registry) {
  add_optimizer_ops(registry, kSparseForms, sparse_apply_shape, &SparseApply::make);
}

}  // namespace millrace
