/*
 * log.h - where the server's lines go: information to stdout, failures to stderr.
 */
#ifndef DUNLIN_SERVER_LOG_H
#define DUNLIN_SERVER_LOG_H

#include <dunlin/log.h>

/* At most 1,000 lines at once and 50 a second: false if one more would be too many. True: how many
 * were left out since the last that went out. */
bool dunlin__server_log_may(int64_t now_ms, uint64_t *out_n_dropped);

dunlin_log dunlin__server_log(dunlin_log_level level);

#endif
