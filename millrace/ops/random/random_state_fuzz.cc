// Any bytes at all, as the saved state of random ops: states that are saved again as they came, or
// an error that leaves those there were.

#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/base/check.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/kernel/op_state.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool kRegistered = register_for_tests({register_random_ops});

void run(std::string_view bytes) {
  const std::string prefix = ResourceManager::session_name("fuzz", "");
  const Ref<ResourceManager> resources = make_ref<ResourceManager>();
  const Status status = restore_op_states(*resources, prefix, bytes);
  const std::string saved = save_op_states(*resources, prefix);
  if (!status.ok()) {
    MR_CHECK(status.code() == Code::kDataLoss || status.code() == Code::kInvalidArgument);
    MR_CHECK(saved.empty());
    return;
  }
  // Types that nobody knows were left out.
  MR_CHECK(saved.size() <= bytes.size());
  const Ref<ResourceManager> again = make_ref<ResourceManager>();
  MR_CHECK_OK(restore_op_states(*again, prefix, saved));
  MR_CHECK(save_op_states(*again, prefix) == saved);
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
