// AudioSummary and AudioSummaryV2.

#include <algorithm>

#include "millrace/io/wav.h"
#include "millrace/ops/summary/summary_op.h"
#include "proto/summary.pb.h"

namespace millrace {
namespace {

Status check_channels(int64_t channels) {
  if (channels >= 1 && channels <= 32767) return ok_status();
  return invalid_argument("sounds must have 1 to 32767 channels, got ", channels);
}

Status audio_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 0).status());
  MR_TRY_ASSIGN(const PartialShape tensor, c.with_rank_at_least(1, 2));
  MR_TRY(c.with_rank_at_most(1, 3).status());
  if (tensor.rank_known() && tensor.rank() == 3 && tensor.dim_known(2)) {
    MR_TRY(check_channels(tensor.dim(2)));
  }
  if (c.num_inputs() == 3) {
    MR_TRY(c.with_rank(2, 0).status());
  } else {
    MR_TRY_ASSIGN(const float rate, c.attr<float>("sample_rate"));
    MR_TRY(check_wav_rate(rate));
  }
  c.set_output(0, PartialShape::scalar());
  return ok_status();
}

class AudioSummary : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<AudioSummary>();
    MR_TRY_ASSIGN(kernel->max_outputs_, node.attr<int64_t>("max_outputs"));
    if (node.num_inputs() == 2) {
      MR_TRY_ASSIGN(kernel->sample_rate_, node.attr<float>("sample_rate"));
    }
    return kernel;
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const std::string tag, tag_input(ctx));
    const Tensor& sounds = ctx.input(1);
    if (sounds.rank() != 2 && sounds.rank() != 3) {
      return invalid_argument("Tensor must be 3-D or 2-D, got: ", sounds.shape());
    }
    float rate = sample_rate_;
    if (ctx.num_inputs() == 3) {
      MR_TRY(expect_rank(ctx, 2, 0));
      MR_TRY_ASSIGN(rate, ctx.scalar_input<float>(2));
    }
    const int64_t frames = sounds.dim(1), channels = sounds.rank() == 3 ? sounds.dim(2) : 1;
    MR_TRY(check_channels(channels));
    MR_TRY(check_wav_rate(rate));
    tensorflow::Summary summary;
    for (int64_t i = 0; i < std::min(sounds.dim(0), max_outputs_); ++i) {
      tensorflow::Summary::Value& value = *summary.add_value();
      value.set_tag(numbered_tag(tag, "audio", i, max_outputs_));
      tensorflow::Summary::Audio& audio = *value.mutable_audio();
      audio.set_sample_rate(rate);
      audio.set_num_channels(channels);
      audio.set_length_frames(frames);
      audio.set_content_type("audio/wav");
      MR_TRY_ASSIGN(*audio.mutable_encoded_audio_string(),
                    encode_wav(sounds.row(i).data<float>(), channels, rate));
    }
    return set_summary(ctx, summary);
  }

 private:
  int64_t max_outputs_ = 0;
  float sample_rate_ = 0;
};

}  // namespace

void register_audio_summary(Registry& registry) {
  registry.add({.name = "AudioSummary",
                .doc = "As AudioSummaryV2, with the rate as an attribute.",
                .inputs = {{"tag", "string"}, {"tensor", "float"}},
                .outputs = {{"summary", "string"}},
                .attrs = {{"sample_rate", "float"}, {"max_outputs", "int = 3 >= 1"}},
                .traits = {.cannot_differentiate = true, .cost = 1e4F},
                .shape = audio_shape,
                .no_gradient = kSummaryNoGradient,
                .deprecated_since = 15,
                .deprecation = "Use AudioSummaryV2."});
  registry.add({.name = "AudioSummaryV2",
                .doc = "A summary of sounds [batch, frames, channels] or [batch, frames], as WAV.",
                .inputs = {{"tag", "string"},
                           {"tensor", "float"},
                           {"sample_rate", "host(float)", "Frames a second."}},
                .outputs = {{"summary", "string"}},
                .attrs = {{"max_outputs", "int = 3 >= 1", "How many of the batch are kept."}},
                .traits = {.cannot_differentiate = true, .cost = 1e4F},
                .shape = audio_shape,
                .no_gradient = kSummaryNoGradient});
  registry.kernel<AudioSummary>("AudioSummary", DeviceKind::kCpu);
  registry.kernel<AudioSummary>("AudioSummaryV2", DeviceKind::kCpu);
}

}  // namespace millrace
