/*
 * packing.c - what goes with what in a Packing, and how many bytes it can take.
 */
#include "bits.h"
#include "codec/rules.h"
#include "quantise.h"
#include "rotate.h"

#include <mem/support.h>
#include <wire/compress.h>

#include <string.h>

#define GAIN_BYTES 4u
#define GROUP_BYTES 5u /* of LARGEST: how many, parameter and bytes of the gaps */
#define MILLION 1000000u
#define LEAST_CODED_BYTES 8u /* one symbol with its frequency, and the state */

static void check_combination(dunlin__rules *rules, const dunlin__packing *m)
{
    const bool is_all = m->selection == DUNLIN_V1_SELECTION_ALL;
    const bool is_random = m->selection == DUNLIN_V1_SELECTION_RANDOM;
    const bool is_sign = m->values == DUNLIN_V1_VALUES_SIGN;
    dunlin__rule_true(rules, "is_rotated", !m->is_rotated || is_all,
                      "goes with SELECTION_ALL alone");
    dunlin__rule_true(rules, "values", !(is_all && m->values == DUNLIN_V1_VALUES_F32),
                      "F32 of all elements is no packing; ENCODING_F32 is that");
    dunlin__rule_true(rules, "values", !(is_all && is_sign && !m->is_rotated),
                      "SIGN of all elements needs is_rotated");
    dunlin__rule_true(rules, "values", !(is_random && is_sign),
                      "SIGN does not go with SELECTION_RANDOM");
    dunlin__rule_true(rules, "is_entropy_coded",
                      !m->is_entropy_coded || m->values == DUNLIN_V1_VALUES_LEVELS,
                      "goes with VALUES_LEVELS alone");
    dunlin__rule_true(rules, "seed",
                      m->seed.size == ((m->is_rotated || is_random) ? DUNLIN_PACK_SEED_BYTES : 0u),
                      "is not 16 bytes of a rotation or of SELECTION_RANDOM, or absent");
}

dunlin_status dunlin__packing_check(const dunlin__packing *packing, dunlin_error *error)
{
    if (packing->version != DUNLIN_PACK_VERSION) {
        return dunlin__fail(error, DUNLIN_VERSION, "compress", 0,
                            "a packing of version %u, only %u is known", packing->version,
                            DUNLIN_PACK_VERSION);
    }
    dunlin__rules rules = {.message = "Packing", .is_decoded = true, .error = error};
    const bool is_levels = packing->values == DUNLIN_V1_VALUES_LEVELS;
    const bool is_all = packing->selection == DUNLIN_V1_SELECTION_ALL;
    const uint32_t block = packing->block_values;
    dunlin__rule_number(&rules, "values", (uint64_t)packing->values, DUNLIN_V1_VALUES_F32,
                        DUNLIN_V1_VALUES_SIGN);
    dunlin__rule_number(&rules, "bits", packing->bits, is_levels ? 2 : 0, is_levels ? 8 : 0);
    dunlin__rule_number(&rules, "selection", (uint64_t)packing->selection, DUNLIN_V1_SELECTION_ALL,
                        DUNLIN_V1_SELECTION_RANDOM);
    dunlin__rule_number(&rules, "kept_ppm", packing->kept_ppm, is_all ? 0 : 1,
                        is_all ? 0 : MILLION);
    dunlin__rule_number(&rules, "block_values", block, DUNLIN_PACK_BLOCK_MIN,
                        is_all ? DUNLIN_PACK_BLOCK_MAX : DUNLIN_PACK_KEPT_BLOCK_MAX);
    dunlin__rule_true(&rules, "block_values", (block & (block - 1u)) == 0, "is no power of two");
    check_combination(&rules, packing);
    return rules.status;
}

static dunlin_status compare_member(const char *name, uint64_t agreed, uint64_t found,
                                    dunlin_error *error)
{
    if (agreed != found) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "compress", 0,
                            "Packing.%s is %llu, but %llu was agreed", name,
                            (unsigned long long)found, (unsigned long long)agreed);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__packing_compare(const dunlin__packing *agreed, const dunlin__packing *found,
                                      bool with_seed, dunlin_error *error)
{
    DUNLIN_TRY(compare_member("version", agreed->version, found->version, error));
    DUNLIN_TRY(compare_member("values", (uint64_t)agreed->values, (uint64_t)found->values, error));
    DUNLIN_TRY(compare_member("bits", agreed->bits, found->bits, error));
    DUNLIN_TRY(compare_member("selection", (uint64_t)agreed->selection, (uint64_t)found->selection,
                              error));
    DUNLIN_TRY(compare_member("kept_ppm", agreed->kept_ppm, found->kept_ppm, error));
    DUNLIN_TRY(compare_member("is_rotated", agreed->is_rotated, found->is_rotated, error));
    DUNLIN_TRY(compare_member("is_entropy_coded", agreed->is_entropy_coded, found->is_entropy_coded,
                              error));
    DUNLIN_TRY(compare_member("block_values", agreed->block_values, found->block_values, error));
    if (!with_seed) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(compare_member("round", agreed->round, found->round, error));
    if (agreed->seed.size != found->seed.size ||
        memcmp(agreed->seed.bytes, found->seed.bytes, agreed->seed.size) != 0) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "compress", 0,
                            "Packing.seed of %u bytes is another than the agreed one of %u",
                            (unsigned)found->seed.size, (unsigned)agreed->seed.size);
    }
    return DUNLIN_OK;
}

uint64_t dunlin__packing_kept(const dunlin__packing *packing, uint64_t n_elements)
{
    if (packing->selection == DUNLIN_V1_SELECTION_ALL || n_elements == 0) {
        return n_elements;
    }
    /* Without wrapping: whole millions, then the rest. */
    uint64_t n_kept = n_elements / MILLION * packing->kept_ppm +
                      n_elements % MILLION * packing->kept_ppm / MILLION;
    return (n_kept > 0) ? n_kept : 1;
}

/* Adds what `n_blocks` blocks of `n` numbers can take. */
static void add_blocks(const dunlin__packing *packing, uint64_t n_blocks, size_t n, uint64_t *least,
                       uint64_t *most)
{
    const uint64_t n_head = dunlin__quantise_head(packing);
    const uint64_t n_body = dunlin__quantise_body(packing, n);
    const bool can_shrink = packing->is_entropy_coded && n_body > LEAST_CODED_BYTES;
    *least += n_blocks * (n_head + (can_shrink ? LEAST_CODED_BYTES : n_body));
    *most += n_blocks * (n_head + n_body);
}

dunlin_status dunlin__packing_bytes(const dunlin__packing *packing, dunlin_v1_rule_t rule,
                                    uint64_t n_elements, uint64_t *out_least, uint64_t *out_most,
                                    dunlin_error *error)
{
    *out_least = 0;
    *out_most = 0;
    if (n_elements > DUNLIN_PACK_ELEMENTS_MAX) {
        return dunlin__fail(error, DUNLIN_LIMIT, "compress", 0,
                            "%llu elements in a packed tensor, at most %u are allowed",
                            (unsigned long long)n_elements, DUNLIN_PACK_ELEMENTS_MAX);
    }
    if (n_elements == 0) {
        return DUNLIN_OK;
    }
    if (rule != DUNLIN_V1_RULE_AVERAGE) {
        *out_least = 4 * n_elements;
        *out_most = 4 * n_elements;
        return DUNLIN_OK;
    }
    const uint32_t block = packing->block_values;
    const uint64_t n_kept = dunlin__packing_kept(packing, n_elements);
    *out_least = GAIN_BYTES;
    *out_most = GAIN_BYTES;
    if (packing->selection == DUNLIN_V1_SELECTION_LARGEST) {
        /* From no entry at all to each element of the tensor. */
        *out_least += 2;
        *out_most += 2 + (n_elements / block + 1) * GROUP_BYTES + DUNLIN_RICE_BYTES(n_elements);
        uint64_t none = 0;
        add_blocks(packing, n_elements / block + 1, block, &none, out_most);
        return DUNLIN_OK;
    }
    size_t n_rest = (size_t)(n_kept % block);
    add_blocks(packing, n_kept / block, block, out_least, out_most);
    if (n_rest > 0) {
        n_rest = packing->is_rotated ? dunlin__rotate_size(n_rest) : n_rest;
        add_blocks(packing, 1, n_rest, out_least, out_most);
    }
    return DUNLIN_OK;
}
