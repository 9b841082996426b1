/*
 * bench_plain.h - networks without batch norm, which training in integers has not: the layers of
 * VGG-11 with a head for CIFAR, of ResNet-18 for images of 32 x 32, and of MobileNetV1.
 */
#ifndef DUNLIN_BENCH_PLAIN_H
#define DUNLIN_BENCH_PLAIN_H

#include <dunlin/model.h>

/*
 * "vgg11_cifar", "resnet18_plain", "mobilenet_v1_plain" for images of `image` pixels to the side
 * (0: 32) and `classes` (0: 10). NULL: another name, or no memory. The caller destroys it.
 */
dunlin_model *bench_plain_model(const char *name, int32_t image, int32_t classes);

#endif
