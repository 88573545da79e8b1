#include "millrace/io/bundle_index.h"

#include "millrace/io/table.h"
#include "millrace/tensor/tensor_proto.h"
#include "proto/tensor_bundle.pb.h"

namespace millrace {
namespace {

constexpr int kVersion = 1;

std::string encode_header(int32_t num_shards) {
  tensorflow::BundleHeaderProto header;
  header.set_num_shards(num_shards);
  header.mutable_version()->set_producer(kVersion);
  return header.SerializeAsString();
}

Result<int32_t> decode_header(std::string_view bytes) {
  tensorflow::BundleHeaderProto header;
  if (bytes.size() > INT32_MAX ||
      !header.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return data_loss("its header is no BundleHeaderProto");
  }
  if (header.endianness() != tensorflow::BundleHeaderProto::LITTLE) {
    return unimplemented("it was written on a machine of another byte order");
  }
  if (header.version().min_consumer() > kVersion) {
    return unimplemented("it asks for a reader of version ", header.version().min_consumer(),
                         ", this one has ", kVersion);
  }
  if (header.version().producer() < 0 || header.num_shards() < 1) {
    return data_loss("its header says ", header.num_shards(), " data files and version ",
                     header.version().producer());
  }
  return header.num_shards();
}

}  // namespace

std::string BundleEntry::encode() const {
  tensorflow::BundleEntryProto proto;
  proto.set_dtype(static_cast<tensorflow::DataType>(base_type(dtype)));
  shape_to_proto(shape, *proto.mutable_shape());
  if (slices.empty()) {
    proto.set_shard_id(shard);
    proto.set_offset(static_cast<int64_t>(offset));
    proto.set_size(static_cast<int64_t>(size));
    proto.set_crc32c(crc);
  }
  for (const TensorSlice& slice : slices) slice.to_proto(*proto.add_slices());
  return proto.SerializeAsString();
}

Result<BundleEntry> BundleEntry::decode(std::string_view bytes) {
  tensorflow::BundleEntryProto proto;
  if (bytes.size() > INT32_MAX ||
      !proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return data_loss("is no BundleEntryProto");
  }
  BundleEntry entry;
  entry.dtype = static_cast<DType>(proto.dtype());
  if (!is_valid(entry.dtype) || is_ref(entry.dtype)) {
    return data_loss("has the dtype ", static_cast<int>(proto.dtype()), ", which is none");
  }
  Result<PartialShape> partial = shape_from_proto(proto.shape());
  if (!partial.ok()) return data_loss(partial.status().message());
  Result<Shape> shape = partial->to_shape();
  if (!shape.ok()) return data_loss(shape.status().message());
  entry.shape = std::move(*shape);
  if (proto.shard_id() < 0 || proto.offset() < 0 || proto.size() < 0) {
    return data_loss("lies at ", proto.offset(), ", ", proto.size(), " bytes, in data file ",
                     proto.shard_id());
  }
  entry.shard = proto.shard_id();
  entry.offset = static_cast<uint64_t>(proto.offset());
  entry.size = static_cast<uint64_t>(proto.size());
  entry.crc = proto.crc32c();
  for (const tensorflow::TensorSliceProto& from : proto.slices()) {
    Result<TensorSlice> slice = TensorSlice::from_proto(from);
    if (!slice.ok()) return data_loss(slice.status().message());
    const Status fits = slice->within(entry.shape).status();
    if (!fits.ok()) return data_loss(fits.message());
    entry.slices.push_back(std::move(*slice));
  }
  return entry;
}

Status BundleIndex::write(FileSystem& fs, const std::string& path) const {
  MR_TRY_ASSIGN(Ref<WritableFile> file, fs.open_writable(path));
  TableWriter table(file);
  MR_TRY(table.add("", encode_header(num_shards)));
  for (const auto& [key, entry] : entries) MR_TRY(table.add(key, entry.encode()));
  MR_TRY(table.finish());
  MR_TRY(file->sync());
  return file->close();
}

Result<BundleIndex> BundleIndex::read(FileSystem& fs, const std::string& path) {
  MR_TRY_ASSIGN(const std::unique_ptr<TableReader> table, TableReader::open(fs, path));
  BundleIndex index;
  bool header = false;
  // Keys share beginnings in the file, so that a small one could say many long keys.
  uint64_t room = table->bytes() * 64 + (uint64_t{1} << 26);
  MR_TRY(table->visit([&](std::string_view key, std::string_view value) -> Status {
    if (!header) {
      if (!key.empty()) return data_loss("'", path, "' is no checkpoint: it has no header");
      Result<int32_t> shards = decode_header(value);
      if (!shards.ok()) return shards.status().with_prefix(str_cat("checkpoint '", path, "'"));
      index.num_shards = *shards;
      header = true;
      return ok_status();
    }
    if (key.size() > room) return data_loss("'", path, "' is damaged: its keys are too long");
    room -= key.size();
    Result<BundleEntry> entry = BundleEntry::decode(value);
    if (entry.ok() && entry->shard >= index.num_shards) {
      entry = data_loss("lies in data file ", entry->shard, " of ", index.num_shards);
    }
    if (!entry.ok()) {
      return entry.status().with_prefix(
          str_cat("checkpoint '", path, "': the entry of '", key.substr(0, 200), "'"));
    }
    index.entries.emplace_hint(index.entries.end(), key, std::move(*entry));
    return ok_status();
  }));
  if (!header) return data_loss("'", path, "' is no checkpoint: it has no header");
  return index;
}

}  // namespace millrace
