/*
 * test_storage_state.c - storage in bfloat16 and in int8: what is refused by name, what reports
 * say, what goes with checkpoints and kept plans, and values that are not finite.
 */
#include "step/step_support.h"

#include <dunlin/baselines.h>
#include <dunlin/tools.h>
#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(storage_state, .timeout = 900);

static const dunlin_storage storages[] = {DUNLIN_STORAGE_EXACT, DUNLIN_STORAGE_BF16,
                                          DUNLIN_STORAGE_INT8};
#define N_ALL 3

static dunlin_trainer_options stored_options(dunlin_storage storage, int64_t batch)
{
    dunlin_trainer_options options = test_options(batch);
    options.storage = storage;
    return options;
}

static dunlin_model *zoo_model(const char *name, int32_t image)
{
    const dunlin_zoo_options sizes = {.struct_size = sizeof(dunlin_zoo_options), .image = image};
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_from_zoo(name, &sizes, NULL, &model, NULL), DUNLIN_OK);
    return model;
}

static void expect_refused(const dunlin_model *model, const dunlin_trainer_options *options,
                           dunlin_status status, const char *text)
{
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {.status = DUNLIN_OK};
    cr_expect_eq(dunlin_trainer_create(model, options, &trainer, &error), status, "%s: %s", text,
                 error.text);
    cr_expect_null(trainer);
    cr_expect_not_null(strstr(error.text, text), "\"%s\" is not in: %s", text, error.text);
}

static void expect_refused_with(const dunlin_model *model, const dunlin_trainer_options *options,
                                const char *with)
{
    char text[128];
    (void)snprintf(text, sizeof text, "option storage: %s together with %s is not there yet",
                   dunlin_storage_name(options->storage), with);
    expect_refused(model, options, DUNLIN_UNSUPPORTED, text);
}

Test(storage_state, what_cannot_be_yet_is_refused_by_name)
{
    dunlin_model *model = test_small_model(true);
    for (int i = 1; i < N_ALL; i++) {
        dunlin_trainer_options options = stored_options(storages[i], 4);
        options.no_fuse = true;
        expect_refused_with(model, &options, "no_fuse");
        options = stored_options(storages[i], 4);
        options.policy = DUNLIN_POLICY_NONE;
        expect_refused_with(model, &options, "policy none");
        options = stored_options(storages[i], 4);
        options.baselines = dunlin_baselines_published();
        options.policy = DUNLIN_POLICY_VDNN;
        expect_refused_with(model, &options, "vdnn");
        options.policy = DUNLIN_POLICY_CAPUCHIN;
        expect_refused_with(model, &options, "capuchin");
        options = stored_options(storages[i], 4);
        options.ghost_statistics = true;
        expect_refused_with(model, &options, "ghost_statistics");
        options = stored_options(storages[i], 4);
        options.precision = "niti";
        expect_refused_with(model, &options, "precision");
    }
    dunlin_model_destroy(model);
}

Test(storage_state, a_storage_that_is_none_is_refused)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = test_options(4);
    options.storage = (dunlin_storage)3;
    expect_refused(model, &options, DUNLIN_ARGUMENT, "option storage is 3");
    options.storage = (dunlin_storage)-1;
    expect_refused(model, &options, DUNLIN_ARGUMENT, "option storage is");
    cr_expect_str_eq(dunlin_storage_name(DUNLIN_STORAGE_EXACT), "exact");
    cr_expect_str_eq(dunlin_storage_name(DUNLIN_STORAGE_BF16), "bf16");
    cr_expect_str_eq(dunlin_storage_name(DUNLIN_STORAGE_INT8), "int8");
    cr_expect_str_eq(dunlin_storage_name((dunlin_storage)3), "unknown");
    dunlin_model_destroy(model);
}

Test(storage_state, the_report_says_what_is_rounded)
{
    dunlin_model *model = zoo_model("mobilenet_v2", 32);
    dunlin_trainer_options options = stored_options(DUNLIN_STORAGE_BF16, 32);
    dunlin_trainer_report rounded = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_trainer_report exact = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &rounded, NULL), DUNLIN_OK);
    options.storage = DUNLIN_STORAGE_EXACT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &exact, NULL), DUNLIN_OK);
    cr_expect_eq(rounded.storage, DUNLIN_STORAGE_BF16);
    cr_expect_not(rounded.is_exact);
    cr_expect_eq(exact.storage, DUNLIN_STORAGE_EXACT);
    cr_expect(exact.is_exact);
    cr_expect_eq(exact.n_narrow, 0);
    /* 52 convolutions, 10 sums, the gradient of each of 52 batch norms; the last dense layer is
     * the output */
    cr_expect_eq(rounded.n_narrow, 52 + 10 + 52);
    cr_expect_lt((double)rounded.by_class.activations, 0.52 * (double)exact.by_class.activations);
    cr_expect_lt(rounded.least_budget_bytes, exact.least_budget_bytes);
    options.storage = DUNLIN_STORAGE_INT8;
    dunlin_trainer_report in_int8 = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &in_int8, NULL), DUNLIN_OK);
    cr_expect_eq(in_int8.storage, DUNLIN_STORAGE_INT8);
    cr_expect_not(in_int8.is_exact);
    cr_expect_eq(in_int8.n_narrow, rounded.n_narrow);
    cr_expect_lt(in_int8.narrow_bytes, rounded.narrow_bytes);
    cr_expect_lt((double)in_int8.by_class.activations, 0.30 * (double)exact.by_class.activations);
    cr_expect_lt(in_int8.least_budget_bytes, rounded.least_budget_bytes);
    dunlin_model_destroy(model);
}

/* Outputs of convolutions in int8, with a scale of two bytes for each pixel (they have less than 32
 * channels); the gradient that waits for batch norm's sums in bfloat16. */
Test(storage_state, bytes_in_int8_are_those_of_the_format)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = stored_options(DUNLIN_STORAGE_INT8, 4);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, NULL), DUNLIN_OK);
    const uint64_t first = 9 * 9 * 5;
    const uint64_t second = 2 * 2 * 6;
    cr_expect_eq(report.n_narrow, 3);
    cr_expect_eq(report.narrow_bytes, first + 9 * 9 * 2 + second + 2 * 2 * 2 + 2 * first);
    cr_expect_eq(report.n_int8, 2);
    cr_expect_eq(report.int8_bytes, first + 9 * 9 * 2 + second + 2 * 2 * 2);
    options.storage = DUNLIN_STORAGE_BF16;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, NULL), DUNLIN_OK);
    cr_expect_eq(report.n_narrow, 3);
    cr_expect_eq(report.narrow_bytes, 2 * (first + second + first));
    cr_expect_eq(report.n_int8, 0);
    cr_expect_eq(report.int8_bytes, 0);
    dunlin_model_destroy(model);
}

typedef struct drawn {
    char text[65536];
    size_t n;
} drawn;

static void collect(void *ctx, const char *text)
{
    drawn *all = ctx;
    const size_t n = strlen(text);
    cr_assert_lt(all->n + n, sizeof all->text);
    memcpy(all->text + all->n, text, n + 1);
    all->n += n;
}

Test(storage_state, a_drawing_says_what_is_stored_how)
{
    static const char *const words[N_ALL][3] = {
        {NULL},
        {"; 3 tensors stored in bf16</text>", ", bf16: ", NULL},
        {"; 2 tensors stored in int8, 1 in bf16</text>", ", int8: ", ", bf16: "}};
    dunlin_model *model = test_small_model(true);
    drawn *all = malloc(sizeof *all);
    cr_assert_not_null(all);
    for (int i = 0; i < N_ALL; i++) {
        const dunlin_trainer_options options = stored_options(storages[i], 4);
        dunlin_trainer *trainer = test_create(model, &options);
        all->n = 0;
        all->text[0] = '\0';
        dunlin_trainer_draw_plan(trainer, NULL, collect, all);
        for (int k = 0; k < 3 && words[i][k] != NULL; k++) {
            cr_expect_not_null(strstr(all->text, words[i][k]), "no \"%s\"", words[i][k]);
        }
        cr_expect(i == 2 || strstr(all->text, "int8") == NULL);
        cr_expect(i > 0 || strstr(all->text, "bf16") == NULL);
        dunlin_trainer_destroy(trainer);
    }
    free(all);
    dunlin_model_destroy(model);
}

Test(storage_state, the_weights_are_other_ones)
{
    dunlin_model *model = test_small_model(true);
    int64_t n = 0;
    const dunlin_trainer_options plain = test_options(6);
    float *exact = test_train(model, &plain, 2, &n);
    for (int k = 1; k < N_ALL; k++) {
        const dunlin_trainer_options options = stored_options(storages[k], 6);
        float *rounded = test_train(model, &options, 2, &n);
        double error = 0.0;
        double norm = 0.0;
        for (int64_t i = 0; i < n; i++) {
            error += pow((double)rounded[i] - (double)exact[i], 2.0);
            norm += pow((double)exact[i], 2.0);
        }
        cr_expect_gt(error, 0.0);
        cr_expect_lt(sqrt(error / norm), 0.05, "%s: %g", dunlin_storage_name(storages[k]),
                     sqrt(error / norm));
        free(rounded);
    }
    free(exact);
    dunlin_model_destroy(model);
}

/* A trainer of storage `in` loads a checkpoint of storage `of`. */
static void check_checkpoint(const dunlin_model *model, const char *path, dunlin_storage of,
                             dunlin_storage in)
{
    const dunlin_trainer_options options = stored_options(of, 5);
    dunlin_trainer *first = test_create(model, &options);
    test_fit_epochs(first, model, 1);
    cr_assert_eq(dunlin_trainer_save_checkpoint(first, path), DUNLIN_OK);
    const dunlin_trainer_options other = stored_options(in, 5);
    dunlin_trainer *second = test_create(model, &other);
    dunlin_trainer *untouched = test_create(model, &other);
    if (of == in) {
        cr_assert_eq(dunlin_trainer_load_checkpoint(second, path), DUNLIN_OK, "%s",
                     dunlin_trainer_last_error(second)->text);
        test_expect_same_weights(first, second, true);
        test_fit_epochs(first, model, 1);
        test_fit_epochs(second, model, 1);
        test_expect_same_weights(first, second, true);
    } else {
        char text[96];
        (void)snprintf(text, sizeof text, "option storage is %s there and %s in the trainer",
                       dunlin_storage_name(of), dunlin_storage_name(in));
        cr_expect_eq(dunlin_trainer_load_checkpoint(second, path), DUNLIN_MISMATCH);
        test_expect_text(second, text);
        test_expect_same_weights(untouched, second, true);
    }
    dunlin_trainer_destroy(first);
    dunlin_trainer_destroy(second);
    dunlin_trainer_destroy(untouched);
}

Test(storage_state, a_checkpoint_goes_on_under_its_own_storage_alone)
{
    dunlin_model *model = test_small_model(true);
    char *path = test_temp_path("storage.ckpt");
    for (int i = 0; i < N_ALL * N_ALL; i++) {
        check_checkpoint(model, path, storages[i / N_ALL], storages[i % N_ALL]);
    }
    (void)unlink(path);
    free(path);
    dunlin_model_destroy(model);
}

/* Another optimiser's: nothing tells in which storage it was written. */
Test(storage_state, a_checkpoint_that_differs_in_more_is_refused_too)
{
    dunlin_model *model = test_small_model(true);
    char *path = test_temp_path("storage.ckpt");
    dunlin_trainer_options options = stored_options(DUNLIN_STORAGE_INT8, 5);
    options.optimizer = DUNLIN_OPTIMIZER_ADAM;
    options.momentum = 0.0F;
    dunlin_trainer *first = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_save_checkpoint(first, path), DUNLIN_OK);
    static const char *const texts[N_ALL] = {"option storage is bf16 or int8 there and exact",
                                             "optimiser, momentum", "optimiser, momentum"};
    for (int i = 0; i < N_ALL; i++) {
        const dunlin_trainer_options other = stored_options(storages[i], 5);
        dunlin_trainer *second = test_create(model, &other);
        cr_expect_eq(dunlin_trainer_load_checkpoint(second, path), DUNLIN_MISMATCH);
        test_expect_text(second, texts[i]);
        dunlin_trainer_destroy(second);
    }
    dunlin_trainer_destroy(first);
    (void)unlink(path);
    free(path);
    dunlin_model_destroy(model);
}

static int empty_folder(const char *folder)
{
    int n = 0;
    DIR *list = opendir(folder);
    for (struct dirent *entry = list == NULL ? NULL : readdir(list); entry != NULL;
         entry = readdir(list)) {
        char path[4096];
        if (entry->d_name[0] != '.') {
            (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            n += unlink(path) == 0 ? 1 : 0;
        }
    }
    if (list != NULL) {
        (void)closedir(list);
    }
    (void)rmdir(folder);
    return n;
}

Test(storage_state, kept_plans_are_of_one_storage)
{
    dunlin_model *model = test_small_model(true);
    char *folder = test_temp_path("storage.plans");
    dunlin_trainer_options options = test_options(9);
    options.cache_dir = folder;
    bool is_kept[2 * N_ALL];
    for (int i = 0; i < 2 * N_ALL; i++) {
        options.storage = storages[i % N_ALL];
        dunlin_trainer *trainer = test_create(model, &options);
        dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
        cr_assert_eq(dunlin_trainer_get_report(trainer, &report), DUNLIN_OK);
        is_kept[i] = report.is_plan_kept;
        dunlin_trainer_destroy(trainer);
    }
    for (int i = 0; i < 2 * N_ALL; i++) {
        cr_expect_eq(is_kept[i], i >= N_ALL, "%d", i);
    }
    cr_expect_eq(empty_folder(folder), N_ALL);
    free(folder);
    dunlin_model_destroy(model);
}

/* Inputs at one value for one example, and small ones for all others. */
typedef struct spike {
    int64_t n_elements;
    float value;
} spike;

static dunlin_status read_spiked(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_y)
{
    const spike *of = ctx;
    float *x = out_x;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < of->n_elements; k++) {
            x[i * of->n_elements + k] = indices[i] == 2 && k == 1
                                            ? of->value
                                            : (float)((indices[i] * 7 + k * 3) % 11) / 11.0F;
        }
        out_y[i] = (int32_t)(indices[i] % 2);
    }
    return DUNLIN_OK;
}

/* One step under a storage from weights whose first 16 are of this size. NUMERIC leaves them. */
static dunlin_status step_over(const dunlin_model *model, dunlin_storage storage, float value,
                               float weight)
{
    const dunlin_trainer_options options = stored_options(storage, 4);
    dunlin_trainer *trainer = test_create(model, &options);
    spike of = {.value = value};
    const dunlin_shape shape = dunlin_model_input_shape(model);
    cr_assert_eq(dunlin_shape_count(&shape, &of.n_elements), DUNLIN_OK);
    const dunlin_source source = {.struct_size = sizeof source,
                                  .ctx = &of,
                                  .read_fn = read_spiked,
                                  .n_examples = 4,
                                  .dtype = DUNLIN_F32,
                                  .scale = 1.0F};
    float weights[16];
    for (int i = 0; i < 16; i++) {
        weights[i] = i % 3 == 0 ? -weight : weight;
    }
    cr_assert_eq(dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_TRAINABLE, 0, 16, weights),
                 DUNLIN_OK);
    int64_t n = 0;
    float *before = test_weights(trainer, &n);
    const int64_t indices[] = {0, 1, 2, 3};
    const dunlin_status status = dunlin_trainer_step(trainer, &source, indices, 4, NULL);
    float *after = test_weights(trainer, NULL);
    cr_expect_eq(test_same_bits(before, after, n), status != DUNLIN_OK, "%g, %g", (double)value,
                 (double)weight);
    free(before);
    free(after);
    dunlin_trainer_destroy(trainer);
    return status;
}

/* The same values are refused as in float32, before anything changes, and the same are not. */
Test(storage_state, what_is_not_finite_ends_the_step_before_anything_changes)
{
    static const float values[][2] = {
        {NAN, 0.1F},    {INFINITY, 0.1F}, {-INFINITY, 0.1F}, {3.4e38F, 0.1F}, {1.0F, 3.4e38F},
        {1e30F, 1e30F}, {1e-40F, 0.1F},   {0.5F, 1e-40F},    {0.5F, 0.1F},    {-1e-45F, 1e-38F}};
    for (int has_norm = 0; has_norm < 2; has_norm++) {
        dunlin_model *model = test_small_model(has_norm != 0);
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
            const bool is_refused = i == 3 ? has_norm != 0 : i < 6; /* 3: squares pass float32 */
            const dunlin_status expected = is_refused ? DUNLIN_NUMERIC : DUNLIN_OK;
            for (int k = 0; k < N_ALL; k++) {
                cr_expect_eq(step_over(model, storages[k], values[i][0], values[i][1]), expected,
                             "%s, norm %d: %g, %g", dunlin_storage_name(storages[k]), has_norm,
                             (double)values[i][0], (double)values[i][1]);
            }
        }
        dunlin_model_destroy(model);
    }
}
