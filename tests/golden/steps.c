/*
 * steps.c - see steps.h.
 */
#include "steps.h"

#include "golden.h"
#include "mix.h"

#include <dunlin/pixels.h>

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <net/net.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_STEPS 10
#define MAX_RATIO 4.0 /* of PyTorch's own float32 */
#define EXAMPLES 200000
#define LABELS 300000

/* A row of the file's sketch. */
typedef struct sketch {
    double sums[MIX_N_SIGNS]; /* of the elements under random signs */
    double norm;
    double error; /* distance of PyTorch's float32 */
    double moved;
} sketch;

static golden file;

/* --- numbers that both sides compute --- */

static float number_float(uint64_t key, int64_t i)
{
    return (float)((int32_t)(mix_number(key, i) >> 40) - (1 << 23)) * 0x1p-23F;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text);
    size_t n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* As first_values() of make_nets.py: every operation is rounded to float. */
static void fill_first(int32_t index, const dunlin_parameter_info *info, float *out)
{
    uint64_t key = mix_key((uint64_t)index);
    bool is_shift = ends_with(info->name, "bias") || ends_with(info->name, "running_mean");
    bool is_matrix = info->shape.n_dims > 1;
    float base = is_matrix || is_shift ? 0.0F : 1.0F;
    float factor = is_shift ? 0.125F : 0.25F;
    if (is_matrix) {
        double fan_in = (double)info->n_elements / (double)info->shape.dims[0];
        factor = (float)sqrt(6.0 / fan_in);
    }
    for (int64_t i = 0; i < info->n_elements; i++) {
        float value = number_float(key, i) * factor;
        out[i] = base + value;
    }
}

/* --- examples --- */

typedef struct examples {
    steps_setup setup;
    int64_t width;
    int64_t n_labels; /* of an example */
} examples;

static dunlin_status read_examples(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    const examples *e = ctx;
    uint64_t key = mix_key(EXAMPLES + (uint64_t)e->setup.salt);
    uint64_t label_key = mix_key(LABELS + (uint64_t)e->setup.salt);
    float *x = out_x;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < e->width; j++) {
            int64_t at = indices[i] * e->width + j;
            x[i * e->width + j] = e->setup.vocabulary > 0
                                      ? (float)(mix_number(key, at) % (uint64_t)e->setup.vocabulary)
                                      : number_float(key, at);
        }
        for (int64_t j = 0; j < e->n_labels; j++) {
            const uint64_t label = mix_number(label_key, indices[i] * e->n_labels + j);
            out_y[i * e->n_labels + j] = (int32_t)(label % (uint64_t)e->setup.classes);
        }
    }
    return DUNLIN_OK;
}

/* --- the run --- */

steps_setup steps_open(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "steps_%s.golden", name);
    golden_close(&file);
    golden_open(&file, path);
    const golden_array *setup = golden_find(&file, "net", "setup");
    cr_assert(setup != NULL && setup->dtype == DUNLIN_I32 && setup->n == 6);
    const int32_t *v = setup->data;
    return (steps_setup){v[0], v[1], v[2], v[3], v[4], v[5]};
}

static void drop_nothing(dunlin_model *model)
{
    for (size_t i = 0; i < model->net.n_nodes; i++) {
        if (model->net.nodes[i].kind == DUNLIN_OP_DROPOUT) {
            model->net.nodes[i].u.dropout.ratio = 0.0F;
        }
    }
}

static dunlin_parameter_info parameter(const dunlin_trainer *trainer, int32_t index)
{
    dunlin_parameter_info info;
    cr_assert(dunlin_trainer_parameter(trainer, index, &info) == DUNLIN_OK);
    return info;
}

static float *allocate(int64_t n)
{
    float *values = malloc((size_t)n * sizeof *values);
    cr_assert_not_null(values);
    return values;
}

static dunlin_trainer *make_trainer(const dunlin_model *model,
                                    const dunlin_trainer_options *options)
{
    dunlin_error error = {0};
    dunlin_trainer *trainer = NULL;
    dunlin_status status = dunlin_trainer_create(model, options, &trainer, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    for (int32_t p = 0; p < dunlin_trainer_n_parameters(trainer); p++) {
        dunlin_parameter_info info = parameter(trainer, p);
        float *values = allocate(info.n_elements);
        fill_first(p, &info, values);
        cr_assert(dunlin_trainer_set_parameter(trainer, info.name, values, info.n_elements) ==
                  DUNLIN_OK);
        free(values);
    }
    return trainer;
}

static void run_steps(const char *name, dunlin_trainer *trainer, const steps_setup *setup,
                      int64_t n_labels, const char *what)
{
    const double *wanted = golden_doubles(&file, "net", "loss");
    double limit = MAX_RATIO * fmax(*golden_doubles(&file, "net", "loss.error"),
                                    (double)FLT_EPSILON * wanted[0]);
    examples data = {.setup = *setup, .n_labels = n_labels};
    data.width = setup->vocabulary > 0 ? setup->image
                                       : (int64_t)setup->channels * setup->image * setup->image;
    dunlin_source source = {.struct_size = sizeof(dunlin_source),
                            .ctx = &data,
                            .read_fn = read_examples,
                            .n_examples = (int64_t)N_STEPS * setup->batch,
                            .dtype = DUNLIN_F32,
                            .n_labels = n_labels};
    for (int64_t step = 0; step < N_STEPS; step++) {
        int64_t indices[64];
        dunlin_metrics metrics = {0};
        for (int64_t i = 0; i < setup->batch; i++) {
            indices[i] = step * setup->batch + i;
        }
        cr_assert(dunlin_trainer_step(trainer, &source, indices, setup->batch, &metrics) ==
                      DUNLIN_OK,
                  "%s", dunlin_trainer_last_error(trainer)->text);
        cr_expect(fabs(metrics.loss - wanted[step]) <= limit,
                  "%s, %s: loss %lld is %.9g, not %.9g +- %.2g", name, what, (long long)step,
                  metrics.loss, wanted[step], limit);
    }
}

/* The squared distance to float64, computed from the sketch. */
static double distance2(int32_t index, const sketch *wanted, const float *values, int64_t n)
{
    const uint64_t key = mix_key(MIX_SIGNS + (uint64_t)index);
    double sums[MIX_N_SIGNS] = {0.0};
    for (int64_t i = 0; i < n; i++) {
        mix_add(sums, key, i, (double)values[i]);
    }
    return mix_distance2(sums, wanted->sums);
}

static void compare(const char *name, const dunlin_trainer *trainer, const char *what)
{
    const sketch *rows = (const sketch *)golden_doubles(&file, "net", "sketch");
    double ours[2] = {0.0};
    const double *theirs = golden_doubles(&file, "net", "error");
    double worst = 0.0;
    char worst_name[300] = "none";
    int32_t n = dunlin_trainer_n_parameters(trainer);
    cr_assert_eq(golden_find(&file, "net", "sketch")->n, n * (int64_t)(sizeof *rows / 8));
    for (int32_t p = 0; p < n; p++) {
        dunlin_parameter_info info = parameter(trainer, p);
        float *values = allocate(info.n_elements);
        cr_assert(dunlin_trainer_get_parameter(trainer, info.name, values, info.n_elements) ==
                  DUNLIN_OK);
        double off2 = distance2(p, &rows[p], values, info.n_elements);
        ours[info.role] += off2;
        double floor = (double)FLT_EPSILON * rows[p].norm / sqrt((double)info.n_elements);
        double ratio = sqrt(off2) / fmax(rows[p].error, floor);
        if (ratio > worst) {
            worst = ratio;
            snprintf(worst_name, sizeof worst_name, "%s", info.name);
        }
        free(values);
    }
    for (int role = 0; role < 2; role++) {
        double ratio = ours[role] > 0.0 ? sqrt(ours[role]) / theirs[role] : 0.0;
        if (getenv("DUNLIN_SHOW") != NULL) {
            fprintf(stderr, "%s, %s, %s: %.3g of PyTorch's %.3g; worst %s %.3g\n", name, what,
                    role == 0 ? "parameters" : "statistics", ratio, theirs[role], worst_name,
                    worst);
        }
        cr_expect(ratio <= MAX_RATIO,
                  "%s, %s: %s are %.3g times as far from float64 as PyTorch's float32, not %g; "
                  "the worst is %s, %.3g times",
                  name, what, role == 0 ? "parameters" : "running statistics", ratio, MAX_RATIO,
                  worst_name, worst);
    }
}

void steps_check(const char *name, dunlin_model *model, const dunlin_trainer_options *options,
                 const char *what)
{
    steps_setup setup = steps_open(name);
    dunlin_trainer_options o = *options;
    o.batch = setup.batch;
    o.lr = (float)*golden_doubles(&file, "net", "lr");
    o.momentum = 0.9F;
    drop_nothing(model);
    dunlin_trainer *trainer = make_trainer(model, &o);
    run_steps(name, trainer, &setup, dunlin_model_n_labels(model), what);
    compare(name, trainer, what);
    dunlin_trainer_destroy(trainer);
    golden_close(&file);
}
