#include "millrace/device/cuda/cuda_recorder.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "millrace/base/env.h"
#include "millrace/base/str_cat.h"
#include "millrace/tensor/size_class.h"

namespace millrace {
namespace {

// Numbers of calls.
class Calls {
 public:
  bool has(int call) const {
    const size_t at = static_cast<size_t>(call) / 64;
    return at < bits_.size() && (bits_[at] >> (call % 64) & 1) != 0;
  }
  void add(int call) {
    const size_t at = static_cast<size_t>(call) / 64;
    if (at >= bits_.size()) bits_.resize(at + 1);
    bits_[at] |= uint64_t{1} << (call % 64);
  }
  void add(const Calls& others) {
    if (others.bits_.size() > bits_.size()) bits_.resize(others.bits_.size());
    for (size_t i = 0; i < others.bits_.size(); ++i) bits_[i] |= others.bits_[i];
  }

 private:
  std::vector<uint64_t> bits_;
};

// What recorded calls wait for: what they read and write is known by where it lies. Calls are begun
// one after the other; the work of each is a part of the graph that the stream captures.
class CallOrder {
 public:
  explicit CallOrder(CudaStream& stream) : stream_(stream) {}

  int current() const { return static_cast<int>(calls_.size()) - 1; }

  Result<int> begin(std::span<const int> after, std::span<Value* const> inputs, uint64_t changed) {
    std::vector<int> waits(after.begin(), after.end());
    std::vector<const void*> read, written;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool writes = i < 64 && (changed >> i & 1) != 0;
      for (const void* place : places_of(*inputs[i])) (writes ? written : read).push_back(place);
    }
    for (const void* place : read) wait_for_writer(place, waits);
    for (const void* place : written) {
      wait_for_writer(place, waits);
      const std::vector<int>& users = uses_[place].users;
      waits.insert(waits.end(), users.begin(), users.end());
    }
    calls_.emplace_back();
    MR_TRY(set_waits(waits));
    for (const void* place : read) uses_[place].users.push_back(current());
    for (const void* place : written) uses_[place] = {current(), {current()}};
    handles_.clear();
    for (Value* input : inputs) {
      if (is_handle(*input)) handles_.push_back(place_of_handle(input->tensor));
    }
    return current();
  }

  Status end(std::span<const Value> outputs) {
    for (const Value& output : outputs) {
      if (output.state != Value::State::kTensor || !in_device_memory(output.tensor)) continue;
      const void* const place = output.tensor.buffer()->data();
      // Its writer is known, unless it is of a variable that nobody read before.
      Use& use = uses_.try_emplace(place, Use{current()}).first->second;
      use.users.push_back(current());
      // What a variable's handle gives is the variable's memory, or was allocated.
      for (const void* handle : handles_) {
        if (!allocated_.contains(place)) memory_of_[handle] = place;
      }
    }
    return take_frontier();
  }

  // The memory is the current call's from here on.
  void allocated(const void* place) {
    uses_[place] = {current(), {current()}};
    allocated_.insert(place);
  }
  // Whether the work of all that used the memory comes before that of the current call.
  bool is_free(const void* place) const {
    const auto found = uses_.find(place);
    if (found == uses_.end()) return true;
    const Calls& before = calls_.back().before;
    return std::ranges::all_of(found->second.users,
                               [&](int user) { return user == current() || before.has(user); });
  }
  // Makes it so.
  Status wait_for_users(const void* place) {
    std::vector<int> waits = uses_[place].users;
    std::erase(waits, current());
    return add_waits(waits, cudaStreamAddCaptureDependencies);
  }
  // Before the end: the stream joins all of its work.
  Status join() {
    std::vector<int> all;
    for (int call = 0; call <= current(); ++call) all.push_back(call);
    calls_.emplace_back();
    return set_waits(all);
  }
  // For what is added beside calls.
  Status begin_alone(const Tensor* read) {
    std::vector<int> waits;
    if (read != nullptr) wait_for_writer(read->buffer()->data(), waits);
    calls_.emplace_back();
    MR_TRY(set_waits(waits));
    if (read != nullptr) uses_[read->buffer()->data()].users.push_back(current());
    return ok_status();
  }
  Status end_alone() { return take_frontier(); }

 private:
  struct Call {
    std::vector<cudaGraphNode_t> nodes;  // the last of its work, or what it waits for
    std::vector<cudaGraphEdgeData> edges;
    Calls before;
  };
  struct Use {
    int writer = -1;
    std::vector<int> users = {};
  };

  static bool in_device_memory(const Tensor& tensor) {
    return tensor.buffer() && tensor.buffer()->space() == MemorySpace::kDevice;
  }
  static bool is_handle(const Value& value) {
    return value.state == Value::State::kTensor && value.tensor.dtype() == DType::kResource &&
           value.tensor.num_elements() == 1;
  }
  const void* place_of_handle(const Tensor& tensor) {
    const ResourceHandle& handle = tensor.item<ResourceHandle>();
    return &*handle_names_.insert(str_cat(handle.container, "/", handle.name)).first;
  }
  // A variable is its memory and, as that is known only once it was read, its handle.
  std::vector<const void*> places_of(const Value& value) {
    if (value.is_ref()) {
      const Tensor now = value.cell->read();
      return now.buffer() ? std::vector<const void*>{now.buffer()->data()}
                          : std::vector<const void*>();
    }
    if (is_handle(value)) {
      std::vector<const void*> places = {place_of_handle(value.tensor)};
      if (auto memory = memory_of_.find(places[0]); memory != memory_of_.end()) {
        places.push_back(memory->second);
      }
      return places;
    }
    if (value.state != Value::State::kTensor || !in_device_memory(value.tensor)) return {};
    return {value.tensor.buffer()->data()};
  }
  void wait_for_writer(const void* place, std::vector<int>& waits) const {
    const auto found = uses_.find(place);
    if (found != uses_.end() && found->second.writer >= 0) waits.push_back(found->second.writer);
  }

  Status set_waits(std::vector<int> waits) {
    return add_waits(std::move(waits), cudaStreamSetCaptureDependencies);
  }
  Status add_waits(std::vector<int> waits, unsigned how) {
    if (in_order_) {
      for (int call = 0; call < current(); ++call) calls_.back().before.add(call);
      return ok_status();
    }
    std::ranges::sort(waits, std::greater<int>());
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
    Calls& before = calls_.back().before;
    std::vector<cudaGraphNode_t> nodes;
    std::vector<cudaGraphEdgeData> edges;
    nodes.reserve(1);  // no null is given for none
    edges.reserve(1);
    for (int call : waits) {
      if (before.has(call)) continue;  // by way of a later one
      const Call& earlier = calls_[static_cast<size_t>(call)];
      before.add(call);
      before.add(earlier.before);
      for (size_t i = 0; i < earlier.nodes.size(); ++i) {
        if (std::ranges::find(nodes, earlier.nodes[i]) != nodes.end()) continue;
        nodes.push_back(earlier.nodes[i]);
        edges.push_back(earlier.edges[i]);
      }
    }
    if (nodes.empty() && how == cudaStreamAddCaptureDependencies) return ok_status();
    MR_TRY_ASSIGN(cudaStream_t stream, stream_.handle());
    MR_CUDA_TRY(
        cudaStreamUpdateCaptureDependencies(stream, nodes.data(), edges.data(), nodes.size(), how));
    return ok_status();
  }

  Status take_frontier() {
    MR_TRY_ASSIGN(cudaStream_t stream, stream_.handle());
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    cudaGraph_t graph = nullptr;
    const cudaGraphNode_t* nodes = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    size_t count = 0;
    MR_CUDA_TRY(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &edges, &count));
    if (status != cudaStreamCaptureStatusActive) return unavailable("work cannot be recorded");
    Call& call = calls_.back();
    call.nodes.assign(nodes, nodes + count);
    call.edges.resize(count);
    if (edges != nullptr) call.edges.assign(edges, edges + count);
    return ok_status();
  }

  CudaStream& stream_;
  // To tell errors of what waits too little from others: one call's work after the other's.
  const bool in_order_ = env_string("MILLRACE_CUDA_GRAPHS") == "in_order";
  std::vector<Call> calls_;
  std::unordered_map<const void*, Use> uses_;  // by place
  std::unordered_set<const void*> allocated_;
  std::set<std::string> handle_names_;                      // whose addresses are places
  std::unordered_map<const void*, const void*> memory_of_;  // by a handle's place
  std::vector<const void*> handles_;                        // that the current call takes
};

// Memory that recorded work uses again and again: what is freed while it is recorded serves what
// comes after, and all of it stays until the recording is given up and nobody holds any of it.
class RecordedMemory final : public Allocator {
 public:
  explicit RecordedMemory(Allocator& from) : from_(from) {}

  // While work is recorded, what comes after what; null afterwards.
  void set_order(CallOrder* order) { order_ = order; }

  const char* name() const override { return "cuda_recorded"; }
  MemorySpace space() const override { return MemorySpace::kDevice; }
  void* allocate(size_t bytes) override {
    if (bytes > (size_t{1} << 62)) return nullptr;
    const size_t size = class_bytes(size_class(std::max<size_t>(bytes, 1)));
    MutexLock lock(mu_);
    void* data = take(size);
    if (data == nullptr) {
      data = from_.allocate(size);
      if (data == nullptr) return nullptr;
      blocks_.emplace(data, size);
    }
    if (order_ != nullptr) order_->allocated(data);
    ++live_;
    return data;
  }
  void deallocate(void* data, size_t) override {
    {
      MutexLock lock(mu_);
      unused_[blocks_.at(data)].push_back(data);
      if (--live_ > 0 || !given_up_) return;
    }
    delete this;
  }
  AllocatorStats stats() const override { return {}; }
  void reset_peak() override {}

  // It goes once nobody holds any of its memory.
  void give_up() {
    {
      MutexLock lock(mu_);
      given_up_ = true;
      if (live_ > 0) return;
    }
    delete this;
  }

 private:
  ~RecordedMemory() override {
    for (const auto& [data, size] : blocks_) from_.deallocate(data, size);
  }

  // Memory whose users are done by then. Much memory is waited for instead of having it twice.
  void* take(size_t size) MR_REQUIRES(mu_) {
    constexpr size_t kMuch = size_t{32} << 20;
    std::vector<void*>& unused = unused_[size];
    for (size_t i = unused.size(); i-- > 0;) {
      if (order_ != nullptr && !order_->is_free(unused[i])) continue;
      void* const data = unused[i];
      unused.erase(unused.begin() + static_cast<std::ptrdiff_t>(i));
      return data;
    }
    if (unused.empty() || size < kMuch || !order_->wait_for_users(unused.back()).ok()) {
      return nullptr;
    }
    void* const data = unused.back();
    unused.pop_back();
    return data;
  }

  Allocator& from_;
  CallOrder* order_ = nullptr;
  Mutex mu_;
  std::unordered_map<void*, size_t> blocks_ MR_GUARDED_BY(mu_);
  std::map<size_t, std::vector<void*>> unused_ MR_GUARDED_BY(mu_);  // by size
  int64_t live_ MR_GUARDED_BY(mu_) = 0;
  bool given_up_ MR_GUARDED_BY(mu_) = false;
};

// Work as a graph of CUDA, with all that it uses.
class CudaRecording final : public Recording {
 public:
  explicit CudaRecording(Ref<CudaDevice> device)
      : device_(std::move(device)),
        stream_(device_->gpu().ordinal),
        memory_(new RecordedMemory(device_->gpu().memory)),
        order_(stream_) {
    memory_->set_order(&order_);
  }

  Status begin() {
    MR_TRY_ASSIGN(cudaStream_t stream, stream_.handle());
    MR_CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    capturing_ = true;
    return ok_status();
  }

  Status end() {
    MR_TRY(order_.join());
    memory_->set_order(nullptr);
    MR_TRY_ASSIGN(cudaStream_t stream, stream_.handle());
    capturing_ = false;
    cudaGraph_t graph = nullptr;
    MR_CUDA_TRY(cudaStreamEndCapture(stream, &graph));
    const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
    MR_CUDA_TRY(cudaGraphDestroy(graph));
    MR_CUDA_TRY(made);
    MR_TRY_ASSIGN(cudaStream_t main, device_->gpu().main.handle());
    MR_CUDA_TRY(cudaGraphUpload(graph_, main));
    // What ordinary runs used besides has no use for now.
    device_->gpu().memory.trim();
    findings_ = stream_.take_findings();
    return ok_status();
  }

  Status run(Step& step, std::span<const Tensor* const> feeds, FunctionRef<void()> enqueued,
             std::span<Tensor* const> fetches) override {
    MR_CHECK(feeds.size() == feeds_.size());
    for (size_t i = 0; i < feeds.size(); ++i) {
      std::memcpy(feeds_[i].mutable_raw(), feeds[i]->raw(), feeds[i]->bytes());
    }
    for (const CudaStream::Finding& finding : findings_) finding.clear();
    CudaStream& main = device_->gpu().main;
    MR_TRY_ASSIGN(cudaStream_t stream, main.handle());
    MR_CUDA_TRY(cudaGraphLaunch(graph_, stream));
    MR_TRY_ASSIGN(const Ref<Event> over, main.record());
    enqueued();
    MR_TRY(over->wait());
    for (CudaStream::Finding& finding : findings_) finding.report(step);
    for (size_t i = 0; i < fetches.size(); ++i) {
      MR_TRY_ASSIGN(*fetches[i], fetches_[i].clone());
    }
    return ok_status();
  }

  CudaDevice& device() { return *device_; }
  CudaStream& stream() { return stream_; }
  Allocator& memory() { return *memory_; }
  CallOrder& order() { return order_; }
  // What the work reads and did not make.
  void keep(Tensor tensor) { kept_.push_back(std::move(tensor)); }

  Result<Tensor> add_feed(DType dtype, const Shape& shape) {
    MR_TRY_ASSIGN(Tensor place, Tensor::allocate(dtype, shape, device_->gpu().pinned));
    MR_TRY(order_.begin_alone(nullptr));
    MR_TRY_ASSIGN(Tensor to, Tensor::allocate(dtype, shape, *memory_));
    MR_TRY(copy(place, to, cudaMemcpyHostToDevice));
    MR_TRY(order_.end_alone());
    feeds_.push_back(std::move(place));
    return to;
  }
  Status add_fetch(const Tensor& from) {
    MR_TRY_ASSIGN(Tensor place,
                  Tensor::allocate(from.dtype(), from.shape(), device_->gpu().pinned));
    MR_TRY(order_.begin_alone(&from));
    MR_TRY(copy(from, place, cudaMemcpyDeviceToHost));
    MR_TRY(order_.end_alone());
    fetches_.push_back(std::move(place));
    return ok_status();
  }

 protected:
  ~CudaRecording() override {
    if (make_cuda_device_current(device_->gpu().ordinal).ok()) {
      if (capturing_) {
        cudaGraph_t graph = nullptr;
        if (Result<cudaStream_t> stream = stream_.handle(); stream.ok()) {
          static_cast<void>(cudaStreamEndCapture(*stream, &graph));
        }
        if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
        static_cast<void>(cudaGetLastError());
      }
      if (graph_ != nullptr) static_cast<void>(cudaGraphExecDestroy(graph_));
    }
    kept_.clear();
    memory_->set_order(nullptr);
    memory_->give_up();
  }

 private:
  Status copy(const Tensor& from, Tensor& to, cudaMemcpyKind kind) {
    if (from.bytes() == 0) return ok_status();
    MR_TRY_ASSIGN(cudaStream_t stream, stream_.handle());
    MR_CUDA_TRY(cudaMemcpyAsync(to.mutable_raw(), from.raw(), from.bytes(), kind, stream));
    return ok_status();
  }

  const Ref<CudaDevice> device_;
  CudaStream stream_;
  RecordedMemory* const memory_;
  CallOrder order_;
  bool capturing_ = false;
  cudaGraphExec_t graph_ = nullptr;
  std::deque<CudaStream::Finding> findings_;
  std::vector<Tensor> feeds_, fetches_;  // in pinned memory, which the work reads and writes
  std::vector<Tensor> kept_;
};

class CudaRecorder final : public Recorder {
 public:
  explicit CudaRecorder(Ref<CudaRecording> recording)
      : Recorder(recording->device().info(),
                 Ref<ResourceManager>(&recording->device().resources())),
        recording_(std::move(recording)) {}

  Allocator& allocator() override { return recording_->memory(); }
  Allocator& host_allocator() override { return recording_->device().host_allocator(); }
  CudaStream* stream() override { return &recording_->stream(); }
  void copy_to_host(const Tensor&, UniqueFunction<void(Result<Tensor>)> done) override {
    done(failed_precondition("the host waits for the device"));
  }
  // Of constants: made now, for all runs.
  void copy_from_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) override {
    recording_->device().copy_from_host(
        from, [this, done = std::move(done)](Result<Tensor> copied) mutable {
          if (copied.ok()) recording_->keep(*copied);
          done(std::move(copied));
        });
  }
  Result<Tensor> add_feed(DType dtype, const Shape& shape) override {
    return recording_->add_feed(dtype, shape);
  }
  Status add_fetch(const Tensor& from) override { return recording_->add_fetch(from); }
  Result<int> begin_call(std::span<const int> after, std::span<Value* const> inputs,
                         uint64_t changed) override {
    return recording_->order().begin(after, inputs, changed);
  }
  Status end_call(std::span<const Value> outputs) override {
    return recording_->order().end(outputs);
  }
  Result<Ref<Recording>> end() override {
    MR_TRY(recording_->end());
    return Ref<Recording>(recording_);
  }

 private:
  const Ref<CudaRecording> recording_;
};

}  // namespace

Result<Ref<Recorder>> record_for(Ref<CudaDevice> device) {
  static const bool allowed = env_string("MILLRACE_CUDA_GRAPHS") != "0" && !cuda_synchronous();
  if (!allowed) return failed_precondition("the environment forbids it");
  Ref<CudaRecording> recording = make_ref<CudaRecording>(std::move(device));
  MR_TRY(recording->begin());
  return Ref<Recorder>(make_ref<CudaRecorder>(std::move(recording)));
}

}  // namespace millrace
