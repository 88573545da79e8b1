#include "millrace/session/session_options.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "proto/config.pb.h"

namespace millrace {
namespace {

void read_optimizer_options(const tensorflow::GraphOptions& graph, SessionOptions& out) {
  using tensorflow::RewriterConfig;
  const tensorflow::OptimizerOptions& optimizer = graph.optimizer_options();
  const RewriterConfig& rewrite = graph.rewrite_options();
  if (rewrite.disable_meta_optimizer()) out.optimizer_level = 1;
  if (optimizer.opt_level() == tensorflow::OptimizerOptions::L0) out.optimizer_level = 0;
  out.disabled_passes.assign(optimizer.disabled_passes().begin(),
                             optimizer.disabled_passes().end());
  const auto disable = [&](RewriterConfig::Toggle toggle,
                           std::initializer_list<const char*> passes) {
    if (toggle != RewriterConfig::OFF) return;
    out.disabled_passes.insert(out.disabled_passes.end(), passes.begin(), passes.end());
  };
  disable(rewrite.layout_optimizer(), {"image_layout"});
  disable(rewrite.constant_folding(), {"constant_folding"});
  disable(rewrite.common_subgraph_elimination(), {"common_subexpressions"});
  disable(rewrite.arithmetic_optimization(),
          {"identities", "real_identities", "folded_transposes"});
  disable(rewrite.remapping(), {"fuse_elementwise", "sums_of_products", "folded_batch_norms"});
  disable(rewrite.shape_optimization(), {"known_values"});
  disable(rewrite.dependency_optimization(), {"gates"});
  out.shape_plans = rewrite.shape_optimization() != RewriterConfig::OFF;
  const auto on = [](RewriterConfig::Toggle toggle) {
    return toggle == RewriterConfig::ON || toggle == RewriterConfig::AGGRESSIVE;
  };
  if (on(rewrite.auto_mixed_precision_mkl()) || on(rewrite.auto_mixed_precision_onednn_bfloat16()))
    out.cpu_precision = out.gpu_precision = DType::kBFloat16;
  if (on(rewrite.auto_mixed_precision_cpu())) out.cpu_precision = DType::kHalf;
  if (on(rewrite.auto_mixed_precision())) out.gpu_precision = DType::kHalf;
}

// The number of bytes in "memory_limit=BYTES", an entry of RewriterConfig::optimizers; 0 where none
// is one.
Result<int64_t> memory_limit_of(const tensorflow::RewriterConfig& config) {
  constexpr std::string_view kName = "memory_limit=";
  int64_t limit = 0;
  for (const std::string& entry : config.optimizers()) {
    if (!entry.starts_with(kName)) continue;
    const char* const end = entry.data() + entry.size();
    const auto [read, error] = std::from_chars(entry.data() + kName.size(), end, limit);
    if (error != std::errc() || read != end || limit <= 0) {
      return invalid_argument("expected memory_limit=BYTES with a positive number, got '", entry,
                              "' among the optimizers");
    }
  }
  return limit;
}

Result<GpuOptions> read_gpu_options(const tensorflow::ConfigProto& config) {
  GpuOptions out;
  const auto count = config.device_count().find("GPU");
  if (count != config.device_count().end()) {
    out.count = count->second;
    if (out.count < 0) {
      return invalid_argument("device_count[\"GPU\"] must not be negative, got ", out.count);
    }
  }
  const tensorflow::GPUOptions& gpu = config.gpu_options();
  out.memory_fraction = gpu.per_process_gpu_memory_fraction();
  out.visible = gpu.visible_device_list();
  for (const auto& devices : gpu.experimental().virtual_devices()) {
    out.virtual_megabytes.emplace_back(devices.memory_limit_mb().begin(),
                                       devices.memory_limit_mb().end());
  }
  return out;
}

}  // namespace

Result<SessionOptions> SessionOptions::from_proto(const tensorflow::ConfigProto& config) {
  SessionOptions out;
  auto cpus = config.device_count().find("CPU");
  if (cpus != config.device_count().end()) out.cpu_devices = cpus->second;
  if (out.cpu_devices < 1) {
    return invalid_argument("device_count[\"CPU\"] must be at least 1, got ", out.cpu_devices);
  }
  MR_TRY_ASSIGN(out.gpu, read_gpu_options(config));
  int threads =
      std::max(config.intra_op_parallelism_threads(), config.inter_op_parallelism_threads());
  if (threads < 0)
    return invalid_argument("the number of threads must not be negative, got ", threads);
  out.threads = threads;
  out.device_filters.assign(config.device_filters().begin(), config.device_filters().end());
  out.soft_placement = config.allow_soft_placement();
  out.log_placement = config.log_device_placement();
  out.timeout_ms = config.operation_timeout_in_ms();
  out.isolate_state = config.isolate_session_state();
  for (const tensorflow::JobDef& job : config.cluster_def().job()) {
    if (job.tasks().empty()) {
      return invalid_argument("job '", job.name(), "' of the cluster_def has no tasks");
    }
    for (const auto& [number, address] : job.tasks()) {
      out.cluster.push_back({job.name(), number, address});
    }
  }
  read_optimizer_options(config.graph_options(), out);
  MR_TRY_ASSIGN(out.memory_limit, memory_limit_of(config.graph_options().rewrite_options()));
  return out;
}

RunOptions RunOptions::from_proto(const tensorflow::RunOptions& options) {
  RunOptions out;
  out.timeout_ms = options.timeout_in_ms();
  out.trace = options.trace_level() != tensorflow::RunOptions::NO_TRACE;
  return out;
}

void RunMetadata::to_proto(tensorflow::RunMetadata& metadata) const {
  to_step_stats(events, wall_offset_ns, *metadata.mutable_step_stats());
}

}  // namespace millrace
