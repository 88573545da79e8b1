#include "millrace/eager/eager_context.h"
#include "millrace/eager/interruptible.h"
#include "millrace/kernel/rendezvous.h"

// Ops that run functions. A session replaces them by the functions' nodes; here the functions run
// as plans, one after the other.

namespace millrace::eager {
namespace {

// "A number other than zero, a string with characters".
Result<bool> holds(const Tensor& t) {
  if (t.num_elements() != 1) {
    return invalid_argument("the condition must have one element, got ", t.dtype(), " ", t.shape());
  }
  if (t.dtype() == DType::kString) return !t.data<std::string>()[0].empty();
  if (!is_plain(t.dtype())) return invalid_argument("a ", t.dtype(), " is no condition");
  const auto* bytes = static_cast<const char*>(t.raw());
  const std::string_view all(bytes, t.bytes());
  // Minus zero is zero, too.
  if (t.dtype() == DType::kFloat) return t.item<float>() != 0;
  if (t.dtype() == DType::kDouble) return t.item<double>() != 0;
  return all.find_first_not_of('\0') != std::string_view::npos;
}

}  // namespace

Result<std::vector<Tensor>> EagerContext::call(FunctionRunner::Handle function,
                                               std::vector<Tensor> args) {
  struct Call : Ending {
    Result<std::vector<Tensor>> result = std::vector<Tensor>();
  };
  const Ref<Call> call = make_ref<Call>();
  const Ref<Step> step = Step::make_shared(0);
  step->interrupted = Interruptible::here();
  step->max_threads = options_.max_threads;
  step->functions = options_.functions;
  step->trace = trace();
  options_.functions->run(function, std::move(args), *step,
                          [call](Result<std::vector<Tensor>> result) {
                            call->result = std::move(result);
                            call->over();
                          });
  if (!call->wait(*step)) return step->cancel->status();  // it ends alone
  return std::move(call->result);
}

Status EagerContext::run_functional(PreparedOp& op, std::span<EagerTensor* const> inputs,
                                    TensorRef* outputs) {
  std::vector<Tensor> args;
  for (const EagerTensor* input : inputs) {
    MR_TRY_ASSIGN(Tensor arg, to_host(*input));
    args.push_back(std::move(arg));
  }
  const auto run = [&]() -> Result<std::vector<Tensor>> {
    const FunctionalOp kind = op.def().traits.functional;
    if (kind == FunctionalOp::kCall) return call(op.functions[0], std::move(args));
    if (kind == FunctionalOp::kWhile) {
      for (InterruptWatch watch;;) {
        MR_TRY(watch.look());
        MR_TRY_ASSIGN(const std::vector<Tensor> more, call(op.functions[0], args));
        if (more.size() != 1) return invalid_argument("the condition must give one value");
        MR_TRY_ASSIGN(const bool again, holds(more[0]));
        if (!again) return std::move(args);
        MR_TRY_ASSIGN(args, call(op.functions[1], std::move(args)));
      }
    }
    size_t chosen;
    if (kind == FunctionalOp::kIf) {
      MR_TRY_ASSIGN(const bool yes, holds(args[0]));
      chosen = yes ? 0 : 1;
    } else {
      if (args[0].num_elements() != 1) {
        return invalid_argument("branch_index must be a scalar, got shape ", args[0].shape());
      }
      const int32_t index = args[0].item<int32_t>();
      const auto last = static_cast<int32_t>(op.functions.size()) - 1;
      chosen = static_cast<size_t>(index < 0 || index > last ? last : index);
    }
    args.erase(args.begin());
    return call(op.functions[chosen], std::move(args));
  };
  Result<std::vector<Tensor>> results = run();
  if (!results.ok()) return results.status().with_prefix(op.def().name);
  const std::vector<DType>& types = op.node.output_types;
  if (results->size() != types.size()) {
    return invalid_argument(op.def().name, ": the function gives ", results->size(),
                            " results, the op has ", types.size(), " outputs");
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if ((*results)[i].dtype() != types[i]) {
      return invalid_argument(op.def().name, ": result ", i, " is ", (*results)[i].dtype(),
                              ", expected ", types[i]);
    }
    outputs[i] = tensor(std::move((*results)[i]));
  }
  return ok_status();
}

}  // namespace millrace::eager
