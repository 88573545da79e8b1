#include "millrace/distributed/clock_offsets.h"

#include <algorithm>
#include <utility>

#include "millrace/base/clock.h"

namespace millrace {
namespace {

constexpr size_t kKeptSamples = 16;  // of a task
constexpr int kAsked = 4;
constexpr int64_t kDriftPer = 10'000;
// Clocks that are off by more are none: what is added to times stays far from overflowing.
constexpr int64_t kMostNs = INT64_MAX / 8;

bool is_time(int64_t ns) { return ns >= -kMostNs && ns <= kMostNs; }

}  // namespace

int64_t ClockOffsets::Measured::uncertainty_at(int64_t now_ns) const {
  return offset.uncertainty_ns + std::abs(now_ns - at_ns) / kDriftPer;
}

bool ClockOffsets::add(std::string_view task, const ClockSample& sample) {
  if (!is_time(sample.sent_ns) || !is_time(sample.received_ns) || !is_time(sample.answered_ns) ||
      !is_time(sample.returned_ns)) {
    return false;
  }
  const int64_t answering = sample.answered_ns - sample.received_ns;
  const int64_t way = sample.returned_ns - sample.sent_ns - answering;  // there and back
  if (answering < 0 || way < 0) return false;
  Measured measured;
  measured.offset.offset_ns = sample.received_ns - sample.sent_ns - way / 2;
  measured.offset.uncertainty_ns = way - way / 2 + (way + answering) / kDriftPer;
  measured.at_ns = sample.returned_ns;
  MutexLock lock(mu_);
  auto it = by_task_.find(task);
  if (it == by_task_.end()) it = by_task_.emplace(task, std::vector<Measured>()).first;
  std::vector<Measured>& kept = it->second;
  kept.push_back(measured);
  if (kept.size() <= kKeptSamples) return true;
  const auto worse = [now = sample.returned_ns](const Measured& a, const Measured& b) {
    return a.uncertainty_at(now) < b.uncertainty_at(now);
  };
  kept.erase(std::max_element(kept.begin(), kept.end(), worse));
  return true;
}

std::optional<ClockOffset> ClockOffsets::estimate(std::string_view task, int64_t now_ns) const {
  MutexLock lock(mu_);
  const auto it = by_task_.find(task);
  if (it == by_task_.end()) return std::nullopt;
  std::optional<ClockOffset> best;
  for (const Measured& measured : it->second) {
    const int64_t uncertainty = measured.uncertainty_at(now_ns);
    if (best && best->uncertainty_ns <= uncertainty) continue;
    best = {measured.offset.offset_ns, uncertainty};
  }
  return best;
}

void ClockOffsets::ask(std::string task, Ref<WorkerInterface> worker) {
  ask(std::move(task), std::move(worker), kAsked);
}

void ClockOffsets::ask(std::string task, Ref<WorkerInterface> worker, int times) {
  if (times == 0) return;
  WorkerInterface& asked = *worker;
  asked.get_status([self = Ref<ClockOffsets>(this), task = std::move(task),
                    worker = std::move(worker), times,
                    sent = monotonic_nanos()](const Result<WorkerStatus>& status) mutable {
    if (!status.ok()) return;
    self->add(task, {sent, status->clock_ns, status->clock_ns, monotonic_nanos()});
    ClockOffsets& again = *self;
    again.ask(std::move(task), std::move(worker), times - 1);
  });
}

}  // namespace millrace
