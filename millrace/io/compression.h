#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "millrace/base/status.h"

// zlib and gzip, a piece at a time. Without zlib in the build every maker is UNIMPLEMENTED and says
// so.

namespace millrace {

enum class Compression : uint8_t { kNone, kZlib, kGzip };

// "" (or "NONE"), "ZLIB", "GZIP"; INVALID_ARGUMENT otherwise.
Result<Compression> parse_compression(std::string_view name);

// Undoes compression. Memory is a window of some 40 KB, whatever the data claims. Not thread-safe.
class Inflater {
 public:
  // kZlib or kGzip. A gzip file may consist of several streams one after another.
  static Result<std::unique_ptr<Inflater>> make(Compression kind);
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Takes bytes from the front of `in`, which is moved past them, and writes at most `size` bytes
  // to `out`; returns how many. 0 with `size` > 0: it needs more input. DATA_LOSS for bytes that
  // are not compressed data, and for bytes after the end of it.
  Result<size_t> inflate(std::string_view& in, size_t size, char* out);
  // Whether the data may end here: nothing has begun, or all that began has ended.
  bool complete() const;
  // As new.
  void reset();

 private:
  struct Impl;
  explicit Inflater(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct DeflateOptions {
  Compression kind = Compression::kZlib;
  // zlib's parameters; -1 is zlib's own choice of a level.
  int level = -1;
  int window_bits = 15;  // 9 to 15
  int memory_level = 8;  // 1 to 9
  int strategy = 0;      // 0 to 4
};

// Compresses. Not thread-safe.
class Deflater {
 public:
  static Result<std::unique_ptr<Deflater>> make(const DeflateOptions& options);
  ~Deflater();
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  enum class Mode : uint8_t {
    kMore,    // output may stay inside
    kFlush,   // all input so far can be read from the output so far
    kFinish,  // the end; nothing may follow
  };
  // Appends what comes of `in` to `out`.
  Status deflate(std::string_view in, Mode mode, std::string& out);

 private:
  struct Impl;
  explicit Deflater(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// All of `data`; RESOURCE_EXHAUSTED when it comes to more than `max_bytes`, DATA_LOSS when it is
// damaged or ends too early. kNone is a copy.
Result<std::string> inflate_all(std::string_view data, Compression kind,
                                uint64_t max_bytes = uint64_t{1} << 32);

}  // namespace millrace
