// Trains while it goes: ops run at once, and a tape has the gradients. Two layers learn whether a
// point lies inside of a circle.

#include "millrace/api/eager.h"

#include <cstdio>

using namespace millrace;
using eager::Builder;
using eager::TensorRef;
using eager::Variable;

namespace {

Status train() {
  MR_TRY_ASSIGN(const eager::EagerRuntime runtime, eager::make_eager_runtime());
  eager::EagerContext& context = *runtime.context;
  const auto random = [&](std::initializer_list<int32_t> shape, const char* op, int64_t seed) {
    return context.execute_one(op, {context.tensor(Tensor::vector<int32_t>(shape))},
                               {{"dtype", DType::kFloat}, {"seed", seed}});
  };
  const auto variable = [&](TensorRef value) {
    return Variable::create(runtime.context, value->tensor());
  };
  constexpr int kHidden = 16;
  MR_TRY_ASSIGN(TensorRef start, random({2, kHidden}, "RandomStandardNormal", 1));
  MR_TRY_ASSIGN(const Variable w1, variable(start));
  MR_TRY_ASSIGN(start, random({kHidden}, "RandomStandardNormal", 2));
  MR_TRY_ASSIGN(const Variable b1, variable(start));
  MR_TRY_ASSIGN(start, random({kHidden, 1}, "RandomStandardNormal", 3));
  MR_TRY_ASSIGN(const Variable w2, variable(start));
  const std::vector<Variable> variables = {w1, b1, w2};

  for (int step = 0; step <= 300; ++step) {
    MR_TRY_ASSIGN(const TensorRef batch, random({64, 2}, "RandomStandardNormal", 4));
    Builder b(context);
    const Expr points = b.expr(batch);
    const Expr inside = cast(
        less(sum(square(points), int32_vector(b, {1}), true), b.constant(Tensor::scalar(1.4f))),
        DType::kFloat);
    MR_TRY_ASSIGN(const TensorRef labels, b.tensor(inside));

    eager::Tape tape;  // ops are recorded as they run, so it is there before them
    tape.start();
    std::vector<Expr> w;
    std::vector<TensorRef> handles;
    for (const Variable& v : variables) {
      MR_TRY_ASSIGN(TensorRef value, v.read());
      w.push_back(b.expr(std::move(value)));
      handles.push_back(v.handle());
    }
    const Expr logits = matmul(tanh(matmul(points, w[0]) + w[1]), w[2]);
    const Expr error = square(call("Sigmoid", {logits}) - b.expr(labels));
    MR_TRY_ASSIGN(const TensorRef loss, b.tensor(call("Mean", {error, int32_vector(b, {0, 1})})));
    MR_TRY_ASSIGN(const std::vector<eager::EagerGradient> slopes,
                  tape.gradient(context, {loss}, handles));

    for (size_t i = 0; i < variables.size(); ++i) {
      MR_TRY_ASSIGN(TensorRef change, b.tensor(b.expr(slopes[i].values) * 0.5));
      MR_TRY(variables[i].assign_sub(std::move(change)));
    }
    if (step % 100 == 0) {
      std::printf("step %3d: loss %.3f\n", step, static_cast<double>(loss->tensor().item<float>()));
    }
  }
  return ok_status();
}

}  // namespace

int main() {
  const Status status = train();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
