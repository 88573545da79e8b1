#include "millrace/eager/tape.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <unordered_set>

#include "millrace/autodiff/aggregate.h"
#include "millrace/autodiff/gradient_registry.h"
#include "millrace/base/hash.h"
#include "millrace/eager/builder.h"
#include "millrace/eager/gradient_needs.h"
#include "millrace/eager/recorder.h"
#include "millrace/graph/graph_builder.h"

namespace millrace::eager {

thread_local constinit Tape* Tape::innermost_ = nullptr;

namespace {

constexpr size_t kSweepRecords = 1024;
constexpr int64_t kSweepBytes = int64_t{16} << 20;

std::atomic<uint64_t> tapes_made{0};

}  // namespace

size_t Tape::PlaceHash::operator()(const Place& place) const {
  return hash_combine(reinterpret_cast<uintptr_t>(place.record),
                      static_cast<uint64_t>(place.output));
}

struct Tape::Watched {
  std::unordered_set<Place, PlaceHash> places;
  std::vector<Ref<Record>> records;  // of the places
};

Tape::Tape(Options options)
    : options_(options),
      id_(tapes_made.fetch_add(1, std::memory_order_relaxed) + 1),
      sweep_at_records_(kSweepRecords),
      sweep_at_bytes_(kSweepBytes),
      watched_(std::make_unique<Watched>()) {}

Tape::~Tape() {
  stop();
  reset();
}

void Tape::start() {
  if (recording_) return;
  recording_ = true;
  outer_ = Tape::innermost_;
  Tape::innermost_ = this;
}

void Tape::stop() {
  if (!recording_) return;
  recording_ = false;
  for (Tape** at = &Tape::innermost_; *at != nullptr; at = &(*at)->outer_) {
    if (*at != this) continue;
    *at = outer_;
    break;
  }
  outer_ = nullptr;
}

void Tape::watch(EagerTensor& tensor) {
  if (!has_gradients(tensor.dtype())) return;
  Record::Edge place = Record::of(tensor);
  if (!watched_->places.insert({place.from.get(), place.output}).second) return;
  watched_->records.push_back(std::move(place.from));
}

bool Tape::watched(const EagerTensor& tensor) const {
  return tensor.record() != nullptr &&
         watched_->places.contains({tensor.record(), tensor.output()});
}

bool Tape::tracks(const EagerTensor& tensor) const {
  const Record* record = tensor.record();
  return record != nullptr && (record->on(id_) || watched(tensor));
}

void Tape::reset() {
  // Newest first: each still finds those that it leads to.
  for (size_t i = records_.size(); i-- > 0;) records_[i]->leave(id_);
  records_.clear();
  watched_ = std::make_unique<Watched>();
  bytes_ = 0;
  used_ = false;
  sweep_at_records_ = kSweepRecords;
  sweep_at_bytes_ = kSweepBytes;
}

void Tape::add(Ref<Record> record, int64_t bytes) {
  records_.push_back(std::move(record));
  bytes_ += bytes;
  if (records_.size() > sweep_at_records_ || bytes_ > sweep_at_bytes_) sweep();
}

namespace {

int64_t bytes_held(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) {
    if (has_elements(tensor)) bytes += static_cast<int64_t>(tensor.bytes());
  }
  return bytes;
}

}  // namespace

void Tape::sweep() {
  // Newest first: what goes lets go of what it came from.
  for (size_t i = records_.size(); i-- > 0;) {
    if (records_[i]->unique()) records_[i] = nullptr;
  }
  std::erase_if(records_, [](const Ref<Record>& record) { return !record; });
  bytes_ = 0;
  for (const Ref<Record>& record : records_) {
    bytes_ += bytes_held(record->inputs) + bytes_held(record->outputs);
  }
  sweep_at_records_ = std::max(kSweepRecords, 2 * records_.size());
  sweep_at_bytes_ = std::max(kSweepBytes, 2 * bytes_);
}

StopRecording::StopRecording() : tapes_(std::exchange(Tape::innermost_, nullptr)) {}

StopRecording::~StopRecording() {
  // Tapes that were started meanwhile and not stopped are the inner ones.
  Tape** at = &Tape::innermost_;
  while (*at != nullptr) at = &(*at)->outer_;
  *at = tapes_;
}

void variable_accessed(EagerTensor& handle) {
  for (Tape* tape = Tape::innermost(); tape != nullptr; tape = tape->outer()) {
    if (tape->watches_variables()) tape->watch(handle);
  }
}

void Recorder::find_tapes() {
  for (Tape* tape = Tape::innermost(); tape != nullptr; tape = tape->outer()) {
    const bool follows = std::any_of(inputs_.begin(), inputs_.end(), [&](const EagerTensor* t) {
      return has_gradients(t->dtype()) && tape->tracks(*t);
    });
    if (follows) tapes_.push_back(tape);
  }
}

int Recorder::orders() const {
  const bool again = std::any_of(tapes_.begin(), tapes_.end(),
                                 [](const Tape* tape) { return tape->persistent(); });
  return static_cast<int>(tapes_.size()) + (again ? 1 : 0);
}

bool Recorder::follows(size_t i) const {
  return has_gradients(inputs_[i]->dtype()) &&
         std::any_of(tapes_.begin(), tapes_.end(),
                     [&](const Tape* tape) { return tape->tracks(*inputs_[i]); });
}

Ref<Record> Recorder::make_record() const {
  Ref<Record> record = make_ref<Record>();
  record->edges.resize(inputs_.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i]->record() == nullptr || !has_gradients(inputs_[i]->dtype())) continue;
    record->edges[i] = {Ref<Record>(inputs_[i]->record()), inputs_[i]->output()};
  }
  return record;
}

void Recorder::finish(Ref<Record> record, int64_t bytes) const {
  for (Tape* tape : tapes_) {
    record->join(tape->id_);
    tape->add(record, bytes);
  }
}

void Recorder::record(PreparedOp& op, const TensorRef* outputs) {
  Ref<Record> record = make_record();
  record->op = Ref<PreparedOp>(&op);
  const GradientNeeds& needs = op.gradient_needs(inputs_, outputs);
  uint64_t read = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (record->edges[i].from) read |= needs.of_input[i];
  }
  const size_t num_outputs = op.node.output_types.size();
  record->num_outputs = static_cast<int32_t>(num_outputs);
  const auto keep = [&](const Tensor& tensor, size_t bit) {
    const bool whole = read == GradientNeeds::kAll || (bit < 64 && (read >> bit & 1) != 0);
    return whole ? tensor : without_elements(tensor.dtype(), tensor.shape());
  };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    record->inputs.push_back(keep(inputs_[i]->tensor(), i));
  }
  for (size_t i = 0; i < num_outputs; ++i) {
    record->outputs.push_back(keep(outputs[i]->tensor(), inputs_.size() + i));
    if (op.differentiable_outputs[i]) record->own(*outputs[i], static_cast<int>(i));
  }
  const int64_t bytes = bytes_held(record->inputs) + bytes_held(record->outputs);
  finish(std::move(record), bytes);
}

void Recorder::record(Ref<Backward> backward, std::span<const TensorRef> outputs) {
  Ref<Record> record = make_record();
  record->backward = std::move(backward);
  record->num_outputs = static_cast<int32_t>(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (has_gradients(outputs[i]->dtype())) record->own(*outputs[i], static_cast<int>(i));
  }
  finish(std::move(record), 0);
}

int orders_followed(std::span<const TensorRef> inputs, std::vector<bool>& followed) {
  std::vector<EagerTensor*> borrowed;
  for (const TensorRef& input : inputs) borrowed.push_back(input.get());
  const Recorder recorder(borrowed);
  followed.clear();
  for (size_t i = 0; i < inputs.size(); ++i) followed.push_back(recorder.follows(i));
  return recorder.orders();
}

void record_operation(std::span<const TensorRef> inputs, std::span<const TensorRef> outputs,
                      Ref<Backward> backward) {
  std::vector<EagerTensor*> borrowed;
  for (const TensorRef& input : inputs) borrowed.push_back(input.get());
  Recorder recorder(borrowed);
  if (recorder.any()) recorder.record(std::move(backward), outputs);
}

// One computation of gradients.
class GradientRun {
 public:
  // `keep`: what the tape holds is needed afterwards.
  GradientRun(Tape& tape, EagerContext& context, bool keep)
      : tape_(tape), context_(context), keep_(keep), rules_(context) {}

  Status seed(const EagerTensor& target, EagerGradient gradient) {
    if (!tape_.tracks(target)) return ok_status();
    gradients_[{target.record(), target.output()}].push_back(std::move(gradient));
    if (!target.record()->leaf()) roots_.push_back(target.record());
    return ok_status();
  }
  void want(const EagerTensor& source) {
    if (tape_.tracks(source)) sources_.insert({source.record(), source.output()});
  }

  Status run() {
    find_records();
    while (!order_.empty()) {
      const Ref<Record> record = std::move(order_.back());
      order_.pop_back();
      if (leads_.contains(record.get())) {
        Status status = differentiate(*record);
        if (!status.ok()) {
          return record->op ? status.with_prefix(str_cat("gradient of ", record->op->def().name))
                            : status;
        }
      }
      // Of the records that it alone reads, memory is free before the next one runs.
      if (!keep_) record->leave(tape_.id_);
    }
    return ok_status();
  }

  // The gradient of a source, once all has run.
  Result<EagerGradient> take(const EagerTensor& source) {
    const auto it = gradients_.find({source.record(), source.output()});
    if (source.record() == nullptr || it == gradients_.end()) return EagerGradient();
    MR_TRY(sum(it->second));
    return it->second.empty() ? EagerGradient() : it->second[0];
  }

 private:
  using Place = Tape::Place;

  // Puts the records that the roots came from into order_, producers first, and those through which
  // a source is reached into leads_. The order is that of gradients in graphs (GradientWalk), in
  // which only what leads to a source has a say, so that sums come out the same.
  void find_records() {
    visit_records([](const Record&) { return true; });
    for (const Ref<Record>& record : order_) {
      const bool leads = std::any_of(record->edges.begin(), record->edges.end(),
                                     [&](const Record::Edge& edge) { return wanted(edge); });
      if (leads) leads_.insert(record.get());
    }
    if (leads_.size() == order_.size()) return;
    std::vector<Ref<Record>> others;
    for (Ref<Record>& record : order_) {
      if (!leads_.contains(record.get())) others.push_back(std::move(record));
    }
    order_.clear();
    visit_records([this](const Record& record) { return leads_.contains(&record); });
    // Nothing reads these: their memory is free before anything is computed.
    order_.insert(order_.end(), std::make_move_iterator(others.begin()),
                  std::make_move_iterator(others.end()));
  }

  void visit_records(FunctionRef<bool(const Record&)> chosen) {
    std::unordered_set<const Record*> seen;
    struct Visit {
      Ref<Record> record;
      size_t next;
    };
    std::vector<Visit> stack;
    const auto visit = [&](const Ref<Record>& record) {
      if (chosen(*record) && seen.insert(record.get()).second) stack.push_back({record, 0});
    };
    for (Record* root : roots_) {
      visit(Ref<Record>(root));
      while (!stack.empty()) {
        Record& record = *stack.back().record;
        if (stack.back().next == record.edges.size()) {
          order_.push_back(std::move(stack.back().record));
          stack.pop_back();
          continue;
        }
        const Ref<Record>& from = record.edges[stack.back().next++].from;
        if (from && !from->leaf() && from->on(tape_.id_)) visit(from);
      }
    }
  }

  bool wanted(const Record::Edge& edge) const {
    return edge.from &&
           (sources_.contains({edge.from.get(), edge.output}) || leads_.contains(edge.from.get()));
  }

  // Makes one gradient of several.
  Status sum(std::vector<EagerGradient>& gradients) {
    if (gradients.size() < 2) return ok_status();
    std::vector<Gradient> parts;
    for (EagerGradient& g : gradients) parts.push_back(rules_.gradient(std::move(g)));
    const Gradient total = sum_gradients(parts);
    MR_TRY_ASSIGN(gradients, rules_.finish(std::span(&total, 1)));
    return ok_status();
  }

  Status differentiate(Record& record) {
    std::vector<EagerGradient> output_gradients(static_cast<size_t>(record.num_outputs));
    bool any = false;
    for (int i = 0; i < record.num_outputs; ++i) {
      const auto it = gradients_.find({&record, i});
      if (it == gradients_.end() || it->second.empty()) continue;
      MR_TRY(sum(it->second));
      any = true;
      EagerGradient& g = it->second[0];
      const bool asked_for = sources_.contains({&record, i});
      output_gradients[static_cast<size_t>(i)] = asked_for ? g : std::move(g);
      if (!asked_for) gradients_.erase(it);
    }
    if (!any) return ok_status();
    std::vector<EagerGradient> input_gradients;
    if (record.backward) {
      MR_TRY_ASSIGN(input_gradients, record.backward->gradients(output_gradients));
      if (input_gradients.size() != record.edges.size()) {
        return invalid_argument("expected ", record.edges.size(),
                                " gradients, one for each input, "
                                "got ",
                                input_gradients.size());
      }
    } else {
      MR_TRY_ASSIGN(input_gradients, call_rule(record, std::move(output_gradients)));
    }
    for (size_t i = 0; i < record.edges.size(); ++i) {
      const Record::Edge& edge = record.edges[i];
      if (!input_gradients[i].valid() || !wanted(edge)) continue;
      gradients_[{edge.from.get(), edge.output}].push_back(std::move(input_gradients[i]));
    }
    return ok_status();
  }

  Result<std::vector<EagerGradient>> call_rule(Record& record,
                                               std::vector<EagerGradient> output_gradients) {
    const Ref<PreparedOp> op = record.op;
    const KernelNode& node = op->node;
    MR_TRY_ASSIGN(const GradientFunction rule_of_op, find_rule(node));
    std::vector<Gradient> found(record.edges.size());
    if (!rule_of_op) return std::vector<EagerGradient>(record.edges.size());
    std::vector<Expr> inputs, outputs;
    const bool last = !keep_ && record.only_on(tape_.id_);
    for (size_t i = 0; i < record.inputs.size(); ++i) {
      inputs.push_back(saved(*op, record.inputs[i], last, record.edges[i]));
    }
    for (size_t i = 0; i < record.outputs.size(); ++i) {
      const Record::Edge self = {op->differentiable_outputs[i] ? Ref<Record>(&record) : nullptr,
                                 static_cast<int32_t>(i)};
      outputs.push_back(saved(*op, record.outputs[i], last, self));
    }
    GradientContext rule(rules_, std::move(inputs), std::move(outputs),
                         std::vector<Expr>(node.output_types.size()), node.attrs, node.input_types);
    for (size_t i = 0; i < output_gradients.size(); ++i) {
      rule.set_output_gradient(static_cast<int>(i),
                               rules_.gradient(std::move(output_gradients[i])));
    }
    Status status = rule_of_op(rule);
    if (status.ok()) status = rules_.status();
    if (!status.ok()) {
      rules_.clear();
      return status;
    }
    for (size_t i = 0; i < found.size(); ++i) {
      if (wanted(record.edges[i])) found[i] = rule.input_gradients()[i];
    }
    return rules_.finish(found);
  }

  // A tensor that a record kept, with the place on tapes that it had.
  Expr saved(const PreparedOp& op, Tensor& tensor, bool last, const Record::Edge& place) {
    const bool on_device = has_elements(tensor) && op.device->info().own_memory &&
                           tensor.buffer()->space() == MemorySpace::kDevice;
    TensorRef value = make_ref<EagerTensor>(last ? std::move(tensor) : tensor,
                                            on_device ? *op.device : context_.host());
    if (place.from) place.from->own(*value, place.output);
    return rules_.expr(std::move(value));
  }

  // The rule that differentiates a node; empty where its gradient is none.
  static Result<GradientFunction> find_rule(const KernelNode& node) {
    if (node.attrs.find(kGradientOverride) != nullptr) {
      MR_TRY_ASSIGN(const std::string name, node.attr<std::string>(kGradientOverride));
      GradientFunction rule = find_gradient(name);
      if (!rule) return not_found("no gradient is registered under the name '", name, "'");
      return rule;
    }
    if (node.op->gradient != nullptr) return GradientFunction(node.op->gradient);
    GradientFunction rule = find_gradient(node.op->name);
    if (rule || node.op->traits.cannot_differentiate) return rule;
    return not_found("No gradient defined for operation '", node.op->name,
                     "'. Register one (tf.RegisterGradient in Python, register_gradient in C++), "
                     "or end the way before it (tf.stop_gradient)");
  }

  Tape& tape_;
  EagerContext& context_;
  const bool keep_;
  Builder rules_;
  std::unordered_map<Place, std::vector<EagerGradient>, Tape::PlaceHash> gradients_;
  std::unordered_set<Place, Tape::PlaceHash> sources_;
  std::vector<Record*> roots_;
  std::vector<Ref<Record>> order_;
  std::unordered_set<const Record*> leads_;
};

namespace {

// Zeros of the type and shape that the gradient of `source` would have.
Result<TensorRef> zeros_for(EagerContext& context, const TensorRef& source) {
  if (source->dtype() != DType::kResource) return context.execute_one("ZerosLike", {source});
  const Tensor& handle = source->tensor();
  if (handle.num_elements() != 1 || handle.item<ResourceHandle>().contents.empty()) {
    return invalid_argument("zeros for a handle: the type it holds is not known");
  }
  const DType held = handle.item<ResourceHandle>().contents[0].dtype;
  MR_TRY_ASSIGN(TensorRef shape, context.execute_one("VariableShape", {source}));
  MR_TRY_ASSIGN(
      TensorRef zero,
      context.execute_one("Cast", {context.tensor(Tensor::scalar<int32_t>(0))}, {{"DstT", held}}));
  return context.execute_one("Fill", {std::move(shape), std::move(zero)});
}

}  // namespace

Result<std::vector<EagerGradient>> Tape::gradient(EagerContext& context,
                                                  std::span<const TensorRef> targets,
                                                  std::span<const TensorRef> sources,
                                                  std::span<const EagerGradient> output_gradients,
                                                  const GradientOptions& options) {
  if (!output_gradients.empty() && output_gradients.size() != targets.size()) {
    return invalid_argument("expected ", targets.size(), " gradients of the targets, got ",
                            output_gradients.size());
  }
  if (used_) {
    return failed_precondition(
        "A non-persistent GradientTape can only be used to compute one set of gradients (or "
        "jacobians)");
  }
  const bool keep = options_.persistent || options.again;
  used_ = !keep;
  if (!options_.persistent) stop();
  const auto run = [&]() -> Result<std::vector<EagerGradient>> {
    GradientRun run(*this, context, keep);
    for (size_t i = 0; i < targets.size(); ++i) {
      if (!has_gradients(targets[i]->dtype()) || !tracks(*targets[i])) continue;
      EagerGradient incoming;
      if (!output_gradients.empty()) incoming = output_gradients[i];
      if (!incoming.valid() && targets[i]->dtype() == DType::kResource) continue;
      if (!incoming.valid()) {
        MR_TRY_ASSIGN(incoming.values, context.execute_one("OnesLike", {targets[i]}));
      }
      MR_TRY(run.seed(*targets[i], std::move(incoming)));
    }
    for (const TensorRef& source : sources) run.want(*source);
    MR_TRY(run.run());
    std::vector<EagerGradient> out;
    for (const TensorRef& source : sources) {
      MR_TRY_ASSIGN(EagerGradient gradient, run.take(*source));
      if (!gradient.valid() && options.zeros_for_unconnected) {
        MR_TRY_ASSIGN(gradient.values, zeros_for(context, source));
      }
      out.push_back(std::move(gradient));
    }
    return out;
  };
  Result<std::vector<EagerGradient>> result = run();
  if (!keep) {
    for (size_t i = records_.size(); i-- > 0;) records_[i]->leave(id_);
    records_.clear();
    bytes_ = 0;
  }
  return result;
}

}  // namespace millrace::eager
