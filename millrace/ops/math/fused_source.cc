#include "millrace/ops/math/fused_source.h"

#include <vector>

#include "millrace/base/str_cat.h"

namespace millrace {
namespace {

using Access = FusedForm::Access;
static_assert(ElementwiseTree::kMaxStages <= 32, "stages are bits");

const char* element_type(DType type) {
  switch (type) {
    case DType::kHalf:
      return "Half";
    case DType::kBFloat16:
      return "BFloat16";
    case DType::kFloat:
      return "float";
    case DType::kDouble:
      return "double";
    case DType::kBool:
      return "bool";
    case DType::kInt8:
      return "int8_t";
    case DType::kInt16:
      return "int16_t";
    case DType::kInt32:
      return "int32_t";
    case DType::kInt64:
      return "int64_t";
    case DType::kUInt8:
      return "uint8_t";
    case DType::kUInt16:
      return "uint16_t";
    case DType::kUInt32:
      return "uint32_t";
    default:
      return "uint64_t";
  }
}

bool has_16_bits(DType type) { return type == DType::kHalf || type == DType::kBFloat16; }
const char* computed_type(DType type) { return has_16_bits(type) ? "float" : element_type(type); }

class Writer {
 public:
  Writer(const ElementwiseTree& tree, std::span<const DType> inputs, const FusedForm& form)
      : tree_(tree),
        inputs_(inputs),
        form_(form),
        needed_(needed_stages(tree, static_cast<int>(inputs.size()), form.results)) {}

  std::string write(std::string_view name) {
    const std::string start = declarations();
    const std::string read = reads(), body = stages();
    const char* const index = form_.wide ? "int64_t" : "uint32_t";
    return str_cat("struct ", name, "_words {\n  uint64_t w[", words_, "];\n};\n",
                   "extern \"C\" __global__ void __launch_bounds__(256) ", name, "(const ", name,
                   "_words a) {\n  using Index = ", index,
                   ";\n  constexpr int kPack = ", int{form_.pack}, ";\n", start,
                   "  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;\n"
                   "  for (Index p = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; "
                   "p < n; p += step) {\n    const Index i = p * kPack;\n",
                   read, body, "  }\n}\n");
  }

 private:
  DType type_of(int value) const {
    const size_t v = static_cast<size_t>(value);
    return v < inputs_.size() ? inputs_[v] : tree_.stages[v - inputs_.size()].type;
  }
  std::string word() { return str_cat("a.w[", words_++, "]"); }
  bool is_result(size_t output) const { return (form_.results >> output & 1) != 0; }
  template <class F>
  void for_each_input(Access access, F f) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (form_.access[i] == access) f(i);
    }
  }

  // What is the same for all elements.
  std::string declarations() {
    std::string out;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (form_.access[i] == Access::kUnused) continue;
      const char* const type = element_type(inputs_[i]);
      out += str_cat("  const ", type, "* const x", i, " = reinterpret_cast<const ", type, "*>(",
                     word(), ");\n");
    }
    for (size_t r = 0; r < tree_.results.size(); ++r) {
      if (!is_result(r)) continue;
      const DType dtype = tree_.stages[static_cast<size_t>(tree_.results[r])].type;
      const char* const type = element_type(dtype);
      out +=
          str_cat("  ", type, "* const y", r, " = reinterpret_cast<", type, "*>(", word(), ");\n");
    }
    out += str_cat("  const Index n = static_cast<Index>(", word(), ");\n");
    const auto count = [&](size_t i) {
      out += str_cat("  const Index m", i, " = static_cast<Index>(", word(), ");\n");
    };
    for_each_input(Access::kRow, count);
    for_each_input(Access::kColumn, count);
    for (int d = 0; d < form_.rank; ++d) {
      out += str_cat("  const Index size", d, " = static_cast<Index>(", word(), ");\n");
    }
    for_each_input(Access::kStrided, [&](size_t i) {
      for (int d = 0; d < form_.rank; ++d) {
        out += str_cat("  const Index stride", i, "_", d, " = static_cast<Index>(", word(), ");\n");
      }
    });
    for_each_input(Access::kSingle, [&](size_t i) {
      out += str_cat("  const auto v", i, " = widen(*x", i, ");\n");
    });
    return out;
  }

  std::string reads() const {
    std::string out;
    for_each_input(Access::kDense, [&](size_t i) {
      out += str_cat("    const auto p", i, " = load<kPack>(x", i, ", i);\n");
    });
    for_each_input(Access::kRow, [&](size_t i) {
      out += str_cat("    const auto p", i, " = load<kPack>(x", i, ", i % m", i, ");\n");
    });
    for_each_input(Access::kColumn, [&](size_t i) {
      out += str_cat("    const auto v", i, " = widen(x", i, "[i / m", i, "]);\n");
    });
    if (form_.rank > 0) out += strided_reads();
    return out;
  }

  std::string strided_reads() const {
    std::string out = "    Index rest = i;\n";
    for_each_input(Access::kStrided,
                   [&](size_t i) { out += str_cat("    Index at", i, " = 0;\n"); });
    for (int d = 0; d < form_.rank; ++d) {
      out +=
          str_cat("    const Index index", d, " = rest % size", d, ";\n    rest /= size", d, ";\n");
      for_each_input(Access::kStrided, [&](size_t i) {
        out += str_cat("    at", i, " += index", d, " * stride", i, "_", d, ";\n");
      });
    }
    for_each_input(Access::kStrided, [&](size_t i) {
      out += str_cat("    const auto v", i, " = widen(x", i, "[at", i, "]);\n");
    });
    return out;
  }

  std::string stages() const {
    std::string out;
    for (size_t r = 0; r < tree_.results.size(); ++r) {
      if (!is_result(r)) continue;
      const DType type = tree_.stages[static_cast<size_t>(tree_.results[r])].type;
      out += str_cat("    Pack<", element_type(type), ", kPack> r", r, ";\n");
    }
    out += "#pragma unroll\n    for (int k = 0; k < kPack; ++k) {\n";
    const auto element = [&](size_t i) {
      out += str_cat("      const auto v", i, " = widen(p", i, ".at[k]);\n");
    };
    for_each_input(Access::kDense, element);
    for_each_input(Access::kRow, element);
    for (size_t s = 0; s < tree_.stages.size(); ++s) {
      if ((needed_ >> s & 1) == 0) continue;
      const ElementwiseTree::Stage& stage = tree_.stages[s];
      out += str_cat("      const ", computed_type(stage.type), " v", inputs_.size() + s, " = ",
                     expression(stage), ";\n");
    }
    for (size_t r = 0; r < tree_.results.size(); ++r) {
      if (!is_result(r)) continue;
      const size_t s = static_cast<size_t>(tree_.results[r]);
      out += str_cat("      r", r, ".at[k] = narrow<", element_type(tree_.stages[s].type), ">(v",
                     inputs_.size() + s, ");\n");
    }
    out += "    }\n";
    for (size_t r = 0; r < tree_.results.size(); ++r) {
      if (is_result(r)) out += str_cat("    store(y", r, ", i, r", r, ");\n");
    }
    return out;
  }

  std::string expression(const ElementwiseTree::Stage& stage) const {
    const auto operand = [&](size_t k) { return str_cat("v", stage.operands[k]); };
    const auto rounded = [&](std::string text) {
      if (!has_16_bits(stage.type)) return text;
      return str_cat("rounded<", element_type(stage.type), ">(", text, ")");
    };
    if (stage.op == "StopGradient") return operand(0);
    if (stage.op == "Cast") {
      return str_cat("converted<", element_type(stage.type), ">(", operand(0), ")");
    }
    if (stage.op == "Select" || stage.op == "SelectV2") {
      return str_cat(operand(0), " ? ", operand(1), " : ", operand(2));
    }
    if (stage.op == "AddN") {
      // As many at a time as its own kernel takes.
      constexpr size_t kAtOnce = 8;
      std::string sum = operand(0);
      for (size_t k = 1; k < stage.operands.size(); ++k) {
        if (k >= kAtOnce && (k - kAtOnce) % (kAtOnce - 1) == 0) sum = rounded(sum);
        sum = str_cat("Add::eval(", sum, ", ", operand(k), ")");
      }
      return rounded(sum);
    }
    const bool bias = stage.op == "BiasAdd" || stage.op == "BiasAddV1";
    std::string text = str_cat(bias ? "Add" : stage.op, "::eval(", operand(0));
    if (stage.operands.size() > 1) text += str_cat(", ", operand(1));
    return rounded(text + ")");
  }

  const ElementwiseTree& tree_;
  const std::span<const DType> inputs_;
  const FusedForm& form_;
  const uint32_t needed_;
  int words_ = 0;
};

}  // namespace

uint32_t needed_stages(const ElementwiseTree& tree, int num_inputs, uint32_t results) {
  uint32_t needed = 0;
  for (size_t r = 0; r < tree.results.size(); ++r) {
    if ((results >> r & 1) != 0) needed |= uint32_t{1} << tree.results[r];
  }
  for (size_t s = tree.stages.size(); s-- > 0;) {
    if ((needed >> s & 1) == 0) continue;
    for (int o : tree.stages[s].operands) {
      if (o >= num_inputs) needed |= uint32_t{1} << (o - num_inputs);
    }
  }
  return needed;
}

std::string fused_source(const ElementwiseTree& tree, std::span<const DType> input_types,
                         const FusedForm& form, std::string_view name) {
  return Writer(tree, input_types, form).write(name);
}

}  // namespace millrace
