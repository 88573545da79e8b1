#include "millrace/kernel/kernel.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <thread>

#include "millrace/kernel/kernel_testing.h"

namespace millrace {
namespace {

Status negate(KernelContext& ctx) {
  MR_TRY_ASSIGN(Tensor * y, ctx.forward_or_allocate_output({0}, 0, ctx.input(0).shape()));
  auto in = ctx.input(0).data<float>();
  auto out = y->mutable_data<float>();
  for (size_t i = 0; i < in.size(); ++i) out[i] = -in[i];
  return ok_status();
}

Status negate_reference(KernelContext& ctx) {
  MR_TRY_ASSIGN(Tensor * y, ctx.allocate_output(0, ctx.input(0).shape()));
  for (size_t i = 0; i < y->data<float>().size(); ++i) {
    y->mutable_data<float>()[i] = -ctx.input(0).data<float>()[i];
  }
  return ok_status();
}

Status fill_zero(KernelContext& ctx) {
  MR_TRY_ASSIGN(Shape shape, ctx.shape_input(0));
  MR_TRY_ASSIGN(Tensor * y, ctx.allocate_output(0, shape));
  for (float& v : y->mutable_data<float>()) v = 0;
  return ok_status();
}

Status fill_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.input_as_shape(0));
  c.set_output(0, shape);
  return ok_status();
}

Status read_scalars(KernelContext& ctx) {
  MR_TRY_ASSIGN(float a, ctx.scalar_input<float>(0));
  MR_TRY_ASSIGN(int64_t b, ctx.int_scalar_input(1));
  ctx.set_output(0, Tensor::scalar(a + static_cast<float>(b)));
  return ok_status();
}

Status assign(KernelContext& ctx) {
  RefCell& cell = ctx.input_ref(0);
  {
    MutexLock lock(cell.mu);
    cell.tensor = ctx.input(1);
  }
  ctx.set_output_value(0, ctx.input_value(0));
  return ok_status();
}

Status count_inputs(KernelContext& ctx) {
  ctx.set_output(0, Tensor::scalar(ctx.num_inputs()));
  return ok_status();
}

Status sum_squares(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 0, 1));
  auto x = ctx.input(0).data<float>();
  Mutex mu;
  double sum = 0;
  ctx.parallel_for(static_cast<int64_t>(x.size()), 5, [&](int64_t begin, int64_t end) {
    double part = 0;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      part += x[i] * x[i];
    MutexLock lock(mu);
    sum += part;
  });
  ctx.set_output(0, Tensor::scalar(static_cast<float>(sum)));
  return ok_status();
}

Status leave_unset(KernelContext&) { return ok_status(); }
Status wrong_type(KernelContext& ctx) {
  ctx.set_output(0, Tensor::scalar(int32_t{1}));
  return ok_status();
}
Status dead_output(KernelContext& ctx) {
  ctx.set_output_dead(0);
  return ok_status();
}

// Receives from the step's rendezvous.
class Wait : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode&) {
    return std::unique_ptr<Kernel>(std::make_unique<Wait>());
  }
  void compute_async(KernelContext& ctx, Done done) const override {
    ctx.step().rendezvous->recv("key", ctx.step().cancel,
                                [&ctx, done = std::move(done)](Status status, Value value) mutable {
                                  if (status.ok()) ctx.set_output_value(0, std::move(value));
                                  done(std::move(status));
                                });
  }
};

void register_ops(Registry& r) {
  auto op = [&](std::string name, std::vector<OpSpec::Arg> inputs, std::vector<OpSpec::Arg> outputs,
                ShapeRule shape) {
    r.add({.name = std::move(name),
           .doc = "For a test.",
           .inputs = std::move(inputs),
           .outputs = std::move(outputs),
           .types = {},
           .shape = shape});
  };
  op("TestNegate", {{"x", "float"}}, {{"y", "float"}}, shape_rules::unchanged);
  r.kernel({.op = "TestNegate", .function = negate, .priority = 1});
  r.kernel({.op = "TestNegate", .function = negate_reference, .label = "reference"});
  op("TestFill", {{"shape", "host(int32)"}}, {{"y", "float"}}, fill_shape);
  r.kernel("TestFill", DeviceKind::kCpu, fill_zero);
  op("TestWrongRule", {{"shape", "host(int32)"}}, {{"y", "float"}}, shape_rules::scalar);
  r.kernel("TestWrongRule", DeviceKind::kCpu, fill_zero);
  op("TestScalars", {{"a", "host(float)"}, {"b", "host(int64)"}}, {{"y", "float"}},
     shape_rules::scalar);
  r.kernel("TestScalars", DeviceKind::kCpu, read_scalars);
  op("TestUndeclared", {{"a", "host(float)"}, {"b", "int64"}}, {{"y", "float"}},
     shape_rules::scalar);
  r.kernel("TestUndeclared", DeviceKind::kCpu, read_scalars);
  op("TestSumSquares", {{"x", "float"}}, {{"y", "float"}}, shape_rules::scalar);
  r.kernel("TestSumSquares", DeviceKind::kCpu, sum_squares);
  op("TestUnset", {}, {{"y", "float"}}, shape_rules::unknown);
  r.kernel("TestUnset", DeviceKind::kCpu, leave_unset);
  op("TestWrongType", {}, {{"y", "float"}}, shape_rules::unknown);
  r.kernel("TestWrongType", DeviceKind::kCpu, wrong_type);
  op("TestDead", {}, {{"y", "float"}}, shape_rules::unknown);
  r.kernel("TestDead", DeviceKind::kCpu, dead_output);
  op("TestWait", {}, {{"y", "float"}}, shape_rules::unknown);
  r.kernel<Wait>("TestWait", DeviceKind::kCpu);
  r.add({.name = "TestAssign",
         .doc = "For a test.",
         .inputs = {{"ref", "ref(T)"}, {"value", "T"}},
         .outputs = {{"out", "ref(T)"}},
         .types = {{"T", {}}}});
  r.kernel("TestAssign", DeviceKind::kCpu, assign);
  r.add({.name = "TestLists",
         .doc = "For a test.",
         .inputs = {{"a", "N*T"}, {"b", "list(Ts)"}},
         .outputs = {{"n", "int32"}},
         .types = {{"T", {}}},
         .attrs = {{"N", "int >= 0"}, {"Ts", "list(type) >= 0"}},
         .shape = shape_rules::scalar});
  r.kernel("TestLists", DeviceKind::kCpu, count_inputs);
}

const bool registered = register_for_tests({register_ops, register_ops});

const Tensor kThree = Tensor::vector<float>({1, -2, 3});
const Tensor kMinusThree = Tensor::vector<float>({-1, 2, -3});

TEST(KernelContext, ForwardsWhatNobodyElseSees) {
  Tensor x = kThree.clone().value();
  const void* memory = x.raw();
  Result<Tensor> y = OpTester("TestNegate").movable(true).input(std::move(x)).run_one();
  ASSERT_TRUE(y.ok()) << y.status().to_string();
  EXPECT_TRUE(bit_equal(*y, kMinusThree));
  EXPECT_EQ(y->raw(), memory);
}

TEST(KernelContext, NeverForwardsWhatOthersSee) {
  // Held by the test too.
  Tensor shared = kThree.clone().value();
  // Movable, but a view that does not begin where memory does.
  Tensor view = Tensor::vector<float>({0, 1, -2, 3}).rows(1, 4);
  // Borrowed memory.
  float memory[] = {1, -2, 3};
  Tensor borrowed(DType::kFloat, Shape{3}, Buffer::borrow(memory, sizeof(memory), nullptr));
  for (auto [tensor, movable] : {std::pair{&shared, true}, std::pair{&shared, false},
                                 std::pair{&view, true}, std::pair{&borrowed, true}}) {
    const void* before = tensor->raw();
    Tensor given = tensor == &shared ? shared : std::move(*tensor);
    Result<Tensor> y = OpTester("TestNegate").movable(movable).input(std::move(given)).run_one();
    ASSERT_TRUE(y.ok());
    EXPECT_TRUE(bit_equal(*y, kMinusThree));
    EXPECT_NE(y->raw(), before);
  }
  EXPECT_TRUE(bit_equal(shared, kThree));
  EXPECT_EQ(memory[0], 1);
}

std::vector<Ref<Buffer>> plan_floats(int64_t count) {
  return {Buffer::allocate(DType::kFloat, count, cpu_allocator()).value()};
}

TEST(KernelContext, WritesToPlannedMemory) {
  for (const int64_t size : {3, 5}) {  // exactly as much as it takes, or more
    std::vector<Ref<Buffer>> planned = plan_floats(size);
    const void* memory = planned[0]->data();
    OpTester tester("TestNegate");
    tester.planned(planned).input(kThree);
    const Tensor y = tester.run_one().value();
    EXPECT_TRUE(bit_equal(y, kMinusThree));
    EXPECT_EQ(y.raw(), memory);
    // It is the output's own now: the next run does not see it.
    EXPECT_FALSE(planned[0]);
    EXPECT_TRUE(y.writable());
    EXPECT_NE(tester.run_one()->raw(), memory);
  }
}

TEST(KernelContext, WritesElsewhereWhenPlannedMemoryDoesNotFit) {
  Tensor other = kThree.clone().value();
  float borrowed[3] = {};
  struct {
    const char* why;
    std::vector<Ref<Buffer>> planned;
  } cases[] = {{"nothing is planned for this output", {nullptr}},
               {"too small", plan_floats(2)},
               {"somebody else holds it", {other.buffer()}},
               {"not ours to write", {Buffer::borrow(borrowed, sizeof(borrowed), nullptr)}},
               {"of another allocator", {Buffer::own(borrowed, sizeof(borrowed), nullptr)}}};
  for (auto& [why, planned] : cases) {
    const Buffer* before = planned[0].get();
    const Tensor y = OpTester("TestNegate").planned(planned).input(kThree).run_one().value();
    EXPECT_TRUE(bit_equal(y, kMinusThree)) << why;
    EXPECT_NE(y.buffer().get(), before) << why;
    EXPECT_EQ(planned[0].get(), before) << why;
  }
  EXPECT_TRUE(bit_equal(other, kThree));
  EXPECT_EQ(borrowed[0], 0);
}

TEST(KernelContext, PrefersAnInputsMemoryToPlannedMemory) {
  std::vector<Ref<Buffer>> planned = plan_floats(3);
  Tensor x = kThree.clone().value();
  const void* memory = x.raw();
  const Tensor y =
      OpTester("TestNegate").planned(planned).movable(true).input(std::move(x)).run_one().value();
  EXPECT_EQ(y.raw(), memory);
  EXPECT_TRUE(planned[0]);
}

TEST(KernelContext, TakeInput) {
  Value value = Value::of(kThree.clone().value());
  Value* pointer = &value;
  KernelContext::Args args;
  args.inputs = &pointer;
  args.num_inputs = 1;
  EXPECT_FALSE(KernelContext(args).take_input(0).tensor.writable());
  EXPECT_FALSE(value.empty());
  args.movable = 1;
  EXPECT_TRUE(KernelContext(args).take_input(0).tensor.writable());
  EXPECT_TRUE(value.empty());
}

TEST(KernelContext, ShapeInputIsChecked) {
  EXPECT_EQ(OpTester("TestFill").input(Tensor::vector<int32_t>({2, 3})).run_one()->shape(),
            (Shape{2, 3}));
  for (const Tensor& bad : {Tensor::vector<int32_t>({2, -3}), Tensor::scalar<int32_t>(2),
                            Tensor::of<int32_t>(Shape{1, 1}, {1})}) {
    Result<Tensor> y = OpTester("TestFill").input(bad).run_one();
    EXPECT_EQ(y.status().code(), Code::kInvalidArgument);
    EXPECT_NE(y.status().message().find("input 0 (shape)"), std::string_view::npos)
        << y.status().to_string();
  }
}

TEST(KernelContext, TooLargeIsAnError) {
  Tensor shape = Tensor::vector<int32_t>({1 << 30, 1 << 30});
  Result<Tensor> y = OpTester("TestFill").input(shape).run_one();
  EXPECT_EQ(y.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(y.status().message().rfind("OOM when allocating tensor with shape", 0), 0u)
      << y.status().to_string();
}

TEST(KernelContext, ScalarInputs) {
  Tensor b = Tensor::scalar<int64_t>(2);
  EXPECT_EQ(OpTester("TestScalars").input(Tensor::scalar(1.5f)).input(b).run_one()->item<float>(),
            3.5f);
  EXPECT_EQ(OpTester("TestScalars").input(kThree).input(b).run().status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(OpTester("TestScalars")
                .input(Tensor::scalar(1.5f))
                .input(Tensor::vector<int64_t>({}))
                .run()
                .status()
                .code(),
            Code::kInvalidArgument);
}

TEST(KernelContext, ElementsThatTheHostReadsAreDeclared) {
  Result<Tensor> y = OpTester("TestUndeclared")
                         .input(Tensor::scalar(1.5f))
                         .input(Tensor::scalar<int64_t>(2))
                         .run_one();
  EXPECT_EQ(y.status().code(), Code::kInternal);
  EXPECT_NE(y.status().message().find("input 1 (b)"), std::string_view::npos)
      << y.status().to_string();
}

TEST(KernelContext, ParallelForCoversAll) {
  std::vector<float> ones(100'000, 1.0f);
  Tensor x = Tensor::vector<float>(std::span<const float>(ones));
  for (int threads : {1, 3}) {
    EXPECT_EQ(OpTester("TestSumSquares").threads(threads).input(x).run_one()->item<float>(),
              100'000.0f);
  }
  EXPECT_EQ(OpTester("TestSumSquares").input(Tensor::scalar(1.0f)).run().status().code(),
            Code::kInvalidArgument);
}

TEST(OpTester, ChoosesByLabel) {
  EXPECT_TRUE(bit_equal(OpTester("TestNegate").label("reference").input(kThree).run_one().value(),
                        kMinusThree));
  EXPECT_EQ(OpTester("TestNegate").label("other").input(kThree).run().status().code(),
            Code::kNotFound);
}

TEST(OpTester, ReferencesAndLists) {
  Ref<RefCell> cell = make_ref_cell();
  Result<std::vector<Value>> out =
      OpTester("TestAssign").input_ref(cell).input(kThree).run_values();
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_EQ((*out)[0].cell, cell);
  EXPECT_TRUE(bit_equal(cell->read(), kThree));
  EXPECT_EQ(OpTester("TestAssign").input(kThree).input(kThree).run().status().code(),
            Code::kInvalidArgument);

  Result<Tensor> n = OpTester("TestLists")
                         .input_list({kThree, kThree})
                         .input_list({Tensor::scalar(true)})
                         .run_one();
  ASSERT_TRUE(n.ok()) << n.status().to_string();
  EXPECT_EQ(n->item<int32_t>(), 3);
}

TEST(OpTester, BadNodesAreErrors) {
  EXPECT_EQ(OpTester("NoSuchOp").run().status().code(), Code::kNotFound);
  EXPECT_FALSE(OpTester("TestNegate").run().ok());
  EXPECT_FALSE(OpTester("TestNegate").input(Tensor::scalar(true)).run().ok());
  EXPECT_FALSE(OpTester("TestNegate").attr("nonsense", 1).input(kThree).run().ok());
  EXPECT_EQ(OpTester("TestDead").run().status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(OpTester("TestDead").run_values().value()[0].dead());
}

TEST(OpTester, FailsTheTestWhenAKernelBreaksItsPromise) {
  EXPECT_NONFATAL_FAILURE((void)OpTester("TestUnset").run().ok(), "was not set");
  EXPECT_NONFATAL_FAILURE((void)OpTester("TestWrongType").run().ok(), "declared is float");
  testing::TestPartResultArray failures;
  {
    testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    (void)OpTester("TestWrongRule").input(Tensor::vector<int32_t>({2})).run().ok();
  }
  EXPECT_EQ(failures.size(), 3);  // given values, shapes, nothing
}

TEST(AsyncKernel, WaitsWithoutAThread) {
  OpEnv env;
  Ref<OpRun> run = OpTester(env, "TestWait").start().value();
  EXPECT_FALSE(run->done());
  ASSERT_TRUE(env.rendezvous().send("key", Value::of(kThree)).ok());
  EXPECT_TRUE(run->done());
  EXPECT_TRUE(bit_equal(run->wait().value()[0].tensor, kThree));
}

TEST(AsyncKernel, Cancelled) {
  OpEnv env;
  Ref<OpRun> run = OpTester(env, "TestWait").start().value();
  run->cancel();
  EXPECT_EQ(run->wait().status().code(), Code::kCancelled);
}

TEST(AsyncKernel, ComputeBlocks) {
  Ref<Rendezvous> rendezvous = make_local_rendezvous();
  Ref<Step> step = make_ref<Step>();
  step->rendezvous = rendezvous;
  Value output;
  KernelContext::Args args;
  args.step = step.get();
  args.outputs = &output;
  args.num_outputs = 1;
  KernelContext ctx(args);
  std::thread sender([&] { EXPECT_TRUE(rendezvous->send("key", Value::of(kThree)).ok()); });
  EXPECT_TRUE(Wait().compute(ctx).ok());
  sender.join();
  EXPECT_TRUE(bit_equal(output.tensor, kThree));
}

}  // namespace
}  // namespace millrace
