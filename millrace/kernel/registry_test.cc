#include "millrace/kernel/registry.h"

#include <gtest/gtest.h>

#include "millrace/kernel/kernel_testing.h"

namespace millrace {
namespace {

Status nothing(KernelContext&) { return ok_status(); }

class Picky : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(int64_t n, node.attr<int64_t>("n"));
    if (n == 0) return unimplemented("n is 0");
    if (n < 0) return invalid_argument("n is negative");
    return std::unique_ptr<Kernel>(std::make_unique<Picky>());
  }
  Status compute(KernelContext&) const override { return aborted("picky"); }
};

struct KernelRegistryTest : testing::Test {
  OpRegistry ops;
  KernelRegistry kernels;
  Registry registry{ops, kernels};
  OpDef op;

  KernelNode node(DType type, int64_t n = 1) {
    op.name = "Foo";
    KernelNode node;
    node.name = "foo";
    node.op = &op;
    node.attrs = {{"T", type}, {"n", n}};
    return node;
  }
};

TEST_F(KernelRegistryTest, ChoosesByTypeAndPriority) {
  ASSERT_TRUE(kernels
                  .add({.op = "Foo",
                        .constraints = {{"T", {DType::kFloat}}},
                        .function = nothing,
                        .label = "reference"})
                  .ok());
  ASSERT_TRUE(
      kernels
          .add(
              {.op = "Foo", .constraints = {{"T", kFloating}}, .function = nothing, .priority = 10})
          .ok());
  ASSERT_TRUE(kernels.add({.op = "Foo", .device = DeviceKind::kCuda, .function = nothing}).ok());
  auto found = kernels.find("Foo", DeviceKind::kCpu, {{"T", DType::kFloat}});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0]->priority, 10);
  EXPECT_EQ(found[1]->label, "reference");
  EXPECT_EQ(kernels.find("Foo", DeviceKind::kCpu, {{"T", DType::kDouble}}).size(), 1u);
  EXPECT_FALSE(kernels.any("Foo", DeviceKind::kCpu, {{"T", DType::kInt32}}));
  EXPECT_FALSE(kernels.any("Foo", DeviceKind::kCpu, {}));
  EXPECT_TRUE(kernels.any("Foo", DeviceKind::kCuda, {}));
  EXPECT_EQ(kernels.list("Foo").size(), 3u);
}

TEST_F(KernelRegistryTest, TypeListsMustFitAltogether) {
  ASSERT_TRUE(
      kernels.add({.op = "Foo", .constraints = {{"Ts", kIntegers}}, .function = nothing}).ok());
  auto any = [&](std::vector<DType> types) {
    return kernels.any("Foo", DeviceKind::kCpu, {{"Ts", std::move(types)}});
  };
  EXPECT_TRUE(any({DType::kInt32, DType::kInt64}));
  EXPECT_FALSE(any({DType::kInt32, DType::kFloat}));
  EXPECT_TRUE(any({}));
}

TEST_F(KernelRegistryTest, RefusesNonsense) {
  EXPECT_EQ(kernels.add({.function = nothing}).code(), Code::kInvalidArgument);
  EXPECT_EQ(kernels.add({.op = "Foo"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(kernels.add({.op = "Foo", .function = nothing, .factory = Picky::make}).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(kernels.add({.op = "Foo", .constraints = {{"T", {}}}, .function = nothing}).code(),
            Code::kInvalidArgument);
  ASSERT_TRUE(kernels.add({.op = "Foo", .function = nothing}).ok());
  EXPECT_EQ(kernels.add({.op = "Foo", .function = nothing}).code(), Code::kAlreadyExists);
  EXPECT_TRUE(kernels.add({.op = "Foo", .function = nothing, .label = "other"}).ok());
}

TEST_F(KernelRegistryTest, FactoriesMayRefuse) {
  ASSERT_TRUE(kernels.add({.op = "Foo", .factory = Picky::make, .priority = 1}).ok());
  auto make = [&](int64_t n) {
    return make_kernel(kernels, node(DType::kFloat, n), DeviceKind::kCpu);
  };
  EXPECT_TRUE(make(1).ok());
  EXPECT_EQ(make(0).status().code(), Code::kUnimplemented);
  EXPECT_EQ(make(-1).status().code(), Code::kInvalidArgument);
  ASSERT_TRUE(kernels.add({.op = "Foo", .function = nothing, .label = "reference"}).ok());
  EXPECT_TRUE(make(0).ok());
  EXPECT_EQ(make(-1).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(make_kernel(kernels, node(DType::kFloat, -1), DeviceKind::kCpu, "reference").ok());
}

TEST_F(KernelRegistryTest, MissingKernelNamesWhatThereIs) {
  ASSERT_TRUE(
      kernels.add({.op = "Foo", .constraints = {{"T", kFloating}}, .function = nothing}).ok());
  Status status = make_kernel(kernels, node(DType::kInt8), DeviceKind::kCpu).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  std::string text(status.message());
  EXPECT_EQ(text.rfind("No registered 'Foo' OpKernel for CPU devices", 0), 0u) << text;
  EXPECT_NE(text.find("T=int8"), std::string::npos) << text;
  EXPECT_NE(text.find("half"), std::string::npos) << text;
}

TEST_F(KernelRegistryTest, AnyOpWhereItHasNoKernelOfItsOwn) {
  ASSERT_TRUE(kernels.add({.op = "*", .device = DeviceKind::kNull, .function = nothing}).ok());
  ASSERT_TRUE(
      kernels.add({.op = "Foo", .device = DeviceKind::kNull, .function = nothing, .label = "own"})
          .ok());
  EXPECT_EQ(kernels.find("Foo", DeviceKind::kNull, {})[0]->label, "own");
  EXPECT_EQ(kernels.find("Bar", DeviceKind::kNull, {}).size(), 1u);
  EXPECT_FALSE(kernels.any("Bar", DeviceKind::kCpu, {}));
}

TEST_F(KernelRegistryTest, NeutralKernelsServeWhoHasNoneOfTheirOwn) {
  const AttrMap attrs = {{"T", DType::kFloat}};
  ASSERT_TRUE(kernels.add({.op = "Foo", .device = DeviceKind::kAny, .function = nothing}).ok());
  EXPECT_TRUE(kernels.any("Foo", DeviceKind::kCuda, attrs));
  EXPECT_TRUE(kernels.any("Foo", DeviceKind::kNull, attrs));
  EXPECT_FALSE(kernels.any("Bar", DeviceKind::kCpu, attrs));
  // After those of the kind, its "*" too.
  ASSERT_TRUE(kernels.add({.op = "*", .device = DeviceKind::kNull, .function = nothing}).ok());
  ASSERT_TRUE(kernels.add({.op = "Foo", .device = DeviceKind::kCuda, .function = nothing}).ok());
  for (DeviceKind kind : {DeviceKind::kNull, DeviceKind::kCuda}) {
    auto found = kernels.find("Foo", kind, attrs);
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0]->device, kind);
    EXPECT_EQ(found[1]->device, DeviceKind::kAny);
  }
}

TEST_F(KernelRegistryTest, RegistrationKeepsTheFirstMistake) {
  registry.add({.name = "Good", .doc = "d", .outputs = {{"y", "T"}}, .types = {{"T", {}}}});
  registry.kernel<float>("Good", DeviceKind::kCpu, nothing);
  EXPECT_TRUE(registry.status().ok()) << registry.status().to_string();
  registry.kernel({.op = "Good", .constraints = {{"S", kFloating}}, .function = nothing});
  EXPECT_EQ(registry.status().code(), Code::kInvalidArgument);
  registry.kernel("Absent", DeviceKind::kCpu, nothing);
  EXPECT_EQ(registry.status().code(), Code::kInvalidArgument);
  Registry second(ops, kernels);
  second.kernel("Absent", DeviceKind::kCpu, nothing);
  EXPECT_EQ(second.status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace millrace
