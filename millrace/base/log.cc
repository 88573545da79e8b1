#include "millrace/base/log.h"

#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "millrace/base/clock.h"

namespace millrace {
namespace {

std::atomic<LogSink*> current_sink{nullptr};

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0: the whole path
}

// One write() per message, so that lines of several threads and processes do not mix, and no lock,
// so that a forked child can log.
void write_to_stderr(const LogRecord& record) {
  const int64_t now = wall_micros();
  const time_t seconds = static_cast<time_t>(now / 1'000'000);
  tm parts;
  gmtime_r(&seconds, &parts);
  char time_text[64];
  std::snprintf(time_text, sizeof(time_text), "%02d:%02d:%02d.%06d", parts.tm_hour, parts.tm_min,
                parts.tm_sec, static_cast<int>(now % 1'000'000));
  const std::string line =
      str_cat("millrace ", log_level_name(record.level), " ", time_text, " ",
              base_name(record.location.file), ":", record.location.line, ": ", record.text, "\n");
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (n <= 0) return;  // there is nowhere to complain
    done += static_cast<size_t>(n);
  }
}

LogLevel level_from_environment() {
  const char* text = std::getenv("MILLRACE_LOG");
  if (text == nullptr) return LogLevel::kOff;
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    if (log_level_name(level) == text) return level;
  }
  return LogLevel::kOff;
}

}  // namespace

std::string_view log_level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      break;
  }
  return "off";
}

namespace log_internal {

std::atomic<int> threshold{kNotRead};

bool enabled_slow(LogLevel level) { return level >= log_level(); }

bool notices_enabled() {
  const char* text = std::getenv("MILLRACE_LOG");
  return text == nullptr || log_level_name(LogLevel::kOff) != text;
}

void write(LogLevel level, SourceLocation location, std::string_view text) {
  const LogRecord record{level, location, text};
  if (LogSink* sink = current_sink.load(std::memory_order_acquire)) {
    sink->write(record);
  } else {
    write_to_stderr(record);
  }
}

}  // namespace log_internal

LogLevel log_level() {
  int level = log_internal::threshold.load(std::memory_order_relaxed);
  if (level == log_internal::kNotRead) {
    const int wanted = static_cast<int>(level_from_environment());
    // Keeps what a set_log_level() on another thread has put there meanwhile.
    if (log_internal::threshold.compare_exchange_strong(level, wanted, std::memory_order_relaxed)) {
      level = wanted;
    }
  }
  return static_cast<LogLevel>(level);
}

void set_log_level(LogLevel level) {
  log_internal::threshold.store(static_cast<int>(level), std::memory_order_relaxed);
}

LogSink* set_log_sink(LogSink* sink) {
  return current_sink.exchange(sink, std::memory_order_acq_rel);
}

}  // namespace millrace
