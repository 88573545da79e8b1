#pragma once

#include <memory>

#include "millrace/data/function.h"
#include "millrace/data/prefetch.h"
#include "millrace/data/state.h"

namespace millrace::data {

// An iterator over a dataset that a function made, and what it made it of: so that a saved position
// can be found again, by calling the function again.
class Nested {
 public:
  bool is_open() const { return iterator_ != nullptr; }
  // Calls `function`, which gives one dataset, and iterates over that: on a thread of its own where
  // it works ahead by some elements.
  Status open(Element args, const Function& function, Environment& environment, AheadOptions ahead);
  void close();
  // While it is open.
  Status next(Element& out, bool& end) { return iterator_->next(out, end); }

  Status fields(StateFields& state, const Function& function, Environment& environment,
                AheadOptions ahead);

 private:
  Element args_;
  std::unique_ptr<Iterator> iterator_;
};

}  // namespace millrace::data
