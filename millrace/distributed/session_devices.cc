#include "millrace/distributed/session_devices.h"

#include "millrace/base/file_access.h"
#include "millrace/device/cpu/cpu_device.h"

namespace millrace {

Result<std::vector<Ref<Device>>> make_session_devices(std::span<const Ref<Device>> devices,
                                                      const GraphRights& rights) {
  std::vector<Ref<Device>> out;
  for (const Ref<Device>& device : devices) {
    MR_TRY_ASSIGN(Ref<Device> own, make_cpu_device_like(*device));
    // The device's own are not handed out to be changed, and are not changed here.
    own->set_files(rights.files ? Ref<FileAccess>(const_cast<FileAccess*>(&device->files()))
                                : FileAccess::none(refuse(Reach::kFiles, "it")));
    out.push_back(std::move(own));
  }
  return out;
}

}  // namespace millrace
