/*
 * test_steps.c - every ready-made network after ten steps of SGD, against PyTorch in float64, on
 * every instruction set of this machine, fused and not.
 */
#include "steps.h"

#include <criterion/criterion.h>

#include <kernels/api/kernels.h>
#include <stdio.h>

static dunlin_model *make_model(const char *name, const steps_setup *setup)
{
    dunlin_zoo_options options = {.struct_size = sizeof(dunlin_zoo_options),
                                  .image = setup->image,
                                  .channels = setup->channels,
                                  .classes = setup->classes};
    if (setup->vocabulary > 0) {
        options = (dunlin_zoo_options){.struct_size = sizeof(dunlin_zoo_options),
                                       .sequence = setup->image,
                                       .vocabulary = setup->vocabulary,
                                       .classes = setup->classes};
    }
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    dunlin_status status = dunlin_model_from_zoo(name, &options, NULL, &model, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    return model;
}

/* Without fusing, large networks run on the best instruction set alone: they take their time. */
static void check(const char *name, bool is_large)
{
    steps_setup setup = steps_open(name);
    dunlin_model *model = make_model(name, &setup);
    for (int i = 0; dunlin__kernels_isa(i / 2) != NULL; i++) {
        char what[32];
        dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
        options.isa = dunlin__kernels_isa(i / 2);
        options.no_fuse = i % 2 != 0;
        if (options.no_fuse && is_large && i > 1) {
            continue;
        }
        snprintf(what, sizeof what, "%s%s", options.isa, options.no_fuse ? ", not fused" : "");
        steps_check(name, model, &options, what);
    }
    dunlin_model_destroy(model);
}

Test(golden_steps, lenet5)
{
    check("lenet5", false);
}

Test(golden_steps, mobilenet_v1)
{
    check("mobilenet_v1", false);
}

Test(golden_steps, squeezenet1_1)
{
    check("squeezenet1_1", false);
}

Test(golden_steps, mobilenet_v2)
{
    check("mobilenet_v2", false);
}

Test(golden_steps, resnet18)
{
    check("resnet18", false);
}

Test(golden_steps, resnet50)
{
    check("resnet50", true);
}

Test(golden_steps, densenet121)
{
    check("densenet121", true);
}

Test(golden_steps, vgg16)
{
    check("vgg16", true);
}

Test(golden_steps, bert_small)
{
    check("bert_small", false);
}

/* Its vocabulary is large enough that the loss makes the logits itself, unless it is not fused. */
Test(golden_steps, gpt_tiny)
{
    check("gpt_tiny", false);
}
