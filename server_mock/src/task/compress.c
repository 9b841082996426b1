/*
 * compress.c - reads how updates and models are compressed, and says it for one device and round.
 */
#include "compress.h"

#include <mem/support.h>

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define WORD_CHARS 24u
#define MILLION 1e6
#define ROTATED_BLOCK 8192u /* a rotation spreads best over the largest */
#define KEPT_BLOCK 1024u
#define PLAIN_BLOCK 512u /* a scale of 4 bytes for so many: 1.6 % of int4 */

typedef struct reader {
    const char *where;
    dunlin__packing *packing;
    bool has_values;
    dunlin_error *error;
} reader;

static dunlin_status fail(const reader *read, const char *word, const char *what)
{
    return dunlin__fail(read->error, DUNLIN_DATA, "task", 0, "%.80s: \"%.24s\" %s", read->where,
                        word, what);
}

static dunlin_status take_values(reader *read, const char *word, dunlin_v1_values_t values,
                                 uint32_t bits)
{
    if (read->has_values) {
        return fail(read, word, "is a second kind of numbers; one is wanted");
    }
    read->has_values = true;
    read->packing->values = values;
    read->packing->bits = bits;
    return DUNLIN_OK;
}

static dunlin_status take_selection(reader *read, const char *word, dunlin_v1_selection_t selection)
{
    char *end = NULL;
    const char *number = strchr(word, ':') + 1;
    const double share = isdigit((unsigned char)*number) ? strtod(number, &end) : -1;
    if (end == NULL || *end != 0 || !(share >= 1 / MILLION && share <= 1)) {
        return fail(read, word, "wants the part that is sent, from 0.000001 to 1");
    }
    if (read->packing->selection != DUNLIN_V1_SELECTION_ALL) {
        return fail(read, word, "is a second choice of entries; one is wanted");
    }
    read->packing->selection = selection;
    read->packing->kept_ppm = (uint32_t)(share * MILLION + 0.5);
    return DUNLIN_OK;
}

static dunlin_status take_word(reader *read, const char *word)
{
    const bool is_int =
        strncmp(word, "int", 3) == 0 && word[3] >= '2' && word[3] <= '8' && word[4] == 0;
    if (strcmp(word, "f32") == 0) {
        return take_values(read, word, DUNLIN_V1_VALUES_F32, 0);
    }
    if (strcmp(word, "f16") == 0) {
        return take_values(read, word, DUNLIN_V1_VALUES_F16, 0);
    }
    if (strcmp(word, "bf16") == 0) {
        return take_values(read, word, DUNLIN_V1_VALUES_BF16, 0);
    }
    if (strcmp(word, "bit") == 0) {
        return take_values(read, word, DUNLIN_V1_VALUES_SIGN, 0);
    }
    if (is_int) {
        return take_values(read, word, DUNLIN_V1_VALUES_LEVELS, (uint32_t)(word[3] - '0'));
    }
    if (strncmp(word, "topk:", 5) == 0) {
        return take_selection(read, word, DUNLIN_V1_SELECTION_LARGEST);
    }
    if (strncmp(word, "randk:", 6) == 0) {
        return take_selection(read, word, DUNLIN_V1_SELECTION_RANDOM);
    }
    bool *flag = NULL;
    if (strcmp(word, "rotate") == 0) {
        flag = &read->packing->is_rotated;
    } else if (strcmp(word, "entropy") == 0) {
        flag = &read->packing->is_entropy_coded;
    }
    if (flag == NULL || *flag) {
        return fail(read, word,
                    "is none of f32, f16, bf16, int2 to int8, bit, topk:F, randk:F, rotate, "
                    "entropy, or is there twice");
    }
    *flag = true;
    return DUNLIN_OK;
}

static bool needs_seed(const dunlin__packing *packing)
{
    return packing->is_rotated || packing->selection == DUNLIN_V1_SELECTION_RANDOM;
}

static dunlin_status read_words(reader *read, const char *text)
{
    for (const char *at = text; at != NULL;) {
        char word[WORD_CHARS + 1];
        const char *plus = strchr(at, '+');
        const size_t length = plus != NULL ? (size_t)(plus - at) : strlen(at);
        if (length == 0 || length > WORD_CHARS) {
            return fail(read, at, "has an empty word, or one of more than 24 characters");
        }
        memcpy(word, at, length);
        word[length] = 0;
        DUNLIN_TRY(take_word(read, word));
        at = plus != NULL ? plus + 1 : NULL;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__compress_parse(const char *text, const char *where,
                                     dunlin__packing *out_packing, bool *out_is_packed,
                                     dunlin_error *error)
{
    *out_packing = (dunlin__packing){.version = DUNLIN_PACK_VERSION,
                                     .values = DUNLIN_V1_VALUES_F32,
                                     .selection = DUNLIN_V1_SELECTION_ALL};
    reader read = {.where = where, .packing = out_packing, .error = error};
    DUNLIN_TRY(read_words(&read, text));
    *out_is_packed = strcmp(text, "f32") != 0;
    if (!*out_is_packed) {
        return DUNLIN_OK;
    }
    const bool is_all = out_packing->selection == DUNLIN_V1_SELECTION_ALL;
    const uint32_t whole = out_packing->is_rotated ? ROTATED_BLOCK : PLAIN_BLOCK;
    out_packing->block_values = is_all ? whole : KEPT_BLOCK;
    dunlin__packing with_seed = *out_packing;
    with_seed.seed.size = needs_seed(out_packing) ? DUNLIN_PACK_SEED_BYTES : 0;
    dunlin_error why = {0};
    if (dunlin__packing_check(&with_seed, &why) != DUNLIN_OK) {
        return dunlin__fail(error, DUNLIN_DATA, "task", 0, "%.80s: \"%.40s\": %.120s", where, text,
                            why.text);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__compress_parse_down(const char *text, const char *where,
                                          dunlin__packing *out_packing, bool *out_is_packed,
                                          dunlin_error *error)
{
    DUNLIN_TRY(dunlin__compress_parse(text, where, out_packing, out_is_packed, error));
    const char *wrong = NULL;
    if (out_packing->selection != DUNLIN_V1_SELECTION_ALL) {
        wrong = "topk and randk are for updates: of a model every entry is needed";
    } else if (out_packing->values == DUNLIN_V1_VALUES_SIGN) {
        wrong = "bit is for updates: a model of signs is none";
    }
    return wrong == NULL ? DUNLIN_OK
                         : dunlin__fail(error, DUNLIN_DATA, "task", 0, "%.80s: \"%.40s\": %s",
                                        where, text, wrong);
}

static void fill_seed(dunlin__packing *packing, uint64_t work_seed)
{
    packing->seed.size = DUNLIN_PACK_SEED_BYTES;
    for (size_t i = 0; i < DUNLIN_PACK_SEED_BYTES; i++) {
        const uint64_t half = i < 8 ? work_seed : work_seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
        packing->seed.bytes[i] = (pb_byte_t)(half >> (8 * (i % 8)));
    }
}

dunlin__packing dunlin__compress_of_base(const dunlin__server_task *task)
{
    dunlin__packing packing = task->down;
    if (needs_seed(&packing)) {
        fill_seed(&packing, task->seed);
    }
    return packing;
}

dunlin__packing dunlin__compress_of(const dunlin__server_task *task, uint64_t round,
                                    uint64_t work_seed)
{
    dunlin__packing packing = task->up;
    packing.round = round;
    if (needs_seed(&packing)) {
        fill_seed(&packing, work_seed);
    }
    return packing;
}

dunlin_status dunlin__compress_most(const dunlin__server_task *task,
                                    const dunlin__tensor_entry *tensors, uint32_t n_tensors,
                                    uint64_t *out_bytes, dunlin_error *error)
{
    *out_bytes = 0;
    for (uint32_t i = 0; i < n_tensors; i++) {
        uint64_t least = 0;
        uint64_t most = 0;
        if (tensors[i].rule != DUNLIN_V1_RULE_LOCAL) {
            DUNLIN_TRY(dunlin__packing_bytes(&task->up, tensors[i].rule,
                                             tensors[i].stored_bytes / sizeof(float), &least, &most,
                                             error));
        }
        *out_bytes += most;
    }
    return DUNLIN_OK;
}
