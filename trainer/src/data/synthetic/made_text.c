/*
 * made_text.c - "made_text" and "made_roles": what made roles say, for trying networks that predict
 * the next token, or who speaks, without a file.
 *
 * Invariant: the text follows from the seed alone. Each role has words of its own, which it says
 * more often than others; a sentence is a subject, a verb and an object with words before them.
 */
#include "data/common/draw.h"
#include "data/readers/text.h"

#include <mem/support.h>

#include <string.h>

#define N_ROLES 24
#define N_SPEECHES 600
#define N_EXAMPLES 4800 /* speeches, where each is one */
#define MOST_SPEECH 512 /* bytes */
#define OWN_PART 3      /* one word in three is the role's own */

enum { PURPOSE_SPEECH = 0x54455854, PURPOSE_OWN };

static const char *const names[] = {"ANNA", "BORIS", "CLARA", "DAVID", "EMMA", "FELIX"};
static const char *const before[] = {"the old", "a young", "my good", "no", "every", "this quiet"};
static const char *const nouns[] = {"king",  "river", "garden", "sailor", "night", "letter",
                                    "horse", "crown", "winter", "mother", "song",  "house"};
static const char *const verbs[] = {"finds", "loves", "forgets", "follows", "fears", "sings of"};
static const char *const ends[] = {".", "!", "?", ", and I will say so."};

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

typedef struct made_page {
    uint8_t *bytes;
    size_t n;
} made_page;

static void say(made_page *page, const char *word)
{
    const size_t n = strlen(word);
    memcpy(page->bytes + page->n, word, n);
    page->n += n;
}

/* A word of a list of n: often the role's own. */
static const char *choose(dunlin_draw *draw, uint64_t seed, uint64_t role, const char *const *list,
                          size_t n)
{
    if (dunlin__draw_below(draw, OWN_PART) == 0) {
        dunlin_draw own = dunlin__draw_begin(seed, PURPOSE_OWN, role * 64 + n);
        return list[dunlin__draw_below(&own, n)];
    }
    return list[dunlin__draw_below(draw, n)];
}

static void make_speech(made_page *page, uint64_t seed, uint64_t index)
{
    dunlin_draw draw = dunlin__draw_begin(seed, PURPOSE_SPEECH, index);
    const uint64_t role = dunlin__draw_below(&draw, N_ROLES);
    const uint64_t n_sentences = 2 + dunlin__draw_below(&draw, 4);
    const char number[] = {(char)('A' + (char)(role / COUNT(names))), '\0'};
    say(page, names[role % COUNT(names)]);
    say(page, " ");
    say(page, number);
    say(page, ":\n");
    for (uint64_t i = 0; i < n_sentences; i++) {
        say(page, choose(&draw, seed, role, before, COUNT(before)));
        say(page, " ");
        say(page, choose(&draw, seed, role, nouns, COUNT(nouns)));
        say(page, " ");
        say(page, choose(&draw, seed, role, verbs, COUNT(verbs)));
        say(page, " the ");
        say(page, choose(&draw, seed, role, nouns, COUNT(nouns)));
        say(page, choose(&draw, seed, role, ends, COUNT(ends)));
        say(page, i + 1 < n_sentences ? " " : "\n");
    }
    say(page, "\n");
}

static dunlin_status make_text(const dunlin_dataset *set, uint64_t seed, size_t n_speeches,
                               dunlin_text *out_text, dunlin_error *error)
{
    const size_t n_bytes = n_speeches * MOST_SPEECH;
    made_page page = {.bytes = dunlin__alloc_array(&set->alloc, n_bytes, 1)};
    if (page.bytes == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for %zu bytes of text",
                            n_bytes);
    }
    for (size_t i = 0; i < n_speeches; i++) {
        make_speech(&page, seed, i);
    }
    const dunlin_status status =
        dunlin__text_by_roles("made text", page.bytes, page.n, &set->alloc, out_text, error);
    dunlin__free_array(&set->alloc, page.bytes, n_bytes, 1);
    return status;
}

dunlin_status dunlin__data_load_made_text(dunlin_dataset *set, const dunlin_data_request *request,
                                          dunlin_error *error)
{
    dunlin_text text;
    set->title = "made text";
    set->is_synthetic = true;
    DUNLIN_TRY(make_text(set, request->options.seed, N_SPEECHES, &text, error));
    const dunlin_status status = dunlin__data_take_text(set, request, &text, false, error);
    dunlin__text_free(&text);
    return status;
}

dunlin_status dunlin__data_load_made_roles(dunlin_dataset *set, const dunlin_data_request *request,
                                           dunlin_error *error)
{
    dunlin_text text;
    set->title = "made speeches";
    set->is_synthetic = true;
    DUNLIN_TRY(make_text(set, request->options.seed, N_EXAMPLES, &text, error));
    const dunlin_status status = dunlin__data_take_speeches(set, request, &text, error);
    dunlin__text_free(&text);
    return status;
}
