#include "millrace/ops/strings/regex.h"

#include <algorithm>
#include <array>
#include <limits>

#include "millrace/ops/strings/regex_text.h"

namespace millrace {
namespace {

constexpr size_t kNowhere = std::numeric_limits<size_t>::max();
constexpr size_t kMaxSlots = 20;  // \0 to \9, begin and end

bool is_word(char32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

}  // namespace

// The ways that are followed at one position, the preferred ones first.
struct Regex::Threads {
  std::vector<int> at;
  std::vector<size_t> slots;  // of each

  void clear() {
    at.clear();
    slots.clear();
  }
};

// One search in one text; `slots` positions are noted.
struct Regex::Search {
  const Regex& regex;
  const RegexText& text;
  size_t slots;
  std::vector<size_t> marks = std::vector<size_t>(regex.program_.size(), kNowhere);
  struct Step {
    int at;  // an instruction, or -1 to restore a slot
    size_t slot, old;
  };
  std::vector<Step> todo = {};

  bool holds(Instruction::Kind kind, size_t position) const {
    const size_t size = text.size();
    const bool word_before = position > 0 && is_word(text.characters[position - 1]);
    const bool word_after = position < size && is_word(text.characters[position]);
    switch (kind) {
      case Instruction::kBegin:
        return position == 0;
      case Instruction::kEnd:
        return position == size;
      case Instruction::kBeginLine:
        return position == 0 || text.characters[position - 1] == '\n';
      case Instruction::kEndLine:
        return position == size || text.characters[position] == '\n';
      case Instruction::kBoundary:
        return word_before != word_after;
      default:
        return word_before == word_after;
    }
  }

  // Adds an instruction and all that it leads to without a character. `marks` has the position at
  // which each was added last.
  void add(int first, size_t position, std::span<size_t> noted, Threads& threads) {
    todo.push_back({first, 0, 0});
    while (!todo.empty()) {
      const Step step = todo.back();
      todo.pop_back();
      if (step.at < 0) {
        noted[step.slot] = step.old;
        continue;
      }
      const auto i = static_cast<size_t>(step.at);
      if (marks[i] == position) continue;
      marks[i] = position;
      const Instruction& instruction = regex.program_[i];
      switch (instruction.kind) {
        case Instruction::kSplit:
          todo.push_back({instruction.other, 0, 0});
          todo.push_back({instruction.next, 0, 0});
          break;
        case Instruction::kSave: {
          const auto slot = static_cast<size_t>(instruction.slot);
          if (slot < noted.size()) {
            todo.push_back({-1, slot, noted[slot]});
            noted[slot] = position;
          }
          todo.push_back({instruction.next, 0, 0});
          break;
        }
        case Instruction::kSet:
        case Instruction::kMatch:
          threads.at.push_back(step.at);
          threads.slots.insert(threads.slots.end(), noted.begin(), noted.end());
          break;
        default:
          if (holds(instruction.kind, position)) todo.push_back({instruction.next, 0, 0});
      }
    }
  }

  static bool contains(const std::vector<Range>& set, char32_t c) {
    const auto after = std::upper_bound(
        set.begin(), set.end(), c, [](char32_t x, const Range& range) { return x < range.first; });
    return after != set.begin() && c <= std::prev(after)->last;
  }

  // The leftmost match from `from` on, of the ways to match there the preferred; with `whole`, one
  // from `from` to the end of the text. Whether there is one, and its slots.
  bool run(size_t from, bool whole, std::span<size_t> found) {
    Threads now, next;
    std::array<size_t, kMaxSlots> blank{};
    std::fill(marks.begin(), marks.end(), kNowhere);
    bool matched = false;
    for (size_t position = from;; ++position) {
      if (!matched && (!whole || position == from)) {
        blank.fill(kNowhere);
        add(regex.start_, position, std::span(blank).first(slots), now);
      }
      for (size_t i = 0; i < now.at.size(); ++i) {
        const Instruction& instruction = regex.program_[static_cast<size_t>(now.at[i])];
        const std::span<size_t> noted = std::span(now.slots).subspan(i * slots, slots);
        if (instruction.kind == Instruction::kMatch) {
          if (whole && position != text.size()) continue;
          std::copy(noted.begin(), noted.end(), found.begin());
          matched = true;
          break;
        }
        if (position < text.size() && contains(instruction.set, text.characters[position])) {
          add(instruction.next, position + 1, noted, next);
        }
      }
      if (position >= text.size() || (next.at.empty() && (matched || whole))) return matched;
      std::swap(now, next);
      next.clear();
    }
  }
};

bool Regex::full_match(std::string_view text) const {
  const RegexText characters(text);
  return Search{*this, characters, 0}.run(0, true, {});
}

Result<std::string> Regex::replace(std::string_view text, std::string_view rewrite,
                                   bool all) const {
  const auto none = [](int group, int groups) { return group < 0 || group > groups; };
  int most = 0;
  for (size_t i = 0; i < rewrite.size(); ++i) {
    if (rewrite[i] != '\\') continue;
    const char c = ++i < rewrite.size() ? rewrite[i] : ' ';
    if (c == '\\') continue;
    if (none(c - '0', std::min(groups_, 9))) return std::string(text);
    most = std::max(most, c - '0');
  }
  const RegexText characters(text);
  Search search{*this, characters, 2 * static_cast<size_t>(most + 1)};
  std::array<size_t, kMaxSlots> found{};
  std::string out;
  const auto copy = [&](size_t begin, size_t end) {
    out +=
        text.substr(characters.offsets[begin], characters.offsets[end] - characters.offsets[begin]);
  };
  size_t at = 0;
  size_t last_end = kNowhere;
  while (at <= characters.size() && search.run(at, false, found)) {
    copy(at, found[0]);
    at = found[1];
    if (found[0] == found[1] && found[0] == last_end) {  // no empty match right after a match
      if (at < characters.size()) copy(at, at + 1);
      ++at;
      continue;
    }
    for (size_t i = 0; i < rewrite.size(); ++i) {
      if (rewrite[i] != '\\') {
        out += rewrite[i];
      } else if (rewrite[++i] == '\\') {
        out += '\\';
      } else {
        const auto group = 2 * static_cast<size_t>(rewrite[i] - '0');
        if (found[group] != kNowhere) copy(found[group], found[group + 1]);
      }
    }
    if (out.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
      return resource_exhausted("the text with its matches replaced is longer than two gigabytes");
    }
    last_end = at;
    if (!all) break;
  }
  if (at < characters.size()) copy(at, characters.size());
  return out;
}

}  // namespace millrace
