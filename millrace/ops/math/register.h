#pragma once

namespace millrace {

class Registry;

// Elementwise arithmetic, comparison, casts and selection.
void register_math_ops(Registry& registry);

// Its parts, one per source.
void register_add_n(Registry& registry);
void register_betainc(Registry& registry);
void register_binary(Registry& registry);
void register_broadcast_args(Registry& registry);
void register_cast(Registry& registry);
void register_complex(Registry& registry);
void register_fft(Registry& registry);
void register_real_fft(Registry& registry);
void register_select(Registry& registry);
void register_string_binary(Registry& registry);
void register_unary(Registry& registry);

}  // namespace millrace
