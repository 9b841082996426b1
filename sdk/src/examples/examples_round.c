/*
 * examples_round.c - what rounds take from the example store: the choice, its reading, its end.
 *
 * Invariant: a choice is made once for an assignment and is on the storage before anything is read
 * of it; whatever is added, or removed by a limit, afterwards, positions and contents stay.
 */
#include "examples.h"

#include <string.h>

#define DEFAULT_CLIENT "default"

/* The rule that names the task, else the one for all others; NULL: the app allows nothing. */
static const dunlin__examples_rule *find_rule(const dunlin_examples *examples, const char *task)
{
    const dunlin__examples_rule *any = NULL;
    for (int32_t i = 0; i < examples->n_rules; i++) {
        const dunlin__examples_rule *rule = &examples->rules[i];
        if (rule->task == NULL) {
            any = any == NULL ? rule : any;
        } else if (strcmp(rule->task, task) == 0) {
            return rule;
        }
    }
    return any;
}

/* Made since then, at most so old for the rule and for the store. */
static int64_t since_ms(const dunlin_examples *examples, const dunlin__examples_rule *rule)
{
    int64_t most_ms = rule->max_age_ms > 0 ? rule->max_age_ms : INT64_MAX;
    if (examples->max_age_ms > 0 && examples->max_age_ms < most_ms) {
        most_ms = examples->max_age_ms;
    }
    int64_t now_ms = examples->wall_ms_fn(examples->wall_ctx);
    return most_ms < now_ms ? now_ms - most_ms : 0;
}

/* An id's side never changes, and of any run of ids the share is nearly exact: multiples of the
 * golden ratio (Knuth, The Art of Computer Programming, vol. 3, section 6.4). */
static bool is_held_out(const dunlin__examples_rule *rule, int64_t id)
{
    uint64_t place = ((uint64_t)id * 0x9E3779B97F4A7C15U) >> 32;
    return (int64_t)(place % 100U) < rule->hold_out_percent;
}

/* The candidates of one side, in their order. */
typedef struct dunlin__walk {
    const dunlin__examples_rule *rule;
    int64_t most; /* of both sides together: the newest */
    bool wants_held_out;
    const char *client; /* they are noted for it; NULL: counted alone */
    int64_t position;   /* of the next */
} dunlin__walk;

static dunlin_status take_candidate(dunlin_examples *examples, dunlin__walk *walk, int64_t id,
                                    dunlin_error *error)
{
    if (is_held_out(walk->rule, id) != walk->wants_held_out) {
        return DUNLIN_OK;
    }
    int64_t position = walk->position++;
    if (walk->client == NULL) {
        return DUNLIN_OK;
    }
    sqlite3_stmt *add =
        dunlin__examples_bind(examples, DUNLIN_EXAMPLES_ADD_CHOSEN, walk->client, position);
    (void)sqlite3_bind_int64(add, 3, id);
    return dunlin__examples_do(examples, DUNLIN_EXAMPLES_ADD_CHOSEN, error);
}

/* Row by row, so that a choice of any size takes no memory. */
static dunlin_status walk_candidates(dunlin_examples *examples, dunlin__walk *walk,
                                     dunlin_error *error)
{
    sqlite3_stmt *candidates =
        dunlin__examples_bind(examples, DUNLIN_EXAMPLES_CANDIDATES, walk->rule->collection,
                              since_ms(examples, walk->rule));
    (void)sqlite3_bind_int64(candidates, 3, walk->most);
    dunlin_status status = DUNLIN_OK;
    bool has_row = true;
    while (status == DUNLIN_OK && has_row) {
        status = dunlin__examples_step(examples, DUNLIN_EXAMPLES_CANDIDATES, &has_row, error);
        if (status == DUNLIN_OK && has_row) {
            status = take_candidate(examples, walk, sqlite3_column_int64(candidates, 0), error);
        }
    }
    dunlin__examples_leave(examples, DUNLIN_EXAMPLES_CANDIDATES);
    return status;
}

/* Those to train on, then those held out; noted for `client`, or counted if that is NULL. */
static dunlin_status walk_parts(dunlin_examples *examples, const dunlin__examples_rule *rule,
                                int64_t most, const char *client, dunlin__examples_parts *out_parts,
                                dunlin_error *error)
{
    dunlin__walk walk = {.rule = rule, .most = most, .client = client};
    *out_parts = (dunlin__examples_parts){0};
    DUNLIN_TRY(walk_candidates(examples, &walk, error));
    out_parts->n_chosen = walk.position;
    if (rule->hold_out_percent > 0) {
        walk.wants_held_out = true;
        DUNLIN_TRY(walk_candidates(examples, &walk, error));
        out_parts->n_held_out = walk.position - out_parts->n_chosen;
    }
    return DUNLIN_OK;
}

/* All the rule allows, without looking at each. */
static dunlin_status count_all(dunlin_examples *examples, const dunlin__examples_rule *rule,
                               int64_t most, int64_t *out_n, dunlin_error *error)
{
    bool has_row = false;
    sqlite3_stmt *statement = dunlin__examples_bind(examples, DUNLIN_EXAMPLES_COUNT,
                                                    rule->collection, since_ms(examples, rule));
    dunlin_status status = dunlin__examples_step(examples, DUNLIN_EXAMPLES_COUNT, &has_row, error);
    int64_t n = has_row ? sqlite3_column_int64(statement, 0) : 0;
    *out_n = n < most ? n : most;
    dunlin__examples_leave(examples, DUNLIN_EXAMPLES_COUNT);
    return status;
}

dunlin_status dunlin__examples_offer(dunlin_examples *examples, const char *task,
                                     bool *out_is_allowed, int64_t *out_n, dunlin_error *error)
{
    const dunlin__examples_rule *rule = find_rule(examples, task);
    dunlin__examples_parts parts = {0};
    dunlin_status status = DUNLIN_OK;
    *out_is_allowed = rule != NULL;
    *out_n = 0;
    if (rule == NULL) {
        return DUNLIN_OK;
    }
    int64_t most = rule->max_examples > 0 ? rule->max_examples : INT64_MAX;
    (void)pthread_mutex_lock(&examples->lock);
    if (rule->hold_out_percent == 0) {
        status = count_all(examples, rule, most, out_n, error);
    } else {
        status = walk_parts(examples, rule, most, NULL, &parts, error);
        *out_n = parts.n_held_out > 0 ? parts.n_chosen : 0; /* a round needs both */
    }
    (void)pthread_mutex_unlock(&examples->lock);
    return status;
}

/* What the store has for a client; called with the lock held. */
static dunlin_status look(dunlin_examples *examples, const char *client, const char *assignment,
                          dunlin__examples_state *out_state, dunlin__examples_parts *out_parts,
                          dunlin_error *error)
{
    bool has_row = false;
    *out_state = DUNLIN_EXAMPLES_NONE;
    *out_parts = (dunlin__examples_parts){0};
    sqlite3_stmt *row = dunlin__examples_bind(examples, DUNLIN_EXAMPLES_CHOICE, client, 0);
    dunlin_status status = dunlin__examples_step(examples, DUNLIN_EXAMPLES_CHOICE, &has_row, error);
    const char *its_assignment = has_row ? (const char *)sqlite3_column_text(row, 0) : NULL;
    if (its_assignment != NULL && strcmp(its_assignment, assignment) == 0) {
        out_parts->n_chosen = sqlite3_column_int64(row, 1);
        out_parts->n_held_out = sqlite3_column_int64(row, 3);
        *out_state =
            sqlite3_column_int(row, 2) != 0 ? DUNLIN_EXAMPLES_BROKEN : DUNLIN_EXAMPLES_WHOLE;
    }
    dunlin__examples_leave(examples, DUNLIN_EXAMPLES_CHOICE);
    return status;
}

dunlin_status dunlin__examples_look(dunlin_examples *examples, const char *client,
                                    const char *assignment, dunlin__examples_state *out_state,
                                    dunlin_error *error)
{
    dunlin__examples_parts parts = {0};
    (void)pthread_mutex_lock(&examples->lock);
    dunlin_status status = look(examples, client, assignment, out_state, &parts, error);
    (void)pthread_mutex_unlock(&examples->lock);
    return status;
}

/* The choice goes first: what is deleted after it breaks nothing. */
static dunlin_status release(dunlin_examples *examples, const char *client, dunlin_error *error)
{
    (void)dunlin__examples_bind(examples, DUNLIN_EXAMPLES_DROP_CHOSEN, client, 0);
    DUNLIN_TRY(dunlin__examples_do(examples, DUNLIN_EXAMPLES_DROP_CHOSEN, error));
    (void)dunlin__examples_bind(examples, DUNLIN_EXAMPLES_DROP_CHOICE, client, 0);
    DUNLIN_TRY(dunlin__examples_do(examples, DUNLIN_EXAMPLES_DROP_CHOICE, error));
    return dunlin__examples_do(examples, DUNLIN_EXAMPLES_DROP_HELD, error);
}

static dunlin_status choose(dunlin_examples *examples, const char *client, const char *assignment,
                            const dunlin__examples_rule *rule, int64_t max_examples,
                            dunlin__examples_parts *out_parts, dunlin_error *error)
{
    DUNLIN_TRY(release(examples, client, error));
    DUNLIN_TRY(dunlin__examples_expire(examples, error));
    int64_t most = rule->max_examples > 0 ? rule->max_examples : INT64_MAX;
    most = max_examples > 0 && max_examples < most ? max_examples : most;
    DUNLIN_TRY(walk_parts(examples, rule, most, client, out_parts, error));
    if (out_parts->n_chosen + out_parts->n_held_out == 0) {
        return dunlin__fail(error, DUNLIN_DATA, "examples", 0,
                            "the store has no example that the app's rule allows this task");
    }
    if (rule->hold_out_percent > 0 && (out_parts->n_chosen == 0 || out_parts->n_held_out == 0)) {
        return dunlin__fail(error, DUNLIN_DATA, "examples", 0,
                            "the rule holds %d percent out, which leaves %lld examples to train on "
                            "and %lld to evaluate on; a round needs one of each",
                            (int)rule->hold_out_percent, (long long)out_parts->n_chosen,
                            (long long)out_parts->n_held_out);
    }
    sqlite3_stmt *add =
        dunlin__examples_bind(examples, DUNLIN_EXAMPLES_ADD_CHOICE, client, out_parts->n_chosen);
    (void)sqlite3_bind_text(add, 3, assignment, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(add, 4, out_parts->n_held_out);
    return dunlin__examples_do(examples, DUNLIN_EXAMPLES_ADD_CHOICE, error);
}

dunlin_status dunlin__examples_choose(dunlin_examples *examples, const char *client,
                                      const char *assignment, const char *task,
                                      int64_t max_examples, dunlin__examples_parts *out_parts,
                                      dunlin_error *error)
{
    const dunlin__examples_rule *rule = find_rule(examples, task);
    dunlin__examples_state state = DUNLIN_EXAMPLES_NONE;
    *out_parts = (dunlin__examples_parts){0};
    if (rule == NULL) {
        return dunlin__fail(error, DUNLIN_REJECTED, "examples", 0,
                            "the app allows the task %.64s no examples", task);
    }
    atomic_store(&examples->read_status, DUNLIN_OK);
    DUNLIN_TRY(dunlin__examples_begin(examples, error));
    dunlin_status status = look(examples, client, assignment, &state, out_parts, error);
    if (status == DUNLIN_OK && state == DUNLIN_EXAMPLES_BROKEN) {
        status =
            dunlin__fail(error, DUNLIN_DATA, "examples", 0,
                         "an example that assignment %.64s trains on has been removed", assignment);
    } else if (status == DUNLIN_OK && state == DUNLIN_EXAMPLES_NONE) {
        status = choose(examples, client, assignment, rule, max_examples, out_parts, error);
    }
    return dunlin__examples_end(examples, status, error);
}

dunlin_status dunlin__examples_release(dunlin_examples *examples, const char *client,
                                       dunlin_error *error)
{
    DUNLIN_TRY(dunlin__examples_begin(examples, error));
    return dunlin__examples_end(examples, release(examples, client, error), error);
}

static dunlin_status take_example(dunlin_examples *examples, int64_t position,
                                  dunlin_example_buffer *buffer, dunlin_error *error)
{
    bool has_row = false;
    sqlite3_stmt *row = examples->statements[DUNLIN_EXAMPLES_READ];
    DUNLIN_TRY(dunlin__examples_step(examples, DUNLIN_EXAMPLES_READ, &has_row, error));
    if (!has_row) {
        return dunlin__fail(error, DUNLIN_DATA, "examples", 0,
                            "example %lld of the round is not in the store, or has been removed",
                            (long long)position);
    }
    const void *bytes = sqlite3_column_blob(row, 1);
    if (bytes == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "examples", 0, "no memory for example %lld",
                            (long long)position);
    }
    buffer->n_bytes = (size_t)sqlite3_column_bytes(row, 1);
    buffer->label = sqlite3_column_int(row, 0);
    bool is_whole = buffer->n_bytes <= buffer->capacity;
    memcpy(buffer->data, bytes, is_whole ? buffer->n_bytes : buffer->capacity);
    return is_whole ? DUNLIN_OK
                    : dunlin__fail(error, DUNLIN_LIMIT, "examples", 0,
                                   "example %lld of the round has %zu bytes, room was for %zu",
                                   (long long)position, buffer->n_bytes, buffer->capacity);
}

dunlin_status dunlin_examples_read(dunlin_examples *examples, const char *client, int64_t position,
                                   dunlin_example_buffer *buffer, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (examples == NULL || buffer == NULL || buffer->data == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "examples", 0, "%s is NULL",
                            examples == NULL ? "examples"
                            : buffer == NULL ? "buffer"
                                             : "data of the buffer");
    }
    buffer->n_bytes = 0;
    buffer->label = 0;
    /* One example at a time under the lock: an app that adds waits no longer than that. */
    (void)pthread_mutex_lock(&examples->lock);
    (void)dunlin__examples_bind(examples, DUNLIN_EXAMPLES_READ,
                                client != NULL ? client : DEFAULT_CLIENT, position);
    dunlin_status status = take_example(examples, position, buffer, out_error);
    dunlin__examples_leave(examples, DUNLIN_EXAMPLES_READ);
    (void)pthread_mutex_unlock(&examples->lock);
    if (status != DUNLIN_OK) {
        atomic_store(&examples->read_status, status);
    }
    return status;
}
