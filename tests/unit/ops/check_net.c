/*
 * check_net.c - see check_net.h.
 */
#include "check_net.h"

#include "ops/common/op.h"
#include "random.h"

#include <criterion/criterion.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP 1e-6           /* of the differences: truncation 1e-12, rounding 1e-9 */
#define GRADIENT_ERROR 5e-5 /* of the largest element: float rounding through a few layers */
#define LEAST_ERROR 2e-6    /* what cancels to zero leaves so much */
#define MAX_MAGNIFICATION 15.0
#define VALUE_ERROR 2e-5

/* Where element i (of n samples, in the shape's order) lies in the library's tensor. */
static int64_t inner_element(const dunlin_net_value *value, int64_t i)
{
    if (value->layout != DUNLIN_LAYOUT_IMAGE) {
        return i;
    }
    int64_t c = value->shape.dims[0];
    int64_t pixels = dunlin__value_elements(value) / value->shape.dims[0];
    int64_t sample = i / (c * pixels);
    int64_t channel = i / pixels % c;
    return (sample * pixels + i % pixels) * c + channel;
}

/* The measured state of one check. */
typedef struct checked {
    const dunlin_net *net;
    const check_options *options;
    const check_data *data;
    plain_run plain;
    net_double *reference; /* the same for all instruction sets */
    uint64_t state;
    double scale;
    int64_t n_probed;
    int64_t n_kinks;
    const dunlin_kernels *kernels;
    const char *isa;
} checked;

static const float *find_value(const checked *c, uint32_t value, const char *suffix)
{
    char name[300];
    snprintf(name, sizeof name, "%s%s", c->net->values[value].name, suffix);
    uint32_t tensor = plain_run_find(&c->plain, name);
    bool has_own = tensor != DUNLIN_STEP_NONE && !c->plain.graph->tensors[tensor].is_part;
    /* A gradient that is handed on in parts is added to where it lies. */
    for (size_t i = 0; i < c->plain.graph->n_tensors && suffix[0] != '\0'; i++) {
        const dunlin_step_tensor *part = &c->plain.graph->tensors[i];
        has_own = has_own && !(part->is_part && part->parent == tensor);
    }
    return has_own ? c->plain.tensors[tensor] : NULL;
}

/* A dropout's factors: what its forward op makes of ones. */
static void fill_mask(checked *c, uint32_t node_index)
{
    const dunlin_net_node *node = &c->net->nodes[node_index];
    const dunlin_net_value *value = &c->net->values[node->output];
    int64_t n = c->data->n * dunlin__value_elements(value);
    const dunlin_step_op *op = plain_run_find_op(&c->plain, node->name);
    if (op == NULL) {
        return; /* a ratio of 0 */
    }
    float *ones = calloc((size_t)n * 2, sizeof(float));
    float *factors = ones + n;
    for (int64_t i = 0; i < n; i++) {
        ones[i] = 1.0F;
    }
    dunlin_step_run run = check_data_run(c->data, c->kernels);
    dunlin_kernel_call call = {.operands = (void *[]){ones, factors},
                               .parts = DUNLIN_MEM_MAP,
                               .n_samples = c->data->n,
                               .is_first = true,
                               .params = op->params,
                               .run = &run};
    cr_assert(op->kernel->run_fn(&call) == DUNLIN_OK);
    double *mask = c->reference->masks[node_index];
    const bool is_known = mask != NULL; /* by another instruction set */
    if (!is_known) {
        mask = calloc((size_t)n, sizeof(double));
        c->reference->masks[node_index] = mask;
    }
    for (int64_t i = 0; i < n; i++) {
        const double factor = (double)factors[inner_element(value, i)];
        cr_assert(!is_known || mask[i] == factor, "%s draws another %s", c->isa,
                  c->net->nodes[node_index].name);
        mask[i] = factor;
    }
    free(ones);
}

static void fill_reference(checked *c)
{
    for (uint32_t i = 0; i < c->net->n_params; i++) {
        for (int64_t k = 0; k < c->net->params[i].n_elements; k++) {
            c->reference->params[i][k] = (double)c->data->params[i][k];
        }
    }
    int64_t n_x = c->data->n * dunlin__value_elements(&c->net->values[c->net->input]);
    for (int64_t i = 0; i < n_x; i++) {
        c->reference->values[c->net->input][i] = (double)c->data->x[i];
    }
    for (uint32_t i = 0; i < c->net->n_nodes; i++) {
        if (c->net->nodes[i].kind == DUNLIN_OP_DROPOUT) {
            fill_mask(c, i);
        }
    }
}

static double highest(const double *values, int64_t n)
{
    double result = 0.0;
    for (int64_t i = 0; i < n; i++) {
        result = fmax(result, fabs(values[i]));
    }
    return result;
}

static void check_values(const checked *c)
{
    for (uint32_t v = 0; v < c->net->n_values; v++) {
        const dunlin_net_value *value = &c->net->values[v];
        const float *inner = find_value(c, v, "");
        int64_t n = c->data->n * dunlin__value_elements(value);
        double scale = highest(c->reference->values[v], n);
        for (int64_t i = 0; inner != NULL && i < n; i++) {
            double found = (double)inner[inner_element(value, i)];
            double wanted = c->reference->values[v][i];
            cr_assert(fabs(found - wanted) <= VALUE_ERROR * scale + 1e-6,
                      "seed %" PRIu64 ", %s: %s[%" PRId64 "] is %g, not %g", c->options->seed,
                      c->isa, value->name, i, found, wanted);
        }
    }
}

/* The k-th element to try of n. */
static int64_t probe(checked *c, int64_t k, int64_t n)
{
    bool is_all = c->options->n_probes == 0 || n <= c->options->n_probes;
    return is_all ? k : (int64_t)test_random_below(&c->state, (uint64_t)n);
}

static int64_t count_probes(const checked *c, int64_t n)
{
    return c->options->n_probes == 0 || n <= c->options->n_probes ? n : c->options->n_probes;
}

/* Compares unless the loss has a kink here. */
static void check_slope(checked *c, bool is_smooth, const char *name, int64_t i, double found,
                        double wanted, double scale)
{
    c->n_probed++;
    c->n_kinks += !is_smooth;
    cr_assert(!is_smooth || fabs(found - wanted) <= GRADIENT_ERROR * scale + LEAST_ERROR,
              "seed %" PRIu64 ", %s: gradient of %s[%" PRId64 "] is %g, not %g", c->options->seed,
              c->isa, name, i, found, wanted);
}

static float highest_float(const float *values, int64_t n)
{
    float result = 0.0F;
    for (int64_t i = 0; i < n; i++) {
        result = fmaxf(result, fabsf(values[i]));
    }
    return result;
}

/* By how much a batch norm magnifies an error of its input's gradient, at most. */
static double magnification(const checked *c)
{
    double result = 1.0;
    for (size_t i = 0; i < c->net->n_nodes; i++) {
        const dunlin_net_node *node = &c->net->nodes[i];
        char name[300];
        snprintf(name, sizeof name, "%s/inv_std", node->name);
        uint32_t tensor = plain_run_find(&c->plain, name);
        if (node->kind == DUNLIN_OP_BATCH_NORM && tensor != DUNLIN_STEP_NONE) {
            int64_t channels = c->net->values[node->output].shape.dims[0];
            result = fmax(result, highest_float(c->plain.tensors[tensor], channels));
        }
    }
    return result;
}

/* Sums that cancel are as wrong as their terms are large: a hundredth of the largest gradient. */
static void find_scale(checked *c)
{
    for (uint32_t v = 0; v < c->net->n_values; v++) {
        const float *gradient = find_value(c, v, "/grad");
        int64_t n = c->data->n * dunlin__value_elements(&c->net->values[v]);
        c->scale = fmax(c->scale, gradient == NULL ? 0.0 : 0.01 * highest_float(gradient, n));
    }
    for (uint32_t p = 0; p < c->net->n_params; p++) {
        const float *gradient = c->plain.gradients[p];
        int64_t n = c->net->params[p].n_elements;
        c->scale = fmax(c->scale, gradient == NULL ? 0.0 : 0.01 * highest_float(gradient, n));
    }
    c->scale *= magnification(c);
}

/* The clip whose range a value still has, as far as that may mask its gradient; NULL: none. */
static const dunlin_net_node *clip_of(const checked *c, uint32_t value)
{
    while (c->net->values[value].producer != DUNLIN_NET_NONE) {
        const dunlin_net_node *node = &c->net->nodes[c->net->values[value].producer];
        if (node->kind == DUNLIN_OP_CLIP) {
            return node;
        }
        if (dunlin__op_row(node->kind)->bounds == DUNLIN_BOUNDS_LOST) {
            return NULL;
        }
        value = node->inputs[0];
    }
    return NULL;
}

/* Where it lies at a bound of its clip a gradient need not be its own: nothing passes on. */
static bool is_at_bound(const checked *c, const dunlin_net_node *clip, uint32_t value, int64_t i)
{
    const double x = c->reference->values[value][i];
    return clip != NULL && (x <= (double)clip->u.clip.low || x >= (double)clip->u.clip.high);
}

static void check_value_gradients(checked *c)
{
    for (uint32_t v = 0; v < c->net->n_values; v++) {
        const dunlin_net_value *value = &c->net->values[v];
        const float *gradient = find_value(c, v, "/grad");
        if (gradient == NULL || value->n_consumers != 1) {
            continue; /* several consumers: seen in what comes before */
        }
        int64_t n = c->data->n * dunlin__value_elements(value);
        double scale = c->scale + (double)highest_float(gradient, n);
        const dunlin_net_node *clip = clip_of(c, v);
        for (int64_t k = 0; k < count_probes(c, n); k++) {
            int64_t i = probe(c, k, n);
            double wanted = 0.0;
            if (is_at_bound(c, clip, v, i)) {
                continue;
            }
            bool is_smooth = net_double_value_slope(c->reference, v, i, STEP,
                                                    GRADIENT_ERROR * scale + LEAST_ERROR, &wanted);
            check_slope(c, is_smooth, value->name, i, (double)gradient[inner_element(value, i)],
                        wanted, scale);
        }
    }
}

static bool is_frozen(const checked *c, uint32_t param)
{
    char list[256];
    if (c->options->frozen_prefixes == NULL) {
        return false;
    }
    snprintf(list, sizeof list, "%s", c->options->frozen_prefixes);
    for (char *at = strtok(list, ","); at != NULL; at = strtok(NULL, ",")) {
        if (strncmp(at, c->net->params[param].name, strlen(at)) == 0) {
            return true;
        }
    }
    return false;
}

static void check_params(checked *c)
{
    for (uint32_t p = 0; p < c->net->n_params; p++) {
        const dunlin_net_param *param = &c->net->params[p];
        const float *gradient = c->plain.gradients[p];
        if (param->role == DUNLIN_PARAMETER_STATISTIC) {
            continue;
        }
        if (is_frozen(c, p)) {
            float *now = calloc((size_t)param->n_elements, sizeof(float));
            plain_run_get_param(&c->plain, p, now);
            cr_assert(gradient == NULL, "%s is frozen and has a gradient", param->name);
            cr_assert(memcmp(now, c->data->params[p], (size_t)param->n_elements * 4) == 0,
                      "%s is frozen and has changed", param->name);
            free(now);
            continue;
        }
        /* No gradient: nothing of it may reach the output. */
        double own = gradient == NULL ? 0.0 : (double)highest_float(gradient, param->n_elements);
        double scale = c->scale + own;
        for (int64_t k = 0; k < count_probes(c, param->n_elements); k++) {
            int64_t i = probe(c, k, param->n_elements);
            double wanted = 0.0;
            double found = gradient == NULL ? 0.0 : (double)gradient[i];
            bool is_smooth = net_double_param_slope(c->reference, p, i, STEP,
                                                    GRADIENT_ERROR * scale + LEAST_ERROR, &wanted);
            cr_assert(gradient != NULL || wanted == 0.0, "seed %" PRIu64 ": %s has no gradient",
                      c->options->seed, param->name);
            check_slope(c, is_smooth, param->name, i, found, wanted, scale);
        }
    }
}

/* PyTorch's rule, from the reference's own values. */
static void check_running(const checked *c, const dunlin_net_node *node)
{
    const dunlin_net_value *x = &c->net->values[node->inputs[0]];
    int64_t channels = x->shape.dims[0];
    int64_t per_sample = dunlin__value_elements(x);
    int64_t pixels = per_sample / channels;
    double n = (double)(c->data->n * pixels);
    float *mean = calloc((size_t)channels * 2, sizeof(float));
    float *variance = mean + channels;
    plain_run_get_param(&c->plain, node->params[2], mean);
    plain_run_get_param(&c->plain, node->params[3], variance);
    for (int64_t k = 0; k < channels; k++) {
        double sum = 0.0;
        double squares = 0.0;
        for (int64_t i = 0; i < c->data->n * pixels; i++) {
            const double *values = c->reference->values[node->inputs[0]];
            double value = values[i / pixels * per_sample + k * pixels + i % pixels];
            sum += value;
            squares += value * value;
        }
        double batch_variance = (squares - sum * sum / n) / (n - 1.0);
        double old_mean = (double)c->data->params[node->params[2]][k];
        double old_variance = (double)c->data->params[node->params[3]][k];
        bool is_kept = c->options->freeze_batch_norm || is_frozen(c, node->params[2]);
        double wanted_mean = is_kept ? old_mean : 0.9 * old_mean + 0.1 * sum / n;
        double wanted_variance = is_kept ? old_variance : 0.9 * old_variance + 0.1 * batch_variance;
        cr_assert(fabs((double)mean[k] - wanted_mean) <= 1e-6 * (1.0 + fabs(wanted_mean)),
                  "seed %" PRIu64 ": running mean %g, not %g", c->options->seed, (double)mean[k],
                  wanted_mean);
        cr_assert(fabs((double)variance[k] - wanted_variance) <= 2e-6 * (1.0 + wanted_variance),
                  "seed %" PRIu64 ": running variance %g, not %g", c->options->seed,
                  (double)variance[k], wanted_variance);
    }
    free(mean);
}

static bool check_on(const dunlin_net *net, const check_options *options, const check_data *data,
                     net_double *reference, const dunlin_kernels *kernels, bool is_fused)
{
    dunlin_error error = {0};
    dunlin_step_build_options build = {
        .mode = DUNLIN_EMIT_TRAIN,
        .frozen_prefixes = options->frozen_prefixes,
        .freeze_batch_norm = options->freeze_batch_norm,
        .is_fused = is_fused,
        .has_momentum = true,
        .has_gradient_hook = true,
    };
    checked c = {.net = net,
                 .options = options,
                 .data = data,
                 .reference = reference,
                 .state = options->seed + 1,
                 .kernels = kernels,
                 .isa = kernels->isa};
    dunlin_status status = plain_run_open(&c.plain, net, &build, options->n, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    c.plain.checks_in_place = true;
    double loss = 0.0;
    check_data_step(data, &c.plain, kernels, &loss);
    if (magnification(&c) > MAX_MAGNIFICATION) {
        plain_run_close(&c.plain);
        return false;
    }

    fill_reference(&c);
    double wanted = net_double_loss(reference);
    net_double_begin_slopes(reference, wanted);
    cr_assert(fabs(loss - wanted) <= 1e-5 * (1.0 + wanted), "seed %" PRIu64 ": loss %g, not %g",
              options->seed, loss, wanted);
    check_values(&c);
    for (size_t i = 0; i < net->n_nodes; i++) {
        if (net->nodes[i].kind == DUNLIN_OP_BATCH_NORM) {
            check_running(&c, &net->nodes[i]);
        }
    }
    find_scale(&c);
    check_value_gradients(&c);
    check_params(&c);
    cr_assert(c.n_kinks * 2 <= c.n_probed, "seed %" PRIu64 ": %" PRId64 " of %" PRId64 " at kinks",
              options->seed, c.n_kinks, c.n_probed);
    plain_run_close(&c.plain);
    return true;
}

bool check_net(const dunlin_net *net, const check_options *options)
{
    check_data data;
    bool is_checked = true;
    net_double reference;
    check_data_open(&data, net, options->n, options->seed);
    net_double_open(&reference, net, options->n, data.labels);
    reference.has_running_norm = options->freeze_batch_norm;
    int n_sets = 0;
    while (dunlin__kernels_isa(n_sets) != NULL) {
        n_sets++;
    }
    for (int i = 0; i < n_sets; i++) {
        if (options->has_one_isa && (uint64_t)i != options->seed % (uint64_t)n_sets) {
            continue;
        }
        const dunlin_kernels *kernels = dunlin__kernels_select(dunlin__kernels_isa(i));
        is_checked = check_on(net, options, &data, &reference, kernels, true) && is_checked;
        if (options->has_one_isa || i == 0) {
            is_checked = check_on(net, options, &data, &reference, kernels, false) && is_checked;
        }
    }
    net_double_close(&reference);
    check_data_close(&data);
    return is_checked;
}

void check_same_bits(const dunlin_net *net, uint64_t seed)
{
    const dunlin_step_build_options build = {.mode = DUNLIN_EMIT_TRAIN, .has_momentum = true};
    check_data data;
    check_data_open(&data, net, 5, seed);
    for (int set = 0; dunlin__kernels_isa(set) != NULL; set++) {
        const dunlin_kernels *kernels = dunlin__kernels_select(dunlin__kernels_isa(set));
        plain_run runs[3];
        for (int64_t i = 0; i < 3; i++) {
            double loss = 0.0;
            cr_assert_eq(plain_run_open(&runs[i], net, &build, data.n, NULL), DUNLIN_OK);
            runs[i].slice_samples = i;
            runs[i].recomputes = i > 0;
            check_data_step(&data, &runs[i], kernels, &loss);
            for (uint32_t p = 0; p < net->n_params; p++) {
                const uint32_t tensor = runs[i].graph->params[p].tensor;
                cr_assert(memcmp(runs[i].tensors[tensor], runs[0].tensors[tensor],
                                 (size_t)net->params[p].n_elements * sizeof(float)) == 0,
                          "seed %" PRIu64 ", slices of %" PRId64 ", %s: %s differs", seed, i,
                          kernels->isa, net->params[p].name);
            }
        }
        for (int i = 0; i < 3; i++) {
            plain_run_close(&runs[i]);
        }
    }
    check_data_close(&data);
}
