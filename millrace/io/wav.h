#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "millrace/base/status.h"

namespace millrace {

// INVALID_ARGUMENT for a rate that is not from 1 to 1e9.
Status check_wav_rate(double frames_per_second);

// Samples from -1 to 1, those of a frame side by side, as a WAV file of 16 bits a sample; what is
// louder is cut. INVALID_ARGUMENT for channels that do not divide the samples or that the format
// does not hold, for such a rate, and beyond 4 GiB.
Result<std::string> encode_wav(std::span<const float> samples, int64_t channels,
                               double frames_per_second);

}  // namespace millrace
