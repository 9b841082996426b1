/*
 * client_options.h - what an app's options may be.
 */
#ifndef DUNLIN_SDK_CLIENT_OPTIONS_H
#define DUNLIN_SDK_CLIENT_OPTIONS_H

#include <dunlin/client.h>

/* ARGUMENT names the option and its limit. */
dunlin_status dunlin__client_options_check(const dunlin_client_options *options, bool allow_plain,
                                           dunlin_error *error);

#endif
