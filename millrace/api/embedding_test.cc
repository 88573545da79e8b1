#include "millrace/api/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "millrace/api/client_session.h"
#include "millrace/api/control_flow.h"
#include "millrace/api/ops.h"
#include "millrace/autodiff/gradients.h"

namespace millrace {
namespace {

constexpr int64_t kRows = 10, kWidth = 3;

// Row r of the table is 10 r, 10 r + 1, 10 r + 2, times 0.1.
double entry(int64_t row, int64_t column) { return static_cast<double>(10 * row + column) * 0.1; }

Tensor rows_of_table(const std::vector<int64_t>& rows) {
  Tensor out = *Tensor::allocate(DType::kDouble, {static_cast<int64_t>(rows.size()), kWidth});
  size_t next = 0;
  for (int64_t r : rows) {
    for (int64_t c = 0; c < kWidth; ++c) out.mutable_data<double>()[next++] = entry(r, c);
  }
  return out;
}

void expect_same(const Tensor& actual, const Tensor& expected) {
  EXPECT_TRUE(bit_equal(actual, expected))
      << actual.to_string() << ", expected " << expected.to_string();
}

// Which rows of the table each part has.
using Parts = std::vector<std::vector<int64_t>>;
const Parts kWhole = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}};
const Parts kMod = {{0, 3, 6, 9}, {1, 4, 7}, {2, 5, 8}};
const Parts kDiv = {{0, 1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
const Parts kUneven = {{0}, {}, {1, 2, 3, 4, 5, 6}, {7, 8, 9}};

enum class Kind { kTensor, kUnknownShape, kReference, kResource };

class EmbeddingTest : public ::testing::Test {
 protected:
  std::vector<Expr> tables(const Parts& parts, Kind kind) {
    std::vector<Expr> out;
    for (const std::vector<int64_t>& rows : parts) {
      const Tensor value = rows_of_table(rows);
      out.push_back(table(value, kind));
    }
    return out;
  }
  Expr table(const Tensor& value, Kind kind) {
    switch (kind) {
      case Kind::kTensor:
        return root_.constant(value);
      case Kind::kUnknownShape:
        feeds_.emplace_back(ops::placeholder(root_, DType::kDouble), value);
        return feeds_.back().first;
      case Kind::kReference: {
        const Expr v = ops::variable_v2(root_, DType::kDouble, value.shape());
        init_.push_back(root_.operation_of(ops::assign(root_, v, root_.constant(value))));
        return v;
      }
      case Kind::kResource: {
        const Expr handle = ops::var_handle_op(root_.with_name("table"), DType::kDouble,
                                               value.shape(), {.shared_name = next_name()});
        init_.push_back(ops::assign_variable_op(root_, handle, root_.constant(value)));
        return handle;
      }
    }
    return Expr();
  }
  std::string next_name() { return str_cat("v", init_.size()); }

  Result<std::vector<Tensor>> run(const std::vector<Expr>& fetches) {
    MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root_));
    if (!init_.empty()) MR_TRY(session.run({}, {}, init_).status());
    return session.run(feeds_, fetches);
  }

  Scope root_ = Scope::make_root();
  ClientSession::Feeds feeds_;
  std::vector<Operation> init_;
};

struct Case {
  Parts parts;
  PartitionStrategy partition;
  Kind kind;
};
std::vector<Case> all_cases() {
  std::vector<Case> out;
  for (Kind kind : {Kind::kTensor, Kind::kUnknownShape, Kind::kReference, Kind::kResource}) {
    out.push_back({kWhole, PartitionStrategy::kMod, kind});
    out.push_back({kWhole, PartitionStrategy::kDiv, kind});
    out.push_back({kMod, PartitionStrategy::kMod, kind});
    out.push_back({kDiv, PartitionStrategy::kDiv, kind});
    out.push_back({kUneven, PartitionStrategy::kDiv, kind});
  }
  return out;
}

TEST_F(EmbeddingTest, RowsOfOneAndSeveralTables) {
  const Tensor ids[] = {Tensor::scalar<int32_t>(9), Tensor::vector<int64_t>({7, 0, 7, 3}),
                        Tensor::of<int32_t>({2, 1, 2}, {9, 1, 4, 5}),
                        *Tensor::zeros(DType::kInt64, {0}), *Tensor::zeros(DType::kInt32, {2, 0})};
  std::vector<Expr> fetches;
  std::vector<Tensor> expected;
  for (const Case& c : all_cases()) {
    const std::vector<Expr> parts = tables(c.parts, c.kind);
    for (const Tensor& t : ids) {
      fetches.push_back(
          embedding_lookup(root_, parts, root_.constant(t), {.partition = c.partition}));
      std::vector<int64_t> rows;
      for (int64_t i = 0; i < t.num_elements(); ++i) {
        rows.push_back(t.dtype() == DType::kInt32 ? t.data<int32_t>()[static_cast<size_t>(i)]
                                                  : t.data<int64_t>()[static_cast<size_t>(i)]);
      }
      std::vector<int64_t> dims(t.shape().dims().begin(), t.shape().dims().end());
      dims.push_back(kWidth);
      expected.push_back(*rows_of_table(rows).reshaped(*Shape::make(dims)));
    }
  }
  const Result<std::vector<Tensor>> out = run(fetches);
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  for (size_t i = 0; i < expected.size(); ++i) expect_same((*out)[i], expected[i]);
}

TEST_F(EmbeddingTest, GradientsAreRowsOfEachTable) {
  const Tensor ids = Tensor::of<int64_t>({2, 2}, {7, 0, 7, 3});
  // The gradient of row ids[i] is i + 1, 2 (i + 1), 3 (i + 1); row 7 is there twice.
  const Tensor coefficients = Tensor::of<double>({2, 2, 3}, {1, 2, 3, 2, 4, 6, 3, 6, 9, 4, 8, 12});
  std::vector<double> by_row(kRows);
  by_row[7] = 4, by_row[0] = 2, by_row[3] = 4;
  std::vector<Expr> fetches;
  std::vector<Tensor> expected;
  for (const Case& c : all_cases()) {
    const std::vector<Expr> parts = tables(c.parts, c.kind);
    const Expr rows =
        embedding_lookup(root_, parts, root_.constant(ids), {.partition = c.partition});
    const Expr loss = rows * root_.constant(coefficients);
    const auto found = gradients(root_.builder(), std::vector<Expr>{loss}, parts);
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_TRUE((*found)[i].is_slices());
      fetches.push_back(to_dense((*found)[i]));
      Tensor dense = rows_of_table(c.parts[i]);
      size_t next = 0;
      for (int64_t r : c.parts[i]) {
        for (int column = 1; column <= kWidth; ++column) {
          dense.mutable_data<double>()[next++] = by_row[static_cast<size_t>(r)] * column;
        }
      }
      expected.push_back(std::move(dense));
    }
  }
  const Result<std::vector<Tensor>> out = run(fetches);
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  for (size_t i = 0; i < expected.size(); ++i) expect_same((*out)[i], expected[i]);
}

TEST_F(EmbeddingTest, GatherV2AlongRowsHasRowsForGradient) {
  const Expr table = root_.constant(rows_of_table(kWhole[0]));
  const Expr ids = root_.constant(Tensor::vector<int32_t>({2, 0}));
  const auto is_rows = [&](Expr axis) {
    const Expr y = ops::gather_v2(root_, table, ids, axis);
    const auto g = gradients(root_.builder(), std::vector<Expr>{y}, std::vector<Expr>{table});
    return g.ok() && (*g)[0].is_slices();
  };
  EXPECT_TRUE(is_rows(root_.constant(int32_t{0})));
  EXPECT_TRUE(is_rows(root_.constant(int64_t{-2})));
  EXPECT_FALSE(is_rows(root_.constant(int32_t{1})));
  EXPECT_FALSE(is_rows(ops::placeholder(root_, DType::kInt32)));
}

TEST_F(EmbeddingTest, LongRowsAreScaledDown) {
  // Norms 5, 0.5 and 0.
  const Tensor value = Tensor::of<double>({3, 2}, {3, 4, 0.3, 0.4, 0, 0});
  const Expr table = root_.constant(value);
  const Expr ids = root_.constant(Tensor::of<int32_t>({1, 3}, {0, 1, 2}));
  const Expr rows = embedding_lookup(root_, {table}, ids, {.max_norm = 2});
  const Expr first =
      ops::gather(root_, ops::reshape(root_, rows, root_.constant(Tensor::vector<int32_t>({6}))),
                  root_.constant(Tensor::vector<int32_t>({0, 2, 4})));
  const auto found = gradients(root_.builder(), std::vector<Expr>{first}, std::vector<Expr>{table});
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  const Result<std::vector<Tensor>> out = run({rows, to_dense((*found)[0])});
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_EQ((*out)[0].shape(), Shape({1, 3, 2}));
  const double expected[] = {1.2, 1.6, 0.3, 0.4, 0, 0};
  // d (2 x / |x|) / dx = 2 / |x| (1 - x x' / |x|^2), and 1 for short rows.
  const double slopes[] = {0.4 * (1 - 9.0 / 25), -0.4 * 12 / 25, 1, 0, 1, 0};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR((*out)[0].data<double>()[i], expected[i], 1e-12) << i;
    EXPECT_NEAR((*out)[1].data<double>()[i], slopes[i], 1e-12) << i;
  }
}

TEST_F(EmbeddingTest, IdsOutOfRangeAreRefused) {
  for (const Case& c : all_cases()) {
    root_ = Scope::make_root();
    feeds_.clear();
    init_.clear();
    const std::vector<Expr> parts = tables(c.parts, c.kind);
    const Expr ids = ops::placeholder(root_, DType::kInt64);
    const Expr rows = embedding_lookup(root_, parts, ids, {.partition = c.partition});
    feeds_.emplace_back(ids, Tensor());
    for (int64_t id : {int64_t{-1}, kRows, int64_t{12}, std::numeric_limits<int64_t>::min(),
                       std::numeric_limits<int64_t>::max()}) {
      feeds_.back().second = Tensor::vector<int64_t>({0, id});
      const Status status = run({rows}).status();
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << id;
      EXPECT_NE(status.message().find("not in [0, "), std::string_view::npos) << status.to_string();
    }
  }
}

TEST_F(EmbeddingTest, WrongTablesAndIdsAreErrorsOfTheScope) {
  const auto expect = [](const std::function<Expr(const Scope&)>& make, std::string_view part) {
    Scope root = Scope::make_root();
    EXPECT_FALSE(make(root).valid());
    EXPECT_EQ(root.status().code(), Code::kInvalidArgument);
    const std::string text = root.status().to_string();
    EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_NE(text.find("embedding_test.cc"), std::string::npos) << text;
  };
  const auto table = [](const Scope& s, DType dtype, Shape shape) {
    return s.constant(*Tensor::zeros(dtype, std::move(shape)));
  };
  const auto ids = [](const Scope& s) { return s.constant(Tensor::vector<int32_t>({0})); };
  expect([&](const Scope& s) { return embedding_lookup(s, {}, ids(s)); }, "got none");
  expect([&](const Scope& s) { return embedding_lookup(s, {s.constant(1.0f)}, ids(s)); }, "rows");
  expect(
      [&](const Scope& s) {
        return embedding_lookup(
            s, {table(s, DType::kFloat, {2, 3}), table(s, DType::kFloat, {2, 4})}, ids(s));
      },
      "table 1 is float [2,4]");
  expect(
      [&](const Scope& s) {
        return embedding_lookup(
            s, {table(s, DType::kFloat, {2, 3}), table(s, DType::kDouble, {2, 3})}, ids(s));
      },
      "table 1 is double");
  expect(
      [&](const Scope& s) {
        return embedding_lookup(s, {table(s, DType::kFloat, {2, 3})}, s.constant(1.0f));
      },
      "int32 or int64");
  expect(
      [&](const Scope& s) {
        return embedding_lookup(s, {table(s, DType::kFloat, {2, 3})}, ids(s), {.max_norm = -1});
      },
      "max_norm");
}

TEST_F(EmbeddingTest, BagsAreCombined) {
  const std::vector<Expr> parts = tables(kMod, Kind::kResource);
  EmbeddingBags bags;
  bags.ids = root_.constant(Tensor::vector<int64_t>({4, 9, 0, 4}));
  bags.bags = root_.constant(Tensor::vector<int64_t>({2, 0, 0, 0}));
  bags.num_bags = root_.constant(int32_t{4});
  EmbeddingBags weighted = bags;
  weighted.weights = root_.constant(Tensor::vector<float>({3, 1, 2, 0.5}));
  std::vector<Expr> fetches;
  for (Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtN}) {
    fetches.push_back(embedding_lookup_bags(root_, parts, bags, combiner));
    fetches.push_back(embedding_lookup_bags(root_, parts, weighted, combiner));
  }
  const Result<std::vector<Tensor>> out = run(fetches);
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  const double divisors[6][2] = {
      {1, 1}, {1, 1}, {3, 1}, {3.5, 3}, {std::sqrt(3), 1}, {std::sqrt(5.25), 3}};
  for (size_t i = 0; i < 6; ++i) {
    const bool plain = i % 2 == 0;
    const double w[] = {plain ? 1.0 : 3.0, 1, plain ? 1.0 : 2.0, plain ? 1.0 : 0.5};
    ASSERT_EQ((*out)[i].shape(), Shape({4, kWidth}));
    for (int64_t c = 0; c < kWidth; ++c) {
      const double bag0 = w[1] * entry(9, c) + w[2] * entry(0, c) + w[3] * entry(4, c);
      const double expected[] = {bag0 / divisors[i][0], 0, w[0] * entry(4, c) / divisors[i][1], 0};
      for (int64_t bag = 0; bag < 4; ++bag) {
        EXPECT_NEAR((*out)[i].data<double>()[static_cast<size_t>(bag * kWidth + c)], expected[bag],
                    1e-12)
            << i;
      }
    }
  }
  const auto found = gradients(root_.builder(), std::vector<Expr>{fetches[3]}, parts);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  for (const Gradient& g : *found) EXPECT_TRUE(g.is_slices());
}

TEST_F(EmbeddingTest, LooksUpInsideABranch) {
  const std::vector<Expr> parts = tables(kMod, Kind::kResource);
  const Expr ids = root_.constant(Tensor::vector<int32_t>({8, 3}));
  const Expr rows = cond(
      root_, root_.constant(true), [&](const Scope& s) { return embedding_lookup(s, parts, ids); },
      [&](const Scope& s) { return s.constant(rows_of_table({0, 0})); });
  const Result<std::vector<Tensor>> out = run({rows});
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  expect_same((*out)[0], rows_of_table({8, 3}));
}

TEST_F(EmbeddingTest, LookupsGoWhereTheirTablesAre) {
  const std::vector<Expr> parts = tables(kMod, Kind::kResource);
  const int before = root_.graph()->num_nodes();
  embedding_lookup(root_, parts, root_.constant(int32_t{1}));
  int gathers = 0;
  for (NodeId id = before; id < root_.graph()->num_nodes(); ++id) {
    const Node& node = root_.graph()->node(id);
    if (node.op().name != "ResourceGather") continue;
    ++gathers;
    EXPECT_EQ(node.attr<std::vector<std::string>>("_class").value().size(), 1u);
  }
  EXPECT_EQ(gathers, 3);
}

}  // namespace
}  // namespace millrace
