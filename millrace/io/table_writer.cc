#include <algorithm>

#include "millrace/io/coding.h"
#include "millrace/io/crc32c.h"
#include "millrace/io/table.h"
#include "millrace/io/table_format.h"

namespace millrace {

// Entries, each with what its key shares with the one before; every `interval` entries one starts
// anew, and its place is listed at the end.
class TableWriter::Block {
 public:
  explicit Block(int interval) : interval_(interval) {}

  void add(std::string_view key, std::string_view value) {
    size_t shared = 0;
    if (since_restart_ < interval_) {
      const size_t most = std::min(key.size(), last_key_.size());
      while (shared < most && key[shared] == last_key_[shared]) ++shared;
    } else {
      restarts_.push_back(static_cast<uint32_t>(bytes_.size()));
      since_restart_ = 0;
    }
    put_varint(bytes_, shared);
    put_varint(bytes_, key.size() - shared);
    put_varint(bytes_, value.size());
    bytes_.append(key.substr(shared));
    bytes_.append(value);
    last_key_ = key;
    ++since_restart_;
  }

  bool empty() const { return bytes_.empty(); }
  size_t size() const { return bytes_.size() + 4 * restarts_.size() + 4; }

  // The block's bytes; it is empty then.
  std::string take() {
    std::string bytes = std::move(bytes_);
    for (const uint32_t restart : restarts_) put_fixed32(bytes, restart);
    put_fixed32(bytes, static_cast<uint32_t>(restarts_.size()));
    *this = Block(interval_);
    return bytes;
  }

 private:
  int interval_;
  int since_restart_ = 0;
  std::string bytes_;
  std::string last_key_;
  std::vector<uint32_t> restarts_ = {0};
};

namespace {

// A short string that is not before `key` and before `next`, which comes after it.
std::string separator(const std::string& key, std::string_view next) {
  const size_t most = std::min(key.size(), next.size());
  size_t same = 0;
  while (same < most && key[same] == next[same]) ++same;
  if (same < most) {
    const auto byte = static_cast<uint8_t>(key[same]);
    if (byte < 0xFF && byte + 1 < static_cast<uint8_t>(next[same])) {
      std::string out = key.substr(0, same + 1);
      out[same] = static_cast<char>(byte + 1);
      return out;
    }
  }
  return key;
}

// A short string that is not before `key`.
std::string successor(const std::string& key) {
  for (size_t i = 0; i < key.size(); ++i) {
    if (static_cast<uint8_t>(key[i]) != 0xFF) {
      std::string out = key.substr(0, i + 1);
      out[i] = static_cast<char>(static_cast<uint8_t>(key[i]) + 1);
      return out;
    }
  }
  return key;
}

}  // namespace

TableWriter::TableWriter(Ref<WritableFile> file)
    : file_(std::move(file)),
      data_(std::make_unique<Block>(kRestartInterval)),
      index_(std::make_unique<Block>(1)) {}
TableWriter::~TableWriter() = default;

Result<TableWriter::Handle> TableWriter::write_block(Block& block) {
  std::string bytes = block.take();
  const Handle handle{offset_, bytes.size()};
  bytes.push_back('\0');  // not compressed
  put_fixed32(bytes, crc32c_mask(crc32c(bytes)));
  MR_TRY(file_->append(bytes));
  offset_ += bytes.size();
  return handle;
}

void TableWriter::add_index_entry(std::string_view key) {
  std::string handle;
  put_varint(handle, pending_handle_.offset);
  put_varint(handle, pending_handle_.size);
  index_->add(key, handle);
  pending_ = false;
}

Status TableWriter::end_block() {
  if (data_->empty()) return ok_status();
  MR_TRY_ASSIGN(pending_handle_, write_block(*data_));
  pending_ = true;
  return ok_status();
}

Status TableWriter::add(std::string_view key, std::string_view value) {
  if (any_ && key <= last_key_) {
    return invalid_argument("keys of a table must increase, got '", key, "' after '", last_key_,
                            "'");
  }
  if (key.size() > UINT32_MAX || value.size() > UINT32_MAX - kBlockBytes) {
    return resource_exhausted("a table's entry must be below 4 GiB, '", key.substr(0, 100),
                              "' has ", value.size(), " bytes");
  }
  if (pending_) add_index_entry(separator(last_key_, key));
  any_ = true;
  last_key_ = key;
  data_->add(key, value);
  return data_->size() >= kBlockBytes ? end_block() : ok_status();
}

Status TableWriter::finish() {
  MR_TRY(end_block());
  Block meta(kRestartInterval);
  MR_TRY_ASSIGN(const Handle meta_handle, write_block(meta));
  if (pending_) add_index_entry(successor(last_key_));
  MR_TRY_ASSIGN(const Handle index_handle, write_block(*index_));
  std::string footer;
  put_varint(footer, meta_handle.offset);
  put_varint(footer, meta_handle.size);
  put_varint(footer, index_handle.offset);
  put_varint(footer, index_handle.size);
  footer.resize(kFooterBytes - 8, '\0');
  put_fixed64(footer, kTableMagic);
  return file_->append(footer);
}

}  // namespace millrace
