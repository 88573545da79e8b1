// How often each small integer occurs in each row of a matrix: dense, sparse or ragged, counted in
// a dense matrix (DenseBincount, SparseBincount, RaggedBincount) or in a sparse one
// (DenseCountSparseOutput, SparseCountSparseOutput, RaggedCountSparseOutput).

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/indices.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using CountTypes = TypeList<int32_t, int64_t, float, double>;

enum class Layout : uint8_t { kDense, kSparse, kRagged };
// What stands before the weights and, of ops with a dense result, the size.
constexpr int num_parts(Layout layout) {
  return layout == Layout::kDense ? 1 : layout == Layout::kSparse ? 3 : 2;
}
constexpr int values_input(Layout layout) { return layout == Layout::kDense ? 0 : 1; }

// The numbers that are counted, and the row that each is in.
struct Rows {
  Indices numbers;
  std::vector<int64_t> row;  // empty: number i is in row i / columns
  int64_t count = 1;
  int64_t columns = 1;
  bool is_vector = false;  // there are no rows

  int64_t row_of(int64_t i) const {
    return row.empty() ? i / columns : row[static_cast<size_t>(i)];
  }
};

Status read_sparse_rows(const KernelContext& ctx, Rows& rows) {
  const Tensor& indices = ctx.input(0);
  if (indices.rank() != 2) {
    return invalid_argument("Input indices must be a 2-dimensional tensor. Got: ", indices.shape());
  }
  MR_TRY(expect_rank(ctx, 1, 1));
  MR_TRY(expect_rank(ctx, 2, 1));
  MR_TRY_ASSIGN(const std::vector<int64_t> shape, ctx.int_vector_input(2));
  const auto rank = static_cast<int64_t>(shape.size());
  if (rank == 0) return invalid_argument("The shape argument requires at least one element.");
  if (indices.dim(0) != ctx.input(1).dim(0)) {
    return invalid_argument("Number of values must match first dimension of indices, got ",
                            ctx.input(1).dim(0), " and ", indices.shape());
  }
  if (indices.dim(1) != rank) {
    return invalid_argument("indices must have a column for each of the ", rank,
                            " dimensions, got shape ", indices.shape());
  }
  rows.is_vector = rank == 1;
  rows.count = rows.is_vector ? 1 : shape[0];
  if (rows.count < 0) return invalid_argument("dense_shape must not be negative");
  const auto index = indices.data<int64_t>();
  rows.row.assign(static_cast<size_t>(indices.dim(0)), 0);
  for (size_t i = 0; !rows.is_vector && i < rows.row.size(); ++i) {
    const int64_t row = index[i * shape.size()];
    if (row < 0 || row >= rows.count) {
      return invalid_argument("Index value along the first dimension, ", row, ", is not in [0, ",
                              rows.count, ")");
    }
    rows.row[i] = row;
  }
  return ok_status();
}

Status read_ragged_rows(const KernelContext& ctx, Rows& rows) {
  MR_TRY(expect_rank(ctx, 0, 1));
  MR_TRY(expect_rank(ctx, 1, 1));
  MR_TRY_ASSIGN(const std::vector<int64_t> splits, ctx.int_vector_input(0));
  const int64_t n = ctx.input(1).num_elements();
  if (splits.size() < 2) {
    return invalid_argument("Must provide at least 2 elements for the splits argument");
  }
  if (splits.front() != 0) {
    return invalid_argument("Splits must start with 0, not with ", splits.front());
  }
  if (splits.back() != n) {
    return invalid_argument("Splits must end with the number of values, got ", splits.back(),
                            " instead of ", n);
  }
  // Before the first row is filled: a split may be any number.
  if (!std::ranges::is_sorted(splits)) return invalid_argument("Splits must not fall");
  rows.count = static_cast<int64_t>(splits.size()) - 1;
  for (size_t i = 0; i + 1 < splits.size(); ++i) {
    rows.row.insert(rows.row.end(), static_cast<size_t>(splits[i + 1] - splits[i]),
                    static_cast<int64_t>(i));
  }
  return ok_status();
}

template <Layout layout>
Result<Rows> read_rows(KernelContext& ctx) {
  Rows rows;
  const Tensor& values = ctx.input(values_input(layout));
  if constexpr (layout == Layout::kSparse) {
    MR_TRY(read_sparse_rows(ctx, rows));
  } else if constexpr (layout == Layout::kRagged) {
    MR_TRY(read_ragged_rows(ctx, rows));
  } else {
    if (values.rank() < 1 || values.rank() > 2) {
      return invalid_argument("Input must be a 1 or 2-dimensional tensor. Got: ", values.shape());
    }
    rows.is_vector = values.rank() == 1;
    rows.count = rows.is_vector ? 1 : values.dim(0);
    rows.columns = std::max<int64_t>(values.dim(values.rank() - 1), 1);
  }
  MR_TRY_ASSIGN(rows.numbers, Indices::read(ctx, values));
  const auto numbers = rows.numbers.span();
  const auto negative = std::ranges::find_if(numbers, [](int64_t number) { return number < 0; });
  if (negative != numbers.end()) {
    return invalid_argument("Input arr must be non-negative! Got ", *negative, " at ",
                            negative - numbers.begin());
  }
  return rows;
}

Status check_weights(const PartialShape& weights, const PartialShape& values) {
  if (weights.num_elements() <= 0 || weights.compatible(values)) return ok_status();
  return invalid_argument("Weights and values must have the same shape. Weight shape: ", weights,
                          "; values shape: ", values);
}

Status make_binary(const KernelNode& node, bool* binary) {
  MR_TRY_ASSIGN(*binary, node.attr<bool>("binary_output"));
  return ok_status();
}

// ---- Counts in a dense matrix.

// What a kernel will say of the parts of the numbers.
template <Layout layout>
Status check_parts(const ShapeContext& c) {
  if constexpr (layout == Layout::kDense) {
    MR_TRY(c.with_rank_at_least(0, 1).status());
    return c.with_rank_at_most(0, 2).status();
  } else if constexpr (layout == Layout::kRagged) {
    MR_TRY_ASSIGN(const PartialShape splits, c.with_rank(0, 1));
    const int64_t n = splits.num_elements();
    if (n == 0 || n == 1) {
      return invalid_argument("Must provide at least 2 elements for the splits argument");
    }
    return c.with_rank(1, 1).status();
  } else {
    MR_TRY_ASSIGN(const PartialShape indices, c.with_rank(0, 2));
    MR_TRY_ASSIGN(const PartialShape values, c.with_rank(1, 1));
    MR_TRY_ASSIGN(const PartialShape shape, c.with_rank(2, 1));
    if (!indices.rank_known()) return ok_status();
    if (shape.num_elements() == 0) {
      return invalid_argument("The shape argument requires at least one element.");
    }
    const int64_t n = values.num_elements(), rank = shape.num_elements();
    if (indices.dim(0) >= 0 && n >= 0 && indices.dim(0) != n) {
      return invalid_argument("Number of values must match first dimension of indices, got ", n,
                              " and ", indices);
    }
    if (indices.dim(1) >= 0 && rank >= 0 && indices.dim(1) != rank) {
      return invalid_argument("indices must have a column for each of the ", rank,
                              " dimensions, got shape ", indices);
    }
    if (const auto sizes = c.input_vector(2); sizes && rank > 1 && sizes->front() < 0) {
      return invalid_argument("dense_shape must not be negative");
    }
    return ok_status();
  }
}

template <Layout layout>
Status bincount_shape(ShapeContext& c) {
  constexpr int kSize = num_parts(layout);
  MR_TRY(check_parts<layout>(c));
  MR_TRY(c.with_rank(kSize, 0).status());
  const PartialShape& values = c.input(values_input(layout));
  MR_TRY(check_weights(c.input(kSize + 1), values));
  const int64_t size = c.input_scalar(kSize).value_or(PartialShape::kUnknownDim);
  if (size < 0 && c.input_scalar(kSize)) {
    return invalid_argument("size (", size, ") must be non-negative");
  }
  if constexpr (layout == Layout::kDense) {
    if (!values.rank_known()) return ok_status();
    c.set_output(0, values.rank() == 1 ? PartialShape{size} : PartialShape{values.dim(0), size});
  } else if constexpr (layout == Layout::kRagged) {
    const int64_t n = c.input(0).num_elements();
    c.set_output(0, PartialShape{n > 0 ? n - 1 : PartialShape::kUnknownDim, size});
  } else {
    const PartialShape& shape = c.input(2);
    if (!shape.rank_known() || shape.num_elements() < 0) return ok_status();
    c.set_output(0, shape.num_elements() == 1 ? PartialShape{size}
                                              : PartialShape{PartialShape::kUnknownDim, size});
  }
  return ok_status();
}

template <Layout layout>
class Bincount final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<Bincount>();
    MR_TRY(make_binary(node, &kernel->binary_));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status compute(KernelContext& ctx) const override {
    constexpr int kSize = num_parts(layout);
    MR_TRY(expect_rank(ctx, kSize, 0));
    MR_TRY_ASSIGN(const int64_t size, ctx.int_scalar_input(kSize));
    if (size < 0) return invalid_argument("size (", size, ") must be non-negative");
    MR_TRY_ASSIGN(const Rows rows, read_rows<layout>(ctx));
    const Tensor& weights = ctx.input(kSize + 1);
    MR_TRY(check_weights(weights.shape(), ctx.input(values_input(layout)).shape()));
    const int64_t dims[] = {rows.count, size};
    MR_TRY_ASSIGN(const Shape shape, Shape::make(std::span(dims).subspan(rows.is_vector ? 1 : 0)));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    return dispatch<CountTypes>(out->dtype(), [&]<class T>() {
      const auto bins = out->mutable_data<T>();
      std::ranges::fill(bins, T{0});
      const auto weight = weights.data<T>();
      for (int64_t i = 0; i < rows.numbers.size(); ++i) {
        if (rows.numbers[i] >= size) continue;
        T& bin = bins[static_cast<size_t>(rows.row_of(i) * size + rows.numbers[i])];
        const T one = weight.empty() ? T{1} : weight[static_cast<size_t>(i)];
        bin = binary_ ? T{1} : wrapping_add(bin, one);
      }
    });
  }

 private:
  bool binary_ = false;
};

// ---- Counts in a sparse matrix.

template <Layout layout>
Status count_shape(ShapeContext& c) {
  MR_TRY(check_parts<layout>(c));
  MR_TRY(check_weights(c.input(num_parts(layout)), c.input(values_input(layout))));
  // A vector is counted in a vector, of rank 1; ragged rows never are one.
  int64_t rank = 2;
  if constexpr (layout == Layout::kDense) {
    rank = c.input(0).rank_known() ? c.input(0).rank() : -1;
  } else if constexpr (layout == Layout::kSparse) {
    rank = std::min<int64_t>(c.input(2).rank_known() ? c.input(2).num_elements() : -1, 2);
  }
  c.set_output(0, PartialShape{PartialShape::kUnknownDim, rank});
  c.set_output(1, PartialShape::of_rank(1));
  c.set_output(2, PartialShape{rank});
  return ok_status();
}

template <Layout layout>
class Count final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<Count>();
    MR_TRY(make_binary(node, &kernel->binary_));
    MR_TRY_ASSIGN(kernel->least_, node.attr<int64_t>("minlength"));
    MR_TRY_ASSIGN(kernel->most_, node.attr<int64_t>("maxlength"));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status compute(KernelContext& ctx) const override {
    constexpr int kWeights = num_parts(layout);
    MR_TRY_ASSIGN(const Rows rows, read_rows<layout>(ctx));
    MR_TRY(check_weights(ctx.input(kWeights).shape(), ctx.input(values_input(layout)).shape()));
    int64_t size = most_ >= 0 ? most_ : std::max<int64_t>(least_, 0);
    for (const int64_t number : rows.numbers.span()) {
      if (most_ < 0 && number != INT64_MAX) size = std::max(size, number + 1);
    }
    return dispatch<CountTypes>(ctx.output_type(1), [&]<class T>() {
      return count<T>(ctx, rows, ctx.input(kWeights).data<T>(), size);
    });
  }

 private:
  template <class T>
  Status count(KernelContext& ctx, const Rows& rows, std::span<const T> weight,
               int64_t size) const {
    std::map<std::pair<int64_t, int64_t>, T> counts;  // of (row, number)
    for (int64_t i = 0; i < rows.numbers.size(); ++i) {
      const int64_t number = rows.numbers[i];
      if (most_ >= 0 && number >= most_) continue;
      T& bin = counts[{rows.row_of(i), number}];
      const T one = weight.empty() ? T{1} : weight[static_cast<size_t>(i)];
      bin = binary_ ? T{1} : wrapping_add(bin, one);
    }
    const int64_t rank = rows.is_vector ? 1 : 2;
    const auto n = static_cast<int64_t>(counts.size());
    MR_TRY_ASSIGN(Tensor * indices, ctx.allocate_output(0, Shape{n, rank}));
    MR_TRY_ASSIGN(Tensor * values, ctx.allocate_output(1, Shape{n}));
    int64_t* index = indices->mutable_data<int64_t>().data();
    T* value = values->mutable_data<T>().data();
    for (const auto& [place, total] : counts) {
      if (!rows.is_vector) *index++ = place.first;
      *index++ = place.second;
      *value++ = total;
    }
    ctx.set_output(2, rows.is_vector ? Tensor::vector<int64_t>({size})
                                     : Tensor::vector<int64_t>({rows.count, size}));
    return ok_status();
  }

  bool binary_ = false;
  int64_t least_ = -1, most_ = -1;  // negative: not given
};

const char* const kBinary = "Whether a number counts once, however often it occurs.";

template <Layout layout>
void register_bincount_of(Registry& registry, const char* name, const char* doc,
                          std::vector<OpSpec::Arg> inputs) {
  inputs.push_back({"size", "host(Tidx)"});
  inputs.push_back({"weights", "T", "Of the shape of the values; without elements: all 1."});
  registry.add({.name = name,
                .doc = doc,
                .inputs = std::move(inputs),
                .outputs = {{"output", "T"}},
                .types = {{"Tidx", kIndexTypes}, {"T", type_set_of<CountTypes>}},
                .attrs = {{"binary_output", "bool = false", kBinary}},
                .traits = {.cost = 2},
                .shape = bincount_shape<layout>,
                .no_gradient = "counts elements"});
  registry.kernel({.op = name, .factory = &Bincount<layout>::make});
}

template <Layout layout>
void register_count_of(Registry& registry, const char* name, const char* doc,
                       std::vector<OpSpec::Arg> inputs) {
  inputs.push_back(
      {"weights", "output_type", "Of the shape of the values; without elements: all 1."});
  registry.add({.name = name,
                .doc = doc,
                .inputs = std::move(inputs),
                .outputs = {{"output_indices", "int64"},
                            {"output_values", "output_type"},
                            {"output_dense_shape", "int64"}},
                .types = {{"T", kIndexTypes}, {"output_type", type_set_of<CountTypes>}},
                .attrs = {{"minlength", "int >= -1 = -1", "The least size of the result."},
                          {"maxlength", "int >= -1 = -1",
                           "The size of the result: numbers from it on are left out."},
                          {"binary_output", "bool", kBinary}},
                .traits = {.cost = 10},
                .shape = count_shape<layout>,
                .no_gradient = "counts elements"});
  registry.kernel({.op = name, .factory = &Count<layout>::make});
}

}  // namespace

void register_counts(Registry& registry) {
  const auto sparse = [](const char* type) {
    return std::vector<OpSpec::Arg>{
        {"indices", "int64"}, {"values", type}, {"dense_shape", "host(int64)"}};
  };
  const auto ragged = [](const char* type) {
    return std::vector<OpSpec::Arg>{{"splits", "host(int64)"}, {"values", type}};
  };
  register_bincount_of<Layout::kDense>(registry, "DenseBincount",
                                       "How often each number below size occurs, in each row.",
                                       {{"input", "Tidx"}});
  register_bincount_of<Layout::kSparse>(
      registry, "SparseBincount",
      "How often each number below size occurs, in each row of a sparse tensor.", sparse("Tidx"));
  register_bincount_of<Layout::kRagged>(
      registry, "RaggedBincount",
      "How often each number below size occurs, in each row of a ragged tensor.", ragged("Tidx"));
  register_count_of<Layout::kDense>(registry, "DenseCountSparseOutput",
                                    "How often each number occurs, in each row: those that do.",
                                    {{"values", "T"}});
  register_count_of<Layout::kSparse>(
      registry, "SparseCountSparseOutput",
      "How often each number occurs, in each row of a sparse tensor: those that do.", sparse("T"));
  register_count_of<Layout::kRagged>(
      registry, "RaggedCountSparseOutput",
      "How often each number occurs, in each row of a ragged tensor: those that do.", ragged("T"));
}

}  // namespace millrace
