// Base64 with the alphabet that is safe in URLs and file names (RFC 4648, section 5).

#include <array>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/strings/map_strings.h"

namespace millrace {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

constexpr std::array<int8_t, 256> kValues = [] {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int8_t>(i);
  }
  return values;
}();

std::string encode(std::string_view bytes, bool pad) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - at);
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (i < n ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    }
    for (size_t i = 0; i < 4; ++i) {
      if (i <= n) {
        out += kAlphabet[bits >> (18 - 6 * i) & 63];
      } else if (pad) {
        out += '=';
      }
    }
  }
  return out;
}

Result<std::string> decode(std::string_view text) {
  // Padding, where there is any, fills the last group of four.
  if (text.size() % 4 == 0) {
    for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  }
  if (text.size() % 4 == 1) {
    return invalid_argument("Base64 string length cannot be 1 modulo 4.");
  }
  std::string out;
  out.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int8_t value = kValues[static_cast<unsigned char>(c)];
    if (value < 0) return invalid_argument("Invalid character found in base64.");
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 255);
  }
  return out;
}

class EncodeBase64 : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool pad, node.attr<bool>("pad"));
    return std::make_unique<EncodeBase64>(pad);
  }
  explicit EncodeBase64(bool pad) : pad_(pad) {}
  Status compute(KernelContext& ctx) const override {
    return map_strings<std::string>(
        ctx, [&](const std::string& s) -> Result<std::string> { return encode(s, pad_); });
  }

 private:
  const bool pad_;
};

Status decode_cpu(KernelContext& ctx) {
  return map_strings<std::string>(ctx, [](const std::string& s) { return decode(s); });
}

}  // namespace

void register_base64(Registry& registry) {
  registry.add({.name = "EncodeBase64",
                .doc = "Strings in base64, the form that is safe in URLs.",
                .inputs = {{"input", "string"}},
                .outputs = {{"output", "string"}},
                .attrs = {{"pad", "bool = false", "Whether '=' fills the last group of four."}},
                .traits = {.cannot_differentiate = true, .cost = 60},
                .shape = shape_rules::unchanged});
  registry.add({.name = "DecodeBase64",
                .doc = "The strings that EncodeBase64 made these of, padded or not.",
                .inputs = {{"input", "string"}},
                .outputs = {{"output", "string"}},
                .traits = {.cannot_differentiate = true, .cost = 60},
                .shape = shape_rules::unchanged});
  registry.kernel<EncodeBase64>("EncodeBase64", DeviceKind::kCpu);
  registry.kernel("DecodeBase64", DeviceKind::kCpu, decode_cpu);
}

}  // namespace millrace
