#include "millrace/data/batch_rows.h"

#include <gtest/gtest.h>

#include "millrace/data/pipeline_testing.h"

namespace millrace::data {
namespace {

Element column(std::initializer_list<int64_t> values) { return {Tensor::vector(values)}; }

std::vector<int64_t> numbers(const Tensor& tensor) {
  const std::span<const int64_t> data = tensor.data<int64_t>();
  return {data.begin(), data.end()};
}

TEST(BatchRowsTest, OneRangeIsSharedAndMoreAreCopied) {
  const Element source = column({0, 1, 2, 3, 4, 5});
  BatchRows rows;
  Element batch;
  rows.begin(4);
  ASSERT_TRUE(rows.add_range(source, 1, 5).ok());
  rows.finish(batch);
  EXPECT_TRUE(batch[0].shares_buffer_with(source[0]));
  EXPECT_EQ(numbers(batch[0]), (std::vector<int64_t>{1, 2, 3, 4}));

  rows.begin(4);
  ASSERT_TRUE(rows.add_range(source, 4, 6).ok());
  ASSERT_TRUE(rows.add_range(source, 0, 1).ok());
  Element last = {Tensor::scalar<int64_t>(9)};
  ASSERT_TRUE(rows.add(last).ok());
  rows.finish(batch);
  EXPECT_FALSE(batch[0].shares_buffer_with(source[0]));
  EXPECT_EQ(numbers(batch[0]), (std::vector<int64_t>{4, 5, 0, 9}));
  EXPECT_EQ(numbers(source[0]), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
}

TEST(BatchRowsTest, RowsOfAnotherShapeOrTypeAreRefused) {
  BatchRows rows;
  rows.begin(4);
  ASSERT_TRUE(rows.add_range(column({0, 1}), 0, 2).ok());
  Element vector = column({1}), number = {Tensor::scalar(1.5F)};
  EXPECT_EQ(rows.add(vector).code(), Code::kInvalidArgument);
  EXPECT_EQ(rows.add(number).code(), Code::kInvalidArgument);
  EXPECT_EQ(rows.add_string("x").code(), Code::kInvalidArgument);
  EXPECT_EQ(rows.rows(), 2);
}

TEST(BatchRowsTest, OnlyStringsThatNobodySeesAreTaken) {
  const std::string text(100, 'x');
  Element seen = {Tensor::scalar(text)}, own = {Tensor::scalar(text)};
  const Element other = seen;
  BatchRows rows;
  Element batch;
  rows.begin(3);
  ASSERT_TRUE(rows.add(seen).ok());
  ASSERT_TRUE(rows.add(own).ok());
  ASSERT_TRUE(rows.add_string(text).ok());
  rows.finish(batch);
  EXPECT_EQ(other[0].item<std::string>(), text);
  for (const std::string& row : batch[0].data<std::string>()) EXPECT_EQ(row, text);
}

// Stages that pass rows on count as they do element by element, wherever batches end.
TEST(BatchRowsTest, BatchesEqualElementsThroughStages) {
  const auto number = [](int64_t value) { return Tensor::scalar(value); };
  Ref<Dataset> d = make_range(7);
  d = make_dataset("RepeatDataset", {d}, {number(5)});
  d = make_dataset("SkipDataset", {d}, {number(3)});
  d = make_dataset("TakeDataset", {d}, {number(30)});
  for (int64_t size = 1; size < 12; ++size) {
    const Ref<Dataset> batches =
        make_dataset("BatchDatasetV2", {d}, {number(size), Tensor::scalar(false)});
    const Ref<Dataset> again =
        make_dataset("BatchDatasetV2", {make_dataset("UnbatchDataset", {batches}, {})},
                     {number(4), Tensor::scalar(false)});
    std::vector<int64_t> all;
    const std::unique_ptr<Iterator> iterator =
        again->iterate(Iteration::of(*again, make_environment())).value();
    Element element;
    for (bool end = false;;) {
      ASSERT_TRUE(iterator->next(element, end).ok());
      if (end) break;
      for (const int64_t value : numbers(element[0])) all.push_back(value);
    }
    ASSERT_EQ(all.size(), 30) << size;
    for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], (i + 3) % 7) << size;
  }
}

}  // namespace
}  // namespace millrace::data
