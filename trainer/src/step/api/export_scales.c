/*
 * export_scales.c - which values a network in integers rounds when it predicts, and to what.
 *
 * Invariant: a value that keeps its input's exponent is not rounded again, so it is exact in a QDQ
 * model without a node of its own.
 */
#include "export_scales.h"

#include "integer/int_emit.h"
#include "step/run/values.h"

#include <mem/support.h>

#include <math.h>

static bool is_rounded(const dunlin_net *net, uint32_t value)
{
    const uint32_t producer = net->values[value].producer;
    if (producer == DUNLIN_NET_NONE) {
        return value == net->input;
    }
    const dunlin_net_node *node = &net->nodes[producer];
    return node->kind == DUNLIN_OP_CONV || node->kind == DUNLIN_OP_DENSE ||
           node->kind == DUNLIN_OP_AVERAGE_POOL || node->kind == DUNLIN_OP_GLOBAL_AVERAGE_POOL ||
           node->kind == DUNLIN_OP_ADD || node->kind == DUNLIN_OP_CONCAT;
}

static dunlin_status fill(const dunlin_trainer *trainer, dunlin__export_scales *out)
{
    const dunlin_net *net = &trainer->net;
    const dunlin_integer_site *sites = dunlin__values_sites(&trainer->train, &trainer->arena);
    int32_t *values = out->exponents + net->n_params;
    for (size_t i = 0; i < net->n_params; i++) {
        out->exponents[i] = sites[i].exponent;
    }
    for (uint32_t i = 0; i < net->n_values; i++) {
        const dunlin_integer_site *site = &sites[dunlin__integer_value_site(net, i)];
        const bool rounds = is_rounded(net, i);
        values[i] = rounds ? site->exponent : DUNLIN_ONNX_NO_EXPONENT;
        if (rounds && site->is_known == 0) {
            return dunlin__fail(trainer->error, DUNLIN_STATE, "trainer", 0,
                                "value '%.100s' has no scale yet; a step or an evaluation finds it",
                                net->values[i].name);
        }
    }
    out->scales = (dunlin_onnx_scales){.params = out->exponents, .values = values};
    return DUNLIN_OK;
}

dunlin_status dunlin__export_scales_open(dunlin_trainer *trainer, dunlin__export_scales *out)
{
    const size_t n = trainer->net.n_params + trainer->net.n_values;
    *out = (dunlin__export_scales){.exponents = NULL};
    if (!dunlin__precision_is_whole(trainer->precision)) {
        return dunlin__fail(trainer->error, DUNLIN_UNSUPPORTED, "trainer", 0,
                            "precision %s has no scales of its weights: a QDQ model is of a "
                            "trainer whose weights are int8",
                            dunlin__precision_name(trainer->precision));
    }
    out->exponents = dunlin__alloc_array(&trainer->counter.hooks, n, sizeof *out->exponents);
    if (out->exponents == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_MEMORY, "trainer", 0,
                            "no memory for %zu exponents", n);
    }
    return fill(trainer, out);
}

void dunlin__export_scales_close(const dunlin_trainer *trainer, dunlin__export_scales *scales)
{
    const size_t n = trainer->net.n_params + trainer->net.n_values;
    dunlin__free_array(&trainer->counter.hooks, scales->exponents, n, sizeof *scales->exponents);
    scales->exponents = NULL;
}
