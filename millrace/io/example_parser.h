#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/base/status.h"
#include "millrace/io/feature.h"
#include "millrace/tensor/partial_shape.h"
#include "millrace/tensor/tensor.h"

// Serialized tf.Example messages into tensors, without making messages of them (docs/records.md).

namespace millrace {

// What to take from each example, and in which form.
struct FeatureSpec {
  enum class Form : uint8_t {
    kFixed,     // a value of `shape` in each example, or the default
    kVariable,  // any number of values of `shape`, padded to the longest in the batch
    kSparse,    // any number of values, with their indices
    kRagged,    // any number of values, with the places where rows end
  };
  std::string key = {};
  DType dtype = DType::kInvalid;  // kFloat, kInt64 or kString
  Form form = Form::kFixed;
  Shape shape = {};
  DType splits_dtype = DType::kInt64;  // kRagged: kInt32 or kInt64

  // A dense feature: kFixed, or kVariable where the first dimension is not known. INVALID_ARGUMENT
  // when another is not.
  static Result<FeatureSpec> dense(DType dtype, const PartialShape& shape);
};

// One feature of a batch. kFixed: values [batch, shape]. kVariable: [batch, longest, shape].
// kSparse: values [n], indices [n, 2], shape [2]. kRagged: values [n], splits [batch + 1].
// Of a single example the first dimension is left out: values [shape], [length, shape], indices
// [n, 1], shape [1], splits [0].
struct ParsedFeature {
  Tensor values, indices, shape, splits;
};

// How loops over a batch run: called with the number of examples, the nanoseconds that one takes,
// and the loop's body.
using ParallelLoop = FunctionRef<void(int64_t, double, FunctionRef<void(int64_t, int64_t)>)>;
// On the caller's thread.
inline constexpr auto serial_loop = [](int64_t n, double,
                                       FunctionRef<void(int64_t, int64_t)> body) {
  if (n > 0) body(0, n);
};

// Finds the features that a list of keys names. Immutable, thread-safe.
class FeatureIndex {
 public:
  explicit FeatureIndex(const std::vector<std::string_view>& keys);
  // Calls found(i) for each entry with that key.
  template <class F>
  void find(std::string_view key, F found) const {
    for (int32_t i = heads_[hash(key) & mask_]; i >= 0; i = next_[static_cast<size_t>(i)]) {
      if (keys_[static_cast<size_t>(i)] == key) found(static_cast<size_t>(i));
    }
  }

 private:
  static uint64_t hash(std::string_view key);

  std::vector<std::string> keys_;
  std::vector<int32_t> heads_, next_;
  uint64_t mask_ = 0;
};

class ExampleParser {
 public:
  struct Options {
    // The words of errors: features of an Example, or those of a SequenceExample's context.
    bool context = false;
    bool single = false;
  };
  // INVALID_ARGUMENT for a type that no feature has.
  static Result<std::unique_ptr<ExampleParser>> make(std::vector<FeatureSpec> specs,
                                                     const Options& options);

  struct Batch {
    std::span<const std::string> serialized;
    std::span<const std::string> names = {};  // for errors; empty, or one for each example
    // One for each spec. kFixed: of its shape, or without elements where the feature is required.
    // kVariable: one element, or none for zeros. Not looked at for other forms.
    std::span<const Tensor> defaults;
  };
  // One result for each spec. INVALID_ARGUMENT naming example and key for what does not fit, that
  // of the first example; the same results whatever `loop` does. Memory is allocated for values
  // that were counted in the bytes.
  Result<std::vector<ParsedFeature>> parse(const Batch& batch, ParallelLoop loop = serial_loop,
                                           Allocator& allocator = cpu_allocator()) const;

  const std::vector<FeatureSpec>& specs() const { return specs_; }

 private:
  struct Pass;
  ExampleParser(std::vector<FeatureSpec> specs, const Options& options);

  const std::vector<FeatureSpec> specs_;
  const Options options_;
  const FeatureIndex index_;
};

}  // namespace millrace
