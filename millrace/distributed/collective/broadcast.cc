// Broadcasting: all say whether they send; then the tensor goes down a tree whose root sends.

#include <algorithm>
#include <cstring>

#include "millrace/distributed/collective/announced.h"

namespace millrace {
namespace {

constexpr int64_t kElements = 1;

class Broadcast final : public AnnouncedExchange {
 public:
  Broadcast(Ref<CollectiveGroup> group, Collectives::Request request, std::string what,
            Tensor input, DType dtype, Shape shape, Collectives::Done done)
      : AnnouncedExchange(std::move(group), std::move(request), std::move(what), input,
                          std::move(done)),
        sends_(input.valid()),
        value_(std::move(input)),
        dtype_(dtype),
        shape_(std::move(shape)) {}

 protected:
  int64_t own_number() const override { return sends_ ? 1 : 0; }

  Status announced(const std::vector<int64_t>& senders) override {
    std::vector<std::string> names;
    int root = 0;
    for (int i = 0; i < size(); ++i) {
      if (senders[static_cast<size_t>(i)] == 0) continue;
      root = i;
      names.push_back(epoch()->who(i));
    }
    if (names.size() != 1) {
      return invalid_argument("broadcast instance ", request().instance_key, " of group ",
                              request().group_key, ": expected one sender, got ", names.size(),
                              names.empty() ? "" : ": ", str_join(names, ", "));
    }
    // Ranks as seen from the root.
    const int seen = (rank() - root + size()) % size();
    int parent = -1, children = 0;
    for (int bit = 1; bit < size(); bit <<= 1) {
      if ((seen & bit) != 0) {
        parent = (seen - bit + root) % size();
        break;
      }
      if (seen + bit < size()) ++children;
    }
    if (!sends_) {
      MR_TRY_ASSIGN(value_, Tensor::allocate(dtype_, shape_));
    }
    return pass_on(parent, children);
  }

  Status all_pulled_after() override {
    finish(std::move(value_));
    return ok_status();
  }

 private:
  Status pass_on(int parent, int children) {
    const int64_t elements = value_.num_elements(), most = chunk_elements(dtype_);
    for (int64_t at = 0; at < elements; at += most) {
      const int64_t count = std::min(most, elements - at);
      const Slot slot = {kElements, at / most};
      if (sends_) {
        publish(slot, slice(value_, at, count), children);
        continue;
      }
      pull({parent, slot, dtype_, count, [this, slot, at, children](const Tensor& chunk) {
              Tensor to = slice(value_, at, chunk.num_elements());
              std::memcpy(to.mutable_raw(), chunk.raw(), chunk.bytes());
              publish(slot, to, children);
            }});
    }
    return sends_ || elements == 0 ? all_pulled_after() : ok_status();
  }

  const bool sends_;
  Tensor value_;
  const DType dtype_;
  const Shape shape_;
};

}  // namespace

Ref<Exchange> make_broadcast(Ref<CollectiveGroup> group, Collectives::Request request, Tensor input,
                             DType dtype, Shape shape, Collectives::Done done) {
  std::string what = str_cat("a broadcast of ", dtype, " ", shape);
  return make_ref<Broadcast>(std::move(group), std::move(request), std::move(what),
                             std::move(input), dtype, std::move(shape), std::move(done));
}

}  // namespace millrace
