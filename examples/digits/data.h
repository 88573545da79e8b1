#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "millrace/tensor/tensor.h"

// 8x8 images of handwritten digits, in an order of which the first part is for training.

struct Batch {
  millrace::Tensor images;  // float [n, 8, 8, 1], 0 to 1
  millrace::Tensor labels;  // int32 [n]
};

class Digits {
 public:
  // Reads lines of 64 grey values from 0 to 16 and the digit, and shuffles them.
  static millrace::Result<Digits> read(const std::string& path, uint32_t seed);

  int num_train() const { return size() * 4 / 5; }
  int num_test() const { return size() - num_train(); }

  // Another order of the training images.
  void shuffle();
  // Training images [begin, end) in the current order.
  Batch train(int begin, int end) const { return batch(begin, end); }
  Batch test() const { return batch(num_train(), size()); }

 private:
  int size() const { return static_cast<int>(labels_.size()); }
  Batch batch(int begin, int end) const;

  std::vector<float> pixels_;
  std::vector<int32_t> labels_;
  std::vector<int64_t> order_;
  std::mt19937 random_;
};
