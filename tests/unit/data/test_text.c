/*
 * test_text.c - texts of roles as examples of tokens: by hand, by byte pairs, made ones, the real
 * one where DUNLIN_DATA names its folder, and what is refused.
 */
#include "data/readers/byte_pairs.h"
#include "data_files.h"
#include "random.h"

#include <dunlin/dataset.h>
#include <mem/support.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of A 40 bytes, whose last four are tested on, of B 10. */
static const char small[] = "A:\n0123456789abcdefghi\n\nB:\nKLMNOPQRS\n\nA:\njklmnopqrstuvwxyzAB\n";

static dunlin_status try_text(const char *text, size_t n, const char *name, dunlin_split split,
                              const dunlin_dataset_options *options, dunlin_dataset **out_set,
                              dunlin_error *error)
{
    test_folder folder;
    test_folder_begin(&folder);
    test_folder_write_raw(&folder, "tinyshakespeare/input.txt", text, n);
    const dunlin_status status =
        dunlin_dataset_open(name, folder.path, split, options, NULL, out_set, error);
    test_folder_end(&folder);
    return status;
}

static dunlin_dataset *open_text(const char *text, const char *name, dunlin_split split,
                                 int64_t sequence, int32_t vocabulary)
{
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.shape = (dunlin_shape){1, {sequence}};
    options.vocabulary = vocabulary;
    cr_assert_eq(try_text(text, strlen(text), name, split, &options, &set, &error), DUNLIN_OK, "%s",
                 error.text);
    return set;
}

/* The number of a byte: its place among those of the text. */
static int32_t number_of(const char *text, char c)
{
    int32_t number = 0;
    for (int k = 1; k < (unsigned char)c; k++) {
        number += strchr(text, k) != NULL ? 1 : 0;
    }
    return number;
}

static void expect_example(const dunlin_dataset *set, int64_t index, const char *said)
{
    /* A colon is in the text, and no role says it. */
    static const char *const said_by_all = "\n0123456789abcdefghiKLMNOPQRSjklmnopqrstuvwxyzAB";
    const int64_t length = (int64_t)strlen(said) - 1;
    int32_t x[16];
    int32_t labels[16];
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    cr_assert_eq(source.read_fn(source.ctx, &index, 1, x, labels), DUNLIN_OK);
    for (int64_t i = 0; i < length; i++) {
        cr_expect_eq(x[i], number_of(said_by_all, said[i]), "example %d of '%s'", (int)index, said);
        cr_expect_eq(labels[i], number_of(said_by_all, said[i + 1]), "label of '%s'", said);
    }
    cr_expect_eq(dunlin_dataset_label(set, index), labels[0]);
}

Test(text, roles_by_character)
{
    dunlin_dataset *set = open_text(small, "shakespeare", DUNLIN_SPLIT_TRAIN, 5, 0);
    cr_assert_eq(dunlin_dataset_n_examples(set), 8);
    cr_expect_eq(dunlin_dataset_n_labels(set), 5);
    cr_expect_eq(dunlin_dataset_n_classes(set), 48);
    cr_expect_eq(dunlin_dataset_n_natural_clients(set), 2);
    expect_example(set, 0, "012345");
    expect_example(set, 3, "fghi\nj");
    expect_example(set, 6, "tuvwxy");
    expect_example(set, 7, "KLMNOP");
    cr_expect_eq(dunlin_dataset_client_of(set, 6), 0);
    cr_expect_eq(dunlin_dataset_client_of(set, 7), 1);
    cr_expect_not_null(strstr(dunlin_dataset_note(set), "48 tokens, bytes; CRC-32 "), "%s",
                       dunlin_dataset_note(set));
    dunlin_dataset_close(set);
    set = open_text(small, "shakespeare", DUNLIN_SPLIT_TEST, 1, 0);
    cr_assert_eq(dunlin_dataset_n_examples(set), 3);
    cr_expect_eq(dunlin_dataset_n_natural_clients(set), 1);
    expect_example(set, 0, "zA");
    expect_example(set, 2, "B\n");
    dunlin_dataset_close(set);
}

/* A client of a partition by role has its role's examples. */
Test(text, partition_by_role)
{
    dunlin_dataset *set = open_text(small, "shakespeare", DUNLIN_SPLIT_TRAIN, 5, 0);
    dunlin_partition *partition = NULL;
    dunlin_partition_options options = DUNLIN_PARTITION_OPTIONS_INIT;
    options.kind = DUNLIN_PARTITION_NATURAL;
    cr_assert_eq(dunlin_partition_create(set, &options, NULL, &partition, NULL), DUNLIN_OK);
    int64_t n = 0;
    cr_assert_eq(dunlin_partition_n_clients(partition), 2);
    const int64_t *indices = dunlin_partition_indices(partition, 1, &n);
    cr_assert_eq(n, 1);
    cr_expect_eq(indices[0], 7);
    dunlin_partition_destroy(partition);
    dunlin_dataset_close(set);
}

static dunlin_byte_pairs learn(const char *text, int32_t n_tokens)
{
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin_byte_pairs pairs;
    dunlin__byte_pairs_init(&pairs, (const uint8_t *)text, strlen(text), &alloc);
    cr_assert_eq(
        dunlin__byte_pairs_learn(&pairs, (const uint8_t *)text, strlen(text), n_tokens, NULL),
        DUNLIN_OK);
    return pairs;
}

static void expect_spelt(const dunlin_byte_pairs *pairs, int32_t token, const char *bytes)
{
    uint8_t out[16] = {0};
    const size_t n = dunlin__byte_pairs_spell(pairs, token, out, sizeof out);
    cr_expect_eq(n, strlen(bytes), "token %d", (int)token);
    cr_expect_eq(memcmp(out, bytes, n), 0, "token %d is '%s', not '%s'", (int)token, (char *)out,
                 bytes);
}

/* "ab" comes five times, " " before it four times, and " ab" with "c" twice: then no pair does. */
Test(text, pairs_by_hand)
{
    dunlin_byte_pairs pairs = learn("ab ab ab abc abc", 100);
    cr_assert_eq(pairs.n_tokens, 7);
    expect_spelt(&pairs, 3, "c");
    expect_spelt(&pairs, 4, "ab");
    expect_spelt(&pairs, 5, " ab");
    expect_spelt(&pairs, 6, " abc");
    int32_t tokens[16];
    const char *text = "ab abc ab  cab";
    cr_assert_eq(dunlin__byte_pairs_encode(&pairs, (const uint8_t *)text, strlen(text), tokens), 7);
    static const int32_t wanted[] = {4, 6, 5, 0, 0, 3, 4};
    cr_expect_eq(memcmp(tokens, wanted, sizeof wanted), 0);
    dunlin__byte_pairs_free(&pairs);
    /* Of equally frequent pairs that of lower numbers; words end where letters do. */
    pairs = learn("zw zw xy xy,xy-zw", 6 + 1 + 1);
    cr_assert_eq(pairs.n_tokens, 8);
    cr_expect_eq(pairs.n_bytes, 7);
    expect_spelt(&pairs, 7, "xy");
    dunlin__byte_pairs_free(&pairs);
}

/* Any text comes back, and pairs of a text that has none twice are none. */
Test(text, pairs_come_back)
{
    enum { N = 3000 };
    static char text[N + 1];
    static int32_t tokens[N];
    uint64_t state = test_seed(5);
    for (int i = 0; i < N; i++) {
        text[i] = "abcAB 12 ,.\n\xc3\xa9"[test_random_below(&state, 14)];
    }
    dunlin_byte_pairs pairs = learn(text, 300);
    cr_expect_gt(pairs.n_tokens, 60);
    const size_t n = dunlin__byte_pairs_encode(&pairs, (const uint8_t *)text, N, tokens);
    cr_expect_lt(n, N);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t bytes[256];
        const size_t length = dunlin__byte_pairs_spell(&pairs, tokens[i], bytes, sizeof bytes);
        cr_assert(at + length <= N && memcmp(bytes, text + at, length) == 0, "token %zu", i);
        at += length;
    }
    cr_expect_eq(at, N);
    dunlin__byte_pairs_free(&pairs);
    pairs = learn("abcd", 300);
    cr_expect_eq(pairs.n_tokens, 4);
    dunlin__byte_pairs_free(&pairs);
}

/* What only a test part says teaches nothing: its pair is not joined. */
Test(text, test_parts_teach_nothing)
{
    static const char text[] = "A:\nab ab ab ab ab ab ab ab ab ab cd cd\n";
    dunlin_dataset *set = open_text(text, "shakespeare_bpe", DUNLIN_SPLIT_TRAIN, 2, 50);
    /* the bytes, "ab" and " ab"; of the last 36 / 10 bytes, "cd" among them, none */
    cr_expect_not_null(strstr(dunlin_dataset_note(set), "8 tokens, joined from pairs of bytes"),
                       "%s", dunlin_dataset_note(set));
    cr_expect_eq(dunlin_dataset_n_classes(set), 8);
    dunlin_dataset_close(set);
}

Test(text, made_text)
{
    dunlin_dataset *sets[3];
    int32_t x[3][64];
    int32_t labels[3][64];
    for (int i = 0; i < 3; i++) {
        dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
        dunlin_source source;
        options.seed = i < 2 ? 4 : 5;
        cr_assert_eq(dunlin_dataset_open("made_text", NULL, DUNLIN_SPLIT_TRAIN, &options, NULL,
                                         &sets[i], NULL),
                     DUNLIN_OK);
        dunlin_dataset_source(sets[i], &source);
        cr_assert_eq(source.read_fn(source.ctx, &(int64_t){7}, 1, x[i], labels[i]), DUNLIN_OK);
        cr_expect_eq(memcmp(x[i] + 1, labels[i], 63 * sizeof(int32_t)), 0);
    }
    cr_expect_eq(memcmp(x[0], x[1], sizeof x[0]), 0);
    cr_expect_neq(memcmp(x[0], x[2], sizeof x[0]), 0);
    cr_expect(dunlin_dataset_is_synthetic(sets[0]));
    cr_expect_eq(dunlin_dataset_n_natural_clients(sets[0]), 24);
    cr_expect_leq(dunlin_dataset_n_classes(sets[0]), 28);
    cr_expect_gt(dunlin_dataset_n_examples(sets[0]), 800);
    for (int i = 0; i < 3; i++) {
        dunlin_dataset_close(sets[i]);
    }
}

Test(text, what_is_refused)
{
    static const struct {
        const char *text;
        size_t n;
        dunlin_shape shape;
        dunlin_status status;
        const char *says;
    } cases[] = {
        {"said by nobody\n", 15, {1, {4}}, DUNLIN_DATA, "does not begin with a role's name"},
        {"\n\n\n", 3, {1, {4}}, DUNLIN_DATA, "is empty"},
        {"A:\nab\0cdefgh\n", 13, {1, {4}}, DUNLIN_DATA, "has a byte of 0"},
        {"A:\n", 3, {1, {4}}, DUNLIN_DATA, "no role says 4 tokens and one more"},
        {"A:\nabc\n", 7, {1, {4}}, DUNLIN_DATA, "no role says 4 tokens and one more"},
        {small, sizeof small - 1, {2, {4, 4}}, DUNLIN_UNSUPPORTED, "not of 2 dimensions"},
        {small, sizeof small - 1, {1, {70000}}, DUNLIN_UNSUPPORTED, "1 to 65536 tokens"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin_dataset *set = NULL;
        dunlin_error error = {0};
        dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
        options.shape = cases[i].shape;
        cr_expect_eq(try_text(cases[i].text, cases[i].n, "shakespeare", DUNLIN_SPLIT_TRAIN,
                              &options, &set, &error),
                     cases[i].status, "case %zu: %s", i, error.text);
        cr_expect_not_null(strstr(error.text, cases[i].says), "case %zu: %s", i, error.text);
        cr_expect_null(set);
    }
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    cr_expect_eq(
        dunlin_dataset_open("shakespeare", NULL, DUNLIN_SPLIT_TRAIN, NULL, NULL, &set, &error),
        DUNLIN_IO);
    cr_expect_not_null(strstr(error.text, "tinyshakespeare"), "%s", error.text);
}

/* The real text: 65 characters, and roles enough. */
Test(text, tiny_shakespeare)
{
    const char *folder = getenv("DUNLIN_DATA");
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    if (folder == NULL || dunlin_dataset_open("shakespeare", folder, DUNLIN_SPLIT_TRAIN, NULL, NULL,
                                              &set, &error) == DUNLIN_IO) {
        fprintf(stderr, "skipped: DUNLIN_DATA does not name a folder with tinyshakespeare\n");
        cr_skip_test();
    }
    cr_assert_not_null(set, "%s", error.text);
    cr_expect_eq(dunlin_dataset_n_classes(set), 65);
    cr_expect_gt(dunlin_dataset_n_natural_clients(set), 180);
    cr_expect_gt(dunlin_dataset_n_examples(set), 10000);
    dunlin_dataset_close(set);
    cr_assert_eq(
        dunlin_dataset_open("shakespeare_bpe", folder, DUNLIN_SPLIT_TEST, NULL, NULL, &set, &error),
        DUNLIN_OK, "%s", error.text);
    cr_expect_eq(dunlin_dataset_n_classes(set), 1024);
    dunlin_dataset_close(set);
}
