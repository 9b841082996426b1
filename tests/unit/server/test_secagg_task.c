/*
 * test_secagg_task.c - the key `secagg` of a task: what is chosen, and each refusal by name.
 */
#include "server/device.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

static dunlin_status read_task(const char *text, dunlin__server_task *out_task, dunlin_error *error)
{
    test_server fixture;
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    test_server_folder(&fixture);
    const char *path = test_server_write(&fixture, "task.json", text);
    const dunlin_status status = dunlin__server_task_read(path, &alloc, out_task, error);
    test_server_end(&fixture);
    return status;
}

#define HEAD                                                                                       \
    "{\"population\": \"p\", \"task\": \"t\", \"model\": \"m\", \"rounds\": 20, \"cohort\": 100"

Test(secagg_task, what_it_leaves_open_is_chosen)
{
    dunlin__server_task task;
    dunlin_error error = {0};
    cr_assert_eq(read_task(HEAD ", \"secagg\": {}}", &task, &error), DUNLIN_OK, "%s", error.text);
    const dunlin__server_secagg *secagg = &task.secagg;
    cr_expect(secagg->is_on && secagg->check_consistency);
    cr_expect_eq(secagg->n_cohort, 100);
    cr_expect_eq(secagg->n_neighbours, 22, "%u", secagg->n_neighbours); /* as SECAGG.md has it */
    cr_expect_eq(secagg->threshold, 12, "%u", secagg->threshold);
    cr_expect_eq(secagg->ring_bits, 32);
    cr_expect_eq(secagg->value_limit, 21474836);
    cr_expect_eq(secagg->weight_limit, 10000);
    cr_expect_eq(secagg->least_devices, 50);
    cr_expect_float_eq(secagg->clip, 1, 0);
    cr_expect_float_eq(secagg->step_s, 60, 1e-9);
    cr_assert_eq(read_task(HEAD ", \"over_select\": 1.5, \"plan\": {\"clip_norm\": 0.25}, "
                                "\"secagg\": {\"neighbours\": 60, \"dropout\": 0.2}}",
                           &task, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect_eq(task.secagg.n_cohort, 150);
    cr_expect_float_eq(task.secagg.clip, 0.25, 0);
    cr_expect(task.secagg.threshold > 30 && task.secagg.threshold <= 60);
}

Test(secagg_task, what_is_refused)
{
    static const struct {
        const char *keys;
        const char *text;
    } rows[] = {
        {", \"secagg\": {\"neighbours\": 4, \"threshold\": 3}", "a cut circle"},
        {", \"secagg\": {\"neighbours\": 22, \"threshold\": 22}", "a round without a sum"},
        {", \"secagg\": {\"threshold\": 12}", "secagg.threshold 12 goes with secagg.neighbours"},
        {", \"secagg\": {\"ring_bits\": 20}", "secagg.ring_bits is 20, wants 16, 24 or 32"},
        {", \"secagg\": {\"ring_bits\": 8}", "secagg.ring_bits"},
        {", \"secagg\": {\"value_limit\": 21474837}", "does not fit below 2^31"},
        {", \"secagg\": {\"weight_limit\": 42949673}", "does not fit below 2^32"},
        {", \"secagg\": {\"least_devices\": 101}", "least_devices is 101"},
        {", \"secagg\": {\"clip\": 1e-35}", "clip is 1e-35"},
        {", \"secagg\": {\"step_s\": 121}", "secagg.step_s is 121, at most a fifth"},
        {", \"secagg\": {\"corrupt\": 1}", "corrupt is 1"},
        {", \"secagg\": {\"corrupt\": 0.95}", "no number of neighbours"},
        {", \"secagg\": {\"neighbors\": 22}", "neighbors"},
        {", \"over_select\": 0.02, \"secagg\": {}", "over_select"},
        {", \"evaluate_every\": 2, \"secagg\": {}", "evaluate_every and plan.evaluate"},
        {", \"plan\": {\"evaluate\": true}, \"secagg\": {}", "evaluate_every and plan.evaluate"},
        {", \"metrics_per_device\": true, \"secagg\": {}", "metrics_per_device"},
        {", \"plan\": {\"clip_norm\": 1, \"clip_quantile\": 0.5}, \"secagg\": {}",
         "plan.clip_quantile"},
        {", \"algorithm\": \"scaffold\", \"clients\": 100, \"secagg\": {}",
         "secagg does not go with algorithm scaffold"},
        {", \"strategy\": \"median\", \"secagg\": {}", "secagg does not go with strategy median"},
        {", \"strategy\": \"trimmed_mean\", \"secagg\": {}",
         "secagg does not go with strategy trimmed_mean"},
        {", \"update_form\": \"weights\", \"secagg\": {}",
         "secagg does not go with update_form weights"},
        {", \"compress\": {\"up\": \"int8\"}, \"secagg\": {}",
         "secagg does not go with compress.up"},
        {", \"compress\": {\"up\": \"topk:0.1\"}, \"secagg\": {}",
         "secagg does not go with compress.up"},
        {", \"compress\": {\"up\": \"int8+entropy\"}, \"secagg\": {}",
         "secagg does not go with compress.up"},
        {", \"plan\": {\"precision\": \"niti\"}, \"secagg\": {}",
         "secagg does not go with update_form weights"},
        {", \"clients\": 200, \"dp\": {\"clip\": 1, \"noise\": 1, \"delta\": 1e-5}, "
         "\"secagg\": {}",
         "secagg does not go with dp with noise_by server"},
    };
    char text[512];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dunlin__server_task task;
        dunlin_error error = {0};
        (void)snprintf(text, sizeof text, "%s%s}", HEAD, rows[i].keys);
        cr_expect_neq(read_task(text, &task, &error), DUNLIN_OK, "%s", text);
        cr_expect_not_null(strstr(error.text, rows[i].text), "%s: %s", text, error.text);
    }
}

/* A running statistic of the model is known when the server starts. */
Test(secagg_task, a_model_with_statistics_is_refused)
{
    test_server fixture;
    dunlin__server_task task;
    dunlin_error error = {0};
    dunlin_log log = {0};
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    char state[256];
    test_server_folder(&fixture);
    const char *path = test_server_write(
        &fixture, "task.json",
        "{\"population\": \"p\", \"task\": \"t\", \"rounds\": 2, \"cohort\": 100, "
        "\"tensors\": [{\"name\": \"w\", \"shape\": [2]}, "
        "{\"name\": \"m\", \"shape\": [2], \"rule\": \"statistic\"}], \"secagg\": {}}");
    const dunlin_status status = dunlin__server_task_read(path, &alloc, &task, &error);
    (void)snprintf(state, sizeof state, "%s/state", fixture.folder);
    dunlin_server_options options = {
        .host = "127.0.0.1", .state_folder = state, .accept_ms = 1, .reject_ms = 1, .n_threads = 1};
    cr_expect(status != DUNLIN_OK ||
              dunlin__server_open(&fixture.server, &options, &task, &log, &error) != DUNLIN_OK);
    cr_expect_not_null(strstr(error.text, "secagg does not go with statistics"), "%s", error.text);
    test_server_end(&fixture);
}
