/*
 * onnx.h - reading and writing ONNX files, as the other parts of the trainer see it.
 */
#ifndef DUNLIN_CONVERT_ONNX_H
#define DUNLIN_CONVERT_ONNX_H

#include "net/net.h"
#include "onnx/node/node.h"
#include "onnx/wire/file.h"

#include <mem/outfile.h>

/* Elements [first, first + n) of a parameter, in ONNX's order and shape. */
typedef dunlin_status (*dunlin_param_read_fn)(void *ctx, uint32_t param_index, int64_t first,
                                              int64_t n, float *out, dunlin_error *error);

/*
 * Writes the network as a plain inference model (opset 17, IR version 8), with the inputs and the
 * output of the file that it was read from, into a file that is open. Weights are asked for in the
 * parameters' order, in blocks of up to 16,384 elements. IO, SPACE, CALLBACK, LIMIT (2 GiB),
 * MEMORY, and whatever `read_fn` returns.
 */
DUNLIN_NODISCARD dunlin_status dunlin__onnx_write(const dunlin_net *net, dunlin_outfile *file,
                                                  dunlin_param_read_fn read_fn, void *ctx,
                                                  dunlin_error *error);
/*
 * The same of a network in integers: int8 parameters, and a QuantizeLinear and a DequantizeLinear
 * where a value is rounded. `read_fn` gives whole multiples of a parameter's scale, at most 127.
 */
DUNLIN_NODISCARD dunlin_status dunlin__onnx_write_qdq(const dunlin_net *net, dunlin_outfile *file,
                                                      dunlin_param_read_fn read_fn, void *ctx,
                                                      const dunlin_onnx_scales *scales,
                                                      dunlin_error *error);

/* What to read, and whom to tell. */
typedef struct dunlin_onnx_input {
    dunlin_onnx_place place; /* bytes must stay as long as weights are read; external data is
                                refused where there is no path */
    const dunlin_model_sizes *sizes; /* what the file leaves open; may be NULL */
    const dunlin_alloc *alloc;       /* may be NULL */
    dunlin_onnx_issue_fn issue_fn;   /* may be NULL */
    void *ctx;
} dunlin_onnx_input;

/*
 * Reads a network; `out_net` is filled only on success. UNSUPPORTED when there were issues: each
 * was reported to `issue_fn`, and `error` tells the first and how many. IO, MODEL, LIMIT, MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__onnx_read(const dunlin_onnx_input *input,
                                                 int32_t *out_n_issues, dunlin_net *out_net,
                                                 dunlin_error *error);

#endif
