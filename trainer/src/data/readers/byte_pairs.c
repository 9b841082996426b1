/*
 * byte_pairs.c - learns and applies the joining of pairs of tokens.
 *
 * Invariant: the counts of the table are those of the words as they are cut at the time, each as
 * often as the word comes.
 */
#include "byte_pairs.h"

#include <mem/support.h>

#include <string.h>
#include <zlib.h>

#define LEAST_CAPACITY 1024
#define MOST_BYTES 255 /* of a token */

/* A word of the text that is learnt from. */
typedef struct pair_word {
    size_t first; /* of the symbols */
    int32_t n;    /* symbols, fewer with every joining */
    int64_t count;
    uint64_t hash;
    size_t at; /* in the text */
    int32_t n_bytes;
} pair_word;

typedef struct pair_learner {
    dunlin_byte_pairs *pairs;
    const uint8_t *text;
    pair_word *words;
    size_t n_words, words_capacity;
    size_t *places; /* of words by their hash, + 1 */
    size_t places_capacity;
    int32_t *symbols;
    size_t n_symbols, symbols_capacity;
} pair_learner;

/* --- words --- */

static bool is_letter(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 128;
}

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

/* The bytes of the word that begins a text of n. */
static size_t word_length(const uint8_t *text, size_t n)
{
    size_t at = text[0] == ' ' && n > 1 && (is_letter(text[1]) || is_digit(text[1])) ? 1 : 0;
    const bool is_word = is_letter(text[at]);
    if (!is_word && !is_digit(text[at])) {
        return 1;
    }
    while (at < n && (is_word ? is_letter(text[at]) : is_digit(text[at])) && at < MOST_BYTES) {
        at++;
    }
    return at;
}

/* --- the table of pairs --- */

static size_t slot_of(const dunlin_pair_table *table, int32_t left, int32_t right)
{
    uint64_t x = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    size_t slot = (size_t)(x ^ (x >> 31)) & (table->capacity - 1);
    while (table->entries[slot].left >= 0 &&
           (table->entries[slot].left != left || table->entries[slot].right != right)) {
        slot = (slot + 1) & (table->capacity - 1);
    }
    return slot;
}

static const dunlin_pair_entry *find_pair(const dunlin_pair_table *table, int32_t left,
                                          int32_t right)
{
    if (table->capacity == 0) {
        return NULL;
    }
    const dunlin_pair_entry *entry = &table->entries[slot_of(table, left, right)];
    return entry->left >= 0 ? entry : NULL;
}

static bool grow_table(dunlin_byte_pairs *pairs)
{
    dunlin_pair_table *table = &pairs->pairs;
    if (table->n * 2 < table->capacity) {
        return true;
    }
    dunlin_pair_table larger = {
        .capacity = table->capacity == 0 ? LEAST_CAPACITY : 2 * table->capacity, .n = table->n};
    larger.entries = dunlin__alloc_array(&pairs->alloc, larger.capacity, sizeof *larger.entries);
    if (larger.entries == NULL) {
        return false;
    }
    for (size_t i = 0; i < larger.capacity; i++) {
        larger.entries[i] = (dunlin_pair_entry){.left = -1};
    }
    for (size_t i = 0; i < table->capacity; i++) {
        const dunlin_pair_entry *entry = &table->entries[i];
        if (entry->left >= 0) {
            larger.entries[slot_of(&larger, entry->left, entry->right)] = *entry;
        }
    }
    dunlin__free_array(&pairs->alloc, table->entries, table->capacity, sizeof *table->entries);
    *table = larger;
    return true;
}

/* All pairs of a word come so many times more. False: no memory. */
static bool count_word(pair_learner *learner, const pair_word *word, int64_t count)
{
    dunlin_pair_table *table = &learner->pairs->pairs;
    const int32_t *symbols = learner->symbols + word->first;
    for (int32_t i = 0; i + 1 < word->n; i++) {
        if (!grow_table(learner->pairs)) {
            return false;
        }
        dunlin_pair_entry *entry = &table->entries[slot_of(table, symbols[i], symbols[i + 1])];
        if (entry->left < 0) {
            *entry = (dunlin_pair_entry){.left = symbols[i], .right = symbols[i + 1], .token = -1};
            table->n++;
        }
        entry->n += count;
    }
    return true;
}

/* --- learning --- */

static bool grow_places(pair_learner *learner)
{
    if (learner->n_words * 2 < learner->places_capacity) {
        return true;
    }
    const dunlin_alloc *alloc = &learner->pairs->alloc;
    const size_t capacity =
        learner->places_capacity == 0 ? LEAST_CAPACITY : 2 * learner->places_capacity;
    size_t *places = dunlin__alloc_zeroed(alloc, capacity, sizeof *places);
    if (places == NULL) {
        return false;
    }
    for (size_t i = 0; i < learner->n_words; i++) {
        size_t slot = (size_t)learner->words[i].hash & (capacity - 1);
        while (places[slot] != 0) {
            slot = (slot + 1) & (capacity - 1);
        }
        places[slot] = i + 1;
    }
    dunlin__free_array(alloc, learner->places, learner->places_capacity, sizeof *places);
    learner->places = places;
    learner->places_capacity = capacity;
    return true;
}

static bool add_word(pair_learner *learner, const pair_word *word)
{
    const dunlin_alloc *alloc = &learner->pairs->alloc;
    const size_t n = (size_t)word->n_bytes;
    void *words = learner->words;
    void *symbols = learner->symbols;
    bool is_grown = dunlin__grow_array(alloc, &words, &learner->words_capacity,
                                       learner->n_words + 1, sizeof *learner->words);
    is_grown = is_grown && dunlin__grow_array(alloc, &symbols, &learner->symbols_capacity,
                                              learner->n_symbols + n, sizeof *learner->symbols);
    learner->words = words;
    learner->symbols = symbols;
    if (!is_grown) {
        return false;
    }
    pair_word *added = &learner->words[learner->n_words++];
    *added = *word;
    added->first = learner->n_symbols;
    added->n = word->n_bytes;
    for (size_t i = 0; i < n; i++) {
        learner->symbols[learner->n_symbols++] =
            learner->pairs->of_byte[learner->text[word->at + i]];
    }
    return true;
}

/* One more of the word at `at`. */
static bool take_word(pair_learner *learner, size_t at, size_t n)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ learner->text[at + i]) * UINT64_C(1099511628211);
    }
    if (!grow_places(learner)) {
        return false;
    }
    size_t slot = (size_t)hash & (learner->places_capacity - 1);
    for (; learner->places[slot] != 0; slot = (slot + 1) & (learner->places_capacity - 1)) {
        pair_word *word = &learner->words[learner->places[slot] - 1];
        if (word->hash == hash && (size_t)word->n_bytes == n &&
            memcmp(learner->text + word->at, learner->text + at, n) == 0) {
            word->count++;
            return true;
        }
    }
    learner->places[slot] = learner->n_words + 1;
    return add_word(learner,
                    &(pair_word){.count = 1, .hash = hash, .at = at, .n_bytes = (int32_t)n});
}

static const dunlin_pair_entry *most_frequent(const dunlin_pair_table *table)
{
    const dunlin_pair_entry *best = NULL;
    for (size_t i = 0; i < table->capacity; i++) {
        const dunlin_pair_entry *entry = &table->entries[i];
        if (entry->left < 0 || entry->n < 2) {
            continue;
        }
        const bool is_before =
            best == NULL || entry->n > best->n ||
            (entry->n == best->n && (entry->left < best->left ||
                                     (entry->left == best->left && entry->right < best->right)));
        best = is_before ? entry : best;
    }
    return best;
}

static bool has_pair(const int32_t *symbols, int32_t n, const int32_t pair[2])
{
    for (int32_t i = 0; i + 1 < n; i++) {
        if (symbols[i] == pair[0] && symbols[i + 1] == pair[1]) {
            return true;
        }
    }
    return false;
}

/* Joins a pair from the left on; how many symbols are left. */
static int32_t join_pair(int32_t *symbols, int32_t n, const int32_t pair[2], int32_t token)
{
    int32_t n_left = 0;
    for (int32_t i = 0; i < n; i++) {
        const bool is_pair = i + 1 < n && symbols[i] == pair[0] && symbols[i + 1] == pair[1];
        symbols[n_left++] = is_pair ? token : symbols[i];
        i += is_pair ? 1 : 0;
    }
    return n_left;
}

/* The next token, of the most frequent pair. False: no memory; *out_is_done: there is no pair. */
static bool learn_token(pair_learner *learner, bool *out_is_done)
{
    dunlin_byte_pairs *pairs = learner->pairs;
    const dunlin_pair_entry *best = most_frequent(&pairs->pairs);
    *out_is_done = best == NULL;
    if (best == NULL) {
        return true;
    }
    const int32_t pair[2] = {best->left, best->right};
    const size_t n_parts = (size_t)(pairs->n_tokens - pairs->n_bytes);
    void *parts = pairs->parts;
    if (!dunlin__grow_array(&pairs->alloc, &parts, &pairs->parts_capacity, n_parts + 1,
                            sizeof *pairs->parts)) {
        return false;
    }
    pairs->parts = parts;
    memcpy(pairs->parts[n_parts], pair, sizeof pair);
    const int32_t token = pairs->n_tokens++;
    for (size_t i = 0; i < learner->n_words; i++) {
        pair_word *word = &learner->words[i];
        int32_t *symbols = learner->symbols + word->first;
        if (!has_pair(symbols, word->n, pair)) {
            continue;
        }
        (void)count_word(learner, word, -word->count); /* adds no entry */
        word->n = join_pair(symbols, word->n, pair, token);
        if (!count_word(learner, word, word->count)) {
            return false;
        }
    }
    pairs->pairs.entries[slot_of(&pairs->pairs, pair[0], pair[1])].token = token;
    return true;
}

static bool learn_all(pair_learner *learner, size_t n, int32_t n_tokens)
{
    for (size_t at = 0; at < n;) {
        const size_t length = word_length(learner->text + at, n - at);
        const bool is_gap = learner->text[at] == 0;
        if (!is_gap && length > 1 && !take_word(learner, at, length)) {
            return false;
        }
        at += length;
    }
    for (size_t i = 0; i < learner->n_words; i++) {
        if (!count_word(learner, &learner->words[i], learner->words[i].count)) {
            return false;
        }
    }
    bool is_done = false;
    while (!is_done && learner->pairs->n_tokens < n_tokens) {
        if (!learn_token(learner, &is_done)) {
            return false;
        }
    }
    return true;
}

dunlin_status dunlin__byte_pairs_learn(dunlin_byte_pairs *pairs, const uint8_t *text, size_t n,
                                       int32_t n_tokens, dunlin_error *error)
{
    pair_learner learner = {.pairs = pairs, .text = text};
    const bool is_done = learn_all(&learner, n, n_tokens);
    const dunlin_alloc *alloc = &pairs->alloc;
    dunlin__free_array(alloc, learner.words, learner.words_capacity, sizeof *learner.words);
    dunlin__free_array(alloc, learner.places, learner.places_capacity, sizeof *learner.places);
    dunlin__free_array(alloc, learner.symbols, learner.symbols_capacity, sizeof *learner.symbols);
    return is_done ? DUNLIN_OK
                   : dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                                  "no memory to learn %d tokens of %zu bytes of text",
                                  (int)n_tokens, n);
}

/* --- use --- */

void dunlin__byte_pairs_init(dunlin_byte_pairs *pairs, const uint8_t *text, size_t n,
                             const dunlin_alloc *alloc)
{
    bool is_there[256] = {false};
    *pairs = (dunlin_byte_pairs){.alloc = *alloc};
    for (size_t i = 0; i < n; i++) {
        is_there[text[i]] = true;
    }
    for (int32_t c = 0; c < 256; c++) {
        pairs->of_byte[c] = is_there[c] ? pairs->n_bytes : -1;
        if (is_there[c]) {
            pairs->bytes[pairs->n_bytes++] = (uint8_t)c;
        }
    }
    pairs->n_tokens = pairs->n_bytes;
}

void dunlin__byte_pairs_free(dunlin_byte_pairs *pairs)
{
    dunlin__free_array(&pairs->alloc, pairs->parts, pairs->parts_capacity, sizeof *pairs->parts);
    dunlin__free_array(&pairs->alloc, pairs->pairs.entries, pairs->pairs.capacity,
                       sizeof *pairs->pairs.entries);
    pairs->parts = NULL;
    pairs->parts_capacity = 0;
    pairs->pairs = (dunlin_pair_table){.entries = NULL};
}

/* Joins what was learnt first, as long as there is a pair. */
static int32_t join_word(const dunlin_byte_pairs *pairs, int32_t *symbols, int32_t n)
{
    for (;;) {
        const dunlin_pair_entry *first = NULL;
        for (int32_t i = 0; i + 1 < n; i++) {
            const dunlin_pair_entry *entry = find_pair(&pairs->pairs, symbols[i], symbols[i + 1]);
            const bool is_joined = entry != NULL && entry->token >= 0;
            first = is_joined && (first == NULL || entry->token < first->token) ? entry : first;
        }
        if (first == NULL) {
            return n;
        }
        const int32_t pair[2] = {first->left, first->right};
        n = join_pair(symbols, n, pair, first->token);
    }
}

size_t dunlin__byte_pairs_encode(const dunlin_byte_pairs *pairs, const uint8_t *text, size_t n,
                                 int32_t *out_tokens)
{
    size_t n_tokens = 0;
    for (size_t at = 0; at < n;) {
        const size_t length = word_length(text + at, n - at);
        int32_t *symbols = out_tokens + n_tokens;
        for (size_t i = 0; i < length; i++) {
            symbols[i] = pairs->of_byte[text[at + i]];
        }
        n_tokens += (size_t)join_word(pairs, symbols, (int32_t)length);
        at += length;
    }
    return n_tokens;
}

size_t dunlin__byte_pairs_spell(const dunlin_byte_pairs *pairs, int32_t token, uint8_t *out,
                                size_t room)
{
    int32_t open[MOST_BYTES + 1]; /* the last one is next */
    size_t n_open = 0;
    size_t n = 0;
    open[n_open++] = token;
    while (n_open > 0) {
        const int32_t next = open[--n_open];
        if (next < pairs->n_bytes) {
            if (n < room) {
                out[n] = pairs->bytes[next];
            }
            n++;
        } else {
            open[n_open++] = pairs->parts[next - pairs->n_bytes][1];
            open[n_open++] = pairs->parts[next - pairs->n_bytes][0];
        }
    }
    return n;
}

uint32_t dunlin__byte_pairs_crc(const dunlin_byte_pairs *pairs)
{
    uLong crc = crc32(0L, Z_NULL, 0);
    for (int32_t token = 0; token < pairs->n_tokens; token++) {
        uint8_t bytes[1 + MOST_BYTES];
        const size_t n = dunlin__byte_pairs_spell(pairs, token, bytes + 1, MOST_BYTES);
        bytes[0] = (uint8_t)n;
        crc = crc32(crc, bytes, (uInt)(n + 1));
    }
    return (uint32_t)crc;
}
