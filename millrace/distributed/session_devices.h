#pragma once

#include <span>
#include <vector>

#include "millrace/kernel/device.h"
#include "millrace/kernel/graph_rights.h"

namespace millrace {

// How a session stands to the state of a task that others use too.
struct SessionScope {
  // What its graphs may reach there.
  GraphRights rights;
  // Its state is its own: it asked for that.
  bool isolated = false;

  // Its state is its own because it asked for that, or because it may not reach that of others.
  bool own_devices() const { return isolated || !rights.state; }
  // What its nodes may reach: all state there is, where that is its own by its wish. One that did
  // not ask is told instead, for it means the state of others.
  GraphRights node_rights() const {
    GraphRights out = rights;
    out.state |= isolated;
    return out;
  }
  bool operator==(const SessionScope&) const = default;
};

// Devices that stand for `devices`, all CPUs, for one session with own_devices(): other resources,
// whatever handles its graphs make up, and no files where it may reach none. Who made them clears
// their resources when the session ends.
Result<std::vector<Ref<Device>>> make_session_devices(std::span<const Ref<Device>> devices,
                                                      const GraphRights& rights);

}  // namespace millrace
