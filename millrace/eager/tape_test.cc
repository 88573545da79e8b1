#include "millrace/eager/tape.h"

#include <cmath>

#include "millrace/autodiff/gradient_registry.h"
#include "millrace/eager/builder.h"
#include "millrace/eager/context_testing.h"
#include "millrace/eager/variable.h"
#include "millrace/graph/op_registry.h"

namespace millrace::eager {
namespace {

class TapeTest : public EagerTest {
 protected:
  // The gradient of `y` by `x` as one tensor; null for none.
  TensorRef gradient(Tape& tape, const TensorRef& y, const TensorRef& x) {
    auto found = tape.gradient(*context_, {y}, {x});
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    if (!found.ok() || !(*found)[0].valid()) return nullptr;
    if (!(*found)[0].is_slices()) return (*found)[0].values;
    Builder b(*context_);
    return b.tensor(to_dense(b.gradient((*found)[0]))).value();
  }
  void expect_error(const Status& status, Code code, std::string_view text) {
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_NE(status.message().find(text), std::string_view::npos) << status.to_string();
  }
};

TEST_F(TapeTest, Gradient) {
  const TensorRef x = vector({1, 2, 3});
  Tape tape;
  tape.start();
  tape.watch(*x);
  const TensorRef y = run("Mul", {run("Square", {x}), scalar(2)});
  tape.stop();
  EXPECT_EQ(values(gradient(tape, y, x)), (std::vector<float>{4, 8, 12}));
  EXPECT_EQ(tape.num_records(), 0u);
  expect_error(tape.gradient(*context_, {y}, {x}).status(), Code::kFailedPrecondition,
               "non-persistent");
}

TEST_F(TapeTest, RecordsOnlyWhatFollowsFromWhatItWatches) {
  const TensorRef x = scalar(3), other = scalar(4);
  Tape tape;
  tape.start();
  run("Square", {other});
  EXPECT_EQ(tape.num_records(), 0u);
  tape.watch(*x);
  const TensorRef y = run("Mul", {x, other});
  const TensorRef whole = run("Cast", {y}, {{"DstT", DType::kInt32}});
  run("Add", {whole, whole});
  EXPECT_EQ(tape.num_records(), 1u);
  EXPECT_TRUE(tape.watched(*x));
  EXPECT_FALSE(tape.watched(*other));
  EXPECT_EQ(gradient(tape, y, other), nullptr);
}

TEST_F(TapeTest, NothingFlowsBetweenWhatIsNotConnected) {
  const TensorRef x = scalar(3), z = scalar(1);
  Tape tape({.persistent = true});
  tape.start();
  tape.watch(*x);
  tape.watch(*z);
  const TensorRef y = run("Square", {x});
  EXPECT_EQ(gradient(tape, y, z), nullptr);
  EXPECT_EQ(gradient(tape, z, x), nullptr);
  EXPECT_EQ(values(gradient(tape, x, x)), std::vector<float>{1});
  const TensorRef stopped = run("StopGradient", {y});
  EXPECT_EQ(gradient(tape, stopped, x), nullptr);
  const std::vector<TensorRef> ys = {y}, zs = {z};
  auto zeros = tape.gradient(*context_, ys, zs, {}, {.zeros_for_unconnected = true});
  ASSERT_TRUE(zeros.ok());
  EXPECT_EQ(values((*zeros)[0].values), std::vector<float>{0});
}

TEST_F(TapeTest, Persistent) {
  const TensorRef x = scalar(3);
  Tape tape({.persistent = true});
  tape.start();
  tape.watch(*x);
  const TensorRef y = run("Square", {x});
  const TensorRef z = run("Square", {y});
  tape.stop();
  EXPECT_EQ(values(gradient(tape, z, x)), std::vector<float>{108});
  EXPECT_EQ(values(gradient(tape, y, x)), std::vector<float>{6});
  EXPECT_EQ(values(gradient(tape, z, y)), std::vector<float>{18});
  tape.reset();
  EXPECT_EQ(gradient(tape, z, x), nullptr);
}

TEST_F(TapeTest, StopAndGoOn) {
  const TensorRef x = scalar(3);
  Tape tape({.persistent = true});
  tape.start();
  tape.watch(*x);
  TensorRef hidden;
  {
    const StopRecording stop;
    hidden = run("Square", {x});
  }
  tape.stop();
  const TensorRef unseen = run("Square", {x});
  tape.start();
  const TensorRef y = run("Mul", {run("Mul", {hidden, x}), unseen});
  EXPECT_EQ(values(gradient(tape, y, x)), std::vector<float>{81});
}

TEST_F(TapeTest, SecondAndThirdOrder) {
  const TensorRef x = scalar(2);
  Tape outermost, outer, inner;
  for (Tape* tape : {&outermost, &outer, &inner}) {
    tape->start();
    tape->watch(*x);
  }
  const TensorRef y = run("Mul", {run("Square", {run("Square", {x})}), run("Exp", {x})});
  const float e = std::exp(2.0f);
  const TensorRef first = gradient(inner, y, x);  // (x^4 + 4 x^3) e^x
  EXPECT_FLOAT_EQ(values(first)[0], 48 * e);
  const TensorRef second = gradient(outer, first, x);  // (x^4 + 8 x^3 + 12 x^2) e^x
  EXPECT_FLOAT_EQ(values(second)[0], 128 * e);
  const TensorRef third = gradient(outermost, second, x);  // ... + 24 x
  EXPECT_FLOAT_EQ(values(third)[0], (16 + 96 + 144 + 48) * e);
}

// A tape that is inside of its own gradient: persistent and still recording.
TEST_F(TapeTest, SecondOrderOfOneTape) {
  const TensorRef x = scalar(3);
  Tape tape({.persistent = true});
  tape.start();
  tape.watch(*x);
  const TensorRef y = run("Mul", {run("Square", {x}), x});
  const TensorRef first = gradient(tape, y, x);
  EXPECT_EQ(values(first), std::vector<float>{27});
  EXPECT_EQ(values(gradient(tape, first, x)), std::vector<float>{18});
}

TEST_F(TapeTest, WhatIsWatchedMayBeOnTheWay) {
  const TensorRef x = scalar(3);
  Tape outer;
  outer.start();
  outer.watch(*x);
  const TensorRef y = run("Square", {x});
  Tape inner;
  inner.start();
  inner.watch(*y);
  const TensorRef z = run("Square", {y});
  const TensorRef dz_dy = gradient(inner, z, y);
  EXPECT_EQ(values(dz_dy), std::vector<float>{18});
  EXPECT_EQ(values(gradient(outer, dz_dy, x)), std::vector<float>{12});
}

TEST_F(TapeTest, GradientsThatComeIn) {
  const TensorRef x = vector({1, 2});
  Tape tape;
  tape.start();
  tape.watch(*x);
  const std::vector<TensorRef> ys = {run("Square", {x}), run("Neg", {x})}, xs = {x};
  const std::vector<EagerGradient> in = {{vector({10, 100}), nullptr, nullptr}, {}};
  auto found = tape.gradient(*context_, ys, xs, in, {});
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(values((*found)[0].values), (std::vector<float>{19, 399}));
  Tape other;
  expect_error(other.gradient(*context_, ys, xs, std::span(in).first(1), {}).status(),
               Code::kInvalidArgument, "expected 2 gradients of the targets, got 1");
}

TEST_F(TapeTest, RowsStayRows) {
  const TensorRef table = context_->tensor(Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
  const TensorRef indices = context_->tensor(Tensor::vector<int32_t>({2, 0}));
  const TensorRef axis = context_->tensor(Tensor::scalar<int32_t>(0));
  Tape tape({.persistent = true});
  tape.start();
  tape.watch(*table);
  const TensorRef rows = run("GatherV2", {table, indices, axis});
  const TensorRef again = run("GatherV2", {table, indices, axis});
  tape.stop();
  auto found = tape.gradient(*context_, {rows, again}, {table});
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  ASSERT_TRUE((*found)[0].is_slices());
  EXPECT_EQ((*found)[0].values->shape(), Shape({4, 2}));
  EXPECT_EQ(values(gradient(tape, rows, table)), (std::vector<float>{1, 1, 0, 0, 1, 1}));
}

TEST_F(TapeTest, Variables) {
  const Variable v = Variable::create(context_, Tensor::scalar(3.0f)).value();
  const Variable fixed =
      Variable::create(context_, Tensor::scalar(2.0f), {.trainable = false}).value();
  Tape tape({.persistent = true});
  tape.start();
  const TensorRef y = run("Mul", {run("Square", {v.read().value()}), fixed.read().value()});
  ASSERT_TRUE(v.assign(scalar(100)).ok());
  EXPECT_EQ(values(gradient(tape, y, v.handle())), std::vector<float>{12});
  EXPECT_EQ(gradient(tape, y, fixed.handle()), nullptr);
  const std::vector<TensorRef> ys = {y}, xs = {fixed.handle()};
  auto zeros = tape.gradient(*context_, ys, xs, {}, {.zeros_for_unconnected = true});
  ASSERT_TRUE(zeros.ok()) << zeros.status().to_string();
  EXPECT_EQ(values((*zeros)[0].values), std::vector<float>{0});
  Tape strict({.watch_accessed_variables = false});
  strict.start();
  EXPECT_EQ(gradient(strict, v.read().value(), v.handle()), nullptr);
}

TEST_F(TapeTest, OpsWithoutARule) {
  Registry registry(OpRegistry::global(), KernelRegistry::global());
  registry.add(
      {.name = "WithoutARule", .doc = "", .inputs = {{"x", "float"}}, .outputs = {{"y", "float"}}});
  registry.kernel("WithoutARule", DeviceKind::kCpu, [](KernelContext& ctx) {
    ctx.set_output_value(0, ctx.take_input(0));
    return ok_status();
  });
  ASSERT_TRUE(registry.status().ok());
  const TensorRef x = vector({1, 2});
  Tape tape;
  tape.start();
  tape.watch(*x);
  const TensorRef y = run("WithoutARule", {x});
  expect_error(tape.gradient(*context_, {y}, {x}).status(), Code::kNotFound,
               "No gradient defined for operation 'WithoutARule'");
}

// What a rule reads may depend on shapes and values: of each call what it reads there is kept.
TEST_F(TapeTest, RulesThatReadOtherThingsForOtherShapesAndValues) {
  Registry registry(OpRegistry::global(), KernelRegistry::global());
  registry.add({.name = "ReadsByShape",
                .doc = "",
                .inputs = {{"x", "float"}, {"how", "host(int32)"}},
                .outputs = {{"y", "float"}},
                .gradient = [](GradientContext& g) {
                  const PartialShape shape = g.input(0).shape();
                  const Tensor* how = g.input(1).constant_value();
                  const bool reads_input = shape.rank_known() && shape.rank() == 1 &&
                                           shape.dim_known(0) && shape.dim(0) == 3;
                  const bool reads_output = how != nullptr && how->item<int32_t>() == 7;
                  Expr dx = g.gradient();
                  if (reads_input) dx = dx * g.input(0);
                  if (reads_output) dx = dx * g.output(0);
                  // The shape of something computed decides, too.
                  if (how != nullptr && how->item<int32_t>() == 5 &&
                      (g.input(0) * 2.0).shape().rank() == 1) {
                    dx = dx * g.input(0);
                  }
                  g.set(0, dx);
                  return ok_status();
                }});
  registry.kernel("ReadsByShape", DeviceKind::kCpu, [](KernelContext& ctx) {
    ctx.set_output_value(0, ctx.take_input(0));
    return ok_status();
  });
  ASSERT_TRUE(registry.status().ok());
  const auto slope = [&](std::initializer_list<float> at, int32_t how) {
    const TensorRef x = vector(at);
    Tape tape;
    tape.start();
    tape.watch(*x);
    TensorRef y = run("ReadsByShape", {x, context_->tensor(Tensor::scalar(how))});
    return values(gradient(tape, y, x));
  };
  using Floats = std::vector<float>;
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(slope({2}, 0), (Floats{1}));
    EXPECT_EQ(slope({2, 3}, 0), (Floats{1, 1}));
    EXPECT_EQ(slope({2, 3, 4}, 0), (Floats{2, 3, 4}));
    EXPECT_EQ(slope({2, 3, 4}, 7), (Floats{4, 9, 16}));
    EXPECT_EQ(slope({5}, 7), (Floats{5}));
    EXPECT_EQ(slope({5, 6}, 5), (Floats{5, 6}));
  }
  // More shapes than are remembered.
  for (int i = 0; i < 600; ++i) {
    const TensorRef x =
        run("Fill", {context_->tensor(Tensor::vector<int32_t>({i + 1})), scalar(3)});
    Tape tape;
    tape.start();
    tape.watch(*x);
    const TensorRef y = run("ReadsByShape", {x, context_->tensor(Tensor::scalar<int32_t>(7))});
    ASSERT_EQ(values(gradient(tape, y, x))[0], i == 2 ? 9 : 3) << i;
  }
}

// Of a tape that is not persistent, as long as it is told that more will be asked for.
TEST_F(TapeTest, SeveralGradientsOfOneUse) {
  const TensorRef x = vector({1, 2});
  Tape tape;
  tape.start();
  tape.watch(*x);
  const TensorRef y = run("Exp", {run("Square", {x})});
  const std::vector<TensorRef> ys = {y}, xs = {x};
  const Result<std::vector<EagerGradient>> first =
      tape.gradient(*context_, ys, xs, {}, {.again = true});
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ(values((*first)[0].values), values(gradient(tape, y, x)));
  expect_error(tape.gradient(*context_, {y}, {x}).status(), Code::kFailedPrecondition,
               "non-persistent");
}

TEST_F(TapeTest, TellsHowManyOrdersAreFollowed) {
  const TensorRef x = scalar(1), y = scalar(2);
  const std::vector<TensorRef> both = {x, y};
  std::vector<bool> followed;
  EXPECT_EQ(orders_followed(both, followed), 0);
  Tape outer, inner({.persistent = true});
  outer.start();
  outer.watch(*y);
  EXPECT_EQ(orders_followed(both, followed), 1);
  EXPECT_EQ(followed, (std::vector<bool>{false, true}));
  inner.start();
  inner.watch(*x);
  EXPECT_EQ(orders_followed(both, followed), 3);
  EXPECT_EQ(followed, (std::vector<bool>{true, true}));
}

TEST_F(TapeTest, RulesByName) {
  const std::string name = register_unique_gradient("test", [](GradientContext& g) {
    g.set(0, g.gradient() * 100.0);
    return ok_status();
  });
  const TensorRef x = scalar(3);
  Tape tape;
  tape.start();
  tape.watch(*x);
  const TensorRef y = run("Square", {x}, {{kGradientOverride, name}});
  EXPECT_EQ(values(gradient(tape, y, x)), std::vector<float>{100});
  unregister_gradient(name);
}

TEST_F(TapeTest, OperationsOfTheCaller) {
  struct Times : Backward {
    explicit Times(TensorRef factor, EagerContext& context)
        : factor(std::move(factor)), context(context) {}
    Result<std::vector<EagerGradient>> gradients(std::span<const EagerGradient> out) override {
      MR_TRY_ASSIGN(TensorRef g, context.execute_one("Mul", {out[0].values, factor}));
      return std::vector<EagerGradient>{{g, nullptr, nullptr}, {}};
    }
    TensorRef factor;
    EagerContext& context;
  };
  const TensorRef x = scalar(3), other = scalar(1);
  Tape tape;
  tape.start();
  tape.watch(*x);
  const TensorRef y = scalar(7);
  const std::vector<TensorRef> inputs = {x, other}, outputs = {y};
  record_operation(inputs, outputs, make_ref<Times>(scalar(5), *context_));
  EXPECT_EQ(values(gradient(tape, run("Square", {y}), x)), std::vector<float>{70});
}

// What a tape keeps of Add is no tensor at all; of Mul, the factor that the gradient needs.
TEST_F(TapeTest, KeepsWhatGradientsNeed) {
  const auto big = [&] {
    return run("Fill", {context_->tensor(Tensor::vector<int32_t>({1 << 18})), scalar(1)});
  };
  const auto in_use = [] { return cpu_allocator().stats().bytes_in_use; };
  const int64_t kBig = int64_t{4} << 18;
  TensorRef x = big(), constant = big();
  Tape tape;
  tape.start();
  tape.watch(*x);
  const int64_t before = in_use();
  TensorRef y = run("Add", {x, constant});
  for (int i = 0; i < 8; ++i) y = run("Add", {std::move(y), constant});
  EXPECT_LT(in_use() - before, kBig + kBig / 2);  // y
  y = run("Mul", {std::move(y), constant});
  EXPECT_LT(in_use() - before, kBig + kBig / 2);  // its gradient reads the constant
  y = run("Exp", {std::move(y)});
  EXPECT_LT(in_use() - before, kBig + kBig / 2);  // its gradient reads y
  y = run("Sigmoid", {std::move(y)});
  EXPECT_LT(in_use() - before, 2 * kBig + kBig / 2);
  EXPECT_EQ(values(gradient(tape, y, x)).size(), size_t{1} << 18);
}

TEST_F(TapeTest, ResultsThatLeadNowhereAreFreed) {
  const int64_t before = cpu_allocator().stats().bytes_in_use;
  const TensorRef x =
      run("Fill", {context_->tensor(Tensor::vector<int32_t>({1 << 16})), scalar(1)});
  Tape tape;
  tape.start();
  tape.watch(*x);
  for (int i = 0; i < 2000; ++i) run("Mul", {run("Exp", {x}), x});
  EXPECT_LT(cpu_allocator().stats().bytes_in_use - before, int64_t{40} << 20);
  EXPECT_LT(tape.num_records(), 2000u);
}

// Long chains end without deep recursion, used or not; what ran leaves nothing behind.
TEST_F(TapeTest, LeavesNothing) {
  const TensorRef one = scalar(1);
  run("Add", {one, one});
  const auto once = [&](bool use) {
    const TensorRef x = scalar(1);
    Tape tape;
    tape.start();
    tape.watch(*x);
    TensorRef y = x;
    for (int i = 0; i < 20000; ++i) y = run("Add", {y, one});
    tape.stop();
    if (!use) return;
    EXPECT_EQ(values(gradient(tape, y, x)), std::vector<float>{1});
  };
  once(true);
  const int64_t before = cpu_allocator().stats().bytes_in_use;
  once(true);
  once(false);
  for (int i = 0; i < 1000; ++i) {
    Tape tape;
    tape.start();
    tape.watch(*one);
  }
  EXPECT_EQ(cpu_allocator().stats().bytes_in_use, before);
}

// The tensors of a tape outlive it, and the tape them.
TEST_F(TapeTest, EndsInAnyOrder) {
  const TensorRef x = scalar(2);
  TensorRef y;
  {
    Tape tape;
    tape.start();
    tape.watch(*x);
    y = run("Square", {x});
  }
  EXPECT_EQ(Tape::innermost(), nullptr);
  Tape first, second;
  first.start();
  second.start();
  first.stop();
  EXPECT_EQ(Tape::innermost(), &second);
  second.watch(*y);
  const TensorRef z = run("Square", {y});
  EXPECT_EQ(values(gradient(second, z, y)), std::vector<float>{8});
}

}  // namespace
}  // namespace millrace::eager
