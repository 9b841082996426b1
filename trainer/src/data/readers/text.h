/*
 * text.h - a text of what roles say, as examples of tokens with the next token as each one's label.
 *
 * The form: a role's name with a colon on a line of its own, then what is said, then an empty line.
 * What a role says is put together, a line's end between two speeches. The last tenth of it (by
 * bytes) is the test split, the rest the training split, of which the tokens are learnt, too.
 * Examples are as many tokens as were asked for, one after the other without overlap; what is left
 * over at the end is in none. Or each speech is an example, and who says it the label.
 */
#ifndef DUNLIN_DATA_TEXT_H
#define DUNLIN_DATA_TEXT_H

#include "data/common/data.h"

#define DUNLIN_TEXT_MOST_BYTES (64 << 20)
#define DUNLIN_TEXT_MOST_ROLES 4096

/* What all roles say, one role after the other. */
typedef struct dunlin_text {
    dunlin_alloc alloc;
    uint8_t *bytes;
    size_t n, capacity;
    size_t *starts; /* of each role's bytes; n_roles + 1 once it is read */
    size_t n_roles, starts_capacity;
    size_t *ends; /* of each speech's bytes, in their order; a line's end is the last */
    size_t n_speeches, ends_capacity;
} dunlin_text;

/* Sorts a text of n bytes by roles; `name` is what messages call it. DATA (it does not begin with a
 * role; a byte of 0), LIMIT (roles), MEMORY. Nothing is held on failure. */
dunlin_status dunlin__text_by_roles(const char *name, const uint8_t *bytes, size_t n,
                                    const dunlin_alloc *alloc, dunlin_text *out_text,
                                    dunlin_error *error);
void dunlin__text_free(dunlin_text *text);

/* A set of a text, which is not needed afterwards: of characters, or with `has_pairs` of the tokens
 * of byte_pairs.h, options.vocabulary (0: 1024) of them. options.shape, or options.sequence (0:
 * 64), says how many are an example. Roles are the natural clients. */
dunlin_status dunlin__data_take_text(dunlin_dataset *set, const dunlin_data_request *request,
                                     const dunlin_text *text, bool has_pairs, dunlin_error *error);

/* text_speeches.c: a set whose examples are speeches of the roles that have the most of them, and
 * whose labels are these roles: options.classes (0: 10) of them. Tokens are byte pairs, learnt from
 * all roles' training parts, options.vocabulary (0: 1024) in all; 0 is padding and 1 stands before
 * each speech, which is cut or padded to options.shape or options.sequence (0: 64). The last tenth
 * of a role's speeches is the test split. Roles are the natural clients. */
dunlin_status dunlin__data_take_speeches(dunlin_dataset *set, const dunlin_data_request *request,
                                         const dunlin_text *text, dunlin_error *error);

#endif
