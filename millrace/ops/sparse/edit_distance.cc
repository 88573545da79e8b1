// The Levenshtein distance between sequences, which sparse tensors hold in their last dimension.

#include <algorithm>
#include <limits>
#include <map>

#include "millrace/kernel/registry.h"
#include "millrace/ops/sparse/elements.h"
#include "millrace/ops/sparse/sparse_input.h"

namespace millrace {
namespace {

template <class T>
int64_t distance(const std::vector<T>& a, const std::vector<T>& b) {
  // row[j]: between what was seen of a and the first j of b.
  std::vector<int64_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = static_cast<int64_t>(j);
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t diagonal = std::exchange(row[0], static_cast<int64_t>(i) + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const int64_t change = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

Status edit_distance_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const int64_t a, sparse_rank(c, 0));
  MR_TRY_ASSIGN(const int64_t b, sparse_rank(c, 3));
  if (a >= 0 && b >= 0 && a != b) {
    return invalid_argument("hypothesis and truth must have one rank, got ", a, " and ", b);
  }
  MR_TRY_ASSIGN(const PartialShape hypothesis, c.input_as_shape(2));
  MR_TRY_ASSIGN(const PartialShape truth, c.input_as_shape(5));
  if (!hypothesis.rank_known() || !truth.rank_known() || truth.rank() == 0) return ok_status();
  std::vector<int64_t> dims;
  for (int i = 0; i + 1 < truth.rank(); ++i) {
    const bool known = hypothesis.dim_known(i) && truth.dim_known(i);
    dims.push_back(known ? std::max(hypothesis.dim(i), truth.dim(i)) : PartialShape::kUnknownDim);
  }
  MR_TRY_ASSIGN(PartialShape out, PartialShape::make(dims));
  c.set_output(0, std::move(out));
  return ok_status();
}

class EditDistance : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool normalize, node.attr<bool>("normalize"));
    return std::make_unique<EditDistance>(normalize);
  }
  explicit EditDistance(bool normalize) : normalize_(normalize) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const SparseInput hypothesis, SparseInput::read_rows(ctx, 0, "hypothesis"));
    MR_TRY_ASSIGN(const SparseInput truth, SparseInput::read_rows(ctx, 3, "truth"));
    if (hypothesis.rank != truth.rank || truth.rank < 1) {
      return invalid_argument("hypothesis and truth must have one rank of 1 or more, got shapes ",
                              hypothesis.shape, " and ", truth.shape);
    }
    MR_TRY(hypothesis.check_row_order());
    MR_TRY(truth.check_row_order());
    std::vector<int64_t> dims;
    for (int k = 0; k + 1 < truth.rank; ++k) {
      dims.push_back(std::max(hypothesis.shape.dim(k), truth.shape.dim(k)));
    }
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    const std::span<float> distances = out->mutable_data<float>();
    std::fill(distances.begin(), distances.end(), 0.0F);
    return with_kept_element(truth.values->dtype(), [&]<class T>() -> Status {
      std::map<int64_t, Pair<T>> pairs;
      MR_TRY(gather<T>(hypothesis, shape, [&](int64_t at) { return &pairs[at].hypothesis; }));
      MR_TRY(gather<T>(truth, shape, [&](int64_t at) { return &pairs[at].truth; }));
      for (const auto& [at, pair] : pairs) distances[static_cast<size_t>(at)] = measure(pair);
      return ok_status();
    });
  }

 private:
  template <class T>
  struct Pair {
    std::vector<T> hypothesis, truth;
  };

  // Appends each element to the sequence of its place in `shape`.
  template <class T, class Find>
  static Status gather(const SparseInput& from, const Shape& shape, Find sequence) {
    MR_TRY_ASSIGN(std::vector<T> values, read_elements<T>(*from.values));
    for (int64_t i = 0; i < from.count; ++i) {
      int64_t at = 0;
      for (int k = 0; k < shape.rank(); ++k) {
        at = at * shape.dim(k) + from.index(i)[static_cast<size_t>(k)];
      }
      sequence(at)->push_back(std::move(values[static_cast<size_t>(i)]));
    }
    return ok_status();
  }

  template <class T>
  float measure(const Pair<T>& pair) const {
    const auto steps = static_cast<float>(distance(pair.hypothesis, pair.truth));
    if (!normalize_) return steps;
    if (!pair.truth.empty()) return steps / static_cast<float>(pair.truth.size());
    return pair.hypothesis.empty() ? 0.0F : std::numeric_limits<float>::infinity();
  }

  bool normalize_;
};

}  // namespace

void register_edit_distance(Registry& registry) {
  registry.add({.name = "EditDistance",
                .doc = "The Levenshtein distance between the sequences of the last dimension.",
                .inputs = {{"hypothesis_indices", "int64"},
                           {"hypothesis_values", "T"},
                           {"hypothesis_shape", "host(int64)"},
                           {"truth_indices", "int64"},
                           {"truth_values", "T"},
                           {"truth_shape", "host(int64)"}},
                .outputs = {{"output", "float"}},
                .types = {{"T", kRealNumbers | TypeSet{DType::kBool, DType::kString}}},
                .attrs = {{"normalize", "bool = true", "Divide by the length of the truth."}},
                .traits = {.cannot_differentiate = true, .cost = 100},
                .shape = edit_distance_shape,
                .no_gradient = "counts what differs"});
  registry.kernel<EditDistance>("EditDistance", DeviceKind::kCpu);
}

}  // namespace millrace
