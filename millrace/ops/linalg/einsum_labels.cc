#include "millrace/ops/linalg/einsum_labels.h"

#include <algorithm>
#include <cctype>
#include <map>

namespace millrace {
namespace {

constexpr std::string_view kEllipsis = "...";

// The labels of one side. `wide`: how many dimensions "..." stands for.
Result<EinsumLabels> labels_of(std::string_view side, int wide) {
  EinsumLabels out;
  for (size_t i = 0; i < side.size();) {
    if (side.substr(i).starts_with(kEllipsis)) {
      for (int k = wide; k-- > 0;) out.push_back(kWideLabel + k);
      i += kEllipsis.size();
    } else if (std::isalpha(static_cast<unsigned char>(side[i])) != 0) {
      out.push_back(side[i++]);
    } else {
      return invalid_argument("expected letters and one ... in \"", side.substr(0, 100), "\"");
    }
  }
  return out;
}

int count_letters(std::string_view side) {
  return static_cast<int>(std::count_if(side.begin(), side.end(), [](char c) { return c != '.'; }));
}

bool has(const EinsumLabels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

}  // namespace

Result<std::vector<std::string>> einsum_sides(std::string_view equation, int inputs) {
  const size_t arrow = equation.find("->");
  if (arrow == std::string_view::npos || equation.find("->", arrow + 2) != std::string_view::npos) {
    return invalid_argument("Expecting exactly one '->' in einsum equation: ",
                            equation.substr(0, 200));
  }
  std::vector<std::string> sides{""};
  for (char c : equation.substr(0, arrow)) {
    if (c == ',') {
      sides.emplace_back();
    } else if (c != ' ') {
      sides.back() += c;
    }
  }
  sides.emplace_back();
  for (char c : equation.substr(arrow + 2)) {
    if (c != ' ') sides.back() += c;
  }
  if (static_cast<int64_t>(sides.size()) - 1 != inputs || inputs > 2) {
    return invalid_argument(
        "Expecting 1 or 2 input subscripts in equation '", equation.substr(0, 200),
        "', one for each input, but got: ", sides.size() - 1, " for ", inputs, " inputs");
  }
  for (const std::string& side : sides) {
    const size_t first = side.find(kEllipsis);
    if (first != std::string::npos && side.find('.', first + kEllipsis.size()) != std::string::npos)
      return invalid_argument("expected at most one ... in \"", side.substr(0, 100), "\"");
  }
  return sides;
}

Result<EinsumEquation> EinsumEquation::parse(std::string_view equation,
                                             std::span<const int> ranks) {
  MR_TRY_ASSIGN(const std::vector<std::string> sides,
                einsum_sides(equation, static_cast<int>(ranks.size())));
  EinsumEquation out;
  int widest = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const bool wide = sides[i].find(kEllipsis) != std::string::npos;
    const int extra = ranks[i] - count_letters(sides[i]);
    if (extra < 0 || (extra > 0 && !wide)) {
      return invalid_argument("input ", i, " has rank ", ranks[i], ", but the equation '",
                              equation.substr(0, 200), "' names ", count_letters(sides[i]),
                              " dimensions of it");
    }
    widest = std::max(widest, extra);
    MR_TRY_ASSIGN(EinsumLabels labels, labels_of(sides[i], extra));
    out.inputs.push_back(std::move(labels));
  }
  MR_TRY_ASSIGN(out.output, labels_of(sides.back(), widest));
  for (const int label : out.output) {
    const bool known = std::any_of(out.inputs.begin(), out.inputs.end(),
                                   [&](const EinsumLabels& in) { return has(in, label); });
    if (!known) {
      return invalid_argument("in '", equation.substr(0, 200),
                              "' each label of the output must be in an input");
    }
  }
  return out;
}

Result<std::vector<int64_t>> einsum_sizes(const EinsumEquation& equation,
                                          const std::vector<std::vector<int64_t>>& dims,
                                          const EinsumLabels& labels) {
  std::map<int, int64_t> sizes;
  for (size_t i = 0; i < equation.inputs.size(); ++i) {
    for (size_t d = 0; d < equation.inputs[i].size(); ++d) {
      const int label = equation.inputs[i][d];
      const int64_t size = dims[i][d];
      auto [known, added] = sizes.emplace(label, size);
      if (added || known->second == size) continue;
      const bool wide = label >= kWideLabel;
      if (known->second < 0 || (wide && known->second == 1)) {
        // An unknown size that meets a 1 stays unknown where it may be broadcast.
        if (!(wide && size == 1)) known->second = wide && size < 0 ? -1 : size;
      } else if (size >= 0 && !(wide && size == 1)) {
        return invalid_argument("Expected dimension ", known->second, " at axis ", d,
                                " of the input ", i, " but got dimension ", size);
      }
    }
  }
  std::vector<int64_t> out;
  for (int label : labels) out.push_back(sizes.at(label));
  return out;
}

}  // namespace millrace
