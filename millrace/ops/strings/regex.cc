#include "millrace/ops/strings/regex.h"

#include <limits>
#include <string>

namespace millrace {
namespace {

constexpr size_t kMaxProgram = 20000;
constexpr int kMaxDepth = 100;
constexpr int kMaxRepeat = 1000;

// The characters of a text; a byte that begins none is one by itself.
std::vector<char32_t> characters_of(std::string_view text) {
  std::vector<char32_t> out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    char32_t c = length == 1 ? byte : byte & (0xFFU >> (length + 1));
    bool whole = i + length <= text.size();
    for (size_t k = 1; whole && k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      whole = (next & 0xC0) == 0x80;
      c = (c << 6) | (next & 0x3F);
    }
    out.push_back(whole ? c : byte);
    i += whole ? length : 1;
  }
  return out;
}

}  // namespace

// Turns a pattern into a program by recursive descent. A fragment begins at an instruction and ends
// in instructions whose next is still open.
class RegexParser {
 public:
  explicit RegexParser(std::string_view pattern)
      : source_(pattern), pattern_(characters_of(pattern)) {}

  Result<Regex> run() {
    MR_TRY_ASSIGN(Fragment whole, alternatives(0));
    if (at_ < pattern_.size()) return error("unexpected )");
    MR_TRY_ASSIGN(const int end, emit({.kind = Instruction::kMatch}));
    patch(whole, end);
    regex_.start_ = whole.start;
    return std::move(regex_);
  }

 private:
  using Instruction = Regex::Instruction;
  using Range = Regex::Range;
  struct Fragment {
    int start = 0;
    std::vector<int> open;  // 2 * instruction, + 1 for its `other`
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

  Result<int> emit(Instruction instruction) {
    if (regex_.program_.size() >= kMaxProgram) return error("pattern too large");
    regex_.program_.push_back(std::move(instruction));
    return static_cast<int>(regex_.program_.size()) - 1;
  }
  void patch(const Fragment& fragment, int target) {
    for (int open : fragment.open) {
      Instruction& instruction = regex_.program_[static_cast<size_t>(open / 2)];
      (open % 2 == 0 ? instruction.next : instruction.other) = target;
    }
  }
  Result<Fragment> single(Instruction instruction) {
    MR_TRY_ASSIGN(const int at, emit(std::move(instruction)));
    return Fragment{at, {2 * at}};
  }
  // Goes on anywhere, without a character: a split whose ways are one.
  Result<Fragment> nothing() {
    MR_TRY_ASSIGN(const int at, emit({.kind = Instruction::kSplit}));
    return Fragment{at, {2 * at, 2 * at + 1}};
  }

  Result<Fragment> alternatives(int depth) {
    if (depth > kMaxDepth) return error("nesting too deep");
    MR_TRY_ASSIGN(Fragment out, sequence(depth));
    while (take('|')) {
      MR_TRY_ASSIGN(Fragment other, sequence(depth));
      MR_TRY_ASSIGN(const int split,
                    emit({.kind = Instruction::kSplit, .next = out.start, .other = other.start}));
      out.start = split;
      out.open.insert(out.open.end(), other.open.begin(), other.open.end());
    }
    return out;
  }

  Result<Fragment> sequence(int depth) {
    MR_TRY_ASSIGN(Fragment out, nothing());
    while (more() && pattern_[at_] != '|' && pattern_[at_] != ')') {
      MR_TRY_ASSIGN(Fragment piece, repeated(depth));
      patch(out, piece.start);
      out.open = std::move(piece.open);
    }
    return out;
  }

  // An atom and how often: parsed again for each copy, as the program of a copy is its own.
  Result<Fragment> repeated(int depth) {
    const size_t begin = at_;
    MR_TRY_ASSIGN(Fragment first, atom(depth));
    int least = 1;
    int most = 1;
    if (take('*')) {
      least = 0, most = -1;
    } else if (take('+')) {
      most = -1;
    } else if (take('?')) {
      least = 0;
    } else if (!counts(least, most)) {
      return first;
    }
    if (least > kMaxRepeat || most > kMaxRepeat) return error("bad repetition operator");
    if (most >= 0 && most < least) return error("bad repetition operator");
    take('?');  // lazy or not, the same texts match
    if (more() && (pattern_[at_] == '*' || pattern_[at_] == '+' || pattern_[at_] == '?')) {
      return error("bad repetition operator: **");
    }
    const size_t end = at_;
    MR_TRY_ASSIGN(Fragment out, nothing());
    const auto copy = [&]() -> Result<Fragment> {
      at_ = begin;
      return atom(depth);
    };
    for (int i = 0; i < least; ++i) {
      MR_TRY_ASSIGN(Fragment piece, copy());
      patch(out, piece.start);
      out.open = std::move(piece.open);
    }
    std::vector<int> leave;
    for (int i = least; most < 0 ? i == least : i < most; ++i) {
      MR_TRY_ASSIGN(Fragment piece, copy());
      MR_TRY_ASSIGN(const int split, emit({.kind = Instruction::kSplit, .next = piece.start}));
      patch(out, split);
      leave.push_back(2 * split + 1);
      if (most < 0) {
        patch(piece, split);
        out.open.clear();
      } else {
        out.open = std::move(piece.open);
      }
    }
    out.open.insert(out.open.end(), leave.begin(), leave.end());
    at_ = end;
    return out;
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

  Result<Fragment> atom(int depth) {
    const char32_t c = pattern_[at_++];
    switch (c) {
      case '(': {
        if (take('?') && !(take(':'))) return error("unknown group");
        MR_TRY_ASSIGN(Fragment out, alternatives(depth + 1));
        if (!take(')')) return error("missing )");
        return out;
      }
      case '[':
        return character_class();
      case '.':
        return single({.kind = Instruction::kSet, .negated = true, .set = {{'\n', '\n'}}});
      case '^':
        return single({.kind = Instruction::kBegin});
      case '$':
        return single({.kind = Instruction::kEnd});
      case '*':
      case '+':
      case '?':
        return error("no argument for repetition operator");
      case '\\': {
        if (!more()) return error("trailing \\");
        if (take('A')) return single({.kind = Instruction::kBegin});
        if (take('z')) return single({.kind = Instruction::kEnd});
        Instruction set{.kind = Instruction::kSet};
        MR_TRY(escaped(set.set, set.negated));
        return single(std::move(set));
      }
      default:
        return single({.kind = Instruction::kSet, .set = {{c, c}}});
    }
  }

  // What stands after a backslash: a class with its letter, or a character.
  Status escaped(std::vector<Range>& set, bool& negated) {
    const char32_t c = pattern_[at_++];
    switch (c) {
      case 'D':
      case 'd':
        set.push_back({'0', '9'});
        break;
      case 'W':
      case 'w':
        set.insert(set.end(), {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
        break;
      case 'S':
      case 's':
        set.insert(set.end(), {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}});
        break;
      case 'n':
        set.push_back({'\n', '\n'});
        break;
      case 'r':
        set.push_back({'\r', '\r'});
        break;
      case 't':
        set.push_back({'\t', '\t'});
        break;
      default:
        if (c < 0x80 && std::isalnum(static_cast<int>(c)) != 0) return error("invalid escape");
        set.push_back({c, c});
    }
    negated = c == 'D' || c == 'W' || c == 'S';
    return ok_status();
  }

  Result<Fragment> character_class() {
    Instruction set{.kind = Instruction::kSet};
    set.negated = take('^');
    bool first = true;
    while (first || !more() || pattern_[at_] != ']') {
      if (!more()) return error("missing ]");
      first = false;
      char32_t low = pattern_[at_++];
      if (low == '[' && more() && pattern_[at_] == ':') return error("named classes are not known");
      if (low == '\\') {
        if (!more()) return error("missing ]");
        std::vector<Range> some;
        bool negated = false;
        MR_TRY(escaped(some, negated));
        if (negated) return error("an opposite class within a class");
        set.set.insert(set.set.end(), some.begin(), some.end());
        if (some.size() != 1 || some[0].first != some[0].last) continue;
        low = some[0].first;
      }
      char32_t high = low;
      if (at_ + 1 < pattern_.size() && pattern_[at_] == '-' && pattern_[at_ + 1] != ']') {
        high = pattern_[at_ + 1];
        if (high == '\\') return error("an escape at the end of a range");
        if (high < low) return error("invalid character class range");
        at_ += 2;
      }
      set.set.push_back({low, high});
    }
    ++at_;
    return single(std::move(set));
  }

  const std::string_view source_;
  const std::vector<char32_t> pattern_;
  size_t at_ = 0;
  Regex regex_;
};

Result<Regex> Regex::parse(std::string_view pattern) { return RegexParser(pattern).run(); }

// Adds an instruction and all that it leads to without a character. `marks` has the position at
// which each was added last.
void Regex::add(int at, size_t position, size_t size, std::vector<int>& states,
                std::vector<size_t>& marks) const {
  std::vector<int> todo{at};
  while (!todo.empty()) {
    const int i = todo.back();
    todo.pop_back();
    if (marks[static_cast<size_t>(i)] == position) continue;
    marks[static_cast<size_t>(i)] = position;
    const Instruction& instruction = program_[static_cast<size_t>(i)];
    switch (instruction.kind) {
      case Instruction::kSplit:
        todo.push_back(instruction.next);
        todo.push_back(instruction.other);
        break;
      case Instruction::kBegin:
        if (position == 0) todo.push_back(instruction.next);
        break;
      case Instruction::kEnd:
        if (position == size) todo.push_back(instruction.next);
        break;
      default:
        states.push_back(i);
    }
  }
}

bool Regex::full_match(std::string_view text) const {
  const std::vector<char32_t> characters = characters_of(text);
  std::vector<size_t> marks(program_.size(), std::numeric_limits<size_t>::max());
  std::vector<int> states, next;
  add(start_, 0, characters.size(), states, marks);
  for (size_t i = 0; i < characters.size() && !states.empty(); ++i) {
    next.clear();
    for (int state : states) {
      const Instruction& instruction = program_[static_cast<size_t>(state)];
      if (instruction.kind != Instruction::kSet) continue;
      bool in = false;
      for (const Range& range : instruction.set) {
        in = in || (characters[i] >= range.first && characters[i] <= range.last);
      }
      if (in != instruction.negated) add(instruction.next, i + 1, characters.size(), next, marks);
    }
    states.swap(next);
  }
  for (int state : states) {
    if (program_[static_cast<size_t>(state)].kind == Instruction::kMatch) return true;
  }
  return false;
}

}  // namespace millrace
