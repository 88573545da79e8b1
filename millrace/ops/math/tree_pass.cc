#include "millrace/ops/math/tree_pass.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>

#include "millrace/ops/linalg/scratch.h"
#include "millrace/ops/stream.h"

namespace millrace {
namespace {

// The intermediate values of a block, so that they and the operands' blocks share the first-level
// cache.
constexpr int64_t kScratchBytes = 24 << 10;
constexpr int64_t kMaxBlock = 2048;
// Less work than this is not handed to other threads.
constexpr double kSerialNs = 10000;

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

Status TreeFunction::Pass::read_tensor(int to, const Tensor& tensor, const Shape& own,
                                       const Shape& shape) {
  const size_t size = dtype_size(tensor.dtype());
  if (own.num_elements() == n) {
    read_as(to, Where::kDense, size, tensor.raw());
  } else if (own.num_elements() == 1) {
    read_as(to, Where::kRepeated, size, tensor.raw());
  } else {
    MR_TRY_ASSIGN(BroadcastPlan plan, BroadcastPlan::make({&shape, &own}));
    read_as(to, Where::kBroadcast, size, tensor.raw());
    plans.push_back(std::move(plan));
  }
  return ok_status();
}

void TreeFunction::Pass::read_rows(int to, const Tensor& tensor) {
  const bool dense = tensor.num_elements() == n / row;
  read_as(to, dense ? Where::kDense : Where::kRepeated, dtype_size(tensor.dtype()), tensor.raw());
}

void TreeFunction::Pass::read_as(int to, Where where, size_t size, const void* data) {
  int& slots = is_by_row(to) ? num_row_slots : num_slots;
  const bool expanded = where == Where::kRepeated || where == Where::kBroadcast;
  view(to) = {where, static_cast<uint8_t>(size), static_cast<uint8_t>(expanded ? slots++ : 0),
              static_cast<int8_t>(plans.size()), static_cast<char*>(const_cast<void*>(data))};
  read[static_cast<size_t>(num_read++)] = static_cast<uint8_t>(to);
}

void TreeFunction::Pass::choose_block(int64_t largest) {
  const int64_t slots = std::max(num_slots, 1);
  if (in_pieces) {
    block = RowFold::kPiece;
    run = row;
    blocks_a_run = (row + block - 1) / block;
    slot_bytes = block * largest;
  } else if (row > 0) {
    const int64_t row_bytes = (slots * row + num_row_slots) * largest;
    const int64_t rows = std::max<int64_t>(std::min(kScratchBytes / row_bytes, kMaxBlock / row), 1);
    block = rows * row;
    slot_bytes = round_up(block * largest, 64);
    row_slot_bytes = round_up(rows * largest, 64);
  } else {
    block = std::min(kMaxBlock, kScratchBytes / (slots * largest) / 16 * 16);
    slot_bytes = block * largest;
    if (plans.empty()) return;
    run = plans[0].run_length();
    if (run <= block) {
      block = block / run * run;
      run = 0;
    } else {
      blocks_a_run = (run + block - 1) / block;
      block = round_up((run + blocks_a_run - 1) / blocks_a_run, 16);
      blocks_a_run = (run + block - 1) / block;
    }
  }
}

std::pair<int64_t, int64_t> TreeFunction::Pass::range(int64_t i) const {
  if (run == 0) return {i * block, std::min(n, (i + 1) * block)};
  const int64_t begin = i / blocks_a_run * run, at = i % blocks_a_run * block;
  return {begin + at, begin + std::min(run, at + block)};
}

const char* TreeFunction::Pass::gather(const View& value, int64_t begin, int64_t end, bool again,
                                       char* to) const {
  const BroadcastPlan& plan = plans[static_cast<size_t>(value.plan)];
  if (again && run == 0 && plan.run_length() < block && block % plan.run_length() == 0 &&
      plan.repeats_every_run(1)) {
    return to;
  }
  if (plan.run_length() < kDirectRun) {
    gather_operand(plan, 1, value.data, value.size, begin, end, to);
    return to;
  }
  const char* found = to;
  plan.for_each_run(begin, end, [&](const int64_t* from, int64_t at, int64_t count) {
    const char* source = value.data + from[1] * value.size;
    char* target = to + (at - begin) * value.size;
    if (plan.step(1) == 0) {
      fill_elements(target, source, value.size, count);
    } else if (count == end - begin) {
      found = source;
    } else {
      std::memcpy(target, source, static_cast<size_t>(count) * value.size);
    }
  });
  return found;
}

// Gives what steps write slots of the scratch; one is free again after its last reader.
void TreeFunction::assign_slots(Pass& pass) const {
  // By view: the last step that reads it, where it is written by a step.
  std::array<int8_t, Pass::kViews> last;
  const auto written_to = [&](const Step& step) {
    return !Pass::is_by_row(step.to) && pass.view(step.to).where == Pass::Where::kScratch;
  };
  const auto for_each_read = [&](const Step& step, auto&& f) {
    if (step.what == Do::kSweep) {
      const Sweep& sweep = pass.sweeps[step.from];
      f(pass.root(sweep.x), 0);
      for (int l = sweep.first; l < sweep.first + sweep.count; ++l) {
        const int view = pass.links[static_cast<size_t>(l)].view;
        if (view != kNoView && !Pass::is_by_row(view)) f(pass.root(view), 0);
      }
    } else if (step.what == Do::kMap || step.what == Do::kMapRepeated) {
      const std::span<const uint8_t> from = operands(stages_[step.stage]);
      const size_t first = pass.picks_rows >> step.stage & 1;
      for (size_t k = first; k < from.size(); ++k) {
        if (step.what == Do::kMapRepeated && Pass::by_row(from[k]) == step.from) continue;
        f(pass.root(from[k]), static_cast<int>(k));
      }
    } else if (!Pass::is_by_row(step.from)) {
      f(pass.root(step.from), -1);
    }
  };
  last.fill(-1);
  for (int i = 0; i < pass.num_steps; ++i) {
    const Step& step = pass.steps[static_cast<size_t>(i)];
    if (step.what != Do::kMapRows) {
      for_each_read(step, [&](int view, int) {
        if (last[static_cast<size_t>(view)] >= 0)
          last[static_cast<size_t>(view)] = static_cast<int8_t>(i);
      });
    }
    // Also of what nobody reads.
    if (written_to(step)) last[step.to] = static_cast<int8_t>(i);
  }
  const int first = pass.num_slots;  // those before are of what comes from outside
  uint64_t free = 0;
  for (int i = 0; i < pass.num_steps; ++i) {
    const Step& step = pass.steps[static_cast<size_t>(i)];
    uint64_t released = 0;  // by this step
    int over = -1;          // such a slot that it may write to
    if (step.what != Do::kMapRows) {
      for_each_read(step, [&](int view, int k) {
        if (last[static_cast<size_t>(view)] != i) return;
        const int slot = pass.view(view).slot - first;
        released |= uint64_t{1} << slot;
        if (k >= 0 && (step.what == Do::kSweep || stages_[step.stage].function.in_place(k)) &&
            pass.view(view).size == pass.view(step.to).size) {
          over = slot;
        }
      });
    }
    if (written_to(step)) {
      if (over < 0 && free != 0) over = std::countr_zero(free);
      if (over < 0) over = pass.num_slots++ - first;
      pass.view(step.to).slot = static_cast<uint8_t>(first + over);
      free &= ~(uint64_t{1} << over);
      released &= ~(uint64_t{1} << over);
      if (last[step.to] == i) released |= uint64_t{1} << over;
    }
    free |= released;
  }
}

Status TreeFunction::run(KernelContext& ctx, Pass& pass) const {
  pass.choose_block(largest_);
  give_hints(pass);
  const int64_t blocks = pass.num_blocks();
  const double block_cost = pass.cost * static_cast<double>(pass.block);
  if (blocks == 1 || pass.cost * static_cast<double>(pass.n) < kSerialNs) {
    return run_blocks(pass, 0, blocks);
  }
  std::atomic<bool> out_of_memory = false;
  ctx.parallel_for(blocks, block_cost, [&](int64_t first, int64_t last) {
    if (!run_blocks(pass, first, last).ok()) out_of_memory = true;
  });
  return out_of_memory ? resource_exhausted("OOM when allocating scratch memory for rows")
                       : ok_status();
}

// One row after the other: operands are rows at at[view], but for one, single elements at
// at[single].
void TreeFunction::map_rows(const Stage& stage, std::span<const uint8_t> operands, int single,
                            const void* const* at, int64_t rows, int64_t row, char* to) {
  const int repeated = Pass::by_row(operands[0]) == single ? 0 : 1;
  const char* from[2];
  int64_t step[2];
  for (int k : {0, 1}) {
    from[k] = static_cast<const char*>(k == repeated ? at[single] : at[operands[k]]);
    step[k] = (k == repeated ? 1 : row) * stage.size;
  }
  for (int64_t r = 0; r < rows; ++r, to += row * stage.size) {
    stage.function.repeated(repeated, from[0] + r * step[0], from[1] + r * step[1], to, row);
  }
}

Status TreeFunction::run_blocks(const Pass& pass, int64_t first, int64_t last) const {
  using Where = Pass::Where;
  alignas(64) char on_stack[kScratchBytes];
  std::optional<Scratch<char>> on_heap;
  char* scratch = on_stack;
  if (pass.scratch_bytes() > kScratchBytes) {
    on_heap.emplace(pass.scratch_bytes());
    MR_TRY(on_heap->status());
    scratch = on_heap->data();
  }
  Block block;
  block.scratch = scratch;
  std::array<const void*, Pass::kViews>& at = block.at;
  for (int i = 0; i < pass.num_read; ++i) {
    const uint8_t v = pass.read[static_cast<size_t>(i)];
    const Pass::View& view = pass.view(v);
    if (view.where == Where::kEachRow) at[v] = view.data;
    if (view.where != Where::kRepeated) continue;
    const int64_t count = std::min(pass.block, pass.n) / (Pass::is_by_row(v) ? pass.row : 1);
    at[v] = pass.slot_of(v, scratch);
    fill_elements(pass.slot_of(v, scratch), view.data, view.size, count);
  }
  for (int64_t b = first; b < last; ++b) {
    const auto [begin, end] = pass.range(b);
    block.number = b;
    block.begin = begin;
    block.n = end - begin;
    if (pass.row > 0) block.first_row = begin / pass.row;
    if (pass.row > 0) block.rows = block.n / pass.row;
    for (int i = 0; i < pass.num_read; ++i) {
      const uint8_t v = pass.read[static_cast<size_t>(i)];
      const Pass::View& view = pass.view(v);
      if (view.where == Where::kDense) {
        at[v] = block.target(pass, v);
      } else if (view.where == Where::kBroadcast) {
        at[v] = pass.gather(view, begin, end, b > first, pass.slot_of(v, scratch));
      }
    }
    for (int i = 0; i < pass.num_steps; ++i) {
      run_step(pass, pass.steps[static_cast<size_t>(i)], block);
    }
  }
  if (pass.streams) isa_table<StreamLoops>().finish();
  return ok_status();
}

void TreeFunction::run_step(const Pass& pass, const Step& step, Block& block) const {
  const Stage& stage = stages_[step.stage];
  const Pass::View& view = pass.view(step.to);
  const bool by_row = Pass::is_by_row(step.to);
  std::array<const void*, Pass::kViews>& at = block.at;
  if (step.what == Do::kSweep) return run_sweep(pass, pass.sweeps[step.from], block);
  if (view.where == Pass::Where::kAs) {
    at[step.to] = at[view.slot];
    return;
  }
  char* const to = block.target(pass, step.to);
  at[step.to] = to;
  switch (step.what) {
    case Do::kMap:
    case Do::kMapRows: {
      const size_t views = by_row ? static_cast<size_t>(Pass::by_row(0)) : 0;
      const void* from[64];
      int count = 0;
      for (uint8_t operand : operands(stage)) from[count++] = at[views + operand];
      if ((pass.picks_rows >> step.stage & 1) != 0) {
        from[0] = at[static_cast<size_t>(Pass::condition_of(step.stage))];
      }
      stage.function(from, to, by_row ? block.rows : block.n);
      break;
    }
    case Do::kFold:
      if (pass.in_pieces) {
        stage.fold.piece(at[step.from], block.n, block.partial(pass, step.to));
      } else {
        stage.fold.rows(at[step.from], block.rows, pass.row, to);
      }
      break;
    case Do::kSpread:
      spread_elements(to, at[step.from], view.size, block.rows, pass.row);
      break;
    case Do::kMapRepeated:
      map_rows(stage, operands(stage), step.from, at.data(), block.rows, pass.row, to);
      break;
    case Do::kCopy:
      std::memcpy(to, at[step.from],
                  static_cast<size_t>(by_row ? block.rows : block.n) * view.size);
      break;
    case Do::kSweep:
      break;
  }
}

}  // namespace millrace
