// The C++ client from a project of its own: state, callables, partial runs, traces, loops,
// gradients, training, mistakes.
// docs/cpp.md walks through it.

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "millrace/api/client_session.h"
#include "millrace/api/control_flow.h"
#include "millrace/api/layers.h"
#include "millrace/api/losses.h"
#include "millrace/api/ops.h"
#include "millrace/api/optimizers.h"
#include "millrace/autodiff/gradients.h"

namespace {

using namespace millrace;

Status expect(float wanted, const Tensor& got) {
  if (got.item<float>() == wanted) return ok_status();
  return internal("expected ", wanted, ", got ", got);
}

// A total that lives in the session.
Status count() {
  Scope root = Scope::make_root();
  Expr amount =
      ops::placeholder(root.with_name("amount"), DType::kFloat, {.shape = PartialShape::scalar()});
  Expr total = ops::variable_v2(root.with_name("total"), DType::kFloat, Shape{});
  Expr init = ops::assign(root, total, root.constant(0.0F));
  Expr added = ops::assign_add(root, total, amount);
  MR_TRY(root.status());

  MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root));
  MR_TRY(session.run({}, {}, {root.operation_of(init)}).status());

  MR_TRY_ASSIGN(auto add, session.make_callable({amount}, {added}));
  std::vector<Tensor> out;
  for (float v : {1.0F, 2.0F, 3.0F}) {
    MR_TRY(add->run(std::vector<Tensor>{Tensor::scalar(v)}, out));
  }
  MR_TRY(expect(6, out[0]));

  RunOptions options;
  options.timeout_ms = 10'000;
  options.trace_path = "guide_trace.json";
  RunMetadata metadata;
  MR_TRY_ASSIGN(out, session.run({}, {total}, {}, options, &metadata));
  std::printf("total %s, %zu events traced\n", out[0].to_string().c_str(), metadata.events.size());
  return expect(6, out[0]);
}

// One step, fed and fetched in two pieces.
Status in_pieces() {
  Scope root = Scope::make_root();
  Expr a = ops::placeholder(root.with_name("a"), DType::kFloat);
  Expr b = ops::placeholder(root.with_name("b"), DType::kFloat);
  Expr squared = ops::square(root.with_name("squared"), a);
  ops::add(root.with_name("sum"), squared, b);
  MR_TRY_ASSIGN(ClientSession client, ClientSession::create(root));

  Session& session = client.session();
  MR_TRY_ASSIGN(std::string handle,
                session.partial_run_setup({.feeds = {"a", "b"}, .fetches = {"squared", "sum"}}));
  MR_TRY_ASSIGN(auto first,
                session.partial_run(handle, {{"a", Tensor::scalar(3.0F)}}, {"squared"}));
  MR_TRY(expect(9, first[0]));
  MR_TRY_ASSIGN(auto second, session.partial_run(handle, {{"b", Tensor::scalar(1.0F)}}, {"sum"}));
  return expect(10, second[0]);
}

// Newton's method for a square root, as many steps as it takes, and how the root depends on x.
Status loop() {
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kFloat, {.shape = PartialShape::scalar()});
  std::vector<Expr> out = while_loop(
      root, {x},
      [&](const Scope& s, const std::vector<Expr>& v) {
        return ops::greater(s, ops::abs(s, v[0] * v[0] - x), s.constant(1e-5F));
      },
      [&](const Scope&, const std::vector<Expr>& v) {
        return std::vector<Expr>{(v[0] + x / v[0]) * 0.5};
      });
  MR_TRY(root.status());
  MR_TRY_ASSIGN(std::vector<Gradient> slope, gradients(root.builder(), out, std::vector<Expr>{x}));

  MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root));
  MR_TRY_ASSIGN(std::vector<Tensor> got,
                session.run({{x, Tensor::scalar(4.0F)}}, {out[0], slope[0].values}));
  std::printf("root %g, slope %g\n", got[0].item<float>(), got[1].item<float>());
  return std::abs(got[1].item<float>() - 0.25F) < 1e-3F ? ok_status()
                                                        : internal("expected a slope of 0.25");
}

// A network with one hidden layer learns "exactly one of the two".
Status learn() {
  Scope root = Scope::make_root();
  Variables vars(root);
  Expr x = ops::placeholder(root, DType::kFloat, {.shape = {-1, 2}});
  Expr wanted = ops::placeholder(root, DType::kFloat, {.shape = {-1, 1}});
  Expr hidden = layers::dense(root, vars, "hidden", x, 8, {.activation = ops::tanh});
  Expr y = layers::dense(root, vars, "output", hidden, 1);
  Expr loss = layers::mean_squared_error(root, y, wanted);
  Operation train = Adam(vars, 0.05).minimize(root, loss);

  MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root));
  MR_TRY(session.run({}, {}, {vars.initialize()}).status());
  MR_TRY_ASSIGN(auto step, session.make_callable({x, wanted}, {loss}, {train}));

  std::vector<Tensor> in = {Tensor::of<float>({4, 2}, {0, 0, 0, 1, 1, 0, 1, 1}),
                            Tensor::of<float>({4, 1}, {0, 1, 1, 0})};
  std::vector<Tensor> out;
  for (int i = 0; i < 300; ++i) MR_TRY(step->run(in, out));
  std::printf("loss %g\n", out[0].item<float>());
  return out[0].item<float>() < 1e-2F ? ok_status() : internal("expected to learn, got ", out[0]);
}

// A mistake is found where it is made: shapes are checked as operations are added.
Status mistake() {
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kFloat, {.shape = {2, 3}});
  Expr y = ops::mat_mul(root.sub_scope("layer1").with_name("product"), x, x);
  std::printf("as it should be: %s\n", root.status().to_string().c_str());
  if (y.valid() || root.status().code() != Code::kInvalidArgument) {
    return internal("expected the scope to refuse [2,3] x [2,3]");
  }
  return ok_status();
}

}  // namespace

int main() {
  for (Status (*part)() : {count, in_pieces, loop, learn, mistake}) {
    if (Status status = part(); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.to_string().c_str());
      return 1;
    }
  }
  return 0;
}
