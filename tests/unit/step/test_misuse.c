/*
 * test_misuse.c - what trainer.h forbids: calls from within callbacks and from a second thread, a
 * trainer that is destroyed while it works; and a stop before the call it is meant for.
 */
#include "step/step_support.h"

#include <dunlin/bytes.h>
#include <dunlin/pixels.h>
#include <dunlin/several.h>
#include <dunlin/trainer_advanced.h>
#include <dunlin/trainer_experimental.h>

#include <criterion/criterion.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A trainer whose callbacks call back. */
typedef struct bench {
    dunlin_model *model;
    dunlin_trainer *trainer;
    test_source source;
    dunlin_source asking; /* the same, and its reads make all calls */
    dunlin_source plain;
    char *path;
    int n_asked;
    bool is_threaded;      /* calls come from a thread of their own */
    bool destroys;         /* the first progress destroys the trainer */
    bool is_between_steps; /* so what only looks is answered */
} bench;

static bench b;

static void expect(const char *what, dunlin_status found, dunlin_status wanted)
{
    cr_expect_eq(found, wanted, "%s: %s", what, dunlin_status_name(found));
}

static dunlin_status take_no_bytes(void *ctx, const void *bytes, size_t n)
{
    (void)ctx;
    (void)bytes;
    (void)n;
    cr_expect_fail("a file was written");
    return DUNLIN_OK;
}

static void take_entry(void *ctx, const dunlin_parameter_entry *entry)
{
    (void)entry;
    ++*(int *)ctx;
}

/* Calls that work on the trainer: never answered while another one does. */
static void make_calls_that_work(dunlin_trainer *t)
{
    int64_t counts[64] = {0};
    float values[64];
    dunlin_answer_counts wanted = DUNLIN_ANSWER_COUNTS_INIT;
    wanted.confusion = counts;
    wanted.n_classes = 4;
    expect("write_checkpoint", dunlin_trainer_write_checkpoint(t, take_no_bytes, NULL),
           DUNLIN_STATE);
    expect("read_checkpoint", dunlin_trainer_read_checkpoint(t, "", 0), DUNLIN_STATE);
    expect("write_onnx", dunlin_trainer_write_onnx(t, take_no_bytes, NULL), DUNLIN_STATE);
    expect("export_qdq", dunlin_trainer_export_qdq(t, b.path), DUNLIN_STATE);
    expect("write_qdq", dunlin_trainer_write_qdq(t, take_no_bytes, NULL), DUNLIN_STATE);
    expect("predict_output", dunlin_trainer_predict_output(t, &b.plain, 0, 0, 1, values),
           DUNLIN_STATE);
    expect("begin_parameter", dunlin_trainer_begin_parameter(t, 0, 1.0F, values), DUNLIN_STATE);
    expect("confusion", dunlin_trainer_confusion(t, &b.plain, 0, 1, 4, counts, NULL), DUNLIN_STATE);
    expect("count_answers", dunlin_trainer_count_answers(t, &b.plain, 0, 1, &wanted, NULL),
           DUNLIN_STATE);
}

/* Calls that look, or set for the next steps: answered between two steps, with what they say of
 * this trainer at any time. */
static void make_calls_that_look(dunlin_trainer *t)
{
    const bool looks = b.is_between_steps;
    int n_entries = 0;
    uint64_t n_bytes = 0;
    float value = 0.0F;
    dunlin_metrics metrics;
    dunlin_scale_info scale = DUNLIN_SCALE_INFO_INIT;
    dunlin_budget_change change = DUNLIN_BUDGET_CHANGE_INIT;
    expect("get_output_metrics", dunlin_trainer_get_output_metrics(t, 0, &metrics),
           looks ? DUNLIN_OK : DUNLIN_STATE);
    expect("list_parameters", dunlin_trainer_list_parameters(t, take_entry, &n_entries),
           looks ? DUNLIN_OK : DUNLIN_STATE);
    cr_expect_eq(n_entries, looks ? dunlin_trainer_n_parameters(t) : 0);
    expect("operand_bytes", dunlin_trainer_operand_bytes(t, 1, &n_bytes),
           looks ? DUNLIN_OK : DUNLIN_STATE);
    expect("get_parameter", dunlin_trainer_get_parameter(t, "none", &value, 1),
           looks ? DUNLIN_ARGUMENT : DUNLIN_STATE);
    expect("set_grad_bits", dunlin_trainer_set_grad_bits(t, "5", 1),
           looks ? DUNLIN_ARGUMENT : DUNLIN_STATE);
    expect("scale", dunlin_trainer_scale(t, 0, &scale), looks ? DUNLIN_ARGUMENT : DUNLIN_STATE);
    expect("budget_change", dunlin_trainer_budget_change(t, 0, &change),
           looks ? DUNLIN_ARGUMENT : DUNLIN_STATE);
    expect("set_budget_at", dunlin_trainer_set_budget_at(t, 100, 50.0, 1 << 20),
           looks ? DUNLIN_UNSUPPORTED : DUNLIN_STATE);
}

static void *make_all_calls(void *ctx)
{
    (void)ctx;
    const int64_t index = 0;
    float value = 1.0F;
    float logits[64];
    dunlin_trainer *t = b.trainer;
    dunlin_parameter_info info;
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    const dunlin_schedule schedule = {.struct_size = sizeof schedule,
                                      .kind = DUNLIN_SCHEDULE_CONSTANT};
    const dunlin_status looks = b.is_between_steps ? DUNLIN_OK : DUNLIN_STATE;
    expect("step", dunlin_trainer_step(t, &b.plain, &index, 1, NULL), DUNLIN_STATE);
    expect("fit", dunlin_trainer_fit(t, &b.plain, NULL, NULL, NULL), DUNLIN_STATE);
    expect("evaluate", dunlin_trainer_evaluate(t, &b.plain, 0, 1, NULL), DUNLIN_STATE);
    expect("predict", dunlin_trainer_predict(t, &b.plain, 0, 1, logits), DUNLIN_STATE);
    expect("set_weights", dunlin_trainer_set_weights(t, DUNLIN_WEIGHTS_ALL, 0, 1, &value),
           DUNLIN_STATE);
    expect("set_parameter", dunlin_trainer_set_parameter(t, "none", &value, 1), DUNLIN_STATE);
    expect("copy_to_slot", dunlin_trainer_copy_weights_to_slot(t, 0), DUNLIN_STATE);
    expect("save", dunlin_trainer_save_checkpoint(t, b.path), DUNLIN_STATE);
    expect("load", dunlin_trainer_load_checkpoint(t, b.path), DUNLIN_STATE);
    expect("export", dunlin_trainer_export_onnx(t, b.path), DUNLIN_STATE);
    make_calls_that_work(t);
    make_calls_that_look(t);
    cr_expect_neq(access(b.path, F_OK), 0, "a file was written");
    const int64_t n_steps = dunlin_trainer_n_steps(t);
    dunlin_trainer_reset_optimizer(t);
    cr_expect_eq(dunlin_trainer_n_steps(t), n_steps);
    expect("get_weights", dunlin_trainer_get_weights(t, DUNLIN_WEIGHTS_ALL, 0, 1, &value), looks);
    expect("parameter", dunlin_trainer_parameter(t, 0, &info), looks);
    expect("get_report", dunlin_trainer_get_report(t, &report), looks);
    expect("set_lr", dunlin_trainer_set_lr(t, dunlin_trainer_lr(t)), looks);
    expect("set_schedule", dunlin_trainer_set_schedule(t, &schedule), looks);
    expect("set_property", dunlin_trainer_set_property(t, "name", "text"), looks);
    if (!b.is_between_steps) {
        dunlin_trainer_set_seed(t, 12345); /* would change the order and so the weights */
    }
    b.n_asked++;
    return NULL;
}

static void ask(void)
{
    pthread_t thread;
    if (!b.is_threaded) {
        (void)make_all_calls(NULL);
        return;
    }
    cr_assert_eq(pthread_create(&thread, NULL, make_all_calls, NULL), 0);
    (void)pthread_join(thread, NULL);
}

static dunlin_status asking_read(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_y)
{
    ask();
    return b.plain.read_fn(ctx, indices, n, out_x, out_y);
}

static bool asking_progress(void *ctx, const dunlin_progress *progress)
{
    (void)ctx;
    (void)progress;
    if (b.destroys) {
        b.destroys = false;
        dunlin_trainer_destroy(b.trainer);
        return true;
    }
    b.is_between_steps = !b.is_threaded;
    ask();
    b.is_between_steps = false;
    return true;
}

static void begin(const dunlin_alloc *hooks)
{
    memset(&b, 0, sizeof b);
    b.model = test_small_model(true);
    b.path = test_temp_path("misuse");
    test_source_init(&b.source, b.model, 24, DUNLIN_U8);
    b.plain = b.source.source;
    b.asking = b.source.source;
    b.asking.read_fn = asking_read;
    dunlin_trainer_options options = test_options(8);
    options.progress_fn = asking_progress;
    if (hooks != NULL) {
        options.alloc = *hooks;
    }
    b.trainer = test_create(b.model, &options);
}

static void end(void)
{
    dunlin_trainer_destroy(b.trainer);
    dunlin_model_destroy(b.model);
    free(b.path);
}

static void check_calls(bool is_threaded)
{
    int64_t n = 0;
    begin(NULL);
    dunlin_trainer_options options = test_options(8);
    dunlin_trainer *quiet = test_create(b.model, &options);
    b.is_threaded = is_threaded;
    cr_assert_eq(dunlin_trainer_fit(b.trainer, &b.asking, NULL, NULL, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(b.trainer)->text);
    cr_expect_geq(b.n_asked, 6);
    cr_assert_eq(dunlin_trainer_fit(quiet, &b.plain, NULL, NULL, NULL), DUNLIN_OK);
    float *one = test_weights(b.trainer, &n);
    float *other = test_weights(quiet, NULL);
    cr_expect(test_same_bits(one, other, n), "a call that was refused changed weights");
    free(one);
    free(other);
    const int n_before = b.n_asked;
    cr_expect_eq(dunlin_trainer_evaluate(b.trainer, &b.asking, 0, 24, NULL), DUNLIN_OK);
    cr_expect_gt(b.n_asked, n_before);
    dunlin_trainer_destroy(quiet);
    end();
}

Test(misuse, calls_from_callbacks)
{
    check_calls(false);
}

Test(misuse, calls_from_another_thread)
{
    check_calls(true);
}

/* A call whose arguments are wrong releases the trainer as well. */
Test(misuse, a_failed_call_lets_go)
{
    const int64_t none = -1;
    begin(NULL);
    cr_expect_eq(dunlin_trainer_step(b.trainer, &b.plain, &none, 1, NULL), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_load_checkpoint(b.trainer, NULL), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_evaluate(b.trainer, &b.plain, 0, 8, NULL), DUNLIN_OK);
    end();
}

Test(misuse, a_stop_before_its_call)
{
    float logits[24 * 16];
    dunlin_fit_cursor cursor = {.epoch = 0};
    begin(NULL);
    dunlin_trainer_stop(b.trainer);
    cr_expect_eq(dunlin_trainer_fit(b.trainer, &b.plain, NULL, &cursor, NULL), DUNLIN_STOPPED);
    cr_expect_eq(cursor.position, 0);
    cr_expect_eq(dunlin_trainer_n_steps(b.trainer), 0);
    cr_expect_eq(dunlin_trainer_fit(b.trainer, &b.plain, NULL, &cursor, NULL), DUNLIN_OK);
    cr_expect_eq(dunlin_trainer_n_steps(b.trainer), 3);
    dunlin_trainer_stop(b.trainer);
    cr_expect_eq(dunlin_trainer_evaluate(b.trainer, &b.plain, 0, 8, NULL), DUNLIN_STOPPED);
    cr_expect_eq(dunlin_trainer_evaluate(b.trainer, &b.plain, 0, 8, NULL), DUNLIN_OK);
    dunlin_trainer_stop(b.trainer);
    cr_expect_eq(dunlin_trainer_predict(b.trainer, &b.plain, 0, 24, logits), DUNLIN_STOPPED);
    cr_expect_eq(dunlin_trainer_predict(b.trainer, &b.plain, 0, 24, logits), DUNLIN_OK);
    /* A new round is not meant. */
    dunlin_trainer_stop(b.trainer);
    dunlin_trainer_reset_optimizer(b.trainer);
    cr_expect_eq(dunlin_trainer_evaluate(b.trainer, &b.plain, 0, 8, NULL), DUNLIN_OK);
    end();
}

/* The call ends soon, and the trainer goes with it. */
Test(misuse, destroyed_in_its_own_callback)
{
    dunlin_alloc_counter counter;
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    dunlin_fit_cursor cursor = {.epoch = 0};
    dunlin_alloc_counter_init(&counter, NULL);
    begin(&counter.hooks);
    fit.epochs = 1000;
    b.destroys = true;
    cr_expect_eq(dunlin_trainer_fit(b.trainer, &b.plain, &fit, &cursor, NULL), DUNLIN_STOPPED);
    cr_expect_eq(cursor.position, 8);
    cr_expect_eq(counter.now_bytes, 0, "%llu bytes are left",
                 (unsigned long long)counter.now_bytes);
    b.trainer = NULL;
    end();
}

static void *destroy(void *ctx)
{
    dunlin_trainer_destroy(ctx);
    return NULL;
}

static dunlin_status destroying_read(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                     int32_t *out_y)
{
    pthread_t thread;
    if (b.destroys) {
        b.destroys = false;
        cr_assert_eq(pthread_create(&thread, NULL, destroy, b.trainer), 0);
        (void)pthread_join(thread, NULL);
    }
    return b.plain.read_fn(ctx, indices, n, out_x, out_y);
}

Test(misuse, destroyed_by_another_thread)
{
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    begin(&counter.hooks);
    b.asking.read_fn = destroying_read;
    b.destroys = true;
    float logits[24 * 16];
    cr_expect_eq(dunlin_trainer_predict(b.trainer, &b.asking, 0, 24, logits), DUNLIN_STOPPED);
    cr_expect_eq(counter.now_bytes, 0);
    b.trainer = NULL;
    end();
}
