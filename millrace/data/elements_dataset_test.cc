#include "millrace/data/elements_dataset.h"

#include <gtest/gtest.h>

#include "millrace/data/pipeline_testing.h"

namespace millrace::data {
namespace {

Ref<ElementsDataset> sample() {
  ElementSpec spec = {{DType::kInt64, DType::kString}, {PartialShape{-1}, PartialShape()}};
  return make_ref<ElementsDataset>(
      "WindowElements", std::move(spec),
      std::vector<Element>{{Tensor::vector<int64_t>({1, 2}), Tensor::scalar(std::string("a"))},
                           {Tensor::vector<int64_t>({3}), Tensor::scalar(std::string("b"))}});
}

TEST(ElementsDataset, ComesBackFromAMessage) {
  std::string metadata;
  std::vector<Tensor> tensors;
  ASSERT_TRUE(sample()->encode(metadata, tensors).ok());
  const Ref<VariantObject> object = ElementsDataset::decode(metadata, tensors).value();
  const Ref<Dataset> back =
      dataset_of(dataset_tensor(Ref<Dataset>(static_cast<Dataset*>(object.get())))).value();
  EXPECT_EQ(back->name(), "WindowElements");
  EXPECT_EQ(back->spec().types, sample()->spec().types);
  EXPECT_EQ(back->spec().shapes, sample()->spec().shapes);
  ASSERT_EQ(back->size(), 2);
  const std::unique_ptr<Iterator> iterator =
      back->iterate(Iteration::of(*back, make_environment())).value();
  Element element;
  bool end = false;
  ASSERT_TRUE(iterator->next(element, end).ok());
  ASSERT_TRUE(iterator->next(element, end).ok());
  EXPECT_EQ(element[0].data<int64_t>()[0], 3);
  EXPECT_EQ(element[1].item<std::string>(), "b");
}

// Every byte changed or cut, and tensors that are not those: an error, or a dataset whose elements
// are what it says they are.
TEST(ElementsDataset, DamageIsFound) {
  std::string metadata;
  std::vector<Tensor> tensors;
  ASSERT_TRUE(sample()->encode(metadata, tensors).ok());
  const auto expect_answer = [](const std::string& bytes, const std::vector<Tensor>& with) {
    const Status status = ElementsDataset::decode(bytes, with).status();
    EXPECT_TRUE(status.ok() || status.code() == Code::kDataLoss ||
                status.code() == Code::kInvalidArgument)
        << status.to_string();
    return status.ok();
  };
  for (size_t at = 0; at < metadata.size(); ++at) {
    EXPECT_FALSE(expect_answer(metadata.substr(0, at), tensors)) << at;
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = metadata;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      expect_answer(damaged, tensors);
    }
  }
  EXPECT_FALSE(expect_answer(metadata, {}));
  std::vector<Tensor> others = tensors;
  others[0] = Tensor::scalar(1.0F);
  EXPECT_FALSE(expect_answer(metadata, others));
  others = tensors;
  others[0] = Tensor::scalar<int64_t>(1);  // no vector
  EXPECT_FALSE(expect_answer(metadata, others));
  others = tensors;
  others.push_back(tensors[0]);
  EXPECT_FALSE(expect_answer(metadata, others));
}

}  // namespace
}  // namespace millrace::data
