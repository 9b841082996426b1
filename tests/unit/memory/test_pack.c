/*
 * test_pack.c - packing and its bound on cases small enough to work out by hand, and the searches
 * against all orders and against each published one.
 */
#include "pack/portfolio.h"
#include "planner/pack_orders.h"
#include "random.h"

#include <criterion/criterion.h>

#include <string.h>

#define N_OF(blocks) ((uint32_t)(sizeof(blocks) / sizeof(blocks)[0]))

static uint64_t pack_all(dunlin_pack_block *blocks, uint32_t n, uint64_t bound, const char **name)
{
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_packer packer;
    cr_assert_eq(dunlin__packer_open(n, &counter.hooks, &packer, NULL), DUNLIN_OK);
    uint64_t height = dunlin__pack(&packer, blocks, n, bound, name);
    dunlin__packer_close(&packer);
    cr_assert_eq(counter.now_bytes, 0);
    return height;
}

Test(pack, blocks_that_never_meet_share_their_bytes)
{
    dunlin_pack_block blocks[] = {{.first_step = 0, .last_step = 1, .bytes = 128},
                                  {.first_step = 2, .last_step = 3, .bytes = 256},
                                  {.first_step = 4, .last_step = 4, .bytes = 64}};
    const char *name = NULL;
    cr_assert_eq(pack_all(blocks, N_OF(blocks), 256, &name), 256);
    cr_assert_not_null(name);
    for (uint32_t b = 0; b < N_OF(blocks); b++) {
        cr_assert_eq(blocks[b].offset_bytes, 0);
    }
}

Test(pack, lives_that_touch_at_one_step_are_kept_apart)
{
    dunlin_pack_block blocks[] = {{.first_step = 0, .last_step = 1, .bytes = 128},
                                  {.first_step = 1, .last_step = 2, .bytes = 128}};
    const char *name = NULL;
    cr_assert_eq(pack_all(blocks, N_OF(blocks), 256, &name), 256);
    cr_assert_neq(blocks[0].offset_bytes, blocks[1].offset_bytes);
}

Test(pack, a_case_where_the_first_order_fails)
{
    /* Longest live range first puts A at 0, B above it and leaves C no gap; another order does
     * better. */
    dunlin_pack_block blocks[] = {{.first_step = 0, .last_step = 3, .bytes = 64},
                                  {.first_step = 2, .last_step = 5, .bytes = 64},
                                  {.first_step = 4, .last_step = 6, .bytes = 128},
                                  {.first_step = 0, .last_step = 1, .bytes = 128}};
    uint64_t sums[8];
    uint32_t peak = 99;
    uint64_t bound = dunlin__pack_lower_bound(blocks, N_OF(blocks), sums, 7, &peak);
    cr_assert_eq(bound, 192);
    cr_assert_eq(peak, 0);
    const char *name = NULL;
    cr_assert_eq(pack_all(blocks, N_OF(blocks), bound, &name), 192);
}

Test(pack, best_fit_takes_the_tightest_gap)
{
    /* In size order: 0, 1, 2 lie on one another; 1 and 3 end. Then 4 fits two gaps. */
    dunlin_pack_block blocks[] = {{.first_step = 0, .last_step = 9, .bytes = 640},
                                  {.first_step = 0, .last_step = 4, .bytes = 576},
                                  {.first_step = 0, .last_step = 9, .bytes = 512},
                                  {.first_step = 0, .last_step = 4, .bytes = 448},
                                  {.first_step = 0, .last_step = 9, .bytes = 384},
                                  {.first_step = 5, .last_step = 9, .bytes = 320}};
    dunlin_alloc alloc = {0};
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    alloc = counter.hooks;
    dunlin_packer packer;
    cr_assert_eq(dunlin__packer_open(N_OF(blocks), &alloc, &packer, NULL), DUNLIN_OK);
    for (uint32_t m = 0; dunlin__pack_name(m) != NULL; m++) {
        if (strcmp(dunlin__pack_name(m), "size, first fit") == 0) {
            cr_assert_eq(dunlin__pack_by(&packer, m, blocks, N_OF(blocks), UINT64_MAX), 2560);
            cr_assert_eq(blocks[5].offset_bytes, 640);
        }
        if (strcmp(dunlin__pack_name(m), "size, best fit") == 0) {
            cr_assert_eq(dunlin__pack_by(&packer, m, blocks, N_OF(blocks), UINT64_MAX), 2560);
            cr_assert_eq(blocks[5].offset_bytes, 640 + 576 + 512);
        }
    }
    /* Gives up at the limit and leaves the answer alone. */
    blocks[5].offset_bytes = 7;
    cr_assert_eq(dunlin__pack_by(&packer, 0, blocks, N_OF(blocks), 2560), UINT64_MAX);
    cr_assert_eq(blocks[5].offset_bytes, 7);
    cr_assert_null(dunlin__pack_name(1000));
    dunlin__packer_close(&packer);
}

Test(pack, no_memory_is_said)
{
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    counter.limit_bytes = 100;
    dunlin_packer packer;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__packer_open(20, &counter.hooks, &packer, &error), DUNLIN_MEMORY);
    cr_assert_eq(error.status, DUNLIN_MEMORY);
    cr_assert_eq(counter.now_bytes, 0);
}

/* --- the searches --- */

#define N_STEPS_MAX 64
#define N_BLOCKS_MAX 160

static uint64_t bound_of(const dunlin_pack_block *blocks, uint32_t n)
{
    uint64_t sums[N_STEPS_MAX + 1];
    uint32_t peak = 0;
    return dunlin__pack_lower_bound(blocks, n, sums, N_STEPS_MAX, &peak);
}

/* Packs within a target by a packer of its own; the answer is checked. */
static uint64_t pack_within(dunlin_pack_block *blocks, uint32_t n, uint64_t target_bytes,
                            uint64_t max_moves, uint64_t *out_moves)
{
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_packer packer;
    const char *name = NULL;
    cr_assert_eq(dunlin__packer_open(n, &counter.hooks, &packer, NULL), DUNLIN_OK);
    const dunlin_pack_goal goal = {.lower_bound_bytes = bound_of(blocks, n),
                                   .target_bytes = target_bytes,
                                   .max_moves = max_moves};
    uint64_t height = dunlin__pack_within(&packer, blocks, n, &goal, &name);
    *out_moves = packer.n_moves;
    dunlin__packer_close(&packer);
    cr_assert_eq(counter.now_bytes, 0);
    cr_assert_not_null(name);
    cr_assert(pack_is_apart(blocks, n, height));
    return height;
}

/* The lowest height of all orders, each block as low as it goes: one of them is an optimum. */
static uint64_t lowest_of_orders(dunlin_pack_block *blocks, uint32_t n, uint32_t n_placed,
                                 uint64_t height)
{
    if (n_placed == n) {
        return height;
    }
    uint64_t best = UINT64_MAX;
    for (uint32_t i = n_placed; i < n; i++) {
        dunlin_pack_block held = blocks[i];
        blocks[i] = blocks[n_placed];
        uint64_t offset = 0;
        for (bool is_moved = true; is_moved;) {
            is_moved = false;
            for (uint32_t k = 0; k < n_placed; k++) {
                uint64_t end = blocks[k].offset_bytes + blocks[k].bytes;
                if (blocks[k].first_step <= held.last_step &&
                    held.first_step <= blocks[k].last_step &&
                    blocks[k].offset_bytes < offset + held.bytes && offset < end) {
                    offset = end;
                    is_moved = true;
                }
            }
        }
        blocks[n_placed] = held;
        blocks[n_placed].offset_bytes = offset;
        uint64_t top = offset + held.bytes > height ? offset + held.bytes : height;
        uint64_t found = lowest_of_orders(blocks, n, n_placed + 1, top);
        best = found < best ? found : best;
        blocks[n_placed] = blocks[i];
        blocks[i] = held;
    }
    return best;
}

static void random_blocks(dunlin_pack_block *blocks, uint32_t n, uint32_t n_steps,
                          uint64_t most_units, uint64_t *state)
{
    for (uint32_t b = 0; b < n; b++) {
        uint32_t first = (uint32_t)test_random_below(state, n_steps);
        uint32_t life = (uint32_t)test_random_below(state, n_steps - first);
        blocks[b] = (dunlin_pack_block){.first_step = first,
                                        .last_step = first + life,
                                        .bytes = 64 * (1 + test_random_below(state, most_units))};
    }
}

Test(pack, the_search_finds_the_optimum_of_small_cases)
{
    dunlin_pack_block blocks[N_BLOCKS_MAX];
    int n_searched = 0;
    for (uint64_t seed = test_seed(100); n_searched < test_cases(12); seed++) {
        uint64_t state = seed;
        random_blocks(blocks, 8, 6, 3, &state);
        for (uint32_t b = 0; b < 8; b++) { /* short live ranges are the hard ones */
            blocks[b].last_step = blocks[b].first_step + (uint32_t)test_random_below(&state, 3);
        }
        uint64_t n_moves = 0;
        uint64_t height = pack_within(blocks, 8, 0, 100000, &n_moves);
        if (n_moves > 0) {
            uint64_t best = lowest_of_orders(blocks, 8, 0, 0);
            cr_assert_eq(height, best, "seed %llu", (unsigned long long)seed);
            n_searched++;
        }
    }
}

/* Cuts a rectangle of steps and units at random until `n` blocks fill it without a gap. */
static void cut_rectangle(dunlin_pack_block *blocks, uint32_t n, uint32_t n_units, uint64_t *state)
{
    blocks[0] = (dunlin_pack_block){
        .first_step = 0, .last_step = N_STEPS_MAX - 1, .bytes = (uint64_t)n_units * 64};
    for (uint32_t made = 1; made < n;) {
        dunlin_pack_block *cut = &blocks[test_random_below(state, made)];
        uint32_t n_steps = cut->last_step - cut->first_step + 1;
        uint64_t n_here = cut->bytes / 64;
        if (test_random_below(state, 2) == 0 && n_steps > 1) {
            uint32_t middle = cut->first_step + (uint32_t)test_random_below(state, n_steps - 1);
            blocks[made] = *cut;
            blocks[made++].first_step = middle + 1;
            cut->last_step = middle;
        } else if (n_here > 1) {
            uint64_t low = 1 + test_random_below(state, n_here - 1);
            blocks[made] = *cut;
            blocks[made++].bytes = cut->bytes - low * 64;
            cut->bytes = low * 64;
        }
    }
}

Test(pack, the_search_fills_a_rectangle_again)
{
    dunlin_pack_block blocks[N_BLOCKS_MAX];
    uint64_t seed = test_seed(900);
    int n_searched = 0;
    for (int k = 0; k < test_cases(60); k++, seed++) {
        uint64_t state = seed;
        uint64_t n_moves = 0;
        cut_rectangle(blocks, 40, 200, &state);
        cr_assert_eq(bound_of(blocks, 40), 200 * 64);
        uint64_t height = pack_within(blocks, 40, 0, 1000000, &n_moves);
        cr_assert_eq(height, 200 * 64, "seed %llu: %llu", (unsigned long long)seed,
                     (unsigned long long)height);
        n_searched += n_moves > 0;
    }
    /* Of few cases perhaps none. */
    cr_assert_geq(n_searched, test_cases(60) / 20, "%d", n_searched);
}

/* Live ranges that nest as those of a training step do, with transients between, and every third
 * long one cut in two as if its block were recomputed. */
static uint32_t nested_blocks(dunlin_pack_block *blocks, uint64_t *state)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < N_STEPS_MAX / 2; k++) {
        uint64_t bytes = 64 * (1 + test_random_below(state, 200));
        uint32_t last = N_STEPS_MAX - 1 - k;
        if (k % 3 == 2 && last > k + 8) {
            uint32_t use = k + 1 + (uint32_t)test_random_below(state, 3);
            blocks[n++] = (dunlin_pack_block){.first_step = k, .last_step = use, .bytes = bytes};
            blocks[n++] =
                (dunlin_pack_block){.first_step = last - 2, .last_step = last, .bytes = bytes};
        } else {
            blocks[n++] = (dunlin_pack_block){.first_step = k, .last_step = last, .bytes = bytes};
        }
        for (uint32_t side = 0; side < 2; side++) {
            uint32_t step = side == 0 ? k : last;
            uint32_t end = step + (uint32_t)test_random_below(state, 3);
            blocks[n++] = (dunlin_pack_block){
                .first_step = step,
                .last_step = end < N_STEPS_MAX ? end : N_STEPS_MAX - 1,
                .bytes = 64 * (1 + test_random_below(state, k % 2 == 0 ? 4 : 300))};
        }
    }
    return n;
}

Test(pack, the_search_is_never_above_a_published_order)
{
    static dunlin_pack_block blocks[N_BLOCKS_MAX];
    uint64_t seed = test_seed(500);
    for (int k = 0; k < test_cases(150); k++, seed++) {
        uint64_t state = seed;
        uint32_t n = 0;
        if (k % 2 == 0) {
            n = nested_blocks(blocks, &state);
        } else {
            n = 1 + (uint32_t)test_random_below(&state, N_BLOCKS_MAX);
            random_blocks(blocks, n, N_STEPS_MAX, 100, &state);
        }
        uint64_t lowest = UINT64_MAX;
        for (uint32_t o = 0; o < PACK_N_ORDERS; o++) {
            uint64_t single = pack_by_order(o, blocks, n);
            lowest = single < lowest ? single : lowest;
        }
        uint64_t n_moves = 0;
        uint64_t height = pack_within(blocks, n, 0, 20000, &n_moves);
        cr_assert_leq(height, lowest, "seed %llu", (unsigned long long)seed);
        uint64_t bound = bound_of(blocks, n);
        if (k % 2 == 0) {
            cr_assert_leq((double)height, 1.01 * (double)bound, "seed %llu: %llu over %llu",
                          (unsigned long long)seed, (unsigned long long)height,
                          (unsigned long long)bound);
        }
        for (uint32_t b = 0; b < n; b++) {
            cr_assert_eq(blocks[b].offset_bytes % 64, 0);
        }
    }
}

Test(pack, the_published_orders_are_members)
{
    static dunlin_pack_block blocks[N_BLOCKS_MAX];
    static const char *const members[] = {"longest life then size, best fit", "size, best fit",
                                          "size, first fit"};
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_packer packer;
    cr_assert_eq(dunlin__packer_open(N_BLOCKS_MAX, &counter.hooks, &packer, NULL), DUNLIN_OK);
    for (uint64_t seed = 1; seed <= 50; seed++) {
        uint64_t state = seed;
        random_blocks(blocks, N_BLOCKS_MAX, N_STEPS_MAX, UINT64_C(1) << 30, &state);
        int n_seen = 0;
        for (uint32_t m = 0; dunlin__pack_name(m) != NULL; m++) {
            uint64_t height = dunlin__pack_by(&packer, m, blocks, N_BLOCKS_MAX, UINT64_MAX);
            cr_assert(pack_is_apart(blocks, N_BLOCKS_MAX, height));
            for (uint32_t o = 0; o < 3; o++) {
                if (strcmp(members[o], dunlin__pack_name(m)) == 0) {
                    /* Blocks of equal size: the packer takes the earlier start, the witness the
                     * lower number; with 2^30 sizes there are none. */
                    cr_assert_eq(height, pack_by_order(o, blocks, N_BLOCKS_MAX));
                    n_seen++;
                }
            }
        }
        cr_assert_eq(n_seen, 3);
    }
    dunlin__packer_close(&packer);
}

Test(pack, the_search_stops_at_its_limit_and_does_the_same_again)
{
    static dunlin_pack_block blocks[N_BLOCKS_MAX];
    static dunlin_pack_block again[N_BLOCKS_MAX];
    static const uint64_t limits[] = {0, 1, 100, 3000, 40000};
    uint64_t last = UINT64_MAX;
    uint64_t state = 3;
    random_blocks(blocks, N_BLOCKS_MAX, N_STEPS_MAX, 50, &state);
    for (uint32_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        uint64_t n_moves = 0;
        uint64_t n_moves_again = 0;
        memcpy(again, blocks, sizeof again);
        uint64_t height = pack_within(blocks, N_BLOCKS_MAX, 0, limits[i], &n_moves);
        uint64_t same = pack_within(again, N_BLOCKS_MAX, 0, limits[i], &n_moves_again);
        cr_assert_eq(height, same);
        cr_assert_eq(n_moves, n_moves_again);
        cr_assert_eq(memcmp(blocks, again, sizeof again), 0);
        /* A repacking that has begun is finished: at most one a search goes over. */
        cr_assert_leq(n_moves, limits[i] + 64 * N_BLOCKS_MAX);
        cr_assert(limits[i] > 0 || n_moves == 0);
        cr_assert_leq(height, last);
        last = height;
    }
}

Test(pack, a_target_above_the_bound_is_enough)
{
    static dunlin_pack_block blocks[N_BLOCKS_MAX];
    uint64_t state = 4;
    random_blocks(blocks, N_BLOCKS_MAX, N_STEPS_MAX, 50, &state);
    uint64_t n_moves = 0;
    (void)pack_within(blocks, N_BLOCKS_MAX, UINT64_MAX, 1000, &n_moves);
    cr_assert_eq(n_moves, 0);
    uint64_t greedy = pack_within(blocks, N_BLOCKS_MAX, 0, 0, &n_moves);
    uint64_t target = greedy - (greedy - bound_of(blocks, N_BLOCKS_MAX)) / 4;
    cr_assert_gt(greedy, target);
    uint64_t height = pack_within(blocks, N_BLOCKS_MAX, target, 1000000, &n_moves);
    cr_assert_leq(height, target);
    cr_assert_gt(n_moves, 0);
    cr_assert_leq(n_moves, 1000000);
}

Test(pack, no_memory_is_said_wherever_it_runs_out)
{
    dunlin_alloc_counter counter;
    dunlin_packer packer;
    uint64_t whole = 0;
    dunlin_alloc_counter_init(&counter, NULL);
    cr_assert_eq(dunlin__packer_open(20, &counter.hooks, &packer, NULL), DUNLIN_OK);
    whole = counter.now_bytes;
    dunlin__packer_close(&packer);
    for (uint64_t limit = 1; limit < whole; limit += 61) {
        dunlin_error error = {0};
        counter.limit_bytes = limit;
        cr_assert_eq(dunlin__packer_open(20, &counter.hooks, &packer, &error), DUNLIN_MEMORY);
        cr_assert_eq(error.status, DUNLIN_MEMORY);
        cr_assert_eq(counter.now_bytes, 0);
    }
}
