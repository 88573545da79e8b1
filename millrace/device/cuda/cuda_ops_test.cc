// Ops on a GPU against the same ops on the CPU: every op of the registry that has a kernel there,
// in every type, on the small operands of the op table; and what kernels are made of, on larger
// ones.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <sstream>

#include "millrace/device/cuda/cuda_testing.h"
#include "millrace/kernel/op_env_device_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/op_calls_testing.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

Ref<Device> make_gpu() { return first_gpu(); }

class CudaOps : public testing::Test {
 protected:
  void SetUp() override { MR_SKIP_WITHOUT_GPU(); }
  void TearDown() override { set_op_env_device(nullptr); }
};

double rounding(DType dtype) {
  if (dtype == DType::kHalf) return 0x1p-11;
  if (dtype == DType::kBFloat16) return 0x1p-8;
  return dtype == DType::kFloat ? 0x1p-24 : 0x1p-53;
}

bool close(double got, double want, double tolerance) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= tolerance * std::max(1.0, std::abs(want));
}

void expect_agree(const Tensor& got, const Tensor& want, double steps = 32) {
  ASSERT_EQ(got.dtype(), want.dtype());
  ASSERT_EQ(got.shape().to_string(), want.shape().to_string());
  if (!(kNumberTypes | TypeSet{DType::kBool}).contains(got.dtype())) return;
  const std::vector<Complex128> a = values_of(got), b = values_of(want);
  const double tolerance = kFloating.contains(got.dtype()) ? steps * rounding(got.dtype()) : 0;
  int wrong = 0;
  for (size_t i = 0; i < a.size() && wrong < 3; ++i) {
    if (close(a[i].real(), b[i].real(), tolerance)) continue;
    ++wrong;
    ADD_FAILURE() << "element " << i << " of " << got.shape().to_string() << " is " << a[i].real()
                  << " on the GPU and " << b[i].real() << " on the CPU";
  }
}

bool has_gpu_kernel(const OpDef& op, const AttrMap& attrs) {
  for (const KernelDef* def : KernelRegistry::global().find(op.name, DeviceKind::kCuda, attrs)) {
    if (def->device == DeviceKind::kCuda) return true;
  }
  return false;
}

TEST_F(CudaOps, GiveWhatTheCpuGives) {
  int calls = 0;
  for (const OpDef* op : OpRegistry::global().list()) {
    bool any = false;
    for (const KernelDef* def : KernelRegistry::global().list(op->name)) {
      any |= def->device == DeviceKind::kCuda;
    }
    // Numbers at random are tested below.
    if (!any || op->name.starts_with("Random") || op->name == "TruncatedNormal") continue;
    const OpCall call = valid_call(*op);
    for (const TypeChoice& types : type_choices(*op)) {
      AttrMap attrs = call_attrs(call, types);
      if (!has_gpu_kernel(*op, attrs)) continue;
      for (Elements elements : {Elements::kPositive, Elements::kSigned}) {
        SCOPED_TRACE(str_cat(to_string(call), " ", to_string(types),
                             elements == Elements::kSigned ? " signed" : ""));
        Result<std::vector<Tensor>> want = run_call(call, types, elements);
        set_op_env_device(make_gpu);
        Result<std::vector<Tensor>> got = run_call(call, types, elements);
        set_op_env_device(nullptr);
        ++calls;
        if (!want.ok()) {
          // Ranges of optimisers' scalars are not checked on a GPU.
          if (op->name.find("Apply") == std::string::npos) {
            EXPECT_EQ(got.status().code(), want.status().code()) << want.status().to_string();
          }
          continue;
        }
        ASSERT_TRUE(got.ok()) << got.status().to_string();
        ASSERT_EQ(got->size(), want->size());
        for (size_t i = 0; i < got->size(); ++i) expect_agree((*got)[i], (*want)[i]);
      }
    }
  }
  RecordProperty("calls", calls);
  EXPECT_GT(calls, 1500);
}

// docs/gpu.md lists the ops that have kernels of their own for GPUs, and no others.
TEST_F(CudaOps, AreThoseOfTheDocumentation) {
  std::ifstream file("docs/gpu.md");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t begin = text.find("## Which op runs where");
  ASSERT_NE(begin, std::string::npos);
  std::set<std::string> documented;
  std::istringstream lines(text.substr(begin));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ") || line.find("on every device") != std::string::npos) continue;
    for (size_t at = line.find('`'); at != std::string::npos; at = line.find('`', at + 1)) {
      const size_t end = line.find('`', at + 1);
      documented.insert(line.substr(at + 1, end - at - 1));
      at = end;
    }
  }
  std::set<std::string> there;
  for (const OpDef* op : OpRegistry::global().list()) {
    for (const KernelDef* def : KernelRegistry::global().list(op->name)) {
      if (def->device == DeviceKind::kCuda) there.insert(op->name);
    }
  }
  std::string all;
  for (const std::string& op : there) all += op + " ";
  EXPECT_EQ(documented, there) << "the kernels there are: " << all;
}

// Tensors at random, from -1 to 1 or, of integers, from 0 to 100.
Tensor random_tensor(DType dtype, const Shape& shape, std::mt19937& random) {
  Tensor out = Tensor::allocate(dtype, shape).value();
  MR_CHECK_OK(dispatch<RealTypes>(dtype, [&]<class T>() {
    for (T& v : out.mutable_data<T>()) {
      if constexpr (std::is_integral_v<T>) {
        v = static_cast<T>(random() % 101);
      } else {
        v = static_cast<T>(static_cast<float>(random() % 20001) / 10000.0F - 1.0F);
      }
    }
  }));
  return out;
}

struct Case {
  const char* op;
  AttrMap attrs;
  std::vector<Tensor> inputs;
  double steps = 64;
};

void expect_same(const Case& c) {
  std::string shapes;
  for (const Tensor& t : c.inputs) append_to(shapes, t.shape().to_string());
  SCOPED_TRACE(str_cat(c.op, " ", c.inputs[0].dtype(), " ", shapes));
  std::vector<Tensor> results[2];
  for (int side = 0; side < 2; ++side) {
    set_op_env_device(side == 0 ? nullptr : make_gpu);
    OpEnv env;
    OpTester tester(env, c.op);
    for (const auto& [name, value] : c.attrs) tester.attr(name, value);
    for (const Tensor& t : c.inputs) tester.input(t);
    tester.check_shapes(false);
    Result<std::vector<Tensor>> got = tester.run();
    set_op_env_device(nullptr);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    results[side] = std::move(*got);
  }
  for (size_t i = 0; i < results[0].size(); ++i) {
    expect_agree(results[1][i], results[0][i], c.steps);
  }
}

Tensor ints(std::vector<int32_t> values) {
  return Tensor::vector(std::span<const int32_t>(values));
}

TEST_F(CudaOps, BroadcastAnyShapes) {
  std::mt19937 random(1);
  const std::pair<Shape, Shape> shapes[] = {
      {{7}, {7}},         {{300, 17}, {17}},  {{300, 1}, {1, 17}},    {{5, 1, 7, 1}, {3, 1, 9}},
      {{2, 3, 4, 5}, {}}, {{0, 3}, {3}},      {{128, 513}, {128, 1}}, {{64, 32}, {32}},
      {{6, 64}, {6, 64}}, {{5, 7, 16}, {16}}, {{9, 32}, {9, 1}},      {{16}, {}}};
  for (DType dtype : {DType::kFloat, DType::kHalf, DType::kBFloat16, DType::kInt64}) {
    for (const auto& [a, b] : shapes) {
      for (const char* op : {"Add", "Sub", "Less"}) {
        expect_same({op, {}, {random_tensor(dtype, a, random), random_tensor(dtype, b, random)}});
        expect_same({op, {}, {random_tensor(dtype, b, random), random_tensor(dtype, a, random)}});
      }
    }
  }
}

TEST_F(CudaOps, ReduceAnyAxes) {
  std::mt19937 random(1);
  const std::pair<Shape, std::vector<int32_t>> cases[] = {
      {{100000}, {0}},          {{3, 50000}, {1}},
      {{50000, 3}, {0}},        {{64, 1000}, {1}},
      {{1000, 64}, {0}},        {{7, 11, 13, 5}, {0, 2}},
      {{7, 11, 13, 5}, {1, 3}}, {{32, 14, 14, 48}, {1, 2}},
      {{4, 0, 3}, {1}},         {{2, 3}, {}},
      {{1, 1}, {0, 1}},         {{33, 31}, {0, 1}}};
  for (const auto& [shape, axes] : cases) {
    for (DType dtype : {DType::kFloat, DType::kDouble, DType::kInt32}) {
      const Tensor x = random_tensor(dtype, shape, random);
      for (const char* op : {"Sum", "Mean", "Max", "Min"})
        expect_same({op, {}, {x, ints(axes)}, 4096});
    }
  }
  const Tensor half = random_tensor(DType::kHalf, {4096, 33}, random);
  expect_same({"Sum", {}, {half, ints({0})}});
  expect_same({"Mean", {{"keep_dims", true}}, {half, ints({1})}});
  expect_same({"BiasAddGrad", {}, {random_tensor(DType::kFloat, {32, 28, 28, 96}, random)}, 4096});
  expect_same({"BiasAddGrad",
               {{"data_format", "NCHW"}},
               {random_tensor(DType::kFloat, {32, 96, 28, 28}, random)},
               4096});
  expect_same({"L2Loss", {}, {random_tensor(DType::kFloat, {123457}, random)}, 4096});
}

TEST_F(CudaOps, MoveElements) {
  std::mt19937 random(1);
  const Tensor x = random_tensor(DType::kFloat, {6, 35, 70, 9}, random);
  for (const std::vector<int32_t>& perm :
       {std::vector<int32_t>{0, 3, 1, 2}, {0, 2, 3, 1}, {3, 2, 1, 0}, {1, 0, 2, 3}, {0, 1, 3, 2}}) {
    expect_same({"Transpose", {}, {x, ints(perm)}});
  }
  const Tensor matrix = random_tensor(DType::kHalf, {1000, 333}, random);
  expect_same({"Transpose", {}, {matrix, ints({1, 0})}});
  expect_same({"ReverseV2", {}, {x, ints({1, 3})}});
  expect_same({"Slice", {}, {x, ints({1, 2, 3, 4}), ints({4, 30, -1, 2})}});
  expect_same({"Tile", {}, {matrix, ints({2, 3})}});
  Tensor paddings = ints({0, 0, 1, 2, 3, 0, 0, 4}).reshaped(Shape{4, 2}).value();
  expect_same({"Pad", {}, {x, paddings}});
}

TEST_F(CudaOps, Convolve) {
  std::mt19937 random(1);
  struct Conv {
    int64_t size, channels, filters, window, stride, dilation;
    const char* padding;
  };
  const Conv cases[] = {
      {12, 3, 8, 3, 1, 1, "SAME"},    {13, 4, 8, 3, 2, 1, "SAME"},  {12, 4, 8, 3, 2, 1, "SAME"},
      {23, 3, 16, 11, 4, 1, "VALID"}, {14, 8, 8, 1, 1, 1, "VALID"}, {15, 4, 6, 5, 3, 1, "VALID"},
      {16, 4, 4, 3, 1, 2, "SAME"},    {9, 5, 7, 2, 2, 1, "SAME"},   {10, 16, 32, 1, 2, 1, "SAME"}};
  for (const Conv& c : cases) {
    for (bool last : {true, false}) {
      for (DType dtype : {DType::kFloat, DType::kDouble, DType::kHalf}) {
        const Shape image = last ? Shape{4, c.size, c.size + 1, c.channels}
                                 : Shape{4, c.channels, c.size, c.size + 1};
        const Tensor x = random_tensor(dtype, image, random);
        const Tensor f = random_tensor(dtype, {c.window, c.window, c.channels, c.filters}, random);
        const std::vector<int64_t> strides = last ? std::vector<int64_t>{1, c.stride, c.stride, 1}
                                                  : std::vector<int64_t>{1, 1, c.stride, c.stride};
        const std::vector<int64_t> dilations =
            last ? std::vector<int64_t>{1, c.dilation, c.dilation, 1}
                 : std::vector<int64_t>{1, 1, c.dilation, c.dilation};
        const AttrMap attrs = {{"strides", strides},
                               {"dilations", dilations},
                               {"padding", c.padding},
                               {"data_format", last ? "NHWC" : "NCHW"}};
        // Rounding is of the sums' terms, not of the sums.
        const double steps = 4096;
        expect_same({"Conv2D", attrs, {x, f}, steps});
        OpTester forward("Conv2D");
        for (const auto& [name, value] : attrs) forward.attr(name, value);
        const Shape out = forward.input(x).input(f).run_one().value().shape();
        const Tensor dy = random_tensor(dtype, out, random);
        const auto sizes = [](const Shape& s) { return ints({s.dims().begin(), s.dims().end()}); };
        expect_same({"Conv2DBackpropInput", attrs, {sizes(image), f, dy}, steps});
        expect_same({"Conv2DBackpropFilter", attrs, {x, sizes(f.shape()), dy}, 8 * steps});
      }
    }
  }
}

// Pools of an image, and their gradients.
void pool(const Shape& image, const AttrMap& attrs, DType dtype, std::mt19937& random) {
  const Tensor x = random_tensor(dtype, image, random);
  OpTester forward("MaxPool");
  for (const auto& [name, value] : attrs) forward.attr(name, value);
  const Tensor y = forward.input(x).run_one().value();
  const Tensor dy = random_tensor(dtype, y.shape(), random);
  const Tensor sizes = ints({image.dims().begin(), image.dims().end()});
  expect_same({"MaxPool", attrs, {x}});
  expect_same({"AvgPool", attrs, {x}});
  expect_same({"MaxPoolGrad", attrs, {x, y, dy}});
  expect_same({"AvgPoolGrad", attrs, {sizes, dy}});
}

TEST_F(CudaOps, Pool) {
  std::mt19937 random(1);
  for (const char* padding : {"SAME", "VALID"}) {
    for (int64_t window : {2, 3}) {
      for (int64_t stride : {1, 2, 3}) {
        for (bool last : {true, false}) {
          const AttrMap attrs = {{"ksize", last ? std::vector<int64_t>{1, window, window, 1}
                                                : std::vector<int64_t>{1, 1, window, window}},
                                 {"strides", last ? std::vector<int64_t>{1, stride, stride, 1}
                                                  : std::vector<int64_t>{1, 1, stride, stride}},
                                 {"padding", padding},
                                 {"data_format", last ? "NHWC" : "NCHW"}};
          // Channels that go in vectors, and others.
          for (int64_t channels : {5, 8}) {
            const Shape image = last ? Shape{3, 13, 14, channels} : Shape{3, channels, 13, 14};
            for (DType dtype : {DType::kFloat, DType::kHalf}) pool(image, attrs, dtype, random);
          }
        }
      }
    }
  }
}

TEST_F(CudaOps, MultiplyMatrices) {
  std::mt19937 random(1);
  for (DType dtype : {DType::kFloat, DType::kDouble, DType::kHalf, DType::kBFloat16}) {
    for (bool ta : {false, true}) {
      for (bool tb : {false, true}) {
        for (const auto& [m, n, k] :
             {std::tuple{3, 5, 7}, {100, 256, 784}, {1, 10, 128}, {4, 4, 0}}) {
          const Tensor a = random_tensor(dtype, ta ? Shape{k, m} : Shape{m, k}, random);
          const Tensor b = random_tensor(dtype, tb ? Shape{n, k} : Shape{k, n}, random);
          expect_same({"MatMul", {{"transpose_a", ta}, {"transpose_b", tb}}, {a, b}, 8192});
        }
        const Tensor x = random_tensor(dtype, ta ? Shape{2, 3, 9, 4} : Shape{2, 3, 4, 9}, random);
        const Tensor y = random_tensor(dtype, tb ? Shape{3, 5, 9} : Shape{3, 9, 5}, random);
        expect_same({"BatchMatMulV2", {{"adj_x", ta}, {"adj_y", tb}}, {x, y}, 256});
      }
    }
  }
}

TEST_F(CudaOps, RowsOfAnyLength) {
  std::mt19937 random(1);
  for (int64_t n : {1, 10, 37, 1000, 40000}) {
    const Tensor x = random_tensor(DType::kFloat, {9, n}, random);
    expect_same({"Softmax", {}, {x}});
    expect_same({"LogSoftmax", {}, {x}});
    Tensor labels = Tensor::allocate(DType::kInt32, Shape{9}).value();
    for (int32_t& label : labels.mutable_data<int32_t>()) {
      label = static_cast<int32_t>(random() % static_cast<unsigned>(n));
    }
    expect_same({"SparseSoftmaxCrossEntropyWithLogits", {}, {x, labels}, 128});
    expect_same({"SoftmaxCrossEntropyWithLogits", {}, {x, x}, 8192});
    expect_same({"ArgMax", {}, {x, Tensor::scalar<int32_t>(1)}});
  }
}

TEST_F(CudaOps, RandomNumbersHaveTheCpusBits) {
  for (DType dtype : {DType::kFloat, DType::kDouble, DType::kHalf, DType::kBFloat16}) {
    for (int32_t n : {1, 5, 1000, 4099}) {
      const AttrMap attrs = {{"seed", int64_t{7}}, {"seed2", int64_t{11}}, {"dtype", dtype}};
      expect_same({"RandomUniform", attrs, {ints({n})}, 0});
      // From the same bits, by functions of which the last one may differ.
      expect_same({"RandomStandardNormal", attrs, {ints({n})}});
      expect_same({"TruncatedNormal", attrs, {ints({n})}});
    }
  }
}

TEST_F(CudaOps, WhatTheDeviceFindsIsAnErrorOfTheOp) {
  const Tensor params = Tensor::vector<float>({1, 2, 3});
  set_op_env_device(make_gpu);
  OpEnv env;
  const auto gather = [&](int32_t index) {
    return OpTester(env, "Gather").input(params).input(ints({0, index})).run_one();
  };
  const Status bad = gather(3).status();
  EXPECT_EQ(bad.code(), Code::kInvalidArgument);
  EXPECT_NE(bad.to_string().find("indices[1] is not in [0, 3)"), std::string::npos)
      << bad.to_string();
  EXPECT_NE(bad.to_string().find("Gather"), std::string::npos) << bad.to_string();
  EXPECT_TRUE(gather(2).ok());
  const Status zero =
      OpTester(env, "FloorDiv").input(ints({1})).input(ints({0})).run_one().status();
  EXPECT_EQ(zero.code(), Code::kInvalidArgument);
  const Tensor logits = Tensor::of<float>({1, 2}, {1, 2});
  EXPECT_EQ(OpTester(env, "SparseSoftmaxCrossEntropyWithLogits")
                .input(logits)
                .input(ints({2}))
                .run()
                .status()
                .code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
