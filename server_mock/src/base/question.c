/*
 * question.c - questions as a text, "KEY=VALUE,KEY=VALUE": its parts, and numbers in them.
 *
 * Invariant: a part is read to its last character, or refused.
 */
#include "question.h"

#include <stdlib.h>
#include <string.h>

#define WORD_BYTES DUNLIN_QUESTION_WORD_BYTES
#define REAL_BYTES 50u /* no number that means anything is longer */

const char *dunlin__question_read(const char *text, dunlin__question_fn take_fn, void *ctx)
{
    while (*text != 0) {
        const size_t n = strcspn(text, ",");
        char part[WORD_BYTES] = {0};
        memcpy(part, text, n < WORD_BYTES ? n : WORD_BYTES - 1);
        char *value = strchr(part, '=');
        if (value == NULL || n >= WORD_BYTES) {
            return text;
        }
        *value++ = 0;
        if (!take_fn(ctx, part, value)) {
            return text;
        }
        text += n;
        text += *text == ',' ? 1 : 0;
    }
    return NULL;
}

int dunlin__question_shown(const char *part)
{
    const size_t n = strcspn(part, ",");
    return (int)(n < WORD_BYTES / 2 ? n : WORD_BYTES / 2);
}

bool dunlin__question_real(const char *text, double *out_value)
{
    char *end = NULL;
    const bool begins = ((text[0] >= '0' && text[0] <= '9') || text[0] == '-' || text[0] == '.') &&
                        strlen(text) < REAL_BYTES;
    *out_value = begins ? strtod(text, &end) : 0;
    return begins && *end == 0;
}

bool dunlin__question_whole(const char *text, uint64_t *out_value)
{
    char *end = NULL;
    const bool begins = text[0] >= '0' && text[0] <= '9' && strlen(text) < 19;
    *out_value = begins ? strtoull(text, &end, 10) : 0;
    return begins && *end == 0;
}
