/*
 * log.h - where the server's lines go: what is told to stdout, what went wrong to stderr.
 */
#ifndef DUNLIN_SERVER_LOG_H
#define DUNLIN_SERVER_LOG_H

#include <dunlin/log.h>

dunlin_log dunlin__server_log(dunlin_log_level level);

#endif
