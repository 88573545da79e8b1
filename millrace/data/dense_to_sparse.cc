// Batches of elements whose sizes differ, as sparse tensors.

#include <algorithm>

#include "millrace/data/batch.h"
#include "millrace/data/batch_rows.h"
#include "millrace/data/dataset_op.h"
#include "millrace/data/state.h"
#include "millrace/tensor/tensor_variant.h"

namespace millrace::data {
namespace {

class DenseToSparseDataset final : public Dataset {
 public:
  DenseToSparseDataset(ElementSpec spec, Ref<Dataset> input, int64_t size, PartialShape row_shape)
      : Dataset("DenseToSparseBatch", std::move(spec), {std::move(input)}, true),
        batch_size_(size),
        row_shape_(std::move(row_shape)) {}
  int64_t size() const override { return batches_of(inputs()[0]->size(), batch_size_, false); }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
    MR_TRY_ASSIGN(const int64_t size, count_input(ctx, 1, "Batch size", 1));
    MR_TRY_ASSIGN(const std::vector<int64_t> dims, ctx.int_vector_input(2));
    MR_TRY_ASSIGN(PartialShape row_shape, PartialShape::make(dims));
    if (input->spec().types.size() != 1) {
      return invalid_argument(
          "DenseToSparseBatchDataset only supports inputs with a single "
          "component, got ",
          input->spec().types.size());
    }
    return make_ref<DenseToSparseDataset>(std::move(spec), std::move(input), size,
                                          std::move(row_shape));
  }

  const int64_t batch_size_;
  const PartialShape row_shape_;  // unknown sizes: the largest
};

class DenseToSparseIterator final : public IteratorOverInput<DenseToSparseDataset> {
 public:
  using IteratorOverInput::IteratorOverInput;

 protected:
  Status own_fields(StateFields& state) override { return state.flag(ended_); }
  Status produce(Element& out, bool& end) override {
    std::vector<Tensor> rows;
    while (!ended_ && static_cast<int64_t>(rows.size()) < dataset().batch_size_) {
      if (environment().stopped()) return environment().status();
      Element row;
      MR_TRY(input().next(row, ended_));
      if (ended_) break;
      if (row.size() != 1) {
        return invalid_argument("expected elements of 1 component, got ", row.size());
      }
      rows.push_back(std::move(row[0]));
    }
    end = rows.empty();
    if (end) return ok_status();
    MR_TRY_ASSIGN(Tensor joined, join(rows));
    out = {std::move(joined)};
    return ok_status();
  }

 private:
  // The sizes of the batch; INVALID_ARGUMENT or DATA_LOSS for a row that does not fit in.
  Result<std::vector<int64_t>> sizes_of(const std::vector<Tensor>& rows) const {
    const PartialShape& shape = dataset().row_shape_;
    std::vector<int64_t> sizes = {static_cast<int64_t>(rows.size())};
    for (int d = 0; d < shape.rank(); ++d) sizes.push_back(std::max<int64_t>(shape.dim(d), 0));
    for (const Tensor& row : rows) {
      if (row.rank() != shape.rank() || row.dtype() != rows[0].dtype()) {
        return invalid_argument("Input element had shape ", row.shape(),
                                " that is incompatible with the row shape ", shape);
      }
      for (int d = 0; d < shape.rank(); ++d) {
        int64_t& size = sizes[static_cast<size_t>(d) + 1];
        if (!shape.dim_known(d)) {
          size = std::max(size, row.dim(d));
        } else if (row.dim(d) > size) {
          return data_loss("Input element had shape ", row.shape(),
                           " that is larger than the row shape ", shape);
        }
      }
    }
    return sizes;
  }

  Result<Tensor> join(const std::vector<Tensor>& rows) const {
    MR_TRY_ASSIGN(const std::vector<int64_t> sizes, sizes_of(rows));
    int64_t count = 0;
    for (const Tensor& row : rows) count += row.num_elements();
    const auto rank = static_cast<int64_t>(sizes.size());
    MR_TRY_ASSIGN(Tensor indices, Tensor::allocate(DType::kInt64, Shape{count, rank}));
    MR_TRY_ASSIGN(Tensor values, Tensor::allocate(rows[0].dtype(), Shape{count}));
    int64_t* index = indices.mutable_data<int64_t>().data();
    int64_t at = 0;
    for (size_t r = 0; r < rows.size(); ++r) {
      const Tensor& row = rows[r];
      copy_into(row, values, at);
      at += row.num_elements();
      for (int64_t i = 0; i < row.num_elements(); ++i, index += rank) {
        index[0] = static_cast<int64_t>(r);
        int64_t left = i;
        for (int d = row.rank(); d-- > 0; left /= row.dim(d)) index[d + 1] = left % row.dim(d);
      }
    }
    return sparse_in_variants(std::move(indices), std::move(values),
                              Tensor::vector(std::span<const int64_t>(sizes)));
  }

  bool ended_ = false;
};

Result<std::unique_ptr<Iterator>> DenseToSparseDataset::iterate(const Iteration& iteration) const {
  return iterate_over_input<DenseToSparseIterator>(*this, iteration);
}

}  // namespace

void register_dense_to_sparse(Registry& registry) {
  for (const char* name : {"DenseToSparseBatchDataset", "ExperimentalDenseToSparseBatchDataset"}) {
    add_dataset_op(registry,
                   {.name = std::string_view(name),
                    .doc = "Batches of elements whose sizes differ, as sparse tensors in variants.",
                    .inputs = {{"input_dataset", "variant"},
                               {"batch_size", "int64"},
                               {"row_shape", "int64", "A vector; -1: as large as the largest."}}},
                   dataset_kernel<DenseToSparseDataset::make>);
  }
}

}  // namespace millrace::data
