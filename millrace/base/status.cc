#include "millrace/base/status.h"

namespace millrace {

struct Status::Rep {
  Code code;
  std::string message;
};

Status::Status(Code code, std::string_view message) : rep_(new Rep{code, std::string(message)}) {
  MR_CHECK(code != Code::kOk);
}

Status::Status(Code code, std::initializer_list<TextPart> message)
    : Status(code, join_parts(message)) {}

Status::Rep* Status::copy(const Rep& rep) { return new Rep(rep); }

Status& Status::operator=(const Status& other) {
  if (rep_ != other.rep_) *this = Status(other);
  return *this;
}

void Status::destroy() { delete rep_; }

Code Status::code() const { return rep_ == nullptr ? Code::kOk : rep_->code; }

std::string_view Status::message() const {
  return rep_ == nullptr ? std::string_view() : std::string_view(rep_->message);
}

Status Status::with_prefix(std::string_view context) const {
  return ok() ? Status() : Status(rep_->code, str_cat(context, ": ", rep_->message));
}

Status Status::with_line(std::string_view line) const {
  if (ok()) return Status();
  if (rep_->message.find(str_cat("\n", line)) != std::string::npos) return *this;
  return Status(rep_->code, str_cat(rep_->message, "\n", line));
}

std::string Status::to_string() const {
  return ok() ? std::string("OK") : str_cat(code_name(rep_->code), ": ", rep_->message);
}

}  // namespace millrace
