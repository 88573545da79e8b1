// From a pattern to the program that Regex runs: a tree by recursive descent, then instructions.

#include <algorithm>
#include <cctype>
#include <string>

#include "millrace/ops/strings/regex.h"
#include "millrace/ops/strings/regex_classes.h"
#include "millrace/ops/strings/regex_text.h"

namespace millrace {
namespace {

constexpr size_t kMaxProgram = 20000;
constexpr size_t kMaxPattern = 1 << 20;
constexpr int kMaxDepth = 100;
constexpr int kMaxRepeat = 1000;

}  // namespace

class RegexProgram {
 public:
  explicit RegexProgram(std::string_view pattern)
      : source_(pattern), pattern_(RegexText(pattern).characters) {}

  Result<Regex> run() {
    MR_TRY_ASSIGN(const int tree, alternatives(0));
    if (at_ < pattern_.size()) return error("unexpected )");
    MR_TRY_ASSIGN(const int match, emit({.kind = Instruction::kMatch}));
    MR_TRY_ASSIGN(regex_.start_, compile_group(tree, 0, match));
    regex_.groups_ = groups_;
    return std::move(regex_);
  }

 private:
  using Instruction = Regex::Instruction;
  struct Flags {
    bool fold = false, lines = false, dot_all = false, swap_lazy = false;
  };
  struct Node {
    enum Kind : uint8_t { kOne, kSequence, kAlternatives, kRepeat, kGroup } kind = kSequence;
    std::vector<int> parts = {};
    Instruction one = {};     // kOne
    int least = 0, most = 0;  // kRepeat; most < 0: no limit
    bool lazy = false;
    int group = 0;  // kGroup
  };

  Status error(std::string_view what) const {
    return invalid_argument("Invalid pattern: ", source_.substr(0, 200), ", error: ", what);
  }
  bool more() const { return at_ < pattern_.size(); }
  bool take(char32_t c) {
    if (!more() || pattern_[at_] != c) return false;
    ++at_;
    return true;
  }
  int node(Node made) {
    nodes_.push_back(std::move(made));
    return static_cast<int>(nodes_.size()) - 1;
  }
  int one(Instruction instruction) {
    return node({.kind = Node::kOne, .one = std::move(instruction)});
  }
  int set(RegexRanges ranges, bool negated) {
    if (flags_.fold) ranges.fold_case();
    if (negated) ranges.negate();
    Instruction instruction{.kind = Instruction::kSet};
    for (const auto& [first, last] : ranges.sorted()) instruction.set.push_back({first, last});
    return one(std::move(instruction));
  }

  Result<int> alternatives(int depth) {
    if (depth > kMaxDepth) return error("nesting too deep");
    const Flags outer = flags_;
    std::vector<int> parts;
    do {
      MR_TRY_ASSIGN(const int part, sequence(depth));
      parts.push_back(part);
    } while (take('|'));
    flags_ = outer;
    if (parts.size() == 1) return parts[0];
    return node({.kind = Node::kAlternatives, .parts = std::move(parts)});
  }

  Result<int> sequence(int depth) {
    std::vector<int> parts;
    while (more() && pattern_[at_] != '|' && pattern_[at_] != ')') {
      MR_TRY_ASSIGN(const int part, repeated(depth));
      parts.push_back(part);
    }
    return node({.kind = Node::kSequence, .parts = std::move(parts)});
  }

  Result<int> repeated(int depth) {
    MR_TRY_ASSIGN(const int part, atom(depth));
    Node out{.kind = Node::kRepeat, .parts = {part}, .least = 1, .most = 1};
    if (take('*')) {
      out.least = 0, out.most = -1;
    } else if (take('+')) {
      out.most = -1;
    } else if (take('?')) {
      out.least = 0;
    } else if (!counts(out.least, out.most)) {
      return part;
    }
    const bool in_order = out.most < 0 || out.most >= out.least;
    if (out.least > kMaxRepeat || out.most > kMaxRepeat || !in_order) {
      return error("bad repetition operator");
    }
    out.lazy = take('?') != flags_.swap_lazy;
    if (more() && (pattern_[at_] == '*' || pattern_[at_] == '+' || pattern_[at_] == '?')) {
      return error("bad repetition operator: **");
    }
    return node(std::move(out));
  }

  // {m}, {m,} or {m,n}; anything else in braces is itself.
  bool counts(int& least, int& most) {
    const size_t begin = at_;
    if (!take('{')) return false;
    int low = 0;
    int high = -1;
    if (number(low)) {
      const bool range = take(',');
      if (!range) high = low;
      if (range && more() && pattern_[at_] != '}' && !number(high)) high = -2;
      if (high >= -1 && take('}')) {
        least = low, most = high;
        return true;
      }
    }
    at_ = begin;
    return false;
  }
  bool number(int& out) {
    const size_t begin = at_;
    int value = 0;
    while (more() && pattern_[at_] >= '0' && pattern_[at_] <= '9') {
      value = std::min(value * 10 + static_cast<int>(pattern_[at_++] - '0'), 10 * kMaxRepeat);
    }
    out = value;
    return at_ > begin;
  }

  Result<int> atom(int depth) {
    const char32_t c = pattern_[at_++];
    switch (c) {
      case '(':
        return group(depth);
      case '[':
        return character_class();
      case '.':
        return flags_.dot_all ? set({}, true) : set(RegexRanges::of('\n'), true);
      case '^':
        return one({.kind = flags_.lines ? Instruction::kBeginLine : Instruction::kBegin});
      case '$':
        return one({.kind = flags_.lines ? Instruction::kEndLine : Instruction::kEnd});
      case '*':
      case '+':
      case '?':
        return error("no argument for repetition operator");
      case '\\': {
        if (!more()) return error("trailing \\");
        if (take('A')) return one({.kind = Instruction::kBegin});
        if (take('z')) return one({.kind = Instruction::kEnd});
        if (take('b')) return one({.kind = Instruction::kBoundary});
        if (take('B')) return one({.kind = Instruction::kNoBoundary});
        RegexRanges ranges;
        MR_TRY(escaped(ranges));
        return set(std::move(ranges), false);
      }
      default:
        return set(RegexRanges::of(c), false);
    }
  }

  // What stands after an opening parenthesis: a group, one that is not noted, or flags.
  Result<int> group(int depth) {
    int number = 0;
    const Flags outer = flags_;
    if (!take('?')) {
      number = ++groups_;
    } else if (take('P')) {
      if (!take('<')) return error("invalid named capture group");
      const size_t begin = at_;
      while (more() && pattern_[at_] < 0x80 &&
             (std::isalnum(static_cast<int>(pattern_[at_])) != 0 || pattern_[at_] == '_')) {
        ++at_;
      }
      if (at_ == begin || !take('>')) return error("invalid named capture group");
      number = ++groups_;
    } else {
      MR_TRY(read_flags());
      if (take(')')) return node({});  // for the rest of the group around
      if (!take(':')) return error("missing )");
    }
    MR_TRY_ASSIGN(const int inner, alternatives(depth + 1));
    flags_ = outer;
    if (!take(')')) return error("missing )");
    return number == 0 ? inner : node({.kind = Node::kGroup, .parts = {inner}, .group = number});
  }
  Status read_flags() {
    bool value = true;
    for (; more() && pattern_[at_] != ')' && pattern_[at_] != ':'; ++at_) {
      switch (pattern_[at_]) {
        case '-':
          if (!value) return error("invalid or unsupported Perl syntax");
          value = false;
          break;
        case 'i':
          flags_.fold = value;
          break;
        case 'm':
          flags_.lines = value;
          break;
        case 's':
          flags_.dot_all = value;
          break;
        case 'U':
          flags_.swap_lazy = value;
          break;
        default:
          return error("invalid or unsupported Perl syntax");
      }
    }
    return ok_status();
  }

  // What stands after a backslash: a class with its letter, or a character.
  Status escaped(RegexRanges& out) {
    const char32_t c = pattern_[at_++];
    if (out.add_letter_class(c)) return ok_status();
    if (c == 'x') return hexadecimal(out);
    if (c < 0x80 && std::isalnum(static_cast<int>(c)) != 0) return error("invalid escape sequence");
    out.add(c, c);
    return ok_status();
  }
  Status hexadecimal(RegexRanges& out) {
    const bool braces = take('{');
    char32_t value = 0;
    size_t digits = 0;
    while (more() && digits < (braces ? 6 : 2) && pattern_[at_] < 0x80 &&
           std::isxdigit(static_cast<int>(pattern_[at_])) != 0) {
      const auto digit = static_cast<char32_t>(std::tolower(static_cast<int>(pattern_[at_++])));
      value = value * 16 + (digit <= '9' ? digit - '0' : digit - 'a' + 10);
      ++digits;
    }
    if (braces ? digits == 0 || !take('}') : digits != 2) return error("invalid escape sequence");
    out.add(value, value);
    return ok_status();
  }

  Result<int> character_class() {
    RegexRanges ranges;
    const bool negated = take('^');
    for (bool first = true; first || !more() || pattern_[at_] != ']'; first = false) {
      if (!more()) return error("missing ]");
      if (pattern_[at_] == '[' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] == ':') {
        MR_TRY(named_class(ranges));
        continue;
      }
      MR_TRY_ASSIGN(const RegexRanges low, class_part());
      if (!low.single() || at_ + 1 >= pattern_.size() || pattern_[at_] != '-' ||
          pattern_[at_ + 1] == ']') {
        ranges.add(low);
        continue;
      }
      ++at_;
      MR_TRY_ASSIGN(const RegexRanges high, class_part());
      if (!high.single() || high.first() < low.first()) {
        return error("invalid character class range");
      }
      ranges.add(low.first(), high.first());
    }
    ++at_;
    return set(std::move(ranges), negated);
  }
  Result<RegexRanges> class_part() {
    RegexRanges out;
    const char32_t c = pattern_[at_++];
    if (c != '\\') {
      out.add(c, c);
    } else if (more()) {
      MR_TRY(escaped(out));
    } else {
      return error("missing ]");
    }
    return out;
  }
  // [:alpha:] or [:^alpha:], within a class.
  Status named_class(RegexRanges& out) {
    at_ += 2;
    const bool negated = take('^');
    std::string name;
    while (more() && pattern_[at_] >= 'a' && pattern_[at_] <= 'z') {
      name += static_cast<char>(pattern_[at_++]);
    }
    RegexRanges ranges;
    if (!take(':') || !take(']') || !ranges.add_named_class(name)) {
      return error("invalid character class range");
    }
    if (negated) ranges.negate();
    out.add(ranges);
    return ok_status();
  }

  Result<int> emit(Instruction instruction) {
    if (regex_.program_.size() >= kMaxProgram) {
      return error("pattern too large - compile failed");
    }
    regex_.program_.push_back(std::move(instruction));
    return static_cast<int>(regex_.program_.size()) - 1;
  }

  // The instructions of a node, which go on at `next`; where they begin.
  Result<int> compile(int index, int next) {
    const Node& node = nodes_[static_cast<size_t>(index)];
    switch (node.kind) {
      case Node::kOne: {
        Instruction instruction = node.one;
        instruction.next = next;
        return emit(std::move(instruction));
      }
      case Node::kSequence: {
        MR_TRY_ASSIGN(int out, emit({.kind = Instruction::kSplit, .next = next, .other = next}));
        for (size_t i = node.parts.size(); i-- > 0;) {
          MR_TRY_ASSIGN(out, compile(node.parts[i], out));
        }
        return out;
      }
      case Node::kAlternatives: {
        MR_TRY_ASSIGN(int out, compile(node.parts.back(), next));
        for (size_t i = node.parts.size() - 1; i-- > 0;) {
          MR_TRY_ASSIGN(const int part, compile(node.parts[i], next));
          MR_TRY_ASSIGN(out, emit({.kind = Instruction::kSplit, .next = part, .other = out}));
        }
        return out;
      }
      case Node::kRepeat:
        return compile_repeat(node, next);
      default:
        return compile_group(node.parts[0], node.group, next);
    }
  }
  Result<int> compile_group(int inner, int group, int next) {
    MR_TRY_ASSIGN(const int end,
                  emit({.kind = Instruction::kSave, .next = next, .slot = 2 * group + 1}));
    MR_TRY_ASSIGN(const int body, compile(inner, end));
    return emit({.kind = Instruction::kSave, .next = body, .slot = 2 * group});
  }
  Result<int> compile_repeat(const Node& node, int next) {
    const auto fill = [&](int split, int body) {
      Instruction& choice = regex_.program_[static_cast<size_t>(split)];
      choice.next = node.lazy ? next : body;
      choice.other = node.lazy ? body : next;
    };
    int out = next;
    if (node.most < 0) {
      MR_TRY_ASSIGN(out, emit({.kind = Instruction::kSplit}));
      MR_TRY_ASSIGN(const int body, compile(node.parts[0], out));
      fill(out, body);
    }
    for (int i = node.least; i < node.most; ++i) {
      MR_TRY_ASSIGN(const int body, compile(node.parts[0], out));
      MR_TRY_ASSIGN(out, emit({.kind = Instruction::kSplit}));
      fill(out, body);
    }
    for (int i = 0; i < node.least; ++i) {
      MR_TRY_ASSIGN(out, compile(node.parts[0], out));
    }
    return out;
  }

  const std::string_view source_;
  const std::vector<char32_t> pattern_;
  size_t at_ = 0;
  int groups_ = 0;
  Flags flags_;
  std::vector<Node> nodes_;
  Regex regex_;
};

Result<Regex> Regex::parse(std::string_view pattern) {
  if (pattern.size() > kMaxPattern) {
    return invalid_argument("Invalid pattern: ", pattern.substr(0, 200),
                            "..., error: pattern too large - compile failed");
  }
  return RegexProgram(pattern).run();
}

}  // namespace millrace
