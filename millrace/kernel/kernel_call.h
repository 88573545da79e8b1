#pragma once

#include <cstdint>
#include <span>

#include "millrace/graph/origin.h"
#include "millrace/kernel/kernel.h"

// What stands around a call of a kernel, whoever makes it: an executor in either gear, eager code.

namespace millrace {

Status uninitialized(const RefCell& cell);

// Reads a reference for a kernel that wants the value; FAILED_PRECONDITION for a variable without
// one.
inline Status read_reference(const Value& reference, Value& value) {
  value = Value::of(reference.cell->read());
  if (value.tensor.valid()) [[likely]]
    return ok_status();
  return uninitialized(*reference.cell);
}

// How a kernel wants its inputs, from the op's traits.
struct InputNeeds {
  uint32_t retains = 0;           // bit i: input i is kept past the run
  bool reads_refs = false;        // some input may come as a reference
  bool uninitialized_ok = false;  // references may point to variables without a value

  // Whether inputs must go through prepare_inputs().
  bool any() const { return reads_refs || retains != 0; }
};

// Replaces the pointers of inputs that the kernel cannot take as they are by pointers to `copies`
// (as many as inputs): references wanted by value are read; borrowed memory that the kernel would
// keep is copied. A reference wanted as such must point to an initialised variable unless the op
// allows less.
Status prepare_inputs(const KernelNode& node, const InputNeeds& needs, Value** inputs,
                      Value* copies);

// The error of output i, which the kernel did not set, or not to the declared type.
Status wrong_output(const Value& output, int i, DType declared);

// INTERNAL unless the kernel set every output, each to the declared type.
inline Status check_outputs(const DType* declared, int count, const Value* outputs) {
  for (int i = 0; i < count; ++i) {
    const Value& v = outputs[i];
    if (v.state == Value::State::kTensor ? v.tensor.dtype() == declared[i]
                                         : v.state != Value::State::kEmpty) [[likely]] {
      continue;
    }
    return wrong_output(v, i, declared[i]);
  }
  return ok_status();
}

// `status`, an INVALID_ARGUMENT about what a kernel was given, with a line that says what it was
// given: "inputs: float32 [2,3], int32 []". Other errors as they are.
Status with_inputs(const Status& status, std::span<Value* const> inputs);

// A kernel's error with what a user needs to find the place: op and node name before it, the origin
// and "[[{{node NAME}}]]" after it.
Status annotate_error(const Status& status, const KernelNode& node, OriginId origin);

}  // namespace millrace
