// Parts of strings, their length and case.

#include <algorithm>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/math/broadcast.h"
#include "millrace/ops/strings/map_strings.h"

namespace millrace {
namespace {

// Where a character begins, if the string is UTF-8.
bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

int64_t count_characters(std::string_view s) {
  return std::count_if(s.begin(), s.end(), starts_character);
}

// The byte that character `n` begins at; the end of the string when it has no more.
size_t byte_of_character(std::string_view s, int64_t n) {
  for (size_t i = 0; i < s.size(); ++i) {
    if (starts_character(s[i]) && n-- == 0) return i;
  }
  return s.size();
}

Status substr_shape(ShapeContext& c) {
  Result<PartialShape> part = c.input(1).merge(c.input(2));
  if (!part.ok()) {
    return invalid_argument("pos and len should have the same shape, got: ", c.input(1), " vs. ",
                            c.input(2));
  }
  MR_TRY_ASSIGN(PartialShape shape, broadcast_shapes(c.input(0), *part));
  c.set_output(0, std::move(shape));
  return ok_status();
}

class Substr : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const std::string unit, node.attr<std::string>("unit"));
    return std::make_unique<Substr>(std::string_view(unit) == "UTF8_CHAR");
  }
  explicit Substr(bool characters) : characters_(characters) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor &input = ctx.input(0), &pos = ctx.input(1), &len = ctx.input(2);
    if (pos.shape() != len.shape()) {
      return invalid_argument("pos and len should have the same shape, got: ", pos.shape(), " vs. ",
                              len.shape());
    }
    MR_TRY_ASSIGN(const BroadcastPlan plan, BroadcastPlan::make({&input.shape(), &pos.shape()}));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, plan.shape()));
    const std::span<const std::string> from = input.data<std::string>();
    const std::span<std::string> to = out->mutable_data<std::string>();
    Status status;
    plan.for_each_run(0, out->num_elements(), [&](const int64_t* starts, int64_t at, int64_t n) {
      for (int64_t i = 0; i < n && status.ok(); ++i) {
        const std::string& s = from[static_cast<size_t>(starts[0] + i * plan.step(0))];
        const int64_t k = starts[1] + i * plan.step(1);
        status = cut(s, int_at(pos, k), int_at(len, k), at + i, to[static_cast<size_t>(at + i)]);
      }
    });
    return status;
  }

 private:
  // A negative position counts from the end; a negative length is the rest.
  Status cut(const std::string& s, int64_t pos, int64_t len, int64_t index,
             std::string& out) const {
    const int64_t size = characters_ ? count_characters(s) : static_cast<int64_t>(s.size());
    if (pos > size || pos < -size) {
      return invalid_argument("pos ", pos, " out of range for string b'", s.substr(0, 100),
                              "' at index ", index);
    }
    if (pos < 0) pos += size;
    const int64_t end = len < 0 ? size : pos + std::min(len, size - pos);
    const size_t first = characters_ ? byte_of_character(s, pos) : static_cast<size_t>(pos);
    const size_t last = characters_ ? byte_of_character(s, end) : static_cast<size_t>(end);
    out = s.substr(first, last - first);
    return ok_status();
  }

  const bool characters_;
};

class StringLength : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const std::string unit, node.attr<std::string>("unit"));
    return std::make_unique<StringLength>(std::string_view(unit) == "UTF8_CHAR");
  }
  explicit StringLength(bool characters) : characters_(characters) {}
  Status compute(KernelContext& ctx) const override {
    return map_strings<int32_t>(ctx, [&](const std::string& s) -> Result<int32_t> {
      return static_cast<int32_t>(characters_ ? count_characters(s)
                                              : static_cast<int64_t>(s.size()));
    });
  }

 private:
  const bool characters_;
};

class ChangeCase : public Kernel {
 public:
  template <bool kUpper>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(std::string encoding, node.attr<std::string>("encoding"));
    const bool utf8 = std::string_view(encoding) == "utf-8";
    if (!utf8 && !encoding.empty()) {
      return invalid_argument("only utf-8 or '' (no encoding) is supported, received ", encoding);
    }
    return std::make_unique<ChangeCase>(kUpper, utf8);
  }
  ChangeCase(bool upper, bool utf8) : upper_(upper), utf8_(utf8) {}

  Status compute(KernelContext& ctx) const override {
    return map_strings<std::string>(ctx, [&](std::string s) -> Result<std::string> {
      const char first = upper_ ? 'a' : 'A';
      for (char& c : s) {
        if (utf8_ && static_cast<unsigned char>(c) >= 0x80) {
          return unimplemented("the case of letters outside ASCII cannot be changed");
        }
        if (c >= first && c < first + 26) c ^= 0x20;
      }
      return s;
    });
  }

 private:
  const bool upper_;
  const bool utf8_;
};

Status strip_cpu(KernelContext& ctx) {
  return map_strings<std::string>(ctx, [](const std::string& s) -> Result<std::string> {
    constexpr std::string_view kSpace = " \t\n\v\f\r";
    const size_t begin = s.find_first_not_of(kSpace);
    if (begin == std::string::npos) return std::string();
    return s.substr(begin, s.find_last_not_of(kSpace) + 1 - begin);
  });
}

}  // namespace

void register_substr(Registry& registry) {
  const OpTraits traits = {.cannot_differentiate = true, .cost = 60};
  const OpSpec::Attr unit = {"unit", "string = 'BYTE' in {'BYTE','UTF8_CHAR'}"};
  registry.add({.name = "Substr",
                .doc = "The part of each string that begins at pos and is len long.",
                .inputs = {{"input", "string"},
                           {"pos", "T", "Negative: from the end."},
                           {"len", "T", "What is past the end does not count."}},
                .outputs = {{"output", "string"}},
                .types = {{"T", kIndexTypes}},
                .attrs = {unit},
                .traits = traits,
                .shape = substr_shape});
  registry.add({.name = "StringLength",
                .doc = "The length of each string.",
                .inputs = {{"input", "string"}},
                .outputs = {{"output", "int32"}},
                .attrs = {unit},
                .traits = traits,
                .shape = shape_rules::unchanged});
  registry.kernel<Substr>("Substr", DeviceKind::kCpu);
  registry.kernel<StringLength>("StringLength", DeviceKind::kCpu);
  const auto add = [&](const char* name, const char* doc, std::vector<OpSpec::Attr> attrs) {
    registry.add({.name = name,
                  .doc = doc,
                  .inputs = {{"input", "string"}},
                  .outputs = {{"output", "string"}},
                  .attrs = std::move(attrs),
                  .traits = traits,
                  .shape = shape_rules::unchanged});
  };
  const OpSpec::Attr encoding = {"encoding", "string = ''"};
  add("StringLower", "Strings with the letters of ASCII in lower case.", {encoding});
  add("StringUpper", "Strings with the letters of ASCII in upper case.", {encoding});
  add("StringStrip", "Strings without white space at their ends.", {});
  registry.kernel({.op = "StringLower", .factory = ChangeCase::make<false>});
  registry.kernel({.op = "StringUpper", .factory = ChangeCase::make<true>});
  registry.kernel("StringStrip", DeviceKind::kCpu, strip_cpu);
}

}  // namespace millrace
