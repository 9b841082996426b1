/*
 * text_speeches.c - speeches and who says them: examples of tokens for networks that read a text as
 * a whole; the sets "shakespeare_roles" and "made_roles".
 *
 * Invariant: classes are the roles with the most speeches, of equally many the one that speaks
 * first; they and the tokens follow from the whole text, so both splits number them alike.
 */
#include "byte_pairs.h"
#include "text.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_SEQUENCE 64
#define DEFAULT_VOCABULARY 1024
#define DEFAULT_CLASSES 10
#define MOST_SEQUENCE 65536
#define TEST_PART 10 /* a role's last tenth */

enum { PADDING = 0, BEGIN = 1, N_MARKS };

/* Of the text, role by role; the arrays are one piece of memory. */
typedef struct speech_count {
    size_t *first; /* speech of each role; n_roles + 1 */
    size_t *taken; /* roles by class */
    size_t n_roles, n_classes;
} speech_count;

typedef struct speech_sizes {
    int64_t sequence;
    int32_t vocabulary, classes;
} speech_sizes;

static dunlin_status settle_sizes(const dunlin_dataset *set, const dunlin_dataset_options *options,
                                  const dunlin_text *text, speech_sizes *out, dunlin_error *error)
{
    const bool has_shape = options->shape.n_dims != 0;
    out->sequence = has_shape               ? options->shape.dims[0]
                    : options->sequence > 0 ? options->sequence
                                            : DEFAULT_SEQUENCE;
    if ((has_shape && options->shape.n_dims != 1) || out->sequence < 1 ||
        out->sequence > MOST_SEQUENCE) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                            "%s: examples are rows of 1 to %d tokens, not of %d dimensions and "
                            "%" PRId64 " tokens",
                            set->title, MOST_SEQUENCE, (int)options->shape.n_dims, out->sequence);
    }
    out->vocabulary = options->vocabulary > 0 ? options->vocabulary : DEFAULT_VOCABULARY;
    if (out->vocabulary > DUNLIN_BYTE_PAIRS_MOST + N_MARKS) {
        out->vocabulary = DUNLIN_BYTE_PAIRS_MOST + N_MARKS;
    }
    out->classes = options->classes > 0 ? options->classes : DEFAULT_CLASSES;
    if (text->n_speeches == 0) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0, "%s: no role says anything", set->title);
    }
    if (out->classes < 2 || (size_t)out->classes > text->n_roles) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s: %" PRId32 " classes are asked for; there are %zu roles, and 2 at "
                            "least are told apart",
                            set->title, out->classes, text->n_roles);
    }
    return DUNLIN_OK;
}

static size_t speeches_of(const speech_count *count, size_t role)
{
    return count->first[role + 1] - count->first[role];
}

/* The roles that come to a class, the one with the most speeches first. */
static void choose_roles(speech_count *count)
{
    for (size_t role = 0; role < count->n_roles; role++) {
        size_t at = count->n_classes;
        while (at > 0 && (count->taken[at - 1] == count->n_roles ||
                          speeches_of(count, count->taken[at - 1]) < speeches_of(count, role))) {
            at--;
        }
        if (at == count->n_classes) {
            continue;
        }
        memmove(&count->taken[at + 1], &count->taken[at],
                (count->n_classes - at - 1) * sizeof count->taken[0]);
        count->taken[at] = role;
    }
}

static void count_speeches(const dunlin_text *text, speech_count *count)
{
    size_t speech = 0;
    for (size_t role = 0; role < text->n_roles; role++) {
        count->first[role] = speech;
        while (speech < text->n_speeches && text->ends[speech] <= text->starts[role + 1]) {
            speech++;
        }
    }
    count->first[text->n_roles] = speech;
    for (size_t i = 0; i < count->n_classes; i++) {
        count->taken[i] = count->n_roles; /* none yet */
    }
    choose_roles(count);
}

/* Where a speech begins in the text. */
static size_t start_of(const dunlin_text *text, size_t speech)
{
    return speech == 0 ? 0 : text->ends[speech - 1];
}

/* The first speech of a role that is tested on. */
static size_t cut_of(const speech_count *count, size_t role)
{
    return count->first[role + 1] - speeches_of(count, role) / TEST_PART;
}

/* Learns of the training parts, with bytes of 0 where a test part is. */
static dunlin_status learn(const dunlin_dataset *set, const dunlin_text *text,
                           const speech_count *count, int32_t vocabulary, dunlin_byte_pairs *pairs,
                           dunlin_error *error)
{
    dunlin__byte_pairs_init(pairs, text->bytes, text->n, &set->alloc);
    if (pairs->n_tokens + N_MARKS > vocabulary) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "data", 0,
                            "%s: its %" PRId32 " bytes and %d marks are more than the %" PRId32
                            " tokens asked for",
                            set->title, pairs->n_tokens, N_MARKS, vocabulary);
    }
    uint8_t *bytes = dunlin__alloc_array(&text->alloc, text->n, 1);
    if (bytes == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for %zu bytes", text->n);
    }
    memcpy(bytes, text->bytes, text->n);
    for (size_t role = 0; role < count->n_roles; role++) {
        const size_t first = start_of(text, cut_of(count, role));
        const size_t end = text->starts[role + 1];
        memset(bytes + first, 0, end > first ? end - first : 0);
    }
    const dunlin_status status =
        dunlin__byte_pairs_learn(pairs, bytes, text->n, vocabulary - N_MARKS, error);
    dunlin__free_array(&text->alloc, bytes, text->n, 1);
    return status;
}

/* One row: the mark of a beginning, what is said, padding. `room` holds the longest speech's
 * tokens. */
static void fill_row(const dunlin_dataset *set, const dunlin_text *text, size_t speech,
                     const dunlin_byte_pairs *pairs, int32_t *room, int64_t index)
{
    const size_t first = start_of(text, speech);
    const size_t n =
        dunlin__byte_pairs_encode(pairs, text->bytes + first, text->ends[speech] - first - 1, room);
    uint8_t *row = set->pixels + (size_t)index * (size_t)set->sequence * sizeof(int32_t);
    for (int64_t i = 0; i < set->sequence; i++) {
        const int32_t token = i == 0                ? BEGIN
                              : (size_t)(i - 1) < n ? room[i - 1] + N_MARKS
                                                    : PADDING;
        memcpy(row + (size_t)i * sizeof token, &token, sizeof token);
    }
}

/* Examples of the split, one of each class after the other; `room` NULL: they are counted alone. */
static int64_t take_rows(const dunlin_dataset *set, const dunlin_data_request *request,
                         const dunlin_text *text, const speech_count *count,
                         const dunlin_byte_pairs *pairs, int32_t *room)
{
    const bool is_train = request->split == DUNLIN_SPLIT_TRAIN;
    int64_t n = 0;
    for (size_t at = 0, n_left = 1; n_left > 0; at++) {
        n_left = 0;
        for (size_t class = 0; class < count->n_classes; class ++) {
            const size_t role = count->taken[class];
            const size_t cut = cut_of(count, role);
            const size_t speech = (is_train ? count->first[role] : cut) + at;
            if (speech >= (is_train ? cut : count->first[role + 1])) {
                continue;
            }
            if (room != NULL && n < set->n) {
                fill_row(set, text, speech, pairs, room, n);
                set->labels[n] = (uint16_t) class;
                set->clients[n] = (int32_t)role;
            }
            n_left++;
            n++;
        }
    }
    return n;
}

static size_t longest(const dunlin_text *text)
{
    size_t most = 1;
    for (size_t i = 0; i < text->n_speeches; i++) {
        const size_t n = text->ends[i] - start_of(text, i);
        most = n > most ? n : most;
    }
    return most;
}

static dunlin_status take_split(dunlin_dataset *set, const dunlin_data_request *request,
                                const dunlin_text *text, const speech_count *count,
                                const dunlin_byte_pairs *pairs, dunlin_error *error)
{
    const int64_t n_all = take_rows(set, request, text, count, pairs, NULL);
    const size_t n_room = longest(text);
    if (n_all == 0) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s: no role has %d speeches, the last of which would be tested on",
                            set->title, TEST_PART);
    }
    DUNLIN_TRY(dunlin__data_alloc(set, dunlin__data_limit(request, n_all), true, error));
    int32_t *room = dunlin__alloc_array(&set->alloc, n_room, sizeof *room);
    if (room == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for %zu tokens", n_room);
    }
    (void)take_rows(set, request, text, count, pairs, room);
    dunlin__free_array(&set->alloc, room, n_room, sizeof *room);
    return dunlin__data_number_clients(set, error);
}

dunlin_status dunlin__data_take_speeches(dunlin_dataset *set, const dunlin_data_request *request,
                                         const dunlin_text *text, dunlin_error *error)
{
    speech_sizes sizes = {0};
    DUNLIN_TRY(settle_sizes(set, &request->options, text, &sizes, error));
    const size_t n_numbers = text->n_roles + 1 + (size_t)sizes.classes;
    size_t *numbers = dunlin__alloc_array(&set->alloc, n_numbers, sizeof *numbers);
    if (numbers == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for %zu roles",
                            text->n_roles);
    }
    speech_count count = {.first = numbers,
                          .taken = numbers + text->n_roles + 1,
                          .n_roles = text->n_roles,
                          .n_classes = (size_t)sizes.classes};
    count_speeches(text, &count);
    dunlin_byte_pairs pairs = {.alloc = set->alloc};
    dunlin_status status = learn(set, text, &count, sizes.vocabulary, &pairs, error);
    if (status == DUNLIN_OK) {
        set->sequence = (int32_t)sizes.sequence;
        set->vocabulary = sizes.vocabulary;
        set->n_classes = sizes.classes;
        dunlin__data_set_shape(set, 1, 1, set->sequence * (int32_t)sizeof(int32_t));
        (void)snprintf(set->own_note, sizeof set->own_note,
                       "%" PRId32 " tokens, 0 is padding; CRC-32 %08" PRIx32,
                       pairs.n_tokens + N_MARKS, dunlin__byte_pairs_crc(&pairs));
        status = take_split(set, request, text, &count, &pairs, error);
    }
    dunlin__byte_pairs_free(&pairs);
    dunlin__free_array(&set->alloc, numbers, n_numbers, sizeof *numbers);
    return status;
}
