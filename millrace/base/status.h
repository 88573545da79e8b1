#pragma once

#include <initializer_list>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "millrace/base/check.h"
#include "millrace/base/code.h"
#include "millrace/base/str_cat.h"

namespace millrace {

// The outcome of something that can fail: OK, or a code and a message that says what was expected,
// what came, and where. OK is a null pointer, free to make, return and test.
class [[nodiscard]] Status {
 public:
  Status() = default;
  // `code` must not be kOk.
  Status(Code code, std::string_view message);
  [[gnu::cold]] Status(Code code, std::initializer_list<TextPart> message);
  Status(const Status& other) : rep_(other.rep_ == nullptr ? nullptr : copy(*other.rep_)) {}
  Status(Status&& other) noexcept : rep_(std::exchange(other.rep_, nullptr)) {}
  Status& operator=(const Status& other);
  Status& operator=(Status&& other) noexcept {
    std::swap(rep_, other.rep_);
    return *this;
  }
  ~Status() {
    if (rep_ != nullptr) destroy();
  }

  bool ok() const { return rep_ == nullptr; }
  Code code() const;
  // Empty when ok.
  std::string_view message() const;

  // The same code with `context` and ": " before the message. OK stays OK.
  Status with_prefix(std::string_view context) const;
  // The same code with `line` on a line of its own after the message. OK stays OK.
  Status with_line(std::string_view line) const;

  // "INVALID_ARGUMENT: message", or "OK".
  std::string to_string() const;

  friend bool operator==(const Status& a, const Status& b) {
    return a.code() == b.code() && a.message() == b.message();
  }

 private:
  struct Rep;
  static Rep* copy(const Rep& rep);
  void destroy();
  Rep* rep_ = nullptr;
};

inline void append_to(std::string& out, const Status& status) { out += status.to_string(); }

inline Status ok_status() { return Status(); }

// One maker per code: invalid_argument("expected rank 2, got ", shape).
#define MR_DEFINE_STATUS_MAKER(name, code)           \
  template <class... Parts>                          \
  [[gnu::cold]] Status name(const Parts&... parts) { \
    return Status(Code::code, {TextPart(parts)...}); \
  }
MR_DEFINE_STATUS_MAKER(cancelled, kCancelled)
MR_DEFINE_STATUS_MAKER(unknown, kUnknown)
MR_DEFINE_STATUS_MAKER(invalid_argument, kInvalidArgument)
MR_DEFINE_STATUS_MAKER(deadline_exceeded, kDeadlineExceeded)
MR_DEFINE_STATUS_MAKER(not_found, kNotFound)
MR_DEFINE_STATUS_MAKER(already_exists, kAlreadyExists)
MR_DEFINE_STATUS_MAKER(permission_denied, kPermissionDenied)
MR_DEFINE_STATUS_MAKER(resource_exhausted, kResourceExhausted)
MR_DEFINE_STATUS_MAKER(failed_precondition, kFailedPrecondition)
MR_DEFINE_STATUS_MAKER(aborted, kAborted)
MR_DEFINE_STATUS_MAKER(out_of_range, kOutOfRange)
MR_DEFINE_STATUS_MAKER(unimplemented, kUnimplemented)
MR_DEFINE_STATUS_MAKER(internal, kInternal)
MR_DEFINE_STATUS_MAKER(unavailable, kUnavailable)
MR_DEFINE_STATUS_MAKER(data_loss, kDataLoss)
#undef MR_DEFINE_STATUS_MAKER

// A T, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  // `status` must be an error.
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    MR_CHECK(!status_.ok());
  }
  template <class U>
    requires(std::is_convertible_v<U &&, T> && !std::is_same_v<std::remove_cvref_t<U>, Result> &&
             !std::is_same_v<std::remove_cvref_t<U>, Status> &&
             !std::is_same_v<std::remove_cvref_t<U>, T>)
  Result(U&& value) : value_(std::forward<U>(value)) {}  // NOLINT(google-explicit-constructor)
  Result(const Result& other) : status_(other.status_) {
    if (ok()) new (&value_) T(other.value_);
  }
  Result(Result&& other) noexcept(std::is_nothrow_move_constructible_v<T>)
      : status_(other.status_) {
    if (ok()) new (&value_) T(std::move(other.value_));
  }
  Result& operator=(Result other) noexcept(std::is_nothrow_move_constructible_v<T>) {
    this->~Result();
    new (this) Result(std::move(other));
    return *this;
  }
  ~Result() {
    if (ok()) value_.~T();
  }

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }

  // The value; the result must be ok.
  T& value() & {
    MR_CHECK_OK(status_);
    return value_;
  }
  const T& value() const& {
    MR_CHECK_OK(status_);
    return value_;
  }
  T&& value() && {
    MR_CHECK_OK(status_);
    return std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  union {
    T value_;
  };
};

}  // namespace millrace

// Returns from the enclosing function with the error, if `expr` (a Status) is one.
#define MR_TRY(expr)                                                         \
  do {                                                                       \
    if (::millrace::Status mr_status = (expr); !mr_status.ok()) [[unlikely]] \
      return mr_status;                                                      \
  } while (false)

// MR_TRY_ASSIGN(auto x, f()): x is the value of the Result, or the error is returned.
#define MR_TRY_ASSIGN(target, expr) \
  MR_TRY_ASSIGN_IMPL(MR_CONCAT(mr_result_, __LINE__), target, expr)
#define MR_TRY_ASSIGN_IMPL(result, target, expr) \
  auto result = (expr);                          \
  if (!result.ok()) [[unlikely]]                 \
    return result.status();                      \
  target = std::move(result).value()
#define MR_CONCAT(a, b) MR_CONCAT_IMPL(a, b)
#define MR_CONCAT_IMPL(a, b) a##b
