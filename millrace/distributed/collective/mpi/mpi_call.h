#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/base/timer.h"
#include "millrace/distributed/collective/waiting_call.h"
#include "millrace/distributed/wait_watch.h"
#include "millrace/kernel/collectives.h"

namespace millrace {

// One call of a collective operation that may be done by MPI: what is to be done, and who is to be
// answered, once, by whoever comes first: the operation, the caller who gives up, or the deadline.
// Thread-safe.
class MpiCall final : public Waiting {
 public:
  enum class Kind : uint8_t { kReduce, kGather, kBroadcast };
  struct Work {
    Kind kind = Kind::kReduce;
    Tensor input;  // none: it receives
    DType dtype = DType::kInvalid;
    Shape shape;
    Collectives::Merge merge = Collectives::Merge::kAdd;
    Collectives::Final final = Collectives::Final::kId;
  };
  using Describe = UniqueFunction<std::string(const MpiCall&)>;
  using GivenUp = UniqueFunction<void(const Ref<MpiCall>&, const Status& reason)>;

  // With this what() begins where one member sends.
  static constexpr std::string_view kBroadcast = "broadcast of ";

  MpiCall(Collectives::Request request, Work work, Collectives::Done done);

  const Collectives::Request& request() const { return request_; }
  const Work& work() const { return work_; }
  // The same for all members: "Add of float [2]".
  const std::string& what() const { return what_; }
  // "CollectiveReduce instance 7 of group 1".
  const std::string& name() const { return name_; }
  // What others have to know of it: rows, or whether it sends.
  int64_t number() const;

  // From here on it is reported while it waits; `describe` says for what. To be called first.
  void begin(const Ref<Timer>& timer, const Ref<WaitWatch>& watch, Describe describe);
  // From here on it ends with its caller or its deadline, which is told by `given_up`, perhaps at
  // once: to be called when whoever is told knows of it.
  void watch(GivenUp given_up);
  // Answers, unless somebody has. No lock may be held.
  void answer(Result<Tensor> result);
  // The same in two steps: true for the one who is to answer, and then nobody gives up any more.
  bool take();
  void answer_taken(Result<Tensor> result) { call_->answer_taken(std::move(result)); }
  bool over() const { return over_; }

  std::string waits() const { return describe_ ? describe_(*this) : name_; }
  void tell(int64_t waited_ms) override;

 private:
  void settle();

  const Collectives::Request request_;
  const Work work_;
  const std::string what_;
  const std::string name_;
  const Snapshot input_stays_;
  const Ref<WaitingCall<Result<Tensor>>> call_;
  mutable Describe describe_;
  Ref<Timer> timer_;
  Ref<WaitWatch> watch_;
  std::atomic<uint64_t> watch_ticket_{0};
  std::atomic<uint64_t> deadline_{0};
  std::atomic<bool> over_{false};
};

}  // namespace millrace
