/*
 * test_dp_task.c - the key `dp` of a task: what is accepted, and each refusal by name.
 */
#include "privacy/ask.h"
#include "privacy/terms.h"
#include "rounds/private.h"
#include "server/device.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <math.h>
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
    "{\"population\": \"p\", \"task\": \"t\", \"model\": \"m\", \"rounds\": 20, \"cohort\": 10"
#define CLIENTS HEAD ", \"clients\": 200"
#define DP(keys) CLIENTS ", \"dp\": {" keys "}}"
#define GOOD "\"clip\": 0.5, \"noise\": 1.5, \"delta\": 1e-5"
#define BESIDE(keys) CLIENTS keys ", \"dp\": {" GOOD "}}"

Test(dp_task, noise_is_taken_as_it_is)
{
    dunlin__server_task task;
    dunlin_error error = {0};
    cr_assert_eq(read_task(DP(GOOD ", \"sampling\": \"poisson\""), &task, &error), DUNLIN_OK, "%s",
                 error.text);
    const dunlin__privacy_question *terms = &task.dp.question;
    cr_expect(task.dp.is_on && terms->is_discrete);
    cr_expect_eq(terms->sampling, DUNLIN_SAMPLING_POISSON);
    cr_expect_float_eq(terms->rate, 0.05, 1e-15);
    cr_expect_float_eq(terms->noise, 1.5, 0);
    cr_expect_float_eq(task.plan.clip_norm, 0.5, 0);
    cr_expect_eq(terms->population, 200);
    cr_expect_gt(task.dp.cost.epsilon, 0);
    cr_expect(task.dp.cost.is_amplified);
}

Test(dp_task, a_noise_cohort_costs_what_the_larger_run_does)
{
    dunlin__server_task task;
    dunlin__server_task large;
    dunlin_error error = {0};
    cr_assert_eq(read_task(DP(GOOD ", \"sampling\": \"poisson\", \"noise_cohort\": 1000,"
                                   " \"population\": 20000"),
                           &task, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_assert_eq(read_task("{\"population\": \"p\", \"task\": \"t\", \"model\": \"m\", "
                           "\"rounds\": 20, \"cohort\": 1000, \"clients\": 20000, \"dp\": {" GOOD
                           ", \"sampling\": \"poisson\"}}",
                           &large, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect_float_eq(task.dp.cost.epsilon, large.dp.cost.epsilon, 1e-9);
    cr_expect_float_eq(dunlin__private_multiplier(&task), 1.5 / 100, 1e-12);
    cr_expect_float_eq(dunlin__private_multiplier(&large), 1.5, 0);
}

Test(dp_task, an_epsilon_gives_the_noise)
{
    dunlin__server_task task;
    dunlin_error error = {0};
    cr_assert_eq(read_task(DP("\"clip\": 1, \"epsilon\": 3, \"delta\": 1e-5, "
                              "\"mechanism\": \"tree\", \"separation\": 10"),
                           &task, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect_float_eq(task.dp.epsilon, 3, 0);
    cr_expect_leq(task.dp.cost.epsilon, 3);
    cr_expect_gt(task.dp.cost.epsilon, 2.99);
    cr_expect_eq(task.policy.min_separation_rounds, 10);
    cr_expect(!task.dp.cost.is_amplified);
}

/* A run that is counted by losses needs less noise; one that says nothing is counted as ever. */
Test(dp_task, the_accountant_can_be_chosen)
{
    static const char *const kinds[] = {"", ", \"accountant\": \"rdp\"",
                                        ", \"accountant\": \"pld\""};
    double noise[3] = {0};
    for (size_t i = 0; i < 3; i++) {
        dunlin__server_task task;
        dunlin_error error = {0};
        char text[512];
        char terms[DUNLIN_TERMS_BYTES];
        (void)snprintf(text, sizeof text,
                       DP("\"clip\": 1, \"epsilon\": 3, \"delta\": 1e-5, "
                          "\"sampling\": \"poisson\"%s"),
                       kinds[i]);
        cr_assert_eq(read_task(text, &task, &error), DUNLIN_OK, "%s", error.text);
        noise[i] = task.dp.question.noise;
        cr_expect(task.dp.cost.epsilon <= 3 && task.dp.cost.epsilon > 2.99, "%g",
                  task.dp.cost.epsilon);
        cr_expect_eq(task.dp.cost.accountant,
                     i == 2 ? DUNLIN_ACCOUNTANT_PLD : DUNLIN_ACCOUNTANT_RDP);
        dunlin__privacy_terms(&task.dp.question, terms);
        cr_expect_eq(strstr(terms, "accountant") != NULL, i == 2, "%s", terms);
    }
    cr_expect_float_eq(noise[0], noise[1], 0);
    cr_expect_lt(noise[2], 0.96 * noise[0], "%g, %g", noise[2], noise[0]);
}

/* The text that is kept reads as the same question. */
Test(dp_task, terms_can_be_read_again)
{
    static const char *const tasks[] = {DP(GOOD ", \"sampling\": \"poisson\""),
                                        DP(GOOD ", \"sampling\": \"fixed\""),
                                        DP(GOOD ", \"separation\": 3, \"most\": 4"),
                                        DP(GOOD ", \"sampling\": \"poisson\", "
                                                "\"accountant\": \"pld\""),
                                        DP(GOOD ", \"mechanism\": \"tree\", "
                                                "\"accountant\": \"pld\""),
                                        DP(GOOD ", \"mechanism\": \"tree\", \"separation\": 4"),
                                        HEAD ", \"dp\": {" GOOD ", \"population\": 5000}}"};
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++) {
        dunlin__server_task task;
        dunlin__privacy_question again;
        dunlin__privacy_answer answer;
        dunlin_error error = {0};
        char text[DUNLIN_TERMS_BYTES];
        const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
        cr_assert_eq(read_task(tasks[i], &task, &error), DUNLIN_OK, "%s", error.text);
        dunlin__privacy_terms(&task.dp.question, text);
        cr_assert_eq(dunlin__privacy_read(text, &again, &error), DUNLIN_OK, "%s", error.text);
        cr_assert_eq(dunlin__privacy_spent(&again, task.rounds, &alloc, &answer, &error), DUNLIN_OK,
                     "%s", error.text);
        cr_expect_float_eq(answer.epsilon, task.dp.cost.epsilon, 0, "%s: %g and %g", text,
                           answer.epsilon, task.dp.cost.epsilon);
    }
}

Test(dp_task, refuses_by_name)
{
    static const struct {
        const char *text;
        const char *words; /* in the error */
    } cases[] = {
        {CLIENTS ", \"dp\": 3}", "dp must be an object"},
        {DP(""), "dp.clip is missing"},
        {DP("\"clip\": 0, \"noise\": 1, \"delta\": 1e-5"), "dp.clip is 0"},
        {DP("\"clip\": 1e7, \"noise\": 1, \"delta\": 1e-5"), "dp.clip is 1e+07"},
        {DP("\"clip\": 1, \"noise\": 0, \"delta\": 1e-5"), "dp: noise is 0"},
        {DP("\"clip\": 1, \"noise\": 0.01, \"delta\": 1e-5"), "dp: noise is 0.01"},
        {DP("\"clip\": 1, \"delta\": 1e-5"), "dp.noise or dp.epsilon must be there"},
        {DP("\"clip\": 1, \"noise\": 1, \"epsilon\": 1, \"delta\": 1e-5"), "give one"},
        {DP("\"clip\": 1, \"epsilon\": 0, \"delta\": 1e-5"), "dp.epsilon is 0"},
        {DP("\"clip\": 1, \"epsilon\": 1e-9, \"delta\": 1e-5"), "epsilon 1e-09 is not reached"},
        {DP("\"clip\": 1, \"noise\": 1"), "dp.delta is missing"},
        {DP("\"clip\": 1, \"noise\": 1, \"delta\": 0"), "delta is 0"},
        {DP("\"clip\": 1, \"noise\": 1, \"delta\": 0.005"), "below 1/200"},
        {DP(GOOD ", \"bogus\": 1"), "dp.bogus"},
        {DP(GOOD ", \"sampling\": \"some\""), "dp.sampling must be poisson, fixed or arrival"},
        {DP(GOOD ", \"mechanism\": \"laplace\""), "dp.mechanism must be gaussian or tree"},
        {DP(GOOD ", \"noise_by\": \"device\""), "local noise is not supported"},
        {DP(GOOD ", \"noise_by\": \"cohort\""), "distributed goes with secagg"},
        {DP(GOOD ", \"noise_by\": \"me\""), "dp.noise_by must be server"},
        {DP(GOOD ", \"accountant\": \"best\""), "dp.accountant must be rdp or pld"},
        {DP(GOOD ", \"accountant\": 3"), "accountant"},
        {DP(GOOD ", \"accountant\": \"pld\", \"sampling\": \"fixed\""),
         "accountant 'pld' has no bound for sampling 'fixed'"},
        {DP(GOOD ", \"mechanism\": \"tree\", \"sampling\": \"poisson\""), "sampling arrival"},
        {DP(GOOD ", \"sampling\": \"poisson\", \"separation\": 2"), "'most' and 'separation'"},
        {DP(GOOD ", \"separation\": 21"), "dp.separation 21 times cohort 10"},
        {DP(GOOD ", \"population\": 300"), "dp.population goes without clients"},
        {DP(GOOD ", \"noise_cohort\": 100"), "dp.noise_cohort 100 wants dp.sampling poisson"},
        {DP(GOOD ", \"sampling\": \"poisson\", \"noise_cohort\": 5, \"population\": 1000"),
         "dp.noise_cohort 5 wants dp.sampling poisson, cohort 10 or more"},
        {HEAD ", \"dp\": {" GOOD "}}", "dp.population or clients"},
        {HEAD ", \"dp\": {" GOOD ", \"population\": 9, \"sampling\": \"poisson\"}}",
         "want clients"},
        {BESIDE(", \"algorithm\": \"scaffold\""), "dp does not go with algorithm scaffold"},
        {BESIDE(", \"strategy\": \"median\""), "dp does not go with strategy median"},
        {BESIDE(", \"strategy\": \"trimmed_mean\""), "dp does not go with strategy trimmed_mean"},
        {BESIDE(", \"update_form\": \"weights\""), "dp does not go with update_form weights"},
        {BESIDE(", \"plan\": {\"clip_norm\": 1}"), "plan.clip_norm does not go with dp"},
        {BESIDE(", \"plan\": {\"clip_quantile\": 0.5}"), "plan.clip_quantile does not go with dp"},
        {BESIDE(", \"plan\": {\"evaluate\": true}"), "plan.evaluate do not go with dp"},
        {BESIDE(", \"plan\": {\"trained\": \"head\"}"), "plan.trained and plan.frozen"},
        {BESIDE(", \"evaluate_every\": 2"), "evaluate_every and plan.evaluate"},
        {BESIDE(", \"metrics_per_device\": true"), "metrics_per_device does not go with dp"},
        {BESIDE(", \"min_reports\": 2"), "min_reports does not go with dp"},
        {CLIENTS ", \"over_select\": 1.5, \"dp\": {" GOOD ", \"sampling\": \"fixed\"}}",
         "over_select does not go with dp.sampling"},
        {CLIENTS ", \"rollback\": 0.1, \"dp\": {" GOOD ", \"mechanism\": \"tree\"}}",
         "rollback does not go with dp.mechanism tree"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin__server_task task;
        dunlin_error error = {0};
        cr_expect_neq(read_task(cases[i].text, &task, &error), DUNLIN_OK, "%s", cases[i].text);
        cr_expect_not_null(strstr(error.text, cases[i].words), "%s: %s", cases[i].words,
                           error.text);
    }
}
