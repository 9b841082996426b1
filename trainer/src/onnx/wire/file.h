/*
 * file.h - an ONNX file as tables: what the reader makes and the importer reads.
 *
 * Texts, lists and tensors are indices into arrays, since the arrays grow while the file is read.
 * Weights stay in the file: a tensor says where they lie.
 */
#ifndef DUNLIN_ONNX_FILE_H
#define DUNLIN_ONNX_FILE_H

#include <dunlin/alloc.h>
#include <dunlin/tensor.h>

#define DUNLIN_ONNX_MAX_FILE_BYTES (UINT64_C(2) << 30)
#define DUNLIN_ONNX_MAX_NODES 65536
#define DUNLIN_ONNX_MAX_TENSORS 65536
/* What a file of any size may make the tables take: with these, some 48 MiB at the most. */
#define DUNLIN_ONNX_MAX_ITEMS (1 << 20)      /* integers in lists; names in the metadata */
#define DUNLIN_ONNX_MAX_NAMES (1 << 19)      /* inputs and outputs of nodes together */
#define DUNLIN_ONNX_MAX_ATTRIBUTES (1 << 18) /* of all nodes */
#define DUNLIN_ONNX_MAX_TEXT_BYTES (16 << 20)
#define DUNLIN_ONNX_MAX_INPUTS 256 /* of the graph, that layers read */
#define DUNLIN_ONNX_MAX_NAME 255
#define DUNLIN_ONNX_MAX_LOCATION 1023
#define DUNLIN_ONNX_MAX_COMPUTED (1 << 20) /* elements of a constant computed from others */
#define DUNLIN_ONNX_MAX_READ (1 << 21)     /* and of one that it is computed from */
#define DUNLIN_ONNX_MAX_INLINE 4096        /* integers of one tensor that are kept in the tables */

/* The model's metadata that lists what is trained: names of initialisers, one a line. */
#define DUNLIN_ONNX_TRAINED_KEY "dunlin.trained"
/* And the inputs that an example consists of, where no layer reads all of them. */
#define DUNLIN_ONNX_EXAMPLE_KEY "dunlin.example"

#define DUNLIN_ONNX_DYNAMIC (-1) /* a dimension without a value */

/* ONNX element types that matter here. */
enum {
    DUNLIN_ONNX_FLOAT = 1,
    DUNLIN_ONNX_UINT8 = 2,
    DUNLIN_ONNX_INT32 = 6,
    DUNLIN_ONNX_INT64 = 7,
    DUNLIN_ONNX_BOOL = 9,
    DUNLIN_ONNX_DOUBLE = 11
};

/* Bytes from a file or from memory, read in order; the offset of the next byte is known. */
typedef struct dunlin_onnx_source {
    int fd;               /* -1: from memory */
    const uint8_t *bytes; /* from memory */
    uint64_t first;       /* the model's first byte in the file */
    uint64_t n_bytes;
    uint64_t offset;
    uint64_t window_first;
    size_t window_bytes;
    int os_error;
    uint8_t window[8192];
} dunlin_onnx_source;

/* Where a model's bytes are: in a file by name, else in an open file, else in memory. */
typedef struct dunlin_onnx_place {
    const char *path; /* NULL: none */
    bool has_fd;
    int fd;         /* the caller's */
    uint64_t first; /* of the open file */
    const uint8_t *bytes;
    uint64_t n_bytes; /* of the open file or of `bytes` */
} dunlin_onnx_place;

/* An offset into the pool of texts; 0 is "". */
typedef uint32_t dunlin_onnx_text;

typedef struct dunlin_onnx_span {
    uint32_t first;
    uint32_t n;
} dunlin_onnx_span;

typedef enum dunlin_onnx_store {
    DUNLIN_ONNX_STORE_NONE = 0,
    DUNLIN_ONNX_STORE_BYTES,    /* n_elements little-endian elements at `offset` of the file */
    DUNLIN_ONNX_STORE_EXTERNAL, /* the same in the file `location` */
    DUNLIN_ONNX_STORE_INTS,     /* `inline_ints` of the table of integers */
    DUNLIN_ONNX_STORE_FLOATS,   /* the same, each the bits of a float */
    DUNLIN_ONNX_STORE_SCATTERED /* float_data in more than one piece: not supported */
} dunlin_onnx_store;

typedef struct dunlin_onnx_tensor {
    dunlin_onnx_text name;
    int32_t type;
    dunlin_shape shape;
    int64_t n_elements;
    dunlin_onnx_store store;
    uint64_t offset;
    uint64_t n_bytes;
    dunlin_onnx_text location;
    dunlin_onnx_span inline_ints;
    bool is_raw; /* the bytes are raw_data */
    bool is_initializer;
    bool is_option;   /* an attribute of an older operator that newer ones have as an input */
    bool is_computed; /* from other constants; never trained */
    bool is_part;     /* of an initialiser that may be a weight: of use in comparisons alone */
    bool is_buffer;   /* its own metadata calls it a buffer or a constant: not trained */
} dunlin_onnx_tensor;

typedef struct dunlin_onnx_attribute {
    dunlin_onnx_text name;
    bool has_i, has_f, has_s, has_tensor, has_graph, has_ints, has_floats;
    int64_t i;
    float f;
    dunlin_onnx_text s;
    uint32_t tensor;
    dunlin_onnx_span ints;              /* of the table of integers; floats as their bits */
    uint64_t graph_offset, graph_bytes; /* has_graph: where a single one lies in the file; 0 bytes:
                                           there are several */
} dunlin_onnx_attribute;

/* The branch that an op is of; 0: none. */
enum { DUNLIN_ONNX_THEN = 1, DUNLIN_ONNX_ELSE };

typedef struct dunlin_onnx_op {
    dunlin_onnx_text name, op_type, domain;
    dunlin_onnx_span inputs, outputs; /* of the table of names */
    dunlin_onnx_span attributes;
    uint8_t branch;             /* of the choice that comes after it (branches.c) */
    dunlin_onnx_text condition; /* of that one */
} dunlin_onnx_op;

typedef struct dunlin_onnx_port {
    dunlin_onnx_text name;
    int32_t type;
    bool has_shape;
    dunlin_shape shape; /* DUNLIN_ONNX_DYNAMIC where there is no value */
    dunlin_onnx_text dim_names[DUNLIN_MAX_DIMS];
} dunlin_onnx_port;

typedef struct dunlin_onnx_file {
    dunlin_alloc alloc;
    const char *path; /* NULL: from memory or an open file; the caller's */
    dunlin_onnx_source source;
    int64_t ir_version;
    int64_t opset;           /* of the default domain; 0: none given */
    bool has_functions;      /* things of a model that */
    bool has_sparse_tensors; /* cannot be trained */
    bool has_graph;
    bool has_trained; /* the metadata has a list of what is trained, if only an empty one */
    char *text;
    size_t n_text, text_capacity;
    dunlin_onnx_op *ops;
    size_t n_ops, ops_capacity;
    dunlin_onnx_text *names; /* inputs and outputs of ops */
    size_t n_names, names_capacity;
    dunlin_onnx_attribute *attributes;
    size_t n_attributes, attributes_capacity;
    dunlin_onnx_tensor *tensors;
    size_t n_tensors, tensors_capacity;
    int64_t *ints;
    size_t n_ints, ints_capacity;
    dunlin_onnx_port *inputs;
    size_t n_inputs, inputs_capacity;
    dunlin_onnx_port *outputs;
    size_t n_outputs, outputs_capacity;
    dunlin_onnx_text *buffers; /* names that the graph's metadata calls buffers or constants */
    size_t n_buffers, buffers_capacity;
    dunlin_onnx_text *trained; /* names of the list of what is trained */
    size_t n_trained, trained_capacity;
    dunlin_onnx_text *example; /* names of the inputs that an example consists of; none: as read */
    size_t n_example, example_capacity;
} dunlin_onnx_file;

/*
 * Reads all tables. What is at `place` must stay; after OK the file is open until it is freed. IO,
 * MODEL (damaged), LIMIT, MEMORY. `file` may be freed in any case.
 */
DUNLIN_NODISCARD dunlin_status dunlin__onnx_file_load(dunlin_onnx_file *file,
                                                      const dunlin_alloc *alloc,
                                                      const dunlin_onnx_place *place,
                                                      dunlin_error *error);
/*
 * branches.c. Puts the nodes of all choices' branches before them; an If then has three inputs: the
 * condition and what each branch puts out. IO, MODEL, LIMIT, MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__onnx_file_open_branches(dunlin_onnx_file *file,
                                                               dunlin_error *error);
void dunlin__onnx_file_free(dunlin_onnx_file *file);

/* A text of the pool; valid until the file is freed, once it has been loaded. */
const char *dunlin__onnx_file_text(const dunlin_onnx_file *file, dunlin_onnx_text text);

/* Element `index` of a small constant as a number; false when it cannot be read as one. */
bool dunlin__onnx_tensor_number(dunlin_onnx_file *file, const dunlin_onnx_tensor *tensor,
                                int64_t index, double *out_number);
/* The same for integer types. */
bool dunlin__onnx_tensor_integer(dunlin_onnx_file *file, const dunlin_onnx_tensor *tensor,
                                 int64_t index, int64_t *out_integer);

/*
 * additions.c. Adds a tensor that holds one float; false when out of memory, as for all of these.
 */
bool dunlin__onnx_file_add_number(dunlin_onnx_file *file, float number, uint32_t *out_tensor);
/* The bytes of one element, lowest first, as a number; false for a type that is none. */
bool dunlin__onnx_number_of_bytes(int32_t type, const uint8_t *bytes, double *out_number);
/* All elements of a constant that lies in the model's file; false when they cannot be read. */
bool dunlin__onnx_tensor_numbers(dunlin_onnx_file *file, const dunlin_onnx_tensor *tensor,
                                 double *out_numbers);
/* Adds a tensor of FLOAT, or of INT64 or BOOL, that was computed; false too if it is too large. */
bool dunlin__onnx_file_add_tensor(dunlin_onnx_file *file, int32_t type, const dunlin_shape *shape,
                                  const double *items, uint32_t *out_tensor);
/* Adds rows [first, first + n) of a tensor that lies in the file, as a part of what may be a
 * weight; false when out of memory. */
bool dunlin__onnx_file_add_rows(dunlin_onnx_file *file, uint32_t tensor, int64_t first, int64_t n,
                                uint32_t *out_tensor);
/* Adds a row of n integers. */
bool dunlin__onnx_file_add_ints(dunlin_onnx_file *file, const int64_t *items, int64_t n,
                                uint32_t *out_tensor);

/* Adds a text to the pool; texts that were asked for before are no longer valid. */
bool dunlin__onnx_file_add_text(dunlin_onnx_file *file, const char *text,
                                dunlin_onnx_text *out_text);
/* Gives a node input `index` of this name; what lies between its last one and it has no name. */
bool dunlin__onnx_file_add_input(dunlin_onnx_file *file, dunlin_onnx_op *op, uint32_t index,
                                 dunlin_onnx_text name);

/* Bytes of an element of an ONNX type; 0 if it has no fixed size or is unknown. */
size_t dunlin__onnx_type_bytes(int32_t type);

/* --- source.c --- */

DUNLIN_NODISCARD dunlin_status dunlin__onnx_source_open(dunlin_onnx_source *source,
                                                        const dunlin_onnx_place *place,
                                                        dunlin_error *error);
void dunlin__onnx_source_close(dunlin_onnx_source *source);
/* The next n bytes; false at the end or when reading fails (os_error tells which). */
bool dunlin__onnx_source_read(dunlin_onnx_source *source, uint8_t *out, size_t n);
/* n bytes at an offset, without moving. */
bool dunlin__onnx_source_read_at(dunlin_onnx_source *source, uint64_t offset, uint8_t *out,
                                 size_t n);

/*
 * Where external data lies: beside the model, inside its folder. Checks the location and that the
 * file holds offset + n_bytes; `out` has room for 4096 bytes. MODEL, IO, LIMIT.
 */
DUNLIN_NODISCARD dunlin_status dunlin__onnx_external_path(const char *model_path,
                                                          const char *location, uint64_t offset,
                                                          uint64_t n_bytes, char *out,
                                                          dunlin_error *error);

#endif
