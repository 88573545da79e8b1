#include "millrace/ops/nn/conv_winograd.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "millrace/ops/linalg/scratch.h"
#include "millrace/ops/nn/winograd_gemm.h"
#include "millrace/ops/rounding.h"

namespace millrace {
namespace {

constexpr int64_t kSeen = WinogradLoops::kSeen, kElements = WinogradLoops::kElements;
// Images are transformed so many tiles at a time that they stay in the last cache.
constexpr int64_t kChunkElements = int64_t{1} << 21;
// A task multiplies at most so many tiles with so many filters: sums and filters stay in the
// second-level cache.
constexpr int64_t kTilesPerBlock = 96;
constexpr int64_t kLeastTiles = 24;
constexpr int64_t kColumns = 64;
constexpr int64_t kTasks = 12;
// So many channels are summed at a time.
constexpr int64_t kDepth = 128;
// Transformed filters that are no larger, and meet so many blocks of tiles, are kept for all of
// them; others are transformed again for each.
constexpr int64_t kKeptElements = int64_t{5} << 19;
constexpr int64_t kKeptBlocks = 4;
// Streams at multiples of a page fall on each other in caches.
constexpr int64_t kPad = 16;
constexpr double kFlopsPerNs = 50;

// Output element o of an axis sees input elements o - before + t for t < window, zeros where there
// are none.
struct Side {
  int64_t input, before, output;
};

// What is computed: out[n, y, x, f] = sum of image[n, y - before + t, x - before + s, c] w[t, s, c,
// f].
struct Correlation {
  int64_t batch;
  Side height, width;
  int64_t channels, filters;
  int64_t window;

  int64_t tile() const { return kSeen + 1 - window; }
  int64_t tiles(const Side& side) const { return ceil_div(side.output, tile()); }
  int64_t tiles() const { return batch * tiles(height) * tiles(width); }
};

const WinogradLoops& loops_for(const Correlation& c) {
  const WinogradTable& table = isa_table<WinogradTable>();
  return c.window == table.three.window ? table.three : table.five;
}

// Rows of the kernels' tiles of so many columns that cover `rows`, each nearly as many.
int64_t tile_rows(const GemmKernels<float>& kernels, int64_t rows, int columns) {
  return ceil_div(rows, ceil_div(rows, kernels.tile_rows(columns)));
}

// Where a tile of the result lies.
struct Place {
  int64_t image, row, column;  // of its first pixel
};
Place place(const Correlation& c, int64_t tile) {
  const int64_t columns = c.tiles(c.width), rows = c.tiles(c.height), row = tile / columns;
  return {row / rows, row % rows * c.tile(), tile % columns * c.tile()};
}

// The pixels that the windows of a tile see; `zeros` where there are none.
void seen_pixels(const Correlation& c, Place at, const float* image, const float* zeros,
                 const float** pixels) {
  const int64_t row = at.row - c.height.before, column = at.column - c.width.before;
  for (int64_t i = 0; i < kSeen; ++i) {
    const bool on_image = row + i >= 0 && row + i < c.height.input;
    const int64_t line = (at.image * c.height.input + row + i) * c.width.input;
    for (int64_t j = 0; j < kSeen; ++j) {
      const bool inside = on_image && column + j >= 0 && column + j < c.width.input;
      pixels[i * kSeen + j] = inside ? image + (line + column + j) * c.channels : zeros;
    }
  }
}

// The pixels of a tile of `result`; `nowhere` where it reaches over the sides.
template <class T>
void tile_pixels(const Correlation& c, Place at, T* result, T* nowhere, T** pixels) {
  const int64_t tile = c.tile();
  for (int64_t y = 0; y < tile; ++y) {
    const int64_t line = (at.image * c.height.output + at.row + y) * c.width.output;
    for (int64_t x = 0; x < tile; ++x) {
      const bool inside = at.row + y < c.height.output && at.column + x < c.width.output;
      pixels[y * tile + x] = inside ? result + (line + at.column + x) * c.filters : nowhere;
    }
  }
}

// The filters w of a correlation: as they lie in [window, window, channels, filters], or turned
// round in [window, window, filters, channels].
struct Filters {
  const float* data;
  bool turned;
};

class Winograd {
 public:
  Winograd(const Correlation& c, const float* image, Filters filters, float* out)
      : c_(c),
        image_(image),
        filters_(filters),
        out_(out),
        kernels_(isa_table<GemmKernels<float>>()),
        loops_(loops_for(c)),
        taps_(c.window * c.window),
        groups_(ceil_div(c.filters, kColumns)),
        depth_(ceil_div(c.channels, ceil_div(c.channels, kDepth))),
        depths_(ceil_div(c.channels, depth_)) {
    const int64_t tiles = c.tiles();
    const int64_t chunk = std::clamp<int64_t>(kChunkElements / (kElements * c.channels),
                                              kTilesPerBlock, std::max(tiles, kTilesPerBlock));
    int64_t block = std::min(kTilesPerBlock, tiles);
    // Enough tasks that threads finish together.
    while (block > kLeastTiles && ceil_div(std::min(chunk, tiles), block) * groups_ < kTasks) {
      block = ceil_div(block, 2);
    }
    const int64_t blocks = ceil_div(tiles, block);
    block_ = round_up(ceil_div(tiles, blocks), kernels_.mr);
    chunk_blocks_ = std::max<int64_t>(1, chunk / block_);
    image_step_ = block_ * c.channels + kPad;
    sums_step_ = block_ * kColumns + kPad;
    filter_step_ = depth_ * kColumns + kPad;
    keeps_filters_ =
        blocks >= kKeptBlocks && groups_ * depths_ * kElements * filter_step_ <= kKeptElements;
  }

  Status run(ParallelFor parallel_for) const {
    const int64_t blocks = ceil_div(c_.tiles(), block_);
    const int64_t most = std::min(chunk_blocks_, blocks);
    const Scratch<float> image(most * kElements * image_step_ + c_.channels);
    MR_TRY(image.status());
    const Scratch<float> filters(keeps_filters_ ? groups_ * depths_ * slice_size() : 0);
    MR_TRY(filters.status());
    float* const zeros = image.data() + most * kElements * image_step_;
    std::fill_n(zeros, c_.channels, 0.0F);
    std::atomic<bool> short_of_memory{false};
    if (keeps_filters_) {
      const int64_t pieces = ceil_div(depth_, kTurned);
      parallel_for(groups_ * depths_ * pieces,
                   static_cast<double>(slice_size()) * 0.2 / static_cast<double>(pieces),
                   [&](int64_t begin, int64_t end) {
                     const Scratch<float> own(turning_size());
                     if (own.data() == nullptr) {
                       short_of_memory = true;
                       return;
                     }
                     for (int64_t t = begin; t < end; ++t) {
                       const int64_t s = t / pieces, first = t % pieces * kTurned;
                       transform_filters(s / depths_, s % depths_ * depth_, first, first + kTurned,
                                         own.data(), filters.data() + s * slice_size());
                     }
                   });
    }
    for (int64_t first = 0; first < blocks && !short_of_memory; first += most) {
      const int64_t here = std::min(most, blocks - first);
      const int64_t tiles = std::min(here * block_, c_.tiles() - first * block_);
      parallel_for(tiles, static_cast<double>(kElements * c_.channels) * 0.1,
                   [&](int64_t begin, int64_t end) {
                     transform_images(first * block_, begin, end, zeros, image.data());
                   });
      const double cost =
          2.0 * static_cast<double>(kElements * block_ * kColumns * c_.channels) / kFlopsPerNs;
      parallel_for(here * groups_, cost, [&](int64_t begin, int64_t end) {
        const Scratch<float> own(kElements * sums_step_ + kColumns +
                                 (keeps_filters_ ? 0 : slice_size() + turning_size()));
        if (own.data() == nullptr) {
          short_of_memory = true;
          return;
        }
        for (int64_t t = begin; t < end; ++t) {
          const int64_t block = t / groups_;
          multiply(image.data() + block * kElements * image_step_, (first + block) * block_,
                   t % groups_, filters.data(), own.data());
        }
      });
    }
    if (!short_of_memory) return ok_status();
    return resource_exhausted("OOM when transforming filters of ", c_.channels, " x ", c_.filters);
  }

 private:
  // Tiles [begin, end) after `first`, of which the transformed begin at `out`:
  // [block][element][tile of the block][channel].
  void transform_images(int64_t first, int64_t begin, int64_t end, const float* zeros,
                        float* out) const {
    const float* pixels[kElements];
    for (int64_t t = begin; t < end; ++t) {
      seen_pixels(c_, place(c_, first + t), image_, zeros, pixels);
      loops_.image(pixels, c_.channels,
                   out + t / block_ * kElements * image_step_ + t % block_ * c_.channels,
                   image_step_);
    }
  }

  // Transformed filters of a group of columns and some channels: [element][panel][channel][column].
  int64_t slice_size() const { return kElements * filter_step_; }
  static constexpr int64_t kTurned = 16;  // channels at a time
  int64_t turning_size() const { return filters_.turned ? taps_ * kTurned * kMaxPanel : 0; }

  // Channels [first, last), as far as they are there, of the slice that begins with channel k.
  void transform_filters(int64_t group, int64_t k, int64_t first, int64_t last, float* turning,
                         float* out) const {
    const int64_t depth = std::min(depth_, c_.channels - k);
    const int64_t end = std::min(c_.filters, (group + 1) * kColumns);
    last = std::min(last, depth);
    for (int64_t n = group * kColumns; n < end; n += kernels_.nr, out += depth * kernels_.nr) {
      const int64_t wide = std::min<int64_t>(kernels_.nr, end - n);
      if (filters_.turned) {
        turn_filters(n, wide, k, first, last, turning, out);
        continue;
      }
      for (int64_t p = first; p < last; ++p) {
        loops_.filter(filters_.data + (k + p) * c_.filters + n, c_.channels * c_.filters, wide,
                      out + p * kernels_.nr, filter_step_);
      }
    }
  }

  void turn_filters(int64_t n, int64_t wide, int64_t k, int64_t first, int64_t last, float* turning,
                    float* out) const {
    const int width = kernels_.nr;
    const float* rows[kMaxPanel];
    for (int64_t done = first; done < last; done += kTurned) {
      const int64_t length = std::min(kTurned, last - done);
      for (int64_t tap = 0; tap < taps_; ++tap) {
        for (int64_t i = 0; i < wide; ++i) {
          rows[i] =
              filters_.data + ((taps_ - 1 - tap) * c_.filters + n + i) * c_.channels + k + done;
        }
        kernels_.interleave(rows, static_cast<int>(wide), width, length,
                            turning + tap * kTurned * width);
      }
      for (int64_t p = 0; p < length; ++p) {
        loops_.filter(turning + p * width, kTurned * width, wide, out + (done + p) * width,
                      filter_step_);
      }
    }
  }

  // A block of transformed tiles, the first of which is `tile`, with a group of filters.
  void multiply(const float* image, int64_t tile, int64_t group, const float* kept,
                float* own) const {
    float* const sums = own;
    float* const nowhere = sums + kElements * sums_step_;
    float* const slice = nowhere + kColumns;
    const int64_t tiles = std::min(block_, c_.tiles() - tile);
    const int64_t columns = std::min(kColumns, c_.filters - group * kColumns);
    for (int64_t k = 0; k < c_.channels; k += depth_) {
      const int64_t depth = std::min(depth_, c_.channels - k);
      const float* filters = slice;
      if (keeps_filters_) {
        filters = kept + (group * depths_ + k / depth_) * slice_size();
      } else {
        transform_filters(group, k, 0, depth, slice + slice_size(), slice);
      }
      for (int64_t e = 0; e < kElements; ++e) {
        for (int64_t n = 0; n < columns; n += kernels_.nr) {
          const int wide = static_cast<int>(
              round_up(std::min<int64_t>(kernels_.nr, columns - n), kernels_.lanes));
          const int64_t tall = tile_rows(kernels_, tiles, wide);
          for (int64_t i = 0; i < tiles; i += tall) {
            kernels_.tile(static_cast<int>(std::min(tall, tiles - i)), wide, depth,
                          {image + e * image_step_ + i * c_.channels + k, c_.channels, 1},
                          filters + e * filter_step_ + n * depth, kernels_.nr, nullptr,
                          sums + e * sums_step_ + i * kColumns + n, kColumns, k > 0);
          }
        }
      }
    }
    for (int64_t i = 0; i < tiles; ++i) {
      float* pixels[kElements];
      tile_pixels(c_, place(c_, tile + i), out_ + group * kColumns, nowhere, pixels);
      loops_.result(sums + i * kColumns, sums_step_, columns, pixels);
    }
  }

  const Correlation c_;
  const float* const image_;
  const Filters filters_;
  float* const out_;
  const GemmKernels<float>& kernels_;
  const WinogradLoops& loops_;
  const int64_t taps_;
  const int64_t groups_;          // of kColumns filters
  const int64_t depth_, depths_;  // of so many channels each, and how many
  int64_t block_ = 0;             // tiles
  int64_t chunk_blocks_ = 0;
  int64_t image_step_ = 0, sums_step_ = 0, filter_step_ = 0;  // from one of 36 elements to the next
  bool keeps_filters_ = false;
};

// The gradient of a correlation's filters: w[t, s, c, f] = sum of image[n, y - before + t, x -
// before + s, c] gradient[n, y, x, f]. Some tiles at a time are transformed, then each task sums
// products over these tiles: where all sums fit into the last cache one of the 36 elements of all
// channels with a group of filters, to be transformed back in the end; else all elements of some
// channels with a group, transformed back at once.
class FilterGradient {
 public:
  FilterGradient(const Correlation& c, const float* image, const float* gradient, float* w)
      : c_(c),
        image_(image),
        gradient_(gradient),
        w_(w),
        kernels_(isa_table<GemmKernels<float>>()),
        loops_(loops_for(c)),
        groups_(ceil_div(c.filters, kColumns)),
        parts_(ceil_div(c.channels, kRows)) {
    all_sums_step_ = c.channels * kColumns + kPad;
    keeps_sums_ = groups_ * kElements * all_sums_step_ <= kKeptSums;
    const int64_t fitting =
        2 * kChunkElements / (kElements * (parts_ * kRows + groups_ * kColumns));
    const int64_t most =
        keeps_sums_ ? std::clamp(fitting, kLeastSummed, kSummed) : std::max(fitting, kLeastSummed);
    tiles_ = ceil_div(c.tiles(), ceil_div(c.tiles(), most));
    depth_ = ceil_div(tiles_, ceil_div(tiles_, kSummed));
    image_step_ = tiles_ * kRows + kPad;
    gradient_step_ = tiles_ * kColumns + kPad;
  }

  Status run(ParallelFor parallel_for) const {
    const Scratch<float> image(parts_ * kElements * image_step_);
    MR_TRY(image.status());
    const Scratch<float> gradient(groups_ * kElements * gradient_step_);
    MR_TRY(gradient.status());
    const Scratch<float> all_sums(keeps_sums_ ? groups_ * kElements * all_sums_step_ : 0);
    MR_TRY(all_sums.status());
    const Scratch<float> zeros(std::max(c_.channels, kColumns));
    MR_TRY(zeros.status());
    std::fill_n(zeros.data(), std::max(c_.channels, kColumns), 0.0F);
    std::atomic<bool> short_of_memory{false};
    for (int64_t first = 0; first < c_.tiles() && !short_of_memory; first += tiles_) {
      const int64_t tiles = std::min(tiles_, c_.tiles() - first);
      parallel_for(tiles, static_cast<double>(kElements * (c_.channels + c_.filters)) * 0.1,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t t = begin; t < end; ++t) {
                       transform(first, t, zeros.data(), image.data(), gradient.data());
                     }
                   });
      const Chunk chunk{image.data(), gradient.data(), tiles, first > 0};
      if (keeps_sums_) {
        parallel_for(groups_ * kElements, nanoseconds(c_.channels, tiles),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t t = begin; t < end; ++t) {
                         sum_element(chunk, t / kElements, t % kElements, all_sums.data());
                       }
                     });
        continue;
      }
      parallel_for(groups_ * parts_, nanoseconds(kElements * kRows, tiles),
                   [&](int64_t begin, int64_t end) {
                     const Scratch<float> sums(kElements * kSumsStep);
                     if (sums.data() == nullptr) {
                       short_of_memory = true;
                       return;
                     }
                     for (int64_t t = begin; t < end; ++t) {
                       sum_part(chunk, t / parts_, t % parts_, sums.data());
                     }
                   });
    }
    if (short_of_memory) {
      return resource_exhausted("OOM when summing the gradient of filters of ", c_.channels, " x ",
                                c_.filters);
    }
    if (!keeps_sums_) return ok_status();
    parallel_for(groups_ * c_.channels, static_cast<double>(kElements * kColumns) * 0.1,
                 [&](int64_t begin, int64_t end) {
                   for (int64_t t = begin; t < end; ++t) {
                     const int64_t group = t / c_.channels, channel = t % c_.channels;
                     transform_back(
                         all_sums.data() + group * kElements * all_sums_step_ + channel * kColumns,
                         all_sums_step_, group, channel, /*accumulate=*/false);
                   }
                 });
    return ok_status();
  }

 private:
  static constexpr int64_t kRows = 48;  // channels that lie side by side
  static constexpr int64_t kSumsStep = kRows * kColumns + kPad;
  static constexpr int64_t kKeptSums = int64_t{1} << 22;
  static constexpr int64_t kSummed = 256;
  static constexpr int64_t kLeastSummed = 48;

  // Transformed tiles. `adds`: others were summed before.
  struct Chunk {
    const float *image, *gradient;
    int64_t tiles;
    bool adds;
  };

  int64_t columns(int64_t group) const { return std::min(kColumns, c_.filters - group * kColumns); }
  static double nanoseconds(int64_t rows, int64_t tiles) {
    return 2.0 * static_cast<double>(rows * kColumns) * static_cast<double>(tiles) / kFlopsPerNs;
  }

  // Images: [part of the channels][element][tile][channel]; gradients: [group][element][tile]
  // [filter].
  void transform(int64_t first, int64_t t, const float* zeros, float* image,
                 float* gradient) const {
    const Place at = place(c_, first + t);
    const float* pixels[kElements];
    seen_pixels(c_, at, image_, zeros, pixels);
    for (int64_t part = 0; part < parts_; ++part) {
      loops_.image(pixels, std::min(kRows, c_.channels - part * kRows),
                   image + part * kElements * image_step_ + t * kRows, image_step_);
      for (const float*& pixel : pixels) pixel += kRows;
    }
    for (int64_t group = 0; group < groups_; ++group) {
      tile_pixels(c_, at, gradient_ + group * kColumns, zeros, pixels);
      loops_.gradient(pixels, columns(group),
                      gradient + group * kElements * gradient_step_ + t * kColumns, gradient_step_);
    }
  }

  // Sums of one element of a part of the channels with a group of filters.
  void sum(const Chunk& chunk, int64_t group, int64_t part, int64_t element, bool adds,
           float* sums) const {
    const int64_t rows = std::min(kRows, c_.channels - part * kRows);
    const float* const left = chunk.image + (part * kElements + element) * image_step_;
    const float* const right = chunk.gradient + (group * kElements + element) * gradient_step_;
    for (int64_t k = 0; k < chunk.tiles; k += depth_) {
      for (int64_t n = 0; n < columns(group); n += kernels_.nr) {
        const int wide = static_cast<int>(
            round_up(std::min<int64_t>(kernels_.nr, columns(group) - n), kernels_.lanes));
        const int64_t tall = tile_rows(kernels_, rows, wide);
        for (int64_t i = 0; i < rows; i += tall) {
          kernels_.tile(static_cast<int>(std::min(tall, rows - i)), wide,
                        std::min(depth_, chunk.tiles - k), {left + k * kRows + i, 1, kRows},
                        right + k * kColumns + n, kColumns, nullptr, sums + i * kColumns + n,
                        kColumns, adds || k > 0);
        }
      }
    }
  }

  void sum_element(const Chunk& chunk, int64_t group, int64_t element, float* all_sums) const {
    float* const sums = all_sums + (group * kElements + element) * all_sums_step_;
    for (int64_t part = 0; part < parts_; ++part) {
      sum(chunk, group, part, element, chunk.adds, sums + part * kRows * kColumns);
    }
  }

  void sum_part(const Chunk& chunk, int64_t group, int64_t part, float* sums) const {
    for (int64_t e = 0; e < kElements; ++e) {
      sum(chunk, group, part, e, /*adds=*/false, sums + e * kSumsStep);
    }
    const int64_t end = std::min(c_.channels, (part + 1) * kRows);
    for (int64_t channel = part * kRows; channel < end; ++channel) {
      transform_back(sums + channel % kRows * kColumns, kSumsStep, group, channel, chunk.adds);
    }
  }

  void transform_back(const float* sums, int64_t step, int64_t group, int64_t channel,
                      bool accumulate) const {
    loops_.filter_gradient(sums, step, columns(group), accumulate,
                           w_ + channel * c_.filters + group * kColumns, c_.channels * c_.filters);
  }

  const Correlation c_;
  const float *const image_, *const gradient_;
  float* const w_;
  const GemmKernels<float>& kernels_;
  const WinogradLoops& loops_;
  const int64_t groups_;  // of kColumns filters
  const int64_t parts_;   // of kRows channels
  bool keeps_sums_ = false;
  int64_t tiles_ = 0;  // that are transformed at a time
  int64_t depth_ = 0;  // of which are summed at a time
  // From one of the 36 elements to the next.
  int64_t image_step_ = 0, gradient_step_ = 0, all_sums_step_ = 0;
};

Side forward_side(const AxisGeometry& axis) { return {axis.input, axis.before, axis.output}; }
// The input's gradient sees that of the output through windows turned round.
Side backward_side(const AxisGeometry& axis) {
  return {axis.output, axis.window - 1 - axis.before, axis.input};
}

Correlation forward_correlation(const ConvGeometry& g) {
  return {g.batch,       forward_side(g.height), forward_side(g.width),
          g.in_channels, g.out_channels,         g.height.window};
}
Correlation backward_correlation(const ConvGeometry& g) {
  return {g.batch,        backward_side(g.height), backward_side(g.width),
          g.out_channels, g.in_channels,           g.height.window};
}

bool fits(const AxisGeometry& axis) {
  return (axis.window == 3 || axis.window == 5) && axis.stride == 1 && axis.dilation == 1;
}

// By measuring some hundred sizes with every product. With fewer channels or filters transforming
// is most of the work, with few tiles the transforms of filters are, which grow with the window;
// tiles that are half empty multiply more than half as often as the definition does.
constexpr int64_t kLeastChannels = 16;
constexpr double kLeastFilled = 0.5;

bool pays(const Correlation& c, int64_t least_tiles) {
  const int64_t tiles = c.tiles();
  const double pixels = static_cast<double>(c.batch * c.height.output * c.width.output);
  return std::min(c.channels, c.filters) >= kLeastChannels && tiles >= least_tiles &&
         pixels >= kLeastFilled * static_cast<double>(tiles * c.tile() * c.tile());
}
int64_t least_tiles(const Correlation& c) { return c.window * c.window * 4 / 3; }

}  // namespace

bool fits_winograd(const ConvGeometry& g) {
  return fits(g.height) && fits(g.width) && g.height.window == g.width.window;
}

bool winograd_pays_forward(const ConvGeometry& g) {
  const Correlation c = forward_correlation(g);
  return fits_winograd(g) && pays(c, least_tiles(c));
}
bool winograd_pays_backward_input(const ConvGeometry& g) {
  const Correlation c = backward_correlation(g);
  return fits_winograd(g) && pays(c, least_tiles(c));
}
bool winograd_pays_backward_filter(const ConvGeometry& g) {
  const Correlation c = forward_correlation(g);
  return fits_winograd(g) && pays(c, 2 * least_tiles(c));
}

Status conv_forward_winograd(const ConvGeometry& g, const float* image, const float* filter,
                             float* out, ParallelFor parallel_for) {
  return Winograd(forward_correlation(g), image, {filter, false}, out).run(parallel_for);
}

Status conv_backward_input_winograd(const ConvGeometry& g, const float* filter,
                                    const float* out_gradient, float* image_gradient,
                                    ParallelFor parallel_for) {
  return Winograd(backward_correlation(g), out_gradient, {filter, true}, image_gradient)
      .run(parallel_for);
}

Status conv_backward_filter_winograd(const ConvGeometry& g, const float* image,
                                     const float* out_gradient, float* filter_gradient,
                                     ParallelFor parallel_for) {
  return FilterGradient(forward_correlation(g), image, out_gradient, filter_gradient)
      .run(parallel_for);
}

}  // namespace millrace
