/*
 * adaptation.c - a budget that falls or grows in the middle of a step, and budgets that follow a
 * trace, against a restart of the step.
 *
 * Invariant: every run's weights are compared with those of a run whose budget stays.
 */
#include "study.h"

#include <dunlin/trainer_experimental.h>

#include <common/weights.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_EXAMPLES 128
#define MAX_POINTS 128
#define MAX_RUNS 3 /* of a scenario, for the spread of what a change takes */

static const char *const columns[] = {"model",
                                      "image",
                                      "scenario",
                                      "change",
                                      "step",
                                      "percent",
                                      "from_bytes",
                                      "to_bytes",
                                      "way",
                                      "moved_bytes",
                                      "arena_bytes",
                                      "redo_ms",
                                      "reach_ms",
                                      "saved_share",
                                      "left_ms",
                                      "same_weights",
                                      "time_took_ms",
                                      "time_rest_ms",
                                      "time_saved_share",
                                      "time_took_low_ms",
                                      "time_took_high_ms",
                                      "time_runs",
                                      NULL};

/* One change: at a share of a step, to a share of the ideal or to bytes. */
typedef struct point {
    int64_t step;
    double percent;
    study_budget budget;
} point;

typedef struct scenario {
    char name[96];
    point points[MAX_POINTS];
    int32_t n_points;
} scenario;

/* Made up, not recorded: memory that comes and goes, as other programs of a phone take it. */
static const char *const built_in[][2] = {
    {"halved at 25 %", "1.25 50%"},
    {"halved at 50 %", "1.50 50%"},
    {"halved at 75 %", "1.75 50%"},
    {"grown at 25 %", "0 50%\n1.25 125%"},
    {"grown at 50 %", "0 50%\n1.50 125%"},
    {"grown at 75 %", "0 50%\n1.75 125%"},
    {"trace: comes and goes",
     "0.40 80%\n1.20 60%\n1.80 100%\n2.50 70%\n3.30 125%\n3.90 65%\n4.60 90%"},
    {"trace: falls step by step", "0.50 100%\n1.25 90%\n1.75 80%\n2.50 70%\n3.50 60%\n4.50 50%"},
};
/* Left out with --quick. */
static const bool is_slow[] = {true, false, true, true, false, true, false, true};
#define N_BUILT_IN ((int32_t)(sizeof built_in / sizeof built_in[0]))

/* A part of a named study has every change at 25, 50 and 75 % of a step, and no trace. */
static bool is_wanted(const study_flags *flags, int32_t s)
{
    if (flags->named != NULL) {
        return strncmp(built_in[s][0], "trace", 5) != 0;
    }
    return !flags->is_quick || !is_slow[s];
}

/* "STEP[.PERCENT] SIZE|N%" */
static bool parse_point(const char *line, point *out_point)
{
    char *rest = NULL;
    *out_point = (point){.step = strtoll(line, &rest, 10)};
    if (rest == line || out_point->step < 0) {
        return false;
    }
    if (*rest == '.') {
        const char *digits = rest + 1;
        out_point->percent = (double)strtoll(digits, &rest, 10);
        if (rest == digits || out_point->percent < 0.0 || out_point->percent > 100.0) {
            return false;
        }
    }
    return study_parse_budget(rest + strspn(rest, " \t"), &out_point->budget);
}

/* Lines from text; the number of the first wrong one, or 0. */
static int parse_points(char *text, scenario *out)
{
    int number = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        number++;
        line[strcspn(line, "\r")] = '\0';
        if (line[0] == '#' || line[strspn(line, " \t")] == '\0') {
            continue;
        }
        const point *before = out->n_points > 0 ? &out->points[out->n_points - 1] : NULL;
        point *at = &out->points[out->n_points];
        if (out->n_points == MAX_POINTS || !parse_point(line, at) ||
            (before != NULL && (double)at->step * 100.0 + at->percent <
                                   (double)before->step * 100.0 + before->percent)) {
            return number;
        }
        out->n_points++;
    }
    return out->n_points == 0 ? 1 : 0;
}

static bool read_trace(study *at, const char *path, scenario *out)
{
    char text[8192];
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        study_fail(at, "--traces %s: %s", path, strerror(errno));
        return false;
    }
    const size_t n = fread(text, 1, sizeof text - 1, file);
    const bool is_whole = feof(file) != 0;
    (void)fclose(file);
    text[n] = '\0';
    *out = (scenario){.n_points = 0};
    (void)snprintf(out->name, sizeof out->name, "trace: %.80s", path);
    const int wrong = is_whole ? parse_points(text, out) : 1;
    if (wrong != 0) {
        study_fail(at,
                   "--traces %s, line %d: expected STEP[.PERCENT] SIZE or N%%, in order, at most "
                   "%d of them",
                   path, wrong, MAX_POINTS);
        return false;
    }
    return true;
}

static dunlin_status take_steps(dunlin_trainer *trainer, const dunlin_source *source,
                                int64_t n_steps, uint64_t *out_hash)
{
    int64_t indices[STUDY_BATCH];
    dunlin_status status = DUNLIN_OK;
    for (int64_t s = 0; s < n_steps && status == DUNLIN_OK; s++) {
        for (int64_t i = 0; i < STUDY_BATCH; i++) {
            indices[i] = (s * STUDY_BATCH + i) % source->n_examples;
        }
        status = dunlin_trainer_step(trainer, source, indices, STUDY_BATCH, NULL);
    }
    return status == DUNLIN_OK ? weights_hash(trainer, out_hash) : status;
}

static const char *way_text(dunlin_budget_way way)
{
    static const char *const names[] = {"between", "stayed", "moved", "remade"};
    return (size_t)way < sizeof names / sizeof names[0] ? names[way] : "unknown";
}

/* Several runs of a scenario: what the library says of each change, run after run. */
typedef struct change_runs {
    dunlin_budget_change changes[MAX_RUNS][MAX_POINTS];
    int64_t n_changes, n_runs;
    bool is_same; /* all ended with the weights of the run whose budget stays */
} change_runs;

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Gives the times of a change in ascending order, and their median. */
static double sort_times(const change_runs *runs, int64_t number, bool is_rest,
                         double out_times[MAX_RUNS])
{
    const int64_t n = runs->n_runs;
    for (int64_t r = 0; r < n; r++) {
        const dunlin_budget_change *change = &runs->changes[r][number];
        out_times[r] = is_rest ? change->rest_ms : change->took_ms;
    }
    qsort(out_times, (size_t)n, sizeof out_times[0], compare);
    return (out_times[(n - 1) / 2] + out_times[n / 2]) / 2.0;
}

static void add_row(study *at, const study_subject *subject, const scenario *what, int64_t number,
                    const change_runs *runs)
{
    const dunlin_budget_change *change = &runs->changes[0][number];
    double rest[MAX_RUNS];
    double took[MAX_RUNS];
    const double rest_ms = sort_times(runs, number, true, rest);
    const double took_ms = sort_times(runs, number, false, took);
    json_t *row = json_object();
    const double reach_ms = change->reach_ms;
    const bool is_within = change->way != DUNLIN_WAY_BETWEEN && reach_ms > 0.0;
    row_set_text(row, "model", subject->name);
    row_set_int(row, "image", study_image_side(subject));
    row_set_text(row, "scenario", what->name);
    row_set_int(row, "change", number);
    row_set_int(row, "step", change->step);
    row_set_real(row, "percent", change->percent);
    row_set_int(row, "from_bytes", (int64_t)change->from_bytes);
    row_set_int(row, "to_bytes", (int64_t)change->to_bytes);
    row_set_text(row, "way", way_text(change->way));
    row_set_int(row, "moved_bytes", (int64_t)change->moved_bytes);
    row_set_int(row, "arena_bytes", (int64_t)change->arena_bytes);
    row_set_real(row, "redo_ms", change->recompute_ms);
    row_set_real(row, "reach_ms", reach_ms);
    if (is_within) {
        const double lost_ms = change->recompute_ms + took_ms;
        row_set_real(row, "saved_share", 1.0 - change->recompute_ms / reach_ms);
        row_set_real(row, "time_saved_share", 1.0 - lost_ms / reach_ms);
    }
    row_set_real(row, "left_ms", change->left_ms);
    row_set_int(row, "same_weights", runs->is_same ? 1 : 0);
    row_set_real(row, "time_took_ms", took_ms);
    row_set_real(row, "time_rest_ms", rest_ms);
    row_set_real(row, "time_took_low_ms", took[0]);
    row_set_real(row, "time_took_high_ms", took[runs->n_runs - 1]);
    row_set_int(row, "time_runs", runs->n_runs);
    study_add_row(at, row);
}

/* The lowest budget that the trainer will take: asked for the impossible, it says. */
static uint64_t least_of(dunlin_trainer *trainer)
{
    dunlin_error error = {0};
    return dunlin_trainer_set_budget(trainer, 1, &error) == DUNLIN_BUDGET ? error.needed_bytes : 0;
}

static dunlin_status plan_changes(dunlin_trainer *trainer, const study_subject *subject,
                                  const scenario *what)
{
    const uint64_t least = least_of(trainer);
    dunlin_status status = DUNLIN_OK;
    for (int32_t i = 0; i < what->n_points && status == DUNLIN_OK; i++) {
        const uint64_t bytes = study_bytes(&what->points[i].budget, subject);
        status = dunlin_trainer_set_budget_at(
            trainer, what->points[i].step, what->points[i].percent, bytes > least ? bytes : least);
    }
    return status;
}

/* One run, which is added to `runs`; with `what` NULL its budget stays, and *out_hash is all. */
static bool run_once(study *at, const study_subject *subject, const dunlin_dataset *data,
                     const scenario *what, int64_t n_steps, change_runs *runs, uint64_t *out_hash)
{
    dunlin_error error = {0};
    dunlin_trainer *trainer = NULL;
    dunlin_source source;
    dunlin_dataset_source(data, &source);
    dunlin_trainer_options options =
        study_options(at, subject, DUNLIN_POLICY_AUTO,
                      subject->ideal_bytes + subject->ideal_bytes / 4, STUDY_BATCH);
    options.lr = 1e-4F;
    options.least_budget_bytes = what != NULL ? 1 : 0;
    dunlin_status status = dunlin_trainer_create(subject->model, &options, &trainer, &error);
    if (status != DUNLIN_OK) {
        study_fail_with(at, subject->name, &error);
        return false;
    }
    status = what != NULL ? plan_changes(trainer, subject, what) : DUNLIN_OK;
    status = status == DUNLIN_OK ? take_steps(trainer, &source, n_steps, out_hash) : status;
    runs->n_changes = what == NULL ? 0 : dunlin_trainer_n_budget_changes(trainer);
    for (int64_t i = 0; i < runs->n_changes && i < MAX_POINTS && status == DUNLIN_OK; i++) {
        dunlin_budget_change *change = &runs->changes[runs->n_runs][i];
        *change = (dunlin_budget_change)DUNLIN_BUDGET_CHANGE_INIT;
        status = dunlin_trainer_budget_change(trainer, i, change);
    }
    runs->n_runs += what == NULL ? 0 : 1;
    if (status != DUNLIN_OK) {
        study_fail_with(at, subject->name, dunlin_trainer_last_error(trainer));
    }
    dunlin_trainer_destroy(trainer);
    return status == DUNLIN_OK;
}

static void do_job(study *at, const char *model, int32_t image, const scenario *what)
{
    const study_flags *flags = study_flags_of(at);
    const study_subject *subject = study_open_subject(at, model, image, 0, 0);
    dunlin_dataset *data =
        subject == NULL ? NULL : study_open_data(at, subject, NULL, DUNLIN_SPLIT_TRAIN, N_EXAMPLES);
    change_runs *runs = data == NULL ? NULL : calloc(1, sizeof *runs);
    const int64_t n_steps = what->points[what->n_points - 1].step + 2;
    const int64_t n_runs = flags->steps < MAX_RUNS ? flags->steps : MAX_RUNS;
    uint64_t wanted = 0;
    if (data != NULL && runs == NULL) {
        study_fail(at, "no memory for the changes of a budget");
    }
    bool is_done = runs != NULL && run_once(at, subject, data, NULL, n_steps, runs, &wanted);
    for (int64_t r = 0; is_done && r < n_runs; r++) {
        uint64_t hash = 0;
        is_done = run_once(at, subject, data, what, n_steps, runs, &hash);
        runs->is_same = (r == 0 || runs->is_same) && hash == wanted;
    }
    for (int64_t i = 0; is_done && i < runs->n_changes && i < MAX_POINTS; i++) {
        add_row(at, subject, what, i, runs);
    }
    free(runs);
    dunlin_dataset_close(data);
}

static void offer_job(study *at, const char *model, const scenario *what)
{
    const bool is_quick = study_flags_of(at)->is_quick;
    const int32_t image = study_image(at, model, 32, 96);
    char note[192];
    json_t *points = json_array();
    for (int32_t i = 0; i < what->n_points; i++) {
        (void)json_array_append_new(points, json_pack("[I, f, s]", (json_int_t)what->points[i].step,
                                                      what->points[i].percent,
                                                      what->points[i].budget.text));
    }
    json_t *inputs = json_pack("{s:s, s:i, s:s, s:o, s:b}", "model", model, "image", (int)image,
                               "scenario", what->name, "points", points, "quick", is_quick);
    (void)snprintf(note, sizeof note, "adaptation %s, %s", model, what->name);
    if (study_begin_job(at, inputs, study_weight(model) * (4 + what->n_points), note)) {
        do_job(at, model, image, what);
        study_end_job(at);
    }
}

static int run(study *at)
{
    const study_flags *flags = study_flags_of(at);
    const char *models[STUDY_MAX_LIST];
    const int32_t n_models =
        study_models(at,
                     flags->is_quick ? "lenet5,mobilenet_v2"
                                     : "lenet5,mobilenet_v1,mobilenet_v2,squeezenet1_1,resnet50,"
                                       "densenet121,bert_small",
                     models);
    for (int32_t m = 0; m < n_models; m++) {
        static scenario what;
        for (int32_t s = 0; s < N_BUILT_IN; s++) {
            char text[512];
            if (!is_wanted(flags, s)) {
                continue;
            }
            what = (scenario){.n_points = 0};
            (void)snprintf(what.name, sizeof what.name, "%s", built_in[s][0]);
            (void)snprintf(text, sizeof text, "%s", built_in[s][1]);
            (void)parse_points(text, &what);
            offer_job(at, models[m], &what);
        }
        const char *list = flags->traces;
        for (char path[STUDY_PIECE_BYTES]; study_next_piece(&list, path);) {
            if (!read_trace(at, path, &what)) {
                return EXIT_FAILED;
            }
            offer_job(at, models[m], &what);
        }
    }
    return EXIT_OK;
}

const study_kind study_adaptation = {
    .name = "adaptation",
    .title = "Budgets that change in the middle of a step",
    .question = "What is lost when memory is taken away, or given back, while a step runs?",
    .method =
        "Batch 32. The budget begins at 125 % of the ideal's memory and falls to half of the "
        "ideal, or to the least that works; or it rises from there. A restart would lose all "
        "that the step has done; \"saved\" is the share of that which is not lost. Traces "
        "are step functions of the budget, made up here or from --traces. Each runs "
        "three times (--steps 1: once): what a change takes is the median on the wall's clock.",
    .columns = columns,
    .run_fn = run,
};
