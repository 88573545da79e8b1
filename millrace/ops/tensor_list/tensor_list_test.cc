#include "millrace/ops/tensor_list/tensor_list.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <optional>
#include <random>

#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

void expect_invalid(const Status& status, std::string_view part) {
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
}

const auto serially = [](int64_t n, double, FunctionRef<void(int64_t, int64_t)> body) {
  body(0, n);
};

Ref<TensorList> int_list() { return make_ref<TensorList>(DType::kInt32, PartialShape::scalar()); }
Tensor number(int32_t x) { return Tensor::scalar(x); }

// A list and what it should hold.
struct Version {
  Ref<TensorList> list;
  std::vector<std::optional<int32_t>> expected;

  Version share() const { return {list->share(), expected}; }
  void check() const {
    ASSERT_EQ(list->length(), static_cast<int64_t>(expected.size()));
    int64_t set = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const Tensor& element = list->get(static_cast<int64_t>(i));
      ASSERT_EQ(element.valid(), expected[i].has_value()) << i;
      if (!element.valid()) continue;
      ASSERT_EQ(element.item<int32_t>(), *expected[i]) << i;
      ++set;
    }
    int64_t last = -1;
    const Status visited = list->for_each_set([&](int64_t i, const Tensor& element) -> Status {
      EXPECT_GT(i, last);
      EXPECT_EQ(&element, &list->get(i));
      last = i;
      --set;
      return ok_status();
    });
    EXPECT_TRUE(visited.ok());
    EXPECT_EQ(set, 0);
  }
};

TEST(TensorList, AgreesWithVectorAndOldVersionsStay) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::vector<Version> versions = {{int_list(), {}}};
  for (int step = 0; step < 6000; ++step) {
    Version& v = versions[below(versions.size())];
    const int32_t x = static_cast<int32_t>(random() % 1000);
    switch (below(8)) {
      case 0: {
        const size_t n = below(4) == 0 ? below(3000) : std::min<size_t>(v.expected.size() + 1, 900);
        ASSERT_TRUE(v.list->resize(static_cast<int64_t>(n)).ok());
        v.expected.resize(n);
        break;
      }
      case 1: {
        Version copy = v.share();
        if (versions.size() < 40) {
          versions.push_back(std::move(copy));
        } else {
          versions[below(versions.size())] = std::move(copy);
        }
        break;
      }
      case 2:
        if (v.expected.empty()) break;
        for (size_t n = below(80); n > 0 && !v.expected.empty(); --n) {
          const Tensor popped = v.list->pop().value();
          ASSERT_EQ(popped.valid(), v.expected.back().has_value());
          if (popped.valid()) {
            ASSERT_EQ(popped.item<int32_t>(), *v.expected.back());
          }
          v.expected.pop_back();
        }
        break;
      case 3:
      case 4:
        for (size_t n = below(80); n > 0; --n) {
          ASSERT_TRUE(v.list->push(number(x)).ok());
          v.expected.push_back(x);
        }
        break;
      default:
        if (v.expected.empty()) break;
        const size_t i = below(v.expected.size());
        ASSERT_TRUE(v.list->set(static_cast<int64_t>(i), number(x)).ok());
        v.expected[i] = x;
    }
    if (step % 500 == 0) {
      for (const Version& each : versions) each.check();
    }
  }
  for (const Version& v : versions) v.check();
}

TEST(TensorList, UnsharedIsChangedInPlace) {
  Ref<TensorList> list = int_list();
  for (int i = 0; i < 32; ++i) ASSERT_TRUE(list->push(number(i)).ok());
  const Tensor* const first = &list->get(0);
  const void* const memory = list->get(5).raw();
  for (int i = 32; i < 5000; ++i) ASSERT_TRUE(list->push(number(i)).ok());
  for (int i = 0; i < 4000; ++i) ASSERT_TRUE(list->pop().ok());
  ASSERT_TRUE(list->set(3, number(-3)).ok());
  EXPECT_EQ(&list->get(0), first);
  EXPECT_EQ(list->get(5).raw(), memory);
}

// Every version of 2000 lives on: they share all chunks but the one they differ in.
TEST(TensorList, SharedCopiesOneChunk) {
  std::vector<Ref<TensorList>> versions = {int_list()};
  for (int i = 0; i < 2000; ++i) {
    Ref<TensorList> next = versions.back()->share();
    ASSERT_TRUE(next->push(number(i)).ok());
    versions.push_back(std::move(next));
  }
  for (size_t v = 1; v + 1 < versions.size(); v += 97) {
    const TensorList &a = *versions[v], &b = *versions[v + 1];
    ASSERT_EQ(a.length() + 1, b.length());
    const int64_t chunk = a.length() / 32 * 32;  // what b changed
    for (int64_t i = 0; i < chunk; ++i) ASSERT_EQ(&a.get(i), &b.get(i)) << i;
    for (int64_t i = chunk; i < a.length(); ++i) ASSERT_NE(&a.get(i), &b.get(i)) << i;
  }
  Ref<TensorList> changed = versions.back()->share();
  ASSERT_TRUE(changed->set(100, number(7)).ok());
  for (int64_t i : {0, 95, 128, 1999}) EXPECT_EQ(&changed->get(i), &versions.back()->get(i));
  EXPECT_EQ(versions.back()->get(100).item<int32_t>(), 100);
}

TEST(TensorList, PopGivesTheOnlyReference) {
  Ref<TensorList> list = int_list();
  ASSERT_TRUE(list->push(number(1)).ok());
  EXPECT_TRUE(list->pop().value().writable());
}

TEST(TensorList, UnsetElementsCostNothing) {
  Ref<TensorList> list = make_ref<TensorList>(DType::kFloat, PartialShape{2});
  ASSERT_TRUE(list->resize(TensorList::kMaxLength).ok());
  EXPECT_FALSE(list->get(TensorList::kMaxLength - 1).valid());
  const Tensor x = Tensor::vector<float>({1, 2});
  ASSERT_TRUE(list->set(2'000'000'000, x).ok());
  expect_tensor_equal(list->get(2'000'000'000), x);
  EXPECT_FALSE(list->get(0).valid());
  const Ref<VariantObject> zeros = list->zeros_like().value();
  EXPECT_EQ(static_cast<const TensorList&>(*zeros).length(), TensorList::kMaxLength);
  std::string metadata;
  std::vector<Tensor> tensors;
  EXPECT_EQ(list->encode(metadata, tensors).code(), Code::kResourceExhausted);
  expect_invalid(list->push(x), "2147483647 elements, not 2147483648");
  ASSERT_TRUE(list->resize(1).ok());
  EXPECT_EQ(list->length(), 1);
}

TEST(TensorList, RefusesWhatDoesNotFit) {
  Ref<TensorList> list = make_ref<TensorList>(DType::kFloat, PartialShape{-1, 2}, 2);
  const Tensor x = random_tensor(DType::kFloat, {3, 2}, 1);
  expect_invalid(list->pop().status(), "empty");
  expect_invalid(list->push(random_tensor(DType::kInt32, {3, 2}, 1)), "type float");
  expect_invalid(list->push(random_tensor(DType::kFloat, {3, 3}, 1)), "shape [?,2]");
  ASSERT_TRUE(list->push(x).ok());
  ASSERT_TRUE(list->push(x).ok());
  expect_invalid(list->push(x), "2 elements, not 3");
  expect_invalid(list->resize(3), "2 elements, not 3");
  expect_invalid(list->resize(-1), "-1");
  expect_invalid(list->set(2, x), "[0, 2)");
  expect_invalid(list->set(-1, x), "got -1");
  expect_invalid(list->set(0, Tensor::scalar(1.0F)), "got shape []");
  EXPECT_EQ(list->length(), 2);
}

TEST(TensorList, NestingIsBounded) {
  Ref<TensorList> list = int_list();
  for (int depth = 1; depth < TensorList::kMaxNesting; ++depth) {
    Ref<TensorList> outer = make_ref<TensorList>(DType::kVariant, PartialShape());
    ASSERT_TRUE(outer->push(make_list_tensor(list)).ok());
    list = std::move(outer);
  }
  Ref<TensorList> outer = make_ref<TensorList>(DType::kVariant, PartialShape());
  expect_invalid(outer->push(make_list_tensor(list)), "16 deep, not 17");
}

Ref<TensorList> decoded(const TensorList& list) {
  std::string metadata;
  std::vector<Tensor> tensors;
  EXPECT_TRUE(list.encode(metadata, tensors).ok());
  Result<Ref<VariantObject>> read = TensorList::decode(metadata, std::move(tensors));
  EXPECT_TRUE(read.ok()) << read.status().to_string();
  return Ref<TensorList>(static_cast<TensorList*>(read.value().get()));
}

TEST(TensorList, IsWrittenAndRead) {
  Ref<TensorList> list = make_ref<TensorList>(DType::kFloat, PartialShape{-1, 2}, 70);
  ASSERT_TRUE(list->resize(50).ok());
  const Tensor x = random_tensor(DType::kFloat, {3, 2}, 1);
  for (int64_t i : {0, 7, 49}) ASSERT_TRUE(list->set(i, x).ok());
  const Ref<TensorList> read = decoded(*list);
  EXPECT_EQ(read->element_shape(), list->element_shape());
  EXPECT_EQ(read->max_num_elements(), 70);
  ASSERT_EQ(read->length(), 50);
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(read->get(i).valid(), list->get(i).valid()) << i;
  expect_tensor_equal(read->get(49), x);
  const Ref<TensorList> empty = decoded(*int_list());
  EXPECT_EQ(empty->max_num_elements(), TensorList::kUnlimited);
  EXPECT_EQ(empty->element_shape(), PartialShape::scalar());
}

TEST(TensorList, RefusesBytesThatAreNoList) {
  const auto refused = [](std::string_view metadata, std::vector<Tensor> tensors) {
    return TensorList::decode(metadata, std::move(tensors)).status();
  };
  using namespace std::string_view_literals;
  expect_invalid(refused("", {}), "ends within");
  expect_invalid(refused("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"sv, {}), "ends within");
  expect_invalid(refused("\xff\x7f\x01"sv, {}), "unset");
  expect_invalid(refused("\x00\x77\x00"sv, {}), "type number 119");
  expect_invalid(refused("\x00\x01\x00\xff"sv, {}), "shape");
  expect_invalid(refused("\x01\x05\x01\x07"sv, {Tensor::scalar(1.0F)}), "element 5");
  expect_invalid(refused("\x00\x01\x07"sv, {Tensor::scalar(1)}), "type float");
}

TEST(TensorList, ZerosLikeItsElements) {
  Ref<TensorList> list = make_ref<TensorList>(DType::kFloat, PartialShape());
  for (int64_t n : {2, 2, 3}) {
    ASSERT_TRUE(list->push(random_tensor(DType::kFloat, {n}, 1)).ok());
  }
  ASSERT_TRUE(list->resize(4).ok());
  Ref<TensorList> outer = make_ref<TensorList>(DType::kVariant, PartialShape::scalar());
  ASSERT_TRUE(outer->push(make_list_tensor(list)).ok());
  ASSERT_TRUE(outer->push(Tensor::scalar(Variant())).ok());
  const Ref<VariantObject> zeros = outer->zeros_like().value();
  const auto& all = static_cast<const TensorList&>(*zeros);
  ASSERT_EQ(all.length(), 2);
  EXPECT_FALSE(all.get(1).item<Variant>().object);
  const TensorList& inner = *as_tensor_list(all.get(0).item<Variant>());
  ASSERT_EQ(inner.length(), 4);
  expect_tensor_equal(inner.get(1), Tensor::vector<float>({0, 0}));
  expect_tensor_equal(inner.get(2), Tensor::vector<float>({0, 0, 0}));
  EXPECT_FALSE(inner.get(3).valid());
}

TEST(TensorList, AddsElementByElement) {
  const auto make = [](std::vector<Tensor> elements) {
    Ref<TensorList> list = make_ref<TensorList>(DType::kFloat, PartialShape());
    EXPECT_TRUE(list->resize(static_cast<int64_t>(elements.size())).ok());
    for (size_t i = 0; i < elements.size(); ++i) {
      if (!elements[i].valid()) continue;
      EXPECT_TRUE(list->set(static_cast<int64_t>(i), std::move(elements[i])).ok());
    }
    return list;
  };
  const Tensor x = Tensor::vector<float>({1, 2}), y = Tensor::vector<float>({10, 20});
  Ref<TensorList> a = make({x, Tensor(), x, Tensor()});
  const Ref<TensorList> b = make({y, y, Tensor(), Tensor()});
  ASSERT_TRUE(a->add(*b, serially).ok());
  expect_tensor_equal(a->get(0), Tensor::vector<float>({11, 22}));
  expect_tensor_equal(a->get(1), y);
  expect_tensor_equal(a->get(2), x);
  EXPECT_FALSE(a->get(3).valid());
  expect_tensor_equal(x, Tensor::vector<float>({1, 2}));
  const void* const memory = a->get(0).raw();
  ASSERT_TRUE(a->add(*b, serially).ok());
  EXPECT_EQ(a->get(0).raw(), memory) << "an element that nobody shares is added to in place";

  expect_invalid(a->add(*make({y}), serially), "one length, got 4 and 1");
  expect_invalid(a->add(*int_list(), serially), "one type, got float and int32");
  expect_invalid(a->add(*make({Tensor::scalar(1.0F), y, y, y}), serially), "element 0");
  Ref<TensorList> declared = make_ref<TensorList>(DType::kFloat, PartialShape{2});
  const Ref<TensorList> other = make_ref<TensorList>(DType::kFloat, PartialShape{3});
  expect_invalid(declared->add(*other, serially), "[2] and [3]");
}

// What a list declares holds for all its elements, also where the other list declares more.
TEST(TensorList, AddChecksWhatEitherDeclares) {
  const auto make = [](PartialShape shape, const Tensor& first) {
    Ref<TensorList> list = make_ref<TensorList>(DType::kFloat, std::move(shape));
    EXPECT_TRUE(list->resize(2).ok());
    EXPECT_TRUE(!first.valid() || list->set(0, first).ok());
    return list;
  };
  const Tensor wide = random_tensor(DType::kFloat, {2, 7}, 1);
  Ref<TensorList> a = make({2, -1}, wide);
  const Ref<TensorList> b = make({-1, 3}, Tensor());
  expect_invalid(a->add(*b, serially), "shape [2,3], but element 0 has shape [2,7]");
  expect_invalid(b->share()->add(*a, serially), "shape [2,3], but element 0 has shape [2,7]");
  expect_invalid(a->share_as({2, 3}).status(), "[2,7]");
  Ref<TensorList> c = make({2, -1}, random_tensor(DType::kFloat, {2, 3}, 1));
  ASSERT_TRUE(c->add(*b, serially).ok());
  EXPECT_EQ(c->element_shape(), (PartialShape{2, 3}));
}

}  // namespace
}  // namespace millrace
