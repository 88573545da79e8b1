#pragma once

#include <string>

#include "millrace/base/mutex.h"
#include "millrace/kernel/kernel.h"
#include "millrace/kernel/op_state.h"
#include "millrace/ops/random/philox.h"

namespace millrace {

// Where the stream of one random op stands. Lives in the resource manager, so it goes on over runs
// and plans of a session, and into checkpoints.
class RandomState final : public OpState {
 public:
  static constexpr std::string_view kTypeName = "RandomState";

  explicit RandomState(Philox stream) : next_(stream) {}
  std::string describe() const override { return "RandomState"; }
  std::string encode() const override;
  static Result<Ref<OpState>> decode(std::string_view bytes);
  Status install(ResourceManager& resources, const std::string& name) override {
    return install_state(resources, name, Ref<RandomState>(this));
  }

  // The next `blocks` blocks of the stream, for the caller alone.
  Philox reserve(uint64_t blocks) {
    MutexLock lock(mu_);
    const Philox reserved = next_;
    next_.skip(blocks);
    return reserved;
  }

 private:
  mutable Mutex mu_;
  Philox next_ MR_GUARDED_BY(mu_);
};

// Where an op without state begins: a function of the two integers in input `input`.
Result<Philox> stream_of_seed(const KernelContext& ctx, int input);
// Of the key, counter and algorithm in the inputs from `input` on.
Result<Philox> stream_of_key(const KernelContext& ctx, int input);

// A kernel's way to its random numbers. Of an op with an input called seed, or key, counter and
// alg, they follow from these. Of others they follow from its state: attributes seed and seed2, and
// the node's name. With both seeds zero the state begins somewhere at random.
class RandomSource {
 public:
  static Result<RandomSource> make(const KernelNode& node);
  Result<Philox> reserve(const KernelContext& ctx, uint64_t blocks) const;
  // Whether the inputs that the stream takes are right: for those who draw nothing of it.
  Status check(const KernelContext& ctx) const;
  // The resource name of the state; other state of the node may use it too, under its own type.
  const std::string& name() const { return name_; }
  // How many inputs the stream takes: those after them are that much further on than in the op with
  // state.
  int num_inputs() const { return by_seed_ >= 0 ? 1 : by_key_ >= 0 ? 3 : 0; }

 private:
  RandomSource(int by_seed, int by_key) : by_seed_(by_seed), by_key_(by_key) {}
  RandomSource(std::string name, int64_t seed, int64_t seed2)
      : name_(std::move(name)), seed_(seed), seed2_(seed2) {}

  std::string name_;
  int64_t seed_ = 0;
  int64_t seed2_ = 0;
  // The input with the seed, or with the key; negative: none.
  int by_seed_ = -1, by_key_ = -1;
};

}  // namespace millrace
