/*
 * test_own_bad.c - a user's files that are wrong, damaged or too large for the memory there is.
 */
#include "own_support.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(own_bad, .init = own_setup, .fini = own_teardown);

Test(own_bad, wrong_tables_are_named)
{
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"", "bad.csv: empty"},
        {"1\n2\n", "bad.csv:1: 1 columns"},
        {"a,b,kind\n1,2,x\n1,,y\n", "bad.csv:3: the value of column b is missing (\"\")"},
        {"a,b,kind\n1,2,x\nnan,2,y\n", "bad.csv:3: the value of column a is missing (\"nan\")"},
        {"1,2,0\n1,2,\n", "bad.csv:2: the value of column 3 is missing"},
        {"a,b,kind\n1,2,x\n1,no,y\n", "bad.csv:3: \"no\" in column b is not a number"},
        {"1,2,0\n1,2,3,0\n", "bad.csv:2: 4 values for 3 columns"},
        {"1,\"2\n3,4\n", "bad.csv:1: cut off: a quote of this row does not end"},

        {"1,\x01,0\n", "bad.csv:1: not text: byte 0x01"},
        {"a,b,kind\n1,1e39,0\n", "is not a number"},
        {"1,2,0\n", "1 examples: at least 2"},
    };
    NAME(name, "csv:", "bad.csv");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        own_write_text("bad.csv", cases[i].text);
        own_expect_refused(name, NULL, DUNLIN_DATA, cases[i].word);
    }
    own_write_text("bad.csv", "a,b,kind\n1,2,x\n3,4,y\n");
    NAME(nobody, "csv:", "bad.csv", "label=c");
    own_expect_refused(nobody, NULL, DUNLIN_DATA, "no column is called \"c\"");
    NAME(odd, "csv:", "bad.csv", "odd=c");
    own_expect_refused(odd, NULL, DUNLIN_ARGUMENT, "odd=");
    NAME(two, "csv:", "bad.csv", "bad.csv");
    own_expect_refused(two, NULL, DUNLIN_ARGUMENT, "one file");
    NAME(seed, "csv:", "bad.csv", "seed=x");
    own_expect_refused(seed, NULL, DUNLIN_ARGUMENT, "seed=x");
    own_write_text("other.csv", "1,2,3,x\n");
    own_write_text("strange.csv", "1,2,z\n");
    NAME(other, "csv:", "bad.csv", "test=other.csv");
    NAME(strange, "csv:", "bad.csv", "test=strange.csv");
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    cr_expect_eq(dunlin_dataset_open(other, NULL, DUNLIN_SPLIT_TEST, NULL, NULL, &set, &error),
                 DUNLIN_MISMATCH, "%s", error.text);
    cr_expect_eq(dunlin_dataset_open(strange, NULL, DUNLIN_SPLIT_TEST, NULL, NULL, &set, &error),
                 DUNLIN_DATA);
    cr_expect_not_null(strstr(error.text, "strange.csv:1: a label"), "%s", error.text);
}

Test(own_bad, wrong_arrays_are_named)
{
    static const float numbers[4] = {1, 2, 3, 4};
    const int64_t labels[2] = {0, 1};
    const float broken[4] = {1, 2, NAN, 4};
    static const struct {
        int version;
        const char *header, *word;
        dunlin_status status;
    } cases[] = {
        {1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}", "Fortran order",
         DUNLIN_UNSUPPORTED},
        {1, "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 2)}", "type >f4",
         DUNLIN_UNSUPPORTED},
        {1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 2)}", "several fields",
         DUNLIN_UNSUPPORTED},
        {4, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}", "format 4.0",
         DUNLIN_UNSUPPORTED},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", "announces 6",
         DUNLIN_DATA},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1)}", "too long", DUNLIN_DATA},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 0)}", "dimension 1",
         DUNLIN_DATA},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': ()}", "single number", DUNLIN_DATA},
        {1, "{'descr': '<f4', 'fortran_order': False}", "no shape", DUNLIN_DATA},
        {1, "{'descr': '<f4', 'shape': (2, 2)}", "fortran_order", DUNLIN_DATA},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}", "dimensions",
         DUNLIN_MISMATCH},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 1)}", "4 examples",
         DUNLIN_MISMATCH},
    };
    own_write_bytes("l.npy", test_npy("<i8", "(2,)", labels, sizeof labels));
    NAME(name, "npy:", "bad.npy", "l.npy");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        own_write_bytes(
            "bad.npy", test_npy_header(cases[i].version, cases[i].header, numbers, sizeof numbers));
        own_expect_refused(name, NULL, cases[i].status, cases[i].word);
    }
    own_write_bytes("bad.npy", test_npy("<f4", "(2, 2)", broken, sizeof broken));
    own_expect_refused(name, NULL, DUNLIN_DATA, "bad.npy: row 1, column 0 is not a number");
    own_write_bytes("ok.npy", test_npy("<f4", "(2, 2)", numbers, sizeof numbers));
    const float halves[2] = {0.5F, 1};
    own_write_bytes("l.npy", test_npy("<f4", "(2,)", halves, sizeof halves));
    NAME(half, "npy:", "ok.npy", "l.npy");
    own_expect_refused(half, NULL, DUNLIN_DATA, "l.npy: row 0: label 0.5");
    own_write_bytes("l.npy", test_npy("<f4", "(2, 2)", numbers, sizeof numbers));
    own_expect_refused(half, NULL, DUNLIN_UNSUPPORTED, "2 labels an example");
    NAME(three, "npy:", "ok.npy", "l.npy", "ok.npy");
    own_expect_refused(three, NULL, DUNLIN_ARGUMENT, "X,Y,X_TEST,Y_TEST");
}

/* Every format of .npy is read alike. */
Test(own_bad, formats_of_npy)
{
    const uint8_t x[4][2][2] = {
        {{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}, {{9, 1}, {1, 1}}, {{0, 0}, {0, 1}}};
    const int32_t y[4] = {0, 1, 1, 0};
    own_write_bytes("y4.npy", test_npy("<i4", "(4,)", y, sizeof y));
    NAME(name, "npy:", "v.npy", "y4.npy");
    for (int version = 1; version <= 3; version++) {
        own_write_bytes(
            "v.npy",
            test_npy_header(version,
                            "{\"descr\": \"|u1\", \"fortran_order\": False, \"shape\": (4L, 2, 2)}",
                            x, sizeof x));
        dunlin_alloc_counter counter;
        dunlin_dataset *set = own_open_set(name, DUNLIN_SPLIT_TRAIN, NULL, &counter);
        cr_expect_eq(dunlin_dataset_n_examples(set), 3);
        dunlin_dataset_close(set);
    }
}

/* Cut or changed anywhere, an archive is refused in one line or read as it says. */
Test(own_bad, damaged_archives)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/deflated.npz", own_folder.path);
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file);
    static uint8_t whole[65536];
    const size_t n = fread(whole, 1, sizeof whole, file);
    (void)fclose(file);
    NAME(name, "npy:", "cut.npz");
    for (size_t cut = 0; cut < n; cut += cut < 64 || cut + 128 > n ? 1 : 13) {
        test_folder_write_raw(&own_folder, "cut.npz", whole, cut);
        own_expect_refused(name, NULL, DUNLIN_DATA, "cut.npz");
    }
    size_t n_refused = 0;
    for (size_t at = 0; at < n; at += 3) {
        whole[at] ^= 0x10;
        test_folder_write_raw(&own_folder, "cut.npz", whole, n);
        dunlin_dataset *set = NULL;
        dunlin_error error = {0};
        const dunlin_status status =
            dunlin_dataset_open(name, NULL, DUNLIN_SPLIT_TRAIN, NULL, NULL, &set, &error);
        n_refused += status != DUNLIN_OK ? 1 : 0;
        cr_expect(status == DUNLIN_OK || error.text[0] != '\0');
        dunlin_dataset_close(set);
        whole[at] ^= 0x10;
    }
    cr_expect_gt(n_refused, 100);
}

typedef struct failing {
    int64_t left;
    dunlin_alloc_counter counter;
} failing;

static void *failing_alloc(void *ctx, size_t bytes, size_t align)
{
    failing *state = ctx;
    if (state->left == 0) {
        return NULL;
    }
    state->left--;
    return state->counter.hooks.alloc_fn(state->counter.hooks.ctx, bytes, align);
}

static void failing_free(void *ctx, void *memory, size_t bytes)
{
    failing *state = ctx;
    state->counter.hooks.free_fn(state->counter.hooks.ctx, memory, bytes);
}

Test(own_bad, every_failing_allocation_is_clean)
{
    own_write_text("names.csv", "who,v,kind\nzoe,1,red\nann,2,blue\nbob,1,red\n");
    NAME(npz, "npy:", "deflated.npz");
    NAME(table, "csv:", "names.csv", "client=who", "label=kind", "test=names.csv");
    const char *const names[] = {npz, table};
    for (size_t i = 0; i < 2; i++) {
        dunlin_status status = DUNLIN_MEMORY;
        for (int64_t n = 0; status != DUNLIN_OK; n++) {
            failing state = {.left = n};
            dunlin_alloc_counter_init(&state.counter, NULL);
            const dunlin_alloc hooks = {&state, failing_alloc, failing_free};
            dunlin_dataset *set = NULL;
            dunlin_error error = {0};
            status =
                dunlin_dataset_open(names[i], NULL, DUNLIN_SPLIT_TEST, NULL, &hooks, &set, &error);
            state.left = -1;
            cr_assert(status == DUNLIN_OK || status == DUNLIN_MEMORY, "%s", error.text);
            dunlin_dataset_close(set);
            cr_assert_eq(state.counter.now_bytes, 0U, "%s, allocation %d", names[i], (int)n);
            cr_assert_lt(n, 1000);
        }
    }
}
