/*
 * test_formats_masked.c - MASKED_RING updates of the first version and the digests of terms are
 * read for ever, by their tables and by the library, and written to the same bytes.
 */
#include "formats.h"

#include <wire/manifest.h>
#include <wire/secagg.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#define N (FORMATS_MASKED_VALUES + 1)

/* Bits i x width and on, lowest first, as SECAGG.md has it. */
static uint32_t element_at(const uint8_t *bytes, size_t index, unsigned width)
{
    uint32_t element = 0;
    for (unsigned i = 0; i < width; i++) {
        const size_t bit = index * width + i;
        element |= (uint32_t)(bytes[bit / 8] >> bit % 8 & 1U) << i;
    }
    return element;
}

static void name_of(char out_name[32], unsigned width, const char *ending)
{
    (void)snprintf(out_name, 32, "masked_1_%u.%s", width, ending);
}

static void expect_manifest(const uint8_t *manifest, size_t n_manifest, unsigned width,
                            size_t n_stream)
{
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__manifest_reader reader;
    dunlin__manifest_record record = {.item = DUNLIN_MANIFEST_STREAM};
    const dunlin__manifest_source source = dunlin__manifest_source_memory(manifest, n_manifest);
    int n_tensors = 0;
    cr_assert_eq(dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_UPDATE, &error),
                 DUNLIN_OK);
    while (record.item != DUNLIN_MANIFEST_END) {
        cr_assert_eq(dunlin__manifest_reader_next(&reader, &record, &error), DUNLIN_OK, "%s",
                     error.text);
        if (record.item == DUNLIN_MANIFEST_STREAM) {
            cr_expect_eq(record.stream.encoding, DUNLIN_V1_ENCODING_MASKED_RING);
            cr_expect_eq(record.stream.ring_bits, width);
            cr_expect_eq(record.stream.total_bytes, n_stream);
        } else if (record.item == DUNLIN_MANIFEST_TENSOR) {
            cr_expect_str_eq(record.tensor.name, "masked");
            cr_expect_eq(record.tensor.dims[0], N);
            n_tensors++;
        }
    }
    cr_expect_eq(n_tensors, 1);
}

static void expect_masked(unsigned width)
{
    char name[32];
    uint8_t manifest[FORMATS_STREAM_BYTES];
    uint8_t stream[FORMATS_STREAM_BYTES];
    uint8_t written_manifest[FORMATS_STREAM_BYTES];
    uint8_t written[FORMATS_STREAM_BYTES];
    uint8_t key[FORMATS_MASKED_KEY_BYTES];
    uint32_t sums[N] = {0};
    size_t n_written_manifest = 0;
    size_t n_written = 0;
    name_of(name, width, "manifest");
    const size_t n_manifest = formats_read(DUNLIN_FORMATS, name, manifest, sizeof manifest);
    name_of(name, width, "bin");
    const size_t n_stream = formats_read(DUNLIN_FORMATS, name, stream, sizeof stream);
    cr_assert_eq(n_stream, (N * width + 7) / 8);
    expect_manifest(manifest, n_manifest, width, n_stream);
    /* By the library: the packed elements less the mask of the key. */
    const uint32_t kept = width == 32 ? UINT32_MAX : (1U << width) - 1;
    formats_masked_key(key);
    cr_assert(dunlin__ring_add(sums, stream, N, width, false));
    for (size_t i = 0; i < N; i++) {
        cr_assert_eq(sums[i] & kept, element_at(stream, i, width), "element %zu by the table", i);
    }
    cr_assert_eq(dunlin__mask_add(key, 0, width, true, sums, N, NULL), DUNLIN_OK);
    for (size_t i = 0; i < N; i++) {
        cr_assert_eq(sums[i] & kept, formats_masked_element(i) & kept, "element %zu", i);
    }
    formats_masked(width, written_manifest, &n_written_manifest, written, &n_written);
    cr_expect(n_written == n_stream && memcmp(written, stream, n_stream) == 0);
    cr_expect(n_written_manifest == n_manifest &&
              memcmp(written_manifest, manifest, n_manifest) == 0);
}

Test(formats_masked, masked_updates_load_for_ever)
{
    expect_masked(16);
    expect_masked(24);
    expect_masked(32);
}

/* Eight bytes, big-endian. */
static size_t put(uint8_t *bytes, uint64_t number)
{
    for (unsigned i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(number >> (56 - 8 * i));
    }
    return 8;
}

/* The table of SECAGG.md, "Every byte". */
static size_t write_terms(const dunlin__secagg_plan *plan, uint8_t *bytes)
{
    const uint32_t clip_bits = 0x3f400000; /* 0.75 */
    const uint64_t numbers[] = {plan->version,
                                plan->n_cohort,
                                plan->n_neighbours,
                                plan->threshold,
                                plan->least_devices,
                                plan->ring_bits,
                                plan->n_values,
                                clip_bits,
                                plan->value_limit,
                                plan->weight_limit,
                                1};
    size_t n = 22;
    memcpy(bytes, "dunlin.v1.secagg.terms", 22);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        n += put(bytes + n, numbers[i]);
    }
    if (plan->version == 2) {
        n += put(bytes + n, (uint64_t)plan->noise_kind);
        n += put(bytes + n, plan->noise_scale);
        n += put(bytes + n, plan->least_honest);
    }
    n += put(bytes + n, plan->session.size);
    memcpy(bytes + n, plan->session.bytes, plan->session.size);
    return n + plan->session.size;
}

Test(formats_masked, digests_of_terms_stay)
{
    for (uint32_t version = 1; version <= 2; version++) {
        char name[32];
        uint8_t kept[64];
        uint8_t digest[DUNLIN_SHA256_BYTES];
        uint8_t by_table[DUNLIN_SHA256_BYTES];
        uint8_t bytes[256];
        const dunlin__secagg_plan plan = formats_secagg_plan(version);
        (void)snprintf(name, sizeof name, "secagg_terms_%u.sha256", version);
        cr_assert_eq(formats_read(DUNLIN_FORMATS, name, kept, sizeof kept), DUNLIN_SHA256_BYTES);
        cr_assert_eq(dunlin__secagg_digest(&plan, digest, NULL), DUNLIN_OK);
        cr_assert_eq(dunlin__sha256_of(bytes, write_terms(&plan, bytes), by_table, NULL),
                     DUNLIN_OK);
        cr_expect_eq(memcmp(digest, kept, sizeof digest), 0, "version %u", version);
        cr_expect_eq(memcmp(by_table, kept, sizeof digest), 0, "version %u by the table", version);
    }
}

/* The other kind of noise is another number in its place. */
Test(formats_masked, digests_of_skellam_terms_are_those_of_the_table)
{
    uint8_t bytes[256];
    uint8_t digest[DUNLIN_SHA256_BYTES];
    uint8_t by_table[DUNLIN_SHA256_BYTES];
    dunlin__secagg_plan plan = formats_secagg_plan(2);
    plan.noise_kind = DUNLIN_V1_SECAGG_NOISE_SKELLAM;
    cr_assert_eq(dunlin__secagg_digest(&plan, digest, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__sha256_of(bytes, write_terms(&plan, bytes), by_table, NULL), DUNLIN_OK);
    cr_expect_eq(memcmp(by_table, digest, sizeof digest), 0);
}
