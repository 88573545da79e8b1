#pragma once

#include <cstdint>
#include <string_view>

namespace millrace {

// Canonical error codes. The numbers are gRPC's, so a code crosses the wire unchanged.
enum class Code : int32_t {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// "INVALID_ARGUMENT" for Code::kInvalidArgument; "UNKNOWN" for a number that is no code.
std::string_view code_name(Code code);

}  // namespace millrace
