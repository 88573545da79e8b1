#include "millrace/distributed/collective/mpi/mpi_coordinator.h"

#include <algorithm>

#include "millrace/distributed/collective/mpi/mpi_call.h"

namespace millrace {

MpiMessage MpiCoordinator::end(const Status& reason) {
  begun_.clear();
  return {.kind = MpiMessage::Kind::kEnd,
          .epoch = ++epoch_,
          .code = static_cast<int64_t>(reason.code()),
          .text = std::string(reason.message())};
}

std::vector<MpiMessage> MpiCoordinator::take(const MpiMessage& said) {
  if (closed_) return {};
  switch (said.kind) {
    case MpiMessage::Kind::kReady:
      // Of an earlier epoch: who says it is being told that it has ended.
      if (said.epoch != epoch_) return {};
      return ready(said);
    case MpiMessage::Kind::kLeft:
      if (said.epoch != epoch_) return {};
      return {end(aborted(said.text))};
    case MpiMessage::Kind::kBye:
      closed_ = true;
      begun_.clear();
      return {{.kind = MpiMessage::Kind::kClosed,
               .text = str_cat(who(said.rank),
                               " has ended, and a rank of MPI cannot be started "
                               "again")}};
    default:
      return {end(internal("rank ", said.rank, " says what the first rank says"))};
  }
}

std::vector<MpiMessage> MpiCoordinator::ready(const MpiMessage& said) {
  const Key key = {said.group, said.instance};
  Begun& begun = begun_[key];
  begun.resize(members_.size());
  std::deque<MpiMessage>& own = begun[static_cast<size_t>(said.rank)];
  const size_t turn = own.size();
  own.push_back(said);
  bool all = true;
  for (const auto& other : begun) {
    if (other.size() <= turn) {
      all = false;
    } else if (other[turn].hash != said.hash) {
      const MpiMessage &a = other[turn].rank < said.rank ? other[turn] : said,
                       &b = other[turn].rank < said.rank ? said : other[turn];
      return {end(invalid_argument("instance ", said.instance, " of group ", said.group,
                                   ": members do not agree: ", who(a.rank), " has ", a.text, ", ",
                                   who(b.rank), " has ", b.text))};
    }
  }
  if (!all) return {};
  MpiMessage go = {.kind = MpiMessage::Kind::kGo,
                   .epoch = epoch_,
                   .group = said.group,
                   .instance = said.instance};
  for (auto& ranks : begun) {
    go.numbers.push_back(ranks.front().number);
    ranks.pop_front();
  }
  if (said.text.starts_with(MpiCall::kBroadcast)) {
    std::vector<std::string> senders;
    for (size_t i = 0; i < members_.size(); ++i) {
      if (go.numbers[i] != 0) senders.push_back(members_[i]);
    }
    if (senders.size() != 1) {
      return {end(invalid_argument("broadcast instance ", said.instance, " of group ", said.group,
                                   ": expected one sender, got ", senders.size(),
                                   senders.empty() ? "" : ": ", str_join(senders, ", ")))};
    }
  }
  const bool idle = std::all_of(begun.begin(), begun.end(), [](auto& r) { return r.empty(); });
  if (idle) begun_.erase(key);
  return {std::move(go)};
}

std::string MpiCoordinator::missing(int64_t group, int64_t instance) const {
  const auto it = begun_.find({group, instance});
  std::vector<std::string> out;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (it == begun_.end() || it->second[i].empty()) out.push_back(members_[i]);
  }
  return str_join(out, ", ");
}

}  // namespace millrace
