#include "millrace/ops/random/register.h"

namespace millrace {

void register_random_ops(Registry& registry) {
  register_candidate_samplers(registry);
  register_fixed_unigram_sampler(registry);
  register_learned_unigram_samplers(registry);
  register_multinomial(registry);
  register_parameterized_truncated_normal(registry);
  register_random_fill(registry);
  register_random_gamma(registry);
  register_random_shuffle(registry);
  register_random_uniform_int(registry);
}

}  // namespace millrace
