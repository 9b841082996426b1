/*
 * test_steps.c - every ready-made network after ten steps of SGD, against PyTorch in float64, on
 * every instruction set of this machine, fused and not.
 */
#include "steps.h"

#include <dunlin/several.h>

#include <criterion/criterion.h>

#include <kernels/api/kernels.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* The weights that a network with auxiliary heads is trained with: "logits,aux2=0.3,aux1=0.3". */
static int32_t find_losses(const char *name, const dunlin_model *model,
                           dunlin_output_loss losses[DUNLIN_MODEL_MAX_OUTPUTS])
{
    const char *at = dunlin_zoo_outputs(name);
    int32_t n = 0;
    for (; at != NULL && *at != '\0'; n++) {
        dunlin_model_output output = DUNLIN_MODEL_OUTPUT_INIT;
        const char *value = at + strcspn(at, "=,");
        cr_assert(dunlin_model_get_output(model, n, &output) == DUNLIN_OK);
        losses[n] = (dunlin_output_loss)DUNLIN_OUTPUT_LOSS_INIT;
        losses[n].name = output.name;
        losses[n].weight = *value == '=' ? strtof(value + 1, NULL) : 1.0F;
        at += strcspn(at, ",");
        at += *at == ',' ? 1 : 0;
    }
    return n;
}

/* Without fusing, large networks run on the best instruction set alone: they take their time. */
static void check(const char *name, bool is_large)
{
    steps_setup setup = steps_open(name);
    dunlin_model *model = make_model(name, &setup);
    for (int i = 0; dunlin__kernels_isa(i / 2) != NULL; i++) {
        char what[32];
        dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
        dunlin_output_loss losses[DUNLIN_MODEL_MAX_OUTPUTS];
        options.n_outputs = find_losses(name, model, losses);
        options.outputs = options.n_outputs > 0 ? losses : NULL;
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

/* With both auxiliary heads. */
Test(golden_steps, googlenet_aux)
{
    check("googlenet_aux", true);
}

Test(golden_steps, vit_tiny)
{
    check("vit_tiny", false);
}

Test(golden_steps, bert_small)
{
    check("bert_small", false);
}

/* With padding at any place, which no token looks at. */
Test(golden_steps, bert_tiny)
{
    check("bert_tiny", false);
}

/* Its vocabulary is large enough that the loss makes the logits itself, unless it is not fused. */
Test(golden_steps, gpt_tiny)
{
    check("gpt_tiny", false);
}
