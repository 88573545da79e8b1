#include <cstddef>
#include <cstdint>

#include "millrace/base/check.h"
#include "millrace/io/image/image_testing.h"

extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=1024:allocator_may_return_null=1";
}

// The last byte chooses the options, the rest is the file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size - 1);
  const Status status = decode_any(bytes, data[size - 1]);
  MR_CHECK(status.ok() || status.code() == Code::kInvalidArgument ||
           status.code() == Code::kResourceExhausted || status.code() == Code::kUnimplemented);
  return 0;
}
