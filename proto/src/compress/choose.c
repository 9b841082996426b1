/*
 * choose.c - which magnitudes are the largest, by three counting passes.
 *
 * The lower 31 bits of a float32 are ordered as its magnitude is. The passes count the upper 11,
 * the next 10 and the last 10 of them, each time of the magnitudes in the group where the one that
 * is sought lies: a radix selection that holds 8 KiB whatever the model's size.
 */
#include "bits.h"

#include <wire/compress.h>

#include <string.h>

static const unsigned pass_shifts[DUNLIN_PACK_CHOICE_PASSES] = {20, 10, 0};
static const unsigned pass_groups[DUNLIN_PACK_CHOICE_PASSES] = {2048, 1024, 1024};

void dunlin__pack_chooser_begin(dunlin__pack_chooser *chooser, uint64_t n_kept)
{
    memset(chooser, 0, sizeof(*chooser));
    chooser->n_kept = n_kept;
}

void dunlin__pack_chooser_add(dunlin__pack_chooser *chooser, const float *values, size_t n_values)
{
    if (chooser->pass >= DUNLIN_PACK_CHOICE_PASSES) {
        return;
    }
    const unsigned shift = pass_shifts[chooser->pass];
    const uint32_t mask = pass_groups[chooser->pass] - 1u;
    for (size_t i = 0; i < n_values; i++) {
        const uint32_t group = (dunlin__float_bits(values[i]) & 0x7fffffffu) >> shift;
        if (chooser->pass == 0 || (group & ~mask) == chooser->prefix) {
            chooser->counts[group & mask]++;
        }
    }
}

void dunlin__pack_chooser_end_pass(dunlin__pack_chooser *chooser, dunlin__pack_choice *out_choice)
{
    *out_choice = (dunlin__pack_choice){.key = 0};
    if (chooser->pass >= DUNLIN_PACK_CHOICE_PASSES) {
        return;
    }
    uint32_t group = pass_groups[chooser->pass] - 1u;
    while (group > 0 && chooser->counts[group] < chooser->n_kept) {
        chooser->n_kept -= chooser->counts[group];
        group--;
    }
    chooser->prefix |= group;
    chooser->pass++;
    if (chooser->pass < DUNLIN_PACK_CHOICE_PASSES) {
        unsigned width = pass_shifts[chooser->pass - 1] - pass_shifts[chooser->pass];
        chooser->prefix <<= width;
        memset(chooser->counts, 0, sizeof(chooser->counts));
        return;
    }
    out_choice->key = chooser->prefix;
    out_choice->n_ties = (chooser->prefix > 0) ? chooser->n_kept : 0;
}
