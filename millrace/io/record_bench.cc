// Records and Examples of 1 KB; benchmarks/record_bench.py is the same from Python, beside
// TensorFlow.

#include <benchmark/benchmark.h>

#include "millrace/base/file_systems.h"
#include "millrace/io/example_parser.h"
#include "millrace/io/record_reader.h"
#include "millrace/io/record_writer.h"
#include "proto/example.pb.h"

namespace millrace {
namespace {

constexpr int kRecords = 1024, kBatch = 128;

std::string example(int i) {
  tensorflow::Example message;
  auto& features = *message.mutable_features()->mutable_feature();
  features["label"].mutable_int64_list()->add_value(i % 10);
  for (int k = 0; k < 16; ++k) features["words"].mutable_int64_list()->add_value(i * k % 50'000);
  for (int k = 0; k < 128; ++k) {
    features["dense"].mutable_float_list()->add_value(0.25F * static_cast<float>(k));
  }
  features["image"].mutable_bytes_list()->add_value(std::string(256, 'x'));
  return message.SerializeAsString();
}

void read_records(benchmark::State& state) {
  FileSystem& fs = memory_file_system();
  const auto kind = static_cast<Compression>(state.range(0));
  auto writer = RecordWriter::make(fs.open_writable("bench").value(), {.kind = kind}).value();
  for (int i = 0; i < kRecords; ++i) MR_CHECK_OK(writer->write(example(i)));
  MR_CHECK_OK(writer->close());
  for (auto _ : state) {
    auto reader =
        RecordReader::make(fs.open_readable("bench").value(), {.compression = kind}).value();
    while (reader->next().ok()) {
    }
  }
  state.SetItemsProcessed(state.iterations() * kRecords);
}
BENCHMARK(read_records)->DenseRange(0, 2)->ArgName("compression");

void parse_examples(benchmark::State& state) {
  std::vector<std::string> batch;
  for (int i = 0; i < kBatch; ++i) batch.push_back(example(i));
  const auto parser =
      ExampleParser::make(
          {{.key = "label", .dtype = DType::kInt64},
           {.key = "words", .dtype = DType::kInt64, .form = FeatureSpec::Form::kSparse},
           {.key = "dense", .dtype = DType::kFloat, .shape = Shape{128}},
           {.key = "image", .dtype = DType::kString}},
          {})
          .value();
  std::vector<Tensor> defaults;
  for (const FeatureSpec& spec : parser->specs()) {
    defaults.push_back(Tensor::zeros(spec.dtype, Shape{0}).value());
  }
  for (auto _ : state) {
    MR_CHECK_OK(parser->parse({.serialized = batch, .defaults = defaults}).status());
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(parse_examples);

}  // namespace
}  // namespace millrace
