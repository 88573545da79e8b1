#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

// A GraphDef changed in some places: nodes added, copied, removed and wired differently, attributes
// and constants replaced, in functions too. Mostly still a graph. Empty when `bytes` are none.
std::string mutate_graph(std::string_view bytes, uint64_t seed);

}  // namespace millrace
