/*
 * data.c - which data set a program works on.
 */
#include "data.h"

#include <stdlib.h>
#include <string.h>

const char *data_choose(const char *data, const char *dataset, data_choice *out_choice)
{
    bool is_synthetic = data != NULL && strcmp(data, "synthetic") == 0;
    if (is_synthetic && dataset != NULL && strcmp(dataset, "synthetic") != 0) {
        return "--data synthetic goes with --dataset synthetic or none";
    }
    const char *environment = getenv("DUNLIN_DATA");
    out_choice->folder = data;
    if (is_synthetic) {
        out_choice->folder = NULL;
    } else if (data == NULL && environment != NULL && environment[0] != '\0') {
        out_choice->folder = environment;
    }
    out_choice->name = dataset;
    if (dataset == NULL) {
        out_choice->name = data == NULL || is_synthetic ? "synthetic" : "fashion_mnist";
    }
    return NULL;
}

int32_t data_channels(const data_choice *choice)
{
    return strcmp(choice->name, "cifar10") == 0 ? 3 : 1;
}
