#include "millrace/ops/strings/register.h"

namespace millrace {

void register_string_ops(Registry& registry) {
  register_as_string(registry);
  register_base64(registry);
  register_decode_raw(registry);
  register_hash_buckets(registry);
  register_string_join(registry);
  register_string_split(registry);
  register_substr(registry);
}

}  // namespace millrace
