#include "millrace/distributed/collective/collective_calls.h"

#include "millrace/kernel/device_name.h"

namespace millrace {

std::string task_of_member(const std::string& member) {
  const Result<DeviceName> name = DeviceName::parse(member);
  return name.ok() && name->complete() ? name->task_name() : member.substr(0, 256);
}

}  // namespace millrace
