/*
 * test_pack.c - packing and its bound on cases small enough to work out by hand.
 */
#include "pack.h"

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
    /* Longest life first puts A at 0, B above it and leaves C no gap; another order does better. */
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
    /* In size order: 0, 1, 2 stand on one another; 1 and 3 die. Then 4 fits two gaps. */
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
