// The kinds of readers, and the ops that make them.

#include "millrace/graph/shape_context.h"
#include "millrace/io/record_reader.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/io/reader.h"
#include "millrace/ops/queue/handle.h"
#include "millrace/ops/state/variable.h"

namespace millrace {
namespace {

Result<Ref<ReadableFile>> open_file(const FileAccess& files, const std::string& path) {
  MR_TRY_ASSIGN(const FilePlace place, files.resolve(path, FileAccess::Use::kRead));
  return place.fs->open_readable(place.path);
}

// The work itself, as key and value.
class IdentitySource : public RecordSource {
 public:
  static Result<std::unique_ptr<RecordSource>> make(const AttrMap&) {
    return std::make_unique<IdentitySource>();
  }
  Status open(const FileAccess&, const std::string& work) override {
    work_ = work;
    fresh_ = true;
    return ok_status();
  }
  Result<bool> next(std::string& key, std::string& value) override {
    if (!std::exchange(fresh_, false)) return false;
    key = value = work_;
    return true;
  }
  bool exhausted() const override { return !fresh_; }
  void reset() override { fresh_ = false; }
  bool restorable() const override { return true; }

 private:
  std::string work_;
  bool fresh_ = false;
};

class WholeFileSource : public RecordSource {
 public:
  static Result<std::unique_ptr<RecordSource>> make(const AttrMap&) {
    return std::make_unique<WholeFileSource>();
  }
  Status open(const FileAccess& files, const std::string& work) override {
    MR_TRY_ASSIGN(place_, files.resolve(work, FileAccess::Use::kRead));
    work_ = work;
    fresh_ = true;
    return ok_status();
  }
  Result<bool> next(std::string& key, std::string& value) override {
    if (!fresh_) return false;
    fresh_ = false;
    MR_TRY_ASSIGN(value, read_file(*place_.fs, place_.path));
    key = work_;
    return true;
  }
  bool exhausted() const override { return !fresh_; }
  void reset() override { fresh_ = false; }
  bool restorable() const override { return true; }

 private:
  FilePlace place_;
  std::string work_;
  bool fresh_ = false;
};

// Key "file:number", counted from 1, lines of the header included.
class TextLineSource : public RecordSource {
 public:
  static Result<std::unique_ptr<RecordSource>> make(const AttrMap& attrs) {
    MR_TRY_ASSIGN(const int64_t skip, read_attr<int64_t>(attrs, "skip_header_lines"));
    if (skip < 0) return invalid_argument("skip_header_lines must not be negative, got ", skip);
    return std::make_unique<TextLineSource>(skip);
  }
  explicit TextLineSource(int64_t skip) : skip_(skip) {}

  Status open(const FileAccess& files, const std::string& work) override {
    MR_TRY_ASSIGN(auto file, open_file(files, work));
    MR_TRY_ASSIGN(input_, InputStream::make(std::move(file)));
    work_ = work;
    line_ = 0;
    return ok_status();
  }
  Result<bool> next(std::string& key, std::string& value) override {
    LineReader reader(*input_);
    for (;;) {
      const Result<std::string_view> line = reader.next();
      if (line.status().code() == Code::kOutOfRange) return false;
      MR_TRY(line.status());
      if (++line_ <= skip_) continue;
      key = str_cat(work_, ":", line_);
      value = *line;
      return true;
    }
  }
  void reset() override { input_.reset(); }

 private:
  const int64_t skip_;
  std::unique_ptr<InputStream> input_;
  std::string work_;
  int64_t line_ = 0;
};

// Key "file:number", counted from 0.
class FixedLengthSource : public RecordSource {
 public:
  struct Lengths {
    size_t header, record, footer, hop;
    Compression compression;
  };
  static Result<std::unique_ptr<RecordSource>> make(const AttrMap& attrs) {
    Lengths lengths{};
    const auto read = [&](std::string_view attr, int64_t least, size_t& length) -> Status {
      MR_TRY_ASSIGN(const int64_t value, read_attr<int64_t>(attrs, attr));
      if (value < least || value > kLongest) {
        return invalid_argument(attr, " must be from ", least, " to ", kLongest, ", got ", value);
      }
      length = static_cast<size_t>(value);
      return ok_status();
    };
    MR_TRY(read("header_bytes", 0, lengths.header));
    MR_TRY(read("record_bytes", 1, lengths.record));
    MR_TRY(read("footer_bytes", 0, lengths.footer));
    MR_TRY(read("hop_bytes", 0, lengths.hop));
    if (lengths.hop == 0) lengths.hop = lengths.record;
    if (attrs.find("encoding") != nullptr) {
      MR_TRY_ASSIGN(const std::string encoding, read_attr<std::string>(attrs, "encoding"));
      MR_TRY_ASSIGN(lengths.compression, parse_compression(encoding));
    }
    return std::make_unique<FixedLengthSource>(lengths);
  }
  explicit FixedLengthSource(const Lengths& lengths) : lengths_(lengths) {}

  Status open(const FileAccess& files, const std::string& work) override {
    MR_TRY_ASSIGN(auto file, open_file(files, work));
    MR_TRY_ASSIGN(input_,
                  InputStream::make(std::move(file), {.compression = lengths_.compression}));
    MR_TRY(skip(lengths_.header));
    work_ = work;
    number_ = 0;
    return ok_status();
  }
  Result<bool> next(std::string& key, std::string& value) override {
    MR_TRY_ASSIGN(const std::string_view bytes, input_->peek(lengths_.record + lengths_.footer));
    if (bytes.size() < lengths_.record + lengths_.footer) return false;
    value = bytes.substr(0, lengths_.record);
    key = str_cat(work_, ":", number_++);
    MR_TRY(skip(lengths_.hop));
    return true;
  }
  void reset() override { input_.reset(); }

 private:
  static constexpr int64_t kLongest = int64_t{1} << 31;

  Status skip(size_t size) {
    MR_TRY_ASSIGN(const std::string_view bytes, input_->peek(size));
    input_->take(std::min(size, bytes.size()));
    return ok_status();
  }

  const Lengths lengths_;
  std::unique_ptr<InputStream> input_;
  std::string work_;
  int64_t number_ = 0;
};

// Key "file:offset".
class RecordFileSource : public RecordSource {
 public:
  static Result<std::unique_ptr<RecordSource>> make(const AttrMap& attrs) {
    MR_TRY_ASSIGN(const std::string type, read_attr<std::string>(attrs, "compression_type"));
    MR_TRY_ASSIGN(const Compression compression, parse_compression(type));
    return std::make_unique<RecordFileSource>(compression);
  }
  explicit RecordFileSource(Compression compression) : compression_(compression) {}

  Status open(const FileAccess& files, const std::string& work) override {
    MR_TRY_ASSIGN(auto file, open_file(files, work));
    MR_TRY_ASSIGN(reader_, RecordReader::make(std::move(file), {.compression = compression_}));
    work_ = work;
    return ok_status();
  }
  Result<bool> next(std::string& key, std::string& value) override {
    const uint64_t position = reader_->position();
    const Result<std::string_view> record = reader_->next();
    if (record.status().code() == Code::kOutOfRange) return false;
    if (!record.ok()) return record.status().with_prefix(work_);
    key = str_cat(work_, ":", position);
    value = *record;
    return true;
  }
  void reset() override { reader_.reset(); }

 private:
  const Compression compression_;
  std::unique_ptr<RecordReader> reader_;
  std::string work_;
};

using SourceFactory = Result<std::unique_ptr<RecordSource>> (*)(const AttrMap&);

// Makes the reader, or finds the one of that name.
class ReaderKernel : public Kernel {
 public:
  template <class Source>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(StateName name, StateName::make(node));
    std::string title = name.shared_name.empty() ? node.name : name.shared_name;
    if (name.shared_name.empty()) {
      name.shared_name = ResourceManager::session_name(node.session_prefix, node.name);
    }
    MR_TRY(Source::make(node.attrs).status());
    return std::make_unique<ReaderKernel>(std::move(name), std::move(title), node, Source::make);
  }
  ReaderKernel(StateName name, std::string title, const KernelNode& node, SourceFactory factory)
      : name_(std::move(name)), title_(std::move(title)), node_(node), factory_(factory) {}

  Status compute(KernelContext& ctx) const override {
    const std::string_view container = container_or_default(name_.container);
    std::string_view kind = node_.op->name;
    if (kind.ends_with("V2")) kind.remove_suffix(2);
    MR_TRY_ASSIGN(const Ref<Reader> reader,
                  ctx.resources().lookup_or_create<Reader>(
                      container, name_.shared_name, [&]() -> Result<Ref<Reader>> {
                        MR_TRY_ASSIGN(auto source, factory_(node_.attrs));
                        return make_ref<Reader>(container, name_.shared_name, title_, kind,
                                                std::move(source));
                      }));
    if (reader->kind() != kind) {
      return invalid_argument("shared reader '", name_.shared_name, "' is a ", reader->kind(),
                              ", this node expects a ", kind);
    }
    if (is_ref(node_.output_types[0])) {
      ctx.set_output_ref(0, reader->handle());
    } else {
      ctx.set_output(0, make_handle(ctx, container, name_.shared_name, Reader::kTypeName, {}));
    }
    return ok_status();
  }

 private:
  const StateName name_;
  const std::string title_;
  const KernelNode node_;
  const SourceFactory factory_;
};

template <class Source>
Status handle_shape(ShapeContext& c) {
  MR_TRY(Source::make(c.attrs()).status());
  c.set_output(0, is_ref(c.output_type(0)) ? PartialShape{2} : PartialShape::scalar());
  return ok_status();
}

template <class Source>
void register_kind(Registry& registry, const std::string& name, const char* doc,
                   std::vector<OpSpec::Attr> attrs, const std::vector<OpSpec::Attr>& after = {},
                   const std::vector<OpSpec::Attr>& v2 = {}) {
  attrs.push_back({"container", "string = ''"});
  attrs.push_back({"shared_name", "string = ''", "Nodes with the same name share a reader."});
  attrs.insert(attrs.end(), after.begin(), after.end());
  const OpTraits traits = {.stateful = true, .owns_state = true, .cannot_differentiate = true};
  registry.add({.name = name,
                .doc = doc,
                .outputs = {{"reader_handle", "ref(string)"}},
                .attrs = attrs,
                .traits = traits,
                .shape = handle_shape<Source>});
  attrs.insert(attrs.end(), v2.begin(), v2.end());
  registry.add({.name = name + "V2",
                .doc = doc,
                .outputs = {{"reader_handle", "resource"}},
                .attrs = attrs,
                .traits = traits,
                .shape = handle_shape<Source>});
  for (const std::string& op : {name, name + "V2"}) {
    if (!std::is_same_v<Source, IdentitySource>) mark_reach({op}, Reach::kFiles);
    registry.kernel({.op = op, .factory = ReaderKernel::make<Source>});
  }
}

}  // namespace

void register_readers(Registry& registry) {
  register_kind<IdentitySource>(registry, "IdentityReader",
                                "A reader whose records are the items of work themselves.", {});
  register_kind<WholeFileSource>(registry, "WholeFileReader",
                                 "A reader whose records are whole files.", {});
  register_kind<TextLineSource>(registry, "TextLineReader", "A reader of the lines of text files.",
                                {{"skip_header_lines", "int = 0", "Lines that are left out."}});
  register_kind<FixedLengthSource>(
      registry, "FixedLengthRecordReader", "A reader of records of one length.",
      {{"header_bytes", "int = 0", "Bytes before the first record."},
       {"record_bytes", "int"},
       {"footer_bytes", "int = 0", "Bytes after the last record."},
       {"hop_bytes", "int = 0", "From record to record; 0: they follow each other."}},
      {}, {{"encoding", "string = ''", "'', 'ZLIB' or 'GZIP'."}});
  register_kind<RecordFileSource>(registry, "TFRecordReader", "A reader of TFRecord files.", {},
                                  {{"compression_type", "string = ''", "'', 'ZLIB' or 'GZIP'."}});
}

}  // namespace millrace
