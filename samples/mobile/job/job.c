/*
 * job.c - the client of an app on a phone: the built-in trainer over the example store; it follows
 * the system's conditions and memory pressure.
 */
#include "job.h"

#include <dunlin/builtin.h>
#include <dunlin/client.h>
#include <dunlin/examples.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define EXAMPLE_BYTES 784

struct phone_job {
    dunlin_model *model;
    dunlin_trainer_pool *pool;
    dunlin_examples *examples;
    dunlin_examples_feed *feed;
    dunlin_builtin *builtin;
    dunlin_runtime *runtime;
    dunlin_client *client;
    dunlin_error error;
    uint64_t budget_bytes;
    atomic_bool is_charging;
    atomic_bool is_unmetered;
};

static bool tell_conditions(void *ctx, dunlin_conditions *out_conditions)
{
    phone_job *job = ctx;
    dunlin_examples_stats stats = DUNLIN_EXAMPLES_STATS_INIT;
    out_conditions->is_charging = atomic_load(&job->is_charging);
    out_conditions->is_unmetered = atomic_load(&job->is_unmetered);
    out_conditions->is_idle = true; /* WorkManager and BackgroundTasks see to it */
    if (dunlin_examples_get_stats(job->examples, &stats, NULL) == DUNLIN_OK) {
        out_conditions->n_examples = stats.n_examples;
    }
    return true;
}

/* A tenth of the drawings is never trained on: the evaluations before and after are of those. */
static dunlin_status open_examples(phone_job *job, const char *folder)
{
    static const dunlin_examples_rule RULES[] = {{.struct_size = sizeof RULES[0],
                                                  .task = "digits",
                                                  .max_examples = 1000,
                                                  .hold_out_percent = 10}};
    dunlin_examples_options options = DUNLIN_EXAMPLES_OPTIONS_INIT;
    options.folder = folder;
    options.max_age_ms = INT64_C(30) * 24 * 3600 * 1000;
    options.rules = RULES;
    options.n_rules = 1;
    return dunlin_examples_open(&options, &job->examples, &job->error);
}

static dunlin_status open_learner(phone_job *job, dunlin_learner *out_learner)
{
    dunlin_source chosen = DUNLIN_SOURCE_INIT;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.budget_bytes = job->budget_bytes;
    options.least_budget_bytes = 1; /* the least there is: for job_set_pressure() */
    dunlin_status status = dunlin_model_from_zoo("lenet5", NULL, NULL, &job->model, &job->error);
    if (status == DUNLIN_OK) {
        status = dunlin_trainer_pool_create(job->model, &options, 1, &job->pool, &job->error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin_examples_feed_create(job->examples, NULL, EXAMPLE_BYTES, DUNLIN_U8,
                                             &job->feed, &chosen, &job->error);
        chosen.scale = 1.0F / 255.0F;
    }
    return status != DUNLIN_OK ? status
                               : dunlin_builtin_create(job->pool, &chosen, NULL, &job->builtin,
                                                       out_learner, &job->error);
}

static dunlin_status open_client(phone_job *job, const phone_job_settings *settings)
{
    dunlin_learner learner = {0};
    dunlin_runtime_options shared = DUNLIN_RUNTIME_OPTIONS_INIT;
    dunlin_client_options options = DUNLIN_CLIENT_OPTIONS_INIT;
    shared.store_folder = settings->folder;
    shared.ca_file = settings->ca_file;
    options.server_url = settings->server_url;
    options.population = "phones";
    options.signing_keys = settings->signing_key;
    options.n_signing_keys = 1;
    options.budget_bytes = settings->budget_bytes;
    options.require_charging = true;
    options.require_unmetered = true;
    options.conditions_fn = tell_conditions;
    options.conditions_ctx = job;
    dunlin_status status = open_examples(job, settings->folder);
    if (status == DUNLIN_OK) {
        status = open_learner(job, &learner);
    }
    if (status == DUNLIN_OK) {
        status = dunlin_runtime_create(&shared, &job->runtime, &job->error);
    }
    options.examples = job->examples;
    return status != DUNLIN_OK
               ? status
               : dunlin_client_create(job->runtime, &options, &learner, &job->client, &job->error);
}

phone_job *job_open(const phone_job_settings *settings, char *out_error, size_t error_bytes)
{
    phone_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        (void)snprintf(out_error, error_bytes, "no memory for a job");
        return NULL;
    }
    job->budget_bytes = settings->budget_bytes;
    atomic_init(&job->is_charging, true);
    atomic_init(&job->is_unmetered, true);
    if (open_client(job, settings) != DUNLIN_OK) {
        (void)snprintf(out_error, error_bytes, "%s", job->error.text);
        job_close(job);
        return NULL;
    }
    return job;
}

void job_close(phone_job *job)
{
    if (job == NULL) {
        return;
    }
    dunlin_client_destroy(job->client);
    dunlin_runtime_destroy(job->runtime);
    dunlin_builtin_destroy(job->builtin);
    dunlin_examples_feed_destroy(job->feed);
    dunlin_examples_close(job->examples);
    dunlin_trainer_pool_destroy(job->pool);
    dunlin_model_destroy(job->model);
    free(job);
}

bool job_add(phone_job *job, const uint8_t pixels[784], int32_t label)
{
    const dunlin_example example = {.data = pixels, .n_bytes = EXAMPLE_BYTES, .label = label};
    return dunlin_examples_add(job->examples, &example, 1, NULL, NULL) == DUNLIN_OK;
}

phone_job_answer job_run(phone_job *job)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    if (dunlin_client_run_round(job->client, &report) != DUNLIN_OK) {
        fprintf(stderr, "job: %s\n", dunlin_client_last_error(job->client)->text);
        /* Whatever it was, the library has said when to come back; failure would be for ever. */
        return job_wait_ms(job) > 0 ? PHONE_JOB_RETRY : PHONE_JOB_BROKEN;
    }
    return report.outcome == DUNLIN_OUTCOME_PAUSED ? PHONE_JOB_RETRY : PHONE_JOB_DONE;
}

int64_t job_wait_ms(phone_job *job)
{
    return dunlin_client_wait_ms(job->client);
}

void job_expire(phone_job *job)
{
    dunlin_client_pause(job->client);
}

void job_set_conditions(phone_job *job, bool is_charging, bool is_unmetered)
{
    atomic_store(&job->is_charging, is_charging);
    atomic_store(&job->is_unmetered, is_unmetered);
}

static void set_budget(phone_job *job, uint64_t budget_bytes)
{
    dunlin_error error = {0};
    if (dunlin_trainer_pool_set_budget(job->pool, budget_bytes, &error) != DUNLIN_OK) {
        fprintf(stderr, "job: %s\n", error.text); /* all stays as it was */
    }
}

void job_set_pressure(phone_job *job, phone_job_pressure pressure)
{
    dunlin_error error = {0};
    uint64_t least = job->budget_bytes;
    if (pressure == PHONE_JOB_CALM) {
        set_budget(job, 0);
        return;
    }
    /* Nothing works in one byte: the refusal says what does. OK means that there is no trainer yet;
     * the one that is made for the next round gets the full budget. */
    dunlin_status status = dunlin_trainer_pool_set_budget(job->pool, 1, &error);
    if (status == DUNLIN_BUDGET) {
        least = error.needed_bytes;
    }
    uint64_t spare = job->budget_bytes > least ? job->budget_bytes - least : 0;
    set_budget(job, pressure == PHONE_JOB_LOW ? least + spare / 2 : least);
}

bool job_withdraw(phone_job *job)
{
    return dunlin_client_forget(job->client) == DUNLIN_OK;
}
