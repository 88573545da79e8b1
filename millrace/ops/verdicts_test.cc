// A shape rule sees constants, a kernel sees what is fed: a mistake must be refused on both ways.
// Every op's call that works is made wrong in one place, and what the rule says of it, told all
// that a graph can know, is compared with what the kernel says of it, alone. (That a rule refuses
// nothing the kernel takes, however little it is told, OpTester checks in every run.)

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "millrace/ops/register_ops.h"
#include "millrace/ops/rule_calls_testing.h"

namespace millrace {
namespace {

// Sizes that no memory holds are refused by the allocator, before anything is written. It asks
// once, when the first tensor is made: before the constants of other tests.
[[gnu::constructor(101)]] void limit_memory() {
  setenv("MILLRACE_CPU_MEMORY_LIMIT", "1000000000", 1);
}

// What kernels say of the elements of their inputs, and of what stands behind a handle. Rules look
// at the elements of shapes, sizes and axes, not at data: indices, ids, labels, numbers to compute
// with.
constexpr const char* kAboutElements[] = {
    " is not in [0",
    "out of range [0",
    "out of bounds: need",
    "outside the valid range",
    "does not index into",
    "is repeated",
    "is out of order",
    "must be in order",
    "appears twice in the permutation",
    "of the permutation is",
    "must be < num_segments",
    "segment ids",
    "egment id ",
    "seq_lens(",
    "arr must be non-negative",
    "argmax must be in",
    "index must be in [0",
    "index of slice",
    "bounding boxes must be",
    "lengths must",
    "expected indices in",
    "Could not parse",
    "Invalid character found",
    "is not a multiple of",
    "could not correctly convert",
    "fields but have",
    "Error while parsing JSON",
    "Could not parse example",
    " out of range for string",
    "was not successful",
    "is not invertible",
    "no zero on its diagonal",
    "elements to join must have",
    "more bytes than 63 bits",
    "more elements than 63 bits",
    "expected no negative index",
    "indices must not be negative",
    "which is negative",
    "but params is empty",
    "that of the list's elements",
    "expected a list with",
    "the list can have",
    "index is out of bound",
    "component ID is out of range",
    "component 0 is",
    "would be given numbers that are not finite",
    "TensorArray TensorArray",
    "Unknown image file format",
    "Invalid JPEG data",
    "sample_rate must be",
    "must be ordered by its first dimension",
    "must have shape",
    "dense_shape must not be negative",
    "Key index for line number",
    "is not a valid int64",
    "Invalid vocab_size",
    "Invalid number of columns",
    "Incompatible shapes at component",
    "Invalid pattern:",
    "Splits must",
    "and variants of shape",
    "in input_splits must",
    "The last value of input_splits",
    "Code point is out of range",
    "Invalid formatting on input",
    "Index value along the first dimension",
    "eigenvalues of the matrix were not found",
    "Unsupported algorithm id",
};

// Mistakes that TensorFlow reports when the op runs, though it could have seen them before;
// programs catch them there, as another kind of error.
constexpr const char* kLateAsInTensorFlow[] = {
    "segment_ids should be the same size",
    "Expected scan axis in the range",
    "axis must be a scalar",
    "is empty in shape",
    "num_classes should be positive",
    "batch_dim == seq_dim",
    "sparse_values has incorrect shape",
    "default_value should be a scalar",
    "do not fit 'output_shape'",
    "should be a vector, got shape",
    "Concat dim is out of range",
    "should contain",
    "All dimensions except",
    "the sum does not fit in int32",
    "Mismatched group shapes",
    "Fill string must be one",
    "width and precision must be",
    "Key must have 2 elements",
    "only utf-8",
    "container must begin with",
    "You must feed a value",
    "Rank of input SparseTensor should be > 1",
    "must be greater than",
    "must be at most",
    "`byte_offsets` must",
    "are of no sparse tensor",
    "Default value must be a vector",
    "step must be a non-zero integer",
    "has more elements than 2^63-1",
    "must have one shape with elements",
    "value_shape must be known",
    "Number of buckets must be",
    "max_load_factor must be",
    "Input shapes must match",
    "broadcasts dense to sparse only",
};

bool says_one_of(const Status& status, std::span<const char* const> texts) {
  return std::any_of(texts.begin(), texts.end(), [&](const char* text) {
    return status.message().find(text) != std::string_view::npos;
  });
}

// Whether the kernel found a mistake that a rule could find. Other codes tell of state, of the end
// of data, and of memory.
bool should_be_known_before(const Status& kernel) {
  if (kernel.code() != Code::kInvalidArgument && kernel.code() != Code::kUnimplemented)
    return false;
  return !says_one_of(kernel, kAboutElements) && !says_one_of(kernel, kLateAsInTensorFlow);
}

std::vector<double> extremes_of(DType dtype) {
  if (dtype == DType::kInt32) return {0, -1, -2, 1, 255, 0x1p31 - 1, -0x1p31};
  if (dtype == DType::kInt64) {
    return {0, -1, -2, 1, 255, 0x1p31 - 1, 0x1p31, 0x1p62, 0x1p63 - 1024, -0x1p63};
  }
  return {};
}

// The elements that were good stay, the last one is repeated.
Operand reshaped(const Operand& operand, const std::vector<int64_t>& sizes) {
  Operand out = operand;
  out.shape = Shape::make(sizes).value();
  if (!out.values.empty()) {
    out.values.resize(static_cast<size_t>(out.shape.num_elements()), operand.values.back());
  }
  return out;
}

// Of other rank, with one size changed, and without elements beside a huge size.
std::vector<Operand> other_shapes(const Operand& operand) {
  const std::vector<int64_t> usual(operand.shape.dims().begin(), operand.shape.dims().end());
  std::vector<int64_t> longer = usual;
  longer.insert(longer.begin(), 1);
  std::vector<Operand> all = {reshaped(operand, {}), reshaped(operand, {0}),
                              reshaped(operand, longer)};
  for (size_t d = 0; d < usual.size(); ++d) {
    for (int64_t size : {int64_t{0}, usual[d] - 1, usual[d] + 1}) {
      std::vector<int64_t> sizes = usual;
      sizes[d] = std::max<int64_t>(size, 0);
      all.push_back(reshaped(operand, sizes));
    }
    for (size_t zero = 0; zero < usual.size(); ++zero) {
      if (zero == d) continue;
      std::vector<int64_t> sizes(usual.size(), 1);
      sizes[d] = int64_t{1} << 62;
      sizes[zero] = 0;
      all.push_back(reshaped(operand, sizes));
    }
  }
  return all;
}

std::vector<Operand> other_elements(const Operand& operand, DType dtype) {
  std::vector<Operand> all;
  for (size_t i = 0; i < operand.values.size(); ++i) {
    for (double extreme : extremes_of(dtype)) {
      all.push_back(operand);
      all.back().values[i] = extreme;
    }
  }
  return all;
}

bool is_state(const Operand& operand) {
  return operand.kind != Operand::Kind::kTensor && operand.kind != Operand::Kind::kVariable;
}

class Verdicts : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_STREQ(getenv("MILLRACE_CPU_MEMORY_LIMIT"), "1000000000");
    ASSERT_TRUE(register_ops().ok());
  }

  // All but what only executors and sessions run, what waits for what never comes, and what prints.
  static std::vector<const OpDef*> ops() {
    std::vector<const OpDef*> ops = OpRegistry::global().list();
    std::erase_if(ops, [](const OpDef* op) {
      const auto is_about = [&](const char* word) {
        return op->name.find(word) != std::string::npos;
      };
      return op->traits.argument || op->traits.result || op->traits.recv ||
             op->traits.functional != FunctionalOp::kNone || is_about("Queue") ||
             is_about("TakeGradient") || is_about("TakeStep") || is_about("BarrierTake") ||
             is_about("Unstage") || is_about("Print");
    });
    return ops;
  }

  // The first disagreement about one argument or attribute is enough.
  void compare(const OpCall& call, const TypeChoice& types, const std::string& changed) {
    running_ = {&call, &types};
    alarm(20);
    RuleCall known = rule_call(call, types);
    const Status rule = infer(known).status();
    const Status kernel = run_call(call, types, Elements::kPositive).status();
    alarm(0);
    running_ = {};
    if (!rule.ok() || !should_be_known_before(kernel)) return;
    if (!found_.insert(call.op->name + changed).second) return;
    ADD_FAILURE() << "changed " << changed
                  << ", the rule takes what the kernel refuses: " << describe(call, types) << "\n  "
                  << kernel.to_string();
  }

  static std::string describe(const OpCall& call, const TypeChoice& types) {
    return str_cat(to_string(call).substr(0, 1000), " ", to_string(types));
  }

 private:
  std::pair<const OpCall*, const TypeChoice*> running_;
  std::set<std::string> found_;
  CrashReport report_{[this] {
    return running_.first == nullptr ? "" : describe(*running_.first, *running_.second);
  }};
};

TEST_F(Verdicts, OnShapesAndElements) {
  for (const OpDef* op : ops()) {
    const OpCall call = valid_call(*op);
    const bool on_state = std::any_of(
        call.arguments.begin(), call.arguments.end(),
        [](const auto& list) { return std::any_of(list.begin(), list.end(), is_state); });
    if (on_state || call.prepare != nullptr) continue;
    const TypeChoice types = representative_types(*op);
    for (size_t i = 0; i < call.arguments.size(); ++i) {
      const ArgDef& arg = op->inputs[i];
      for (size_t k = 0; k < call.arguments[i].size(); ++k) {
        const auto give = [&](const std::vector<Operand>& others, const char* what) {
          for (const Operand& other : others) {
            OpCall changed = call;
            changed.arguments[i][k] = other;
            compare(changed, types, str_cat(what, " of ", arg.name));
          }
        };
        const Operand& operand = call.arguments[i][k];
        give(other_shapes(operand), "shape");
        if (operand.kind == Operand::Kind::kTensor) {
          give(other_elements(operand, operand_type(arg, types)), "elements");
        }
      }
    }
  }
}

TEST_F(Verdicts, OnAttributes) {
  for (const OpDef* op : ops()) {
    const TypeChoice types = representative_types(*op);
    const OpCall call = valid_call(*op);
    const AttrMap attrs = call_attrs(call, types);
    for (const AttrDef& attr : op->attrs) {
      const bool counts_inputs =
          std::any_of(op->inputs.begin(), op->inputs.end(),
                      [&](const ArgDef& arg) { return arg.number_attr == attr.name; });
      if (counts_inputs) continue;
      for (const AttrValue& value : extreme_attrs(attr, attrs.find(attr.name))) {
        OpCall changed = call;
        changed.attrs.set(attr.name, value);
        compare(changed, types, str_cat("attribute ", attr.name));
      }
    }
  }
}

}  // namespace
}  // namespace millrace
