#pragma once

#include <vector>

#include "millrace/distributed/collective/exchange.h"

namespace millrace {

// An exchange that begins with a number from each member, which all of them get to know.
class AnnouncedExchange : public Exchange {
 protected:
  // Their phase; others begin at 1.
  static constexpr int64_t kAnnouncement = 0;

  using Exchange::Exchange;

  virtual int64_t own_number() const = 0;
  // What follows, with the numbers by rank; all_pulled_after() comes when it is done.
  virtual Status announced(const std::vector<int64_t>& numbers) = 0;
  virtual Status all_pulled_after() = 0;

 private:
  Status run() final;
  Status all_pulled() final;

  std::vector<int64_t> numbers_;
  bool announced_ = false;
};

}  // namespace millrace
