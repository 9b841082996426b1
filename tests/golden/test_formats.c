/*
 * test_formats.c - files that the library wrote once, in tests/golden/formats, must load in all
 * later versions. proto/FORMATS.md has the tables of bytes; files are read here by these tables and
 * by the library.
 *
 * DUNLIN_WRITE_FORMATS=FOLDER writes today's files there: for a new version of a format, whose file
 * gets a name of its own beside the old one.
 */
#include <dunlin/bytes.h>
#include <dunlin/costs.h>
#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { N_FEATURES = 4, N_CLASSES = 3, N_WEIGHTS = N_FEATURES * N_CLASSES + N_CLASSES };

/* One example of each class over and over; floats that every instruction set reads alike. */
static dunlin_status read_examples(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        out_y[i] = (int32_t)(indices[i] % N_CLASSES);
        for (int64_t f = 0; f < N_FEATURES; f++) {
            ((float *)out_x)[i * N_FEATURES + f] = (float)((indices[i] + f) % N_CLASSES) - 1.0F;
        }
    }
    return DUNLIN_OK;
}

static dunlin_model *make_model(void)
{
    const dunlin_shape shape = {.n_dims = 1, .dims = {N_FEATURES}};
    dunlin_builder *builder = NULL;
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "x", &shape);
    x = dunlin_builder_dense(builder, "fc", x, N_CLASSES);
    cr_assert_eq(dunlin_builder_finish(builder, x, &model, &error), DUNLIN_OK, "%s", error.text);
    return model;
}

static dunlin_trainer *make_trainer(const dunlin_model *model, dunlin_optimizer optimizer,
                                    dunlin_storage storage)
{
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {0};
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = N_CLASSES;
    options.optimizer = optimizer;
    options.momentum = optimizer == DUNLIN_OPTIMIZER_SGD ? 0.9F : 0.0F;
    options.seed = 5;
    options.storage = storage;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_OK, "%s",
                 error.text);
    return trainer;
}

static void path_of(const char *folder, const char *name, char out[512])
{
    (void)snprintf(out, 512, "%s/%s", folder, name);
}

static dunlin_trainer *make_integer_trainer(const dunlin_model *model, const char *precision)
{
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {0};
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = N_CLASSES;
    options.seed = 5;
    options.precision = precision;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_OK, "%s",
                 error.text);
    return trainer;
}

/* Trains and saves; takes the trainer. */
static void write_checkpoint(const char *folder, const char *name, dunlin_trainer *trainer)
{
    char path[512];
    dunlin_source source = DUNLIN_SOURCE_INIT;
    source.read_fn = read_examples;
    source.n_examples = N_CLASSES;
    source.dtype = DUNLIN_F32;
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = 3;
    cr_assert_eq(dunlin_trainer_fit(trainer, &source, &fit, NULL, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_set_property(trainer, "made by", "test_formats"), DUNLIN_OK);
    path_of(folder, name, path);
    cr_assert_eq(dunlin_trainer_save_checkpoint(trainer, path), DUNLIN_OK);
    dunlin_trainer_destroy(trainer);
}

static void write_checkpoints(const char *folder)
{
    dunlin_model *model = make_model();
    write_checkpoint(folder, "checkpoint_2_sgd.ckpt",
                     make_trainer(model, DUNLIN_OPTIMIZER_SGD, DUNLIN_STORAGE_EXACT));
    write_checkpoint(folder, "checkpoint_2_adam.ckpt",
                     make_trainer(model, DUNLIN_OPTIMIZER_ADAM, DUNLIN_STORAGE_EXACT));
    write_checkpoint(folder, "checkpoint_3_niti.ckpt", make_integer_trainer(model, "niti"));
    write_checkpoint(folder, "checkpoint_4_bf16.ckpt",
                     make_trainer(model, DUNLIN_OPTIMIZER_SGD, DUNLIN_STORAGE_BF16));
    write_checkpoint(folder, "checkpoint_4_int8.ckpt",
                     make_trainer(model, DUNLIN_OPTIMIZER_SGD, DUNLIN_STORAGE_INT8));
    write_checkpoint(folder, "checkpoint_5_products.ckpt",
                     make_integer_trainer(model, "adaptive-int8"));
    dunlin_model_destroy(model);
}

static void write_costs(const char *folder)
{
    char path[512];
    dunlin_error error = {0};
    dunlin_costs *costs = NULL;
    dunlin_model *model = make_model();
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.isa = "sse2";
    cr_assert_eq(dunlin_costs_measure(model, &options, &costs, &error), DUNLIN_OK, "%s",
                 error.text);
    path_of(folder, "costs_1.txt", path);
    cr_assert_eq(dunlin_costs_save(costs, path, &error), DUNLIN_OK, "%s", error.text);
    dunlin_costs_free(costs);
    dunlin_model_destroy(model);
}

static const char *folder_of_files(void)
{
    const char *folder = getenv("DUNLIN_WRITE_FORMATS");
    if (folder == NULL) {
        return DUNLIN_FORMATS;
    }
    write_checkpoints(folder);
    write_costs(folder);
    return folder;
}

static uint64_t number_at(const unsigned char *bytes, size_t at, size_t n)
{
    uint64_t number = 0;
    for (size_t i = 0; i < n; i++) {
        number |= (uint64_t)bytes[at + i] << (8 * i);
    }
    return number;
}

static size_t read_file(const char *path, unsigned char *out, size_t room)
{
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    const size_t n = fread(out, 1, room, file);
    cr_assert_eq(fclose(file), 0);
    return n;
}

static float float_at(const unsigned char *bytes, size_t at)
{
    const uint32_t bits = (uint32_t)number_at(bytes, at, 4);
    float value = 0.0F;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A checkpoint, read by the table of FORMATS.md, and what the library makes of it. */
static void check_checkpoint(const char *name, uint64_t version, dunlin_optimizer optimizer,
                             dunlin_storage storage)
{
    enum { HEAD = 60, PROPERTY = 4 + 7 + 12 };
    char path[512];
    unsigned char bytes[1024];
    path_of(folder_of_files(), name, path);
    const size_t n = read_file(path, bytes, sizeof bytes);
    const size_t n_states = optimizer == DUNLIN_OPTIMIZER_SGD ? 2 : 3; /* with the weights */
    cr_assert_eq(n, HEAD + PROPERTY + n_states * N_WEIGHTS * 4 + 4, "%s has %zu bytes", name, n);
    cr_expect_eq(memcmp(bytes, "DUNLINCK", 8), 0);
    cr_expect_eq(number_at(bytes, 8, 4), version);
    cr_expect_eq(number_at(bytes, 12, 4), 2, "parameters");
    cr_expect_eq(number_at(bytes, 16, 4), 1, "properties");
    cr_expect_eq(number_at(bytes, 20, 8), n, "bytes of the file");
    cr_expect_eq(number_at(bytes, 44, 8), 3, "steps");
    cr_expect_eq(number_at(bytes, 52, 8), 5, "seed");
    cr_expect_eq(memcmp(bytes + HEAD, "\7\0\14\0made bytest_formats", PROPERTY), 0);
    cr_expect_eq(number_at(bytes, n - 4, 4), crc32(0, bytes, (uInt)(n - 4)));

    dunlin_model *model = make_model();
    dunlin_trainer *trainer = make_trainer(model, optimizer, storage);
    cr_assert_eq(dunlin_trainer_load_checkpoint(trainer, path), DUNLIN_OK, "%s: %s", name,
                 dunlin_trainer_last_error(trainer)->text);
    cr_expect_eq(dunlin_trainer_n_steps(trainer), 3);
    cr_expect_str_eq(dunlin_trainer_property(trainer, "made by"), "test_formats");
    float values[N_WEIGHTS];
    cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, N_WEIGHTS, values),
                 DUNLIN_OK);
    for (size_t i = 0; i < N_FEATURES * N_CLASSES; i++) {
        cr_expect_eq(values[i], float_at(bytes, HEAD + PROPERTY + 4 * i), "weight %zu", i);
    }
    for (size_t i = 0; i < N_CLASSES; i++) {
        const size_t at = HEAD + PROPERTY + 4 * (n_states * N_FEATURES * N_CLASSES + i);
        cr_expect_eq(values[N_FEATURES * N_CLASSES + i], float_at(bytes, at), "bias %zu", i);
    }
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(formats, checkpoints_load_for_ever)
{
    check_checkpoint("checkpoint_2_sgd.ckpt", 2, DUNLIN_OPTIMIZER_SGD, DUNLIN_STORAGE_EXACT);
    check_checkpoint("checkpoint_2_adam.ckpt", 2, DUNLIN_OPTIMIZER_ADAM, DUNLIN_STORAGE_EXACT);
    check_checkpoint("checkpoint_1_sgd.ckpt", 1, DUNLIN_OPTIMIZER_SGD, DUNLIN_STORAGE_EXACT);
    check_checkpoint("checkpoint_4_bf16.ckpt", 4, DUNLIN_OPTIMIZER_SGD, DUNLIN_STORAGE_BF16);
    check_checkpoint("checkpoint_4_int8.ckpt", 4, DUNLIN_OPTIMIZER_SGD, DUNLIN_STORAGE_INT8);
}

/* Version 3: a site of 24 bytes before each parameter's weights, all others at the end. */
Test(formats, checkpoints_in_integers_load_for_ever)
{
    enum { HEAD = 60, PROPERTY = 4 + 7 + 12, SITE = 24 };
    char path[512];
    unsigned char bytes[1024];
    float values[N_WEIGHTS];
    const size_t n_weights[2] = {N_FEATURES * N_CLASSES, N_CLASSES};
    path_of(folder_of_files(), "checkpoint_3_niti.ckpt", path);
    const size_t n = read_file(path, bytes, sizeof bytes);
    dunlin_model *model = make_model();
    dunlin_trainer *trainer = make_integer_trainer(model, "niti");
    cr_assert_eq(dunlin_trainer_load_checkpoint(trainer, path), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    cr_expect_eq(dunlin_trainer_n_steps(trainer), 3);
    cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, N_WEIGHTS, values),
                 DUNLIN_OK);
    cr_expect_eq(number_at(bytes, 8, 4), 3);
    cr_expect_eq(number_at(bytes, 20, 8), n, "bytes of the file");
    size_t at = HEAD + PROPERTY;
    size_t weight = 0;
    for (size_t p = 0; p < 2; p++) {
        const int32_t exponent = (int32_t)number_at(bytes, at, 4);
        cr_expect(exponent > -20 && exponent < 0, "parameter %zu has exponent %d", p, exponent);
        at += SITE;
        for (size_t i = 0; i < n_weights[p]; i++, at += 4, weight++) {
            const float q = ldexpf(float_at(bytes, at), -exponent);
            cr_expect(q >= -127.0F && q <= 127.0F && q == floorf(q), "weight %zu", weight);
            cr_expect_eq(values[weight], float_at(bytes, at), "weight %zu", weight);
        }
    }
    const size_t n_others = (size_t)number_at(bytes, at, 4);
    cr_assert_eq(n, at + 4 + n_others * SITE + 4);
    cr_expect_eq(number_at(bytes, n - 4 - SITE + 4, 4), 1, "a step has calibrated");
    cr_expect_eq(number_at(bytes, n - 4, 4), crc32(0, bytes, (uInt)(n - 4)));
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* Version 5: as version 2 up to the last parameter, then the ranges, 28 bytes each. */
Test(formats, checkpoints_of_products_load_for_ever)
{
    enum { HEAD = 60, PROPERTY = 4 + 7 + 12, RANGE = 28, N_RANGES = 2 + N_CLASSES + 1 };
    char path[512];
    unsigned char bytes[1024];
    float values[N_WEIGHTS];
    path_of(folder_of_files(), "checkpoint_5_products.ckpt", path);
    const size_t n = read_file(path, bytes, sizeof bytes);
    dunlin_model *model = make_model();
    dunlin_trainer *trainer = make_integer_trainer(model, "adaptive-int8");
    cr_assert_eq(dunlin_trainer_load_checkpoint(trainer, path), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    cr_expect_eq(dunlin_trainer_n_steps(trainer), 3);
    cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, N_WEIGHTS, values),
                 DUNLIN_OK);
    cr_expect_eq(number_at(bytes, 8, 4), 5);
    cr_expect_eq(number_at(bytes, 20, 8), n, "bytes of the file");
    size_t at = HEAD + PROPERTY;
    for (size_t i = 0; i < N_WEIGHTS; i++, at += 4) {
        cr_expect_eq(values[i], float_at(bytes, at), "weight %zu", i);
    }
    cr_expect_eq(number_at(bytes, at, 4), N_RANGES);
    at += 4;
    cr_assert_eq(n, at + (size_t)N_RANGES * RANGE + 4);
    cr_expect_gt(float_at(bytes, at), 0.0F, "the range of the input");
    for (size_t i = 2; i + 1 < N_RANGES; i++) {
        cr_expect_gt(float_at(bytes, at + i * RANGE), 0.0F, "range %zu", i);
        cr_expect_gt(float_at(bytes, at + i * RANGE + 4), 0.0F, "deviation %zu", i);
        cr_expect_eq(number_at(bytes, at + i * RANGE + 8, 4), 0, "bits %zu", i);
    }
    cr_expect_eq(float_at(bytes, at + (N_RANGES - 1) * RANGE), 1.0F, "a step has calibrated");
    cr_expect_eq(number_at(bytes, n - 4, 4), crc32(0, bytes, (uInt)(n - 4)));
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* A range that no step leaves is damage, and changes nothing. */
Test(formats, ranges_out_of_range_are_refused)
{
    enum { HEAD = 60, PROPERTY = 4 + 7 + 12 };
    static const struct {
        size_t at; /* in the first range */
        uint32_t bits;
    } cases[] = {{0, 0x7F800000}, {0, 0xBF800000}, {4, 0x7FC00000}, {8, 7}, {12, 0x80000000}};
    char path[512];
    unsigned char bytes[1024];
    path_of(folder_of_files(), "checkpoint_5_products.ckpt", path);
    const size_t n = read_file(path, bytes, sizeof bytes);
    dunlin_model *model = make_model();
    dunlin_trainer *trainer = make_integer_trainer(model, "adaptive-int8");
    const size_t first = HEAD + PROPERTY + 4 * (size_t)N_WEIGHTS + 4;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned char bad[1024];
        memcpy(bad, bytes, n);
        memcpy(bad + first + cases[i].at, &cases[i].bits, 4);
        const uint32_t crc = (uint32_t)crc32(0, bad, (uInt)(n - 4));
        memcpy(bad + n - 4, &crc, 4);
        cr_expect_eq(dunlin_trainer_read_checkpoint(trainer, bad, n), DUNLIN_DIGEST, "case %zu", i);
        cr_expect_eq(dunlin_trainer_n_steps(trainer), 0, "case %zu", i);
    }
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(formats, costs_load_for_ever)
{
    char path[512];
    char again[] = "/tmp/dunlin-formats-XXXXXX";
    unsigned char before[4096];
    unsigned char after[4096];
    dunlin_error error = {0};
    dunlin_costs *costs = NULL;
    path_of(folder_of_files(), "costs_1.txt", path);
    cr_assert_eq(dunlin_costs_load(path, NULL, &costs, &error), DUNLIN_OK, "%s", error.text);
    const int fd = mkstemp(again);
    cr_assert_geq(fd, 0);
    cr_assert_eq(dunlin_costs_save(costs, again, &error), DUNLIN_OK, "%s", error.text);
    const size_t n = read_file(path, before, sizeof before);
    cr_assert_gt(n, 100);
    cr_expect_eq(read_file(again, after, sizeof after), n);
    cr_expect_eq(memcmp(before, after, n), 0, "what was read is written again to the same bytes");
    cr_expect_eq(memcmp(before, "dunlin costs 1\ngraph ", 21), 0);
    (void)remove(again);
    dunlin_costs_free(costs);
}
