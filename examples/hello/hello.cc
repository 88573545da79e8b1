// The smallest program: y = relu(x * w - 10).

#include <cstdio>

#include "millrace/api/client_session.h"
#include "millrace/api/ops.h"

int main() {
  using namespace millrace;
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kFloat, {.shape = {-1, 2}});
  Expr w = root.constant(Tensor::of<float>({2, 1}, {3, 4}));
  Expr y = ops::relu(root, ops::mat_mul(root, x, w) - 10.0);

  ClientSession session = ClientSession::create(root).value();
  Tensor batch = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  std::vector<Tensor> out = session.run({{x, batch}}, {y}).value();
  std::printf("%s\n", out[0].to_string().c_str());  // float [2,1] {1, 15}
}
