"""A round trip through towns, held in the memory of this one process: what a fork copies. Answers on a unix socket.

A line "SEED TRIES" tries so many random changes, keeps those that make the trip shorter, and answers its length.
"""
import math
import os
import random
import socketserver

PATH = "/tmp/tour.sock"
place = random.Random(7)
towns = [(place.random(), place.random()) for _ in range(24)]
tour = list(range(len(towns)))


def length(trip):
    return sum(math.dist(towns[a], towns[b]) for a, b in zip(trip, trip[1:] + trip[:1]))


def improve(seed, tries):
    global tour
    chance = random.Random(seed)
    for _ in range(tries):
        first, last = sorted(chance.sample(range(len(tour)), 2))
        other = tour[:first] + tour[first:last][::-1] + tour[last:]
        if length(other) < length(tour):
            tour = other


class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        seed, tries = self.rfile.readline().split()
        improve(int(seed), int(tries))
        self.wfile.write(b"%.4f\n" % length(tour))


if os.path.exists(PATH):
    os.unlink(PATH)
socketserver.UnixStreamServer(PATH, Answer).serve_forever()
