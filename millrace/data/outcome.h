#pragma once

#include "millrace/data/state.h"

namespace millrace::data {

// What asking an iterator came to, kept until somebody wants it.
struct Outcome {
  Element element;
  Status status;
  bool end = false;

  // Asks `input`.
  void fill(Iterator& input);
  // What next() would answer.
  Status give(Element& out, bool& to_end);
  int64_t bytes() const;

  Status fields(StateFields& state);
};

}  // namespace millrace::data
