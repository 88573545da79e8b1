#pragma once

#include <string>
#include <string_view>

#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/graph/attr_value.h"
#include "millrace/kernel/resource_manager.h"

namespace millrace {

// State of one op that no variable holds and that a checkpoint takes along, so that a run which is
// resumed goes on as one that was never stopped: where a stream of random numbers stands, what a
// sampler has learned. It lives in the default container under a session_name().
class OpState : public Resource {
 public:
  // As bytes, for the decoder of its type.
  virtual std::string encode() const = 0;
  // Becomes the resource of that name, in place of another one of its type.
  virtual Status install(ResourceManager& resources, const std::string& name) = 0;
};

// What install() of a class T does.
template <class T>
Status install_state(ResourceManager& resources, const std::string& name, const Ref<T>& state) {
  for (;;) {
    (void)resources.remove<T>(ResourceManager::kDefaultContainer, name);
    Status status = resources.create<T>(ResourceManager::kDefaultContainer, name, state);
    // Taken: an op that runs at the same time was quicker.
    if (status.code() != Code::kAlreadyExists) return status;
  }
}

// Makes a state from what encode() wrote. DATA_LOSS for other bytes.
using OpStateDecoder = Result<Ref<OpState>> (*)(std::string_view bytes);
// Registers the decoder of a type of resource; a second time is fine. Thread-safe.
void register_op_state(std::string_view type, OpStateDecoder decoder);

// The states whose names begin with `prefix`, without it, sorted, as one string, empty where there
// are none: docs/checkpoints.md has the format. Each state is read at once; ops that run meanwhile
// may stand before or after. Those of functions (see below) have a prefix of their own.
std::string save_op_states(const ResourceManager& resources, const std::string& prefix);
// Makes the states whose names begin with `prefix` those of the string, and no others: ops that it
// does not know begin anew. Types that nobody registered are left out. DATA_LOSS for a string that
// is damaged, INVALID_ARGUMENT for one of a later version; nothing has changed then.
Status restore_op_states(ResourceManager& resources, const std::string& prefix,
                         std::string_view saved);

// Functions that a FunctionRunner runs keep their state apart from that of the session's graph,
// because who runs them saves it. What the names of the nodes of an instance begin with; the same
// in every process.
std::string function_scope(std::string_view function, const AttrMap& attrs);
// The session_prefix of these nodes. clear_session(session) drops what has it, too.
std::string function_session(std::string_view session, std::string_view scope);

}  // namespace millrace
