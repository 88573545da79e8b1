// Gathering: all say how many rows they have; then each asks each for them.

#include <algorithm>
#include <cstring>

#include "millrace/distributed/collective/announced.h"
#include "millrace/tensor/partial_shape.h"

namespace millrace {
namespace {

constexpr int64_t kRows = 1;

class Gather final : public AnnouncedExchange {
 public:
  Gather(Ref<CollectiveGroup> group, Collectives::Request request, std::string what, Tensor input,
         Collectives::Done done)
      : AnnouncedExchange(std::move(group), std::move(request), std::move(what), input,
                          std::move(done)),
        input_(std::move(input)) {}

 protected:
  int64_t own_number() const override { return input_.dim(0); }

  Status announced(const std::vector<int64_t>& rows) override {
    std::vector<int64_t> dims(input_.shape().dims().begin(), input_.shape().dims().end());
    dims[0] = 0;
    for (const int64_t count : rows) {
      if (count < 0 || __builtin_add_overflow(dims[0], count, &dims[0])) {
        return invalid_argument(name(), ": expected numbers of rows, got ", str_join(rows, ", "));
      }
    }
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(output_, Tensor::allocate(input_.dtype(), shape));
    const int64_t row = dims[0] == 0 ? 0 : shape.num_elements() / dims[0];
    int64_t begin = 0;
    bool some = false;
    for (int from = 0; from < size(); ++from) {
      const int64_t end = begin + rows[static_cast<size_t>(from)] * row;
      const int64_t most = chunk_elements(input_.dtype());
      for (int64_t at = begin; at < end; at += most) {
        const int64_t count = std::min(most, end - at);
        const Slot slot = {kRows, (at - begin) / most};
        if (from == rank()) {
          publish(slot, slice(input_, at - begin, count), size() - 1);
          continue;
        }
        some = true;
        pull({from, slot, input_.dtype(), count, [this, at](const Tensor& elements) {
                Tensor to = slice(output_, at, elements.num_elements());
                std::memcpy(to.mutable_raw(), elements.raw(), elements.bytes());
              }});
      }
      if (from == rank() && end > begin) {
        Tensor to = slice(output_, begin, end - begin);
        std::memcpy(to.mutable_raw(), input_.raw(), to.bytes());
      }
      begin = end;
    }
    return some ? ok_status() : all_pulled_after();
  }

  Status all_pulled_after() override {
    finish(std::move(output_));
    return ok_status();
  }

 private:
  const Tensor input_;
  Tensor output_;
};

}  // namespace

Ref<Exchange> make_gather(Ref<CollectiveGroup> group, Collectives::Request request, Tensor input,
                          Collectives::Done done) {
  std::vector<std::string> dims = {"?"};  // the one that may differ
  for (int i = 1; i < input.rank(); ++i) dims.push_back(str_cat(input.dim(i)));
  std::string what = str_cat("rows of ", input.dtype(), " [", str_join(dims, ","), "]");
  return make_ref<Gather>(std::move(group), std::move(request), std::move(what), std::move(input),
                          std::move(done));
}

}  // namespace millrace
