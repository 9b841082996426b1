/*
 * live.c - what the server's page shows of a simulation while it runs: a file that the server reads
 * (dunlin-server --simulated).
 *
 * Invariant: nothing of it comes back, so events and models are the same with it and without; it
 * takes a tenth of the thread's time at most. What cannot be written or judged is left out: the
 * page shows what was known before.
 */
#include "simulation.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_EXAMPLES 256 /* of a class, that judge a model */
#define TIMES_AS_LONG 9   /* as a judgement has taken nothing is judged after it */
#define BLOCK_VALUES 4096
#define MOST_ROUNDS 40 /* the newest, as many as the page lists */

/* Examples of each class, and those of which a model was right. */
typedef struct judgement {
    int64_t n_examples[SIM_CLASSES], n_right[SIM_CLASSES];
} judgement;

struct sim_live {
    dunlin_trainer *trainer; /* of the smallest plan; NULL: not needed yet, or... */
    bool has_no_trainer;     /* ...there can be none */
    uint64_t judged;         /* the round whose model was judged last; 0: none */
    double next_ms;          /* no judgement before that */
    judgement of_judged;
};

bool sim_live_open(simulation *sim)
{
    if (sim->server->loop != NULL) {
        return true; /* a server in memory has no page */
    }
    sim->live = calloc(1, sizeof *sim->live);
    return sim->live != NULL;
}

void sim_live_close(simulation *sim)
{
    if (sim->live != NULL) {
        dunlin_trainer_destroy(sim->live->trainer);
        free(sim->live);
        sim->live = NULL;
    }
}

/* ---- the newest model on some examples of each class ---- */

static bool load(dunlin_trainer *trainer, FILE *file)
{
    float block[BLOCK_VALUES];
    const int64_t n = dunlin_trainer_n_weights(trainer, DUNLIN_WEIGHTS_ALL);
    for (int64_t first = 0; first < n; first += BLOCK_VALUES) {
        const int64_t n_block = n - first < BLOCK_VALUES ? n - first : BLOCK_VALUES;
        if (fread(block, sizeof block[0], (size_t)n_block, file) != (size_t)n_block ||
            dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_ALL, first, n_block, block) !=
                DUNLIN_OK) {
            return false;
        }
    }
    return fgetc(file) == EOF && ferror(file) == 0;
}

/* The model that a round has made is the base of the next. */
static bool load_round(const simulation *sim, dunlin_trainer *trainer, uint64_t round)
{
    char path[FLEET_PATH_BYTES + 64];
    (void)snprintf(path, sizeof path, "%s/server/models/%06" PRIu64 ".weights", sim->server->folder,
                   round + 1);
    FILE *file = fopen(path, "re");
    const bool is_ok = file != NULL && load(trainer, file);
    if (file != NULL) {
        (void)fclose(file);
    }
    return is_ok;
}

static bool make_trainer(const simulation *sim, struct sim_live *live)
{
    dunlin_error error = {0};
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = sim->world->batch;
    options.momentum = (float)sim->flags->momentum;
    options.budget_bytes = sim->costs.rows[0].budget_bytes;
    if (live->trainer == NULL && !live->has_no_trainer) {
        live->has_no_trainer =
            dunlin_trainer_create(sim->world->model, &options, &live->trainer, &error) != DUNLIN_OK;
    }
    return live->trainer != NULL;
}

/* The first devices of each class, as many as have so many examples. */
static bool judge_classes(const simulation *sim, dunlin_trainer *trainer, judgement *out)
{
    int32_t n_full = 0;
    memset(out, 0, sizeof *out);
    for (int64_t i = 0; i < sim->n_clients && n_full < sim->devices.n_classes; i++) {
        const sim_client *client = &sim->clients[i];
        const int32_t class = client->device->class_index;
        const int64_t left = MOST_EXAMPLES - out->n_examples[class];
        dunlin_metrics metrics = {0};
        dunlin_dataset_view view;
        dunlin_source source;
        if (left <= 0) {
            continue;
        }
        if (!sim_client_examples(client, &view, &source) ||
            dunlin_trainer_evaluate(trainer, &source, 0, view.n < left ? view.n : left, &metrics) !=
                DUNLIN_OK) {
            return false;
        }
        out->n_examples[class] += metrics.n_counted;
        out->n_right[class] += llround(metrics.accuracy * (double)metrics.n_counted);
        n_full += out->n_examples[class] >= MOST_EXAMPLES ? 1 : 0;
    }
    return true;
}

/* A model that cannot be judged, say because it has been replaced meanwhile, is passed over. */
static void judge(const simulation *sim, struct sim_live *live, uint64_t round)
{
    judgement made;
    const double begun_ms = clock_ms();
    if (round == 0 || round == live->judged || begun_ms < live->next_ms ||
        !make_trainer(sim, live)) {
        return;
    }
    if (load_round(sim, live->trainer, round) && judge_classes(sim, live->trainer, &made)) {
        live->judged = round;
        live->of_judged = made;
    }
    live->next_ms = clock_ms() + TIMES_AS_LONG * (clock_ms() - begun_ms);
}

static void add_accuracy(const struct sim_live *live, json_t *object)
{
    const judgement *made = &live->of_judged;
    json_t *classes = json_object_get(object, "classes");
    for (size_t i = 0; live->judged > 0 && i < json_array_size(classes); i++) {
        json_t *one = json_array_get(classes, i);
        if (made->n_examples[i] > 0) {
            (void)json_object_set_new(
                one, "accuracy", json_real((double)made->n_right[i] / (double)made->n_examples[i]));
            (void)json_object_set_new(one, "accuracy_examples",
                                      json_integer((json_int_t)made->n_examples[i]));
        }
    }
    (void)json_object_set_new(object, "accuracy_round",
                              live->judged > 0 ? json_integer((json_int_t)live->judged)
                                               : json_null());
}

/* ---- the file ---- */

static int write_piece(const char *text, size_t n, void *ctx)
{
    return fwrite(text, 1, n, ctx) == n ? 0 : -1;
}

/* In its place at once: the server never reads a part of it. Nothing rests on it after a power cut,
 * so it is not synced. */
static void put(const simulation *sim, const json_t *object)
{
    char path[FLEET_PATH_BYTES + 32];
    char beside[FLEET_PATH_BYTES + 32];
    (void)snprintf(path, sizeof path, "%s/" SIM_LIVE, sim->server->folder);
    (void)snprintf(beside, sizeof beside, "%s/" SIM_LIVE ".new", sim->server->folder);
    FILE *file = fopen(beside, "we");
    if (file == NULL) {
        return;
    }
    const bool is_whole = json_dump_callback(object, write_piece, file, JSON_COMPACT) == 0;
    const bool is_closed = fclose(file) == 0;
    if (!is_whole || !is_closed || rename(beside, path) != 0) {
        (void)remove(beside);
    }
}

void sim_live_tell(simulation *sim, const json_t *status)
{
    struct sim_live *live = sim->live;
    const json_t *rounds = json_object_get(status, "rounds");
    const size_t n = json_array_size(rounds);
    if (live == NULL) {
        return;
    }
    judge(sim, live, (uint64_t)n);
    json_t *object = sim_report_now(sim, status, n > MOST_ROUNDS ? n - MOST_ROUNDS : 0);
    if (object != NULL) {
        add_accuracy(live, object);
        put(sim, object);
        json_decref(object);
    }
}
