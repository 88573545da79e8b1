// _FusedElementwise on a GPU: one kernel, compiled for the tree at run time, and until that is
// ready the ops one after the other.

#include <algorithm>
#include <memory>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/device/cuda/kernel_compiler.h"
#include "millrace/device/cuda/launch.h"
#include "millrace/kernel/recorder.h"
#include "millrace/ops/math/device_fused.cuh"
#include "millrace/ops/math/elementwise_table.cuh"
#include "millrace/ops/math/fused_source.h"
#include "millrace/ops/math/tree_function.h"

namespace millrace {
namespace {

using Access = FusedForm::Access;
constexpr TypeSet kComputed = type_set_of<DeviceElementTypes>;

bool is_select(std::string_view op) { return op == "Select" || op == "SelectV2"; }
bool is_bias_add(std::string_view op) { return op == "BiasAdd" || op == "BiasAddV1"; }

// Whether a GPU has the op, and not only the host.
bool computes(const ElementwiseTree::Stage& stage, DType operand) {
  if (!kComputed.contains(stage.type) || !kComputed.contains(operand)) return false;
  if (stage.op == "Cast" || stage.op == "StopGradient" || is_select(stage.op)) return true;
  if (stage.op == "AddN" || is_bias_add(stage.op)) return stage.type != DType::kBool;
  return unary_launches().find(stage.op, operand) != nullptr ||
         binary_launches().find(stage.op, operand) != nullptr;
}

// A kernel as it is called for some shapes.
struct Call {
  FusedForm form;
  std::vector<uint64_t> words;
  int64_t packs = 0;
};

class CudaFusedElementwise final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(ElementwiseTree tree, ElementwiseTree::read(node.attrs, node.num_inputs()));
    MR_TRY_ASSIGN(TreeFunction on_host, TreeFunction::make(node));
    auto out = std::make_unique<CudaFusedElementwise>(std::move(tree), std::move(on_host));
    for (DType type : node.input_types) out->types_.push_back(base_type(type));
    out->num_inputs_ = node.num_inputs();
    for (const ElementwiseTree::Stage& stage : out->tree_.stages) {
      std::vector<DType> read;
      for (int o : stage.operands) read.push_back(out->types_[static_cast<size_t>(o)]);
      MR_TRY_ASSIGN(const std::optional<StageFunction> function,
                    TreeFunction::function_of(stage, out->num_inputs_, read));
      if ((!function && stage.op != "StopGradient") || !computes(stage, read[0])) {
        return unimplemented(stage.op, " of ", read[0], " in a fused node on a GPU");
      }
      out->functions_.push_back(function.value_or(StageFunction()));
      out->types_.push_back(stage.type);
    }
    return std::unique_ptr<Kernel>(std::move(out));
  }
  CudaFusedElementwise(ElementwiseTree tree, TreeFunction on_host)
      : tree_(std::move(tree)), on_host_(std::move(on_host)), forms_(std::make_unique<Forms>()) {}

  Status compute(KernelContext& ctx) const override {
    std::vector<Shape> shapes;
    MR_TRY(find_shapes(ctx, shapes));
    std::vector<void*> results;
    for (size_t r = 0; r < tree_.results.size(); ++r) {
      MR_TRY_ASSIGN(Tensor * out,
                    ctx.allocate_output(static_cast<int>(r), shapes[value_of(tree_.results[r])]));
      results.push_back(out->mutable_raw());
    }
    std::vector<Call> calls;
    if (!find_calls(ctx, shapes, results, calls)) return one_by_one(ctx, shapes, results);
    std::vector<const CompiledKernel*> kernels;
    bool ready = true, awaited = false;
    for (const Call& call : calls) {
      const CompiledKernel* const kernel = kernel_of(ctx, call.form);
      kernels.push_back(kernel);
      awaited |= kernel == nullptr || kernel->awaited();
      ready &= kernel != nullptr && kernel->ready();
    }
    // What is recorded stays as it is.
    if (awaited && as_recorder(ctx.device()) != nullptr) {
      return unavailable("a fused kernel is not compiled yet");
    }
    if (!ready) return one_by_one(ctx, shapes, results);
    for (size_t i = 0; i < calls.size(); ++i) {
      MR_TRY(kernels[i]->launch(ctx, blocks_for(calls[i].packs, CompiledKernel::kThreads),
                                calls[i].words));
    }
    return ok_status();
  }

 private:
  // The kernels asked for so far. What runs once is not worth one.
  struct Forms {
    struct Form {
      FusedForm form;
      int uses = 0;
      const CompiledKernel* kernel = nullptr;
    };
    Mutex mu;
    std::vector<Form> all MR_GUARDED_BY(mu);
  };

  size_t value_of(int stage) const { return static_cast<size_t>(num_inputs_ + stage); }

  Status find_shapes(const KernelContext& ctx, std::vector<Shape>& shapes) const {
    for (int i = 0; i < num_inputs_; ++i) shapes.push_back(ctx.input(i).shape());
    for (size_t s = 0; s < tree_.stages.size(); ++s) {
      const ElementwiseTree::Stage& stage = tree_.stages[s];
      if (stage.op == "StopGradient") {
        shapes.push_back(shapes[static_cast<size_t>(stage.operands[0])]);
        continue;
      }
      std::vector<const Shape*> operands;
      for (int o : stage.operands) operands.push_back(&shapes[static_cast<size_t>(o)]);
      Result<Shape> shape = functions_[s].shape(operands);
      if (!shape.ok()) return on_host_.failed(static_cast<int>(s), shape.status());
      shapes.push_back(*std::move(shape));
    }
    return ok_status();
  }

  // The condition of a Select, as a shape that is broadcast like any other.
  Shape condition_shape(size_t stage, const std::vector<Shape>& shapes) const {
    const size_t condition = static_cast<size_t>(tree_.stages[stage].operands[0]);
    const Shape& result = shapes[value_of(static_cast<int>(stage))];
    if (!functions_[stage].picks_rows(shapes[condition], result)) return shapes[condition];
    std::vector<int64_t> dims(static_cast<size_t>(result.rank()), 1);
    dims[0] = result.dim(0);
    return Shape::make(dims).value();
  }

  // What calls compute all results, one for each shape that results have. False where a kernel
  // cannot find its operands so.
  bool find_calls(const KernelContext& ctx, std::vector<Shape> shapes,
                  const std::vector<void*>& results, std::vector<Call>& calls) const {
    std::vector<int> picked(static_cast<size_t>(num_inputs_), 0), read = picked;
    for (size_t s = 0; s < tree_.stages.size(); ++s) {
      const std::vector<int>& operands = tree_.stages[s].operands;
      for (int o : operands) {
        if (o < num_inputs_) ++read[static_cast<size_t>(o)];
      }
      if (!is_select(tree_.stages[s].op)) continue;
      const size_t condition = static_cast<size_t>(operands[0]);
      const Shape shape = condition_shape(s, shapes);
      if (shape == shapes[condition]) continue;
      if (operands[0] >= num_inputs_) return false;
      ++picked[condition];
      shapes[condition] = shape;
    }
    // A vector that is seen as rows by one and as columns by another stays with its own ops.
    for (size_t i = 0; i < picked.size(); ++i) {
      if (picked[i] > 0 && (picked[i] > 1 || read[i] > 1)) return false;
    }
    uint32_t done = 0;
    for (size_t r = 0; r < tree_.results.size(); ++r) {
      if ((done >> r & 1) != 0) continue;
      const Shape& shape = shapes[value_of(tree_.results[r])];
      Call call;
      for (size_t other = r; other < tree_.results.size(); ++other) {
        if (shapes[value_of(tree_.results[other])] == shape) {
          call.form.results |= uint32_t{1} << other;
        }
      }
      done |= call.form.results;
      if (shape.num_elements() == 0) continue;
      if (!fill_in(ctx, shapes, shape, results, call)) return false;
      calls.push_back(std::move(call));
    }
    return true;
  }

  bool fill_in(const KernelContext& ctx, const std::vector<Shape>& shapes, const Shape& shape,
               const std::vector<void*>& results, Call& call) const {
    FusedForm& form = call.form;
    const int64_t n = shape.num_elements();
    form.wide = n > INT32_MAX;
    std::vector<uint64_t> rows, columns;
    std::vector<const Shape*> strided;
    // What packs are made of: sizes that they divide, the largest element, and addresses.
    uint64_t divided = static_cast<uint64_t>(n), largest = 1, addresses = 0;
    const auto in_packs = [&](const void* data, DType type) {
      largest = std::max<uint64_t>(largest, dtype_size(type));
      addresses |= reinterpret_cast<uintptr_t>(data) / dtype_size(type);
    };
    const uint32_t needed = needed_stages(tree_, num_inputs_, form.results);
    uint64_t used = 0;
    for (size_t s = 0; s < tree_.stages.size(); ++s) {
      if ((needed >> s & 1) == 0) continue;
      for (int o : tree_.stages[s].operands) used |= o < num_inputs_ ? uint64_t{1} << o : 0;
    }
    for (size_t i = 0; i < static_cast<size_t>(num_inputs_); ++i) {
      if ((used >> i & 1) == 0) continue;
      const Tensor& input = ctx.input(static_cast<int>(i));
      int64_t count = 0;
      form.access[i] = access_of(shapes[i], shape, &count);
      call.words.push_back(reinterpret_cast<uintptr_t>(input.raw()));
      switch (form.access[i]) {
        case Access::kRow:
          rows.push_back(static_cast<uint64_t>(count));
          divided |= static_cast<uint64_t>(count);
          [[fallthrough]];
        case Access::kDense:
          in_packs(input.raw(), types_[i]);
          break;
        case Access::kColumn:
          columns.push_back(static_cast<uint64_t>(count));
          divided |= static_cast<uint64_t>(count);
          break;
        case Access::kStrided:
          strided.push_back(&shapes[i]);
          break;
        default:
          break;
      }
    }
    for (size_t r = 0; r < results.size(); ++r) {
      if ((form.results >> r & 1) == 0) continue;
      call.words.push_back(reinterpret_cast<uintptr_t>(results[r]));
      in_packs(results[r], types_[value_of(tree_.results[r])]);
    }
    if (strided.empty()) {
      constexpr uint64_t kBytes = 16, kMost = 8;
      while (form.pack < kMost && form.pack * 2 * largest <= kBytes &&
             ((divided | addresses) & form.pack) == 0) {
        form.pack = static_cast<uint8_t>(form.pack * 2);
      }
    }
    call.packs = n / form.pack;
    call.words.push_back(static_cast<uint64_t>(call.packs));
    call.words.insert(call.words.end(), rows.begin(), rows.end());
    call.words.insert(call.words.end(), columns.begin(), columns.end());
    return strided.empty() || add_strides(strided, shape, call);
  }

  // How an operand is read; `count`: the elements of a kRow, or how many have one of a kColumn.
  static Access access_of(const Shape& own, const Shape& shape, int64_t* count) {
    if (own.num_elements() == shape.num_elements()) return Access::kDense;
    if (own.num_elements() == 1) return Access::kSingle;
    // The dimensions from the innermost: first those that it has, then those that it repeats along,
    // or the other way round.
    int changes = 0;
    bool first_has = true, has = true, any = false;
    int64_t inner = 1;
    for (int d = 0; d < shape.rank(); ++d) {
      const int64_t size = shape.dim(shape.rank() - 1 - d);
      if (size == 1) continue;
      const int at = own.rank() - 1 - d;
      const bool now = at >= 0 && own.dim(at) != 1;
      if (!any) first_has = has = now;
      any = true;
      changes += now != has;
      has = now;
      if (changes == 0) inner *= size;
    }
    *count = inner;
    if (changes != 1) return Access::kStrided;
    return first_has ? Access::kRow : Access::kColumn;
  }

  // Sizes and strides, with dimensions joined that all operands go through in one.
  static bool add_strides(const std::vector<const Shape*>& operands, const Shape& shape,
                          Call& call) {
    std::vector<uint64_t> sizes;
    std::vector<std::vector<uint64_t>> strides(operands.size());
    std::vector<uint64_t> next(operands.size(), 1);
    for (int d = 0; d < shape.rank(); ++d) {
      const uint64_t size = static_cast<uint64_t>(shape.dim(shape.rank() - 1 - d));
      if (size == 1) continue;
      bool joins = !sizes.empty();
      std::vector<uint64_t> steps;
      for (size_t k = 0; k < operands.size(); ++k) {
        const int at = operands[k]->rank() - 1 - d;
        const uint64_t own = at >= 0 ? static_cast<uint64_t>(operands[k]->dim(at)) : 1;
        steps.push_back(own == 1 ? 0 : next[k]);
        next[k] *= own;
        joins = joins && steps[k] == strides[k].back() * sizes.back();
      }
      if (joins) {
        sizes.back() *= size;
        continue;
      }
      sizes.push_back(size);
      for (size_t k = 0; k < operands.size(); ++k) strides[k].push_back(steps[k]);
    }
    if (sizes.size() > FusedForm::kMaxRank) return false;
    call.form.rank = static_cast<uint8_t>(sizes.size());
    call.words.insert(call.words.end(), sizes.begin(), sizes.end());
    for (const std::vector<uint64_t>& own : strides) {
      call.words.insert(call.words.end(), own.begin(), own.end());
    }
    return true;
  }

  // Null the first time.
  const CompiledKernel* kernel_of(const KernelContext& ctx, const FusedForm& form) const {
    MutexLock lock(forms_->mu);
    auto at = std::ranges::find(forms_->all, form, &Forms::Form::form);
    if (at == forms_->all.end()) at = forms_->all.insert(at, Forms::Form{form});
    if (at->kernel == nullptr && ++at->uses > 1) {
      const std::span<const DType> inputs(types_.data(), static_cast<size_t>(num_inputs_));
      at->kernel = &compiled_kernel(
          ctx, str_cat("#include \"millrace/ops/math/fused_device.cuh\"\nusing namespace "
                       "millrace;\n",
                       fused_source(tree_, inputs, form)));
    }
    return at->kernel;
  }

  Status one_by_one(KernelContext& ctx, const std::vector<Shape>& shapes,
                    const std::vector<void*>& results) const {
    std::vector<Tensor> kept(tree_.stages.size());
    std::vector<const void*> values;
    for (int i = 0; i < num_inputs_; ++i) values.push_back(ctx.input(i).raw());
    std::vector<size_t> last_read(shapes.size(), 0);
    for (size_t s = 0; s < tree_.stages.size(); ++s) {
      for (int o : tree_.stages[s].operands) last_read[static_cast<size_t>(o)] = s;
    }
    for (size_t s = 0; s < tree_.stages.size(); ++s) {
      const size_t value = value_of(static_cast<int>(s));
      const auto result = std::ranges::find(tree_.results, static_cast<int>(s));
      void* out = nullptr;
      if (result != tree_.results.end()) {
        out = results[static_cast<size_t>(result - tree_.results.begin())];
      } else {
        MR_TRY_ASSIGN(kept[s], ctx.allocate_temp(types_[value], shapes[value]));
        out = kept[s].mutable_raw();
      }
      values.push_back(out);
      if (shapes[value].num_elements() > 0) {
        if (Status done = run_stage(ctx, s, shapes, values, out); !done.ok()) {
          return on_host_.failed(static_cast<int>(s), done);
        }
      }
      for (int o : tree_.stages[s].operands) {
        if (o >= num_inputs_ && last_read[static_cast<size_t>(o)] == s) {
          kept[static_cast<size_t>(o - num_inputs_)] = Tensor();
        }
      }
    }
    return ok_status();
  }

  Status run_stage(KernelContext& ctx, size_t s, const std::vector<Shape>& shapes,
                   const std::vector<const void*>& values, void* out) const {
    DeviceEngine& engine = *device_engine(ctx);
    const ElementwiseTree::Stage& stage = tree_.stages[s];
    const Shape& shape = shapes[value_of(static_cast<int>(s))];
    const int64_t n = shape.num_elements();
    const size_t x = static_cast<size_t>(stage.operands[0]);
    const auto operand = [&](size_t k) {
      const size_t at = static_cast<size_t>(stage.operands[k]);
      return DeviceEngine::Operand{values[at], &shapes[at]};
    };
    if (stage.op == "StopGradient") {
      return engine.copy(ctx, values[x], out, static_cast<size_t>(n) * dtype_size(stage.type));
    }
    if (stage.op == "Cast") {
      return engine.cast(ctx, types_[x], stage.type, /*truncate=*/false, values[x], out, n);
    }
    if (is_select(stage.op)) {
      const Shape condition = condition_shape(s, shapes);
      return engine.select(ctx, dtype_size(stage.type), {values[x], &condition}, operand(1),
                           operand(2), out, shape);
    }
    if (stage.op == "AddN") {
      std::vector<const void*> terms;
      for (int o : stage.operands) terms.push_back(values[static_cast<size_t>(o)]);
      return engine.add_n(ctx, stage.type, terms, out, n);
    }
    if (stage.operands.size() == 1) {
      return engine.unary(ctx, stage.op, types_[x], values[x], out, n);
    }
    return engine.binary(ctx, is_bias_add(stage.op) ? "Add" : std::string_view(stage.op), types_[x],
                         operand(0), operand(1), out, shape);
  }

  const ElementwiseTree tree_;
  const TreeFunction on_host_;  // checks the node, and says what failed
  const std::unique_ptr<Forms> forms_;
  int num_inputs_ = 0;
  std::vector<DType> types_;  // of inputs and stages
  std::vector<StageFunction> functions_;
};

}  // namespace

void register_device_fused(Registry& registry) {
  registry.kernel<CudaFusedElementwise>("_FusedElementwise", DeviceKind::kCuda);
}

}  // namespace millrace
