/*
 * test_exact_cover.c - network x instruction set x optimiser x limit: a covering draw of constant
 * length, in which any two of them meet, whatever is added to one of them; with DUNLIN_COVER=full
 * the whole product. Each row trains three steps under a limit and compares the weights with those
 * of the plain plan of the same instruction set, bit by bit.
 *
 * A new thing that steps can vary in (how tensors are stored, say) is a factor more in `factors`.
 */
#include "cover.h"
#include "exact.h"
#include "step/step_support.h"

#include <criterion/criterion.h>

#include <kernels/api/kernels.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_ROWS 40
#define SEED 25

typedef struct net {
    const char *name;
    int32_t image; /* 0: a network of tokens */
    int64_t batch;
    bool has_batch_norm;
    int64_t ghost_slice; /* samples whose statistics batch norm takes; 0: the batch's */
} net;

static const net nets[] = {
    {"lenet5", 28, 5, false, 0},        {"har_mlp", 0, 7, false, 0},
    {"tiny_bn", 0, 6, true, 0},         {"cnn_bn", 32, 4, true, 0},
    {"mobilenet_v1", 32, 4, true, 0},   {"mobilenet_v2", 32, 5, true, 0},
    {"squeezenet1_1", 48, 3, false, 0}, {"resnet18", 32, 4, true, 0},
    {"densenet121", 32, 3, true, 0},    {"mobilenet_v2", 64, 6, true, 3},
};
static const char *const isas[] = {"sse2", "avx2", "avx512", "neon"};
typedef enum optimiser { SGD, MOMENTUM, ADAM, CLIPPED, N_OPTIMISERS } optimiser;
typedef enum limit { LEAST, BETWEEN, N_LIMITS } limit;

#define N_NETS ((int)(sizeof nets / sizeof nets[0]))
#define N_ISAS ((int)(sizeof isas / sizeof isas[0]))

static const cover_factors factors = {4, {N_NETS, N_ISAS, N_OPTIMISERS, N_LIMITS}};

static dunlin_model *open_net(const net *of)
{
    const dunlin_zoo_options sizes = {
        .struct_size = sizeof(dunlin_zoo_options), .image = of->image, .classes = 10};
    const bool has_sizes = of->image != 0;
    dunlin_model *model = NULL;
    dunlin_error error = {.status = DUNLIN_OK};
    cr_assert_eq(dunlin_model_from_zoo(of->name, has_sizes ? &sizes : NULL, NULL, &model, &error),
                 DUNLIN_OK, "%s: %s", of->name, error.text);
    return model;
}

static dunlin_trainer_options options_of(const cover_row *row)
{
    const net *of = &nets[row->values[0]];
    dunlin_trainer_options options = test_options(of->batch);
    const optimiser kind = (optimiser)row->values[2];
    options.isa = isas[row->values[1]];
    options.lr = 1e-3F;
    options.momentum = kind == MOMENTUM ? 0.9F : 0.0F;
    options.optimizer = kind == ADAM ? DUNLIN_OPTIMIZER_ADAMW : DUNLIN_OPTIMIZER_SGD;
    options.clip_norm = kind == CLIPPED ? 0.5F : 0.0F;
    options.ghost_statistics = of->ghost_slice > 0;
    options.micro_batch = of->ghost_slice;
    return options;
}

static void check_row(const cover_row *row, exact_counts *counts)
{
    const net *of = &nets[row->values[0]];
    if (dunlin__kernels_select(isas[row->values[1]]) == NULL) {
        return; /* another machine's */
    }
    char name[64];
    (void)snprintf(name, sizeof name, "%s, %s, optimiser %d, limit %d", of->name,
                   isas[row->values[1]], row->values[2], row->values[3]);
    dunlin_model *model = open_net(of);
    exact_case at = {.model = model,
                     .options = options_of(row),
                     .name = name,
                     .rng = SEED + (uint64_t)row->values[0],
                     .may_slice = !of->has_batch_norm,
                     .counts = counts};
    exact_open(&at);
    exact_check_policy(&at, &exact_policies[0], row->values[3] == BETWEEN ? 1 : 0, false);
    exact_close(&at);
    dunlin_model_destroy(model);
}

Test(exact_cover, any_two_meet, .timeout = 3600)
{
    const char *asked = getenv("DUNLIN_COVER");
    const bool is_full = asked != NULL && strcmp(asked, "full") == 0;
    cover_row rows[N_ROWS];
    exact_counts counts = {.n_runs = 0};
    cr_assert_eq(cover_draw(&factors, SEED, N_ROWS, rows), 0, "%d rows are too few", N_ROWS);
    const int n = is_full ? cover_product(&factors) : N_ROWS;
    for (int i = 0; i < n; i++) {
        const cover_row row = is_full ? cover_product_row(&factors, i) : rows[i];
        check_row(&row, &counts);
    }
    cr_log_info("%d rows, %d runs here, %d of them recompute, %d cut into regions", n,
                counts.n_runs, counts.n_recompute_ops, counts.n_cut);
    cr_expect_gt(counts.n_recompute_ops, 0);
    cr_expect_gt(counts.n_cut, 0);
}

/* The draw itself: a row too few leaves pairs out, and the same seed gives the same rows. */
Test(exact_cover, the_draw)
{
    const cover_factors small = {3, {3, 3, 3}};
    cover_row rows[12];
    cover_row again[12];
    cr_expect_gt(cover_draw(&small, 1, 8, rows), 0, "nine pairs of two factors need nine rows");
    cr_expect_eq(cover_draw(&small, 1, 12, rows), 0);
    cr_expect_eq(cover_draw(&small, 1, 12, again), 0);
    cr_expect_eq(memcmp(rows, again, sizeof rows), 0);
    cr_expect_eq(cover_product(&small), 27);
    for (int i = 0; i < 27; i++) {
        const cover_row row = cover_product_row(&small, i);
        cr_expect_eq(row.values[0] + 3 * row.values[1] + 9 * row.values[2], i);
    }
}
