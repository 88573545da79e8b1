#include <algorithm>

#include "millrace/graph/shape_context.h"
#include "millrace/io/csv.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/strings/parse_number.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

struct Settings {
  CsvOptions options;
  std::string missing;
  std::vector<int64_t> columns;  // empty: all
};

Result<Settings> read_settings(const AttrMap& attrs, size_t outputs) {
  Settings settings;
  MR_TRY_ASSIGN(const std::string delimiter, read_attr<std::string>(attrs, "field_delim"));
  if (delimiter.size() != 1) {
    return invalid_argument("field_delim should be only 1 char, got '", delimiter, "'");
  }
  settings.options.delimiter = delimiter[0];
  MR_TRY_ASSIGN(settings.options.quotes, read_attr<bool>(attrs, "use_quote_delim"));
  MR_TRY_ASSIGN(settings.missing, read_attr<std::string>(attrs, "na_value"));
  MR_TRY_ASSIGN(settings.columns, read_attr<std::vector<int64_t>>(attrs, "select_cols"));
  const std::vector<int64_t>& columns = settings.columns;
  if (!columns.empty() && columns.size() != outputs) {
    return invalid_argument("select_cols should match output size: ", columns.size(),
                            " columns for ", outputs, " outputs");
  }
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] < 0 || (i > 0 && columns[i] <= columns[i - 1])) {
      return invalid_argument(
          "select_cols should be nonnegative and strictly increasing indices, got [",
          str_join(columns, ","), "]");
    }
  }
  return settings;
}

Status decode_csv_shape(ShapeContext& c) {
  MR_TRY(read_settings(c.attrs(), static_cast<size_t>(c.num_outputs())).status());
  for (int i = 1; i < c.num_inputs(); ++i) {
    MR_TRY_ASSIGN(const PartialShape shape, c.with_rank_at_most(i, 1));
    if (shape.rank_known() && shape.rank() == 1 && shape.dim(0) > 1) {
      return invalid_argument(
          "Shape of a default must be a length-0 or length-1 vector, or a scalar, got ", shape,
          " for field ", i - 1);
    }
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, c.input(0));
  return ok_status();
}

class DecodeCsv : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(Settings settings, read_settings(node.attrs, node.output_types.size()));
    return std::make_unique<DecodeCsv>(std::move(settings));
  }
  explicit DecodeCsv(Settings settings) : settings_(std::move(settings)) {}

  Status compute(KernelContext& ctx) const override {
    const std::span<const std::string> records = ctx.input(0).data<std::string>();
    std::vector<Tensor*> outputs;
    for (int i = 0; i < ctx.num_outputs(); ++i) {
      if (ctx.input(i + 1).rank() > 1 || ctx.input(i + 1).num_elements() > 1) {
        return invalid_argument("There should only be 1 default per field but field ", i, " has ",
                                ctx.input(i + 1).num_elements(), " of shape ",
                                ctx.input(i + 1).shape());
      }
      MR_TRY_ASSIGN(outputs.emplace_back(), ctx.allocate_output(i, ctx.input(0).shape()));
    }
    for (size_t r = 0; r < records.size(); ++r) {
      MR_TRY_ASSIGN(std::vector<std::string> fields, split_csv(records[r], settings_.options));
      MR_TRY(select(fields, outputs.size(), r));
      for (size_t f = 0; f < fields.size(); ++f) {
        MR_TRY(put(ctx, f, r, fields[f], *outputs[f]));
      }
    }
    return ok_status();
  }

 private:
  // Leaves the fields that have outputs.
  Status select(std::vector<std::string>& fields, size_t expected, size_t record) const {
    if (settings_.columns.empty()) {
      if (fields.size() == expected) return ok_status();
      return invalid_argument("Expect ", expected, " fields but have ", fields.size(),
                              " in record ", record);
    }
    std::vector<std::string> selected;
    for (const int64_t column : settings_.columns) {
      if (column >= static_cast<int64_t>(fields.size())) {
        return invalid_argument("Expect ", expected, " fields but have ", selected.size(),
                                " in record ", record);
      }
      selected.push_back(std::move(fields[static_cast<size_t>(column)]));
    }
    fields = std::move(selected);
    return ok_status();
  }

  Status put(const KernelContext& ctx, size_t f, size_t r, std::string& field, Tensor& out) const {
    using Types = TypeList<float, double, int32_t, int64_t, std::string>;
    return dispatch<Types>(out.dtype(), [&]<class T>() -> Status {
      T& element = out.mutable_data<T>()[r];
      if (field.empty() || field == settings_.missing) {
        const Tensor& value = ctx.input(static_cast<int>(f) + 1);
        if (value.num_elements() == 0) {
          return invalid_argument("Field ", f, " is required but missing in record ", r, "!");
        }
        element = value.data<T>()[0];
      } else if constexpr (std::is_same_v<T, std::string>) {
        element = std::move(field);
      } else if (!parse_number(field, element)) {
        return invalid_argument("Field ", f, " in record ", r, " is not a valid ", out.dtype(),
                                ": ", field);
      }
      return ok_status();
    });
  }

  const Settings settings_;
};

}  // namespace

void register_decode_csv(Registry& registry) {
  registry.add({.name = "DecodeCSV",
                .doc = "The fields of records of comma-separated values, a tensor for each column.",
                .inputs = {{"records", "string"}, {"record_defaults", "list(OUT_TYPE)"}},
                .outputs = {{"output", "list(OUT_TYPE)"}},
                .attrs = {{"OUT_TYPE", "list(type) >= 1 in {float,double,int32,int64,string}"},
                          {"field_delim", "string = ','"},
                          {"use_quote_delim", "bool = true"},
                          {"na_value", "string = ''", "A field that counts as missing."},
                          {"select_cols", "list(int) = []", "The columns there are outputs for."}},
                .traits = {.cannot_differentiate = true, .cost = 100},
                .shape = decode_csv_shape,
                .no_gradient = "read text and messages"});
  registry.kernel<DecodeCsv>("DecodeCSV", DeviceKind::kCpu);
}

}  // namespace millrace
