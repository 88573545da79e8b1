#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/runtime/executable.h"
#include "millrace/runtime/signature.h"
#include "millrace/session/shape_plans.h"

namespace millrace {

// A signature made ready.
struct Prepared : RefCounted {
  ~Prepared() override { Ref<Step>::adopt(spare_step.load(std::memory_order_acquire)); }

  // About how much memory its plans hold.
  int64_t bytes() const { return executable->bytes() + (shapes ? shapes->bytes() : 0); }

  Signature signature;
  Ref<Executable> executable;
  // Plans for the shapes that feeds have had; null: the executable runs all.
  std::unique_ptr<ShapePlans> shapes;
  std::vector<DType> feed_types;
  std::vector<std::vector<int>> fetch_dependencies;  // by fetch: positions of feeds
  // The step of a run that was over when its caller returned, for the next such run; owned, or
  // null. A third of what an empty run costs is making one.
  mutable std::atomic<Step*> spare_step{nullptr};
};

// What was prepared, by signature. Each signature is built once, however many threads ask for it;
// those used longest ago are dropped when all together hold more than a number of bytes. Runs and
// callables keep what they use. Thread-safe.
class PlanCache {
 public:
  // However large they are, so many stay: programs with a few large graphs do not build again and
  // again.
  static constexpr size_t kAlwaysKept = 8;

  explicit PlanCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // What `build` makes of a signature, or made earlier. Threads that ask for the same one meanwhile
  // wait. An error is given to those who wait and is not kept.
  Result<Ref<Prepared>> find_or_build(const Signature& signature,
                                      FunctionRef<Result<Ref<Prepared>>()> build);
  // Counts `prepared`, where it is kept, as what it holds now; drops others if need be.
  void weigh(const Prepared& prepared);
  // True when so many bytes more would not be too much.
  bool has_room(int64_t bytes) const;
  void clear();
  size_t size() const;

 private:
  struct Entry {
    std::string key;
    Ref<Prepared> prepared;
    int64_t bytes = 0;
  };
  // Somebody builds it.
  struct Building : RefCounted {
    bool over = false;
    Result<Ref<Prepared>> result = Status(Code::kUnknown, "not built");
  };

  // Both return what has to go, to be freed without the lock.
  std::list<Entry> insert(const std::string& key, const Ref<Prepared>& prepared) MR_REQUIRES(mu_);
  std::list<Entry> drop_oldest() MR_REQUIRES(mu_);

  const int64_t max_bytes_;
  mutable Mutex mu_;
  CondVar built_;
  std::list<Entry> entries_ MR_GUARDED_BY(mu_);  // used last first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_ MR_GUARDED_BY(mu_);
  std::unordered_map<std::string, Ref<Building>> building_ MR_GUARDED_BY(mu_);
  int64_t bytes_ MR_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace
