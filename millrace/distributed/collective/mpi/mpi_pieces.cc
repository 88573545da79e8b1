// What MpiEngine does once all ranks have been told to go. All of them begin the same pieces in the
// same order, whatever is done meanwhile: that of going_, then that of the pieces.

#include <cstring>

#include "millrace/base/log.h"
#include "millrace/distributed/collective/mpi/mpi_engine.h"
#include "millrace/ops/collective/merge.h"

namespace millrace {
namespace {

using Merge = Collectives::Merge;

// What is begun at once, of one call or several.
constexpr size_t kInFlight = 8;

// The arithmetic of our own reductions: so NaN, rounding and overflow are what they are there.
template <Merge kMerge, DType kType>
void merge_elements(void* in, void* in_out, int* count, MpiLibrary::Type*) {
  static const BinaryFunction merge = merge_function(kMerge, kType);
  merge(in, in_out, in_out, *count);
}

template <Merge kMerge>
MpiLibrary::OpFunction function_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return merge_elements<kMerge, DType::kFloat>;
    case DType::kDouble:
      return merge_elements<kMerge, DType::kDouble>;
    case DType::kHalf:
      return merge_elements<kMerge, DType::kHalf>;
    case DType::kBFloat16:
      return merge_elements<kMerge, DType::kBFloat16>;
    case DType::kInt32:
      return merge_elements<kMerge, DType::kInt32>;
    default:
      return merge_elements<kMerge, DType::kInt64>;
  }
}

MpiLibrary::OpFunction function_of(Merge merge, DType dtype) {
  switch (merge) {
    case Merge::kMul:
      return function_of<Merge::kMul>(dtype);
    case Merge::kMin:
      return function_of<Merge::kMin>(dtype);
    case Merge::kMax:
      return function_of<Merge::kMax>(dtype);
    case Merge::kAdd:
      break;
  }
  return function_of<Merge::kAdd>(dtype);
}

char* bytes_of(const Tensor& tensor) { return static_cast<char*>(const_cast<void*>(tensor.raw())); }

}  // namespace

MpiLibrary::Type MpiEngine::type_of(DType dtype) const {
  switch (dtype) {
    case DType::kFloat:
      return mpi_.float_type;
    case DType::kDouble:
      return mpi_.double_type;
    case DType::kInt32:
      return mpi_.int32_type;
    case DType::kInt64:
      return mpi_.int64_type;
    default:
      return mpi_.uint16_type;  // half and bfloat16: only merge_elements() reads them
  }
}

Result<MpiLibrary::Op> MpiEngine::op_of(Merge merge, DType dtype) {
  MpiLibrary::Op& op = ops_[{merge, dtype}];
  if (op == nullptr) {
    MR_TRY(mpi_.status(mpi_.op_create(function_of(merge, dtype), /*commutes=*/1, &op),
                       "MPI_Op_create"));
  }
  return op;
}

void MpiEngine::plan(Going& going, const std::vector<int64_t>& numbers) {
  const MpiCall::Work& work = going.call->work();
  if (work.kind == MpiCall::Kind::kGather) return plan_gather(going, numbers);
  int64_t most = chunk_bytes_;
  int64_t all = 0;
  int root = 0;
  Result<Tensor> made = work.input;
  if (work.kind == MpiCall::Kind::kReduce) {
    made = Tensor::allocate(work.dtype, work.shape);
    most = std::max<int64_t>(1, most / static_cast<int64_t>(dtype_size(work.dtype)));
    all = work.shape.num_elements();
  } else {
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] != 0) root = static_cast<int>(i);
    }
    if (root != world_.rank) made = Tensor::allocate(work.dtype, work.shape);
    all = work.shape.num_elements() * static_cast<int64_t>(dtype_size(work.dtype));
  }
  going.failed = made.status();
  if (made.ok()) going.output = *std::move(made);
  for (int64_t at = 0; at < all; at += most) {
    going.pieces.push_back({at, std::min(most, all - at), root, at});
  }
}

// Few bytes are gathered by one operation. Many are given by each rank to all, in pieces, because
// counts and places within all of them may be too large for MPI's int.
void MpiEngine::plan_gather(Going& going, const std::vector<int64_t>& rows) {
  const MpiCall::Work& work = going.call->work();
  std::vector<int64_t> dims(work.shape.dims().begin(), work.shape.dims().end());
  int64_t row_bytes = static_cast<int64_t>(dtype_size(work.dtype));
  for (size_t i = 1; i < dims.size(); ++i) row_bytes *= dims[i];
  dims[0] = 0;
  for (const int64_t count : rows) dims[0] += count;
  Result<Shape> shape = Shape::make(dims);
  Result<Tensor> made =
      shape.ok() ? Tensor::allocate(work.dtype, *shape) : Result<Tensor>(shape.status());
  going.failed = made.status();
  if (made.ok()) going.output = *std::move(made);
  going.at_once = dims[0] * row_bytes <= chunk_bytes_;
  going.counts.resize(rows.size());
  going.offsets.resize(rows.size());
  int64_t begin = 0;
  for (const int from : world_.order) {
    const int64_t bytes = rows[static_cast<size_t>(from)] * row_bytes;
    if (going.at_once) {
      going.counts[static_cast<size_t>(from)] = static_cast<int>(bytes);
      going.offsets[static_cast<size_t>(from)] = static_cast<int>(begin);
    } else {
      if (from == world_.rank && going.output.valid() && bytes > 0) {
        std::memcpy(bytes_of(going.output) + begin, work.input.raw(), static_cast<size_t>(bytes));
      }
      for (int64_t at = 0; at < bytes; at += chunk_bytes_) {
        going.pieces.push_back({begin + at, std::min(chunk_bytes_, bytes - at), from, at});
      }
    }
    begin += bytes;
  }
  if (going.at_once && begin > 0) going.pieces.push_back({0, begin, 0, 0});
}

Status MpiEngine::begin_reduction(const Going& going, const Piece& piece,
                                  MpiLibrary::Request& request) {
  const MpiCall::Work& work = going.call->work();
  const auto size = static_cast<int64_t>(dtype_size(work.dtype));
  MR_TRY_ASSIGN(const MpiLibrary::Op op, op_of(work.merge, work.dtype));
  char* to = going.output.valid() ? bytes_of(going.output) + piece.begin * size : scratch_.get();
  return mpi_.status(
      mpi_.iallreduce(bytes_of(work.input) + piece.begin * size, to, static_cast<int>(piece.count),
                      type_of(work.dtype), op, data_, &request),
      "MPI_Iallreduce");
}

Status MpiEngine::begin_piece(Going& going, MpiLibrary::Request& request) {
  const Piece& piece = going.pieces[going.begun++];
  const MpiCall::Work& work = going.call->work();
  if (work.kind == MpiCall::Kind::kReduce) return begin_reduction(going, piece, request);
  char* to = going.output.valid() ? bytes_of(going.output) + piece.begin : scratch_.get();
  if (going.at_once) {
    return mpi_.status(
        mpi_.iallgatherv(bytes_of(work.input), going.counts[rank()], mpi_.byte, to,
                         going.counts.data(), going.offsets.data(), mpi_.byte, data_, &request),
        "MPI_Iallgatherv");
  }
  // MPI reads what the root has, and writes it elsewhere alone.
  if (piece.root == world_.rank) to = bytes_of(work.input) + piece.from;
  return mpi_.status(
      mpi_.ibcast(to, static_cast<int>(piece.count), mpi_.byte, piece.root, data_, &request),
      "MPI_Ibcast");
}

Status MpiEngine::progress(bool& moved) {
  for (const auto& going : going_) {
    while (going->begun < going->pieces.size() && in_flight_.size() < kInFlight) {
      InFlight& begun = in_flight_.emplace_back(InFlight{going.get(), nullptr});
      MR_TRY(begin_piece(*going, begun.request));
      moved = true;
    }
    if (going->begun < going->pieces.size()) break;
  }
  const auto ended = [&](MpiLibrary::Request& request, Status& status) {
    int flag = 0;
    if (status.ok()) {
      status = mpi_.status(mpi_.test(&request, &flag, MpiLibrary::kNoStatus), "MPI_Test");
    }
    moved = moved || flag != 0;
    return flag != 0;
  };
  Status status;
  for (auto it = in_flight_.begin(); it != in_flight_.end();) {
    if (ended(it->request, status)) {
      ++it->going->done;
      it = in_flight_.erase(it);
    } else {
      ++it;
    }
  }
  sends_.remove_if([&](Send& send) { return ended(send.request, status); });
  MR_TRY(status);
  std::vector<std::unique_ptr<Going>> done;
  std::erase_if(going_, [&](std::unique_ptr<Going>& going) {
    if (going->done < going->pieces.size()) return false;
    done.push_back(std::move(going));
    return true;
  });
  for (const auto& going : done) finished(*going);
  moved = moved || !done.empty();
  return ok_status();
}

void MpiEngine::finished(Going& going) {
  const MpiCall::Work& work = going.call->work();
  if (!going.failed.ok()) {
    give_up(*going.call, str_cat(going.call->name(), ": ", world_.members[rank()],
                                 " has failed: ", going.failed.message()));
    return answer(std::move(going.call), going.failed);
  }
  if (work.final == Collectives::Final::kDiv) {
    divide_elements(work.dtype, going.output.mutable_raw(), going.output.num_elements(), size());
  }
  answer(std::move(going.call), std::move(going.output));
}

}  // namespace millrace
