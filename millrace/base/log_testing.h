#pragma once

#include <string>
#include <utility>

#include "millrace/base/log.h"
#include "millrace/base/mutex.h"

namespace millrace {

// Takes the messages that are let through while it lives, and no other sink is set. Thread-safe.
class KeptLog final : public LogSink {
 public:
  KeptLog() { set_log_sink(this); }
  ~KeptLog() override { set_log_sink(nullptr); }
  KeptLog(const KeptLog&) = delete;
  KeptLog& operator=(const KeptLog&) = delete;

  void write(const LogRecord& record) override {
    MutexLock lock(mu_);
    text_ += record.text;
  }
  // Their texts, one after the other, since the last call.
  std::string take() {
    MutexLock lock(mu_);
    return std::exchange(text_, "");
  }

 private:
  Mutex mu_;
  std::string text_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
