/*
 * test_builtin_images.c - images under a round's plan: they are changed as by a pipeline of one's
 * own; and variances below 0.
 */
#include "builtin_bench.h"

#include <dunlin/pipeline.h>

#include <criterion/criterion.h>

#include <random.h>
#include <string.h>

#define SIDE 6 /* of the images */
#define IMAGE_VALUES 600

static dunlin_status read_images(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_y)
{
    (void)ctx;
    float *x = out_x;
    for (int64_t i = 0; i < n; i++) {
        uint64_t state = (uint64_t)indices[i] + 1;
        test_random_fill(x + i * SIDE * SIDE, SIDE * SIDE, -1, 1, &state);
        out_y[i] = (int32_t)(indices[i] % 3);
    }
    return DUNLIN_OK;
}

static dunlin_model *make_image_model(void)
{
    dunlin_builder *builder = NULL;
    dunlin_model *model = NULL;
    const dunlin_shape shape = {.n_dims = 3, .dims = {1, SIDE, SIDE}};
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "x", &shape);
    x = dunlin_builder_batch_norm(builder, "bn",
                                  dunlin_builder_conv(builder, "conv", x, 3, 3, NULL));
    x = dunlin_builder_flatten(builder, dunlin_builder_relu(builder, x));
    x = dunlin_builder_dense(builder, "head", x, 3);
    cr_assert_eq(dunlin_builder_finish(builder, x, &model, NULL), DUNLIN_OK);
    return model;
}

typedef struct image_bench {
    dunlin_model *model;
    dunlin_trainer_pool *pool;
    dunlin_builtin *builtin;
    dunlin_learner learner;
    held_weights base;
    float values[IMAGE_VALUES];
    dunlin_weights_reader reader;
    dunlin_source source;
    dunlin_task task;
} image_bench;

static void begin_images(image_bench *b)
{
    memset(b, 0, sizeof *b);
    b->model = make_image_model();
    held_weights_make(&b->base, b->model, b->values, IMAGE_VALUES);
    b->reader = held_weights_reader(&b->base);
    uint64_t state = test_seed(6);
    test_random_fill(b->values, b->base.n_values, 0.1, 0.5, &state);
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    b->source = (dunlin_source){.struct_size = sizeof(dunlin_source),
                                .read_fn = read_images,
                                .n_examples = 20,
                                .dtype = DUNLIN_F32};
    cr_assert_eq(dunlin_trainer_pool_create(b->model, &options, 1, &b->pool, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_builtin_create(b->pool, &b->source, NULL, &b->builtin, &b->learner, NULL),
                 DUNLIN_OK);
    b->task = (dunlin_task){.struct_size = sizeof(dunlin_task),
                            .epochs = 2,
                            .batch = 8,
                            .lr = 0.05F,
                            .momentum = 0.9F,
                            .seed = 7};
}

static void end_images(image_bench *b)
{
    dunlin_builtin_destroy(b->builtin);
    dunlin_trainer_pool_destroy(b->pool);
    dunlin_model_destroy(b->model);
}

static void fit_images(image_bench *b, float *out)
{
    dunlin_learner_report report = DUNLIN_LEARNER_REPORT_INIT;
    dunlin_weights_reader fresh = {0};
    int64_t n = 0;
    cr_assert_eq(b->learner.ops->load(b->learner.self, &b->task, &b->reader), DUNLIN_OK, "%s",
                 b->learner.ops->error_text(b->learner.self));
    cr_assert_eq(b->learner.ops->fit(b->learner.self, 0, &report), DUNLIN_OK);
    cr_assert(report.is_done);
    cr_assert_eq(b->learner.ops->save(b->learner.self, &fresh), DUNLIN_OK);
    for (int32_t i = 0; i < fresh.n_tensors; i++) {
        cr_assert_eq(fresh.read_fn(fresh.ctx, i, 0, fresh.tensors[i].n_elements, out + n),
                     DUNLIN_OK);
        n += fresh.tensors[i].n_elements;
    }
    b->learner.ops->unload(b->learner.self);
}

/* Fits as the task of the bench says, by the plan and by a pipeline and a trainer of one's own. */
static void compare_changed(image_bench *b, const dunlin_pipeline_options *changes)
{
    float plain[IMAGE_VALUES];
    float found[IMAGE_VALUES];
    float wanted[IMAGE_VALUES];
    const dunlin_task changed = b->task;
    b->task.flips = b->task.crops = false;
    b->task.cutout = 0;
    b->task.mixup = b->task.noise = 0.0F;
    fit_images(b, plain);
    b->task = changed;
    fit_images(b, found);
    const dunlin_shape shape = dunlin_model_input_shape(b->model);
    dunlin_pipeline *pipeline = NULL;
    dunlin_source source;
    cr_assert_eq(dunlin_pipeline_create(&b->source, &shape, changes, NULL, &pipeline, NULL),
                 DUNLIN_OK);
    dunlin_pipeline_source(pipeline, &source);
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_trainer *trainer = NULL;
    options.batch = 8;
    options.loss =
        changes->mixup > 0.0F ? DUNLIN_LOSS_SOFT_CROSS_ENTROPY : DUNLIN_LOSS_CROSS_ENTROPY;
    options.lr = b->task.lr;
    options.momentum = b->task.momentum;
    cr_assert_eq(dunlin_trainer_create(b->model, &options, &trainer, NULL), DUNLIN_OK);
    cr_assert_eq(
        dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, b->base.n_values, b->values),
        DUNLIN_OK);
    dunlin_trainer_set_seed(trainer, b->task.seed);
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = 2;
    cr_assert_eq(dunlin_trainer_fit(trainer, &source, &fit, NULL, NULL), DUNLIN_OK);
    cr_assert_eq(
        dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, b->base.n_values, wanted),
        DUNLIN_OK);
    cr_expect(bench_same(wanted, found, b->base.n_values));
    cr_expect_not(bench_same(plain, found, b->base.n_values), "nothing was changed");
    dunlin_trainer_destroy(trainer);
    dunlin_pipeline_destroy(pipeline);
}

Test(builtin_plan, images_are_changed_as_by_a_pipeline_of_ones_own)
{
    image_bench b;
    begin_images(&b);
    b.task.flips = true;
    b.task.crops = true;
    b.task.crop_padding = 2;
    dunlin_pipeline_options changes = DUNLIN_PIPELINE_OPTIONS_INIT;
    changes.is_flip = true;
    changes.is_random_crop = true;
    changes.padding = 2;
    changes.crop_height = SIDE;
    changes.seed = b.task.seed;
    compare_changed(&b, &changes);
    b.task.cutout = 3;
    b.task.mixup = 0.5F;
    b.task.noise = 0.25F;
    changes.cutout = 3;
    changes.mixup = 0.5F;
    changes.noise = 0.25F;
    changes.n_classes = (int32_t)dunlin_model_n_outputs(b.model);
    changes.epoch_steps = (b.source.n_examples + 7) / 8;
    compare_changed(&b, &changes);
    end_images(&b);
}

/* An average of variances may round to less than nothing; it is none then. */
Test(builtin_plan, a_variance_below_0_is_taken_as_0)
{
    image_bench b;
    float found[IMAGE_VALUES];
    begin_images(&b);
    int64_t first = 0;
    int n_raised = 0;
    b.task.kind = DUNLIN_TASK_EVALUATE;
    for (int32_t i = 0; i < b.base.n_tensors; i++) {
        const dunlin_weights_tensor *tensor = &b.reader.tensors[i];
        if (strcmp(tensor->name, "bn.running_var") == 0 ||
            strcmp(tensor->name, "bn.running_mean") == 0) {
            b.values[first + 1] = -1e-6F;
        }
        first += tensor->n_elements;
    }
    cr_assert_eq(b.learner.ops->load(b.learner.self, &b.task, &b.reader), DUNLIN_OK);
    dunlin_weights_reader fresh = {0};
    cr_assert_eq(b.learner.ops->save(b.learner.self, &fresh), DUNLIN_OK);
    for (int32_t i = 0; i < fresh.n_tensors; i++) {
        const bool is_variance = strcmp(fresh.tensors[i].name, "bn.running_var") == 0;
        const bool is_mean = strcmp(fresh.tensors[i].name, "bn.running_mean") == 0;
        cr_assert_eq(fresh.read_fn(fresh.ctx, i, 0, fresh.tensors[i].n_elements, found), DUNLIN_OK);
        if (is_variance || is_mean) {
            cr_expect_eq(found[1], is_variance ? 0.0F : -1e-6F);
            cr_expect(found[0] >= 0.1F && found[2] >= 0.1F);
            n_raised++;
        }
    }
    cr_expect_eq(n_raised, 2);
    b.learner.ops->unload(b.learner.self);
    end_images(&b);
}
