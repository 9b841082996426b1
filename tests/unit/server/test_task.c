/*
 * test_task.c - command line and task file: what is read, and what is refused in which words.
 */
#include "command.h"
#include "server/device.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

static dunlin_status read_task(const char *text, dunlin__server_task *out_task, dunlin_error *error)
{
    test_server fixture;
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    test_server_folder(&fixture);
    const char *path = test_server_write(&fixture, "task.json", text);
    dunlin_status status = dunlin__server_task_read(path, &alloc, out_task, error);
    test_server_end(&fixture);
    return status;
}

Test(task, reads_every_key)
{
    dunlin__server_task task;
    dunlin_error error = {0};
    dunlin_status status = read_task(
        "{\"population\": \"phones\", \"task\": \"digits\", \"model\": \"lenet5\", \"classes\": 10,"
        " \"image\": 28, \"rounds\": 30, \"cohort\": 10, \"over_select\": 1.25, \"clients\": 100,"
        " \"deadline_s\": 1.5, \"algorithm\": \"fedprox:0.1\", \"seed\": 7, \"weight_cap\": 50,"
        " \"chunk_bytes\": 524288, \"min_reports\": 3,"
        " \"plan\": {\"epochs\": 2, \"batch\": 16, \"lr\": 0.05, \"momentum\": 0.9,"
        " \"weight_decay\": 0.001, \"lr_decay\": 0.99, \"max_examples\": 500},"
        " \"policy\": {\"min_examples\": 5, \"requires_idle\": true}}",
        &task, &error);
    cr_assert_eq(status, DUNLIN_OK, "%s", error.text);
    cr_assert_str_eq(task.population, "phones");
    cr_assert_str_eq(task.model, "lenet5");
    cr_assert_eq(task.rounds, 30);
    cr_assert_eq(task.cohort, 10);
    cr_assert_eq(task.deadlines[0].ms, 1500);
    cr_assert_eq(task.min_clients_for_start, 100);
    cr_assert_eq(task.min_reports, 3);
    cr_assert_eq(task.weight_cap, 50);
    cr_assert_eq(task.chunk_bytes, 524288);
    cr_assert_eq(task.plan.n_epochs, 2);
    cr_assert_eq(task.plan.max_examples, 500);
    cr_assert(task.plan.proximal_mu > 0.0999 && task.plan.proximal_mu < 0.1001);
    cr_assert(task.policy.requires_idle);
    cr_assert_eq(task.policy.min_examples, 5);
    cr_assert_eq(dunlin__server_task_n_select(&task), 13);
}

#define COMPRESS(keys) START ", \"model\": \"m\", \"compress\": {" keys "}}"
#define START "{\"population\": \"p\", \"task\": \"t\", \"rounds\": 1, \"cohort\": 2"

#define STRATEGY(name, keys) START ", \"model\": \"m\", \"strategy\": \"" name "\"" keys "}"

#define PLAN(keys) START ", \"model\": \"m\", \"plan\": {" keys "}}"

Test(task, refuses_by_name)
{
    static const struct {
        const char *text;
        const char *words; /* in the error */
    } cases[] = {
        {"", "line 1"},
        {"[]", "one object"},
        {"{\"population\": ", "line 1"},
        {START "}", "model"},
        {START ", \"model\": \"m\", \"bogus\": 1}", "bogus"},
        {START ", \"model\": \"m\", \"plan\": {\"epoch\": 1}}", "plan.epoch"},
        {START ", \"model\": \"m\", \"plan\": {\"epochs\": 0}}", "plan.epochs"},
        {START ", \"model\": \"m\", \"plan\": {\"epochs\": 1.5}}", "plan.epochs"},
        {START ", \"model\": \"m\", \"plan\": {\"lr\": \"a\"}}", "plan.lr"},
        {START ", \"model\": \"m\", \"plan\": {\"momentum\": 1.0}}", "plan.momentum"},
        {START ", \"model\": \"m\", \"plan\": 3}", "plan"},
        {START ", \"model\": \"m\", \"rollback\": 0}", "rollback"},
        {START ", \"model\": \"m\", \"rollback\": 1.1}", "rollback"},
        {START ", \"model\": \"m\", \"clients\": 2, \"algorithm\": \"scaffold\","
               " \"rollback\": 0.1}",
         "algorithm scaffold does not go with rollback: the variates of devices"},
        {START ", \"model\": \"m\", \"weight_cap\": 0}", "weight_cap"},
        {START ", \"model\": \"m\", \"plan\": {\"clip_norm\": 1e-60}}", "plan.clip_norm"},
        {COMPRESS("\"up\": \"int9\""), "compress.up: \"int9\" is none of f32, f16"},
        {COMPRESS("\"up\": \"int4+int8\""), "\"int8\" is a second kind of numbers"},
        {COMPRESS("\"up\": \"int4+\""), "has an empty word"},
        {COMPRESS("\"up\": \"bit\""), "SIGN of all elements needs is_rotated"},
        {COMPRESS("\"up\": \"rotate\""), "ENCODING_F32 is that"},
        {COMPRESS("\"up\": \"topk:2+int4\""), "wants the part that is sent"},
        {COMPRESS("\"up\": \"topk:0.1+randk:0.1\""), "is a second choice of entries"},
        {COMPRESS("\"up\": \"topk:0.1+int4+rotate\""), "is_rotated"},
        {COMPRESS("\"up\": \"f16+entropy\""), "is_entropy_coded"},
        {COMPRESS("\"down\": \"int9\""), "compress.down: \"int9\" is none of f32, f16"},
        {COMPRESS("\"down\": \"topk:0.1+int8\""), "topk and randk are for updates"},
        {COMPRESS("\"down\": \"bit+rotate\""), "bit is for updates"},
        {COMPRESS("\"down\": \"\""), "compress.down must be a text"},
        {START
         ", \"model\": \"m\", \"update_form\": \"weights\", \"compress\": {\"down\": \"int8\"}}",
         "compress.down does not go with update_form weights"},
        {COMPRESS("\"sideways\": \"int8\""), "unknown key compress.sideways"},
        {COMPRESS("\"feedback\": 3"), "compress.feedback goes with topk or randk"},
        {COMPRESS("\"up\": \"int8\", \"feedback\": 3"),
         "compress.feedback goes with topk or randk"},
        {START
         ", \"model\": \"m\", \"compress\": {\"up\": \"int8\"}, \"plan\": {\"clip_norm\": 9e-10}}",
         "plan.clip_norm is 9e-10; with compress.up it must be 0, or at least 1e-09"},
        {START ", \"model\": \"m\", \"plan\": {\"clip_layers\": true}}",
         "plan.clip_layers goes with plan.clip_norm"},
        {START ", \"model\": \"m\", \"plan\": {\"clip_quantile\": 0.5}}",
         "plan.clip_quantile goes with plan.clip_norm"},
        {START ", \"model\": \"m\", \"plan\": {\"clip_norm\": 1, \"clip_quantile\": 1.5}}",
         "plan.clip_quantile must be"},
        {START ", \"model\": \"m\", \"plan\": {\"clip_norm\": 1, \"clip_rate\": 0.5}}",
         "plan.clip_rate goes with plan.clip_quantile"},
        {START ", \"model\": \"m\", \"algorithm\": \"fedprox:1e-60\"}", "MU from 1e-30"},
        {START ", \"model\": \"m\", \"plan\": {\"lr\": 1e999}}", "overflow"},
        {START ", \"model\": \"m\", \"plan\": {\"lr\": NaN}}", "line 1"},
        {START ", \"model\": \"m\", \"seed\": 99999999999999999999}", "too big"},
        {START ", \"model\": \"m\", \"seed\": -1}", "seed"},
        {START ", \"model\": \"m\", \"over_select\": 1e308}", "over_select"},
        {START ", \"model\": \"m\", \"deadline_s\": 1e308}", "deadline_s"},
        {START ", \"model\": \"m\", \"deadline_s\": \"long\"}", "or a list of"},
        {START ", \"model\": \"m\", \"deadline_s\": []}", "a list of 0; from 1 to 64 work"},
        {START ", \"model\": \"m\", \"deadline_s\": [600]}", "deadline_s[0] must be {"},
        {START ", \"model\": \"m\", \"deadline_s\": [{\"from\": 2, \"s\": 5}]}",
         "deadline_s[0].from must be a whole number from 1 to 1"},
        {START ", \"model\": \"m\", \"deadline_s\": [{\"from\": 1, \"s\": 0}]}",
         "deadline_s[0] must be"},
        {START ", \"model\": \"m\", \"deadline_s\": [{\"from\": 1, \"s\": 5}, {\"from\": 1,"
               " \"s\": 6}]}",
         "deadline_s[1].from must be a whole number from 2 to 100000"},
        {START ", \"model\": \"m\", \"deadline_s\": [{\"from\": 1, \"s\": 5, \"to\": 3}]}",
         "deadline_s[0] must be"},
        {START ", \"model\": \"m\", \"target_accuracy\": 1.5}", "target_accuracy must be"},
        {START ", \"model\": \"m\", \"target_accuracy\": 0}", "target_accuracy must be"},
        {START ", \"model\": \"m\", \"patience\": 0}", "patience must be"},
        {START ", \"model\": \"m\", \"min_delta\": 0.1}", "min_delta 0.1 goes with patience"},
        {START ", \"model\": \"m\", \"patience\": 1, \"min_delta\": -1}", "min_delta must be"},
        {START ", \"model\": \"m\", \"keep_every\": -1}", "keep_every must be"},
        {START ", \"model\": \"m\", \"keep_best\": 1}", "keep_best must be true or false"},
        {START ", \"model\": \"m\", \"metrics_per_device\": \"yes\"}",
         "metrics_per_device must be true or false"},
        {START ", \"model\": \"m\", \"plan\": {\"max_steps\": 9007199254740992}}",
         "plan.max_steps"},
        {START ", \"model\": \"m\", \"clients\": 1}", "clients"},
        {START ", \"model\": \"m\", \"min_reports\": 3}", "min_reports"},
        {START ", \"model\": \"m\", \"over_select\": 0.5}", "over_select"},
        {START ", \"model\": \"m\", \"deadline_s\": -1}", "deadline_s"},
        {START ", \"model\": \"m\", \"chunk_bytes\": 1000}", "chunk_bytes"},
        {START ", \"model\": \"m\", \"algorithm\": \"magic\"}", "magic"},
        {START ", \"model\": \"m\", \"algorithm\": \"fedprox:\"}", "fedprox"},
        {START ", \"model\": \"m\", \"algorithm\": \"fedprox:-1\"}", "fedprox"},
        {START ", \"model\": \"m\", \"plan\": {\"proximal_mu\": 1}}", "proximal_mu"},
        {START ", \"model\": \"m\", \"policy\": {\"requires_idle\": 1}}", "requires_idle"},
        {START ", \"model\": \"m\", \"tensors\": [{}]}", "tensors"},
        {START ", \"tensors\": []}", "tensors"},
        {START ", \"tensors\": [{\"name\": \"w\"}]}", "shape"},
        {START ", \"tensors\": [{\"name\": \"w\", \"shape\": [0]}]}", "shape"},
        {START ", \"tensors\": [{\"name\": \"w\", \"shape\": [2], \"rule\": \"mine\"}]}", "mine"},
        {START ", \"tensors\": [{\"name\": \"w\", \"shape\": [2]}], \"local\": \"w\"}", "local"},
        {START ", \"model\": \"m\", \"algorithm\": \"scaffold\"}", "clients"},
        {START ", \"model\": \"m\", \"clients\": 2, \"algorithm\": \"scaffold\","
               " \"plan\": {\"momentum\": 0.9}}",
         "momentum"},
        {START ", \"model\": \"m\", \"clients\": 2, \"algorithm\": \"scaffold\","
               " \"plan\": {\"clip_norm\": 1}}",
         "clip_norm"},
        {START ", \"model\": \"m\", \"clients\": 2, \"algorithm\": \"scaffold\","
               " \"update_form\": \"weights\"}",
         "delta"},
        {START ", \"model\": \"m\", \"rounds\": 2}", "duplicate"},
        {PLAN("\"groups\": []"), "plan.groups must be a list of 1 to 8"},
        {PLAN("\"groups\": [{}, {}, {}, {}, {}, {}, {}, {}, {}]"), "plan.groups must be"},
        {PLAN("\"groups\": [3]"), "plan.groups[0]."},
        {PLAN("\"groups\": [{\"lr_factor\": 2}]"), "plan.groups[0].patterns or roles"},
        {PLAN("\"groups\": [{\"patterns\": \"a\"}, {\"roles\": [\"boss\"]}]"),
         "plan.groups[1].roles"},
        {PLAN("\"groups\": [{\"patterns\": \"a\", \"lr_factor\": -1}]"),
         "plan.groups[0].lr_factor must be"},
        {PLAN("\"groups\": [{\"patterns\": \"a\", \"rate\": 1}]"), "plan.groups[0].rate"},
        {PLAN("\"trained\": 3"), "plan.trained must be a text"},
        {PLAN("\"frozen\": \"\""), "plan.frozen must be a text"},
        {PLAN("\"decay_norms\": \"no\""), "plan.decay_norms"},
        {PLAN("\"schedule\": \"slow\""), "plan.schedule must be constant"},
        {PLAN("\"gamma\": 0.5"), "plan.gamma and lr_period go with"},
        {PLAN("\"schedule\": \"step\", \"min_lr\": 0.5"), "plan.min_lr goes with"},
        {PLAN("\"warmup\": -1"), "plan.warmup"},
        {PLAN("\"random_crop\": 5000"), "plan.random_crop must be a whole number from 0 to 4096"},
        {PLAN("\"flip\": 1"), "plan.flip"},
        {PLAN("\"cutout\": 4097"), "plan.cutout"},
        {PLAN("\"mixup\": -0.5"), "plan.mixup"},
        {PLAN("\"mixup\": 0.5, \"ignore_label\": 3"),
         "plan.mixup does not go with plan.ignore_label: mixup mixes every"},
        {PLAN("\"remainder\": \"mix\""), "plan.remainder must be join, drop or keep"},
        {PLAN("\"gradient_clip_norm\": -1"), "plan.gradient_clip_norm"},
        {PLAN("\"ignore_label\": 1.5"), "plan.ignore_label"},
        {PLAN("\"optimizer\": \"magic\""), "plan.optimizer must be sgd, adam or adamw"},
        {PLAN("\"optimizer\": \"adam\", \"momentum\": 0.9"),
         "plan.momentum does not go with plan.optimizer adam or adamw"},
        {START ", \"model\": \"m\", \"clients\": 2, \"algorithm\": \"scaffold\","
               " \"plan\": {\"optimizer\": \"adam\"}}",
         "algorithm scaffold does not go with plan.optimizer adam"},
        {START ", \"model\": \"m\", \"clients\": 2, \"algorithm\": \"scaffold\","
               " \"plan\": {\"trained\": \"head\"}}",
         "algorithm scaffold does not go with plan.groups"},
        {START ", \"model\": \"m\", \"clients\": 2, \"algorithm\": \"scaffold\","
               " \"plan\": {\"warmup\": 3}}",
         "algorithm scaffold does not go with plan.schedule"},
        {START ", \"model\": \"m\", \"clients\": 2, \"algorithm\": \"scaffold\","
               " \"plan\": {\"gradient_clip_value\": 3}}",
         "algorithm scaffold does not go with plan.gradient_clip_norm"},
        {STRATEGY("magic", ""), "strategy magic: wants average, fedavgm, fedadagrad, fedadam, "
                                "fedyogi, median or trimmed_mean"},
        {START ", \"model\": \"m\", \"strategy\": 3}", "strategy must be a text"},
        {START ", \"model\": \"m\", \"server_lr\": 1}",
         "server_lr does not go with strategy average, which takes none of these keys"},
        {STRATEGY("fedavgm", ", \"tau\": 0.1"),
         "tau does not go with strategy fedavgm, which takes server_lr, server_momentum"},
        {STRATEGY("fedadagrad", ", \"beta2\": 0.1"), "beta2 does not go with strategy fedadagrad"},
        {STRATEGY("median", ", \"trim\": 0.1"), "trim does not go with strategy median"},
        {STRATEGY("fedadam", ", \"server_lr\": 0"),
         "server_lr must be a number from 1e-09 to 1000"},
        {STRATEGY("fedyogi", ", \"beta1\": 1"), "beta1 must be a number from 0 to 0.99999"},
        {STRATEGY("fedyogi", ", \"beta2\": 1"), "beta2 must be"},
        {STRATEGY("fedadam", ", \"tau\": 0"), "tau must be a number from 1e-12 to 1"},
        {STRATEGY("fedadam", ", \"tau\": \"a\""), "tau must be a number"},
        {STRATEGY("fedavgm", ", \"server_momentum\": -0.1"), "server_momentum must be"},
        {STRATEGY("trimmed_mean", ", \"trim\": 0.5"), "trim must be a number from 0 to 0.49"},
        {"{\"population\": \"a b\", \"task\": \"t\", \"rounds\": 1, \"cohort\": 1}", "population"},
        {"{\"population\": \"p\", \"task\": \"t\", \"cohort\": 1, \"model\": \"m\"}", "rounds"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin__server_task task;
        dunlin_error error = {0};
        cr_expect_neq(read_task(cases[i].text, &task, &error), DUNLIN_OK, "%s", cases[i].text);
        cr_expect_not_null(strstr(error.text, cases[i].words), "%s: \"%s\" lacks \"%s\"",
                           cases[i].text, error.text, cases[i].words);
        cr_expect_null(strchr(error.text, '\n'));
    }
}

Test(task, a_device_counts_for_ten_thousand_examples_at_most)
{
    dunlin__server_task task;
    dunlin_error error = {0};
    cr_assert_eq(read_task(START ", \"model\": \"m\"}", &task, &error), DUNLIN_OK);
    cr_assert_eq(task.weight_cap, 10000);
    cr_assert(!(task.rollback > 0));
}

/* Each strategy's defaults are its own. */
Test(task, strategies_have_their_defaults)
{
    dunlin__server_task task;
    dunlin_error error = {0};
    cr_assert_eq(read_task(STRATEGY("fedavgm", ""), &task, &error), DUNLIN_OK, "%s", error.text);
    cr_expect_eq(task.strategy.kind, DUNLIN_STRATEGY_FEDAVGM);
    cr_expect(task.strategy.lr == 1 && task.strategy.momentum == 0.9);
    cr_assert_eq(read_task(STRATEGY("fedadagrad", ""), &task, &error), DUNLIN_OK);
    cr_expect(task.strategy.lr == 0.01 && task.strategy.beta1 == 0 && task.strategy.tau == 1e-3);
    cr_assert_eq(read_task(STRATEGY("fedyogi", ", \"server_lr\": 0.5"), &task, &error), DUNLIN_OK);
    cr_expect(task.strategy.lr == 0.5 && task.strategy.beta1 == 0.9 && task.strategy.beta2 == 0.99);
    cr_assert_eq(read_task(STRATEGY("trimmed_mean", ""), &task, &error), DUNLIN_OK);
    cr_expect(task.strategy.trim == 0.1);
    cr_assert_eq(read_task(START ", \"model\": \"m\"}", &task, &error), DUNLIN_OK);
    cr_expect_eq(task.strategy.kind, DUNLIN_STRATEGY_AVERAGE);
}

Test(task, survives_every_cut)
{
    const char *text = START ", \"tensors\": [{\"name\": \"w\", \"shape\": [2, 3]}], "
                             "\"plan\": {\"lr\": 0.1}, \"algorithm\": \"fedprox:0.5\"}";
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    for (size_t n = 0; n <= strlen(text); n++) {
        char cut[512];
        dunlin__server_task task;
        dunlin_error error = {0};
        memcpy(cut, text, n);
        cut[n] = 0;
        dunlin_status status = read_task(cut, &task, &error);
        cr_assert_eq(status == DUNLIN_OK, n == strlen(text), "%zu: %s", n, error.text);
        if (status == DUNLIN_OK) {
            dunlin__server_task_free(&task, &alloc);
        }
    }
}

Test(options, are_read)
{
    const char *argv[] = {"dunlin-server",
                          "--listen",
                          "[::1]:8443",
                          "--port-file",
                          "p",
                          "--state",
                          "s",
                          "--task",
                          "t",
                          "--windows",
                          "10:20",
                          "--seed",
                          "9",
                          "--threads",
                          "3",
                          "--allow-replace",
                          "--test-set",
                          "fashion_mnist",
                          "--tokens",
                          "f"};
    server_command command;
    int n = (int)(sizeof argv / sizeof argv[0]);
    cr_assert_not(server_command_parse(n, argv, &command).is_done, "%s",
                  program_last_refusal()->text);
    cr_assert_str_eq(command.options.host, "::1");
    cr_assert_eq(command.options.port, 8443);
    cr_assert_eq(command.options.accept_ms, 10);
    cr_assert_eq(command.options.reject_ms, 20);
    cr_assert_eq(command.options.seed, 9);
    cr_assert(command.options.has_seed);
    cr_assert_eq(command.options.n_threads, 3);
    cr_assert(command.options.allows_replace);
    cr_assert(!command.options.has_claimed_places);
    cr_assert_str_eq(command.options.tokens_file, "f");
    cr_assert_str_eq(command.options.test_set, "fashion_mnist");
}

/* Two ways to prove a place, or a word about what is not there, are refused by name. */
Test(options, what_does_not_go_together_is_refused)
{
    static const struct {
        const char *words[4];
        int n;
        const char *says;
    } CASES[] = {{{"--claimed-places", "--tokens", "f"}, 3, "--claimed-places"},
                 {{"--mtls-places", "--mtls", "c"}, 3, NULL},
                 {{"--mtls-places"}, 1, "--mtls"},
                 {{"--allow-replace"}, 1, "--tokens"},
                 {{"--allow-replace", "--tokens", "f"}, 3, NULL},
                 {{"--moment", "3"}, 2, "--stepped"},
                 {{"--moment", "0", "--stepped", "5"}, 4, NULL},
                 {{"--simulated", "f"}, 2, "--simulated f: it is of simulated time, --stepped"},
                 {{"--simulated", "f", "--stepped", "5"}, 4, NULL}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const char *argv[16] = {
            "dunlin-server", "--listen", "127.0.0.1:0", "--port-file", "p", "--state", "s",
            "--task",        "t"};
        server_command command;
        for (int j = 0; j < CASES[i].n; j++) {
            argv[9 + j] = CASES[i].words[j];
        }
        const args_result result = server_command_parse(9 + CASES[i].n, argv, &command);
        const char *text = program_last_refusal()->text;
        cr_expect_eq(result.exit_status, CASES[i].says != NULL ? EXIT_MISUSE : EXIT_OK, "%zu: %s",
                     i, text);
        cr_expect(CASES[i].says == NULL || strstr(text, CASES[i].says) != NULL, "%s", text);
    }
}

Test(options, name_what_is_wrong)
{
    static const char *const cases[][3] = {{"--listen", "127.0.0.1", "--listen"},
                                           {"--listen", "a:99999", "--listen"},
                                           {"--windows", "5", "--windows"},
                                           {"--windows", "5:x", "--windows"},
                                           {"--threads", "0", "--threads"},
                                           {"--moment", "-1", "--moment"},
                                           {"--seed", "-1", "--seed"},
                                           {"--log", "loud", "--log"},
                                           {"--faults", "", "--faults"},
                                           {"--bogus", "x", "--bogus"},
                                           {"--name", "", "--name"},
                                           {"--windows", "5:86400001", "--windows"},
                                           {"--seed", "0x1g", "--seed"},
                                           {"--allow-replace=yes", "", "takes no value"},
                                           {"--state", "", "--state"},
                                           {"--seed", "1", "--listen is missing"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *argv[] = {"dunlin-server", cases[i][0], cases[i][1]};
        server_command command;
        const char *text = program_last_refusal()->text;
        cr_expect_eq(server_command_parse(3, argv, &command).exit_status, EXIT_MISUSE, "%zu", i);
        cr_expect_not_null(strstr(text, cases[i][2]), "%s", text);
        cr_expect_null(strchr(text, '\n'));
    }
}

/* What is answered without a server needs nothing else on the line. */
Test(options, a_question_stands_alone)
{
    const char *privacy[] = {"dunlin-server", "--privacy", "noise=1"};
    const char *secagg[] = {"dunlin-server", "--secagg-table", "devices=100"};
    server_command command;
    cr_assert_not(server_command_parse(3, privacy, &command).is_done, "%s",
                  program_last_refusal()->text);
    cr_assert_str_eq(command.privacy, "noise=1");
    cr_assert_null(command.secagg);
    cr_assert_not(server_command_parse(3, secagg, &command).is_done, "%s",
                  program_last_refusal()->text);
    cr_assert_str_eq(command.secagg, "devices=100");
    cr_assert_null(command.privacy);
}
