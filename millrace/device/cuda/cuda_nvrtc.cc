// Kernels that are compiled at run time by NVRTC, which is looked for when it is needed first.

#include <dlfcn.h>
#include <nvrtc.h>

#include <vector>

#include "millrace/device/cuda/kernel_compiler.h"

namespace millrace {
namespace {

// Formulas are rounded as those that were compiled with the library: no step of one is contracted
// with the next.
constexpr const char* kFlags[] = {"--std=c++20", "--fmad=false",
                                  "--device-as-default-execution-space",
                                  "--pre-include=millrace/ops/math/stand_ins.cuh"};

struct Nvrtc {
  decltype(&nvrtcVersion) version = nullptr;
  decltype(&nvrtcCreateProgram) create = nullptr;
  decltype(&nvrtcDestroyProgram) destroy = nullptr;
  decltype(&nvrtcCompileProgram) compile = nullptr;
  decltype(&nvrtcGetProgramLogSize) log_size = nullptr;
  decltype(&nvrtcGetProgramLog) log = nullptr;
  decltype(&nvrtcGetCUBINSize) image_size = nullptr;
  decltype(&nvrtcGetCUBIN) image = nullptr;
};

Result<Nvrtc> load_nvrtc() {
  void* library = nullptr;
  for (const std::string& name :
       {str_cat("libnvrtc.so.", CUDART_VERSION / 1000), std::string("libnvrtc.so")}) {
    library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) return not_found("libnvrtc.so cannot be loaded: ", dlerror());
  Nvrtc out;
  bool complete = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    complete &= function != nullptr;
  };
  find(out.version, "nvrtcVersion");
  find(out.create, "nvrtcCreateProgram");
  find(out.destroy, "nvrtcDestroyProgram");
  find(out.compile, "nvrtcCompileProgram");
  find(out.log_size, "nvrtcGetProgramLogSize");
  find(out.log, "nvrtcGetProgramLog");
  find(out.image_size, "nvrtcGetCUBINSize");
  find(out.image, "nvrtcGetCUBIN");
  if (!complete) return not_found("libnvrtc.so is too old");
  return out;
}

const Result<Nvrtc>& nvrtc() {
  static const auto& loaded = *new Result<Nvrtc>(load_nvrtc());
  return loaded;
}

}  // namespace

Result<std::string> kernel_compiler_version(int architecture) {
  if (!nvrtc().ok()) return nvrtc().status();
  int major = 0, minor = 0;
  if (nvrtc()->version(&major, &minor) != NVRTC_SUCCESS) return internal("nvrtcVersion failed");
  std::string out = str_cat("nvrtc ", major, ".", minor, " sm_", architecture);
  for (const char* flag : kFlags) out += str_cat(" ", flag);
  return out;
}

Status start_kernel_compiler(int architecture) {
  return compile_kernel("extern \"C\" __global__ void fused(float* x) { x[0] = sinf(x[1]); }\n",
                        architecture)
      .status();
}

Result<std::string> compile_kernel(const std::string& source, int architecture) {
  if (!nvrtc().ok()) return nvrtc().status();
  const Nvrtc& lib = *nvrtc();
  std::vector<const char*> names, texts;
  for (const auto& [name, text] : kernel_headers()) {
    names.push_back(name);
    texts.push_back(text);
  }
  nvrtcProgram program = nullptr;
  if (lib.create(&program, source.c_str(), "fused.cu", static_cast<int>(names.size()), texts.data(),
                 names.data()) != NVRTC_SUCCESS) {
    return internal("nvrtcCreateProgram failed");
  }
  const std::string target = str_cat("--gpu-architecture=sm_", architecture);
  std::vector<const char*> flags = {target.c_str()};
  flags.insert(flags.end(), std::begin(kFlags), std::end(kFlags));
  const nvrtcResult done = lib.compile(program, static_cast<int>(flags.size()), flags.data());
  std::string text;
  size_t size = 0;
  if (done != NVRTC_SUCCESS) {
    if (lib.log_size(program, &size) == NVRTC_SUCCESS) {
      text.resize(size);
      static_cast<void>(lib.log(program, text.data()));
    }
    static_cast<void>(lib.destroy(&program));
    return internal("NVRTC, for sm_", architecture, ": ", text);
  }
  bool got = lib.image_size(program, &size) == NVRTC_SUCCESS;
  if (got) {
    text.resize(size);
    got = lib.image(program, text.data()) == NVRTC_SUCCESS;
  }
  static_cast<void>(lib.destroy(&program));
  if (!got) return internal("NVRTC gave no code for sm_", architecture);
  return text;
}

Result<void*> load_kernel(const std::string& image, int ordinal) {
  MR_TRY(make_cuda_device_current(ordinal));
  cudaLibrary_t library = nullptr;
  MR_CUDA_TRY(
      cudaLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  cudaKernel_t kernel = nullptr;
  MR_CUDA_TRY(cudaLibraryGetKernel(&kernel, library, "fused"));
  // On the GPU now, not when it is launched first.
  cudaFuncAttributes attributes;
  MR_CUDA_TRY(cudaFuncGetAttributes(&attributes, static_cast<const void*>(kernel)));
  return static_cast<void*>(kernel);
}

Status CompiledKernel::launch_function(const KernelContext& ctx, void* function, unsigned blocks,
                                       std::span<const uint64_t> words) {
  MR_TRY_ASSIGN(cudaStream_t stream, cuda_stream(ctx));
  void* arguments[] = {const_cast<uint64_t*>(words.data())};
  MR_CUDA_TRY(cudaLaunchKernel(function, dim3(blocks), dim3(kThreads), arguments, 0, stream));
  return launched(stream);
}

}  // namespace millrace
