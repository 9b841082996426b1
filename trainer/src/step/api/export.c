/*
 * export.c - writes from a trainer: the ONNX model, the plan's dump.
 *
 * Invariant: the writer's scratch lies in the idle pool of the arena, so exporting stays within the
 * budget. A model that could not be read back, since a weight is not finite, does not become a
 * file.
 */
#include "convert/read/onnx.h"
#include "export_scales.h"
#include "kernels/simd/finite.h"
#include "step/context/context.h"
#include "step/context/guard.h"
#include "step/run/values.h"

#include <dunlin/bytes.h>
#include <dunlin/trainer_experimental.h>
#include <mem/checked.h>
#include <mem/support.h>

#include <inttypes.h>
#include <math.h>

/* Blocks from the pool while no step runs, then from the tables' hooks. What is given back last is
 * used again; the rest comes back when the export ends. */
typedef struct idle_pool {
    dunlin_alloc fallback;
    unsigned char *base;
    uint64_t bytes;
    uint64_t used_bytes;
} idle_pool;

static uint64_t round_up(size_t bytes)
{
    return ((uint64_t)bytes + DUNLIN_MEM_ALIGN - 1) / DUNLIN_MEM_ALIGN * DUNLIN_MEM_ALIGN;
}

static void *idle_alloc(void *ctx, size_t bytes, size_t align)
{
    idle_pool *pool = ctx;
    if (align <= DUNLIN_MEM_ALIGN && bytes <= pool->bytes - pool->used_bytes &&
        round_up(bytes) <= pool->bytes - pool->used_bytes) {
        unsigned char *memory = pool->base + pool->used_bytes;
        pool->used_bytes += round_up(bytes);
        return memory;
    }
    return pool->fallback.alloc_fn(pool->fallback.ctx, bytes, align);
}

static void idle_free(void *ctx, void *memory, size_t bytes)
{
    idle_pool *pool = ctx;
    unsigned char *at = memory;
    if (at < pool->base || at >= pool->base + pool->bytes) {
        pool->fallback.free_fn(pool->fallback.ctx, memory, bytes);
    } else if (at + round_up(bytes) == pool->base + pool->used_bytes) {
        pool->used_bytes -= round_up(bytes);
    }
}

static dunlin_status read_param(void *ctx, uint32_t param_index, int64_t first, int64_t n,
                                float *out, dunlin_error *error)
{
    const dunlin_trainer *trainer = ctx;
    const dunlin_net_param *param = &trainer->net.params[param_index];
    dunlin__values_load(&trainer->train, &trainer->arena, &trainer->net, param_index, first, n,
                        out);
    const int64_t n_finite = finite_count(out, n);
    if (n_finite < n) {
        return dunlin__fail(error, DUNLIN_NUMERIC, "onnx", 0,
                            "the model is not written: element %" PRId64
                            " of '%.100s' is not finite",
                            first + n_finite, param->name);
    }
    return DUNLIN_OK;
}

/* The same of what is multiplied: of weights in 16 bits the upper byte. */
static dunlin_status read_upper(void *ctx, uint32_t param_index, int64_t first, int64_t n,
                                float *out, dunlin_error *error)
{
    const dunlin_trainer *trainer = ctx;
    DUNLIN_TRY(read_param(ctx, param_index, first, n, out, error));
    const float unit =
        ldexpf(1.0F, dunlin__values_sites(&trainer->train, &trainer->arena)[param_index].exponent);
    for (int64_t i = 0; i < n; i++) {
        out[i] = floorf(out[i] / unit + 0.5F) * unit; /* exact; halves upwards */
    }
    return DUNLIN_OK;
}

/* Into a file that is open. */
static dunlin_status write_onnx(dunlin_trainer *trainer, dunlin_outfile *file,
                                const dunlin_onnx_scales *scales)
{
    const uint64_t persistent = trainer->train.lowered.persistent_bytes;
    idle_pool pool = {.fallback = trainer->counter.hooks,
                      .bytes = trainer->arena.committed_bytes - persistent};
    if (pool.bytes > 0) {
        dunlin__arena_unpoison(&trainer->arena, persistent, pool.bytes);
        pool.base = dunlin__arena_at(&trainer->arena, persistent, pool.bytes);
    }
    const dunlin_alloc own = trainer->net.alloc;
    trainer->net.alloc = (dunlin_alloc){.ctx = &pool, .alloc_fn = idle_alloc, .free_fn = idle_free};
    const dunlin_status status =
        dunlin__onnx_write_qdq(&trainer->net, file, scales != NULL ? read_upper : read_param,
                               trainer, scales, trainer->error);
    trainer->net.alloc = own;
    dunlin__exec_poison_pool(&trainer->train, &trainer->arena);
    return status;
}

static dunlin_status export_onnx(dunlin_trainer *trainer, const char *path,
                                 const dunlin_onnx_scales *scales)
{
    DUNLIN_TRY(dunlin__trainer_check(trainer));
    if (path == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "path of the export is NULL");
    }
    dunlin_outfile file;
    DUNLIN_TRY(dunlin__outfile_open(&file, path, 0666, trainer->error));
    const dunlin_status status = write_onnx(trainer, &file, scales);
    return dunlin__outfile_close(&file, status, trainer->error);
}

static dunlin_status export_to(dunlin_trainer *trainer, dunlin_write_fn write_fn, void *ctx,
                               const dunlin_onnx_scales *scales)
{
    DUNLIN_TRY(dunlin__trainer_check(trainer));
    if (write_fn == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "write_fn of the export is NULL");
    }
    dunlin_outfile file;
    dunlin__outfile_to(&file, "the model", write_fn, ctx);
    return write_onnx(trainer, &file, scales);
}

dunlin_status dunlin_trainer_export_onnx(dunlin_trainer *trainer, const char *path)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer, export_onnx(trainer, path, NULL));
}

dunlin_status dunlin_trainer_write_onnx(dunlin_trainer *trainer, dunlin_write_fn write_fn,
                                        void *ctx)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer, export_to(trainer, write_fn, ctx, NULL));
}

dunlin_status dunlin_trainer_export_qdq(dunlin_trainer *trainer, const char *path)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    dunlin__export_scales scales;
    dunlin_status status = dunlin__export_scales_open(trainer, &scales);
    status = status == DUNLIN_OK ? export_onnx(trainer, path, &scales.scales) : status;
    dunlin__export_scales_close(trainer, &scales);
    return dunlin__trainer_leave(trainer, status);
}

dunlin_status dunlin_trainer_write_qdq(dunlin_trainer *trainer, dunlin_write_fn write_fn, void *ctx)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    dunlin__export_scales scales;
    dunlin_status status = dunlin__export_scales_open(trainer, &scales);
    status = status == DUNLIN_OK ? export_to(trainer, write_fn, ctx, &scales.scales) : status;
    dunlin__export_scales_close(trainer, &scales);
    return dunlin__trainer_leave(trainer, status);
}

void dunlin_trainer_dump_plan(const dunlin_trainer *trainer, dunlin_text_fn text_fn, void *ctx)
{
    dunlin__plan_dump(&trainer->train.lowered.graph, trainer->train.plan, text_fn, ctx);
}
