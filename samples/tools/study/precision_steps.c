/*
 * precision_steps.c - which precisions there are, and what a step in each of them takes.
 *
 * Invariant: all precisions of a network are measured one after the other in a part of the study,
 * with the same batch, threads and plan; one that the trainer refuses has a row that says why.
 */
#include "precision.h"

#include <inttypes.h>
#include <string.h>

#define BATCH 64
#define QUICK_BATCH 16
#define N_EXAMPLES 64
#define TABLE "steps"

/* NITI's schedules are the defaults of dunlin-train and dunlin-fleet: a fleet's few rounds, whose
 * averages mend noise, end coarser. The gradients of WAGEUBN have one size, whatever the loss: its
 * rate is another's. */
const precision_way precision_ways[] = {
    {PRECISION_FLOAT, NULL, NULL, 1.0},
    {"niti", "5,4,3,2,1,0", "5,4,3", 1.0},
    {"niti16", "5,4,3,2,1,0", "5,4,3", 1.0},
    {"adaptive-int8", NULL, NULL, 1.0},
    {"adaptive-fixed", NULL, NULL, 1.0},
    {"octo", NULL, NULL, 1.0},
    {"wageubn", NULL, NULL, 12.5},
    {"mls", NULL, NULL, 1.0},
    {NULL, NULL, NULL, 0.0},
};

static const char *const columns[] = {"model",         "image",
                                      "batch",         "precision",
                                      "refused",       "parameters",
                                      "planned_bytes", "least_bytes",
                                      "weights_bytes", "activations_bytes",
                                      "operand_bytes", "weights_hash",
                                      "energy_step_j", "time_step_ms",
                                      STUDY_TIMES,     NULL};

static bool is_known(const char *name)
{
    for (size_t i = 0; precision_ways[i].name != NULL; i++) {
        if (strcmp(precision_ways[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static void list_names(char *out, size_t bytes)
{
    size_t length = 0;
    for (size_t i = 0; precision_ways[i].name != NULL && length < bytes; i++) {
        length += (size_t)snprintf(out + length, bytes - length, "%s%s", i == 0 ? "" : ", ",
                                   precision_ways[i].name);
    }
}

int precision_check(study_flags *flags)
{
    const char *at = flags->precisions;
    for (char piece[STUDY_PIECE_BYTES]; study_next_piece(&at, piece);) {
        char all[200];
        if (!is_known(piece)) {
            list_names(all, sizeof all);
            return program_misuse(&study_program, "--precisions %s: expected some of %s", piece,
                                  all);
        }
    }
    if (strcmp(flags->study, "precision") == 0 && flags->n_rates > 1) {
        return program_misuse(&study_program, "--lr %s: precision takes one rate", flags->rates);
    }
    return EXIT_OK;
}

bool precision_is_wanted(const study_flags *flags, const char *name)
{
    const char *at = flags->precisions;
    bool is_found = flags->precisions == NULL;
    for (char piece[STUDY_PIECE_BYTES]; study_next_piece(&at, piece);) {
        is_found = is_found || strcmp(piece, name) == 0;
    }
    return is_found;
}

bool precision_is_refused(const study_subject *subject, const char *name, dunlin_error *out_why)
{
    *out_why = (dunlin_error){0};
    return dunlin_model_check_precision(subject->model, name, out_why) == DUNLIN_UNSUPPORTED;
}

static json_t *begin_row(const study_subject *subject, int64_t batch, const precision_way *way)
{
    json_t *row = json_object();
    row_set_text(row, "table", TABLE);
    row_set_text(row, "model", study_model_name(subject->name));
    row_set_int(row, "image", study_image_side(subject));
    row_set_int(row, "batch", batch);
    row_set_text(row, "precision", way->name);
    row_set_int(row, "parameters", dunlin_model_n_trainable_elements(subject->model));
    return row;
}

static void set_step(json_t *row, const study_steps *steps)
{
    const dunlin_trainer_report *report = &steps->report;
    char hash[24];
    (void)snprintf(hash, sizeof hash, "%016" PRIx64, steps->hash);
    row_set_int(row, "planned_bytes", (int64_t)report->planned_bytes);
    row_set_int(row, "least_bytes", (int64_t)report->least_budget_bytes);
    row_set_int(row, "weights_bytes", (int64_t)report->by_class.weights);
    row_set_int(row, "activations_bytes", (int64_t)report->by_class.activations);
    row_set_int(row, "operand_bytes", (int64_t)steps->operand_bytes);
    row_set_text(row, "weights_hash", hash);
    row_set_real(row, "energy_step_j", steps->energy_j);
    study_set_times(row, steps);
}

/* False: the study has failed. */
static bool measure(study *at, const study_subject *subject, const dunlin_dataset *data,
                    int64_t batch, const precision_way *way)
{
    const dunlin_trainer_options plain = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_trainer_options options = study_options(at, subject, DUNLIN_POLICY_AUTO, 0, batch);
    dunlin_error why;
    json_t *row = begin_row(subject, batch, way);
    study_steps steps;
    if (precision_is_refused(subject, way->name, &why)) {
        row_set_text(row, "refused", why.text);
        study_add_row(at, row);
        return true;
    }
    options.precision = way->name;
    if (way->grad_bits != NULL) {
        options.lr = plain.lr;
        options.momentum = plain.momentum;
    }
    if (!study_take_steps(at, subject, &options, data, study_flags_of(at)->steps, &steps)) {
        json_decref(row);
        return false;
    }
    set_step(row, &steps);
    study_add_row(at, row);
    return true;
}

static void do_job(study *at, const char *model, int32_t image, int32_t channels, int64_t batch)
{
    const study_subject *subject =
        study_open_subject(at, model, image, channels, channels == 0 ? 0 : 10);
    dunlin_dataset *data = subject == NULL
                               ? NULL
                               : study_open_data(at, subject, NULL, DUNLIN_SPLIT_TRAIN,
                                                 batch > N_EXAMPLES ? batch : N_EXAMPLES);
    bool is_good = data != NULL;
    for (size_t i = 0; is_good && precision_ways[i].name != NULL; i++) {
        is_good = !precision_is_wanted(study_flags_of(at), precision_ways[i].name) ||
                  measure(at, subject, data, batch, &precision_ways[i]);
    }
    dunlin_dataset_close(data);
}

void precision_offer_steps(study *at, const char *model, int32_t image, int32_t channels)
{
    const study_flags *flags = study_flags_of(at);
    char note[96];
    int64_t batches[STUDY_MAX_LIST];
    const int32_t n = study_batches(at, "0", batches);
    for (int32_t i = 0; i < n; i++) {
        const int64_t own = flags->is_quick ? QUICK_BATCH : BATCH;
        const int64_t batch = batches[i] > 0 ? batches[i] : own;
        json_t *inputs = json_pack("{s:s, s:s, s:i, s:I, s:s}", "part", TABLE, "model", model,
                                   "image", (int)image, "batch", (json_int_t)batch, "precisions",
                                   flags->precisions == NULL ? "" : flags->precisions);
        (void)snprintf(note, sizeof note, "precision steps of %s, batch %" PRId64,
                       study_model_name(model), batch);
        if (study_begin_job(at, inputs, study_weight(model) * batch / 4 + 4, note)) {
            do_job(at, model, image, channels, batch);
            study_end_job(at);
        }
    }
}

void precision_add_steps(study *at)
{
    study_add_table(at, TABLE, columns, json_array());
}
