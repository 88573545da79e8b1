#include "millrace/io/compression.h"

#include <algorithm>
#include <climits>

#ifdef MILLRACE_HAS_ZLIB
#include <zlib.h>
#endif

namespace millrace {

Result<Compression> parse_compression(std::string_view name) {
  if (name.empty() || name == "NONE") return Compression::kNone;
  if (name == "ZLIB") return Compression::kZlib;
  if (name == "GZIP") return Compression::kGzip;
  return invalid_argument("unknown compression type '", name, "'; expected \"\", ZLIB or GZIP");
}

Result<std::string> inflate_all(std::string_view data, Compression kind, uint64_t max_bytes) {
  if (kind == Compression::kNone) {
    if (data.size() > max_bytes) {
      return resource_exhausted(data.size(), " bytes are more than the ", max_bytes, " allowed");
    }
    return std::string(data);
  }
  MR_TRY_ASSIGN(std::unique_ptr<Inflater> inflater, Inflater::make(kind));
  constexpr size_t kPiece = size_t{64} << 10;
  std::string out;
  for (;;) {
    const size_t done = out.size();
    // One byte more than allowed, to notice that there is one.
    const uint64_t room = max_bytes - done;
    out.resize(done +
               std::min(static_cast<size_t>(std::min<uint64_t>(room, kPiece - 1)) + 1, kPiece));
    MR_TRY_ASSIGN(const size_t size, inflater->inflate(data, out.size() - done, out.data() + done));
    out.resize(done + size);
    if (out.size() > max_bytes) {
      return resource_exhausted("compressed data holds more than the ", max_bytes,
                                " bytes allowed");
    }
    if (size == 0) break;
  }
  if (!inflater->complete()) return data_loss("compressed data ends too early");
  return out;
}

#ifdef MILLRACE_HAS_ZLIB

namespace {

constexpr int kGzipWindow = 16;  // added to zlib's window bits: a gzip header and trailer

void give_input(z_stream& stream, std::string_view in) {
  // zlib only reads through next_in.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
  stream.avail_in = static_cast<uInt>(std::min<size_t>(in.size(), UINT_MAX));
}

std::string_view reason(const z_stream& stream, std::string_view otherwise) {
  return stream.msg != nullptr ? std::string_view(stream.msg) : otherwise;
}

}  // namespace

struct Inflater::Impl {
  ~Impl() { inflateEnd(&stream); }
  z_stream stream{};
  Compression kind{};
  bool started = false;  // bytes of the current stream were taken
  bool ended = false;    // the current stream is over
};

Inflater::Inflater(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Inflater::~Inflater() = default;

Result<std::unique_ptr<Inflater>> Inflater::make(Compression kind) {
  if (kind == Compression::kNone) return invalid_argument("no compression to undo");
  auto impl = std::make_unique<Impl>();
  impl->kind = kind;
  const int bits = MAX_WBITS + (kind == Compression::kGzip ? kGzipWindow : 0);
  if (inflateInit2(&impl->stream, bits) != Z_OK) {
    return resource_exhausted("zlib has no memory to start with");
  }
  return std::unique_ptr<Inflater>(new Inflater(std::move(impl)));
}

bool Inflater::complete() const { return !impl_->started || impl_->ended; }

void Inflater::reset() {
  inflateReset(&impl_->stream);
  impl_->started = impl_->ended = false;
}

Result<size_t> Inflater::inflate(std::string_view& in, size_t size, char* out) {
  Impl& s = *impl_;
  size_t done = 0;
  while (done < size) {
    if (complete()) {
      if (in.empty()) break;
      if (s.ended) {
        if (s.kind != Compression::kGzip) return data_loss("bytes follow the end of zlib data");
        reset();
      }
      s.started = true;
    }
    give_input(s.stream, in);
    const uInt given = s.stream.avail_in;
    s.stream.next_out = reinterpret_cast<Bytef*>(out + done);
    s.stream.avail_out = static_cast<uInt>(std::min<size_t>(size - done, UINT_MAX));
    const uInt room = s.stream.avail_out;
    const int code = ::inflate(&s.stream, Z_NO_FLUSH);
    in.remove_prefix(given - s.stream.avail_in);
    done += room - s.stream.avail_out;
    if (code == Z_BUF_ERROR) break;  // no input is left
    if (code == Z_STREAM_END) {
      s.ended = true;
    } else if (code != Z_OK) {
      return data_loss("damaged compressed data: ", reason(s.stream, "a dictionary is needed"));
    }
  }
  return done;
}

struct Deflater::Impl {
  ~Impl() { deflateEnd(&stream); }
  z_stream stream{};
};

Deflater::Deflater(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Deflater::~Deflater() = default;

Result<std::unique_ptr<Deflater>> Deflater::make(const DeflateOptions& options) {
  const auto check = [](std::string_view what, int value, int low, int high) {
    if (low <= value && value <= high) return ok_status();
    return invalid_argument("compression's ", what, " must be from ", low, " to ", high, ", got ",
                            value);
  };
  if (options.kind == Compression::kNone) return invalid_argument("no compression to do");
  MR_TRY(check("level", options.level, -1, 9));
  MR_TRY(check("window bits", options.window_bits, 9, 15));
  MR_TRY(check("memory level", options.memory_level, 1, 9));
  MR_TRY(check("strategy", options.strategy, 0, 4));
  auto impl = std::make_unique<Impl>();
  const int bits = options.window_bits + (options.kind == Compression::kGzip ? kGzipWindow : 0);
  if (deflateInit2(&impl->stream, options.level, Z_DEFLATED, bits, options.memory_level,
                   options.strategy) != Z_OK) {
    return resource_exhausted("zlib has no memory to start with");
  }
  return std::unique_ptr<Deflater>(new Deflater(std::move(impl)));
}

Status Deflater::deflate(std::string_view in, Mode mode, std::string& out) {
  z_stream& stream = impl_->stream;
  constexpr size_t kPiece = size_t{64} << 10;
  const int flush = mode == Mode::kMore    ? Z_NO_FLUSH
                    : mode == Mode::kFlush ? Z_SYNC_FLUSH
                                           : Z_FINISH;
  for (;;) {
    give_input(stream, in);
    const uInt given = stream.avail_in;
    const size_t done = out.size();
    out.resize(done + kPiece);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    stream.avail_out = static_cast<uInt>(kPiece);
    const int code = ::deflate(&stream, given == in.size() ? flush : Z_NO_FLUSH);
    in.remove_prefix(given - stream.avail_in);
    out.resize(done + kPiece - stream.avail_out);
    if (code == Z_STREAM_END) return ok_status();
    if (code != Z_OK && code != Z_BUF_ERROR) return internal("zlib failed with code ", code);
    if (in.empty() && stream.avail_out > 0 && mode != Mode::kFinish) return ok_status();
  }
}

#else

struct Inflater::Impl {};
struct Deflater::Impl {};

namespace {
Status no_zlib() { return unimplemented("this build has no zlib, so no ZLIB or GZIP data"); }
}  // namespace

Inflater::Inflater(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Inflater::~Inflater() = default;
Result<std::unique_ptr<Inflater>> Inflater::make(Compression) { return no_zlib(); }
bool Inflater::complete() const { return true; }
void Inflater::reset() {}
Result<size_t> Inflater::inflate(std::string_view&, size_t, char*) { return no_zlib(); }

Deflater::Deflater(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Deflater::~Deflater() = default;
Result<std::unique_ptr<Deflater>> Deflater::make(const DeflateOptions&) { return no_zlib(); }
Status Deflater::deflate(std::string_view, Mode, std::string&) { return no_zlib(); }

#endif

}  // namespace millrace
