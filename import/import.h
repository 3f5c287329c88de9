/*
 * From other programs' configuration to sandbox.ini. This is no work of PID 1: it runs instead of
 * it, prints, and ends.
 */
#ifndef IMPORT_IMPORT_H
#define IMPORT_IMPORT_H

/* Read a configuration of supervisord with all that it includes; print the equivalent sandbox.ini
 * on stdout, with what has no equivalent as comments in it, and a summary on stderr. Variables
 * (%(ENV_X)s) are looked up in environ_. Returns the exit status: 0, or 1 after a complaint with
 * FILE:LINE and nothing printed on stdout. */
int import_supervisord(const char *path, char *const *environ_);

#endif
