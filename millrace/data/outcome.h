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

  void save(StateWriter& state) const;
  Status restore(StateReader& state);
};

}  // namespace millrace::data
