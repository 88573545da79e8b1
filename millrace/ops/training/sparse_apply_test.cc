#include <set>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/training/optimizer_testing.h"

namespace millrace {
namespace {

class SparseApplyTest : public OptimizerTest {
 protected:
  static Tensor make_indices(DType dtype, const std::vector<int64_t>& rows) {
    Numbers numbers;
    for (int64_t row : rows) numbers.emplace_back(static_cast<double>(row));
    return make_tensor(dtype, {static_cast<int64_t>(rows.size())}, numbers);
  }
  std::vector<int64_t> random_rows(int64_t count, int64_t rows) {
    std::vector<int64_t> chosen;
    for (int64_t i = 0; i < count; ++i) {
      chosen.push_back(static_cast<int64_t>(random_()) % rows);
    }
    return chosen;
  }
  std::vector<Tensor> slots_of(const OptimizerCase& c, DType dtype, const Shape& shape) {
    std::vector<Tensor> slots;
    for (const Numbers& slot : random_slots(c, shape.num_elements())) {
      slots.push_back(make_tensor(dtype, shape, slot));
    }
    return slots;
  }
};

TEST_F(SparseApplyTest, EveryOptimizerTypeAndKindOfVariable) {
  struct Size {
    int64_t rows, width;
    std::vector<int64_t> indices;
  };
  const Size sizes[] = {{4, 1, {2}},
                        {5, 3, {4, 0, 4, 1}},  // row 4 twice, rows 2 and 3 never
                        {6, 40, {5, 5, 0, 2, 5}},
                        {3, 2, {}}};
  for (const OptimizerCase& c : optimizer_cases()) {
    for (DType dtype : kDtypes) {
      for (const Size& size : sizes) {
        SCOPED_TRACE(str_cat(c.name, " ", dtype, " ", size.rows, "x", size.width));
        const int64_t n = static_cast<int64_t>(size.indices.size());
        const Shape shape{size.rows, size.width};
        std::vector<Numbers> expected = random_slots(c, shape.num_elements());
        const Numbers grad = random_gradient(n * size.width);
        std::vector<Tensor> slots;
        for (const Numbers& slot : expected) slots.push_back(make_tensor(dtype, shape, slot));
        for (size_t i = 0; i < grad.size(); ++i) {
          const size_t width = static_cast<size_t>(size.width);
          const size_t at = static_cast<size_t>(size.indices[i / width]) * width + i % width;
          std::vector<double> element;
          for (auto& slot : expected) element.push_back(slot[at].real());
          c.step(element, c.scalars, grad[i].real());
          for (size_t k = 0; k < element.size(); ++k) expected[k][at] = element[k];
        }
        const Tensor gradient = make_tensor(dtype, {n, size.width}, grad);
        for (char form : {'s', 'R'}) {
          for (DType index_type : {DType::kInt32, DType::kInt64}) {
            if (!c.has(form)) continue;
            Result<std::vector<Tensor>> after =
                run_form(c, form, slots, gradient, make_indices(index_type, size.indices));
            ASSERT_TRUE(after.ok()) << after.status().to_string();
            expect_near(*after, expected);
          }
        }
      }
    }
  }
}

TEST_F(SparseApplyTest, AllRowsAreTheDenseUpdate) {
  for (const OptimizerCase& c : optimizer_cases()) {
    if (!c.has('R')) continue;
    for (DType dtype : kDtypes) {
      SCOPED_TRACE(str_cat(c.name, " ", dtype));
      const Shape shape{5, 3, 7};
      const std::vector<Tensor> slots = slots_of(c, dtype, shape);
      const Tensor grad = make_tensor(dtype, shape, random_gradient(shape.num_elements()));
      expect_same(
          run_form(c, 'R', slots, grad, make_indices(DType::kInt32, {0, 1, 2, 3, 4})).value(),
          run_form(c, 'r', slots, grad).value());
    }
  }
}

// Buckets of rows and strips of columns give what one row after the other gives.
TEST_F(SparseApplyTest, ResultsDoNotDependOnThreads) {
  struct Size {
    int64_t rows, width, ids;
  };
  for (const Size& size : {Size{300, 64, 3000}, Size{40, 1000, 50}, Size{7, 9000, 20}}) {
    for (const char* name : {"Adagrad", "Momentum", "CenteredRMSProp"}) {
      for (DType dtype : {DType::kFloat, DType::kBFloat16}) {
        SCOPED_TRACE(str_cat(name, " ", size.width, " ", dtype));
        const OptimizerCase& c = optimizer_case(name);
        const std::vector<int64_t> rows = random_rows(size.ids, size.rows);
        const std::vector<Tensor> slots = slots_of(c, dtype, {size.rows, size.width});
        const Tensor grad =
            make_tensor(dtype, {size.ids, size.width}, random_gradient(size.ids * size.width));
        const Tensor indices = make_indices(DType::kInt64, rows);
        // Too few rows at a time to be worth sharing.
        std::vector<Tensor> in_order = slots;
        for (int64_t i = 0; i < size.ids; i += 10) {
          in_order =
              run_form(c, 's', in_order, grad.rows(i, i + 10), indices.rows(i, i + 10), 1).value();
        }
        expect_same(run_form(c, 's', slots, grad, indices, 1).value(), in_order);
        expect_same(run_form(c, 's', slots, grad, indices, 4).value(), in_order);
        expect_same(run_form(c, 'R', slots, grad, indices, 3).value(), in_order);
      }
    }
  }
}

TEST_F(SparseApplyTest, OtherRowsAreNotTouched) {
  Tensor var = Tensor::allocate(DType::kFloat, {1000, 3}).value();
  for (float& x : var.mutable_data<float>()) x = static_cast<float>(random_());
  const std::vector<int64_t> rows = random_rows(100, 1000);
  const std::set<int64_t> touched(rows.begin(), rows.end());
  const OptimizerCase& c = optimizer_case("GradientDescent");
  const Tensor grad = make_tensor(DType::kFloat, {100, 3}, Numbers(300, 1e9));
  const std::vector<Tensor> after =
      run_form(c, 'R', {var}, grad, make_indices(DType::kInt32, rows)).value();
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(bit_equal(after[0].row(i), var.row(i)), !touched.contains(i)) << i;
  }
}

TEST_F(SparseApplyTest, EmptyTensors) {
  const OptimizerCase& c = optimizer_case("Adagrad");
  struct Empty {
    Shape var, grad;
    std::vector<int64_t> indices;
  };
  for (const Empty& e : {Empty{{0}, {0}, {}}, Empty{{0, 3}, {0, 3}, {}},
                         Empty{{3, 0}, {2, 0}, {1, 1}}, Empty{{3, 2}, {0, 2}, {}}}) {
    const std::vector<Tensor> slots = slots_of(c, DType::kFloat, e.var);
    const Tensor grad = make_tensor(DType::kFloat, e.grad, {});
    for (char form : {'s', 'R'}) {
      expect_same(run_form(c, form, slots, grad, make_indices(DType::kInt32, e.indices)).value(),
                  slots);
    }
  }
}

TEST_F(SparseApplyTest, BadInput) {
  const OptimizerCase& c = optimizer_case("Adagrad");
  const std::vector<Tensor> slots = slots_of(c, DType::kFloat, {5, 2});
  const auto run = [&](const Tensor& indices, const Shape& grad_shape) {
    const Tensor grad =
        make_tensor(DType::kFloat, grad_shape, random_gradient(grad_shape.num_elements()));
    Status status = run_form(c, 's', slots, grad, indices).status();
    EXPECT_EQ(status, run_form(c, 'R', slots, grad, indices).status());
    return status;
  };
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    expect_error(run(make_indices(dtype, {0, 5}), {2, 2}), Code::kInvalidArgument,
                 "indices[1] = 5 is not in [0, 5)");
    expect_error(run(make_indices(dtype, {-1, 0}), {2, 2}), Code::kInvalidArgument,
                 "indices[0] = -1 is not in [0, 5)");
  }
  const Tensor huge = Tensor::vector<int64_t>({INT64_MIN, INT64_MAX});
  expect_error(run(huge, {2, 2}), Code::kInvalidArgument, "is not in [0, 5)");
  expect_error(run(make_indices(DType::kInt64, {3, 1}), {3, 2}), Code::kInvalidArgument,
               "grad must have one row of var for each index, [2,2], got [3,2]");
  expect_error(run(make_indices(DType::kInt64, {3, 1}), {2, 3}), Code::kInvalidArgument,
               "grad must have one row of var for each index, [2,2], got [2,3]");
  expect_error(run(make_indices(DType::kInt64, {3, 1}), {2}), Code::kInvalidArgument, "got [2]");
  expect_error(run(Tensor::scalar(int32_t{1}), {1, 2}), Code::kInvalidArgument,
               "indices must be a vector, got []");

  const Tensor row = Tensor::vector<float>({1}), index = Tensor::vector<int32_t>({0});
  const Tensor rate = Tensor::scalar(0.5F);
  expect_error(run_form(c, 's', {Tensor::scalar(1.0F), Tensor::scalar(1.0F)}, row, index),
               Code::kInvalidArgument, "var must have rank 1 or more, got []");
  expect_error(
      run_form(c, 's', {Tensor::vector<float>({1}), Tensor::vector<float>({1, 2})}, row, index),
      Code::kInvalidArgument, "accum must have the shape of var, [1], got [2]");
  Ref<RefCell> var = make_ref_cell(row), none = make_ref_cell();
  none->name = "none";
  const auto adagrad = [&](const Ref<RefCell>& accum, const Tensor& lr) {
    return op("SparseApplyAdagrad")
        .attr("T", DType::kFloat)
        .input_ref(var)
        .input_ref(accum)
        .input(lr)
        .input(row)
        .input(index)
        .run();
  };
  expect_error(adagrad(none, rate), Code::kFailedPrecondition, "uninitialized value none");
  expect_error(adagrad(var, rate), Code::kInvalidArgument, "must be different variables");
  expect_error(adagrad(none, row), Code::kInvalidArgument, "lr is not a scalar: [1]");
  expect_equal(var->read(), Tensor::vector<float>({1}));
}

TEST_F(SparseApplyTest, ReadersKeepWhatTheyRead) {
  const Tensor v = variable("v", Tensor::vector<float>({1, 2, 3}));
  const Tensor before = read(v).value();
  ASSERT_TRUE(op("ResourceSparseApplyGradientDescent")
                  .input(v)
                  .input(Tensor::scalar(1.0F))
                  .input(Tensor::vector<float>({1, 2}))
                  .input(Tensor::vector<int32_t>({2, 2}))
                  .run()
                  .ok());
  expect_equal(before, Tensor::vector<float>({1, 2, 3}));
  expect_equal(read(v), Tensor::vector<float>({1, 2, 0}));

  // Without a lock a reference variable is changed under its readers, with it it is not.
  for (bool locked : {false, true}) {
    Ref<RefCell> var = make_ref_cell(Tensor::vector<float>({1, 2}));
    const Tensor seen = var->read();
    ASSERT_TRUE(op("SparseApplyGradientDescent")
                    .attr("use_locking", locked)
                    .input_ref(var)
                    .input(Tensor::scalar(1.0F))
                    .input(Tensor::vector<float>({1}))
                    .input(Tensor::vector<int32_t>({1}))
                    .run()
                    .ok());
    expect_equal(seen, Tensor::vector<float>({1, locked ? 2.0F : 1.0F}));
    expect_equal(var->read(), Tensor::vector<float>({1, 1}));
  }
}

TEST_F(SparseApplyTest, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  const auto shapes = [&](std::string_view in) {
    return infer_shapes(ops, "SparseApplyAdagrad", {}, in);
  };
  EXPECT_EQ(*shapes("[9,?];?;[];[4,3];[4]"), "[9,?]");
  EXPECT_EQ(*shapes("?;[9,3];[];?;[4]"), "[9,3]");
  EXPECT_FALSE(shapes("[9,3];[9,4];[];[4,3];[4]").ok());
  EXPECT_FALSE(shapes("[9,3];?;[1];[4,3];[4]").ok());
  EXPECT_FALSE(shapes("[9,3];?;[];[4,2];[4]").ok());
  EXPECT_FALSE(shapes("[9,3];?;[];[4,3];[5]").ok());
  EXPECT_FALSE(shapes("[9,3];?;[];[4,3];[4,1]").ok());
  EXPECT_FALSE(shapes("[];?;[];[4];[4]").ok());
  EXPECT_EQ(*infer_shapes(ops, "SparseApplyFtrl", {}, "[9];?;?;[4];[4];[];[];[];[]"), "[9]");
  EXPECT_FALSE(infer_shapes(ops, "SparseApplyFtrl", {}, "[9];?;?;[4];[4];[];[];[1];[]").ok());
  EXPECT_EQ(*infer_shapes(ops, "ResourceSparseApplyMomentum", {}, "[];[];[];[2];[2];[]"), "");
}

}  // namespace
}  // namespace millrace
