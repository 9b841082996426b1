/*
 * test_onnx_bad.c - damaged and hostile ONNX files: one line each, never a crash, nothing leaked.
 */
#include "net_support.h"
#include "random.h"

#include <criterion/criterion.h>

#include <convert/read/onnx.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads from memory; returns the status. Every refusal must be one line. */
static dunlin_status read_bytes(const uint8_t *bytes, size_t n, const char *what)
{
    net_failing failing;
    net_failing_init(&failing, 0);
    dunlin_net net;
    dunlin_error error = {0};
    int32_t n_issues = 0;
    const dunlin_onnx_input input = {.place = {.bytes = bytes, .n_bytes = n},
                                     .alloc = &failing.hooks};
    dunlin_status status = dunlin__onnx_read(&input, &n_issues, &net, &error);
    if (status == DUNLIN_OK) {
        dunlin__net_free(&net);
    } else {
        net_expect_line(&error, status, what);
    }
    cr_assert_eq(failing.n_live, 0, "%s leaks", what);
    return status;
}

Test(onnx_bad, each_with_its_reason)
{
    const struct {
        const char *file;
        dunlin_status status;
        const char *text;
    } cases[] = {
        {"undefined.onnx", DUNLIN_MODEL, "'b'"},
        {"twice.onnx", DUNLIN_MODEL, "'y'"},
        {"cycle.onnx", DUNLIN_MODEL, "cycle: Identity 'back' reads 'r'"},
        {"short.onnx", DUNLIN_MODEL, "47 bytes"},
        {"huge.onnx", DUNLIN_MODEL, "shape"},
        {"negative.onnx", DUNLIN_MODEL, "negative"},
        {"upwards.onnx", DUNLIN_MODEL, "../external.bin"},
        {"absolute.onnx", DUNLIN_MODEL, "/etc/passwd"},
        {"missing.onnx", DUNLIN_IO, "not_there.bin"},
        {"beyond.onnx", DUNLIN_MODEL, "124 bytes"},
        {"long_name.onnx", DUNLIN_LIMIT, "255"},
        {"no_graph.onnx", DUNLIN_MODEL, "no graph"},
        {"text.onnx", DUNLIN_MODEL, "damaged"},
        {"empty.onnx", DUNLIN_MODEL, "no graph"},
        {"there_is_no_such_file.onnx", DUNLIN_IO, "there_is_no_such_file"},
        {".", DUNLIN_IO, "not a file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        dunlin_model *model = NULL;
        dunlin_error error = {0};
        int32_t n = 0;
        net_onnx_path(cases[i].file, path);
        cr_expect_eq(dunlin_model_open(path, NULL, &model, &error), cases[i].status, "%s: %s",
                     cases[i].file, error.text);
        cr_assert_null(model);
        net_expect_line(&error, cases[i].status, cases[i].file);
        cr_expect_not_null(strstr(error.text, cases[i].text), "%s: '%s' lacks '%s'", cases[i].file,
                           error.text, cases[i].text);
        /* The check says the same: a damaged file has no list. */
        dunlin_error again = {0};
        cr_expect_eq(dunlin_model_check(path, NULL, NULL, NULL, &n, &again), cases[i].status);
        cr_expect_str_eq(again.text, error.text);
    }
}

Test(onnx_bad, a_pipe_does_not_block)
{
    char path[512];
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    net_temp_path("pipe", path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_eq(dunlin_model_open(path, NULL, &model, &error), DUNLIN_IO);
    net_expect_line(&error, DUNLIN_IO, "pipe");
    (void)unlink(path);
}

Test(onnx_bad, larger_than_a_protobuf)
{
    char path[512];
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    net_temp_path("sparse", path);
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(ftruncate(fd, ((off_t)2 << 30) + 1), 0);
    (void)close(fd);
    cr_expect_eq(dunlin_model_open(path, NULL, &model, &error), DUNLIN_LIMIT);
    net_expect_line(&error, DUNLIN_LIMIT, "larger than 2 GiB");
    (void)unlink(path);
}

Test(onnx_bad, cut_at_every_byte)
{
    const char *files[] = {"train13.onnx",    "train17.onnx",  "view17.onnx",  "identity.onnx",
                           "nothing.onnx",    "many.onnx",     "forms18.onnx", "forms21.onnx",
                           "float_data.onnx", "groups17.onnx", "worded9.onnx", "disorder.onnx",
                           "choice.onnx"};
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        char path[512];
        char what[64];
        size_t n = 0;
        uint8_t *bytes = net_read_file(net_onnx_path(files[f], path), &n);
        for (size_t cut = 0; cut < n; cut++) {
            (void)snprintf(what, sizeof what, "%s cut at %zu", files[f], cut);
            uint8_t *part = malloc(cut > 0 ? cut : 1);
            cr_assert_not_null(part);
            memcpy(part, bytes, cut);
            cr_assert_neq(read_bytes(part, cut, what), DUNLIN_OK, "%s", what);
            free(part);
        }
        dunlin_status whole = read_bytes(bytes, n, files[f]);
        cr_assert_eq(whole, f == 5 ? DUNLIN_UNSUPPORTED : DUNLIN_OK);
        free(bytes);
    }
}

Test(onnx_bad, random_damage)
{
    const char *files[] = {"train13.onnx", "view17.onnx",     "identity.onnx", "nothing.onnx",
                           "many.onnx",    "float_data.onnx", "external.onnx", "trans_b0.onnx",
                           "forms20.onnx", "groups13.onnx",   "worded9.onnx",  "disorder.onnx",
                           "choice.onnx"};
    uint64_t seed = test_seed(2024);
    uint64_t state = seed;
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        char path[512];
        char what[96];
        size_t n = 0;
        uint8_t *bytes = net_read_file(net_onnx_path(files[f], path), &n);
        uint8_t *copy = malloc(n);
        cr_assert_not_null(copy);
        for (int i = 0; i < test_cases(1500); i++) {
            memcpy(copy, bytes, n);
            for (uint64_t k = 1 + test_random_below(&state, 4); k > 0; k--) {
                size_t at = (size_t)test_random_below(&state, n);
                copy[at] = test_random_below(&state, 2) == 0
                               ? (uint8_t)(copy[at] ^ (1U << test_random_below(&state, 8)))
                               : (uint8_t)test_random_u64(&state);
            }
            (void)snprintf(what, sizeof what, "%s, seed %llu, case %d", files[f],
                           (unsigned long long)seed, i);
            (void)read_bytes(copy, n, what);
        }
        free(copy);
        free(bytes);
    }
}
