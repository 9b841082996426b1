/*
 * pack_cases.c - packing problems from plans and from files.
 */
#include "pack_cases.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An op writes on an input that dies with it: the places meet at one step and one address. */
static bool takes_over(const dunlin_plan_allocation *heir, const dunlin_plan_allocation *old)
{
    return heir->tensor != DUNLIN_MEM_NONE && old->tensor != DUNLIN_MEM_NONE &&
           heir->first_step == old->last_step && heir->first_step != old->first_step &&
           heir->offset_bytes == old->offset_bytes && heir->bytes == old->bytes;
}

bool pack_case_from_plan(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                         pack_case *out_case)
{
    pack_case made = {.n_steps = plan->n_steps, .shipped_bytes = plan->pool_bytes};
    uint32_t *block_of = calloc(plan->n_places + 1, sizeof *block_of);
    made.blocks = calloc(plan->n_places + 1, sizeof *made.blocks);
    if (block_of == NULL || made.blocks == NULL) {
        free(block_of);
        pack_case_free(&made);
        return false;
    }
    for (uint32_t p = 0; p < plan->n_places; p++) {
        const dunlin_plan_allocation *place = &plan->places[p];
        block_of[p] = UINT32_MAX;
        if (place->tensor != DUNLIN_MEM_NONE && graph->tensors[place->tensor].is_persistent) {
            continue;
        }
        for (uint32_t q = 0; q < p && block_of[p] == UINT32_MAX; q++) {
            if (block_of[q] != UINT32_MAX && takes_over(place, &plan->places[q])) {
                block_of[p] = block_of[q];
                made.blocks[block_of[q]].last_step = place->last_step;
            }
        }
        if (block_of[p] == UINT32_MAX) {
            block_of[p] = made.n_blocks++;
            made.blocks[block_of[p]] = (dunlin_pack_block){.first_step = place->first_step,
                                                           .last_step = place->last_step,
                                                           .bytes = place->bytes};
        }
    }
    free(block_of);
    *out_case = made;
    return true;
}

static bool read_lines(FILE *file, pack_case *made)
{
    char line[256];
    uint32_t room = 0;
    if (fgets(line, sizeof line, file) == NULL) {
        return false;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        if (made->n_blocks == room) {
            room = room == 0 ? 256 : 2 * room;
            dunlin_pack_block *larger = realloc(made->blocks, room * sizeof *larger);
            if (larger == NULL) {
                return false;
            }
            made->blocks = larger;
        }
        char *at = strchr(line, ',');
        uint64_t fields[3] = {0};
        for (int f = 0; f < 3; f++) {
            if (at == NULL) {
                return false;
            }
            fields[f] = strtoull(at + 1, &at, 10);
        }
        if (fields[1] <= fields[0] || fields[1] > UINT32_MAX / 2) {
            return false;
        }
        made->blocks[made->n_blocks++] = (dunlin_pack_block){.first_step = (uint32_t)fields[0],
                                                             .last_step = (uint32_t)fields[1] - 1,
                                                             .bytes = fields[2]};
        made->n_steps = fields[1] > made->n_steps ? (uint32_t)fields[1] : made->n_steps;
    }
    return made->n_blocks > 0;
}

bool pack_case_read(const char *path, pack_case *out_case)
{
    pack_case made = {.n_steps = 0};
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return false;
    }
    const bool is_read = read_lines(file, &made);
    (void)fclose(file);
    if (!is_read) {
        pack_case_free(&made);
        return false;
    }
    const char *slash = strrchr(path, '/');
    (void)snprintf(made.name, sizeof made.name, "%s", slash == NULL ? path : slash + 1);
    const char *dot = strchr(made.name, '.');
    made.capacity_bytes = dot == NULL ? 0 : strtoull(dot + 1, NULL, 10);
    *out_case = made;
    return true;
}

bool pack_case_write(const pack_case *written, const char *folder)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s.csv", folder, written->name);
    for (char *at = path + strlen(folder) + 1; *at != '\0'; at++) {
        *at = *at == '/' || *at == ' ' ? '_' : *at;
    }
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return false;
    }
    (void)fprintf(file, "id,lower,upper,size\n");
    for (uint32_t b = 0; b < written->n_blocks; b++) {
        const dunlin_pack_block *block = &written->blocks[b];
        (void)fprintf(file, "%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu64 "\n", b,
                      block->first_step, block->last_step + 1, block->bytes);
    }
    return fclose(file) == 0;
}

void pack_case_free(pack_case *freed)
{
    free(freed->blocks);
    memset(freed, 0, sizeof *freed);
}
