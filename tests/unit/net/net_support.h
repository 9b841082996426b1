/*
 * net_support.h - what the tests of networks and ONNX files share.
 */
#ifndef DUNLIN_TESTS_NET_SUPPORT_H
#define DUNLIN_TESTS_NET_SUPPORT_H

#include <dunlin/model.h>

#include <net/net.h>

/* Hooks that fail the n-th allocation from now (0: none), and count what is not given back. */
typedef struct net_failing {
    dunlin_alloc hooks;
    int64_t n_until_failure;
    int64_t n_live;
} net_failing;
void net_failing_init(net_failing *failing, int64_t n_until_failure);

/* The error is one line of text with a subsystem, and its status is `status`. */
void net_expect_line(const dunlin_error *error, dunlin_status status, const char *what);

/* A file of the committed ONNX files; free() the bytes. */
const char *net_onnx_path(const char *name, char path[512]);
uint8_t *net_read_file(const char *path, size_t *out_n);
void net_write_file(const char *path, const void *bytes, size_t n);

/* A path in a folder of this test process, removed by the caller. */
const char *net_temp_path(const char *name, char path[512]);

/* Index of a parameter by name; fails the test if there is none. */
uint32_t net_find_param(const dunlin_net *net, const char *name);

/* An image that the ready-made network takes: of 32 pixels a side, or more where it must. */
int32_t net_zoo_image(const char *name);

/* The value of element i of a parameter in the committed files, by the length of its name. */
float net_formula(const char *name, int64_t i);

/* The two networks have the same nodes, shapes, names and attributes. */
void net_expect_equal(const dunlin_net *a, const dunlin_net *b);

#endif
