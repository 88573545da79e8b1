#include "millrace/ops/math/register.h"

namespace millrace {

void register_math_ops(Registry& registry) {
  register_add_n(registry);
  register_betainc(registry);
  register_binary(registry);
  register_broadcast_args(registry);
  register_cast(registry);
  register_complex(registry);
  register_fft(registry);
  register_real_fft(registry);
  register_select(registry);
  register_string_binary(registry);
  register_unary(registry);
}

}  // namespace millrace
