#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"
#include "millrace/distributed/collective/collective_calls.h"
#include "millrace/distributed/collective/waiting_call.h"

namespace millrace {

// Forms the groups of a cluster: keeps those who ask to join one until all have come, then answers
// them all with the same view. Lives on one task, the cluster's first. Whoever joins a group that
// has formed ends it: a member that was started again, one that has seen the group fail, or one
// that comes late to a group that went on without it. Thread-safe; nothing waits on a thread.
class GroupLeader final : public RefCounted {
 public:
  using Done = UniqueFunction<void(Result<GroupView>)>;
  // Says to a task that an epoch is over.
  using Tell = UniqueFunction<void(const std::string& task, EndGroupRequest request)>;

  // `incarnation` tells the lives of the task apart.
  GroupLeader(uint64_t incarnation, Ref<Timer> timer, Tell tell);

  // Answers when the group has formed. Who loses its connection asks again with the same attempt
  // and gets the same answer. INVALID_ARGUMENT, to all who wait, when sizes differ.
  void join(JoinGroupRequest request, Ref<CancellationToken> cancel, Done done);
  // The epoch is over, as a member says.
  void end_group(const EndGroupRequest& request);
  // Answers all who wait with `reason`, and all who come.
  void shut_down(const Status& reason);

  // "group 1: 2 of 3 members have come: ...", for groups that somebody waits for.
  std::vector<std::string> waits() const;

 private:
  using Call = WaitingCall<Result<GroupView>>;
  struct Join {
    JoinGroupRequest request;
    Ref<Call> call;
  };
  struct Group {
    std::map<std::string, Join> joins;  // those who wait, by member
    GroupView view;                     // of the epoch that lives; its number is 0 otherwise
    std::map<std::string, JoinGroupRequest> members;  // how those of the view asked
    int64_t number = 0;                               // of the last epoch
    uint64_t ticket = 0;                              // of the end of the wait for more
  };
  // Calls to be answered once the lock is gone.
  struct Answers;

  Status admit(const JoinGroupRequest& request, Group*& found) MR_REQUIRES(mu_);
  // A view that answers the request as it did before; false: it does not.
  bool answered_before(const Group& group, const JoinGroupRequest& request) const MR_REQUIRES(mu_);
  void end_view(Group& group, const JoinGroupRequest& by, Answers& answers) MR_REQUIRES(mu_);
  void add(Group& group, JoinGroupRequest request, Ref<Call> call, Answers& answers)
      MR_REQUIRES(mu_);
  void form(int64_t key, Group& group, Answers& answers) MR_REQUIRES(mu_);
  void wait_for_more(int64_t key, Group& group) MR_REQUIRES(mu_);
  void form_with_those_here(int64_t key);
  void give_up(int64_t key, const std::string& member, const Ref<Call>& call, const Status& reason);
  static std::string progress(int64_t key, const Group& group);

  const uint64_t incarnation_;
  const Ref<Timer> timer_;
  Tell tell_;
  mutable Mutex mu_;
  Status stopped_ MR_GUARDED_BY(mu_);
  std::map<int64_t, Group> groups_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
