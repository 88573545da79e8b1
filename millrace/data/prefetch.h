#pragma once

#include <memory>

#include "millrace/data/dataset.h"

namespace millrace::data {

// How much a stage keeps that works ahead of who asks.
struct AheadOptions {
  // Elements; kAutotune: as many as it takes not to let anybody wait, up to kMostAhead.
  int64_t elements = 1;
  // How many such stages share the bytes that the environment allows.
  int64_t shared_by = 1;
};
inline constexpr int64_t kAutotune = -1;
inline constexpr int64_t kMostAhead = 64;

// An iterator over `dataset` that runs on a thread of its own, ahead of who asks, by as many
// elements as the options say and no more bytes than the environment allows. The thread ends with
// the iterator. `stage` (may be null) is told how full the buffer is.
Result<std::unique_ptr<Iterator>> iterate_ahead(const Dataset& owner, const Dataset& dataset,
                                                const Iteration& iteration, AheadOptions options,
                                                Stage* stage);

}  // namespace millrace::data
