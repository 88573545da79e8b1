#pragma once

#include <string>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"

namespace tensorflow {
class Summary;
}  // namespace tensorflow

namespace millrace {

inline constexpr const char* kSummaryNoGradient = "writes a message for people";

// The output of ops that make summaries: one string, a serialised Summary.
Status set_summary(KernelContext& ctx, const tensorflow::Summary& summary);

// UTF-8, which messages hold, with U+FFFD in place of bytes that are none.
std::string text_of(const std::string& bytes);

// The tag in input 0, a scalar (INVALID_ARGUMENT otherwise), as text.
Result<std::string> tag_input(const KernelContext& ctx);

// The tag of number i of those that one op writes: "a/image/2", or "a/image" where `max` is 1.
std::string numbered_tag(const std::string& base, const char* kind, int64_t i, int64_t max);

}  // namespace millrace
