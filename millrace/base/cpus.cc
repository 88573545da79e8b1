#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

#include "millrace/base/file.h"
#include "millrace/base/thread_pool.h"

namespace millrace {
namespace {

// A file's text, or empty: what cannot be read sets no limit.
std::string text_of(const std::string& path) {
  constexpr uint64_t kMostBytes = 1 << 20;
  Result<std::string> text = read_file(posix_file_system(), path, kMostBytes);
  return text.ok() ? *std::move(text) : std::string();
}

// Takes what stands before `separator` off the front of `text`.
std::string_view take_until(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

// quota / period in CPUs; infinity when either is no positive number ("max", "-1", empty).
double cpus_from(std::string_view quota, std::string_view period) {
  const auto number = [](std::string_view text) {
    int64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  const int64_t quota_us = number(quota), period_us = number(period);
  if (quota_us <= 0 || period_us <= 0) return INFINITY;
  return static_cast<double>(quota_us) / static_cast<double>(period_us);
}

double limit_of_v2(const std::string& directory) {
  const std::string text = text_of(directory + "/cpu.max");
  std::string_view rest = text;
  const std::string_view quota = take_until(rest, ' ');
  return cpus_from(quota, take_until(rest, '\n'));
}

double limit_of_v1(const std::string& directory) {
  const std::string quota = text_of(directory + "/cpu.cfs_quota_us");
  const std::string period = text_of(directory + "/cpu.cfs_period_us");
  return cpus_from(quota, period);
}

// The strictest limit from `group` up to the mount's root. Inside a container the group's path may
// be the host's and not be there; then only the root counts.
double strictest(const std::string& mount, std::string_view group,
                 double (*limit_of)(const std::string&)) {
  double least = limit_of(mount);
  while (!group.empty() && group != "/") {
    least = std::min(least, limit_of(mount + std::string(group)));
    group = group.substr(0, group.rfind('/'));
  }
  return least;
}

bool has_item(std::string_view list, std::string_view item) {
  while (!list.empty()) {
    if (take_until(list, ',') == item) return true;
  }
  return false;
}

int affinity_cpus() {
  for (int capacity = 1024; capacity <= 1 << 20; capacity *= 4) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(capacity);
    CPU_ZERO_S(bytes, set);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    const bool too_small = !known && errno == EINVAL;
    const int count = known ? CPU_COUNT_S(bytes, set) : 1;
    CPU_FREE(set);
    if (!too_small) return std::max(count, 1);
  }
  return 1;
}

}  // namespace

int cgroup_cpus(const char* root) {
  const std::string prefix = root;
  const std::string mount = prefix + "/sys/fs/cgroup";
  const std::string groups = text_of(prefix + "/proc/self/cgroup");
  double least = INFINITY;
  // Lines of hierarchy:controllers:path; the hierarchy of v2 is 0 and names no controllers.
  for (std::string_view rest = groups; !rest.empty();) {
    std::string_view line = take_until(rest, '\n');
    const std::string_view hierarchy = take_until(line, ':');
    const std::string_view controllers = take_until(line, ':');
    if (hierarchy == "0" && controllers.empty()) {
      least = std::min(least, strictest(mount, line, limit_of_v2));
      least = std::min(least, strictest(mount + "/unified", line, limit_of_v2));
    } else if (has_item(controllers, "cpu")) {
      least = std::min(least, strictest(mount + "/cpu", line, limit_of_v1));
      least = std::min(least, strictest(mount + "/" + std::string(controllers), line, limit_of_v1));
    }
  }
  if (std::isinf(least)) return 0;
  return static_cast<int>(std::clamp(std::ceil(least), 1.0, 1e6));
}

int usable_cpus(const char* root) {
  const int affinity = affinity_cpus();
  const int quota = cgroup_cpus(root);
  return quota == 0 ? affinity : std::min(affinity, quota);
}

}  // namespace millrace
