// States of iterators that somebody changed: restoring one gives a position to go on from, or an
// error that is the state's fault.
//
// The input is a byte that chooses a pipeline, one that says after how many elements its state is
// saved, and edits of that state, four bytes each: what to do, where (two bytes), and with what.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/check.h"
#include "millrace/base/file_access.h"
#include "millrace/data/pipeline_testing.h"
#include "millrace/data/state.h"
#include "millrace/io/record_writer.h"

namespace millrace::data {
namespace {

const std::string kFolder = "memory://iterator_state_fuzz";

Tensor number(int64_t value) { return Tensor::scalar(value); }
Tensor text(const std::string& value) { return Tensor::scalar(value); }

Ref<Dataset> stages_of_numbers() {
  Ref<Dataset> d = make_range(40);
  d = make_dataset("SkipDataset", {d}, {number(1)});
  d = make_dataset("ShardDataset", {d}, {number(2), number(1)});
  d = make_dataset("ShuffleDataset", {d}, {number(4), number(1), number(2)});
  d = make_dataset("CacheDataset", {d}, {text("")});
  d = make_dataset("RepeatDataset", {d}, {number(3)});
  d = make_dataset("ConcatenateDataset", {d, make_range(5)}, {});
  d = make_dataset("BatchDatasetV2", {d}, {number(3), Tensor::scalar(false)});
  d = make_dataset("UnbatchDataset", {d}, {});
  d = make_dataset("ZipDataset", {d, make_range(1000)}, {});
  d = make_dataset("TakeDataset", {d}, {number(50)});
  d = make_dataset("IgnoreErrorsDataset", {d}, {});
  return make_dataset("PrefetchDataset", {d}, {number(2)});
}

Ref<Dataset> files(const char* op, const std::string& name, const char* compression) {
  return make_source(op, {text(kFolder + name), text(compression), number(0)});
}

// In files of this process alone.
std::vector<Ref<Dataset>> make_pipelines() {
  FileSystem& fs = memory_file_system();
  const std::string folder = kFolder.substr(kFolder.find("://") + 3);
  MR_CHECK_OK(write_file_atomically(fs, folder + "/lines", "one\ntwo\nthree\n\nfive"));
  Ref<WritableFile> file = fs.open_writable(folder + "/records").value();
  const std::unique_ptr<RecordWriter> records =
      RecordWriter::make(file, {.kind = Compression::kZlib}).value();
  for (const char* record : {"a", "", "ccc"}) MR_CHECK_OK(records->write(record));
  MR_CHECK_OK(records->close());
  Ref<Dataset> padded =
      make_dataset("ShuffleDataset", {make_range(9)}, {number(3), number(1), number(2)});
  padded = make_dataset("BatchDatasetV2", {padded}, {number(2), Tensor::scalar(false)});
  Ref<Dataset> chosen = make_dataset("ZipDataset", {make_range(6), make_range(7)}, {});
  chosen = make_dataset("CacheDataset", {chosen}, {text(kFolder + "/cache")});
  return {
      stages_of_numbers(),
      files("TextLineDataset", "/lines", ""),
      make_dataset("RepeatDataset", {files("TFRecordDataset", "/records", "ZLIB")}, {number(2)}),
      make_dataset("WindowDataset", {padded},
                   {number(2), number(3), number(1), Tensor::scalar(false)}),
      make_dataset("RepeatDataset", {chosen}, {number(2)}),
      make_dataset("RandomDataset", {}, {number(1), number(2)})};
}

std::unique_ptr<Iterator> begin(const Dataset& dataset) {
  static const Ref<FileAccess>& access =
      *new Ref<FileAccess>(FileAccess::only({.read = {}, .write = {kFolder}}).value());
  const Ref<Environment> environment = make_environment();
  environment->device().set_files(access);
  return dataset.iterate(Iteration::of(dataset, environment)).value();
}

// False where it ended or failed before.
bool pull(Iterator& iterator, int count) {
  Element element;
  bool end = false;
  for (int i = 0; i < count && !end; ++i) {
    if (!iterator.next(element, end).ok()) return false;
  }
  return !end;
}

void edit(SavedState& state, const unsigned char* how) {
  const size_t at = how[1] | static_cast<size_t>(how[2]) << 8;
  const char with = static_cast<char>(how[3]);
  std::string& bytes = state.bytes;
  switch (how[0] % 5) {
    case 0:
      if (!bytes.empty()) bytes[at % bytes.size()] = with;
      break;
    case 1:
      bytes.insert(at % (bytes.size() + 1), 1, with);
      break;
    case 2:
      if (!bytes.empty()) bytes.erase(at % bytes.size(), 1 + how[3] % 16);
      break;
    case 3:
      bytes.resize(at % (bytes.size() + 1));
      break;
    default: {
      const Tensor others[] = {Tensor::scalar(1.5F),
                               Tensor::vector<int64_t>({}),
                               Tensor::vector<int64_t>({1, 2}),
                               text("x"),
                               Tensor::scalar(Variant{}),
                               Tensor::scalar(true)};
      if (!state.tensors.empty()) state.tensors[at % state.tensors.size()] = others[how[3] % 6];
    }
  }
}

void run(std::span<const unsigned char> input) {
  static const std::vector<Ref<Dataset>>& pipelines = *new std::vector(make_pipelines());
  if (input.size() < 2) return;
  const Dataset& dataset = *pipelines[input[0] % pipelines.size()];
  Ref<SavedState> state;
  {
    const std::unique_ptr<Iterator> iterator = begin(dataset);
    (void)pull(*iterator, input[1] % 64);
    StateWriter writer;
    MR_CHECK_OK(iterator->save(writer));
    state = writer.finish();
  }
  const bool changed = input.size() >= 6;
  for (size_t at = 2; at + 4 <= input.size(); at += 4) edit(*state, input.data() + at);
  const std::unique_ptr<Iterator> iterator = begin(dataset);
  StateReader reader(*state);
  const Status status = iterator->restore(reader);
  if (!changed) MR_CHECK_OK(status);
  if (status.ok()) {
    (void)pull(*iterator, 100);
    return;
  }
  MR_CHECK(status.code() == Code::kDataLoss || status.code() == Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::data::run({data, size});
  return 0;
}
