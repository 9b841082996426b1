/*
 * text_roles.c - sorts a text by the roles that say it.
 *
 * Invariant: roles are in the order in which they first say something, and what each says is in the
 * order of the text.
 */
#include "text.h"

#include <mem/support.h>

#include <string.h>

/* One speech: whose, and where. */
typedef struct role_speech {
    size_t role, first, n;
} role_speech;

typedef struct role_name {
    size_t first, n; /* in the text */
} role_name;

typedef struct role_reader {
    const uint8_t *bytes;
    size_t n;
    const dunlin_alloc *alloc;
    role_speech *speeches;
    size_t n_speeches, speeches_capacity;
    role_name *names;
    size_t n_names, names_capacity;
} role_reader;

/* The first byte past the line at `at`, without its end. */
static size_t line_end(const role_reader *reader, size_t at)
{
    const uint8_t *end = memchr(reader->bytes + at, '\n', reader->n - at);
    return end == NULL ? reader->n : (size_t)(end - reader->bytes);
}

/* The role of a name; n_names: no memory. */
static size_t role_of(role_reader *reader, const role_name *name)
{
    for (size_t i = 0; i < reader->n_names; i++) {
        if (reader->names[i].n == name->n && memcmp(reader->bytes + reader->names[i].first,
                                                    reader->bytes + name->first, name->n) == 0) {
            return i;
        }
    }
    void *names = reader->names;
    const bool is_grown = dunlin__grow_array(reader->alloc, &names, &reader->names_capacity,
                                             reader->n_names + 1, sizeof *reader->names);
    reader->names = names;
    if (!is_grown) {
        return reader->n_names;
    }
    reader->names[reader->n_names] = *name;
    return reader->n_names++;
}

static dunlin_status add_speech(role_reader *reader, const role_speech *speech, dunlin_error *error)
{
    void *speeches = reader->speeches;
    const bool is_grown = dunlin__grow_array(reader->alloc, &speeches, &reader->speeches_capacity,
                                             reader->n_speeches + 1, sizeof *reader->speeches);
    reader->speeches = speeches;
    if (!is_grown) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for %zu speeches",
                            reader->n_speeches + 1);
    }
    reader->speeches[reader->n_speeches++] = *speech;
    return DUNLIN_OK;
}

/* A block: lines up to an empty one. Without a name at its head it is the last role's. */
static dunlin_status read_block(role_reader *reader, const char *name, size_t first, size_t end,
                                dunlin_error *error)
{
    const size_t head = line_end(reader, first);
    role_speech speech = {.first = first, .n = end - first};
    if (head > first + 1 && reader->bytes[head - 1] == ':') {
        const role_name role = {.first = first, .n = head - 1 - first};
        const size_t n_before = reader->n_names;
        speech.role = role_of(reader, &role);
        if (speech.role == reader->n_names) {
            return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for %zu roles",
                                n_before + 1);
        }
        if (reader->n_names > DUNLIN_TEXT_MOST_ROLES) {
            return dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                                "%s: more than %d roles; that is the limit", name,
                                DUNLIN_TEXT_MOST_ROLES);
        }
        speech.first = head < end ? head + 1 : end;
        speech.n = end - speech.first;
    } else if (reader->n_speeches == 0) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s does not begin with a role's name and a colon on a line", name);
    } else {
        speech.role = reader->speeches[reader->n_speeches - 1].role;
    }
    return add_speech(reader, &speech, error);
}

static dunlin_status read_blocks(role_reader *reader, const char *name, dunlin_error *error)
{
    size_t at = 0;
    while (at < reader->n) {
        size_t end = line_end(reader, at);
        if (end == at) { /* an empty line */
            at = end + 1;
            continue;
        }
        const size_t first = at;
        while (end + 1 < reader->n && reader->bytes[end + 1] != '\n') {
            end = line_end(reader, end + 1);
        }
        DUNLIN_TRY(read_block(reader, name, first, end, error));
        at = end + 1;
    }
    return reader->n_speeches > 0
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_DATA, "data", 0, "%s is empty", name);
}

static dunlin_status sort_speeches(const role_reader *reader, dunlin_text *text,
                                   dunlin_error *error)
{
    text->n_roles = reader->n_names;
    text->starts_capacity = text->n_roles + 1;
    text->capacity = reader->n + reader->n_speeches;
    text->ends_capacity = reader->n_speeches;
    text->ends = dunlin__alloc_array(reader->alloc, text->ends_capacity, sizeof *text->ends);
    text->starts = dunlin__alloc_array(reader->alloc, text->starts_capacity, sizeof *text->starts);
    text->bytes = dunlin__alloc_array(reader->alloc, text->capacity, 1);
    if (text->starts == NULL || text->bytes == NULL || text->ends == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for %zu bytes of text",
                            text->capacity);
    }
    for (size_t role = 0; role < text->n_roles; role++) {
        text->starts[role] = text->n;
        for (size_t i = 0; i < reader->n_speeches; i++) {
            const role_speech *speech = &reader->speeches[i];
            if (speech->role != role || speech->n == 0) {
                continue;
            }
            memcpy(text->bytes + text->n, reader->bytes + speech->first, speech->n);
            text->n += speech->n;
            text->bytes[text->n++] = '\n';
            text->ends[text->n_speeches++] = text->n;
        }
    }
    text->starts[text->n_roles] = text->n;
    return DUNLIN_OK;
}

dunlin_status dunlin__text_by_roles(const char *name, const uint8_t *bytes, size_t n,
                                    const dunlin_alloc *alloc, dunlin_text *out_text,
                                    dunlin_error *error)
{
    role_reader reader = {.bytes = bytes, .n = n, .alloc = alloc};
    *out_text = (dunlin_text){.alloc = *alloc};
    dunlin_status status = DUNLIN_OK;
    if (n > 0 && memchr(bytes, 0, n) != NULL) {
        status =
            dunlin__fail(error, DUNLIN_DATA, "data", 0, "%s has a byte of 0: it is no text", name);
    }
    status = status == DUNLIN_OK ? read_blocks(&reader, name, error) : status;
    status = status == DUNLIN_OK ? sort_speeches(&reader, out_text, error) : status;
    dunlin__free_array(alloc, reader.speeches, reader.speeches_capacity, sizeof *reader.speeches);
    dunlin__free_array(alloc, reader.names, reader.names_capacity, sizeof *reader.names);
    if (status != DUNLIN_OK) {
        dunlin__text_free(out_text);
    }
    return status;
}

void dunlin__text_free(dunlin_text *text)
{
    dunlin__free_array(&text->alloc, text->bytes, text->capacity, 1);
    dunlin__free_array(&text->alloc, text->starts, text->starts_capacity, sizeof *text->starts);
    dunlin__free_array(&text->alloc, text->ends, text->ends_capacity, sizeof *text->ends);
    text->ends = NULL;
    text->bytes = NULL;
    text->starts = NULL;
}
