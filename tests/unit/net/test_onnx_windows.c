/*
 * test_onnx_windows.c - windows of an image, masks of padding that are made or given, attention
 * between two sequences: the numbers of PyTorch (onnx_windows.py), and what stands there in the
 * end.
 */
#include "net_expect.h"
#include "net_support.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(onnx_windows, .timeout = 900);

static void check_golden(const char *name)
{
    char model[512];
    char expect[512];
    char ours[512];
    char file[64];
    char text[NET_EXPECT_TEXT];
    (void)snprintf(file, sizeof file, "%s.onnx", name);
    net_onnx_path(file, model);
    net_temp_path(file, ours);
    (void)snprintf(file, sizeof file, "%s.expect", name);
    net_onnx_path(file, expect);
    bool is_good = net_expect_check(model, expect, ours, text);
    (void)unlink(ours);
    cr_assert(is_good, "%s: %s", name, text);
}

/* Windows are rows of a sample; shifted ones have a mask of regions; biases of relative positions
 * are rows of a table that is trained. */
Test(onnx_windows, shifted_windows)
{
    check_golden("swin");
}

/* PyTorch's own encoder: ids that are compared, with and without a mask of what lies ahead, and a
 * mask of bools that is an input. */
Test(onnx_windows, padding_of_an_encoder)
{
    check_golden("pad_encoder");
    check_golden("pad_causal");
    check_golden("pad_given");
}

/* As networks for sentences write it: added, chosen, repeated for each query or head. */
Test(onnx_windows, padding_that_is_written_out)
{
    check_golden("pad_sum");
    check_golden("pad_expanded");
    check_golden("pad_own");
    check_golden("pad_filled");
    check_golden("pad_repeated");
    check_golden("pad_soft");
    check_golden("pad_chosen");
}
