/*
 * holdout.c - a validation split: some examples of a training split that are not trained on.
 *
 * Invariant: which examples are held out follows from the number of examples, whose they are, and
 * dunlin_validation, so that all programs, and a run that is resumed, have the same split. Both
 * parts stay in the set's order.
 */
#include "data/common/data.h"

#include <mem/sized.h>
#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

/* Of a SplitMix64 generator, in [0, 1): Steele, Lea, Flood, "Fast splittable pseudorandom number
 * generators", OOPSLA 2014. */
static double next_unit(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15U;
    uint64_t mixed = *state;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
    return (double)((mixed ^ (mixed >> 31)) >> 11) / 9007199254740992.0;
}

/* Draws n_wanted of n things, each with the share of what is still wanted among those left. */
static void draw(uint64_t seed, int64_t n, int64_t n_wanted, uint8_t *out_is_held)
{
    uint64_t state = seed;
    for (int64_t i = 0; i < n; i++) {
        out_is_held[i] = next_unit(&state) * (double)(n - i) < (double)n_wanted;
        n_wanted -= out_is_held[i];
    }
}

static int64_t share_of(double share, int64_t n)
{
    return (int64_t)(share * (double)n + 0.5);
}

/* Clients one after the other in a drawn order, until there are so many examples. */
static dunlin_status draw_clients_until(const dunlin_dataset *set, const dunlin_validation *how,
                                        uint8_t *out_is_held, dunlin_error *error)
{
    const size_t n = (size_t)set->n_clients;
    int64_t *order = dunlin__alloc_array(&set->alloc, n, sizeof *order);
    int64_t *counts = dunlin__alloc_zeroed(&set->alloc, n, sizeof *counts);
    const bool has_memory = order != NULL && counts != NULL;
    uint64_t state = how->seed;
    for (int64_t i = 0; has_memory && i < set->n; i++) {
        counts[set->clients[i]]++;
    }
    for (size_t i = 0; has_memory && i < n; i++) {
        const size_t at = (size_t)(next_unit(&state) * (double)(i + 1));
        order[i] = order[at];
        order[at] = (int64_t)i;
    }
    int64_t n_held = 0;
    for (size_t i = 0; has_memory && i < n && n_held < how->n_examples; i++) {
        out_is_held[order[i]] = 1;
        n_held += counts[order[i]];
    }
    dunlin__free_array(&set->alloc, counts, n, sizeof *counts);
    dunlin__free_array(&set->alloc, order, n, sizeof *order);
    return has_memory ? DUNLIN_OK
                      : dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                                     "no memory to draw from %zu clients", n);
}

static dunlin_status draw_clients(const dunlin_dataset *set, const dunlin_validation *how,
                                  uint8_t *out_is_held, dunlin_error *error)
{
    if (set->clients == NULL) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                            "%s does not say who its examples come from: no whole clients can be "
                            "held out",
                            set->title);
    }
    const size_t n = (size_t)set->n_clients;
    uint8_t *is_held = dunlin__alloc_zeroed(&set->alloc, n, sizeof *is_held);
    if (is_held == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory to draw from %zu clients",
                            n);
    }
    dunlin_status status = DUNLIN_OK;
    if (how->n_examples > 0) {
        status = draw_clients_until(set, how, is_held, error);
    } else {
        draw(how->seed, set->n_clients, share_of(how->share, set->n_clients), is_held);
    }
    for (int64_t i = 0; i < set->n; i++) {
        out_is_held[i] = is_held[set->clients[i]];
    }
    dunlin__free_array(&set->alloc, is_held, n, sizeof *is_held);
    return status;
}

/* Marks what is held out; *out_n_train examples are not. */
static dunlin_status mark(const dunlin_dataset *set, const dunlin_validation *how,
                          uint8_t *out_is_held, int64_t *out_n_train, dunlin_error *error)
{
    const bool has_share = how->n_examples == 0;
    if (how->n_examples < 0 || (has_share && !(how->share > 0.0 && how->share < 1.0))) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "validation of share %g and %" PRId64
                            " examples: the share must be above 0 and below 1, the number not "
                            "negative",
                            how->share, how->n_examples);
    }
    const int64_t n_wanted = has_share ? share_of(how->share, set->n) : how->n_examples;
    if (how->by_client) {
        DUNLIN_TRY(draw_clients(set, how, out_is_held, error));
    } else if (n_wanted < set->n) {
        draw(how->seed, set->n, n_wanted, out_is_held);
    } else {
        memset(out_is_held, 1, (size_t)set->n);
    }
    *out_n_train = 0;
    for (int64_t i = 0; i < set->n; i++) {
        *out_n_train += out_is_held[i] == 0 ? 1 : 0;
    }
    if (*out_n_train == 0 || *out_n_train == set->n) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s: holding out %" PRId64 " of %" PRId64
                            " examples leaves none to train on, or none to evaluate",
                            set->title, set->n - *out_n_train, set->n);
    }
    return DUNLIN_OK;
}

static uint8_t *alloc_marks(const dunlin_dataset *set, dunlin_error *error)
{
    uint8_t *is_held = dunlin__alloc_zeroed(&set->alloc, (size_t)set->n, sizeof *is_held);
    if (is_held == NULL) {
        (void)dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                           "no memory to draw from %" PRId64 " examples", set->n);
    }
    return is_held;
}

dunlin_status dunlin_dataset_hold_out(const dunlin_dataset *dataset,
                                      const dunlin_validation *validation, int64_t *out_indices,
                                      int64_t *out_n_train, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (dataset == NULL || validation == NULL || out_indices == NULL || out_n_train == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "data", 0, "%s is NULL",
                            dataset == NULL       ? "dataset"
                            : validation == NULL  ? "validation"
                            : out_indices == NULL ? "out_indices"
                                                  : "out_n_train");
    }
    dunlin_validation how = DUNLIN_VALIDATION_INIT;
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_validation, validation, &how, out_error));
    uint8_t *is_held = alloc_marks(dataset, out_error);
    if (is_held == NULL) {
        return DUNLIN_MEMORY;
    }
    const dunlin_status status = mark(dataset, &how, is_held, out_n_train, out_error);
    int64_t at[2] = {0, *out_n_train};
    for (int64_t i = 0; status == DUNLIN_OK && i < dataset->n; i++) {
        out_indices[at[is_held[i]]++] = i;
    }
    dunlin__free_array(&dataset->alloc, is_held, (size_t)dataset->n, sizeof *is_held);
    return status;
}

/* What is kept of an array, in a new one. */
static void copy_kept(const dunlin_dataset *set, const void *old, void *fresh, size_t each,
                      const uint8_t *marks, uint8_t wanted)
{
    size_t n = 0;
    for (int64_t i = 0; i < set->n; i++) {
        if (marks[i] == wanted) {
            memcpy((uint8_t *)fresh + n * each, (const uint8_t *)old + (size_t)i * each, each);
            n++;
        }
    }
}

/* The clients that are left are numbered from 0, in the order they had. */
static dunlin_status number_clients(dunlin_dataset *set, dunlin_error *error)
{
    const size_t n = (size_t)set->n_clients;
    int32_t *numbers = dunlin__alloc_zeroed(&set->alloc, n, sizeof *numbers);
    if (numbers == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory to number %zu clients", n);
    }
    for (int64_t i = 0; i < set->n; i++) {
        numbers[set->clients[i]] = 1;
    }
    int32_t n_left = 0;
    for (size_t client = 0; client < n; client++) {
        const int32_t is_left = numbers[client];
        numbers[client] = n_left;
        n_left += is_left;
    }
    for (int64_t i = 0; i < set->n; i++) {
        set->clients[i] = numbers[set->clients[i]];
    }
    set->n_clients = n_left;
    dunlin__free_array(&set->alloc, numbers, n, sizeof *numbers);
    return DUNLIN_OK;
}

/* Only the n_kept examples that are marked so stay in the set. */
static dunlin_status shorten(dunlin_dataset *set, const uint8_t *marks, uint8_t wanted,
                             int64_t n_kept, dunlin_error *error)
{
    void *old[3] = {set->pixels, set->labels, set->clients};
    void *fresh[3] = {NULL, NULL, NULL};
    const size_t each[3] = {dunlin__data_stored_bytes(set), sizeof *set->labels,
                            sizeof *set->clients};
    bool has_memory = true;
    for (size_t a = 0; a < 3; a++) {
        if (old[a] != NULL) {
            fresh[a] = dunlin__alloc_array(&set->alloc, (size_t)n_kept, each[a]);
            has_memory = has_memory && fresh[a] != NULL;
        }
    }
    for (size_t a = 0; a < 3; a++) {
        if (has_memory && old[a] != NULL) {
            copy_kept(set, old[a], fresh[a], each[a], marks, wanted);
            dunlin__free_array(&set->alloc, old[a], (size_t)set->n, each[a]);
        } else {
            dunlin__free_array(&set->alloc, fresh[a], (size_t)n_kept, each[a]);
        }
    }
    if (!has_memory) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for %" PRId64 " examples",
                            n_kept);
    }
    set->pixels = fresh[0];
    set->labels = fresh[1];
    set->clients = fresh[2];
    return DUNLIN_OK;
}

dunlin_status dunlin__data_hold_out(dunlin_dataset *set, const dunlin_data_request *request,
                                    bool is_validation, dunlin_error *error)
{
    const size_t n = (size_t)set->n;
    uint8_t *is_held = alloc_marks(set, error);
    if (is_held == NULL) {
        return DUNLIN_MEMORY;
    }
    int64_t n_train = 0;
    dunlin_status status = mark(set, &request->validation, is_held, &n_train, error);
    const int64_t n_kept = is_validation ? set->n - n_train : n_train;
    const uint8_t wanted = is_validation ? 1 : 0;
    int64_t *chosen = NULL;
    if (status == DUNLIN_OK && set->maker != NULL) {
        chosen = dunlin__alloc_array(&set->alloc, (size_t)n_kept, sizeof *chosen);
        status = chosen != NULL ? DUNLIN_OK
                                : dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                                               "no memory for %" PRId64 " indices", n_kept);
    }
    if (status == DUNLIN_OK) {
        status = shorten(set, is_held, wanted, n_kept, error);
    }
    for (int64_t i = 0, at = 0; status == DUNLIN_OK && chosen != NULL && i < (int64_t)n; i++) {
        if (is_held[i] == wanted) {
            chosen[at++] = i;
        }
    }
    if (status == DUNLIN_OK) {
        set->n = n_kept;
        set->chosen = chosen;
    } else {
        dunlin__free_array(&set->alloc, chosen, (size_t)n_kept, sizeof *chosen);
    }
    if (status == DUNLIN_OK && set->clients != NULL) {
        status = number_clients(set, error);
    }
    dunlin__free_array(&set->alloc, is_held, n, sizeof *is_held);
    return status;
}
