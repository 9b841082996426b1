/*
 * net_expect.c - runs an ONNX file through the trainer and holds it against PyTorch in float64.
 *
 * What is compared: logits with running statistics, the loss of each step, and the changes of all
 * weights together and of all running statistics together: at most MAX_RATIO times as far from
 * float64 as PyTorch's own float32. Each parameter's change is then held to the same within a
 * quarter of its length: what switches with rounding is spread differently in each run, but a
 * gradient that is wrong in one place is off by its whole length.
 */
#include "net_expect.h"

#include "mix.h"

#include <dunlin/trainer.h>
#include <mem/support.h>

#include <float.h>
#include <math.h>
#include <net/net.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RATIO 4.0 /* of what PyTorch's own float32 is off */
#define MAX_PART 0.25 /* of the length of one parameter's change */

typedef struct expectation {
    FILE *file;
    int32_t n, n_in, n_out, n_steps, n_params;
    int32_t n_labels; /* of an example */
    float lr;
    float *x;
    int32_t *labels;
    double *logits;
    double *losses;
    struct {
        double logit, loss, change[2]; /* how far PyTorch's float32 is off; change: by role */
    } error;
    char *text;
    double worst_logit, worst_loss, worst_change; /* of ours, as multiples of PyTorch's */
} expectation;

__attribute__((format(printf, 2, 3))) static bool complain(expectation *e, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(e->text, NET_EXPECT_TEXT, format, args);
    va_end(args);
    return false;
}

static bool take(expectation *e, void *to, size_t n_bytes)
{
    return fread(to, 1, n_bytes, e->file) == n_bytes || complain(e, "the expectation is cut");
}

static bool open_expectation(expectation *e, const char *path)
{
    e->file = fopen(path, "rb");
    if (e->file == NULL) {
        return complain(e, "cannot open %s", path);
    }
    int32_t head[5] = {0};
    if (!take(e, head, sizeof head) || !take(e, &e->lr, sizeof e->lr)) {
        return false;
    }
    e->n = head[0];
    e->n_in = head[1];
    e->n_out = head[2];
    e->n_steps = head[3] & 0xFFFF;
    e->n_labels = (head[3] >> 16) + 1;
    e->n_params = head[4];
    const size_t n = (size_t)e->n;
    e->x = calloc(n * (size_t)e->n_in, sizeof *e->x);
    const size_t n_labels = n * (size_t)e->n_labels;
    e->labels = calloc(n_labels, sizeof *e->labels);
    e->logits = calloc(n * (size_t)e->n_out, sizeof *e->logits);
    e->losses = calloc((size_t)e->n_steps, sizeof *e->losses);
    if (e->x == NULL || e->labels == NULL || e->logits == NULL || e->losses == NULL) {
        return complain(e, "out of memory");
    }
    return take(e, e->x, n * (size_t)e->n_in * sizeof *e->x) &&
           take(e, e->labels, n_labels * sizeof *e->labels) &&
           take(e, e->logits, n * (size_t)e->n_out * sizeof *e->logits) &&
           take(e, e->losses, (size_t)e->n_steps * sizeof *e->losses) &&
           take(e, &e->error, sizeof e->error);
}

static void close_expectation(expectation *e)
{
    if (e->file != NULL) {
        (void)fclose(e->file);
    }
    free(e->x);
    free(e->labels);
    free(e->logits);
    free(e->losses);
}

static dunlin_status read_examples(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    const expectation *e = ctx;
    float *x = out_x;
    for (int64_t i = 0; i < n; i++) {
        memcpy(x + i * e->n_in, e->x + indices[i] * e->n_in, (size_t)e->n_in * sizeof *x);
        memcpy(out_y + i * e->n_labels, e->labels + indices[i] * e->n_labels,
               (size_t)e->n_labels * sizeof *out_y);
    }
    return DUNLIN_OK;
}

static dunlin_source source_of(expectation *e)
{
    return (dunlin_source){.struct_size = sizeof(dunlin_source),
                           .ctx = e,
                           .read_fn = read_examples,
                           .n_examples = e->n,
                           .dtype = DUNLIN_F32,
                           .n_labels = e->n_labels};
}

/* Dropout draws its own numbers, so both sides go without. It stays a layer: a ratio of nothing
 * would be left out when our own file is read, and more would be joined. */
static void disable_dropout(dunlin_model *model)
{
    for (size_t i = 0; i < model->net.n_nodes; i++) {
        if (model->net.nodes[i].kind == DUNLIN_OP_DROPOUT) {
            model->net.nodes[i].u.dropout.ratio = 1e-30f;
        }
    }
}

static dunlin_status open_trainer(expectation *e, const char *path, dunlin_trainer **out_trainer,
                                  dunlin_error *error)
{
    dunlin_model *model = NULL;
    DUNLIN_TRY(dunlin_model_open(path, NULL, &model, error));
    disable_dropout(model);
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = e->n;
    options.lr = e->lr;
    dunlin_status status = dunlin_trainer_create(model, &options, out_trainer, error);
    dunlin_model_destroy(model);
    return status;
}

/* The largest difference, as a multiple of `error`, or of four roundings of the largest number: a
 * few runs of PyTorch may all happen to round well. */
static double distance(const float *got, const double *wanted, int64_t n, double error)
{
    double most = 0.0;
    double scale = 1e-30;
    for (int64_t i = 0; i < n; i++) {
        double difference = fabs((double)got[i] - wanted[i]);
        most = difference <= most ? most : difference; /* not a number counts as large */
        scale = fmax(scale, fabs(wanted[i]));
    }
    return most / fmax(error, 4.0 * (double)FLT_EPSILON * scale);
}

static bool check_logits(expectation *e, dunlin_trainer *trainer)
{
    dunlin_source source = source_of(e);
    const int64_t n = (int64_t)e->n * e->n_out;
    float *logits = calloc((size_t)n, sizeof *logits);
    bool is_good = logits != NULL;
    is_good = is_good && (dunlin_trainer_predict(trainer, &source, 0, e->n, logits) == DUNLIN_OK ||
                          complain(e, "predict: %s", dunlin_trainer_last_error(trainer)->text));
    if (is_good) {
        e->worst_logit = distance(logits, e->logits, n, e->error.logit);
        is_good =
            e->worst_logit <= MAX_RATIO ||
            complain(e, "logits are %g times as far from float64 as PyTorch's", e->worst_logit);
    }
    free(logits);
    return is_good;
}

static bool take_steps(expectation *e, dunlin_trainer *trainer)
{
    dunlin_source source = source_of(e);
    int64_t indices[64];
    for (int64_t i = 0; i < e->n && i < 64; i++) {
        indices[i] = i;
    }
    for (int32_t step = 0; step < e->n_steps; step++) {
        dunlin_metrics metrics;
        if (dunlin_trainer_step(trainer, &source, indices, e->n, &metrics) != DUNLIN_OK) {
            return complain(e, "step: %s", dunlin_trainer_last_error(trainer)->text);
        }
        const double error = fmax(e->error.loss, 4.0 * (double)FLT_EPSILON * fabs(e->losses[step]));
        const double off = fabs(metrics.loss - e->losses[step]) / error;
        e->worst_loss = fmax(e->worst_loss, off);
        if (!(off <= MAX_RATIO)) {
            return complain(e, "step %d: the loss is %.9g, not %.9g +- %.2g", (int)step,
                            metrics.loss, e->losses[step], MAX_RATIO * error);
        }
    }
    return true;
}

typedef struct change {
    char name[DUNLIN_NET_MAX_NAME + 1];
    double sums[MIX_N_SIGNS], length, error;
} change;

static bool take_change(expectation *e, change *out)
{
    int32_t n = 0;
    memset(out, 0, sizeof *out);
    if (!take(e, &n, sizeof n) || n < 1 || n > DUNLIN_NET_MAX_NAME) {
        return complain(e, "the expectation is damaged");
    }
    return take(e, out->name, (size_t)n) && take(e, out->sums, sizeof out->sums) &&
           take(e, &out->length, sizeof out->length) && take(e, &out->error, sizeof out->error);
}

static bool find_parameter(const dunlin_trainer *trainer, const char *name,
                           dunlin_parameter_info *out_info)
{
    for (int32_t i = 0; i < dunlin_trainer_n_parameters(trainer); i++) {
        if (dunlin_trainer_parameter(trainer, i, out_info) == DUNLIN_OK &&
            strcmp(out_info->name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds the squared distance of one parameter's change to those of its role. */
static bool check_change(expectation *e, dunlin_trainer *first, dunlin_trainer *trained,
                         int32_t index, const change *wanted, double off2[2])
{
    dunlin_parameter_info info;
    if (!find_parameter(trained, wanted->name, &info)) {
        return complain(e, "no parameter '%s'", wanted->name);
    }
    const int64_t n = info.n_elements;
    const uint64_t key = mix_key(MIX_SIGNS + (uint64_t)index);
    double sums[MIX_N_SIGNS] = {0.0};
    double norm2 = 0.0;
    float *before = calloc((size_t)n, sizeof *before);
    float *after = calloc((size_t)n, sizeof *after);
    bool is_good = before != NULL && after != NULL &&
                   dunlin_trainer_get_parameter(first, wanted->name, before, n) == DUNLIN_OK &&
                   dunlin_trainer_get_parameter(trained, wanted->name, after, n) == DUNLIN_OK;
    for (int64_t i = 0; is_good && i < n; i++) {
        mix_add(sums, key, i, (double)after[i] - (double)before[i]);
        norm2 += (double)after[i] * (double)after[i];
    }
    free(before);
    free(after);
    const double part = mix_distance2(sums, wanted->sums);
    const double floor = MAX_RATIO * (wanted->error + (double)FLT_EPSILON * sqrt(norm2));
    off2[info.role] += part;
    if (!is_good || !(sqrt(part) <= MAX_PART * wanted->length + floor)) {
        return complain(e, "the change of '%s' is off by %g of %g", wanted->name, sqrt(part),
                        wanted->length);
    }
    return true;
}

static bool check_changes(expectation *e, dunlin_trainer *first, dunlin_trainer *trained)
{
    double off2[2] = {0.0};
    if (dunlin_trainer_n_parameters(trained) != e->n_params) {
        return complain(e, "%d parameters, not %d", (int)dunlin_trainer_n_parameters(trained),
                        (int)e->n_params);
    }
    for (int32_t i = 0; i < e->n_params; i++) {
        change wanted;
        if (!take_change(e, &wanted) || !check_change(e, first, trained, i, &wanted, off2)) {
            return false;
        }
    }
    for (int role = 0; role < 2; role++) {
        const double ratio = off2[role] > 0.0 ? sqrt(off2[role]) / e->error.change[role] : 0.0;
        e->worst_change = fmax(e->worst_change, ratio);
        if (!(ratio <= MAX_RATIO)) {
            return complain(e, "changes of %s are %g times as far from float64 as PyTorch's",
                            role == 0 ? "weights" : "statistics", ratio);
        }
    }
    return true;
}

static bool is_same_parameter(dunlin_trainer *a, dunlin_trainer *b, int32_t index)
{
    dunlin_parameter_info info;
    if (dunlin_trainer_parameter(a, index, &info) != DUNLIN_OK) {
        return false;
    }
    const int64_t n = info.n_elements;
    float *of_a = calloc((size_t)n, sizeof *of_a);
    float *of_b = calloc((size_t)n, sizeof *of_b);
    const bool is_same = of_a != NULL && of_b != NULL &&
                         dunlin_trainer_get_parameter(a, info.name, of_a, n) == DUNLIN_OK &&
                         dunlin_trainer_get_parameter(b, info.name, of_b, n) == DUNLIN_OK &&
                         memcmp(of_a, of_b, (size_t)n * sizeof *of_a) == 0;
    free(of_a);
    free(of_b);
    return is_same;
}

/* Parameters, their order and the logits, bit for bit. */
static bool check_same(expectation *e, dunlin_trainer *trained, dunlin_trainer *again)
{
    const int32_t n_params = dunlin_trainer_n_parameters(trained);
    bool is_good = dunlin_trainer_n_parameters(again) == n_params;
    for (int32_t i = 0; is_good && i < n_params; i++) {
        is_good = is_same_parameter(trained, again, i);
    }
    if (!is_good) {
        return complain(e, "our own file gives other weights");
    }
    dunlin_source source = source_of(e);
    const size_t n = (size_t)e->n * (size_t)e->n_out;
    float *a = calloc(n, sizeof *a);
    float *b = calloc(n, sizeof *b);
    is_good = a != NULL && b != NULL &&
              dunlin_trainer_predict(trained, &source, 0, e->n, a) == DUNLIN_OK &&
              dunlin_trainer_predict(again, &source, 0, e->n, b) == DUNLIN_OK &&
              memcmp(a, b, n * sizeof *a) == 0;
    free(a);
    free(b);
    return is_good || complain(e, "our own file gives other logits");
}

static bool check_export(expectation *e, dunlin_trainer *trained, const char *path)
{
    dunlin_error error = {0};
    dunlin_trainer *again = NULL;
    if (dunlin_trainer_export_onnx(trained, path) != DUNLIN_OK) {
        return complain(e, "export: %s", dunlin_trainer_last_error(trained)->text);
    }
    if (open_trainer(e, path, &again, &error) != DUNLIN_OK) {
        return complain(e, "reading our own file: %s", error.text);
    }
    const bool is_good = check_same(e, trained, again);
    dunlin_trainer_destroy(again);
    return is_good;
}

bool net_expect_check(const char *model_path, const char *expect_path, const char *export_path,
                      char out_text[NET_EXPECT_TEXT])
{
    expectation e = {.text = out_text};
    dunlin_error error = {0};
    dunlin_trainer *first = NULL;
    dunlin_trainer *trained = NULL;
    out_text[0] = '\0';
    bool is_good = open_expectation(&e, expect_path);
    if (is_good && (open_trainer(&e, model_path, &first, &error) != DUNLIN_OK ||
                    open_trainer(&e, model_path, &trained, &error) != DUNLIN_OK)) {
        is_good = complain(&e, "%s", error.text);
    }
    is_good = is_good && check_logits(&e, first) && take_steps(&e, trained) &&
              check_changes(&e, first, trained) && check_export(&e, trained, export_path);
    if (is_good) {
        (void)snprintf(out_text, NET_EXPECT_TEXT,
                       "logits %.2g, loss %.2g, weights %.2g of what PyTorch is off", e.worst_logit,
                       e.worst_loss, e.worst_change);
    }
    dunlin_trainer_destroy(trained);
    dunlin_trainer_destroy(first);
    close_expectation(&e);
    return is_good;
}
