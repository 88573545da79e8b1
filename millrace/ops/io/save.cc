// Saving tensors in checkpoints of version 2, before the step goes on or beside it.

#include <optional>
#include <set>

#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/io/background_saves.h"
#include "millrace/io/bundle_writer.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/kernel/op_state.h"
#include "millrace/kernel/registry.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/ops/io/checkpoint_inputs.h"

namespace millrace {
namespace {

Status save_shape(ShapeContext& c) { return check_checkpoint_shapes(c, c.num_inputs() - 3, true); }

Status wait_shape(ShapeContext& c) { return c.with_rank(0, 0).status(); }

// A save whose inputs were checked.
class SaveJob {
 public:
  static Result<std::unique_ptr<SaveJob>> make(const KernelContext& ctx) {
    constexpr int kFirst = 3;
    const int count = ctx.num_inputs() - kFirst;
    MR_TRY_ASSIGN(const CheckpointInputs inputs, CheckpointInputs::of(ctx, count, true));
    MR_TRY_ASSIGN(const FilePlace place,
                  find_checkpoint(ctx, inputs.path, FileAccess::Use::kWrite));
    auto job = std::make_unique<SaveJob>();
    MR_TRY_ASSIGN(job->key_, checkpoint_key(place));
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      Piece piece{inputs.names[at], ctx.input(i + kFirst), {}};
      if (!inputs.slice(at).empty()) {
        MR_TRY_ASSIGN(piece.slice, ShapeAndSlice::parse(inputs.slice(at)));
      }
      job->pieces_.push_back(std::move(piece));
    }
    MR_TRY_ASSIGN(const std::string states, op_states_entry(ctx.node()));
    if (!states.empty()) {
      const std::string session = ResourceManager::session_name(ctx.node().session_prefix, "");
      job->pieces_.push_back(
          {states, Tensor::scalar(save_op_states(ctx.resources(), session)), {}});
    }
    MR_TRY_ASSIGN(job->writer_, BundleWriter::create(*place.fs, place.path));
    return job;
  }

  const std::string& key() const { return key_; }

  // Makes it outlive the step: nobody changes what it saves, and nobody else owns it.
  Status keep() {
    for (Piece& piece : pieces_) {
      if (piece.tensor.buffer() && piece.tensor.buffer()->borrowed()) {
        MR_TRY_ASSIGN(piece.tensor, piece.tensor.clone());
      } else {
        snapshots_.emplace_back(piece.tensor.buffer());
      }
    }
    return ok_status();
  }

  Status run() {
    for (const Piece& piece : pieces_) {
      MR_TRY(piece.slice ? writer_->add_slice(piece.name, piece.slice->whole, piece.slice->slice,
                                              piece.tensor)
                         : writer_->add(piece.name, piece.tensor));
    }
    // What is on its way to the disk is the system's; training need not copy any more.
    snapshots_.clear();
    pieces_.clear();
    return writer_->finish();
  }

 private:
  struct Piece {
    std::string name;
    Tensor tensor;
    std::optional<ShapeAndSlice> slice;
  };
  std::string key_;
  std::vector<Piece> pieces_;
  std::vector<Snapshot> snapshots_;
  std::unique_ptr<BundleWriter> writer_;
};

// The checkpoints that a session saves beside its steps; it ends when they are done.
class SessionSaves final : public Resource {
 public:
  static constexpr std::string_view kTypeName = "SessionSaves";

  static Result<Ref<SessionSaves>> of(const KernelContext& ctx) {
    const std::string name = ResourceManager::session_name(ctx.node().session_prefix, kTypeName);
    return ctx.resources().lookup_or_create<SessionSaves>(
        ResourceManager::kDefaultContainer, name,
        []() -> Result<Ref<SessionSaves>> { return make_ref<SessionSaves>(); });
  }

  void add(const std::string& key) {
    MutexLock lock(mu_);
    keys_.insert(key);
  }
  // Waits for all, and returns the first error that nobody was told.
  Status take_error(CancellationToken* cancel) {
    std::set<std::string> keys;
    {
      MutexLock lock(mu_);
      keys.swap(keys_);
    }
    Status first;
    while (!keys.empty() && (cancel == nullptr || !cancel->cancelled())) {
      Status status = BackgroundSaves::global().take_error(*keys.begin(), cancel);
      if (cancel != nullptr && cancel->cancelled()) break;
      keys.erase(keys.begin());
      if (first.ok()) first = std::move(status);
    }
    if (keys.empty() || cancel == nullptr) return first;
    MutexLock lock(mu_);
    keys_.merge(keys);
    return first.ok() ? cancel->status() : first;
  }
  std::string describe() const override { return "checkpoints that are being saved"; }

 protected:
  ~SessionSaves() override {
    const Status error = take_error(nullptr);
    if (!error.ok()) MR_LOG(kError, "a checkpoint was not saved: ", error);
  }

 private:
  Mutex mu_;
  std::set<std::string> keys_ MR_GUARDED_BY(mu_);
};

Status save(KernelContext& ctx) {
  MR_TRY_ASSIGN(std::unique_ptr<SaveJob> job, SaveJob::make(ctx));
  bool asynchronous = false;
  if (ctx.node().attrs.find(kAsynchronousAttr) != nullptr) {
    MR_TRY_ASSIGN(asynchronous, ctx.node().attr<bool>(kAsynchronousAttr));
  }
  if (!asynchronous) {
    MR_TRY(BackgroundSaves::global().finish(job->key(), ctx.cancel()));
    return job->run();
  }
  MR_TRY(job->keep());
  MR_TRY_ASSIGN(const Ref<SessionSaves> saves, SessionSaves::of(ctx));
  const std::string key = job->key();
  saves->add(key);
  return BackgroundSaves::global().start(
      key, [job = std::move(job)] { return job->run(); }, ctx.cancel());
}

Status wait_for_save(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 0, 0));
  const std::string& prefix = ctx.input(0).item<std::string>();
  if (prefix.empty()) {
    MR_TRY_ASSIGN(const Ref<SessionSaves> saves, SessionSaves::of(ctx));
    return saves->take_error(ctx.cancel());
  }
  MR_TRY_ASSIGN(const FilePlace place, find_checkpoint(ctx, prefix, FileAccess::Use::kWrite));
  MR_TRY_ASSIGN(const std::string key, checkpoint_key(place));
  return BackgroundSaves::global().take_error(key, ctx.cancel());
}

}  // namespace

void register_save(Registry& registry) {
  mark_reach({"SaveV2", "SaveV2Wait"}, Reach::kFiles);
  const OpTraits traits = {.stateful = true, .blocks = true, .cannot_differentiate = true};
  const OpSpec::Arg prefix = {"prefix", "string",
                              "The checkpoint's name: what its files begin with."};
  const OpSpec::Arg slices = {"shape_and_slices", "string",
                              "A vector; '' for a whole tensor, else such as '10 20 0,5:-'."};
  registry.add(
      {.name = "SaveV2",
       .doc = "Saves tensors as a checkpoint, which replaces the one of that name at once.",
       .inputs = {prefix,
                  {"tensor_names", "string", "A vector."},
                  slices,
                  {"tensors", "host(list(dtypes))"}},
       .attrs = {{"dtypes", "list(type) >= 1"}},
       .traits = traits,
       .shape = save_shape});
  registry.kernel("SaveV2", DeviceKind::kAny, save);
  registry.add({.name = "SaveV2Wait",
                .doc = "Waits for what a SaveV2 began beside the program, and fails if that did.",
                .inputs = {{"prefix", "string", "'': every one of this session."}},
                .traits = traits,
                .shape = wait_shape});
  registry.kernel("SaveV2Wait", DeviceKind::kAny, wait_for_save);
}

}  // namespace millrace
