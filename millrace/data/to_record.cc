// A dataset written to a file.

#include "millrace/base/file_access.h"
#include "millrace/data/blocking_kernel.h"
#include "millrace/data/dataset_op.h"
#include "millrace/data/whole.h"
#include "millrace/graph/shape_context.h"
#include "millrace/io/record_writer.h"
#include "millrace/kernel/graph_rights.h"

namespace millrace::data {
namespace {

Status write_records(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<Dataset> dataset, dataset_input(ctx, 0));
  MR_TRY_ASSIGN(const std::string name, string_input(ctx, 1));
  MR_TRY_ASSIGN(const std::string kind, string_input(ctx, 2));
  DeflateOptions options;
  MR_TRY_ASSIGN(options.kind, parse_compression(kind));
  MR_TRY_ASSIGN(const FilePlace place, ctx.device().files().resolve(name, FileAccess::Use::kWrite));
  MR_TRY_ASSIGN(Ref<WritableFile> file, place.fs->open_writable(place.path));
  MR_TRY_ASSIGN(const std::unique_ptr<RecordWriter> writer,
                RecordWriter::make(std::move(file), options));
  MR_TRY_ASSIGN(const Whole whole, Whole::make(ctx, *dataset));
  Element element;
  for (;;) {
    bool end = false;
    MR_TRY(whole.environment->status());
    MR_TRY(whole.iterator->next(element, end));
    if (end) return writer->close();
    for (const Tensor& component : element) {
      if (component.dtype() != DType::kString || component.rank() != 0) {
        return invalid_argument("records are scalars of strings, got ", component.dtype(), " ",
                                component.shape());
      }
      MR_TRY(writer->write(component.item<std::string>()));
    }
  }
}

}  // namespace

void register_to_record(Registry& registry) {
  for (const char* name : {"DatasetToTFRecord", "ExperimentalDatasetToTFRecord"}) {
    mark_reach({name}, Reach::kFiles);
    registry.add({.name = std::string_view(name),
                  .doc = "Writes the elements of a dataset, strings, to a TFRecord file.",
                  .inputs = {{"input_dataset", "variant"},
                             {"filename", "host(string)"},
                             {"compression_type", "host(string)", "'', 'ZLIB' or 'GZIP'."}},
                  .traits = {.stateful = true, .cannot_differentiate = true},
                  .shape = shape_rules::no_outputs});
    registry.kernel<BlockingKernel<write_records>>(std::string_view(name), DeviceKind::kCpu);
  }
}

}  // namespace millrace::data
