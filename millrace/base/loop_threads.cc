#include "millrace/base/loop_threads.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "millrace/base/hash.h"

namespace millrace {
namespace {

constexpr size_t kEntries = 1024;
constexpr uint32_t kProbes = 4;
// Runs that follow each other, of whichever loops, try something else together: to share a loop is
// cheap where those before it were shared, since workers still look for more, and dear where they
// have gone to sleep.
constexpr uint32_t kTogether = 24;
// Of so many first runs of a loop every fourth tries, if it takes at most so many nanoseconds.
constexpr uint32_t kFirstRuns = 256;
constexpr uint64_t kFirstPeriod = 4;
constexpr uint64_t kLongNanos = 200'000;
// Of later runs so few that tries cost 1.5 % of the time.
constexpr uint64_t kLeastPeriod = 16;
constexpr uint64_t kPeriodOfTwice = 64;
constexpr uint64_t kMostPeriod = 256;

constexpr auto kRelaxed = std::memory_order_relaxed;

int highest_level(int most, int levels) {
  return std::min(static_cast<int>(std::bit_width(static_cast<unsigned>(most - 1))), levels - 1);
}

}  // namespace

uint32_t known_nanos(uint32_t known, int64_t nanos) {
  const int64_t now = std::clamp<int64_t>(nanos, 1, std::numeric_limits<uint32_t>::max() / 2);
  if (known == 0) return static_cast<uint32_t>(now);
  const int64_t old = known;
  return static_cast<uint32_t>(now < old ? old - (old - now + 1) / 2
                                         : old + (std::min(now - old, old / 2) + 127) / 128);
}

uint64_t period_of_tries(uint64_t known, uint64_t other) {
  if (known == 0 || other == 0) return kPeriodOfTwice;
  const uint64_t more = other > known ? other - known : 0;
  return std::bit_ceil(std::clamp(kPeriodOfTwice * more / known, kLeastPeriod, kMostPeriod));
}

LoopThreads::LoopThreads() : entries_(kEntries) {}

uint32_t LoopThreads::find(uint64_t loop) {
  const auto first = static_cast<uint32_t>(hash_combine(0, loop) % kEntries);
  for (uint32_t i = 0; i < kProbes; ++i) {
    const auto at = static_cast<uint32_t>((first + i) % kEntries);
    const uint64_t here = entries_[at].loop.load(kRelaxed);
    if (here == loop) return at;
    if (here == 0) break;
  }
  // Takes the first free one, or another loop's, which that has to find again.
  uint32_t at = first;
  for (uint32_t i = 0; i < kProbes; ++i) {
    const auto next = static_cast<uint32_t>((first + i) % kEntries);
    if (entries_[next].loop.load(kRelaxed) != 0) continue;
    at = next;
    break;
  }
  Entry& entry = entries_[at];
  entry.loop.store(loop, kRelaxed);
  entry.runs.store(0, kRelaxed);
  for (std::atomic<uint32_t>& nanos : entry.nanos) nanos.store(0, kRelaxed);
  return at;
}

LoopThreads::Choice LoopThreads::choose(uint64_t loop, int most) {
  // Times with as many threads tell nothing where more are allowed.
  loop = hash_combine(loop, static_cast<uint64_t>(most)) | 1;
  const uint32_t at = find(loop);
  Entry& entry = entries_[at];
  const int highest = highest_level(most, kLevels);
  const uint32_t run = entry.runs.fetch_add(1, kRelaxed);
  if (run == 0) entry.level.store(highest, kRelaxed);
  int level = std::clamp(entry.level.load(kRelaxed), 0, highest);
  // As good as random, lest the loops of a step always meet the same turn.
  const uint64_t turn = hash_combine(1, runs_.fetch_add(1, kRelaxed) / kTogether);
  const bool more = level == 0 || (level < highest && (turn >> 32) % 2 == 0);
  const int other = more ? level + 1 : level - 1;
  const uint64_t known = entry.nanos[level].load(kRelaxed);
  const uint64_t period = run < kFirstRuns && known <= kLongNanos
                              ? kFirstPeriod
                              : period_of_tries(known, entry.nanos[other].load(kRelaxed));
  if (run >= 2 && turn % period == 0) level = other;
  const int threads = level == highest ? most : 1 << level;
  return {threads, level, at, loop};
}

void LoopThreads::took(const Choice& choice, int64_t nanos) {
  Entry& entry = entries_[choice.entry];
  if (entry.loop.load(kRelaxed) != choice.loop) return;
  // Nothing is in its place when a loop runs for the first time.
  if (entry.runs.load(kRelaxed) <= 1) return;
  std::atomic<uint32_t>& known = entry.nanos[choice.level];
  known.store(known_nanos(known.load(kRelaxed), nanos), kRelaxed);

  const auto nanos_at = [&](int level) -> uint64_t {
    return level < 0 || level >= kLevels ? 0 : entry.nanos[level].load(kRelaxed);
  };
  const int level = entry.level.load(kRelaxed);
  const uint64_t now = nanos_at(level), fewer = nanos_at(level - 1), more = nanos_at(level + 1);
  if (now == 0) return;
  if (fewer != 0 && takes_no_longer(fewer, now)) {
    entry.level.store(level - 1, kRelaxed);
  } else if (more != 0 && !takes_no_longer(now, more)) {
    entry.level.store(level + 1, kRelaxed);
  }
}

}  // namespace millrace
