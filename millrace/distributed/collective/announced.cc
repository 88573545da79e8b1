#include "millrace/distributed/collective/announced.h"

namespace millrace {

Status AnnouncedExchange::run() {
  numbers_.resize(static_cast<size_t>(size()));
  numbers_[static_cast<size_t>(rank())] = own_number();
  publish({kAnnouncement, 0}, Tensor::vector({own_number()}), size() - 1);
  for (int from = 0; from < size(); ++from) {
    if (from == rank()) continue;
    pull({from, {kAnnouncement, 0}, DType::kInt64, 1, [this, from](const Tensor& number) {
            numbers_[static_cast<size_t>(from)] = number.data<int64_t>()[0];
          }});
  }
  return ok_status();
}

Status AnnouncedExchange::all_pulled() {
  if (announced_) return all_pulled_after();
  announced_ = true;
  return announced(numbers_);
}

}  // namespace millrace
