#pragma once

#include <span>
#include <string>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/io/example_parser.h"
#include "millrace/kernel/kernel.h"

// What the ops that parse Examples and SequenceExamples share.

namespace millrace {

// The types that features have, for attributes: "list(type) >= 0 in {float,int64,string}".
inline constexpr const char* kFeatureTypes = "list(type) >= 0 in {float,int64,string}";

Result<std::vector<FeatureSpec>> dense_specs(std::span<const DType> types,
                                             std::span<const PartialShape> shapes);

// The key in input i, a scalar; `what` is its name for errors.
Result<std::string> key_input(const KernelContext& ctx, int i, std::string_view what);
// The keys in input i, a vector of `size`.
Result<std::vector<std::string>> keys_input(const KernelContext& ctx, int i, std::string_view what,
                                            size_t size);

// Checks of inputs, by rules and by kernels: `names` is a vector or, with `scalar`, perhaps one
// string, empty or with one for each of the examples; `keys` a vector of `size`; a dense default of
// the feature's shape, one element where that varies, or without elements.
Status check_names(const ShapeContext& c, int i, const PartialShape& batch, bool scalar);
Status check_names(const KernelContext& ctx, int i, const Tensor& serialized, bool scalar);
Status check_keys(const ShapeContext& c, int i, size_t size);
Status check_defaults(const ShapeContext& c, int first, std::span<const FeatureSpec> dense);

// Sets outputs [at, ...) of a batch of examples, or of a single one: indices, values and shapes of
// sparse features, one kind after another.
void set_sparse_shapes(ShapeContext& c, int at, size_t count, int64_t columns);
void set_sparse_outputs(KernelContext& ctx, int at, std::span<ParsedFeature> features);

// The shape of a dense feature of examples whose batch has the shape `batch`, a vector or scalar.
Result<PartialShape> dense_output_shape(const PartialShape& batch, const PartialShape& shape);

}  // namespace millrace
