// test-labels: threads
// A state may come from anywhere: whatever is wrong with it, restoring gives an error or a
// position.

#include <gtest/gtest.h>

#include "millrace/base/file_systems.h"
#include "millrace/data/pipeline_testing.h"
#include "millrace/data/state.h"

namespace millrace::data {
namespace {

Tensor number(int64_t value) { return Tensor::scalar(value); }

// Every stage that needs no function.
Ref<Dataset> sample() {
  Ref<Dataset> d = make_range(40);
  d = make_dataset("UniqueDataset", {d}, {});
  d = make_dataset("SamplingDataset", {d}, {Tensor::scalar(1.0F), number(1), number(2)});
  d = make_dataset("AssertCardinalityDataset", {d}, {number(40)});
  d = make_dataset("SkipDataset", {d}, {number(1)});
  d = make_dataset("ShardDataset", {d}, {number(2), number(1)});
  d = make_dataset("ShuffleDataset", {d}, {number(4), number(1), number(2)});
  d = make_dataset("CacheDataset", {d}, {Tensor::scalar(std::string())});
  d = make_dataset("RepeatDataset", {d}, {number(3)});
  d = make_dataset("ConcatenateDataset", {d, make_range(5)}, {});
  d = make_dataset("BatchDatasetV2", {d}, {number(3), Tensor::scalar(false)});
  d = make_dataset("RebatchDatasetV2", {d},
                   {Tensor::vector<int64_t>({2, 5}), Tensor::scalar(false)});
  d = make_dataset("UnbatchDataset", {d}, {});
  d = make_dataset("ZipDataset", {d, make_range(1000)}, {});
  d = make_dataset("TakeDataset", {d}, {number(50)});
  d = make_dataset("IgnoreErrorsDataset", {d}, {});
  return make_dataset("PrefetchDataset", {d}, {number(2)});
}

std::unique_ptr<Iterator> begin(const Dataset& dataset, const Ref<Environment>& environment) {
  return dataset.iterate(Iteration::of(dataset, environment)).value();
}

// Elements, at most `most`.
Result<std::vector<int64_t>> pull(Iterator& iterator, size_t most) {
  std::vector<int64_t> out;
  Element element;
  for (bool end = false; out.size() < most;) {
    MR_TRY(iterator.next(element, end));
    if (end) break;
    if (element.size() != 2 || element[0].dtype() != DType::kInt64 ||
        element[0].num_elements() != 1) {
      return invalid_argument("an element of another kind");
    }
    out.push_back(element[0].item<int64_t>());
  }
  return out;
}

Ref<SavedState> saved_after(const Dataset& dataset, size_t count) {
  const std::unique_ptr<Iterator> iterator = begin(dataset, make_environment());
  EXPECT_EQ(pull(*iterator, count).value().size(), count);
  StateWriter state;
  EXPECT_TRUE(iterator->save(state).ok());
  return state.finish();
}

TEST(Restore, GoesOnFromEveryPlace) {
  const Ref<Dataset> dataset = sample();
  const std::vector<int64_t> all = pull(*begin(*dataset, make_environment()), 1000).value();
  ASSERT_EQ(all.size(), 50);
  for (size_t place = 0; place <= all.size(); ++place) {
    const Ref<SavedState> state = saved_after(*dataset, place);
    const std::unique_ptr<Iterator> iterator = begin(*dataset, make_environment());
    StateReader reader(*state);
    ASSERT_TRUE(iterator->restore(reader).ok()) << place;
    EXPECT_TRUE(reader.finish().ok());
    EXPECT_EQ(pull(*iterator, 1000).value(),
              std::vector<int64_t>(all.begin() + static_cast<ptrdiff_t>(place), all.end()))
        << place;
  }
}

void expect_answer(const Dataset& dataset, const SavedState& state) {
  const std::unique_ptr<Iterator> iterator = begin(dataset, make_environment());
  StateReader reader(state);
  const Status status = iterator->restore(reader);
  if (status.ok()) {
    (void)pull(*iterator, 100).ok();
    return;
  }
  EXPECT_TRUE(status.code() == Code::kDataLoss || status.code() == Code::kInvalidArgument)
      << status.to_string();
}

TEST(Restore, DamageIsAnswered) {
  const Ref<Dataset> dataset = sample();
  const Ref<SavedState> state = saved_after(*dataset, 20);
  for (size_t at = 0; at < state->bytes.size(); ++at) {
    const Ref<SavedState> damaged = make_ref<SavedState>();
    damaged->tensors = state->tensors;
    damaged->bytes = state->bytes.substr(0, at);
    expect_answer(*dataset, *damaged);
    for (const int flip : {0x01, 0x10, 0x80}) {
      damaged->bytes = state->bytes;
      damaged->bytes[at] = static_cast<char>(damaged->bytes[at] ^ flip);
      expect_answer(*dataset, *damaged);
    }
  }
}

TEST(Restore, APlaceBehindTheEndOfAFileIsAnswered) {
  FileSystem& fs = memory_file_system();
  ASSERT_TRUE(write_file_atomically(fs, "restore_test/lines", "one\ntwo\nthree\n").ok());
  const Ref<Dataset> dataset =
      make_source("TextLineDataset", {Tensor::scalar(std::string("memory://restore_test/lines")),
                                      Tensor::scalar(std::string()), number(0)});
  const std::unique_ptr<Iterator> iterator = begin(*dataset, make_environment());
  Element line;
  bool end = false;
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(iterator->next(line, end).ok());
  StateWriter writer;
  ASSERT_TRUE(iterator->save(writer).ok());
  const Ref<SavedState> state = writer.finish();
  ASSERT_TRUE(write_file_atomically(fs, "restore_test/lines", "one\n").ok());
  StateReader reader(*state);
  EXPECT_EQ(begin(*dataset, make_environment())->restore(reader).code(), Code::kDataLoss);
}

TEST(Restore, CountsThatNothingCanHaveComeToAreAnswered) {
  const Ref<Dataset> dataset = make_dataset("TakeDataset", {make_range(9)}, {number(-1)});
  StateWriter writer;
  writer.stage("Take");
  writer.number(INT64_MAX);
  writer.stage("Range");
  writer.number(0);
  const Ref<SavedState> state = writer.finish();
  StateReader reader(*state);
  EXPECT_EQ(begin(*dataset, make_environment())->restore(reader).code(), Code::kDataLoss);
}

TEST(Restore, TensorsOfAnotherKindAreAnswered) {
  const Ref<Dataset> dataset = sample();
  const Ref<SavedState> state = saved_after(*dataset, 20);
  for (size_t at = 0; at < state->tensors.size(); ++at) {
    for (const Tensor& other : {Tensor::scalar(1.5F), Tensor::vector<int64_t>({}),
                                Tensor::scalar(std::string("x")), Tensor::scalar(Variant{})}) {
      const Ref<SavedState> damaged = make_ref<SavedState>();
      damaged->bytes = state->bytes;
      damaged->tensors = state->tensors;
      damaged->tensors[at] = other;
      expect_answer(*dataset, *damaged);
    }
  }
}

}  // namespace
}  // namespace millrace::data
