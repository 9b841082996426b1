/*
 * import.h - what the files of the ONNX importer share: names bound to what they stand for.
 */
#ifndef DUNLIN_ONNX_IMPORT_H
#define DUNLIN_ONNX_IMPORT_H

#include "net/names.h"
#include "node.h"
#include "onnx/wire/file.h"

#define DUNLIN_ONNX_MIN_OPSET 9
#define DUNLIN_ONNX_MAX_OPSET 21
#define DUNLIN_ONNX_TERMS_OPSET 13 /* what the nodes of older files are upgraded to */

/* Length of a list that depends on an issue. */
#define DUNLIN_ONNX_UNKNOWN (-1)

/* A short list of integers known at import: the shape of a value, or parts of one. */
typedef struct dunlin_onnx_vector {
    int32_t n;
    int64_t items[DUNLIN_MAX_DIMS];
    /* The item is the number of samples, whatever that is, times itself; 0 is once. */
    bool is_batch[DUNLIN_MAX_DIMS];
} dunlin_onnx_vector;

/* The batch shares a dimension of the file with one of a sample. */
typedef enum dunlin_onnx_mix {
    DUNLIN_ONNX_MIX_NONE = 0,
    DUNLIN_ONNX_MIX_OUTER, /* with the one behind it: all rows of a sample, then the next sample's
                            */
    DUNLIN_ONNX_MIX_INNER, /* with the one before it */
    DUNLIN_ONNX_MIX_SHARED /* there is no batch: made of what is stored, the same for each sample */
} dunlin_onnx_mix;

/* Where the batch is among a value's dimensions in the file (places.c); zero: first. */
typedef struct dunlin_onnx_batch {
    int32_t n_before; /* dimensions of a sample */
    dunlin_onnx_mix mix;
    int32_t n_run; /* OUTER: rows of a sample that follow each other; 0: all of them */
} dunlin_onnx_batch;

typedef enum dunlin_onnx_meaning {
    DUNLIN_ONNX_UNBOUND = 0, /* its node has not been read yet, or leads nowhere */
    DUNLIN_ONNX_VALUE,       /* an activation: a value of the network */
    DUNLIN_ONNX_TENSOR,      /* stored in the file */
    DUNLIN_ONNX_VECTOR,      /* integers that were folded */
    DUNLIN_ONNX_NORM,        /* a part of a group norm that is written out */
    DUNLIN_ONNX_CHANCE       /* a part of a stochastic depth that is written out */
} dunlin_onnx_meaning;

/* How far a group norm that is written out has been read (norms.c). */
typedef enum dunlin_onnx_norm_stage {
    DUNLIN_ONNX_NORM_FILL = 0, /* one number, as often as there are groups */
    DUNLIN_ONNX_NORM_SPREAD,   /* a stored row as (C, 1, 1), or with fewer or more of 1 */
    DUNLIN_ONNX_NORM_GROUPS,   /* the image as (groups, rest) */
    DUNLIN_ONNX_NORM_NORMED,
    DUNLIN_ONNX_NORM_IMAGE,
    DUNLIN_ONNX_NORM_SCALED
} dunlin_onnx_norm_stage;

typedef struct dunlin_onnx_norm {
    dunlin_onnx_norm_stage stage;
    double number;  /* FILL */
    uint32_t row;   /* SPREAD: the row's binding; SCALED: the scale, a parameter of the net */
    uint32_t value; /* from GROUPS on: the image */
    int32_t groups; /* SPREAD: dimensions of 1 after the row */
    float eps;
} dunlin_onnx_norm;

/* How far a stochastic depth that is written out has been read (chances.c): a number a sample. */
typedef enum dunlin_onnx_chance_stage {
    DUNLIN_ONNX_CHANCE_ONES = 0,
    DUNLIN_ONNX_CHANCE_UNIFORM, /* between 0 and 1, plus `added` */
    DUNLIN_ONNX_CHANCE_DRAWN    /* `factor` with probability `keep`, else 0 */
} dunlin_onnx_chance_stage;

typedef struct dunlin_onnx_chance {
    dunlin_onnx_chance_stage stage;
    double added;
    double keep, factor;
} dunlin_onnx_chance;

/* What a name of the graph stands for; there may be many, so it is kept small. */
typedef struct dunlin_onnx_binding {
    const char *name;
    dunlin_onnx_meaning meaning;
    uint32_t index; /* value of the net; tensor of the file; vector; norm; chance */
    uint32_t root;  /* TENSOR: the binding that owns its parameter (itself, or what it views) */
    uint32_t param; /* TENSOR: of the net; NONE until a node asks */
    uint32_t owner; /* TENSOR: the op that asked */
    bool is_transposed : 1;  /* TENSOR: of its root */
    bool is_unknown : 1;     /* VALUE: an issue was found before it, so it has no shape */
    bool is_needed : 1;      /* the output depends on it */
    bool is_fixed : 1;       /* TENSOR: the file's metadata says that it is not trained */
    bool is_listed : 1;      /* TENSOR: the file's metadata says that it is */
    bool is_flat : 1;        /* TENSOR: one sample's numbers in a row, their shape was not kept */
    bool is_mask : 1;        /* VALUE: of type BOOL in the file; 0 and 1 here */
    dunlin_onnx_batch place; /* VALUE */
    uint32_t part_of;        /* TENSOR: rows of the weight of this binding, */
    int64_t part_first, part_rows; /* from this row on; no rows: it is no part */
} dunlin_onnx_binding;

/* Issues of one kind. Texts that are not here are the file's. */
typedef struct dunlin_onnx_group {
    const char *node; /* the first */
    const char *op, *attribute;
    char reason[200]; /* of the first */
    int32_t n_nodes;
} dunlin_onnx_group;

typedef struct dunlin_onnx_import {
    dunlin_onnx_file *file;
    dunlin_net *net;
    dunlin_error *error;
    dunlin_model_sizes sizes;                 /* 0: not given */
    uint32_t outputs[DUNLIN_NET_MAX_OUTPUTS]; /* of the file's, that the network has */
    uint32_t n_outputs;                       /* 0: an issue */
    int64_t fixed_batch; /* that the file's inputs say; 0: none, or not the same */
    dunlin_onnx_binding *bindings;
    size_t n_bindings, bindings_capacity;
    size_t n_copies; /* behind the bindings: without a name, for one node alone; the array grows */
    dunlin_name *names; /* of the bindings, sorted */
    size_t names_capacity;
    uint32_t *refs; /* for each of the file's names: its binding, or NONE */
    uint8_t *asked; /* for each attribute: an operator has looked at it */
    dunlin_onnx_vector *vectors;
    size_t n_vectors, vectors_capacity;
    dunlin_onnx_norm *norms;
    size_t n_norms, norms_capacity;
    dunlin_onnx_chance *chances;
    size_t n_chances, chances_capacity;
    const char *weights_path; /* the net's copy */
    dunlin_onnx_issue_fn issue_fn;
    void *issue_ctx;
    dunlin_onnx_group *groups; /* issues.c */
    size_t n_groups, groups_capacity;
    bool has_lost_issue; /* there was no memory for one */
    int32_t n_issues;    /* reported */
    char first_issue[200];
    /* Of the node being read. */
    bool is_rejected;
    bool has_place; /* its outputs have their batch elsewhere than first */
    dunlin_onnx_batch place;
    bool is_of_operator;       /* what is being rejected is its operator, whatever it reads */
    dunlin_status node_status; /* MEMORY, IO, MODEL: ends the import; its detail is in `error` */
} dunlin_onnx_import;

/* Item `index` is the number of samples itself. */
static inline bool dunlin_onnx_is_samples(const dunlin_onnx_vector *vector, int32_t index)
{
    return vector->is_batch[index] && vector->items[index] <= 1;
}

/* A node being read. */
struct dunlin_onnx_node {
    dunlin_onnx_import *import;
    const dunlin_onnx_op *op;
    uint32_t index;
};

/* --- what the importing files share --- */
const char *dunlin__onnx_text_at(const dunlin_onnx_import *import, dunlin_onnx_text text);
dunlin_onnx_binding *dunlin__onnx_find_binding(const dunlin_onnx_import *import, const char *name);
/* Is it read by nodes that the output needs, and all of them of this type? */
bool dunlin__onnx_is_read_by(const dunlin_onnx_import *import, const dunlin_onnx_binding *binding,
                             const char *op_type);
/* The one node that reads it; NULL: none, or several. */
const dunlin_onnx_op *dunlin__onnx_sole_reader(const dunlin_onnx_import *import,
                                               const dunlin_onnx_binding *binding);
dunlin_status dunlin__onnx_fail_memory(const dunlin_onnx_import *import);
/* An issue of the model as a whole. */
void dunlin__onnx_report_model(dunlin_onnx_import *import, const char *attribute,
                               const char *reason);
/* order.c: nodes come after those that they read. MODEL on a cycle, MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__onnx_sort(dunlin_onnx_import *import);
/* Gives the network its input and binds the graph's. */
DUNLIN_NODISCARD dunlin_status dunlin__onnx_import_inputs(dunlin_onnx_import *import);
/* Likewise of the outputs that were asked for, once all nodes have been read. MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__onnx_import_outputs(dunlin_onnx_import *import);
/* Finds the outputs that were asked for; an issue, and none, if they are not there. */
void dunlin__onnx_choose_outputs(dunlin_onnx_import *import);
/* Notes the file's inputs and the network's outputs in it, once their values are known. */
DUNLIN_NODISCARD dunlin_status dunlin__onnx_note_border(dunlin_onnx_import *import);

/*
 * roles.c. What is trained and what the file fixes. First what the metadata says, of the bindings;
 * UNSUPPORTED issues for names that no binding has. Then a parameter's part, each time a node takes
 * it. Last one sentence on what may not be meant, once the net is whole.
 */
DUNLIN_NODISCARD dunlin_status dunlin__onnx_read_roles(dunlin_onnx_import *import);
void dunlin__onnx_take_role(const dunlin_onnx_node *node, const dunlin_onnx_binding *input,
                            const dunlin_onnx_binding *root, dunlin_net_param *param);
DUNLIN_NODISCARD dunlin_status dunlin__onnx_warn_roles(dunlin_onnx_import *import);

/* Fills an initialised net. UNSUPPORTED after issues. */
DUNLIN_NODISCARD dunlin_status dunlin__onnx_import_net(dunlin_onnx_import *import);

/* issues.c: notes an issue; texts but the reason must live as long as the file. Tells all. */
void dunlin__onnx_report(dunlin_onnx_import *import, const dunlin_model_issue *issue);
void dunlin__onnx_tell_issues(dunlin_onnx_import *import);

/* The binding of input / output `index`; NULL if there is none, or it has no name. */
dunlin_onnx_binding *dunlin__onnx_input(const dunlin_onnx_node *node, uint32_t index);
dunlin_onnx_binding *dunlin__onnx_output(const dunlin_onnx_node *node, uint32_t index);

const char *dunlin__onnx_node_name(const dunlin_onnx_node *node);
const dunlin_onnx_attribute *dunlin__onnx_attribute(const dunlin_onnx_node *node, const char *name);

/* Integers of an input, folded or stored; false if they are not known. */
bool dunlin__onnx_vector_input(const dunlin_onnx_node *node, uint32_t index,
                               dunlin_onnx_vector *out_vector);

/* The activation at an input with its shape; NULL if it is none or its shape is not known. */
const dunlin_net_value *dunlin__onnx_known_value(const dunlin_onnx_node *node, uint32_t index);
/* An input depends on an issue. */
bool dunlin__onnx_is_anything_unknown(const dunlin_onnx_node *node);
/* The parameter at a binding of meaning TENSOR, as dunlin__onnx_param_input(). */
uint32_t dunlin__onnx_param_of(const dunlin_onnx_node *node, const dunlin_onnx_binding *input);
/*
 * A dense layer's weight, its parameter made, is stored (in, out) if `is_stored_transposed`, else
 * (out, in). False after a rejection: another layer reads it transposed.
 */
bool dunlin__onnx_transpose_param(dunlin_onnx_node *node, const dunlin_onnx_binding *input,
                                  bool is_stored_transposed);
/* The input is a list that depends on an issue. */
bool dunlin__onnx_is_vector_unknown(const dunlin_onnx_node *node, uint32_t index);

#endif
