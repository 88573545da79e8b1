#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_linalg_ops});

using C = Complex128;

constexpr DType kTypes[] = {DType::kFloat, DType::kDouble, DType::kComplex64, DType::kComplex128};

bool is_complex(DType type) { return kComplex.contains(type); }
double precision(DType type) {
  return type == DType::kFloat || type == DType::kComplex64 ? 1e-4 : 1e-11;
}

// A batch of matrices as plain vectors, for the tests' own arithmetic.
struct Matrix {
  size_t rows, columns;
  std::vector<C> data;
  C& at(size_t i, size_t j) { return data[i * columns + j]; }
  C at(size_t i, size_t j) const { return data[i * columns + j]; }
};

Matrix make(size_t rows, size_t columns) { return {rows, columns, std::vector<C>(rows * columns)}; }

Matrix random_matrix(size_t rows, size_t columns, DType type, std::mt19937& random) {
  Matrix m = make(rows, columns);
  const auto draw = [&] { return static_cast<double>(random() % 65) / 16 - 2; };
  for (C& value : m.data) value = C(draw(), is_complex(type) ? draw() : 0);
  return m;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix out = make(a.rows, b.columns);
  for (size_t i = 0; i < a.rows; ++i) {
    for (size_t k = 0; k < a.columns; ++k) {
      for (size_t j = 0; j < b.columns; ++j) out.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return out;
}

Matrix adjoint(const Matrix& a) {
  Matrix out = make(a.columns, a.rows);
  for (size_t i = 0; i < a.rows; ++i) {
    for (size_t j = 0; j < a.columns; ++j) out.at(j, i) = std::conj(a.at(i, j));
  }
  return out;
}

Matrix identity(size_t n) {
  Matrix out = make(n, n);
  for (size_t i = 0; i < n; ++i) out.at(i, i) = 1;
  return out;
}

Matrix triangle(Matrix a, bool lower) {
  for (size_t i = 0; i < a.rows; ++i) {
    for (size_t j = 0; j < a.columns; ++j) {
      if (lower ? j > i : j < i) a.at(i, j) = 0;
    }
  }
  return a;
}

// `count` matrices in one tensor.
Tensor tensor_of(DType type, const std::vector<Matrix>& all) {
  std::vector<C> values;
  for (const Matrix& m : all) values.insert(values.end(), m.data.begin(), m.data.end());
  return make_tensor(type,
                     Shape{static_cast<int64_t>(all.size()), static_cast<int64_t>(all[0].rows),
                           static_cast<int64_t>(all[0].columns)},
                     values);
}

std::vector<Matrix> matrices_of(const Tensor& t) {
  const std::vector<C> values = values_of(t);
  const auto rows = static_cast<size_t>(t.dim(1)), columns = static_cast<size_t>(t.dim(2));
  std::vector<Matrix> out;
  for (size_t i = 0; i < static_cast<size_t>(t.dim(0)); ++i) {
    Matrix m = make(rows, columns);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i * rows * columns), rows * columns,
                m.data.begin());
    out.push_back(std::move(m));
  }
  return out;
}

void expect_near(const Matrix& got, const Matrix& want, double tolerance) {
  ASSERT_EQ(got.data.size(), want.data.size());
  for (size_t i = 0; i < want.data.size(); ++i) {
    EXPECT_LE(std::abs(got.data[i] - want.data[i]),
              tolerance * std::max(1.0, std::abs(want.data[i])))
        << "element " << i << ": " << got.data[i].real() << " for " << want.data[i].real();
  }
}

class Decompositions : public testing::Test {
 protected:
  // Two well-conditioned matrices.
  std::vector<Matrix> square(size_t n, DType type) {
    std::vector<Matrix> all;
    for (int k = 0; k < 2; ++k) {
      all.push_back(random_matrix(n, n, type, random_));
      for (size_t i = 0; i < n; ++i) all.back().at(i, i) += 3.0 * static_cast<double>(n);
    }
    return all;
  }
  std::mt19937 random_{9};
};

TEST_F(Decompositions, InverseAndSolve) {
  for (DType type : kTypes) {
    for (size_t n : {1U, 2U, 5U, 20U}) {
      for (bool adj : {false, true}) {
        SCOPED_TRACE(str_cat(type, " ", n, adj ? " adjoint" : ""));
        const std::vector<Matrix> a = square(n, type);
        const Tensor t = tensor_of(type, a);
        const std::vector<Matrix> inverse =
            matrices_of(*OpTester("MatrixInverse").attr("adjoint", adj).input(t).run_one());
        const std::vector<Matrix> rhs = {random_matrix(n, 3, type, random_),
                                         random_matrix(n, 3, type, random_)};
        const std::vector<Matrix> x = matrices_of(*OpTester("MatrixSolve")
                                                       .attr("adjoint", adj)
                                                       .input(t)
                                                       .input(tensor_of(type, rhs))
                                                       .run_one());
        for (size_t i = 0; i < 2; ++i) {
          const Matrix m = adj ? adjoint(a[i]) : a[i];
          expect_near(product(m, inverse[i]), identity(n), precision(type));
          expect_near(product(m, x[i]), rhs[i], precision(type));
        }
        for (bool lower : {false, true}) {
          const std::vector<Matrix> y = matrices_of(*OpTester("MatrixTriangularSolve")
                                                         .attr("adjoint", adj)
                                                         .attr("lower", lower)
                                                         .input(t)
                                                         .input(tensor_of(type, rhs))
                                                         .run_one());
          for (size_t i = 0; i < 2; ++i) {
            const Matrix m = triangle(a[i], lower);
            expect_near(product(adj ? adjoint(m) : m, y[i]), rhs[i], precision(type));
          }
        }
      }
    }
  }
}

// By expansion along the first row.
C expansion(const Matrix& a) {
  if (a.rows == 0) return 1;
  C sum = 0;
  for (size_t k = 0; k < a.rows; ++k) {
    Matrix minor = make(a.rows - 1, a.rows - 1);
    for (size_t i = 1; i < a.rows; ++i) {
      for (size_t j = 0; j < a.rows; ++j) {
        if (j != k) minor.at(i - 1, j < k ? j : j - 1) = a.at(i, j);
      }
    }
    sum += (k % 2 == 0 ? 1.0 : -1.0) * a.at(0, k) * expansion(minor);
  }
  return sum;
}

TEST_F(Decompositions, Determinants) {
  for (DType type : kTypes) {
    for (size_t n : {0U, 1U, 2U, 3U, 5U}) {
      SCOPED_TRACE(str_cat(type, " ", n));
      const std::vector<Matrix> a = {random_matrix(n, n, type, random_),
                                     random_matrix(n, n, type, random_)};
      const Tensor t = tensor_of(type, a);
      const std::vector<C> got = values_of(*OpTester("MatrixDeterminant").input(t).run_one());
      const std::vector<Tensor> logs = OpTester("LogMatrixDeterminant").input(t).run().value();
      for (size_t i = 0; i < 2; ++i) {
        const C want = expansion(a[i]);
        const double near = 10 * precision(type) * std::max(1.0, std::abs(want));
        EXPECT_LE(std::abs(got[i] - want), near);
        EXPECT_LE(std::abs(values_of(logs[0])[i] * std::exp(values_of(logs[1])[i]) - want), near);
      }
    }
  }
}

TEST_F(Decompositions, Cholesky) {
  for (DType type : kTypes) {
    for (size_t n : {1U, 2U, 7U}) {
      SCOPED_TRACE(str_cat(type, " ", n));
      std::vector<Matrix> a = square(n, type);
      for (Matrix& m : a) m = product(m, adjoint(m));
      std::vector<Matrix> lower_only;
      for (const Matrix& m : a) lower_only.push_back(triangle(m, true));
      const std::vector<Matrix> l =
          matrices_of(*OpTester("Cholesky").input(tensor_of(type, lower_only)).run_one());
      for (size_t i = 0; i < 2; ++i) {
        expect_near(product(l[i], adjoint(l[i])), a[i], precision(type));
        expect_near(l[i], triangle(l[i], true), 0);
      }
    }
  }
}

// Against differences of sum(L * G) as a symmetric matrix moves.
TEST_F(Decompositions, CholeskyGrad) {
  const size_t n = 4;
  Matrix a = random_matrix(n, n, DType::kDouble, random_);
  a = product(a, adjoint(a));
  for (size_t i = 0; i < n; ++i) a.at(i, i) += 1;
  const Matrix g = triangle(random_matrix(n, n, DType::kDouble, random_), true);
  const auto factor = [&](const Matrix& m) {
    return matrices_of(*OpTester("Cholesky").input(tensor_of(DType::kDouble, {m})).run_one())[0];
  };
  const auto sum = [&](const Matrix& m) {
    const Matrix l = factor(m);
    double total = 0;
    for (size_t i = 0; i < n * n; ++i) total += (l.data[i] * g.data[i]).real();
    return total;
  };
  const Matrix got = matrices_of(*OpTester("CholeskyGrad")
                                      .input(tensor_of(DType::kDouble, {factor(a)}))
                                      .input(tensor_of(DType::kDouble, {g}))
                                      .run_one())[0];
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      Matrix up = a, down = a;
      up.at(i, j) += 1e-5;
      down.at(i, j) -= 1e-5;
      const double slope = (sum(up) - sum(down)) / 2e-5;  // of the lower triangle alone
      EXPECT_NEAR(got.at(i, j).real() * (i == j ? 1 : 2), slope, 1e-6);
      EXPECT_NEAR(got.at(i, j).real(), got.at(j, i).real(), 1e-12);
    }
  }
}

TEST_F(Decompositions, SymmetricEigenvectors) {
  for (DType type : {DType::kFloat, DType::kDouble}) {
    for (size_t n : {1U, 2U, 9U, 30U}) {
      SCOPED_TRACE(str_cat(type, " ", n));
      Matrix a = random_matrix(n, n, type, random_);
      for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j < i; ++j) a.at(j, i) = a.at(i, j);
      }
      const Tensor t = tensor_of(type, {a});
      const std::vector<Tensor> got = OpTester("SelfAdjointEigV2").input(t).run().value();
      const Matrix v = matrices_of(got[1])[0];
      Matrix scaled = v;
      const std::vector<C> e = values_of(got[0]);
      for (size_t j = 0; j < n; ++j) {
        EXPECT_LE(e[j > 0 ? j - 1 : 0].real(), e[j].real());
        for (size_t i = 0; i < n; ++i) scaled.at(i, j) *= e[j];
      }
      expect_near(product(adjoint(v), v), identity(n), precision(type));
      expect_near(product(scaled, adjoint(v)), a, 10 * precision(type));
      const std::vector<Tensor> alone =
          OpTester("SelfAdjointEigV2").attr("compute_v", false).input(t).run().value();
      EXPECT_TRUE(bit_equal(alone[0], got[0]));
      EXPECT_EQ(alone[1].shape(), Shape({0}));
    }
  }
}

TEST_F(Decompositions, SingularValues) {
  for (DType type : kTypes) {
    for (const auto& size : {std::pair<size_t, size_t>{4, 4}, {7, 3}, {3, 7}, {1, 5}, {5, 1}}) {
      for (bool full : {false, true}) {
        const size_t rows = size.first, columns = size.second;
        SCOPED_TRACE(str_cat(type, " ", rows, " x ", columns, full ? " full" : ""));
        Matrix deficient = random_matrix(rows, columns, type, random_);
        for (size_t i = 0; i < rows; ++i) deficient.at(i, columns - 1) = deficient.at(i, 0);
        const std::vector<Matrix> a = {random_matrix(rows, columns, type, random_), deficient,
                                       make(rows, columns)};
        const Tensor t = tensor_of(type, a);
        const std::vector<Tensor> got =
            OpTester("Svd").attr("full_matrices", full).input(t).run().value();
        const std::vector<Matrix> u = matrices_of(got[1]), v = matrices_of(got[2]);
        const size_t p = std::min(rows, columns);
        for (size_t k = 0; k < a.size(); ++k) {
          Matrix scaled = make(rows, v[k].columns);
          for (size_t j = 0; j < p; ++j) {
            const C s = values_of(got[0])[k * p + j];
            EXPECT_GE(s.real(), 0);
            EXPECT_LE(s.real(), values_of(got[0])[k * p + (j > 0 ? j - 1 : 0)].real());
            for (size_t i = 0; i < rows; ++i) scaled.at(i, j) = u[k].at(i, j) * s;
          }
          expect_near(product(scaled, adjoint(v[k])), a[k], 10 * precision(type));
          expect_near(product(adjoint(u[k]), u[k]), identity(u[k].columns), precision(type));
          expect_near(product(adjoint(v[k]), v[k]), identity(v[k].columns), precision(type));
        }
      }
    }
  }
}

TEST_F(Decompositions, Qr) {
  for (DType type : kTypes) {
    for (const auto& size : {std::pair<size_t, size_t>{4, 4}, {7, 3}, {3, 7}, {1, 5}, {5, 1}}) {
      for (bool full : {false, true}) {
        const size_t rows = size.first, columns = size.second;
        SCOPED_TRACE(str_cat(type, " ", rows, " x ", columns, full ? " full" : ""));
        const std::vector<Matrix> a = {random_matrix(rows, columns, type, random_),
                                       make(rows, columns)};
        const std::vector<Tensor> got =
            OpTester("Qr").attr("full_matrices", full).input(tensor_of(type, a)).run().value();
        const std::vector<Matrix> q = matrices_of(got[0]), r = matrices_of(got[1]);
        for (size_t k = 0; k < a.size(); ++k) {
          EXPECT_EQ(q[k].columns, full ? rows : std::min(rows, columns));
          expect_near(product(q[k], r[k]), a[k], precision(type));
          expect_near(product(adjoint(q[k]), q[k]), identity(q[k].columns), precision(type));
          expect_near(r[k], triangle(r[k], false), 0);
          for (size_t i = 0; i < std::min(rows, columns); ++i) EXPECT_EQ(r[k].at(i, i).imag(), 0);
        }
      }
    }
  }
  // The signs are TensorFlow's.
  const std::vector<Tensor> got =
      OpTester("Qr").input(Tensor::of<double>({2, 2}, {3, 1, 4, 2})).run().value();
  EXPECT_NEAR(values_of(got[1])[0].real(), -5, 1e-12);
  EXPECT_NEAR(values_of(got[1])[3].real(), 0.4, 1e-12);
  // Nothing but the basis of nothing.
  EXPECT_EQ(OpTester("Qr")
                .attr("full_matrices", true)
                .input(Tensor::zeros(DType::kFloat, {2, 0}).value())
                .run()
                .value()[0]
                .shape(),
            Shape({2, 2}));
}

// Squares of these elements are infinite, or nothing.
TEST_F(Decompositions, HugeAndTinyElements) {
  for (double size : {1e300, 1e200, 1e-200, 1e-300}) {
    SCOPED_TRACE(size);
    const auto relative = [&](const Tensor& t, size_t i) { return values_of(t)[i].real() / size; };
    const auto matrix = [&](double a, double b, double c, double d) {
      return Tensor::of<double>({2, 2}, {a * size, b * size, c * size, d * size});
    };
    const std::vector<Tensor> svd = OpTester("Svd").input(matrix(1, 2, 3, 4)).run().value();
    EXPECT_NEAR(relative(svd[0], 0), 5.46498570421904, 1e-12);
    EXPECT_NEAR(relative(svd[0], 1), 0.365966190626258, 1e-12);
    const std::vector<Tensor> eigen =
        OpTester("SelfAdjointEigV2").input(matrix(2, 5, 5, 8)).run().value();
    EXPECT_NEAR(relative(eigen[0], 0), -0.830951894845301, 1e-12);
    EXPECT_NEAR(relative(eigen[0], 1), 10.8309518948453, 1e-12);
    const std::vector<Tensor> qr = OpTester("Qr").input(matrix(3, 1, 4, 2)).run().value();
    EXPECT_NEAR(relative(qr[1], 0), -5, 1e-12);
    EXPECT_NEAR(relative(qr[1], 3), 0.4, 1e-12);
  }
  // A column far smaller than the other has a direction too.
  const Tensor uneven = Tensor::of<double>({2, 2}, {3e-200, 1, 4e-200, 2});
  const std::vector<Tensor> qr = OpTester("Qr").input(uneven).run().value();
  EXPECT_NEAR(values_of(qr[0])[0].real(), -0.6, 1e-12);
  EXPECT_NEAR(values_of(qr[1])[0].real() * 1e200, -5, 1e-12);
  const std::vector<Tensor> svd =
      OpTester("Svd").input(Tensor::of<double>({2, 2}, {1e-200, 0, 0, 1})).run().value();
  EXPECT_NEAR(values_of(svd[0])[1].real() * 1e200, 1, 1e-12);
}

// Eigenvalues over eigenvectors.
TEST_F(Decompositions, StackedEigenvectors) {
  const Tensor t = Tensor::of<double>({1, 2, 2}, {2, 1, 1, 3});
  const std::vector<Tensor> parts = OpTester("SelfAdjointEigV2").input(t).run().value();
  std::vector<C> want = values_of(parts[0]);
  for (C v : values_of(parts[1])) want.push_back(v);
  const Tensor got = OpTester("SelfAdjointEig").input(t).run_one().value();
  EXPECT_EQ(got.shape(), Shape({1, 3, 2}));
  EXPECT_EQ(values_of(got), want);
}

TEST_F(Decompositions, HaveOlderNames) {
  const Tensor t = Tensor::of<double>({1, 2, 2}, {2, 1, 1, 3});
  for (const std::string op : {"Cholesky", "MatrixDeterminant", "MatrixInverse", "SelfAdjointEig",
                               "SelfAdjointEigV2", "Svd"}) {
    const std::vector<Tensor> want = OpTester(op).input(t).run().value();
    const std::vector<Tensor> got = OpTester("Batch" + op).input(t).run().value();
    ASSERT_EQ(got.size(), want.size()) << op;
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(bit_equal(got[i], want[i])) << op;
  }
  for (const std::string op : {"CholeskyGrad", "MatrixSolve", "MatrixTriangularSolve"}) {
    const Tensor want = OpTester(op).input(t).input(t).run_one().value();
    EXPECT_TRUE(bit_equal(OpTester("Batch" + op).input(t).input(t).run_one().value(), want)) << op;
  }
}

// At the solution the gradient of what it makes least is zero.
TEST_F(Decompositions, LeastSquares) {
  for (DType type : kTypes) {
    for (const auto& size : {std::pair<size_t, size_t>{4, 4}, {7, 3}, {3, 6}}) {
      for (bool fast : {true, false}) {
        const double l2 = fast ? 0.5 : 0;
        SCOPED_TRACE(str_cat(type, " ", size.first, " x ", size.second, fast ? " fast" : ""));
        const Matrix a = random_matrix(size.first, size.second, type, random_);
        const Matrix b = random_matrix(size.first, 2, type, random_);
        Result<Tensor> got = OpTester("MatrixSolveLs")
                                 .attr("fast", fast)
                                 .input(tensor_of(type, {a}))
                                 .input(tensor_of(type, {b}))
                                 .input(Tensor::scalar(l2))
                                 .run_one();
        ASSERT_TRUE(got.ok()) << got.status().to_string();
        const Matrix x = matrices_of(*got)[0];
        Matrix residual = product(a, x);
        for (size_t i = 0; i < b.data.size(); ++i) residual.data[i] -= b.data[i];
        Matrix slope = product(adjoint(a), residual);
        for (size_t i = 0; i < x.data.size(); ++i) slope.data[i] += l2 * x.data[i];
        expect_near(slope, make(size.second, 2), 100 * precision(type));
      }
    }
  }
}

TEST_F(Decompositions, BadInputs) {
  const Tensor zeros = Tensor::zeros(DType::kDouble, {1, 3, 3}).value();
  const Tensor wide = Tensor::zeros(DType::kDouble, {2, 3}).value();
  const auto error = [](OpTester& op) { return op.run().status().to_string(); };
  for (const char* op : {"MatrixInverse", "MatrixDeterminant", "Cholesky", "SelfAdjointEigV2"}) {
    OpTester not_square(op), vector(op);
    EXPECT_NE(error(not_square.input(wide)).find("must be square"), std::string::npos) << op;
    EXPECT_NE(error(vector.input(Tensor::vector<double>({1}))).find("INVALID_ARGUMENT"),
              std::string::npos)
        << op;
  }
  OpTester inverse("MatrixInverse"), solve("MatrixSolve"), lower("MatrixTriangularSolve");
  EXPECT_NE(error(inverse.input(zeros)).find("not invertible"), std::string::npos);
  EXPECT_NE(error(solve.input(zeros).input(zeros)).find("not invertible"), std::string::npos);
  EXPECT_NE(error(lower.input(zeros).input(zeros)).find("not invertible"), std::string::npos);
  OpTester cholesky("Cholesky"), rhs("MatrixSolve");
  EXPECT_NE(error(cholesky.input(zeros)).find("not successful"), std::string::npos);
  rhs.input(zeros).input(Tensor::zeros(DType::kDouble, {1, 2, 3}).value());
  EXPECT_NE(error(rhs).find("INVALID_ARGUMENT"), std::string::npos);
  // Nothing converges, and nothing hangs.
  const double nan = std::nan("");
  OpTester eigen("SelfAdjointEigV2"), svd("Svd");
  EXPECT_TRUE(eigen.input(Tensor::of<double>({2, 2}, {nan, 1, 1, 1})).run().ok());
  EXPECT_TRUE(svd.input(Tensor::of<double>({2, 2}, {nan, 1, 1, 1})).run().ok());
}

TEST_F(Decompositions, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "MatrixInverse", {}, "[2,?,3]"), "[2,3,3]");
  EXPECT_EQ(*infer_shapes(ops, "MatrixDeterminant", {}, "[2,?,3]"), "[2]");
  EXPECT_EQ(*infer_shapes(ops, "MatrixSolve", {}, "[2,?,3];[?,?,5]"), "[2,3,5]");
  EXPECT_FALSE(infer_shapes(ops, "MatrixSolve", {}, "[2,2,2];[2,3,5]").ok());
  EXPECT_EQ(*infer_shapes(ops, "SelfAdjointEigV2", {}, "[?,4,4]"), "[?,4];[?,4,4]");
  EXPECT_EQ(*infer_shapes(ops, "Svd", {}, "[7,4,6]"), "[7,4];[7,4,4];[7,6,4]");
  EXPECT_EQ(*infer_shapes(ops, "Svd", {{"full_matrices", true}}, "[4,?]"), "[?];[4,4];[?,?]");
  EXPECT_EQ(*infer_shapes(ops, "Qr", {}, "[7,4,6]"), "[7,4,4];[7,4,6]");
  EXPECT_EQ(*infer_shapes(ops, "Qr", {{"full_matrices", true}}, "[4,?]"), "[4,4];[4,?]");
  EXPECT_FALSE(infer_shapes(ops, "Qr", {}, "[2]").ok());
  EXPECT_FALSE(infer_shapes(ops, "Cholesky", {}, "[2,3]").ok());
}

}  // namespace
}  // namespace millrace
