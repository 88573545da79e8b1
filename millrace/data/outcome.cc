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

Status Outcome::fields(StateFields& state) {
  MR_TRY(state.flag(end));
  auto code = static_cast<int64_t>(status.code());
  MR_TRY(state.number(code, 0, static_cast<int64_t>(Code::kDataLoss)));
  if (code != 0) {
    std::string message(status.message());
    MR_TRY(state.text(message));
    if (state.reading()) status = Status(static_cast<Code>(code), message);
    return ok_status();
  }
  return end ? ok_status() : state.element(element);
}

}  // namespace millrace::data
