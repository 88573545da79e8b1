#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <memory>

#include "python/src/message_view.h"

namespace millrace::python {

namespace {

// Keeps the first mistake in a text.
class FirstError : public pb::io::ErrorCollector {
 public:
  void AddError(int line, pb::io::ColumnNumber column,  // NOLINT(readability-identifier-naming)
                const std::string& message) override {
    if (!text_.empty()) return;
    text_ = line < 0 ? message
                     : std::to_string(line + 1) + ":" + std::to_string(column + 1) + ": " + message;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Text format and JSON are written from a copy: see message_view.h about maps.
std::unique_ptr<pb::Message> copy_of(MessageView& view) {
  std::unique_ptr<pb::Message> copy(view.prototype->New());
  copy->MergeFrom(view.read());
  return copy;
}

std::string to_text(MessageView& view, bool as_utf8, bool as_one_line, bool short_lists,
                    bool unknown_fields, int indent) {
  pb::TextFormat::Printer printer;
  printer.SetUseUtf8StringEscaping(as_utf8);
  printer.SetSingleLineMode(as_one_line);
  printer.SetUseShortRepeatedPrimitives(short_lists);
  printer.SetHideUnknownFields(!unknown_fields);
  printer.SetInitialIndentLevel(indent / 2);
  std::string text;
  printer.PrintToString(*copy_of(view), &text);
  if (as_one_line && !text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

void merge_text(MessageView& view, const std::string& text, bool allow_unknown_field) {
  const std::unique_ptr<pb::Message> parsed(view.prototype->New());
  FirstError error;
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(kDeepestNesting);
  parser.AllowUnknownField(allow_unknown_field);
  if (!parser.ParseFromString(text, parsed.get())) {
    raise_python(decode_error().ptr(),
                 "text of a " + std::string(view.type()->full_name()) + ": " + error.text());
  }
  view.write().MergeFrom(*parsed);
}

std::string to_json(MessageView& view, bool defaults, bool proto_names, bool enum_numbers) {
  pb::util::JsonPrintOptions options;
  options.always_print_primitive_fields = defaults;
  options.preserve_proto_field_names = proto_names;
  options.always_print_enums_as_ints = enum_numbers;
  std::string json;
  const auto status = pb::util::MessageToJsonString(*copy_of(view), &json, options);
  if (!status.ok()) {
    raise_python(encode_error().ptr(),
                 std::string(view.type()->full_name()) + ": " + std::string(status.message()));
  }
  return json;
}

void merge_json(MessageView& view, const std::string& json, bool ignore_unknown_fields) {
  const std::unique_ptr<pb::Message> parsed(view.prototype->New());
  pb::util::JsonParseOptions options;
  options.ignore_unknown_fields = ignore_unknown_fields;
  const auto status = pb::util::JsonStringToMessage(json, parsed.get(), options);
  if (!status.ok()) {
    raise_python(decode_error().ptr(), "JSON of a " + std::string(view.type()->full_name()) + ": " +
                                           std::string(status.message()));
  }
  view.write().MergeFrom(*parsed);
}

}  // namespace

void bind_message_formats(nb::module_& m) {
  m.def("message_to_text", &to_text, nb::arg("message"), nb::arg("as_utf8") = false,
        nb::arg("as_one_line") = false, nb::arg("short_lists") = false,
        nb::arg("unknown_fields") = false, nb::arg("indent") = 0);
  m.def("merge_text", &merge_text, nb::arg("message"), nb::arg("text"),
        nb::arg("allow_unknown_field") = false);
  m.def("message_to_json", &to_json, nb::arg("message"), nb::arg("defaults") = false,
        nb::arg("proto_names") = false, nb::arg("enum_numbers") = false);
  m.def("merge_json", &merge_json, nb::arg("message"), nb::arg("json"),
        nb::arg("ignore_unknown_fields") = false);
  const auto show = [](MessageView& self) { return to_text(self, true, false, false, true, 0); };
  const nb::handle message = nb::type<MessageView>();
  for (const char* name : {"__str__", "__repr__"}) {
    message.attr(name) =
        nb::cpp_function(show, nb::name(name), nb::scope(message), nb::is_method());
  }
}

}  // namespace millrace::python
