#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "millrace/base/check.h"
#include "millrace/ops/register_ops.h"

// The entry of fuzzers that run graphs: all ops are registered, and what they allocate is bounded,
// so that an input that asks for much memory is an error of its own and not the fuzzer's. For one
// source of a program.

namespace millrace {

// What the fuzzer does with an input.
void run_input(std::string_view input);

}  // namespace millrace

extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=1024:allocator_may_return_null=1";
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  setenv("MILLRACE_CPU_MEMORY_LIMIT", "268435456", 1);
  MR_CHECK_OK(millrace::register_ops());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::run_input({reinterpret_cast<const char*>(data), size});
  return 0;
}
