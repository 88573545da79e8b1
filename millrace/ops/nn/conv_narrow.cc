#include "millrace/ops/nn/conv_narrow.h"

#include <algorithm>
#include <atomic>

#include "millrace/ops/linalg/scratch.h"
#include "millrace/ops/rounding.h"

namespace millrace {
namespace {

constexpr int64_t kMostChannels = 4;
// Of windows at every pixel that see more than one: so many channels at most, bytes of a panel of
// the filter, which stays in the second-level cache, and elements of the filter's gradient; so many
// pixels at least in a row of the output, and for a part of the filter's gradient.
constexpr int64_t kMostChannelsAtEveryPixel = 192;
constexpr int64_t kMostPanelBytes = int64_t{1} << 20;
constexpr int64_t kMostGradient = int64_t{1} << 17;
constexpr int64_t kLeastWidth = 12;
constexpr int64_t kPixelsOfPart = 390;
// No larger copy of the images is made for them.
constexpr int64_t kMostCopyBytes = int64_t{32} << 20;
// A tile has so many sums or more, in vectors, where it can.
constexpr int64_t kEnoughSums = 20;
// A copy of the images with zeros around them is at most so many times as large.
constexpr double kMostSeen = 4;
constexpr int64_t kParts = 16;
// Tasks are bands of the output; so much of the images stays in the second-level cache with what
// a band's windows make of it.
constexpr int64_t kTasks = 16;
constexpr int64_t kBandBytes = int64_t{192} << 10;
// So much of the output's gradient stays in the second-level cache while all filter elements meet
// it.
constexpr int64_t kBlockElements = int64_t{1} << 16;
constexpr double kFlopsPerNs = 50;

// How many input elements the windows of an axis span.
int64_t span_of(const AxisGeometry& axis) { return (axis.output - 1) * axis.stride + axis.window; }

// Images with all that windows see: pixel (0, 0) of each is the first window's.
template <class T>
class PaddedImages {
 public:
  PaddedImages(const ConvGeometry& g, const T* images)
      : g_(g),
        images_(images),
        fits_(fits(g.height) && fits(g.width)),
        rows_(fits_ ? g.height.input : span_of(g.height)),
        columns_(fits_ ? g.width.input : span_of(g.width)) {}

  // Whether they are as they lie in memory: else rows() copies them.
  bool in_place() const { return fits_; }
  int64_t count() const { return g_.batch * rows_; }  // of rows
  int64_t row_size() const { return columns_ * g_.in_channels; }
  // The row in which the windows of a row of an image's output begin.
  int64_t row_of(int64_t image, int64_t output_row) const {
    return image * rows_ + output_row * g_.height.stride;
  }

  // Rows [first, last) one after the other, in place or at `own`.
  const T* rows(int64_t first, int64_t last, T* own) const {
    if (fits_) return images_ + first * row_size();
    for (int64_t i = first; i < last; ++i) fill_row(i, own + (i - first) * row_size());
    return own;
  }

 private:
  static bool fits(const AxisGeometry& axis) {
    return axis.before == 0 && span_of(axis) <= axis.input;
  }

  void fill_row(int64_t i, T* to) const {
    const int64_t channels = g_.in_channels;
    const int64_t y = i % rows_ - g_.height.before;
    const int64_t before = std::min(g_.width.before, columns_) * channels;
    const int64_t length = std::min(g_.width.input * channels, row_size() - before);
    if (y < 0 || y >= g_.height.input) {
      std::fill_n(to, row_size(), T{});
      return;
    }
    const T* from = images_ + (i / rows_ * g_.height.input + y) * g_.width.input * channels;
    std::fill_n(to, before, T{});
    std::copy_n(from, length, to + before);
    std::fill(to + before + length, to + row_size(), T{});
  }

  const ConvGeometry& g_;
  const T* const images_;
  const bool fits_;
  const int64_t rows_, columns_;
};

// Columns of tiles of a matrix of `filters` columns whose rows come `length` at a time.
template <class T>
int panel_columns(int64_t filters, int64_t length) {
  const auto& kernels = isa_table<GemmKernels<T>>();
  const auto most = static_cast<int>(std::min<int64_t>(kernels.nr, filters));
  int best = most;
  double most_sums = 0;
  for (int wide = most; wide > 0; wide -= kernels.lanes) {
    const int64_t tiles = ceil_div(length, kernels.tile_rows(wide));
    const double sums =
        static_cast<double>(length * wide) / static_cast<double>(tiles * kernels.lanes);
    if (sums <= most_sums) continue;
    best = wide;
    most_sums = sums;
    if (sums >= kEnoughSums) break;
  }
  return best;
}

// Calls body(first, count) for pieces of [0, n) of nearly equal size, of at most `most`.
template <class F>
void for_tiles(int64_t n, int64_t most, F body) {
  const int64_t tiles = ceil_div(n, most);
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t first = t * n / tiles;
    body(first, static_cast<int>((t + 1) * n / tiles - first));
  }
}

// A part of the rows of all outputs.
struct Rows {
  int64_t first, last;
};

// How the filter's gradient is cut into pieces: some columns of a row of windows.
template <class T>
struct Pieces {
  explicit Pieces(const ConvGeometry& g)
      : columns(panel_columns<T>(g.out_channels, g.width.window * g.in_channels)),
        panels(ceil_div(g.out_channels, columns)),
        count(panels * g.height.window) {}
  const int columns;
  const int64_t panels, count;
};

// Pieces [first, last) of the filter's gradient from some rows, to `sums`. `all_seen` are all rows
// of the images.
template <class T>
void sum_rows(const ConvGeometry& g, const PaddedImages<T>& images, const T* all_seen,
              const T* out_gradient, Rows part, const Pieces<T>& pieces, int64_t first,
              int64_t last, T* sums) {
  const auto& kernels = isa_table<GemmKernels<T>>();
  const int64_t filters = g.out_channels, width = g.width.output;
  const int64_t run = g.width.window * g.in_channels;
  const int64_t step = g.width.stride * g.in_channels;
  const int64_t skip = g.height.stride * images.row_size() - width * step;
  const int64_t most = std::max<int64_t>(1, kBlockElements / (width * filters));
  const int tall_most = kernels.tile_rows(pieces.columns);
  for (int64_t row = part.first; row < part.last;) {
    const int64_t image = row / g.height.output, y = row % g.height.output;
    const int64_t rows = std::min({most, part.last - row, g.height.output - y});
    for (int64_t piece = first; piece < last; ++piece) {
      const int64_t fy = piece % g.height.window, j = piece / g.height.window * pieces.columns;
      const int wide = static_cast<int>(std::min<int64_t>(pieces.columns, filters - j));
      const T* seen = all_seen + (images.row_of(image, y) + fy) * images.row_size();
      for_tiles(run, tall_most, [&](int64_t i, int tall) {
        kernels.tile(tall, wide, rows * width, {seen + i, 1, step, width, skip},
                     out_gradient + row * width * filters + j, filters, nullptr,
                     sums + (fy * run + i) * filters + j, filters, row > part.first);
      });
    }
    row += rows;
  }
}

}  // namespace

namespace {

template <class T>
bool is_possible(const ConvGeometry& g) {
  // Padding may be of any size, and steps wider than windows: what is seen may be far more than is
  // there.
  const double seen =
      static_cast<double>(span_of(g.height)) * static_cast<double>(span_of(g.width));
  const double there = static_cast<double>(g.height.input) * static_cast<double>(g.width.input);
  return seen <= kMostSeen * there && g.height.dilation == 1 && g.width.dilation == 1 &&
         g.out_channels % isa_table<GemmKernels<T>>().lanes == 0;
}

template <class T>
bool at_every_pixel(const ConvGeometry& g) {
  const double copy = static_cast<double>(g.batch * g.in_channels) * sizeof(T) *
                      static_cast<double>(span_of(g.height)) *
                      static_cast<double>(span_of(g.width));
  return copy <= static_cast<double>(kMostCopyBytes) && g.height.stride == 1 &&
         g.width.stride == 1 && g.width.window > 1 && g.width.output >= kLeastWidth &&
         g.in_channels <= kMostChannelsAtEveryPixel;
}

}  // namespace

template <class T>
bool is_narrow_forward(const ConvGeometry& g) {
  if (!is_possible<T>(g)) return false;
  if (g.in_channels <= kMostChannels) return true;
  const int64_t panel_row = g.in_channels * isa_table<GemmKernels<T>>().nr;
  return at_every_pixel<T>(g) && g.height.window * g.width.window <=
                                     kMostPanelBytes / static_cast<int64_t>(sizeof(T)) / panel_row;
}

namespace {

// The gradient's geometry: a convolution of the output's gradient, whose result is the image's.
ConvGeometry turned_around(const ConvGeometry& g) {
  const auto axis = [](const AxisGeometry& a) {
    AxisGeometry turned = a;
    turned.input = a.output;
    turned.output = a.input;
    turned.before = a.window - 1 - a.before;
    return turned;
  };
  return {g.batch, axis(g.height), axis(g.width), g.out_channels, g.in_channels};
}

}  // namespace

template <class T>
bool is_narrow_input_gradient(const ConvGeometry& g) {
  if (g.height.before >= g.height.window || g.width.before >= g.width.window) return false;
  return at_every_pixel<T>(g) && g.out_channels > kMostChannels &&
         is_narrow_forward<T>(turned_around(g));
}

template <class T>
bool is_narrow_filter_gradient(const ConvGeometry& g) {
  if (!is_possible<T>(g)) return false;
  if (g.in_channels <= kMostChannels) return true;
  return at_every_pixel<T>(g) &&
         g.height.window * g.width.window <= kMostGradient / g.in_channels / g.out_channels;
}

namespace {

// How many rows of an image's output a task computes at a time: those of the image that they see
// stay in the second-level cache, and all threads have some.
int64_t rows_of_band(const ConvGeometry& g, int64_t row_bytes) {
  const int64_t seen = std::max<int64_t>(kBandBytes / row_bytes, g.height.window);
  const int64_t fitting = (seen - g.height.window) / g.height.stride + 1;
  return std::clamp<int64_t>(g.batch * g.height.output / kTasks, 1,
                             std::min(fitting, g.height.output));
}

}  // namespace

template <class T>
Status conv_forward_narrow(const ConvGeometry& g, const T* image, const T* filter, T* out,
                           ParallelFor parallel_for) {
  const auto& kernels = isa_table<GemmKernels<T>>();
  const int64_t filters = g.out_channels, width = g.width.output;
  const int64_t run = g.width.window * g.in_channels, depth = g.height.window * run;
  const PaddedImages<T> images(g, image);
  const int columns = panel_columns<T>(filters, width);
  const int tall_most = kernels.tile_rows(columns);
  const Scratch<T> packed(depth * ceil_div(filters, columns) * columns);
  MR_TRY(packed.status());
  StridedSource<T>(filter, 1, filters).pack(0, filters, 0, depth, columns, packed.data());
  const int64_t step = g.width.stride * g.in_channels, skip = images.row_size() - run;
  const int64_t band = rows_of_band(g, images.row_size() * static_cast<int64_t>(sizeof(T)));
  const int64_t bands = ceil_div(g.height.output, band);
  const int64_t seen_rows = (band - 1) * g.height.stride + g.height.window;
  const double cost = 2.0 * static_cast<double>(band * width * filters * depth) / kFlopsPerNs;
  std::atomic<bool> short_of_memory{false};
  parallel_for(g.batch * bands, cost, [&](int64_t begin, int64_t end) {
    const Scratch<T> own(images.in_place() ? 0 : seen_rows * images.row_size());
    if (own.data() == nullptr) {
      short_of_memory = true;
      return;
    }
    for (int64_t t = begin; t < end; ++t) {
      const int64_t n = t / bands, first = t % bands * band;
      const int64_t rows = std::min(band, g.height.output - first), from = images.row_of(n, first);
      const T* seen =
          images.rows(from, from + (rows - 1) * g.height.stride + g.height.window, own.data());
      T* to = out + (n * g.height.output + first) * width * filters;
      for (int64_t y = 0; y < rows; ++y, to += width * filters) {
        for (int64_t j = 0; j < filters; j += columns) {
          const int wide = static_cast<int>(std::min<int64_t>(columns, filters - j));
          for_tiles(width, tall_most, [&](int64_t x, int tall) {
            kernels.tile(tall, wide, depth, {seen + x * step, step, 1, run, skip},
                         packed.data() + j * depth, columns, nullptr, to + x * filters + j, filters,
                         false);
          });
        }
        seen += g.height.stride * images.row_size();
      }
    }
  });
  if (!short_of_memory) return ok_status();
  return resource_exhausted("OOM when copying rows of ", g.width.input, " x ", g.in_channels);
}

template <class T>
Status conv_backward_input_narrow(const ConvGeometry& g, const T* filter, const T* out_gradient,
                                  T* image_gradient, ParallelFor parallel_for) {
  const ConvGeometry turned = turned_around(g);
  // Window elements in reverse order, channels and filters exchanged.
  const int64_t elements = g.height.window * g.width.window;
  const Scratch<T> reversed(elements * g.in_channels * g.out_channels);
  MR_TRY(reversed.status());
  for (int64_t e = 0; e < elements; ++e) {
    const T* const from = filter + (elements - 1 - e) * g.in_channels * g.out_channels;
    T* to = reversed.data() + e * g.in_channels * g.out_channels;
    for (int64_t f = 0; f < g.out_channels; ++f) {
      for (int64_t c = 0; c < g.in_channels; ++c) *to++ = from[c * g.out_channels + f];
    }
  }
  return conv_forward_narrow(turned, out_gradient, reversed.data(), image_gradient, parallel_for);
}

template <class T>
Status conv_backward_filter_narrow(const ConvGeometry& g, const T* image, const T* out_gradient,
                                   T* filter_gradient, ParallelFor parallel_for) {
  const PaddedImages<T> images(g, image);
  const Scratch<T> copy(images.in_place() ? 0 : images.count() * images.row_size());
  MR_TRY(copy.status());
  const T* const seen = images.in_place() ? image : copy.data();
  if (!images.in_place()) {
    parallel_for(images.count(), static_cast<double>(images.row_size()) * 0.3,
                 [&](int64_t begin, int64_t end) {
                   images.rows(begin, end, copy.data() + begin * images.row_size());
                 });
  }
  const int64_t size = g.height.window * g.width.window * g.in_channels * g.out_channels;
  const int64_t rows = g.batch * g.height.output;
  const int64_t most_parts =
      g.in_channels <= kMostChannels
          ? kParts
          : std::clamp<int64_t>(rows * g.width.output / kPixelsOfPart, 1, kParts);
  const int64_t parts = std::min(most_parts, rows);
  const Scratch<T> sums((parts - 1) * size);
  MR_TRY(sums.status());
  // Of few channels, all pieces meet some rows while these are in the second-level cache.
  const Pieces<T> pieces(g);
  const int64_t together = g.in_channels <= kMostChannels ? pieces.count : 1;
  const int64_t tasks = pieces.count / together;
  const double cost = 2.0 * static_cast<double>(size * g.width.output) *
                      static_cast<double>(rows / parts) / kFlopsPerNs / static_cast<double>(tasks);
  parallel_for(parts * tasks, cost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t p = t / tasks, first = t % tasks * together;
      T* to = p == 0 ? filter_gradient : sums.data() + (p - 1) * size;
      sum_rows<T>(g, images, seen, out_gradient, {p * rows / parts, (p + 1) * rows / parts}, pieces,
                  first, first + together, to);
    }
  });
  parallel_for(size, static_cast<double>(parts) * 0.3, [&](int64_t begin, int64_t end) {
    for (int64_t p = 1; p < parts; ++p) {
      const T* from = sums.data() + (p - 1) * size;
      for (int64_t i = begin; i < end; ++i) filter_gradient[i] += from[i];
    }
  });
  return ok_status();
}

#define MR_INSTANTIATE_NARROW(T)                                                              \
  template bool is_narrow_forward<T>(const ConvGeometry&);                                    \
  template bool is_narrow_filter_gradient<T>(const ConvGeometry&);                            \
  template bool is_narrow_input_gradient<T>(const ConvGeometry&);                             \
  template Status conv_backward_input_narrow<T>(const ConvGeometry&, const T*, const T*, T*,  \
                                                ParallelFor);                                 \
  template Status conv_forward_narrow<T>(const ConvGeometry&, const T*, const T*, T*,         \
                                         ParallelFor);                                        \
  template Status conv_backward_filter_narrow<T>(const ConvGeometry&, const T*, const T*, T*, \
                                                 ParallelFor);
MR_INSTANTIATE_NARROW(float)
MR_INSTANTIATE_NARROW(double)
#undef MR_INSTANTIATE_NARROW

}  // namespace millrace
