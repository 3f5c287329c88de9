#!/usr/bin/python3
"""A service that does what it is told: reads lines from the FIFO that is its only argument.

    say TEXT          send a datagram to NOTIFY_SOCKET (\\n is a line's end)
    child TEXT        the same from a child that has ended before anybody can look
    orphan TEXT       the same from a daemon that lives on
    write FD TEXT     write to a descriptor
    close FD
    listen PORT       accept connections and say nothing; a path: of a Unix socket
    http PORT STATUS  answer all requests with that status from now on
    flood N           so many datagrams, as fast as they are taken
    exit N
    stop              stop itself (SIGSTOP)

Each line is answered by a line "done WORD" on stdout. SIGHUP: "hup" on stdout.
"""

import os
import signal
import socket
import sys
import threading

PATH = sys.argv[1]
listeners = {}
statuses = {}


def say(text):
    address = os.environ["NOTIFY_SOCKET"]
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(text.replace("\\n", "\n").encode(), address)


def flood(n):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.connect(os.environ["NOTIFY_SOCKET"])
        for _ in range(n):
            s.send(b"STATUS=again\nWATCHDOG=1\nX=" + b"x" * 2000)


def child(text):
    pid = os.fork()
    if pid == 0:
        say(text)
        os._exit(0)
    os.waitpid(pid, 0)


def orphan(text):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork() == 0:
            say(text)
            signal.pause()
        os._exit(0)
    os.waitpid(pid, 0)


def answer(client, port):
    with client:
        client.recv(4096)
        client.sendall(f"HTTP/1.1 {statuses[port]} X\r\nContent-Length: 0\r\n\r\n".encode())


def serve(server, port):
    while True:
        client, _ = server.accept()
        if port in statuses:
            threading.Thread(target=answer, args=(client, port), daemon=True).start()


def listen(port):
    if port.startswith("/"):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.bind(port)
    else:
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", int(port)))
    s.listen(16)
    listeners[port] = s
    threading.Thread(target=serve, args=(s, port), daemon=True).start()


def http(port, status):
    statuses[port] = status
    if port not in listeners:
        listen(port)


def write(fd, text):
    os.write(int(fd), text.replace("\\n", "\n").encode())


ACTIONS = {
    "say": say,
    "child": child,
    "orphan": orphan,
    "write": lambda rest: write(*rest.split(" ", 1)),
    "close": lambda rest: os.close(int(rest)),
    "listen": listen,
    "flood": lambda n: flood(int(n)),
    "http": lambda rest: http(*rest.split(" ")),
    "exit": lambda code: os._exit(int(code)),
    "stop": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
}


def main():
    signal.signal(signal.SIGHUP, lambda *_: print("hup", flush=True))
    if not os.path.exists(PATH):
        os.mkfifo(PATH)
    fifo = os.open(PATH, os.O_RDWR)
    rest = b""
    print("begun", flush=True)
    while True:
        rest += os.read(fifo, 4096)
        while b"\n" in rest:
            line, rest = rest.split(b"\n", 1)
            word, _, text = line.decode().partition(" ")
            ACTIONS[word](text)
            print("done", word, flush=True)


main()
