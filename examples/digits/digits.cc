// Trains a small convolutional network on 8x8 images of handwritten digits.
//
//   digits [folder with digits.csv]

#include <cstdio>

#include "data.h"
#include "millrace/api/client_session.h"
#include "millrace/api/layers.h"
#include "millrace/api/losses.h"
#include "millrace/api/ops.h"
#include "millrace/api/optimizers.h"
#include "millrace/api/schedules.h"

namespace {

using namespace millrace;

constexpr int kBatch = 32, kEpochs = 20;

// The scores of the ten digits for each image.
Expr network(const Scope& s, Variables& vars, Expr x, bool training) {
  x = layers::conv2d(s, vars, "conv1", x, 16, 3, {.activation = ops::relu});
  x = layers::max_pool2d(s, x, 2);
  x = layers::conv2d(s, vars, "conv2", x, 32, 3, {.activation = ops::relu});
  x = layers::max_pool2d(s, x, 2);
  x = layers::dense(s, vars, "hidden", layers::flatten(s, x), 64, {.activation = ops::relu});
  x = layers::dropout(s, x, 0.3, {.training = training});
  return layers::dense(s, vars, "output", x, 10);
}

Status train(const std::string& folder) {
  MR_TRY_ASSIGN(Digits digits, Digits::read(folder + "/digits.csv", /*seed=*/7));
  const int steps = digits.num_train() / kBatch;
  std::printf("%d training images, %d test images\n", digits.num_train(), digits.num_test());

  Scope root = Scope::make_root();
  Variables vars(root);
  Expr images = ops::placeholder(root, DType::kFloat, {.shape = {-1, 8, 8, 1}});
  Expr labels = ops::placeholder(root, DType::kInt32, {.shape = {-1}});
  Expr loss = layers::softmax_cross_entropy(root, network(root, vars, images, true), labels);
  Expr accuracy = layers::accuracy(root, network(root, vars, images, false), labels);
  Variable& step = global_step(vars);
  Expr rate = cosine_decay(root, 3e-3, step.read(root), kEpochs * steps);
  Operation update = Adam(vars, rate).minimize(root, loss, &step);

  MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root));
  MR_TRY(session.run({}, {}, {vars.initialize()}).status());
  MR_TRY_ASSIGN(auto run, session.make_callable({images, labels}, {loss}, {update}));

  const Batch test = digits.test();
  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    digits.shuffle();
    double sum = 0;
    std::vector<Tensor> out;
    for (int i = 0; i < steps; ++i) {
      Batch batch = digits.train(i * kBatch, (i + 1) * kBatch);
      MR_TRY(run->run(std::vector<Tensor>{batch.images, batch.labels}, out));
      sum += out[0].item<float>();
    }
    MR_TRY_ASSIGN(out, session.run({{images, test.images}, {labels, test.labels}}, {accuracy}));
    std::printf("epoch %2d  loss %.4f  test accuracy %.1f%%\n", epoch, sum / steps,
                100.0 * out[0].item<float>());
    std::fflush(stdout);
  }
  return ok_status();
}

}  // namespace

int main(int argc, char** argv) {
  Status status = train(argc > 1 ? argv[1] : "examples/digits");
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}
