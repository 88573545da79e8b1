// Chains of elementwise ops on a GPU: as one kernel, compiled at run time, they have the bits that
// they have one by one.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "millrace/api/client_session.h"
#include "millrace/api/ops.h"
#include "millrace/base/file.h"
#include "millrace/device/cuda/cuda_testing.h"
#include "millrace/device/cuda/kernel_compiler.h"
#include "millrace/kernel/registry.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

class CudaFused : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(setenv("MILLRACE_EMULATED_COMPILER", "1", 1), 0);
    set_gpu_library(millrace_gpu_library(GpuLibrary::kVersion));
    MR_SKIP_WITHOUT_GPU();
  }
  void TearDown() override { ASSERT_EQ(unsetenv("MILLRACE_EMULATED_COMPILER"), 0); }

  Tensor random(const Shape& shape) {
    Tensor out = Tensor::allocate(DType::kFloat, shape).value();
    for (float& v : out.mutable_data<float>()) {
      v = static_cast<float>(random_() % 4000) / 1000.0F - 2;
    }
    return out;
  }
  Expr input(const Shape& shape) {
    inputs_.emplace_back(ops::placeholder(root_, DType::kFloat), random(shape));
    return inputs_.back().first;
  }

  // Runs the same step until its kernels are there, and once more.
  void expect_same_bits(const std::vector<Expr>& fetches) {
    ASSERT_TRUE(root_.status().ok()) << root_.status().to_string();
    SessionOptions options;
    options.soft_placement = true;
    Result<ClientSession> session = ClientSession::create(root_, options);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    std::vector<Tensor> first;
    int64_t launches = 0;
    for (int run = 0; run < 4; ++run) {
      launches = compiled_kernel_launches();
      Result<std::vector<Tensor>> out = session->run(inputs_, fetches);
      ASSERT_TRUE(out.ok()) << out.status().to_string();
      wait_for_compiled_kernels();
      if (run == 0) first = *out;
      for (size_t i = 0; i < first.size(); ++i) {
        ASSERT_EQ((*out)[i].shape(), first[i].shape());
        EXPECT_TRUE(bit_equal((*out)[i], first[i])) << "run " << run << ", fetch " << i;
      }
    }
    EXPECT_GT(compiled_kernel_launches(), launches) << "no kernel of its own was compiled";
    SessionOptions cpu;
    cpu.gpu.count = 0;
    Result<ClientSession> other = ClientSession::create(root_, cpu);
    Result<std::vector<Tensor>> expected = other->run(inputs_, fetches);
    ASSERT_TRUE(expected.ok()) << expected.status().to_string();
    for (size_t i = 0; i < first.size(); ++i) {
      if (first[i].dtype() != DType::kFloat) continue;
      for (size_t k = 0; k < first[i].data<float>().size(); ++k) {
        const float want = (*expected)[i].data<float>()[k];
        ASSERT_NEAR(first[i].data<float>()[k], want, 2e-2 * std::max(1.0F, std::abs(want)));
      }
    }
  }

  std::mt19937 random_{7};
  Scope root_ = Scope::make_root();
  std::vector<std::pair<Expr, Tensor>> inputs_;
};

TEST_F(CudaFused, ReadsRowsColumnsAndSingleElements) {
  const Expr x = input({6, 40}), row = input({40}), column = input({6, 1}), one = input({});
  const Expr h = call("Tanh", {call("BiasAdd", {x, row})}) * one;
  const Expr y = call("Relu", {h - column}) + call("Sigmoid", {x});
  // Of another shape, and read by somebody else.
  const Expr scale = call("Rsqrt", {call("Square", {row}) + 0.5});
  expect_same_bits({y * scale, h, scale});
}

TEST_F(CudaFused, RoundsEveryOpToItsType) {
  const Expr x = input({5, 7}), y = input({5, 1, 7});
  const Expr rows = ops::placeholder(root_, DType::kBool);
  Tensor picks = Tensor::allocate(DType::kBool, Shape{5}).value();
  for (size_t i = 0; i < 5; ++i) picks.mutable_data<bool>()[i] = i % 2 == 0;
  inputs_.emplace_back(rows, picks);
  const Expr a = cast(x, DType::kHalf), b = cast(y, DType::kBFloat16);
  const Expr half = call("AddN", {a * a, call("Exp", {a}), a}) * (a + 3.0);
  const Expr brain = cast(b * b - b, DType::kFloat) + cast(half, DType::kFloat);
  const Expr picked = call("Select", {rows, x, -x});
  const Expr chosen =
      call("SelectV2", {less(brain, brain * brain), brain, cast(picked, DType::kFloat)});
  const Expr whole = cast(chosen * 100.0, DType::kInt32);
  expect_same_bits({chosen, cast(whole * whole - whole, DType::kInt64)});
}

// Every op of the tables, sixteen at a time, each read by a sum and fetched too.
TEST_F(CudaFused, EveryFormulaIsThatOfTheOpAlone) {
#if defined(MILLRACE_CUDA_EMULATED)
  GTEST_SKIP() << "the host's compiler takes a second for a kernel";
#endif
  for (const DType type : {DType::kFloat, DType::kHalf, DType::kBFloat16, DType::kDouble}) {
    SCOPED_TRACE(dtype_name(type));
    root_ = Scope::make_root();
    inputs_.clear();
    const Expr x = input({3, 1000}), y = input({3, 1000});
    // Where all functions have a value.
    const Expr a = cast(call("Sigmoid", {x}), type), b = cast(call("Sigmoid", {y}), type);
    Expr sum = a;
    std::vector<Expr> fetches;
    for (const OpDef* op : OpRegistry::global().list()) {
      const size_t arity = op->inputs.size();
      const AttrMap attrs = {{"T", type}};
      if (op->traits.fused_by.empty() || op->deprecated_since > 0 || op->attrs.size() != 1 ||
          op->attrs[0].name != "T" || arity > 2 || op->name.starts_with("BiasAdd") ||
          op->name == "StopGradient" || !op->attrs[0].allowed_types.contains(type) ||
          !KernelRegistry::global().any(op->name, DeviceKind::kCuda, attrs)) {
        continue;
      }
      const Expr z = arity == 1 ? call(op->name, {a}) : call(op->name, {a, b});
      fetches.push_back(z);
      sum = sum + cast(z, type);
    }
    EXPECT_GT(fetches.size(), 50);
    fetches.push_back(sum);
    expect_same_bits(fetches);
  }
}

TEST_F(CudaFused, NothingToComputeIsNothing) {
  const Expr x = input({0, 4}), b = input({4});
  const Expr y = call("Relu", {call("Tanh", {x}) * b});
  SessionOptions options;
  options.soft_placement = true;
  ClientSession session = ClientSession::create(root_, options).value();
  for (int run = 0; run < 3; ++run) {
    const std::vector<Tensor> out = session.run(inputs_, {y}).value();
    EXPECT_EQ(out[0].shape(), (Shape{0, 4}));
  }
  // Shapes that do not go together are an error of the op, as without.
  inputs_[0].second = random({2, 3});
  const Status failed = session.run(inputs_, {y}).status();
  EXPECT_EQ(failed.code(), Code::kInvalidArgument);
  EXPECT_NE(failed.to_string().find("Mul"), std::string::npos) << failed.to_string();
}

TEST_F(CudaFused, CompiledKernelsAreKeptWhereTheEnvironmentSays) {
  std::string folder = (std::filesystem::temp_directory_path() / "kernels_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(setenv("MILLRACE_CUDA_CACHE", folder.c_str(), 1), 0);
  const std::string source = R"(
struct fused_words {
  unsigned long long w[1];
};
extern "C" __global__ void fused(const fused_words) {}
)";
  const std::string text = "#include \"millrace/ops/math/fused_device.cuh\"\n" + source;
  const Result<std::string> image = kernel_image(text, 90);
  if (image.status().code() == Code::kNotFound) GTEST_SKIP() << image.status().to_string();
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  FileSystem& files = posix_file_system();
  ASSERT_EQ(files.list(folder)->size(), 1);
  const std::string path = str_cat(folder, "/", (*files.list(folder))[0]);
  EXPECT_EQ(*kernel_image(text, 90), *image);
  // What was cut off is compiled again.
  const std::string kept = *read_file(files, path);
  ASSERT_TRUE(kept.ends_with(*image));
  ASSERT_TRUE(write_file_atomically(files, path, kept.substr(0, kept.size() - 9)).ok());
  EXPECT_TRUE(kernel_image(text, 90).ok());
  EXPECT_EQ(read_file(files, path)->size(), kept.size());
  ASSERT_EQ(unsetenv("MILLRACE_CUDA_CACHE"), 0);
  std::filesystem::remove_all(folder);
}

#if defined(MILLRACE_CUDA_EMULATED)
// What NVRTC gets, without it: the host's compiler reads the same texts, and nothing else.
TEST_F(CudaFused, StandInsHaveAllThatFormulasUse) {
  std::string folder = (std::filesystem::temp_directory_path() / "headers_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  FileSystem& files = posix_file_system();
  for (const auto& [name, text] : kernel_headers()) {
    const std::string path = str_cat(folder, "/", name);
    ASSERT_TRUE(files.mkdir_all(directory_of(path)).ok());
    ASSERT_TRUE(write_file_atomically(files, path, text).ok());
  }
  std::string source = R"(
#define __CUDACC__
#define __device__
#define __host__
#define __forceinline__ inline
#define asm(...)
float __uint_as_float(unsigned);
namespace std {
double exp(double);
}
double fabs(double);
float fabsf(float);
)";
  for (const char* name :
       {"acos", "asin", "atan", "ceil", "cos", "erf", "erfc", "exp", "expm1", "floor", "log",
        "log1p", "rint", "sin", "sqrt", "tan", "tanh", "trunc"}) {
    source += str_cat("double ", name, "(double);\nfloat ", name, "f(float);\n");
  }
  for (const char* name : {"copysign", "fmod", "pow"}) {
    source += str_cat("double ", name, "(double, double);\nfloat ", name, "f(float, float);\n");
  }
  source += R"(
#include "millrace/ops/math/stand_ins.cuh"
#include "millrace/ops/math/fused_device.cuh"
using namespace millrace;
float float_of(float x, float y) {
  return Softplus::eval(TanhGrad::eval(x, y)) + Selu::eval(Pow::eval(x, FloorMod::eval(x, y)));
}
int int_of(int x, float y) { return Sign::eval(FloorDiv::eval(x, convert<int>(y))); }
)";
  const std::string file = folder + "/formulas.cc";
  ASSERT_TRUE(write_file_atomically(files, file, source).ok());
  const std::string command =
      str_cat(MILLRACE_CXX, " -std=c++20 -w -fsyntax-only -nostdinc -nostdinc++ -I", folder, " ",
              file, " 2> ", folder, "/log");
  EXPECT_EQ(std::system(command.c_str()), 0) << *read_file(files, folder + "/log");
  std::filesystem::remove_all(folder);
}
#endif

}  // namespace
}  // namespace millrace
