#include "millrace/io/wav.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace {
namespace {

void put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

int16_t as_int16(float sample) {
  if (std::isnan(sample)) return 0;
  return static_cast<int16_t>(std::clamp(sample * 32768.0F, -32768.0F, 32767.0F));
}

}  // namespace

Status check_wav_rate(double frames_per_second) {
  if (frames_per_second >= 1 && frames_per_second <= 1e9) return ok_status();
  return invalid_argument("sample_rate must be from 1 to 1e9, got ", frames_per_second);
}

Result<std::string> encode_wav(std::span<const float> samples, int64_t channels,
                               double frames_per_second) {
  constexpr uint64_t kHeaderBytes = 36, kSampleBytes = 2;
  constexpr uint64_t kMax = std::numeric_limits<uint32_t>::max();
  if (channels < 1 || channels > 65535 / static_cast<int64_t>(kSampleBytes) ||
      samples.size() % static_cast<size_t>(channels) != 0) {
    return invalid_argument("WAV of ", samples.size(), " samples in ", channels, " channels");
  }
  MR_TRY(check_wav_rate(frames_per_second));
  const uint64_t bytes = samples.size() * kSampleBytes;
  const uint64_t frame_bytes = static_cast<uint64_t>(channels) * kSampleBytes;
  const auto rate = static_cast<uint64_t>(frames_per_second);
  if (bytes > kMax - kHeaderBytes || rate * frame_bytes > kMax) {
    return invalid_argument("WAV of ", samples.size(), " samples at ", rate,
                            " frames a second: the format does not hold as much");
  }
  std::string out;
  out.reserve(kHeaderBytes + 8 + bytes);
  out += "RIFF";
  put(out, kHeaderBytes + bytes, 4);
  out += "WAVEfmt ";
  put(out, 16, 4);
  put(out, 1, 2);  // samples as they are
  put(out, static_cast<uint64_t>(channels), 2);
  put(out, rate, 4);
  put(out, rate * frame_bytes, 4);
  put(out, frame_bytes, 2);
  put(out, 8 * kSampleBytes, 2);
  out += "data";
  put(out, bytes, 4);
  for (const float sample : samples) put(out, static_cast<uint16_t>(as_int16(sample)), 2);
  return out;
}

}  // namespace millrace
