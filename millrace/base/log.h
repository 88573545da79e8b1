#pragma once

#include <atomic>
#include <string_view>

#include "millrace/base/source_location.h"
#include "millrace/base/str_cat.h"

// Logging, silent unless asked: MR_LOG(kWarning, "queue ", name, " is full").
//
// MILLRACE_LOG=debug|info|warning|error in the environment, or set_log_level(), lets messages of
// that level and above through. When a message is off its parts are not evaluated and it costs one
// load.

namespace millrace {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kOff = 4 };

// "info" for LogLevel::kInfo.
std::string_view log_level_name(LogLevel level);

// The lowest level that is let through. set_log_level() overrides the environment.
LogLevel log_level();
void set_log_level(LogLevel level);

struct LogRecord {
  LogLevel level;
  SourceLocation location;
  std::string_view text;
};

// Receives messages. Called from any thread, by several at once.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void write(const LogRecord& record) = 0;
};

// Sends messages to `sink` from now on, or to stderr when it is null. Returns the sink before
// (null: stderr). The sink must live as long as it is set and a message is on its way to it.
LogSink* set_log_sink(LogSink* sink);

// What MR_LOG is made of.
namespace log_internal {
// False with MILLRACE_LOG=off in the environment.
bool notices_enabled();
inline constexpr int kNotRead = -1;  // the environment was not looked at yet; below every level
extern std::atomic<int> threshold;
bool enabled_slow(LogLevel level);
inline bool enabled(LogLevel level) {
  return static_cast<int>(level) >= threshold.load(std::memory_order_relaxed) &&
         enabled_slow(level);
}
void write(LogLevel level, SourceLocation location, std::string_view text);
}  // namespace log_internal

}  // namespace millrace

#define MR_LOG(level, ...)                                                           \
  do {                                                                               \
    if (::millrace::log_internal::enabled(::millrace::LogLevel::level)) [[unlikely]] \
      ::millrace::log_internal::write(::millrace::LogLevel::level,                   \
                                      ::millrace::SourceLocation::current(),         \
                                      ::millrace::str_cat(__VA_ARGS__));             \
  } while (false)

// A warning that nobody had to ask for, since the program seems to hang, or does without what it
// was told to do with: let through at any level, except with MILLRACE_LOG=off in the environment.
// For rare messages.
#define MR_NOTICE(...)                                                       \
  do {                                                                       \
    if (::millrace::log_internal::notices_enabled())                         \
      ::millrace::log_internal::write(::millrace::LogLevel::kWarning,        \
                                      ::millrace::SourceLocation::current(), \
                                      ::millrace::str_cat(__VA_ARGS__));     \
  } while (false)

// A message for those who look for a defect in Millrace.
#define MR_VLOG(...) MR_LOG(kDebug, __VA_ARGS__)
