/*
 * product_net.c - the networks of product_model.h: made, filled and freed.
 */
#include "product_model.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

static void *zeros(int64_t n, size_t size)
{
    void *array = calloc((size_t)n, size);
    cr_assert_not_null(array);
    return array;
}

void product_begin(product_net *net, const product_rules *rules, int64_t c, int64_t h, int64_t w)
{
    *net = (product_net){
        .rules = *rules, .c = c, .h = h, .w = w, .n_in = c * h * w, .seed = PRODUCT_SEED};
}

static int64_t n_weights(const product_layer *l)
{
    return l->out_c * (l->in_c / l->groups) * l->kernel * l->kernel;
}

void product_conv(product_net *net, int64_t out_c, int64_t kernel, int64_t stride, int64_t padding,
                  int64_t groups, bool has_relu)
{
    product_layer *l = &net->layers[net->n_layers++];
    *l = (product_layer){.in_c = net->c,
                         .in_h = net->h,
                         .in_w = net->w,
                         .out_c = out_c,
                         .out_h = (net->h + 2 * padding - kernel) / stride + 1,
                         .out_w = (net->w + 2 * padding - kernel) / stride + 1,
                         .kernel = kernel,
                         .stride = stride,
                         .padding = padding,
                         .groups = groups,
                         .has_relu = has_relu};
    l->weights = zeros(n_weights(l), sizeof(float));
    l->bias = zeros(out_c, sizeof(float));
    l->weight_grad = zeros(n_weights(l), sizeof(float));
    l->bias_grad = zeros(out_c, sizeof(float));
    l->channels = zeros(out_c, sizeof *l->channels);
    net->c = l->out_c;
    net->h = l->out_h;
    net->w = l->out_w;
    net->n_out = l->out_c * l->out_h * l->out_w;
}

void product_dense(product_net *net, int64_t out, bool has_relu)
{
    net->c = net->c * net->h * net->w;
    net->h = 1;
    net->w = 1;
    product_conv(net, out, 1, 1, 0, 1, has_relu);
}

void product_free(product_net *net)
{
    for (int i = 0; i < net->n_layers; i++) {
        free(net->layers[i].weights);
        free(net->layers[i].bias);
        free(net->layers[i].weight_grad);
        free(net->layers[i].bias_grad);
        free(net->layers[i].channels);
    }
}

void product_import(product_net *net, const float *weights)
{
    for (int i = 0; i < net->n_layers; i++) {
        product_layer *l = &net->layers[i];
        memcpy(l->weights, weights, (size_t)n_weights(l) * sizeof(float));
        weights += n_weights(l);
        memcpy(l->bias, weights, (size_t)l->out_c * sizeof(float));
        weights += l->out_c;
    }
}

void product_export(const product_net *net, float *weights)
{
    for (int i = 0; i < net->n_layers; i++) {
        const product_layer *l = &net->layers[i];
        memcpy(weights, l->weights, (size_t)n_weights(l) * sizeof(float));
        weights += n_weights(l);
        memcpy(weights, l->bias, (size_t)l->out_c * sizeof(float));
        weights += l->out_c;
    }
}
