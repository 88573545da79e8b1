#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

// Where in the user's program a node was made: interned, so a node holds a number. 0: not known.
using OriginId = int32_t;

struct Origin {
  std::string file;
  int line = 0;
  std::string function;
  std::string code;  // the text of the line, when known

  friend bool operator==(const Origin&, const Origin&) = default;
};

// Keeps `origin` (the same answer for equal ones) for the life of the process. Thread-safe.
OriginId intern_origin(const Origin& origin);
// The origin of an id that intern_origin gave; an empty one for 0.
const Origin& origin_of(OriginId id);
// "defined at train.py:14  h = tf.matmul(x, w)"; empty for an unknown origin.
std::string describe_origin(OriginId id);

}  // namespace millrace
