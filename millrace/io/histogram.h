#pragma once

#include <span>
#include <vector>

namespace tensorflow {
class HistogramProto;
}  // namespace tensorflow

namespace millrace {

// Counts numbers in buckets, as TensorBoard shows them: limits grow by a tenth from 1e-12 to 1e20,
// on both sides of 0 (docs/summaries.md). Not thread-safe.
class Histogram {
 public:
  Histogram();

  // `value` must be finite.
  void add(double value);
  // Neighbouring buckets that are empty are written as one.
  void write(tensorflow::HistogramProto& proto) const;

  // The upper ends of the buckets, ascending; a value lies below the end of its bucket, except for
  // the last bucket, which takes all that is left.
  static std::span<const double> limits();

 private:
  double min_, max_, num_ = 0, sum_ = 0, sum_squares_ = 0;
  std::vector<double> counts_;
};

}  // namespace millrace
