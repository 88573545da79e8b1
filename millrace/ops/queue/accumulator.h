#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

#include "millrace/base/cancellation.h"
#include "millrace/base/function.h"
#include "millrace/base/mutex.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/kernel/value.h"
#include "millrace/ops/queue/waiting_line.h"
#include "millrace/tensor/partial_shape.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

struct AccumulatorSpec {
  DType dtype = DType::kInvalid;
  PartialShape shape;   // of every gradient
  bool sparse = false;  // gradients are rows with their numbers
  bool mean = true;     // else their sum is taken
  friend bool operator==(const AccumulatorSpec&, const AccumulatorSpec&) = default;
};

// A gradient as it is given and taken.
struct AccumulatorGradient {
  Tensor values;
  // Of a sparse one: the numbers of the rows in `values`, int64, and the shape of the whole; not
  // valid where nothing was said. Of one that is taken, the first size is -1 where not known.
  Tensor indices;
  Tensor shape;
};

// Sums up gradients until somebody takes their mean (or sum): how synchronous training leaves slow
// workers behind. Each gradient carries the step its worker began at; those from before the
// accumulator's own step are dropped. Who takes asks for a number of gradients and waits in line,
// first come, first served, without a thread; each take leaves the accumulator empty, one step on.
//
// A training whose tasks may be lost lives in eras: one lasts until the model is set back to what
// was saved. Its number is random, above 0; 0 stands for whichever era it is. Gradients of another
// era are dropped, and what was taken for a step of this one is kept until a gradient of the next
// comes, so that a chief that was cut off takes the same again. Thread-safe.
class Accumulator final : public Resource {
 public:
  static constexpr std::string_view kTypeName = "Accumulator";
  using Done = UniqueFunction<void(Status, AccumulatorGradient)>;

  Accumulator(std::string_view container, std::string_view name, AccumulatorSpec spec);

  const AccumulatorSpec& spec() const { return spec_; }
  // Its name in the form of a reference; see handle.h.
  const Ref<RefCell>& handle() const { return handle_; }

  // An era begins at `step`: nothing is in the accumulator, and who waits in a take gets ABORTED.
  // Nothing happens where that era, not 0, has begun already.
  void begin(int64_t era, int64_t step);
  // Adds a gradient, in memory of its own, unless it is of another era, its step is past, or
  // `giver` has a name and gave one since the last take: a replica that was restarted, or asked
  // twice, counts once. Says whether it was added. INVALID_ARGUMENT for one that does not fit the
  // spec or those before it. Of a sparse one, a row may come in several parts.
  Result<bool> apply(int64_t era, int64_t local_step, std::string_view giver,
                     const AccumulatorGradient& gradient);
  // Waits for `required` gradients and takes what came by then. Of a sparse mean, each row is
  // divided by the number of gradients that had it. In an era, not 0, `step` says for which step:
  // what was taken for it is given again while it is kept; ABORTED in another era, for steps before
  // that and for those to come. `done` is called once, without the lock, after the cancellation
  // callback is gone. `cancel` may be null.
  void take(int64_t era, int64_t step, int64_t required, CancellationToken* cancel, Done done);
  void set_global_step(int64_t step);
  // How many gradients came since the last take.
  int64_t count() const;
  std::string describe() const override;

  // What was added up so far: one kind for tensors, one for rows.
  class Sum {
   public:
    virtual ~Sum() = default;
    // INVALID_ARGUMENT, and nothing changes, for a gradient that does not fit.
    virtual Status add(const AccumulatorGradient& gradient) = 0;
    // The mean (or sum) of the `count` gradients that were added.
    virtual Result<AccumulatorGradient> result(int64_t count) = 0;
    virtual void clear() = 0;
  };

 private:
  struct Request;
  using Line = WaitingLine<Request>;

  ~Accumulator() override;
  Status check_step(int64_t era, int64_t step) const MR_REQUIRES(mu_);
  // Moves those who have enough to `finished`.
  void serve(Line& finished) MR_REQUIRES(mu_);
  void drop(Line::Place request, Line& finished) MR_REQUIRES(mu_);
  // A request's token was cancelled.
  void abandon(Line::Place request);

  const AccumulatorSpec spec_;
  const std::string name_;
  const Ref<RefCell> handle_;

  mutable Mutex mu_;
  const std::unique_ptr<Sum> sum_ MR_PT_GUARDED_BY(mu_);
  int64_t count_ MR_GUARDED_BY(mu_) = 0;
  std::unordered_set<std::string> givers_ MR_GUARDED_BY(mu_);  // of these, who had a name
  int64_t era_ MR_GUARDED_BY(mu_) = 0;
  int64_t global_step_ MR_GUARDED_BY(mu_) = 0;
  AccumulatorGradient taken_ MR_GUARDED_BY(mu_);  // for the step before that, where it is kept
  Line taking_ MR_GUARDED_BY(mu_);
};

// An empty sum for gradients of this kind.
std::unique_ptr<Accumulator::Sum> make_gradient_sum(const AccumulatorSpec& spec);

}  // namespace millrace
