/*
 * The log writer: the one program that writes logs to a disk, so that PID 1 never waits for one. It
 * is this same file, started by init with a socket as descriptor 0; it runs without capabilities.
 *
 * `sandbox-init --log-writer DIR SIZE FILES AGE_MS KEEP`, as the owner of DIR, writes the logs of
 * processes:
 *
 * For a process ID it keeps ID.log (frames, base/frame.h), ID.log.1 … (older ones), ID.pid and
 * ID.exit. A disk that is full or read-only makes it wait and try again: what init cannot keep
 * meanwhile comes as lost and is told so in the file.
 *
 * `sandbox-init --log-writer files`, as the owner of their folders, writes lines to plain files
 * (logger/text_file.h). What is wrong with one of them is told, and holds up no other.
 */
#ifndef LOGGER_LOGGER_H
#define LOGGER_LOGGER_H

#define LOGGER_OPTION "--log-writer"
#define LOGGER_FILES  "files"

/* Serve until the socket ends; args are what stands behind the option. Returns the exit status. */
int logger_main(int count, char **args);

#endif
