#pragma once

#include "millrace/data/batch_rows.h"
#include "millrace/data/dataset.h"
#include "millrace/data/state.h"

namespace millrace::data {

// An iterator over a dataset D that has its elements at hand: size() of them, and
// `Status get(int64_t i, Element& out) const`. Where it has
// `Status get_rows(int64_t begin, int64_t end, BatchRows& rows) const`, that makes batches.
template <class D>
class CountingIterator final : public IteratorOf<D> {
 public:
  CountingIterator(const D& dataset, const Iteration& iteration)
      : IteratorOf<D>(dataset, iteration) {}

 protected:
  Status fields(StateFields& state) override {
    return state.number(at_, 0, this->dataset().size());
  }
  Status produce(Element& out, bool& end) override {
    end = at_ >= this->dataset().size();
    if (end) return ok_status();
    return this->dataset().get(at_++, out);
  }
  Status next_rows(int64_t count, BatchRows& rows, bool& end) override {
    const D& dataset = this->dataset();
    if constexpr (requires { dataset.get_rows(0, 0, rows); }) {
      return this->measure_rows(rows, [&]() -> Status {
        const int64_t begin = at_, size = dataset.size();
        end = count > size - begin;
        at_ = end ? size : begin + count;
        return at_ > begin ? dataset.get_rows(begin, at_, rows) : ok_status();
      });
    } else {
      return IteratorOf<D>::next_rows(count, rows, end);
    }
  }

 private:
  int64_t at_ = 0;
};

}  // namespace millrace::data
