/*
 * test_average.c - the next model as values: the same bits whatever the order of the updates, for
 * differences, whole weights, scaled updates, control variates, medians and trimmed means.
 */
#include "model/aggregate.h"
#include "model/update_norm.h"
#include "server/device.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_INPUTS 6
#define N_SHARED 9000u /* more than two blocks: 6,000 averaged, 3,000 of statistics */
#define N_LOCAL 50u
#define N_AVERAGED 6000u

static float base[N_SHARED + N_LOCAL];
static float updates[N_INPUTS][N_SHARED + N_AVERAGED];

/* An averaged tensor, one that stays on the devices, and one of statistics. */
static void make_layout(dunlin__tensor_entry *tensors, dunlin__layout *out_layout)
{
    static const struct {
        const char *name;
        int64_t n;
        dunlin_v1_rule_t rule;
    } all[3] = {{"w", N_AVERAGED, DUNLIN_V1_RULE_AVERAGE},
                {"own", N_LOCAL, DUNLIN_V1_RULE_LOCAL},
                {"mean", N_SHARED - N_AVERAGED, DUNLIN_V1_RULE_STATISTIC}};
    dunlin_error error = {0};
    for (int i = 0; i < 3; i++) {
        dunlin_shape shape = {.n_dims = 1, .dims = {all[i].n}};
        cr_assert_eq(
            dunlin__tensor_entry_make(all[i].name, &shape, all[i].rule, &tensors[i], &error),
            DUNLIN_OK);
    }
    *out_layout = (dunlin__layout){.tensors = tensors, .n_tensors = 3, .has_control = true};
    cr_assert_eq(dunlin__layout_check(out_layout, &error), DUNLIN_OK, "%s", error.text);
}

static void write_floats(const char *path, const float *values, size_t n)
{
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(values, sizeof *values, n, file), n);
    cr_assert_eq(fclose(file), 0);
}

static void run(const char *folder, const dunlin__layout *layout,
                const dunlin__aggregate_input *inputs, bool is_control, bool sends_weights,
                dunlin__strategy_kind kind, const dunlin__sums *sums, float *out)
{
    dunlin_error error = {0};
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    const uint64_t n_values = is_control ? layout->n_averaged_values : layout->n_values;
    dunlin__weights_file file;
    dunlin__aggregate_room room;
    const dunlin__strategy strategy = {.kind = kind, .trim = 0.2};
    char path[256];
    (void)snprintf(path, sizeof path, "%s/base.%d", folder, is_control ? 1 : 0);
    cr_assert_eq(dunlin__weights_file_open(path, n_values, &file, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(dunlin__aggregate_room_make(&room, &strategy, N_INPUTS, &alloc, &error),
                 DUNLIN_OK);
    dunlin__aggregate aggregate = {.layout = layout,
                                   .part = is_control ? DUNLIN_LAYOUT_AVERAGED : DUNLIN_LAYOUT_ALL,
                                   .first_in_inputs = is_control ? layout->n_shared_values : 0,
                                   .divisor = is_control ? 20 : 0,
                                   .base = dunlin__weights_file_values(&file),
                                   .sums = sums,
                                   .inputs = inputs,
                                   .n_inputs = N_INPUTS,
                                   .sends_weights = sends_weights,
                                   .strategy = &strategy,
                                   .room = &room};
    const dunlin__values values = dunlin__aggregate_values(&aggregate);
    for (uint64_t first = 0; first < n_values; first += 5000) {
        const size_t n = n_values - first < 5000 ? (size_t)(n_values - first) : 5000;
        cr_assert_eq(values.values_fn(values.ctx, first, n, out + first, &error), DUNLIN_OK, "%s",
                     error.text);
    }
    dunlin__aggregate_room_free(&room, &alloc);
    dunlin__weights_file_close(&file);
}

/* The updates summed up as they come, a piece of each in turn. */
static void sum_up(const dunlin__aggregate_input *inputs, bool sends_weights, dunlin__sums *out)
{
    static float origin[N_SHARED + N_AVERAGED]; /* of the control variate: zeros */
    dunlin_error error = {0};
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    memcpy(origin, base, N_AVERAGED * sizeof *base);
    memcpy(origin + N_AVERAGED, base + N_AVERAGED + N_LOCAL,
           (N_SHARED - N_AVERAGED) * sizeof *base);
    cr_assert_eq(dunlin__sums_make(out, N_SHARED + N_AVERAGED, &alloc, &error), DUNLIN_OK);
    for (int i = 0; i < N_INPUTS; i++) {
        cr_assert_eq(dunlin__sums_count(out, inputs[i].weight, &error), DUNLIN_OK);
    }
    for (size_t first = 0; first < N_SHARED + N_AVERAGED; first += 1000) {
        for (int i = N_INPUTS - 1; i >= 0; i--) {
            const dunlin__sums_term term = {.values = updates[inputs[i].client_index] + first,
                                            .origin = sends_weights ? origin + first : NULL,
                                            .weight = inputs[i].weight,
                                            .scale = inputs[i].scale};
            cr_assert_eq(dunlin__sums_add(out, first, 1000, &term, &error), DUNLIN_OK, "%s",
                         error.text);
        }
    }
}

/* What is in memory, or has been summed up, gives the bits of the files. */
static void check_memory(const char *folder, const dunlin__layout *layout,
                         const dunlin__aggregate_input *inputs, bool is_control, bool sends_weights,
                         dunlin__strategy_kind strategy, const float *wanted)
{
    static float found[N_SHARED + N_LOCAL];
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    const size_t n = is_control ? N_AVERAGED : N_SHARED + N_LOCAL;
    dunlin__aggregate_input there[N_INPUTS];
    dunlin__sums sums;
    for (int i = 0; i < N_INPUTS; i++) {
        there[i] = inputs[i];
        there[i].path.text[0] = 0;
        there[i].values = updates[inputs[i].client_index];
    }
    run(folder, layout, there, is_control, sends_weights, strategy, NULL, found);
    cr_assert_eq(memcmp(found, wanted, n * sizeof *found), 0, "strategy %d", (int)strategy);
    if (strategy == DUNLIN_STRATEGY_AVERAGE) {
        sum_up(inputs, sends_weights, &sums);
        run(folder, layout, NULL, is_control, sends_weights, strategy, &sums, found);
        cr_assert_eq(memcmp(found, wanted, n * sizeof *found), 0, "summed up");
        dunlin__sums_free(&sums, &alloc);
    }
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Of six updates: the two in the middle, or all but the ends. */
static double plain_middle(const dunlin__aggregate_input *inputs, size_t place, double from,
                           bool sends_weights, bool is_median)
{
    double sorted[N_INPUTS];
    for (int i = 0; i < N_INPUTS; i++) {
        const double origin = sends_weights ? from : 0;
        const double value = (double)updates[inputs[i].client_index][place];
        sorted[i] = origin + inputs[i].scale * (value - origin);
    }
    qsort(sorted, N_INPUTS, sizeof sorted[0], compare);
    const double middle = is_median ? (sorted[2] + sorted[3]) / 2
                                    : (sorted[1] + sorted[2] + sorted[3] + sorted[4]) / 4;
    return sends_weights ? middle : from + middle;
}

/* In float64 in the given order: near, not the same bits. */
static double plain(const dunlin__aggregate_input *inputs, size_t place, double from,
                    bool is_control, bool sends_weights)
{
    double sum = 0;
    double weight_sum = 0;
    for (int i = 0; i < N_INPUTS; i++) {
        const double origin = sends_weights ? from : 0;
        const double value = (double)updates[inputs[i].client_index][place];
        sum += inputs[i].weight * (origin + inputs[i].scale * (value - origin));
        weight_sum += inputs[i].weight;
    }
    const double mean = sum / (is_control ? 20 : weight_sum);
    return sends_weights ? mean : from + mean;
}

Test(average, same_bits_in_every_order_of_the_updates)
{
    static float first[N_SHARED + N_LOCAL];
    static float found[N_SHARED + N_LOCAL];
    test_server fixture;
    dunlin__tensor_entry tensors[3];
    dunlin__layout layout;
    dunlin__aggregate_input inputs[N_INPUTS];
    char path[256];
    uint64_t state = test_seed(5);
    test_server_folder(&fixture);
    make_layout(tensors, &layout);
    test_random_fill(base, N_SHARED + N_LOCAL, -1, 1, &state);
    (void)snprintf(path, sizeof path, "%s/base.0", fixture.folder);
    write_floats(path, base, N_SHARED + N_LOCAL);
    (void)snprintf(path, sizeof path, "%s/base.1", fixture.folder);
    write_floats(path, base, N_AVERAGED);
    for (int i = 0; i < N_INPUTS; i++) {
        test_random_fill(updates[i], N_SHARED + N_AVERAGED, -2, 2, &state);
        for (size_t v = 0; v < N_SHARED; v += 7) {
            updates[i][v] = i % 3 == 0 ? -0.0F : 0.0F; /* equal, and not the same bits */
        }
        inputs[i] = (dunlin__aggregate_input){
            .weight = 1 + 7.0 * i, .scale = i % 2 == 0 ? 1 : 0.37, .client_index = i};
        (void)snprintf(inputs[i].path.text, sizeof inputs[i].path.text, "%s/update.%d",
                       fixture.folder, i);
        write_floats(inputs[i].path.text, updates[i], N_SHARED + N_AVERAGED);
    }
    static const struct {
        dunlin__strategy_kind strategy;
        bool is_control, sends_weights;
    } kinds[] = {
        {DUNLIN_STRATEGY_AVERAGE, false, false}, {DUNLIN_STRATEGY_AVERAGE, false, true},
        {DUNLIN_STRATEGY_AVERAGE, true, false},  {DUNLIN_STRATEGY_MEDIAN, false, false},
        {DUNLIN_STRATEGY_MEDIAN, false, true},   {DUNLIN_STRATEGY_TRIMMED_MEAN, false, false}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        const bool is_control = kinds[k].is_control;
        const bool sends_weights = kinds[k].sends_weights;
        const dunlin__strategy_kind strategy = kinds[k].strategy;
        const size_t n = is_control ? N_AVERAGED : N_SHARED + N_LOCAL;
        run(fixture.folder, &layout, inputs, is_control, sends_weights, strategy, NULL, first);
        check_memory(fixture.folder, &layout, inputs, is_control, sends_weights, strategy, first);
        for (size_t i = 0; i < n; i++) {
            const bool is_local = !is_control && i >= N_AVERAGED && i < N_AVERAGED + N_LOCAL;
            const double from = (double)base[i];
            size_t place = i < N_AVERAGED ? i : i - N_LOCAL;
            place += is_control ? N_SHARED : 0;
            double wanted = from;
            if (!is_local && strategy == DUNLIN_STRATEGY_AVERAGE) {
                wanted = plain(inputs, place, from, is_control, sends_weights);
            } else if (!is_local) {
                wanted = plain_middle(inputs, place, from, sends_weights,
                                      strategy == DUNLIN_STRATEGY_MEDIAN);
            }
            cr_assert_float_eq((double)first[i], wanted, 1e-6, "kind %zu, value %zu", k, i);
        }
        for (int turn = 0; turn < test_cases(10); turn++) {
            const size_t a = (size_t)test_random_below(&state, N_INPUTS);
            const size_t b = (size_t)test_random_below(&state, N_INPUTS);
            const dunlin__aggregate_input held = inputs[a];
            inputs[a] = inputs[b];
            inputs[b] = held;
            run(fixture.folder, &layout, inputs, is_control, sends_weights, strategy, NULL, found);
            cr_assert_eq(memcmp(found, first, n * sizeof *found), 0, "kind %zu, turn %d", k, turn);
        }
    }
    test_server_end(&fixture);
}

Test(average, norms_in_memory_are_those_of_files)
{
    test_server fixture;
    dunlin__tensor_entry tensors[3];
    dunlin__layout layout;
    dunlin__update_norms found[N_INPUTS];
    const float *all[N_INPUTS];
    dunlin_error error = {0};
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    char base_path[256];
    char path[256];
    uint64_t state = test_seed(6);
    test_server_folder(&fixture);
    make_layout(tensors, &layout);
    test_random_fill(base, N_SHARED + N_LOCAL, -1, 1, &state);
    (void)snprintf(base_path, sizeof base_path, "%s/base", fixture.folder);
    write_floats(base_path, base, N_SHARED + N_LOCAL);
    for (int i = 0; i < N_INPUTS; i++) {
        test_random_fill(updates[i], N_SHARED, -2, 2, &state);
        all[i] = updates[i];
    }
    static const dunlin__layout_part parts[] = {DUNLIN_LAYOUT_SHARED, DUNLIN_LAYOUT_AVERAGED};
    for (size_t k = 0; k < 4; k++) {
        const bool has_base = k % 2 == 1;
        dunlin__update_measure_values(&layout, parts[k / 2], all, N_INPUTS, has_base ? base : NULL,
                                      found);
        for (int i = 0; i < N_INPUTS; i++) {
            dunlin__update_norms wanted;
            (void)snprintf(path, sizeof path, "%s/update", fixture.folder);
            write_floats(path, updates[i], N_SHARED);
            cr_assert_eq(dunlin__update_measure(&layout, parts[k / 2], path,
                                                has_base ? base_path : NULL, &alloc, &wanted,
                                                &error),
                         DUNLIN_OK, "%s", error.text);
            cr_assert_eq(memcmp(&found[i].norm, &wanted.norm, sizeof wanted.norm), 0);
            cr_assert_eq(memcmp(&found[i].layer_norm, &wanted.layer_norm, sizeof wanted.norm), 0);
            cr_assert_eq(found[i].layer, wanted.layer);
            cr_assert_eq(found[i].n_layers, wanted.n_layers);
        }
    }
    test_server_end(&fixture);
}
