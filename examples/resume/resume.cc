// Trains, saves and resumes: run it, stop it at any moment, and run it again.
//
//   resume FOLDER [STEPS]

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "millrace/api/client_session.h"
#include "millrace/api/layers.h"
#include "millrace/api/ops.h"
#include "millrace/api/optimizers.h"
#include "millrace/api/saver.h"

using namespace millrace;

namespace {

constexpr int64_t kBatch = 64;

// Points of the curve to learn. They follow from the step, so that a run that was stopped sees
// what it would have seen.
Tensor points(int64_t step) {
  Tensor x = Tensor::allocate(DType::kFloat, {kBatch, 1}).value();
  for (size_t i = 0; i < kBatch; ++i) {
    const double at = static_cast<double>(step) * 0.37 + static_cast<double>(i) * 0.61;
    x.mutable_data<float>()[i] = static_cast<float>(3 * std::sin(at));
  }
  return x;
}

Status train(const std::string& prefix, int64_t steps) {
  Scope root = Scope::make_root();
  Variables vars(root);
  Expr x = ops::placeholder(root, DType::kFloat, {.shape = {kBatch, 1}});
  Expr hidden = layers::dense(root, vars, "hidden", x, 32, {.activation = ops::tanh});
  hidden = layers::dropout(root, hidden, 0.1, {.training = true});
  Expr y = layers::dense(root, vars, "output", hidden, 1);
  Expr loss = ops::l2loss(root, y - ops::sin(root, x)) / static_cast<double>(kBatch);
  Variable& step = global_step(vars);
  Adam adam(vars, 0.01);
  Operation update = adam.minimize(root, loss, &step);
  Expr count = step.read(root);
  Saver saver(vars);

  MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root));
  MR_TRY(session.run({}, {}, {vars.initialize()}).status());
  if (Saver::exists(prefix)) MR_TRY(saver.restore(session, prefix));

  MR_TRY_ASSIGN(std::vector<Tensor> out, session.run({}, {count}));
  int64_t at = out[0].item<int64_t>();
  std::printf("begins at step %lld\n", static_cast<long long>(at));
  while (at < steps) {
    MR_TRY_ASSIGN(out, session.run({{x, points(at)}}, {loss}, {update}));
    if (++at % 100 == 0) {
      std::printf("step %lld, loss %.6f\n", static_cast<long long>(at),
                  static_cast<double>(out[0].item<float>()));
      // Goes on beside the next steps.
      MR_TRY(saver.save_async(session, prefix));
    }
  }
  MR_TRY(saver.save(session, prefix));
  return saver.wait(session, prefix);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "resume_run";
  const int64_t steps = argc > 2 ? std::atoll(argv[2]) : 1000;
  const Status status = train(folder + "/model", steps);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}
