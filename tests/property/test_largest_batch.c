/*
 * test_largest_batch.c - the largest batch that fits, in every storage and precision: it has a plan
 * within the budget, and the next one (above 15: one at most a 16th above it) has none.
 *
 * A few cases in every run, some of which the fixed attempts of the planner alone answered too low;
 * with DUNLIN_ZOO=full all networks with all kinds of numbers at all budgets.
 */
#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct numbers {
    const char *name;
    dunlin_storage storage;
    const char *precision; /* NULL: float32 */
    dunlin_optimizer optimizer;
} numbers;

static const numbers kinds[] = {
    {"float32", DUNLIN_STORAGE_EXACT, NULL, DUNLIN_OPTIMIZER_SGD},
    {"bf16", DUNLIN_STORAGE_BF16, NULL, DUNLIN_OPTIMIZER_SGD},
    {"int8", DUNLIN_STORAGE_INT8, NULL, DUNLIN_OPTIMIZER_SGD},
    {"bf16, adam", DUNLIN_STORAGE_BF16, NULL, DUNLIN_OPTIMIZER_ADAM},
    {"int8, adam", DUNLIN_STORAGE_INT8, NULL, DUNLIN_OPTIMIZER_ADAM},
    {"adaptive-int8", DUNLIN_STORAGE_EXACT, "adaptive-int8", DUNLIN_OPTIMIZER_SGD},
    {"adaptive-fixed", DUNLIN_STORAGE_EXACT, "adaptive-fixed", DUNLIN_OPTIMIZER_SGD},
    {"octo", DUNLIN_STORAGE_EXACT, "octo", DUNLIN_OPTIMIZER_SGD},
    {"wageubn", DUNLIN_STORAGE_EXACT, "wageubn", DUNLIN_OPTIMIZER_SGD},
    {"mls", DUNLIN_STORAGE_EXACT, "mls", DUNLIN_OPTIMIZER_SGD},
    {"niti", DUNLIN_STORAGE_EXACT, "niti", DUNLIN_OPTIMIZER_SGD},
    {"niti16", DUNLIN_STORAGE_EXACT, "niti16", DUNLIN_OPTIMIZER_SGD},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

static const char *const networks[] = {"lenet5",  "mlp",     "har_mlp", "cnn_bn",
                                       "pfl_cnn", "har_fcn", "siamese", "resnet18"};
#define N_NETWORKS (sizeof networks / sizeof networks[0])

static const double factors[] = {1.0, 1.05, 1.2, 1.5, 2.0, 3.0};
#define N_FACTORS (sizeof factors / sizeof factors[0])

/* Of batches that are said to fit whatever they are. */
static const int64_t some[] = {1, 2, 3, 77, 1000, 54321, (int64_t)1 << 20, (int64_t)1 << 30};

static dunlin_model *network(const char *name)
{
    dunlin_zoo_options options = {.struct_size = sizeof options,
                                  .image = strcmp(name, "resnet18") == 0 ? 32 : 0};
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_from_zoo(name, &options, NULL, &model, NULL), DUNLIN_OK);
    return model;
}

static dunlin_trainer_options options_of(const numbers *kind)
{
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    const bool is_integer = kind->precision != NULL && strncmp(kind->precision, "niti", 4) == 0;
    options.storage = kind->storage;
    options.precision = kind->precision;
    options.optimizer = kind->optimizer;
    options.momentum = is_integer || kind->optimizer == DUNLIN_OPTIMIZER_ADAM ? 0.0F : 0.9F;
    options.max_ratio = (double)INFINITY;
    return options;
}

static dunlin_status plan(const dunlin_model *model, dunlin_trainer_options options, int64_t batch)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    options.batch = batch;
    const dunlin_status status = dunlin_trainer_estimate(model, &options, &report, NULL);
    cr_expect(status != DUNLIN_OK || report.planned_bytes <= options.budget_bytes);
    return status;
}

static void check(const char *name, const numbers *kind, double factor)
{
    dunlin_model *model = network(name);
    dunlin_trainer_options options = options_of(kind);
    dunlin_error error = {.status = DUNLIN_OK};
    uint64_t least = 0;
    dunlin_status status =
        dunlin_trainer_max_batches(model, &options, NULL, 0, NULL, &least, &error);
    if (status == DUNLIN_UNSUPPORTED) { /* a storage or precision that the network cannot have */
        dunlin_model_destroy(model);
        return;
    }
    cr_assert_eq(status, DUNLIN_OK, "%s, %s: %s", name, kind->name, error.text);
    const uint64_t budget = (uint64_t)((double)least * factor);
    int64_t batch = 0;
    cr_assert_eq(dunlin_trainer_max_batches(model, &options, &budget, 1, &batch, NULL, &error),
                 DUNLIN_OK, "%s", error.text);
    options.budget_bytes = budget;
    cr_expect_geq(batch, 1, "%s, %s: nothing fits %" PRIu64 " bytes", name, kind->name, budget);
    if (batch == INT64_MAX) {
        for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
            cr_expect_eq(plan(model, options, some[i]), DUNLIN_OK,
                         "%s, %s: any batch fits %" PRIu64 " bytes, but not %" PRId64, name,
                         kind->name, budget, some[i]);
        }
    } else {
        cr_expect_eq(plan(model, options, batch), DUNLIN_OK,
                     "%s, %s: %" PRId64 " fits %" PRIu64 " bytes, but has no plan", name,
                     kind->name, batch, budget);
        for (int64_t i = 1; i <= 1 + batch / 16 && status == DUNLIN_OK; i++) {
            status = plan(model, options, batch + i);
        }
        cr_expect(status == DUNLIN_BUDGET || status == DUNLIN_OVERFLOW,
                  "%s, %s: %" PRId64 " is the most in %" PRIu64
                  " bytes, but all up to a 16th more have plans (status %d)",
                  name, kind->name, batch, budget, (int)status);
    }
    dunlin_model_destroy(model);
}

Test(largest_batch, has_a_plan_and_the_next_has_none, .timeout = 3600)
{
    static const struct {
        const char *network;
        size_t kind;
        double factor;
    } drawn[] = {
        {"har_fcn", 1, 1.5}, {"cnn_bn", 5, 1.0}, {"har_fcn", 9, 1.0}, {"har_mlp", 2, 2.0},
        {"lenet5", 1, 3.0},  {"mlp", 10, 1.2},   {"har_mlp", 0, 1.5}, {"pfl_cnn", 2, 1.5},
        {"mlp", 4, 2.0},     {"lenet5", 9, 1.0}, {"mlp", 3, 1.5},     {"har_mlp", 11, 3.0},
    };
    const char *zoo = getenv("DUNLIN_ZOO");
    if (zoo == NULL || strcmp(zoo, "full") != 0) {
        for (size_t i = 0; i < sizeof drawn / sizeof drawn[0]; i++) {
            check(drawn[i].network, &kinds[drawn[i].kind], drawn[i].factor);
        }
        return;
    }
    for (size_t i = 0; i < N_NETWORKS * N_KINDS * N_FACTORS; i++) {
        check(networks[i / N_FACTORS / N_KINDS], &kinds[i / N_FACTORS % N_KINDS],
              factors[i % N_FACTORS]);
    }
}
