/*
 * test_builtin_counted.c - what a device says of its training is a mean over the examples that
 * count, wherever its calls were cut and whether a checkpoint lies between them.
 */
#include "builtin/builtin_place.h"
#include "builtin_bench.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a device says of its training does not depend on where the clock cut it, though batches
 * differ in how many of their labels count. */
Test(builtin_counted, an_ignored_label_in_slices_is_the_same)
{
    builtin_bench b;
    float whole[BENCH_VALUES];
    float sliced[BENCH_VALUES];
    int n_calls = 0;
    bench_begin(&b, 1);
    b.task.batch = 10;
    b.task.has_ignored_label = true;
    b.task.ignored_label = 3;
    const dunlin_learner_report one = bench_fit_all(&b, 0, whole, NULL);
    bench_pause_ms = 1;
    const dunlin_learner_report other = bench_fit_all(&b, 1, sliced, &n_calls);
    cr_expect_gt(n_calls, 3);
    cr_expect_eq(one.loss, other.loss, "%.17g, %.17g", one.loss, other.loss);
    cr_expect_eq(one.accuracy, other.accuracy);
    cr_expect(bench_same(whole, sliced, b.base.n_values));
    bench_end(&b);
}

/* A checkpoint of before has no weights: each example it counts weighs 1. */
Test(builtin_counted, a_place_of_before_is_read)
{
    builtin_bench b;
    char path[] = "/tmp/dunlin-place-XXXXXX";
    const dunlin__builtin_place place = {
        .epoch = 1, .n_examples = 50, .n_counted = 40, .loss_sum = 9.5, .weight_sum = 12.25};
    dunlin__builtin_place found;
    bool has_place = false;
    bench_begin(&b, 1);
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_trainer *trainer = NULL;
    cr_assert_eq(dunlin_trainer_create(b.model, &options, &trainer, NULL), DUNLIN_OK);
    const int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    (void)close(fd);
    cr_assert_eq(dunlin__place_save(trainer, path, &place), DUNLIN_OK);
    cr_assert_eq(dunlin__place_restore(trainer, path, &found, &has_place), DUNLIN_OK);
    cr_expect(has_place && found.weight_sum == 12.25 && found.n_counted == 40);
    char text[200] = "";
    const char *kept = dunlin_trainer_property(trainer, "dunlin.place");
    cr_assert_eq(strlen(kept), 9 * 16);
    memcpy(text, kept, 8 * 16);
    cr_assert_eq(dunlin_trainer_set_property(trainer, "dunlin.place", text), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_save_checkpoint(trainer, path), DUNLIN_OK);
    cr_assert_eq(dunlin__place_restore(trainer, path, &found, &has_place), DUNLIN_OK);
    cr_expect(has_place && found.weight_sum == 40.0 && found.loss_sum == 9.5);
    (void)unlink(path);
    dunlin_trainer_destroy(trainer);
    bench_end(&b);
}
