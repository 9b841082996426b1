/*
 * test_adapt_zoo.c - ready-made networks at small images whose budget changes in every step: before
 * each op of three of them, before more than 60 drawn ones of the others. No bit of the weights
 * changes.
 */
#include "random.h"
#include "step/adapt_support.h"

#include <criterion/criterion.h>

#define TOKENS 16
#define VOCABULARY 200

/* `image` 0: a network that reads tokens. */
static dunlin_model *open_net(const char *name, int32_t image)
{
    const dunlin_zoo_options sizes = {.struct_size = sizeof(dunlin_zoo_options),
                                      .image = image,
                                      .classes = 10,
                                      .sequence = image == 0 ? TOKENS : 0,
                                      .vocabulary = image == 0 ? VOCABULARY : 0};
    dunlin_model *model = NULL;
    dunlin_error error = {.status = DUNLIN_OK};
    cr_assert_eq(dunlin_model_from_zoo(name, &sizes, NULL, &model, &error), DUNLIN_OK, "%s",
                 error.text);
    return model;
}

static void check(const char *name, int32_t image, bool is_every_op)
{
    dunlin_model *model = open_net(name, image);
    dunlin_trainer_options options = test_options(4);
    options.lr = 1e-3F;
    test_adapt_check(model, name, &options, is_every_op ? 0 : test_cases(8), test_seed(64));
    dunlin_model_destroy(model);
}

Test(adapt_zoo, lenet5, .timeout = 1800)
{
    check("lenet5", 28, true);
}

Test(adapt_zoo, mobilenet_v2, .timeout = 1800)
{
    check("mobilenet_v2", 32, true);
}

Test(adapt_zoo, resnet18, .timeout = 1800)
{
    check("resnet18", 32, true);
}

Test(adapt_zoo, squeezenet1_1, .timeout = 1800)
{
    check("squeezenet1_1", 64, false);
}

Test(adapt_zoo, mobilenet_v1, .timeout = 1800)
{
    check("mobilenet_v1", 32, false);
}

Test(adapt_zoo, resnet50, .timeout = 1800)
{
    check("resnet50", 32, false);
}

Test(adapt_zoo, densenet121, .timeout = 1800)
{
    check("densenet121", 32, false);
}

Test(adapt_zoo, bert_small, .timeout = 1800)
{
    check("bert_small", 0, false);
}

/* Its steps take long for its weights' sake: many changes in each of a few. */
Test(adapt_zoo, vgg16, .timeout = 1800)
{
#if UINTPTR_MAX == UINT32_MAX
    cr_skip_test("an address space of 32 bits does not hold two arenas of 1.6 GB");
#endif
    dunlin_model *model = open_net("vgg16", 32);
    dunlin_trainer_options options = test_options(4);
    options.lr = 1e-3F;
    test_adapt_trace(model, "vgg16", &options, 4, 64, test_seed(65));
    dunlin_model_destroy(model);
}
