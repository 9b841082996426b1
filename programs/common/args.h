/*
 * args.h - flags of a program: a table of them, parsed and described in one place.
 */
#ifndef PROGRAMS_ARGS_H
#define PROGRAMS_ARGS_H

#include <dunlin/base.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses of every program. EXIT_SIGNAL and a signal's number: interrupted by it, with what
 * was done left in order; 130 is SIGINT, 143 SIGTERM, as shells count. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_MISUSE = 2, EXIT_SIGNAL = 128 };

typedef enum arg_kind {
    ARG_FLAG,    /* bool: present or not */
    ARG_TEXT,    /* const char *: any text but the empty one */
    ARG_I64,     /* int64_t in [low, high] */
    ARG_U64,     /* uint64_t, decimal or 0x... */
    ARG_F64,     /* double in [low, high] */
    ARG_BYTES,   /* uint64_t: 65536, 256MiB, 1.5GB; at least 1 */
    ARG_OWN,     /* a form of the program's own: its take_fn; may be repeated */
    ARG_HEADING, /* not a flag: `help` is a heading of the description */
    ARG_LATER    /* not there yet: refused with the text in `help`, and not described */
} arg_kind;

/*
 * One flag. `name` with its dashes; `value` what the description calls its value. Values go into a
 * struct of the program's, to the member at `offset`, which is left alone when the flag is not
 * given; the bool at `given_offset` (0: none) then tells that it was.
 */
typedef struct arg {
    const char *name;
    arg_kind kind;
    size_t offset;
    const char *value;
    const char *help;
    double low, high;
    size_t given_offset;
} arg;

typedef struct program_info {
    const char *name;
    const char *purpose;  /* one sentence */
    const char *examples; /* lines of text */
    /* Takes the value of an ARG_OWN; NULL, or what was expected instead. */
    const char *(*take_fn)(const char *name, const char *value, void *out_values);
} program_info;

/* What to do after parsing: go on, or end with `exit_status`. */
typedef struct args_result {
    bool is_done;
    int exit_status;
} args_result;

/*
 * Parses into `out_values`, which already holds the defaults. Takes "--name value" and
 * "--name=value"; knows --help and --version. Anything else, a value out of range, or an argument
 * without a flag is misuse: one line on stderr, exit status 2. Values that stand before what is
 * refused are then in `out_values`; args_find() looks at the others.
 */
args_result args_parse(const program_info *program, const arg *args, size_t n_args, int argc,
                       const char *const *argv, void *out_values);

/* The value that follows a flag, as "--name value" or "--name=value", wherever it stands; NULL:
 * there is none. For command lines that args_parse() has refused. */
const char *args_find(int argc, const char *const *argv, const char *name);

/*
 * One line on stderr, "NAME: text", and EXIT_FAILED or EXIT_MISUSE to return. program_refuse()
 * names the status, program_fail() is about files (IO), program_misuse() about flags (ARGUMENT).
 */
int program_refuse(const program_info *program, dunlin_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int program_fail(const program_info *program, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int program_misuse(const program_info *program, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What is called before each of those lines from here on: it wipes what else the program has in the
 * terminal's row. */
void program_wipe_before(void (*wipe_fn)(void));

/* The last of those lines, cut at its end if it is long; status OK and "" before the first. Not for
 * several threads. */
#define PROGRAM_REFUSAL_BYTES 1024
typedef struct program_refusal {
    dunlin_status status;
    char text[PROGRAM_REFUSAL_BYTES];
} program_refusal;
const program_refusal *program_last_refusal(void);

/* "256MiB" -> bytes: B, KiB, MiB, GiB, KB, MB, GB, none; false if it is no size or does not fit. */
bool size_parse(const char *text, uint64_t *out_bytes);

/* Bytes for people, "12.3 MiB". */
#define SIZE_TEXT_BYTES 32
const char *size_text(uint64_t bytes, char out_text[SIZE_TEXT_BYTES]);

#endif
