// Loads the op library given on the command line and uses its op, and the op's gradient, twice.

#include <cstdio>
#include <span>
#include <vector>

#include "millrace/api/client_session.h"
#include "millrace/api/ops.h"
#include "millrace/autodiff/gradients.h"
#include "millrace/ops/op_library.h"

using namespace millrace;

namespace {

Status run(const char* path) {
  MR_TRY_ASSIGN(std::vector<std::string> names, load_op_library(path));
  std::printf("%s has %s\n", path, names.at(0).c_str());
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kDouble);
  Expr y = root.output(root.add("Cube", {x}, {}), 0);
  std::vector<Expr> derivatives = {y};
  for (int order = 0; order < 2; ++order) {
    MR_TRY_ASSIGN(auto g,
                  gradients(root.builder(), std::span(&derivatives.back(), 1), std::span(&x, 1)));
    derivatives.push_back(g[0].values);
  }
  MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root));
  MR_TRY_ASSIGN(std::vector<Tensor> out, session.run({{x, Tensor::scalar(2.0)}}, derivatives));
  const double expected[] = {8, 12, 12};
  for (size_t i = 0; i < out.size(); ++i) {
    std::printf("derivative %zu: %g\n", i, out[i].item<double>());
    if (out[i].item<double>() != expected[i]) return internal("expected ", expected[i]);
  }
  // Loading it again changes nothing; what is not there is an error.
  MR_TRY_ASSIGN(std::vector<std::string> again, load_op_library(path));
  if (again != names) return internal("loading twice gave other names");
  if (load_op_library("./no_such_library.so").status().code() != Code::kNotFound) {
    return internal("a missing library is NOT_FOUND");
  }
  return ok_status();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: load_cube LIBRARY\n");
    return 2;
  }
  Status status = run(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
