/*
 * test_validation.c - what is held out of a training split; CIFAR-100 and the JPEG copy of CIFAR-10
 * in full.
 */
#include "picture_files.h"

#include <dunlin/tools.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 60

static test_folder files;

static void setup(void)
{
    test_folder_begin(&files);
    test_bytes images = test_idx_images(N);
    test_bytes labels = test_idx_labels(N);
    test_bytes writers = test_qmnist(N, 10);
    test_folder_write(&files, "mnist/train-images-idx3-ubyte.gz", &images);
    test_folder_write(&files, "mnist/train-labels-idx1-ubyte.gz", &labels);
    test_folder_write(&files, "mnist/t10k-images-idx3-ubyte.gz", &images);
    test_folder_write(&files, "mnist/t10k-labels-idx1-ubyte.gz", &labels);
    test_folder_write(&files, "mnist-writers/qmnist-train-labels-idx2-int.gz", &writers);
    test_bytes_free(&images);
    test_bytes_free(&labels);
    test_bytes_free(&writers);
}

static void teardown(void)
{
    test_folder_end(&files);
}

TestSuite(validation, .init = setup, .fini = teardown);

static dunlin_dataset *open_part(const char *name, dunlin_split split,
                                 const dunlin_validation *validation, const dunlin_alloc *hooks)
{
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    options.validation = validation;
    const dunlin_status status =
        dunlin_tools_dataset_open(name, files.path, split, &options, hooks, &set, &error);
    cr_assert_eq(status, DUNLIN_OK, "%s: %s", name, error.text);
    return set;
}

static dunlin_validation hold(double share, int64_t n, uint64_t seed, bool by_client)
{
    dunlin_validation made = DUNLIN_VALIDATION_INIT;
    made.share = share;
    made.n_examples = n;
    made.seed = seed;
    made.by_client = by_client;
    return made;
}

/* Which example of the whole set it is: pixel 0 of example i is 7 i, and 7 is odd. */
static int number_of(const dunlin_dataset *set, int64_t i)
{
    dunlin_source source;
    uint8_t x[784];
    int32_t y = 0;
    dunlin_dataset_source(set, &source);
    cr_assert_eq(source.read_fn(source.ctx, &i, 1, x, &y), DUNLIN_OK);
    for (int k = 0; k < N; k++) {
        if ((uint8_t)(k * 7) == x[0]) {
            cr_assert_eq(y, k % 10);
            cr_assert_eq(dunlin_dataset_label(set, i), k % 10);
            return k;
        }
    }
    cr_assert_fail("no such example");
    return -1;
}

/* Both parts together are the whole set, each in its order, and hooks have everything back. */
static int check_parts(const dunlin_validation *validation, bool out_is_held[N])
{
    int n_held = 0;
    int n_all = 0;
    bool is_seen[N] = {false};
    for (int part = 0; part < 2; part++) {
        dunlin_alloc_counter counter;
        dunlin_alloc_counter_init(&counter, NULL);
        dunlin_dataset *set =
            open_part("mnist_writers", part == 0 ? DUNLIN_SPLIT_TRAIN : DUNLIN_SPLIT_VALIDATION,
                      validation, &counter.hooks);
        cr_assert_eq(counter.now_bytes, dunlin_dataset_bytes(set));
        int last = -1;
        for (int64_t i = 0; i < dunlin_dataset_n_examples(set); i++) {
            const int k = number_of(set, i);
            cr_assert_gt(k, last);
            cr_assert_not(is_seen[k]);
            is_seen[k] = true;
            last = k;
            n_all++;
            n_held += part;
            out_is_held[k] = part == 1;
        }
        dunlin_dataset_close(set);
        cr_assert_eq(counter.now_bytes, 0U);
    }
    cr_assert_eq(n_all, N);
    return n_held;
}

Test(validation, parts_are_disjoint_and_seeded)
{
    bool first[N];
    bool again[N];
    bool other[N];
    dunlin_validation how = hold(0.25, 0, 3, false);
    cr_assert_eq(check_parts(&how, first), 15);
    cr_assert_eq(check_parts(&how, again), 15);
    cr_assert_arr_eq(first, again, sizeof first);
    how.seed = 4;
    cr_assert_eq(check_parts(&how, other), 15);
    cr_assert_neq(memcmp(first, other, sizeof first), 0);
    how = hold(0.0, 7, 3, false);
    cr_assert_eq(check_parts(&how, other), 7);
}

Test(validation, whole_writers_are_held_out)
{
    bool held[N];
    for (int by_number = 0; by_number < 2; by_number++) {
        const dunlin_validation how = hold(0.3, by_number == 1 ? 13 : 0, 1, true);
        cr_assert_eq(check_parts(&how, held), 18, "three of ten writers with six examples each");
        for (int k = 10; k < N; k++) {
            cr_assert_eq(held[k], held[k - 10], "example %d has the writer of example %d", k,
                         k - 10);
        }
        dunlin_dataset *train = open_part("mnist_writers", DUNLIN_SPLIT_TRAIN, &how, NULL);
        dunlin_dataset *part = open_part("mnist_writers", DUNLIN_SPLIT_VALIDATION, &how, NULL);
        cr_assert_eq(dunlin_dataset_n_natural_clients(train), 7);
        cr_assert_eq(dunlin_dataset_n_natural_clients(part), 3);
        for (int64_t i = 0; i < 18; i++) {
            cr_assert_lt(dunlin_dataset_client_of(part, i), 3);
        }
        dunlin_dataset_close(train);
        dunlin_dataset_close(part);
    }
}

Test(validation, indices_are_those_of_the_parts)
{
    bool held[N];
    int64_t indices[N];
    int64_t n_train = 0;
    const dunlin_validation how = hold(0.25, 0, 3, false);
    (void)check_parts(&how, held);
    dunlin_dataset *set = open_part("mnist_writers", DUNLIN_SPLIT_TRAIN, NULL, NULL);
    cr_assert_eq(dunlin_dataset_hold_out(set, &how, indices, &n_train, NULL), DUNLIN_OK);
    cr_assert_eq(n_train, 45);
    for (int64_t i = 0; i < N; i++) {
        cr_assert_eq(held[indices[i]], i >= n_train);
        cr_assert(i == 0 || i == n_train || indices[i] > indices[i - 1]);
    }
    dunlin_dataset_close(set);
}

/* A set whose examples are made when they are read: the same ones, whichever part they are in. */
Test(validation, of_made_examples)
{
    const dunlin_validation how = hold(0.25, 0, 5, false);
    dunlin_dataset *whole = open_part("random", DUNLIN_SPLIT_TRAIN, NULL, NULL);
    dunlin_dataset *train = open_part("random", DUNLIN_SPLIT_TRAIN, &how, NULL);
    dunlin_dataset *part = open_part("random", DUNLIN_SPLIT_VALIDATION, &how, NULL);
    dunlin_source sources[3];
    dunlin_dataset_source(whole, &sources[0]);
    dunlin_dataset_source(train, &sources[1]);
    dunlin_dataset_source(part, &sources[2]);
    cr_assert_eq(sources[1].n_examples + sources[2].n_examples, sources[0].n_examples);
    int64_t at[3] = {0, 0, 0};
    for (int64_t i = 0; i < sources[0].n_examples; i++) {
        static float x[3][784];
        int32_t y[3] = {0, 0, 0};
        for (int s = 0; s < 3; s++) {
            const int64_t k = at[s] < sources[s].n_examples ? at[s] : 0;
            cr_assert_eq(sources[s].read_fn(sources[s].ctx, &k, 1, x[s], &y[s]), DUNLIN_OK);
        }
        const int from = memcmp(x[0], x[1], sizeof x[0]) == 0 ? 1 : 2;
        cr_assert_arr_eq(x[0], x[from], sizeof x[0]);
        cr_assert_eq(y[0], y[from]);
        at[0]++;
        at[from]++;
    }
    dunlin_dataset_close(whole);
    dunlin_dataset_close(train);
    dunlin_dataset_close(part);
}

static void refused(const char *name, dunlin_split split, const dunlin_validation *how,
                    dunlin_status expected, const char *word)
{
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.validation = how;
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    cr_assert_eq(
        dunlin_tools_dataset_open(name, files.path, split, &options, &counter.hooks, &set, &error),
        expected, "%s", error.text);
    cr_assert_not_null(strstr(error.text, word), "\"%s\" is not in: %s", word, error.text);
    cr_assert_null(set);
    cr_assert_eq(counter.now_bytes, 0U);
}

Test(validation, bad_ones_are_refused)
{
    dunlin_validation how = hold(0.0, 0, 0, false);
    refused("mnist", DUNLIN_SPLIT_TRAIN, &how, DUNLIN_ARGUMENT, "share");
    how = hold(1.0, 0, 0, false);
    refused("mnist", DUNLIN_SPLIT_TRAIN, &how, DUNLIN_ARGUMENT, "share");
    how = hold(0.5, -1, 0, false);
    refused("mnist", DUNLIN_SPLIT_TRAIN, &how, DUNLIN_ARGUMENT, "-1");
    how = hold(0.001, 0, 0, false);
    refused("mnist", DUNLIN_SPLIT_VALIDATION, &how, DUNLIN_DATA, "none to evaluate");
    how = hold(0.0, N, 0, false);
    refused("mnist", DUNLIN_SPLIT_TRAIN, &how, DUNLIN_DATA, "none to train on");
    how = hold(0.2, 0, 0, true);
    refused("mnist", DUNLIN_SPLIT_TRAIN, &how, DUNLIN_UNSUPPORTED, "does not say who");
    refused("mnist", DUNLIN_SPLIT_VALIDATION, NULL, DUNLIN_ARGUMENT, "validation is NULL");
    refused("mnist", (dunlin_split)3, NULL, DUNLIN_ARGUMENT, "split is 3");
    /* The test split is as it is without. */
    dunlin_dataset *test = open_part("mnist", DUNLIN_SPLIT_TEST, &how, NULL);
    cr_assert_eq(dunlin_dataset_n_examples(test), N);
    dunlin_dataset_close(test);
}

/* Hooks that fail from the n-th call on. */
typedef struct failing {
    dunlin_alloc_counter counter;
    int64_t left;
} failing;

static void *failing_alloc(void *ctx, size_t bytes, size_t align)
{
    failing *state = ctx;
    return state->left-- > 0 ? state->counter.hooks.alloc_fn(state->counter.hooks.ctx, bytes, align)
                             : NULL;
}

static void failing_free(void *ctx, void *memory, size_t bytes)
{
    failing *state = ctx;
    state->counter.hooks.free_fn(state->counter.hooks.ctx, memory, bytes);
}

Test(validation, failing_allocations_are_clean)
{
    static const char *const names[] = {"mnist_writers", "random"};
    for (size_t i = 0; i < 4; i++) {
        const dunlin_validation how = hold(0.0, i < 2 ? 20 : 18, 1, i % 2 == 0);
        dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
        options.validation = &how;
        dunlin_status status = DUNLIN_MEMORY;
        for (int64_t n = 0; status != DUNLIN_OK; n++) {
            failing state = {.left = n};
            dunlin_alloc_counter_init(&state.counter, NULL);
            const dunlin_alloc hooks = {&state, failing_alloc, failing_free};
            dunlin_dataset *set = NULL;
            status = dunlin_tools_dataset_open(names[i % 2], files.path, DUNLIN_SPLIT_VALIDATION,
                                               &options, &hooks, &set, NULL);
            cr_assert(status == DUNLIN_OK || status == DUNLIN_MEMORY);
            dunlin_dataset_close(set);
            cr_assert_eq(state.counter.now_bytes, 0U, "%s, allocation %d", names[i % 2], (int)n);
        }
    }
}

Test(validation, texts)
{
    static const struct {
        const char *text;
        bool is_good;
        double share;
        int64_t n, first;
        uint64_t seed;
        bool by_client;
    } cases[] = {
        {"10%", true, 0.1, 0, 0, 9, false},
        {"40", true, 0.0, 40, 0, 9, false},
        {"12.5%:writers", true, 0.125, 0, 0, 9, true},
        {"10%:seed=3:writers:first=500", true, 0.1, 0, 500, 3, true},
        {"0%", false, 0, 0, 0, 0, false},
        {"100%", false, 0, 0, 0, 0, false},
        {"0", false, 0, 0, 0, 0, false},
        {"-1", false, 0, 0, 0, 0, false},
        {"1.5", false, 0, 0, 0, 0, false},
        {"10%%", false, 0, 0, 0, 0, false},
        {"10%:users", false, 0, 0, 0, 0, false},
        {"10%:seed=", false, 0, 0, 0, 0, false},
        {"99999999999999999999", false, 0, 0, 0, 0, false},
        {"", false, 0, 0, 0, 0, false},
        {NULL, false, 0, 0, 0, 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin_validation got = DUNLIN_VALIDATION_INIT;
        int64_t first = -1;
        got.seed = 9;
        const bool is_good = dunlin_tools_parse_validation(cases[i].text, &got, &first);
        cr_assert_eq(is_good, cases[i].is_good, "%s", cases[i].text);
        if (is_good) {
            cr_assert_float_eq(got.share, cases[i].share, 1e-12, "%s", cases[i].text);
            cr_assert_eq(got.n_examples, cases[i].n);
            cr_assert_eq(first, cases[i].first);
            cr_assert_eq(got.seed, cases[i].seed);
            cr_assert_eq(got.by_client, cases[i].by_client);
        }
    }
    dunlin_validation got = DUNLIN_VALIDATION_INIT;
    cr_assert_not(dunlin_tools_parse_validation("10%:first=3", &got, NULL));
}

/* Records of CIFAR-100: coarse label i % 20, fine label i % 100, byte k is (i + k) & 255. */
static test_bytes cifar100(uint32_t n)
{
    test_bytes made = {0};
    for (uint32_t i = 0; i < n; i++) {
        test_put_u8(&made, (uint8_t)(i % 20));
        test_put_u8(&made, (uint8_t)(i % 100));
        for (uint32_t k = 0; k < 3072; k++) {
            test_put_u8(&made, (uint8_t)(i + k));
        }
    }
    return made;
}

Test(validation, cifar100_is_read)
{
    test_bytes records = cifar100(130);
    test_folder_write(&files, "cifar-100-binary/train.bin", &records);
    test_folder_write(&files, "cifar-100-binary/test.bin", &records);
    for (int coarse = 0; coarse < 2; coarse++) {
        const char *name = coarse == 1 ? "cifar100_coarse" : "cifar100";
        const int classes = coarse == 1 ? 20 : 100;
        dunlin_dataset *set = open_part(name, DUNLIN_SPLIT_TEST, NULL, NULL);
        cr_assert_eq(dunlin_dataset_n_examples(set), 130);
        cr_assert_eq(dunlin_dataset_n_classes(set), classes);
        dunlin_source source;
        dunlin_dataset_source(set, &source);
        for (int64_t i = 0; i < 130; i += 43) {
            uint8_t x[3072];
            int32_t y = 0;
            cr_assert_eq(source.read_fn(source.ctx, &i, 1, x, &y), DUNLIN_OK);
            cr_assert_eq(y, i % classes);
            cr_assert_eq(x[0], (uint8_t)i);
            cr_assert_eq(x[3071], (uint8_t)(i + 3071));
        }
        dunlin_dataset_close(set);
    }
    /* Its own folder goes before the archive's. */
    test_bytes few = cifar100(3);
    test_folder_write(&files, "cifar100/train.bin.gz", &few);
    dunlin_dataset *set = open_part("cifar100", DUNLIN_SPLIT_TRAIN, NULL, NULL);
    cr_assert_eq(dunlin_dataset_n_examples(set), 3);
    dunlin_dataset_close(set);
    few.bytes[3074] = 20;
    test_folder_write(&files, "cifar100/train.bin.gz", &few);
    refused("cifar100", DUNLIN_SPLIT_TRAIN, NULL, DUNLIN_DATA, "label 20 in record 1");
    few.bytes[3074] = 1;
    few.bytes[3075] = 100;
    test_folder_write(&files, "cifar100/train.bin.gz", &few);
    refused("cifar100", DUNLIN_SPLIT_TRAIN, NULL, DUNLIN_DATA, "label 100 in record 1");
    few.n -= 1;
    few.bytes[3075] = 1;
    test_folder_write(&files, "cifar100/train.bin.gz", &few);
    refused("cifar100", DUNLIN_SPLIT_TRAIN, NULL, DUNLIN_DATA,
            "cut off: record 2 has 3073 of 3074");
    test_bytes_free(&few);
    test_bytes_free(&records);
}

#if defined(DUNLIN_HAS_JPEG) && defined(DUNLIN_HAS_PNG) /* what picture_files.c needs */
static void write_picture(const char *name, uint8_t shade)
{
    static uint8_t samples[32 * 32 * 3];
    memset(samples, shade, sizeof samples);
    test_bytes jpeg = test_jpeg(32, 32, 3, false, samples);
    test_folder_write_raw(&files, name, jpeg.bytes, jpeg.n);
    test_bytes_free(&jpeg);
}

Test(validation, jpeg_copy_in_full_is_read)
{
    refused("cifar10_jpeg", DUNLIN_SPLIT_TRAIN, NULL, DUNLIN_IO, "unpack cifar10-jpeg.tar.xz");
    char name[64];
    for (int c = 0; c < 10; c++) {
        for (int i = 0; i < (c == 4 ? 3 : 2); i++) {
            (void)snprintf(name, sizeof name, "cifar10-jpeg/train/c%d/%04d.jpg", c, i);
            write_picture(name, (uint8_t)(20 * c + i));
        }
        (void)snprintf(name, sizeof name, "cifar10-jpeg/test/c%d/0000.jpg", c);
        write_picture(name, (uint8_t)(20 * c));
    }
    dunlin_dataset *set = open_part("cifar10_jpeg", DUNLIN_SPLIT_TRAIN, NULL, NULL);
    cr_assert_eq(dunlin_dataset_n_examples(set), 21);
    uint64_t n_bytes = 0;
    const uint8_t *pixels = dunlin_dataset_stored(set, &n_bytes);
    cr_assert_eq(n_bytes, 21U * 3072U, "decoded once");
    for (int64_t i = 0; i < 20; i++) {
        cr_assert_eq(dunlin_dataset_label(set, i), i % 10, "one of each class in turn");
        cr_assert_leq(abs(pixels[i * 3072] - (int)(20 * (i % 10) + i / 10)), 1);
    }
    cr_assert_eq(dunlin_dataset_label(set, 20), 4);
    dunlin_dataset_close(set);
    set = open_part("cifar10_jpeg", DUNLIN_SPLIT_TEST, NULL, NULL);
    cr_assert_eq(dunlin_dataset_n_examples(set), 10);
    dunlin_dataset_close(set);
    test_folder_write_raw(&files, "cifar10-jpeg/train/c3/0001.jpg", "no picture", 10);
    refused("cifar10_jpeg", DUNLIN_SPLIT_TRAIN, NULL, DUNLIN_DATA, "0001.jpg");
}
#endif
