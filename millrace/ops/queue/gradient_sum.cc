// The sums that an accumulator keeps.

#include <algorithm>
#include <map>
#include <vector>

#include "millrace/ops/math/binary_ops.h"
#include "millrace/ops/queue/accumulator.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// Divides n elements of `dtype` by `divisor` > 0, integers towards zero.
void divide(DType dtype, void* data, int64_t n, int64_t divisor) {
  if (divisor == 1) return;
  MR_CHECK_OK(dispatch<NumberTypes>(dtype, [&]<class T>() {
    T* x = static_cast<T*>(data);
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_integral_v<T>) {
        using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
        x[i] = static_cast<T>(static_cast<Wide>(x[i]) / static_cast<Wide>(divisor));
      } else if constexpr (kComplex.contains(dtype_of<T>)) {
        x[i] = x[i] / T(static_cast<typename T::value_type>(divisor));
      } else if constexpr (std::is_same_v<T, double>) {
        x[i] /= static_cast<double>(divisor);
      } else {
        x[i] = T(static_cast<float>(x[i]) / static_cast<float>(divisor));
      }
    }
  }));
}

// The type that sums are kept in: gradients of half and bfloat16 are added in float, and rounded
// when the sum is taken.
class SumSpace {
 public:
  explicit SumSpace(DType dtype) : dtype_(dtype), blocks_(float_blocks(dtype)) {}

  DType dtype() const { return blocks_.to_float != nullptr ? DType::kFloat : dtype_; }
  // A gradient in dtype(): itself, or a converted copy.
  Result<Tensor> enter(const Tensor& gradient) const {
    if (blocks_.to_float == nullptr) return gradient;
    MR_TRY_ASSIGN(Tensor out, Tensor::allocate(DType::kFloat, gradient.shape()));
    blocks_.to_float(gradient.raw(), out.mutable_data<float>().data(), out.num_elements());
    return out;
  }
  // A sum as a gradient again.
  Result<Tensor> leave(Tensor sum) const {
    if (blocks_.to_float == nullptr) return sum;
    MR_TRY_ASSIGN(Tensor out, Tensor::allocate(dtype_, sum.shape()));
    blocks_.from_float(sum.data<float>().data(), out.mutable_raw(), out.num_elements());
    return out;
  }

 private:
  DType dtype_;
  FloatBlocks blocks_;
};

class TensorSum : public Accumulator::Sum {
 public:
  explicit TensorSum(const AccumulatorSpec& spec)
      : spec_(spec), space_(spec.dtype), add_(Add::info, space_.dtype()) {}

  Status add(const AccumulatorGradient& gradient) override {
    const Tensor& values = gradient.values;
    if (sum_.valid() && sum_.shape() != values.shape()) {
      return invalid_argument("Shape mismatch: expected ", sum_.shape(), ", got ", values.shape());
    }
    if (!spec_.shape.compatible(values.shape())) {
      return invalid_argument("Shape mismatch: expected ", spec_.shape, ", got ", values.shape());
    }
    MR_TRY_ASSIGN(const Tensor terms, space_.enter(values));
    if (!sum_.valid()) {
      MR_TRY_ASSIGN(sum_, terms.clone());
      return ok_status();
    }
    add_(sum_.raw(), terms.raw(), sum_.mutable_raw(), sum_.num_elements());
    return ok_status();
  }

  Result<AccumulatorGradient> result(int64_t count) override {
    if (spec_.mean) divide(space_.dtype(), sum_.mutable_raw(), sum_.num_elements(), count);
    AccumulatorGradient out;
    MR_TRY_ASSIGN(out.values, space_.leave(std::move(sum_)));
    return out;
  }

  void clear() override { sum_.reset(); }

 private:
  const AccumulatorSpec& spec_;
  const SumSpace space_;
  const BinaryFunction add_;
  Tensor sum_;
};

class RowsSum : public Accumulator::Sum {
 public:
  explicit RowsSum(const AccumulatorSpec& spec)
      : spec_(spec), space_(spec.dtype), add_(Add::info, space_.dtype()) {}

  Status add(const AccumulatorGradient& gradient) override {
    MR_TRY(check(gradient));
    MR_TRY_ASSIGN(const Tensor values, space_.enter(gradient.values));
    const std::span<const int64_t> indices = gradient.indices.data<int64_t>();
    MR_TRY(reserve(values.shape(), static_cast<int64_t>(indices.size())));
    ++gradients_;
    const int64_t row = values.shape().without_first().num_elements();
    const size_t bytes = static_cast<size_t>(row) * dtype_size(space_.dtype());
    const char* from = static_cast<const char*>(values.raw());
    char* sums = static_cast<char*>(sums_.mutable_raw());
    for (size_t i = 0; i < indices.size(); ++i) {
      const auto [entry, fresh] =
          rows_.try_emplace(indices[i], Row{static_cast<int64_t>(rows_.size())});
      Row& place = entry->second;
      char* to = sums + static_cast<size_t>(place.slot) * bytes;
      if (fresh) {
        std::copy_n(from + i * bytes, bytes, to);
      } else {
        add_(to, from + i * bytes, to, row);
      }
      if (place.last_gradient != gradients_) ++place.count;
      place.last_gradient = gradients_;
    }
    return ok_status();
  }

  Result<AccumulatorGradient> result(int64_t) override {
    const int64_t count = static_cast<int64_t>(rows_.size());
    AccumulatorGradient out;
    MR_TRY_ASSIGN(const Shape shape, sums_.shape().with_dim(0, count));
    MR_TRY_ASSIGN(Tensor values, Tensor::allocate(space_.dtype(), shape));
    MR_TRY_ASSIGN(out.indices, Tensor::allocate(DType::kInt64, Shape{count}));
    MR_TRY_ASSIGN(out.shape, Tensor::allocate(DType::kInt64, Shape{shape.rank()}));
    const int64_t row = shape.without_first().num_elements();
    const size_t bytes = static_cast<size_t>(row) * dtype_size(space_.dtype());
    const char* sums = static_cast<const char*>(sums_.raw());
    char* to = static_cast<char*>(values.mutable_raw());
    int64_t* index = out.indices.mutable_data<int64_t>().data();
    for (const auto& [number, place] : rows_) {
      std::copy_n(sums + static_cast<size_t>(place.slot) * bytes, bytes, to);
      if (spec_.mean) divide(space_.dtype(), to, row, place.count);
      to += bytes;
      *index++ = number;
    }
    MR_TRY_ASSIGN(out.values, space_.leave(std::move(values)));
    const std::span<int64_t> sizes = out.shape.mutable_data<int64_t>();
    std::copy(shape.dims().begin(), shape.dims().end(), sizes.begin());
    sizes[0] = spec_.shape.rank() > 0 ? spec_.shape.dim(0) : -1;
    return out;
  }

  void clear() override {
    sums_.reset();
    rows_.clear();
    gradients_ = 0;
  }

 private:
  struct Row {
    int64_t slot = 0;   // row of sums_
    int64_t count = 0;  // gradients that had it
    int64_t last_gradient = 0;
  };

  Status check(const AccumulatorGradient& gradient) const {
    const Tensor& indices = gradient.indices;
    const Tensor& values = gradient.values;
    if (indices.rank() != 1) {
      return invalid_argument("Input indices should be vector but received shape: ",
                              indices.shape());
    }
    if (values.rank() == 0) return invalid_argument("Values cannot be 0-dimensional.");
    if (values.dim(0) != indices.dim(0)) {
      return invalid_argument("Expected ", indices.dim(0), " non-empty input values, got ",
                              values.dim(0));
    }
    const PartialShape& shape = spec_.shape;
    if (gradient.shape.valid()) MR_TRY(check_given_shape(gradient.shape));
    const int64_t limit = shape.rank() > 0 ? shape.dim(0) : -1;
    const std::span<const int64_t> numbers = indices.data<int64_t>();
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] < 0) {
        return invalid_argument("index of slice ", i, " must not be negative, got ", numbers[i]);
      }
      if (limit < 0 || numbers[i] < limit) continue;
      return invalid_argument("Shape mismatch: index of slice ", i,
                              " exceeded limits of shape; index is ", numbers[i], " exceeded ",
                              limit);
    }
    if (sums_.valid()) return check_against_sums(values.shape());
    if (shape.rank() > values.rank()) {
      return invalid_argument("Shape mismatch: expected values rank at least ", shape.rank(),
                              ", got ", values.rank());
    }
    for (int i = 1; i < shape.rank(); ++i) {
      if (!shape.dim_known(i) || shape.dim(i) == values.dim(i)) continue;
      return wrong_dim("values", i, shape.dim(i), values.dim(i));
    }
    return ok_status();
  }

  Status check_given_shape(const Tensor& given) const {
    const PartialShape& shape = spec_.shape;
    if (shape.rank() > given.num_elements()) {
      return invalid_argument("Shape mismatch: expected shape rank at least ", shape.rank(),
                              ", got ", given.num_elements());
    }
    const std::span<const int64_t> sizes = given.data<int64_t>();
    for (int i = 0; i < shape.rank(); ++i) {
      const int64_t size = sizes[static_cast<size_t>(i)];
      if (shape.dim_known(i) && shape.dim(i) != size) {
        return wrong_dim("shape", i, shape.dim(i), size);
      }
    }
    return ok_status();
  }

  Status check_against_sums(const Shape& values) const {
    if (values.rank() != sums_.rank()) {
      return invalid_argument("Shape mismatch: expected values rank ", sums_.rank(), ", got ",
                              values.rank());
    }
    for (int i = 1; i < values.rank(); ++i) {
      if (values.dim(i) != sums_.dim(i)) {
        return wrong_dim("values", i, sums_.dim(i), values.dim(i));
      }
    }
    return ok_status();
  }

  static Status wrong_dim(const char* what, int i, int64_t expected, int64_t got) {
    return invalid_argument("Shape mismatch: expected ", what, " dim ", i, " to be ", expected,
                            ", got ", got);
  }

  // Makes room for `more` rows of values of this shape.
  Status reserve(const Shape& values, int64_t more) {
    const int64_t used = static_cast<int64_t>(rows_.size());
    const int64_t room = sums_.valid() ? sums_.dim(0) : 0;
    if (sums_.valid() && used + more <= room) return ok_status();
    MR_TRY_ASSIGN(const Shape shape, values.with_dim(0, std::max(used + more, 2 * room)));
    MR_TRY_ASSIGN(Tensor larger, Tensor::allocate(space_.dtype(), shape));
    if (used > 0) {
      Tensor kept = larger.rows(0, used);
      copy_elements(sums_.rows(0, used), kept);
    }
    sums_ = std::move(larger);
    return ok_status();
  }

  const AccumulatorSpec& spec_;
  const SumSpace space_;
  const BinaryFunction add_;
  Tensor sums_;                  // [room, ...]
  std::map<int64_t, Row> rows_;  // by number
  int64_t gradients_ = 0;
};

}  // namespace

std::unique_ptr<Accumulator::Sum> make_gradient_sum(const AccumulatorSpec& spec) {
  if (spec.sparse) return std::make_unique<RowsSum>(spec);
  return std::make_unique<TensorSum>(spec);
}

}  // namespace millrace
