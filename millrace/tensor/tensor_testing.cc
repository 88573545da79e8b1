#include "millrace/tensor/tensor_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/resource_handle.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

constexpr int kMaxMismatchesShown = 5;

// A variant of one number and one tensor.
class TestVariant : public VariantObject {
 public:
  TestVariant(std::string metadata, Tensor tensor)
      : metadata_(std::move(metadata)), tensor_(std::move(tensor)) {}
  std::string_view type_name() const override { return "millrace.TestVariant"; }
  Status encode(std::string& metadata, std::vector<Tensor>& tensors) const override {
    metadata = metadata_;
    tensors = {tensor_};
    return ok_status();
  }
  static Result<Ref<VariantObject>> decode(std::string_view metadata, std::vector<Tensor> tensors) {
    if (tensors.size() != 1) {
      return invalid_argument("a TestVariant has one tensor, got ", tensors.size());
    }
    return Ref<VariantObject>(make_ref<TestVariant>(std::string(metadata), std::move(tensors[0])));
  }

 private:
  std::string metadata_;
  Tensor tensor_;
};

// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-52 - 1.0; }  // [-1, 1)
  int between(int low, int high) {
    return low + static_cast<int>(next() % static_cast<uint64_t>(high - low + 1));
  }

 private:
  uint64_t state_;
};

template <class T>
T random_element(Random& random) {
  constexpr DType kDType = dtype_of<T>;
  if constexpr (kDType == DType::kBool) {
    return random.between(0, 1) == 1;
  } else if constexpr (kDType == DType::kString) {
    std::string text(static_cast<size_t>(random.between(0, 40)), ' ');
    for (char& c : text) c = static_cast<char>(random.between(0, 255));
    return text;
  } else if constexpr (kDType == DType::kResource) {
    return ResourceHandle{"/job:localhost/replica:0/task:0/device:CPU:0",
                          "container",
                          str_cat("v", random.between(0, 999)),
                          "Variable",
                          {{DType::kFloat, PartialShape({2, -1})}}};
  } else if constexpr (kDType == DType::kVariant) {
    return Variant{make_ref<TestVariant>(str_cat(random.next()), Tensor::scalar(random.unit()))};
  } else if constexpr (is_complex_v<T>) {
    using Part = typename T::value_type;
    const auto real = static_cast<Part>(random.unit());
    return T(real, static_cast<Part>(random.unit()));
  } else if constexpr (kFloating.contains(kDType)) {
    return static_cast<T>(random.unit());
  } else if constexpr (requires(T v) { v.bits; }) {
    return T(static_cast<float>(random.unit()));
  } else if constexpr (requires { T::kMin; }) {
    return T(random.between(T::kMin, T::kMax));
  } else if constexpr (requires(T v) { v.value; }) {
    T result;
    result.value = random_element<decltype(T::value)>(random);
    return result;
  } else {
    return static_cast<T>(random.between(std::is_signed_v<T> ? -100 : 0, 100));
  }
}

using AllTypes = ConcatTypes<PlainTypes, TypeList<std::string, ResourceHandle, Variant>>;

// What differs in dtype or shape; nothing when both agree.
std::optional<std::string> compare_kind(const Tensor& actual, const Tensor& expected) {
  if (actual.dtype() != expected.dtype()) {
    return str_cat("dtype is ", actual.dtype(), ", expected ", expected.dtype());
  }
  if (actual.shape() != expected.shape()) {
    return str_cat("shape is ", actual.shape(), ", expected ", expected.shape());
  }
  return std::nullopt;
}

std::string position(const Shape& shape, int64_t flat) {
  std::vector<int64_t> index(static_cast<size_t>(shape.rank()));
  for (int i = shape.rank() - 1; i >= 0; --i) {
    index[static_cast<size_t>(i)] = flat % shape.dim(i);
    flat /= shape.dim(i);
  }
  return str_cat('[', str_join(index, ","), ']');
}

std::string element_text(const Tensor& tensor, int64_t i) {
  const Tensor flat = tensor.reshaped(Shape{tensor.num_elements()}).value();
  const std::string text = flat.row(i).to_string();
  return text.substr(text.find('{'));
}

// Compares element by element and describes the first that differ.
template <class Same>
std::string describe_mismatches(const Tensor& actual, const Tensor& expected, Same same) {
  int64_t count = 0;
  std::string shown;
  for (int64_t i = 0; i < actual.num_elements(); ++i) {
    if (same(i)) continue;
    if (++count <= kMaxMismatchesShown) {
      shown += str_cat("\n  at ", position(actual.shape(), i), ": ", element_text(actual, i),
                       ", expected ", element_text(expected, i));
    }
  }
  return count == 0 ? "" : str_cat(count, " of ", actual.num_elements(), " elements differ", shown);
}

void report(const std::string& failure, SourceLocation where) {
  if (!failure.empty()) ADD_FAILURE_AT(where.file, where.line) << failure;
}

bool close(double a, double b, double rtol, double atol) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::abs(a - b) <= atol + rtol * std::abs(b);
}

}  // namespace

void expect_tensor_equal(const Tensor& actual, const Tensor& expected, SourceLocation where) {
  if (const auto difference = compare_kind(actual, expected)) return report(*difference, where);
  if (bit_equal(actual, expected)) return;
  const Shape flat{actual.num_elements()};
  const Tensor a = actual.reshaped(flat).value();
  const Tensor b = expected.reshaped(flat).value();
  report(describe_mismatches(actual, expected,
                             [&](int64_t i) { return bit_equal(a.row(i), b.row(i)); }),
         where);
}

void expect_tensor_close(const Tensor& actual, const Tensor& expected, double rtol, double atol,
                         SourceLocation where) {
  if (const auto difference = compare_kind(actual, expected)) return report(*difference, where);
  using Approximate = ConcatTypes<FloatingTypes, ComplexTypes>;
  if (!type_set_of<Approximate>.contains(actual.dtype())) {
    return expect_tensor_equal(actual, expected, where);
  }
  MR_CHECK_OK(dispatch<Approximate>(actual.dtype(), [&]<class T>() {
    const std::span<const T> a = actual.data<T>();
    const std::span<const T> b = expected.data<T>();
    const std::string failure = describe_mismatches(actual, expected, [&](int64_t i) {
      const T x = a[static_cast<size_t>(i)];
      const T y = b[static_cast<size_t>(i)];
      if constexpr (is_complex_v<T>) {
        return close(x.real(), y.real(), rtol, atol) && close(x.imag(), y.imag(), rtol, atol);
      } else {
        return close(static_cast<double>(x), static_cast<double>(y), rtol, atol);
      }
    });
    if (!failure.empty()) {
      report(str_cat(failure, "\n  with rtol ", rtol, " and atol ", atol), where);
    }
  }));
}

Tensor random_tensor(DType dtype, const Shape& shape, uint64_t seed) {
  static const bool registered =
      register_variant_decoder("millrace.TestVariant", TestVariant::decode).ok();
  MR_CHECK(registered);
  Random random(seed);
  Tensor tensor = Tensor::allocate(dtype, shape).value();
  MR_CHECK_OK(dispatch<AllTypes>(dtype, [&]<class T>() {
    for (T& element : tensor.mutable_data<T>()) element = random_element<T>(random);
  }));
  return tensor;
}

}  // namespace millrace
