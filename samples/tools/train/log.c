/*
 * log.c - the curves of a run: one row of a CSV file, or one record of an event file, for each
 * step, and evaluations on the way.
 *
 * A row or record is one write; what a full disk took only in part is cut off again, so the file
 * holds whole rows. No memory is taken: see run.c.
 */
#include "events.h"
#include "train.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define COLUMNS "step,epoch,loss,lr,test_loss,test_accuracy,examples_per_s,cpu_s,peak_bytes"

/* The first row; the last two columns are those of a run with --validation alone. */
static const char *header_of(const train_log *log)
{
    return log->has_validation ? COLUMNS ",val_loss,val_accuracy\n" : COLUMNS "\n";
}

int train_check_log(train_flags *flags)
{
    const bool has_run = !flags->is_plan_only && !flags->is_max_batch && !flags->is_what_fits;
    if (!has_run && (flags->log != NULL || flags->eval_every != NULL)) {
        return program_misuse(&train_program, "--log and --eval-every go with a run, not with "
                                              "--plan-only, --max-batch or --what-fits");
    }
    if (flags->log != NULL) {
        const size_t n = strlen(flags->log);
        const bool is_folder = n > 0 && flags->log[n - 1] == '/';
        if (!is_folder && (n < 5 || strcmp(flags->log + n - 4, ".csv") != 0)) {
            return program_misuse(&train_program,
                                  "--log %s: expected a name that ends in .csv, or a folder's, "
                                  "which ends in /",
                                  flags->log);
        }
    }
    if (flags->eval_every == NULL) {
        return EXIT_OK;
    }
    flags->is_eval = true;
    if (strcmp(flags->eval_every, "epoch") == 0) {
        return EXIT_OK;
    }
    char *rest = NULL;
    errno = 0;
    flags->eval_steps = strtoll(flags->eval_every, &rest, 10);
    const bool is_right =
        flags->eval_every[0] >= '1' && flags->eval_every[0] <= '9' && rest[0] == '\0' && errno == 0;
    return is_right ? EXIT_OK
                    : program_misuse(&train_program,
                                     "--eval-every %s: expected epoch, or a number of steps from 1",
                                     flags->eval_every);
}

static int fail_file(train_log *log, const char *what, int number)
{
    (void)close(log->file);
    log->file = -1;
    log->has_failed = true;
    return program_fail(&train_program, "%s: %s: %s", log->path, what, strerror(number));
}

static void append(train_log *log, const void *text, size_t n)
{
    const ssize_t n_written = write(log->file, text, n);
    if (n_written == (ssize_t)n) {
        log->size += (off_t)n;
        return;
    }
    const int number = n_written < 0 ? errno : ENOSPC;
    if (ftruncate(log->file, log->size) != 0) {
        (void)program_fail(&train_program, "%s: its last row is not whole", log->path);
    }
    (void)fail_file(log, "cannot be written, the training goes on without it", number);
}

/* Where the rows up to a step end; 0 if the file is empty, -1 if it is not such a log. */
static off_t find_end(const train_log *log, int64_t last_step)
{
    const char *header = header_of(log);
    const int file = log->file;
    char row[512];
    off_t end = 0;
    for (;;) {
        const ssize_t n = pread(file, row, sizeof row - 1, end);
        if (n <= 0) {
            return n == 0 ? end : -1;
        }
        row[n] = '\0';
        const char *line_end = strchr(row, '\n');
        if (end == 0 && strncmp(row, header, strlen(header)) != 0) {
            return -1;
        }
        if (line_end == NULL || (end > 0 && strtoll(row, NULL, 10) > last_step)) {
            return end;
        }
        end += line_end + 1 - row;
    }
}

static double wall_s(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A file of its own in the folder; what older ones have from the next step on is void. */
static int open_events(const char *folder, bool is_resumed, int64_t n_steps, train_log *log)
{
    char host[128] = "host";
    (void)gethostname(host, sizeof host - 1);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        return program_fail(&train_program, "%s: cannot be made: %s", folder, strerror(errno));
    }
    const int n = snprintf(log->path, sizeof log->path, "%sevents.out.tfevents.%.0f.%s.%ld", folder,
                           wall_s(), host, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof log->path) {
        return program_fail(&train_program, "--log: the folder's name is longer than %d characters",
                            TRAIN_LOG_PATH_BYTES - 1);
    }
    log->is_events = true;
    log->file = open(log->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (log->file < 0) {
        return program_fail(&train_program, "%s: cannot be opened: %s", log->path, strerror(errno));
    }
    unsigned char record[TRAIN_EVENT_BYTES];
    append(log, record, train_event_version(wall_s(), record));
    if (is_resumed && log->file >= 0) {
        append(log, record, train_event_start(wall_s(), n_steps + 1, record));
    }
    return log->has_failed ? EXIT_FAILED : EXIT_OK;
}

int train_open_log(const train_flags *flags, int64_t n_steps, train_log *out_log)
{
    const char *path = flags->log;
    const bool is_resumed = flags->resume != NULL;
    *out_log = (train_log){.file = -1, .has_validation = flags->validation != NULL};
    if (path == NULL) {
        return EXIT_OK;
    }
    if (path[strlen(path) - 1] == '/') {
        return open_events(path, is_resumed, n_steps, out_log);
    }
    if (strlen(path) >= sizeof out_log->path) {
        return program_fail(&train_program, "--log: the name is longer than %d characters",
                            TRAIN_LOG_PATH_BYTES - 1);
    }
    memcpy(out_log->path, path, strlen(path) + 1);
    out_log->file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (out_log->file < 0) {
        return program_fail(&train_program, "%s: cannot be opened: %s", path, strerror(errno));
    }
    const off_t end = is_resumed ? find_end(out_log, n_steps) : 0;
    if (end < 0) {
        (void)close(out_log->file);
        out_log->file = -1;
        return program_fail(&train_program,
                            "%s: not a log of this program %s --validation; --resume goes on in "
                            "one",
                            path, out_log->has_validation ? "with" : "without");
    }
    if (ftruncate(out_log->file, end) != 0) {
        return fail_file(out_log, "cannot be cut", errno);
    }
    out_log->size = end;
    if (end == 0) {
        append(out_log, header_of(out_log), strlen(header_of(out_log)));
    }
    return out_log->has_failed ? EXIT_FAILED : EXIT_OK;
}

static double cpu_s(void)
{
    struct timespec cpu = {0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    return (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9;
}

static void log_events(train_log *log, const train_row *row)
{
    train_scalar scalars[TRAIN_MAX_SCALARS] = {
        {"train/loss", row->loss},
        {"train/lr", row->lr},
        {"train/epoch", (double)row->epoch},
        {"speed/examples_per_s", row->examples_per_s},
        {"speed/cpu_s", cpu_s()},
        {"memory/peak_bytes", (double)row->peak_bytes},
    };
    size_t n = 6;
    if (row->test != NULL) {
        scalars[n++] = (train_scalar){"test/loss", row->test->loss};
        if (row->has_accuracy) {
            scalars[n++] = (train_scalar){"test/accuracy", row->test->accuracy};
        }
    }
    if (row->validation != NULL) {
        scalars[n++] = (train_scalar){"val/loss", row->validation->loss};
        if (row->has_accuracy) {
            scalars[n++] = (train_scalar){"val/accuracy", row->validation->accuracy};
        }
    }
    unsigned char record[TRAIN_EVENT_BYTES];
    append(log, record, train_event_scalars(wall_s(), row->step, scalars, n, record));
}

#define CELLS_BYTES 80

/* Loss and accuracy, each empty where it is not known. */
static void write_cells(const dunlin_metrics *metrics, bool has_accuracy, char out[CELLS_BYTES])
{
    (void)snprintf(out, CELLS_BYTES, ",");
    if (metrics != NULL && has_accuracy) {
        (void)snprintf(out, CELLS_BYTES, "%.17g,%.17g", metrics->loss, metrics->accuracy);
    } else if (metrics != NULL) {
        (void)snprintf(out, CELLS_BYTES, "%.17g,", metrics->loss);
    }
}

void train_log_row(train_log *log, const train_row *row)
{
    if (log->file < 0) {
        return;
    }
    if (log->is_events) {
        log_events(log, row);
        return;
    }
    char test[CELLS_BYTES];
    char validation[CELLS_BYTES];
    write_cells(row->test, row->has_accuracy, test);
    write_cells(row->validation, row->has_accuracy, validation);
    char text[500];
    const int n = snprintf(
        text, sizeof text, "%" PRId64 ",%" PRId64 ",%.17g,%.9g,%s,%.6g,%.3f,%" PRIu64 "%s%s\n",
        row->step, row->epoch, row->loss, row->lr, test, row->examples_per_s, cpu_s(),
        row->peak_bytes, log->has_validation ? "," : "", log->has_validation ? validation : "");
    append(log, text, (size_t)n);
}

bool train_close_log(train_log *log)
{
    if (log->file >= 0 && close(log->file) != 0) {
        log->has_failed = true;
        (void)program_fail(&train_program, "%s: cannot be written: %s", log->path, strerror(errno));
    }
    log->file = -1;
    return !log->has_failed;
}
