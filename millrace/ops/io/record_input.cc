// Records of many files, shuffled, without end.

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "millrace/base/mutex.h"
#include "millrace/graph/shape_context.h"
#include "millrace/io/record_reader.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/kernel/registry.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/ops/io/matching_files.h"
#include "millrace/ops/state/variable.h"

namespace millrace {
namespace {

struct Settings {
  std::string pattern;
  uint64_t seed = 0;
  float shift = 0;
  size_t buffer_size = 1;
  Compression compression = Compression::kNone;

  static Result<Settings> read(const AttrMap& attrs) {
    Settings settings;
    MR_TRY_ASSIGN(settings.pattern, read_attr<std::string>(attrs, "file_pattern"));
    if (settings.pattern.empty()) return invalid_argument("file_pattern must not be empty");
    MR_TRY_ASSIGN(const int64_t seed, read_attr<int64_t>(attrs, "file_random_seed"));
    settings.seed = static_cast<uint64_t>(seed);
    MR_TRY_ASSIGN(settings.shift, read_attr<float>(attrs, "file_shuffle_shift_ratio"));
    if (!std::isfinite(settings.shift)) {
      return invalid_argument("file_shuffle_shift_ratio must be finite, got ", settings.shift);
    }
    MR_TRY_ASSIGN(const int64_t buffer, read_attr<int64_t>(attrs, "file_buffer_size"));
    settings.buffer_size = static_cast<size_t>(buffer);
    MR_TRY_ASSIGN(const std::string type, read_attr<std::string>(attrs, "compression_type"));
    MR_TRY_ASSIGN(settings.compression, parse_compression(type));
    return settings;
  }
};

// Reads all records once in every epoch, the files in an order of their own, and gives them out by
// chance from a buffer. No epoch begins before the one before it is given out. Thread-safe.
class RecordFlow final : public Resource {
 public:
  static constexpr std::string_view kTypeName = "RecordFlow";

  explicit RecordFlow(Settings settings)
      : settings_(std::move(settings)), random_(settings_.seed) {}

  Status next(const FileAccess& files, const CancellationToken* cancel,
              std::span<std::string> out) {
    MutexLock lock(mu_);
    for (std::string& record : out) {
      MR_TRY(fill(files, cancel));
      std::swap(buffer_[random_() % buffer_.size()], buffer_.back());
      record = std::move(buffer_.back());
      buffer_.pop_back();
    }
    return ok_status();
  }

  std::string describe() const override { return str_cat("records of ", settings_.pattern); }

 private:
  // Fills the buffer from what is left of the epoch; begins the next one when nothing is.
  Status fill(const FileAccess& files, const CancellationToken* cancel) MR_REQUIRES(mu_) {
    MR_TRY(read(files, cancel));
    if (!buffer_.empty()) return ok_status();
    MR_TRY(begin_epoch(files, cancel));
    MR_TRY(read(files, cancel));
    if (!buffer_.empty()) return ok_status();
    return not_found("the files that ", settings_.pattern, " matches have no records");
  }

  Status begin_epoch(const FileAccess& files, const CancellationToken* cancel) MR_REQUIRES(mu_) {
    files_.clear();
    MR_TRY(match_pattern(files, settings_.pattern, cancel, files_));
    if (files_.empty()) {
      return not_found("Found no files at the specified path: ", settings_.pattern);
    }
    std::sort(files_.begin(), files_.end());
    std::shuffle(files_.begin(), files_.end(), random_);
    const double turn = std::fmod(static_cast<double>(settings_.shift) * epoch_++, 1.0);
    const auto count = static_cast<double>(files_.size());
    const auto first = static_cast<ptrdiff_t>(std::abs(turn) * count);
    std::rotate(files_.begin(), files_.begin() + first, files_.end());
    return ok_status();
  }

  Status read(const FileAccess& files, const CancellationToken* cancel) MR_REQUIRES(mu_) {
    while (buffer_.size() < settings_.buffer_size) {
      if (cancel != nullptr && cancel->cancelled()) return cancel->status();
      if (reader_ == nullptr) {
        if (files_.empty()) return ok_status();
        const std::string path = std::move(files_.back());
        files_.pop_back();
        MR_TRY_ASSIGN(const FilePlace place, files.resolve(path, FileAccess::Use::kRead));
        MR_TRY_ASSIGN(Ref<ReadableFile> file, place.fs->open_readable(place.path));
        MR_TRY_ASSIGN(reader_,
                      RecordReader::make(std::move(file), {.compression = settings_.compression}));
      }
      const Result<std::string_view> record = reader_->next();
      if (record.ok()) {
        buffer_.emplace_back(*record);
        continue;
      }
      reader_.reset();
      if (record.status().code() != Code::kOutOfRange) return record.status();
    }
    return ok_status();
  }

  const Settings settings_;
  Mutex mu_;
  std::mt19937_64 random_ MR_GUARDED_BY(mu_);
  int64_t epoch_ MR_GUARDED_BY(mu_) = 0;
  std::vector<std::string> files_ MR_GUARDED_BY(mu_);  // still to be read in this epoch
  std::unique_ptr<RecordReader> reader_ MR_GUARDED_BY(mu_);
  std::vector<std::string> buffer_ MR_GUARDED_BY(mu_);
};

class RecordInput : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(Settings settings, Settings::read(node.attrs));
    MR_TRY_ASSIGN(const int64_t batch, node.attr<int64_t>("batch_size"));
    return std::make_unique<RecordInput>(
        ResourceManager::session_name(node.session_prefix, node.name), std::move(settings), batch);
  }
  RecordInput(std::string name, Settings settings, int64_t batch)
      : name_(std::move(name)), settings_(std::move(settings)), batch_(batch) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const Ref<RecordFlow> flow,
                  ctx.resources().lookup_or_create<RecordFlow>(
                      container_or_default(""), name_, [&]() -> Result<Ref<RecordFlow>> {
                        return make_ref<RecordFlow>(settings_);
                      }));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{batch_}));
    return flow->next(ctx.device().files(), ctx.cancel(), out->mutable_data<std::string>());
  }

 private:
  const std::string name_;
  const Settings settings_;
  const int64_t batch_;
};

Status records_shape(ShapeContext& c) {
  MR_TRY(Settings::read(c.attrs()).status());
  MR_TRY_ASSIGN(const int64_t batch, c.attr<int64_t>("batch_size"));
  c.set_output(0, PartialShape{batch});
  return ok_status();
}

}  // namespace

void register_record_input(Registry& registry) {
  mark_reach({"RecordInput"}, Reach::kFiles);
  registry.add({.name = "RecordInput",
                .doc = "Records of TFRecord files, shuffled, without end.",
                .outputs = {{"records", "string"}},
                .attrs = {{"file_pattern", "string"},
                          {"file_random_seed", "int = 301"},
                          {"file_shuffle_shift_ratio", "float = 0"},
                          {"file_buffer_size", "int = 10000 >= 1",
                           "How many records there are to choose from."},
                          {"file_parallelism", "int = 16", "Files are read one after another."},
                          {"batch_size", "int = 32 >= 1"},
                          {"compression_type", "string = ''"}},
                .traits = {.stateful = true, .owns_state = true, .blocks = true},
                .shape = records_shape});
  registry.kernel<RecordInput>("RecordInput", DeviceKind::kCpu);
}

}  // namespace millrace
