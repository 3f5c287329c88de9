#!/usr/bin/python3
"""Stands in for sandbox-gateway where init's side is tested: no HTTP, but lines of
words between tabs.

    about            what it was started with, as JSON
    call VERB K=V …  one operation over a connection handed to init: the last packet
    helper           a file helper over a handed descriptor: what it says of itself, as JSON
    helpers N        the same N times at once: how many began
    hold             one that stays: what it says of itself
    say HEX          a packet of these bytes, without a descriptor
    last HEX         the same, and the end
    send WHAT        something that init must not stumble over; see junk()
    exit N           the end

A file `gateway-fails` beside this program makes it exit with the status that stands in it.
"""

import array
import ctypes
import json
import os
import socket
import struct
import sys
import threading
from pathlib import Path


def descriptors():
    found = []
    for fd in range(3, 1024):
        try:
            os.fstat(fd)
            found.append(fd)
        except OSError:
            pass
    return found


FDS = descriptors()  # that it was started with


def status():
    text = Path("/proc/self/status").read_text()
    return dict((k, v.strip()) for k, _, v in (l.partition(":") for l in text.splitlines()))


def about(**more):
    s = status()
    return json.dumps({
        "argv": sys.argv[1:], "environ": dict(os.environ), "uid": os.getresuid(), "gid": os.getresgid(),
        "groups": os.getgroups(), "caps": [s[k] for k in ("CapInh", "CapPrm", "CapEff", "CapAmb")],
        "no_new_privs": s["NoNewPrivs"], "cwd": os.getcwd(), "pid": os.getpid(),
        "fds": FDS, **more})


def hand(control, what, fds):
    control.sendmsg([what], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])


def pair():
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def handed(control, what):
    ours, theirs = pair()
    hand(control, what, [theirs.fileno()])
    theirs.close()
    return ours


def call(control, words):
    ours = handed(control, b"c")
    ours.send(b"\0".join(w.encode() for w in words) + b"\0")
    last = b""
    while packet := ours.recv(65536):
        last = packet
    return last.decode(errors="replace").replace("\0", "\n")


def junk(control, what):
    a, b = pair()
    stream = socket.socketpair()
    pipe = os.pipe()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind("")
    listening.listen()
    file = os.open("/dev/null", os.O_RDONLY)
    {"pipe": lambda: hand(control, b"c", [pipe[0]]),
     "stream": lambda: hand(control, b"c", [stream[0].fileno()]),
     "listening": lambda: hand(control, b"c", [listening.fileno()]),
     "file": lambda: hand(control, b"f", [file]),
     "none": lambda: hand(control, b"c", []),
     "two": lambda: hand(control, b"c", [a.fileno(), b.fileno()]),
     "many": lambda: hand(control, b"c", [a.fileno()] * 200),
     "word": lambda: hand(control, b"x", [a.fileno()]),
     "words": lambda: hand(control, b"tno words", [a.fileno()]),
     "said": lambda: hand(control, b"t", [a.fileno()]),
     "long": lambda: hand(control, b"c" * 5000, [a.fileno()]),
     "linger": lambda: linger(control),
     "kept": lambda: keep(control),
     "empty": lambda: control.send(b"")}[what]()


def full_tcp():
    """Its last close waits for 30 s, since the peer reads nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        kept.append(listener.accept()[0])
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 30))
    ours.setblocking(False)
    try:
        while True:
            ours.send(bytes(65536))
    except BlockingIOError:
        return ours


def linger(control):
    with full_tcp() as s:
        hand(control, b"c", [s.fileno()])


kept = []


def keep(control):
    """Both ends stay open here, and one is handed over twice."""
    ends = pair()
    kept.append(ends)
    hand(control, b"c", [ends[0].fileno()])
    hand(control, b"c", [ends[0].fileno()])
    ends[1].send(b"status\0")


def serve(conn, control, token):
    with conn, conn.makefile("rw") as f:
        for line in f:
            word, *rest = line.rstrip("\n").split("\t")
            if word == "about":
                answer = about(token=token)
            elif word == "call":
                answer = call(control, rest)
            elif word == "helper":
                answer = handed(control, b"f").recv(65536).decode()
            elif word == "hold":
                kept.append(handed(control, b"f"))
                answer = kept[-1].recv(65536).decode()
            elif word == "helpers":
                socks = [handed(control, b"f") for _ in range(int(rest[0]))]
                answer = sum(s.recv(65536) != b"" for s in socks)
            elif word == "say":
                answer = control.send(bytes.fromhex(rest[0]))
            elif word == "last":
                control.send(bytes.fromhex(rest[0]))
                os._exit(3)
            elif word == "send":
                junk(control, rest[0])
                answer = "sent"
            else:
                os._exit(int(rest[0]))
            f.write(json.dumps(answer) + "\n")
            f.flush()


def main():
    if sys.argv[1] == "--file-helper":
        s = socket.socket(fileno=3)
        s.send(about().encode())
        s.recv(1)
        return
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    fails = Path(__file__).resolve().parent / "gateway-fails"
    if fails.exists():
        sys.exit(int(fails.read_text()))
    options = [a.partition("=") for a in sys.argv[1:]]
    token = None
    if ("--token-fd", "=", "4") in options:
        token = os.read(4, 5000).decode()
        os.close(4)
    control = socket.socket(fileno=3)
    listeners = []
    for name, _, value in options:
        if name == "--listen" and value.startswith("unix:"):
            s = socket.socket(socket.AF_UNIX)
            if os.path.exists(value[5:]):
                os.unlink(value[5:])
            s.bind(value[5:])
            s.listen()
            listeners.append(s)
        elif name == "--listen":
            host, _, port = value.rpartition(":")
            listeners.append(socket.create_server((host, int(port))))
    for s in listeners:
        threading.Thread(target=accept, args=(s, control, token), daemon=True).start()
    threading.Event().wait()


def accept(s, control, token):
    while True:
        conn, _ = s.accept()
        threading.Thread(target=serve, args=(conn, control, token), daemon=True).start()


main()
