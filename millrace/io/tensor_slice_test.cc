#include "millrace/io/tensor_slice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace millrace {
namespace {

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += kDigits[static_cast<uint8_t>(c) >> 4];
    out += kDigits[static_cast<uint8_t>(c) & 15];
  }
  return out;
}

TEST(TensorSliceTest, ReadsWhatItWrites) {
  for (const char* text : {"", "-", "0,5:-", "-:-:3,0", "9223372036854775807,1"}) {
    Result<TensorSlice> slice = TensorSlice::parse(text);
    ASSERT_TRUE(slice.ok()) << slice.status().to_string();
    EXPECT_EQ(slice->to_string(), text);
  }
  for (const char* text : {":", "-:", ":-", "1", "1,", ",1", "-1,2", "1,-1", "a,b", "1,2,3", "--",
                           "1,9223372036854775808"}) {
    EXPECT_EQ(TensorSlice::parse(text).status().code(), Code::kInvalidArgument) << text;
  }
}

TEST(TensorSliceTest, ShapeAndSlice) {
  const ShapeAndSlice spec = ShapeAndSlice::parse("10 20 0,5:-").value();
  EXPECT_EQ(spec.whole, (Shape{10, 20}));
  EXPECT_EQ(spec.shape, (Shape{5, 20}));
  for (const char* text : {"10 20 0,5", "10 0,11", "10 -1,5", "10 5,6", "x -", "10  0,5", "-"}) {
    EXPECT_EQ(ShapeAndSlice::parse(text).status().code(), Code::kInvalidArgument) << text;
  }
}

TEST(TensorSliceTest, KeysAreTensorFlows) {
  EXPECT_EQ(hex(slice_key("v", TensorSlice::parse("0,5:-").value())),
            "00760001010280"
            "85807f");
  // 64 and more need two bytes, 8192 three.
  EXPECT_EQ(hex(slice_key("", TensorSlice::parse("63,64").value())),
            "0000010101"
            "bf"
            "c040");
  EXPECT_EQ(hex(slice_key("", TensorSlice::parse("8191,8192").value())),
            "0000010101"
            "dfff"
            "e02000");
}

TEST(TensorSliceTest, KeysSortAsNumbersDo) {
  std::string last;
  for (int64_t start = 0; start >= 0 && start < INT64_MAX / 3; start = start * 3 + 1) {
    const std::string key = slice_key("v", TensorSlice({{start, 1}}));
    EXPECT_LT(last, key) << start;
    last = key;
  }
}

// Cuts a box out of a tensor by looking at every element.
Tensor cut(const Tensor& whole, const TensorSlice& box) {
  Tensor out = Tensor::allocate(DType::kInt32, box.shape().value()).value();
  for (int64_t i = 0; i < out.num_elements(); ++i) {
    int64_t rest = i;
    int64_t from = 0;
    int64_t stride = 1;
    for (int d = out.rank() - 1; d >= 0; --d) {
      from += (rest % out.dim(d) + box.extents()[static_cast<size_t>(d)].start) * stride;
      rest /= out.dim(d);
      stride *= whole.dim(d);
    }
    out.mutable_data<int32_t>()[static_cast<size_t>(i)] =
        whole.data<int32_t>()[static_cast<size_t>(from)];
  }
  return out;
}

TEST(TensorSliceTest, CopiesOverlaps) {
  const unsigned seed = 20161112;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> sizes(random() % 4);
    for (int64_t& size : sizes) size = 1 + static_cast<int64_t>(random() % 5);
    Tensor whole = Tensor::allocate(DType::kInt32, Shape::make(sizes).value()).value();
    std::iota(whole.mutable_data<int32_t>().begin(), whole.mutable_data<int32_t>().end(), 1);
    const auto draw = [&] {
      std::vector<TensorSlice::Extent> extents;
      for (const int64_t size : sizes) {
        const auto start = static_cast<int64_t>(random() % static_cast<uint64_t>(size));
        const auto most = static_cast<uint64_t>(size - start);
        extents.push_back({start, 1 + static_cast<int64_t>(random() % most)});
      }
      return TensorSlice(std::move(extents));
    };
    const TensorSlice from = draw();
    const TensorSlice to = draw();
    Tensor out = Tensor::zeros(DType::kInt32, to.shape().value()).value();
    copy_overlap(cut(whole, from), from, to, out);
    const Tensor expected = cut(whole, to);
    const Tensor there = cut(whole, from);
    for (int64_t i = 0; i < out.num_elements(); ++i) {
      const auto at = static_cast<size_t>(i);
      const int32_t wanted = expected.data<int32_t>()[at];
      const auto elements = there.data<int32_t>();
      const bool stored = std::find(elements.begin(), elements.end(), wanted) != elements.end();
      EXPECT_EQ(out.data<int32_t>()[at], stored ? wanted : 0)
          << from.to_string() << " " << to.to_string();
    }
  }
}

TEST(TensorSliceTest, TooManySlicesAreNotCompared) {
  std::vector<TensorSlice> others;
  const Shape whole{static_cast<int64_t>(kMostSlices) + 1};
  while (others.size() < kMostSlices) {
    others.push_back(TensorSlice({{static_cast<int64_t>(others.size()), 1}}));
  }
  const TensorSlice last({{static_cast<int64_t>(kMostSlices), 1}});
  EXPECT_EQ(check_disjoint(others, last, whole).code(), Code::kResourceExhausted);
  others.pop_back();
  EXPECT_TRUE(check_disjoint(others, last, whole).ok());
  EXPECT_EQ(check_disjoint({TensorSlice::whole(1)}, last, whole).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
