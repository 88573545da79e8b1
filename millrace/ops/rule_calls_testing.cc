#include "millrace/ops/rule_calls_testing.h"

#include <cmath>
#include <csignal>
#include <cstdio>

#include "millrace/ops/math/math_testing.h"

namespace millrace {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr size_t kListLengths[] = {0, 1, 255};

std::string to_string(const Known& known) {
  const std::string shape = known.facts.shape.to_string();
  if (known.constant.valid()) {
    return known.constant.num_elements() <= 300 ? known.constant.to_string()
                                                : str_cat("constant", shape);
  }
  if (!known.facts.value) return shape;
  std::string out = shape + "{";
  for (const std::optional<int64_t>& e : known.facts.value->elements) {
    out += e ? str_cat(*e, " ") : "? ";
  }
  return out + "}";
}

// `list` with `extreme` at each place in turn, and at all of them.
template <class T>
void add_changed(std::vector<AttrValue>& all, const std::vector<T>& list, T extreme) {
  for (size_t i = 0; i < list.size(); ++i) {
    std::vector<T> changed = list;
    changed[i] = extreme;
    all.emplace_back(std::move(changed));
  }
  all.emplace_back(std::vector<T>(list.size(), extreme));
}

template <class T>
std::vector<AttrValue> extreme_lists(const AttrValue* usual, const std::vector<T>& extremes) {
  const auto* list = usual == nullptr ? nullptr : usual->get<std::vector<T>>();
  std::vector<AttrValue> all;
  for (T extreme : extremes)
    add_changed(all, list == nullptr ? std::vector<T>(4, 1) : *list, extreme);
  for (size_t length : kListLengths) all.emplace_back(std::vector<T>(length, 1));
  return all;
}

constexpr int kFatal[] = {SIGABRT, SIGSEGV, SIGFPE, SIGALRM};
struct sigaction before[std::size(kFatal)];
const std::function<std::string()>* report = nullptr;

void restore() {
  for (size_t i = 0; i < std::size(kFatal); ++i) sigaction(kFatal[i], &before[i], nullptr);
}

void print_report(int signal) {
  restore();
  std::fprintf(stderr, "ended in %s\n", (*report)().c_str());
  std::raise(signal);
}

}  // namespace

const std::vector<int64_t> kExtremeInts = {0,
                                           -1,
                                           -2,
                                           1,
                                           255,
                                           (int64_t{1} << 31) - 1,
                                           int64_t{1} << 31,
                                           -(int64_t{1} << 31),
                                           int64_t{1} << 62,
                                           kMax - 1,
                                           kMax,
                                           kMin};
const std::vector<float> kExtremeFloats = {0, -1, 0.5F, 1e38F, INFINITY, -INFINITY, NAN};

Known known_constant(Tensor tensor) {
  Known known;
  known.facts.shape = tensor.shape();
  if (kIndexTypes.contains(tensor.dtype()) && tensor.rank() <= 1 &&
      tensor.num_elements() <= kMaxValueElements) {
    PartialValue value{.is_scalar = tensor.rank() == 0};
    for (size_t i = 0; i < static_cast<size_t>(tensor.num_elements()); ++i) {
      value.elements.emplace_back(tensor.dtype() == DType::kInt32 ? tensor.data<int32_t>()[i]
                                                                  : tensor.data<int64_t>()[i]);
    }
    known.facts.value = std::move(value);
  }
  known.constant = std::move(tensor);
  return known;
}

RuleCall rule_call(const OpCall& call, const TypeChoice& types) {
  const OpDef& op = *call.op;
  RuleCall out{.op = &op, .attrs = call_attrs(call, types)};
  for (const AttrDef& attr : op.attrs) {
    if (attr.type == "func") out.attrs.set(attr.name, FunctionAttr{"f", {}});
    if (attr.type == "list(func)") {
      out.attrs.set(attr.name, std::vector<FunctionAttr>{FunctionAttr{"f", {}}});
    }
  }
  uint64_t seed = 1;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const ArgDef& arg = op.inputs[i];
    std::vector<Known>& list = out.arguments.emplace_back();
    for (const Operand& operand : call.arguments[i]) {
      Known& known = list.emplace_back();
      if (operand.kind == Operand::Kind::kTensor) {
        known = known_constant(
            make_operand(operand, operand_type(arg, types), Elements::kPositive, seed));
        if (arg.is_ref) known = {.facts = {.shape = operand.shape}};
      } else if (operand.kind == Operand::Kind::kVariable) {
        known.facts.shape = PartialShape::scalar();
        known.facts.resource = {{content_type(types), operand.shape}};
      } else if (operand.kind == Operand::Kind::kTemporary) {
        known.facts.shape = operand.shape;
      }
      ++seed;
    }
  }
  return out;
}

std::string to_string(const RuleCall& call) {
  std::string out = call.op->name;
  for (const std::vector<Known>& list : call.arguments) {
    out += "\n ";
    for (size_t i = 0; i < std::min<size_t>(list.size(), 20); ++i) out += " " + to_string(list[i]);
  }
  for (const auto& [name, value] : call.attrs) {
    out += str_cat("\n  ", name, "=", value.to_string().substr(0, 500));
  }
  return out;
}

Result<std::vector<TensorFacts>> infer(RuleCall& call) {
  AttrMap attrs = call.attrs;
  MR_TRY(check_attrs(*call.op, attrs));
  MR_TRY_ASSIGN(std::vector<DType> inputs, expand_types(call.op->inputs, attrs));
  MR_TRY_ASSIGN(std::vector<DType> outputs, expand_types(call.op->outputs, attrs));
  std::vector<const TensorFacts*> facts;
  for (std::vector<Known>& list : call.arguments) {
    for (Known& known : list) {
      known.facts.constant = known.constant.valid() ? &known.constant : nullptr;
      facts.push_back(&known.facts);
    }
  }
  if (facts.size() != inputs.size()) {
    return invalid_argument("expected ", inputs.size(), " inputs, got ", facts.size());
  }
  ShapeContext context(*call.op, attrs, std::move(facts), std::move(inputs), std::move(outputs));
  return millrace::infer(context);
}

TypeChoice representative_types(const OpDef& op, DType numbers) {
  TypeChoice best;
  int best_score = -1;
  for (const TypeChoice& types : type_choices(op)) {
    int score = 0;
    for (const auto& [name, dtype] : types) {
      score += dtype == DType::kInt64 ? 3 : dtype == DType::kFloat ? 2 : 0;
      if (name.starts_with('T') && dtype == numbers) score += 4;
    }
    if (score > best_score) best = types;
    best_score = std::max(score, best_score);
  }
  // Ops without kernels have rules as well.
  for (const AttrDef& attr : op.attrs) {
    if (attr.type == "type" || attr.type == "list(type)")
      best.try_emplace(attr.name, DType::kInt64);
  }
  return best;
}

std::vector<AttrValue> extreme_attrs(const AttrDef& attr, const AttrValue* usual) {
  std::vector<AttrValue> all;
  if (attr.type == "int") {
    all.assign(kExtremeInts.begin(), kExtremeInts.end());
    all.emplace_back(1000);
  } else if (attr.type == "float") {
    all.assign(kExtremeFloats.begin(), kExtremeFloats.end());
  } else if (attr.type == "bool") {
    all = {true, false};
  } else if (attr.type == "string") {
    all.assign(attr.allowed_strings.begin(), attr.allowed_strings.end());
    if (all.empty()) all = {"", "no such word"};
  } else if (attr.type == "shape") {
    for (const PartialShape& shape : extreme_shapes(Shape{2, 3})) all.emplace_back(shape);
  } else if (attr.type == "list(shape)") {
    for (const PartialShape& shape : extreme_shapes(Shape{2, 3})) {
      all.emplace_back(std::vector<PartialShape>{shape});
    }
    for (size_t length : kListLengths) all.emplace_back(std::vector<PartialShape>(length));
  } else if (attr.type == "list(int)") {
    all = extreme_lists(usual, kExtremeInts);
  } else if (attr.type == "list(float)") {
    all = extreme_lists(usual, kExtremeFloats);
  }
  return all;
}

AttrValue long_attr(const AttrDef& attr) {
  constexpr size_t kMillion = 1'000'000;
  if (attr.type == "list(int)") return Ints(kMillion, 1);
  if (attr.type == "list(float)") return std::vector<float>(kMillion, 1);
  if (attr.type == "list(shape)") {
    return std::vector<PartialShape>(kMillion * sizeof(int64_t) / sizeof(PartialShape));
  }
  return {};
}

std::vector<PartialShape> extreme_shapes(const Shape& usual) {
  std::vector<PartialShape> shapes = {
      PartialShape(), PartialShape::scalar(), PartialShape::of_rank(1),
      PartialShape::of_rank(Shape::kMaxRank), PartialShape::of_rank(usual.rank())};
  const auto rank = static_cast<size_t>(usual.rank());
  auto add = [&](const Ints& dims) {
    Result<PartialShape> shape = PartialShape::make(dims);
    if (shape.ok()) shapes.push_back(*shape);
  };
  for (int64_t size : {int64_t{0}, int64_t{1} << 31, int64_t{1} << 62, kMax}) {
    add({size});
    add({size, -1});
    add({0, size});
    add(Ints(rank, size));
    for (size_t d = 0; d < rank; ++d) {
      Ints dims(usual.dims().begin(), usual.dims().end());
      dims[d] = size;
      add(dims);
      // Beside a zero any size can stand.
      for (size_t zero = 0; zero < rank; ++zero) {
        Ints empty(rank, 1);
        empty[d] = size;
        empty[zero] = 0;
        add(empty);
      }
    }
  }
  for (size_t d = 0; d < rank; ++d) {
    Ints dims(usual.dims().begin(), usual.dims().end());
    dims[d] = PartialShape::kUnknownDim;
    add(dims);
  }
  Ints dims(usual.dims().begin(), usual.dims().end());
  dims.push_back(3);
  add(dims);
  dims.resize(rank < 2 ? 0 : rank - 1);
  add(dims);
  add(Ints(Shape::kMaxRank, 1));
  return shapes;
}

CrashReport::CrashReport(std::function<std::string()> describe) {
  report = new std::function<std::string()>(std::move(describe));
  struct sigaction action = {};
  action.sa_handler = print_report;
  for (size_t i = 0; i < std::size(kFatal); ++i) sigaction(kFatal[i], &action, &before[i]);
}

CrashReport::~CrashReport() {
  restore();
  delete report;
}

}  // namespace millrace
