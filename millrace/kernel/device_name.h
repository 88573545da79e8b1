#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "millrace/base/status.h"

namespace millrace {

// A device's name, or a partial one: what a node or a filter asks for. Unset fields match anything.
// Compare parsed names, never strings: "/cpu:0" and "/device:CPU:0" are one device.
struct DeviceName {
  std::optional<std::string> job;
  std::optional<int> replica;
  std::optional<int> task;
  std::optional<std::string> type;  // "CPU", "GPU"; case matters
  std::optional<int> id;

  // Reads "/job:ps/replica:0/task:1/device:CPU:0", the older "/cpu:0", parts in any order, "*" for
  // unset.
  // "" and "/" are the empty name. INVALID_ARGUMENT for anything else.
  static Result<DeviceName> parse(std::string_view text);
  // "/job:localhost/replica:0/task:0/device:CPU:0": set fields only.
  std::string to_string() const;
  // "/job:J/replica:R/task:T" of a full name.
  std::string task_name() const;

  bool empty() const { return !job && !replica && !task && !type && !id; }
  bool complete() const { return job && replica && task && type && id; }
  // Every field set in `pattern` is set and equal here.
  bool matches(const DeviceName& pattern) const;
  // One of the two matches the other.
  bool compatible(const DeviceName& other) const;
  // Adds the fields of `other`. A field set differently in both is INVALID_ARGUMENT naming both;
  // with `soft`, a different type drops type and id, a different id drops the id.
  Status merge(const DeviceName& other, bool soft = false);

  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

}  // namespace millrace
