/*
 * test_privacy_ask.c - questions of privacy: what they cost, noise for a wanted epsilon, and one
 * clear line for each that has no answer.
 */
#include "privacy/ask.h"
#include "privacy/gaussian.h"
#include "privacy/tree.h"

#include <dunlin/server.h>
#include <mem/support.h>

#include <criterion/criterion.h>

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static dunlin__privacy_answer ask(const char *text)
{
    dunlin__privacy_question question;
    dunlin__privacy_answer answer;
    dunlin_error error = {0};
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    cr_assert_eq(dunlin__privacy_read(text, &question, &error), DUNLIN_OK, "%s: %s", text,
                 error.text);
    cr_assert_eq(dunlin__privacy_account(&question, &alloc, &answer, &error), DUNLIN_OK, "%s: %s",
                 text, error.text);
    return answer;
}

static void refuse(const char *text, dunlin_status status, const char *part)
{
    char *answer = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_server_privacy(text, &answer, &error), status, "%s: %s", text, error.text);
    cr_assert_null(answer);
    cr_assert_not_null(strstr(error.text, part), "%s: %s", text, error.text);
    cr_assert_null(strchr(error.text, '\n'));
}

static void expect(double found, double wanted, double relative, const char *text)
{
    cr_assert(fabs(found - wanted) <= relative * wanted, "%s: %.12g, not %.12g", text, found,
              wanted);
}

Test(privacy_ask, amplification_is_counted_for_what_is_drawn_alone)
{
    const dunlin__privacy_answer drawn =
        ask("sampling=poisson:0.01,noise=1.1,rounds=1000,delta=1e-5");
    const dunlin__privacy_answer first = ask("noise=1.1,rounds=1000,delta=1e-5");
    cr_assert(drawn.is_amplified && !first.is_amplified);
    expect(drawn.epsilon, 1.515362, 1e-3, "drawn");
    expect(first.epsilon, dunlin__gaussian_epsilon(sqrt(1000) / 1.1, 1e-5), 1e-8, "first come");
    cr_assert(drawn.least > 0 && drawn.least <= drawn.epsilon);
}

Test(privacy_ask, fewer_rounds_of_a_device_cost_less)
{
    const double all = ask("noise=4,rounds=100,delta=1e-5").epsilon;
    const double most = ask("noise=4,rounds=100,most=10,delta=1e-5").epsilon;
    const double apart = ask("noise=4,rounds=100,separation=10,delta=1e-5").epsilon;
    expect(all, dunlin__gaussian_epsilon(10.0 / 4, 1e-5), 1e-8, "all");
    expect(most, dunlin__gaussian_epsilon(sqrt(10) / 4, 1e-5), 1e-8, "most");
    expect(apart, most, 1e-12, "separation");
}

Test(privacy_ask, a_tree_costs_its_sensitivity)
{
    const dunlin__privacy_answer answer =
        ask("sampling=tree,noise=6,rounds=1000,separation=100,most=5,delta=1e-6");
    const double squared = (double)dunlin__tree_sensitivity(1000, 100, 5);
    expect(answer.sensitivity * answer.sensitivity, squared, 1e-12, "sensitivity");
    expect(answer.epsilon, dunlin__gaussian_epsilon(sqrt(squared) / 6, 1e-6), 1e-8, "epsilon");
    const dunlin__privacy_answer orders =
        ask("sampling=tree,noise=6,rounds=1000,separation=100,most=5,delta=1e-6,accountant=rdp");
    cr_assert(orders.epsilon > answer.epsilon && orders.epsilon < 1.3 * answer.epsilon);
}

Test(privacy_ask, a_fixed_cohort_is_cheaper_than_without_drawing_and_dearer_than_by_chance)
{
    const dunlin__privacy_answer fixed =
        ask("sampling=fixed:100/10000,noise=4,rounds=200,delta=1e-5");
    const double plain = ask("noise=2,rounds=200,delta=1e-5,accountant=rdp").epsilon;
    const double chance =
        ask("sampling=poisson:0.01,noise=2,rounds=200,delta=1e-5,accountant=rdp").epsilon;
    cr_assert(fixed.is_amplified && fixed.accountant == DUNLIN_ACCOUNTANT_RDP);
    cr_assert(fixed.epsilon < plain && fixed.epsilon > chance, "%g, %g, %g", chance, fixed.epsilon,
              plain);
    const dunlin__privacy_answer everybody =
        ask("sampling=fixed:100/100,noise=4,rounds=200,delta=1e-5");
    expect(everybody.epsilon, plain, 1e-9, "everybody");
    cr_assert_not(everybody.is_amplified);
}

Test(privacy_ask, discrete_noise_costs_by_whole_orders)
{
    const double plain =
        ask("sampling=poisson:0.01,noise=1.1,rounds=1000,delta=1e-5,accountant=rdp").epsilon;
    const dunlin__privacy_answer discrete =
        ask("sampling=poisson:0.01,noise=1.1,rounds=1000,delta=1e-5,kind=discrete");
    cr_assert(discrete.accountant == DUNLIN_ACCOUNTANT_RDP && discrete.epsilon >= plain &&
              discrete.epsilon < plain * 1.02);
    cr_assert(!(discrete.order > floor(discrete.order)), "%g", discrete.order);
}

/* Where it is asked for, by the losses of a little less Gaussian noise. */
Test(privacy_ask, discrete_noise_costs_by_losses_what_gaussian_noise_does)
{
    static const char *const asked[] = {
        "sampling=poisson:0.2,rounds=15,delta=1e-5,noise=1.3",
        "rounds=20,separation=7,delta=1e-5,noise=3",
        "sampling=tree,rounds=64,separation=16,delta=1e-6,noise=4",
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        char text[256];
        (void)snprintf(text, sizeof text, "%s,accountant=pld", asked[i]);
        const dunlin__privacy_answer gaussian = ask(text);
        (void)snprintf(text, sizeof text, "%s,accountant=pld,kind=discrete", asked[i]);
        const dunlin__privacy_answer discrete = ask(text);
        (void)snprintf(text, sizeof text, "%s,kind=discrete", asked[i]);
        const dunlin__privacy_answer orders = ask(text);
        cr_expect_eq(discrete.accountant, DUNLIN_ACCOUNTANT_PLD, "%s", text);
        cr_expect_eq(orders.accountant, DUNLIN_ACCOUNTANT_RDP, "%s", text);
        expect(discrete.epsilon, gaussian.epsilon, 1e-3, text);
        cr_expect(discrete.epsilon >= gaussian.least, "%s: %.12g, %.12g", text, discrete.epsilon,
                  gaussian.least);
        cr_expect(discrete.epsilon < 0.97 * orders.epsilon, "%s: %g, %g", text, discrete.epsilon,
                  orders.epsilon);
        cr_expect_float_eq(discrete.least, 0, 0, "%s: not known", text);
    }
}

/* Skellam noise by its own bound, which for fine steps is all but that of one draw of the other. */
Test(privacy_ask, skellam_noise_costs_by_its_own_bound)
{
    static const char *const rest = "rounds=10,delta=1e-5,accountant=rdp,values=61706,parts=50";
    char text[256];
    (void)snprintf(text, sizeof text, "%s,noise=4,part_scale=1000,kind=skellam", rest);
    const double fine = ask(text).epsilon;
    (void)snprintf(text, sizeof text, "%s,noise=4,part_scale=1000,kind=discrete", rest);
    const double discrete = ask(text).epsilon;
    (void)snprintf(text, sizeof text, "%s,noise=4,part_scale=2,kind=skellam", rest);
    const double coarse = ask(text).epsilon;
    cr_expect(fine >= discrete && fine < discrete * 1.01, "%g, %g", fine, discrete);
    /* A clip of 2 sqrt(50) / 4 = 3.5 whole numbers: the second part of the bound counts. */
    cr_expect(coarse > fine * 1.003, "%g, %g", coarse, fine);
    (void)snprintf(text, sizeof text, "%s,epsilon=3,part_scale=1000,kind=skellam", rest);
    const dunlin__privacy_answer least = ask(text);
    cr_expect(least.epsilon <= 3 && least.epsilon > 2.99, "%g", least.epsilon);
}

/* The noise that is found gives the epsilon, and a little less noise does not. */
Test(privacy_ask, wanted_epsilons_are_met_with_the_least_noise)
{
    static const char *const asked[] = {
        "sampling=poisson:0.01,rounds=1000,delta=1e-5",
        "rounds=10,delta=1e-6",
        "sampling=tree,rounds=512,separation=64,delta=1e-6",
        "sampling=fixed:50/5000,rounds=100,delta=1e-5",
        "sampling=poisson:0.02,rounds=300,delta=1e-5,kind=discrete",
        "rounds=40,separation=8,delta=1e-5,kind=discrete,accountant=pld"};
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        for (double wanted = 0.5; wanted < 9; wanted *= 4) {
            char text[256];
            (void)snprintf(text, sizeof text, "%s,epsilon=%g", asked[i], wanted);
            const dunlin__privacy_answer answer = ask(text);
            cr_assert(answer.epsilon <= wanted && answer.epsilon > wanted * 0.998, "%s: %.9g", text,
                      answer.epsilon);
            (void)snprintf(text, sizeof text, "%s,noise=%.17g", asked[i], answer.noise * 0.998);
            cr_assert_gt(ask(text).epsilon, wanted, "%s", text);
        }
    }
}

Test(privacy_ask, the_answer_is_json_with_what_it_rests_on)
{
    char *text = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_server_privacy("sampling=poisson:0.5,noise=2,clip=3,rounds=4,delta=1e-5",
                                       &text, &error),
                 DUNLIN_OK, "%s", error.text);
    json_t *object = json_loads(text, 0, NULL);
    cr_assert_not_null(object, "%s", text);
    expect(json_number_value(json_object_get(object, "deviation")), 6, 1e-12, text);
    cr_assert_str_eq(json_string_value(json_object_get(object, "accountant")), "pld");
    cr_assert_str_eq(json_string_value(json_object_get(object, "unit")), "device");
    cr_assert_str_eq(json_string_value(json_object_get(object, "neighbours")),
                     "one device is there or not");
    cr_assert(json_is_true(json_object_get(object, "amplified")));
    cr_assert(json_is_null(json_object_get(object, "order")));
    cr_assert(json_number_value(json_object_get(object, "epsilon_at_least")) <=
              json_number_value(json_object_get(object, "epsilon")));
    json_decref(object);
    dunlin_server_free_text(text);
}

Test(privacy_ask, what_protects_nobody_is_refused)
{
    refuse("noise=0,rounds=1,delta=1e-5", DUNLIN_ARGUMENT, "noise is 0, where it has to be from");
    refuse("noise=-1,rounds=1,delta=1e-5", DUNLIN_ARGUMENT, "noise is -1");
    refuse("noise=1e7,rounds=1,delta=1e-5", DUNLIN_ARGUMENT, "noise is 1e+07");
    refuse("noise=1,clip=0,rounds=1,delta=1e-5", DUNLIN_ARGUMENT, "clip is 0");
    refuse("noise=1,clip=1e999,rounds=1,delta=1e-5", DUNLIN_ARGUMENT, "clip is inf");
    refuse("noise=1,rounds=1", DUNLIN_ARGUMENT, "delta is 0");
    refuse("noise=1,rounds=1,delta=-0.1", DUNLIN_ARGUMENT, "delta is -0.1");
    refuse("noise=1,rounds=1,delta=1", DUNLIN_ARGUMENT, "delta is 1, where");
    refuse("noise=1,rounds=1,delta=0.001,population=1000", DUNLIN_ARGUMENT, "below 1/1000");
    refuse("noise=1,rounds=0,delta=1e-5", DUNLIN_ARGUMENT, "rounds are 0");
    refuse("noise=1,rounds=1000001,delta=1e-5", DUNLIN_ARGUMENT, "1 to 1000000");
    refuse("sampling=poisson:0,noise=1,rounds=1,delta=1e-5", DUNLIN_ARGUMENT, "round is 0, where");
    refuse("sampling=poisson:1.01,noise=1,rounds=1,delta=1e-5", DUNLIN_ARGUMENT, "is 1.01");
    refuse("sampling=fixed:6/5,noise=1,rounds=1,delta=1e-5", DUNLIN_ARGUMENT, "cohort of 6 of 5");
    refuse("sampling=fixed:0/5,noise=1,rounds=1,delta=1e-5", DUNLIN_ARGUMENT, "cohort of 0 of 5");
    refuse("epsilon=-2,rounds=1,delta=1e-5", DUNLIN_ARGUMENT, "epsilon is -2");
    refuse("epsilon=1,noise=1,rounds=1,delta=1e-5", DUNLIN_ARGUMENT, "one follows from the other");
}

Test(privacy_ask, what_has_no_proof_here_is_refused_by_name)
{
    refuse("sampling=fixed:1/9,noise=1,rounds=1,delta=1e-5,accountant=pld", DUNLIN_UNSUPPORTED,
           "sampling 'fixed'");
    refuse("noise=1,rounds=1,delta=1e-5,accountant=pld,kind=discrete,parts=5,part_scale=9,values=9",
           DUNLIN_UNSUPPORTED, "accountant 'pld' has no bound for noise of 'parts'");
    refuse("sampling=poisson:0.1,noise=1,rounds=9,most=2,delta=1e-5", DUNLIN_UNSUPPORTED, "'most'");
    refuse("noise=1,rounds=1,delta=1e-5,kind=skellam", DUNLIN_UNSUPPORTED,
           "kind 'skellam' goes with 'parts'");
    refuse("noise=1,rounds=1,delta=1e-5,kind=skellam,parts=5,part_scale=1025,values=9",
           DUNLIN_ARGUMENT, "up to 65536, 1024 and 2^36");
    refuse("noise=1,rounds=1,delta=1e-5,kind=skellam,accountant=pld,parts=5,part_scale=9,values=9",
           DUNLIN_UNSUPPORTED, "accountant 'pld' has no bound");
    refuse("sampling=poisson:0.1,noise=1,rounds=9,separation=2,delta=1e-5", DUNLIN_UNSUPPORTED,
           "'separation'");
}

Test(privacy_ask, an_epsilon_that_no_noise_reaches_is_said)
{
    refuse("epsilon=1e-9,rounds=1000000,delta=1e-25", DUNLIN_LIMIT,
           "epsilon 1e-09 is not reached at delta 1e-25: noise 1e+06 still gives");
    refuse("epsilon=0.001,rounds=10,delta=1e-5,accountant=rdp", DUNLIN_LIMIT, "is not reached");
}

Test(privacy_ask, what_cannot_be_read_is_named)
{
    static const char *const wrong[] = {"nois=1",
                                        "noise",
                                        "noise=",
                                        "noise=1x",
                                        "noise=nan",
                                        "noise= 1",
                                        "rounds=1.5",
                                        "rounds=-1",
                                        "rounds=99999999999999999999",
                                        "sampling=poisson",
                                        "sampling=poisson:x",
                                        "sampling=fixed:5",
                                        "sampling=fixed:5/",
                                        "sampling=tree:3",
                                        "sampling=other",
                                        "accountant=best",
                                        "kind=laplace",
                                        "=",
                                        ("noise=11111111111111111111111111111111111111111111111111"
                                         "111111111111111111111111111")};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        refuse(wrong[i], DUNLIN_ARGUMENT, "' is no part of a question of privacy");
    }
    refuse("noise=1,,rounds=1", DUNLIN_ARGUMENT, "'' is no part");
}
