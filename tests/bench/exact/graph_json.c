/*
 * graph_json.c - a step as JSON, for the exact solver's model: all that the planner sees of it.
 */
#include "cases.h"

#include <inttypes.h>

static void write_string(FILE *file, const char *text)
{
    (void)fputc('"', file);
    for (const char *c = text == NULL ? "" : text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            (void)fputc('\\', file);
        }
        (void)fputc((unsigned char)*c < ' ' ? '?' : *c, file);
    }
    (void)fputc('"', file);
}

/* Tensors: name, bytes a sample, fixed bytes, parent or -1, offset in it, is persistent. */
static void write_tensor(FILE *file, const dunlin_mem_tensor *tensor)
{
    (void)fputc('[', file);
    write_string(file, tensor->name);
    (void)fprintf(file, ", %" PRIu64 ", %" PRIu64 ", %" PRId64 ", %" PRIu64 ", %d]",
                  tensor->sample_bytes, tensor->fixed_bytes,
                  tensor->parent == DUNLIN_MEM_NONE ? -1 : (int64_t)tensor->parent,
                  tensor->parent_offset, tensor->is_persistent);
}

static void write_variant(FILE *file, const dunlin_mem_variant *variant)
{
    (void)fprintf(file,
                  "{\"workspace\": [%" PRIu64 ", %" PRIu64 "], \"cost\": [%" PRIu64 ", %" PRIu64
                  "], \"in_place\": [%" PRId32 ", %" PRId32 "], \"accesses\": [",
                  variant->workspace_fixed_bytes, variant->workspace_sample_bytes,
                  variant->cost_fixed_ns, variant->cost_sample_ns, variant->in_place_write,
                  variant->in_place_read);
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        const dunlin_mem_access *access = &variant->accesses[a];
        (void)fprintf(file, "%s[%" PRIu32 ", \"%c\", %d]", a == 0 ? "" : ", ", access->tensor,
                      "rwau"[access->mode], access -> parts);
    }
    (void)fputs("]}", file);
}

void exact_write_json(const dunlin_mem_graph *graph, FILE *file)
{
    (void)fputs("{\"tensors\": [", file);
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        (void)fputs(t == 0 ? "\n" : ",\n", file);
        write_tensor(file, &graph->tensors[t]);
    }
    (void)fputs("],\n\"ops\": [", file);
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const dunlin_mem_op *op = &graph->ops[i];
        (void)fputs(i == 0 ? "\n{\"name\": " : ",\n{\"name\": ", file);
        write_string(file, op->name);
        (void)fprintf(file, ", \"parts\": %d, \"may_redo\": %s, \"variants\": [", op->parts,
                      op->may_recompute ? "true" : "false");
        for (uint32_t v = 0; v < op->n_variants; v++) {
            (void)fputs(v == 0 ? "" : ", ", file);
            write_variant(file, &op->variants[v]);
        }
        (void)fputs("]}", file);
    }
    (void)fputs("]}\n", file);
}
