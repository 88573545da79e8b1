#include "millrace/device/cuda/cuda_blas.h"

#include <cublasLt.h>

#include <bit>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "millrace/base/env.h"
#include "millrace/base/mutex.h"
#include "millrace/device/cuda/cuda_context.h"
#include "millrace/device/cuda/cuda_measure.h"

namespace millrace {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;

Status blas_status(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return ok_status();
  std::string_view name = call;
  name = name.substr(0, name.find('('));
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return unimplemented(name, ": not supported");
  return internal(name, ": ", cublasLtGetStatusName(status));
}
#define MR_BLAS_TRY(call) MR_TRY(blas_status((call), #call))

struct Types {
  cudaDataType_t data, scale;
  cublasComputeType_t compute;
};
Result<Types> types_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return Types{CUDA_R_32F, CUDA_R_32F,
                   cuda_tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
    case DType::kDouble:
      return Types{CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F};
    case DType::kHalf:
      return Types{CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::kBFloat16:
      return Types{CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    default:
      return unimplemented("products of matrices of ", dtype);
  }
}

// The bytes that an address is a multiple of, up to 256.
uint32_t alignment_of(const void* data) {
  const auto at = reinterpret_cast<uintptr_t>(data) | 256;
  return uint32_t{1} << std::countr_zero(at);
}

// What one kind of product needs, made once.
struct Product {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
};
// Of so many algorithms that cuBLASLt proposes the quickest is chosen.
constexpr int kMostAlgorithms = 8;

using Key = std::tuple<int, DType, int64_t, int64_t, int64_t, bool, bool, int64_t, int64_t, int64_t,
                       int64_t, uint32_t, uint32_t, uint32_t>;

// A GPU's handle, and the products that were asked for. Lives as long as the process.
struct Library {
  Mutex mu;
  cublasLtHandle_t handle MR_GUARDED_BY(mu) = nullptr;
  std::map<Key, Product> products MR_GUARDED_BY(mu);
};

Library& library_of(int ordinal) {
  static Mutex& mu = *new Mutex;
  static auto& all = *new std::map<int, Library*>;
  MutexLock lock(mu);
  Library*& found = all[ordinal];
  if (found == nullptr) found = new Library;
  return *found;
}

Status set(cublasLtMatrixLayout_t layout, int64_t batch, int64_t stride) {
  const auto count = static_cast<int32_t>(batch);
  MR_BLAS_TRY(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                               sizeof count));
  MR_BLAS_TRY(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                               &stride, sizeof stride));
  return ok_status();
}

// cuBLAS counts columns first: it computes the transposed product of the factors in turn. With the
// first of the algorithms that it proposes; all of them are in `algorithms`.
Result<Product> make(cublasLtHandle_t handle, DType dtype, const CudaProduct& s, const void* a,
                     const void* b, const void* c, std::vector<cublasLtMatmulAlgo_t>& algorithms) {
  MR_TRY_ASSIGN(const Types types, types_of(dtype));
  Product p;
  MR_BLAS_TRY(cublasLtMatmulDescCreate(&p.operation, types.compute, types.scale));
  const cublasOperation_t op_a = s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_b = s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  MR_BLAS_TRY(
      cublasLtMatmulDescSetAttribute(p.operation, CUBLASLT_MATMUL_DESC_TRANSA, &op_b, sizeof op_b));
  MR_BLAS_TRY(
      cublasLtMatmulDescSetAttribute(p.operation, CUBLASLT_MATMUL_DESC_TRANSB, &op_a, sizeof op_a));
  const auto layout = [&](cublasLtMatrixLayout_t* out, int64_t rows, int64_t columns) {
    return blas_status(cublasLtMatrixLayoutCreate(out, types.data, static_cast<uint64_t>(columns),
                                                  static_cast<uint64_t>(rows), columns),
                       "cublasLtMatrixLayoutCreate");
  };
  MR_TRY(s.transpose_b ? layout(&p.a, s.n, s.k) : layout(&p.a, s.k, s.n));
  MR_TRY(s.transpose_a ? layout(&p.b, s.k, s.m) : layout(&p.b, s.m, s.k));
  MR_TRY(layout(&p.c, s.m, s.n));
  if (s.batch > 1) {
    MR_TRY(set(p.a, s.batch, s.stride_b));
    MR_TRY(set(p.b, s.batch, s.stride_a));
    MR_TRY(set(p.c, s.batch, s.stride_c));
  }
  cublasLtMatmulPreference_t preference = nullptr;
  MR_BLAS_TRY(cublasLtMatmulPreferenceCreate(&preference));
  const size_t workspace = kWorkspaceBytes;
  const uint32_t align_a = alignment_of(b), align_b = alignment_of(a), align_c = alignment_of(c);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                          size_t size) {
    return blas_status(cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, size),
                       "cublasLtMatmulPreferenceSetAttribute");
  };
  MR_TRY(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
  MR_TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align_a, sizeof align_a));
  MR_TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align_b, sizeof align_b));
  MR_TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align_c, sizeof align_c));
  MR_TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align_c, sizeof align_c));
  cublasLtMatmulHeuristicResult_t found[kMostAlgorithms] = {};
  int count = 0;
  const cublasStatus_t asked = cublasLtMatmulAlgoGetHeuristic(
      handle, p.operation, p.a, p.b, p.c, p.c, preference, kMostAlgorithms, found, &count);
  MR_BLAS_TRY(cublasLtMatmulPreferenceDestroy(preference));
  MR_TRY(blas_status(asked, "cublasLtMatmulAlgoGetHeuristic"));
  if (count == 0) return unimplemented("cuBLASLt has no algorithm for these matrices");
  for (int i = 0; i < count; ++i) algorithms.push_back(found[i].algo);
  p.algorithm = algorithms[0];
  return p;
}

}  // namespace

bool cuda_tf32() {
  static const bool on = env_string("MILLRACE_TF32") != "0";
  return on;
}

Status cuda_matmul(const KernelContext& ctx, DType dtype, const CudaProduct& s, const void* a,
                   const void* b, void* c) {
  if (s.m == 0 || s.n == 0 || s.batch == 0) return ok_status();
  MR_TRY_ASSIGN(cudaStream_t stream, cuda_stream(ctx));
  if (s.k == 0) {
    const int64_t bytes = s.batch * s.m * s.n * static_cast<int64_t>(dtype_size(dtype));
    MR_CUDA_TRY(cudaMemsetAsync(c, 0, static_cast<size_t>(bytes), stream));
    return ok_status();
  }
  const int ordinal = static_cast<CudaStream*>(ctx.stream())->ordinal();
  Library& library = library_of(ordinal);
  Product product;
  cublasLtHandle_t handle = nullptr;
  std::vector<cublasLtMatmulAlgo_t> algorithms;  // to choose from
  const Key key(ordinal, dtype, s.m, s.n, s.k, s.transpose_a, s.transpose_b, s.batch, s.stride_a,
                s.stride_b, s.stride_c, alignment_of(a), alignment_of(b), alignment_of(c));
  {
    MutexLock lock(library.mu);
    if (library.handle == nullptr) MR_BLAS_TRY(cublasLtCreate(&library.handle));
    handle = library.handle;
    auto found = library.products.find(key);
    if (found == library.products.end()) {
      MR_TRY_ASSIGN(const bool recorded, is_recorded(stream));
      if (recorded) return unavailable("no algorithm was chosen yet");
      MR_TRY_ASSIGN(product, make(handle, dtype, s, a, b, c, algorithms));
    } else {
      product = found->second;
    }
  }
  MR_TRY_ASSIGN(Tensor workspace,
                Tensor::allocate(DType::kUInt8, Shape{static_cast<int64_t>(kWorkspaceBytes)},
                                 ctx.device().allocator()));
  const double one_double = 1, zero_double = 0;
  const float one_float = 1, zero_float = 0;
  const bool wide = dtype == DType::kDouble;
  const void* const one = wide ? static_cast<const void*>(&one_double) : &one_float;
  const void* const zero = wide ? static_cast<const void*>(&zero_double) : &zero_float;
  const auto multiply = [&](const cublasLtMatmulAlgo_t& algorithm) -> Status {
    MR_BLAS_TRY(cublasLtMatmul(handle, product.operation, one, b, product.a, a, product.b, zero, c,
                               product.c, c, product.c, &algorithm, workspace.mutable_raw(),
                               kWorkspaceBytes, stream));
    return ok_status();
  };
  if (!algorithms.empty()) {
    float least = std::numeric_limits<float>::infinity();
    for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
      const Result<float> took = cuda_milliseconds(stream, [&] { return multiply(algorithm); });
      if (!took.ok() || *took >= least) continue;
      least = *took;
      product.algorithm = algorithm;
    }
    MutexLock lock(library.mu);
    // Who measured at the same time may have chosen another: the first choice counts.
    product = library.products.emplace(key, product).first->second;
  }
  MR_TRY(multiply(product.algorithm));
  return launched(stream);
}

}  // namespace millrace
