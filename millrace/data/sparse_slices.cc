// The rows of a sparse tensor.

#include "millrace/data/counting_iterator.h"
#include "millrace/data/dataset_op.h"
#include "millrace/graph/shape_context.h"

namespace millrace::data {
namespace {

// The rows of a sparse tensor, each as indices, values and shape.
class SparseTensorSliceDataset final : public Dataset {
 public:
  SparseTensorSliceDataset(ElementSpec spec, Tensor indices, Tensor values, Tensor shape,
                           std::vector<int64_t> begins)
      : Dataset("SparseTensorSlice", std::move(spec)),
        indices_(std::move(indices)),
        values_(std::move(values)),
        shape_(std::move(shape)),
        begins_(std::move(begins)) {}
  int64_t size() const override { return shape_.data<int64_t>()[0]; }
  Status get(int64_t row, Element& out) const {
    // Rows without values have no entry: begins_ is searched.
    auto values = indices_.data<int64_t>();
    const int64_t width = indices_.dim(1);
    const auto first_at_least = [&](int64_t r) {
      size_t low = 0, high = begins_.size() - 1;
      while (low < high) {
        const size_t middle = (low + high) / 2;
        if (values[static_cast<size_t>(begins_[middle] * width)] < r) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      return begins_[low];
    };
    const int64_t begin = first_at_least(row), end = first_at_least(row + 1);
    MR_TRY_ASSIGN(Tensor indices, Tensor::allocate(DType::kInt64, Shape{end - begin, width - 1}));
    auto to = indices.mutable_data<int64_t>();
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t k = 1; k < width; ++k) {
        to[static_cast<size_t>((i - begin) * (width - 1) + k - 1)] =
            values[static_cast<size_t>(i * width + k)];
      }
    }
    out = {std::move(indices), values_.rows(begin, end), shape_.rows(1, shape_.dim(0))};
    return ok_status();
  }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override {
    return std::make_unique<CountingIterator<SparseTensorSliceDataset>>(*this, iteration);
  }

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    for (int i = 0; i < 3; ++i) MR_TRY(expect_rank(ctx, i, i == 0 ? 2 : 1));
    MR_TRY_ASSIGN(Tensor indices, kept_input(ctx, 0));
    MR_TRY_ASSIGN(Tensor values, kept_input(ctx, 1));
    MR_TRY_ASSIGN(Tensor shape, kept_input(ctx, 2));
    const int64_t count = indices.dim(0), width = indices.dim(1);
    if (width < 1 || values.dim(0) != count || shape.dim(0) != width) {
      return invalid_argument("indices ", indices.shape(), ", values ", values.shape(),
                              " and dense_shape ", shape.shape(), " are of no sparse tensor");
    }
    if (shape.data<int64_t>()[0] < 0) {
      return invalid_argument("dense_shape must not be negative, got ", shape.data<int64_t>()[0]);
    }
    std::vector<int64_t> begins;
    auto index = indices.data<int64_t>();
    int64_t last = -1;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = index[static_cast<size_t>(i * width)];
      if (row < 0) return invalid_argument("index ", i, " is in row ", row, ", which is negative");
      if (row < last || row >= shape.data<int64_t>()[0]) {
        return unimplemented("the SparseTensor must be ordered by its first dimension: row ", row,
                             " comes after ", last, ", of ", shape.data<int64_t>()[0]);
      }
      if (row > last) begins.push_back(i);
      last = row;
    }
    begins.push_back(count);
    ElementSpec spec = {{DType::kInt64, values.dtype(), DType::kInt64},
                        {PartialShape{-1, width - 1}, PartialShape{-1}, PartialShape{width - 1}}};
    return make_ref<SparseTensorSliceDataset>(std::move(spec), std::move(indices),
                                              std::move(values), std::move(shape),
                                              std::move(begins));
  }

 private:
  const Tensor indices_, values_, shape_;
  const std::vector<int64_t> begins_;
};

Status make_sparse_slices(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Dataset> dataset, SparseTensorSliceDataset::make(ctx));
  ctx.set_output(0, dataset_tensor(std::move(dataset)));
  return ok_status();
}

Status sparse_slices_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 2).status());
  MR_TRY(c.with_rank(1, 1).status());
  MR_TRY(c.with_rank(2, 1).status());
  return shape_rules::scalar(c);
}

}  // namespace

void register_sparse_slices(Registry& registry) {
  registry.add({.name = "SparseTensorSliceDataset",
                .doc = "A dataset of the rows of a sparse tensor.",
                .inputs = {{"indices", "host(int64)"},
                           {"values", "host(Tvalues)"},
                           {"dense_shape", "host(int64)"}},
                .outputs = {{"handle", "variant"}},
                .types = {{"Tvalues", {}}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = sparse_slices_shape});
  registry.kernel("SparseTensorSliceDataset", DeviceKind::kCpu, make_sparse_slices);
}

}  // namespace millrace::data
