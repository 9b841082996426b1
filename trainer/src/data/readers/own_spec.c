/*
 * own_spec.c - the names of data sets of a user's own files, and tables of names in them.
 */
#include "data/common/own.h"
#include "own_rows.h"

#include <mem/support.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* "20%" */
static bool read_share(const char *text, double *out_share)
{
    double value = 0.0;
    const size_t n = strlen(text);
    double place = 0.0;
    for (size_t i = 0; i + 1 < n; i++) {
        if (text[i] == '.' && place == 0.0) {
            place = 1.0;
            continue;
        }
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        place = place / 10.0;
        value = place > 0.0 ? value + place * (text[i] - '0') : value * 10.0 + (text[i] - '0');
    }
    *out_share = value / 100.0;
    return n >= 2 && text[n - 1] == '%' && value > 0.0 && value < 100.0;
}

static dunlin_status read_key(dunlin_own_spec *spec, char *piece, char *value, dunlin_error *error)
{
    const size_t n = (size_t)(value - piece);
    *value = '\0';
    value++;
    if (strcmp(piece, "label") == 0) {
        spec->label = value;
    } else if (strcmp(piece, "client") == 0) {
        spec->client = value;
    } else if (strcmp(piece, "test") == 0) {
        spec->test = read_share(value, &spec->share) ? NULL : value;
    } else if (strcmp(piece, "inputs") == 0) {
        char *end = NULL;
        errno = 0;
        const long given = strtol(value, &end, 10);
        if (*value < '0' || *value > '9' || *end != '\0' || errno != 0 || given < 1 ||
            given > DUNLIN_OWN_MAX_INPUTS) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                                "inputs=%.40s: expected a whole number from 1 to %d", value,
                                DUNLIN_OWN_MAX_INPUTS);
        }
        spec->n_inputs = (int32_t)given;
    } else if (strcmp(piece, "seed") == 0) {
        char *end = NULL;
        errno = 0;
        spec->seed = strtoull(value, &end, 10);
        if (*value < '0' || *value > '9' || *end != '\0' || errno != 0) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                                "seed=%.40s: expected a whole number", value);
        }
    } else {
        return dunlin__fail(
            error, DUNLIN_ARGUMENT, "data", 0,
            "%.*s= of a data set: known are test=, seed=, inputs=, label= and client=",
            n < 40 ? (int)n : 40, piece);
    }
    return value[0] != '\0' ? DUNLIN_OK
                            : dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                                           "%.40s= of a data set is empty", piece);
}

static dunlin_status read_pieces(dunlin_own_spec *spec, dunlin_error *error)
{
    for (char *piece = spec->text; piece != NULL;) {
        char *comma = strchr(piece, ',');
        if (comma != NULL) {
            *comma = '\0';
        }
        char *value = strchr(piece, '=');
        const bool is_key = value != NULL && memchr(piece, '/', (size_t)(value - piece)) == NULL;
        if (is_key) {
            DUNLIN_TRY(read_key(spec, piece, value, error));
        } else if (piece[0] == '\0' || spec->n_files == DUNLIN_OWN_MAX_FILES) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                                "the name of a data set: a file's name is empty, or there are "
                                "more than %d",
                                DUNLIN_OWN_MAX_FILES);
        } else {
            spec->files[spec->n_files++] = piece;
        }
        piece = comma == NULL ? NULL : comma + 1;
    }
    return spec->n_files > 0
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                              "the name of a data set names 0 files; it takes 1 to %d",
                              DUNLIN_OWN_MAX_FILES);
}

dunlin_status dunlin__own_parse(const dunlin_alloc *alloc, const char *text,
                                dunlin_own_spec *out_spec, dunlin_error *error)
{
    *out_spec = (dunlin_own_spec){.text_bytes = strlen(text) + 1, .share = DUNLIN_OWN_SHARE};
    out_spec->text = dunlin__alloc_array(alloc, out_spec->text_bytes, 1);
    if (out_spec->text == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for a name");
    }
    memcpy(out_spec->text, text, out_spec->text_bytes);
    const dunlin_status status = read_pieces(out_spec, error);
    if (status != DUNLIN_OK) {
        dunlin__own_free(alloc, out_spec);
    }
    return status;
}

void dunlin__own_free(const dunlin_alloc *alloc, dunlin_own_spec *spec)
{
    dunlin__free_array(alloc, spec->text, spec->text_bytes, 1);
    spec->text = NULL;
}

/* Its place, or that where it belongs; whether it is there. */
static bool find(const dunlin_own_names *names, const char *name, size_t *out_at)
{
    size_t low = 0;
    size_t high = names->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(names->names[middle], name);
        if (order == 0) {
            *out_at = middle;
            return true;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    *out_at = low;
    return false;
}

dunlin_status dunlin__own_names_add(const dunlin_alloc *alloc, dunlin_own_names *names,
                                    const char *name, size_t most, const char *what,
                                    dunlin_error *error)
{
    size_t at = 0;
    if (find(names, name, &at)) {
        return DUNLIN_OK;
    }
    if (names->n == most) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0, "more than %zu different %s", most,
                            what);
    }
    void *array = names->names;
    char *copy = NULL;
    const bool is_grown =
        dunlin__grow_array(alloc, &array, &names->capacity, names->n + 1, sizeof *names->names);
    names->names = array;
    if (!is_grown || !dunlin__copy_text(alloc, name, &copy)) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for the names of %s", what);
    }
    memmove(names->names + at + 1, names->names + at, (names->n - at) * sizeof *names->names);
    names->names[at] = copy;
    names->n++;
    return DUNLIN_OK;
}

int64_t dunlin__own_names_find(const dunlin_own_names *names, const char *name)
{
    size_t at = 0;
    return find(names, name, &at) ? (int64_t)at : -1;
}

void dunlin__own_names_free(const dunlin_alloc *alloc, dunlin_own_names *names)
{
    for (size_t i = 0; i < names->n; i++) {
        dunlin__free_text(alloc, names->names[i]);
    }
    dunlin__free_array(alloc, names->names, names->capacity, sizeof *names->names);
    *names = (dunlin_own_names){.n = 0};
}
