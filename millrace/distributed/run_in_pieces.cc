#include "millrace/distributed/run_in_pieces.h"

#include "millrace/distributed/partial_keys.h"

namespace millrace {
namespace {

Status check_feed(int position, DType type, const Value& value) {
  if (value.dead()) return invalid_argument("feed ", position, ": expected a tensor, got none");
  if (value.tensor.dtype() == type) return ok_status();
  return invalid_argument("feed ", position, ": expected ", type, ", got ", value.tensor.dtype());
}

}  // namespace

void run_in_pieces(const PlanSet& plans, const Boundary& boundary,
                   const Ref<StepRendezvous>& rendezvous, const Ref<Step>& step, Step::Done done) {
  std::vector<std::string> keys;
  for (const auto& [position, type] : boundary.feeds) keys.push_back(feed_key(position));
  rendezvous->expect(keys);
  const Ref<PartialRun> run =
      plans.start_partial(step, std::move(done), [rendezvous](int position, Tensor value) {
        Value out;
        out.set_dead();
        if (value.valid()) out = Value::of(std::move(value));
        // An error means that the step has failed: then nobody asks for it.
        (void)rendezvous->send(fetch_key(position), std::move(out));
      });
  for (const auto& feed : boundary.feeds) {
    const int position = feed.first;
    const DType type = feed.second;
    // The end of the step aborts the rendezvous, which lets go of what waits there.
    rendezvous->recv(feed_key(position), nullptr,
                     [run, step, position, type](const Status& status, Value value) {
                       if (!status.ok()) return;
                       Status fed = check_feed(position, type, value);
                       if (!fed.ok()) return step->fail(fed);
                       // Whoever brings it need not wait for what it sets off.
                       step->schedule([run, position, tensor = std::move(value.tensor)]() mutable {
                         (void)run->feed(position, std::move(tensor));
                       });
                     });
  }
}

}  // namespace millrace
