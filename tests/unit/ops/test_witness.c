/*
 * test_witness.c - three steps of a trainer (planner, lowering, executor, arena) against the plain
 * run of the same graph (one malloc per tensor): not a bit may differ, for any policy, budget,
 * slice and number of threads.
 */
#include "check_net.h"
#include "net_random.h"
#include "random.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 5
#define N_STEPS 3

static dunlin_model model;

static void open_model(void)
{
    dunlin__net_init(&model.net, NULL);
}

static void close_model(void)
{
    dunlin__net_free(&model.net);
}

TestSuite(witness, .init = open_model, .fini = close_model);

static dunlin_trainer_options base_options(uint64_t seed)
{
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = BATCH;
    options.lr = 0.1F;
    options.momentum = 0.9F;
    options.weight_decay = 0.01F;
    options.seed = seed;
    return options;
}

/* The weights after the steps, by the plain run. */
static void run_plain(plain_run *plain, const check_data *data, uint64_t seed, bool is_fused)
{
    dunlin_error error = {0};
    dunlin_step_build_options build = {
        .mode = DUNLIN_EMIT_TRAIN, .has_momentum = true, .is_fused = is_fused};
    dunlin_status status = plain_run_open(plain, &model.net, &build, BATCH, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    for (uint32_t p = 0; p < model.net.n_params; p++) {
        plain_run_set_param(plain, p, data->params[p]);
    }
    /* the table that the trainer takes */
    dunlin_step_run run = check_data_run(data, dunlin__kernels_select(getenv("DUNLIN_ISA")));
    run.error = &error;
    run.seed = seed;
    for (run.step = 0; run.step < N_STEPS; run.step++) {
        status = plain_run_step(plain, &run);
        cr_assert(status == DUNLIN_OK, "%s", error.text);
    }
}

static void expect_same(const dunlin_trainer *trainer, const plain_run *plain, uint64_t seed,
                        const char *what)
{
    for (uint32_t p = 0; p < model.net.n_params; p++) {
        const dunlin_net_param *param = &model.net.params[p];
        float *found = calloc((size_t)param->n_elements * 2, sizeof *found);
        float *wanted = found + param->n_elements;
        plain_run_get_param(plain, p, wanted);
        cr_assert(dunlin_trainer_get_parameter(trainer, param->name, found, param->n_elements) ==
                  DUNLIN_OK);
        cr_assert(memcmp(found, wanted, (size_t)param->n_elements * sizeof *found) == 0,
                  "seed %" PRIu64 ", %s: %s differs", seed, what, param->name);
        free(found);
    }
}

static void check_trainer(const dunlin_trainer_options *options, const check_data *data,
                          const plain_run *plain, const char *what)
{
    static const int64_t indices[BATCH] = {0, 1, 2, 3, 4};
    dunlin_error error = {0};
    dunlin_trainer *trainer = NULL;
    dunlin_status status = dunlin_trainer_create(&model, options, &trainer, &error);
    cr_assert(status == DUNLIN_OK, "seed %" PRIu64 ", %s: %s", options->seed, what, error.text);
    for (uint32_t p = 0; p < model.net.n_params; p++) {
        const dunlin_net_param *param = &model.net.params[p];
        cr_assert(dunlin_trainer_set_parameter(trainer, param->name, data->params[p],
                                               param->n_elements) == DUNLIN_OK);
    }
    for (int step = 0; step < N_STEPS; step++) {
        cr_assert(dunlin_trainer_step(trainer, &data->source, indices, BATCH, NULL) == DUNLIN_OK,
                  "seed %" PRIu64 ", %s: %s", options->seed, what,
                  dunlin_trainer_last_error(trainer)->text);
    }
    expect_same(trainer, plain, options->seed, what);
    dunlin_trainer_destroy(trainer);
}

/* Policy none never fuses; the others as the options say. */
static void check_policies(const check_data *data, const plain_run *plain, uint64_t seed,
                           bool is_fused)
{
    dunlin_trainer_options options = base_options(seed);
    options.no_fuse = !is_fused;
    check_trainer(&options, data, plain, "no limit");
    options.n_threads = 2;
    check_trainer(&options, data, plain, "two threads");
    options = base_options(seed);
    options.no_fuse = !is_fused;
    if (!is_fused) {
        options.policy = DUNLIN_POLICY_NONE;
        options.no_fuse = seed % 2 == 0;
        check_trainer(&options, data, plain, "policy none");
        options.no_fuse = true;
    }
    options.policy = DUNLIN_POLICY_POOL;
    check_trainer(&options, data, plain, "policy pool");
    if (!has_batch_norm(&model.net)) {
        options.policy = DUNLIN_POLICY_MICROBATCH;
        options.micro_batch = 2;
        check_trainer(&options, data, plain, "slices of 2");
    }
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    options = base_options(seed);
    options.no_fuse = !is_fused;
    cr_assert(dunlin_trainer_estimate(&model, &options, &report, NULL) == DUNLIN_OK);
    options.budget_bytes = report.least_budget_bytes;
    check_trainer(&options, data, plain, "the least budget");
}

Test(witness, trainer_and_plain_run_agree_bit_for_bit)
{
    for (int i = 0; i < test_cases(25); i++) {
        uint64_t seed = test_seed(3000) + (uint64_t)i;
        check_data data;
        plain_run plain;
        make_random(&model.net, seed);
        check_data_open(&data, &model.net, BATCH, seed);
        for (int is_fused = 0; is_fused < 2; is_fused++) {
            run_plain(&plain, &data, seed, is_fused != 0);
            check_policies(&data, &plain, seed, is_fused != 0);
            plain_run_close(&plain);
        }
        check_data_close(&data);
        close_model();
        open_model();
    }
}
