#include "millrace/io/histogram.h"

#include <algorithm>
#include <cfloat>

#include "proto/summary.pb.h"

namespace millrace {

std::span<const double> Histogram::limits() {
  static const std::vector<double> all = [] {
    std::vector<double> positive;
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
    positive.push_back(DBL_MAX);
    std::vector<double> out;
    for (size_t i = positive.size(); i > 0; --i) out.push_back(-positive[i - 1]);
    out.push_back(0);
    out.insert(out.end(), positive.begin(), positive.end());
    return out;
  }();
  return all;
}

Histogram::Histogram() : min_(DBL_MAX), max_(-DBL_MAX), counts_(limits().size()) {}

void Histogram::add(double value) {
  const std::span<const double> ends = limits();
  const size_t bucket =
      static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), value) - ends.begin());
  counts_[std::min(bucket, counts_.size() - 1)] += 1;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  num_ += 1;
  sum_ += value;
  sum_squares_ += value * value;
}

void Histogram::write(tensorflow::HistogramProto& proto) const {
  proto.Clear();
  proto.set_min(min_);
  proto.set_max(max_);
  proto.set_num(num_);
  proto.set_sum(sum_);
  proto.set_sum_squares(sum_squares_);
  const std::span<const double> ends = limits();
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] == 0 && i + 1 < counts_.size() && counts_[i + 1] == 0) continue;
    proto.add_bucket_limit(ends[i]);
    proto.add_bucket(counts_[i]);
  }
}

}  // namespace millrace
