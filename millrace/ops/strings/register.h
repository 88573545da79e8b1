#pragma once

// Ops on strings: joining, splitting, cutting, converting, hashing.

namespace millrace {

class Registry;

void register_string_ops(Registry& registry);

void register_as_string(Registry& registry);     // AsString StringToNumber
void register_base64(Registry& registry);        // EncodeBase64 DecodeBase64
void register_decode_raw(Registry& registry);    // DecodeRaw
void register_hash_buckets(Registry& registry);  // StringToHashBucket StringToHashBucketFast ...
void register_string_join(Registry& registry);   // StringJoin ReduceJoin
void register_string_split(Registry& registry);  // StringSplit StringSplitV2
void register_substr(Registry& registry);        // Substr StringLength StringLower StringStrip ...

}  // namespace millrace
