#include "millrace/kernel/device_name.h"

#include <charconv>

namespace millrace {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// A job or device type, or "*".
bool consume_word(std::string_view& text, std::optional<std::string>& field) {
  if (consume(text, "*")) {
    field.reset();
    return true;
  }
  if (text.empty() || !is_letter(text[0])) return false;
  size_t n = 1;
  while (n < text.size() && (is_letter(text[n]) || is_digit(text[n]) || text[n] == '_')) ++n;
  field = std::string(text.substr(0, n));
  text.remove_prefix(n);
  return true;
}

// A number that fits in an int, or "*".
bool consume_number(std::string_view& text, std::optional<int>& field) {
  if (consume(text, "*")) {
    field.reset();
    return true;
  }
  if (text.empty() || !is_digit(text[0])) return false;
  int value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  field = value;
  return true;
}

bool consume_part(std::string_view& text, DeviceName& name) {
  if (consume(text, "/job:")) return consume_word(text, name.job);
  if (consume(text, "/replica:")) return consume_number(text, name.replica);
  if (consume(text, "/task:")) return consume_number(text, name.task);
  if (consume(text, "/device:")) {
    if (!consume_word(text, name.type)) return false;
    name.id.reset();
    return !consume(text, ":") || consume_number(text, name.id);
  }
  if (consume(text, "/cpu:") || consume(text, "/CPU:")) {
    name.type = "CPU";
    return consume_number(text, name.id);
  }
  if (consume(text, "/gpu:") || consume(text, "/GPU:")) {
    name.type = "GPU";
    return consume_number(text, name.id);
  }
  return false;
}

template <class T>
bool field_matches(const std::optional<T>& field, const std::optional<T>& pattern) {
  return !pattern || field == pattern;
}

template <class T>
bool clash(const std::optional<T>& a, const std::optional<T>& b) {
  return a && b && *a != *b;
}

template <class T>
void fill(std::optional<T>& field, const std::optional<T>& other) {
  if (!field) field = other;
}

}  // namespace

Result<DeviceName> DeviceName::parse(std::string_view text) {
  DeviceName name;
  if (text == "/") return name;
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view part = rest;
    // A part ends where the next one begins.
    if (!consume_part(rest, name) || (!rest.empty() && rest[0] != '/')) {
      return invalid_argument("expected a device such as /job:worker/task:1/device:CPU:0, got \"",
                              text, "\", malformed at \"", part, "\"");
    }
  }
  return name;
}

std::string DeviceName::to_string() const {
  std::string text;
  if (job) text += str_cat("/job:", *job);
  if (replica) text += str_cat("/replica:", *replica);
  if (task) text += str_cat("/task:", *task);
  if (type || id) {
    text += str_cat("/device:", type ? *type : "*", ":", id ? str_cat(*id) : "*");
  }
  return text;
}

std::string DeviceName::task_name() const {
  DeviceName prefix;
  prefix.job = job;
  prefix.replica = replica;
  prefix.task = task;
  return prefix.to_string();
}

bool DeviceName::matches(const DeviceName& pattern) const {
  return field_matches(job, pattern.job) && field_matches(replica, pattern.replica) &&
         field_matches(task, pattern.task) && field_matches(type, pattern.type) &&
         field_matches(id, pattern.id);
}

bool DeviceName::compatible(const DeviceName& other) const {
  return matches(other) || other.matches(*this);
}

Status DeviceName::merge(const DeviceName& other, bool soft) {
  auto differ = [&](std::string_view what) {
    return invalid_argument("devices \"", to_string(), "\" and \"", other.to_string(),
                            "\" have different ", what);
  };
  if (clash(job, other.job)) return differ("jobs");
  if (clash(replica, other.replica)) return differ("replicas");
  if (clash(task, other.task)) return differ("tasks");
  bool types_clash = clash(type, other.type);
  bool ids_clash = clash(id, other.id);
  if (types_clash && !soft) return differ("types");
  if (ids_clash && !soft) return differ("ids");

  fill(job, other.job);
  fill(replica, other.replica);
  fill(task, other.task);
  if (types_clash) {
    type.reset();
    id.reset();
    return ok_status();
  }
  fill(type, other.type);
  if (ids_clash) {
    id.reset();
  } else {
    fill(id, other.id);
  }
  return ok_status();
}

}  // namespace millrace
