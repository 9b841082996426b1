/*
 * test_niti_numpy.c - whole steps in integers against a model in numpy, which shares neither code
 * nor language with the trainer or with the model in plain C (check_niti.py).
 */
#include "integer_support.h"
#include "qdq_check.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_STEPS 24

/* A network for the trainer and for numpy, and how it is trained. */
typedef struct niti_case {
    const char *layers, *shape;
    int64_t n_inputs, batch;
    const char *bits;
    int32_t growth; /* DUNLIN_WEIGHT_GROWTH_NONE: none */
} niti_case;

static FILE *open_file(const char *prefix, const char *ending)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s.%s", prefix, ending);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file, "%s", path);
    return file;
}

static void put(FILE *file, const float *values, int64_t n)
{
    cr_assert_eq(fwrite(values, sizeof *values, (size_t)n, file), (size_t)n);
}

static void put_weights(FILE *file, dunlin_trainer *trainer)
{
    int64_t n = 0;
    float *weights = test_weights(trainer, &n);
    put(file, weights, n);
    free(weights);
}

/* Steps of a trainer, with all that it read and every weight after each, in four files. */
static void write_steps(const dunlin_model *model, const niti_case *one, const char *prefix)
{
    dunlin_trainer_options options = integer_options(one->batch);
    options.grad_bits = one->bits;
    options.grad_bits_steps = 4;
    options.weight_growth = one->growth;
    dunlin_trainer *trainer = test_create(model, &options);
    test_source source;
    test_source_init(&source, model, one->batch * N_STEPS, DUNLIN_F32);
    float *x = calloc((size_t)one->n_inputs, sizeof *x);
    cr_assert_not_null(x);
    FILE *files[4] = {open_file(prefix, "w"), open_file(prefix, "x"), open_file(prefix, "l"),
                      open_file(prefix, "y")};
    put_weights(files[0], trainer);
    for (int64_t step = 0; step < N_STEPS; step++) {
        int64_t indices[64];
        const int64_t n = step == 1 ? one->batch - 1 : one->batch; /* one is shorter */
        for (int64_t i = 0; i < n; i++) {
            int32_t label = 0;
            indices[i] = step * one->batch + i;
            cr_assert_eq(source.source.read_fn(source.source.ctx, &indices[i], 1, x, &label),
                         DUNLIN_OK);
            for (int64_t k = 0; k < one->n_inputs; k++) {
                x[k] = x[k] * source.source.scale;
            }
            const float number = (float)label;
            put(files[1], x, one->n_inputs);
            put(files[2], &number, 1);
        }
        cr_assert_eq(dunlin_trainer_step(trainer, &source.source, indices, n, NULL), DUNLIN_OK,
                     "%s", dunlin_trainer_last_error(trainer)->text);
        put_weights(files[3], trainer);
    }
    for (size_t i = 0; i < 4; i++) {
        cr_assert_eq(fclose(files[i]), 0);
    }
    free(x);
    dunlin_trainer_destroy(trainer);
}

/* What check_niti.py says of them; `spoil` adds a unit to the last weight first. */
static int check(const niti_case *one, const char *prefix, bool spoil)
{
    char command[2048];
    char batches[256] = "";
    for (int step = 0; step < N_STEPS; step++) {
        const size_t at = strlen(batches);
        (void)snprintf(batches + at, sizeof batches - at, "%s%d", step > 0 ? "," : "",
                       (int)(step == 1 ? one->batch - 1 : one->batch));
    }
    if (spoil) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s.y", prefix);
        FILE *file = fopen(path, "r+b");
        cr_assert_not_null(file);
        float last = 0.0F;
        cr_assert_eq(fseek(file, -(long)sizeof last, SEEK_END), 0);
        cr_assert_eq(fread(&last, sizeof last, 1, file), 1);
        last = last * 1.25F + 0.25F;
        cr_assert_eq(fseek(file, -(long)sizeof last, SEEK_END), 0);
        put(file, &last, 1);
        cr_assert_eq(fclose(file), 0);
    }
    (void)snprintf(command, sizeof command, "%s '%s' %s %s %s %s 4 %d '%s'", qdq_python(),
                   DUNLIN_CHECK_NITI, one->layers, one->shape, batches, one->bits,
                   one->growth == DUNLIN_WEIGHT_GROWTH_NONE ? 0 : (int)one->growth, prefix);
    return system(command);
}

static void check_case(dunlin_model *model, const niti_case *one)
{
    static const char *const endings[] = {"w", "x", "l", "y"};
    char *prefix = test_temp_path("niti");
    write_steps(model, one, prefix);
    cr_expect_eq(check(one, prefix, false), 0, "%s", one->layers);
    cr_expect_neq(check(one, prefix, true), 0, "another weight goes by unseen");
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s.%s", prefix, endings[i]);
        (void)unlink(path);
    }
    free(prefix);
    dunlin_model_destroy(model);
}

Test(niti_numpy, whole_steps_are_those_of_numpy)
{
    static const char small[] = "conv:5:3:1,relu,pool,conv:6:3:0,relu,dense:4";
    static const char dense[] = "dense:16,relu,dense:5";
    if (!qdq_is_checkable()) {
        cr_skip_test("there is no python3 with numpy and onnx");
    }
    check_case(test_small_model(false),
               &(niti_case){small, "2x9x9", 162, 6, "5,3,1,0", DUNLIN_WEIGHT_GROWTH_NONE});
    check_case(test_small_model(false), &(niti_case){small, "2x9x9", 162, 6, "7,5,2", 64});
    check_case(test_small_model(false), &(niti_case){small, "2x9x9", 162, 40, "6,4", 65536});
    check_case(test_dense_model(20, 5), &(niti_case){dense, "20x1x1", 20, 48, "7,0", 1000});
}
