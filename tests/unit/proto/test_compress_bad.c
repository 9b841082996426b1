/*
 * test_compress_bad.c - packings that do not go together, values that cannot be sent, and bytes of
 * any kind: refused by name, within the memory.
 */
#include "compress/bits.h"
#include "pack_model.h"
#include "random.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_VALUES 1000

static void check_text(const dunlin_error *error, const char *part)
{
    cr_assert(strstr(error->text, part) != NULL, "\"%s\" has no \"%s\"", error->text, part);
}

/* ---- what goes with what ---- */

Test(compress_bad, packings_that_do_not_go_together)
{
    dunlin_error error = {.status = DUNLIN_OK};
    for (size_t k = 0; k < pack_n_kinds(); k++) {
        const dunlin__packing packing = pack_kind(k);
        cr_assert_eq(dunlin__packing_check(&packing, &error), DUNLIN_OK, "%s", error.text);
    }
#define REFUSE(kind, change, status, part)                                                         \
    do {                                                                                           \
        dunlin__packing packing = pack_kind(kind);                                                 \
        packing.change;                                                                            \
        cr_assert_eq(dunlin__packing_check(&packing, &error), status, "%s", #change);              \
        check_text(&error, part);                                                                  \
    } while (0)
    REFUSE(0, version = 0, DUNLIN_VERSION, "version 0");
    REFUSE(0, version = 2, DUNLIN_VERSION, "version 2");
    REFUSE(0, values = DUNLIN_V1_VALUES_UNSPECIFIED, DUNLIN_PROTOCOL, "values");
    REFUSE(0, values = (dunlin_v1_values_t)6, DUNLIN_PROTOCOL, "values");
    REFUSE(0, values = DUNLIN_V1_VALUES_F32, DUNLIN_PROTOCOL, "ENCODING_F32");
    REFUSE(0, bits = 4, DUNLIN_PROTOCOL, "bits");
    REFUSE(3, bits = 1, DUNLIN_PROTOCOL, "bits");
    REFUSE(3, bits = 9, DUNLIN_PROTOCOL, "bits");
    REFUSE(3, selection = (dunlin_v1_selection_t)3, DUNLIN_PROTOCOL, "selection");
    REFUSE(3, kept_ppm = 1, DUNLIN_PROTOCOL, "kept_ppm");
    REFUSE(13, kept_ppm = 0, DUNLIN_PROTOCOL, "kept_ppm");
    REFUSE(13, kept_ppm = 1000001, DUNLIN_PROTOCOL, "kept_ppm");
    REFUSE(13, is_rotated = true, DUNLIN_PROTOCOL, "is_rotated");
    REFUSE(13, block_values = 2048, DUNLIN_PROTOCOL, "block_values");
    REFUSE(0, block_values = 32, DUNLIN_PROTOCOL, "block_values");
    REFUSE(0, block_values = 16384, DUNLIN_PROTOCOL, "block_values");
    REFUSE(0, block_values = 100, DUNLIN_PROTOCOL, "block_values");
    REFUSE(0, is_entropy_coded = true, DUNLIN_PROTOCOL, "is_entropy_coded");
    REFUSE(11, is_entropy_coded = true, DUNLIN_PROTOCOL, "is_entropy_coded");
    REFUSE(11, is_rotated = false, DUNLIN_PROTOCOL, "SIGN");
    REFUSE(17, values = DUNLIN_V1_VALUES_SIGN, DUNLIN_PROTOCOL, "SIGN");
    REFUSE(11, seed.size = 0, DUNLIN_PROTOCOL, "seed");
    REFUSE(11, seed.size = 15, DUNLIN_PROTOCOL, "seed");
    REFUSE(0, seed.size = 16, DUNLIN_PROTOCOL, "seed");
#undef REFUSE
}

Test(compress_bad, what_was_not_agreed)
{
    dunlin_error error = {.status = DUNLIN_OK};
    const dunlin__packing agreed = pack_kind(8);
    dunlin__packing other = agreed;
    cr_assert_eq(dunlin__packing_compare(&agreed, &other, true, &error), DUNLIN_OK);
    other.bits = 3;
    cr_assert_eq(dunlin__packing_compare(&agreed, &other, false, &error), DUNLIN_MISMATCH);
    check_text(&error, "Packing.bits is 3, but 4 was agreed");
    other = agreed;
    other.is_entropy_coded = false;
    cr_assert_eq(dunlin__packing_compare(&agreed, &other, false, &error), DUNLIN_MISMATCH);
    check_text(&error, "is_entropy_coded");
    other = agreed;
    other.round++;
    cr_assert_eq(dunlin__packing_compare(&agreed, &other, false, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__packing_compare(&agreed, &other, true, &error), DUNLIN_MISMATCH);
    check_text(&error, "round");
    other = agreed;
    other.seed.bytes[3] ^= 1;
    cr_assert_eq(dunlin__packing_compare(&agreed, &other, true, &error), DUNLIN_MISMATCH);
    check_text(&error, "seed");
}

/* ---- what a device cannot send ---- */

static dunlin_status try_value(size_t kind, float value, dunlin_error *error)
{
    dunlin__tensor_packer *packer = NULL;
    dunlin__pack_options options = {.packing = pack_kind(kind)};
    float values[70] = {1.0f};
    values[42] = value;
    cr_assert_eq(dunlin__tensor_packer_open(&options, NULL, &packer, error), DUNLIN_OK);
    cr_assert_eq(dunlin__tensor_packer_tensor(packer, 3, DUNLIN_V1_RULE_AVERAGE, 70, 1.0f, error),
                 DUNLIN_OK);
    dunlin_status status = dunlin__tensor_packer_values(packer, values, 70, error);
    if (status == DUNLIN_OK) {
        status = dunlin__tensor_packer_tensor_end(packer, NULL, NULL, error);
    }
    if (status != DUNLIN_OK) {
        dunlin_error later = {.status = DUNLIN_OK};
        cr_assert_eq(
            dunlin__tensor_packer_tensor(packer, 4, DUNLIN_V1_RULE_AVERAGE, 1, 1.0f, &later),
            DUNLIN_STATE);
    }
    dunlin__tensor_packer_close(packer);
    return status;
}

Test(compress_bad, values_that_cannot_be_sent)
{
    dunlin_error error = {.status = DUNLIN_OK};
    for (size_t k = 0; k < pack_n_kinds(); k++) {
        cr_assert_eq(try_value(k, NAN, &error), DUNLIN_NUMERIC, "%s", pack_kind_name(k));
        check_text(&error, "tensor 3: element 42");
        cr_assert_eq(try_value(k, -INFINITY, &error), DUNLIN_NUMERIC, "%s", pack_kind_name(k));
    }
    cr_assert_eq(try_value(0, 65504.0f, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(try_value(0, 65505.0f, &error), DUNLIN_NUMERIC);
    check_text(&error, "65505");
    cr_assert_eq(try_value(1, 3.3895314e38f, &error), DUNLIN_OK);
    cr_assert_eq(try_value(1, 3.4e38f, &error), DUNLIN_NUMERIC);
    cr_assert_eq(try_value(7, 1e36f, &error), DUNLIN_OK);
    /* Its rotation is a number, the sums on the way back are not. */
    cr_assert_eq(try_value(7, 3e38f, &error), DUNLIN_NUMERIC);
    cr_assert_eq(try_value(3, 1e-45f, &error), DUNLIN_OK);
}

Test(compress_bad, calls_out_of_order)
{
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__tensor_packer *packer = NULL;
    const dunlin__pack_options options = {.packing = pack_kind(6)};
    const float values[5] = {1, 2, 3, 4, 5};
    float gain = 0.0f;
#define OPEN_AT(n)                                                                                 \
    do {                                                                                           \
        dunlin__tensor_packer_close(packer);                                                       \
        cr_assert_eq(dunlin__tensor_packer_open(&options, NULL, &packer, &error), DUNLIN_OK);      \
        cr_assert_eq(                                                                              \
            dunlin__tensor_packer_tensor(packer, 2, DUNLIN_V1_RULE_AVERAGE, n, 1.0f, &error),      \
            DUNLIN_OK);                                                                            \
    } while (0)
    OPEN_AT(4);
    cr_assert_eq(dunlin__tensor_packer_values(packer, values, 5, &error), DUNLIN_LIMIT);
    check_text(&error, "tensor 2: 5 values after 0, but it has 4");
    OPEN_AT(6);
    cr_assert_eq(dunlin__tensor_packer_values(packer, values, 5, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__tensor_packer_tensor_end(packer, NULL, NULL, &error), DUNLIN_STATE);
    check_text(&error, "after 5 of its 6");
    OPEN_AT(6);
    cr_assert_eq(dunlin__tensor_packer_tensor(packer, 3, DUNLIN_V1_RULE_AVERAGE, 1, 1.0f, &error),
                 DUNLIN_STATE);
    OPEN_AT(0);
    cr_assert_eq(dunlin__tensor_packer_tensor_end(packer, NULL, NULL, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__tensor_packer_values(packer, values, 1, &error), DUNLIN_STATE);
    cr_assert_eq(dunlin__tensor_packer_tensor(packer, 3, DUNLIN_V1_RULE_LOCAL, 1, 1.0f, &error),
                 DUNLIN_PROTOCOL);
    static const float gains[] = {0.0f, -1.0f, 1.5f, NAN};
    for (size_t i = 0; i < 4; i++) {
        OPEN_AT(0);
        cr_assert_eq(dunlin__tensor_packer_tensor_end(packer, NULL, NULL, &error), DUNLIN_OK);
        cr_assert_eq(
            dunlin__tensor_packer_tensor(packer, 3, DUNLIN_V1_RULE_AVERAGE, 1, gains[i], &error),
            DUNLIN_ARGUMENT);
    }
    OPEN_AT(0x7fffffff);
    dunlin__tensor_packer_close(packer);
    cr_assert_eq(dunlin__packing_gain(4.0, 1.0f, &gain, &error), DUNLIN_OK);
    cr_assert(gain < 0.5f && gain > 0.499999f);
    cr_assert_eq(dunlin__packing_gain(4.0, 2.0f, &gain, &error), DUNLIN_OK);
    cr_assert(gain == 1.0f);
    cr_assert_eq(dunlin__packing_gain(4.0, 0.0f, &gain, &error), DUNLIN_ARGUMENT);
    cr_assert_eq(dunlin__packing_gain(4.0, NAN, &gain, &error), DUNLIN_ARGUMENT);
    cr_assert_eq(dunlin__packing_gain(4.0, INFINITY, &gain, &error), DUNLIN_ARGUMENT);
    cr_assert_eq(dunlin__packing_gain((double)NAN, 1.0f, &gain, &error), DUNLIN_NUMERIC);
    cr_assert_eq(dunlin__packing_gain((double)INFINITY, 1.0f, &gain, &error), DUNLIN_NUMERIC);
    cr_assert(!dunlin__norm_is_within((double)NAN, 1.0f));
    cr_assert(!dunlin__norm_is_within(1.0, NAN));
#undef OPEN_AT
}

static dunlin_status refuse_bytes(void *ctx, const void *data, size_t n_bytes, dunlin_error *error)
{
    (void)ctx;
    (void)data;
    (void)n_bytes;
    error->status = DUNLIN_IO;
    return DUNLIN_IO;
}

/* What a sink returns is passed on, and the packer is over. */
Test(compress_bad, a_sink_that_fails)
{
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__tensor_packer *packer = NULL;
    dunlin__pack_options options = {.packing = pack_kind(6), .sink = {.write_fn = refuse_bytes}};
    cr_assert_eq(dunlin__tensor_packer_open(&options, NULL, &packer, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__tensor_packer_tensor(packer, 0, DUNLIN_V1_RULE_AVERAGE, 5, 1.0f, &error),
                 DUNLIN_IO);
    cr_assert_eq(dunlin__tensor_packer_tensor(packer, 0, DUNLIN_V1_RULE_AVERAGE, 5, 1.0f, &error),
                 DUNLIN_STATE);
    dunlin__tensor_packer_close(packer);
}

/* ---- bytes of the other side ---- */

typedef struct bad_case {
    dunlin__packing packing;
    pack_model model;
    pack_result packed;
    float read[N_VALUES];
    dunlin_error error;
} bad_case;

static bad_case make_case(size_t kind)
{
    uint64_t state = 61;
    bad_case made = {.packing = pack_kind(kind), .model = pack_model_normal(N_VALUES, &state)};
    const dunlin__pack_options options = pack_options(&made.packing, &made.model, 1);
    made.packed = pack_all_of(&options, &made.model, 1.0f, 0, false);
    return made;
}

static dunlin_status read_case(bad_case *made)
{
    made->error = (dunlin_error){.status = DUNLIN_OK};
    return pack_read(&made->packing, &made->model, &made->packed, made->read, NULL, &made->error);
}

static void free_case(bad_case *made)
{
    pack_result_free(&made->packed);
    pack_model_free(&made->model);
}

/* Writes a float at an offset, reads, expects the status and the text, and puts the bytes back. */
static void try_float(bad_case *made, size_t offset, float value, dunlin_status status,
                      const char *part)
{
    uint8_t before[4];
    memcpy(before, made->packed.bytes + offset, 4);
    dunlin__put_u32(made->packed.bytes + offset, dunlin__float_bits(value));
    cr_assert_eq(read_case(made), status, "%g at %zu: %s", (double)value, offset, made->error.text);
    check_text(&made->error, part);
    memcpy(made->packed.bytes + offset, before, 4);
}

Test(compress_bad, scales_and_gains)
{
    static const size_t scaled[] = {3, 5, 6, 7, 8, 11};
    for (size_t i = 0; i < sizeof(scaled) / sizeof(scaled[0]); i++) {
        bad_case made = make_case(scaled[i]);
        cr_assert_eq(read_case(&made), DUNLIN_OK, "%s", made.error.text);
        try_float(&made, 0, 0.0f, DUNLIN_PROTOCOL, "gain of 0");
        try_float(&made, 0, -1.0f, DUNLIN_PROTOCOL, "gain of -1");
        try_float(&made, 0, 1.0001f, DUNLIN_PROTOCOL, "gain of 1.0001");
        try_float(&made, 0, NAN, DUNLIN_PROTOCOL, "gain of");
        try_float(&made, 4, NAN, DUNLIN_PROTOCOL, "a scale that is not finite");
        try_float(&made, 4, INFINITY, DUNLIN_PROTOCOL, "a scale that is not finite");
        try_float(&made, 4, -0.5f, DUNLIN_PROTOCOL, "a scale below 0");
        free_case(&made);
    }
    /* Finite, but its numbers are not. */
    bad_case made = make_case(3);
    try_float(&made, 4, 3e38f, DUNLIN_PROTOCOL, "not finite");
    free_case(&made);
}

Test(compress_bad, levels_and_halves)
{
    bad_case int8 = make_case(3);
    int8.packed.bytes[8 + 17] = 255;
    cr_assert_eq(read_case(&int8), DUNLIN_PROTOCOL);
    check_text(&int8.error, "a level beyond the last");
    free_case(&int8);
    bad_case half = make_case(0);
    dunlin__put_u16(half.packed.bytes + 4 + 2 * 17, 0x7c00u);
    cr_assert_eq(read_case(&half), DUNLIN_PROTOCOL);
    check_text(&half.error, "not finite");
    free_case(&half);
    bad_case coded = make_case(8);
    dunlin__put_u16(coded.packed.bytes + 8, 512); /* 1,024 numbers of 4 bits are 512 bytes */
    cr_assert_eq(read_case(&coded), DUNLIN_PROTOCOL);
    check_text(&coded.error, "entropy-coded length");
    free_case(&coded);
    coded = make_case(8);
    coded.packed.bytes[10] = 200; /* the least symbol is above the greatest */
    cr_assert_eq(read_case(&coded), DUNLIN_PROTOCOL);
    check_text(&coded.error, "entropy-coded bytes");
    free_case(&coded);
}

/* 4 gain, 2 count, 1 parameter, 2 bytes of gaps, gaps, numbers: ten of a thousand are sent. */
Test(compress_bad, indices_out_of_range)
{
    bad_case made = make_case(12);
    uint8_t *bytes = made.packed.bytes;
    cr_assert_eq(read_case(&made), DUNLIN_OK, "%s", made.error.text);
    cr_assert_eq(dunlin__take_u16(bytes + 4), 10);
    dunlin__put_u16(bytes + 4, 1025);
    cr_assert_eq(read_case(&made), DUNLIN_PROTOCOL);
    check_text(&made.error, "a group of 1025 numbers");
    dunlin__put_u16(bytes + 4, 1001);
    cr_assert_eq(read_case(&made), DUNLIN_PROTOCOL);
    check_text(&made.error, "1000 elements");
    dunlin__put_u16(bytes + 4, 10);
    const uint8_t rice = bytes[6];
    bytes[6] = 31;
    cr_assert_eq(read_case(&made), DUNLIN_PROTOCOL);
    check_text(&made.error, "parameter 31");
    bytes[6] = 30;
    cr_assert_eq(read_case(&made), DUNLIN_PROTOCOL);
    check_text(&made.error, "beyond its 1000 elements");
    bytes[6] = rice;
    const uint32_t n_gap_bytes = dunlin__take_u16(bytes + 7);
    dunlin__put_u16(bytes + 7, 41);
    cr_assert_eq(read_case(&made), DUNLIN_PROTOCOL);
    check_text(&made.error, "41 bytes");
    dunlin__put_u16(bytes + 7, n_gap_bytes);
    memset(bytes + 9, 0xff, n_gap_bytes);
    cr_assert_eq(read_case(&made), DUNLIN_PROTOCOL);
    check_text(&made.error, "beyond");
    free_case(&made);
}

/* The last index is that of the last element, and not one more. */
Test(compress_bad, the_last_element)
{
    bad_case made = make_case(12);
    free_case(&made);
    made = make_case(12);
    memset(made.model.values, 0, N_VALUES * sizeof(float));
    made.model.values[N_VALUES - 1] = 2.0f;
    const dunlin__pack_options options = pack_options(&made.packing, &made.model, 1);
    pack_result_free(&made.packed);
    made.packed = pack_all_of(&options, &made.model, 1.0f, 0, false);
    cr_assert_eq(read_case(&made), DUNLIN_OK, "%s", made.error.text);
    cr_assert(made.read[N_VALUES - 1] == 2.0f && made.read[0] == 0.0f);
    made.model.n_values[0]--;
    cr_assert_eq(read_case(&made), DUNLIN_PROTOCOL);
    check_text(&made.error, "beyond its 999 elements");
    free_case(&made);
}

/* Sizes that a manifest says: before a byte is read, or at the end. */
Test(compress_bad, sizes_that_do_not_agree)
{
    uint64_t least = 0;
    uint64_t most = 0;
    dunlin_error error = {.status = DUNLIN_OK};
    for (size_t k = 0; k < pack_n_kinds(); k++) {
        bad_case made = make_case(k);
        const uint64_t right = made.packed.stored[0];
        cr_assert_eq(dunlin__packing_bytes(&made.packing, DUNLIN_V1_RULE_AVERAGE, N_VALUES, &least,
                                           &most, &error),
                     DUNLIN_OK);
        cr_assert(least <= right && right <= most, "%s: %llu", pack_kind_name(k),
                  (unsigned long long)right);
        made.packed.bytes = realloc(made.packed.bytes, (size_t)most + 2);
        memset(made.packed.bytes + right, 0, (size_t)(most + 2 - right));
        made.packed.n_bytes = (size_t)most + 2;
        made.packed.stored[0] = most + 1;
        cr_assert_eq(read_case(&made), DUNLIN_MISMATCH, "%s", pack_kind_name(k));
        check_text(&made.error, "are possible");
        made.packed.stored[0] = least - 1;
        cr_assert_eq(read_case(&made), DUNLIN_MISMATCH, "%s", pack_kind_name(k));
        check_text(&made.error, "are possible");
        made.packed.stored[0] = right - 1;
        cr_assert_eq(read_case(&made), DUNLIN_MISMATCH, "%s", pack_kind_name(k));
        made.packed.stored[0] = right + 1;
        cr_assert_eq(read_case(&made), DUNLIN_MISMATCH, "%s", pack_kind_name(k));
        if (right < most) {
            check_text(&made.error, "1 bytes after the last of its 1000 elements");
        }
        cr_assert_eq(dunlin__packing_bytes(&made.packing, DUNLIN_V1_RULE_AVERAGE, UINT64_C(1) << 40,
                                           &least, &most, &error),
                     DUNLIN_LIMIT);
        free_case(&made);
    }
}

/* Flipped bits, replaced bytes, cut and lengthened tensors: finite values or a refusal. */
Test(compress_bad, any_bytes)
{
    uint64_t state = test_seed(62);
    for (int i = 0; i < test_cases(400); i++) {
        for (size_t k = 0; k < pack_n_kinds(); k++) {
            bad_case made = make_case(k);
            pack_result *packed = &made.packed;
            const size_t n_changes = 1 + (size_t)test_random_below(&state, 4);
            const size_t head = (test_random_below(&state, 2) == 0) ? 32 : packed->n_bytes;
            for (size_t c = 0; c < n_changes; c++) {
                size_t at = (size_t)test_random_below(&state, head);
                at = (at < packed->n_bytes) ? at : packed->n_bytes - 1;
                packed->bytes[at] ^= (uint8_t)(1 + test_random_below(&state, 255));
            }
            if (test_random_below(&state, 3) == 0) {
                packed->stored[0] -= test_random_below(&state, packed->n_bytes);
            }
            if (read_case(&made) != DUNLIN_OK) {
                cr_assert(made.error.status != DUNLIN_OK && made.error.text[0] != '\0');
            } else {
                cr_assert_eq(dunlin__bits_not_finite(made.read, N_VALUES), N_VALUES);
            }
            free_case(&made);
        }
    }
}
