// A GraphDef: what can be imported is run, in both gears, with feeds and fetches anywhere. Every
// run ends in time with an error or with all its fetches.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "millrace/base/check.h"
#include "millrace/base/hash.h"
#include "millrace/graph/graph_def.h"
#include "millrace/ops/fuzz_entry.h"
#include "millrace/session/graph_mutator_testing.h"
#include "millrace/session/session.h"
#include "millrace/tensor/choices_testing.h"

namespace millrace {
namespace {

constexpr int kMaxNodes = 300;
constexpr int64_t kRunMillis = 300;
constexpr auto kSessionTime = std::chrono::milliseconds(700);

// Closes a session that takes too long: runs without a deadline wait for nothing else.
class Watchdog {
 public:
  void watch(Session* session) {
    std::lock_guard lock(mu_);
    session_ = session;
    until_ = std::chrono::steady_clock::now() + kSessionTime;
    changed_.notify_all();
  }
  // Returns when it is done with the session.
  void rest() {
    std::lock_guard lock(mu_);
    session_ = nullptr;
  }
  [[noreturn]] void run() {
    std::unique_lock lock(mu_);
    while (true) {
      if (session_ == nullptr) {
        changed_.wait(lock);
      } else if (std::chrono::steady_clock::now() < until_) {
        changed_.wait_until(lock, until_);
      } else {
        (void)session_->close();
        session_ = nullptr;
      }
    }
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  Session* session_ = nullptr;
  std::chrono::steady_clock::time_point until_;
};

Watchdog& watchdog() {
  static Watchdog* made = [] {
    auto* dog = new Watchdog;
    std::thread([dog] { dog->run(); }).detach();
    return dog;
  }();
  return *made;
}

// Runs a graph's tensors as they come.
class Requests {
 public:
  Requests(Ref<Graph> graph, uint64_t seed) : graph_(std::move(graph)), choices_(seed) {
    for (NodeId id = 0; id < graph_->num_nodes(); ++id) {
      const Node& node = graph_->node(id);
      if (node.op().traits.placeholder) placeholders_.push_back({id, 0});
      for (int i = 0; i < node.num_outputs(); ++i) outputs_.push_back({id, i});
    }
  }

  void run(Gear gear) {
    SessionOptions options = {.cpu_devices = choices_.one_in(4) ? 2 : 1, .soft_placement = true};
    options.files = FileAccess::only({}).value();  // a graph may name any file
    options.gear = gear;
    Result<std::unique_ptr<Session>> session = Session::create(graph_, options);
    if (!session.ok()) return;
    watchdog().watch(session->get());
    for (int i = 0; i < 4; ++i) {
      if (choices_.one_in(5)) {
        run_partly(**session);
      } else {
        run_once(**session, gear);
      }
    }
    watchdog().rest();
  }

 private:
  Tensor value_for(Output output) {
    const PartialShape& known = graph_->facts(output).shape;
    DType dtype = base_type(graph_->output_type(output));
    if (!known.rank_known() || choices_.one_in(8)) return choices_.tensor(dtype, choices_.shape());
    std::vector<int64_t> dims;
    int64_t elements = 1;
    for (int i = 0; i < known.rank(); ++i) {
      int64_t dim = known.dim_known(i) ? known.dim(i) : static_cast<int64_t>(choices_.below(4));
      if (elements > 0 && dim > 65536 / elements) dim = 1;
      elements *= dim;
      dims.push_back(dim);
    }
    return choices_.tensor(dtype, Shape::make(dims).value());
  }

  void feed(Output output, Session::Feeds& feeds) {
    if (!is_valid(graph_->output_type(output))) return;  // of an unknown op
    std::string name = graph_->output_name(output);
    for (const auto& [fed, value] : feeds) {
      if (fed == name) return;
    }
    feeds.emplace_back(std::move(name), value_for(output));
  }

  Session::Feeds feeds() {
    Session::Feeds feeds;
    for (Output placeholder : placeholders_) {
      if (!choices_.one_in(10)) feed(placeholder, feeds);
    }
    while (!outputs_.empty() && choices_.one_in(3)) feed(choices_.of(outputs_), feeds);
    return feeds;
  }

  std::vector<std::string> fetches() {
    std::vector<std::string> names;
    do {
      if (!outputs_.empty()) names.push_back(graph_->output_name(choices_.of(outputs_)));
    } while (choices_.one_in(2));
    return names;
  }

  std::string node() {
    return graph_
        ->node(static_cast<NodeId>(choices_.below(static_cast<size_t>(graph_->num_nodes()))))
        .name();
  }

  void run_once(Session& session, Gear gear) {
    std::vector<std::string> targets, fetched = choices_.one_in(4) ? targets : fetches();
    while (choices_.one_in(2)) targets.push_back(node());
    // A deadline would mean the parallel gear.
    RunOptions options;
    if (gear == Gear::kParallel) options.timeout_ms = kRunMillis;
    Result<std::vector<Tensor>> out = session.run(feeds(), fetched, targets, options);
    if (!out.ok()) return;
    MR_CHECK(out->size() == fetched.size());
    for (const Tensor& tensor : *out) MR_CHECK(tensor.valid());
  }

  // Feeds some and perhaps fetches some, and leaves the rest.
  void run_partly(Session& session) {
    Signature signature;
    Session::Feeds given = feeds();
    for (const auto& [name, value] : given) signature.feeds.push_back(name);
    signature.fetches = fetches();
    Result<std::string> handle = session.partial_run_setup(signature);
    if (!handle.ok()) return;
    for (int i = 0; i < 3; ++i) {
      Session::Feeds now;
      while (!given.empty() && !choices_.one_in(3)) {
        now.push_back(given.back());
        given.pop_back();
      }
      std::vector<std::string> wanted;
      if (choices_.one_in(2) && !signature.fetches.empty()) {
        wanted.push_back(choices_.of(signature.fetches));
      }
      Result<std::vector<Tensor>> out = session.partial_run(*handle, now, wanted);
      if (!out.ok()) return;
      for (const Tensor& tensor : *out) MR_CHECK(tensor.valid());
    }
  }

  Ref<Graph> graph_;
  Choices choices_;
  std::vector<Output> outputs_, placeholders_;
};

}  // namespace

void run_input(std::string_view bytes) {
  for (Gear gear : {Gear::kStraight, Gear::kParallel}) {
    Ref<Graph> graph = make_ref<Graph>();
    ImportOptions options;
    options.max_constant_bytes = 1 << 20;
    if (!import_graph_def_bytes(bytes, options, *graph).ok()) return;
    if (graph->num_nodes() == 0 || graph->num_nodes() > kMaxNodes) return;
    Requests(graph, hash_bytes(bytes)).run(gear);
  }
}

}  // namespace millrace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  std::string changed = millrace::mutate_graph({reinterpret_cast<char*>(data), size}, seed);
  if (changed.empty() || changed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::copy(changed.begin(), changed.end(), data);
  return changed.size();
}
