/*
 * text.c - examples of tokens from a text of roles; the set "shakespeare" and the same by byte
 * pairs.
 *
 * Invariant: tokens follow from the whole text and the size of the vocabulary, so both splits, and
 * every program, number them alike.
 */
#include "text.h"

#include "byte_pairs.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_SEQUENCE 64
#define DEFAULT_VOCABULARY 1024
#define MOST_SEQUENCE 65536
#define TEST_PART 10 /* a role's last tenth */

/* The maker's context. */
typedef struct text_examples {
    dunlin_byte_pairs pairs;
    int32_t *tokens; /* of the split, role after role */
    size_t n_tokens, tokens_capacity;
    int64_t *starts; /* of the examples in `tokens`; one token more than an example follows */
    size_t n_starts, starts_capacity;
    int64_t sequence;
} text_examples;

/* Tokens lie as int32, which is what is delivered. */
static dunlin_status make_tokens(const dunlin_dataset *set, int64_t index, void *out,
                                 char *out_text)
{
    (void)out_text;
    const text_examples *examples = set->maker_ctx;
    memcpy(out, examples->tokens + examples->starts[index],
           (size_t)examples->sequence * sizeof *examples->tokens);
    return DUNLIN_OK;
}

static void next_tokens(const dunlin_dataset *set, int64_t index, int32_t *out_labels)
{
    const text_examples *examples = set->maker_ctx;
    memcpy(out_labels, examples->tokens + examples->starts[index] + 1,
           (size_t)examples->sequence * sizeof *examples->tokens);
}

static void free_examples(dunlin_dataset *set)
{
    text_examples *examples = set->maker_ctx;
    if (examples == NULL) {
        return;
    }
    dunlin__byte_pairs_free(&examples->pairs);
    dunlin__free_array(&set->alloc, examples->tokens, examples->tokens_capacity,
                       sizeof *examples->tokens);
    dunlin__free_array(&set->alloc, examples->starts, examples->starts_capacity,
                       sizeof *examples->starts);
    dunlin__free_array(&set->alloc, examples, 1, sizeof *examples);
    set->maker_ctx = NULL;
}

static uint64_t bytes_of_examples(const dunlin_dataset *set)
{
    const text_examples *examples = set->maker_ctx;
    return sizeof *examples + examples->tokens_capacity * sizeof *examples->tokens +
           examples->starts_capacity * sizeof *examples->starts +
           examples->pairs.parts_capacity * sizeof *examples->pairs.parts +
           examples->pairs.pairs.capacity * sizeof *examples->pairs.pairs.entries;
}

static const dunlin_data_maker maker = {.make_fn = make_tokens,
                                        .labels_fn = next_tokens,
                                        .free_fn = free_examples,
                                        .bytes_fn = bytes_of_examples};

/* --- splits --- */

/* Where the test part of a role begins. */
static size_t role_cut(const dunlin_text *text, size_t role)
{
    const size_t n = text->starts[role + 1] - text->starts[role];
    return text->starts[role + 1] - n / TEST_PART;
}

static dunlin_status fail_memory(dunlin_error *error, size_t n)
{
    return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for %zu tokens", n);
}

static dunlin_status fail_short(const dunlin_dataset *set, const text_examples *examples,
                                dunlin_error *error)
{
    return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                        "%s: no role says %" PRId64 " tokens and one more", set->title,
                        examples->sequence);
}

/* Learns of the training parts, with a byte of 0 where a test part is. */
static dunlin_status learn(text_examples *examples, const dunlin_text *text, int32_t vocabulary,
                           dunlin_error *error)
{
    uint8_t *bytes = dunlin__alloc_array(&text->alloc, text->n, 1);
    if (bytes == NULL) {
        return fail_memory(error, text->n);
    }
    memcpy(bytes, text->bytes, text->n);
    for (size_t role = 0; role < text->n_roles; role++) {
        const size_t cut = role_cut(text, role);
        memset(bytes + cut, 0, text->starts[role + 1] - cut);
    }
    const dunlin_status status =
        dunlin__byte_pairs_learn(&examples->pairs, bytes, text->n, vocabulary, error);
    dunlin__free_array(&text->alloc, bytes, text->n, 1);
    return status;
}

/* The examples of a role's part; `role` is their client. */
static dunlin_status add_examples(dunlin_dataset *set, text_examples *examples,
                                  const uint8_t *bytes, size_t n, dunlin_error *error)
{
    void *tokens = examples->tokens;
    const bool is_grown = dunlin__grow_array(&set->alloc, &tokens, &examples->tokens_capacity,
                                             examples->n_tokens + n, sizeof *examples->tokens);
    examples->tokens = tokens;
    if (!is_grown) {
        return fail_memory(error, examples->n_tokens + n);
    }
    int32_t *first = examples->tokens + examples->n_tokens;
    const size_t n_tokens = dunlin__byte_pairs_encode(&examples->pairs, bytes, n, first);
    const size_t length = (size_t)examples->sequence;
    for (size_t at = 0; at + length < n_tokens; at += length) {
        void *starts = examples->starts;
        const bool has_room = dunlin__grow_array(&set->alloc, &starts, &examples->starts_capacity,
                                                 examples->n_starts + 1, sizeof *examples->starts);
        examples->starts = starts;
        if (!has_room) {
            return fail_memory(error, examples->n_tokens);
        }
        examples->starts[examples->n_starts++] = (int64_t)(examples->n_tokens + at);
    }
    examples->n_tokens += n_tokens;
    return DUNLIN_OK;
}

/* `n_of`: the examples of each role. */
static dunlin_status take_split(dunlin_dataset *set, const dunlin_data_request *request,
                                const dunlin_text *text, size_t *n_of, dunlin_error *error)
{
    text_examples *examples = set->maker_ctx;
    const bool is_train = request->split == DUNLIN_SPLIT_TRAIN;
    for (size_t role = 0; role < text->n_roles; role++) {
        const size_t cut = role_cut(text, role);
        const size_t first = is_train ? text->starts[role] : cut;
        const size_t end = is_train ? cut : text->starts[role + 1];
        const size_t n_before = examples->n_starts;
        DUNLIN_TRY(add_examples(set, examples, text->bytes + first, end - first, error));
        n_of[role] = examples->n_starts - n_before;
    }
    if (examples->n_starts == 0) {
        return fail_short(set, examples, error);
    }
    DUNLIN_TRY(dunlin__data_alloc_labels(
        set, dunlin__data_limit(request, (int64_t)examples->n_starts), error));
    set->clients = dunlin__alloc_array(&set->alloc, (size_t)set->n, sizeof *set->clients);
    if (set->clients == NULL) {
        return fail_memory(error, (size_t)set->n);
    }
    int64_t at = 0;
    for (size_t role = 0; role < text->n_roles; role++) {
        for (size_t i = 0; i < n_of[role] && at < set->n; i++, at++) {
            set->clients[at] = (int32_t)role;
            set->labels[at] = (uint16_t)examples->tokens[examples->starts[at] + 1];
        }
    }
    return dunlin__data_number_clients(set, error);
}

static dunlin_status settle_sizes(text_examples *examples, const dunlin_dataset_options *options,
                                  const char *title, int32_t *out_vocabulary, dunlin_error *error)
{
    const bool has_shape = options->shape.n_dims != 0;
    examples->sequence = has_shape               ? options->shape.dims[0]
                         : options->sequence > 0 ? options->sequence
                                                 : DEFAULT_SEQUENCE;
    if ((has_shape && options->shape.n_dims != 1) || examples->sequence < 1 ||
        examples->sequence > MOST_SEQUENCE) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                            "%s: examples are rows of 1 to %d tokens, not of %d dimensions and "
                            "%" PRId64 " tokens",
                            title, MOST_SEQUENCE, (int)options->shape.n_dims, examples->sequence);
    }
    *out_vocabulary = options->vocabulary > 0 ? options->vocabulary : DEFAULT_VOCABULARY;
    *out_vocabulary =
        *out_vocabulary < DUNLIN_BYTE_PAIRS_MOST ? *out_vocabulary : DUNLIN_BYTE_PAIRS_MOST;
    return DUNLIN_OK;
}

dunlin_status dunlin__data_take_text(dunlin_dataset *set, const dunlin_data_request *request,
                                     const dunlin_text *text, bool has_pairs, dunlin_error *error)
{
    text_examples *examples = dunlin__alloc_zeroed(&set->alloc, 1, sizeof *examples);
    if (examples == NULL) {
        return fail_memory(error, 0);
    }
    examples->pairs.alloc = set->alloc;
    set->maker = &maker;
    set->maker_ctx = examples;
    int32_t vocabulary = 0;
    DUNLIN_TRY(settle_sizes(examples, &request->options, set->title, &vocabulary, error));
    if (text->n == 0) { /* roles that say nothing */
        return fail_short(set, examples, error);
    }
    dunlin__byte_pairs_init(&examples->pairs, text->bytes, text->n, &set->alloc);
    if (has_pairs) {
        DUNLIN_TRY(learn(examples, text, vocabulary, error));
    }
    const int32_t n_tokens = examples->pairs.n_tokens;
    set->n_classes = n_tokens;
    set->n_labels = examples->sequence;
    set->own_dtype = DUNLIN_I32;
    set->own_shape = (dunlin_shape){.n_dims = 1, .dims = {examples->sequence}};
    (void)snprintf(set->own_note, sizeof set->own_note, "%" PRId32 " tokens, %s; CRC-32 %08" PRIx32,
                   n_tokens, has_pairs ? "joined from pairs of bytes" : "bytes",
                   dunlin__byte_pairs_crc(&examples->pairs));
    size_t *n_of = dunlin__alloc_zeroed(&set->alloc, text->n_roles, sizeof *n_of);
    if (n_of == NULL) {
        return fail_memory(error, text->n_roles);
    }
    const dunlin_status status = take_split(set, request, text, n_of, error);
    dunlin__free_array(&set->alloc, n_of, text->n_roles, sizeof *n_of);
    return status;
}

/* --- files --- */

static dunlin_status read_file(dunlin_dataset *set, const dunlin_data_request *request,
                               const char *file, dunlin_text *out_text, dunlin_error *error)
{
    char path[DUNLIN_DATA_PATH_BYTES];
    dunlin_bytes bytes;
    uint8_t *all = NULL;
    size_t capacity = 0;
    size_t n = 0;
    DUNLIN_TRY(dunlin__data_open_file(set, request, file, path, &bytes, error));
    dunlin_status status = DUNLIN_OK;
    for (size_t got = 1; status == DUNLIN_OK && got > 0; n += got) {
        void *grown = all;
        got = 0;
        if (n >= DUNLIN_TEXT_MOST_BYTES) {
            status = dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                                  "%s: %d bytes or more; that is the limit", bytes.name,
                                  DUNLIN_TEXT_MOST_BYTES);
        } else if (!dunlin__grow_array(&set->alloc, &grown, &capacity, n + DUNLIN_BYTES_BUFFER,
                                       1)) {
            status = fail_memory(error, n);
        } else {
            all = grown;
            status = dunlin__bytes_read_some(&bytes, all + n, DUNLIN_BYTES_BUFFER, &got, error);
        }
    }
    if (status == DUNLIN_OK) {
        status = dunlin__text_by_roles(bytes.name, all, n, &set->alloc, out_text, error);
    }
    dunlin__bytes_close(&bytes);
    dunlin__free_array(&set->alloc, all, capacity, 1);
    return status;
}

dunlin_status dunlin__data_load_shakespeare_roles(dunlin_dataset *set,
                                                  const dunlin_data_request *request,
                                                  dunlin_error *error)
{
    dunlin_text text;
    set->title = "tiny Shakespeare's speeches";
    DUNLIN_TRY(read_file(set, request, "tinyshakespeare/input.txt", &text, error));
    const dunlin_status status = dunlin__data_take_speeches(set, request, &text, error);
    dunlin__text_free(&text);
    return status;
}

static dunlin_status load_shakespeare(dunlin_dataset *set, const dunlin_data_request *request,
                                      bool has_pairs, dunlin_error *error)
{
    dunlin_text text;
    set->title = has_pairs ? "tiny Shakespeare by byte pairs" : "tiny Shakespeare by character";
    DUNLIN_TRY(read_file(set, request, "tinyshakespeare/input.txt", &text, error));
    const dunlin_status status = dunlin__data_take_text(set, request, &text, has_pairs, error);
    dunlin__text_free(&text);
    return status;
}

dunlin_status dunlin__data_load_shakespeare(dunlin_dataset *set, const dunlin_data_request *request,
                                            dunlin_error *error)
{
    return load_shakespeare(set, request, false, error);
}

dunlin_status dunlin__data_load_shakespeare_pairs(dunlin_dataset *set,
                                                  const dunlin_data_request *request,
                                                  dunlin_error *error)
{
    return load_shakespeare(set, request, true, error);
}
