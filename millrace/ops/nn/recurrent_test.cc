// Recurrent cells in one op, against cells made of other ops and against differences.

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/isa_table.h"
#include "millrace/ops/nn/nn_testing.h"
#include "millrace/ops/nn/recurrent_loops.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_for_tests(
    {register_array_ops, register_linalg_ops, register_math_ops, register_nn_ops});

class Recurrent : public testing::Test {
 protected:
  Tensor random(const Shape& shape, DType type = DType::kDouble) {
    std::vector<double> values(static_cast<size_t>(shape.num_elements()));
    for (double& v : values) v = std::normal_distribution<double>(0, 0.5)(engine_);
    return tensor_of(type, shape, values);
  }
  // x, cs_prev, h_prev, w, wci, wcf, wco and b of a cell, or of a sequence of `steps`.
  std::vector<Tensor> lstm_inputs(int64_t batch, int64_t inputs, int64_t cells,
                                  DType type = DType::kDouble, int64_t steps = 0) {
    const Shape x = steps > 0 ? Shape{steps, batch, inputs} : Shape{batch, inputs};
    std::vector<Tensor> all = {random(x, type), random({batch, cells}, type),
                               random({batch, cells}, type),
                               random({inputs + cells, 4 * cells}, type)};
    for (int i = 0; i < 3; ++i) all.push_back(random({cells}, type));
    all.push_back(random({4 * cells}, type));
    return all;
  }
  static OpTester& with(OpTester& tester, const std::vector<Tensor>& inputs) {
    for (const Tensor& t : inputs) tester.input(t);
    return tester;
  }
  static std::vector<Tensor> run(const char* op, const std::vector<Tensor>& inputs,
                                 const AttrMap& attrs = {}) {
    OpTester tester(op);
    for (const auto& [name, value] : attrs) tester.attr(name, value);
    Result<std::vector<Tensor>> out = with(tester, inputs).run();
    EXPECT_TRUE(out.ok()) << op << ": " << out.status().to_string();
    return out.ok() ? *out : std::vector<Tensor>(8);
  }
  static Tensor one(const char* op, const std::vector<Tensor>& inputs, const AttrMap& attrs = {}) {
    return run(op, inputs, attrs)[0];
  }

  // The cell made of other ops, in the order of LSTMBlockCell's outputs.
  static std::vector<Tensor> lstm_of_ops(const std::vector<Tensor>& in, float forget_bias,
                                         float clip, bool peephole) {
    const DType type = in[0].dtype();
    const Tensor axis = Tensor::scalar<int32_t>(1);
    OpTester concat("ConcatV2");
    const Tensor joined = concat.input_list({in[0], in[2]}).input(axis).run_one().value();
    const Tensor sums = one("BiasAdd", {one("MatMul", {joined, in[3]}), in[7]});
    const std::vector<Tensor> gates = run("Split", {axis, sums}, {{"num_split", 4}});
    const auto scalar = [&](double v) { return tensor_of(type, {}, {v}); };
    const auto sigmoid = [&](const Tensor& t) { return one("Sigmoid", {t}); };
    const auto peep = [&](const Tensor& sum, const Tensor& w, const Tensor& cs) {
      return peephole ? one("AddV2", {sum, one("Mul", {w, cs})}) : sum;
    };
    const Tensor i = sigmoid(peep(gates[0], in[4], in[1]));
    const Tensor f = sigmoid(peep(one("AddV2", {gates[2], scalar(forget_bias)}), in[5], in[1]));
    const Tensor ci = one("Tanh", {gates[1]});
    Tensor cs = one("AddV2", {one("Mul", {f, in[1]}), one("Mul", {i, ci})});
    if (clip > 0) cs = one("Maximum", {one("Minimum", {cs, scalar(clip)}), scalar(-clip)});
    const Tensor o = sigmoid(peep(gates[3], in[6], cs)), co = one("Tanh", {cs});
    return {i, cs, f, o, ci, co, one("Mul", {o, co})};
  }

  static double weighted(const std::vector<Tensor>& out, const Tensor& cs_weights,
                         const Tensor& h_weights, size_t cs, size_t h) {
    double sum = 0;
    const auto add = [&](const Tensor& y, const Tensor& w) {
      for (int64_t k = 0; k < y.num_elements(); ++k) {
        sum += doubles_of(y)[static_cast<size_t>(k)] * doubles_of(w)[static_cast<size_t>(k)];
      }
    };
    if (cs_weights.valid()) add(out[cs], cs_weights);
    add(out[h], h_weights);
    return sum;
  }

  // The gradient of `loss` by each element of an input, by central differences.
  template <class Loss>
  static std::vector<double> differences(std::vector<Tensor> inputs, size_t which, Loss loss) {
    std::vector<double> out;
    const std::vector<double> at = doubles_of(inputs[which]);
    const Shape shape = inputs[which].shape();
    for (size_t k = 0; k < at.size(); ++k) {
      constexpr double kStep = 1e-5;
      double both = 0;
      for (double sign : {1.0, -1.0}) {
        std::vector<double> moved = at;
        moved[k] += sign * kStep;
        inputs[which] = tensor_of(DType::kDouble, shape, moved);
        both += sign * loss(inputs);
      }
      out.push_back(both / (2 * kStep));
    }
    return out;
  }
  static void expect_near(const Tensor& got, const std::vector<double>& want, double tolerance,
                          const std::string& what) {
    const std::vector<double> values = doubles_of(got);
    ASSERT_EQ(values.size(), want.size()) << what;
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_NEAR(values[k], want[k], tolerance) << what << " " << k;
    }
  }

  std::mt19937 engine_{12};
};

TEST_F(Recurrent, AnLstmCellHasTheBitsOfOneMadeOfOps) {
  for (const auto& [batch, inputs, cells] :
       {std::array<int64_t, 3>{1, 1, 1}, {3, 5, 7}, {20, 33, 130}}) {
    for (bool peephole : {false, true}) {
      for (float clip : {0.0F, 0.3F}) {
        for (DType type : {DType::kFloat, DType::kDouble}) {
          SCOPED_TRACE(str_cat(batch, "x", inputs, "x", cells, " ", peephole, " ", clip));
          const std::vector<Tensor> in = lstm_inputs(batch, inputs, cells, type);
          const auto got =
              run("LSTMBlockCell", in,
                  {{"forget_bias", 0.75F}, {"cell_clip", clip}, {"use_peephole", peephole}});
          const auto want = lstm_of_ops(in, 0.75F, clip, peephole);
          for (size_t k = 0; k < 7; ++k) EXPECT_TRUE(bit_equal(got[k], want[k])) << k;
        }
      }
    }
  }
}

TEST_F(Recurrent, HalfPrecisionIsComputedInFloat) {
  for (DType type : {DType::kHalf, DType::kBFloat16}) {
    const std::vector<Tensor> in = lstm_inputs(3, 4, 6, type);
    std::vector<Tensor> wide;
    for (const Tensor& t : in) wide.push_back(tensor_of(DType::kFloat, t.shape(), doubles_of(t)));
    const auto got = run("LSTMBlockCell", in), want = run("LSTMBlockCell", wide);
    for (size_t k = 0; k < 7; ++k) {
      const Tensor narrow = tensor_of(type, want[k].shape(), doubles_of(want[k]));
      EXPECT_TRUE(bit_equal(got[k], narrow)) << k;
    }
  }
}

TEST_F(Recurrent, ThreadsAndInstructionSetsGiveTheSameBits) {
  const std::vector<Tensor> in = lstm_inputs(40, 150, 300, DType::kFloat);
  OpTester one_thread("LSTMBlockCell"), more("LSTMBlockCell");
  const auto a = with(one_thread.threads(1), in).run().value();
  const auto b = with(more.threads(4), in).run().value();
  for (size_t k = 0; k < 7; ++k) EXPECT_TRUE(bit_equal(a[k], b[k])) << k;

  // Every copy of the loops, with a rest that is no whole vector.
  constexpr int64_t kUnits = 45;
  const Tensor rows = random({16, kUnits}, DType::kFloat);
  const auto row = [&](int64_t r) { return rows.data<float>().data() + r * kUnits; };
  std::vector<std::vector<float>> results;
  for (const Isa isa : kIsas) {
    if (isa > machine_isa()) break;
    std::vector<float> out(7 * kUnits);
    LstmUnits<float> u{{row(0), row(1), row(2), row(3)},
                       {row(4), row(5), row(6), row(7)},
                       row(8),
                       {row(9), row(10), row(11)},
                       1.0F,
                       0.25F,
                       out.data(),
                       out.data() + kUnits,
                       out.data() + 2 * kUnits,
                       out.data() + 3 * kUnits,
                       out.data() + 4 * kUnits,
                       out.data() + 5 * kUnits,
                       out.data() + 6 * kUnits};
    isa_table<RecurrentLoops<float>>(isa).lstm(kUnits, u);
    results.push_back(std::move(out));
  }
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST_F(Recurrent, AnLstmCellsGradientIsThatOfItsValue) {
  for (bool peephole : {false, true}) {
    const AttrMap attrs = {{"cell_clip", 0.0F}, {"use_peephole", peephole}};
    const std::vector<Tensor> in = lstm_inputs(2, 3, 4);
    const Tensor cs_grad = random({2, 4}), h_grad = random({2, 4});
    const std::vector<Tensor> values = run("LSTMBlockCell", in, attrs);
    std::vector<Tensor> all = in;
    all.insert(all.end(), values.begin(), values.begin() + 6);
    all.push_back(cs_grad);
    all.push_back(h_grad);
    const auto grads = run("LSTMBlockCellGrad", all, {{"use_peephole", peephole}});
    const auto loss = [&](const std::vector<Tensor>& at) {
      return weighted(run("LSTMBlockCell", at, attrs), cs_grad, h_grad, 1, 6);
    };
    expect_near(grads[0], differences(in, 1, loss), 1e-8, "cs_prev");
    for (size_t p = 0; p < 3; ++p) {
      if (peephole) {
        expect_near(grads[2 + p], differences(in, 4 + p, loss), 1e-8, "peephole");
      } else {
        expect_near(grads[2 + p], std::vector<double>(4, 0.0), 0, "peephole");
      }
    }
    // Those of the gates' sums add up to that of the bias.
    std::vector<double> sums(16);
    const std::vector<double> gates = doubles_of(grads[1]);
    for (size_t k = 0; k < gates.size(); ++k) sums[k % 16] += gates[k];
    expect_near(tensor_of(DType::kDouble, {16}, sums), differences(in, 7, loss), 1e-8, "bias");
  }
}

// Columns of i, ci, f, o in the order i, f, ci, o, along the last dimension.
Tensor in_v2_order(const Tensor& t) {
  const int64_t columns = t.dim(t.rank() - 1), cells = columns / 4;
  std::vector<double> values = doubles_of(t);
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(columns)) {
    for (int64_t k = 0; k < cells; ++k) {
      std::swap(values[row + static_cast<size_t>(cells + k)],
                values[row + static_cast<size_t>(2 * cells + k)]);
    }
  }
  return tensor_of(t.dtype(), t.shape(), values);
}

TEST_F(Recurrent, ASequenceIsItsStepsAndThenZeros) {
  constexpr int64_t kSteps = 5, kDone = 3, kBatch = 2, kCells = 4;
  for (bool v2 : {false, true}) {
    for (bool peephole : {false, true}) {
      const float forget_bias = v2 ? 0.0F : 1.0F;
      std::vector<Tensor> in = lstm_inputs(kBatch, 3, kCells, DType::kDouble, kSteps);
      std::vector<Tensor> given = {Tensor::scalar<int64_t>(kDone)};
      given.insert(given.end(), in.begin(), in.end());
      if (v2) {
        given[4] = in_v2_order(in[3]);
        given[8] = in_v2_order(in[7]);
      }
      const auto all = run(v2 ? "BlockLSTMV2" : "BlockLSTM", given,
                           {{"cell_clip", 0.4F}, {"use_peephole", peephole}});
      std::vector<Tensor> now = in;
      for (int64_t step = 0; step < kSteps; ++step) {
        const std::vector<double> x = doubles_of(in[0]);
        const size_t size = kBatch * 3;
        now[0] = tensor_of(DType::kDouble, {kBatch, 3},
                           {x.begin() + step * static_cast<int64_t>(size),
                            x.begin() + (step + 1) * static_cast<int64_t>(size)});
        const auto want = lstm_of_ops(now, forget_bias, 0.4F, peephole);
        for (size_t k = 0; k < 7; ++k) {
          const std::vector<double> values = doubles_of(all[k]), wanted = doubles_of(want[k]);
          for (size_t e = 0; e < wanted.size(); ++e) {
            const double expected = step < kDone ? wanted[e] : 0;
            EXPECT_NEAR(values[static_cast<size_t>(step) * wanted.size() + e], expected, 1e-12)
                << "step " << step << ", output " << k;
          }
        }
        now[1] = want[1];
        now[2] = want[6];
      }
    }
  }
}

TEST_F(Recurrent, ASequencesGradientIsThatOfItsValue) {
  constexpr int64_t kSteps = 4, kBatch = 2, kCells = 3;
  for (bool v2 : {false, true}) {
    for (int64_t done : {4, 1, 3, 0}) {
      const bool peephole = done != 1;
      SCOPED_TRACE(str_cat(v2 ? "V2 " : "", done, " steps"));
      const AttrMap attrs = {{"cell_clip", 0.0F}, {"use_peephole", peephole}};
      const char* const op = v2 ? "BlockLSTMV2" : "BlockLSTM";
      const Tensor cs_grad = random({kSteps, kBatch, kCells}),
                   h_grad = random({kSteps, kBatch, kCells});
      const std::vector<Tensor> in = lstm_inputs(kBatch, 2, kCells, DType::kDouble, kSteps);
      const auto forward = [&](const std::vector<Tensor>& at) {
        std::vector<Tensor> given = {Tensor::scalar<int64_t>(done)};
        given.insert(given.end(), at.begin(), at.end());
        return run(op, given, attrs);
      };
      std::vector<Tensor> all = {Tensor::scalar<int64_t>(done)};
      all.insert(all.end(), in.begin(), in.end());
      const std::vector<Tensor> values = forward(in);
      all.insert(all.end(), values.begin(), values.begin() + 7);
      all.push_back(cs_grad);
      all.push_back(h_grad);
      const auto grads =
          run(v2 ? "BlockLSTMGradV2" : "BlockLSTMGrad", all, {{"use_peephole", peephole}});
      const auto loss = [&](const std::vector<Tensor>& at) {
        return weighted(forward(at), cs_grad, h_grad, 1, 6);
      };
      for (size_t k = 0; k < 8; ++k) {
        expect_near(grads[k], differences(in, k, loss), 1e-7, str_cat("input ", k));
      }
    }
  }
}

TEST_F(Recurrent, AGruCellHasTheBitsOfOneMadeOfOps) {
  for (DType type : {DType::kFloat, DType::kDouble}) {
    const int64_t batch = 20, inputs = 33, cells = 130;
    const Tensor x = random({batch, inputs}, type), h = random({batch, cells}, type);
    const Tensor w_ru = random({inputs + cells, 2 * cells}, type);
    const Tensor w_c = random({inputs + cells, cells}, type);
    const Tensor b_ru = random({2 * cells}, type), b_c = random({cells}, type);
    const auto got = run("GRUBlockCell", {x, h, w_ru, w_c, b_ru, b_c});
    const Tensor axis = Tensor::scalar<int32_t>(1);
    const auto join = [&](const Tensor& a, const Tensor& b) {
      return OpTester("ConcatV2").input_list({a, b}).input(axis).run_one().value();
    };
    const Tensor sums = one("BiasAdd", {one("MatMul", {join(x, h), w_ru}), b_ru});
    const auto gates = run("Split", {axis, one("Sigmoid", {sums})}, {{"num_split", 2}});
    const Tensor seen = join(x, one("Mul", {gates[0], h}));
    const Tensor c = one("Tanh", {one("BiasAdd", {one("MatMul", {seen, w_c}), b_c})});
    const Tensor rest = one("Sub", {tensor_of(type, {}, {1}), gates[1]});
    const Tensor new_h = one("AddV2", {one("Mul", {gates[1], h}), one("Mul", {rest, c})});
    EXPECT_TRUE(bit_equal(got[0], gates[0]));
    EXPECT_TRUE(bit_equal(got[1], gates[1]));
    EXPECT_TRUE(bit_equal(got[2], c));
    EXPECT_TRUE(bit_equal(got[3], new_h));
  }
}

TEST_F(Recurrent, AGruCellsGradientIsThatOfItsValue) {
  const std::vector<Tensor> in = {random({2, 3}), random({2, 4}), random({7, 8}),
                                  random({7, 4}), random({8}),    random({4})};
  const Tensor h_grad = random({2, 4});
  const auto values = run("GRUBlockCell", in);
  std::vector<Tensor> all = in;
  all.insert(all.end(), values.begin(), values.begin() + 3);
  all.push_back(h_grad);
  const auto grads = run("GRUBlockCellGrad", all);
  const auto loss = [&](const std::vector<Tensor>& at) {
    return weighted(run("GRUBlockCell", at), Tensor(), h_grad, 0, 3);
  };
  expect_near(grads[0], differences(in, 0, loss), 1e-8, "x");
  expect_near(grads[1], differences(in, 1, loss), 1e-8, "h_prev");
  for (size_t k : {2, 3}) {
    const size_t columns = k == 2 ? 4 : 8;
    std::vector<double> sums(columns);
    const std::vector<double> each = doubles_of(grads[k]);
    for (size_t e = 0; e < each.size(); ++e) sums[e % columns] += each[e];
    expect_near(tensor_of(DType::kDouble, {static_cast<int64_t>(columns)}, sums),
                differences(in, k == 2 ? 5 : 4, loss), 1e-8, "bias");
  }
}

TEST_F(Recurrent, MistakesAreNamed) {
  const std::vector<Tensor> good = lstm_inputs(2, 3, 4, DType::kFloat);
  const auto refusal = [&](size_t which, const Shape& shape, bool peephole = false) {
    std::vector<Tensor> in = good;
    in[which] = random(shape, DType::kFloat);
    OpTester tester("LSTMBlockCell");
    return error_of(with(tester.attr("use_peephole", peephole), in));
  };
  EXPECT_HAS(refusal(0, {2, 3, 1}), "x must have shape [?,?], got [2,3,1]");
  EXPECT_HAS(refusal(1, {3, 4}), "cs_prev must have shape");
  EXPECT_HAS(refusal(2, {2, 5}), "h_prev must have shape [2,4], got [2,5]");
  EXPECT_HAS(refusal(3, {7, 12}), "w must have shape [?,16], got [7,12]");
  EXPECT_HAS(refusal(3, {6, 16}), "w must have a row for each of the 3 inputs and the 4 units");
  EXPECT_HAS(refusal(7, {12}), "b must have shape [16], got [12]");
  EXPECT_HAS(refusal(4, {3}, true), "wci must have shape [4], got [3]");
  EXPECT_EQ(refusal(4, {3}, false), "ok");
  EXPECT_HAS(refusal(5, {4, 1}, false), "wcf must have");
  std::vector<Tensor> sequence = lstm_inputs(2, 3, 4, DType::kFloat, 5);
  for (int64_t length : {int64_t{-1}, int64_t{6}, INT64_MAX, INT64_MIN}) {
    OpTester tester("BlockLSTM");
    tester.input(Tensor::scalar<int64_t>(length));
    EXPECT_HAS(error_of(with(tester, sequence)), "seq_len_max must be at least 0");
  }
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "LSTMBlockCell", {}, "[2,?];?;[?,4];?;?;?;?;?"),
            "[2,4];[2,4];[2,4];[2,4];[2,4];[2,4];[2,4]");
  EXPECT_EQ(*infer_shapes(ops, "GRUBlockCell", {}, "[2,3];?;?;[7,?];?;[4]"),
            "[2,4];[2,4];[2,4];[2,4]");
  EXPECT_FALSE(infer_shapes(ops, "GRUBlockCell", {}, "[2,3];[2,4];[7,8];[8,4];[8];[4]").ok());
}

}  // namespace
}  // namespace millrace
