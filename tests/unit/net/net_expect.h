/*
 * net_expect.h - an ONNX file against what PyTorch made of the same network: read, predict, train,
 * write, read again.
 */
#ifndef DUNLIN_TESTS_NET_EXPECT_H
#define DUNLIN_TESTS_NET_EXPECT_H

#include <stdbool.h>

#define NET_EXPECT_TEXT 512

/*
 * Runs all of it: `model_path` is the file, `expect_path` what tests/golden/onnx_nets.py wrote
 * beside it, `export_path` where ours is written (and stays). False: `out_text` says what is wrong;
 * else it says how close the two are.
 */
bool net_expect_check(const char *model_path, const char *expect_path, const char *export_path,
                      char out_text[NET_EXPECT_TEXT]);

#endif
