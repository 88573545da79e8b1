#include "millrace/data/file_cache.h"

#include <unistd.h>

#include <atomic>

#include "millrace/base/file_access.h"
#include "millrace/data/state.h"
#include "millrace/io/record_reader.h"
#include "millrace/io/record_writer.h"
#include "millrace/tensor/tensor_proto.h"
#include "proto/tensor.pb.h"

namespace millrace::data {
namespace {

// Elements on their way to the file.
class Writer {
 public:
  static Result<std::unique_ptr<Writer>> make(const FilePlace& place) {
    static std::atomic<int64_t> count{0};
    auto writer = std::make_unique<Writer>();
    writer->place_ = place;
    writer->aside_ = str_cat(place.path, ".", getpid(), "_", count.fetch_add(1), ".part");
    MR_TRY_ASSIGN(Ref<WritableFile> file, place.fs->open_writable(writer->aside_));
    MR_TRY_ASSIGN(writer->records_, RecordWriter::make(std::move(file)));
    return writer;
  }
  ~Writer() {
    if (!finished_) (void)place_.fs->remove(aside_);
  }

  Status write(const Element& element) {
    tensorflow::TensorProto message;
    for (const Tensor& component : element) {
      message.Clear();
      MR_TRY(tensor_to_proto(component, message));
      MR_TRY(records_->write(message.SerializeAsString()));
    }
    return ok_status();
  }
  Status finish() {
    MR_TRY(records_->sync());
    MR_TRY(records_->close());
    MR_TRY(place_.fs->rename(aside_, place_.path));
    finished_ = true;
    return ok_status();
  }

 private:
  FilePlace place_;
  std::string aside_;
  std::unique_ptr<RecordWriter> records_;
  bool finished_ = false;
};

class FileCacheDataset final : public Dataset {
 public:
  FileCacheDataset(Ref<Dataset> input, std::string name)
      : Dataset("Cache", input->spec(), {input}, true), name_(std::move(name) + ".cache") {}
  int64_t size() const override { return inputs()[0]->size(); }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  const std::string name_;
};

class FileCacheIterator final : public IteratorOf<FileCacheDataset> {
 public:
  FileCacheIterator(const FileCacheDataset& dataset, const Iteration& iteration)
      : IteratorOf(dataset, iteration) {}

 protected:
  // Whoever goes on in the middle cannot write the whole file: it makes elements only.
  Status fields(StateFields& state) override {
    bool reads = reader_ != nullptr;
    MR_TRY(state.flag(reads));
    MR_TRY(state.flag(ended_));
    if (reads) {
      int64_t position = state.reading() ? 0 : static_cast<int64_t>(reader_->position());
      MR_TRY(state.number(position));
      if (state.reading()) {
        MR_TRY_ASSIGN(const FilePlace place, find(FileAccess::Use::kRead));
        MR_TRY(open(place));
        MR_TRY_ASSIGN(const FileInfo info, place.fs->info(place.path));
        if (static_cast<uint64_t>(position) > info.size) return damaged("it became shorter");
        MR_TRY(reader_->seek(static_cast<uint64_t>(position)));
      }
    }
    MR_TRY(state.iterator(input_, [this] { return iterate_input(); }));
    begun_ = reads || input_ != nullptr;
    return ok_status();
  }
  Status produce(Element& out, bool& end) override {
    if (!begun_) MR_TRY(begin());
    end = ended_;
    if (end) return ok_status();
    if (reader_ != nullptr) return read(out, end);
    MR_TRY(input_->next(out, ended_));
    end = ended_;
    if (writer_ != nullptr) MR_TRY(end ? writer_->finish() : writer_->write(out));
    return ok_status();
  }

 private:
  Result<FilePlace> find(FileAccess::Use use) const {
    return environment().device().files().resolve(dataset().name_, use);
  }
  Status open(const FilePlace& place) {
    MR_TRY_ASSIGN(Ref<ReadableFile> file, place.fs->open_readable(place.path));
    MR_TRY_ASSIGN(reader_, RecordReader::make(std::move(file)));
    return ok_status();
  }
  // From the file where it is there, else into it.
  Status begin() {
    MR_TRY_ASSIGN(const FilePlace place, find(FileAccess::Use::kRead));
    MR_TRY_ASSIGN(const bool exists, place.fs->exists(place.path));
    if (exists) {
      MR_TRY(open(place));
    } else {
      MR_TRY_ASSIGN(const FilePlace target, find(FileAccess::Use::kWrite));
      MR_TRY_ASSIGN(writer_, Writer::make(target));
      MR_TRY_ASSIGN(input_, iterate_input());
    }
    begun_ = true;
    return ok_status();
  }
  Status read(Element& out, bool& end) {
    const std::vector<DType>& types = dataset().spec().types;
    out.resize(types.size());
    tensorflow::TensorProto message;
    for (size_t i = 0; i < types.size(); ++i) {
      const Result<std::string_view> record = reader_->next();
      if (i == 0 && record.status().code() == Code::kOutOfRange) {
        ended_ = end = true;
        return ok_status();
      }
      if (!record.ok()) return damaged(record.status().message());
      if (record->size() > INT32_MAX ||
          !message.ParseFromArray(record->data(), static_cast<int>(record->size()))) {
        return damaged("a record that is no tensor");
      }
      Result<Tensor> tensor = tensor_from_proto(message);
      if (!tensor.ok()) return damaged(tensor.status().message());
      if (tensor->dtype() != types[i]) return damaged("a tensor of another type");
      out[i] = *std::move(tensor);
    }
    return ok_status();
  }
  Status damaged(std::string_view what) const {
    return data_loss("the cache '", dataset().name_, "' is damaged: ", what);
  }

  bool begun_ = false, ended_ = false;
  std::unique_ptr<RecordReader> reader_;
  std::unique_ptr<Writer> writer_;
  std::unique_ptr<Iterator> input_;
};

Result<std::unique_ptr<Iterator>> FileCacheDataset::iterate(const Iteration& iteration) const {
  return std::make_unique<FileCacheIterator>(*this, iteration);
}

}  // namespace

Ref<Dataset> make_file_cache_dataset(Ref<Dataset> input, std::string name) {
  return make_ref<FileCacheDataset>(std::move(input), std::move(name));
}

}  // namespace millrace::data
