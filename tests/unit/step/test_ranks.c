/*
 * test_ranks.c - how many classes come before the label: counted in an evaluation, against the
 * predictions; with ignored labels, a loss that makes its logits itself, and what is refused.
 */
#include "step/step_support.h"

#include <dunlin/pixels.h>

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

TestSuite(ranks, .timeout = 300);

#define N 21
#define IGNORED (-100)
#define MOST 1100

/* Row by row: the rank of each label that counts, from predictions. */
static int64_t count_ranks(dunlin_trainer *trainer, const dunlin_source *source, int64_t n_rows,
                           int32_t n_classes, const int32_t *labels, int64_t ranks[MOST])
{
    float *logits = malloc((size_t)(N * n_rows) * (size_t)n_classes * sizeof *logits);
    int64_t n = 0;
    cr_assert_not_null(logits);
    cr_assert_eq(dunlin_trainer_predict(trainer, source, 0, N, logits), DUNLIN_OK);
    memset(ranks, 0, MOST * sizeof *ranks);
    for (int64_t row = 0; row < N * n_rows; row++) {
        const float *own = logits + row * n_classes;
        int32_t rank = 0;
        if (labels[row] == IGNORED) {
            continue;
        }
        for (int32_t c = 0; c < n_classes; c++) {
            rank += own[c] > own[labels[row]] || (own[c] == own[labels[row]] && c < labels[row]);
        }
        ranks[rank]++;
        n++;
    }
    free(logits);
    return n;
}

/* Of a network whose examples are rows of tokens, with a label a row. */
typedef struct row_source {
    dunlin_source source;
    int32_t x[N][8], labels[N * 8];
    int64_t n_rows;
} row_source;

static row_source rows;

static dunlin_status read_rows(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                               int32_t *out_y)
{
    const row_source *from = ctx;
    for (int64_t i = 0; i < n; i++) {
        memcpy((int32_t *)out_x + i * 8, from->x[indices[i]], sizeof from->x[0]);
        memcpy(out_y + i * from->n_rows, from->labels + indices[i] * from->n_rows,
               (size_t)from->n_rows * sizeof *out_y);
    }
    return DUNLIN_OK;
}

static void open_rows(int64_t n_rows, int32_t n_words, int32_t n_classes)
{
    rows = (row_source){.n_rows = n_rows};
    for (int i = 0; i < N * 8; i++) {
        rows.x[i / 8][i % 8] = (i * 7 + i / 5) % n_words;
        rows.labels[i] = i % 5 == 0 ? IGNORED : (i * 11 + i / 3) % n_classes;
    }
    rows.source = (dunlin_source)DUNLIN_SOURCE_INIT;
    rows.source.ctx = &rows;
    rows.source.read_fn = read_rows;
    rows.source.n_examples = N;
    rows.source.dtype = DUNLIN_I32;
    rows.source.n_labels = n_rows;
}

static dunlin_trainer *open_trainer(const char *network, int32_t n_words, int32_t n_classes,
                                    dunlin_model **out_model)
{
    const dunlin_zoo_options sizes = {.struct_size = sizeof(dunlin_zoo_options),
                                      .classes = n_classes,
                                      .sequence = 8,
                                      .vocabulary = n_words};
    dunlin_trainer_options options = test_options(4); /* several batches, the last one shorter */
    options.has_ignore_label = true;
    options.ignore_label = IGNORED;
    cr_assert_eq(dunlin_model_from_zoo(network, &sizes, NULL, out_model, NULL), DUNLIN_OK);
    return test_create(*out_model, &options);
}

static void check(const char *network, int64_t n_rows, int32_t n_words, int32_t n_classes)
{
    static int64_t wanted[MOST];
    static int64_t found[MOST];
    dunlin_model *model = NULL;
    dunlin_metrics metrics;
    open_rows(n_rows, n_words, n_classes);
    dunlin_trainer *trainer = open_trainer(network, n_words, n_classes, &model);
    const int64_t n = count_ranks(trainer, &rows.source, n_rows, n_classes, rows.labels, wanted);
    int64_t *confusion = calloc((size_t)n_classes * (size_t)n_classes, sizeof *confusion);
    cr_assert_not_null(confusion);
    memset(found, 0x55, sizeof found);
    dunlin_answer_counts counts = DUNLIN_ANSWER_COUNTS_INIT;
    counts.ranks = found;
    counts.n_ranks = n_classes;
    counts.confusion = confusion;
    counts.n_classes = n_classes;
    cr_assert_eq(dunlin_trainer_count_answers(trainer, &rows.source, 0, N, &counts, &metrics),
                 DUNLIN_OK, "%s", dunlin_trainer_last_error(trainer)->text);
    cr_expect_eq(metrics.n_counted, n);
    int64_t n_diagonal = 0;
    for (int32_t i = 0; i < n_classes; i++) {
        cr_expect_eq(found[i], wanted[i], "%s: rank %d", network, (int)i);
        n_diagonal += confusion[(int64_t)i * n_classes + i];
    }
    cr_expect_eq(found[0], n_diagonal);
    cr_expect_float_eq(metrics.accuracy, (double)found[0] / (double)n, 1e-12);
    const int64_t five = found[0] + found[1] + found[2] + found[3] + found[4];
    cr_expect_float_eq(metrics.top5_accuracy, (double)five / (double)n, 1e-12);
    /* Fewer ranks than classes: the rest is not counted, and what is behind is not touched. */
    memset(found, 0x55, sizeof found);
    counts.n_ranks = 3;
    counts.confusion = NULL;
    cr_assert_eq(dunlin_trainer_count_answers(trainer, &rows.source, 0, N, &counts, NULL),
                 DUNLIN_OK);
    cr_expect(memcmp(found, wanted, 3 * sizeof *found) == 0);
    cr_expect_eq(found[3], (int64_t)0x5555555555555555);
    free(confusion);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(ranks, are_those_of_the_predictions)
{
    check("bert_tiny", 1, 13, 9);
}

/* Its loss makes the logits some rows at a time. */
Test(ranks, of_a_vocabulary)
{
    check("gpt_tiny", 8, MOST, MOST);
}

Test(ranks, what_is_refused)
{
    int64_t numbers[81];
    dunlin_model *model = NULL;
    open_rows(1, 13, 9);
    dunlin_trainer *trainer = open_trainer("bert_tiny", 13, 9, &model);
    dunlin_answer_counts counts = DUNLIN_ANSWER_COUNTS_INIT;
    counts.ranks = numbers;
    const int32_t wrong[] = {0, -1, 10};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        counts.n_ranks = wrong[i];
        cr_expect_eq(dunlin_trainer_count_answers(trainer, &rows.source, 0, N, &counts, NULL),
                     DUNLIN_ARGUMENT);
        test_expect_text(trainer, "the limits are 1 and the model's 9 classes");
    }
    counts.ranks = NULL;
    counts.confusion = numbers;
    counts.n_classes = 8;
    cr_expect_eq(dunlin_trainer_count_answers(trainer, &rows.source, 0, N, &counts, NULL),
                 DUNLIN_MISMATCH);
    test_expect_text(trainer, "there is room for 8 classes; the model has 9");
    counts.struct_size = 3;
    cr_expect_eq(dunlin_trainer_count_answers(trainer, &rows.source, 0, N, &counts, NULL),
                 DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_count_answers(trainer, &rows.source, 0, N, NULL, NULL),
                 DUNLIN_ARGUMENT);
    dunlin_trainer_destroy(trainer);
    dunlin_trainer_options options = test_options(4);
    options.loss = DUNLIN_LOSS_BCE;
    trainer = test_create(model, &options);
    counts = (dunlin_answer_counts)DUNLIN_ANSWER_COUNTS_INIT;
    counts.ranks = numbers;
    counts.n_ranks = 2;
    cr_expect_eq(dunlin_trainer_count_answers(trainer, &rows.source, 0, N, &counts, NULL),
                 DUNLIN_UNSUPPORTED);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}
