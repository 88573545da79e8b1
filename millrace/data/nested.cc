#include "millrace/data/nested.h"

namespace millrace::data {

Status Nested::open(Element args, const Function& function, Environment& environment,
                    AheadOptions ahead) {
  close();
  Element made;
  MR_TRY(function.call(args, made));
  if (made.size() != 1) {
    return invalid_argument("the function must give one dataset, got ", made.size(), " tensors");
  }
  MR_TRY_ASSIGN(Ref<Dataset> dataset, dataset_of(made[0]));
  const Iteration iteration = Iteration::of(*dataset, Ref<Environment>(&environment));
  if (ahead.elements > 0) {
    MR_TRY_ASSIGN(iterator_, iterate_ahead(*dataset, *dataset, iteration, ahead, nullptr));
  } else {
    MR_TRY_ASSIGN(iterator_, dataset->iterate(iteration));
  }
  args_ = std::move(args);
  return ok_status();
}

void Nested::close() {
  iterator_ = nullptr;
  args_.clear();
}

Status Nested::fields(StateFields& state, const Function& function, Environment& environment,
                      AheadOptions ahead) {
  bool was_open = is_open();
  MR_TRY(state.flag(was_open));
  if (state.reading()) close();
  if (!was_open) return ok_status();
  Element args = args_;
  MR_TRY(state.element(args));
  if (state.reading()) MR_TRY(open(std::move(args), function, environment, ahead));
  return state.iterator(*iterator_);
}

}  // namespace millrace::data
