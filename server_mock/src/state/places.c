/*
 * places.c - reads the file of tokens and looks a token up.
 *
 * Invariant: a token itself is neither kept nor put into a text.
 */
#include "places.h"

#include "base/files.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES (16u * 1024u * 1024u)
#define LEAST_HEX 32u    /* digits of 4 bits: 128 */
#define LEAST_BASE64 22u /* characters of 6 bits: 132 */
#define MOST_BYTES 255u  /* of EnrolRequest.invitation */
#define LEAST_KINDS 8u   /* of characters: no token of one letter repeated */
#define DIGEST_PREFIX "sha256:"

typedef struct reader {
    const char *path;
    int64_t n_places;
    int64_t next_place; /* of a line that names none */
    size_t line;
    const dunlin_alloc *alloc;
    dunlin__places *places;
    dunlin_error *error;
} reader;

static dunlin_status fail_line(const reader *read, const char *what)
{
    return dunlin__fail(read->error, DUNLIN_DATA, "places", (int)read->line,
                        "--tokens %.120s: line %zu: %s", read->path, read->line, what);
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool is_letter(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_';
}

/* NULL if the token is long and mixed enough, else what is wrong with it. */
static const char *judge_token(const char *token)
{
    size_t n = strlen(token);
    size_t n_kinds = 0;
    bool is_all_hex = true;
    for (size_t i = 0; i < n; i++) {
        if (!is_letter(token[i])) {
            return "a token has letters, digits, - and _ only";
        }
        is_all_hex = is_all_hex && is_hex(token[i]);
        n_kinds += memchr(token, token[i], i) == NULL ? 1 : 0;
    }
    if (n > MOST_BYTES) {
        return "a token has at most 255 characters";
    }
    if (n < (is_all_hex ? LEAST_HEX : LEAST_BASE64)) {
        return "a token has at least 128 bits: 32 hex digits, or 22 letters and digits";
    }
    return n_kinds < LEAST_KINDS ? "a token is random: this one repeats itself" : NULL;
}

static dunlin_status read_digest(const reader *read, const char *word, uint8_t *out_sha256)
{
    size_t n_prefix = sizeof DIGEST_PREFIX - 1;
    if (strncmp(word, DIGEST_PREFIX, n_prefix) == 0) {
        return dunlin__hex_decode(word + n_prefix, out_sha256, DUNLIN_SHA256_BYTES)
                   ? DUNLIN_OK
                   : fail_line(read, "sha256: wants 64 lower-case hex digits");
    }
    const char *wrong = judge_token(word);
    return wrong != NULL ? fail_line(read, wrong)
                         : dunlin__sha256_of(word, strlen(word), out_sha256, read->error);
}

static dunlin_status read_place(reader *read, const char *word, int64_t *out_place)
{
    if (word == NULL) {
        *out_place = read->next_place;
        read->next_place++;
    } else {
        char *end = NULL;
        errno = 0;
        long long place = strtoll(word, &end, 10);
        if (word[0] < '0' || word[0] > '9' || *end != 0 || errno != 0) {
            return fail_line(read, "after the token comes its place: 0, 1, 2 ...");
        }
        *out_place = place;
    }
    if (*out_place >= read->n_places) {
        return dunlin__fail(read->error, DUNLIN_DATA, "places", (int)read->line,
                            "--tokens %.120s: line %zu: place %lld, but the population has %lld "
                            "places, from 0",
                            read->path, read->line, (long long)*out_place,
                            (long long)read->n_places);
    }
    return DUNLIN_OK;
}

static dunlin_status add_token(reader *read, const dunlin__place_token *token)
{
    dunlin__places *places = read->places;
    void *list = places->tokens;
    bool has_room = dunlin__grow_array(read->alloc, &list, &places->capacity, places->n_tokens + 1,
                                       sizeof *places->tokens);
    places->tokens = list;
    if (!has_room) {
        return dunlin__fail(read->error, DUNLIN_MEMORY, "places", 0, "token %zu",
                            places->n_tokens + 1);
    }
    places->tokens[places->n_tokens] = *token;
    places->n_tokens++;
    return DUNLIN_OK;
}

static int compare_entries(const void *left, const void *right)
{
    const dunlin__place_entry *a = left;
    const dunlin__place_entry *b = right;
    return memcmp(a->sha256, b->sha256, DUNLIN_SHA256_BYTES);
}

/* Sorts the digests, of which no two may be the same. */
static dunlin_status sort_digests(const reader *read)
{
    dunlin__places *places = read->places;
    size_t n = places->n_tokens;
    places->sorted = dunlin__alloc_array(read->alloc, n, sizeof *places->sorted);
    if (places->sorted == NULL) {
        return dunlin__fail(read->error, DUNLIN_MEMORY, "places", 0, "%zu tokens", n);
    }
    dunlin__place_entry *sorted = places->sorted;
    for (size_t i = 0; i < n; i++) {
        memcpy(sorted[i].sha256, places->tokens[i].sha256, DUNLIN_SHA256_BYTES);
        sorted[i].number = (uint32_t)i;
    }
    qsort(sorted, n, sizeof *sorted, compare_entries);
    for (size_t i = 1; i < n; i++) {
        if (compare_entries(&sorted[i - 1], &sorted[i]) == 0) {
            const dunlin__place_token *tokens = places->tokens;
            return dunlin__fail(read->error, DUNLIN_DATA, "places", 0,
                                "--tokens %.120s: places %lld and %lld have the same token",
                                read->path, (long long)tokens[sorted[i - 1].number].client_index,
                                (long long)tokens[sorted[i].number].client_index);
        }
    }
    return DUNLIN_OK;
}

/* Links the tokens of each place, in the order of the file. */
static dunlin_status link_places(const reader *read)
{
    dunlin__places *places = read->places;
    size_t n = places->n_tokens;
    size_t n_places = (size_t)read->n_places;
    uint32_t *next = dunlin__alloc_array(read->alloc, n_places, sizeof *next);
    places->later = dunlin__alloc_array(read->alloc, n, sizeof *places->later);
    if (next == NULL || places->later == NULL) {
        dunlin__free_array(read->alloc, next, n_places, sizeof *next);
        return dunlin__fail(read->error, DUNLIN_MEMORY, "places", 0, "%zu tokens", n);
    }
    for (size_t i = 0; i < n_places; i++) {
        next[i] = (uint32_t)n;
    }
    for (size_t i = n; i > 0; i--) {
        int64_t place = places->tokens[i - 1].client_index;
        places->later[i - 1] = next[place];
        next[place] = (uint32_t)(i - 1);
    }
    dunlin__free_array(read->alloc, next, n_places, sizeof *next);
    return DUNLIN_OK;
}

/* One line, which is cut into its words. */
static dunlin_status read_line(reader *read, char *line)
{
    static const char blanks[] = " \t\r";
    line[strcspn(line, "#")] = 0;
    char *rest = NULL;
    const char *word = strtok_r(line, blanks, &rest);
    if (word == NULL) {
        return DUNLIN_OK;
    }
    const char *place = strtok_r(NULL, blanks, &rest);
    if (place != NULL && strtok_r(NULL, blanks, &rest) != NULL) {
        return fail_line(read, "a line has a token and at most a place");
    }
    dunlin__place_token token = {.client_index = 0};
    DUNLIN_TRY(read_digest(read, word, token.sha256));
    DUNLIN_TRY(read_place(read, place, &token.client_index));
    return add_token(read, &token);
}

dunlin_status dunlin__places_read(const char *path, int64_t n_places, const dunlin_alloc *alloc,
                                  dunlin__places *out_places, dunlin_error *error)
{
    memset(out_places, 0, sizeof *out_places);
    reader read = {
        .path = path, .n_places = n_places, .alloc = alloc, .places = out_places, .error = error};
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    DUNLIN_TRY(dunlin__server_file_read(alloc, path, FILE_BYTES, &bytes, &n_bytes, error));
    dunlin_status status = DUNLIN_OK;
    char *line = (char *)bytes;
    while (status == DUNLIN_OK && line != NULL) {
        char *end = strchr(line, '\n');
        if (end != NULL) {
            *end = 0;
        }
        read.line++;
        status = read_line(&read, line);
        line = end != NULL ? end + 1 : NULL;
    }
    dunlin__wipe(bytes, n_bytes);
    dunlin__free_array(alloc, bytes, n_bytes + 1, 1);
    if (status == DUNLIN_OK && out_places->n_tokens == 0) {
        status =
            dunlin__fail(error, DUNLIN_DATA, "places", 0, "--tokens %.160s: no token in it", path);
    }
    if (status == DUNLIN_OK) {
        status = sort_digests(&read);
    }
    return status == DUNLIN_OK ? link_places(&read) : status;
}

void dunlin__places_free(dunlin__places *places, const dunlin_alloc *alloc)
{
    dunlin__free_array(alloc, places->sorted, places->n_tokens, sizeof *places->sorted);
    dunlin__free_array(alloc, places->later, places->n_tokens, sizeof *places->later);
    dunlin__free_array(alloc, places->tokens, places->capacity, sizeof *places->tokens);
    memset(places, 0, sizeof *places);
}

dunlin_status dunlin__places_find(const dunlin__places *places, const char *token,
                                  size_t *out_number, dunlin_error *error)
{
    dunlin__place_entry wanted = {.number = 0};
    DUNLIN_TRY(dunlin__sha256_of(token, strlen(token), wanted.sha256, error));
    const dunlin__place_entry *found = NULL;
    if (places->n_tokens > 0) {
        found = bsearch(&wanted, places->sorted, places->n_tokens, sizeof wanted, compare_entries);
    }
    *out_number = found != NULL ? found->number : places->n_tokens;
    return DUNLIN_OK;
}
