/*
 * check_nets.c - check_nets FOLDER: every NAME.onnx there against its NAME.expect; NAME.ours.onnx
 * is what we write after training. For networks too large to be committed (onnx_nets.sh).
 */
#include "net_expect.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    char pattern[1024];
    glob_t found = {0};
    if (argc != 2) {
        (void)fprintf(stderr, "usage: check_nets FOLDER\n");
        return 2;
    }
    (void)snprintf(pattern, sizeof pattern, "%s/*.expect", argv[1]);
    if (glob(pattern, 0, NULL, &found) != 0) {
        (void)fprintf(stderr, "check_nets: no networks in %s\n", argv[1]);
        return 2;
    }
    int result = 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char text[NET_EXPECT_TEXT];
        char model[1024];
        char ours[1024];
        const char *expect = found.gl_pathv[i];
        int stem = (int)(strrchr(expect, '.') - expect);
        (void)snprintf(model, sizeof model, "%.*s.onnx", stem, expect);
        (void)snprintf(ours, sizeof ours, "%.*s.ours.onnx", stem, expect);
        bool is_good = net_expect_check(model, expect, ours, text);
        (void)printf("%s %s: %s\n", is_good ? "ok    " : "FAILED", model, text);
        (void)fflush(stdout);
        result = is_good ? result : 1;
    }
    globfree(&found);
    return result;
}
