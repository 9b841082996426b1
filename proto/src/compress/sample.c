/*
 * sample.c - selection sampling: Knuth, "The Art of Computer Programming" 2, 3.4.2, algorithm S,
 * in whole numbers: of n elements left, k of them to be sent, the next is sent with probability
 * k / n (up to 2^-33).
 */
#include "sample.h"

void dunlin__sampler_begin(dunlin__sampler *sampler, uint32_t tensor, uint32_t n, uint32_t n_kept)
{
    sampler->draws.tensor = tensor;
    sampler->draws.block = 0;
    sampler->n_left = n;
    sampler->n_kept = n_kept;
    sampler->n_looked = 0;
}

bool dunlin__sampler_next(dunlin__sampler *sampler)
{
    if (sampler->n_left == 0 || sampler->n_kept == 0) {
        return false;
    }
    const uint32_t at = sampler->n_looked % (DUNLIN_DRAW_WORDS / 2);
    if (at == 0) {
        dunlin__draws_words(&sampler->draws, sampler->n_looked / (DUNLIN_DRAW_WORDS / 2),
                            sampler->words);
    }
    /* floor(draw * n / 2^64) of a draw of two words, the upper one first: below k? */
    const uint64_t high = (uint64_t)sampler->words[2 * at] * sampler->n_left;
    const uint64_t low = (uint64_t)sampler->words[2 * at + 1] * sampler->n_left;
    const bool is_kept = (high + (low >> 32)) >> 32 < sampler->n_kept;
    sampler->n_left--;
    sampler->n_looked++;
    sampler->n_kept -= is_kept ? 1 : 0;
    return is_kept;
}
