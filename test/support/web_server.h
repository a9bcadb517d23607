// SPDX-License-Identifier: BSD-3-Clause
/* Runs test/support/http_server.py as a child of a test program. */
#ifndef VITTRAIN_TEST_WEB_SERVER_H
#define VITTRAIN_TEST_WEB_SERVER_H

#include <stdbool.h>

/* Start it; files are served from `directory`. Returns false if python3 is not installed. */
bool web_server_open(const char *directory);
void web_server_close(void);

/* Return "http://127.0.0.1:PORT/" followed by the path. Valid until the next call. */
const char *web_server_url(const char *rest);

#endif
