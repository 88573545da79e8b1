// Print, PrintV2 and Timestamp: what people look at while a step runs.

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>

#include "millrace/base/file_access.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/kernel/registry.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/ops/control/summarize.h"

namespace millrace {
namespace {

Status print_grad(GradientContext& g) {
  g.set(0, g.gradient_as_is());
  return ok_status();
}

constexpr std::string_view kFile = "file://";

bool prints_to_file(const AttrMap& attrs) {
  const Result<std::string> target = read_attr<std::string>(attrs, "output_stream");
  return target.ok() && target->starts_with(kFile);
}

// One call, so that lines of several threads do not mix.
void write_text(std::FILE* stream, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

// How often a node has printed, over all steps of its session.
class PrintCount final : public Resource {
 public:
  static constexpr std::string_view kTypeName = "PrintCount";
  std::string describe() const override { return str_cat("PrintCount ", count_.load()); }
  bool next_is_among(int64_t first_n) {
    int64_t count = count_.load();
    while (count < first_n) {
      if (count_.compare_exchange_weak(count, count + 1)) return true;
    }
    return false;
  }

 private:
  std::atomic<int64_t> count_{0};
};

class Print : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<Print>();
    MR_TRY_ASSIGN(kernel->message_, node.attr<std::string>("message"));
    MR_TRY_ASSIGN(kernel->first_n_, node.attr<int64_t>("first_n"));
    MR_TRY_ASSIGN(kernel->summarize_, node.attr<int64_t>("summarize"));
    kernel->state_name_ = ResourceManager::session_name(node.session_prefix, node.name);
    return kernel;
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const bool wanted, is_wanted(ctx));
    if (wanted) {
      std::string text = message_;
      for (int i = 1; i < ctx.num_inputs(); ++i) {
        append_to(text, str_cat("[", summarize(ctx.input(i), summarize_), "]"));
      }
      text += '\n';
      write_text(stderr, text);
    }
    ctx.set_output_value(0, ctx.take_input(0));
    return ok_status();
  }

 private:
  Result<bool> is_wanted(const KernelContext& ctx) const {
    if (first_n_ < 0) return true;
    MR_TRY_ASSIGN(Ref<PrintCount> count,
                  ctx.resources().lookup_or_create<PrintCount>(
                      ResourceManager::kDefaultContainer, state_name_,
                      []() -> Result<Ref<PrintCount>> { return make_ref<PrintCount>(); }));
    return count->next_is_among(first_n_);
  }

  std::string message_;
  int64_t first_n_ = -1;
  int64_t summarize_ = 3;
  std::string state_name_;
};

class PrintV2 : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<PrintV2>();
    MR_TRY_ASSIGN(kernel->target_, node.attr<std::string>("output_stream"));
    MR_TRY_ASSIGN(kernel->end_, node.attr<std::string>("end"));
    const std::string_view target = kernel->target_;
    for (const char* known : {"stdout", "stderr", "log(info)", "log(warning)", "log(error)"}) {
      if (target == known) return kernel;
    }
    if (target.starts_with(kFile)) return kernel;
    return invalid_argument(
        "output_stream must be stdout, stderr, log(info), log(warning), log(error) or "
        "file://PATH, got '",
        target, "'");
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 0));
    const std::string text = ctx.input(0).item<std::string>() + end_;
    if (!target_.starts_with(kFile)) {
      write_text(target_ == "stdout" ? stdout : stderr, text);
      return ok_status();
    }
    const std::string path = target_.substr(kFile.size());
    MR_TRY_ASSIGN(const FilePlace place,
                  ctx.device().files().resolve(path, FileAccess::Use::kWrite));
    const Result<Ref<WritableFile>> file = place.fs->open_append(place.path);
    if (!file.ok()) return failed_precondition("cannot write to '", path, "'");
    MR_TRY((*file)->append(text));
    return (*file)->close();
  }

 private:
  std::string target_;
  std::string end_;
};

Status print_v2_shape(ShapeContext& c) { return c.with_rank(0, 0).status(); }

Status timestamp_cpu(KernelContext& ctx) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  ctx.set_output(0, Tensor::scalar(std::chrono::duration<double>(now).count()));
  return ok_status();
}

}  // namespace

void register_print(Registry& registry) {
  mark_reach({"PrintV2"}, Reach::kFiles, prints_to_file);
  registry.add({.name = "Print",
                .doc = "Hands the input on and writes the data to the standard error stream.",
                .inputs = {{"input", "T"}, {"data", "list(U)"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}},
                .attrs = {{"U", "list(type) >= 0"},
                          {"message", "string = ''", "Comes before the data."},
                          {"first_n", "int = -1", "How often to write; negative: always."},
                          {"summarize", "int = 3", "Elements of each tensor to show; -1: all."}},
                .traits = {.stateful = true, .may_alias = 1},
                .shape = shape_rules::unchanged,
                .gradient = print_grad});
  registry.add({.name = "PrintV2",
                .doc = "Writes a string to a stream or file.",
                .inputs = {{"input", "string"}},
                .attrs = {{"output_stream", "string = 'stderr'"}, {"end", "string = '\n'"}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = print_v2_shape});
  registry.add({.name = "Timestamp",
                .doc = "Seconds since the beginning of 1970, as the clock says when it runs.",
                .outputs = {{"ts", "double"}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = shape_rules::scalar,
                .no_gradient = "values from outside the graph"});
  registry.kernel<Print>("Print", DeviceKind::kCpu);
  registry.kernel<PrintV2>("PrintV2", DeviceKind::kCpu);
  registry.kernel("Timestamp", DeviceKind::kCpu, timestamp_cpu);
}

}  // namespace millrace
