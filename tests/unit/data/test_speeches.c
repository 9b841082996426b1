/*
 * test_speeches.c - who says it: speeches as rows of tokens with a class each, by hand, made ones,
 * the real ones where DUNLIN_DATA names their folder, and what is refused.
 */
#include "data_files.h"

#include <dunlin/dataset.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH 5
#define N_BYTES 6 /* of the small text: those of "abcde", and a line's end */
#define N_MARKS 2

static dunlin_status try_roles(const char *text, const dunlin_dataset_options *options,
                               dunlin_split split, dunlin_dataset **out_set, dunlin_error *error)
{
    test_folder folder;
    test_folder_begin(&folder);
    test_folder_write_raw(&folder, "tinyshakespeare/input.txt", text, strlen(text));
    const dunlin_status status =
        dunlin_dataset_open("shakespeare_roles", folder.path, split, options, NULL, out_set, error);
    test_folder_end(&folder);
    return status;
}

static dunlin_dataset_options options_of(int64_t length, int32_t vocabulary, int32_t classes)
{
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.shape = (dunlin_shape){1, {length}};
    options.vocabulary = vocabulary;
    options.classes = classes;
    return options;
}

/* Of B 20 speeches, the last two of them tested on, of C 12 and of A 3. */
static const char *small_text(char out[2048])
{
    size_t at = 0;
    for (int i = 0; i < 20; i++) {
        at += (size_t)snprintf(out + at, 2048 - at, "%s", i < 3 ? "A:\nabc\n\n" : "");
        at += (size_t)snprintf(out + at, 2048 - at, "B:\n%s\n\n", i < 18 ? "ab" : "abcdeab\nc");
        at += (size_t)snprintf(out + at, 2048 - at, "%s", i < 12 ? "C:\ndd\n\n" : "");
    }
    return out;
}

static void expect_row(const dunlin_dataset *set, int64_t index, const int32_t *tokens,
                       int32_t label)
{
    int32_t x[LENGTH];
    int32_t y = -1;
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    cr_assert_eq(source.read_fn(source.ctx, &index, 1, x, &y), DUNLIN_OK);
    for (int i = 0; i < LENGTH; i++) {
        cr_expect_eq(x[i], tokens[i], "example %d, token %d is %d", (int)index, i, (int)x[i]);
    }
    cr_expect_eq(y, label);
}

Test(speeches, by_hand)
{
    char text[2048];
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    /* As many tokens as there are bytes and marks: no pair is joined. */
    dunlin_dataset_options options = options_of(LENGTH, N_BYTES + N_MARKS, 2);
    cr_assert_eq(try_roles(small_text(text), &options, DUNLIN_SPLIT_TRAIN, &set, &error), DUNLIN_OK,
                 "%s", error.text);
    cr_assert_eq(dunlin_dataset_n_examples(set), 18 + 11);
    cr_expect_eq(dunlin_dataset_n_classes(set), 2);
    cr_expect_eq(dunlin_dataset_n_labels(set), 1);
    cr_expect_eq(dunlin_dataset_n_natural_clients(set), 2);
    const dunlin_shape shape = dunlin_dataset_shape(set);
    cr_expect(shape.n_dims == 1 && shape.dims[0] == LENGTH);
    /* Bytes in ascending order are tokens 2 (a line's end) and on; B, which says most, is class 0,
     * and classes come in turn while there are any. */
    expect_row(set, 0, (int32_t[]){1, 3, 4, 0, 0}, 0);
    expect_row(set, 1, (int32_t[]){1, 6, 6, 0, 0}, 1);
    expect_row(set, 21, (int32_t[]){1, 6, 6, 0, 0}, 1);
    expect_row(set, 28, (int32_t[]){1, 3, 4, 0, 0}, 0);
    cr_expect_neq(dunlin_dataset_client_of(set, 0), dunlin_dataset_client_of(set, 1));
    cr_expect_not_null(strstr(dunlin_dataset_note(set), "8 tokens, 0 is padding; CRC-32 "), "%s",
                       dunlin_dataset_note(set));
    dunlin_dataset_close(set);
    cr_assert_eq(try_roles(text, &options, DUNLIN_SPLIT_TEST, &set, &error), DUNLIN_OK);
    cr_assert_eq(dunlin_dataset_n_examples(set), 2 + 1);
    expect_row(set, 0, (int32_t[]){1, 3, 4, 5, 6}, 0); /* cut */
    dunlin_dataset_close(set);
    options.max_examples = 4;
    cr_assert_eq(try_roles(text, &options, DUNLIN_SPLIT_TRAIN, &set, &error), DUNLIN_OK);
    cr_assert_eq(dunlin_dataset_n_examples(set), 4);
    expect_row(set, 3, (int32_t[]){1, 6, 6, 0, 0}, 1);
    dunlin_dataset_close(set);
}

/* Three roles, and the pair "ab", which is joined; the test part teaches nothing. */
Test(speeches, pairs_are_learnt_from_the_training_part)
{
    char text[2048];
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    const dunlin_dataset_options options = options_of(LENGTH, 100, 3);
    cr_assert_eq(try_roles(small_text(text), &options, DUNLIN_SPLIT_TEST, &set, &error), DUNLIN_OK,
                 "%s", error.text);
    int32_t x[LENGTH];
    int32_t y = -1;
    const int64_t first = 0;
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    cr_assert_eq(source.read_fn(source.ctx, &first, 1, x, &y), DUNLIN_OK);
    /* "abcdeab\nc": abc is joined, as A says it three times, "de" is not. */
    cr_expect_geq(x[1], N_BYTES + N_MARKS, "nothing was joined");
    cr_expect_eq(x[2], 6, "'d' is %d", (int)x[2]);
    cr_expect_eq(x[3], 7, "'e' is %d", (int)x[3]);
    cr_expect_eq(y, 0);
    dunlin_dataset_close(set);
}

Test(speeches, what_is_refused)
{
    char text[2048];
    (void)small_text(text);
    const struct {
        const char *text;
        dunlin_dataset_options options;
        dunlin_status status;
        const char *says;
    } cases[] = {
        {text, options_of(LENGTH, 7, 2), DUNLIN_MISMATCH, "more than the 7 tokens"},
        {text, options_of(LENGTH, 0, 4), DUNLIN_DATA, "4 classes are asked for; there are 3 roles"},
        {text, options_of(70000, 0, 2), DUNLIN_UNSUPPORTED, "1 to 65536 tokens"},
        {"A:\n\nB:\n\n", options_of(LENGTH, 0, 2), DUNLIN_DATA, "no role says anything"},
        {"A:\na\n\nB:\nb\n", options_of(LENGTH, 0, 2), DUNLIN_OK, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin_dataset *set = NULL;
        dunlin_error error = {0};
        cr_expect_eq(try_roles(cases[i].text, &cases[i].options, DUNLIN_SPLIT_TRAIN, &set, &error),
                     cases[i].status, "case %zu: %s", i, error.text);
        cr_expect_not_null(strstr(error.text, cases[i].says), "case %zu: %s", i, error.text);
        dunlin_dataset_close(set);
    }
    const dunlin_dataset_options two = options_of(LENGTH, 0, 2);
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    cr_expect_eq(try_roles("A:\na\n\nB:\nb\n", &two, DUNLIN_SPLIT_TEST, &set, &error), DUNLIN_DATA);
    cr_expect_not_null(strstr(error.text, "no role has 10 speeches"), "%s", error.text);
}

static int64_t n_of_class(const dunlin_dataset *set, int32_t wanted)
{
    int64_t n = 0;
    for (int64_t i = 0; i < dunlin_dataset_n_examples(set); i++) {
        n += dunlin_dataset_label(set, i) == wanted ? 1 : 0;
    }
    return n;
}

Test(speeches, made_ones)
{
    dunlin_dataset *set = NULL;
    dunlin_dataset *again = NULL;
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.seed = 3;
    cr_assert_eq(
        dunlin_dataset_open("made_roles", NULL, DUNLIN_SPLIT_TRAIN, &options, NULL, &set, NULL),
        DUNLIN_OK);
    cr_expect_eq(dunlin_dataset_n_classes(set), 10);
    cr_expect(dunlin_dataset_is_synthetic(set));
    for (int32_t label = 0; label < 10; label++) {
        cr_expect_gt(n_of_class(set, label), 150, "class %d", (int)label);
    }
    cr_assert_eq(
        dunlin_dataset_open("made_roles", NULL, DUNLIN_SPLIT_TRAIN, &options, NULL, &again, NULL),
        DUNLIN_OK);
    uint64_t n = 0;
    uint64_t n_again = 0;
    const void *one = dunlin_dataset_stored(set, &n);
    const void *other = dunlin_dataset_stored(again, &n_again);
    cr_assert(n == n_again && n > 0 && memcmp(one, other, n) == 0);
    dunlin_dataset_close(again);
    dunlin_dataset_close(set);
}

Test(speeches, of_shakespeare)
{
    const char *folder = getenv("DUNLIN_DATA");
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    if (folder == NULL || dunlin_dataset_open("shakespeare_roles", folder, DUNLIN_SPLIT_TRAIN, NULL,
                                              NULL, &set, &error) == DUNLIN_IO) {
        fprintf(stderr, "skipped: DUNLIN_DATA does not name a folder with tinyshakespeare\n");
        cr_skip_test();
    }
    cr_assert_not_null(set, "%s", error.text);
    cr_expect_eq(dunlin_dataset_n_classes(set), 10);
    cr_expect_gt(dunlin_dataset_n_examples(set), 1200);
    cr_expect_gt(n_of_class(set, 0), n_of_class(set, 9));
    cr_expect_not_null(strstr(dunlin_dataset_note(set), "1024 tokens"), "%s",
                       dunlin_dataset_note(set));
    dunlin_dataset_close(set);
}
