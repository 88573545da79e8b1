#include "millrace/kernel/op_state.h"

#include <charconv>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "millrace/base/hash.h"
#include "millrace/base/mutex.h"
#include "millrace/base/str_cat.h"

namespace millrace {
namespace {

constexpr char kVersion = 1;
// No node's name begins with it.
constexpr char kFunctionMark = ':';

struct Decoders {
  Mutex mu;
  std::map<std::string, OpStateDecoder, std::less<>> by_type MR_GUARDED_BY(mu);

  OpStateDecoder find(std::string_view type) {
    MutexLock lock(mu);
    const auto found = by_type.find(type);
    return found == by_type.end() ? nullptr : found->second;
  }
};

Decoders& decoders() {
  static auto* const all = new Decoders;
  return *all;
}

// The resources that are states with that prefix, sorted by type and name.
std::vector<ResourceManager::Entry> states_of(const ResourceManager& resources,
                                              std::string_view prefix) {
  std::vector<ResourceManager::Entry> out;
  for (ResourceManager::Entry& entry : resources.list()) {
    if (entry.container != ResourceManager::kDefaultContainer || !entry.name.starts_with(prefix) ||
        entry.name.size() == prefix.size() || entry.name[prefix.size()] == kFunctionMark ||
        decoders().find(entry.type) == nullptr) {
      continue;
    }
    out.push_back(std::move(entry));
  }
  return out;
}

void put_text(std::string& out, std::string_view text) {
  const auto size = static_cast<uint32_t>(text.size());
  out.append(reinterpret_cast<const char*>(&size), sizeof(size));
  out += text;
}

Status damaged(std::string_view why) {
  return data_loss("the saved state of random ops is damaged: ", why);
}

Status take_text(std::string_view& in, std::string_view& text) {
  uint32_t size = 0;
  if (in.size() < sizeof(size)) return damaged("it ends too early");
  std::memcpy(&size, in.data(), sizeof(size));
  in.remove_prefix(sizeof(size));
  if (size > in.size()) return damaged("it ends too early");
  text = in.substr(0, size);
  in.remove_prefix(size);
  return ok_status();
}

struct Saved {
  std::string type, name;
  Ref<OpState> state;
};

Result<std::vector<Saved>> decode(std::string_view in) {
  std::vector<Saved> out;
  if (in.empty()) return out;
  if (in[0] != kVersion) {
    return invalid_argument("the saved state of random ops is of version ",
                            int{static_cast<unsigned char>(in[0])}, ", expected ", int{kVersion});
  }
  in.remove_prefix(1);
  std::string_view last_type, last_name;
  while (!in.empty()) {
    std::string_view type, name, bytes;
    MR_TRY(take_text(in, type));
    MR_TRY(take_text(in, name));
    MR_TRY(take_text(in, bytes));
    if (name.empty() || name[0] == kFunctionMark) return damaged("an op has no proper name");
    if (std::tie(type, name) <= std::tie(last_type, last_name)) return damaged("it is not sorted");
    std::tie(last_type, last_name) = std::tie(type, name);
    const OpStateDecoder decoder = decoders().find(type);
    if (decoder == nullptr) continue;
    Result<Ref<OpState>> state = decoder(bytes);
    if (!state.ok()) return state.status().with_prefix(str_cat("the state of \"", name, "\""));
    out.push_back({std::string(type), std::string(name), *std::move(state)});
  }
  return out;
}

}  // namespace

void register_op_state(std::string_view type, OpStateDecoder decoder) {
  Decoders& all = decoders();
  MutexLock lock(all.mu);
  all.by_type.emplace(type, decoder);
}

std::string save_op_states(const ResourceManager& resources, const std::string& prefix) {
  std::string out;
  for (const ResourceManager::Entry& entry : states_of(resources, prefix)) {
    const Result<Ref<Resource>> found =
        resources.lookup_any(entry.container, entry.type, entry.name);
    if (!found.ok()) continue;  // dropped since
    if (out.empty()) out += kVersion;
    put_text(out, entry.type);
    put_text(out, std::string_view(entry.name).substr(prefix.size()));
    put_text(out, static_cast<const OpState&>(**found).encode());
  }
  return out;
}

Status restore_op_states(ResourceManager& resources, const std::string& prefix,
                         std::string_view saved) {
  MR_TRY_ASSIGN(const std::vector<Saved> states, decode(saved));
  std::set<std::pair<std::string, std::string>> kept;
  for (const Saved& each : states) {
    std::string name = prefix + each.name;
    MR_TRY(each.state->install(resources, name));
    kept.emplace(each.type, std::move(name));
  }
  for (const ResourceManager::Entry& entry : states_of(resources, prefix)) {
    if (kept.contains({entry.type, entry.name})) continue;
    (void)resources.remove_any(entry.container, entry.type, entry.name);
  }
  return ok_status();
}

std::string function_scope(std::string_view function, const AttrMap& attrs) {
  uint64_t hash = 0;
  bool any = false;
  for (const auto& [name, value] : attrs) {
    // Those of the call itself do not change the body.
    if (name.starts_with('_')) continue;
    hash = hash_combine(hash, hash_combine(hash_bytes(name), value.hash()));
    any = true;
  }
  if (!any) return std::string(function);
  char digits[16];
  const std::to_chars_result end = std::to_chars(digits, digits + sizeof(digits), hash, 16);
  return str_cat(function, "@", std::string_view(digits, end.ptr));
}

std::string function_session(std::string_view session, std::string_view scope) {
  const std::string_view mark(&kFunctionMark, 1);
  return str_cat(session, "/", mark, scope, mark);
}

}  // namespace millrace
