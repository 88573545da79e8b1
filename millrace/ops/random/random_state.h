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

// A kernel's way to its state: attributes seed and seed2, and the node's name. With both seeds zero
// the state begins somewhere at random.
class RandomSource {
 public:
  static Result<RandomSource> make(const KernelNode& node);
  Result<Philox> reserve(const KernelContext& ctx, uint64_t blocks) const;
  // The resource name of the state; other state of the node may use it too, under its own type.
  const std::string& name() const { return name_; }

 private:
  RandomSource(std::string name, int64_t seed, int64_t seed2)
      : name_(std::move(name)), seed_(seed), seed2_(seed2) {}

  std::string name_;
  int64_t seed_;
  int64_t seed2_;
};

}  // namespace millrace
