// Reduction: by a ring where there is much to reduce, by a tree where there is little.
//
// A ring cuts the elements into as many segments as there are members. Segment s begins at rank s
// and goes round: each rank merges its own part into what comes from the left. The last one, on the
// left of rank s, has the result, which goes round once more. A tree merges towards rank 0, each
// rank what its children have, in their order, and the result goes back down. Either way a chunk's
// result is made in one place, from parts in an order that is always the same.

#include <algorithm>
#include <cstring>
#include <map>

#include "millrace/distributed/collective/exchange.h"
#include "millrace/ops/collective/merge.h"

namespace millrace {
namespace {

// From here on a ring is faster: see docs/collectives.md.
constexpr size_t kRingBytes = 64 << 10;

enum Phase : int64_t { kPartial = 0, kResult = 1 };

class Reduce final : public Exchange {
 public:
  Reduce(Ref<CollectiveGroup> group, Collectives::Request request, std::string what, Tensor input,
         Collectives::Merge merge, Collectives::Final final, Collectives::Done done)
      : Exchange(std::move(group), std::move(request), std::move(what), input, std::move(done)),
        input_(std::move(input)),
        merge_(merge_function(merge, input_.dtype())),
        final_(final) {}

 protected:
  Status run() override {
    if (size() == 1) {
      finish(input_);
      return ok_status();
    }
    MR_TRY_ASSIGN(output_, Tensor::allocate(input_.dtype(), input_.shape()));
    const Collectives::Hint hint = request().hint;
    const bool ring = hint == Collectives::Hint::kAuto ? input_.bytes() >= kRingBytes
                                                       : hint == Collectives::Hint::kRing;
    if (ring && input_.num_elements() >= size()) {
      plan_ring();
    } else {
      plan_tree();
    }
    for (size_t i = 0; i < chunks_.size(); ++i) {
      if (chunks_[i].to_merge == 0) merged(i);
    }
    return ok_status();
  }
  Status all_pulled() override {
    finish(std::move(output_));
    return ok_status();
  }

 private:
  struct Chunk {
    int64_t begin = 0, count = 0;
    int to_merge = 0;          // parts of others, in order
    bool result_here = false;  // the result is made here once all are merged
    int partial_readers = 0, result_readers = 0;
    int merged = 0;
    std::map<int, Tensor> early;  // parts that came before their turn
  };

  // The chunks of [begin, end); at least one, unless `skip_empty`. The number of the first.
  size_t add_chunks(int64_t begin, int64_t end, const Chunk& like) {
    const size_t first = chunks_.size();
    const int64_t most = chunk_elements(input_.dtype());
    do {
      Chunk chunk = like;
      chunk.begin = begin;
      chunk.count = std::min(most, end - begin);
      chunks_.push_back(std::move(chunk));
      begin += most;
    } while (begin < end);
    return first;
  }

  void plan_ring() {
    const int n = size(), left = (rank() + n - 1) % n;
    const int64_t elements = input_.num_elements();
    struct Segment {
      size_t first, end;
      int place;  // how far round it is when it comes here
    };
    std::vector<Segment> segments;
    for (int s = 0; s < n; ++s) {
      const int place = (rank() - s + n) % n;
      Chunk chunk;
      chunk.to_merge = place == 0 ? 0 : 1;
      chunk.result_here = place == n - 1;
      chunk.partial_readers = chunk.result_here ? 0 : 1;
      chunk.result_readers = place == n - 2 ? 0 : 1;
      const size_t first = add_chunks(elements * s / n, elements * (s + 1) / n, chunk);
      segments.push_back({first, chunks_.size(), place});
    }
    std::sort(segments.begin(), segments.end(),
              [](const Segment& a, const Segment& b) { return a.place < b.place; });
    for (const Segment& segment : segments) {
      for (size_t i = segment.first; i < segment.end && segment.place > 0; ++i) {
        pull_part(i, left, 0);
      }
    }
    for (const Segment& segment : segments) {
      for (size_t i = segment.first; i < segment.end && segment.place < n - 1; ++i) {
        pull_result(i, left);
      }
    }
  }

  void plan_tree() {
    std::vector<int> children;
    int parent = -1;
    for (int bit = 1; bit < size(); bit <<= 1) {
      if ((rank() & bit) != 0) {
        parent = rank() - bit;
        break;
      }
      if (rank() + bit < size()) children.push_back(rank() + bit);
    }
    Chunk chunk;
    chunk.to_merge = static_cast<int>(children.size());
    chunk.result_here = parent < 0;
    chunk.partial_readers = parent < 0 ? 0 : 1;
    chunk.result_readers = static_cast<int>(children.size());
    add_chunks(0, input_.num_elements(), chunk);
    for (size_t i = 0; i < chunks_.size(); ++i) {
      for (size_t c = 0; c < children.size(); ++c) pull_part(i, children[c], static_cast<int>(c));
    }
    for (size_t i = 0; i < chunks_.size() && parent >= 0; ++i) pull_result(i, parent);
  }

  void pull_part(size_t i, int from, int turn) {
    pull({from,
          {kPartial, static_cast<int64_t>(i)},
          input_.dtype(),
          chunks_[i].count,
          [this, i, turn](const Tensor& part) { take_part(i, turn, part); }});
  }
  void pull_result(size_t i, int from) {
    pull({from,
          {kResult, static_cast<int64_t>(i)},
          input_.dtype(),
          chunks_[i].count,
          [this, i](const Tensor& result) {
            const Tensor to = out(i);
            std::memcpy(const_cast<void*>(to.raw()), result.raw(), result.bytes());
            publish({kResult, static_cast<int64_t>(i)}, to, chunks_[i].result_readers);
          }});
  }

  void take_part(size_t i, int turn, const Tensor& part) {
    Chunk& chunk = chunks_[i];
    chunk.early[turn] = part;
    while (!chunk.early.empty() && chunk.early.begin()->first == chunk.merged) {
      Tensor to = out(i);
      const Tensor own = chunk.merged == 0 ? slice(input_, chunk.begin, chunk.count) : to;
      merge_(chunk.early.begin()->second.raw(), own.raw(), to.mutable_raw(), chunk.count);
      chunk.early.erase(chunk.early.begin());
      if (++chunk.merged == chunk.to_merge) merged(i);
    }
  }

  // All parts that come here are in the chunk: here is its result, or somebody else's part.
  void merged(size_t i) {
    const Chunk& chunk = chunks_[i];
    const Tensor value = chunk.to_merge == 0 ? slice(input_, chunk.begin, chunk.count) : out(i);
    if (!chunk.result_here) {
      return publish({kPartial, static_cast<int64_t>(i)}, value, chunk.partial_readers);
    }
    Tensor result = out(i);
    if (final_ == Collectives::Final::kDiv) {
      divide_elements(result.dtype(), result.mutable_raw(), chunk.count, size());
    }
    publish({kResult, static_cast<int64_t>(i)}, result, chunk.result_readers);
  }

  Tensor out(size_t i) const { return slice(output_, chunks_[i].begin, chunks_[i].count); }

  const Tensor input_;
  Tensor output_;
  const BinaryFunction merge_;
  const Collectives::Final final_;
  std::vector<Chunk> chunks_;
};

}  // namespace

Ref<Exchange> make_reduce(Ref<CollectiveGroup> group, Collectives::Request request, Tensor input,
                          Collectives::Merge merge, Collectives::Final final,
                          Collectives::Done done) {
  std::string what = str_cat(merge_name(merge), final == Collectives::Final::kDiv ? " and Div" : "",
                             " of ", input.dtype(), " ", input.shape());
  if (request.hint != Collectives::Hint::kAuto) {
    what += request.hint == Collectives::Hint::kRing ? " by ring" : " by tree";
  }
  return make_ref<Reduce>(std::move(group), std::move(request), std::move(what), std::move(input),
                          merge, final, std::move(done));
}

}  // namespace millrace
