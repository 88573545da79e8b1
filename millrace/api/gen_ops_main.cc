// Writes millrace/api/ops.h and ops.cc: one typed function per op of the registry. And a page for
// readers, the ops that have no gradient and why.
//
//   mr_gen_ops <ops.h> <ops.cc> <ops_without_gradient.md>
//
// An op becomes a function in namespace millrace::ops that takes the scope, the inputs, the
// attributes that have no default and, as a struct of its own, those that have one. Type and number
// attributes that follow from the inputs are left out.

#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "millrace/base/file.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_registry.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_lower(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// "MatMul" -> "mat_mul", "Conv2D" -> "conv2d", "TopKV2" -> "top_kv2"; C++'s own words get a '_'.
std::string snake_case(std::string_view name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    bool boundary = i > 0 && is_upper(name[i]) && !is_upper(name[i - 1]) && name[i - 1] != '_' &&
                    !(name[i - 1] >= '0' && name[i - 1] <= '9');
    bool last_of_capitals = i > 0 && is_upper(name[i]) && is_upper(name[i - 1]) &&
                            i + 1 < name.size() && is_lower(name[i + 1]) &&
                            !(name[i + 1] >= '0' && name[i + 1] <= '9');
    if (boundary || last_of_capitals) out += '_';
    out += is_upper(name[i]) ? static_cast<char>(name[i] - 'A' + 'a') : name[i];
  }
  static const std::set<std::string> reserved = {
      "and",     "assert",   "auto",     "bool",    "break",    "case",     "catch",     "class",
      "concept", "const",    "continue", "default", "delete",   "do",       "double",    "else",
      "enum",    "explicit", "export",   "extern",  "false",    "float",    "for",       "friend",
      "goto",    "if",       "inline",   "int",     "long",     "mutable",  "namespace", "new",
      "not",     "operator", "or",       "private", "public",   "register", "requires",  "return",
      "short",   "signed",   "sizeof",   "static",  "struct",   "switch",   "template",  "this",
      "throw",   "true",     "try",      "typedef", "typename", "union",    "unsigned",  "using",
      "virtual", "void",     "volatile", "while",   "xor"};
  if (reserved.contains(out)) out += '_';
  return out;
}

// A parameter name that does not hide the others.
std::string parameter(std::string_view name) {
  std::string out = snake_case(name);
  if (out == "scope" || out == "attrs" || out == "where" || out == "call") out += '_';
  return out;
}

std::string cpp_type(std::string_view attr_type) {
  if (attr_type == "int") return "int64_t";
  if (attr_type == "float") return "float";
  if (attr_type == "bool") return "bool";
  if (attr_type == "string") return "std::string";
  if (attr_type == "type") return "DType";
  if (attr_type == "shape") return "PartialShape";
  if (attr_type == "tensor") return "Tensor";
  if (attr_type == "func") return "FunctionAttr";
  if (attr_type == "list(tensor)") return "std::vector<TensorAttr>";
  std::string_view element = attr_type.substr(5, attr_type.size() - 6);
  return str_cat("std::vector<", cpp_type(element), ">");
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\' || c == '\n') out += '\\';
    out += c == '\n' ? 'n' : c;
  }
  return out + "\"";
}

std::string dtype_literal(DType t) {
  return str_cat("static_cast<DType>(", static_cast<int>(t), ")");
}

template <class T, class F>
std::string list_literal(const std::vector<T>& values, F&& one) {
  std::string out = "{";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ", ";
    out += one(values[i]);
  }
  return out + "}";
}

std::string float_literal(float v) { return str_cat("static_cast<float>(", v, ")"); }

// A default value as C++ text; empty when it has none that can be written: then it is left to the
// op.
std::string literal(const AttrValue& value) {
  if (const auto* v = value.get<int64_t>()) return str_cat(*v);
  if (const auto* v = value.get<float>()) return float_literal(*v);
  if (const auto* v = value.get<bool>()) return *v ? "true" : "false";
  if (const auto* v = value.get<std::string>()) return quoted(*v);
  if (const auto* v = value.get<DType>()) return dtype_literal(*v);
  if (const auto* v = value.get<PartialShape>()) {
    if (!v->rank_known()) return "PartialShape::unknown()";
    std::vector<int64_t> dims(v->dims().begin(), v->dims().end());
    return str_cat("PartialShape(", list_literal(dims, [](int64_t d) { return str_cat(d); }), ")");
  }
  if (const auto* v = value.get<std::vector<int64_t>>()) {
    return list_literal(*v, [](int64_t d) { return str_cat(d); });
  }
  if (const auto* v = value.get<std::vector<float>>()) return list_literal(*v, float_literal);
  if (const auto* v = value.get<std::vector<std::string>>()) return list_literal(*v, quoted);
  if (const auto* v = value.get<std::vector<DType>>()) return list_literal(*v, dtype_literal);
  if (value.kind().starts_with("list")) return "{}";
  return "";
}

// The attributes whose values follow from the inputs.
std::set<std::string> inferred_attrs(const OpDef& op) {
  std::set<std::string> out;
  for (const ArgDef& arg : op.inputs) {
    for (const std::string* name : {&arg.type_attr, &arg.number_attr, &arg.type_list_attr}) {
      if (!name->empty()) out.insert(*name);
    }
  }
  return out;
}

class OpWriter {
 public:
  OpWriter(const OpDef& op, std::string& header, std::string& source)
      : op_(op), header_(header), source_(source), function_(snake_case(op.name)) {
    std::set<std::string> inferred = inferred_attrs(op);
    for (const AttrDef& attr : op.attrs) {
      if (inferred.contains(attr.name)) continue;
      if (attr.default_value.empty()) {
        required_.push_back(&attr);
      } else if (!literal(attr.default_value).empty()) {
        optional_.push_back(&attr);
      }
    }
  }

  void write() {
    if (!optional_.empty()) write_attrs();
    write_result();
    write_comment();
    std::string signature = parameters(/*defaults=*/true);
    header_ += str_cat(result_type(), " ", function_, "(", signature, ");\n\n");
    source_ += str_cat(result_type(), " ", function_, "(", parameters(/*defaults=*/false), ") {\n");
    write_body();
    source_ += "}\n\n";
  }

 private:
  std::string attrs_type() const { return op_.name + "Attrs"; }

  std::string result_type() const {
    if (op_.outputs.empty()) return "Operation";
    if (op_.outputs.size() > 1) return op_.name + "Result";
    return op_.outputs[0].is_list() ? "std::vector<Expr>" : "Expr";
  }

  void write_attrs() {
    header_ += str_cat("// Attributes of ", function_, "() that have a default.\nstruct ",
                       attrs_type(), " {\n");
    for (const AttrDef* attr : optional_) {
      if (!attr->doc.empty()) header_ += str_cat("  // ", attr->doc, "\n");
      header_ += str_cat("  ", cpp_type(attr->type), " ", parameter(attr->name), " = ",
                         literal(attr->default_value), ";\n");
    }
    header_ += "};\n";
  }

  void write_result() {
    if (op_.outputs.size() < 2) return;
    header_ += str_cat("// What ", function_, "() gives.\nstruct ", op_.name, "Result {\n");
    for (const ArgDef& out : op_.outputs) {
      header_ +=
          str_cat("  ", out.is_list() ? "std::vector<Expr> " : "Expr ", parameter(out.name), ";\n");
    }
    header_ += "  Operation operation;\n};\n";
  }

  void write_comment() {
    std::string line = "//";
    for (size_t begin = 0; begin <= op_.doc.size();) {
      size_t end = op_.doc.find_first_of(" \n", begin);
      if (end == std::string::npos) end = op_.doc.size();
      if (line.size() + 1 + (end - begin) > 100) {
        header_ += line + "\n";
        line = "//";
      }
      if (end > begin) line += " " + op_.doc.substr(begin, end - begin);
      begin = end + 1;
    }
    header_ += line + "\n";
  }

  std::string parameters(bool defaults) const {
    std::string out = "const Scope& scope";
    for (const ArgDef& in : op_.inputs) {
      out +=
          str_cat(", ", in.is_list() ? "const std::vector<Expr>& " : "Expr ", parameter(in.name));
    }
    for (const AttrDef* attr : required_) {
      out += str_cat(", ", cpp_type(attr->type), " ", parameter(attr->name));
    }
    if (!optional_.empty())
      out += str_cat(", const ", attrs_type(), "& attrs", defaults ? " = {}" : "");
    return out + str_cat(", SourceLocation where", defaults ? " = SourceLocation::current()" : "");
  }

  void write_body() {
    source_ += str_cat("  OpCall call(scope, \"", op_.name, "\", where);\n");
    for (const ArgDef& in : op_.inputs) {
      source_ +=
          str_cat("  call.", in.is_list() ? "inputs(" : "input(", parameter(in.name), ");\n");
    }
    write_list_attrs();
    for (const AttrDef* attr : required_) {
      source_ += str_cat("  call.attr(\"", attr->name, "\", ", parameter(attr->name), ");\n");
    }
    for (const AttrDef* attr : optional_) {
      source_ += str_cat("  call.attr(\"", attr->name, "\", attrs.", parameter(attr->name), ");\n");
    }
    write_outputs();
  }

  // With several list inputs, where one ends and the next begins must be said.
  void write_list_attrs() {
    std::set<std::string> done;
    for (const ArgDef& in : op_.inputs) {
      const bool numbered = !in.number_attr.empty();
      const std::string& attr = numbered ? in.number_attr : in.type_list_attr;
      if (attr.empty() || !done.insert(attr).second) continue;
      source_ += str_cat("  call.", numbered ? "count_attr(\"" : "types_attr(\"", attr, "\", ",
                         parameter(in.name), ");\n");
    }
  }

  void write_outputs() {
    if (op_.outputs.empty()) {
      source_ += "  return call.add();\n";
      return;
    }
    if (op_.outputs.size() == 1) {
      source_ += str_cat("  call.add();\n  return call.",
                         op_.outputs[0].is_list() ? "all();\n" : "one();\n");
      return;
    }
    source_ += str_cat("  ", op_.name, "Result result;\n  result.operation = call.add();\n");
    for (const ArgDef& o : op_.outputs) {
      std::string name = parameter(o.name);
      if (!o.number_attr.empty()) {
        source_ += str_cat("  result.", name, " = call.numbered(\"", o.number_attr, "\");\n");
      } else if (!o.type_list_attr.empty()) {
        source_ += str_cat("  result.", name, " = call.typed(\"", o.type_list_attr, "\");\n");
      } else {
        source_ += str_cat("  result.", name, " = call.one();\n");
      }
    }
    source_ += "  return result;\n";
  }

  const OpDef& op_;
  std::string& header_;
  std::string& source_;
  std::string function_;
  std::vector<const AttrDef*> required_, optional_;
};

constexpr std::string_view kHeaderTop = R"(// Written by mr_gen_ops from the op registry.
#pragma once

#include <string>
#include <vector>

#include "millrace/api/scope.h"

namespace millrace::ops {

)";

constexpr std::string_view kSourceTop = R"(// Written by mr_gen_ops from the op registry.
#include "millrace/api/ops.h"

#include "millrace/api/op_call.h"

namespace millrace::ops {

)";

Status write_if_changed(const std::string& path, const std::string& text) {
  FileSystem& fs = posix_file_system();
  Result<std::string> old = read_file(fs, path);
  if (old.ok() && *old == text) return ok_status();
  return write_file_atomically(fs, path, text);
}

std::string ops_without_gradient() {
  std::map<std::string, std::vector<std::string>> groups;
  for (const OpDef* op : OpRegistry::global().list()) {
    if (op->gradient == nullptr) groups[why_no_gradient(*op)].push_back(op->name);
  }
  std::string out = "# Ops without gradient\n\n| why | ops |\n| --- | --- |\n";
  for (const auto& [why, ops] : groups) {
    out += str_cat("| ", why, " | `", str_join(ops, "` `"), "` |\n");
  }
  return out;
}

Status generate(const std::string& header_path, const std::string& source_path,
                const std::string& page_path) {
  MR_TRY(register_ops());
  std::string header(kHeaderTop), source(kSourceTop);
  for (const OpDef* op : OpRegistry::global().list()) {
    if (op->name.starts_with("_")) continue;  // the runtime's own
    OpWriter(*op, header, source).write();
  }
  header += "}  // namespace millrace::ops\n";
  source += "}  // namespace millrace::ops\n";
  MR_TRY(write_if_changed(header_path, header));
  MR_TRY(write_if_changed(source_path, source));
  return write_if_changed(page_path, ops_without_gradient());
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: mr_gen_ops <ops.h> <ops.cc> <ops_without_gradient.md>\n");
    return 2;
  }
  millrace::Status status = millrace::generate(argv[1], argv[2], argv[3]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "mr_gen_ops: %s\n", status.to_string().c_str());
  return 1;
}
