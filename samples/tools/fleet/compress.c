/*
 * compress.c - the flags of what updates weigh and how long they may be, and the task's keys for
 * them.
 */
#include "fleet.h"

#include <string.h>

#define WORDS_BYTES 64

/* "up:WORDS", with ",down:f32" before or after it; what the words mean is the server's to judge. */
static bool read_compress(const char *text, char out_up[WORDS_BYTES])
{
    bool has_up = false;
    for (const char *at = text; at != NULL;) {
        const char *comma = strchr(at, ',');
        const size_t length = comma != NULL ? (size_t)(comma - at) : strlen(at);
        const bool is_up = strncmp(at, "up:", 3) == 0;
        if (is_up && !has_up && length > 3 && length - 3 < WORDS_BYTES) {
            memcpy(out_up, at + 3, length - 3);
            out_up[length - 3] = '\0';
            has_up = true;
        } else if (length != 8 || strncmp(at, "down:f32", 8) != 0) {
            return false;
        }
        at = comma != NULL ? comma + 1 : NULL;
    }
    return has_up;
}

int fleet_check_compress(fleet_flags *flags)
{
    char up[WORDS_BYTES];
    const bool is_given = flags->compress != NULL || flags->feedback > 0 ||
                          flags->update_clip > 0.0 || flags->clip_quantile > 0.0 ||
                          flags->is_clip_layers;
    if (flags->server_url != NULL && is_given) {
        return program_misuse(&fleet_program,
                              "--compress, --feedback and --update-clip are for the server that "
                              "--serve starts: those of one that runs already stand in its task "
                              "file");
    }
    if (flags->compress != NULL && !read_compress(flags->compress, up)) {
        return program_misuse(&fleet_program,
                              "--compress %s: not up:WORDS, with f16, bf16, int2 to int8, bit, "
                              "topk:F, randk:F, rotate, entropy joined by +; down: takes f32 alone",
                              flags->compress);
    }
    if (flags->feedback > 0 && flags->compress == NULL) {
        return program_misuse(&fleet_program,
                              "--feedback goes with --compress up:topk or up:randk");
    }
    if ((flags->clip_quantile > 0.0 || flags->is_clip_layers) && !(flags->update_clip > 0.0)) {
        return program_misuse(&fleet_program, "--update-clip-quantile and --update-clip-layers go "
                                              "with --update-clip, the bound");
    }
    return EXIT_OK;
}

void fleet_compress_json(const fleet_flags *flags, json_t *task, json_t *plan)
{
    char up[WORDS_BYTES];
    if (flags->compress != NULL && read_compress(flags->compress, up)) {
        json_t *compress = json_pack("{s:s}", "up", up);
        if (flags->feedback > 0) {
            (void)json_object_set_new(compress, "feedback",
                                      json_integer((json_int_t)flags->feedback));
        }
        (void)json_object_set_new(task, "compress", compress);
    }
    if (flags->update_clip > 0.0) {
        (void)json_object_set_new(plan, "clip_norm", json_real(flags->update_clip));
    }
    if (flags->clip_quantile > 0.0) {
        (void)json_object_set_new(plan, "clip_quantile", json_real(flags->clip_quantile));
    }
    if (flags->is_clip_layers) {
        (void)json_object_set_new(plan, "clip_layers", json_true());
    }
}
