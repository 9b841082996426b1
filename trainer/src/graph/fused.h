/*
 * fused.h - how an operator reads values as views, stores its output, reads a gradient that is not
 * materialised, and passes one on.
 *
 * While a step is emitted, each call here notes the tensors in a list of accesses and returns a
 * reference: places in that list, and numbers. When the op runs, the reference and its operands
 * make what a kernel takes (kernels.h: view, grad, stat, sink). A row that knows nothing of this
 * uses dunlin__emit_value() and dunlin__emit_grad(), and gets all of it materialised.
 */
#ifndef DUNLIN_GRAPH_FUSED_H
#define DUNLIN_GRAPH_FUSED_H

#include "emitter.h"

/* The accesses of an op under construction: the index of one is its operand's. */
typedef struct dunlin_op_list {
    dunlin_mem_access accesses[DUNLIN_STEP_MAX_ACCESSES];
    uint32_t n;
} dunlin_op_list;

/* Appends an access and returns its index. After a failure: an index that is never used. */
int32_t dunlin__op_touch(dunlin_op_list *list, uint32_t tensor, dunlin_mem_mode mode,
                         uint8_t parts);

/* Leaves every access to the parts that the op has. */
void dunlin__op_trim(dunlin_op_list *list, uint32_t parts);

/* Operands are indices, -1: none. */
typedef struct dunlin_view_ref {
    int32_t x;
    int32_t affine; /* scales, then shifts */
    int32_t plus, plus_affine;
    int32_t channels;
    /* here they take no room: what ops keep is counted */
    uint16_t fn;     /* dunlin_view_fn */
    bool is_rounded; /* a sum that is read through its terms is rounded as it would be stored */
    int64_t pitch, plus_pitch;
    float low, high;
} dunlin_view_ref;

#define DUNLIN_NO_VIEW                                                                             \
    {                                                                                              \
        .x = -1, .affine = -1, .plus = -1, .plus_affine = -1, .low = -HUGE_VALF, .high = HUGE_VALF \
    }

typedef struct dunlin_stat_ref {
    int32_t raw, about, sums;
    int64_t raw_pitch;
    int64_t about_offset;
    int64_t n_own; /* sums of each slice alone: so many doubles start from zero; 0: of the batch */
} dunlin_stat_ref;

typedef struct dunlin_store_ref {
    int32_t y;
    bool is_rounded; /* the tensor holds fewer bits: sums are taken of what it will hold */
    int64_t pitch;
    float low, high;
    dunlin_stat_ref stat; /* sums -1: none */
} dunlin_store_ref;

typedef struct dunlin_grad_ref {
    int32_t g;
    int32_t factor, raw, coef;
    int64_t pitch, raw_pitch;
    int64_t coef_offset, coef_width;
} dunlin_grad_ref;

typedef struct dunlin_epilogue_ref {
    int32_t out, addend;
    dunlin_view_ref mask; /* x -1: none */
    int32_t factor;
    int32_t channels;
    int64_t pitch, addend_pitch;
    bool is_direct;
    bool is_same;    /* `out` is `addend`: the op may not be recomputed */
    bool may_lie_on; /* `out` is new and may lie on the addend */
    bool is_rounded; /* `out` holds bfloat16: sums are taken of what it will hold */
    uint32_t n_stats;
    dunlin_stat_ref stats[DUNLIN_EPILOGUE_MAX_STATS];
} dunlin_epilogue_ref;

/* Views and sinks are in use; without, rows emit their plain kernels. */
bool dunlin__emit_is_fused(const dunlin_emit *emit);

/* The global average that alone reads the value keeps, for the backward pass, where it lies inside
 * its bounds, and masks the value's gradient by that. */
bool dunlin__emit_keeps_signs(const dunlin_emit *emit, uint32_t value);

/* Something is stored in bfloat16 or int8. */
bool dunlin__emit_is_rounding(const dunlin_emit *emit);

/* The parts that take the sums of a sink: none, MAP (of each slice alone), REDUCE, or both. */
uint32_t dunlin__epilogue_sums_parts(const dunlin_epilogue_ref *epilogue);

/* Reads a value where it lies. */
void dunlin__emit_read_view(dunlin_emit *emit, uint32_t value, dunlin_op_list *list, uint8_t parts,
                            dunlin_view_ref *out_ref);
/*
 * Makes the tensor of the node's output: perhaps a part of a concatenation, perhaps clipped as it
 * is stored. `can_stat`: the kernel can take batch norm's sums of it, which makes the op a reducer
 * too if they are wanted, of the whole batch.
 */
void dunlin__emit_store(dunlin_emit *emit, uint32_t value, bool can_stat, dunlin_op_list *list,
                        dunlin_store_ref *out_ref);
/* Emits what the gradient of the node's output still needs to be read: before the list of the op
 * that reads it is begun. */
void dunlin__emit_finish_grad(dunlin_emit *emit, uint32_t value);
/* Reads the finished gradient of a value. */
void dunlin__emit_read_grad(dunlin_emit *emit, uint32_t value, dunlin_op_list *list, uint8_t parts,
                            dunlin_grad_ref *out_ref);
/*
 * Where this node's contribution to a value's gradient goes. The first thing in `list`: access 0
 * is written, and may lie on access 1 if that is the addend and the sink is not the same.
 */
void dunlin__emit_epilogue(dunlin_emit *emit, uint32_t value, dunlin_op_list *list,
                           dunlin_epilogue_ref *out_ref);

/* Forward: puts the inputs of a concatenation into its tensor as far as they are not made there. */
void dunlin__emit_concat(dunlin_emit *emit, const dunlin_net_node *node);
/* Backward: its gradient is that of its inputs, each a part. */
void dunlin__emit_concat_grad(dunlin_emit *emit, const dunlin_net_node *node);
/* A sum of two values. Forward: whose batch norms its gradient closes. Backward: it is the gradient
 * of both inputs. */
void dunlin__emit_add(dunlin_emit *emit, const dunlin_net_node *node);
void dunlin__emit_add_grad(dunlin_emit *emit, const dunlin_net_node *node);

/* Sums of some channels of a value, `width` of them from `offset` on. */
typedef struct dunlin_stat_part {
    uint32_t sums, about; /* tensors */
    int64_t about_offset;
    int64_t offset, width;
} dunlin_stat_part;
/* Forward: batch norm's sums of a value, taken where no op did; returns how many parts. */
uint32_t dunlin__emit_stats(dunlin_emit *emit, uint32_t value,
                            dunlin_stat_part parts[DUNLIN_NET_MAX_INPUTS]);

/* A batch norm that is a view. Forward: tensors of its scales and shifts, and of its mean. */
void dunlin__emit_norm(dunlin_emit *emit, const dunlin_net_node *node, uint32_t affine,
                       uint32_t mean, bool wants_sums);

/* Tensors that a batch norm's backward needs. */
typedef struct dunlin_norm_grad {
    uint32_t affine, mean;
    uint32_t sums; /* NONE: not wanted */
    /* slopes and offsets that other readers have put on the same input; tensor NONE: none */
    uint32_t old_coef;
    int64_t old_offset, old_width;
    bool has_input; /* the input wants its gradient */
} dunlin_norm_grad;
/* Backward: closes the gradient of the node's output; then, with the slopes and offsets that came
 * out of it (a tensor, or NONE), makes that of its input. */
void dunlin__emit_norm_grad(dunlin_emit *emit, const dunlin_net_node *node,
                            dunlin_norm_grad *out_grad);
void dunlin__emit_norm_done(dunlin_emit *emit, const dunlin_net_node *node, uint32_t coef);

/*
 * The kernels of one fused operator, by what its op is: which parts it has, whether access 0 may
 * lie on access 1, whether it may be recomputed.
 */
enum {
    DUNLIN_FUSED_MAP = 0,
    DUNLIN_FUSED_MAP_IN_PLACE,
    DUNLIN_FUSED_MAP_ONCE,
    DUNLIN_FUSED_BOTH,
    DUNLIN_FUSED_BOTH_IN_PLACE,
    DUNLIN_FUSED_BOTH_ONCE,
    DUNLIN_FUSED_REDUCE,
    DUNLIN_FUSED_N_KERNELS
};

#define DUNLIN_FUSED_KERNEL_(title, function, room, part_bits, recompute, place)                   \
    {                                                                                              \
        .name = (title), .run_fn = (function), .parts = (part_bits), .may_recompute = (recompute), \
        .in_place_write = (place) ? 0 : -1, .in_place_read = (place) ? 1 : -1,                     \
        .workspace_fn = (room)                                                                     \
    }
#define DUNLIN_FUSED_KERNELS(title, function, room)                                                \
    {                                                                                              \
        DUNLIN_FUSED_KERNEL_(title, function, room, DUNLIN_MEM_MAP, true, false),                  \
            DUNLIN_FUSED_KERNEL_(title, function, room, DUNLIN_MEM_MAP, true, true),               \
            DUNLIN_FUSED_KERNEL_(title, function, room, DUNLIN_MEM_MAP, false, false),             \
            DUNLIN_FUSED_KERNEL_(title, function, room, DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE, true,  \
                                 false),                                                           \
            DUNLIN_FUSED_KERNEL_(title, function, room, DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE, true,  \
                                 true),                                                            \
            DUNLIN_FUSED_KERNEL_(title, function, room, DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE, false, \
                                 false),                                                           \
            DUNLIN_FUSED_KERNEL_(title, function, room, DUNLIN_MEM_REDUCE, false, false)           \
    }

/* The kernel of an op with these parts; `sink` may be NULL. */
const dunlin_step_kernel *dunlin__fused_kernel(const dunlin_step_kernel *kernels, uint32_t parts,
                                               const dunlin_epilogue_ref *epilogue);

/* When it runs. Sums of a slice are set to zero here, as the kernels add to them. */
dunlin_view dunlin__view_at(const dunlin_kernel_call *call, const dunlin_view_ref *ref);
dunlin_stat dunlin__stat_at(const dunlin_kernel_call *call, const dunlin_stat_ref *ref);
dunlin_grad dunlin__grad_at(const dunlin_kernel_call *call, const dunlin_grad_ref *ref);
dunlin_epilogue dunlin__epilogue_at(const dunlin_kernel_call *call, const dunlin_epilogue_ref *ref);

#endif
