#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

// CUDA's runtime for kernels that are compiled for the host (cuda_launch.h): one device, whose work
// is done when it is enqueued. For tests of kernels on machines without a GPU.

inline namespace cuda_emulated {

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNotReady = 600,
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
// Captured work: what waits for what.
struct EmulatedNode {
  std::function<void()> work;
  std::vector<EmulatedNode*> after;
};
struct EmulatedGraph {
  std::vector<std::unique_ptr<EmulatedNode>> nodes;
};
struct EmulatedStream {
  EmulatedGraph* captured = nullptr;  // null: work is done at once
  std::vector<EmulatedNode*> last;    // what comes next is captured after these
};
struct EmulatedEvent {};
using cudaStream_t = EmulatedStream*;
using cudaGraphNode_t = EmulatedNode*;
using cudaGraph_t = EmulatedGraph*;
using cudaGraphExec_t = EmulatedGraph*;
struct cudaGraphEdgeData {};
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum { cudaStreamAddCaptureDependencies = 0, cudaStreamSetCaptureDependencies = 1 };
using cudaEvent_t = EmulatedEvent*;
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor, multiProcessorCount;
};
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2,
                          cudaHostAllocPortable = 1;

inline void emulated_enqueue(cudaStream_t stream, std::function<void()> work) {
  if (stream->captured == nullptr) return work();
  stream->captured->nodes.push_back(
      std::make_unique<EmulatedNode>(EmulatedNode{std::move(work), stream->last}));
  stream->last = {stream->captured->nodes.back().get()};
}

inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {"emulated", size_t{1} << 31, 9, 0, 4};
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
inline const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }
inline const char* cudaGetErrorString(cudaError_t) { return "emulated"; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  return *s = new EmulatedStream, cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  return *e = new EmulatedEvent, cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
inline cudaError_t cudaMalloc(void** p, size_t bytes) {
  *p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *p == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
inline cudaError_t cudaFree(void* p) { return std::free(p), cudaSuccess; }
inline cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) { return cudaMalloc(p, bytes); }
inline cudaError_t cudaFreeHost(void* p) { return cudaFree(p); }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                   cudaStream_t stream) {
  emulated_enqueue(stream, [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  emulated_enqueue(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

inline cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete stream, cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->last.clear();
  return stream->captured = new EmulatedGraph, cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return *graph = std::exchange(stream->captured, nullptr), cudaSuccess;
}
inline cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                            unsigned long long*, cudaGraph_t*,
                                            const cudaGraphNode_t** nodes,
                                            const cudaGraphEdgeData** edges, size_t* count) {
  *status = cudaStreamCaptureStatusActive;
  *nodes = stream->last.data();
  *edges = nullptr;
  return *count = stream->last.size(), cudaSuccess;
}
inline cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream,
                                                       const cudaGraphNode_t* nodes,
                                                       const cudaGraphEdgeData*, size_t count,
                                                       unsigned how) {
  if (how == cudaStreamSetCaptureDependencies) stream->last.clear();
  return stream->last.insert(stream->last.end(), nodes, nodes + count), cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned) {
  return *made = new EmulatedGraph(std::move(*graph)), cudaSuccess;
}
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return delete graph, cudaSuccess; }
// In some order in which nothing comes before what it waits for: another one in each launch, so
// that tests see what does not wait enough.
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  static thread_local std::minstd_rand random(1);
  std::unordered_map<const EmulatedNode*, size_t> waits;
  std::unordered_map<const EmulatedNode*, std::vector<const EmulatedNode*>> before;
  std::vector<const EmulatedNode*> ready;
  for (const auto& node : graph->nodes) {
    waits[node.get()] = node->after.size();
    for (const EmulatedNode* earlier : node->after) before[earlier].push_back(node.get());
    if (node->after.empty()) ready.push_back(node.get());
  }
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const EmulatedNode* const next = ready.back();
    ready.pop_back();
    emulated_enqueue(stream, next->work);
    for (const EmulatedNode* later : before[next]) {
      if (--waits[later] == 0) ready.push_back(later);
    }
  }
  return cudaSuccess;
}

}  // namespace cuda_emulated
