#pragma once

// Checks of our own invariants. A failed check is a defect in Millrace: it prints where and ends
// the process. What a user, file or peer can get wrong is a Status instead.

namespace millrace {

class Status;

[[noreturn, gnu::cold]] void check_failed(const char* file, int line, const char* condition);
[[noreturn, gnu::cold]] void check_ok_failed(const char* file, int line, const Status& status);

}  // namespace millrace

#define MR_CHECK(condition)                                     \
  do {                                                          \
    if (!(condition)) [[unlikely]]                              \
      ::millrace::check_failed(__FILE__, __LINE__, #condition); \
  } while (false)

// The Status must be ok; its text is printed when it is not.
#define MR_CHECK_OK(status)                                                            \
  do {                                                                                 \
    if (const ::millrace::Status mr_checked = (status); !mr_checked.ok()) [[unlikely]] \
      ::millrace::check_ok_failed(__FILE__, __LINE__, mr_checked);                     \
  } while (false)

#ifdef NDEBUG
#define MR_DCHECK(condition) \
  do {                       \
  } while (false && (condition))
#else
#define MR_DCHECK(condition) MR_CHECK(condition)
#endif
