/*
 * net_expect.c - runs an ONNX file through the trainer and holds it against PyTorch in float64.
 *
 * What is compared: logits with running statistics, the loss of each step, and for each parameter
 * the length of its change and the change's product with a row of signs: a gradient that is wrong
 * anywhere moves both far more than rounding does.
 */
#include "net_expect.h"

#include <dunlin/trainer.h>
#include <mem/support.h>

#include <math.h>
#include <net/net.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct expectation {
    FILE *file;
    int32_t n, n_in, n_out, n_steps, n_params;
    float lr;
    float *x;
    int32_t *labels;
    double *logits;
    double *losses;
    char *text;
    double worst_logit, worst_loss, worst_change; /* relative */
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
    e->n_steps = head[3];
    e->n_params = head[4];
    const size_t n = (size_t)e->n;
    e->x = calloc(n * (size_t)e->n_in, sizeof *e->x);
    e->labels = calloc(n, sizeof *e->labels);
    e->logits = calloc(n * (size_t)e->n_out, sizeof *e->logits);
    e->losses = calloc((size_t)e->n_steps, sizeof *e->losses);
    if (e->x == NULL || e->labels == NULL || e->logits == NULL || e->losses == NULL) {
        return complain(e, "out of memory");
    }
    return take(e, e->x, n * (size_t)e->n_in * sizeof *e->x) &&
           take(e, e->labels, n * sizeof *e->labels) &&
           take(e, e->logits, n * (size_t)e->n_out * sizeof *e->logits) &&
           take(e, e->losses, (size_t)e->n_steps * sizeof *e->losses);
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
        out_y[i] = e->labels[indices[i]];
    }
    return DUNLIN_OK;
}

static dunlin_source source_of(expectation *e)
{
    return (dunlin_source){
        .ctx = e, .read_fn = read_examples, .n_examples = e->n, .dtype = DUNLIN_F32};
}

/* Dropout draws its own numbers, so both sides go without. */
static void disable_dropout(dunlin_model *model)
{
    for (size_t i = 0; i < model->net.n_nodes; i++) {
        if (model->net.nodes[i].kind == DUNLIN_OP_DROPOUT) {
            model->net.nodes[i].u.dropout.ratio = 0.0f;
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

/* The largest difference, against the largest of the expected. */
static double distance(const float *got, const double *wanted, int64_t n)
{
    double most = 0.0;
    double scale = 1e-30;
    for (int64_t i = 0; i < n; i++) {
        double difference = fabs((double)got[i] - wanted[i]);
        most = difference <= most ? most : difference; /* not a number counts as large */
        scale = fmax(scale, fabs(wanted[i]));
    }
    return most / scale;
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
        e->worst_logit = distance(logits, e->logits, n);
        is_good = e->worst_logit < 1e-4 || complain(e, "logits differ by %g", e->worst_logit);
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
        double off = fabs(metrics.loss - e->losses[step]) / fmax(1.0, fabs(e->losses[step]));
        e->worst_loss = fmax(e->worst_loss, off);
        /* The first loss is that of the file's weights; later ones carry what rounding grew to. */
        if (!(off < (step == 0 ? 1e-5 : 0.02))) {
            return complain(e, "step %d: the loss is %.9g, not %.9g", (int)step, metrics.loss,
                            e->losses[step]);
        }
    }
    return true;
}

/* +1 or -1; onnx_nets.py has the same. */
static double sign_of(uint64_t i)
{
    return ((i * UINT64_C(0x9E3779B97F4A7C15)) >> 40 & 1) != 0 ? -1.0 : 1.0;
}

typedef struct change {
    char name[DUNLIN_NET_MAX_NAME + 1];
    double length, product;
} change;

static bool take_change(expectation *e, change *out)
{
    int32_t n = 0;
    memset(out, 0, sizeof *out);
    if (!take(e, &n, sizeof n) || n < 1 || n > DUNLIN_NET_MAX_NAME) {
        return complain(e, "the expectation is damaged");
    }
    return take(e, out->name, (size_t)n) && take(e, &out->length, sizeof out->length) &&
           take(e, &out->product, sizeof out->product);
}

static int64_t elements_of(const dunlin_trainer *trainer, const char *name)
{
    dunlin_parameter_info info;
    for (int32_t i = 0; i < dunlin_trainer_n_parameters(trainer); i++) {
        int64_t n = 0;
        if (dunlin_trainer_parameter(trainer, i, &info) == DUNLIN_OK &&
            strcmp(info.name, name) == 0 && dunlin_shape_count(&info.shape, &n) == DUNLIN_OK) {
            return n;
        }
    }
    return -1;
}

/* `floor`: what rounding may move a parameter whose own gradient is nothing but rounding. */
static bool check_change(expectation *e, dunlin_trainer *first, dunlin_trainer *trained,
                         const change *wanted, double floor)
{
    const int64_t n = elements_of(trained, wanted->name);
    if (n < 1) {
        return complain(e, "no parameter '%s'", wanted->name);
    }
    float *before = calloc((size_t)n, sizeof *before);
    float *after = calloc((size_t)n, sizeof *after);
    bool is_good = before != NULL && after != NULL &&
                   dunlin_trainer_get_parameter(first, wanted->name, before, n) == DUNLIN_OK &&
                   dunlin_trainer_get_parameter(trained, wanted->name, after, n) == DUNLIN_OK;
    double length = 0.0;
    double product = 0.0;
    for (int64_t i = 0; is_good && i < n; i++) {
        double delta = (double)after[i] - (double)before[i];
        length += delta * delta;
        product += delta * sign_of((uint64_t)i);
    }
    free(before);
    free(after);
    length = sqrt(length);
    double off = fmax(fabs(length - wanted->length), fabs(product - wanted->product));
    e->worst_change = fmax(e->worst_change, off / (wanted->length + floor));
    if (!is_good || !(off <= 0.1 * wanted->length + floor)) {
        return complain(e, "'%s' changed by %g (signed %g), not %g (%g)", wanted->name, length,
                        product, wanted->length, wanted->product);
    }
    return true;
}

static bool check_changes(expectation *e, dunlin_trainer *first, dunlin_trainer *trained)
{
    change *changes = calloc((size_t)e->n_params, sizeof *changes);
    bool is_good = changes != NULL;
    double most = 0.0;
    for (int32_t i = 0; is_good && i < e->n_params; i++) {
        is_good = take_change(e, &changes[i]);
        most = fmax(most, changes[i].length);
    }
    for (int32_t i = 0; is_good && i < e->n_params; i++) {
        is_good = check_change(e, first, trained, &changes[i], 1e-4 * most);
    }
    if (is_good && dunlin_trainer_n_parameters(trained) != e->n_params) {
        is_good = complain(e, "%d parameters, not %d", (int)dunlin_trainer_n_parameters(trained),
                           (int)e->n_params);
    }
    free(changes);
    return is_good;
}

/* Our own file gives the same logits again. */
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
    dunlin_source source = source_of(e);
    const int64_t n = (int64_t)e->n * e->n_out;
    float *a = calloc((size_t)n, sizeof *a);
    float *b = calloc((size_t)n, sizeof *b);
    bool is_good = a != NULL && b != NULL &&
                   dunlin_trainer_predict(trained, &source, 0, e->n, a) == DUNLIN_OK &&
                   dunlin_trainer_predict(again, &source, 0, e->n, b) == DUNLIN_OK;
    for (int64_t i = 0; is_good && i < n; i++) {
        e->logits[i] = (double)a[i];
    }
    double off = is_good ? distance(b, e->logits, n) : 1.0;
    is_good = is_good && off <= 1e-6;
    if (!is_good) {
        (void)complain(e, "our own file gives other logits (%g)", off);
    }
    free(a);
    free(b);
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
        (void)snprintf(out_text, NET_EXPECT_TEXT, "logits %.1e, loss %.1e, weights %.1e",
                       e.worst_logit, e.worst_loss, e.worst_change);
    }
    dunlin_trainer_destroy(trained);
    dunlin_trainer_destroy(first);
    close_expectation(&e);
    return is_good;
}
