/*
 * narrow.c - see narrow.h.
 *
 * Invariant: all of a piece is read before any of it is written, so an output may lie on an input
 * in the arena. A tensor that several accesses name is one.
 */
#include "narrow.h"

#include "gather.h"

#include <mem/support.h>

#include <assert.h>

#define ROOM_BYTES ((int64_t)4 << 20) /* wanted for the floats of all samples at a time */
#define BATCH_PARTS 2                 /* a piece is no more of a batch than this part of it */
#define USUAL_BATCH 32                /* of a step whose batch is not known */
#define LINE_FLOATS 16

static int64_t line_floats(int64_t n)
{
    return (n + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
}

bool dunlin__narrow_is(const dunlin_step_tensor *tensor)
{
    return tensor->dtype == DUNLIN_BF16 || dunlin__narrow_is_scaled(tensor);
}

uint64_t dunlin__step_tensor_bytes(const dunlin_step_tensor *tensor)
{
    if (tensor->is_gathered) {
        return 0;
    }
    if (dunlin__narrow_is_scaled(tensor)) {
        const int32_t channels = tensor->scaled_channels;
        return (uint64_t)dunlin__scaled_bytes(tensor->n_elements / channels, channels);
    }
    return (uint64_t)tensor->n_elements * dunlin_dtype_bytes(tensor->dtype);
}

/* It lies in the workspace as floats. */
static bool is_piece(const dunlin_step_tensor *tensor)
{
    return tensor->is_gathered || dunlin__narrow_is(tensor);
}

/* The access names a tensor that none before it did. */
static bool is_first_access(const dunlin_mem_access *own, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++) {
        if (own[i].tensor == own[index].tensor) {
            return false;
        }
    }
    return true;
}

/* The op's kernel takes it in bfloat16 where it lies. */
static bool is_placed(const dunlin_step_graph *graph, const dunlin_step_op *op, uint32_t tensor)
{
    const dunlin_mem_access *own = dunlin__step_own(op);
    bool is_taken = graph->tensors[tensor].dtype == DUNLIN_BF16;
    for (uint32_t i = 0; is_taken && i < op->n_own; i++) {
        const bool is_read = own[i].mode == DUNLIN_MEM_READ;
        is_taken = own[i].tensor != tensor || (is_read ? op->reads_halves : op->writes_halves);
    }
    return is_taken;
}

bool dunlin__narrow_is_placed(const dunlin_kernel_call *call, int32_t operand)
{
    return operand >= 0 && call->places != NULL && call->places[operand] != NULL &&
           call->places[operand]->floats == NULL;
}

static void count_gathered(const dunlin_step_graph *graph, const dunlin_step_gather *gather,
                           dunlin_narrow *narrow)
{
    for (uint32_t i = 0; i < gather->n_members; i++) {
        const dunlin_step_tensor *member = &graph->tensors[gather->members[i]];
        const int64_t floats = dunlin__narrow_is(member) ? line_floats(member->n_elements) : 0;
        const bool is_scaled = dunlin__narrow_is_scaled(member);
        narrow->room_floats = narrow->room_floats > floats ? narrow->room_floats : floats;
        *(is_scaled ? &narrow->sample_loads : &narrow->sample_halves) += floats;
        narrow->sample_copied += member->n_elements;
    }
}

static void count_tensor(const dunlin_step_graph *graph, const dunlin_mem_access *access,
                         dunlin_narrow *narrow)
{
    const dunlin_step_tensor *tensor = &graph->tensors[access->tensor];
    const int64_t floats = line_floats(tensor->n_elements);
    narrow->sample_floats += floats;
    if (tensor->is_gathered) {
        count_gathered(graph, tensor->gather, narrow);
    } else if (!dunlin__narrow_is_scaled(tensor)) {
        narrow->sample_halves += floats;
    } else if (access->mode == DUNLIN_MEM_READ) {
        narrow->sample_loads += floats;
    } else {
        narrow->sample_stores += floats;
    }
}

dunlin_narrow dunlin__narrow_of(const dunlin_step_graph *graph, const dunlin_step_op *op)
{
    dunlin_narrow narrow = {.n = 0};
    if (graph->storage == DUNLIN_STORAGE_EXACT || op >= graph->ops + graph->n_ops) {
        return narrow;
    }
    const dunlin_mem_access *own = dunlin__step_own(op);
    for (uint32_t i = 0; i < op->n_own; i++) {
        const dunlin_step_tensor *tensor = &graph->tensors[own[i].tensor];
        if (!is_piece(tensor) || !is_first_access(own, i)) {
            continue;
        }
        narrow.n++;
        if (is_placed(graph, op, own[i].tensor)) {
            narrow.sample_placed += tensor->n_elements;
        } else {
            count_tensor(graph, &own[i], &narrow);
        }
    }
    if (narrow.n > 0 && narrow.sample_floats == 0) {
        narrow.n_samples = INT64_MAX;
    } else if (narrow.n > 0) {
        const int64_t batch = graph->batch > 0 ? graph->batch : USUAL_BATCH;
        const int64_t most = (batch + BATCH_PARTS - 1) / BATCH_PARTS;
        const int64_t fit = ROOM_BYTES / (narrow.sample_floats * (int64_t)sizeof(float));
        narrow.n_samples = fit < 1 ? 1 : fit < most ? fit : most;
    }
    return narrow;
}

uint64_t dunlin__narrow_bytes(const dunlin_narrow *narrow)
{
    return narrow->sample_floats == 0
               ? 0
               : ((uint64_t)narrow->n_samples * (uint64_t)narrow->sample_floats +
                  (uint64_t)narrow->room_floats) *
                     sizeof(float);
}

/* Bytes from one sample to the next, of a part those of its outermost parent; 0: the same for all
 * samples. */
static uint64_t sample_step(const dunlin_step_graph *graph, uint32_t tensor)
{
    while (graph->tensors[tensor].is_part) {
        tensor = graph->tensors[tensor].parent;
    }
    return graph->tensors[tensor].is_batched ? dunlin__step_tensor_bytes(&graph->tensors[tensor])
                                             : 0;
}

/* The tensors of an op that are stored in fewer bits, and of each access which of them it names;
 * -1: none. */
typedef struct narrow_list {
    dunlin_narrow_place places[DUNLIN_STEP_MAX_ACCESSES];
    uint32_t n;
    int16_t at[DUNLIN_STEP_MAX_ACCESSES];
    float *room; /* behind their floats: of one sample of what is gathered */
} narrow_list;

/* Lists the op's tensors, with their places in the workspace and in the arena. */
static void list_tensors(const dunlin_step_graph *graph, const dunlin_step_op *op,
                         const dunlin_narrow *narrow, const dunlin_kernel_call *call,
                         narrow_list *out)
{
    const uint64_t bytes = dunlin__narrow_bytes(narrow);
    float *floats =
        (float *)(void *)((unsigned char *)call->workspace + call->workspace_bytes - bytes);
    out->n = 0;
    for (uint32_t i = 0; i < op->n_own; i++) {
        const dunlin_mem_access *access = &dunlin__step_own(op)[i];
        const dunlin_step_tensor *tensor = &graph->tensors[access->tensor];
        uint32_t k = 0;
        out->at[i] = -1;
        if (call->operands[i] == NULL || !is_piece(tensor)) {
            continue;
        }
        while (k < out->n && out->places[k].tensor != tensor) {
            k++;
        }
        if (k == out->n) {
            const bool has_floats = !is_placed(graph, op, access->tensor);
            out->places[out->n++] = (dunlin_narrow_place){
                .tensor = tensor, .bytes = call->operands[i], .floats = has_floats ? floats : NULL};
            floats += has_floats ? narrow->n_samples * line_floats(tensor->n_elements) : 0;
        }
        dunlin_narrow_place *place = &out->places[k];
        place->is_read = place->is_read || access->mode != DUNLIN_MEM_WRITE;
        place->is_written = place->is_written || access->mode != DUNLIN_MEM_READ;
        out->at[i] = (int16_t)k;
    }
    assert(out->n <= narrow->n);
    out->room = floats;
}

/* The addresses of a piece's operands, from sample `first` of the slice on. */
static void place_piece(const dunlin_step_graph *graph, const dunlin_step_op *op,
                        const dunlin_kernel_call *call, int64_t first, narrow_list *list,
                        void **operands, dunlin_narrow_place **places)
{
    for (uint32_t i = 0; i < op->n_own; i++) {
        unsigned char *base = call->operands[i];
        operands[i] = NULL;
        places[i] = NULL;
        if (list->at[i] >= 0) {
            places[i] = &list->places[list->at[i]];
            operands[i] = places[i]->floats == NULL ? (void *)places[i]->bytes : places[i]->floats;
        } else if (base != NULL) {
            operands[i] = base + (uint64_t)first * sample_step(graph, op->accesses[i].tensor);
        }
    }
}

/* An op under way, and the samples that it has run on. */
typedef struct narrow_op {
    const dunlin_step_graph *graph;
    const dunlin_step_op *op;
    const dunlin_kernel_call *call;
    int64_t first;
    float *room; /* for the floats of a member's sample */
} narrow_op;

/* Where a member of what is gathered lies, of the piece's first sample. */
static unsigned char *member_bytes(const narrow_op *at, uint32_t member)
{
    uint32_t i = at->op->n_own;
    while (i + 1 < at->op->n_accesses && at->op->accesses[i].tensor != member) {
        i++;
    }
    unsigned char *base = at->call->operands[i];
    assert(at->op->accesses[i].tensor == member && base != NULL);
    return base + (uint64_t)at->first * sample_step(at->graph, member);
}

static dunlin_scaled_call scaled_call(const dunlin_kernel_call *call,
                                      const dunlin_narrow_place *place)
{
    const dunlin_step_tensor *tensor = place->tensor;
    return (dunlin_scaled_call){.rows_per_sample = tensor->n_elements / tensor->scaled_channels,
                                .n_samples = call->n_samples,
                                .channels = tensor->scaled_channels,
                                .floats = place->floats,
                                .bytes = place->bytes,
                                .threads = call->run->threads};
}

void dunlin__narrow_store(const dunlin_kernel_call *call, dunlin_narrow_place *place,
                          bool writes_back)
{
    const dunlin_step_run *run = call->run;
    const dunlin_step_tensor *tensor = place->tensor;
    dunlin_scaled_call scaled = scaled_call(call, place);
    scaled.first_sample = call->first_sample;
    scaled.writes_back = writes_back;
    if (tensor->drawn_as != DUNLIN_STEP_NONE) {
        scaled.is_drawn = true;
        scaled.key = dunlin__int_key(run->seed, (uint64_t)run->step, tensor->drawn_as);
    }
    run->kernels->scaled_store(&scaled);
    place->is_stored = true;
}

/* One sample of a member in compact floats: where it lies, or in `room`. */
static const float *member_floats(const dunlin_kernel_call *piece, const dunlin_step_tensor *member,
                                  unsigned char *bytes, float *room)
{
    const dunlin_step_run *run = piece->run;
    if (dunlin__narrow_is_scaled(member)) {
        run->kernels->scaled_load(
            &(dunlin_scaled_call){.rows_per_sample = member->n_elements / member->scaled_channels,
                                  .n_samples = 1,
                                  .channels = member->scaled_channels,
                                  .floats = room,
                                  .bytes = bytes,
                                  .threads = run->threads});
        return room;
    }
    if (dunlin__narrow_is(member)) {
        run->kernels->bf16_load(member->n_elements, (const uint16_t *)(const void *)bytes, room,
                                run->threads);
        return room;
    }
    return (const float *)(const void *)bytes;
}

/* The floats of all members, each in its own columns. */
static void gather_piece(const narrow_op *at, const dunlin_kernel_call *piece,
                         const dunlin_narrow_place *place)
{
    const dunlin_step_gather *gather = place->tensor->gather;
    const int64_t rows = dunlin__gather_rows(place->tensor);
    float *columns = place->floats;
    for (uint32_t i = 0; i < gather->n_members; i++) {
        const dunlin_step_tensor *member = &at->graph->tensors[gather->members[i]];
        const uint64_t step = sample_step(at->graph, gather->members[i]);
        unsigned char *bytes = member_bytes(at, gather->members[i]);
        const int64_t width = member->n_elements / rows;
        for (int64_t s = 0; s < piece->n_samples; s++) {
            const float *from = member_floats(piece, member, bytes + (uint64_t)s * step, at->room);
            piece->run->kernels->copy_rows(rows, width, from, width,
                                           columns + s * place->tensor->n_elements,
                                           gather->channels, piece->run->threads);
        }
        columns += width;
    }
}

/* The floats of a piece that the op reads. */
static void load_piece(const narrow_op *at, const dunlin_kernel_call *piece,
                       const dunlin_narrow_place *place)
{
    const dunlin_step_run *run = piece->run;
    if (place->tensor->is_gathered) {
        gather_piece(at, piece, place);
        return;
    }
    if (dunlin__narrow_is_scaled(place->tensor)) {
        const dunlin_scaled_call scaled = scaled_call(piece, place);
        run->kernels->scaled_load(&scaled);
        return;
    }
    run->kernels->bf16_load(piece->n_samples * place->tensor->n_elements,
                            (const uint16_t *)(const void *)place->bytes, place->floats,
                            run->threads);
}

/* And that it has written, unless it has stored them. */
static void store_piece(const dunlin_kernel_call *piece, dunlin_narrow_place *place)
{
    if (place->is_stored) {
        return;
    }
    if (dunlin__narrow_is_scaled(place->tensor)) {
        dunlin__narrow_store(piece, place, false);
        return;
    }
    piece->run->kernels->bf16_store(piece->n_samples * place->tensor->n_elements, place->floats,
                                    (uint16_t *)(void *)place->bytes, piece->run->threads);
}

dunlin_status dunlin__narrow_run(const dunlin_step_graph *graph, const dunlin_step_op *op,
                                 const dunlin_narrow *narrow, const dunlin_kernel_call *call)
{
    narrow_list list;
    void *operands[DUNLIN_STEP_MAX_ACCESSES];
    dunlin_narrow_place *places[DUNLIN_STEP_MAX_ACCESSES];
    list_tensors(graph, op, narrow, call, &list);
    const int64_t most = narrow->n_samples < call->n_samples ? narrow->n_samples : call->n_samples;
    for (int64_t first = 0; first < call->n_samples; first += most) {
        const int64_t left = call->n_samples - first;
        dunlin_kernel_call piece = *call;
        piece.operands = operands;
        piece.places = places;
        piece.n_samples = left < most ? left : most;
        piece.first_sample = call->first_sample + first;
        piece.is_first = call->is_first && first == 0;
        piece.workspace_bytes = call->workspace_bytes - (size_t)dunlin__narrow_bytes(narrow);
        place_piece(graph, op, call, first, &list, operands, places);
        for (uint32_t k = 0; k < list.n; k++) {
            list.places[k].is_stored = !list.places[k].is_written || list.places[k].floats == NULL;
            if (list.places[k].is_read && list.places[k].floats != NULL) {
                load_piece(&(narrow_op){graph, op, call, first, list.room}, &piece,
                           &list.places[k]);
            }
        }
        DUNLIN_TRY(op->kernel->run_fn(&piece));
        for (uint32_t k = 0; k < list.n; k++) {
            store_piece(&piece, &list.places[k]);
            list.places[k].bytes +=
                (uint64_t)piece.n_samples * dunlin__step_tensor_bytes(list.places[k].tensor);
        }
    }
    return DUNLIN_OK;
}
