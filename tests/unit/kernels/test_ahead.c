/*
 * test_ahead.c - software prefetches: all lines of a run; of rows that lie apart the lines of the
 * channels that were named, and no others.
 */
#include "kernels/simd/prefetch.h"

#include <criterion/criterion.h>

#include <string.h>

TestSuite(prefetch, .timeout = 900);

#define PITCH 96 /* floats of a row: 6 lines */
#define ROWS 30
#define LINES (PITCH / 16)

static _Alignas(LINE_BYTES) float memory[(ROWS + 64) * PITCH];

/* How often each line of the rows is asked for when tiles of `steps` take the whole list. */
static void ask_all(prefetch_list *list, int64_t steps, int counts[ROWS][LINES])
{
    memset(counts, 0, sizeof(int) * ROWS * LINES);
    for (;;) {
        int64_t step = -1;
        const char *at = prefetch_take(list, steps, list->step, &step);
        if (at == NULL) {
            cr_assert_eq(step, 0);
            return;
        }
        int64_t last = -1;
        for (int64_t i = 0; i < steps; i++) {
            const int64_t line = (at + i * step - (const char *)memory) / LINE_BYTES;
            if (line != last && line < (int64_t)ROWS * LINES) {
                counts[line / LINES][line % LINES]++;
            }
            last = line;
        }
    }
}

Test(prefetch, rows_that_lie_together_are_a_run)
{
    for (int64_t steps = 1; steps < 50; steps += 7) {
        int counts[ROWS][LINES];
        prefetch_list list = {.part = 0};
        prefetch_rows(&list, memory, PITCH, PITCH, 3, 20);
        cr_assert_eq(list.n_parts, 1);
        prefetch_pace(&list, 200);
        ask_all(&list, steps, counts);
        for (int r = 3; r < 23; r++) {
            for (int l = 0; l < LINES; l++) {
                cr_assert_geq(counts[r][l], 1, "row %d, line %d, tiles of %d", r, l, (int)steps);
            }
        }
        cr_assert_eq(counts[2][LINES - 1], 0);
    }
}

Test(prefetch, of_rows_apart_only_the_channels)
{
    for (int64_t steps = 1; steps < 50; steps++) {
        int counts[ROWS][LINES];
        prefetch_list list = {.is_apart = true, .channel = 16};
        prefetch_rows(&list, memory, PITCH, 40, 3, 20);
        prefetch_pace(&list, 200);
        ask_all(&list, steps, counts);
        for (int r = 0; r < ROWS; r++) {
            for (int l = 0; l < LINES; l++) {
                const bool is_named = l >= 1 && l <= 3; /* channels 16 ... 55 */
                if (r >= 3 && r < 23) {
                    cr_assert_eq(counts[r][l], is_named ? 1 : 0, "row %d, line %d, tiles of %d", r,
                                 l, (int)steps);
                }
                cr_assert(is_named || counts[r][l] == 0, "row %d, line %d: another's", r, l);
            }
        }
    }
}

Test(prefetch, the_pace_leaves_steps_for_rows_apart)
{
    prefetch_list list = {.is_apart = true};
    prefetch_rows(&list, memory, PITCH, 32, 0, 20); /* 2 lines of 20 rows */
    list.is_apart = false;
    prefetch_rows(&list, memory, PITCH, PITCH, 0, 20); /* 7680 bytes */
    prefetch_pace(&list, 40 + 240);
    cr_assert_eq(list.step, 7680 / 240 + 1);
}

Test(prefetch, rows_far_apart_and_nothing_are_left_out)
{
    prefetch_list list = {.part = 0};
    prefetch_rows(&list, memory, PITCH, PITCH / (PREFETCH_SPREAD + 1), 0, 20);
    prefetch_rows(&list, NULL, PITCH, PITCH, 0, 20);
    cr_assert_eq(list.n_parts, 0);
}
