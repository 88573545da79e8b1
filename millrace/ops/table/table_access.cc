// Looking up in tables, filling them, and asking them.

#include "millrace/base/file_access.h"
#include "millrace/graph/shape_context.h"
#include "millrace/io/input_stream.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/queue/handle.h"
#include "millrace/ops/strings/parse_number.h"
#include "millrace/ops/table/lookup_table.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

Status find_shape(ShapeContext& c) {
  const auto& known = c.input_facts(0).resource;
  if (known.size() != 2 || !c.input(1).rank_known() || !known[0].shape.rank_known() ||
      !known[1].shape.rank_known()) {
    return ok_status();
  }
  const int rank = c.input(1).rank() - known[0].shape.rank();
  if (rank < 0) return ok_status();  // the run says so, as in TensorFlow
  PartialShape out = PartialShape::scalar();
  for (int i = 0; i < rank; ++i) out.add_dim(c.input(1).dim(i));
  for (const int64_t dim : known[1].shape.dims()) out.add_dim(dim);
  MR_TRY_ASSIGN(out, PartialShape::make(out.dims()));
  c.set_output(0, std::move(out));
  return ok_status();
}

Status check_type(std::string_view what, DType expected, DType got) {
  if (expected == got) return ok_status();
  return invalid_argument("the table has ", what, " of type ", expected, ", got ", got);
}

Result<Ref<LookupTable>> table_input(const KernelContext& ctx) {
  return resource_input<LookupTable>(ctx, 0);
}

// The table, which has keys of the type of input 1 and values of that of input 2.
Result<Ref<LookupTable>> table_of_inputs(const KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<LookupTable> table, table_input(ctx));
  MR_TRY(check_type("keys", table->spec().key_dtype, ctx.input(1).dtype()));
  if (ctx.num_inputs() > 2) {
    MR_TRY(check_type("values", table->spec().value_dtype, ctx.input(2).dtype()));
  }
  return table;
}

Status find(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<LookupTable> table, table_of_inputs(ctx));
  MR_TRY_ASSIGN(const Shape shape, table->values_shape(ctx.input(1).shape()));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  return table->find(ctx.input(1), ctx.input(2), *out);
}

Status insert(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<LookupTable> table, table_of_inputs(ctx));
  return table->insert(ctx.input(1), ctx.input(2));
}

Status import(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<LookupTable> table, table_of_inputs(ctx));
  return table->import(ctx.input(1), ctx.input(2));
}

Status initialize(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<LookupTable> table, table_of_inputs(ctx));
  return table->initialize(ctx.input(1), ctx.input(2));
}

Status remove(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<LookupTable> table, table_of_inputs(ctx));
  return table->remove(ctx.input(1));
}

Status size(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<LookupTable> table, table_input(ctx));
  ctx.set_output(0, Tensor::scalar(table->size()));
  return ok_status();
}

Status export_all(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<LookupTable> table, table_input(ctx));
  MR_TRY(check_type("keys", table->spec().key_dtype, ctx.output_type(0)));
  MR_TRY(check_type("values", table->spec().value_dtype, ctx.output_type(1)));
  MR_TRY_ASSIGN(auto contents, table->export_all());
  ctx.set_output(0, std::move(contents.first));
  ctx.set_output(1, std::move(contents.second));
  return ok_status();
}

// Which part of a line is a key or a value.
constexpr int64_t kWholeLine = -2, kLineNumber = -1;

struct TextFile {
  int64_t key_index = 0, value_index = 0, vocab_size = -1, offset = 0;
  char delimiter = '\t';
};

Result<TextFile> read_text_file_attrs(const AttrMap& attrs) {
  TextFile file;
  MR_TRY_ASSIGN(file.key_index, read_attr<int64_t>(attrs, "key_index"));
  MR_TRY_ASSIGN(file.value_index, read_attr<int64_t>(attrs, "value_index"));
  MR_TRY_ASSIGN(file.vocab_size, read_attr<int64_t>(attrs, "vocab_size"));
  MR_TRY_ASSIGN(file.offset, read_attr<int64_t>(attrs, "offset"));
  MR_TRY_ASSIGN(const std::string delimiter, read_attr<std::string>(attrs, "delimiter"));
  if (delimiter.size() != 1) {
    return invalid_argument("delimiter should be only 1 char, got '", delimiter, "'");
  }
  constexpr int64_t kLargest = int64_t{1} << 62;
  for (const int64_t column : {file.key_index, file.value_index}) {
    if (column > kLargest) {
      return invalid_argument("a column's number must be at most ", kLargest, ", got ", column);
    }
  }
  if (file.offset < 0 || file.offset > kLargest) {
    return invalid_argument("offset must be from 0 to ", kLargest, ", got ", file.offset);
  }
  file.delimiter = delimiter[0];
  return file;
}

Status text_file_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(1, 0).status());
  return read_text_file_attrs(c.attrs()).status();
}

// Keys or values, collected line by line.
class Column {
 public:
  Column(int64_t index, DType dtype, char delimiter)
      : index_(index), dtype_(dtype), delimiter_(delimiter) {}

  Status check(std::string_view what) const {
    if (index_ == kLineNumber && dtype_ != DType::kInt64) {
      return invalid_argument(what, " index for line number requires table ", what,
                              " dtype of int64, got ", dtype_);
    }
    if (index_ == kWholeLine && dtype_ != DType::kString && dtype_ != DType::kInt64 &&
        dtype_ != DType::kInt32) {
      return invalid_argument(what, " index for whole line requires string or integer table ", what,
                              ", got ", dtype_);
    }
    return ok_status();
  }

  Status add(std::string_view line, int64_t number) {
    if (index_ == kLineNumber) {
      numbers_.push_back(number);
      return ok_status();
    }
    std::string_view field = line;
    if (index_ != kWholeLine) {
      for (int64_t i = 0;; ++i) {
        const size_t end = field.find(delimiter_);
        if (i == index_) {
          field = field.substr(0, end);
          break;
        }
        if (end == std::string_view::npos) {
          return invalid_argument("Invalid number of columns in line ", number, " (",
                                  line.substr(0, 100), "): expected at least ", index_ + 1,
                                  ", got ", i + 1);
        }
        field.remove_prefix(end + 1);
      }
    }
    fields_.emplace_back(field);
    return ok_status();
  }

  Result<Tensor> tensor() const {
    if (index_ == kLineNumber) return Tensor::vector<int64_t>(numbers_);
    MR_TRY_ASSIGN(Tensor out,
                  Tensor::allocate(dtype_, Shape{static_cast<int64_t>(fields_.size())}));
    using Types = TypeList<float, double, int32_t, int64_t, std::string>;
    MR_TRY(dispatch<Types>(dtype_, [&]<class T>() -> Status {
      const std::span<T> elements = out.mutable_data<T>();
      for (size_t i = 0; i < fields_.size(); ++i) {
        if constexpr (std::is_same_v<T, std::string>) {
          elements[i] = fields_[i];
        } else if (!parse_number(fields_[i], elements[i])) {
          return invalid_argument("Field ", fields_[i], " in line ", i, " is not a valid ", dtype_);
        }
      }
      return ok_status();
    }));
    return out;
  }

 private:
  const int64_t index_;
  const DType dtype_;
  const char delimiter_;
  std::vector<int64_t> numbers_;
  std::vector<std::string> fields_;
};

class InitializeFromTextFile : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const TextFile file, read_text_file_attrs(node.attrs));
    return std::make_unique<InitializeFromTextFile>(file);
  }
  explicit InitializeFromTextFile(const TextFile& file) : file_(file) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const Ref<LookupTable> table, table_input(ctx));
    if (ctx.input(1).rank() != 0) {
      return invalid_argument("filename must be a single string, got shape ", ctx.input(1).shape());
    }
    const std::string& path = ctx.input(1).data<std::string>()[0];
    MR_TRY_ASSIGN(const FilePlace place,
                  ctx.device().files().resolve(path, FileAccess::Use::kRead));
    MR_TRY_ASSIGN(auto file, place.fs->open_readable(place.path));
    MR_TRY_ASSIGN(const auto input, InputStream::make(std::move(file)));
    Column keys(file_.key_index, table->spec().key_dtype, file_.delimiter);
    Column values(file_.value_index, table->spec().value_dtype, file_.delimiter);
    MR_TRY(keys.check("Key"));
    MR_TRY(values.check("Value"));
    MR_TRY(read(*input, path, keys, values));
    MR_TRY_ASSIGN(const Tensor all_keys, keys.tensor());
    MR_TRY_ASSIGN(const Tensor all_values, values.tensor());
    const Status status = table->initialize(all_keys, all_values);
    // A table that was filled stays as it is, as in TensorFlow: programs run initializers twice.
    if (status.code() == Code::kFailedPrecondition) return ok_status();
    return status.with_prefix(path);
  }

 private:
  Status read(InputStream& input, const std::string& path, Column& keys, Column& values) const {
    LineReader lines(input);
    int64_t number = 0;
    while (file_.vocab_size < 0 || number < file_.vocab_size) {
      const Result<std::string_view> line = lines.next();
      if (line.status().code() == Code::kOutOfRange) break;
      MR_TRY(line.status());
      MR_TRY(keys.add(*line, number + file_.offset).with_prefix(path));
      MR_TRY(values.add(*line, number + file_.offset).with_prefix(path));
      ++number;
    }
    if (file_.vocab_size >= 0 && number < file_.vocab_size) {
      return invalid_argument("Invalid vocab_size in ", path, ": expected ", file_.vocab_size,
                              " but got ", number);
    }
    return ok_status();
  }

  const TextFile file_;
};

// Both forms: handles as references to strings, and as resources.
void add_op(Registry& registry, OpSpec spec, KernelFunction kernel, bool v1 = true) {
  const std::string name(spec.name);
  const std::vector<OpSpec::Arg> rest(spec.inputs.begin(), spec.inputs.end());
  for (const bool v2 : {false, true}) {
    if (!v1 && !v2) continue;
    std::vector<OpSpec::Arg> inputs = {{"table_handle", v2 ? "resource" : "ref(string)"}};
    inputs.insert(inputs.end(), rest.begin(), rest.end());
    const std::string full = name + (v2 ? "V2" : "");
    spec.name = full;
    spec.inputs = inputs;
    spec.traits.stateful = true;
    spec.traits.cannot_differentiate = true;
    registry.add(spec);
    if (kernel != nullptr) {
      registry.kernel(full, DeviceKind::kCpu, kernel);
    } else {
      registry.kernel<InitializeFromTextFile>(full, DeviceKind::kCpu);
      mark_reach({full}, Reach::kFiles);
    }
  }
}

}  // namespace

void register_table_access(Registry& registry) {
  const std::vector<OpSpec::Arg> pairs = {{"keys", "Tin"}, {"values", "Tout"}};
  const std::vector<OpSpec::Type> types = {{"Tin", {}}, {"Tout", {}}};
  add_op(registry,
         {.name = "LookupTableFind",
          .doc = "The values of keys, and the default where there is none.",
          .inputs = {{"keys", "Tin"}, {"default_value", "Tout"}},
          .outputs = {{"values", "Tout"}},
          .types = types,
          .shape = find_shape},
         find);
  add_op(registry,
         {.name = "LookupTableInsert",
          .doc = "Adds keys with their values, or replaces the values.",
          .inputs = pairs,
          .types = types,
          .shape = shape_rules::no_outputs},
         insert);
  add_op(registry,
         {.name = "LookupTableImport",
          .doc = "Replaces all that a table has.",
          .inputs = pairs,
          .types = types,
          .shape = shape_rules::no_outputs},
         import);
  add_op(registry,
         {.name = "LookupTableRemove",
          .doc = "Removes keys; those that are not there are fine.",
          .inputs = {{"keys", "Tin"}},
          .types = {{"Tin", {}}},
          .shape = shape_rules::no_outputs},
         remove, false);
  add_op(registry,
         {.name = "LookupTableSize",
          .doc = "How many keys a table has.",
          .outputs = {{"size", "int64"}},
          .shape = shape_rules::scalar},
         size);
  add_op(registry,
         {.name = "LookupTableExport",
          .doc = "All keys and values of a table.",
          .outputs = {{"keys", "Tkeys"}, {"values", "Tvalues"}},
          .types = {{"Tkeys", {}}, {"Tvalues", {}}},
          .shape = shape_rules::unknown},
         export_all);
  add_op(registry,
         {.name = "InitializeTable",
          .doc = "Fills a table that does not change.",
          .inputs = {{"keys", "Tkey"}, {"values", "Tval"}},
          .types = {{"Tkey", {}}, {"Tval", {}}},
          .shape = shape_rules::no_outputs},
         initialize);
  add_op(registry,
         {.name = "InitializeTableFromTextFile",
          .doc = "Fills a table that does not change from the lines of a file.",
          .inputs = {{"filename", "string"}},
          .attrs = {{"key_index", "int >= -2", "A column; -1: the line's number, -2: the line."},
                    {"value_index", "int >= -2"},
                    {"vocab_size", "int >= -1 = -1", "Lines to read; -1: all."},
                    {"delimiter", "string = '\t'"},
                    {"offset", "int = 0"}},
          .traits = {.blocks = true},
          .shape = text_file_shape},
         nullptr);
}

}  // namespace millrace
