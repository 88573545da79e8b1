#include "millrace/data/environment.h"

#include <algorithm>
#include <cstdio>

#include "millrace/data/dataset.h"

namespace millrace::data {
namespace {

// Told apart from the steps of sessions, which count up from 1, and of functions, which count down.
constexpr int64_t kStepId = 0;

}  // namespace

Environment::Environment(Ref<FunctionRunner> functions, Ref<Device> device,
                         Ref<CancellationToken> parent)
    : functions_(std::move(functions)),
      device_(std::move(device)),
      step_(Step::make_shared(kStepId, std::move(parent))) {
  step_->functions = functions_;
}

Environment::~Environment() = default;

Ref<Environment> Environment::make_child(const Environment& parent) {
  Ref<Environment> child =
      make_ref<Environment>(parent.functions_, parent.device_, parent.step_->cancel);
  child->session = parent.session;
  child->memory_budget = parent.memory_budget;
  child->any_order = parent.any_order;
  return child;
}

void Environment::stop() { step_->cancel->cancel(cancelled("the iterator was dropped")); }

WakeOnStop::WakeOnStop(Environment& environment, Mutex& mu, CondVar& changed)
    : environment_(environment), ticket_(environment.cancel().on_cancel([&mu, &changed] {
        MutexLock lock(mu);
        changed.notify_all();
      })) {}

WakeOnStop::~WakeOnStop() { environment_.cancel().remove(ticket_); }

double Stage::mean_ns() const {
  const int64_t samples = samples_.load(std::memory_order_relaxed);
  const int64_t total = sampled_ns_.load(std::memory_order_relaxed);
  return samples == 0 ? 0 : static_cast<double>(total) / static_cast<double>(samples);
}

double Stage::mean_fill() const {
  const int64_t samples = fill_samples_.load(std::memory_order_relaxed);
  const int64_t total = filled_.load(std::memory_order_relaxed);
  return samples == 0 ? -1 : static_cast<double>(total) / static_cast<double>(samples);
}

StageTable::StageTable(const Dataset& root) : root_(&root) { add(root, 0); }
StageTable::~StageTable() = default;

void StageTable::add(const Dataset& dataset, int depth) {
  // A dataset that stands in several places has one row, and trees of any depth are walked.
  if (find(dataset) != nullptr) return;
  rows_.push_back({&dataset, depth, std::make_unique<Stage>()});
  for (const Ref<Dataset>& input : dataset.inputs()) add(*input, depth + 1);
}

Stage* StageTable::find(const Dataset& dataset) {
  for (const Row& row : rows_) {
    if (row.dataset == &dataset) return row.stage.get();
  }
  return nullptr;
}

std::string StageTable::to_string() const {
  size_t width = 5;
  for (const Row& row : rows_) {
    width = std::max(width, static_cast<size_t>(row.depth) * 2 + row.dataset->name().size());
  }
  char line[160];
  std::string out(width, ' ');
  out.replace(0, 5, "stage");
  out += "    elements  us/element    own us      buffer\n";
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    const Stage& stage = *row.stage;
    double own = stage.mean_ns();
    // What the stages before it took, for each element of this one, unless they work ahead of it.
    if (stage.mean_fill() < 0 && stage.elements() > 0) {
      for (size_t j = i + 1; j < rows_.size() && rows_[j].depth > row.depth; ++j) {
        if (rows_[j].depth != row.depth + 1) continue;
        const Stage& input = *rows_[j].stage;
        own -= input.mean_ns() * static_cast<double>(input.elements()) /
               static_cast<double>(stage.elements());
      }
    }
    std::string name(static_cast<size_t>(row.depth) * 2, ' ');
    name += row.dataset->name();
    name.resize(width, ' ');
    std::snprintf(line, sizeof(line), "%12lld %11.2f %9.2f",  // NOLINT
                  static_cast<long long>(stage.elements()), stage.mean_ns() / 1000,
                  std::max(own, 0.0) / 1000);
    out += name + line;
    if (stage.mean_fill() >= 0) {
      std::snprintf(line, sizeof(line), "  %5.1f of %lld", stage.mean_fill(),
                    static_cast<long long>(stage.capacity()));
      out += line;
    }
    out += '\n';
  }
  return out;
}

Iteration Iteration::of(const Dataset& root, Ref<Environment> environment) {
  return {std::move(environment), make_ref<StageTable>(root)};
}

}  // namespace millrace::data
