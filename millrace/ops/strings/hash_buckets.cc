#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/strings/map_strings.h"
#include "millrace/ops/strings/string_hashes.h"

namespace millrace {
namespace {

enum class Hash : uint8_t { kPlain, kFast, kStrong };

class HashBucket : public Kernel {
 public:
  template <Hash kHash>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const int64_t buckets, node.attr<int64_t>("num_buckets"));
    std::vector<int64_t> key;
    if (kHash == Hash::kStrong) {
      MR_TRY_ASSIGN(key, node.attr<std::vector<int64_t>>("key"));
      if (key.size() != 2) {
        return invalid_argument("Key must have 2 elements, got ", key.size());
      }
    }
    return std::make_unique<HashBucket>(kHash, static_cast<uint64_t>(buckets), std::move(key));
  }
  HashBucket(Hash hash, uint64_t buckets, std::vector<int64_t> key)
      : hash_(hash), buckets_(buckets), key_(std::move(key)) {}

  Status compute(KernelContext& ctx) const override {
    return map_strings<int64_t>(ctx, [&](const std::string& s) -> Result<int64_t> {
      return static_cast<int64_t>(hash(s) % buckets_);
    });
  }

 private:
  uint64_t hash(const std::string& s) const {
    switch (hash_) {
      case Hash::kPlain:
        return murmur_hash64(s, 0xDECAFCAFFE);
      case Hash::kFast:
        return farm_fingerprint64(s);
      case Hash::kStrong:
        break;
    }
    return sip_hash(s, static_cast<uint64_t>(key_[0]), static_cast<uint64_t>(key_[1]));
  }

  const Hash hash_;
  const uint64_t buckets_;
  const std::vector<int64_t> key_;
};

template <Hash kHash>
void register_one(Registry& registry, const char* name, const char* doc, const char* input) {
  std::vector<OpSpec::Attr> attrs = {{"num_buckets", "int >= 1"}};
  if (kHash == Hash::kStrong) attrs.push_back({"key", "list(int)", "Two numbers."});
  registry.add({.name = name,
                .doc = doc,
                .inputs = {{input, "string"}},
                .outputs = {{"output", "int64"}},
                .attrs = std::move(attrs),
                .traits = {.cannot_differentiate = true, .cost = 20},
                .shape = shape_rules::unchanged});
  registry.kernel({.op = name, .factory = HashBucket::make<kHash>});
}

}  // namespace

void register_hash_buckets(Registry& registry) {
  register_one<Hash::kPlain>(registry, "StringToHashBucket",
                             "A number in [0, num_buckets) for each string, the same everywhere.",
                             "string_tensor");
  register_one<Hash::kFast>(registry, "StringToHashBucketFast",
                            "A number in [0, num_buckets) for each string, by FarmHash.", "input");
  register_one<Hash::kStrong>(
      registry, "StringToHashBucketStrong",
      "A number in [0, num_buckets) for each string, by SipHash: hard to predict without the key.",
      "input");
}

}  // namespace millrace
