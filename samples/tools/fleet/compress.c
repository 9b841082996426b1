/*
 * compress.c - the flags of what updates and models weigh and how long updates may be, and the
 * task's keys for them.
 */
#include "fleet.h"

#include <string.h>

#define WORDS_BYTES 64

/* Words of both directions; "" where none are given. */
typedef struct compress_words {
    char up[WORDS_BYTES];
    char down[WORDS_BYTES];
} compress_words;

/* Takes "up:WORDS" or "down:WORDS", each once; what the words mean is the server's to judge. */
static bool take_direction(const char *text, size_t length, const char *name, char *out_words)
{
    const size_t n_name = strlen(name);
    if (strncmp(text, name, n_name) != 0 || out_words[0] != '\0' || length <= n_name ||
        length - n_name >= WORDS_BYTES) {
        return false;
    }
    memcpy(out_words, text + n_name, length - n_name);
    out_words[length - n_name] = '\0';
    return true;
}

static bool read_compress(const char *text, compress_words *out_words)
{
    *out_words = (compress_words){.up = ""};
    for (const char *at = text; at != NULL;) {
        const char *comma = strchr(at, ',');
        const size_t length = comma != NULL ? (size_t)(comma - at) : strlen(at);
        if (!take_direction(at, length, "up:", out_words->up) &&
            !take_direction(at, length, "down:", out_words->down)) {
            return false;
        }
        at = comma != NULL ? comma + 1 : NULL;
    }
    return true;
}

int fleet_check_compress(fleet_flags *flags)
{
    compress_words words;
    const bool is_given = flags->compress != NULL || flags->feedback > 0 ||
                          flags->update_clip > 0.0 || flags->clip_quantile > 0.0 ||
                          flags->is_clip_layers;
    if (flags->server_url != NULL && is_given) {
        return program_misuse(&fleet_program,
                              "--compress, --feedback and --update-clip are for the server that "
                              "--serve starts: those of one that runs already stand in its task "
                              "file");
    }
    if (flags->compress != NULL && !read_compress(flags->compress, &words)) {
        return program_misuse(&fleet_program,
                              "--compress %s: not up:WORDS,down:WORDS or one of them, with f16, "
                              "bf16, int2 to int8, rotate, entropy joined by +; up: has bit, "
                              "topk:F, randk:F, too",
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
    compress_words words;
    if (flags->compress != NULL && read_compress(flags->compress, &words)) {
        json_t *compress = json_pack("{s:s}", "up", words.up[0] != '\0' ? words.up : "f32");
        if (words.down[0] != '\0') {
            (void)json_object_set_new(compress, "down", json_string(words.down));
        }
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
