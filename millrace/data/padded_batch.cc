// Batches of elements whose sizes differ, made equal by padding.

#include <algorithm>
#include <cstring>

#include "millrace/data/batch.h"
#include "millrace/data/batch_rows.h"
#include "millrace/data/dataset_op.h"
#include "millrace/data/state.h"

namespace millrace::data {
namespace {

class PaddedBatchDataset final : public Dataset {
 public:
  PaddedBatchDataset(ElementSpec spec, Ref<Dataset> input, int64_t size, bool drop_remainder,
                     std::vector<PartialShape> padded_shapes, Element padding)
      : Dataset("PaddedBatch", std::move(spec), {std::move(input)}, size > kLong),
        batch_size_(size),
        drop_remainder_(drop_remainder),
        padded_shapes_(std::move(padded_shapes)),
        padding_(std::move(padding)) {}
  int64_t size() const override {
    return batches_of(inputs()[0]->size(), batch_size_, drop_remainder_);
  }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  template <bool kMayDrop>
  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node(), "Toutput_types"));
    MR_TRY_ASSIGN(const int64_t size, count_input(ctx, 1, "Batch size", 1));
    MR_TRY_ASSIGN(const int64_t n, ctx.node().attr<int64_t>("N"));
    const int count = static_cast<int>(n);
    if (spec.types.size() != static_cast<size_t>(n)) {
      return invalid_argument("expected a padded shape for each of ", spec.types.size(),
                              " components, got ", n);
    }
    std::vector<PartialShape> shapes;
    Element padding;
    for (int i = 0; i < count; ++i) {
      MR_TRY_ASSIGN(const std::vector<int64_t> dims, ctx.int_vector_input(2 + i));
      MR_TRY_ASSIGN(PartialShape shape, PartialShape::make(dims));
      shapes.push_back(std::move(shape));
      MR_TRY_ASSIGN(Tensor value, kept_input(ctx, 2 + count + i));
      if (value.rank() != 0) {
        return invalid_argument("All padding values must be scalars, got ", value.shape(),
                                " for component ", i);
      }
      padding.push_back(std::move(value));
    }
    bool drop = false;
    if constexpr (kMayDrop) {
      MR_TRY_ASSIGN(drop, ctx.scalar_input<bool>(2 + 2 * count));
    }
    return make_ref<PaddedBatchDataset>(std::move(spec), std::move(input), size, drop,
                                        std::move(shapes), std::move(padding));
  }

  const int64_t batch_size_;
  const bool drop_remainder_;
  const std::vector<PartialShape> padded_shapes_;  // of an element; unknown sizes: the largest
  const Element padding_;
};

// Writes `value` to all elements of `tensor`.
Status fill(Tensor& tensor, const Tensor& value) {
  if (!is_plain(tensor.dtype())) {
    for (int64_t i = 0; i < tensor.num_elements(); ++i) copy_into(value, tensor, i);
    return ok_status();
  }
  const size_t size = dtype_size(tensor.dtype()), bytes = tensor.bytes();
  auto* to = static_cast<char*>(tensor.mutable_raw());
  if (bytes == 0) return ok_status();
  std::memcpy(to, value.raw(), size);
  // Doubles what is filled until all is.
  for (size_t done = size; done < bytes;) {
    const size_t more = std::min(done, bytes - done);
    std::memcpy(to + done, to, more);
    done += more;
  }
  return ok_status();
}

// Copies `from` to the corner of row `row` of `batch`, run by run of the last dimension.
void copy_to_corner(const Tensor& from, Tensor& batch, int64_t row) {
  const Shape& inner = from.shape();
  const int rank = inner.rank();
  if (from.num_elements() == 0) return;
  int64_t row_elements = 1;
  for (int d = 1; d < batch.rank(); ++d) row_elements *= batch.dim(d);
  const int64_t run = rank == 0 ? 1 : inner.dim(rank - 1);
  std::vector<int64_t> at(static_cast<size_t>(std::max(rank - 1, 0)), 0);
  for (int64_t done = 0; done < from.num_elements(); done += run) {
    int64_t offset = 0;
    for (int d = 0; d < rank; ++d) {
      offset = offset * batch.dim(d + 1) + (d < rank - 1 ? at[static_cast<size_t>(d)] : 0);
    }
    const size_t size = dtype_size(from.dtype());
    const Tensor part(from.dtype(), Shape{run}, from.buffer(),
                      from.offset() + static_cast<size_t>(done) * size);
    copy_into(part, batch, row * row_elements + offset);
    for (int d = rank - 2; d >= 0; --d) {
      if (++at[static_cast<size_t>(d)] < inner.dim(d)) break;
      at[static_cast<size_t>(d)] = 0;
    }
  }
}

class PaddedBatchIterator final : public IteratorOverInput<PaddedBatchDataset> {
 public:
  using IteratorOverInput::IteratorOverInput;

 protected:
  Status own_fields(StateFields& state) override { return state.flag(ended_); }
  Status produce(Element& out, bool& end) override {
    std::vector<Element> rows;
    const auto size = static_cast<size_t>(dataset().batch_size_);
    while (!ended_ && rows.size() < size) {
      if (environment().stopped()) return environment().status();
      Element row;
      MR_TRY(input().next(row, ended_));
      if (!ended_) rows.push_back(std::move(row));
    }
    end = rows.empty() || (dataset().drop_remainder_ && rows.size() < size);
    if (end) return ok_status();
    out.clear();
    for (size_t i = 0; i < dataset().padded_shapes_.size(); ++i) {
      MR_TRY_ASSIGN(Tensor batch, join(rows, i));
      out.push_back(std::move(batch));
    }
    return ok_status();
  }

 private:
  Result<Tensor> join(const std::vector<Element>& rows, size_t component) const {
    const PartialShape& padded = dataset().padded_shapes_[component];
    const Tensor& value = dataset().padding_[component];
    std::vector<int64_t> dims = {static_cast<int64_t>(rows.size())};
    dims.insert(dims.end(), padded.dims().begin(), padded.dims().end());
    for (const Element& row : rows) {
      if (component >= row.size()) {
        return invalid_argument("expected elements of ", dataset().padded_shapes_.size(),
                                " components, got ", row.size());
      }
      const Tensor& tensor = row[component];
      if (tensor.dtype() != value.dtype()) {
        return invalid_argument("Mismatched type between padding value ", component,
                                " and input dataset's component ", component, ": ", value.dtype(),
                                " vs. ", tensor.dtype());
      }
      if (tensor.rank() != padded.rank()) {
        return invalid_argument(
            "All elements in a batch must have the same rank as the padded "
            "shape for component ",
            component, ": expected rank ", padded.rank(), " but got element ", "with rank ",
            tensor.rank());
      }
      for (int d = 0; d < tensor.rank(); ++d) {
        int64_t& dim = dims[static_cast<size_t>(d) + 1];
        if (!padded.dim_known(d)) {
          dim = std::max(dim, tensor.dim(d));
        } else if (tensor.dim(d) > dim) {
          return data_loss("Attempted to pad to a smaller size than the input element.: ",
                           tensor.shape(), " does not fit in ", padded);
        }
      }
    }
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(Tensor batch, Tensor::allocate(value.dtype(), shape));
    MR_TRY(fill(batch, value));
    for (size_t r = 0; r < rows.size(); ++r) {
      copy_to_corner(rows[r][component], batch, static_cast<int64_t>(r));
    }
    return batch;
  }

  bool ended_ = false;
};

Result<std::unique_ptr<Iterator>> PaddedBatchDataset::iterate(const Iteration& iteration) const {
  return iterate_over_input<PaddedBatchIterator>(*this, iteration);
}

}  // namespace

void register_padded_batch(Registry& registry) {
  OpSpec spec = {
      .name = "PaddedBatchDataset",
      .doc = "Joins elements to batches, all as large as the largest.",
      .inputs = {{"input_dataset", "variant"},
                 {"batch_size", "int64"},
                 {"padded_shapes", "N*int64", "Of elements; -1: as large as the largest."},
                 {"padding_values", "list(Toutput_types)"}},
      .attrs = {{"Toutput_types", "list(type) >= 1"},
                {"output_shapes", "list(shape) >= 1"},
                {"N", "int >= 1"}}};
  add_source_op(registry, spec, dataset_kernel<PaddedBatchDataset::make<false>>);
  spec.name = "PaddedBatchDatasetV2";
  spec.inputs.push_back({"drop_remainder", "bool", "Leave out a last batch that is smaller."});
  spec.attrs.insert(spec.attrs.begin(), {"parallel_copy", "bool = false"});
  add_source_op(registry, spec, dataset_kernel<PaddedBatchDataset::make<true>>);
}

}  // namespace millrace::data
