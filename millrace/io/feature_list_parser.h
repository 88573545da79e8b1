#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/io/example_parser.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// What to take from the feature lists of each SequenceExample. The context is read by an
// ExampleParser: its features have the place that an Example's have.
struct FeatureListSpec {
  enum class Form : uint8_t {
    kDense,   // a value of `shape` in every step
    kSparse,  // any number of values, with their indices
    kRagged,  // any number of values, with the places where steps and examples end
  };
  std::string key = {};
  DType dtype = DType::kInvalid;  // kFloat, kInt64 or kString
  Form form = Form::kDense;
  Shape shape = {};
  DType splits_dtype = DType::kInt64;
  bool missing_is_empty = false;  // kDense: a list that is not there has no steps
};

// One list of a batch. kDense: values [batch, longest, shape] padded with zeros, lengths [batch].
// kSparse: values [n], indices [n, 3], shape [3]. kRagged: values [n], the values that steps end
// before in inner_splits, the steps that examples end before in outer_splits. Of a single example
// the first dimension is left out, and outer_splits are empty.
struct ParsedFeatureList {
  Tensor values, indices, shape, lengths, inner_splits, outer_splits;
};

// Immutable, thread-safe.
class FeatureListParser {
 public:
  // INVALID_ARGUMENT for a type that no feature has.
  static Result<std::unique_ptr<FeatureListParser>> make(std::vector<FeatureListSpec> specs,
                                                         bool single);

  // One result for each spec; INVALID_ARGUMENT naming example, list and step for what does not fit.
  // `names` are for errors: empty, or one for each example.
  Result<std::vector<ParsedFeatureList>> parse(std::span<const std::string> serialized,
                                               std::span<const std::string> names,
                                               Allocator& allocator = cpu_allocator()) const;

 private:
  struct Steps;
  FeatureListParser(std::vector<FeatureListSpec> specs, bool single);
  // The steps of each list of one example, checked and counted.
  Result<std::vector<Steps>> scan(std::string_view serialized, std::string_view name) const;
  Status count(const FeatureListSpec& spec, std::string_view name, Steps& steps) const;
  Result<ParsedFeatureList> write(const FeatureListSpec& spec, std::span<const Steps* const> batch,
                                  Allocator& allocator) const;

  const std::vector<FeatureListSpec> specs_;
  const bool single_;
  const FeatureIndex index_;
};

}  // namespace millrace
