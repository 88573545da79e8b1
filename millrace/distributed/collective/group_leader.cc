#include "millrace/distributed/collective/group_leader.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "millrace/base/hash.h"
#include "millrace/distributed/patience.h"
#include "millrace/kernel/device_name.h"

namespace millrace {
namespace {

constexpr size_t kMaxGroups = 1024;
constexpr int64_t kMaxGroupSize = 4096;

// By number, not by digits: task 2 comes before task 10.
auto order_of(const std::string& member) {
  const Result<DeviceName> parsed = DeviceName::parse(member);
  const DeviceName name = parsed.ok() ? *parsed : DeviceName();
  return std::make_tuple(name.job.value_or(""), name.replica.value_or(0), name.task.value_or(0),
                         name.type.value_or(""), name.id.value_or(0));
}

Status check(const JoinGroupRequest& request) {
  const Result<DeviceName> member = DeviceName::parse(request.member);
  if (!member.ok() || !member->complete()) {
    return invalid_argument("group ", request.group_key,
                            ": expected the full name of a device, got \"",
                            request.member.substr(0, 256), "\"");
  }
  if (request.group_size < 1 || request.group_size > kMaxGroupSize) {
    return invalid_argument("group ", request.group_key, ": expected a size of 1 to ",
                            kMaxGroupSize, ", got ", request.group_size);
  }
  if (request.min_size < 0 || request.min_size > request.group_size) {
    return invalid_argument("group ", request.group_key, " of ", request.group_size,
                            ": expected a smallest size of at most that, got ", request.min_size);
  }
  return ok_status();
}

std::string sizes_of(const JoinGroupRequest& request) {
  std::string out = str_cat(task_of_member(request.member), " says ", request.group_size);
  return request.min_size == 0 ? out : str_cat(out, " and at least ", request.min_size);
}

}  // namespace

struct GroupLeader::Answers {
  std::vector<std::pair<Ref<Call>, Result<GroupView>>> calls;
  std::vector<std::pair<std::string, EndGroupRequest>> ends;  // by task

  void send(Tell& tell) {
    for (auto& [task, end] : ends) tell(task, std::move(end));
    for (auto& [call, answer] : calls) call->answer(std::move(answer));
  }
};

GroupLeader::GroupLeader(uint64_t incarnation, Ref<Timer> timer, Tell tell)
    : incarnation_(incarnation), timer_(std::move(timer)), tell_(std::move(tell)) {}

Status GroupLeader::admit(const JoinGroupRequest& request, Group*& found) {
  MR_TRY(stopped_);
  if (groups_.size() >= kMaxGroups) {  // epochs go on without the leader
    std::erase_if(groups_, [](const auto& group) { return group.second.joins.empty(); });
  }
  if (!groups_.contains(request.group_key) && groups_.size() >= kMaxGroups) {
    return resource_exhausted("group ", request.group_key, ": there are ", kMaxGroups,
                              " groups, as many as a cluster may have");
  }
  found = &groups_[request.group_key];
  if (const auto it = found->joins.find(request.member);
      it != found->joins.end() && it->second.request.incarnation == request.incarnation &&
      it->second.request.attempt > request.attempt) {
    return aborted("group ", request.group_key, ": ", request.member, " has joined anew since");
  }
  return ok_status();
}

bool GroupLeader::answered_before(const Group& group, const JoinGroupRequest& request) const {
  if (group.view.number == 0) return false;
  const auto it = group.members.find(request.member);
  return it != group.members.end() && it->second.incarnation == request.incarnation &&
         it->second.attempt == request.attempt;
}

void GroupLeader::end_view(Group& group, const JoinGroupRequest& by, Answers& answers) {
  if (group.view.number == 0) return;
  const auto before = group.members.find(by.member);
  const std::string_view why = before == group.members.end()                  ? " joins it"
                               : before->second.incarnation != by.incarnation ? " was started again"
                                                                              : " joins it anew";
  EndGroupRequest end = {
      by.group_key, group.view.epoch,
      aborted("group ", by.group_key, " ends: ", task_of_member(by.member), why)};
  std::set<std::string> tasks;
  for (const std::string& member : group.view.members) tasks.insert(task_of_member(member));
  for (const std::string& task : tasks) answers.ends.emplace_back(task, end);
  group.view = {};
}

void GroupLeader::add(Group& group, JoinGroupRequest request, Ref<Call> call, Answers& answers) {
  const int64_t key = request.group_key;
  for (const auto& [member, other] : group.joins) {
    if (member == request.member || (other.request.group_size == request.group_size &&
                                     other.request.min_size == request.min_size)) {
      continue;
    }
    const Status differ = invalid_argument("group ", key, ": members do not agree on its size: ",
                                           sizes_of(other.request), ", ", sizes_of(request));
    answers.calls.emplace_back(std::move(call), differ);
    for (auto& [name, join] : group.joins) answers.calls.emplace_back(join.call, differ);
    group.joins.clear();
    return;
  }
  Join& join = group.joins[request.member];
  if (join.call) {
    answers.calls.emplace_back(join.call, aborted(request.member, " has asked again"));
  }
  const int64_t size = request.group_size;
  join = {std::move(request), std::move(call)};
  if (static_cast<int64_t>(group.joins.size()) == size) return form(key, group, answers);
  wait_for_more(key, group);
}

void GroupLeader::join(JoinGroupRequest request, Ref<CancellationToken> cancel, Done done) {
  if (Status bad = check(request); !bad.ok()) return done(std::move(bad));
  const Ref<Call> call = make_ref<Call>(std::move(cancel), std::move(done));
  const int64_t key = request.group_key;
  const std::string member = request.member;
  Answers answers;
  {
    MutexLock lock(mu_);
    Group* group = nullptr;
    if (Status refused = admit(request, group); !refused.ok()) {
      answers.calls.emplace_back(call, std::move(refused));
    } else if (answered_before(*group, request)) {
      answers.calls.emplace_back(call, group->view);
    } else {
      end_view(*group, request, answers);
      add(*group, std::move(request), call, answers);
    }
  }
  call->watch([self = Ref<GroupLeader>(this), key, member, call](const Status& reason) {
    self->give_up(key, member, call, reason);
  });
  answers.send(tell_);
}

void GroupLeader::give_up(int64_t key, const std::string& member, const Ref<Call>& call,
                          const Status& reason) {
  std::string had_come;
  {
    MutexLock lock(mu_);
    const auto group = groups_.find(key);
    if (group != groups_.end()) {
      had_come = progress(key, group->second);
      const auto join = group->second.joins.find(member);
      if (join != group->second.joins.end() && join->second.call == call) {
        group->second.joins.erase(join);
      }
    }
  }
  call->answer_taken(reason.with_line(had_come));
}

void GroupLeader::form(int64_t key, Group& group, Answers& answers) {
  if (group.ticket != 0) timer_->remove(std::exchange(group.ticket, 0));
  group.members.clear();
  GroupView view;
  for (const auto& [member, join] : group.joins) {
    view.members.push_back(member);
    group.number = std::max(group.number, join.request.last_number);
    group.members[member] = join.request;
  }
  view.number = ++group.number;
  const uint64_t life = hash_combine(incarnation_, static_cast<uint64_t>(key));
  view.epoch = hash_combine(life, static_cast<uint64_t>(view.number)) | 1;
  std::sort(view.members.begin(), view.members.end(),
            [](const auto& a, const auto& b) { return order_of(a) < order_of(b); });
  for (auto& [member, join] : group.joins) answers.calls.emplace_back(join.call, view);
  group.joins.clear();
  group.view = std::move(view);
}

void GroupLeader::wait_for_more(int64_t key, Group& group) {
  const int64_t least = group.joins.begin()->second.request.min_size;
  if (group.ticket != 0) timer_->remove(std::exchange(group.ticket, 0));
  if (least == 0 || static_cast<int64_t>(group.joins.size()) < least) return;
  const int64_t patience_ns = lease_ms_for(lost_after_ms()) * 1'000'000;
  group.ticket = timer_->schedule(
      patience_ns, [self = Ref<GroupLeader>(this), key] { self->form_with_those_here(key); });
}

void GroupLeader::form_with_those_here(int64_t key) {
  Answers answers;
  {
    MutexLock lock(mu_);
    Group& group = groups_[key];
    group.ticket = 0;
    if (!stopped_.ok() || group.joins.empty()) return;
    const int64_t least = group.joins.begin()->second.request.min_size;
    if (static_cast<int64_t>(group.joins.size()) < least) return;
    form(key, group, answers);
  }
  answers.send(tell_);
}

void GroupLeader::end_group(const EndGroupRequest& request) {
  MutexLock lock(mu_);
  const auto it = groups_.find(request.group_key);
  if (it != groups_.end() && it->second.view.epoch == request.epoch) it->second.view = {};
}

void GroupLeader::shut_down(const Status& reason) {
  Answers answers;
  {
    MutexLock lock(mu_);
    if (!stopped_.ok()) return;
    stopped_ = reason;
    for (auto& [key, group] : groups_) {
      if (group.ticket != 0) timer_->remove(group.ticket);
      for (auto& [member, join] : group.joins) answers.calls.emplace_back(join.call, reason);
    }
    groups_.clear();
  }
  answers.send(tell_);
}

std::string GroupLeader::progress(int64_t key, const Group& group) {
  if (group.joins.empty()) return "";
  std::vector<std::string> members;
  for (const auto& [member, join] : group.joins) members.push_back(task_of_member(member));
  return str_cat("group ", key, ": ", members.size(), " of ",
                 group.joins.begin()->second.request.group_size,
                 " members have come: ", str_join(members, ", "));
}

std::vector<std::string> GroupLeader::waits() const {
  std::vector<std::string> out;
  MutexLock lock(mu_);
  for (const auto& [key, group] : groups_) {
    if (!group.joins.empty()) out.push_back(progress(key, group));
  }
  return out;
}

}  // namespace millrace
