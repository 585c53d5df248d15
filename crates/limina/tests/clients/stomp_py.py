"""Drives stomp.py by commands, one JSON object a line; prints what the library calls back with, one line each."""

import json
import sys
import threading

import stomp

lock = threading.Lock()


def tell(**what):
    with lock:
        print(json.dumps(what), flush=True)


class Listener(stomp.ConnectionListener):
    acknowledge = None

    def on_connected(self, frame):
        tell(called="connected", headers=frame.headers)

    def on_message(self, frame):
        tell(called="message", id=frame.headers.get("subscription"), headers=frame.headers, body=frame.body)
        if self.acknowledge:
            getattr(connection, self.acknowledge)(frame.headers["ack"])

    def on_error(self, frame):
        tell(called="error", headers=frame.headers, body=frame.body)

    def on_receipt(self, frame):
        tell(called="receipt", headers=frame.headers)

    def on_heartbeat_timeout(self):
        tell(called="heartbeat-timeout")

    def on_disconnected(self):
        tell(called="closed")


host, port, beats = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
connection = stomp.WSStompConnection([(host, port)], ws_path="/ws", heartbeats=tuple(beats))
listener = Listener()
connection.set_listener("tests", listener)
connection.connect("user", "secret", wait=True)

for line in sys.stdin:
    command = json.loads(line)
    name = command.pop("command")
    if name == "subscribe":
        listener.acknowledge = command.pop("acknowledge", None)
        connection.subscribe(command["destination"], command["id"], command.get("ack", "auto"), command.get("headers"))
    elif name == "unsubscribe":
        connection.unsubscribe(command["id"])
    elif name == "send":
        connection.send(command["destination"], command.get("body", ""), headers=command.get("headers"))
    elif name == "disconnect":
        connection.disconnect(receipt="bye")
