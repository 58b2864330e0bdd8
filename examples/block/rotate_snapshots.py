"""Takes a snapshot of a volume and deletes all but the newest COUNT that it took.

python3 rotate_snapshots.py /run/memlane/api.sock VOLUME COUNT

For cron or a systemd timer. Snapshots that others took are left alone.
"""

import http.client
import json
import socket
import sys
import time

PREFIX = "rotated-"


class Daemon(http.client.HTTPConnection):
    """The daemon's REST interface on its Unix socket."""

    def __init__(self, path):
        super().__init__("memlane")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self.path)

    def ask(self, method, path, body=None):
        headers = {"Content-Type": "application/json"} if body else {}
        self.request(method, path, json.dumps(body) if body else None, headers)
        answer = self.getresponse()
        text = answer.read().decode()
        if answer.status >= 400:
            raise SystemExit(f"{method} {path}: {json.loads(text).get('detail', text)}")
        return json.loads(text) if text else None


def main():
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    path, volume, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if count < 1:
        raise SystemExit("COUNT must be at least 1")
    daemon = Daemon(path)
    name = PREFIX + str(time.time_ns())
    daemon.ask("POST", "/v1/snapshots", {"volumes": [volume], "snapshot": name})
    snapshots = daemon.ask("GET", f"/v1/snapshots?volume={volume}")
    rotated = sorted(it["name"] for it in snapshots if it["snapshot"].startswith(PREFIX))
    for old in rotated[:-count]:
        daemon.ask("DELETE", f"/v1/snapshots/{old}")
    print("\n".join(rotated[-count:]))


if __name__ == "__main__":
    main()
