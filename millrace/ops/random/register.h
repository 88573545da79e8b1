#pragma once

namespace millrace {

class Registry;

// Ops that draw random numbers. Same seeds, same numbers, on any number of threads.
void register_random_ops(Registry& registry);

// Its parts, one per source.
void register_candidate_samplers(
    Registry& registry);  // (LogUniform Uniform All)CandidateSampler ComputeAccidentalHits
void register_fixed_unigram_sampler(Registry& registry);  // FixedUnigramCandidateSampler
void register_learned_unigram_samplers(
    Registry& registry);  // (LearnedUnigram ThreadUnsafeUnigram)CandidateSampler
void register_multinomial(Registry& registry);                     // Multinomial
void register_parameterized_truncated_normal(Registry& registry);  // as it is called
void register_random_fill(
    Registry& registry);  // RandomUniform RandomStandardNormal TruncatedNormal
void register_random_gamma(Registry& registry);        // RandomGamma RandomPoisson(V2)
void register_random_shuffle(Registry& registry);      // RandomShuffle
void register_random_uniform_int(Registry& registry);  // RandomUniformInt

}  // namespace millrace
