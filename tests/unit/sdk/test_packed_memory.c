/*
 * test_packed_memory.c - what packing takes beside the learner's model, by the hooks: of each
 * packing that there is, with what earlier updates left and without, and of each way down.
 */
#include "client/in_world.h"

#include <wire/compress.h>

#define MEMORY_TEST(name) WORLD_TEST(packed_memory, name)
#define MOST_BYTES 65536u

static struct {
    dunlin_alloc_counter counter;
    dunlin_learner_ops ops;   /* of the learner, with the two below */
    dunlin_learner_ops plain; /* its own */
    uint64_t n_before;        /* when the update began */
    uint64_t n_most;          /* beside that, until it was written */
} seen;

static dunlin_status save_counted(void *self, dunlin_weights_reader *out)
{
    seen.n_before = seen.counter.now_bytes;
    seen.counter.peak_bytes = seen.counter.now_bytes;
    return seen.plain.save(self, out);
}

static void unload_counted(void *self)
{
    seen.n_most = seen.counter.peak_bytes - seen.n_before;
    seen.plain.unload(self);
}

/* The world's client, its memory counted from save() to unload(): while the update is made. */
static void open_counted(void)
{
    fake_world_close(&w);
    memset(&seen, 0, sizeof seen);
    dunlin_alloc_counter_init(&seen.counter, NULL);
    seen.plain = *w.plug.ops;
    seen.ops = seen.plain;
    seen.ops.save = save_counted;
    seen.ops.unload = unload_counted;
    w.plug.ops = &seen.ops;
    w.runtime = fake_server_runtime(&w.server, w.folder, &seen.counter.hooks);
    cr_assert_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &w.client, NULL), DUNLIN_OK);
}

static void close_counted(void)
{
    fake_world_close(&w);
    cr_expect_eq(seen.counter.now_bytes, 0);
    fake_world_open(&w);
}

/* Blocks as large as they may be. */
static dunlin__packing packing_of(dunlin_v1_values_t values, uint32_t bits,
                                  dunlin_v1_selection_t selection, bool is_rotated, bool is_coded)
{
    const bool is_all = selection == DUNLIN_V1_SELECTION_ALL;
    dunlin__packing packing = {.version = DUNLIN_PACK_VERSION,
                               .values = values,
                               .bits = bits,
                               .selection = selection,
                               .kept_ppm = is_all ? 0 : 300000,
                               .is_rotated = is_rotated,
                               .is_entropy_coded = is_coded,
                               .block_values =
                                   is_all ? DUNLIN_PACK_BLOCK_MAX : DUNLIN_PACK_KEPT_BLOCK_MAX};
    if (is_rotated || selection == DUNLIN_V1_SELECTION_RANDOM) {
        packing.seed.size = DUNLIN_PACK_SEED_BYTES;
        memset(packing.seed.bytes, 7, DUNLIN_PACK_SEED_BYTES);
    }
    return packing;
}

/* Running statistics are packed by none. */
static void expect_statistics(void)
{
    for (int64_t i = FAKE_VALUES - 3; i < FAKE_VALUES; i++) {
        cr_expect_float_eq((double)w.server.update[i],
                           (double)fake_learner_update(&w.learner, &w.server, i), 0.0, "value %lld",
                           (long long)i);
    }
}

static void expect_little(const dunlin__packing *packing, uint32_t feedback_rounds, float clip_norm)
{
    w.server.plan.update_encoding = DUNLIN_V1_ENCODING_PACKED;
    w.server.plan.has_packing = true;
    w.server.plan.packing = *packing;
    w.server.plan.packing.round = w.server.round;
    w.server.plan.feedback_rounds = feedback_rounds;
    w.server.plan.clip_norm = clip_norm;
    w.server.required_feature = DUNLIN_V1_FEATURE_ENCODING_PACKED;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_gt(seen.n_most, sizeof(float) * packing->block_values); /* it was looked at */
    cr_expect_leq(seen.n_most, MOST_BYTES,
                  "%llu bytes: values %d of %u bits, selection %d, rotated %d, coded %d, feedback "
                  "%u, clip %g",
                  (unsigned long long)seen.n_most, (int)packing->values, packing->bits,
                  (int)packing->selection, packing->is_rotated, packing->is_entropy_coded,
                  feedback_rounds, (double)clip_norm);
    expect_statistics();
    w.server.now_ms += 5000;
    w.server.round++;
}

/* Each packing that goes: twice with feedback, so that something of the first update is added to
 * the second. */
static int expect_little_of(dunlin_v1_values_t values, uint32_t bits)
{
    int n = 0;
    for (int how = 0; how < 12; how++) {
        const dunlin_v1_selection_t selections[] = {
            DUNLIN_V1_SELECTION_ALL, DUNLIN_V1_SELECTION_LARGEST, DUNLIN_V1_SELECTION_RANDOM};
        const dunlin_v1_selection_t selection = selections[how % 3];
        const dunlin__packing packing =
            packing_of(values, bits, selection, how / 3 % 2 == 1, how / 6 == 1);
        if (dunlin__packing_check(&packing, NULL) != DUNLIN_OK) {
            continue;
        }
        expect_little(&packing, 0, 0.0F);
        if (selection != DUNLIN_V1_SELECTION_ALL) {
            expect_little(&packing, 3, 0.0F);
            expect_little(&packing, 3, 0.5F);
        }
        w.server.round += 10; /* what was left is too old for the next */
        n++;
    }
    return n;
}

MEMORY_TEST(an_update_takes_at_most_64_kib_and_leaves_statistics_alone)
{
    static const struct {
        dunlin_v1_values_t values;
        uint32_t bits;
    } kinds[] = {{DUNLIN_V1_VALUES_F32, 0},    {DUNLIN_V1_VALUES_F16, 0},
                 {DUNLIN_V1_VALUES_BF16, 0},   {DUNLIN_V1_VALUES_LEVELS, 8},
                 {DUNLIN_V1_VALUES_LEVELS, 4}, {DUNLIN_V1_VALUES_LEVELS, 2},
                 {DUNLIN_V1_VALUES_SIGN, 0}};
    int n = 0;
    open_counted();
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        n += expect_little_of(kinds[k].values, kinds[k].bits);
    }
    cr_expect_geq(n, 25);
    close_counted();
}

/* Float32 too: its manifest is not held either. */
MEMORY_TEST(a_plain_update_takes_less)
{
    open_counted();
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_gt(seen.n_most, 0);
    cr_expect_leq(seen.n_most, 16384u, "%llu bytes", (unsigned long long)seen.n_most);
    close_counted();
}
