#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

// Takes a JSON text apart, as far as headers of files need it: objects, arrays, strings, and whole
// numbers that are not negative. Calls answer false where the text is another, and from then on.
// Nothing recurses, so no text is too deep.
//
//   JsonReader json(text);
//   json.begin('{'); while (json.next('}')) { json.key(name); json.number(n); }
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : rest_(text) {}

  bool ok() const { return ok_; }
  // '{' or '['.
  bool begin(char bracket);
  // Before each element: true when there is one, false after the last, whose bracket is taken.
  bool next(char close);
  bool string(std::string& out);
  // A string and the colon after it.
  bool key(std::string& out);
  bool number(uint64_t& out);
  // Whether nothing but white space is left.
  bool at_end();

 private:
  bool fail() { return ok_ = false; }
  void skip_space();
  bool take(char c);
  bool escape(std::string& out);
  bool hex(uint32_t& out);

  std::string_view rest_;
  bool ok_ = true;
  bool first_ = false;  // the next element is the first of its object or array
};

// Whether the bytes are UTF-8, without surrogates and overlong forms.
bool is_utf8(std::string_view bytes);

// The text as a JSON string, in quotation marks. It is UTF-8.
std::string json_quoted(std::string_view text);

}  // namespace millrace
