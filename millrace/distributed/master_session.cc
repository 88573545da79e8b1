#include "millrace/distributed/master_session.h"

#include <algorithm>
#include <charconv>
#include <unordered_set>
#include <vector>

#include "millrace/graph/graph_def.h"
#include "millrace/tensor/tensor_proto.h"
#include "proto/master.pb.h"

namespace millrace {
namespace {

// Reads the feeds of one request.
class FeedReader {
 public:
  // `expanded_bytes`: what they may take beyond the bytes of the message.
  explicit FeedReader(int64_t expanded_bytes) : left_(expanded_bytes) {}

  Result<Tensor> read(const tensorflow::TensorProto& proto, std::string_view name) {
    Status status = charge(proto);
    if (status.ok()) {
      Result<Tensor> tensor = tensor_from_proto(proto);
      if (tensor.ok()) return tensor;
      status = tensor.status();
    }
    return status.with_prefix(str_cat("feed '", name, "'"));
  }

 private:
  Status charge(const tensorflow::TensorProto& proto) {
    int64_t bytes = static_cast<int64_t>(dtype_size(base_type(static_cast<DType>(proto.dtype()))));
    for (const auto& dim : proto.tensor_shape().dim()) {
      // What cannot be a shape is refused with a better message when the tensor is read.
      if (dim.size() < 0 || __builtin_mul_overflow(bytes, dim.size(), &bytes)) return ok_status();
    }
    const int64_t beyond = bytes - static_cast<int64_t>(proto.ByteSizeLong());
    if (beyond > left_) {
      return resource_exhausted("a tensor of ", bytes, " bytes: expected at most ", left_,
                                " bytes more than the message holds");
    }
    left_ -= std::max<int64_t>(beyond, 0);
    return ok_status();
  }

  int64_t left_;
};

template <class Names>
std::vector<std::string> to_vector(const Names& names) {
  return {names.begin(), names.end()};
}

// Each once, in the order of their first appearance.
template <class Names>
std::vector<std::string> distinct(const Names& names) {
  std::vector<std::string> out;
  std::unordered_set<std::string_view> seen;
  for (const std::string& name : names) {
    if (seen.insert(name).second) out.push_back(name);
  }
  return out;
}

}  // namespace

MasterSession::MasterSession(Ref<Graph> graph, std::unique_ptr<Session> session, Limits limits)
    : graph_(std::move(graph)), session_(std::move(session)), limits_(limits) {}

Status MasterSession::import(const tensorflow::GraphDef& def, const Limits& limits, Graph& graph) {
  ImportOptions options;
  options.max_constant_bytes = limits.expanded_bytes;
  return import_graph_def(def, options, graph).status();
}

Result<int64_t> MasterSession::extend(const tensorflow::ExtendSessionRequest& request) {
  MutexLock lock(graph_mu_);
  if (request.current_graph_version() != version_) {
    return aborted("expected to extend version ", version_, " of the graph, got version ",
                   request.current_graph_version());
  }
  MR_TRY(import(request.graph_def(), limits_, *graph_));
  MR_TRY(session_->extend());
  return ++version_;
}

Status MasterSession::run_step(const tensorflow::RunStepRequest& request, uint64_t digest,
                               Ref<CancellationToken> cancel,
                               tensorflow::RunStepResponse& response) {
  const bool partial = !request.partial_run_handle().empty();
  if (partial && request.target_size() > 0) {
    return invalid_argument("expected no targets in a piece of a partial run, got '",
                            request.target(0), "'");
  }
  FeedReader reader(limits_.expanded_bytes);
  Session::Feeds feeds;
  feeds.reserve(static_cast<size_t>(request.feed_size()));
  for (const tensorflow::NamedTensorProto& feed : request.feed()) {
    MR_TRY_ASSIGN(Tensor value, reader.read(feed.tensor(), feed.name()));
    feeds.emplace_back(feed.name(), std::move(value));
  }
  const std::vector<std::string> fetches = distinct(request.fetch());
  RunOptions options = RunOptions::from_proto(request.options());
  options.cancel = std::move(cancel);
  RunMetadata metadata;
  MR_TRY(requests_.begin(request.request_id(), digest).status());
  Result<std::vector<Tensor>> values =
      partial ? session_->partial_run(request.partial_run_handle(), feeds, fetches, options)
              : session_->run(feeds, fetches, to_vector(request.target()), options,
                              options.trace ? &metadata : nullptr);
  MR_TRY(values.status());
  for (size_t i = 0; i < fetches.size(); ++i) {
    tensorflow::NamedTensorProto& out = *response.add_tensor();
    out.set_name(fetches[i]);
    const Status status = tensor_to_proto((*values)[i], *out.mutable_tensor());
    if (!status.ok()) return status.with_prefix(str_cat("fetch '", fetches[i], "'"));
  }
  if (options.trace && !partial) metadata.to_proto(*response.mutable_metadata());
  return ok_status();
}

Result<std::string> MasterSession::partial_run_setup(
    const tensorflow::PartialRunSetupRequest& request, uint64_t digest) {
  MR_TRY_ASSIGN(std::optional<std::string> before, requests_.begin(request.request_id(), digest));
  if (before) return *std::move(before);
  Result<std::string> handle = session_->partial_run_setup(
      {distinct(request.feed()), distinct(request.fetch()), to_vector(request.target())});
  requests_.finish(request.request_id(), handle);
  return handle;
}

Result<int64_t> MasterSession::make_callable(const tensorflow::MakeCallableRequest& request,
                                             uint64_t digest) {
  MR_TRY_ASSIGN(const std::optional<std::string> before,
                requests_.begin(request.request_id(), digest));
  int64_t number = 0;
  if (before) {
    std::from_chars(before->data(), before->data() + before->size(), number);
    return number;
  }
  Result<int64_t> made = make_callable_now(request);
  requests_.finish(request.request_id(),
                   made.ok() ? Result<std::string>(str_cat(*made)) : made.status());
  return made;
}

Status MasterSession::check_room() const {
  if (callables_.size() < static_cast<size_t>(limits_.callables)) return ok_status();
  return resource_exhausted("a session may have ", limits_.callables,
                            " callables at once, and has; release some");
}

Result<int64_t> MasterSession::make_callable_now(const tensorflow::MakeCallableRequest& request) {
  const tensorflow::CallableOptions& asked = request.options();
  if (asked.tensor_connection_size() > 0) {
    return unimplemented("callables do not connect tensors: expected no tensor_connection, got ",
                         asked.tensor_connection_size());
  }
  if (asked.feed_devices_size() > 0 || asked.fetch_devices_size() > 0) {
    return unimplemented(
        "feeds and fetches of a client are in its memory: expected no "
        "feed_devices and fetch_devices, got ",
        asked.feed_devices_size() + asked.fetch_devices_size());
  }
  {
    MutexLock lock(mu_);
    MR_TRY(check_room());
  }
  Prepared made;
  made.options = RunOptions::from_proto(asked.run_options());
  MR_TRY_ASSIGN(made.callable,
                session_->make_callable({to_vector(asked.feed()), to_vector(asked.fetch()),
                                         to_vector(asked.target())}));
  MutexLock lock(mu_);
  MR_TRY(check_room());
  const int64_t number = next_callable_++;
  callables_.emplace(number, std::move(made));
  return number;
}

Status MasterSession::run_callable(const tensorflow::RunCallableRequest& request, uint64_t digest,
                                   Ref<CancellationToken> cancel,
                                   tensorflow::RunCallableResponse& response) {
  Prepared prepared;
  {
    MutexLock lock(mu_);
    const auto it = callables_.find(request.handle());
    if (it == callables_.end()) {
      return invalid_argument("no callable of this session has the number ", request.handle());
    }
    prepared = it->second;
  }
  FeedReader reader(limits_.expanded_bytes);
  std::vector<Tensor> feeds;
  for (const tensorflow::TensorProto& feed : request.feed()) {
    MR_TRY_ASSIGN(Tensor value, reader.read(feed, str_cat(feeds.size())));
    feeds.push_back(std::move(value));
  }
  prepared.options.cancel = std::move(cancel);
  RunMetadata metadata;
  std::vector<Tensor> fetches;
  MR_TRY(requests_.begin(request.request_id(), digest).status());
  MR_TRY(prepared.callable->run(feeds, fetches, prepared.options.trace ? &metadata : nullptr,
                                &prepared.options));
  for (size_t i = 0; i < fetches.size(); ++i) {
    const Status status = tensor_to_proto(fetches[i], *response.add_fetch());
    if (!status.ok()) return status.with_prefix(str_cat("fetch ", i));
  }
  if (prepared.options.trace) metadata.to_proto(*response.mutable_metadata());
  return ok_status();
}

Status MasterSession::release_callable(int64_t number) {
  Prepared dropped;  // after the lock
  MutexLock lock(mu_);
  const auto it = callables_.find(number);
  if (it == callables_.end()) {
    return invalid_argument("no callable of this session has the number ", number);
  }
  dropped = std::move(it->second);
  callables_.erase(it);
  return ok_status();
}

void MasterSession::close() {
  closed_.store(true);
  (void)session_->close();
  std::map<int64_t, Prepared> dropped;
  MutexLock lock(mu_);
  dropped.swap(callables_);
}

}  // namespace millrace
