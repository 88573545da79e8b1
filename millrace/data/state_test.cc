#include "millrace/data/state.h"

#include <gtest/gtest.h>

#include <limits>

namespace millrace::data {
namespace {

Ref<SavedState> sample() {
  StateWriter writer;
  writer.stage("Shuffle");
  writer.number(-1);
  writer.number(std::numeric_limits<int64_t>::max());
  writer.flag(true);
  writer.text("where");
  writer.element({Tensor::scalar(3.0F), Tensor::vector<int32_t>({1, 2})});
  return writer.finish();
}

Status read(const SavedState& state) {
  StateReader reader(state);
  MR_TRY(reader.stage("Shuffle"));
  MR_TRY(reader.number().status());
  MR_TRY(reader.number_in(0, std::numeric_limits<int64_t>::max()).status());
  MR_TRY(reader.flag().status());
  MR_TRY(reader.text().status());
  MR_TRY(reader.element().status());
  return reader.finish();
}

TEST(State, ComesBack) {
  const Ref<SavedState> state = sample();
  StateReader reader(*state);
  EXPECT_TRUE(reader.stage("Shuffle").ok());
  EXPECT_EQ(reader.number().value(), -1);
  EXPECT_EQ(reader.number().value(), std::numeric_limits<int64_t>::max());
  EXPECT_TRUE(reader.flag().value());
  EXPECT_EQ(reader.text().value(), "where");
  const Element element = reader.element().value();
  EXPECT_EQ(element[0].item<float>(), 3.0F);
  EXPECT_EQ(element[1].data<int32_t>()[1], 2);
  EXPECT_TRUE(reader.finish().ok());
}

TEST(State, GoesThroughAVariant) {
  std::string bytes;
  std::vector<Tensor> tensors;
  ASSERT_TRUE(sample()->encode(bytes, tensors).ok());
  const Ref<VariantObject> back = SavedState::decode(bytes, tensors).value();
  EXPECT_TRUE(read(static_cast<const SavedState&>(*back)).ok());
}

TEST(State, OfAnotherPipelineIsRefused) {
  const Ref<SavedState> state = sample();
  StateReader reader(*state);
  EXPECT_EQ(reader.stage("Batch").code(), Code::kInvalidArgument);
}

// Every byte changed or cut gives an answer; what is read is never outside of it.
TEST(State, DamageIsFound) {
  const Ref<SavedState> state = sample();
  for (size_t at = 0; at < state->bytes.size(); ++at) {
    SavedState damaged;
    damaged.tensors = state->tensors;
    damaged.bytes = state->bytes.substr(0, at);
    EXPECT_FALSE(read(damaged).ok()) << at;
    for (int bit = 0; bit < 8; ++bit) {
      damaged.bytes = state->bytes;
      damaged.bytes[at] = static_cast<char>(damaged.bytes[at] ^ (1 << bit));
      const Status status = read(damaged);
      if (status.ok()) continue;  // another number, or another text
      EXPECT_TRUE(status.code() == Code::kDataLoss || status.code() == Code::kInvalidArgument)
          << status.to_string();
    }
  }
}

}  // namespace
}  // namespace millrace::data
