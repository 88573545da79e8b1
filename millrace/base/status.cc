#include "millrace/base/status.h"

namespace millrace {
namespace {

// A message may show a user's value, which may be a list of millions. No message is longer than
// this.
constexpr size_t kLongest = 64 << 10;

// `at`, or the start of the character (UTF-8) that it is in.
size_t character_start(std::string_view text, size_t at) {
  for (int i = 0; i < 3 && at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; ++i) {
    --at;
  }
  return at;
}

// What is wrong stands at the start, and where at the end.
std::string bounded(std::string_view message) {
  if (message.size() <= kLongest) return std::string(message);
  const size_t head = character_start(message, kLongest / 2);
  const size_t tail = character_start(message, message.size() - kLongest / 2 + 64);
  return str_cat(message.substr(0, head), "... [", tail - head, " bytes left out] ...",
                 message.substr(tail));
}

}  // namespace

struct Status::Rep {
  Code code;
  std::string message;
};

Status::Status(Code code, std::string_view message) : rep_(new Rep{code, bounded(message)}) {
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
