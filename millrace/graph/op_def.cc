#include "millrace/graph/op_def.h"

#include <charconv>
#include <cmath>

namespace millrace {

namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n'; }
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_identifier(std::string_view text) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  for (char c : text) {
    if (!is_word(c)) return false;
  }
  return true;
}

bool is_attr_kind(std::string_view kind) {
  for (std::string_view known :
       {"int", "float", "bool", "string", "type", "shape", "tensor", "func"}) {
    if (kind == known) return true;
  }
  return false;
}

bool is_list_kind(std::string_view type) { return type.starts_with("list("); }

// Reads the notation of attribute and argument types. Spaces may stand between any two tokens.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool done() {
    skip();
    return pos_ == text_.size();
  }
  // Takes `token` if it comes next.
  bool take(std::string_view token) {
    skip();
    if (!text_.substr(pos_).starts_with(token)) return false;
    pos_ += token.size();
    return true;
  }
  // A run of letters, digits and '_'; empty when there is none.
  std::string_view word() {
    skip();
    const size_t begin = pos_;
    while (pos_ < text_.size() && is_word(text_[pos_])) ++pos_;
    return text_.substr(begin, pos_ - begin);
  }
  Status error(std::string_view expected) {
    skip();
    const std::string_view rest = text_.substr(pos_);
    return invalid_argument("expected ", expected, ", found ",
                            rest.empty() ? std::string("the end") : str_cat("'", rest, "'"),
                            " in '", text_, "'");
  }

  Result<int64_t> integer() { return number<int64_t>("an integer"); }
  Result<float> real() { return number<float>("a number"); }
  Result<bool> boolean() {
    const std::string_view w = word();
    if (w == "true") return true;
    if (w == "false") return false;
    return error("true or false");
  }
  Result<DType> dtype() {
    const DType t = dtype_from_name(word());
    if (!is_valid(t) || is_ref(t)) return error("a type");
    return t;
  }
  // In single or double quotes; a backslash takes the next character as it is, \n and \t as in C.
  Result<std::string> string() {
    skip();
    if (pos_ == text_.size() || (text_[pos_] != '\'' && text_[pos_] != '"'))
      return error("a string");
    const char quote = text_[pos_++];
    std::string out;
    for (; pos_ < text_.size() && text_[pos_] != quote; ++pos_) {
      char c = text_[pos_];
      if (c == '\\' && pos_ + 1 < text_.size()) {
        c = text_[++pos_];
        if (c == 'n') c = '\n';
        if (c == 't') c = '\t';
      }
      out += c;
    }
    if (pos_ == text_.size()) return error("a closing quote");
    ++pos_;
    return out;
  }
  Result<PartialShape> shape() {
    if (take("<unknown>") || take("?")) return PartialShape();
    skip();
    const size_t end = text_.find(']', pos_);
    if (end == std::string_view::npos) return error("a shape");
    MR_TRY_ASSIGN(PartialShape shape, PartialShape::parse(text_.substr(pos_, end + 1 - pos_)));
    pos_ = end + 1;
    return shape;
  }
  // item, item, ... up to `close`.
  template <class Item>
  Status sequence(std::string_view close, Item item) {
    if (take(close)) return ok_status();
    do {
      MR_TRY(item());
    } while (take(","));
    return take(close) ? ok_status() : error(close);
  }

 private:
  void skip() {
    while (pos_ < text_.size() && is_space(text_[pos_])) ++pos_;
  }
  template <class T>
  Result<T> number(std::string_view what) {
    skip();
    T value{};
    const char* begin = text_.data() + pos_;
    const auto [end, code] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (code != std::errc()) return error(what);
    pos_ += static_cast<size_t>(end - begin);
    return value;
  }

  std::string_view text_;
  size_t pos_ = 0;
};

template <class T, class Read>
Result<AttrValue> read_list(Scanner& in, Read read) {
  if (!in.take("[")) return in.error("[");
  std::vector<T> items;
  MR_TRY(in.sequence("]", [&]() -> Status {
    MR_TRY_ASSIGN(T item, read());
    items.push_back(std::move(item));
    return ok_status();
  }));
  return AttrValue(std::move(items));
}

template <class T>
Result<AttrValue> as_value(Result<T> value) {
  if (!value.ok()) return value.status();
  return AttrValue(std::move(value).value());
}

Result<AttrValue> read_default(Scanner& in, std::string_view type) {
  if (type == "int") return as_value(in.integer());
  if (type == "float") return as_value(in.real());
  if (type == "bool") return as_value(in.boolean());
  if (type == "string") return as_value(in.string());
  if (type == "type") return as_value(in.dtype());
  if (type == "shape") return as_value(in.shape());
  if (type == "list(int)") return read_list<int64_t>(in, [&] { return in.integer(); });
  if (type == "list(float)") return read_list<float>(in, [&] { return in.real(); });
  if (type == "list(bool)") return read_list<bool>(in, [&] { return in.boolean(); });
  if (type == "list(string)") return read_list<std::string>(in, [&] { return in.string(); });
  if (type == "list(type)") return read_list<DType>(in, [&] { return in.dtype(); });
  if (type == "list(shape)") return read_list<PartialShape>(in, [&] { return in.shape(); });
  if (type == "tensor" && in.take("uint8")) {
    MR_TRY_ASSIGN(const AttrValue bytes, read_list<int64_t>(in, [&] { return in.integer(); }));
    const auto& ints = *bytes.get<std::vector<int64_t>>();
    const std::vector<uint8_t> values(ints.begin(), ints.end());
    return AttrValue(Tensor::vector(std::span<const uint8_t>(values)));
  }
  if (is_list_kind(type) && in.take("[") && in.take("]")) return AttrValue(EmptyList());
  return invalid_argument("a default for ", type, " cannot be written");
}

Status read_allowed(Scanner& in, AttrDef& attr) {
  if (!in.take("{")) return in.error("{");
  if (attr.type == "type" || attr.type == "list(type)") {
    return in.sequence("}", [&]() -> Status {
      MR_TRY_ASSIGN(DType t, in.dtype());
      attr.allowed_types = attr.allowed_types | TypeSet{t};
      return ok_status();
    });
  }
  if (attr.type == "string" || attr.type == "list(string)") {
    return in.sequence("}", [&]() -> Status {
      MR_TRY_ASSIGN(std::string s, in.string());
      attr.allowed_strings.push_back(std::move(s));
      return ok_status();
    });
  }
  return invalid_argument("a ", attr.type, " cannot have a list of allowed values");
}

Result<AttrDef> parse_attr(const OpSpec::Attr& spec) {
  AttrDef attr;
  attr.name = spec.name;
  attr.doc = spec.doc;
  Scanner in(spec.type);
  const std::string_view kind = in.word();
  if (kind == "list") {
    if (!in.take("(")) return in.error("(");
    const std::string_view element = in.word();
    if (!is_attr_kind(element)) return invalid_argument("no attribute type: '", spec.type, "'");
    if (!in.take(")")) return in.error(")");
    attr.type = str_cat("list(", element, ")");
  } else if (is_attr_kind(kind)) {
    attr.type = kind;
  } else {
    return invalid_argument("no attribute type: '", spec.type, "'");
  }
  while (!in.done()) {
    if (in.take(">=")) {
      if (attr.type != "int" && !is_list_kind(attr.type)) {
        return invalid_argument("a ", attr.type, " cannot have a minimum");
      }
      attr.has_minimum = true;
      MR_TRY_ASSIGN(attr.minimum, in.integer());
    } else if (in.take("=")) {
      MR_TRY_ASSIGN(attr.default_value, read_default(in, attr.type));
    } else if (in.take("in")) {
      MR_TRY(read_allowed(in, attr));
    } else {
      return in.error("'=', '>=' or 'in'");
    }
  }
  return attr;
}

AttrDef* find_mutable(OpDef& op, std::string_view name) {
  for (AttrDef& attr : op.attrs) {
    if (attr.name == name) return &attr;
  }
  return nullptr;
}

// Fills in a dtype or the name of a type attribute.
Status parse_element_type(Scanner& in, OpDef& op, ArgDef& arg, std::string_view name) {
  if (const AttrDef* attr = op.find_attr(name)) {
    if (attr->type != "type")
      return invalid_argument("'", name, "' is a ", attr->type, ", not a type");
    arg.type_attr = name;
    return ok_status();
  }
  arg.dtype = dtype_from_name(name);
  if (!is_valid(arg.dtype) || is_ref(arg.dtype)) return in.error("a type or type attribute");
  return ok_status();
}

// An attribute that says how many tensors an argument has; at least one unless the definition says.
Status bind_list_attr(OpDef& op, std::string_view name, std::string_view type) {
  AttrDef* attr = find_mutable(op, name);
  if (attr == nullptr || attr->type != type) {
    return invalid_argument("'", name, "' must be an attribute of type ", type);
  }
  if (!attr->has_minimum) {
    attr->has_minimum = true;
    attr->minimum = 1;
  }
  return ok_status();
}

Result<ArgDef> parse_arg(const OpSpec::Arg& spec, OpDef& op) {
  ArgDef arg;
  arg.name = spec.name;
  arg.doc = spec.doc;
  Scanner in(spec.type);
  std::string_view first = in.word();
  int open = 0;
  for (; first == "ref" || first == "host"; ++open) {
    if (!in.take("(")) return in.error("(");
    (first == "ref" ? arg.is_ref : arg.host) = true;
    first = in.word();
  }
  if (first == "list" && in.take("(")) {
    arg.type_list_attr = in.word();
    if (!in.take(")")) return in.error(")");
    MR_TRY(bind_list_attr(op, arg.type_list_attr, "list(type)"));
  } else if (in.take("*")) {
    arg.number_attr = first;
    MR_TRY(bind_list_attr(op, arg.number_attr, "int"));
    MR_TRY(parse_element_type(in, op, arg, in.word()));
  } else {
    MR_TRY(parse_element_type(in, op, arg, first));
  }
  for (; open > 0; --open) {
    if (!in.take(")")) return in.error(")");
  }
  if (!in.done()) return in.error("the end");
  return arg;
}

template <class T>
Status check_names(const std::vector<T>& items, std::string_view what) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (!is_identifier(items[i].name)) {
      return invalid_argument("bad name of ", what, " ", i, ": '", items[i].name, "'");
    }
    for (size_t j = 0; j < i; ++j) {
      if (items[i].name == items[j].name) {
        return invalid_argument("two ", what, "s named '", items[i].name, "'");
      }
    }
  }
  return ok_status();
}

std::string join_strings(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& s : items) out += str_cat(out.empty() ? "\"" : ", \"", s, "\"");
  return out;
}

Status check_type(const AttrDef& def, DType t, bool may_be_ref) {
  if (!is_valid(t)) return invalid_argument("attr '", def.name, "' has an invalid type: ", t);
  if (is_ref(t) && !may_be_ref) {
    return invalid_argument("attr '", def.name, "' must not have a reference type, got ", t);
  }
  if (!def.allowed_types.empty() && !def.allowed_types.contains(t)) {
    return invalid_argument("Value for attr '", def.name, "' of ", t,
                            " is not in the list of allowed values: ", def.allowed_types);
  }
  return ok_status();
}

Status check_string(const AttrDef& def, const std::string& s) {
  if (def.allowed_strings.empty()) return ok_status();
  for (const std::string& allowed : def.allowed_strings) {
    if (s == allowed) return ok_status();
  }
  return invalid_argument(
      "Value for attr '", def.name, "' of ", AttrValue(s),
      " is not in the list of allowed values: ", join_strings(def.allowed_strings));
}

// The length of a list value.
size_t list_size(const AttrValue& value) {
  return std::visit(
      [](const auto& v) -> size_t {
        using T = std::decay_t<decltype(v)>;
        if constexpr (requires(const T& t) { t.begin(); } && !std::is_same_v<T, std::string>) {
          return v.size();
        }
        return 0;
      },
      value.storage());
}

Status check_value(const OpDef& op, const AttrDef& def, const AttrValue& value) {
  const bool is_list = is_list_kind(def.type);
  if (value.kind() != def.type && !(is_list && value.get<EmptyList>() != nullptr)) {
    return invalid_argument("AttrValue had value with type '", value.kind(), "' when '", def.type,
                            "' expected, for attr '", def.name, "'");
  }
  if (const DType* t = value.get<DType>()) {
    return check_type(def, *t, op.traits.argument || op.traits.result);
  }
  if (const std::string* s = value.get<std::string>()) return check_string(def, *s);
  if (const int64_t* i = value.get<int64_t>()) {
    if (def.has_minimum && *i < def.minimum) {
      return invalid_argument("Value for attr '", def.name, "' of ", *i,
                              " must be at least minimum ", def.minimum);
    }
    return ok_status();
  }
  if (!is_list) return ok_status();
  if (const int64_t size = static_cast<int64_t>(list_size(value));
      def.has_minimum && size < def.minimum) {
    return invalid_argument("Length for attr '", def.name, "' of ", size,
                            " must be at least minimum ", def.minimum);
  }
  if (const auto* types = value.get<std::vector<DType>>()) {
    for (DType t : *types) MR_TRY(check_type(def, t, def.allowed_types.empty()));
  }
  if (const auto* strings = value.get<std::vector<std::string>>()) {
    for (const std::string& s : *strings) MR_TRY(check_string(def, s));
  }
  return ok_status();
}

Status fill_op(const OpSpec& spec, OpDef& op) {
  for (const OpSpec::Type& type : spec.types) {
    AttrDef attr;
    attr.name = type.name;
    attr.type = "type";
    attr.allowed_types = type.allowed;
    if (type.default_type != DType::kInvalid) attr.default_value = type.default_type;
    op.attrs.push_back(std::move(attr));
  }
  for (const OpSpec::Attr& attr : spec.attrs) {
    Result<AttrDef> parsed = parse_attr(attr);
    if (!parsed.ok()) return parsed.status().with_prefix(str_cat("attr '", attr.name, "'"));
    op.attrs.push_back(std::move(parsed).value());
  }
  MR_TRY(check_names(op.attrs, "attr"));
  for (const OpSpec::Arg& arg : spec.inputs) {
    Result<ArgDef> parsed = parse_arg(arg, op);
    if (!parsed.ok()) return parsed.status().with_prefix(str_cat("input '", arg.name, "'"));
    op.inputs.push_back(std::move(parsed).value());
  }
  MR_TRY(check_names(op.inputs, "input"));
  for (const OpSpec::Arg& arg : spec.outputs) {
    Result<ArgDef> parsed = parse_arg(arg, op);
    if (!parsed.ok()) return parsed.status().with_prefix(str_cat("output '", arg.name, "'"));
    op.outputs.push_back(std::move(parsed).value());
  }
  MR_TRY(check_names(op.outputs, "output"));
  for (const AttrDef& attr : op.attrs) {
    if (!attr.default_value.empty()) {
      Status status = check_value(op, attr, attr.default_value);
      if (!status.ok()) return status.with_prefix("default");
    }
  }
  return ok_status();
}

}  // namespace

template class SpecList<OpSpec::Arg>;
template class SpecList<OpSpec::Type>;
template class SpecList<OpSpec::Attr>;

const AttrDef* OpDef::find_attr(std::string_view attr) const {
  for (const AttrDef& def : attrs) {
    if (def.name == attr) return &def;
  }
  return nullptr;
}

Result<OpDef> parse_op_spec(const OpSpec& spec) {
  OpDef op;
  op.name = spec.name;
  op.doc = spec.doc;
  op.traits = spec.traits;
  op.shape = spec.shape;
  op.value = spec.value;
  op.gradient = spec.gradient;
  op.no_gradient = spec.no_gradient;
  op.deprecated_since = spec.deprecated_since;
  op.deprecation = spec.deprecation;
  if (!is_identifier(op.name)) return invalid_argument("bad name of an op: '", op.name, "'");
  Status status = fill_op(spec, op);
  if (!status.ok()) return status.with_prefix(str_cat("Op '", op.name, "'"));
  return op;
}

namespace {

// Calls each(arg, type) for every tensor, lists expanded.
template <class Each>
Status for_each_tensor(const std::vector<ArgDef>& args, const AttrMap& attrs, Each each) {
  // More tensors than any node has; keeps a hostile number from taking memory.
  constexpr int64_t kMaxTensors = int64_t{1} << 20;
  int64_t tensors = 0;
  for (const ArgDef& arg : args) {
    if (!arg.type_list_attr.empty()) {
      MR_TRY_ASSIGN(const std::vector<DType> list,
                    read_attr<std::vector<DType>>(attrs, arg.type_list_attr));
      for (DType t : list) each(arg, arg.is_ref ? ref_type(t) : t);
      tensors += static_cast<int64_t>(list.size());
      continue;
    }
    DType type = arg.dtype;
    if (!arg.type_attr.empty()) {
      MR_TRY_ASSIGN(type, read_attr<DType>(attrs, arg.type_attr));
    }
    int64_t count = 1;
    if (!arg.number_attr.empty()) {
      MR_TRY_ASSIGN(count, read_attr<int64_t>(attrs, arg.number_attr));
      if (count < 0 || count > kMaxTensors - tensors) {
        return invalid_argument("attr '", arg.number_attr, "' of ", count, " is not between 0 and ",
                                kMaxTensors);
      }
    }
    for (int64_t i = 0; i < count; ++i) each(arg, arg.is_ref ? ref_type(type) : type);
    tensors += count;
  }
  return ok_status();
}

}  // namespace

Result<std::vector<DType>> expand_types(const std::vector<ArgDef>& args, const AttrMap& attrs) {
  std::vector<DType> types;
  types.reserve(args.size());
  MR_TRY(for_each_tensor(args, attrs, [&](const ArgDef&, DType type) { types.push_back(type); }));
  return types;
}

Result<std::vector<bool>> expand_host(const std::vector<ArgDef>& args, const AttrMap& attrs) {
  std::vector<bool> host;
  MR_TRY(for_each_tensor(args, attrs, [&](const ArgDef& arg, DType type) {
    host.push_back(arg.host || lives_on_host(type));
  }));
  return host;
}

Status check_attrs(const OpDef& op, AttrMap& attrs) {
  size_t known = 0;
  for (const AttrDef& def : op.attrs) {
    const AttrValue* value = attrs.find(def.name);
    if (value != nullptr) {
      MR_TRY(check_value(op, def, *value));
    } else if (!def.default_value.empty()) {
      attrs.set(def.name, def.default_value);
    } else {
      return invalid_argument("NodeDef missing attr '", def.name, "' from Op<name=", op.name, ">");
    }
    ++known;
  }
  if (attrs.size() == known) return ok_status();
  for (const auto& [name, value] : attrs) {
    if (!name.starts_with('_') && op.find_attr(name) == nullptr) {
      return invalid_argument("NodeDef mentions attr '", name, "' not in Op<name=", op.name, ">");
    }
  }
  return ok_status();
}

}  // namespace millrace
