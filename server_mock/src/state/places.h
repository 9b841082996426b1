/*
 * places.h - the tokens that prove a place in the population, as their SHA-256 alone.
 *
 * The file has a token a line, with a place (0, 1 ...) after it or, without one, the next place in
 * the order of such lines; `#` begins a comment. A token has at least 128 bits: 32 hex digits, or
 * 22 characters of A-Z a-z 0-9 - _. "sha256:" and 64 hex digits stand for a token that is stored
 * elsewhere. Of two tokens for one place the later line has priority once it was used.
 */
#ifndef DUNLIN_SERVER_PLACES_H
#define DUNLIN_SERVER_PLACES_H

#include <dunlin/alloc.h>
#include <wire/protocol.h>

typedef struct dunlin__place_token {
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    int64_t client_index;
} dunlin__place_token;

/* A token's digest and its number, to be looked up by. */
typedef struct dunlin__place_entry {
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    uint32_t number;
} dunlin__place_entry;

typedef struct dunlin__places {
    dunlin__place_token *tokens; /* in the order of the file */
    dunlin__place_entry *sorted; /* by digest; n_tokens of them */
    uint32_t *later; /* by token: the next one of the same place; n_tokens: there is none */
    size_t n_tokens;
    size_t capacity;
} dunlin__places;

/* Reads the file; places are below `n_places`. DATA, with file and line but never a token. The
 * text that was read is wiped. Follow by free, also after a failure. */
DUNLIN_NODISCARD dunlin_status dunlin__places_read(const char *path, int64_t n_places,
                                                   const dunlin_alloc *alloc,
                                                   dunlin__places *out_places, dunlin_error *error);
void dunlin__places_free(dunlin__places *places, const dunlin_alloc *alloc);

/* The number of the token, n_tokens if there is none like it. The time it takes may tell how far a
 * digest agrees with another, which is of no use to whoever cannot choose digests. */
DUNLIN_NODISCARD dunlin_status dunlin__places_find(const dunlin__places *places, const char *token,
                                                   size_t *out_number, dunlin_error *error);

#endif
