// One op: the call that the tests know, with other tensors, list lengths and attributes where the
// input says so. The kernel runs without the shape rule before it, and the shape rule without the
// kernel. Errors are fine; results agree with what the shape rule says.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "millrace/base/check.h"
#include "millrace/base/hash.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/graph/internal_op.h"
#include "millrace/ops/op_calls_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/choices_testing.h"

namespace millrace {
namespace {

struct Callable {
  OpCall call;
  std::vector<TypeChoice> types;
};

// By a hash of the name, so that an input means the same op when others are added.
const std::map<uint16_t, Callable>& callables() {
  static const auto* const made = [] {
    auto* out = new std::map<uint16_t, Callable>;
    for (const OpDef* op : OpRegistry::global().list()) {
      if (is_internal_op(OpRegistry::global(), op->name)) continue;
      Callable callable = {valid_call(*op), type_choices(*op)};
      if (callable.types.empty()) continue;
      uint16_t key = static_cast<uint16_t>(hash_bytes(std::string_view(op->name)));
      while (out->contains(key)) ++key;
      out->emplace(key, std::move(callable));
    }
    return out;
  }();
  return *made;
}

// `value` as the type can hold it.
double fit(double value, DType dtype) {
  if (!kIntegers.contains(dtype)) return value;
  if (std::isnan(value)) return 0;
  const double bits = static_cast<double>(dtype_size(dtype)) * 8;
  const double top = kUnsignedIntegers.contains(dtype) ? std::exp2(bits) : std::exp2(bits - 1);
  const double bottom = kUnsignedIntegers.contains(dtype) ? 0 : -top;
  return std::trunc(std::clamp(value, bottom, std::min(top - 1, top * 0.99)));
}

class Variation {
 public:
  explicit Variation(std::string_view bytes) : choices_(bytes) {
    uint16_t key = static_cast<uint16_t>(choices_.byte() << 8);
    key = static_cast<uint16_t>(key | choices_.byte());
    auto it = callables().lower_bound(key);
    if (it == callables().end()) it = callables().begin();
    call_ = it->second.call;
    types_ = choices_.of(it->second.types);
    vary_arguments();
    vary_attrs();
  }

  void run() {
    (void)run_call(call_, types_, Elements::kSigned);
    add_to_graph(/*known=*/true);
    add_to_graph(/*known=*/false);
  }

 private:
  void vary_arguments() {
    for (size_t i = 0; i < call_.arguments.size(); ++i) {
      const ArgDef& arg = call_.op->inputs[i];
      std::vector<Operand>& operands = call_.arguments[i];
      if (arg.is_list() && choices_.one_in(4) && !operands.empty()) {
        operands.resize(choices_.below(5), operands[0]);
      }
      for (Operand& operand : operands) {
        if (choices_.byte() % 2 == 0) continue;
        vary(operand, operand_type(arg, types_));
      }
    }
  }

  void vary(Operand& operand, DType dtype) {
    if (choices_.one_in(2)) operand.shape = choices_.shape();
    operand.values.clear();
    if (!choices_.one_in(3) || !(kFloating | kComplex | kIntegers).contains(dtype)) return;
    operand.values.resize(static_cast<size_t>(operand.shape.num_elements()));
    for (double& value : operand.values) {
      value = fit(choices_.one_in(2) ? choices_.number() : static_cast<double>(choices_.integer()),
                  dtype);
    }
  }

  void vary_attrs() {
    for (const AttrDef& def : call_.op->attrs) {
      if (choices_.byte() % 4 != 1) continue;
      if (def.type == "int") call_.attrs.set(def.name, choices_.integer());
      if (def.type == "float") call_.attrs.set(def.name, static_cast<float>(choices_.number()));
      if (def.type == "bool") call_.attrs.set(def.name, choices_.one_in(2));
      if (def.type == "string" && !def.allowed_strings.empty()) {
        call_.attrs.set(def.name, choices_.of(def.allowed_strings));
      } else if (def.type == "string") {
        call_.attrs.set(def.name, choices_.text());
      }
      if (def.type == "shape") call_.attrs.set(def.name, choices_.shape());
      if (def.type == "list(int)") {
        std::vector<int64_t> ints(choices_.below(7));
        for (int64_t& v : ints) v = choices_.integer();
        call_.attrs.set(def.name, std::move(ints));
      }
      if (def.type == "list(float)") {
        std::vector<float> floats(choices_.below(5));
        for (float& v : floats) v = static_cast<float>(choices_.number());
        call_.attrs.set(def.name, std::move(floats));
      }
      if (def.type == "list(shape)") {
        std::vector<PartialShape> shapes(choices_.below(4));
        for (PartialShape& v : shapes) v = PartialShape(choices_.shape());
        call_.attrs.set(def.name, std::move(shapes));
      }
    }
  }

  // Runs the shape rule with the inputs as constants, or with nothing known of them. Only for calls
  // whose inputs are plain tensors; the others need what makes handles.
  void add_to_graph(bool known) {
    Ref<Graph> graph = make_ref<Graph>();
    GraphBuilder builder(*graph);
    std::vector<Output> inputs;
    uint64_t seed = 1;
    for (size_t i = 0; i < call_.arguments.size(); ++i) {
      const ArgDef& arg = call_.op->inputs[i];
      if (arg.is_ref) return;
      for (const Operand& operand : call_.arguments[i]) {
        if (operand.kind != Operand::Kind::kTensor) return;
        DType dtype = operand_type(arg, types_);
        AttrMap attrs = {{"dtype", dtype}};
        if (known) attrs.set("value", make_operand(operand, dtype, Elements::kSigned, seed));
        Result<NodeId> id =
            builder.add(known ? "Const" : "Placeholder", str_cat("input", seed++), {}, attrs);
        if (!id.ok()) return;
        inputs.push_back({*id, 0});
      }
    }
    (void)builder.add(call_.op->name, "node", inputs, call_attrs(call_, types_));
  }

  Choices choices_;
  OpCall call_;
  TypeChoice types_;
};

}  // namespace
}  // namespace millrace

extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=1024:allocator_may_return_null=1";
}

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  setenv("MILLRACE_CPU_MEMORY_LIMIT", "268435456", 1);
  setenv("MILLRACE_TEST_DEADLINE_MS", "200", 1);
  MR_CHECK_OK(millrace::register_ops());
  // A failed expectation of the op tester ends the process.
  testing::GTEST_FLAG(throw_on_failure) = true;
  testing::InitGoogleTest(argc, *argv);
  // Here, because it takes longer than an input may.
  MR_CHECK(!millrace::callables().empty());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::Variation({reinterpret_cast<const char*>(data), size}).run();
  return 0;
}
