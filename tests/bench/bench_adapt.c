/*
 * bench_adapt.c - halves the budget at 25, 50 and 75 % of a step: what that costs, and what the
 * process holds right afterwards.
 *
 * saved = 1 - lost / reach. reach: what an undisturbed step under the lower budget takes to come as
 * far, for each op as many samples; lost: by how much the rest of the disturbed step, moves and
 * all, took longer than the rest of the undisturbed one. Melon gives 78.59 % on average for that,
 * simulated.
 */
#include "common/args.h"
#include "step/context/context.h"
#include "step/context/rungs.h"

#include <dunlin/trainer_experimental.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_REPEATS 9

typedef struct flags {
    const char *models;
    int64_t image, batch, n_threads, n_repeats;
    double share;
    uint64_t budget_bytes;
} flags;

static const program_info program = {.name = "bench_adapt",
                                     .purpose =
                                         "times changes of the budget in the middle of steps",
                                     .examples = "  bench_adapt --models mobilenet_v2,resnet50 "
                                                 "--image 224 --batch 8\n"};

#define AT(member) offsetof(flags, member)
static const arg table[] = {
    {"--models", ARG_TEXT, AT(models), "NAME,...", "ready-made networks", 0, 0, 0},
    {"--image", ARG_I64, AT(image), "N", "height and width (224)", 8, 1024, 0},
    {"--batch", ARG_I64, AT(batch), "N", "examples of a step (32)", 1, 4096, 0},
    {"--threads", ARG_I64, AT(n_threads), "N", "(1)", 1, 256, 0},
    {"--repeats", ARG_I64, AT(n_repeats), "N", "of each change; the median is reported (3)", 1,
     MAX_REPEATS, 0},
    {"--budget", ARG_BYTES, AT(budget_bytes), "BYTES",
     "the old budget (what the step takes without one)", 0, 0, 0},
    {"--share", ARG_F64, AT(share), "F", "the new budget over the old one (0.5)", 0.01, 1, 0},
};

/* The process's own time: of one thread that is the time of a machine which does nothing else. */
static double now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* Resident now. */
static uint64_t rss_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long long all = 0;
    unsigned long long resident = 0;
    if (file != NULL) {
        const int n = fscanf(file, "%llu %llu", &all, &resident);
        resident = n == 2 ? resident : 0;
        (void)fclose(file);
    }
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/*
 * The measurements of one step. The time of an op for samples that it has not processed before
 * includes what was recomputed since the last such op, for it or for those after it.
 */
typedef struct record {
    const dunlin_trainer *trainer;
    double start_ms, last_ms;
    double *own_ms;    /* by op */
    int64_t *n_seen;   /* by op: samples, from the first */
    int64_t *n_before; /* the same when the change came */
    double change_ms;  /* when the op before the change was done */
    int64_t n_changes; /* before the step */
    bool is_changed;
    uint64_t rss_bytes; /* at the first op after it */
} record;

static void look(void *ctx, const dunlin_step_op *op, int64_t first, int64_t n_samples,
                 bool is_done)
{
    record *seen = ctx;
    const uint32_t index = (uint32_t)(op - seen->trainer->train.step->ops);
    const double now = now_ms() - seen->start_ms;
    if (!is_done) {
        if (!seen->is_changed &&
            dunlin_trainer_n_budget_changes(seen->trainer) != seen->n_changes) {
            const uint32_t n_ops = seen->trainer->train.lowered.graph.n_ops;
            seen->is_changed = true;
            seen->rss_bytes = rss_bytes();
            memcpy(seen->n_before, seen->n_seen, n_ops * sizeof *seen->n_seen);
        }
        return;
    }
    if (!seen->is_changed) {
        seen->change_ms = now;
    }
    if (first + n_samples > seen->n_seen[index]) {
        seen->n_seen[index] = first + n_samples;
        seen->own_ms[index] += now - seen->last_ms;
        seen->last_ms = now;
    }
}

/* What the undisturbed step took for all that the disturbed one had seen when the change came. */
static double reach_ms(const record *plain, const record *disturbed)
{
    const uint32_t n_ops = plain->trainer->train.lowered.graph.n_ops;
    double sum = 0.0;
    for (uint32_t i = 0; i < n_ops; i++) {
        sum += plain->n_seen[i] == 0
                   ? 0.0
                   : plain->own_ms[i] * (double)disturbed->n_before[i] / (double)plain->n_seen[i];
    }
    return sum;
}

static dunlin_status read_examples(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    const int64_t n_elements = *(const int64_t *)ctx;
    uint8_t *x = out_x;
    for (int64_t i = 0; i < n; i++) {
        memset(x + i * n_elements, (int)(indices[i] % 251), (size_t)n_elements);
        out_y[i] = (int32_t)(indices[i] % 10);
    }
    return DUNLIN_OK;
}

/* One step; its time, or a negative number. */
static double run_step(dunlin_trainer *trainer, const dunlin_source *source, record *seen)
{
    int64_t indices[4096];
    const int64_t n = trainer->options.batch;
    for (int64_t i = 0; i < n; i++) {
        indices[i] = i;
    }
    const uint32_t n_ops = trainer->train.lowered.graph.n_ops;
    memset(seen->own_ms, 0, n_ops * sizeof *seen->own_ms);
    memset(seen->n_seen, 0, n_ops * sizeof *seen->n_seen);
    seen->trainer = trainer;
    seen->is_changed = false;
    seen->n_changes = dunlin_trainer_n_budget_changes(trainer);
    const dunlin_step_watch watch = {.op_fn = look, .ctx = seen};
    trainer->watch = &watch;
    seen->start_ms = now_ms();
    seen->last_ms = 0.0;
    const dunlin_status status = dunlin_trainer_step(trainer, source, indices, n, NULL);
    const double ms = now_ms() - seen->start_ms;
    trainer->watch = NULL;
    if (status != DUNLIN_OK) {
        (void)program_fail(&program, "%s", dunlin_trainer_last_error(trainer)->text);
        return -1.0;
    }
    return ms;
}

typedef struct subject {
    const char *name;
    dunlin_trainer *trainer;
    dunlin_source source;
    uint64_t high_bytes, low_bytes, rss_before_bytes;
    record plain, disturbed;
    double sum_saved;
    int n_saved;
} subject;

static const char *const way_names[] = {"between", "stayed", "moved", "remade"};

static bool measure_at(subject *at, double percent, int64_t n_repeats)
{
    double saved[MAX_REPEATS];
    double over_mib = -1e9;
    dunlin_budget_change change = DUNLIN_BUDGET_CHANGE_INIT;
    for (int64_t i = 0; i < n_repeats; i++) {
        /* The undisturbed step under the lower budget comes right before. */
        dunlin_error error = {.status = DUNLIN_OK};
        if (dunlin_trainer_set_budget(at->trainer, at->low_bytes, &error) != DUNLIN_OK) {
            (void)program_fail(&program, "%s", error.text);
            return false;
        }
        const double plain_ms = run_step(at->trainer, &at->source, &at->plain);
        if (plain_ms < 0.0 ||
            dunlin_trainer_set_budget(at->trainer, at->high_bytes, NULL) != DUNLIN_OK ||
            /* Pages that were given back come again while it runs. */
            run_step(at->trainer, &at->source, &at->disturbed) < 0.0 ||
            dunlin_trainer_set_budget_at(at->trainer, dunlin_trainer_n_steps(at->trainer), percent,
                                         at->low_bytes) != DUNLIN_OK) {
            return false;
        }
        const double ms = run_step(at->trainer, &at->source, &at->disturbed);
        if (ms < 0.0 || !at->disturbed.is_changed) {
            return false;
        }
        const double reach = reach_ms(&at->plain, &at->disturbed);
        const double rest_plain = plain_ms - reach;
        const double lost = ms - at->disturbed.change_ms - rest_plain;
        saved[i] = reach > 0.0 ? 1.0 - lost / reach : 0.0;
        const double over = ((double)at->disturbed.rss_bytes - (double)at->rss_before_bytes -
                             (double)at->low_bytes) /
                            1048576.0;
        over_mib = over > over_mib ? over : over_mib;
        if (dunlin_trainer_budget_change(at->trainer,
                                         dunlin_trainer_n_budget_changes(at->trainer) - 1,
                                         &change) != DUNLIN_OK) {
            return false;
        }
    }
    for (int64_t i = 1; i < n_repeats; i++) {
        for (int64_t j = i; j > 0 && saved[j - 1] > saved[j]; j--) {
            const double swapped = saved[j];
            saved[j] = saved[j - 1];
            saved[j - 1] = swapped;
        }
    }
    const double predicted =
        change.reach_ms > 0.0 ? 1.0 - change.recompute_ms / change.reach_ms : 0.0;
    printf("%-14s %5.0f %% %-8s %9.1f %9.2f %9.2f %10.1f %% %9.1f %% %9.1f\n", at->name, percent,
           way_names[change.way], (double)change.moved_bytes / 1048576.0, change.took_ms,
           change.given_back_ms, 100.0 * predicted, 100.0 * saved[n_repeats / 2], over_mib);
    (void)fflush(stdout);
    at->sum_saved += saved[n_repeats / 2];
    at->n_saved++;
    return true;
}

static bool measure(const flags *given, subject *at)
{
    const dunlin_ladder *ladder = at->trainer->ladder;
    printf("%s: %.1f MiB -> %.1f MiB, batch %" PRId64 ", begins with %.1f MiB\n", at->name,
           (double)at->high_bytes / 1048576.0, (double)at->low_bytes / 1048576.0, given->batch,
           (double)(ladder->table_bytes + ladder->fallbacks[0].arena_bytes) / 1048576.0);
    const uint32_t n_ops = at->trainer->train.lowered.graph.n_ops;
    record *records[] = {&at->plain, &at->disturbed};
    bool is_right = true;
    for (size_t i = 0; i < 2; i++) {
        records[i]->own_ms = calloc(n_ops, sizeof *records[i]->own_ms);
        records[i]->n_before = calloc(n_ops, sizeof *records[i]->n_before);
        records[i]->n_seen = calloc(n_ops, sizeof *records[i]->n_seen);
        is_right = is_right && records[i]->own_ms != NULL && records[i]->n_seen != NULL &&
                   records[i]->n_before != NULL;
    }
    is_right = is_right && run_step(at->trainer, &at->source, &at->plain) >= 0.0;
    for (double percent = 25.0; percent <= 75.0 && is_right; percent += 25.0) {
        is_right = measure_at(at, percent, given->n_repeats);
    }
    for (size_t i = 0; i < 2; i++) {
        free(records[i]->own_ms);
        free(records[i]->n_before);
        free(records[i]->n_seen);
    }
    return is_right;
}

static bool run(const flags *given, const char *name)
{
    const dunlin_zoo_options sizes = {.struct_size = sizeof(dunlin_zoo_options),
                                      .image = (int32_t)given->image};
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin_model *model = NULL;
    if (dunlin_model_from_zoo(name, &sizes, NULL, &model, &error) != DUNLIN_OK) {
        (void)program_fail(&program, "%s", error.text);
        return false;
    }
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = given->batch;
    options.momentum = 0.9F;
    options.n_threads = (int32_t)given->n_threads;
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    subject at = {.name = name, .high_bytes = given->budget_bytes};
    options.budget_bytes = at.high_bytes;
    bool is_right = dunlin_trainer_estimate(model, &options, &report, &error) == DUNLIN_OK;
    at.high_bytes = at.high_bytes > 0 ? at.high_bytes : report.planned_bytes;
    at.low_bytes = (uint64_t)(given->share * (double)at.high_bytes);
    options.budget_bytes = at.high_bytes;
    options.least_budget_bytes = at.low_bytes;
    at.rss_before_bytes = rss_bytes();
    is_right = is_right && dunlin_trainer_create(model, &options, &at.trainer, &error) == DUNLIN_OK;
    dunlin_model_destroy(model);
    if (!is_right) {
        (void)program_fail(&program, "%s", error.text);
        return false;
    }
    int64_t n_elements = 3 * given->image * given->image;
    at.source = (dunlin_source){.struct_size = sizeof(dunlin_source),
                                .ctx = &n_elements,
                                .read_fn = read_examples,
                                .n_examples = 4096,
                                .dtype = DUNLIN_U8,
                                .scale = 1.0F / 255.0F};
    is_right = measure(given, &at);
    if (at.n_saved > 0) {
        printf("%-14s mean saved %.1f %%\n", name, 100.0 * at.sum_saved / at.n_saved);
    }
    dunlin_trainer_destroy(at.trainer);
    return is_right;
}

int main(int argc, char **argv)
{
    flags given = {.models = "mobilenet_v2,squeezenet1_1,resnet50",
                   .image = 224,
                   .batch = 32,
                   .n_threads = 1,
                   .n_repeats = 3,
                   .share = 0.5};
    const args_result parsed = args_parse(&program, table, sizeof table / sizeof table[0], argc,
                                          (const char *const *)argv, &given);
    if (parsed.is_done) {
        return parsed.exit_status;
    }
    printf("%-14s %7s %-8s %9s %9s %9s %12s %11s %9s\n", "network", "at", "way", "moved MiB",
           "took ms", "back ms", "no redo, pred", "saved", "over MiB");
    bool is_right = true;
    for (const char *next = given.models; *next != '\0';) {
        char name[64];
        const size_t length = strcspn(next, ",");
        (void)snprintf(name, sizeof name, "%.*s", length < sizeof name ? (int)length : 0, next);
        is_right = run(&given, name) && is_right;
        next += length;
        next += *next == ',' ? 1 : 0;
    }
    return is_right ? EXIT_OK : EXIT_FAILED;
}
