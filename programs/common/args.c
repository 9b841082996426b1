/*
 * args.c - parses and describes the flags of a program.
 *
 * Invariant: nothing on the command line is ever ignored: it is taken, or refused by name.
 */
#include "args.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static program_refusal last_refusal;
static void (*wipe_terminal)(void);

void program_wipe_before(void (*wipe_fn)(void))
{
    wipe_terminal = wipe_fn;
}

const program_refusal *program_last_refusal(void)
{
    return &last_refusal;
}

__attribute__((format(printf, 3, 0))) static void
tell(const program_info *program, dunlin_status status, const char *format, va_list values)
{
    va_list again;
    va_copy(again, values);
    last_refusal.status = status;
    (void)vsnprintf(last_refusal.text, sizeof last_refusal.text, format, again);
    va_end(again);
    (void)fflush(stdout);
    if (wipe_terminal != NULL) {
        wipe_terminal();
    }
    (void)fprintf(stderr, "%s: ", program->name);
    (void)vfprintf(stderr, format, values);
    (void)fputc('\n', stderr);
}

int program_refuse(const program_info *program, dunlin_status status, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    tell(program, status, format, values);
    va_end(values);
    return EXIT_FAILED;
}

int program_fail(const program_info *program, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    tell(program, DUNLIN_IO, format, values);
    va_end(values);
    return EXIT_FAILED;
}

int program_misuse(const program_info *program, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    tell(program, DUNLIN_ARGUMENT, format, values);
    va_end(values);
    return EXIT_MISUSE;
}

static const struct {
    const char *unit;
    double bytes;
} units[] = {
    {"", 1.0},      {"B", 1.0},  {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0},
    {"KB", 1000.0}, {"MB", 1e6}, {"GB", 1e9}};

bool size_parse(const char *text, uint64_t *out_bytes)
{
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    errno = 0;
    char *end = NULL;
    unsigned long long whole = strtoull(text, &end, 10);
    if (*end == '\0') {
        *out_bytes = whole;
        return errno == 0;
    }
    double number = strtod(text, &end);
    while (*end == ' ') {
        end++;
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].unit) == 0) {
            double bytes = floor(number * units[i].bytes);
            *out_bytes = bytes < 0x1p63 ? (uint64_t)bytes : 0;
            return bytes < 0x1p63;
        }
    }
    return false;
}

const char *size_text(uint64_t bytes, char out_text[SIZE_TEXT_BYTES])
{
    const char *unit = "bytes";
    double value = (double)bytes;
    if (bytes >= 1U << 30) {
        unit = "GiB";
        value /= 1073741824.0;
    } else if (bytes >= 1U << 20) {
        unit = "MiB";
        value /= 1048576.0;
    } else if (bytes >= 10240) {
        unit = "KiB";
        value /= 1024.0;
    } else {
        (void)snprintf(out_text, SIZE_TEXT_BYTES, "%" PRIu64 " bytes", bytes);
        return out_text;
    }
    (void)snprintf(out_text, SIZE_TEXT_BYTES, "%.1f %s", value, unit);
    return out_text;
}

static void describe(const program_info *program, const arg *args, size_t n_args)
{
    printf("%s - %s\n\n", program->name, program->purpose);
    for (size_t i = 0; i < n_args; i++) {
        if (args[i].kind == ARG_HEADING) {
            printf("%s%s:\n", i == 0 ? "" : "\n", args[i].help);
        } else if (args[i].kind != ARG_LATER) {
            char flag[64];
            (void)snprintf(flag, sizeof flag, "%s%s%s", args[i].name,
                           args[i].kind == ARG_FLAG ? "" : " ",
                           args[i].kind == ARG_FLAG ? "" : args[i].value);
            printf("  %-30s %s\n", flag, args[i].help);
        }
    }
    printf("\n  %-30s %s\n  %-30s %s\n", "--help", "this text", "--version", "the version");
    printf("\nExamples:\n%s\nExit status: 0 ok, 1 failed, 2 misuse. Errors: one line on stderr.\n",
           program->examples);
}

/* Takes one value; false if it is no such value or out of range. */
static bool take_value(const arg *flag, const char *value, void *out)
{
    char *end = NULL;
    errno = 0;
    switch (flag->kind) {
    case ARG_TEXT:
        *(const char **)out = value;
        return value[0] != '\0';
    case ARG_I64: {
        long long number = strtoll(value, &end, 10);
        *(int64_t *)out = number;
        return end != value && *end == '\0' && errno == 0 && (double)number >= flag->low &&
               (double)number <= flag->high;
    }
    case ARG_U64: {
        unsigned long long number = strtoull(value, &end, 0);
        *(uint64_t *)out = number;
        return value[0] >= '0' && value[0] <= '9' && *end == '\0' && errno == 0;
    }
    case ARG_F64: {
        double number = strtod(value, &end);
        *(double *)out = number;
        return end != value && *end == '\0' && number >= flag->low && number <= flag->high;
    }
    case ARG_BYTES:
        return size_parse(value, out) && *(uint64_t *)out >= 1;
    case ARG_FLAG:
    case ARG_OWN:
    case ARG_HEADING:
    case ARG_LATER:
        break;
    }
    return false;
}

static int refuse_value(const program_info *program, const arg *flag, const char *value)
{
    if (flag->kind == ARG_I64) {
        return program_misuse(program, "%s %s: expected a whole number from %.0f to %.0f",
                              flag->name, value, flag->low, flag->high);
    }
    if (flag->kind == ARG_F64) {
        return program_misuse(program, "%s %s: expected a number from %g to %g", flag->name, value,
                              flag->low, flag->high);
    }
    if (flag->kind == ARG_U64) {
        return program_misuse(program, "%s %s: expected a whole number from 0 to %" PRIu64,
                              flag->name, value, UINT64_MAX);
    }
    if (flag->kind == ARG_BYTES) {
        return program_misuse(program, "%s %s: expected a size, as 65536, 256MiB or 1GB",
                              flag->name, value);
    }
    return program_misuse(program, "%s \"%s\": expected %s", flag->name, value, flag->value);
}

static const arg *find_flag(const program_info *program, const arg *args, size_t n_args,
                            const char *text)
{
    if (strncmp(text, "--", 2) != 0) {
        (void)program_misuse(program, "\"%s\": expected a flag; --help lists them", text);
        return NULL;
    }
    size_t length = strcspn(text, "=");
    for (size_t i = 0; i < n_args; i++) {
        if (args[i].kind != ARG_HEADING && strlen(args[i].name) == length &&
            strncmp(args[i].name, text, length) == 0) {
            return &args[i];
        }
    }
    (void)program_misuse(program, "no flag is called %.*s; --help lists them", (int)length, text);
    return NULL;
}

/*
 * Takes one flag as it stands in `text`; `next` (NULL at the end) may be its value, and
 * *out_is_next_used tells whether it was. EXIT_OK, or the status to end with.
 */
static int take(const program_info *program, const arg *flag, const char *text, const char *next,
                char *out_values, bool *out_is_next_used)
{
    const char *equals = strchr(text, '=');
    *out_is_next_used = false;
    if (flag->kind == ARG_LATER) {
        return program_misuse(program, "%s is not there yet: %s", flag->name, flag->help);
    }
    if (flag->given_offset != 0) {
        *(bool *)(out_values + flag->given_offset) = true;
    }
    if (flag->kind == ARG_FLAG) {
        if (equals != NULL) {
            return program_misuse(program, "%s takes no value", flag->name);
        }
        *(bool *)(out_values + flag->offset) = true;
        return EXIT_OK;
    }
    const char *value = equals == NULL ? next : equals + 1;
    if (value == NULL) {
        return program_misuse(program, "%s needs a value: %s", flag->name, flag->value);
    }
    *out_is_next_used = equals == NULL;
    if (flag->kind == ARG_OWN) {
        const char *expected = program->take_fn(flag->name, value, out_values);
        return expected == NULL
                   ? EXIT_OK
                   : program_misuse(program, "%s %s: expected %s", flag->name, value, expected);
    }
    return take_value(flag, value, out_values + flag->offset) ? EXIT_OK
                                                              : refuse_value(program, flag, value);
}

args_result args_parse(const program_info *program, const arg *args, size_t n_args, int argc,
                       const char *const *argv, void *out_values)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            describe(program, args, n_args);
            return (args_result){.is_done = true, .exit_status = EXIT_OK};
        }
        if (strcmp(argv[i], "--version") == 0) {
            printf("%s %s\n", program->name, dunlin_version_string());
            return (args_result){.is_done = true, .exit_status = EXIT_OK};
        }
    }
    for (int i = 1; i < argc; i++) {
        const arg *flag = find_flag(program, args, n_args, argv[i]);
        bool is_next_used = false;
        if (flag == NULL || take(program, flag, argv[i], i + 1 < argc ? argv[i + 1] : NULL,
                                 out_values, &is_next_used) != EXIT_OK) {
            return (args_result){.is_done = true, .exit_status = EXIT_MISUSE};
        }
        i += is_next_used ? 1 : 0;
    }
    return (args_result){.is_done = false, .exit_status = EXIT_OK};
}

const char *args_find(int argc, const char *const *argv, const char *name)
{
    const size_t n = strlen(name);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], name, n) == 0 && argv[i][n] == '=' && argv[i][n + 1] != '\0') {
            return argv[i] + n + 1;
        }
        if (strcmp(argv[i], name) == 0 && i + 1 < argc && argv[i + 1][0] != '\0') {
            return argv[i + 1];
        }
    }
    return NULL;
}
