/*
 * test_synthetic.c - the synthetic set: repeatable, a style per writer, sane images.
 */
#include "data_files.h"

#include <dunlin/tools.h>

#include <criterion/criterion.h>

#include <data/synthetic/glyphs.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIXELS (28 * 28)

typedef struct images {
    dunlin_dataset *set;
    uint8_t *x;
    int32_t *y;
    int64_t n;
} images;

static images load(dunlin_split split, int64_t n_writers, int64_t n_per_writer, uint64_t seed)
{
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.n_writers = n_writers;
    options.n_per_writer = n_per_writer;
    options.seed = seed;
    images made = {0};
    dunlin_error error = {0};
    cr_assert_eq(
        dunlin_tools_dataset_open("synthetic", NULL, split, &options, NULL, &made.set, &error),
        DUNLIN_OK, "%s", error.text);
    made.n = dunlin_dataset_n_examples(made.set);
    made.x = malloc((size_t)made.n * PIXELS);
    made.y = malloc((size_t)made.n * sizeof *made.y);
    dunlin_source source;
    dunlin_dataset_source(made.set, &source);
    for (int64_t i = 0; i < made.n; i++) {
        cr_assert_eq(source.read_fn(source.ctx, &i, 1, made.x + i * PIXELS, made.y + i), DUNLIN_OK);
    }
    return made;
}

static void unload(images *made)
{
    dunlin_dataset_close(made->set);
    free(made->x);
    free(made->y);
}

static double distance(const uint8_t *a, const uint8_t *b)
{
    double sum = 0.0;
    for (size_t k = 0; k < PIXELS; k++) {
        double off = (double)a[k] - (double)b[k];
        sum += off * off;
    }
    return sqrt(sum);
}

Test(synthetic, says_so)
{
    images made = load(DUNLIN_SPLIT_TRAIN, 2, 5, 0);
    cr_assert(dunlin_dataset_is_synthetic(made.set));
    cr_assert_not_null(strstr(dunlin_dataset_title(made.set), "synthetic"));
    unload(&made);
}

Test(synthetic, is_repeatable)
{
    images a = load(DUNLIN_SPLIT_TRAIN, 6, 20, 9);
    images b = load(DUNLIN_SPLIT_TRAIN, 6, 20, 9);
    images other = load(DUNLIN_SPLIT_TRAIN, 6, 20, 10);
    cr_assert_eq(a.n, b.n);
    cr_assert_eq(memcmp(a.x, b.x, (size_t)a.n * PIXELS), 0);
    cr_assert_eq(memcmp(a.y, b.y, (size_t)a.n * sizeof *a.y), 0);
    cr_assert_neq(memcmp(a.x, other.x, PIXELS), 0, "another seed, other images");
    /* A writer's examples do not depend on how many writers there are. */
    images more = load(DUNLIN_SPLIT_TRAIN, 9, 20, 9);
    cr_assert_gt(more.n, a.n);
    cr_assert_eq(memcmp(a.x, more.x, (size_t)a.n * PIXELS), 0);
    unload(&a);
    unload(&b);
    unload(&other);
    unload(&more);
}

Test(synthetic, splits_share_no_image)
{
    images train = load(DUNLIN_SPLIT_TRAIN, 20, 20, 4);
    images test = load(DUNLIN_SPLIT_TEST, 20, 20, 4);
    for (int64_t i = 0; i < train.n; i++) {
        for (int64_t k = 0; k < test.n; k++) {
            cr_assert_neq(memcmp(train.x + i * PIXELS, test.x + k * PIXELS, PIXELS), 0);
        }
    }
    unload(&train);
    unload(&test);
}

Test(synthetic, counts_are_as_stated)
{
    images made = load(DUNLIN_SPLIT_TRAIN, 100, 31, 2);
    int64_t counts[100] = {0};
    int64_t labels[10] = {0};
    cr_assert_eq(dunlin_dataset_n_natural_clients(made.set), 100);
    for (int64_t i = 0; i < made.n; i++) {
        counts[dunlin_dataset_client_of(made.set, i)]++;
        labels[made.y[i]]++;
    }
    int64_t least = INT64_MAX;
    int64_t most = 0;
    for (size_t i = 0; i < 100; i++) {
        least = counts[i] < least ? counts[i] : least;
        most = counts[i] > most ? counts[i] : most;
    }
    cr_assert(least >= 16 && least < 22 && most <= 46 && most > 40, "%d to %d", (int)least,
              (int)most);
    cr_assert(fabs((double)made.n / 100.0 - 31.0) < 3.0);
    for (size_t c = 0; c < 10; c++) {
        cr_assert(fabs((double)labels[c] / (double)made.n - 0.1) < 0.03);
    }
    unload(&made);
}

Test(synthetic, images_look_like_ink_on_paper)
{
    images made = load(DUNLIN_SPLIT_TRAIN, 40, 20, 7);
    double sum = 0.0;
    for (int64_t i = 0; i < made.n; i++) {
        const uint8_t *x = made.x + i * PIXELS;
        int n_ink = 0;
        int n_border = 0;
        int n_dark = 0;
        for (int k = 0; k < PIXELS; k++) {
            n_ink += x[k] > 20 ? 1 : 0;
            n_dark += x[k] > 100 ? 1 : 0;
            bool is_border = k < 28 || k >= PIXELS - 28 || k % 28 == 0 || k % 28 == 27;
            n_border += is_border && x[k] > 20 ? 1 : 0;
            sum += x[k];
        }
        cr_assert(n_ink >= 18 && n_ink < PIXELS / 2, "example %d: %d pixels of ink", (int)i, n_ink);
        cr_assert(n_dark >= 8, "example %d: %d dark pixels", (int)i, n_dark);
        cr_assert(n_border <= 14, "example %d: %d pixels on the border", (int)i, n_border);
    }
    double mean = sum / ((double)made.n * PIXELS * 255.0);
    dunlin_source source;
    dunlin_dataset_source(made.set, &source);
    cr_assert_float_eq(mean, (double)source.mean[0], 0.02, "the mean is the set's: %g", mean);
    unload(&made);
}

/* A figure of the same writer is nearer than the same figure of another one, on average. */
Test(synthetic, writers_have_a_style)
{
    images made = load(DUNLIN_SPLIT_TRAIN, 20, 60, 5);
    double own = 0.0;
    double others = 0.0;
    int64_t n_own = 0;
    int64_t n_others = 0;
    for (int64_t i = 0; i < made.n; i++) {
        for (int64_t k = i + 1; k < made.n; k++) {
            if (made.y[i] != made.y[k]) {
                continue;
            }
            double apart = distance(made.x + i * PIXELS, made.x + k * PIXELS);
            if (dunlin_dataset_client_of(made.set, i) == dunlin_dataset_client_of(made.set, k)) {
                own += apart;
                n_own++;
            } else {
                others += apart;
                n_others++;
            }
        }
    }
    cr_assert(n_own > 100 && n_others > 1000);
    double ratio = (own / (double)n_own) / (others / (double)n_others);
    cr_assert_lt(ratio, 0.95, "own %g of others", ratio);
    cr_assert_gt(ratio, 0.5, "a writer does not repeat one image");
    unload(&made);
}

/* Far better than a guess by the nearest training image, far from solved: neither noise nor
 * trivial. */
Test(synthetic, is_learnable_and_not_trivial)
{
    images train = load(DUNLIN_SPLIT_TRAIN, 60, 30, 1);
    images test = load(DUNLIN_SPLIT_TEST, 15, 20, 1);
    int64_t n_right = 0;
    for (int64_t i = 0; i < test.n; i++) {
        double nearest = INFINITY;
        int32_t label = -1;
        for (int64_t k = 0; k < train.n; k++) {
            double apart = distance(test.x + i * PIXELS, train.x + k * PIXELS);
            if (apart < nearest) {
                nearest = apart;
                label = train.y[k];
            }
        }
        n_right += label == test.y[i] ? 1 : 0;
    }
    double share = (double)n_right / (double)test.n;
    cr_assert(share > 0.55 && share < 0.95, "nearest neighbour: %g", share);
    unload(&train);
    unload(&test);
}

Test(synthetic, limits_are_named)
{
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.n_writers = 1000001;
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TRAIN, &options, NULL,
                                           &set, &error),
                 DUNLIN_LIMIT);
    cr_assert_not_null(strstr(error.text, "1000000"), "%s", error.text);
    cr_assert_null(set);
}

Test(synthetic, the_library_of_tools_is_named_where_it_is_missing)
{
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TRAIN, NULL, &counter.hooks,
                                     &set, &error),
                 DUNLIN_UNSUPPORTED);
    cr_assert_not_null(strstr(error.text, "dunlin_tools_dataset_open()"), "%s", error.text);
    cr_assert_null(set);
    cr_assert_eq(counter.now_bytes, 0U);
    /* Other names are opened and refused as without it. */
    static const char *const names[] = {"mnist", "fashion", "synthetic_tokens"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        dunlin_error other = {0};
        cr_expect_eq(
            dunlin_tools_dataset_open(names[i], NULL, DUNLIN_SPLIT_TRAIN, NULL, NULL, &set, &error),
            dunlin_dataset_open(names[i], NULL, DUNLIN_SPLIT_TRAIN, NULL, NULL, &set, &other));
        cr_expect_str_eq(error.text, other.text);
    }
}

Test(glyphs, forms_are_well_made)
{
    for (int32_t class_index = 0; class_index < DUNLIN_GLYPH_CLASSES; class_index++) {
        for (int32_t form_index = 0; form_index < DUNLIN_GLYPH_FORMS; form_index++) {
            const dunlin_glyph_form *form = dunlin__glyph_form(class_index, form_index);
            int32_t total = 0;
            for (int32_t stroke = 0; stroke < form->n_strokes; stroke++) {
                cr_assert_geq(form->n_points[stroke], 2);
                total += form->n_points[stroke];
            }
            cr_assert(total <= DUNLIN_GLYPH_MAX_POINTS);
            double highest = 0.0;
            for (int32_t i = 0; i < total; i++) {
                dunlin_glyph_point at = form->points[i];
                cr_assert(fabs((double)at.x) <= 0.7 && fabs((double)at.y) <= 1.0);
                highest = fmax(highest, fabs((double)at.y));
            }
            cr_assert_gt(highest, 0.9, "class %d form %d: all forms are of one height", class_index,
                         form_index);
            for (int32_t i = total; i < DUNLIN_GLYPH_MAX_POINTS; i++) {
                cr_assert(form->points[i].x == 0.0F && form->points[i].y == 0.0F,
                          "class %d form %d has more points than its strokes", class_index,
                          form_index);
            }
        }
    }
    cr_assert_null(dunlin__glyph_form(10, 0));
    cr_assert_null(dunlin__glyph_form(0, 2));
}

/* How often each token stands in examples of a class, of the ones made with this seed. */
Test(synthetic, tokens_lean_towards_their_class)
{
    enum { SEQUENCE = 20, VOCABULARY = 50, N_CLASSES = 10 };
    static int64_t counts[N_CLASSES][VOCABULARY];
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_dataset_open("synthetic_tokens", NULL, DUNLIN_SPLIT_TRAIN, &options, NULL,
                                     &set, &error),
                 DUNLIN_ARGUMENT);
    cr_assert_not_null(strstr(error.text, "sequence"), "%s", error.text);
    options.sequence = SEQUENCE;
    options.vocabulary = VOCABULARY;
    options.max_examples = 1000;
    cr_assert_eq(dunlin_dataset_open("synthetic_tokens", NULL, DUNLIN_SPLIT_TRAIN, &options, NULL,
                                     &set, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_assert_eq(dunlin_dataset_n_examples(set), 1000);
    cr_assert_eq(dunlin_dataset_shape(set).n_dims, 1);
    cr_assert_eq(dunlin_dataset_shape(set).dims[0], SEQUENCE);
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    cr_assert_eq(source.dtype, DUNLIN_I32);
    for (int64_t i = 0; i < 1000; i++) {
        int32_t x[SEQUENCE];
        int32_t y = -1;
        cr_assert_eq(source.read_fn(source.ctx, &i, 1, x, &y), DUNLIN_OK);
        cr_assert(y >= 0 && y < N_CLASSES && y == dunlin_dataset_label(set, i));
        for (int k = 0; k < SEQUENCE; k++) {
            cr_assert(x[k] >= 0 && x[k] < VOCABULARY);
            counts[y][x[k]]++;
        }
    }
    for (int c = 0; c < N_CLASSES; c++) {
        int64_t most = 0;
        int64_t total = 0;
        for (int k = 0; k < VOCABULARY; k++) {
            most = counts[c][k] > most ? counts[c][k] : most;
            total += counts[c][k];
        }
        cr_assert_gt(most * VOCABULARY * 2, total * 3, "class %d has no words of its own", c);
    }
    dunlin_dataset_close(set);
}
