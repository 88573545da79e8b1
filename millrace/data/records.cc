// Datasets of what files hold: records, lines, pieces of one length.

#include <algorithm>

#include "millrace/base/file_access.h"
#include "millrace/data/batch_rows.h"
#include "millrace/data/dataset_op.h"
#include "millrace/data/state.h"
#include "millrace/io/input_stream.h"
#include "millrace/io/record_reader.h"
#include "millrace/kernel/graph_rights.h"

namespace millrace::data {
namespace {

struct FileOptions {
  Compression compression = Compression::kNone;
  size_t chunk_bytes = size_t{256} << 10;
  // Where to begin in each file; none: at its beginning.
  std::vector<uint64_t> offsets = {};
  // Of pieces of one length.
  uint64_t header_bytes = 0, record_bytes = 0, footer_bytes = 0;
};

// How a kind of file is read. next() is OUT_OF_RANGE at the end of the file; position() is where
// what it gives next begins, for seek().
class Records {
 public:
  static constexpr std::string_view kName = "TFRecord";
  static Result<std::unique_ptr<Records>> make(Ref<ReadableFile> file, const FileOptions& options) {
    auto records = std::make_unique<Records>();
    MR_TRY_ASSIGN(records->reader_,
                  RecordReader::make(std::move(file), {.compression = options.compression,
                                                       .chunk_bytes = options.chunk_bytes}));
    return records;
  }
  Result<std::string_view> next() { return reader_->next(); }
  uint64_t position() const { return reader_->position(); }
  Status seek(uint64_t position) { return reader_->seek(position); }

 private:
  std::unique_ptr<RecordReader> reader_;
};

class Lines {
 public:
  static constexpr std::string_view kName = "TextLine";
  static Result<std::unique_ptr<Lines>> make(Ref<ReadableFile> file, const FileOptions& options) {
    MR_TRY_ASSIGN(std::unique_ptr<InputStream> input,
                  InputStream::make(std::move(file), {.compression = options.compression,
                                                      .chunk_bytes = options.chunk_bytes}));
    return std::make_unique<Lines>(std::move(input));
  }
  explicit Lines(std::unique_ptr<InputStream> input) : input_(std::move(input)), lines_(*input_) {}
  Result<std::string_view> next() { return lines_.next(); }
  uint64_t position() const { return input_->position(); }
  Status seek(uint64_t position) { return input_->seek(position); }

 private:
  const std::unique_ptr<InputStream> input_;
  LineReader lines_;
};

class Pieces {
 public:
  static constexpr std::string_view kName = "FixedLengthRecord";
  static Result<std::unique_ptr<Pieces>> make(Ref<ReadableFile> file, const FileOptions& options) {
    auto pieces = std::make_unique<Pieces>();
    if (options.compression == Compression::kNone) {
      MR_TRY_ASSIGN(const uint64_t size, file->size());
      const uint64_t around = options.header_bytes + options.footer_bytes;
      if (size < around || (size - around) % options.record_bytes != 0) {
        return invalid_argument("Excluding the header (", options.header_bytes,
                                " bytes) and footer (", options.footer_bytes,
                                " bytes), input file has body length ",
                                size < around ? 0 : size - around,
                                " bytes, which is not an exact multiple of the record length (",
                                options.record_bytes, " bytes).");
      }
    }
    MR_TRY_ASSIGN(pieces->input_,
                  InputStream::make(std::move(file), {.compression = options.compression,
                                                      .chunk_bytes = options.chunk_bytes}));
    pieces->options_ = options;
    const Status status = pieces->input_->seek(options.header_bytes);
    if (status.code() == Code::kOutOfRange) {  // which would be the end of all files
      return data_loss("the file ends within its header of ", options.header_bytes, " bytes");
    }
    MR_TRY(status);
    return pieces;
  }
  Result<std::string_view> next() {
    input_->take(pending_);
    pending_ = 0;
    const size_t wanted = options_.record_bytes + options_.footer_bytes;
    MR_TRY_ASSIGN(const std::string_view bytes, input_->peek(wanted));
    if (bytes.size() < wanted) {
      if (bytes.size() <= options_.footer_bytes) return out_of_range("end of the file");
      return data_loss("the file ends within a record of ", options_.record_bytes, " bytes");
    }
    pending_ = options_.record_bytes;
    return bytes.substr(0, options_.record_bytes);
  }
  uint64_t position() const { return input_->position() + pending_; }
  Status seek(uint64_t position) {
    pending_ = 0;
    return input_->seek(position);
  }

 private:
  std::unique_ptr<InputStream> input_;
  FileOptions options_;
  size_t pending_ = 0;  // given, but still in the window
};

template <class Reader>
class FileDataset final : public Dataset {
 public:
  FileDataset(std::vector<std::string> names, FileOptions options)
      : Dataset(Reader::kName, {{DType::kString}, {PartialShape::scalar()}}, {}, true),
        names_(std::move(names)),
        options_(std::move(options)) {}
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  const std::vector<std::string> names_;
  const FileOptions options_;
};

// The files one after the other.
template <class Reader>
class FileIterator final : public IteratorOf<FileDataset<Reader>> {
 public:
  FileIterator(const FileDataset<Reader>& dataset, const Iteration& iteration)
      : IteratorOf<FileDataset<Reader>>(dataset, iteration) {}

 protected:
  Status fields(StateFields& state) override {
    const auto files = static_cast<int64_t>(this->dataset().names_.size());
    MR_TRY(state.number(file_, 0, files));
    bool inside = reader_ != nullptr;
    MR_TRY(state.flag(inside));
    if (state.reading()) reader_ = nullptr;
    if (!inside) return ok_status();
    int64_t position = state.reading() ? 0 : static_cast<int64_t>(reader_->position());
    MR_TRY(state.number(position));
    if (!state.reading()) return ok_status();
    if (file_ == files) return data_loss("the state is inside of a file after the last");
    MR_TRY(open());
    const auto place = static_cast<uint64_t>(position);
    const bool plain = this->dataset().options_.compression == Compression::kNone;
    Status status = plain && place > file_bytes_ ? out_of_range("") : reader_->seek(place);
    if (status.code() != Code::kOutOfRange) return status;
    return data_loss("the state is at byte ", position, " of ", this->dataset().names_[file_],
                     ", which has fewer");
  }
  Status produce(Element& out, bool& end) override {
    std::string_view record;
    MR_TRY(read(record, end));
    if (end) return ok_status();
    out.resize(1);
    out[0] = Tensor::scalar(std::string(record));
    return ok_status();
  }
  Status next_rows(int64_t count, BatchRows& rows, bool& end) override {
    return this->measure_rows(rows, [&]() -> Status {
      std::string_view record;
      for (int64_t i = 0; i < count; ++i) {
        MR_TRY(read(record, end));
        if (end) break;
        MR_TRY(rows.add_string(record));
      }
      return ok_status();
    });
  }

 private:
  // The next record; valid until the next call.
  Status read(std::string_view& record, bool& end) {
    for (;;) {
      if (this->environment().stopped()) return this->environment().status();
      end = file_ >= static_cast<int64_t>(this->dataset().names_.size());
      if (end) return ok_status();
      if (reader_ == nullptr) {
        Status status = open();
        if (!status.ok()) return leave_file(status);
      }
      Result<std::string_view> next = reader_->next();
      if (next.ok()) {
        record = *next;
        return ok_status();
      }
      // What is behind damage cannot be found: the next file follows.
      Status status = leave_file(next.status());
      if (status.code() != Code::kOutOfRange) return status;
    }
  }
  Status open() {
    MR_TRY_ASSIGN(const FilePlace place,
                  this->environment().device().files().resolve(name(), FileAccess::Use::kRead));
    MR_TRY_ASSIGN(Ref<ReadableFile> file, place.fs->open_readable(place.path));
    MR_TRY_ASSIGN(file_bytes_, file->size());
    MR_TRY_ASSIGN(reader_, Reader::make(std::move(file), this->dataset().options_));
    const std::vector<uint64_t>& offsets = this->dataset().options_.offsets;
    return offsets.empty() ? ok_status() : reader_->seek(offsets[static_cast<size_t>(file_)]);
  }
  // Goes on to the next file; the error with the name of this one.
  Status leave_file(const Status& status) {
    reader_ = nullptr;
    Status named = status.with_prefix(name());
    ++file_;
    return named;
  }
  const std::string& name() const { return this->dataset().names_[static_cast<size_t>(file_)]; }

  int64_t file_ = 0;
  uint64_t file_bytes_ = 0;  // when it was opened
  std::unique_ptr<Reader> reader_;
};

template <class Reader>
Result<std::unique_ptr<Iterator>> FileDataset<Reader>::iterate(const Iteration& iteration) const {
  return std::make_unique<FileIterator<Reader>>(*this, iteration);
}

Result<std::vector<std::string>> names_input(const KernelContext& ctx) {
  const Tensor& names = ctx.input(0);
  if (names.rank() > 1) {
    return invalid_argument("`filenames` must be a scalar or a vector, got ", names.shape());
  }
  auto data = names.data<std::string>();
  return std::vector<std::string>(data.begin(), data.end());
}

Status read_options(const KernelContext& ctx, int compression, int buffer, FileOptions& options) {
  if (compression >= 0) {
    MR_TRY_ASSIGN(const std::string kind, string_input(ctx, compression));
    MR_TRY_ASSIGN(options.compression, parse_compression(kind));
  }
  MR_TRY_ASSIGN(const int64_t bytes, count_input(ctx, buffer, "`buffer_size`", 0));
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  if (bytes > 0)
    options.chunk_bytes = static_cast<size_t>(std::clamp<int64_t>(bytes, 4096, kMostBytes));
  return ok_status();
}

template <class Reader>
Result<Ref<Dataset>> make_files(KernelContext& ctx) {
  MR_TRY_ASSIGN(std::vector<std::string> names, names_input(ctx));
  FileOptions options;
  MR_TRY(read_options(ctx, 1, 2, options));
  return make_ref<FileDataset<Reader>>(std::move(names), options);
}

Result<Ref<Dataset>> make_records_from(KernelContext& ctx) {
  MR_TRY_ASSIGN(std::vector<std::string> names, names_input(ctx));
  FileOptions options;
  MR_TRY(read_options(ctx, 1, 2, options));
  MR_TRY_ASSIGN(const std::vector<int64_t> offsets, ctx.int_vector_input(3));
  if (!offsets.empty() && offsets.size() != names.size()) {
    return invalid_argument("`byte_offsets` must have one element for each of ", names.size(),
                            " files, got ", offsets.size());
  }
  for (const int64_t offset : offsets) {
    if (offset < 0) return invalid_argument("`byte_offsets` must not be negative, got ", offset);
    options.offsets.push_back(static_cast<uint64_t>(offset));
  }
  return make_ref<FileDataset<Records>>(std::move(names), std::move(options));
}

template <bool kCompressed>
Result<Ref<Dataset>> make_pieces(KernelContext& ctx) {
  MR_TRY_ASSIGN(std::vector<std::string> names, names_input(ctx));
  FileOptions options;
  MR_TRY(read_options(ctx, kCompressed ? 5 : -1, 4, options));
  // Of one record, which is held in memory.
  constexpr int64_t kMostBytes = int64_t{1} << 31;
  const auto bytes = [&](int i, const char* name, int64_t least, uint64_t& to) -> Status {
    MR_TRY_ASSIGN(const int64_t value, count_input(ctx, i, name, least));
    if (value > kMostBytes) {
      return invalid_argument(name, " must be at most ", kMostBytes, ", got ", value);
    }
    to = static_cast<uint64_t>(value);
    return ok_status();
  };
  MR_TRY(bytes(1, "`header_bytes`", 0, options.header_bytes));
  MR_TRY(bytes(2, "`record_bytes`", 1, options.record_bytes));
  MR_TRY(bytes(3, "`footer_bytes`", 0, options.footer_bytes));
  return make_ref<FileDataset<Pieces>>(std::move(names), options);
}

}  // namespace

void register_records(Registry& registry) {
  mark_reach({"TFRecordDataset", "TFRecordDatasetV2", "TextLineDataset", "FixedLengthRecordDataset",
              "FixedLengthRecordDatasetV2"},
             Reach::kFiles);
  const OpSpec::Arg names = {"filenames", "string"};
  const OpSpec::Arg compression = {"compression_type", "string", "'', 'ZLIB' or 'GZIP'."};
  const OpSpec::Arg buffer = {"buffer_size", "int64", "Bytes read at once; 0: as fits."};
  const OpTraits traits = {.stateful = true};
  add_source_op(registry,
                {.name = "TFRecordDataset",
                 .doc = "The records of TFRecord files.",
                 .inputs = {names, compression, buffer},
                 .traits = traits},
                dataset_kernel<make_files<Records>>);
  add_source_op(registry,
                {.name = "TFRecordDatasetV2",
                 .doc = "The records of TFRecord files, from some place on.",
                 .inputs = {names,
                            compression,
                            buffer,
                            {"byte_offsets", "int64", "Of each file; none: the beginning."}},
                 .traits = traits},
                dataset_kernel<make_records_from>);
  add_source_op(registry,
                {.name = "TextLineDataset",
                 .doc = "The lines of text files.",
                 .inputs = {names, compression, buffer},
                 .traits = traits},
                dataset_kernel<make_files<Lines>>);
  OpSpec pieces = {.name = "FixedLengthRecordDataset",
                   .doc = "Pieces of one length of files.",
                   .inputs = {names,
                              {"header_bytes", "int64"},
                              {"record_bytes", "int64"},
                              {"footer_bytes", "int64"},
                              buffer},
                   .traits = traits};
  add_source_op(registry, pieces, dataset_kernel<make_pieces<false>>);
  pieces.name = "FixedLengthRecordDatasetV2";
  pieces.inputs.push_back(compression);
  add_source_op(registry, pieces, dataset_kernel<make_pieces<true>>);
}

}  // namespace millrace::data
