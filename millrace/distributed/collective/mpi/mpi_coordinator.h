#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "millrace/distributed/collective/mpi/mpi_message.h"

namespace millrace {

// What the first rank does for all: MPI wants all ranks to begin operations in one order, and ours
// begin instances in any. So ranks tell what they have begun; when all have, and agree, all are
// told to go, in one order. Whatever ends one rank's part ends, for all, what has not gone. Knows
// nothing of MPI. Not thread-safe.
class MpiCoordinator {
 public:
  // `members` by rank of MPI: "rank 0 (/job:worker/replica:0/task:0)".
  explicit MpiCoordinator(std::vector<std::string> members) : members_(std::move(members)) {}

  // What all ranks, this one too, are to be told in answer to what one has said, in this order.
  std::vector<MpiMessage> take(const MpiMessage& said);

  // Who has not begun the next execution of an instance: "rank 1 (...), rank 2 (...)".
  std::string missing(int64_t group, int64_t instance) const;

 private:
  using Key = std::pair<int64_t, int64_t>;            // group, instance
  using Begun = std::vector<std::deque<MpiMessage>>;  // by rank: what was not told to go

  std::vector<MpiMessage> ready(const MpiMessage& said);
  MpiMessage end(const Status& reason);
  const std::string& who(int64_t rank) const { return members_[static_cast<size_t>(rank)]; }

  const std::vector<std::string> members_;
  int64_t epoch_ = 0;
  bool closed_ = false;
  std::map<Key, Begun> begun_;
};

}  // namespace millrace
