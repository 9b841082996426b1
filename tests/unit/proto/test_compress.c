/*
 * test_compress.c - packed streams there and back: the same values on both sides, the same bytes
 * whatever the pieces, the norm within its bound, within the memory that is promised.
 */
#include "pack_model.h"
#include "random.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_sent(const dunlin__pack_options *options, const pack_model *model, size_t t)
{
    return model->rules[t] == DUNLIN_V1_RULE_AVERAGE && options != NULL;
}

/* What was read is what the packer mirrored, bit by bit, and statistics are as they were. */
static void check_values(const dunlin__pack_options *options, const pack_model *model,
                         const pack_result *packed, const float *read)
{
    const float *mirrored = packed->mirrored;
    const float *values = model->values;
    for (size_t t = 0; t < model->n_tensors; t++) {
        const size_t n = model->n_values[t];
        if (is_sent(options, model, t)) {
            cr_assert_eq(memcmp(read, mirrored, n * sizeof(float)), 0, "tensor %zu", t);
            mirrored += n;
        } else {
            cr_assert_eq(memcmp(read, values, n * sizeof(float)), 0, "tensor %zu", t);
        }
        read += n;
        values += n;
    }
    cr_assert_eq((size_t)(mirrored - packed->mirrored), packed->n_mirrored);
}

Test(compress, there_and_back)
{
    uint64_t state = test_seed(41);
    for (int i = 0; i < test_cases(40); i++) {
        pack_model model = pack_model_random(&state);
        float *read = calloc(model.n_all + 1, sizeof(float));
        for (size_t k = 0; k < pack_n_kinds(); k++) {
            dunlin_error error = {.status = DUNLIN_OK};
            double square = 0.0;
            const dunlin__packing packing = pack_kind(k);
            const dunlin__pack_options options = pack_options(&packing, &model, 5);
            pack_result packed = pack_all_of(&options, &model, 0.75f, 0, false);
            cr_assert_eq(pack_read(&packing, &model, &packed, read, &square, &error), DUNLIN_OK,
                         "%s: %s", pack_kind_name(k), error.text);
            check_values(&options, &model, &packed, read);
            cr_assert(square == packed.square, "%s: %.17g %.17g", pack_kind_name(k), square,
                      packed.square);
            pack_result_free(&packed);
        }
        free(read);
        pack_model_free(&model);
    }
}

/* Pieces of 1, of 1,000 and of random sizes, and a pass that only measures. */
Test(compress, the_pieces_do_not_matter)
{
    uint64_t state = test_seed(42);
    pack_model model = pack_model_random(&state);
    for (size_t k = 0; k < pack_n_kinds(); k++) {
        const dunlin__packing packing = pack_kind(k);
        const dunlin__pack_options options = pack_options(&packing, &model, 6);
        pack_result first = pack_all_of(&options, &model, 1.0f, 0, false);
        static const size_t pieces[] = {1, 1000};
        for (size_t p = 0; p < 2; p++) {
            pack_result again = pack_all_of(&options, &model, 1.0f, pieces[p], false);
            cr_assert_eq(again.n_bytes, first.n_bytes);
            cr_assert_eq(memcmp(again.bytes, first.bytes, first.n_bytes), 0, "%s",
                         pack_kind_name(k));
            cr_assert(again.square == first.square);
            pack_result_free(&again);
        }
        pack_result measured = pack_all_of(&options, &model, 1.0f, 0, true);
        cr_assert_eq(measured.n_bytes, first.n_bytes);
        cr_assert(measured.square == first.square);
        cr_assert_eq(memcmp(measured.stored, first.stored, sizeof(first.stored)), 0);
        pack_result_free(&measured);
        pack_result_free(&first);
    }
    pack_model_free(&model);
}

/* Another round, and another seed of the rounding, give other bytes; the same gives the same. */
Test(compress, seeds_and_rounds_matter)
{
    uint64_t state = test_seed(43);
    pack_model model = pack_model_normal(5000, &state);
    for (size_t k = 0; k < pack_n_kinds(); k++) {
        dunlin__packing packing = pack_kind(k);
        dunlin__pack_options options = pack_options(&packing, &model, 6);
        pack_result first = pack_all_of(&options, &model, 1.0f, 0, false);
        options = pack_options(&packing, &model, 7);
        pack_result other_draws = pack_all_of(&options, &model, 1.0f, 0, false);
        packing.round++;
        options = pack_options(&packing, &model, 6);
        pack_result other_round = pack_all_of(&options, &model, 1.0f, 0, false);
        const bool is_drawn =
            packing.values != DUNLIN_V1_VALUES_F32 && packing.values != DUNLIN_V1_VALUES_SIGN;
        const bool is_seeded = packing.seed.size > 0;
        cr_assert_eq(other_draws.n_bytes != first.n_bytes ||
                         memcmp(other_draws.bytes, first.bytes, first.n_bytes) != 0,
                     is_drawn, "%s", pack_kind_name(k));
        cr_assert_eq(other_round.n_bytes != first.n_bytes ||
                         memcmp(other_round.bytes, first.bytes, first.n_bytes) != 0,
                     is_drawn || is_seeded, "%s", pack_kind_name(k));
        pack_result_free(&first);
        pack_result_free(&other_draws);
        pack_result_free(&other_round);
    }
    pack_model_free(&model);
}

/* The decoded norm is never above the bound, on either side, and equal on both. A million cases
 * with
 * --long. */
Test(compress, the_norm_is_within_its_bound, .timeout = 900)
{
    uint64_t state = test_seed(44);
    const int n_cases = test_cases(100000);
    float read[300];
    int n_lowered = 0;
    for (int i = 0; i < n_cases; i++) {
        dunlin_error error = {.status = DUNLIN_OK};
        double square = 0.0;
        float gain = 0.0f;
        const size_t k = (size_t)test_random_below(&state, pack_n_kinds());
        dunlin__packing packing = pack_kind(k);
        packing.block_values = 64u << test_random_below(&state, 3);
        packing.round = (uint64_t)i;
        pack_model model = pack_model_normal(1 + (size_t)test_random_below(&state, 150), &state);
        const double factor = pow(10.0, test_random_range(-6.0, 3.0, &state));
        double norm = 0.0;
        for (size_t j = 0; j < model.n_all; j++) {
            model.values[j] = (float)(model.values[j] * factor);
            norm += (double)model.values[j] * (double)model.values[j];
        }
        const float bound = (float)(sqrt(norm) * test_random_range(0.2, 1.2, &state));
        const dunlin__pack_options options = pack_options(&packing, &model, (uint64_t)i);
        pack_result measured = pack_all_of(&options, &model, 1.0f, 0, true);
        cr_assert_eq(dunlin__packing_gain(measured.square, bound, &gain, &error), DUNLIN_OK, "%s",
                     error.text);
        pack_result packed = pack_all_of(&options, &model, gain, 0, false);
        cr_assert_eq(pack_read(&packing, &model, &packed, read, &square, &error), DUNLIN_OK, "%s",
                     error.text);
        cr_assert(square == packed.square);
        cr_assert(dunlin__norm_is_within(square, bound), "%s, case %d: %.9g above %.9g",
                  pack_kind_name(k), i, sqrt(square), (double)bound);
        cr_assert_eq(packed.n_bytes, measured.n_bytes);
        if (gain < 1.0f) {
            n_lowered++;
            cr_assert(sqrt(square) > (double)bound * (1.0 - 1e-5));
        }
        pack_result_free(&measured);
        pack_result_free(&packed);
        pack_model_free(&model);
    }
    cr_assert(n_cases < 100 || n_lowered > n_cases / 4);
}

Test(compress, memory_is_one_piece_of_64_kib)
{
    uint64_t state = test_seed(45);
    pack_model model = pack_model_normal(100000, &state);
    for (size_t k = 0; k < pack_n_kinds(); k++) {
        dunlin_error error = {.status = DUNLIN_OK};
        dunlin_alloc_counter counter;
        dunlin__tensor_packer *packer = NULL;
        dunlin__tensor_unpacker *unpacker = NULL;
        const dunlin__packing packing = pack_kind(k);
        const dunlin__pack_options options = pack_options(&packing, &model, 1);
        const dunlin__unpack_source source = {.ctx = NULL};
        dunlin_alloc_counter_init(&counter, NULL);
        cr_assert_eq(dunlin__tensor_packer_open(&options, &counter.hooks, &packer, &error),
                     DUNLIN_OK);
        cr_assert_eq(dunlin__tensor_packer_tensor(packer, 0, DUNLIN_V1_RULE_AVERAGE, model.n_all,
                                                  1.0f, &error),
                     DUNLIN_OK);
        cr_assert_eq(dunlin__tensor_packer_values(packer, model.values, model.n_all, &error),
                     DUNLIN_OK);
        cr_assert_eq(dunlin__tensor_packer_tensor_end(packer, NULL, NULL, &error), DUNLIN_OK);
        dunlin__tensor_packer_close(packer);
        cr_assert_eq(counter.n_allocs, 1);
        cr_assert_leq(counter.peak_bytes, DUNLIN_PACK_MEMORY_BYTES);
        cr_assert_eq(
            dunlin__tensor_unpacker_open(&packing, &source, &counter.hooks, &unpacker, &error),
            DUNLIN_OK);
        dunlin__tensor_unpacker_close(unpacker);
        cr_assert_eq(counter.n_allocs, 2);
        cr_assert_eq(counter.now_bytes, 0);
        cr_assert_leq(counter.peak_bytes, DUNLIN_PACK_MEMORY_BYTES);
        counter.limit_bytes = 1024;
        cr_assert_eq(dunlin__tensor_packer_open(&options, &counter.hooks, &packer, &error),
                     DUNLIN_MEMORY);
        cr_assert_null(packer);
        cr_assert_eq(
            dunlin__tensor_unpacker_open(&packing, &source, &counter.hooks, &unpacker, &error),
            DUNLIN_MEMORY);
        cr_assert_null(unpacker);
    }
    pack_model_free(&model);
}

/* ---- the largest ---- */

static int by_magnitude(const void *a, const void *b)
{
    const float x = fabsf(*(const float *)a);
    const float y = fabsf(*(const float *)b);
    return (x < y) - (x > y);
}

/* Against a sort, with many equal magnitudes and zeros; ties go to the lowest index. */
Test(compress, the_largest_are_those_of_a_sort)
{
    uint64_t state = test_seed(46);
    for (int i = 0; i < test_cases(300); i++) {
        dunlin__packing packing = pack_kind(12);
        packing.kept_ppm = 1 + (uint32_t)test_random_below(&state, 1000000);
        const size_t n = 1 + (size_t)test_random_below(&state, 3000);
        pack_model model = pack_model_normal(n, &state);
        float *sorted = calloc(n, sizeof(float));
        const bool is_coarse = test_random_below(&state, 2) == 0;
        for (size_t j = 0; j < n; j++) {
            model.values[j] = is_coarse ? (float)(int)(model.values[j] * 2.0f) : model.values[j];
        }
        memcpy(sorted, model.values, n * sizeof(float));
        qsort(sorted, n, sizeof(float), by_magnitude);
        const size_t n_kept = (size_t)dunlin__packing_kept(&packing, n);
        const float least = fabsf(sorted[n_kept - 1]);
        const dunlin__pack_options options = pack_options(&packing, &model, 1);
        pack_result packed = pack_all_of(&options, &model, 1.0f, 0, false);
        size_t n_above = 0;
        for (size_t j = 0; j < n; j++) {
            n_above += (fabsf(model.values[j]) > least) ? 1 : 0;
        }
        size_t n_ties = n_kept - n_above;
        for (size_t j = 0; j < n; j++) {
            const float magnitude = fabsf(model.values[j]);
            bool is_kept = magnitude > least;
            if (magnitude == least && n_ties > 0) {
                n_ties--;
                is_kept = true;
            }
            cr_assert(packed.mirrored[j] == (is_kept ? model.values[j] : 0.0f), "element %zu", j);
        }
        free(sorted);
        pack_result_free(&packed);
        pack_model_free(&model);
    }
}

/* A random choice sends just as many as it says, enlarged by n / k. */
Test(compress, a_random_choice_has_its_size)
{
    uint64_t state = test_seed(47);
    dunlin__packing packing = pack_kind(17);
    for (int i = 0; i < test_cases(200); i++) {
        const size_t n = 1 + (size_t)test_random_below(&state, 3000);
        packing.round = (uint64_t)i;
        packing.kept_ppm = 1 + (uint32_t)test_random_below(&state, 1000000);
        pack_model model = pack_model_normal(n, &state);
        for (size_t j = 0; j < n; j++) {
            model.values[j] = 1.0f;
        }
        const size_t n_kept = (size_t)dunlin__packing_kept(&packing, n);
        const dunlin__pack_options options = pack_options(&packing, &model, 1);
        pack_result packed = pack_all_of(&options, &model, 1.0f, 0, false);
        size_t n_sent = 0;
        for (size_t j = 0; j < n; j++) {
            n_sent += (packed.mirrored[j] != 0.0f) ? 1 : 0;
            cr_assert(packed.mirrored[j] == 0.0f ||
                      packed.mirrored[j] == (float)((double)n / (double)n_kept));
        }
        cr_assert_eq(n_sent, n_kept);
        cr_assert_eq(packed.n_bytes, 4 + 4 * n_kept);
        pack_result_free(&packed);
        pack_model_free(&model);
    }
}
