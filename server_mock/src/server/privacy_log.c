/*
 * privacy_log.c - what a folder of state says that its rounds have cost, reckoned again.
 *
 * Invariant: nothing but the terms and the list of closed rounds goes into the answer.
 */
#include "privacy_log.h"

#include "base/files.h"
#include "privacy/ask.h"
#include "privacy/terms.h"
#include "rounds/private.h"
#include "state/db.h"

#include <mem/support.h>

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Both are reckoned by the same program, so they differ where something else was written. */
#define SAME 1e-9

/* The closed rounds as they are read. */
typedef struct log_reader {
    uint64_t n_closed;
    uint64_t n_bare; /* without an epsilon */
    double epsilon;  /* of the last one */
} log_reader;

static dunlin_status take_round(void *ctx, const dunlin__round_row *row)
{
    log_reader *reader = ctx;
    if (row->state == DUNLIN_ROUND_CLOSED) {
        reader->n_closed++;
        reader->n_bare += row->is_private ? 0 : 1;
        reader->epsilon = row->epsilon;
    }
    return DUNLIN_OK;
}

/* What the folder says; the texts hold DUNLIN_TERMS_BYTES. */
static dunlin_status read_log(const char *folder, const dunlin_alloc *alloc, log_reader *reader,
                              char *terms, char *noise, dunlin_error *error)
{
    dunlin__server_path path;
    dunlin__server_db *db = NULL;
    DUNLIN_TRY(dunlin__server_path_make(&path, error, "%s/server.db", folder));
    if (dunlin__server_file_size(path.text) < 0) {
        return dunlin__fail(error, DUNLIN_IO, "privacy", 0, "%.160s holds no server's state",
                            folder);
    }
    DUNLIN_TRY(dunlin__server_db_open(path.text, alloc, &db, error));
    dunlin_status status =
        dunlin__server_db_get_term(db, "privacy", terms, DUNLIN_TERMS_BYTES, error);
    if (status == DUNLIN_OK) {
        status = dunlin__server_db_get_term(db, "noise", noise, DUNLIN_TERMS_BYTES, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__server_db_each_round(db, take_round, reader, error);
    }
    dunlin__server_db_close(db);
    return status;
}

static dunlin_status tell(const dunlin__privacy_question *asked,
                          const dunlin__privacy_answer *answer, const char *terms, bool is_private,
                          char **out_text, dunlin_error *error)
{
    char *plain = dunlin__privacy_tell(asked, answer);
    json_t *object = plain != NULL ? json_loads(plain, 0, NULL) : NULL;
    free(plain);
    (void)json_object_set_new(object, "private", json_boolean(is_private));
    (void)json_object_set_new(object, "terms", json_string(terms));
    *out_text =
        object != NULL ? json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(object);
    return *out_text != NULL
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_MEMORY, "privacy", 0, "no memory for the answer");
}

dunlin_status dunlin__privacy_log(const char *folder, const dunlin_alloc *alloc, char **out_text,
                                  dunlin_error *error)
{
    char terms[DUNLIN_TERMS_BYTES] = "";
    char noise[DUNLIN_TERMS_BYTES] = "";
    log_reader reader = {0};
    dunlin__privacy_question asked;
    dunlin__privacy_answer answer;
    DUNLIN_TRY(read_log(folder, alloc, &reader, terms, noise, error));
    if (terms[0] == 0 || reader.n_closed == 0) {
        return dunlin__fail(error, DUNLIN_STATE, "privacy", 0,
                            "%.120s has %" PRIu64 " closed rounds and %s", folder, reader.n_closed,
                            terms[0] == 0 ? "no noise" : "has released nothing");
    }
    DUNLIN_TRY(dunlin__privacy_read(terms, &asked, error));
    DUNLIN_TRY(dunlin__privacy_spent(&asked, reader.n_closed, alloc, &answer, error));
    if (reader.n_bare > 0 ||
        !(fabs(answer.epsilon - reader.epsilon) <= SAME * (1 + answer.epsilon))) {
        return dunlin__fail(error, DUNLIN_DATA, "privacy", 0,
                            "%.80s: its %" PRIu64 " rounds say epsilon %.9g (%" PRIu64
                            " say none), and their terms give %.9g",
                            folder, reader.n_closed, reader.epsilon, reader.n_bare, answer.epsilon);
    }
    asked.n_rounds = reader.n_closed;
    return tell(&asked, &answer, terms, strcmp(noise, DUNLIN_NOISE_SECRET) == 0, out_text, error);
}
