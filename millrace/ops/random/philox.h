#pragma once

#include <array>
#include <cstdint>

namespace millrace {

// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"): block number c of
// the stream with key k is a function of c and k alone, so any part of the stream can be made at
// once, by any thread. A small value.
class Philox {
 public:
  // Four words of 32 random bits.
  using Block = std::array<uint32_t, 4>;

  Philox() = default;
  // The stream of two seeds: the key, and the upper half of the counter.
  Philox(uint64_t seed, uint64_t seed2) : key_(seed), high_(seed2) {}
  // Where a stream stands: the key, and the lower and upper half of the counter.
  using Place = std::array<uint64_t, 3>;
  explicit Philox(const Place& place) : key_(place[0]), low_(place[1]), high_(place[2]) {}
  Place place() const { return {key_, low_, high_}; }

  // Goes on by `blocks` blocks.
  void skip(uint64_t blocks) {
    low_ += blocks;
    if (low_ < blocks) ++high_;
  }

  // The next block.
  Block next() {
    Lanes<1> lanes;
    set(lanes, 0);
    run(lanes, key_);
    skip(1);
    return {lanes.c0[0], lanes.c1[0], lanes.c2[0], lanes.c3[0]};
  }

  // The next `blocks` blocks, one after the other, to `words` (4 * blocks of them).
  void fill(uint32_t* words, int64_t blocks) {
    constexpr int kWide = 16;
    for (; blocks >= kWide; blocks -= kWide, words += 4 * kWide) {
      Lanes<kWide> lanes;
      for (int i = 0; i < kWide; ++i, skip(1)) set(lanes, i);
      run(lanes, key_);
      for (int i = 0; i < kWide; ++i) {
        words[4 * i] = lanes.c0[i];
        words[4 * i + 1] = lanes.c1[i];
        words[4 * i + 2] = lanes.c2[i];
        words[4 * i + 3] = lanes.c3[i];
      }
    }
    for (; blocks > 0; --blocks, words += 4) {
      const Block block = next();
      for (size_t i = 0; i < 4; ++i) words[i] = block[i];
    }
  }

 private:
  // Counters of n blocks, word by word, so that the rounds are loops a compiler can vectorise.
  template <int n>
  struct Lanes {
    uint32_t c0[n], c1[n], c2[n], c3[n];
  };

  template <int n>
  void set(Lanes<n>& lanes, int i) const {
    lanes.c0[i] = static_cast<uint32_t>(low_);
    lanes.c1[i] = static_cast<uint32_t>(low_ >> 32);
    lanes.c2[i] = static_cast<uint32_t>(high_);
    lanes.c3[i] = static_cast<uint32_t>(high_ >> 32);
  }

  template <int n>
  static void run(Lanes<n>& lanes, uint64_t key) {
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
      for (int i = 0; i < n; ++i) {
        const uint64_t p0 = uint64_t{0xD2511F53} * lanes.c0[i];
        const uint64_t p1 = uint64_t{0xCD9E8D57} * lanes.c2[i];
        lanes.c0[i] = static_cast<uint32_t>(p1 >> 32) ^ lanes.c1[i] ^ k0;
        lanes.c2[i] = static_cast<uint32_t>(p0 >> 32) ^ lanes.c3[i] ^ k1;
        lanes.c1[i] = static_cast<uint32_t>(p1);
        lanes.c3[i] = static_cast<uint32_t>(p0);
      }
    }
  }

  uint64_t key_ = 0;
  uint64_t low_ = 0, high_ = 0;  // the counter
};

// The words of a stream one by one.
class PhiloxWords {
 public:
  explicit PhiloxWords(Philox stream) : stream_(stream) {}

  uint32_t next() {
    if (used_ == 4) {
      block_ = stream_.next();
      used_ = 0;
    }
    return block_[used_++];
  }
  uint64_t next64() {
    const uint64_t low = next();
    return low | uint64_t{next()} << 32;
  }

 private:
  Philox stream_;
  Philox::Block block_;
  size_t used_ = 4;
};

}  // namespace millrace
