#include "millrace/data/outcome.h"

namespace millrace::data {

void Outcome::fill(Iterator& input) {
  status = input.next(element, end);
  end = end && status.ok();
}

Status Outcome::give(Element& out, bool& to_end) {
  to_end = end;
  if (!end) out.swap(element);
  return std::move(status);
}

int64_t Outcome::bytes() const {
  int64_t bytes = 0;
  for (const Tensor& component : element) bytes += static_cast<int64_t>(component.bytes());
  return bytes;
}

void Outcome::save(StateWriter& state) const {
  state.flag(end);
  state.number(static_cast<int64_t>(status.code()));
  if (!status.ok()) return state.text(status.message());
  if (!end) state.element(element);
}

Status Outcome::restore(StateReader& state) {
  MR_TRY_ASSIGN(end, state.flag());
  MR_TRY_ASSIGN(const int64_t code, state.number_in(0, static_cast<int64_t>(Code::kDataLoss)));
  if (code != 0) {
    MR_TRY_ASSIGN(const std::string message, state.text());
    status = Status(static_cast<Code>(code), message);
  } else if (!end) {
    MR_TRY_ASSIGN(element, state.element());
  }
  return ok_status();
}

}  // namespace millrace::data
