// Kernels that are compiled at run time by the host's compiler.

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "millrace/base/env.h"
#include "millrace/base/file.h"
#include "millrace/device/cuda/kernel_compiler.h"

namespace millrace {
namespace {

constexpr std::string_view kCommand = MILLRACE_EMULATED_COMPILE;

// A folder that goes away again.
class Folder {
 public:
  static Result<Folder> make() {
    std::string name = (std::filesystem::temp_directory_path() / "kernel_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) return internal("mkdtemp failed");
    return Folder(std::move(name));
  }
  Folder(Folder&& other) noexcept : name_(std::exchange(other.name_, {})) {}
  Folder& operator=(Folder&&) = delete;
  ~Folder() {
    std::error_code ignored;
    if (!name_.empty()) std::filesystem::remove_all(name_, ignored);
  }
  std::string file(std::string_view name) const { return str_cat(name_, "/", name); }

 private:
  explicit Folder(std::string name) : name_(std::move(name)) {}
  std::string name_;
};

}  // namespace

// Only for tests that ask for it: a kernel takes a second.
Result<std::string> kernel_compiler_version(int) {
  if (env_string("MILLRACE_EMULATED_COMPILER") == "1") return std::string(kCommand);
  return unimplemented("kernels are not compiled");
}

Status start_kernel_compiler(int architecture) {
  return kernel_compiler_version(architecture).status();
}

Result<std::string> compile_kernel(const std::string& source, int) {
  MR_TRY_ASSIGN(const Folder folder, Folder::make());
  // One thread that does all of it.
  const std::string text = str_cat(source, R"(
extern "C" void fused_on_host(const uint64_t* words) {
  fused(*reinterpret_cast<const fused_words*>(words));
}
)");
  MR_TRY(write_file_atomically(posix_file_system(), folder.file("fused.cc"), text));
  const std::string command = str_cat(kCommand, " -shared ", folder.file("fused.cc"), " -o ",
                                      folder.file("fused.so"), " 2> ", folder.file("log"));
  if (std::system(command.c_str()) != 0) {
    MR_TRY_ASSIGN(const std::string log, read_file(posix_file_system(), folder.file("log")));
    return internal("the compiler says: ", log);
  }
  return read_file(posix_file_system(), folder.file("fused.so"));
}

Result<void*> load_kernel(const std::string& image, int) {
  MR_TRY_ASSIGN(const Folder folder, Folder::make());
  MR_TRY(write_file_atomically(posix_file_system(), folder.file("fused.so"), image));
  void* const library = dlopen(folder.file("fused.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return internal(dlerror());
  return dlsym(library, "fused_on_host");
}

Status CompiledKernel::launch_function(const KernelContext& ctx, void* function, unsigned,
                                       std::span<const uint64_t> words) {
  MR_TRY_ASSIGN(cudaStream_t stream, cuda_stream(ctx));
  emulated_enqueue(stream, [function, kept = std::vector<uint64_t>(words.begin(), words.end())] {
    reinterpret_cast<void (*)(const uint64_t*)>(function)(kept.data());
  });
  return ok_status();
}

}  // namespace millrace
