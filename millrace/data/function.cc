#include "millrace/data/function.h"

#include "millrace/base/mutex.h"
#include "millrace/data/state.h"
#include "millrace/kernel/op_state.h"

namespace millrace::data {

Result<Function> Function::make(const Closure& closure, Ref<Environment> environment) {
  FunctionRunner* functions = environment->functions();
  if (functions == nullptr) {
    return failed_precondition("function \"", closure.function.name,
                               "\" of a dataset: functions cannot be called here");
  }
  MR_TRY_ASSIGN(const FunctionRunner::Handle handle,
                functions->instantiate(closure.function.name, closure.function.attrs));
  const std::string session = function_session(
      environment->session, function_scope(closure.function.name, closure.function.attrs));
  return Function(std::move(environment), handle, ResourceManager::session_name(session, ""),
                  closure.captured);
}

void Function::start(Element args, FunctionRunner::Done done) const {
  args.insert(args.end(), captured_.begin(), captured_.end());
  environment_->functions()->run(handle_, std::move(args), environment_->step(), std::move(done));
}

Status Function::call(Element args, Element& results) const {
  struct Call {
    Mutex mu;
    CondVar ended;
    bool done MR_GUARDED_BY(mu) = false;
    Status status MR_GUARDED_BY(mu);
  } call;
  // It ends: what runs falls with the environment.
  start(std::move(args), [&](Result<std::vector<Tensor>> made) {
    MutexLock lock(call.mu);
    call.status = made.status();
    if (made.ok()) results = std::move(*made);
    call.done = true;
    call.ended.notify_one();
  });
  MutexLock lock(call.mu);
  while (!call.done) call.ended.wait(call.mu);
  return call.status;
}

Result<bool> Function::ask(const Element& args, std::string_view what) const {
  Element answer;
  MR_TRY(call(args, answer));
  if (answer.size() != 1 || answer[0].dtype() != DType::kBool || answer[0].num_elements() != 1) {
    return invalid_argument(
        "the ", what, " must give one bool, got ", answer.size(), " tensors",
        answer.empty() ? std::string()
                       : str_cat(", the first ", answer[0].dtype(), " ", answer[0].shape()));
  }
  return answer[0].item<bool>();
}

Status Function::fields(StateFields& state) const {
  ResourceManager& resources = environment_->device().resources();
  std::string states;
  if (!state.reading()) states = save_op_states(resources, states_);
  MR_TRY(state.op_states(states));
  return state.reading() ? restore_op_states(resources, states_, states) : ok_status();
}

Result<int64_t> Function::number(Element args, std::string_view what) const {
  Element answer;
  MR_TRY(call(std::move(args), answer));
  if (answer.size() != 1 || answer[0].dtype() != DType::kInt64 || answer[0].num_elements() != 1) {
    return invalid_argument("`", what, "` must return a scalar int64.");
  }
  return answer[0].item<int64_t>();
}

Status said_by_function(Status status, bool same_size) {
  if (!same_size || status.code() != Code::kOutOfRange) return status;
  return invalid_argument("Function invocation produced OutOfRangeError: ", status.message());
}

}  // namespace millrace::data
