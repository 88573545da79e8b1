#include <algorithm>

#include "millrace/io/coding.h"
#include "millrace/io/crc32c.h"
#include "millrace/io/snappy.h"
#include "millrace/io/table.h"
#include "millrace/io/table_format.h"

namespace millrace {

Status TableReader::damaged(std::string_view what) const {
  return data_loss("'", path_, "' is damaged, or no sorted string table: ", what);
}

Result<std::unique_ptr<TableReader>> TableReader::open(FileSystem& fs, const std::string& path) {
  MR_TRY_ASSIGN(Ref<ReadableFile> file, fs.open_readable(path));
  MR_TRY_ASSIGN(const uint64_t size, file->size());
  std::unique_ptr<TableReader> reader(new TableReader(std::move(file), path, size));
  MR_TRY(reader->read_index());
  return reader;
}

Status TableReader::read_index() {
  if (size_ < kFooterBytes) {
    return damaged(str_cat("it has ", size_, " bytes, fewer than its last part"));
  }
  char footer[kFooterBytes];
  MR_TRY_ASSIGN(const size_t n, file_->read_at(size_ - kFooterBytes, kFooterBytes, footer));
  if (n != kFooterBytes) return damaged("it became shorter while it was read");
  if (load_fixed64(footer + kFooterBytes - 8) != kTableMagic) {
    return damaged("it does not end as one");
  }
  std::string_view handles(footer, kFooterBytes - 8);
  uint64_t ignored = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  if (!get_varint(handles, ignored) || !get_varint(handles, ignored) ||
      !get_varint(handles, offset) || !get_varint(handles, size)) {
    return damaged("its last part does not say where the index is");
  }
  MR_TRY_ASSIGN(const std::string index, read_block(offset, size));
  // Keys share beginnings in the file, so that a small one could say many long keys.
  uint64_t room = size_ * 64 + (uint64_t{1} << 20);
  return visit_block(index, [&](std::string_view key, std::string_view handle) {
    if (key.size() > room) return damaged("the keys of its index are too long");
    room -= key.size();
    BlockPlace place{.last_key = std::string(key)};
    if (!get_varint(handle, place.offset) || !get_varint(handle, place.size) || !handle.empty()) {
      return damaged("its index does not say where a block is");
    }
    blocks_.push_back(std::move(place));
    return ok_status();
  });
}

Result<std::string> TableReader::read_block(uint64_t offset, uint64_t size) const {
  const uint64_t room = size_ - kFooterBytes;
  if (offset > room || size > room - offset || kTrailerBytes > room - offset - size) {
    return damaged(str_cat("a block of ", size, " bytes at ", offset, " reaches past its end"));
  }
  std::string block(size + kTrailerBytes, '\0');
  MR_TRY_ASSIGN(const size_t n, file_->read_at(offset, block.size(), block.data()));
  if (n != block.size()) return damaged("it became shorter while it was read");
  const uint32_t stored = load_fixed32(block.data() + size + 1);
  if (crc32c_unmask(stored) != crc32c(std::string_view(block).substr(0, size + 1))) {
    return damaged(str_cat("the checksum of the block at ", offset, " is wrong"));
  }
  const char kind = block[size];
  block.resize(size);
  if (kind == 0) return block;
  if (kind != 1) return damaged(str_cat("unknown compression ", int{kind}));
  Result<std::string> decoded = snappy_decode(block);
  if (!decoded.ok()) return damaged(decoded.status().message());
  return decoded;
}

Status TableReader::visit_block(std::string_view block,
                                FunctionRef<Status(std::string_view, std::string_view)> visit,
                                std::string* last_key) const {
  if (block.size() < 4) return damaged("a block is too short");
  const uint64_t restarts = load_fixed32(block.data() + block.size() - 4);
  if (restarts == 0 || restarts > (block.size() - 4) / 4) {
    return damaged("a block's list of restarts is longer than the block");
  }
  std::string_view entries = block.substr(0, block.size() - 4 - 4 * restarts);
  std::string key;
  bool first = true;
  while (!entries.empty()) {
    uint32_t shared = 0;
    uint32_t unshared = 0;
    uint32_t value_size = 0;
    if (!get_varint32(entries, shared) || !get_varint32(entries, unshared) ||
        !get_varint32(entries, value_size) || shared > key.size() ||
        uint64_t{unshared} + value_size > entries.size()) {
      return damaged("an entry reaches past its block");
    }
    const std::string_view rest = entries.substr(0, unshared);
    if (!first && rest <= std::string_view(key).substr(shared)) {
      return damaged("its keys are not in order");
    }
    key.resize(shared);
    key.append(rest);
    first = false;
    MR_TRY(visit(key, entries.substr(unshared, value_size)));
    entries.remove_prefix(size_t{unshared} + value_size);
  }
  if (last_key != nullptr && !first) *last_key = std::move(key);
  return ok_status();
}

Status TableReader::visit(
    FunctionRef<Status(std::string_view key, std::string_view value)> visit) const {
  std::string last;
  bool first = true;
  for (const BlockPlace& place : blocks_) {
    MR_TRY_ASSIGN(const std::string block, read_block(place.offset, place.size));
    bool block_begins = true;
    MR_TRY(visit_block(
        block,
        [&](std::string_view key, std::string_view value) -> Status {
          if (block_begins && !first && key <= last) return damaged("its keys are not in order");
          block_begins = false;
          return visit(key, value);
        },
        &last));
    if (block_begins) return damaged("a block has no entries");
    first = false;
    if (last > place.last_key) return damaged("its keys are not in order");
  }
  return ok_status();
}

Status TableReader::find_all(
    std::span<const std::string> keys,
    FunctionRef<Status(size_t number, std::string_view value)> visit) const {
  for (size_t next = 0; next < keys.size();) {
    const auto place = std::lower_bound(
        blocks_.begin(), blocks_.end(), keys[next],
        [](const BlockPlace& block, std::string_view wanted) { return block.last_key < wanted; });
    if (place == blocks_.end()) return ok_status();
    MR_TRY_ASSIGN(const std::string block, read_block(place->offset, place->size));
    MR_TRY(visit_block(block, [&](std::string_view key, std::string_view value) {
      while (next < keys.size() && keys[next] < key) ++next;
      return next < keys.size() && keys[next] == key ? visit(next++, value) : ok_status();
    }));
    while (next < keys.size() && keys[next] <= place->last_key) ++next;
  }
  return ok_status();
}

Result<std::string> TableReader::find(std::string_view key) const {
  Result<std::string> found = not_found("'", path_, "' has no such key");
  const std::string keys[] = {std::string(key)};
  MR_TRY(find_all(keys, [&](size_t, std::string_view value) {
    found = std::string(value);
    return ok_status();
  }));
  return found;
}

}  // namespace millrace
