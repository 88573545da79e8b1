// UnicodeDecode, UnicodeDecodeWithOffsets, UnicodeEncode and UnicodeTranscode: strings as rows of
// code points, and the other way round.

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/strings/text_encoding.h"

namespace millrace {
namespace {

// What becomes of bytes that are no character, and of control characters.
class ErrorRule {
 public:
  static Result<ErrorRule> make(const KernelNode& node, bool controls) {
    ErrorRule rule;
    MR_TRY_ASSIGN(const std::string errors, node.attr<std::string>("errors"));
    rule.strict_ = errors == "strict";
    rule.leaves_out_ = errors == "ignore";
    MR_TRY_ASSIGN(const int64_t replacement, node.attr<int64_t>("replacement_char"));
    if (replacement < 0 || replacement > 0x10ffff) {
      return invalid_argument("replacement_char out of unicode codepoint range");
    }
    rule.replacement_ = static_cast<uint32_t>(replacement);
    if (controls) {
      MR_TRY_ASSIGN(rule.controls_, node.attr<bool>("replace_control_characters"));
    }
    return rule;
  }

  // Calls emit(code point, where its bytes begin) for what stands for each character of `text`.
  template <class Emit>
  Status decode(TextDecoder& decoder, std::string_view text, Emit emit) const {
    for (size_t at = 0; at < text.size();) {
      const DecodedCharacter c = decoder.next(text.substr(at));
      if (!c.valid && strict_) return invalid_argument("Invalid formatting on input string");
      if (c.valid && !(controls_ && c.code_point < 0x20)) {
        emit(c.code_point, at);
      } else if (!leaves_out_) {
        emit(replacement_, at);
      }
      at += c.bytes;
    }
    return ok_status();
  }
  // The code point that stands for `number` in `*code`; false where nothing does.
  Result<bool> encode(int64_t number, uint32_t* code) const {
    if (is_unicode_character(number)) {
      *code = static_cast<uint32_t>(number);
      return true;
    }
    if (strict_) {
      return invalid_argument("Code point is out of range for Unicode, or a noncharacter.");
    }
    *code = replacement_;
    return !leaves_out_;
  }

 private:
  bool strict_ = false, leaves_out_ = false, controls_ = false;
  uint32_t replacement_ = 0;
};

// What kernels will say of the attributes.
Status check_attributes(const ShapeContext& c) {
  MR_TRY_ASSIGN(const int64_t replacement, c.attr<int64_t>("replacement_char"));
  if (replacement < 0 || replacement > 0x10ffff) {
    return invalid_argument("replacement_char out of unicode codepoint range");
  }
  if (c.op().find_attr("input_encoding") == nullptr) return ok_status();
  MR_TRY_ASSIGN(const std::string encoding, c.attr<std::string>("input_encoding"));
  return TextDecoder::make(encoding).status();
}

Status transcode_shape(ShapeContext& c) {
  MR_TRY(check_attributes(c));
  return shape_rules::unchanged(c);
}

Status decode_shape(ShapeContext& c) {
  MR_TRY(check_attributes(c));
  const int64_t n = c.input(0).num_elements();
  const bool known = n >= 0 && n < std::numeric_limits<int64_t>::max();
  c.set_output(0, PartialShape{known ? n + 1 : PartialShape::kUnknownDim});
  for (int i = 1; i < c.num_outputs(); ++i) c.set_output(i, PartialShape::of_rank(1));
  return ok_status();
}

class UnicodeDecode final : public Kernel {
 public:
  UnicodeDecode(std::string encoding, ErrorRule rule)
      : encoding_(std::move(encoding)), rule_(rule) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(std::string encoding, node.attr<std::string>("input_encoding"));
    MR_TRY(TextDecoder::make(encoding).status());
    MR_TRY_ASSIGN(const ErrorRule rule, ErrorRule::make(node, true));
    return std::unique_ptr<Kernel>(std::make_unique<UnicodeDecode>(std::move(encoding), rule));
  }

  Status compute(KernelContext& ctx) const override {
    const auto texts = ctx.input(0).data<std::string>();
    MR_TRY_ASSIGN(const std::unique_ptr<TextDecoder> decoder, TextDecoder::make(encoding_));
    std::vector<int32_t> codes;
    std::vector<int64_t> starts, ends = {0};
    for (const std::string& text : texts) {
      MR_TRY(rule_.decode(*decoder, text, [&](uint32_t code, size_t at) {
        codes.push_back(static_cast<int32_t>(code));
        starts.push_back(static_cast<int64_t>(at));
      }));
      ends.push_back(static_cast<int64_t>(codes.size()));
    }
    MR_TRY_ASSIGN(Tensor * splits,
                  ctx.allocate_output(0, Shape{static_cast<int64_t>(ends.size())}));
    if (splits->dtype() == DType::kInt32) {
      if (ends.back() > INT32_MAX) {
        return invalid_argument("too many characters for splits of int32: ", ends.back());
      }
      std::ranges::copy(ends, splits->mutable_data<int32_t>().begin());
    } else {
      std::ranges::copy(ends, splits->mutable_data<int64_t>().begin());
    }
    const Shape shape{static_cast<int64_t>(codes.size())};
    MR_TRY_ASSIGN(Tensor * values, ctx.allocate_output(1, shape));
    std::ranges::copy(codes, values->mutable_data<int32_t>().begin());
    if (ctx.num_outputs() > 2) {
      MR_TRY_ASSIGN(Tensor * offsets, ctx.allocate_output(2, shape));
      std::ranges::copy(starts, offsets->mutable_data<int64_t>().begin());
    }
    return ok_status();
  }

 private:
  std::string encoding_;
  ErrorRule rule_;
};

Status encode_shape(ShapeContext& c) {
  MR_TRY(check_attributes(c));
  MR_TRY(c.with_rank(0, 1).status());
  MR_TRY_ASSIGN(const PartialShape splits, c.with_rank(1, 1));
  const int64_t n = splits.num_elements();
  if (n == 0) return invalid_argument("input_splits must not be empty");
  c.set_output(0, PartialShape{n < 0 ? PartialShape::kUnknownDim : n - 1});
  return ok_status();
}

Result<UnicodeEncoding> output_encoding(const KernelNode& node) {
  MR_TRY_ASSIGN(const std::string name, node.attr<std::string>("output_encoding"));
  return unicode_encoding(name);
}

class UnicodeEncode final : public Kernel {
 public:
  UnicodeEncode(UnicodeEncoding encoding, ErrorRule rule) : encoding_(encoding), rule_(rule) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const UnicodeEncoding encoding, output_encoding(node));
    MR_TRY_ASSIGN(const ErrorRule rule, ErrorRule::make(node, false));
    return std::unique_ptr<Kernel>(std::make_unique<UnicodeEncode>(encoding, rule));
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 1));
    MR_TRY(expect_rank(ctx, 1, 1));
    const auto codes = ctx.input(0).data<int32_t>();
    MR_TRY_ASSIGN(const std::vector<int64_t> splits, ctx.int_vector_input(1));
    if (splits.empty()) return invalid_argument("input_splits must not be empty");
    if (splits.front() != 0) {
      return invalid_argument("First value in input_splits must be zero.");
    }
    for (size_t i = 1; i < splits.size(); ++i) {
      if (splits[i] < splits[i - 1]) {
        return invalid_argument("Values in input_splits must be equal or in ascending order.");
      }
    }
    if (splits.back() != static_cast<int64_t>(codes.size())) {
      return invalid_argument("The last value of input_splits must be the number of values, ",
                              codes.size(), ", got ", splits.back());
    }
    const auto rows = static_cast<int64_t>(splits.size()) - 1;
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{rows}));
    const auto texts = out->mutable_data<std::string>();
    for (size_t row = 0; row < texts.size(); ++row) {
      std::string text;
      for (int64_t i = splits[row]; i < splits[row + 1]; ++i) {
        uint32_t code = 0;
        MR_TRY_ASSIGN(const bool kept, rule_.encode(codes[static_cast<size_t>(i)], &code));
        if (kept) append_character(code, encoding_, text);
      }
      texts[row] = std::move(text);
    }
    return ok_status();
  }

 private:
  UnicodeEncoding encoding_;
  ErrorRule rule_;
};

class UnicodeTranscode final : public Kernel {
 public:
  UnicodeTranscode(std::string from, UnicodeEncoding to, ErrorRule rule)
      : from_(std::move(from)), to_(to), rule_(rule) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(std::string from, node.attr<std::string>("input_encoding"));
    MR_TRY(TextDecoder::make(from).status());
    MR_TRY_ASSIGN(const UnicodeEncoding to, output_encoding(node));
    MR_TRY_ASSIGN(const ErrorRule rule, ErrorRule::make(node, true));
    return std::unique_ptr<Kernel>(std::make_unique<UnicodeTranscode>(std::move(from), to, rule));
  }

  Status compute(KernelContext& ctx) const override {
    const auto texts = ctx.input(0).data<std::string>();
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, ctx.input(0).shape()));
    MR_TRY_ASSIGN(const std::unique_ptr<TextDecoder> decoder, TextDecoder::make(from_));
    const auto results = out->mutable_data<std::string>();
    for (size_t i = 0; i < texts.size(); ++i) {
      std::string text;
      MR_TRY(rule_.decode(*decoder, texts[i],
                          [&](uint32_t code, size_t) { append_character(code, to_, text); }));
      results[i] = std::move(text);
    }
    return ok_status();
  }

 private:
  std::string from_;
  UnicodeEncoding to_;
  ErrorRule rule_;
};

}  // namespace

void register_unicode(Registry& registry) {
  const OpSpec::Attr from = {"input_encoding", "string"};
  const OpSpec::Attr to = {"output_encoding", "string in {'UTF-8','UTF-16-BE','UTF-32-BE'}"};
  const OpSpec::Attr errors = {"errors", "string = 'replace' in {'strict','replace','ignore'}",
                               "What bytes become that are no character."};
  const OpSpec::Attr replacement = {"replacement_char", "int = 65533"};
  const OpSpec::Attr controls = {"replace_control_characters", "bool = false",
                                 "Whether code points below 32 count as errors."};
  const OpSpec::Type splits = {"Tsplits", kIndexTypes, DType::kInt64};
  const OpTraits traits = {.cannot_differentiate = true, .cost = 60};
  OpSpec decode = {.name = "UnicodeDecode",
                   .doc = "The code points of strings, one string after the other.",
                   .inputs = {{"input", "string"}},
                   .outputs = {{"row_splits", "Tsplits", "Where each string begins, and the end."},
                               {"char_values", "int32"}},
                   .types = {splits},
                   .attrs = {from, errors, replacement, controls},
                   .traits = traits,
                   .shape = decode_shape};
  registry.add(decode);
  decode.name = "UnicodeDecodeWithOffsets";
  decode.outputs = {{"row_splits", "Tsplits", "Where each string begins, and the end."},
                    {"char_values", "int32"},
                    {"char_to_byte_starts", "int64", "Where in its string each begins."}};
  registry.add(decode);
  registry.add({.name = "UnicodeEncode",
                .doc = "Strings of rows of code points.",
                .inputs = {{"input_values", "int32"}, {"input_splits", "host(Tsplits)"}},
                .outputs = {{"output", "string"}},
                .types = {splits},
                .attrs = {errors, to, replacement},
                .traits = traits,
                .shape = encode_shape});
  registry.add({.name = "UnicodeTranscode",
                .doc = "Strings in another encoding.",
                .inputs = {{"input", "string"}},
                .outputs = {{"output", "string"}},
                .attrs = {from, to, errors, replacement, controls},
                .traits = traits,
                .shape = transcode_shape});
  registry.kernel<UnicodeDecode>("UnicodeDecode", DeviceKind::kCpu);
  registry.kernel<UnicodeDecode>("UnicodeDecodeWithOffsets", DeviceKind::kCpu);
  registry.kernel<UnicodeEncode>("UnicodeEncode", DeviceKind::kCpu);
  registry.kernel<UnicodeTranscode>("UnicodeTranscode", DeviceKind::kCpu);
}

}  // namespace millrace
