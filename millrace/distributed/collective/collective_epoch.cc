#include "millrace/distributed/collective/collective_epoch.h"

#include <algorithm>

#include "millrace/distributed/collective/exchange.h"

namespace millrace {
namespace {

// What peers may leave here before this member has begun.
constexpr size_t kMaxWaitingPulls = 65'536;
constexpr size_t kMaxMailboxes = 4096;

Slot slot_of(const RecvChunkRequest& request) { return {request.phase, request.chunk}; }

}  // namespace

CollectiveEpoch::CollectiveEpoch(int64_t key, GroupView agreed, int own_rank)
    : group_key(key), view(std::move(agreed)), rank(own_rank) {}

CollectiveEpoch::~CollectiveEpoch() = default;

std::string CollectiveEpoch::who(int64_t member_rank) const {
  return str_cat("rank ", member_rank, " (",
                 task_of_member(view.members[static_cast<size_t>(member_rank)]), ")");
}

CollectiveEpoch::Key CollectiveEpoch::key_of(const Exchange& exchange) {
  return {exchange.request().instance_key, exchange.sequence()};
}

Status CollectiveEpoch::enter(const Ref<Exchange>& exchange) {
  exchange->enter(Ref<CollectiveEpoch>(this), begun_[exchange->request().instance_key]++);
  Mailbox& mailbox = mailboxes_[key_of(*exchange)];
  mailbox.exchange = exchange;
  for (const ChunkPull& pull : mailbox.pulls) {
    if (pull.request.what != exchange->what()) return differ(*exchange, pull.request);
  }
  return ok_status();
}

Status CollectiveEpoch::differ(const Exchange& exchange, const RecvChunkRequest& request) const {
  return invalid_argument(exchange.name(), ": members do not agree: ", who(rank), " has ",
                          exchange.what(), ", ", who(request.asker), " has ",
                          request.what.substr(0, 256));
}

Result<CollectiveEpoch::Mailbox*> CollectiveEpoch::find_mailbox(const RecvChunkRequest& request) {
  if (request.rank != rank || request.asker < 0 || request.asker >= size() ||
      request.asker == request.rank) {
    return invalid_argument("group ", group_key, " of ", size(), ": rank ", request.asker,
                            " asks rank ", request.rank, " at rank ", rank);
  }
  const Key at = {request.instance_key, request.sequence};
  if (const auto it = mailboxes_.find(at); it != mailboxes_.end()) return &it->second;
  const auto begun = begun_.find(request.instance_key);
  const int64_t next = begun == begun_.end() ? 0 : begun->second;
  if (request.sequence != next) {
    return aborted("group ", group_key, ": execution ", request.sequence, " of instance ",
                   request.instance_key, " is asked for, the next one of rank ", rank, " is ",
                   next);
  }
  if (mailboxes_.size() >= kMaxMailboxes) {
    return resource_exhausted("group ", group_key, ": ", kMaxMailboxes, " instances wait on ",
                              view.members[static_cast<size_t>(rank)]);
  }
  return &mailboxes_[at];
}

CollectiveEpoch::Answer CollectiveEpoch::ask(const RecvChunkRequest& request,
                                             const Ref<ChunkCall>& call) {
  Answer out;
  const Result<Mailbox*> found = find_mailbox(request);
  if (!found.ok()) {
    out.value = found.status();
    return out;
  }
  Mailbox& mailbox = **found;
  const Slot slot = slot_of(request);
  if (mailbox.exchange && mailbox.exchange->what() != request.what) {
    out.value = out.disagree = differ(*mailbox.exchange, request);
    return out;
  }
  if (mailbox.handed_out.contains({slot, request.asker})) {
    // The memory may have something else by now.
    out.value = aborted(who(rank), " has given chunk ", slot.chunk, " of phase ", slot.phase,
                        " to ", who(request.asker), " before");
    return out;
  }
  if (const auto value = mailbox.values.find(slot); value != mailbox.values.end()) {
    out.value = value->second.tensor;
    mailbox.handed_out.emplace(slot, request.asker);
    if (--value->second.readers == 0) mailbox.values.erase(value);
    if (mailbox.finished && mailbox.values.empty()) {
      mailboxes_.erase({request.instance_key, request.sequence});
    }
    return out;
  }
  if (waiting_pulls_ >= kMaxWaitingPulls || mailbox.finished) {
    out.value = invalid_argument("group ", group_key, ": ", who(rank), " has no chunk ", slot.chunk,
                                 " of phase ", slot.phase, " for ", who(request.asker));
    return out;
  }
  out.waits = true;
  // Who asks again has lost its connection.
  const auto before =
      std::find_if(mailbox.pulls.begin(), mailbox.pulls.end(), [&](const ChunkPull& pull) {
        return slot_of(pull.request) == slot && pull.request.asker == request.asker;
      });
  if (before != mailbox.pulls.end()) {
    out.instead = std::exchange(before->call, call);
  } else {
    ++waiting_pulls_;
    mailbox.pulls.push_back({request, call});
  }
  return out;
}

void CollectiveEpoch::drop(const RecvChunkRequest& request, const Ref<ChunkCall>& call) {
  const auto box = mailboxes_.find({request.instance_key, request.sequence});
  if (box == mailboxes_.end()) return;
  waiting_pulls_ -=
      std::erase_if(box->second.pulls, [&](const ChunkPull& pull) { return pull.call == call; });
}

std::vector<Ref<ChunkCall>> CollectiveEpoch::publish(const Exchange& exchange, Slot slot,
                                                     const Tensor& value, int readers) {
  std::vector<Ref<ChunkCall>> calls;
  Mailbox& mailbox = mailboxes_[key_of(exchange)];
  std::erase_if(mailbox.pulls, [&](const ChunkPull& pull) {
    if (slot_of(pull.request) != slot || readers == 0) return false;
    calls.push_back(pull.call);
    mailbox.handed_out.emplace(slot, pull.request.asker);
    --readers;
    return true;
  });
  waiting_pulls_ -= calls.size();
  if (readers > 0) mailbox.values[slot] = {value, readers};
  return calls;
}

std::vector<Ref<ChunkCall>> CollectiveEpoch::finish(const Exchange& exchange) {
  std::vector<Ref<ChunkCall>> left;
  Mailbox& mailbox = mailboxes_[key_of(exchange)];
  mailbox.finished = true;
  for (const ChunkPull& pull : mailbox.pulls) left.push_back(pull.call);
  waiting_pulls_ -= left.size();
  mailbox.pulls.clear();
  if (mailbox.values.empty()) mailboxes_.erase(key_of(exchange));
  return left;
}

std::vector<Ref<Exchange>> CollectiveEpoch::under_way() const {
  std::vector<Ref<Exchange>> out;
  for (const auto& [at, mailbox] : mailboxes_) {
    if (mailbox.exchange && !mailbox.finished) out.push_back(mailbox.exchange);
  }
  return out;
}

std::vector<Ref<ChunkCall>> CollectiveEpoch::clear() {
  std::vector<Ref<ChunkCall>> out;
  for (auto& [at, mailbox] : mailboxes_) {
    for (ChunkPull& pull : mailbox.pulls) out.push_back(std::move(pull.call));
  }
  mailboxes_.clear();
  waiting_pulls_ = 0;
  return out;
}

}  // namespace millrace
