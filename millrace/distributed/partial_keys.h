#pragma once

#include <string>
#include <string_view>

#include "millrace/base/str_cat.h"

// Names, within a step that runs in pieces, of what its client feeds and fetches. No key of an edge
// between devices looks like them.

namespace millrace {

// The client gives it by give_tensor().
inline std::string feed_key(int position) { return str_cat("feed ", position); }
inline bool is_feed_key(std::string_view key) { return key.starts_with("feed "); }
// The client takes it by recv_tensor().
inline std::string fetch_key(int position) { return str_cat("fetch ", position); }
inline bool is_fetch_key(std::string_view key) { return key.starts_with("fetch "); }

}  // namespace millrace
