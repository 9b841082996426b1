/*
 * agree.c - what the ranks of a run must have in common.
 *
 * Invariant: a run begins on all ranks or on none.
 */
#include "agree.h"

#include <dunlin/trainer_advanced.h>
#include <mem/support.h>
#include <wire/digest.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOKED_AT 256 /* examples whose bytes are compared */

/* What a rank says of itself, in texts that can be shown. */
typedef struct statement {
    char build[96];
    char isa[32];
    char seed[32];
    char data[DUNLIN_SHA256_HEX_BYTES];
    char task[DUNLIN_SHA256_HEX_BYTES];
} statement;

const char *agree_build(void)
{
    return DUNLIN_COMMIT;
}

/* Adds some examples as they are read, all of them the same distance apart. */
static dunlin_status hash_examples(const dunlin_source *source, size_t example_bytes,
                                   size_t n_labels, dunlin__sha256 *hash)
{
    uint8_t *example = malloc(example_bytes);
    int32_t *labels = malloc(n_labels * sizeof *labels);
    const int64_t n = source->n_examples < LOOKED_AT ? source->n_examples : LOOKED_AT;
    dunlin_status status = example != NULL && labels != NULL ? DUNLIN_OK : DUNLIN_MEMORY;
    for (int64_t i = 0; i < n && status == DUNLIN_OK; i++) {
        const int64_t index = i * (source->n_examples / n);
        status = source->read_fn(source->ctx, &index, 1, example, labels);
        if (status == DUNLIN_OK) {
            status = dunlin__sha256_update(hash, example, example_bytes, NULL);
        }
    }
    free(example);
    free(labels);
    return status;
}

/* Of the training split: its shape, every label, some examples. */
static dunlin_status hash_data(const dunlin_dataset *data, char out_hex[DUNLIN_SHA256_HEX_BYTES])
{
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    dunlin__sha256 hash;
    dunlin_source source;
    int64_t n_elements = 0;
    const dunlin_shape shape = dunlin_dataset_shape(data);
    dunlin_dataset_source(data, &source);
    DUNLIN_TRY(dunlin_shape_count(&shape, &n_elements));
    DUNLIN_TRY(dunlin__sha256_begin(&hash, NULL));
    dunlin_status status =
        dunlin__sha256_update(&hash, &source.n_examples, sizeof source.n_examples, NULL);
    for (int64_t i = 0; i < source.n_examples && status == DUNLIN_OK; i++) {
        const int32_t label = dunlin_dataset_label(data, i);
        status = dunlin__sha256_update(&hash, &label, sizeof label, NULL);
    }
    if (status == DUNLIN_OK && source.n_examples > 0) {
        status = hash_examples(&source, (size_t)n_elements * dunlin_dtype_bytes(source.dtype),
                               (size_t)dunlin_dataset_n_labels(data), &hash);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__sha256_end(&hash, sha256, NULL);
    } else {
        dunlin__sha256_abort(&hash);
    }
    dunlin__hex_encode(sha256, sizeof sha256, out_hex);
    return status;
}

static dunlin_status hash_file(const dunlin__memory *rounds, char out_hex[DUNLIN_SHA256_HEX_BYTES])
{
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    uint8_t *bytes = NULL;
    size_t n = 0;
    const dunlin__server *server = &rounds->server;
    DUNLIN_TRY(dunlin__server_file_read(&server->alloc, server->options.task_file, 1U << 20, &bytes,
                                        &n, NULL));
    const dunlin_status status = dunlin__sha256_of(bytes, n, sha256, NULL);
    dunlin__free_array(&server->alloc, bytes, n + 1, 1);
    dunlin__hex_encode(sha256, sizeof sha256, out_hex);
    return status;
}

static dunlin_status make_statement(const fleet_flags *flags, const fleet_world *world,
                                    const dunlin__memory *rounds, statement *out)
{
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_error error = {0};
    memset(out, 0, sizeof *out);
    options.batch = world->batch;
    (void)snprintf(out->build, sizeof out->build, "%s", agree_build());
    (void)snprintf(out->seed, sizeof out->seed, "%" PRIu64, flags->seed);
    DUNLIN_TRY(dunlin_trainer_estimate(world->model, &options, &report, &error));
    (void)snprintf(out->isa, sizeof out->isa, "%s", report.isa);
    DUNLIN_TRY(hash_data(world->dataset, out->data));
    return hash_file(rounds, out->task);
}

/* The first difference of two statements; NULL: there is none. */
static const char *find_difference(const statement *a, const statement *b, const char **out_a,
                                   const char **out_b)
{
    const struct {
        const char *name;
        const char *first;
        const char *second;
    } rows[] = {{"build", a->build, b->build},
                {"instruction set", a->isa, b->isa},
                {"seed", a->seed, b->seed},
                {"data set, by its hash,", a->data, b->data},
                {"task, by its hash,", a->task, b->task}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].first, rows[i].second) != 0) {
            *out_a = rows[i].first;
            *out_b = rows[i].second;
            return rows[i].name;
        }
    }
    return NULL;
}

static int compare_all(const ranks *processes, const statement *all)
{
    const char *first = "";
    const char *other = "";
    for (int32_t i = 1; i < ranks_count(processes); i++) {
        const char *name = find_difference(&all[0], &all[i], &first, &other);
        if (name != NULL && ranks_is_first(processes)) {
            return program_fail(&fleet_program,
                                "rank %d of mpirun has another %s than rank 0: %.64s, not %.64s",
                                (int)i, name, other, first);
        }
        if (name != NULL) {
            return EXIT_FAILED; /* rank 0 says so */
        }
    }
    return EXIT_OK;
}

int agree_on_run(ranks *processes, const fleet_flags *flags, const fleet_world *world,
                 const dunlin__memory *rounds)
{
    statement own;
    const size_t n = (size_t)ranks_count(processes);
    if (n == 1) {
        return EXIT_OK;
    }
    const dunlin_status status = make_statement(flags, world, rounds, &own);
    statement *all = calloc(n, sizeof *all);
    if (all == NULL || status != DUNLIN_OK) {
        free(all);
        return program_fail(&fleet_program, "rank %d: no hash of data and task: %s",
                            (int)ranks_index(processes), dunlin_status_text(status));
    }
    (void)ranks_gather(processes, &own, sizeof own, all, n * sizeof *all);
    const int exit_status = compare_all(processes, all);
    (void)ranks_highest(processes,
                        exit_status); /* the line has been printed before any rank ends */
    free(all);
    return exit_status;
}
