// Strings cut into pieces, as a sparse matrix with a row for each string.

#include <algorithm>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"

namespace millrace {
namespace {

using Pieces = std::vector<std::string_view>;

constexpr std::string_view kSpace = " \t\n\v\f\r";

Status split_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 1).status());
  MR_TRY(c.with_rank(1, 0).status());
  c.set_output(0, PartialShape{PartialShape::kUnknownDim, 2});
  c.set_output(1, PartialShape::of_rank(1));
  c.set_output(2, PartialShape{2});
  return ok_status();
}

// At every character of `delimiters`; without any, after every character.
void split_at_any(std::string_view text, std::string_view delimiters, bool skip_empty,
                  Pieces& out) {
  if (delimiters.empty()) {
    for (size_t i = 0; i < text.size(); ++i) out.push_back(text.substr(i, 1));
    return;
  }
  if (text.empty()) return;
  while (true) {
    const size_t end = std::min(text.find_first_of(delimiters), text.size());
    if (end > 0 || !skip_empty) out.push_back(text.substr(0, end));
    if (end == text.size()) return;
    text.remove_prefix(end + 1);
  }
}

// At white space, in at most `max` places (negative: any number); what is left comes last.
void split_at_space(std::string_view text, int64_t max, Pieces& out) {
  const auto skip_space = [&] {
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  };
  skip_space();
  for (int64_t n = 1; !text.empty(); ++n) {
    const size_t end = std::min(text.find_first_of(kSpace), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(end);
    skip_space();
    if (n == max) return out.push_back(text);
  }
}

void split_at(std::string_view text, std::string_view separator, int64_t max, Pieces& out) {
  if (max == 0) return out.push_back(text);
  if (separator.empty()) return split_at_space(text, max, out);
  for (int64_t n = 0; n != max; ++n) {
    const size_t end = text.find(separator);
    if (end == std::string_view::npos) break;
    out.push_back(text.substr(0, end));
    text.remove_prefix(end + separator.size());
  }
  out.push_back(text);
}

class StringSplit : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool skip_empty, node.attr<bool>("skip_empty"));
    return std::make_unique<StringSplit>(skip_empty);
  }
  static Result<std::unique_ptr<Kernel>> make_v2(const KernelNode& node) {
    MR_TRY_ASSIGN(const int64_t max_split, node.attr<int64_t>("maxsplit"));
    return std::make_unique<StringSplit>(max_split);
  }
  explicit StringSplit(bool skip_empty) : v2_(false), skip_empty_(skip_empty) {}
  explicit StringSplit(int64_t max_split) : v2_(true), max_split_(max_split) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 1));
    MR_TRY(expect_rank(ctx, 1, 0));
    const std::string& separator = ctx.input(1).item<std::string>();
    Pieces pieces;
    std::vector<size_t> ends;  // of each row
    size_t longest = 0;
    for (const std::string& text : ctx.input(0).data<std::string>()) {
      const size_t begin = pieces.size();
      if (v2_) {
        split_at(text, separator, max_split_, pieces);
      } else {
        split_at_any(text, separator, skip_empty_, pieces);
      }
      ends.push_back(pieces.size());
      longest = std::max(longest, pieces.size() - begin);
    }
    const int64_t count = static_cast<int64_t>(pieces.size());
    MR_TRY_ASSIGN(Tensor * indices, ctx.allocate_output(0, Shape{count, 2}));
    MR_TRY_ASSIGN(Tensor * values, ctx.allocate_output(1, Shape{count}));
    int64_t* index = indices->mutable_data<int64_t>().data();
    std::string* value = values->mutable_data<std::string>().data();
    for (size_t row = 0, at = 0; row < ends.size(); ++row) {
      for (int64_t column = 0; at < ends[row]; ++at, ++column) {
        *index++ = static_cast<int64_t>(row);
        *index++ = column;
        *value++ = std::string(pieces[at]);
      }
    }
    ctx.set_output(2, Tensor::vector<int64_t>(
                          {static_cast<int64_t>(ends.size()), static_cast<int64_t>(longest)}));
    return ok_status();
  }

 private:
  const bool v2_;
  const bool skip_empty_ = false;
  const int64_t max_split_ = -1;
};

}  // namespace

void register_string_split(Registry& registry) {
  const std::vector<OpSpec::Arg> outputs = {
      {"indices", "int64", "Row and column of each piece."},
      {"values", "string"},
      {"shape", "int64", "Rows, and pieces in the longest of them."}};
  const OpTraits traits = {.cannot_differentiate = true, .cost = 60};
  registry.add({.name = "StringSplit",
                .doc = "Strings cut at every character of the delimiter.",
                .inputs = {{"input", "string"}, {"delimiter", "string"}},
                .outputs = outputs,
                .attrs = {{"skip_empty", "bool = true", "Leaves empty pieces out."}},
                .traits = traits,
                .shape = split_shape});
  registry.add({.name = "StringSplitV2",
                .doc = "Strings cut at the separator, or where it is empty at white space.",
                .inputs = {{"input", "string"}, {"sep", "string"}},
                .outputs = outputs,
                .attrs = {{"maxsplit", "int = -1", "Cuts in each string; negative: any number."}},
                .traits = traits,
                .shape = split_shape});
  registry.kernel<StringSplit>("StringSplit", DeviceKind::kCpu);
  registry.kernel({.op = "StringSplitV2", .factory = StringSplit::make_v2});
}

}  // namespace millrace
