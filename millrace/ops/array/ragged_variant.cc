// Ragged tensors as variants: how datasets hand on elements whose rows differ in length, one
// variant for each.

#include <algorithm>
#include <string>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/element.h"
#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

// The splits of each ragged dimension, the outermost first, and the values.
class RaggedVariant final : public VariantObject {
 public:
  static constexpr std::string_view kTypeName = "RaggedTensorVariant";

  RaggedVariant(std::vector<Tensor> splits, Tensor values)
      : splits_(std::move(splits)), values_(std::move(values)) {}
  const std::vector<Tensor>& splits() const { return splits_; }
  const Tensor& values() const { return values_; }
  // How many rows there are; of a scalar 1.
  int64_t rows() const {
    if (!splits_.empty()) return splits_[0].num_elements() - 1;
    return values_.rank() == 0 ? 1 : values_.dim(0);
  }

  std::string_view type_name() const override { return kTypeName; }
  Status encode(std::string& metadata, std::vector<Tensor>& tensors) const override {
    metadata.clear();
    tensors = splits_;
    tensors.push_back(values_);
    return ok_status();
  }
  static Result<Ref<VariantObject>> decode(std::string_view, std::vector<Tensor> tensors);

 private:
  const std::vector<Tensor> splits_;
  const Tensor values_;
};

int64_t split_at(const Tensor& splits, int64_t i) {
  const auto at = static_cast<size_t>(i);
  return splits.dtype() == DType::kInt32 ? splits.data<int32_t>()[at] : splits.data<int64_t>()[at];
}

// INVALID_ARGUMENT unless each of the splits divides the rows of the next, the last one those of
// `values`.
Status check_splits(const std::vector<Tensor>& splits, const Tensor& values) {
  for (size_t k = 0; k < splits.size(); ++k) {
    const Tensor& s = splits[k];
    const bool is_index = s.dtype() == DType::kInt32 || s.dtype() == DType::kInt64;
    if (!is_index || s.rank() != 1 || s.num_elements() == 0) {
      return invalid_argument("splits ", k, " must be a vector of integers, not empty, got ",
                              s.dtype(), " of shape ", s.shape());
    }
    const bool last = k + 1 == splits.size();
    if (last && values.rank() == 0) {
      return invalid_argument("the values of a ragged tensor must have rows, got a scalar");
    }
    const int64_t rows = last ? values.dim(0) : splits[k + 1].num_elements() - 1;
    const int64_t count = s.num_elements();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t from = i == 0 ? 0 : split_at(s, i - 1), at = split_at(s, i);
      if (at < from || (i == 0 && at != 0) || (i + 1 == count && at != rows)) {
        return invalid_argument("Splits must begin with 0, never fall and end with the number of ",
                                "rows, ", rows, ", got ", at, " at ", i, " of splits ", k);
      }
    }
  }
  return ok_status();
}

Result<Ref<VariantObject>> RaggedVariant::decode(std::string_view, std::vector<Tensor> tensors) {
  if (tensors.empty()) return invalid_argument("a ragged tensor in a variant needs its values");
  Tensor values = std::move(tensors.back());
  tensors.pop_back();
  MR_TRY(check_splits(tensors, values));
  return Ref<VariantObject>(make_ref<RaggedVariant>(std::move(tensors), std::move(values)));
}

// Elements [begin, end] of splits, less the first of them.
Result<Tensor> splits_from(const Tensor& splits, int64_t begin, int64_t end) {
  MR_TRY_ASSIGN(Tensor out, Tensor::allocate(splits.dtype(), Shape{end - begin + 1}));
  MR_TRY(dispatch<IndexTypes>(splits.dtype(), [&]<class T>() {
    const std::span<const T> from = splits.data<T>();
    const std::span<T> to = out.mutable_data<T>();
    for (int64_t i = begin; i <= end; ++i) {
      to[static_cast<size_t>(i - begin)] =
          from[static_cast<size_t>(i)] - from[static_cast<size_t>(begin)];
    }
  }));
  return out;
}

// Of numbers of rows: there may be a great many of empty ones.
Result<int64_t> sum_of(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) {
    return invalid_argument("ragged tensors of ", a, " and ", b, " rows are too many to join");
  }
  return sum;
}

// Input i in memory that is nobody else's.
Result<Tensor> kept(const KernelContext& ctx, int i) {
  const Tensor& input = ctx.input(i);
  if (input.buffer() && input.buffer()->borrowed()) return input.clone();
  return input;
}

class RaggedToVariant : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool batched, node.attr<bool>("batched_input"));
    return std::make_unique<RaggedToVariant>(batched);
  }
  explicit RaggedToVariant(bool batched) : batched_(batched) {}

  Status compute(KernelContext& ctx) const override {
    const int rank = ctx.num_inputs() - 1;
    std::vector<Tensor> splits;
    for (int k = 0; k < rank; ++k) {
      MR_TRY_ASSIGN(Tensor part, kept(ctx, k));
      splits.push_back(std::move(part));
    }
    MR_TRY_ASSIGN(Tensor values, kept(ctx, rank));
    MR_TRY(check_splits(splits, values));
    if (!batched_) {
      ctx.set_output(
          0,
          Tensor::scalar(Variant{make_ref<RaggedVariant>(std::move(splits), std::move(values))}));
      return ok_status();
    }
    if (values.rank() == 0) return invalid_argument("a scalar has no rows");
    const int64_t rows = splits.empty() ? values.dim(0) : splits[0].num_elements() - 1;
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{rows}));
    const std::span<Variant> packed = out->mutable_data<Variant>();
    for (int64_t row = 0; row < rows; ++row) {
      MR_TRY_ASSIGN(packed[static_cast<size_t>(row)], row_of(splits, values, row));
    }
    return ok_status();
  }

 private:
  static Result<Variant> row_of(const std::vector<Tensor>& splits, const Tensor& values,
                                int64_t row) {
    if (splits.empty()) {
      return Variant{make_ref<RaggedVariant>(std::vector<Tensor>(), values.row(row))};
    }
    int64_t begin = split_at(splits[0], row), end = split_at(splits[0], row + 1);
    std::vector<Tensor> inner;
    for (size_t k = 1; k < splits.size(); ++k) {
      MR_TRY_ASSIGN(Tensor own, splits_from(splits[k], begin, end));
      inner.push_back(std::move(own));
      begin = split_at(splits[k], begin);
      end = split_at(splits[k], end);
    }
    return Variant{make_ref<RaggedVariant>(std::move(inner), values.rows(begin, end))};
  }

  const bool batched_;
};

class RaggedFromVariant : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const int64_t input_rank, node.attr<int64_t>("input_ragged_rank"));
    MR_TRY_ASSIGN(const int64_t output_rank, node.attr<int64_t>("output_ragged_rank"));
    MR_TRY_ASSIGN(const DType values, node.attr<DType>("Tvalues"));
    MR_TRY_ASSIGN(const DType splits, node.attr<DType>("Tsplits"));
    return std::make_unique<RaggedFromVariant>(input_rank, output_rank, values, splits);
  }
  RaggedFromVariant(int64_t input_rank, int64_t output_rank, DType values, DType splits)
      : input_rank_(input_rank), output_rank_(output_rank), values_(values), splits_(splits) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& packed = ctx.input(0);
    const int64_t inner = input_rank_ < 0 ? output_rank_ - packed.rank() : input_rank_;
    if (inner < 0 || inner != output_rank_ - packed.rank()) {
      return invalid_argument("output_ragged_rank must be input_ragged_rank and the rank of ",
                              "encoded_ragged together, got ", output_rank_, ", ", input_rank_,
                              " and variants of shape ", packed.shape());
    }
    std::vector<const RaggedVariant*> parts;
    for (const Variant& element : packed.data<Variant>()) {
      MR_TRY_ASSIGN(const RaggedVariant* part, part_of(element, inner));
      parts.push_back(part);
    }
    if (packed.rank() == 0) {
      for (int64_t k = 0; k < inner; ++k) {
        ctx.set_output(static_cast<int>(k), parts[0]->splits()[static_cast<size_t>(k)]);
      }
      ctx.set_output(static_cast<int>(inner), parts[0]->values());
      return ok_status();
    }
    return join(ctx, packed.shape(), parts, static_cast<size_t>(inner));
  }

 private:
  Result<const RaggedVariant*> part_of(const Variant& element, int64_t rank) const {
    const Ref<VariantObject>& object = element.object;
    if (!object || object->type_name() != RaggedVariant::kTypeName) {
      return invalid_argument("expected a ragged tensor in a variant, got ",
                              object ? object->type_name() : std::string_view("nothing"));
    }
    const auto* part = static_cast<const RaggedVariant*>(object.get());
    if (static_cast<int64_t>(part->splits().size()) != rank) {
      return invalid_argument("expected a ragged tensor of ragged rank ", rank, ", got one of ",
                              part->splits().size());
    }
    if (part->values().dtype() != values_) {
      return invalid_argument("expected values of type ", values_, ", got ",
                              part->values().dtype());
    }
    for (const Tensor& splits : part->splits()) {
      if (splits.dtype() != splits_) {
        return invalid_argument("expected splits of type ", splits_, ", got ", splits.dtype());
      }
    }
    return part;
  }

  Status join(KernelContext& ctx, const Shape& outer,
              const std::vector<const RaggedVariant*>& parts, size_t inner) const {
    // The dimensions in which the variants stand, but the last, have rows of one length.
    int64_t rows = 1;
    for (int d = 0; d + 1 < outer.rank(); ++d) {
      int64_t last = 0;
      if (__builtin_mul_overflow(rows, outer.dim(d), &rows) || rows == INT64_MAX ||
          __builtin_mul_overflow(rows, outer.dim(d + 1), &last)) {
        return invalid_argument("no splits can say how many rows variants of shape ", outer,
                                " make");
      }
      MR_TRY(set_uniform_splits(ctx, d, rows, outer.dim(d + 1)));
    }
    const int at = outer.rank() - 1;
    std::vector<int64_t> splits = {0};
    for (const RaggedVariant* part : parts) {
      if (inner == 0 && part->values().rank() == 0) {
        return invalid_argument("scalars in variants have no rows to join");
      }
      MR_TRY_ASSIGN(const int64_t next, sum_of(splits.back(), part->rows()));
      splits.push_back(next);
    }
    MR_TRY(set_splits(ctx, at, splits));
    for (size_t k = 0; k < inner; ++k) {
      splits.assign(1, 0);
      for (const RaggedVariant* part : parts) {
        const Tensor& own = part->splits()[k];
        const int64_t before = splits.back();
        for (int64_t i = 1; i < own.num_elements(); ++i) {
          MR_TRY_ASSIGN(const int64_t next, sum_of(before, split_at(own, i)));
          splits.push_back(next);
        }
      }
      MR_TRY(set_splits(ctx, at + 1 + static_cast<int>(k), splits));
    }
    return join_values(ctx, parts);
  }

  Status set_splits(KernelContext& ctx, int i, const std::vector<int64_t>& splits) const {
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(i, Shape{static_cast<int64_t>(splits.size())}));
    if (splits_ == DType::kInt64) {
      std::ranges::copy(splits, out->mutable_data<int64_t>().begin());
      return ok_status();
    }
    MR_TRY(check_last(splits.back()));
    std::ranges::transform(splits, out->mutable_data<int32_t>().begin(),
                           [](int64_t split) { return static_cast<int32_t>(split); });
    return ok_status();
  }

  // Of so many rows, each of `size` of the next ones. There may be a great many of empty ones, so
  // they are written where they go.
  Status set_uniform_splits(KernelContext& ctx, int i, int64_t rows, int64_t size) const {
    MR_TRY(check_last(rows * size));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(i, Shape{rows + 1}));
    return dispatch<IndexTypes>(splits_, [&]<class T>() {
      int64_t split = 0;
      for (T& to : out->mutable_data<T>()) {
        to = static_cast<T>(split);
        split += size;
      }
    });
  }

  Status check_last(int64_t last) const {
    if (splits_ == DType::kInt64 || last <= INT32_MAX) return ok_status();
    return invalid_argument("splits of int32 cannot say ", last);
  }

  Status join_values(KernelContext& ctx, const std::vector<const RaggedVariant*>& parts) const {
    const int i = static_cast<int>(output_rank_);
    if (parts.empty()) return ctx.allocate_output(i, Shape{0}).status();
    const Shape row = parts[0]->values().shape().without_first();
    int64_t rows = 0;
    for (const RaggedVariant* part : parts) {
      const Shape& shape = part->values().shape();
      if (shape.without_first() != row) {
        return invalid_argument(
            "the values of ragged tensors to join must have rows of one shape, ", "got ",
            parts[0]->values().shape(), " and ", shape);
      }
      MR_TRY_ASSIGN(rows, sum_of(rows, shape.dim(0)));
    }
    MR_TRY_ASSIGN(const Shape shape, Shape{rows}.concat(row));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(i, shape));
    with_element(values_, [&]<class T>() {
      T* to = static_cast<T*>(out->mutable_raw());
      for (const RaggedVariant* part : parts) {
        to = std::copy_n(static_cast<const T*>(part->values().raw()), part->values().num_elements(),
                         to);
      }
    });
    return ok_status();
  }

  const int64_t input_rank_, output_rank_;
  const DType values_, splits_;
};

Status to_variant_shape(ShapeContext& c) {
  const int rank = c.num_inputs() - 1;
  for (int k = 0; k < rank; ++k) {
    MR_TRY_ASSIGN(const PartialShape splits, c.with_rank(k, 1));
    if (splits.dim_known(0) && splits.dim(0) == 0) {
      return invalid_argument("splits ", k, " must be a vector of integers, not empty");
    }
  }
  MR_TRY_ASSIGN(const bool batched, c.attr<bool>("batched_input"));
  if (rank > 0 || batched) MR_TRY(c.with_rank_at_least(rank, 1).status());
  if (!batched) {
    c.set_output(0, PartialShape::scalar());
    return ok_status();
  }
  if (rank > 0) {
    c.set_output(0, PartialShape::of_rank(1));
    return ok_status();
  }
  const PartialShape& values = c.input(0);
  const bool known = values.rank_known() && values.dim_known(0);
  c.set_output(0, PartialShape{known ? values.dim(0) : PartialShape::kUnknownDim});
  return ok_status();
}

Status from_variant_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const int64_t input_rank, c.attr<int64_t>("input_ragged_rank"));
  MR_TRY_ASSIGN(const int64_t output_rank, c.attr<int64_t>("output_ragged_rank"));
  if (c.input(0).rank_known() && input_rank >= 0 && output_rank >= 0 &&
      input_rank != output_rank - c.input(0).rank()) {
    return invalid_argument("output_ragged_rank must be input_ragged_rank and the rank of ",
                            "encoded_ragged together, got ", output_rank, ", ", input_rank,
                            " and variants of shape ", c.input(0));
  }
  for (int k = 0; k + 1 < c.num_outputs(); ++k) c.set_output(k, PartialShape::of_rank(1));
  c.set_output(c.num_outputs() - 1, PartialShape());
  return ok_status();
}

}  // namespace

void register_ragged_variant(Registry& registry) {
  // The decoder is the process's: once for all registries.
  static const Status& decoder =
      *new Status(register_variant_decoder(RaggedVariant::kTypeName, &RaggedVariant::decode));
  MR_CHECK_OK(decoder);
  const OpTraits traits = {.cannot_differentiate = true, .cost = 100};
  registry.add({.name = "RaggedTensorToVariant",
                .doc = "A ragged tensor as a variant, or each of its rows as one.",
                .inputs = {{"rt_nested_splits", "host(RAGGED_RANK*Tsplits)"},
                           {"rt_dense_values", "Tvalues"}},
                .outputs = {{"encoded_ragged", "variant"}},
                .types = {{"Tvalues", {}}, {"Tsplits", kIndexTypes, DType::kInt64}},
                .attrs = {{"RAGGED_RANK", "int >= 0"},
                          {"batched_input", "bool", "Whether each row is a variant."}},
                .traits = traits,
                .shape = to_variant_shape,
                .no_gradient = "packs tensors"});
  registry.kernel<RaggedToVariant>("RaggedTensorToVariant", DeviceKind::kCpu);
  registry.add({.name = "RaggedTensorFromVariant",
                .doc = "The ragged tensor in a variant; those in a tensor of variants as its rows.",
                .inputs = {{"encoded_ragged", "variant"}},
                .outputs = {{"output_nested_splits", "host(output_ragged_rank*Tsplits)"},
                            {"output_dense_values", "Tvalues"}},
                .types = {{"Tvalues", {}}, {"Tsplits", kIndexTypes, DType::kInt64}},
                .attrs = {{"input_ragged_rank", "int >= -1",
                           "Of each variant; -1: what output_ragged_rank leaves for it."},
                          {"output_ragged_rank", "int >= 0"}},
                .traits = traits,
                .shape = from_variant_shape,
                .no_gradient = "unpacks tensors"});
  registry.kernel<RaggedFromVariant>("RaggedTensorFromVariant", DeviceKind::kCpu);
}

}  // namespace millrace
