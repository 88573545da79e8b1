#include "millrace/device/cuda/kernel_compiler.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <unordered_map>

#include "millrace/base/env.h"
#include "millrace/base/file.h"
#include "millrace/base/hash.h"
#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"

namespace millrace {
namespace {

std::atomic<int64_t> launches{0};

uint64_t hash_of_headers() {
  static const uint64_t hash = [] {
    uint64_t all = 0;
    for (const auto& [name, text] : kernel_headers()) {
      all = hash_combine(all, hash_bytes(std::string_view(name)));
      all = hash_combine(all, hash_bytes(std::string_view(text)));
    }
    return all;
  }();
  return hash;
}

std::string checksum(std::string_view image) {
  const uint64_t hash = hash_bytes(image);
  return {reinterpret_cast<const char*>(&hash), sizeof(hash)};
}

}  // namespace

Result<std::string> kernel_image(const std::string& source, int architecture) {
  MR_TRY_ASSIGN(const std::string compiler, kernel_compiler_version(architecture));
  const std::string folder(env_string("MILLRACE_CUDA_CACHE"));
  if (folder.empty()) return compile_kernel(source, architecture);
  // A file has the whole key, so that another one with the same hash is not taken for it.
  const std::string key =
      str_cat("millrace kernel\n", compiler, "\n", hash_of_headers(), "\n", source);
  const std::string path = str_cat(folder, "/", hash_bytes(key), ".kernel");
  FileSystem& files = posix_file_system();
  constexpr size_t kSum = sizeof(uint64_t);
  if (const Result<std::string> kept = read_file(files, path);
      kept.ok() && kept->size() > key.size() + kSum && kept->starts_with(key)) {
    std::string image = kept->substr(key.size() + kSum);
    if (kept->compare(key.size(), kSum, checksum(image)) == 0) return image;
  }
  MR_TRY_ASSIGN(std::string image, compile_kernel(source, architecture));
  Status written = files.mkdir_all(folder);
  if (written.ok()) {
    written = write_file_atomically(files, path, str_cat(key, checksum(image), image));
  }
  if (!written.ok()) MR_LOG(kWarning, "a kernel could not be kept: ", written);
  return image;
}

class KernelCompiler {
 public:
  static KernelCompiler& get() {
    static KernelCompiler* const compiler = new KernelCompiler;
    return *compiler;
  }

  const CompiledKernel& find(int ordinal, std::string_view source) {
    std::string key = str_cat(ordinal, "\n", source);
    MutexLock lock(mu_);
    if (!started_) start(ordinal);
    if (!started_ || stopped_) return none_;
    auto [at, fresh] = kernels_.try_emplace(std::move(key));
    if (!fresh) return *at->second;
    at->second = std::make_unique<CompiledKernel>();
    at->second->awaited_.store(true, std::memory_order_relaxed);
    ++compiling_;
    ThreadPool::global().schedule_blocking(
        [this, ordinal, kernel = at->second.get(), text = std::string(source)] {
          compile(ordinal, text, *kernel);
        });
    return *at->second;
  }

  void wait() {
    MutexLock lock(mu_);
    while (compiling_ > 0) changed_.wait(mu_);
  }

 private:
  // When the process ends the compiler's libraries are taken apart, by handlers that they register
  // when they are used first. What runs in them must be over before: so they are used here, while
  // the caller waits, and the handler that comes then runs before theirs.
  void start(int ordinal) MR_REQUIRES(mu_) {
    const Result<int> architecture = architecture_of(ordinal);
    const Status usable =
        architecture.ok() ? start_kernel_compiler(*architecture) : architecture.status();
    if (usable.code() == Code::kUnimplemented) return;
    started_ = true;
    if (!usable.ok()) {
      stopped_ = true;
      MR_LOG(kWarning, "kernels are not compiled: ", usable);
      return;
    }
    process_ = getpid();
    static_cast<void>(std::atexit([] {
      KernelCompiler& compiler = get();
      // A forked child has no thread that compiles.
      if (getpid() != compiler.process_) return;
      MutexLock at_exit(compiler.mu_);
      compiler.stopped_ = true;
      while (compiler.running_ > 0) compiler.changed_.wait(compiler.mu_);
    }));
  }

  void compile(int ordinal, const std::string& source, CompiledKernel& kernel) {
    {
      MutexLock lock(mu_);
      if (stopped_) return;
      ++running_;
    }
    const Result<void*> made = make(ordinal, source);
    if (made.ok()) {
      kernel.function_.store(*made, std::memory_order_release);
    } else {
      MR_LOG(kWarning, "a fused kernel could not be compiled: ", made.status());
    }
    kernel.awaited_.store(false, std::memory_order_release);
    MutexLock lock(mu_);
    --running_;
    --compiling_;
    changed_.notify_all();
  }

  static Result<int> architecture_of(int ordinal) {
    MR_TRY(make_cuda_device_current(ordinal));
    cudaDeviceProp gpu;
    MR_CUDA_TRY(cudaGetDeviceProperties(&gpu, ordinal));
    return gpu.major * 10 + gpu.minor;
  }

  static Result<void*> make(int ordinal, const std::string& source) {
    MR_TRY_ASSIGN(const int architecture, architecture_of(ordinal));
    MR_TRY_ASSIGN(const std::string image, kernel_image(source, architecture));
    return load_kernel(image, ordinal);
  }

  CompiledKernel none_;  // is never ready
  Mutex mu_;
  CondVar changed_;
  std::unordered_map<std::string, std::unique_ptr<CompiledKernel>> kernels_ MR_GUARDED_BY(mu_);
  int compiling_ MR_GUARDED_BY(mu_) = 0;     // asked for and not there yet
  int running_ MR_GUARDED_BY(mu_) = 0;       // of these, those that a thread is at
  bool started_ MR_GUARDED_BY(mu_) = false;  // or has tried to
  bool stopped_ MR_GUARDED_BY(mu_) = false;  // or cannot compile anything
  pid_t process_ = 0;
};

Status CompiledKernel::launch(const KernelContext& ctx, unsigned blocks,
                              std::span<const uint64_t> words) const {
  launches.fetch_add(1, std::memory_order_relaxed);
  return launch_function(ctx, function_.load(std::memory_order_acquire), blocks, words);
}

int64_t compiled_kernel_launches() { return launches.load(std::memory_order_relaxed); }

const CompiledKernel& compiled_kernel(const KernelContext& ctx, std::string_view source) {
  return KernelCompiler::get().find(static_cast<CudaStream*>(ctx.stream())->ordinal(), source);
}

void wait_for_compiled_kernels() { KernelCompiler::get().wait(); }

}  // namespace millrace
