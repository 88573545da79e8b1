#include "millrace/ops/nn/conv_gemm.h"

#include <algorithm>
#include <vector>

#include "millrace/ops/nn/conv_narrow.h"

namespace millrace {
namespace {

constexpr int64_t kMaxRun = 512;
template <class T>
constexpr T kZeros[kMaxRun] = {};

// A window element of one dimension: which one, and its place relative to the line's origin.
struct Tap {
  int64_t index;
  int64_t offset;
};

// Patches of NHWC images, one per cell (i, j) of a grid over each image: the patch holds, for every
// pair of taps, the channels of pixel (i * step + row tap, j * step + column tap), zeros outside
// the image.
template <class T>
struct Patches {
  const T* image;
  int64_t rows, columns, channels;  // of an image
  int64_t grid_rows, grid_columns;  // cells per image
  int64_t row_step, column_step;
  std::vector<Tap> row_taps, column_taps;

  struct Cell {
    int64_t image, i, j;
  };
  Cell cell(int64_t line) const {
    const int64_t row = line / grid_columns;
    return {row / grid_rows, row % grid_rows, line % grid_columns};
  }
  void advance(Cell& c) const {
    if (++c.j < grid_columns) return;
    c.j = 0;
    if (++c.i < grid_rows) return;
    c.i = 0;
    ++c.image;
  }
  int64_t depth() const {
    return static_cast<int64_t>(row_taps.size() * column_taps.size()) * channels;
  }
  // Whether a row of a patch is one run of memory, inside the image.
  bool adjacent_columns() const {
    for (size_t t = 1; t < column_taps.size(); ++t) {
      if (column_taps[t].offset != column_taps[0].offset + static_cast<int64_t>(t)) return false;
    }
    return !column_taps.empty();
  }
  // The channels that a pair of taps sees from a cell; null outside the image.
  const T* pixel(const Cell& c, int64_t row_offset, int64_t column_offset) const {
    const int64_t row = c.i * row_step + row_offset, column = c.j * column_step + column_offset;
    if (row < 0 || row >= rows || column < 0 || column >= columns) return nullptr;
    return image + ((c.image * rows + row) * columns + column) * channels;
  }
};

// Lines are cells, k runs over a patch.
template <class T>
class PatchSource final : public GemmSource<T> {
 public:
  explicit PatchSource(const Patches<T>& patches)
      : p_(patches), adjacent_(patches.adjacent_columns()) {}

  void pack(int64_t line, int64_t count, int64_t k, int64_t depth, int width,
            T* out) const override {
    typename Patches<T>::Cell cells[kMaxPanel];
    typename Patches<T>::Cell next = p_.cell(line);
    for (; count > 0; count -= width, out += width * depth) {
      const int here = static_cast<int>(std::min<int64_t>(count, width));
      for (int i = 0; i < here; ++i, p_.advance(next)) cells[i] = next;
      if (inside(cells, here)) {
        pack_panel<true>(cells, here, k, depth, width, out);
      } else {
        pack_panel<false>(cells, here, k, depth, width, out);
      }
    }
  }

 private:
  using Cell = typename Patches<T>::Cell;

  // Whether each row of every patch is one run of memory.
  bool inside(const Cell* cells, int count) const {
    if (!adjacent_) return false;
    const int64_t first = p_.column_taps.front().offset, last = p_.column_taps.back().offset;
    for (int i = 0; i < count; ++i) {
      const int64_t column = cells[i].j * p_.column_step;
      if (column + first < 0 || column + last >= p_.columns) return false;
    }
    return true;
  }

  // A patch is a sequence of runs of adjacent elements: a row of it where kWholeRows, else a pixel.
  template <bool kWholeRows>
  void pack_panel(const Cell* cells, int here, int64_t k, int64_t depth, int width, T* out) const {
    const int64_t columns = kWholeRows ? 1 : static_cast<int64_t>(p_.column_taps.size());
    const int64_t run =
        p_.channels * (kWholeRows ? static_cast<int64_t>(p_.column_taps.size()) : 1);
    const auto interleave = isa_table<GemmKernels<T>>().interleave;
    const T* rows[kMaxPanel];
    for (int64_t done = 0; done < depth;) {
      const int64_t tap = (k + done) / run, at = (k + done) % run;
      const int64_t length = std::min({run - at, depth - done, kMaxRun});
      const int64_t row_offset = p_.row_taps[static_cast<size_t>(tap / columns)].offset;
      const int64_t column_offset = p_.column_taps[static_cast<size_t>(tap % columns)].offset;
      for (int i = 0; i < here; ++i) {
        const T* pixel = p_.pixel(cells[i], row_offset, column_offset);
        rows[i] = pixel != nullptr ? pixel + at : kZeros<T>;
      }
      interleave(rows, here, width, length, out + done * width);
      done += length;
    }
  }

  const Patches<T>& p_;
  const bool adjacent_;
};

// Lines run over a patch, k over cells: the patches transposed.
template <class T>
class TransposedPatchSource final : public GemmSource<T> {
 public:
  explicit TransposedPatchSource(const Patches<T>& patches)
      : p_(patches), narrow_(patches.adjacent_columns() && row_run() <= kNarrow) {}

  void pack(int64_t line, int64_t count, int64_t k, int64_t depth, int width,
            T* out) const override {
    const int64_t whole = count / width * width;
    if (whole < count) std::fill_n(out + whole * depth, width * depth, T{});
    for (int64_t first = 0; first < depth; first += kCells) {
      pack_cells(line, count, k + first, std::min(kCells, depth - first), depth, width,
                 out + first * width);
    }
  }

 private:
  using Cell = typename Patches<T>::Cell;
  static constexpr int64_t kCells = 128;
  // Of few channels a row of a patch is taken as one run.
  static constexpr int64_t kNarrow = 48;

  int64_t columns() const { return static_cast<int64_t>(p_.column_taps.size()); }
  int64_t row_run() const { return columns() * p_.channels; }

  // Cells [k, k + cells) of panels that are `depth` deep: run by run, where the cells see a run is
  // found once for all its lines.
  void pack_cells(int64_t line, int64_t count, int64_t k, int64_t cells, int64_t depth, int width,
                  T* out) const {
    const auto copy_lines = isa_table<GemmKernels<T>>().copy_lines;
    const int64_t run = narrow_ ? row_run() : p_.channels;
    const T* runs[kCells];
    T edges[kCells * kNarrow];
    for (int64_t done = 0; done < count;) {
      const int64_t tap = (line + done) / run, at = (line + done) % run;
      const int64_t length = std::min({run - at, count - done, kMaxRun});
      if (narrow_) {
        find_rows(p_.row_taps[static_cast<size_t>(tap)].offset, at, k, cells, runs, edges);
      } else {
        find_pixels(p_.row_taps[static_cast<size_t>(tap / columns())].offset,
                    p_.column_taps[static_cast<size_t>(tap % columns())].offset, at, k, cells,
                    runs);
      }
      for (int64_t e = 0; e < length;) {
        const int64_t panel = (done + e) / width, lane = (done + e) % width;
        const int64_t here = std::min(width - lane, length - e);
        copy_lines(runs, e, static_cast<int>(here), width, cells,
                   out + panel * width * depth + lane);
        e += here;
      }
      done += length;
    }
  }

  // Channels from `at` on that one pair of taps sees from each of the cells.
  void find_pixels(int64_t row_offset, int64_t column_offset, int64_t at, int64_t k, int64_t cells,
                   const T** runs) const {
    Cell cell = p_.cell(k);
    for (int64_t p = 0; p < cells; ++p, p_.advance(cell)) {
      const T* pixel = p_.pixel(cell, row_offset, column_offset);
      runs[p] = pixel != nullptr ? pixel + at : kZeros<T>;
    }
  }

  // The same of a row of taps: where it reaches over the image's sides, a copy with zeros.
  void find_rows(int64_t row_offset, int64_t at, int64_t k, int64_t cells, const T** runs,
                 T* edges) const {
    const int64_t first_offset = p_.column_taps[0].offset;
    Cell cell = p_.cell(k);
    for (int64_t p = 0; p < cells; ++p, p_.advance(cell), edges += kNarrow) {
      const int64_t row = cell.i * p_.row_step + row_offset;
      if (row < 0 || row >= p_.rows) {
        runs[p] = kZeros<T>;
        continue;
      }
      const int64_t column = cell.j * p_.column_step + first_offset;
      const int64_t begin = (cell.image * p_.rows + row) * p_.columns;
      if (column >= 0 && column + columns() <= p_.columns) {
        runs[p] = p_.image + (begin + column) * p_.channels + at;
        continue;
      }
      const int64_t from = std::clamp<int64_t>(-column, 0, columns());
      const int64_t to = std::clamp<int64_t>(p_.columns - column, from, columns());
      std::fill_n(edges, row_run(), T{});
      if (from < to) {
        std::copy_n(p_.image + (begin + column + from) * p_.channels, (to - from) * p_.channels,
                    edges + from * p_.channels);
      }
      runs[p] = edges + at;
    }
  }

  const Patches<T>& p_;
  const bool narrow_;
};

// Lines are the input channels of a filter, k runs over the chosen taps and the output channels.
template <class T>
class FilterSource final : public GemmSource<T> {
 public:
  FilterSource(const ConvGeometry& g, const T* filter, const Patches<T>& patches)
      : g_(g), filter_(filter), p_(patches) {}

  void pack(int64_t line, int64_t count, int64_t k, int64_t depth, int width,
            T* out) const override {
    const auto columns = static_cast<int64_t>(p_.column_taps.size());
    const T* rows[kMaxPanel];
    for (; count > 0; count -= width, line += width, out += width * depth) {
      const int here = static_cast<int>(std::min<int64_t>(count, width));
      for (int64_t done = 0; done < depth;) {
        const int64_t tap = (k + done) / g_.out_channels, at = (k + done) % g_.out_channels;
        const int64_t length = std::min(g_.out_channels - at, depth - done);
        const int64_t pixel =
            p_.row_taps[static_cast<size_t>(tap / columns)].index * g_.width.window +
            p_.column_taps[static_cast<size_t>(tap % columns)].index;
        for (int i = 0; i < here; ++i) {
          rows[i] = filter_ + (pixel * g_.in_channels + line + i) * g_.out_channels + at;
        }
        isa_table<GemmKernels<T>>().interleave(rows, here, width, length, out + done * width);
        done += length;
      }
    }
  }

 private:
  const ConvGeometry& g_;
  const T* filter_;
  const Patches<T>& p_;
};

std::vector<Tap> forward_taps(const AxisGeometry& axis) {
  std::vector<Tap> taps;
  for (int64_t t = 0; t < axis.window; ++t) taps.push_back({t, t * axis.dilation - axis.before});
  return taps;
}

template <class T>
Patches<T> forward_patches(const ConvGeometry& g, const T* image) {
  return {image,
          g.height.input,
          g.width.input,
          g.in_channels,
          g.height.output,
          g.width.output,
          g.height.stride,
          g.width.stride,
          forward_taps(g.height),
          forward_taps(g.width)};
}

// Input elements phase, phase + stride, ... see the same window elements: those for which
// phase + before - t * dilation is a multiple of the stride, at that multiple.
struct Phase {
  int64_t phase;
  std::vector<Tap> taps;
};

// The phases that see any.
std::vector<Phase> backward_phases(const AxisGeometry& axis) {
  std::vector<Phase> phases;
  for (int64_t phase = 0; phase < std::min(axis.stride, axis.input); ++phase) {
    std::vector<Tap> taps;
    for (int64_t t = 0; t < axis.window; ++t) {
      const int64_t distance = phase + axis.before - t * axis.dilation;
      if (distance % axis.stride == 0) taps.push_back({t, distance / axis.stride});
    }
    if (!taps.empty()) phases.push_back({phase, std::move(taps)});
  }
  return phases;
}

// Every pixel of the output sees the pixel in its place: a product of matrices in memory.
bool is_pointwise(const ConvGeometry& g) {
  const auto plain = [](const AxisGeometry& axis) {
    return axis.window == 1 && axis.stride == 1 && axis.before == 0 && axis.output == axis.input;
  };
  return plain(g.height) && plain(g.width);
}

// The rows of the image's gradient that one phase writes.
template <class T>
struct PhaseRows {
  const ConvGeometry& g;
  const Patches<T>& patches;
  int64_t row_phase, column_phase;

  static void offsets(const void* context, int64_t row, int64_t count, int64_t* offsets) {
    const auto& self = *static_cast<const PhaseRows*>(context);
    const ConvGeometry& g = self.g;
    auto cell = self.patches.cell(row);
    for (int64_t i = 0; i < count; ++i, self.patches.advance(cell)) {
      const int64_t y = self.row_phase + cell.i * g.height.stride;
      const int64_t x = self.column_phase + cell.j * g.width.stride;
      offsets[i] = ((cell.image * g.height.input + y) * g.width.input + x) * g.in_channels;
    }
  }
};

}  // namespace

template <class T>
Status conv_forward(const ConvGeometry& g, const T* image, const T* filter, T* out,
                    ParallelFor parallel_for) {
  if (is_narrow_forward<T>(g)) return conv_forward_narrow(g, image, filter, out, parallel_for);
  const int64_t pixels = g.batch * g.height.output * g.width.output;
  const StridedSource<T> right(filter, 1, g.out_channels);
  if (is_pointwise(g)) {
    const StridedSource<T> left(image, g.in_channels, 1);
    return gemm<T>({pixels, g.out_channels, g.in_channels, left, right, out, g.out_channels},
                   parallel_for);
  }
  const Patches<T> patches = forward_patches(g, image);
  const PatchSource<T> left(patches);
  return gemm<T>({pixels, g.out_channels, patches.depth(), left, right, out, g.out_channels},
                 parallel_for);
}

template <class T>
Status conv_backward_input(const ConvGeometry& g, const T* filter, const T* out_gradient,
                           T* image_gradient, ParallelFor parallel_for) {
  if (is_pointwise(g)) {
    const StridedSource<T> left(out_gradient, g.out_channels, 1);
    const StridedSource<T> right(filter, g.out_channels, 1);
    return gemm<T>({g.batch * g.height.input * g.width.input, g.in_channels, g.out_channels, left,
                    right, image_gradient, g.in_channels},
                   parallel_for);
  }
  if (is_narrow_input_gradient<T>(g)) {
    return conv_backward_input_narrow(g, filter, out_gradient, image_gradient, parallel_for);
  }
  const int64_t size = g.batch * g.height.input * g.width.input * g.in_channels;
  const bool plain = g.height.stride == 1 && g.width.stride == 1;
  // Elements between the windows stay zero.
  if (!plain) std::fill_n(image_gradient, size, T{});
  const std::vector<Phase> row_phases = backward_phases(g.height);
  const std::vector<Phase> column_phases = backward_phases(g.width);
  for (const Phase& row : row_phases) {
    for (const Phase& column : column_phases) {
      const int64_t grid_rows =
          (g.height.input - row.phase + g.height.stride - 1) / g.height.stride;
      const int64_t grid_columns =
          (g.width.input - column.phase + g.width.stride - 1) / g.width.stride;
      const Patches<T> patches{out_gradient,
                               g.height.output,
                               g.width.output,
                               g.out_channels,
                               grid_rows,
                               grid_columns,
                               1,
                               1,
                               row.taps,
                               column.taps};
      const PatchSource<T> left(patches);
      const FilterSource<T> right(g, filter, patches);
      GemmProblem<T> problem{g.batch * grid_rows * grid_columns,
                             g.in_channels,
                             patches.depth(),
                             left,
                             right,
                             image_gradient,
                             g.in_channels};
      const PhaseRows<T> rows{g, patches, row.phase, column.phase};
      if (!plain) {
        problem.row_offsets = &PhaseRows<T>::offsets;
        problem.row_context = &rows;
      }
      MR_TRY(gemm<T>(problem, parallel_for));
    }
  }
  return ok_status();
}

template <class T>
Status conv_backward_filter(const ConvGeometry& g, const T* image, const T* out_gradient,
                            T* filter_gradient, ParallelFor parallel_for) {
  if (is_narrow_filter_gradient<T>(g)) {
    return conv_backward_filter_narrow(g, image, out_gradient, filter_gradient, parallel_for);
  }
  const int64_t pixels = g.batch * g.height.output * g.width.output;
  const StridedSource<T> right(out_gradient, 1, g.out_channels);
  if (is_pointwise(g)) {
    const StridedSource<T> left(image, 1, g.in_channels);
    return gemm<T>(
        {g.in_channels, g.out_channels, pixels, left, right, filter_gradient, g.out_channels},
        parallel_for);
  }
  const Patches<T> patches = forward_patches(g, image);
  const TransposedPatchSource<T> left(patches);
  return gemm<T>(
      {patches.depth(), g.out_channels, pixels, left, right, filter_gradient, g.out_channels},
      parallel_for);
}

#define MR_INSTANTIATE_CONV(T)                                                               \
  template Status conv_forward<T>(const ConvGeometry&, const T*, const T*, T*, ParallelFor); \
  template Status conv_backward_input<T>(const ConvGeometry&, const T*, const T*, T*,        \
                                         ParallelFor);                                       \
  template Status conv_backward_filter<T>(const ConvGeometry&, const T*, const T*, T*, ParallelFor);
MR_INSTANTIATE_CONV(float)
MR_INSTANTIATE_CONV(double)
#undef MR_INSTANTIATE_CONV

}  // namespace millrace
