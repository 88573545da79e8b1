#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace millrace {

// What the pass mixed_precision may do with an op of float32. Ops that are in no list stay as they
// are.
enum class PrecisionList : uint8_t {
  kAllow,  // gains most, and loses nothing that matters: always in 16 bits
  kInfer,  // in 16 bits between such ops, unless what a denied op gave comes to it
  kDeny,   // needs float32, and so does what is computed from what it gives
  kClear,  // hands numbers on: computes as what is around it does
};

// Which op is in which list: TensorFlow's lists, as far as there are such ops, changed by the
// environment as they are there: TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_ALLOWLIST_ADD ("A,B"), then
// ..._REMOVE, and likewise the other lists.
std::unordered_map<std::string, PrecisionList> precision_lists();

}  // namespace millrace
