#pragma once

#include <atomic>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "millrace/device/cuda/cuda_context.h"

namespace millrace {

// A kernel that is compiled while the program runs. Lives as long as the process. Thread-safe.
class CompiledKernel {
 public:
  static constexpr int kThreads = 256;  // of a block

  // Whether it may be launched. False until it is compiled, and for ever where it cannot be.
  bool ready() const { return function_.load(std::memory_order_acquire) != nullptr; }
  // Whether it is being compiled.
  bool awaited() const { return awaited_.load(std::memory_order_acquire); }
  // Enqueues it with blocks of kThreads threads; its one argument is made of `words`.
  Status launch(const KernelContext& ctx, unsigned blocks, std::span<const uint64_t> words) const;

 private:
  static Status launch_function(const KernelContext& ctx, void* function, unsigned blocks,
                                std::span<const uint64_t> words);
  friend class KernelCompiler;
  std::atomic<void*> function_{nullptr};
  std::atomic<bool> awaited_{false};
};

// The kernel called "fused" in a source in CUDA, for the GPU that `ctx` runs on. Asked for the
// first time it is compiled in the background; a second source with the same text is the same
// kernel. The first of all calls loads the compiler, which takes some 40 ms.
const CompiledKernel& compiled_kernel(const KernelContext& ctx, std::string_view source);

// For tests: returns when nothing is being compiled; how many such kernels were launched.
void wait_for_compiled_kernels();
int64_t compiled_kernel_launches();

// What compile_kernel() gives. With MILLRACE_CUDA_CACHE=FOLDER in the environment it is kept there,
// by everything that it depends on: source, headers, architecture, flags, version of the compiler.
// What was damaged is made again.
Result<std::string> kernel_image(const std::string& source, int architecture);

// The headers that sources may include: name and text. Made by the build.
std::span<const std::pair<const char*, const char*>> kernel_headers();

// What there is one of for NVRTC and one for the host's compiler.

// Uses the compiler once, so that all that it needs is loaded; an error where there is none,
// UNIMPLEMENTED where there may be one later.
Status start_kernel_compiler(int architecture);
// Architecture, flags and version, for the key of what is kept; an error where there is no
// compiler.
Result<std::string> kernel_compiler_version(int architecture);
Result<std::string> compile_kernel(const std::string& source, int architecture);
// The function in what compile_kernel() gave, on this GPU.
Result<void*> load_kernel(const std::string& image, int ordinal);

}  // namespace millrace
