#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "millrace/eager/record.h"

namespace millrace::eager {

class EagerContext;

// Remembers what runs on its thread while it records, as far as it depends on what it watches, and
// computes gradients of it by the rules of the ops, each of which it runs.
//
//   Tape tape;
//   tape.start();
//   tape.watch(x);
//   MR_TRY_ASSIGN(TensorRef y, context->execute_one("Square", {x}));
//   tape.stop();
//   MR_TRY_ASSIGN(std::vector<EagerGradient> dy, tape.gradient(*context, {y}, {x}));
//
// Tapes nest: while one computes gradients, those that record besides it see the operations of
// that, so theirs are gradients of higher order. Memory: a tape keeps what the gradients need, not
// the results that nobody holds and that lead nowhere; it frees all when it ends.
//
// Used by one thread at a time. It records what the thread runs that started it.
class Tape {
 public:
  struct Options {
    // Gradients may be asked for more than once; without it, what they need is freed as they are
    // computed, and the tape stops recording before.
    bool persistent = false;
    // Variables that are read, and may be trained, are watched.
    bool watch_accessed_variables = true;
  };
  Tape() : Tape(Options()) {}
  explicit Tape(Options options);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Begins to record, or goes on.
  void start();
  void stop();
  bool recording() const { return recording_; }
  bool persistent() const { return options_.persistent; }
  bool watches_variables() const { return options_.watch_accessed_variables; }

  // Follows `tensor` from now on. Of no consequence for types without gradients.
  void watch(EagerTensor& tensor);
  bool watched(const EagerTensor& tensor) const;
  // Forgets all that was recorded and watched.
  void reset();

  struct GradientOptions {
    // Zeros for a source that no target depends on, instead of none.
    bool zeros_for_unconnected = false;
    // More gradients will be asked for, also of a tape that is not persistent.
    bool again = false;
  };
  // The gradients of the sum of `targets` with respect to each of `sources`, none where no target
  // depends on it. `output_gradients`: those that come in for each target, empty or with none for
  // ones. The gradient of the handle of a variable is that of its value.
  //
  // FAILED_PRECONDITION when a tape that is not persistent is asked twice; NOT_FOUND for an op on
  // the way without a rule; a rule's own errors, with the op's name.
  Result<std::vector<EagerGradient>> gradient(EagerContext& context,
                                              std::span<const TensorRef> targets,
                                              std::span<const TensorRef> sources,
                                              std::span<const EagerGradient> output_gradients,
                                              const GradientOptions& options);
  Result<std::vector<EagerGradient>> gradient(EagerContext& context, std::vector<TensorRef> targets,
                                              std::vector<TensorRef> sources) {
    return gradient(context, targets, sources, {}, GradientOptions());
  }

  // How many things it holds records of, for tests.
  size_t num_records() const { return records_.size(); }

  // The tapes that record on this thread, innermost first.
  static Tape* innermost() { return innermost_; }
  Tape* outer() const { return outer_; }

 private:
  friend class GradientRun;
  friend class Recorder;
  friend class StopRecording;

  bool tracks(const EagerTensor& tensor) const;
  void add(Ref<Record> record, int64_t bytes);
  // Drops records that no tensor and no other record leads to.
  void sweep();

  static thread_local constinit Tape* innermost_;

  const Options options_;
  const uint64_t id_;
  bool recording_ = false;
  bool used_ = false;
  Tape* outer_ = nullptr;
  // In the order in which they ran.
  std::vector<Ref<Record>> records_;
  int64_t bytes_ = 0;  // that the records hold, some of them more than once
  size_t sweep_at_records_;
  int64_t sweep_at_bytes_;

  struct Place {
    const Record* record;
    int32_t output;
    friend bool operator==(const Place&, const Place&) = default;
  };
  struct PlaceHash {
    size_t operator()(const Place& place) const;
  };
  struct Watched;
  std::unique_ptr<Watched> watched_;
};

// Nothing is recorded on this thread while it lives, by any tape.
class StopRecording {
 public:
  StopRecording();
  ~StopRecording();
  StopRecording(const StopRecording&) = delete;
  StopRecording& operator=(const StopRecording&) = delete;

 private:
  Tape* tapes_;
};

// Tells the tapes of this thread that the variable behind `handle`, which may be trained, is read:
// those that want to watch it.
void variable_accessed(EagerTensor& handle);

// How many orders of gradients of something made from `inputs` the tapes of this thread may be
// asked for: as many as follow some input, and one more where one of these is persistent.
// `followed`: by input, whether one of them follows it.
int orders_followed(std::span<const TensorRef> inputs, std::vector<bool>& followed);

// Records, on the tapes of this thread that follow some input, that `outputs` were made from
// `inputs`, with `backward` for their gradient. Each output becomes a tensor of its own, which the
// caller has the only reference to.
void record_operation(std::span<const TensorRef> inputs, std::span<const TensorRef> outputs,
                      Ref<Backward> backward);

}  // namespace millrace::eager
