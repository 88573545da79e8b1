#include "millrace/distributed/cluster.h"

namespace millrace {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_job_name(std::string_view name) {
  if (name.empty() || !is_letter(name[0])) return false;
  for (char c : name) {
    if (!is_letter(c) && !(c >= '0' && c <= '9') && c != '_') return false;
  }
  return true;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  size_t end = 0;
  while ((end = text.find(separator)) != std::string_view::npos) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

}  // namespace

Result<DeviceFilters> DeviceFilters::parse(const std::vector<std::string>& texts) {
  DeviceFilters out;
  for (const std::string& text : texts) {
    MR_TRY_ASSIGN(DeviceName filter, DeviceName::parse(text));
    out.filters_.push_back(std::move(filter));
  }
  return out;
}

bool DeviceFilters::keep(const DeviceName& name) const {
  if (filters_.empty()) return true;
  for (const DeviceName& filter : filters_) {
    DeviceName merged = name;
    if (merged.merge(filter).ok()) return true;
  }
  return false;
}

std::string task_name(std::string_view job, int task) {
  return str_cat("/job:", job, "/replica:0/task:", task);
}

Result<ClusterSpec> ClusterSpec::parse(std::string_view text) {
  ClusterSpec spec;
  for (std::string_view entry : split(text, ',')) {
    std::vector<std::string_view> parts = split(entry, '|');
    if (parts.size() != 2) {
      return invalid_argument("cluster \"", text, "\": expected job|address;address, got \"", entry,
                              "\"");
    }
    int task = 0;
    for (std::string_view address : split(parts[1], ';')) {
      Status added = spec.add(parts[0], task++, address);
      MR_TRY(added.with_prefix(str_cat("cluster \"", text, "\"")));
    }
  }
  return spec;
}

Status ClusterSpec::add(std::string_view job, int task, std::string_view address) {
  if (!is_job_name(job)) {
    return invalid_argument(
        "expected a letter followed by letters, digits and \"_\" as a job's "
        "name, got \"",
        job, "\"");
  }
  std::string name = task_name(job, task);
  if (task < 0) return invalid_argument("task ", name, ": expected a number from 0 on");
  if (address.empty()) return invalid_argument("task ", name, " has no address");
  for (const auto& [other_job, tasks] : jobs_) {
    for (const auto& [other_task, other_address] : tasks) {
      if (other_address != address) continue;
      return invalid_argument("tasks ", task_name(other_job, other_task), " and ", name,
                              " have one address, ", address);
    }
  }
  if (!jobs_[std::string(job)].emplace(task, address).second) {
    return invalid_argument("task ", name, " is there twice");
  }
  return ok_status();
}

std::vector<std::string> ClusterSpec::task_names() const {
  std::vector<std::string> names;
  for (const auto& [job, tasks] : jobs_) {
    for (const auto& [task, address] : tasks) names.push_back(task_name(job, task));
  }
  return names;
}

Result<std::string> ClusterSpec::address(std::string_view name) const {
  for (const auto& [job, tasks] : jobs_) {
    for (const auto& [task, address] : tasks) {
      if (task_name(job, task) == name) return address;
    }
  }
  return not_found("no task ", name, " in the cluster; there are ", str_join(task_names(), ", "));
}

std::string ClusterSpec::to_string() const {
  std::vector<std::string> lines;
  for (const auto& [job, tasks] : jobs_) {
    for (const auto& [task, address] : tasks) {
      lines.push_back(str_cat(task_name(job, task), " at ", address));
    }
  }
  return str_join(lines, ", ");
}

Status WorkerCache::add(std::string task, Ref<WorkerInterface> worker) {
  MutexLock lock(mu_);
  if (entries_.contains(task)) return already_exists("task ", task, " is in the cluster already");
  entries_.emplace(std::move(task), Entry{std::move(worker), true});
  return ok_status();
}

Result<Ref<WorkerInterface>> WorkerCache::find(std::string_view task) const {
  {
    MutexLock lock(mu_);
    if (auto it = entries_.find(task); it != entries_.end()) return it->second.worker;
  }
  return not_found("no task ", task, " in the cluster; there are ", str_join(tasks(), ", "));
}

std::vector<std::string> WorkerCache::tasks() const {
  MutexLock lock(mu_);
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

void WorkerCache::report(std::string_view task, const Status& status) {
  MutexLock lock(mu_);
  auto it = entries_.find(task);
  if (it != entries_.end()) it->second.alive = status.code() != Code::kUnavailable;
}

bool WorkerCache::alive(std::string_view task) const {
  MutexLock lock(mu_);
  auto it = entries_.find(task);
  return it != entries_.end() && it->second.alive;
}

}  // namespace millrace
