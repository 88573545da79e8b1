#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/graph/op_registry.h"

namespace millrace {

// Input number and value of inputs that are constants.
using TestConstants = std::vector<std::pair<int, Tensor>>;

// Runs the shape rule of an op on inputs written as text, for tests of rules:
//
//   EXPECT_EQ(*infer_shapes(registry, "Add", {}, "[1,?];[2]"), "[1,2]");
//   EXPECT_EQ(*infer_shapes(registry, "Reshape", {}, "[6];[2]",
//                           {{1, Tensor::vector<int32_t>({2, -1})}}), "[2,3]");
//
// Inputs are separated by ';': "?" is a tensor of unknown rank, "[2,?]" one of rank 2, "=[2,?,-1]"
// an integer vector with these elements, "=3" an integer scalar. "" means no inputs. A constant
// replaces the shape written for its input. Type and number attributes that `attrs` do not hold
// follow from the constants, the defaults, the number of inputs, else float (or int32 or the first
// type the op allows). The answer has the outputs' shapes, separated by ';'. Errors are the rule's
// own.
Result<std::string> infer_shapes(const OpRegistry& registry, std::string_view op, AttrMap attrs,
                                 std::string_view inputs, const TestConstants& constants = {});

// The same with the outputs' values, as far as they are known: "?", "3", "[2,?,-1]".
Result<std::string> infer_values(const OpRegistry& registry, std::string_view op, AttrMap attrs,
                                 std::string_view inputs, const TestConstants& constants = {});

}  // namespace millrace
