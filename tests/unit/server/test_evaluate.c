/*
 * test_evaluate.c - a named model at the server: first weights from the seed, figures, ONNX file.
 */
#include "server/device.h"

#include <dunlin/model.h>
#include <mem/support.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#define TASK(more)                                                                                 \
    "{\"population\": \"phones\", \"task\": \"digits\", \"model\": \"lenet5\", \"rounds\": 1,"     \
    " \"cohort\": 1, \"test_examples\": 40" more "}"

static dunlin_status open_task(test_server *fixture, const char *text,
                               dunlin_server_options *options, dunlin_error *error)
{
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin__server_task task;
    dunlin_log log = {0};
    const char *path = test_server_write(fixture, "task.json", text);
    static char state[256];
    (void)snprintf(state, sizeof state, "%s/state", fixture->folder);
    options->state_folder = state;
    options->host = "127.0.0.1";
    memset(&fixture->server, 0, sizeof fixture->server);
    cr_assert_eq(dunlin__server_task_read(path, &alloc, &task, error), DUNLIN_OK, "%s",
                 error->text);
    return dunlin__server_open(&fixture->server, options, &task, &log, error);
}

static void first_weights(uint64_t seed, float out_values[100])
{
    test_server fixture;
    dunlin_error error = {0};
    dunlin_server_options options = {.n_threads = 1, .seed = seed, .has_seed = true};
    test_server_folder(&fixture);
    cr_assert_eq(open_task(&fixture, TASK(""), &options, &error), DUNLIN_OK, "%s", error.text);
    dunlin__values values = dunlin__evaluator_initial(fixture.server.evaluator);
    cr_assert_eq(values.values_fn(values.ctx, 0, 100, out_values, &error), DUNLIN_OK);
    test_server_close(&fixture);
    test_server_end(&fixture);
}

Test(evaluate, first_weights_follow_from_the_seed)
{
    float first[100];
    float again[100];
    float other[100];
    first_weights(4, first);
    first_weights(4, again);
    first_weights(5, other);
    cr_assert_arr_eq(first, again, sizeof first);
    cr_assert(memcmp(first, other, sizeof first) != 0);
}

Test(evaluate, a_round_gets_its_figures_and_the_end_a_file)
{
    test_server fixture;
    test_device device;
    dunlin_error error = {0};
    static float zeros[61706];
    dunlin_server_options options = {.n_threads = 1, .test_set = "synthetic"};
    test_server_folder(&fixture);
    cr_assert_eq(open_task(&fixture, TASK(""), &options, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(fixture.server.layout.n_values, sizeof zeros / sizeof zeros[0]);
    test_join(&device, &fixture, -1);
    cr_assert_eq(device.assignment.plan.learner, DUNLIN_V1_LEARNER_KIND_BUILTIN);
    cr_assert_eq(test_contribute(&device, zeros, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.fault.status, DUNLIN_OK, "%s", fixture.server.fault.text);
    const dunlin__round_row *row = &fixture.server.closed[0];
    cr_assert(row->is_evaluated);
    cr_assert(row->accuracy >= 0 && row->accuracy <= 1);
    cr_assert(row->loss > 1 && row->loss < 4, "an untrained network guesses: %g", row->loss);
    char path[256];
    (void)snprintf(path, sizeof path, "%s/state/model.onnx", fixture.folder);
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_open(path, NULL, &model, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(dunlin_model_n_outputs(model), 10);
    dunlin_model_destroy(model);
    test_server_close(&fixture);
    test_server_end(&fixture);
}

Test(evaluate, names_what_does_not_fit)
{
    static const struct {
        const char *task;
        const char *test_set;
        const char *words;
    } cases[] = {
        {TASK(", \"classes\": 5"), "synthetic", "--test-set synthetic"},
        {TASK(""), "no_such_set", "no_such_set"},
        {"{\"population\": \"p\", \"task\": \"t\", \"model\": \"no_such_net\", \"rounds\": 1,"
         " \"cohort\": 1}",
         NULL, "no_such_net"},
        {"{\"population\": \"p\", \"task\": \"t\", \"model\": \"no_such.onnx\", \"rounds\": 1,"
         " \"cohort\": 1}",
         NULL, "no_such.onnx"},
        {TASK(", \"plan\": {\"frozen\": \"conv,fc\"}"), NULL, "does not fit model lenet5"},
        {TASK(", \"plan\": {\"trained\": \"nothing\"}"), NULL, "nothing"},
        {TASK(", \"plan\": {\"groups\": [{\"patterns\": \"gone.*\"}]}"), NULL,
         "does not fit model lenet5"},
        {TASK(", \"plan\": {\"groups\": [{\"patterns\": \"*\", \"lr_factor\": 0}]}"), NULL,
         "trains nothing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_server fixture;
        dunlin_error error = {0};
        dunlin_server_options options = {.n_threads = 1, .test_set = cases[i].test_set};
        test_server_folder(&fixture);
        cr_expect_neq(open_task(&fixture, cases[i].task, &options, &error), DUNLIN_OK);
        cr_expect_not_null(strstr(error.text, cases[i].words), "%zu: %s", i, error.text);
        test_server_end(&fixture);
    }
}

/* A remainder of one or two examples throws batch statistics off; other networks do as before. */
Test(evaluate, remainders_join_where_there_are_batch_statistics)
{
    static const struct {
        const char *model;
        const char *plan;
        dunlin_v1_remainder_t remainder;
        int n_variances;
    } cases[] = {
        {"lenet5", "", DUNLIN_V1_REMAINDER_UNSPECIFIED, 0},
        {"lenet5", "\"remainder\": \"join\"", DUNLIN_V1_REMAINDER_JOIN, 0},
        {"cnn_bn", "", DUNLIN_V1_REMAINDER_JOIN, 2},
        {"cnn_bn", "\"remainder\": \"keep\"", DUNLIN_V1_REMAINDER_KEEP, 2},
        {"cnn_bn", "\"remainder\": \"drop\"", DUNLIN_V1_REMAINDER_DROP, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_server fixture;
        dunlin_error error = {0};
        dunlin_server_options options = {.n_threads = 1};
        char text[512];
        int n_variances = 0;
        (void)snprintf(text, sizeof text,
                       "{\"population\": \"p\", \"task\": \"t\", \"model\": \"%s\","
                       " \"rounds\": 1, \"cohort\": 1, \"plan\": {%s}}",
                       cases[i].model, cases[i].plan);
        test_server_folder(&fixture);
        cr_assert_eq(open_task(&fixture, text, &options, &error), DUNLIN_OK, "%s", error.text);
        cr_expect_eq(fixture.server.task.plan.orders.remainder, cases[i].remainder, "case %zu", i);
        for (uint32_t t = 0; t < fixture.server.layout.n_tensors; t++) {
            const bool is_variance = fixture.server.layout.is_variance[t];
            const char *name = fixture.server.layout.tensors[t].name;
            cr_expect_eq(is_variance, strstr(name, "running_var") != NULL, "%s", name);
            n_variances += is_variance ? 1 : 0;
        }
        cr_expect_geq(n_variances, cases[i].n_variances);
        test_server_close(&fixture);
        test_server_end(&fixture);
    }
}

/* A network that reads tokens, in the sizes of the task; a set of the same is judged by it. */
Test(evaluate, sizes_of_tokens)
{
    test_server fixture;
    dunlin_error error = {0};
    dunlin_server_options options = {.n_threads = 1, .test_set = "made_roles"};
    const char *text = "{\"population\": \"phones\", \"task\": \"roles\", \"model\": \"bert_tiny\","
                       " \"classes\": 10, \"sequence\": 24, \"vocabulary\": 300, \"rounds\": 1,"
                       " \"cohort\": 1, \"test_examples\": 40}";
    test_server_folder(&fixture);
    cr_assert_eq(open_task(&fixture, text, &options, &error), DUNLIN_OK, "%s", error.text);
    /* Of two classes and 30,522 words it has 4,386,178. */
    cr_expect_eq(fixture.server.layout.n_values, 4386178 - (30522 - 300) * 128 + 8 * 129);
    test_server_close(&fixture);
    test_server_end(&fixture);
}
