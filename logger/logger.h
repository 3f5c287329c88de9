/*
 * The log writer: the one program that writes process logs to a disk, so that PID 1 never waits for
 * one. It is this same file, started by init as `sandbox-init --log-writer DIR SIZE FILES AGE_MS
 * KEEP` with a socket as descriptor 0; it runs without capabilities as the owner of DIR.
 *
 * For a process ID it keeps ID.log (frames, base/frame.h), ID.log.1 … (older ones), ID.pid and
 * ID.exit. A disk that is full or read-only makes it wait and try again: what init cannot keep
 * meanwhile comes as lost and is told so in the file.
 */
#ifndef LOGGER_LOGGER_H
#define LOGGER_LOGGER_H

#define LOGGER_OPTION "--log-writer"

/* Serve until the socket ends; args are what stands behind the option. Returns the exit status. */
int logger_main(int count, char **args);

#endif
