/*
 * check.c - the public calls for ONNX files: open a model, or list why it cannot be trained.
 */
#include "model/builder/builder.h"
#include "onnx.h"
#include "onnx/node/import.h"

#include <mem/sized.h>
#include <mem/support.h>

#include <inttypes.h>

dunlin_status dunlin__onnx_read(const dunlin_onnx_input *input, int32_t *out_n_issues,
                                dunlin_net *out_net, dunlin_error *error)
{
    dunlin_alloc hooks = dunlin__alloc_or_default(input->alloc);
    *out_n_issues = 0;
    dunlin_model_sizes sizes = DUNLIN_MODEL_SIZES_INIT;
    if (input->sizes != NULL) {
        DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_model_sizes, input->sizes, &sizes, error));
    }
    if (sizes.height < 0 || sizes.width < 0 || sizes.length < 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "onnx", 0,
                            "a size of the inputs is negative (%" PRId32 " x %" PRId32
                            ", length %" PRId32 ")",
                            sizes.height, sizes.width, sizes.length);
    }
    dunlin_onnx_file *file = dunlin__alloc_zeroed(&hooks, 1, sizeof *file);
    if (file == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "onnx", 0, "no memory to read a model");
    }
    dunlin_net net;
    dunlin__net_init(&net, &hooks);
    dunlin_status status = dunlin__onnx_file_load(file, &hooks, &input->place, error);
    if (status == DUNLIN_OK) {
        dunlin_onnx_import import = {
            .file = file,
            .net = &net,
            .error = error,
            .sizes = sizes,
            .issue_fn = input->issue_fn,
            .issue_ctx = input->ctx,
        };
        status = dunlin__onnx_import_net(&import);
        *out_n_issues = import.n_issues;
    }
    dunlin__onnx_file_free(file);
    dunlin__free_array(&hooks, file, 1, sizeof *file);
    if (status == DUNLIN_OK) {
        *out_net = net;
    } else {
        dunlin__net_free(&net);
    }
    return status;
}

static dunlin_status open_place(const dunlin_onnx_place *place, const dunlin_model_sizes *sizes,
                                const dunlin_alloc *hooks, dunlin_model **out_model,
                                dunlin_error *error)
{
    *out_model = NULL;
    int32_t n_issues = 0;
    dunlin_net net;
    const dunlin_onnx_input input = {.place = *place, .sizes = sizes, .alloc = hooks};
    DUNLIN_TRY(dunlin__onnx_read(&input, &n_issues, &net, error));
    dunlin_status status = dunlin__model_from_net(&net, out_model, error);
    dunlin__net_free(&net);
    return status;
}

dunlin_status dunlin_model_open(const char *path, const dunlin_alloc *hooks,
                                dunlin_model **out_model, dunlin_error *out_error)
{
    return dunlin_model_open_sized(path, NULL, hooks, out_model, out_error);
}

dunlin_status dunlin_model_open_sized(const char *path, const dunlin_model_sizes *sizes,
                                      const dunlin_alloc *hooks, dunlin_model **out_model,
                                      dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (path == NULL || out_model == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "onnx", 0, "%s is NULL",
                            path == NULL ? "path" : "out_model");
    }
    return open_place(&(dunlin_onnx_place){.path = path}, sizes, hooks, out_model, out_error);
}

dunlin_status dunlin_model_open_memory(const void *bytes, size_t n_bytes,
                                       const dunlin_model_sizes *sizes, const dunlin_alloc *hooks,
                                       dunlin_model **out_model, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (bytes == NULL || out_model == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "onnx", 0,
                            "a model's bytes and a place for the model are needed");
    }
    return open_place(&(dunlin_onnx_place){.bytes = bytes, .n_bytes = n_bytes}, sizes, hooks,
                      out_model, out_error);
}

dunlin_status dunlin_model_open_fd(int fd, uint64_t offset, uint64_t n_bytes,
                                   const dunlin_model_sizes *sizes, const dunlin_alloc *hooks,
                                   dunlin_model **out_model, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (fd < 0 || out_model == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "onnx", 0,
                            "fd is %d and must be 0 or more; out_model is %s", fd,
                            out_model == NULL ? "NULL" : "given");
    }
    return open_place(
        &(dunlin_onnx_place){.has_fd = true, .fd = fd, .first = offset, .n_bytes = n_bytes}, sizes,
        hooks, out_model, out_error);
}

dunlin_status dunlin_model_check(const char *path, const dunlin_alloc *hooks,
                                 void (*issue_fn)(void *ctx, const dunlin_model_issue *issue),
                                 void *ctx, int32_t *out_n_issues, dunlin_error *out_error)
{
    return dunlin_model_check_sized(path, NULL, hooks, issue_fn, ctx, out_n_issues, out_error);
}

dunlin_status dunlin_model_check_sized(const char *path, const dunlin_model_sizes *sizes,
                                       const dunlin_alloc *hooks,
                                       void (*issue_fn)(void *ctx, const dunlin_model_issue *issue),
                                       void *ctx, int32_t *out_n_issues, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (path == NULL || out_n_issues == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "onnx", 0, "%s is NULL",
                            path == NULL ? "path" : "out_n_issues");
    }
    dunlin_net net;
    const dunlin_onnx_input input = {
        .place = {.path = path}, .sizes = sizes, .alloc = hooks, .issue_fn = issue_fn, .ctx = ctx};
    dunlin_status status = dunlin__onnx_read(&input, out_n_issues, &net, out_error);
    if (status == DUNLIN_OK) {
        dunlin__net_free(&net);
    } else if (status == DUNLIN_UNSUPPORTED && *out_n_issues > 0) {
        dunlin__error_clear(out_error);
        status = DUNLIN_OK;
    }
    return status;
}
