/*
 * check_data.c - see check_net.h: the examples and parameters that a network is checked with.
 */
#include "check_net.h"
#include "random.h"

#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static dunlin_status read_examples(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    const check_data *data = ctx;
    int64_t width = dunlin__value_elements(&data->net->values[data->net->input]);
    for (int64_t i = 0; i < n; i++) {
        memcpy((float *)out_x + i * width, data->x + indices[i] * width,
               (size_t)width * sizeof(float));
        memcpy(out_y + i * data->n_labels, data->labels + indices[i] * data->n_labels,
               (size_t)data->n_labels * sizeof *out_y);
    }
    return DUNLIN_OK;
}

/* Which parameter of a batch norm it is: 0 scale ... 3 running variance; -1: of another operator.
 */
static int norm_slot(const dunlin_net *net, uint32_t param)
{
    for (size_t i = 0; i < net->n_nodes; i++) {
        for (int slot = 0; slot < 4 && net->nodes[i].kind == DUNLIN_OP_BATCH_NORM; slot++) {
            if (net->nodes[i].params[slot] == param) {
                return slot;
            }
        }
    }
    return -1;
}

/* Scales stay away from 0, which would make the next batch norm divide by almost nothing. */
static void draw_param(const dunlin_net *net, uint32_t param, float *out, uint64_t *state)
{
    int slot = norm_slot(net, param);
    int64_t n = net->params[param].n_elements;
    test_random_fill(out, n, slot == 3 ? 0.5 : -0.8, slot == 3 ? 2.0 : 0.8, state);
    for (int64_t i = 0; i < n && slot == 0; i++) {
        out[i] += out[i] < 0.0F ? -0.3F : 0.3F;
    }
}

/* Tokens: whole numbers below the rows of the smallest table. */
static void draw_tokens(const dunlin_net *net, float *x, int64_t n)
{
    int64_t n_rows = 0;
    for (size_t i = 0; i < net->n_nodes; i++) {
        if (net->nodes[i].kind == DUNLIN_OP_EMBEDDING) {
            int64_t rows = net->params[net->nodes[i].params[0]].shape.dims[0];
            n_rows = n_rows == 0 || rows < n_rows ? rows : n_rows;
        }
    }
    for (int64_t i = 0; n_rows > 0 && i < n; i++) {
        int64_t token = (int64_t)(0.5F * (x[i] + 1.0F) * (float)n_rows);
        x[i] = (float)(token < n_rows ? token : n_rows - 1);
    }
}

void check_data_open(check_data *data, const dunlin_net *net, int64_t n, uint64_t seed)
{
    uint64_t state = seed;
    *data = (check_data){.net = net, .n = n};
    data->params = calloc(net->n_params + 1, sizeof *data->params);
    for (uint32_t i = 0; i < net->n_params; i++) {
        int64_t n_elements = net->params[i].n_elements;
        data->params[i] = calloc((size_t)n_elements, sizeof(float));
        draw_param(net, i, data->params[i], &state);
    }
    int64_t n_x = n * dunlin__value_elements(&net->values[net->input]);
    data->x = calloc((size_t)n_x, sizeof(float));
    test_random_fill(data->x, n_x, -1.0, 1.0, &state);
    draw_tokens(net, data->x, n_x);
    int64_t classes = 0;
    dunlin__value_rows(&net->values[net->output], &data->n_labels, &classes);
    data->labels = calloc((size_t)(n * data->n_labels), sizeof *data->labels);
    for (int64_t i = 0; i < n * data->n_labels; i++) {
        data->labels[i] = (int32_t)test_random_below(&state, (uint64_t)classes);
    }
    data->source = (dunlin_source){.struct_size = sizeof(dunlin_source),
                                   .ctx = data,
                                   .read_fn = read_examples,
                                   .n_examples = n,
                                   .dtype = DUNLIN_F32,
                                   .n_labels = data->n_labels};
}

void check_data_close(check_data *data)
{
    for (size_t i = 0; i < data->net->n_params; i++) {
        free(data->params[i]);
    }
    free(data->params);
    free(data->x);
    free(data->labels);
}

dunlin_step_run check_data_run(const check_data *data, const dunlin_kernels *kernels)
{
    return (dunlin_step_run){
        .kernels = kernels,
        .source = &data->source,
        .n_batch = data->n,
        .weight_sums = {(double)(data->n * data->n_labels)},
        .seed = 7,
        .step = 3,
        .lr = 0.1F,
        .momentum = 0.9F,
        .weight_decay = 0.01F,
    };
}

void check_data_step(const check_data *data, plain_run *plain, const dunlin_kernels *kernels,
                     double *out_loss)
{
    dunlin_error error = {0};
    double sums[DUNLIN_N_LOSS_SUMS] = {0.0};
    for (uint32_t i = 0; i < data->net->n_params; i++) {
        plain_run_set_param(plain, i, data->params[i]);
    }
    dunlin_step_run run = check_data_run(data, kernels);
    run.out_sums = sums;
    run.error = &error;
    dunlin_status status = plain_run_step(plain, &run);
    cr_assert(status == DUNLIN_OK, "%s %s", dunlin_status_name(status), error.text);
    *out_loss = sums[0] / run.weight_sums[0];
}
