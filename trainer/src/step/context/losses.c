/*
 * losses.c - the loss of each output, from a trainer's options.
 */
#include "losses.h"

#include "net/outputs.h"

#include <dunlin/several.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Which output it is; the number of outputs: none of them. */
static uint32_t find_output(const dunlin_net *net, const char *name)
{
    uint32_t i = 0;
    while (i < dunlin__net_n_outputs(net) &&
           strcmp(net->values[dunlin__net_output_at(net, i)].name, name) != 0) {
        i++;
    }
    return i;
}

static dunlin_status check_loss(const dunlin_output_loss *from, dunlin_error *error)
{
    const char *name = from->name;
    if (from->loss < DUNLIN_LOSS_CROSS_ENTROPY || from->loss > DUNLIN_LOSS_TRIPLET) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "output \"%.80s\": loss is %d; it must be one of dunlin_loss", name,
                            (int)from->loss);
    }
    if (!isfinite(from->weight) || from->weight < 0.0F) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "output \"%.80s\": weight is %g; it must be finite and not negative",
                            name, (double)from->weight);
    }
    if (!isfinite(from->margin) || (from->margin != 0.0F && from->loss < DUNLIN_LOSS_CONTRASTIVE)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "output \"%.80s\": margin is %g; it must be finite, and 0 but with the "
                            "losses that have one",
                            name, (double)from->margin);
    }
    const bool is_of_classes =
        from->loss == DUNLIN_LOSS_CROSS_ENTROPY || from->loss == DUNLIN_LOSS_SOFT_CROSS_ENTROPY;
    if (!(from->label_smoothing >= 0.0F && from->label_smoothing < 1.0F) ||
        (from->label_smoothing != 0.0F && !is_of_classes)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "output \"%.80s\": label_smoothing is %g; it must be in [0, 1), and 0 "
                            "but with cross-entropy",
                            name, (double)from->label_smoothing);
    }
    return DUNLIN_OK;
}

/* The margin that a loss has of its own. */
static float margin_of(dunlin_loss loss)
{
    return loss == DUNLIN_LOSS_CONTRASTIVE || loss == DUNLIN_LOSS_TRIPLET ? 1.0F : 0.0F;
}

/* One entry of options.outputs, into its output's place. */
static dunlin_status take_one(const dunlin_net *net, const void *entry, dunlin_step_loss *out,
                              bool *is_set, dunlin_error *error)
{
    dunlin_output_loss from = DUNLIN_OUTPUT_LOSS_INIT;
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_output_loss, entry, &from, error));
    const uint32_t n_outputs = dunlin__net_n_outputs(net);
    const uint32_t index = from.name != NULL ? find_output(net, from.name) : n_outputs;
    if (index == n_outputs || is_set[index]) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option outputs: \"%.80s\" is %s the model's %" PRIu32
                            " outputs, of which the first is \"%.80s\"",
                            from.name != NULL ? from.name : "",
                            index == n_outputs ? "none of" : "named twice among", n_outputs,
                            net->values[net->output].name);
    }
    DUNLIN_TRY(check_loss(&from, error));
    is_set[index] = true;
    out[index] =
        (dunlin_step_loss){.loss = from.loss,
                           .weight = from.weight,
                           .smoothing = from.label_smoothing,
                           .margin = from.margin != 0.0F ? from.margin : margin_of(from.loss)};
    return DUNLIN_OK;
}

dunlin_status dunlin__losses_take(const dunlin_net *net, dunlin_trainer_options *options,
                                  dunlin_step_loss *out, dunlin_error *error)
{
    const uint32_t n_outputs = dunlin__net_n_outputs(net);
    bool is_set[DUNLIN_NET_MAX_OUTPUTS] = {false};
    bool has_weight = false;
    bool has_labels = false;
    if (options->n_outputs < 0 || (options->n_outputs > 0) != (options->outputs != NULL)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option n_outputs is %" PRId32
                            "; it must be 0 without outputs, else above 0",
                            options->n_outputs);
    }
    for (uint32_t i = 0; i < n_outputs; i++) {
        out[i] = (dunlin_step_loss){.loss = options->loss,
                                    .weight = 1.0F,
                                    .smoothing = options->label_smoothing,
                                    .margin = margin_of(options->loss)};
    }
    const unsigned char *at = (const unsigned char *)options->outputs;
    for (int32_t i = 0; i < options->n_outputs; i++) {
        DUNLIN_TRY(take_one(net, at, out, is_set, error));
        at += options->outputs[0].struct_size;
    }
    for (uint32_t i = 0; i < n_outputs; i++) {
        has_weight = has_weight || out[i].weight > 0.0F;
        has_labels = has_labels || out[i].loss == DUNLIN_LOSS_CROSS_ENTROPY;
    }
    if (!has_weight) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option outputs: the weights of all %" PRIu32 " outputs are 0",
                            n_outputs);
    }
    if (options->has_ignore_label && !has_labels) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option has_ignore_label is 1; it must be 0 but with cross-entropy");
    }
    if (options->class_weights != NULL && out[0].loss != DUNLIN_LOSS_CROSS_ENTROPY &&
        out[0].loss != DUNLIN_LOSS_BCE) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option class_weights is set, and the loss of output \"%.80s\" is "
                            "neither cross-entropy with labels nor BCE",
                            net->values[net->output].name);
    }
    options->loss = out[0].loss;
    options->label_smoothing = out[0].smoothing;
    return DUNLIN_OK;
}
