// Trains a network with one hidden layer on 8x8 images of handwritten digits.
//
//   digits [folder with digits.csv]

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "millrace/api/client_session.h"
#include "millrace/api/ops.h"

namespace {

using namespace millrace;

constexpr int64_t kPixels = 64, kHidden = 64, kDigits = 10;
constexpr int64_t kTrain = 1437, kBatch = 32, kEpochs = 30;

struct Digits {
  std::vector<float> pixels;  // kPixels an image, 0 to 1
  std::vector<int32_t> labels;
  int64_t size() const { return static_cast<int64_t>(labels.size()); }
};

Result<Digits> read_digits(const std::string& path) {
  std::ifstream file(path);
  if (!file) return not_found("cannot open ", path);
  Digits out;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::vector<int> values;
    for (std::string field; std::getline(fields, field, ',');)
      values.push_back(std::atoi(field.c_str()));
    if (values.size() != kPixels + 1) {
      return data_loss(path, ":", out.size() + 1, ": expected 65 numbers, got ", values.size());
    }
    for (size_t i = 0; i < kPixels; ++i)
      out.pixels.push_back(static_cast<float>(values[i]) / 16.0f);
    out.labels.push_back(values[kPixels]);
  }
  if (out.size() <= kTrain) return data_loss(path, ": expected 1797 images, got ", out.size());
  return out;
}

// The images `order[begin, end)` as a batch.
struct Batch {
  Tensor images, labels;
};
Batch make_batch(const Digits& digits, const std::vector<int64_t>& order, int64_t begin,
                 int64_t end) {
  std::vector<float> pixels;
  std::vector<int32_t> labels;
  for (int64_t i = begin; i < end; ++i) {
    auto first = digits.pixels.begin() + order[static_cast<size_t>(i)] * kPixels;
    pixels.insert(pixels.end(), first, first + kPixels);
    labels.push_back(digits.labels[static_cast<size_t>(order[static_cast<size_t>(i)])]);
  }
  return {Tensor::vector<float>(pixels).reshaped(Shape{end - begin, kPixels}).value(),
          Tensor::vector<int32_t>(labels)};
}

// A variable with its initial value and what sets it.
struct Variable {
  Expr ref;
  Expr init;
};
Variable make_variable(const Scope& scope, Shape shape, float stddev, std::mt19937& random) {
  std::normal_distribution<float> normal(0, stddev);
  Tensor value = Tensor::zeros(DType::kFloat, shape).value();
  if (stddev > 0)
    std::generate_n(value.mutable_data<float>().data(), value.num_elements(),
                    [&] { return normal(random); });
  Expr ref = ops::variable_v2(scope, DType::kFloat, shape);
  return {ref, ops::assign(scope, ref, scope.constant(value))};
}

Status train(const std::string& folder) {
  MR_TRY_ASSIGN(Digits digits, read_digits(folder + "/digits.csv"));
  std::mt19937 random(7);

  // The forward pass.
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root.with_name("images"), DType::kFloat, {.shape = {-1, kPixels}});
  Expr labels = ops::placeholder(root.with_name("labels"), DType::kInt32, {.shape = {-1}});
  Variable w1 = make_variable(root, {kPixels, kHidden}, std::sqrt(2.0f / kPixels), random);
  Variable b1 = make_variable(root, {kHidden}, 0, random);
  Variable w2 = make_variable(root, {kHidden, kDigits}, std::sqrt(2.0f / kHidden), random);
  Variable b2 = make_variable(root, {kDigits}, 0, random);
  Expr hidden = ops::relu(root, ops::bias_add(root, ops::mat_mul(root, x, w1.ref), b1.ref));
  Expr logits = ops::bias_add(root, ops::mat_mul(root, hidden, w2.ref), b2.ref);
  auto loss = ops::sparse_softmax_cross_entropy_with_logits(root, logits, labels);
  Expr mean_loss = ops::mean(root, loss.loss, root.constant(int32_t{0}));
  Expr right = ops::equal(root, ops::arg_max(root, logits, root.constant(int32_t{1})),
                          ops::cast(root, labels, DType::kInt64));
  Expr accuracy = ops::mean(root, ops::cast(root, right, DType::kFloat), root.constant(int32_t{0}));

  // The backward pass, by hand, and the update.
  Expr d_logits = loss.backprop * (1.0 / kBatch);
  Expr d_hidden =
      ops::relu_grad(root, ops::mat_mul(root, d_logits, w2.ref, {.transpose_b = true}), hidden);
  Expr rate =
      ops::placeholder(root.with_name("rate"), DType::kFloat, {.shape = PartialShape::scalar()});
  std::vector<Operation> updates;
  auto update = [&](const Variable& v, Expr gradient) {
    updates.push_back(root.operation_of(ops::apply_gradient_descent(root, v.ref, rate, gradient)));
  };
  update(w2, ops::mat_mul(root, hidden, d_logits, {.transpose_a = true}));
  update(b2, ops::bias_add_grad(root, d_logits));
  update(w1, ops::mat_mul(root, x, d_hidden, {.transpose_a = true}));
  update(b1, ops::bias_add_grad(root, d_hidden));

  MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root));
  std::vector<Operation> inits;
  for (const Variable& v : {w1, b1, w2, b2}) inits.push_back(root.operation_of(v.init));
  MR_TRY(session.run({}, {}, inits).status());
  MR_TRY_ASSIGN(auto step, session.make_callable({x, labels, rate}, {mean_loss}, updates));

  std::vector<int64_t> order(static_cast<size_t>(digits.size()));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::shuffle(order.begin(), order.end(), random);
  Batch test = make_batch(digits, order, kTrain, digits.size());
  std::printf("%lld training images, %lld test images\n", static_cast<long long>(kTrain),
              static_cast<long long>(digits.size() - kTrain));
  for (int64_t epoch = 1; epoch <= kEpochs; ++epoch) {
    std::shuffle(order.begin(), order.begin() + kTrain, random);
    double sum = 0;
    int64_t steps = kTrain / kBatch;
    std::vector<Tensor> out;
    for (int64_t i = 0; i < steps; ++i) {
      Batch batch = make_batch(digits, order, i * kBatch, (i + 1) * kBatch);
      Tensor lr = Tensor::scalar<float>(epoch <= kEpochs / 2 ? 0.2f : 0.05f);
      MR_TRY(step->run(std::vector<Tensor>{batch.images, batch.labels, lr}, out));
      sum += out[0].item<float>();
    }
    MR_TRY_ASSIGN(out, session.run({{x, test.images}, {labels, test.labels}}, {accuracy}));
    if (epoch % 5 == 0 || epoch == 1) {
      std::printf("epoch %2lld  loss %.4f  test accuracy %.1f%%\n", static_cast<long long>(epoch),
                  sum / static_cast<double>(steps), 100.0 * out[0].item<float>());
      std::fflush(stdout);
    }
  }
  return ok_status();
}

}  // namespace

int main(int argc, char** argv) {
  millrace::Status status = train(argc > 1 ? argv[1] : "examples/digits");
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}
