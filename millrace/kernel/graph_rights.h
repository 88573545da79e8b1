#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "millrace/base/status.h"
#include "millrace/graph/attr_value.h"

namespace millrace {

struct KernelNode;

// What an op reaches beyond its inputs and the state of its own session.
enum class Reach : uint8_t {
  kFiles,      // files of the machine
  kPyFunc,     // functions of the process that no graph holds
  kLibraries,  // it comes from a library that the process has loaded, and may do anything
  kState,      // state that sessions share: variables, what has a shared name
};

// What a graph may reach. Programs may reach everything from their own process; servers narrow it
// for clients that they do not know (docs/clusters.md, "What clients may do").
struct GraphRights {
  bool files = true;
  bool py_func = true;
  bool libraries = true;
  bool state = true;

  static constexpr GraphRights none() { return {false, false, false, false}; }
  // "files,state": those and no others; "all", "none". INVALID_ARGUMENT for another word.
  static Result<GraphRights> parse(std::string_view words);
  // "files,state", "all", "none".
  std::string to_string() const;

  bool has(Reach reach) const;
  bool all() const { return files && py_func && libraries && state; }
  // What both have.
  GraphRights operator&(const GraphRights& other) const;
  bool operator==(const GraphRights&) const = default;

  // For messages: a bit for each that is refused, so that 0 is everything. Bits that nobody knows
  // mean nothing.
  uint32_t refused_bits() const;
  static GraphRights from_refused_bits(uint32_t bits);
};

// Says of ops, where they are registered, what they reach; `when`: only with such attributes. Every
// op that opens a file says so. Thread-safe.
using ReachCondition = bool (*)(const AttrMap& attrs);
void mark_reach(std::initializer_list<std::string_view> ops, Reach reach,
                ReachCondition when = nullptr);

// Whether the op reaches this, with some attributes at least. kState: as far as it is marked; ops
// with an attribute "shared_name" that is not empty reach shared state without a mark.
bool reaches(std::string_view op, Reach reach);

// PERMISSION_DENIED, saying how it can be allowed, when the node reaches what `rights` lack.
Status check_rights(const KernelNode& node, const GraphRights& rights);
// The same for what is no node: `what` is "Reset". Says who is refused and which switch allows it.
Status refuse(Reach reach, std::string_view what);

}  // namespace millrace
